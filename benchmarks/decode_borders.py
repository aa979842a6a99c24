"""Device time of one decoded sequence in each form that its blocks could have, L2 cold: where regions meet.

    python benchmarks/decode_borders.py --write          # also benchmarks/results/decode-forms-<card>-<date>.json
    python benchmarks/decode_borders.py --compile-only   # without a GPU: compiles the forms and measures nothing

What is measured decides how one sequence is cut: each row is a number of keys, each column a form, which is a shape of
blocks and a number of runs, whether or not a kernel takes it today. 32 query heads on 4 of 128, float16.
Times are medians in microseconds of one call of the kernel in rounds, as ``timing.Timer.in_turn`` has them; the host's
share of a call stands beside them. A form whose result is not that of the first one says so in the place of a time.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final

from attention_case import AttentionCase, Inputs
from attention_decode import single
from attention_peers import PEERS
from attention_rows import CLOSE, Runs, apart
from reports import arguments, keep, markdown, report_of
from rich.console import Console
from rich.progress import track
from tileops_rules.archs import KNOWN_ARCHS
from timing import CUDA, EACH, ROUNDS, Timer, Work, empty_kernel_us, failure_of, host_us, reason_of

from tileops.kernels.attention.call_spec import UNBOUNDED, softmax_scale
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.attention.gqa.decode_kernel import DecodeBuild
from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import DecodeShape
from tileops.kernels.attention.gqa.limits import HOPPER
from tileops.kernels.device_facts import device_facts
from tileops.kernels.tilelang_build import dtype_name

CASES: Final = tuple(single(512 << i) for i in range(10))
NAMES: Final = ("torch", "nvidia-cudnn-cu13", "tilelang", "flashinfer-python")


@dataclasses.dataclass(frozen=True)
class Form:
    """One way to cut a sequence.

    Attributes:
        shape: Of a block.
        runs: Runs of keys, one for each block or cluster of a key head; fewer where there are fewer tiles.
    """

    shape: DecodeShape
    runs: int


SMALL_CLUSTER, LARGE_CLUSTER = DecodeShape(4, 1, 3, cluster=8), DecodeShape(8, 1, 2, cluster=8)
BLOCK: Final = DecodeShape(8, 1, 2)
FORMS: Final = {
    "Z1": Form(SMALL_CLUSTER, 1),
    "Z2": Form(SMALL_CLUSTER, 2),
    "Y1": Form(LARGE_CLUSTER, 1),
    "Y2": Form(LARGE_CLUSTER, 2),
    "B16": Form(BLOCK, 16),
    "B33": Form(BLOCK, 33),
}
"""By the name of the column: clusters of eight blocks of four warps and of eight, and blocks by themselves."""


def built(shape: DecodeShape, case: AttentionCase, sm_count: int) -> GQADecodeKernel:
    """The kernel of *shape*, whatever the rules would build for *case*."""
    dtype = dtype_name(case.dtype)
    layout = DecodeLayout(case.heads, case.heads_kv, case.dim, dtype, dtype, shape)
    scale = softmax_scale(case.dim, None)
    return GQADecodeKernel(DecodeBuild(layout, case.dtype, scale, 0.0, UNBOUNDED, HOPPER, sm_count))


def kernels(sm_count: int) -> dict[DecodeShape, GQADecodeKernel | str]:
    """A kernel for each shape, or why there is none."""
    found: dict[DecodeShape, GQADecodeKernel | str] = {}
    for form in FORMS.values():
        try:
            found[form.shape] = built(form.shape, CASES[0], sm_count)
        except Exception as error:  # noqa: BLE001 - that a shape cannot be built is a result
            found[form.shape] = reason_of(error)
    return found


def works_of(inputs: Inputs, made: dict[DecodeShape, GQADecodeKernel | str]) -> tuple[dict[str, Work], dict[str, str]]:
    """By form one call of its kernel, or why there is none."""
    works: dict[str, Work] = {}
    failed: dict[str, str] = {}
    for name, form in FORMS.items():
        kernel = made[form.shape]
        if isinstance(kernel, str):
            failed[name] = kernel
            continue
        work = functools.partial(kernel.attend_in_runs, *inputs[:3], form.runs)
        reason = failure_of(work)
        if reason is None:
            works[name] = work
        else:
            failed[name] = reason
    return works, failed


def measured(case: AttentionCase, made: dict[DecodeShape, GQADecodeKernel | str], timer: Timer) -> dict[str, Any]:
    """One row."""
    inputs = case.inputs()
    works, failed = works_of(inputs, made)
    for name, each in apart({"ours": next(iter(works.values())), **works}).items() if works else ():
        if not each <= CLOSE[case.dtype.itemsize]:  # written so that NaN differs
            failed[name] = "differs"
            del works[name]
    runs = Runs.of(case)
    times = timer.in_turn({**works, **runs.works})
    rounded = {name: round(each, 2) for name, each in times.items()}
    return {
        "keys": case.keys,
        "us": {name: rounded[name] for name in works},
        "host_us": {name: round(us, 1) for name, us in host_us(works).items()},
        "op_us": rounded.get("ours"),
        "peers_us": {name: rounded[name] for name in PEERS if name in rounded},
        "failed": {**failed, **runs.failed},
    }


def as_table(rows: list[dict[str, Any]]) -> str:
    """Device times in Markdown."""
    lines = []
    for row in rows:
        found = {**row["failed"], **row["us"], **row["peers_us"], "op": row["op_us"]}
        lines.append([row["keys"], *(found.get(name, "–") for name in (*FORMS, "op", *PEERS))])
    return markdown(["keys", *FORMS, "op", *PEERS], lines)


def notes() -> dict[str, dict[str, int]]:
    """What each column is."""
    return {name: {**dataclasses.asdict(form.shape), "runs": form.runs} for name, form in FORMS.items()}


def main() -> None:
    """Measure, show a table, and with ``--write`` keep it."""
    parser, console = arguments(__doc__), Console(width=160)
    parser.add_argument("--compile-only", action="store_true", help="compile without a GPU, and measure nothing")
    given = parser.parse_args()
    if given.compile_only:
        for shape, kernel in kernels(KNOWN_ARCHS[HOPPER].sm_count).items():
            console.print(f"{shape}: {kernel if isinstance(kernel, str) else 'built'}", soft_wrap=True, markup=False)
        return
    timer, made = Timer(), kernels(device_facts(CUDA).sm_count or KNOWN_ARCHS[HOPPER].sm_count)
    case = CASES[0]
    report = report_of(
        NAMES,
        empty_kernel_us=round(empty_kernel_us(timer), 2),
        repeats=ROUNDS * EACH,
        **{name: getattr(case, name) for name in ("batch", "heads", "heads_kv", "dim")},
        dtype=dtype_name(case.dtype),
        form_notes=notes(),
        rows=[measured(each, made, timer) for each in track(CASES, "keys", console=console)],
    )
    console.print(as_table(report["rows"]), soft_wrap=True)
    if given.write:
        console.print(f"written: {keep(report, 'decode-forms', given.into)}")


if __name__ == "__main__":
    main()
