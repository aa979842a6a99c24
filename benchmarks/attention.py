"""Device time of grouped-query attention beside every peer on the same inputs, L2 cold, with the rate reached.

    python benchmarks/attention.py --write          # also benchmarks/results/attention-<card>-<date>.json and .md
    python benchmarks/attention.py --only decode    # or prefill; with --write to attention-decode-<card>-<date>
    python benchmarks/attention.py --warm 0/12      # only compile every twelfth group: run twelve of these beforehand
    python benchmarks/attention.py --compile-only   # without a GPU: compiles ours for --arch and measures nothing

Needs a GPU. Peers: scaled_dot_product_attention of torch through cuDNN and through flash, and flashinfer where it is
installed. Times of a call, medians in microseconds:

us        between two events around one whole call, in rounds, in an order that is drawn anew for each. The L2 cache is
          emptied before each by filling 512 MiB twice and reading them, which takes longer than a host needs to enqueue
          the call, so that only device time is seen, and leaves nothing in the cache that must be written back. What an
          event pair costs by itself is in every time: an empty kernel is timed so too.
busy us   of the kernels of a call alone, as the driver's profiler counts them, without what lies around and between
          them: what bars in microseconds are about.
host us   of the host alone, of steps of decoding whose floor is below 100 us: of short rounds in turn, the least
          median. *launch* is that of our kernel's launch with its arguments made before.
graph us  as us, of the same call replayed from a CUDA graph, where our host was measured and takes longer than the
          device.

The floor is the least traffic over the rate of a device copy or, where that is longer, two operations for each product
of both matrices over the rate of cuBLAS at 8,192 in each direction. Share is the floor over ours, ahead the best peer
over ours. Exit status 1 where ours failed or a peer has another result.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from attention_case import AttentionCase, Ceilings
from attention_decode import DECODE
from attention_page import page
from attention_prefill import PREFILL
from attention_rows import SHORT_US, Runs, hosts_of, measured, wrong
from reports import arguments, keep, report_of
from rich.console import Console
from rich.progress import track
from tileops_rules.archs import KNOWN_ARCHS
from timing import EACH, ROUNDS, Timer, empty_kernel_us, reason_of

from tileops.kernels.tilelang_build import compile_program, dtype_name

NAMES: Final = ("torch", "nvidia-cudnn-cu13", "tilelang", "flashinfer-python")


def groups(cases: tuple[AttentionCase, ...]) -> list[list[AttentionCase]]:
    """*cases*, those together that share what is compiled."""
    found: dict[Any, list[AttentionCase]] = {}
    for case in cases:
        mask = (case.is_causal, case.window >= 0)
        built = (case.kind, case.heads, case.heads_kv, case.dim, case.dtype, *mask, case.batch == 1)
        found.setdefault(built, []).append(case)
    return list(found.values())


def failed_runs(cases: tuple[AttentionCase, ...], part: str) -> Iterator[str]:
    """Run the groups of one part, *i*/*n*, once, and say what failed: a later run finds the rest in caches on disk."""
    number, of = map(int, part.split("/"))
    for group in groups(cases)[number::of]:
        for case in group:
            yield from (f"{case.call()}: {name}: {why}" for name, why in Runs.of(case).failed.items())


def failed_builds(cases: tuple[AttentionCase, ...], arch: int) -> Iterator[str]:
    """Build ours for the usual card of *arch*, and say what cannot be built."""
    facts = dataclasses.asdict(KNOWN_ARCHS[arch])
    names = {field.name for field in dataclasses.fields(cases[0].call())} & facts.keys()
    for case in cases:
        call = dataclasses.replace(case.call(), arch=arch, **{name: facts[name] for name in names})
        try:
            op = case.op()
            op.kernel_types[op.key_for("gqa_dense", call)].entry_for(call)[1]()
        except Exception as error:  # noqa: BLE001 - that a kernel cannot be built is a result
            yield f"{call}: {reason_of(error)}"


def report_on(cases: tuple[AttentionCase, ...], console: Console) -> dict[str, Any]:
    """Measure all of *cases* on this card."""
    timer = Timer()
    ceilings = Ceilings.measured(timer)
    short = [case for case in cases if case.kind == "decode" and ceilings.floor_us(case) < SHORT_US]
    hosts = {case: hosts_of(case) for case in track(short, "hosts", console=console)}
    return report_of(
        NAMES,
        repeats=ROUNDS * EACH,
        empty_kernel_us=round(empty_kernel_us(timer), 2),
        copy_tb_per_s=round(ceilings.copy / 1e6, 3),
        product_tflops={dtype_name(dtype): round(rate / 1e6, 1) for dtype, rate in ceilings.products.items()},
        rows=[measured(case, timer, ceilings, hosts.get(case)) for case in track(cases, "cases", console=console)],
    )


def main() -> int:
    """Measure, show tables, and with ``--write`` keep them."""
    kinds = {"prefill": PREFILL, "decode": DECODE}
    parser, console = arguments(__doc__), Console(width=200)
    parser.add_argument("--only", choices=kinds, help="one of the two")
    parser.add_argument("--warm", nargs="?", const="0/1", help="compile all, or one part as i/n, and measure nothing")
    parser.add_argument("--compile-only", action="store_true", help="compile ours without a GPU, and measure nothing")
    parser.add_argument("--arch", type=int, default=90, choices=sorted(KNOWN_ARCHS), help="what is compiled for")
    given = parser.parse_args()
    cases = kinds[given.only] if given.only else PREFILL + DECODE
    if given.warm or given.compile_only:
        start = time.perf_counter()
        failed = list(failed_runs(cases, given.warm) if given.warm else failed_builds(cases, given.arch))
        for reason in failed:
            console.print(reason, soft_wrap=True, markup=False)
        count, seconds = compile_program.cache_info().currsize, time.perf_counter() - start
        console.print(f"{count} programs in {seconds:.0f} s")
        return int(bool(failed and given.compile_only))
    report = report_on(cases, console)
    shown = page(report)
    console.print(shown, soft_wrap=True, markup=False)
    if given.write:
        path = keep(report, "attention", given.into, given.only)
        path.with_suffix(".md").write_text(shown + "\n")
        console.print(f"written: {path}")
    found = [f"{row['kind']} {row['batch']}x{row['keys']}: {each}" for row in report["rows"] for each in wrong(row)]
    for each in found:
        console.print(each, soft_wrap=True, markup=False)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
