"""The TileLang program of channels that are cut over blocks. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

One launch takes the statistics of parts of channels and normalizes them: ``channel_tickets_program.py`` says in which
order. Each value is looked at once for its statistics. They are taken about a place near the mean: that of the first
values of a thread to begin with, and of all that it saw before later on, so that no more than two bits are lost where
the square of a sum is taken off. A mean is kept as the nearest float32 and what is left over. Channels far from zero
keep their digits by that, and no single value, the first included, is what all others are compared with.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_program import COUNT, MEAN, SQUARES, sum_lanes
from tileops.kernels.norm.channel_tickets_program import (
    BLOCK,
    CUT,
    KIND,
    LEFT,
    PASSES,
    STATISTICS,
    TASK,
    WARP,
    arrive,
    await_facts,
    draw_task,
    go_on,
    leave,
    publish,
    stand,
)
from tileops.kernels.norm.cut_layout import FACTS

__all__ = ["PASSES", "cut_channels"]

ABOUT = 3
"""Where a statistic has the place that its mean is about; the mean is the sum of both."""
SCALE, SHIFT, CENTER = 0, 1, 2
"""Where the facts of a channel have what is done to its values."""


@T.macro
def center(of, work):
    """Move the place that a mean is about to the mean; what rounding leaves over stays (Knuth's exact sum)."""
    work[0] = of[ABOUT] + of[MEAN]
    work[1] = work[0] - of[ABOUT]
    of[MEAN] = (of[ABOUT] - (work[0] - work[1])) + (of[MEAN] - work[1])
    of[ABOUT] = work[0]


@T.macro
def fold(of, other, work):
    """Merge the statistic *other* into *of*."""
    if of[COUNT] == T.float32(0.0):
        for i in T.unroll(FACTS):
            of[i] = other[i]
    elif other[COUNT] != T.float32(0.0):
        work[0] = of[COUNT] + other[COUNT]
        work[1] = other[COUNT] / work[0]
        work[2] = (other[ABOUT] - of[ABOUT]) + (other[MEAN] - of[MEAN])
        of[SQUARES] += other[SQUARES] + work[2] * work[2] * of[COUNT] * work[1]
        of[MEAN] += work[2] * work[1]
        of[COUNT] = work[0]
    center(of, work)


@T.macro
def unite(of, work, group, groups):
    """Merge the statistics *of* the lanes of a warp that share a channel; each gets the result."""
    work[3] = T.shfl_sync(of[ABOUT], group)
    of[MEAN] += of[ABOUT] - work[3]
    work[0] = of[COUNT]
    work[1] = 0.0
    if of[COUNT] != T.float32(0.0):
        work[1] = of[MEAN] * of[COUNT]
    sum_lanes(work, 0, groups)
    sum_lanes(work, 1, groups)
    work[1] = work[1] / T.max(work[0], T.float32(1.0))
    work[2] = 0.0
    if of[COUNT] != T.float32(0.0):
        work[2] = of[SQUARES] + (of[MEAN] - work[1]) * (of[MEAN] - work[1]) * of[COUNT]
    sum_lanes(work, 2, groups)
    of[COUNT] = work[0]
    of[MEAN] = work[1]
    of[SQUARES] = work[2]
    of[ABOUT] = work[3]


@T.macro
def look(of, held, left, sums, work, lay: ChannelLayout):
    """Merge the chunk that is *held* into the statistic *of* this thread.

    Args:
        of: The statistic.
        held: The chunk; a quarter of the first says what it is about.
        left: Vectors from the first of this thread to the end of the part.
        sums: Work space of four values.
        work: Work space of five values.
        lay: The layout.

    Squares that are too large for float32 make the variance infinite, as a sum of squared distances does.
    """
    if of[COUNT] == T.float32(0.0):
        of[ABOUT] = T.cast(held[0], "float32")
        work[0] = 0.0
        work[1] = 1.0
        for v in T.unroll(lay.steps // 4):
            if v * lay.lanes < left[0]:
                work[1] = T.float32((v + 1) * lay.vector)
                for k in T.unroll(lay.vector):
                    work[0] += T.cast(held[v * lay.vector + k], "float32") - of[ABOUT]
        of[ABOUT] += work[0] / work[1]
    for i in T.unroll(4):
        sums[i] = 0.0
    work[4] = 0.0
    for v in T.unroll(lay.steps):
        if v * lay.lanes < left[0]:
            work[4] += T.float32(lay.vector)
            for k in T.unroll(lay.vector):
                sums[(v + k) % 2] += T.cast(held[v * lay.vector + k], "float32") - of[ABOUT]
                sums[2 + (v + k) % 2] += (T.cast(held[v * lay.vector + k], "float32") - of[ABOUT]) * (
                    T.cast(held[v * lay.vector + k], "float32") - of[ABOUT]
                )
    work[3] = of[COUNT] + work[4]
    sums[0] += sums[1] + of[COUNT] * of[MEAN]
    sums[2] += sums[3]
    of[SQUARES] += of[COUNT] * of[MEAN] * of[MEAN] + sums[2]
    of[MEAN] = sums[0] / T.max(work[3], T.float32(1.0))
    if sums[2] != T.infinity("float32"):
        of[SQUARES] -= sums[0] * of[MEAN]
    of[COUNT] = work[3]
    center(of, work)


@T.macro
def put(out, place, held, v, facts, vector):
    """Write the vector in place *v*, normalized."""
    for k in T.vectorized(vector):
        out[0, 0, place, k] = (T.cast(held[v * vector + k], "float32") - facts[CENTER]) * facts[SCALE] + facts[SHIFT]


def cut_channels(
    dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: ChannelLayout, resident: int
) -> Any:
    """Channels that are cut over blocks, and normalized by their own statistics.

    ``parts`` holds, for each set of channels that are read together, the statistics of its parts, then scale, shift and
    center of the channels: ``(x - center) * scale + shift``.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout, of one stack.
        resident: Blocks that a multiprocessor has at a time, by their registers.
    """
    tracked = running_dtype is not None
    vector, steps, lanes, groups, warps = lay.vector, lay.steps, lay.lanes, lay.groups, lay.warps
    sharing = WARP // groups
    n64, c64, q64, w64 = (T.dynamic(name, "int64") for name in "ncqw")
    blocks, rows, counts = (T.dynamic(name) for name in ("blocks", "rows", "counts"))

    @T.macro
    def body(
        parts, counters, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, lag, reach
    ):  # fmt: skip
        T.annotate_min_blocks_per_sm(resident)
        n, c, q = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32")
        cuts = rows - 1
        thread = T.get_thread_binding()
        group = thread % groups
        lane = thread // groups
        task = T.alloc_shared((TASK,), "int64")
        exchanged = T.alloc_shared((warps, groups, FACTS), "float32")
        held = T.alloc_local((steps * vector,), dtype)
        offs = T.alloc_local((steps,), "int64")
        at = T.alloc_local((2,), "int32")
        off = T.alloc_local((3,), "int64")
        left = T.alloc_local((1,), "int32")
        before = T.alloc_local((1,), "int32")
        of = T.alloc_local((4,), "float32")
        sums = T.alloc_local((4,), "float32")
        work = T.alloc_local((5,), "float32")
        facts = T.alloc_local((4,), "float32")
        draw_task(task, counters, blocks * cuts, cuts, lag, reach, n, c, q, groups)
        block = T.cast(task[BLOCK], "int32")
        channel = block * groups + group
        stand(at, off, task, lane, group, lanes, c, q)
        left[0] = T.if_then_else(channel < c, T.cast(task[LEFT], "int32") - lane, 0)
        if task[KIND] == STATISTICS:
            for i in T.unroll(4):
                of[i] = 0.0
            while left[0] > 0:
                for v in T.unroll(steps):
                    if v * lanes < left[0]:
                        for k in T.vectorized(vector):
                            held[v * vector + k] = x[0, 0, off[0], k]
                    go_on(at, off, q)
                look(of, held, left, sums, work, lay)
                left[0] -= steps * lanes
            unite(of, work, group, groups)
            if thread % WARP < groups:
                for i in T.vectorized(FACTS):
                    exchanged[thread // WARP, group, i] = of[i]
            T.sync_threads()
            if thread < WARP:
                for i in T.unroll(4):
                    of[i] = 0.0
                for i in T.unroll((warps + sharing - 1) // sharing):
                    if i * sharing + lane < warps:
                        for k in T.vectorized(FACTS):
                            sums[k] = exchanged[i * sharing + lane, group, k]
                        fold(of, sums, work)
                unite(of, work, group, groups)
                if lane == 0:
                    for i in T.vectorized(FACTS):
                        parts[block, T.cast(task[CUT], "int32"), group, i] = of[i]
                arrive(counters, block, before)
                if before[0] == cuts - 1:
                    if lane == 0 and channel < c:
                        facts[SCALE] = T.cast(weight[T.truncmod(T.cast(channel, "int64"), w64)], "float32")
                        facts[SHIFT] = T.cast(bias[T.truncmod(T.cast(channel, "int64"), w64)], "float32")
                        if tracked:
                            facts[2] = T.cast(running_mean[channel], "float32")
                            facts[3] = T.cast(running_var[channel], "float32")
                    for i in T.unroll(4):
                        of[i] = 0.0
                    for i in T.serial(T.ceildiv(cuts, sharing)):
                        if i * sharing + lane < cuts:
                            for k in T.vectorized(FACTS):
                                sums[k] = parts[block, i * sharing + lane, group, k]
                            fold(of, sums, work)
                    unite(of, work, group, groups)
                    center(of, work)
                    of[SQUARES] = T.if_then_else(of[SQUARES] < T.float32(0.0), T.float32(0.0), of[SQUARES])
                    if lane == 0 and channel < c:
                        mean[channel] = of[ABOUT]
                        work[0] = of[SQUARES] / (of[COUNT] - T.float32(1.0))
                        if tracked:
                            running_mean[channel] = (T.float32(1.0) - momentum) * facts[2] + momentum * of[ABOUT]
                            running_var[channel] = (T.float32(1.0) - momentum) * facts[3] + momentum * work[0]
                        of[SQUARES] = of[SQUARES] / of[COUNT] + eps
                        of[SQUARES] = T.if_then_else(
                            of[SQUARES] == T.float32(0.0), T.float32(0.0), T.rsqrt(of[SQUARES])
                        )
                        spread[channel] = work[0] if unbiased else of[SQUARES]
                        facts[SCALE] = facts[SCALE] * of[SQUARES]
                        facts[SHIFT] = facts[SHIFT] - of[MEAN] * facts[SCALE]
                        facts[CENTER] = of[ABOUT]
                        for i in T.vectorized(FACTS):
                            parts[block, cuts, group, i] = facts[i]
                    publish(counters, block, cuts)
        else:
            for v in T.unroll(steps):
                offs[v] = off[0]
                if v * lanes < left[0]:
                    for k in T.vectorized(vector):
                        held[v * vector + k] = x[0, 0, off[0], k]
                go_on(at, off, q)
            await_facts(counters, block, cuts)
            for k in T.vectorized(FACTS):
                facts[k] = parts[block, cuts, group, k]
            while left[0] > 0:
                for v in T.unroll(steps):
                    if v * lanes < left[0]:
                        put(out, offs[v], held, v, facts, vector)
                left[0] -= steps * lanes
                if left[0] > 0:
                    for v in T.unroll(steps):
                        offs[v] = off[0]
                        if v * lanes < left[0]:
                            for k in T.vectorized(vector):
                                held[v * vector + k] = x[0, 0, off[0], k]
                        go_on(at, off, q)
            leave(counters, block, cuts)

    if running_dtype is None:

        @T.prim_func
        def cut(
            parts: T.Tensor((blocks, rows, groups, FACTS), "float32"),
            counters: T.Tensor((counts,), "int32"),
            x: T.Tensor((n64, c64, q64, vector), dtype),
            weight: T.Tensor((w64,), weight_dtype),
            bias: T.Tensor((w64,), weight_dtype),
            out: T.Tensor((n64, c64, q64, vector), dtype),
            mean: T.Tensor((c64,), "float32"),
            spread: T.Tensor((c64,), "float32"),
            eps: T.float32,
            lag: T.int32,
            reach: T.int32,
        ):
            with T.Kernel(2 * blocks * (rows - 1), threads=lay.threads) as _:
                body(parts, counters, x, weight, bias, mean, mean, out, mean, spread, eps, eps, lag, reach)

        return cut

    @T.prim_func
    def cut_and_tracked(
        parts: T.Tensor((blocks, rows, groups, FACTS), "float32"),
        counters: T.Tensor((counts,), "int32"),
        x: T.Tensor((n64, c64, q64, vector), dtype),
        weight: T.Tensor((w64,), weight_dtype),
        bias: T.Tensor((w64,), weight_dtype),
        running_mean: T.Tensor((c64,), running_dtype),
        running_var: T.Tensor((c64,), running_dtype),
        out: T.Tensor((n64, c64, q64, vector), dtype),
        mean: T.Tensor((c64,), "float32"),
        spread: T.Tensor((c64,), "float32"),
        eps: T.float32,
        momentum: T.float32,
        lag: T.int32,
        reach: T.int32,
    ):
        with T.Kernel(2 * blocks * (rows - 1), threads=lay.threads) as _:
            body(
                parts, counters, x, weight, bias, running_mean, running_var,
                out, mean, spread, eps, momentum, lag, reach,
            )  # fmt: skip

    return cut_and_tracked
