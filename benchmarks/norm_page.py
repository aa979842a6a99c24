"""The tables of benchmarks/results/README.md from what norm.py wrote: rows, single rows, channels, host time.

python benchmarks/norm_page.py benchmarks/results/norm-<card>-<date>.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reports import markdown

OPS = {
    "LayerNormFwdOp": "LayerNorm",
    "RMSNormFwdOp": "RMSNorm",
    "FusedAddLayerNormFwdOp": "add + LayerNorm",
    "FusedAddRMSNormFwdOp": "add + RMSNorm",
    "AdaLayerNormFwdOp": "AdaLN",
    "AdaLayerNormZeroFwdOp": "AdaLN-Zero",
}
HEADS = {"torch.compile": "compile"}
PEERS = ("torch", "torch.compile", "liger", "flashinfer")
MEASURED = ("ours", *PEERS, "copy", "share", "ahead")

Line = dict[str, Any]


def shown(line: Line, column: str) -> str:
    """One cell: a figure, a name, or that a peer failed or was not there."""
    value = line.get(column)
    if column == "op":
        return OPS.get(line["op"], line["op"])
    if column == "shape":
        return "×".join(map(str, line["shape"]))
    if value is None:
        return "–"
    return "error" if column in MEASURED and isinstance(value, str) else str(value)


def table(lines: Sequence[Line], columns: Sequence[str]) -> str:
    """*lines* in Markdown, without the columns in which none has anything."""
    kept = [name for name in columns if any(line.get(name) is not None for line in lines)]
    return markdown([HEADS.get(name, name) for name in kept], ([shown(line, name) for name in kept] for line in lines))


def is_row(line: Line) -> bool:
    """Whether rows were normalized."""
    return line["op"] in OPS


def is_single(line: Line) -> bool:
    """Whether one row was."""
    return is_row(line) and bool(line["shape"][0] == 1)


def span(lines: Sequence[Line], column: str) -> str:
    """The least and the greatest of *column*."""
    values = [line[column] for line in lines if line.get(column) is not None]
    return f"{min(values)} to {max(values)}"


def rivals_of(line: Line) -> list[float]:
    """What the peers that ran took."""
    return [line[name] for name in PEERS if isinstance(line.get(name), float)]


def behind(lines: Sequence[Line]) -> int:
    """How many are slower than a peer, by as little as may be: *ahead* is rounded."""
    return sum(any(us < line["ours"] for us in rivals_of(line)) for line in lines)


def parts(report: dict[str, Any]) -> Iterator[str]:
    """All tables of what was measured, each with what it spans."""
    lines, empty = report["rows"], report["empty_kernel_us"]
    yield (
        f"Versions: {', '.join(f'{name} {version}' for name, version in report['versions'].items())}. "
        f"An empty kernel takes {empty} µs."
    )
    many = [line for line in lines if is_row(line) and not is_single(line)]
    if many:
        yield (
            f"Rows: *ahead* from {span(many, 'ahead')}, a peer faster in {behind(many)} of {len(many)}; *share* from "
            f"{span(many, 'share')}."
        )
        yield table(many, ("op", "shape", "dtype", *MEASURED))
    single = [line for line in lines if is_single(line)]
    if single:
        of_empty = [round(line["ours"] / line["empty"], 2) for line in single if line["shape"][1] <= 8192]
        copies = [round(line["copy"] / line["empty"], 2) for line in single if line["shape"][1] <= 8192]
        yield (
            f"Single rows up to 8,192: {min(of_empty)} to {max(of_empty)} times an empty kernel, a copy of one "
            f"{min(copies)} to {max(copies)}."
        )
        yield table(single, ("op", "shape", "dtype", *MEASURED[:-2], "empty"))
    channels = [line for line in lines if not is_row(line)]
    if channels:
        yield (
            f"Channels: *ahead* from {span(channels, 'ahead')}, a peer faster in {behind(channels)} of {len(channels)}."
        )
        yield table(channels, ("op", "shape", *MEASURED))
    if report.get("host_us"):
        yield "Host time of one whole call, µs:"
        yield table(report["host_us"], ("op", "shape", "ours", "torch"))


def main() -> None:
    """Write the page of one report to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    sys.stdout.write("\n\n".join(parts(json.loads(parser.parse_args().report.read_text()))) + "\n")


if __name__ == "__main__":
    main()
