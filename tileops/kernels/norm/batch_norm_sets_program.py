"""TileLang programs of channels whose planes begin at odd places. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

What a set is, and how its channels are added up: see ``set_macros_program.py``.

Statistics are taken in two looks at what is held. The first finds a mean about the channel's first value; the second
the sums of the distances from that mean and of their squares, so that what the first rounded off is put right.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.set_layout import SetLayout
from tileops.kernels.norm.set_macros_program import (
    PASSES,
    add_up,
    entry_of_sets,
    move_pivots,
    settle_set,
    spread,
    stand,
    take_up,
    take_up_gradients,
)

__all__ = ["PASSES", "held_sets", "held_sets_of_gradients"]


def held_sets(dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: SetLayout) -> Any:
    """Sets of channels that a block holds between load and store.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout; ``rows * steps`` are the samples or more.
    """
    tracked = running_dtype is not None
    vector, steps, rows, slots = lay.vector, lay.steps, lay.rows, lay.slots
    ahead, trips = lay.ahead, -(-steps // lay.ahead)
    size, c, w = (T.dynamic(name, "int64") for name in ("size", "c", "w"))

    @T.macro
    def body(block, x, weight, bias, running_mean, running_var, out, mean, spread_of, eps, momentum, n):
        T.annotate_min_blocks_per_sm(lay.resident)
        sets = T.cast(c // lay.channels, "int32")
        thread = T.get_thread_binding()
        at = T.alloc_local((3,), "int32")
        place = T.alloc_local((2,), "int64")
        taken = T.alloc_local((ahead * vector,), dtype)
        kept = T.alloc_local((1 if lay.in_shared else trips * ahead * vector,), dtype)
        waiting = T.alloc_shared((steps, rows * lay.columns, vector), dtype) if lay.in_shared else kept
        parts = T.alloc_shared((2 * slots * lay.threads,), "float32")
        totals = T.alloc_shared((2 * lay.channels,), "float32")
        sums = T.alloc_local((2 * vector,), "float32")
        pivots = T.alloc_local((vector,), "float32")
        scales = T.alloc_local((vector,), "float32")
        shifts = T.alloc_local((vector,), "float32")
        pivot = T.alloc_local((slots,), "float32")
        scale = T.alloc_local((slots,), "float32")
        shift = T.alloc_local((slots,), "float32")
        mine = T.alloc_local((1,), "float32")
        was = T.alloc_local((2,), "float32")
        stand(at, place, block, n, sets, lay)
        values = T.cast(n, "float32") * T.float32(lay.spatial)
        inverse = T.float32(1.0) / values
        take_up(x, weight, bias, running_mean, running_var, pivot, mine, scale, shift, was, at, block, tracked, lay)
        spread(pivots, pivot, at, lay)
        for k in T.unroll(vector):
            sums[k] = 0.0
        for trip in T.unroll(trips, unroll_factor=1) if lay.in_shared else T.unroll(trips):
            for u in T.unroll(ahead):
                if (trip * ahead + u) * rows + at[0] < n:
                    for k in T.vectorized(vector):
                        taken[u * vector + k] = x[place[0], k]
                place[0] += place[1]
            for u in T.unroll(ahead):
                if (trip * ahead + u) * rows + at[0] < n:
                    for k in T.vectorized(vector):
                        if lay.in_shared:
                            waiting[trip * ahead + u, thread, k] = taken[u * vector + k]
                        else:
                            kept[(trip * ahead + u) * vector + k] = taken[u * vector + k]
                    for k in T.unroll(vector):
                        sums[k] += T.cast(taken[u * vector + k], "float32") - pivots[k]
        add_up(sums, parts, totals, 1, at, lay)
        move_pivots(pivot, mine, totals, inverse, at, lay)
        spread(pivots, pivot, at, lay)
        for k in T.unroll(2 * vector):
            sums[k] = 0.0
        for step in T.unroll(steps, unroll_factor=1) if lay.in_shared else T.unroll(steps):
            if step * rows + at[0] < n:
                for k in T.vectorized(vector):
                    taken[k] = waiting[step, thread, k] if lay.in_shared else kept[step * vector + k]
                for k in T.unroll(vector):
                    distance = T.cast(taken[k], "float32") - pivots[k]
                    sums[k] += distance
                    sums[vector + k] += distance * distance
        add_up(sums, parts, totals, 2, at, lay)
        settle_set(
            pivot, mine, totals, scale, shift, was, at, block, values, inverse,
            (mean, spread_of, running_mean, running_var), eps, momentum, tracked, unbiased, lay,
        )  # fmt: skip
        spread(scales, scale, at, lay)
        spread(shifts, shift, at, lay)
        place[0] -= place[1] * (trips * ahead)
        for step in T.unroll(steps, unroll_factor=1) if lay.in_shared else T.unroll(steps):
            if step * rows + at[0] < n:
                for k in T.vectorized(vector):
                    taken[k] = waiting[step, thread, k] if lay.in_shared else kept[step * vector + k]
                for k in T.vectorized(vector):
                    out[place[0], k] = (T.cast(taken[k], "float32") - pivots[k]) * scales[k] + shifts[k]
            place[0] += place[1]

    return entry_of_sets(dtype, weight_dtype, running_dtype, size, c, w, lay, body)


def held_sets_of_gradients(dtype: str, weight_dtype: str, lay: SetLayout) -> Any:
    """Sets of channels whose values and gradients a block holds between load and store.

    Args:
        dtype: Of input and gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        lay: The layout; ``rows * steps`` are the samples or more.
    """
    vector, steps, rows, slots = lay.vector, lay.steps, lay.rows, lay.slots
    ahead, trips = lay.ahead, -(-steps // lay.ahead)
    size, c = (T.dynamic(name, "int64") for name in ("size", "c"))

    @T.prim_func
    def set_gradients(
        grad: T.Tensor((size, vector), dtype),
        x: T.Tensor((size, vector), dtype),
        weight: T.Tensor((c,), weight_dtype),
        mean: T.Tensor((c,), "float32"),
        rstd: T.Tensor((c,), "float32"),
        out: T.Tensor((size, vector), dtype),
        grad_weight: T.Tensor((c,), weight_dtype),
        grad_bias: T.Tensor((c,), weight_dtype),
        n: T.int32,
    ):
        with T.Kernel(T.cast(c // lay.channels, "int32"), threads=lay.threads) as block:
            T.annotate_min_blocks_per_sm(lay.resident)
            sets = T.cast(c // lay.channels, "int32")
            thread = T.get_thread_binding()
            at = T.alloc_local((3,), "int32")
            place = T.alloc_local((2,), "int64")
            taken = T.alloc_local((2 * ahead * vector,), dtype)
            kept = T.alloc_local((1 if lay.in_shared else 2 * trips * ahead * vector,), dtype)
            waiting = T.alloc_shared((2 * steps, rows * lay.columns, vector), dtype) if lay.in_shared else kept
            parts = T.alloc_shared((2 * slots * lay.threads,), "float32")
            totals = T.alloc_shared((2 * lay.channels,), "float32")
            sums = T.alloc_local((2 * vector,), "float32")
            means = T.alloc_local((vector,), "float32")
            scales = T.alloc_local((vector,), "float32")
            slopes = T.alloc_local((vector,), "float32")
            shifts = T.alloc_local((vector,), "float32")
            middle = T.alloc_local((slots,), "float32")
            sharp = T.alloc_local((slots,), "float32")
            scale = T.alloc_local((slots,), "float32")
            slope = T.alloc_local((slots,), "float32")
            shift = T.alloc_local((slots,), "float32")
            mine = T.alloc_local((1,), "float32")
            inverse = T.alloc_local((1,), "float32")
            stand(at, place, block, n, sets, lay)
            inverse[0] = T.float32(1.0) / (T.cast(n, "float32") * T.float32(lay.spatial))
            take_up_gradients(mean, rstd, weight, middle, sharp, scale, at, block, lay)
            if thread < lay.channels:
                mine[0] = rstd[block * lay.channels + thread]
            spread(means, middle, at, lay)
            for k in T.unroll(2 * vector):
                sums[k] = 0.0
            for trip in T.unroll(trips, unroll_factor=1) if lay.in_shared else T.unroll(trips):
                for u in T.unroll(ahead):
                    if (trip * ahead + u) * rows + at[0] < n:
                        for k in T.vectorized(vector):
                            taken[2 * u * vector + k] = grad[place[0], k]
                        for k in T.vectorized(vector):
                            taken[(2 * u + 1) * vector + k] = x[place[0], k]
                    place[0] += place[1]
                for u in T.unroll(ahead):
                    if (trip * ahead + u) * rows + at[0] < n:
                        for i in T.unroll(2):
                            for k in T.vectorized(vector):
                                if lay.in_shared:
                                    waiting[2 * (trip * ahead + u) + i, thread, k] = taken[(2 * u + i) * vector + k]
                                else:
                                    kept[(2 * (trip * ahead + u) + i) * vector + k] = taken[(2 * u + i) * vector + k]
                        for k in T.unroll(vector):
                            sums[k] += T.cast(taken[2 * u * vector + k], "float32")
                            sums[vector + k] += T.cast(taken[2 * u * vector + k], "float32") * (
                                T.cast(taken[(2 * u + 1) * vector + k], "float32") - means[k]
                            )
            add_up(sums, parts, totals, 2, at, lay)
            for i in T.unroll(slots):
                within = T.min(at[1] + i, lay.channels - 1)
                slope[i] = scale[i] * (totals[lay.channels + within] * inverse[0] * sharp[i] * sharp[i])
                shift[i] = totals[within] * inverse[0]
            if thread < lay.channels:
                grad_bias[block * lay.channels + thread] = totals[thread]
                grad_weight[block * lay.channels + thread] = totals[lay.channels + thread] * mine[0]
            spread(scales, scale, at, lay)
            spread(slopes, slope, at, lay)
            spread(shifts, shift, at, lay)
            place[0] -= place[1] * (trips * ahead)
            for step in T.unroll(steps, unroll_factor=1) if lay.in_shared else T.unroll(steps):
                if step * rows + at[0] < n:
                    for i in T.unroll(2):
                        for k in T.vectorized(vector):
                            taken[i * vector + k] = (
                                waiting[2 * step + i, thread, k] if lay.in_shared else kept[(2 * step + i) * vector + k]
                            )
                    for k in T.vectorized(vector):
                        out[place[0], k] = (T.cast(taken[k], "float32") - shifts[k]) * scales[k] - (
                            T.cast(taken[vector + k], "float32") - means[k]
                        ) * slopes[k]
                place[0] += place[1]

    return set_gradients
