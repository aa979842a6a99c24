"""TileLang programs of sets of channels that no block holds. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

They are laid over threads as those that are held, see :mod:`~tileops.kernels.norm.batch_norm_sets_program`, but read
anew for each look, each time from where the last one ended: what is still in the L2 cache is read first. Statistics
take two looks and the result a third; gradients take one and one. A thread adds up laps, so that no sum has more than
a few hundred terms for each value of the next.
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

__all__ = ["PASSES", "streamed_sets", "streamed_sets_of_gradients"]

LAP = 64
"""Loads ahead that are summed up before their sum is added to that of all."""


@T.macro
def load_ahead(taken, first, source, place, sample, n, lay: SetLayout):
    """Take the next vectors of this thread's column into *taken*, from its vector *first* on."""
    for u in T.unroll(lay.ahead):
        if sample + u * lay.rows < n:
            for k in T.vectorized(lay.vector):
                taken[(first + u) * lay.vector + k] = source[place[0] + u * place[1], k]


def streamed_sets(dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: SetLayout) -> Any:
    """Sets of channels that a block reads three times.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout, whose steps are not used.
    """
    tracked = running_dtype is not None
    vector, rows, slots, ahead = lay.vector, lay.rows, lay.slots, lay.ahead
    size, c, w = (T.dynamic(name, "int64") for name in ("size", "c", "w"))

    @T.macro
    def body(block, x, weight, bias, running_mean, running_var, out, mean, spread_of, eps, momentum, n):
        sets = T.cast(c // lay.channels, "int32")
        at = T.alloc_local((3,), "int32")
        place = T.alloc_local((2,), "int64")
        taken = T.alloc_local((ahead * vector,), dtype)
        parts = T.alloc_shared((2 * slots * lay.threads,), "float32")
        totals = T.alloc_shared((2 * lay.channels,), "float32")
        sums = T.alloc_local((2 * vector,), "float32")
        lap = T.alloc_local((2 * vector,), "float32")
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
        trips = T.ceildiv(n, rows * ahead)
        take_up(x, weight, bias, running_mean, running_var, pivot, mine, scale, shift, was, at, block, tracked, lay)
        spread(pivots, pivot, at, lay)
        for k in T.unroll(vector):
            sums[k] = 0.0
        for turn in T.serial(T.ceildiv(trips, LAP)):
            for k in T.unroll(vector):
                lap[k] = 0.0
            for trip in T.serial(T.min(LAP, trips - turn * LAP)):
                load_ahead(taken, 0, x, place, (turn * LAP + trip) * ahead * rows + at[0], n, lay)
                place[0] += ahead * place[1]
                for u in T.unroll(ahead):
                    if ((turn * LAP + trip) * ahead + u) * rows + at[0] < n:
                        for k in T.unroll(vector):
                            lap[k] += T.cast(taken[u * vector + k], "float32") - pivots[k]
            for k in T.unroll(vector):
                sums[k] += lap[k]
        add_up(sums, parts, totals, 1, at, lay)
        move_pivots(pivot, mine, totals, inverse, at, lay)
        spread(pivots, pivot, at, lay)
        for k in T.unroll(2 * vector):
            sums[k] = 0.0
        for turn in T.serial(T.ceildiv(trips, LAP)):
            for k in T.unroll(2 * vector):
                lap[k] = 0.0
            for trip in T.serial(T.min(LAP, trips - turn * LAP)):
                back = trips - 1 - turn * LAP - trip
                place[0] -= ahead * place[1]
                load_ahead(taken, 0, x, place, back * ahead * rows + at[0], n, lay)
                for u in T.unroll(ahead):
                    if (back * ahead + u) * rows + at[0] < n:
                        for k in T.unroll(vector):
                            distance = T.cast(taken[u * vector + k], "float32") - pivots[k]
                            lap[k] += distance
                            lap[vector + k] += distance * distance
            for k in T.unroll(2 * vector):
                sums[k] += lap[k]
        add_up(sums, parts, totals, 2, at, lay)
        settle_set(
            pivot, mine, totals, scale, shift, was, at, block, values, inverse,
            (mean, spread_of, running_mean, running_var), eps, momentum, tracked, unbiased, lay,
        )  # fmt: skip
        spread(scales, scale, at, lay)
        spread(shifts, shift, at, lay)
        for trip in T.serial(trips):
            load_ahead(taken, 0, x, place, trip * ahead * rows + at[0], n, lay)
            for u in T.unroll(ahead):
                if (trip * ahead + u) * rows + at[0] < n:
                    for k in T.vectorized(vector):
                        out[place[0] + u * place[1], k] = (
                            T.cast(taken[u * vector + k], "float32") - pivots[k]
                        ) * scales[k] + shifts[k]
            place[0] += ahead * place[1]

    return entry_of_sets(dtype, weight_dtype, running_dtype, size, c, w, lay, body)


def streamed_sets_of_gradients(dtype: str, weight_dtype: str, lay: SetLayout) -> Any:
    """Sets of channels whose values and gradients a block reads twice.

    Args:
        dtype: Of input and gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        lay: The layout, whose steps are not used.
    """
    vector, rows, slots, ahead = lay.vector, lay.rows, lay.slots, lay.ahead
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
            sets = T.cast(c // lay.channels, "int32")
            thread = T.get_thread_binding()
            at = T.alloc_local((3,), "int32")
            place = T.alloc_local((2,), "int64")
            taken = T.alloc_local((2 * ahead * vector,), dtype)
            parts = T.alloc_shared((2 * slots * lay.threads,), "float32")
            totals = T.alloc_shared((2 * lay.channels,), "float32")
            sums = T.alloc_local((2 * vector,), "float32")
            lap = T.alloc_local((2 * vector,), "float32")
            means = T.alloc_local((vector,), "float32")
            scales = T.alloc_local((vector,), "float32")
            slopes = T.alloc_local((vector,), "float32")
            shifts = T.alloc_local((vector,), "float32")
            middle = T.alloc_local((slots,), "float32")
            sharp = T.alloc_local((slots,), "float32")
            scale = T.alloc_local((slots,), "float32")
            slope = T.alloc_local((slots,), "float32")
            shift = T.alloc_local((slots,), "float32")
            stand(at, place, block, n, sets, lay)
            inverse = T.float32(1.0) / (T.cast(n, "float32") * T.float32(lay.spatial))
            trips = T.ceildiv(n, rows * ahead)
            take_up_gradients(mean, rstd, weight, middle, sharp, scale, at, block, lay)
            spread(means, middle, at, lay)
            for k in T.unroll(2 * vector):
                sums[k] = 0.0
            for turn in T.serial(T.ceildiv(trips, LAP)):
                for k in T.unroll(2 * vector):
                    lap[k] = 0.0
                for trip in T.serial(T.min(LAP, trips - turn * LAP)):
                    load_ahead(taken, 0, grad, place, (turn * LAP + trip) * ahead * rows + at[0], n, lay)
                    load_ahead(taken, ahead, x, place, (turn * LAP + trip) * ahead * rows + at[0], n, lay)
                    place[0] += ahead * place[1]
                    for u in T.unroll(ahead):
                        if ((turn * LAP + trip) * ahead + u) * rows + at[0] < n:
                            for k in T.unroll(vector):
                                lap[k] += T.cast(taken[u * vector + k], "float32")
                                lap[vector + k] += T.cast(taken[u * vector + k], "float32") * (
                                    T.cast(taken[(ahead + u) * vector + k], "float32") - means[k]
                                )
                for k in T.unroll(2 * vector):
                    sums[k] += lap[k]
            add_up(sums, parts, totals, 2, at, lay)
            for i in T.unroll(slots):
                within = T.min(at[1] + i, lay.channels - 1)
                slope[i] = scale[i] * (totals[lay.channels + within] * inverse * sharp[i] * sharp[i])
                shift[i] = totals[within] * inverse
            if thread < lay.channels:
                grad_bias[block * lay.channels + thread] = totals[thread]
                grad_weight[block * lay.channels + thread] = (
                    totals[lay.channels + thread] * rstd[block * lay.channels + thread]
                )
            spread(scales, scale, at, lay)
            spread(slopes, slope, at, lay)
            spread(shifts, shift, at, lay)
            for trip in T.serial(trips):
                back = trips - 1 - trip
                place[0] -= ahead * place[1]
                load_ahead(taken, 0, grad, place, back * ahead * rows + at[0], n, lay)
                load_ahead(taken, ahead, x, place, back * ahead * rows + at[0], n, lay)
                for u in T.unroll(ahead):
                    if (back * ahead + u) * rows + at[0] < n:
                        for k in T.vectorized(vector):
                            out[place[0] + u * place[1], k] = (
                                T.cast(taken[u * vector + k], "float32") - shifts[k]
                            ) * scales[k] - (T.cast(taken[(ahead + u) * vector + k], "float32") - means[k]) * slopes[k]

    return set_gradients
