"""Timing on a GPU with a cold L2 cache, and what is timed: one op on one input, ours and its peers."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tileops.kernels.tilelang_build import target_for

CUDA = torch.device("cuda", 0)
FLUSHED_BYTES = 512 * 2**20
FILLS = 2
"""How often these are filled before a call, and read once more: the device is busy for as long as the host of a peer
may need."""
READ_ROWS = 8192
"""Reductions that this is read by, each in a block of its own."""
REPEATS = 31
BUSY_REPEATS = 11
ROUNDS, EACH = 5, 3
HOST_ROUNDS, HOST_CALLS = 20, 30
PAUSE_S = 0.02
"""Before each turn of a round, so that the card is not hotter for the last peer than for the first."""
COPIED_BYTES = 4 * 2**30
"""Read and written by the copy whose rate is the card's bandwidth."""

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
    """Times calls with a cold L2 cache: it holds nothing of a call's tensors, and nothing that must be written back.

    A cache full of what was just written is cold too, but every line that a call reads then has one written back first:
    50 MB more than the call's own bytes. On an H200 (2026-11-30, attention trials in ``benchmarks/results``) that cost
    8 to 10 us of decode.
    """

    def __init__(self) -> None:
        self._flushed = torch.empty((READ_ROWS, FLUSHED_BYTES // 4 // READ_ROWS), dtype=torch.int32, device=CUDA)
        self._read = torch.empty(READ_ROWS, dtype=torch.int32, device=CUDA)
        self._bandwidth: float | None = None

    def __call__(self, work: Work) -> float:
        """Median microseconds of *work*."""
        work()
        torch.cuda.synchronize()
        return statistics.median(self._times(work, REPEATS))

    def in_turn(
        self, works: Mapping[str, Work], rounds: int = ROUNDS, each: int = EACH, pause_s: float = PAUSE_S
    ) -> dict[str, float]:
        """Median microseconds of each of *works*, in rounds, in an order that is drawn anew for each.

        Under long products a card runs at its power limit, where what ran before sets the clock.

        Args:
            works: What is timed.
            rounds: How often each has its turn.
            each: Calls of a turn.
            pause_s: Seconds before a turn.
        """
        for work in works.values():
            work()
        torch.cuda.synchronize()
        times: dict[str, list[float]] = {name: [] for name in works}
        order = random.Random(0)
        for _ in range(rounds):
            for name in order.sample(list(works), len(works)):
                time.sleep(pause_s)
                times[name] += self._times(works[name], each)
        return {name: statistics.median(found) for name, found in times.items()}

    def busy(self, work: Work, repeats: int = BUSY_REPEATS) -> float | None:
        """Median microseconds for which kernels of *work* run, without what lies between and around them.

        ``None`` where the profiler saw none, or not as many each time.
        """
        work()
        calls: list[list[float]] = []
        for _ in range(repeats):
            self._empty_cache()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                work()
                torch.cuda.synchronize()
            ran = [each for each in seen.events() if each.device_type == DeviceType.CUDA]
            calls.append([each.time_range.elapsed_us() for each in ran])
        if not calls[0] or len({len(each) for each in calls}) > 1:
            return None
        return statistics.median(map(sum, calls))

    def bandwidth(self) -> float:
        """Bytes that a copy reads and writes in a microsecond."""
        if self._bandwidth is None:
            self._bandwidth = COPIED_BYTES / self(copying(COPIED_BYTES))
        return self._bandwidth

    def _times(self, work: Work, repeats: int) -> list[float]:
        pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(repeats)]
        for start, end in pairs:
            self._empty_cache()
            start.record()
            work()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in pairs]

    def _empty_cache(self) -> None:
        for _ in range(FILLS):
            self._flushed.zero_()
        torch.amax(self._flushed, dim=1, out=self._read)


def copying(size: int) -> Work:
    """A copy that reads and writes *size* bytes in all."""
    source = torch.empty(max(size // 2, 1), dtype=torch.uint8, device=CUDA)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def compiled(function: Callable[..., Any], *tensors: torch.Tensor) -> Work:
    """*function* under torch.compile, for these tensors alone."""
    torch._dynamo.reset()
    made = torch.compile(function, dynamic=False)
    return lambda: made(*tensors)


def captured(work: Work) -> Work:
    """The launches of *work*, which has run before, as a CUDA graph: a replay has nothing of its host's part."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def reason_of(error: Exception) -> str:
    """What a report says of *error*."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:100]


def failure_of(work: Work) -> str | None:
    """What *work* raised, ``None`` where it ran: that a peer fails is a result."""
    try:
        work()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  whatever a peer raises is a result
        # A launch that fails leaves its error to whoever asks next: torch asks after a launch, and takes it away.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=CUDA)
        return reason_of(error)
    return None


def host_us(works: Mapping[str, Work]) -> dict[str, float]:
    """Microseconds that the host spends in each of *works*: of short rounds in turn, the least median.

    What is above that is the machine's other work: medians of one such round were up to twice as long as of another.
    """
    least = dict.fromkeys(works, float("inf"))
    for _ in range(HOST_ROUNDS):
        for name, work in works.items():
            times = []
            for _ in range(HOST_CALLS):
                start = time.perf_counter()
                work()
                times.append((time.perf_counter() - start) * 1e6)
            torch.cuda.synchronize()
            least[name] = min(least[name], statistics.median(times))
    return least


def empty_kernel() -> Work:
    """A kernel that does nothing."""
    import tilelang
    import tilelang.language as T

    @T.prim_func
    def empty(x: T.Tensor((1,), "float32")):  # type: ignore[no-untyped-def,valid-type]
        with T.Kernel(1, threads=32) as block:
            if block > 0:
                x[0] = 0.0

    major, minor = torch.cuda.get_device_capability(CUDA)
    kernel, one = tilelang.compile(empty, target=target_for(10 * major + minor)), torch.zeros(1, device=CUDA)
    return lambda: kernel(one)


def empty_kernel_us(timer: Timer) -> float:
    """Microseconds of a kernel that does nothing."""
    return timer(empty_kernel())
