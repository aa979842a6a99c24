"""Device time of the normalizations beside every peer on the same inputs, L2 cold, and the share of a plain copy.

    python benchmarks/norm.py --write        # also benchmarks/results/norm-<card>-<date>.json and .md
    python benchmarks/norm.py --warm 0/12    # only compile every twelfth case: run twelve of these beforehand

Needs a GPU. Peers: PyTorch eager, torch.compile, and liger-kernel and flashinfer where they are installed and have the
op. Times are medians in microseconds between two events around one call; the L2 cache is flushed before each by filling
512 MiB three times, which takes longer than a host needs to enqueue the call, so that only device time is seen. What an
event pair costs by itself is in every time: an empty kernel is timed so too. A copy is `Tensor.copy_` of as many bytes
as the op reads and writes at least.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from norm_channels import channel_cases
from norm_rows import host_rows, row_cases
from rich.console import Console
from rich.progress import track
from timing import CUDA, Case, Timer, empty_kernel_us

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = ("torch", "tilelang", "triton", "liger-kernel", "flashinfer-python")
PEERS = ("torch", "torch.compile", "liger", "flashinfer")
COLUMNS = ("op", "shape", "dtype", "ours", *PEERS, "copy", "share", "ahead")


def peers() -> dict[str, Any]:
    """The other libraries that are installed, by name."""
    found: dict[str, Any] = {}
    try:
        import liger_kernel.ops as liger

        found["liger"] = liger
    except ImportError:
        pass  # not installed: its column stays empty
    try:
        import flashinfer

        found["flashinfer"] = flashinfer
    except ImportError:
        pass
    return found


def cases() -> Iterator[Case]:
    """All of them, one after the other: the tensors of one are gone before the next is made."""
    return itertools.chain(row_cases(peers()), channel_cases())


def warm(part: str) -> None:
    """Compile the cases of one part, *i*/*n*, so that a later run finds them in the caches on disk."""
    number, of = map(int, part.split("/"))
    for index, case in enumerate(cases()):
        if index % of == number:
            for work in case.works.values():
                timed_or_why(work)


def timed_or_why(work: Any, timer: Any = None) -> float | str:
    """Microseconds of *work*, or what it raised: that a peer fails is a result."""
    try:
        return round(timer(work), 2) if timer is not None else float(work() is None)
    except Exception as error:  # noqa: BLE001  whatever a peer raises is a result
        # A launch that fails leaves its error to whoever asks next: torch asks after a launch, and takes it away.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=CUDA)
        return f"{type(error).__name__}: {error}"[:100]


def measured(case: Case, timer: Timer) -> dict[str, Any]:
    """One line of the table; a peer that fails says how."""
    line: dict[str, Any] = {
        "op": case.op,
        "shape": case.shape,
        "dtype": str(case.dtype).removeprefix("torch."),
        "copy": round(timer.copy(case.bytes), 2),
    }
    line.update({name: timed_or_why(work, timer) for name, work in case.works.items()})
    rivals = [value for name, value in line.items() if name in PEERS and isinstance(value, float)]
    if isinstance(line["ours"], float):
        line["share"] = round(line["copy"] / line["ours"], 3)
        line["ahead"] = round(min(rivals) / line["ours"], 2) if rivals else None
    return line


def as_table(lines: list[dict[str, Any]]) -> str:
    """The lines as a table in Markdown."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for line in lines:
        shape = "×".join(map(str, line["shape"]))
        rows.append(tuple(shape if name == "shape" else str(line.get(name, "–")) for name in COLUMNS))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure, show a table, and with ``--write`` keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--into", type=Path, default=RESULTS)
    parser.add_argument("--warm", help="compile one part, as i/n, and measure nothing")
    given = parser.parse_args()
    if given.warm:
        warm(given.warm)
        return
    console, timer = Console(width=160), Timer()
    installed = {name: importlib.metadata.version(name) for name in NAMES if _has(name)}
    report: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "card": torch.cuda.get_device_name(CUDA),
        "versions": {**installed, "cuda": torch.version.cuda},
        "empty_kernel_us": round(empty_kernel_us(timer), 2),
        "host_us": list(host_rows()),
        "rows": [measured(case, timer) for case in track(cases(), "cases", console=console)],
    }
    console.print({name: value for name, value in report.items() if name != "rows"})
    console.print(as_table(report["rows"]), soft_wrap=True)
    if given.write:
        path = given.into / f"norm-{report['card'].lower().replace(' ', '-')}-{report['date']}.json"
        given.into.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
        path.with_suffix(".md").write_text(as_table(report["rows"]) + "\n")
        console.print(f"written: {path}")


def _has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
