"""The TileLang program of channels that are cut over blocks. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

One launch takes the statistics of parts of channels and normalizes them: ``channel_tickets_program.py`` says in which
order, ``part_statistics_program.py`` what is known of a part.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
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
from tileops.kernels.norm.part_statistics_program import CENTER, SCALE, SHIFT, conclude, fold, look, unite

__all__ = ["PASSES", "cut_channels"]


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
            unite(of, work, groups)
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
                unite(of, work, groups)
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
                    unite(of, work, groups)
                    conclude(
                        of, facts, work, lane == 0 and channel < c, channel,
                        (mean, spread, running_mean, running_var), eps, momentum, tracked, unbiased,
                    )  # fmt: skip
                    if lane == 0 and channel < c:
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
