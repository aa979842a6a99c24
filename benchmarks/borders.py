"""Device time on either side of the borders of regions, with each implementation that could be there, L2 cold.

    python benchmarks/borders.py --write          # also benchmarks/results/borders-<card>-<date>.json
    python benchmarks/borders.py --compile-only   # without a GPU: compiles for --arch and measures nothing

What is measured decides thresholds: each row is one call around a border, each column a way to serve it, whether or not
its kernel serves the call today. Ways that a layout inside a kernel decides are made by setting the constant, for the
time of the build alone. What cannot be built says why; a way whose result is not that of the first one says so in the
place of a time. Times are medians as ``timing.Timer`` has them, in microseconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from reports import arguments, keep, markdown, report_of
from rich.console import Console
from tileops_rules.archs import KNOWN_ARCHS
from timing import CUDA, Timer, failure_of, reason_of

from tileops.kernels.device_facts import DeviceFacts, device_facts
from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm import channel_layout
from tileops.kernels.norm.batch_norm_bwd import BatchNormBwdKernel, BatchNormBwdSplitKernel, BatchNormBwdWideKernel
from tileops.kernels.norm.batch_norm_train import (
    BatchNormFwdTrainKernel,
    BatchNormFwdTrainSplitKernel,
    BatchNormFwdTrainWholeKernel,
    BatchNormFwdTrainWideKernel,
)
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.tilelang_build import compile_program

CLOSE = 0.02
"""How far results in float16 may be apart, beside the largest of them."""

Shape = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to serve a call.

    Attributes:
        name: Of the column.
        kind: The kernel class.
        constants: What is set in ``channel_layout`` while it is built.
    """

    name: str
    kind: type[Kernel]
    constants: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Border:
    """A threshold.

    Attributes:
        constant: Its name.
        shapes: Samples, channels and values of a plane, on both sides.
        ways: Those that are preferred today first.
    """

    constant: str
    shapes: tuple[Shape, ...]
    ways: tuple[Way, ...]


WHOLE, WIDE = Way("whole", BatchNormFwdTrainWholeKernel), Way("wide", BatchNormFwdTrainWideKernel)
SPLIT, GENERAL = Way("split", BatchNormFwdTrainSplitKernel), Way("general", BatchNormFwdTrainKernel)
BWD_WIDE, BWD_SPLIT = Way("bwd wide", BatchNormBwdWideKernel), Way("bwd split", BatchNormBwdSplitKernel)
BWD_GENERAL = Way("bwd general", BatchNormBwdKernel)


def held(threads: int, values: int) -> Way:
    """Blocks that hold channels, of so many threads with so many values at most."""
    constants = (("HELD_THREADS", threads), ("HELD_VALUES", values))
    return dataclasses.replace(WIDE, name=f"wide of {threads}x{values}", constants=constants)


NARROW = (1024, 2048, 4096, 8192, 16384)
"""Values of a channel of which several are read together."""

BORDERS = (
    Border(
        "WHOLE_VALUES",
        (
            (16, 64, 1),
            (32, 64, 1),
            (32, 512, 1),
            (32, 8192, 1),
            (64, 8192, 1),
            (2, 1000, 8),
            (4, 1000, 8),
            (8, 1000, 8),
        ),
        (WHOLE, WIDE),
    ),
    Border("SPLIT_VALUES", tuple((n, c, 1) for c in (64, 512) for n in NARROW), (SPLIT, GENERAL)),
    Border("SPLIT_VALUES", tuple((n, c, 1024) for c in (8, 32) for n in (2, 4, 8, 16)), (WIDE, SPLIT, GENERAL)),
    Border("SPLIT_VALUES", tuple((n, c, 1) for c in (64, 512) for n in NARROW), (BWD_SPLIT, BWD_GENERAL)),
    Border("SPLIT_VALUES", tuple((n, 32, 1024) for n in (2, 4, 8, 16)), (BWD_WIDE, BWD_SPLIT, BWD_GENERAL)),
    Border(
        "SPLIT_CHANNELS",
        (
            *((32, c, 1024) for c in (128, 256, 384, 512, 640, 1024, 2048)),
            *((16384, c, 1) for c in (2048, 8192, 16384)),
        ),
        (SPLIT, GENERAL),
    ),
    Border("SPLIT_CHANNELS", tuple((32, c, 1024) for c in (128, 256, 512, 640, 1024, 2048)), (BWD_SPLIT, BWD_GENERAL)),
    Border(
        "HELD_THREADS",
        tuple((n, c, 1024) for c in (64, 512) for n in (8, 16)),
        (held(512, 32), held(256, 64), held(1024, 16), SPLIT),
    ),
    Border("HELD_VALUES", ((32, 64, 1024), (32, 512, 1024)), (SPLIT, held(512, 64), held(1024, 32), GENERAL)),
    Border("NARROW_HELD", tuple((n, c, 1) for c in (64, 512, 4096) for n in (256, 512, 1024, 2048)), (WIDE, GENERAL)),
)


@contextlib.contextmanager
def constants_of(way: Way) -> Iterator[None]:
    """The constants of *way*, set in the module of layouts."""
    with contextlib.ExitStack() as stack:
        for name, value in way.constants:
            stack.enter_context(mock.patch.object(channel_layout, name, value))
        yield


def call_of(shape: Shape, arch: int | None) -> BatchNormCall:
    """A call in float16, with the facts of this GPU or those of the usual card of *arch*."""
    here = device_facts(CUDA) if arch is None else KNOWN_ARCHS[arch]
    of = here.arch if isinstance(here, DeviceFacts) else arch
    return BatchNormCall(*shape, device=CUDA, arch=of, sm_count=here.sm_count, smem_budget=here.smem_budget)


def built(way: Way, call: BatchNormCall) -> Any:
    """The kernel of *way* for *call*, whatever it refuses, or why there is none."""
    with constants_of(way):
        try:
            return way.kind.entry_for(call)[1]()
        except Exception as error:  # noqa: BLE001 - that a kernel has no way to serve a call is a result
            return reason_of(error)


def inputs_of(way: Way, call: BatchNormCall) -> tuple[torch.Tensor | None, ...]:
    """What the kernel of *way* takes, the same for each."""
    draw = torch.Generator(CUDA).manual_seed(call.n + call.c)
    x, grad = (torch.randn(call.n, call.c, call.spatial, device=CUDA, generator=draw).half() for _ in range(2))
    weight, bias, mean, rstd = (torch.rand(call.c, device=CUDA, generator=draw) + 0.5 for _ in range(4))
    if way.name.startswith("bwd"):
        return grad, x, weight, mean, rstd
    return x, weight, bias, None, None


def measured(border: Border, shape: Shape, timer: Timer) -> dict[str, Any]:
    """One row."""
    call = call_of(shape, None)
    line: dict[str, Any] = {"border": border.constant, "shape": shape, "values": call.values}
    today = [way.name for way in border.ways if not way.constants and way.kind.refusal(call) is None]
    line["today"] = today[0] if today else None
    given, first = inputs_of(border.ways[0], call), None
    for way in border.ways:
        kernel = built(way, call)
        if isinstance(kernel, str):
            line[way.name] = kernel
            continue
        work = functools.partial(kernel, *given)
        line[way.name] = failure_of(work)
        if line[way.name] is None:
            result = work()[0]
            first = result if first is None else first
            same = bool((result - first).abs().max() <= CLOSE * first.abs().max())
            line[way.name] = round(timer(work), 2) if same else "differs"
    return line


def as_table(border: Border, lines: list[dict[str, Any]]) -> str:
    """The rows of one border as a table in Markdown."""
    columns = ("border", "shape", "values", "today", *(way.name for way in border.ways))

    def shown(line: dict[str, Any], name: str) -> Any:
        return "×".join(map(str, line[name])) if name == "shape" else line[name]

    return markdown(columns, ([shown(line, name) for name in columns] for line in lines))


def compile_all(arch: int, console: Console) -> None:
    """Build every way of every row for *arch*, and say what cannot be built."""
    start = time.perf_counter()
    for border in BORDERS:
        for shape in border.shapes:
            for way in border.ways:
                kernel = built(way, call_of(shape, arch))
                if isinstance(kernel, str):
                    console.print(f"{border.constant} {shape} {way.name}: {kernel}", soft_wrap=True)
    count, seconds = compile_program.cache_info().currsize, time.perf_counter() - start
    console.print(f"{count} programs for sm_{arch} in {seconds:.0f} s")


def main() -> None:
    """Measure, show tables, and with ``--write`` keep them."""
    parser = arguments(__doc__)
    parser.add_argument("--compile-only", action="store_true", help="compile without a GPU, and measure nothing")
    parser.add_argument("--arch", type=int, default=90, choices=sorted(KNOWN_ARCHS), help="what is compiled for")
    given, console = parser.parse_args(), Console(width=160)
    if given.compile_only:
        compile_all(given.arch, console)
        return
    timer = Timer()
    tables = [(border, [measured(border, shape, timer) for shape in border.shapes]) for border in BORDERS]
    for border, lines in tables:
        console.print(as_table(border, lines), "\n", soft_wrap=True)
    if given.write:
        rows = [line for _, lines in tables for line in lines]
        path = keep(report_of(("torch", "tilelang"), rows=rows), "borders", given.into)
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
