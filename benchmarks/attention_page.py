"""The tables of benchmarks/results/README.md from what attention.py wrote: prefill and decode, hosts and graphs.

python benchmarks/attention_page.py benchmarks/results/attention-<card>-<date>.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attention_case import Bar
from attention_peers import PEERS
from attention_rows import Row
from reports import markdown

COLUMNS: Final = ("ours", *PEERS)
NAMED: Final = {
    "prefill": ("batch", "keys", "heads", "dim", "dtype", "is_causal", "window"),
    "decode": ("batch", "keys", "heads", "dtype"),
}
"""By kind, the columns that tell one row from another."""
RATES: Final = {"prefill": "tflops", "decode": "tb_per_s"}
UNITS: Final = {
    "us": "µs",
    "busy_us": "busy µs",
    "host_us": "host µs",
    "graph_us": "graph µs",
    "tflops": "TFLOP/s",
    "tb_per_s": "TB/s",
}


def asked(row: Row) -> str:
    """What a row must reach, and whether it does."""
    if row["bar"] is None:
        return "–"
    figure, value = row["bar"]["figure"], row["bar"]["value"]
    kept = "" if row["bar"].get("kept") else ", missed"
    return f"{Bar(figure, value)} {UNITS[figure]}{kept}"


def shown(row: Row, figure: str, name: str) -> Any:
    """What was measured, that it failed, or that there is none."""
    if name == "ours" and name in row["failed"]:
        return "error"
    return row.get(figure, {}).get(name, "–")


def table(kind: str, rows: Sequence[Row], figures: Sequence[str], more: Sequence[str]) -> str:
    """*rows* of *kind* in Markdown: *figures* of each peer, then *more* of ours."""
    head = [*NAMED[kind], *(f"{name}, {UNITS[figure]}" for figure in figures for name in COLUMNS)]
    lines = []
    for row in rows:
        named = [f"{row['heads']}/{row['heads_kv']}" if name == "heads" else row[name] for name in NAMED[kind]]
        timed = [shown(row, figure, name) for figure in figures for name in COLUMNS]
        own = {**row, RATES[kind]: shown(row, RATES[kind], "ours"), "bar": asked(row)}
        lines.append([*named, *timed, *("–" if own.get(name) is None else own[name] for name in more)])
    return markdown([*head, *(UNITS.get(name, name.replace("_", " ")) for name in more)], lines)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Of each kind: device times with what they come to, then hosts and graphs where they were measured."""
    for kind, rate in RATES.items():
        of_kind = [row for row in rows if row["kind"] == kind]
        if of_kind:
            yield f"{kind.capitalize()}, one whole call:"
            yield table(kind, of_kind, ["us", "busy_us"], [rate, "share", "ahead", "bar"])
        short = [row for row in of_kind if "graph_us" in row]
        if short:
            yield (
                f"{kind.capitalize()} where our host takes longer than the device: hosts, what ours takes over the "
                f"launch of its kernel alone, and replays of graphs."
            )
            yield table(kind, short, ["host_us", "graph_us"], ["host_over_launch_us", "graph_ahead"])


def page(report: dict[str, Any]) -> str:
    """All tables, and what the card and its peers are."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    products = ", ".join(f"{rate} TFLOP/s in {dtype}" for dtype, rate in report["product_tflops"].items())
    reasons = sorted({f"{name}: {why}" for row in report["rows"] for name, why in row["failed"].items()})
    return "\n\n".join(
        (
            f"{report['card']}, {report['date']}, {versions}. Median of {report['repeats']}. An empty kernel takes "
            f"{report['empty_kernel_us']} µs, a device copy reaches {report['copy_tb_per_s']} TB/s, cuBLAS {products}.",
            *tables(report["rows"]),
            *(["Without a figure:", "\n".join(f"- {reason}" for reason in reasons)] if reasons else []),
        )
    )


def main() -> None:
    """Write the page of one report to standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    sys.stdout.write(page(json.loads(parser.parse_args().report.read_text())) + "\n")


if __name__ == "__main__":
    main()
