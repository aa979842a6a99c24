"""Device time of attention beside torch's on the same inputs, L2 cold, with the floor and the share reached.

    python benchmarks/kernels.py --write     # also benchmarks/results/kernels-<card>-<date>.json

Needs a GPU. The floor of a shape is its least traffic over the bandwidth that a device copy reaches in the same run.
Times are medians of ``triton.testing.do_bench``, which flushes the L2 cache, over replays of a CUDA graph, so that the
host's share stays out; the host's share of a call is a row of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from triton.testing import do_bench

from tileops.ops import GQADenseFwdOp

RESULTS = Path(__file__).resolve().parent / "results"
CUDA = torch.device("cuda", 0)

DECODE_SHAPES = ((1, 32, 4, 512), (1, 32, 4, 4096), (1, 32, 4, 131072), (32, 32, 8, 4096), (64, 32, 8, 8192))


def device_us(work: Callable[[], Any]) -> float:
    """Median time of *work* on the device, in microseconds."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return float(do_bench(graph.replay, return_mode="median")) * 1e3


def host_us(work: Callable[[], Any], calls: int = 300) -> float:
    """Median time of *work* on the host, in microseconds."""
    for _ in range(20):
        work()
    torch.cuda.synchronize()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
        if len(times) % 50 == 0:
            torch.cuda.synchronize()
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes read and written by a device copy, a microsecond. Called: a graph replays it as a slower memcpy."""
    source = torch.empty(2**31, dtype=torch.uint8, device=CUDA)
    target = torch.empty_like(source)
    return 2 * source.numel() / (float(do_bench(lambda: target.copy_(source), return_mode="median")) * 1e3)


def row(
    name: str, shape: str, work: Callable[[], Any], peer: Callable[[], Any], bytes_: int, rate: float
) -> dict[str, Any]:
    """One line of the table."""
    ours, theirs, floor = device_us(work), device_us(peer), bytes_ / rate
    return {
        "op": name,
        "shape": shape,
        "us": round(ours, 2),
        "torch_us": round(theirs, 2),
        "floor_us": round(floor, 2),
        "share_of_floor": round(floor / ours, 3),
    }


def decode_rows(rate: float) -> list[dict[str, Any]]:
    """One query a sequence in float16, head dimension 128; the peer is scaled_dot_product_attention."""
    rows = []
    for batch, heads, heads_kv, keys in DECODE_SHAPES:
        q = torch.randn(batch, 1, heads, 128, device=CUDA, dtype=torch.float16)
        k = torch.randn(batch, keys, heads_kv, 128, device=CUDA, dtype=torch.float16)
        v = torch.randn_like(k)
        op = GQADenseFwdOp()
        rows.append(
            row(
                "gqa decode fp16",
                f"b{batch} {heads}/{heads_kv} kv{keys}",
                lambda op=op, q=q, k=k, v=v: op(q, k, v),
                lambda q=q, k=k, v=v: torch.nn.functional.scaled_dot_product_attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True
                ),
                2 * k.numel() * k.element_size(),
                rate,
            )
        )
    return rows


def host_rows() -> list[dict[str, Any]]:
    """Whole calls on small inputs, as the host sees them."""
    decode = GQADenseFwdOp()
    q = torch.randn(1, 1, 32, 128, device=CUDA, dtype=torch.float16)
    k = torch.randn(1, 512, 4, 128, device=CUDA, dtype=torch.float16)
    peer = torch.nn.functional
    return [
        {
            "op": "gqa decode host",
            "shape": "b1 32/4 kv512",
            "us": round(host_us(lambda: decode(q, k, k)), 1),
            "torch_us": round(
                host_us(
                    lambda: peer.scaled_dot_product_attention(
                        q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2), enable_gqa=True
                    )
                ),
                1,
            ),
        },
    ]


def main() -> None:
    """Measure, print a table, and with ``--write`` keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--into", type=Path, default=RESULTS)
    given = parser.parse_args()
    import tilelang

    rate = copy_bandwidth()
    report = {
        "date": datetime.date.today().isoformat(),
        "card": torch.cuda.get_device_name(CUDA),
        "torch": torch.__version__,
        "tilelang": tilelang.__version__,
        "cuda": torch.version.cuda,
        "copy_tb_per_s": round(rate / 1e6, 3),
        "rows": [*decode_rows(rate), *host_rows()],
    }
    print({name: value for name, value in report.items() if name != "rows"})
    for each in report["rows"]:
        print("  ".join(f"{name}={value}" for name, value in each.items()), flush=True)
    if given.write:
        card = report["card"].lower().replace(" ", "-")
        given.into.mkdir(parents=True, exist_ok=True)
        path = given.into / f"kernels-{card}-{report['date']}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
