"""Device time of the normalizations beside every peer on the same inputs, L2 cold, and the share of a plain copy.

    python benchmarks/norm.py --write        # also benchmarks/results/norm-<card>-<date>.json and .md
    python benchmarks/norm.py --warm 0/12    # only compile every twelfth case: run twelve of these beforehand

Needs a GPU. Peers: PyTorch eager, torch.compile, and liger-kernel and flashinfer where they are installed and have the
op. Times are medians in microseconds between two events around one call, of all that a line compares in turns; the L2
cache is emptied before each by filling 512 MiB twice and reading them, which takes longer than a host needs to enqueue
the call, so that only device time is seen, and leaves nothing in the cache that must be written back. What an event
pair costs by itself is in every time: an empty kernel is timed so too. A copy is `Tensor.copy_` of as many bytes as the
op reads and writes at least.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from norm_channels import channel_cases
from norm_page import MEASURED, rivals_of, table
from norm_rows import host_rows, row_cases
from reports import arguments, keep, report_of
from rich.console import Console
from rich.progress import track
from timing import Case, Timer, Work, copying, empty_kernel, failure_of

from tileops.kernels.tilelang_build import dtype_name

NAMES = ("torch", "tilelang", "triton", "liger-kernel", "flashinfer-python")
COLUMNS = ("op", "shape", "dtype", *MEASURED)
ROUNDS, EACH = 11, 3
"""Turns of each call that is timed, and calls of a turn: 33 in all."""


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


KINDS: dict[str, Callable[[], Iterator[Case]]] = {"rows": lambda: row_cases(peers()), "channels": channel_cases}


def cases(only: str | None) -> Iterator[Case]:
    """Those of one kind, or all, one after the other: the tensors of one are gone before the next is made."""
    return itertools.chain.from_iterable(made() for kind, made in KINDS.items() if only in (None, kind))


def warm(part: str, only: str | None) -> None:
    """Compile the cases of one part, *i*/*n*, so that a later run finds them in the caches on disk."""
    number, of = map(int, part.split("/"))
    for index, case in enumerate(cases(only)):
        if index % of == number:
            for work in case.works.values():
                failure_of(work)


def measured(case: Case, timer: Timer, empty: Work) -> dict[str, Any]:
    """One line of the table; a peer that fails says how. Beside one row, an *empty* kernel is timed."""
    line: dict[str, Any] = {"op": case.op, "shape": case.shape, "dtype": dtype_name(case.dtype)}
    line.update({name: failure_of(work) for name, work in case.works.items()})
    works = {name: work for name, work in case.works.items() if line[name] is None}
    works["copy"] = copying(case.bytes)
    if case.shape[0] == 1:
        works["empty"] = empty
    line.update({name: round(us, 2) for name, us in timer.in_turn(works, ROUNDS, EACH, pause_s=0.0).items()})
    rivals = rivals_of(line)
    if isinstance(line["ours"], float):
        line["share"] = round(line["copy"] / line["ours"], 3)
        line["ahead"] = round(min(rivals) / line["ours"], 2) if rivals else None
    return line


def main() -> None:
    """Measure, show a table, and with ``--write`` keep it."""
    parser = arguments(__doc__)
    parser.add_argument("--warm", help="compile one part, as i/n, and measure nothing")
    parser.add_argument("--only", choices=KINDS, help="one kind; with --write to norm-<kind>-<card>-<date>")
    given = parser.parse_args()
    if given.warm:
        warm(given.warm, given.only)
        return
    console, timer, empty = Console(width=160), Timer(), empty_kernel()
    report = report_of(
        NAMES,
        empty_kernel_us=round(timer(empty), 2),
        host_us=list(host_rows()) if given.only != "channels" else [],
        rows=[measured(case, timer, empty) for case in track(cases(given.only), "cases", console=console)],
    )
    shown = table(report["rows"], COLUMNS)
    console.print({name: value for name, value in report.items() if name != "rows"})
    console.print(shown, soft_wrap=True)
    if given.write:
        path = keep(report, "norm", given.into, given.only)
        path.with_suffix(".md").write_text(shown + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
