"""The TileLang program of the gradient of channels that are cut over blocks. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

One launch sums over parts of channels and finds their gradients: ``channel_tickets_program.py`` says in which order.
What the sums are, and what follows from them, stands in ``batch_norm_bwd_program.py``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_program import sum_lanes
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

__all__ = ["PASSES", "cut_gradients"]

GRADS, PRODUCTS = 0, 1
"""Which sum is which: of gradients, and of gradients times distances from the mean."""
CENTER, SLOPE, SCALE, AWAY = 0, 1, 2, 3
"""Where the facts of a channel have what is done to its gradients."""


@T.macro
def add_chunk(sums, grads, held, left, mean, work, lay: ChannelLayout):
    """Add the chunk that is held to both *sums*; places 2 and 3 of them are what was rounded off."""
    for i in T.unroll(4):
        work[i] = 0.0
    for v in T.unroll(lay.steps):
        if v * lay.lanes < left[0]:
            for k in T.unroll(lay.vector):
                work[(v + k) % 2] += T.cast(grads[v * lay.vector + k], "float32")
                work[2 + (v + k) % 2] += T.cast(grads[v * lay.vector + k], "float32") * (
                    T.cast(held[v * lay.vector + k], "float32") - mean
                )
    work[0] += work[1]
    work[1] = work[2] + work[3]
    for i in T.unroll(2):
        work[2] = work[i] - sums[2 + i]
        work[3] = sums[i] + work[2]
        sums[2 + i] = (work[3] - sums[i]) - work[2]
        sums[i] = work[3]


@T.macro
def put(out, place, grads, held, v, facts, vector):
    """Write the gradient of the vector in place *v*."""
    for k in T.vectorized(vector):
        away = T.cast(grads[v * vector + k], "float32") - facts[AWAY]
        distance = T.cast(held[v * vector + k], "float32") - facts[CENTER]
        out[0, 0, place, k] = away * facts[SCALE] - distance * facts[SLOPE]


def cut_gradients(dtype: str, weight_dtype: str, lay: ChannelLayout, resident: int) -> Any:
    """Channels that are cut over blocks.

    ``parts`` holds, for each set of channels that are read together, both sums over its parts, then what follows for
    the channels: ``(grad - away) * scale - (x - center) * slope``.

    Args:
        dtype: Of input and gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        lay: The layout, of one stack.
        resident: Blocks that a multiprocessor has at a time, by their registers.
    """
    vector, steps, lanes, groups, warps = lay.vector, lay.steps, lay.lanes, lay.groups, lay.warps
    sharing = WARP // groups
    n64, c64, q64 = (T.dynamic(name, "int64") for name in "ncq")
    blocks, rows, counts = (T.dynamic(name) for name in ("blocks", "rows", "counts"))

    @T.macro
    def body(parts, counters, grad, x, weight, mean, rstd, out, grad_weight, grad_bias, lag, reach):
        T.annotate_min_blocks_per_sm(resident)
        n, c, q = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32")
        cuts = rows - 1
        thread = T.get_thread_binding()
        group = thread % groups
        lane = thread // groups
        task = T.alloc_shared((TASK,), "int64")
        exchanged = T.alloc_shared((warps, groups, 2), "float32")
        held = T.alloc_local((steps * vector,), dtype)
        grads = T.alloc_local((steps * vector,), dtype)
        offs = T.alloc_local((steps,), "int64")
        at = T.alloc_local((2,), "int32")
        off = T.alloc_local((3,), "int64")
        left = T.alloc_local((1,), "int32")
        before = T.alloc_local((1,), "int32")
        facts = T.alloc_local((4,), "float32")
        sums = T.alloc_local((4,), "float32")
        work = T.alloc_local((4,), "float32")
        draw_task(task, counters, blocks * cuts, cuts, lag, reach, n, c, q, groups)
        block = T.cast(task[BLOCK], "int32")
        channel = block * groups + group
        stand(at, off, task, lane, group, lanes, c, q)
        left[0] = T.if_then_else(channel < c, T.cast(task[LEFT], "int32") - lane, 0)
        if task[KIND] == STATISTICS:
            facts[CENTER] = 0.0
            if channel < c:
                facts[CENTER] = mean[channel]
            for i in T.unroll(4):
                sums[i] = 0.0
            while left[0] > 0:
                for v in T.unroll(steps):
                    if v * lanes < left[0]:
                        for k in T.vectorized(vector):
                            grads[v * vector + k] = grad[0, 0, off[0], k]
                        for k in T.vectorized(vector):
                            held[v * vector + k] = x[0, 0, off[0], k]
                    go_on(at, off, q)
                add_chunk(sums, grads, held, left, facts[CENTER], work, lay)
                left[0] -= steps * lanes
            sum_lanes(sums, 0, groups)
            sum_lanes(sums, 1, groups)
            if thread % WARP < groups:
                for i in T.vectorized(2):
                    exchanged[thread // WARP, group, i] = sums[i]
            T.sync_threads()
            if thread < WARP:
                for i in T.unroll(2):
                    sums[i] = 0.0
                for i in T.unroll((warps + sharing - 1) // sharing):
                    if i * sharing + lane < warps:
                        for k in T.unroll(2):
                            sums[k] += exchanged[i * sharing + lane, group, k]
                sum_lanes(sums, 0, groups)
                sum_lanes(sums, 1, groups)
                if lane == 0:
                    for i in T.vectorized(2):
                        parts[block, T.cast(task[CUT], "int32"), group, i] = sums[i]
                arrive(counters, block, before)
                if before[0] == cuts - 1:
                    if lane == 0 and channel < c:
                        facts[SLOPE] = rstd[channel]
                        facts[SCALE] = T.cast(weight[channel], "float32")
                    for i in T.unroll(2):
                        sums[i] = 0.0
                    for i in T.serial(T.ceildiv(cuts, sharing)):
                        if i * sharing + lane < cuts:
                            for k in T.unroll(2):
                                sums[k] += parts[block, i * sharing + lane, group, k]
                    sum_lanes(sums, 0, groups)
                    sum_lanes(sums, 1, groups)
                    if lane == 0 and channel < c:
                        sums[PRODUCTS] = sums[PRODUCTS] * facts[SLOPE]
                        grad_weight[channel] = sums[PRODUCTS]
                        grad_bias[channel] = sums[GRADS]
                        work[0] = T.cast(n64 * q64 * vector, "float32")
                        facts[SCALE] = facts[SCALE] * facts[SLOPE]
                        facts[SLOPE] = facts[SCALE] * facts[SLOPE] * (sums[PRODUCTS] / work[0])
                        facts[AWAY] = sums[GRADS] / work[0]
                        for i in T.vectorized(FACTS):
                            parts[block, cuts, group, i] = facts[i]
                    publish(counters, block, cuts)
        else:
            for v in T.unroll(steps):
                offs[v] = off[0]
                if v * lanes < left[0]:
                    for k in T.vectorized(vector):
                        grads[v * vector + k] = grad[0, 0, off[0], k]
                    for k in T.vectorized(vector):
                        held[v * vector + k] = x[0, 0, off[0], k]
                go_on(at, off, q)
            await_facts(counters, block, cuts)
            for k in T.vectorized(FACTS):
                facts[k] = parts[block, cuts, group, k]
            while left[0] > 0:
                for v in T.unroll(steps):
                    if v * lanes < left[0]:
                        put(out, offs[v], grads, held, v, facts, vector)
                left[0] -= steps * lanes
                if left[0] > 0:
                    for v in T.unroll(steps):
                        offs[v] = off[0]
                        if v * lanes < left[0]:
                            for k in T.vectorized(vector):
                                grads[v * vector + k] = grad[0, 0, off[0], k]
                            for k in T.vectorized(vector):
                                held[v * vector + k] = x[0, 0, off[0], k]
                        go_on(at, off, q)
            leave(counters, block, cuts)

    @T.prim_func
    def cut_channel_gradients(
        parts: T.Tensor((blocks, rows, groups, FACTS), "float32"),
        counters: T.Tensor((counts,), "int32"),
        grad: T.Tensor((n64, c64, q64, vector), dtype),
        x: T.Tensor((n64, c64, q64, vector), dtype),
        weight: T.Tensor((c64,), weight_dtype),
        mean: T.Tensor((c64,), "float32"),
        rstd: T.Tensor((c64,), "float32"),
        out: T.Tensor((n64, c64, q64, vector), dtype),
        grad_weight: T.Tensor((c64,), weight_dtype),
        grad_bias: T.Tensor((c64,), weight_dtype),
        lag: T.int32,
        reach: T.int32,
    ):
        with T.Kernel(2 * blocks * (rows - 1), threads=lay.threads) as _:
            body(parts, counters, grad, x, weight, mean, rstd, out, grad_weight, grad_bias, lag, reach)

    return cut_channel_gradients
