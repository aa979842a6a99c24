"""Timing on a GPU with a cold L2 cache, and what is timed: one op on one input, ours and its peers."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from tileops.kernels.tilelang_build import target_for

CUDA = torch.device("cuda", 0)
FLUSHED_BYTES = 512 * 2**20
FILLS = 3
"""How often these are filled before a call: the device is busy for 0.45 ms then, which the host of a peer may need."""
REPEATS = 31

Work = Callable[[], Any]


@dataclasses.dataclass
class Case:
    """One op on one input.

    Attributes:
        op: Its name.
        shape: Of the input.
        dtype: Of the input.
        bytes: The least that is read and written.
        works: By peer, a call; ours is ``"ours"``.
    """

    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    works: dict[str, Work]


class Timer:
    """Times calls with a cold L2 cache."""

    def __init__(self) -> None:
        self._flushed = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device=CUDA)
        self._copies: dict[int, float] = {}

    def __call__(self, work: Work) -> float:
        """Median microseconds of *work*."""
        work()
        torch.cuda.synchronize()
        pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(REPEATS)]
        for start, end in pairs:
            for _ in range(FILLS):
                self._flushed.zero_()
            start.record()
            work()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in pairs) * 1e3

    def copy(self, size: int) -> float:
        """Median microseconds of a copy that reads and writes *size* bytes in all."""
        if size not in self._copies:
            source = torch.empty(max(size // 2, 1), dtype=torch.uint8, device=CUDA)
            target = torch.empty_like(source)
            self._copies[size] = self(lambda: target.copy_(source))
        return self._copies[size]


def compiled(function: Callable[..., Any], *tensors: torch.Tensor) -> Work:
    """*function* under torch.compile, for these tensors alone."""
    torch._dynamo.reset()
    made = torch.compile(function, dynamic=False)
    return lambda: made(*tensors)


def host_us(work: Work, calls: int = 500) -> float:
    """Median microseconds that the host spends in *work*."""
    for _ in range(50):
        work()
    torch.cuda.synchronize()
    times = []
    for i in range(calls):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
        if i % 50 == 49:
            torch.cuda.synchronize()
    return statistics.median(times)


def empty_kernel_us(timer: Timer) -> float:
    """Microseconds of a kernel that does nothing."""
    import tilelang
    import tilelang.language as T

    @T.prim_func
    def empty(x: T.Tensor((1,), "float32")):  # type: ignore[no-untyped-def,valid-type]
        with T.Kernel(1, threads=32) as block:
            if block > 0:
                x[0] = 0.0

    major, minor = torch.cuda.get_device_capability(CUDA)
    kernel, one = tilelang.compile(empty, target=target_for(10 * major + minor)), torch.zeros(1, device=CUDA)
    return timer(lambda: kernel(one))
