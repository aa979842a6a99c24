"""Decode beside torch's attention on the same inputs as CUDA graphs, L2 cold, with the floor and the share reached.

    python benchmarks/kernels.py --write     # also benchmarks/results/kernels-<card>-<date>.json

Needs a GPU. A glance at what benchmarks/attention.py measures at length: few shapes, and torch chooses its backend.
The floor of a shape is its keys and values over the bandwidth that a device copy reaches in the same run. Times are
medians over replays of a CUDA graph, without the host's share of a call, which is a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from attention_case import AttentionCase, Inputs
from attention_decode import single, step
from reports import arguments, keep, report_of
from rich.console import Console
from timing import Timer, Work, captured, host_us

CASES: Final = (single(512), single(4096), single(131072), step(32, 4096, 32, 8), step(64, 8192, 32, 8))


def torch_work(inputs: Inputs) -> Work:
    """Attention of torch through whichever backend it chooses."""
    q, k, v = (each.transpose(1, 2) for each in inputs[:3])
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def named(case: AttentionCase, op: str) -> dict[str, Any]:
    """What a row begins with."""
    return {"op": op, "shape": f"b{case.batch} {case.heads}/{case.heads_kv} kv{case.keys}"}


def device_rows(timer: Timer) -> Iterator[dict[str, Any]]:
    """One query a sequence in float16, head dimension 128."""
    for case in CASES:
        inputs, times = case.inputs(), []
        for work in (case.ours(inputs), torch_work(inputs)):
            work()
            times.append(timer(captured(work)))
        floor = case.kv_bytes / timer.bandwidth()
        row = {"us": round(times[0], 2), "torch_us": round(times[1], 2), "floor_us": round(floor, 2)}
        yield {**named(case, "gqa decode fp16"), **row, "share_of_floor": round(floor / times[0], 3)}


def host_row(case: AttentionCase) -> dict[str, Any]:
    """Whole calls on a small input, as the host sees them."""
    inputs = case.inputs()
    ours, theirs = (round(us, 1) for us in host_us({"ours": case.ours(inputs), "torch": torch_work(inputs)}).values())
    return {**named(case, "gqa decode host"), "us": ours, "torch_us": theirs}


def main() -> None:
    """Measure, print a table, and with ``--write`` keep it."""
    given, console, timer = arguments(__doc__).parse_args(), Console(width=160), Timer()
    report = report_of(
        ("torch", "tilelang"),
        copy_tb_per_s=round(timer.bandwidth() / 1e6, 3),
        rows=[*device_rows(timer), host_row(CASES[0])],
    )
    console.print({name: value for name, value in report.items() if name != "rows"})
    for each in report["rows"]:
        console.print("  ".join(f"{name}={value}" for name, value in each.items()), soft_wrap=True)
    if given.write:
        console.print(f"written: {keep(report, 'kernels', given.into)}")


if __name__ == "__main__":
    main()
