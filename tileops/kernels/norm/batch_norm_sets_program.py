"""TileLang programs of channels whose planes begin at odd places. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

A set of channels is a run of whole vectors in each sample, see :class:`~tileops.kernels.norm.set_layout.SetLayout`.
A thread adds element by element; what belongs to one channel is a *slot* of its vectors, and slots are added over the
threads through shared memory.

Statistics are taken in two looks at what is held. The first finds a mean about the channel's first value; the second
the sums of the distances from that mean and of their squares, so that what the first rounded off is put right.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_program import settle
from tileops.kernels.norm.set_layout import SetLayout

__all__ = ["PASSES", "add_up", "held_sets", "held_sets_of_gradients", "settle_set", "spread", "stand"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_DISABLE_SAFE_MEMORY_ACCESS")
"""Barriers stand where they are needed: a thread alone reads what it holds in shared memory. So do conditions: tensors
are read by the vector, counted from their beginning."""

WARP = 32


@T.macro
def stand(at, place, block, n, sets, lay: SetLayout):
    """Find where this thread stands.

    Args:
        at: Becomes the first sample, *n* or more for threads without any; then for the first element the channel of
            the set, and the place in the plane.
        place: Becomes the first vector, counted over the whole tensor, and how far it is to the next.
        block: The set.
        n: Samples.
        sets: Number of sets.
        lay: The layout.
    """
    thread = T.get_thread_binding()
    at[0] = T.if_then_else(thread < lay.rows * lay.columns, thread // lay.columns, n)
    at[1] = thread % lay.columns * lay.vector // lay.spatial
    at[2] = thread % lay.columns * lay.vector % lay.spatial
    place[0] = (T.cast(at[0], "int64") * sets + block) * lay.columns + thread % lay.columns
    place[1] = T.cast(sets, "int64") * (lay.rows * lay.columns)


@T.macro
def spread(elements, slots, at, lay: SetLayout):
    """Give each element what its slot has."""
    for k in T.unroll(lay.vector):
        elements[k] = slots[0]
        for i in T.unroll(lay.slots - 1):
            if at[2] + k >= (i + 1) * lay.spatial:
                elements[k] = slots[i + 1]


@T.macro
def add_up(elements, parts, totals, quantities, at, lay: SetLayout):
    """Add so many quantities of all *elements* by channel; *totals* has the sums, one channel after the other."""
    thread = T.get_thread_binding()
    slot = T.alloc_local((1,), "float32")
    lane = thread % WARP
    for i in T.unroll(quantities):
        for j in T.unroll(lay.slots):
            slot[0] = 0.0
            for k in T.unroll(lay.vector):
                if at[2] + k >= j * lay.spatial and at[2] + k < (j + 1) * lay.spatial:
                    slot[0] += elements[i * lay.vector + k]
            parts[(i * lay.slots + j) * lay.threads + thread] = slot[0]
    T.sync_threads()
    for turn in T.unroll(-(-lay.channels * WARP // lay.threads), unroll_factor=1):
        channel = turn * (lay.threads // WARP) + thread // WARP
        if channel < lay.channels:
            first = channel * lay.spatial // lay.vector
            width = ((channel + 1) * lay.spatial - 1) // lay.vector - first + 1
            for i in T.unroll(quantities):
                slot[0] = 0.0
                for part in T.unroll(
                    -(-lay.rows * ((lay.spatial + lay.vector - 2) // lay.vector + 1) // WARP), unroll_factor=1
                ):
                    place = part * WARP + lane
                    if place < lay.rows * width:
                        column = first + place % width
                        slot[0] += parts[
                            (i * lay.slots + channel - column * lay.vector // lay.spatial) * lay.threads
                            + place // width * lay.columns
                            + column
                        ]
                for s in T.unroll(5):
                    slot[0] += T.shfl_xor(slot[0], 1 << s)
                if lane == 0:
                    totals[i * lay.channels + channel] = slot[0]
    T.sync_threads()


@T.macro
def settle_set(
    pivot, mine, totals, scale, shift, was, at, block, values, inverse, targets, eps, momentum, tracked, unbiased, lay
):
    """From the sums of a set's channels to what normalizes them; a thread for each channel writes its statistics down.

    Args:
        pivot: About the means of the channels of this thread's vector.
        mine: About the mean of the channel that this thread writes for.
        totals: Shared memory: for each channel the sum of the distances from its pivot, then that of their squares.
        scale: The weights of the vector's channels; become what distances are multiplied by.
        shift: Their biases; become what is added.
        was: What the running statistics of the thread's channel were, where they are kept.
        at: Where the thread stands.
        block: Which set.
        values: Values of a channel.
        inverse: One over that.
        targets: Mean, spread, running mean, running variance.
        eps: Added to the variance.
        momentum: Share of the new statistics.
        tracked: Whether running statistics are kept.
        unbiased: Whether the spread is the unbiased variance.
        lay: The layout.
    """
    thread = T.get_thread_binding()
    found = T.alloc_local((2,), "float32")
    factor = T.alloc_local((1,), "float32")
    addend = T.alloc_local((1,), "float32")
    for i in T.unroll(lay.slots):
        within = T.min(at[1] + i, lay.channels - 1)
        found[0] = totals[within]
        found[1] = totals[lay.channels + within]
        factor[0] = scale[i]
        addend[0] = shift[i]
        settle(pivot, found, inverse, inverse, factor, addend, was, False, 0, targets, eps, momentum, False, False)
        scale[i] = factor[0]
        shift[i] = addend[0]
    if thread < lay.channels:
        found[0] = totals[thread]
        found[1] = totals[lay.channels + thread]
        settle(
            mine, found, inverse, T.float32(1.0) / (values - T.float32(1.0)), factor, addend, was, True,
            block * lay.channels + thread, targets, eps, momentum, tracked, unbiased,
        )  # fmt: skip


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
        for i in T.unroll(slots):
            within = T.min(at[1] + i, lay.channels - 1)
            pivot[i] = T.cast(
                x[block * lay.columns + within * lay.spatial // vector, within * lay.spatial % vector], "float32"
            )
            scale[i] = T.cast(weight[block * lay.channels + within], "float32")
            shift[i] = T.cast(bias[block * lay.channels + within], "float32")
        if thread < lay.channels:
            mine[0] = T.cast(
                x[block * lay.columns + thread * lay.spatial // vector, thread * lay.spatial % vector], "float32"
            )
            if tracked:
                was[0] = T.cast(running_mean[block * lay.channels + thread], "float32")
                was[1] = T.cast(running_var[block * lay.channels + thread], "float32")
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
        for i in T.unroll(slots):
            pivot[i] += totals[T.min(at[1] + i, lay.channels - 1)] * inverse
        if thread < lay.channels:
            mine[0] += totals[thread] * inverse
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

    if running_dtype is None:

        @T.prim_func
        def normalized_sets(
            x: T.Tensor((size, vector), dtype),
            weight: T.Tensor((w,), weight_dtype),
            bias: T.Tensor((w,), weight_dtype),
            out: T.Tensor((size, vector), dtype),
            mean: T.Tensor((c,), "float32"),
            spread_of: T.Tensor((c,), "float32"),
            eps: T.float32,
            n: T.int32,
        ):
            with T.Kernel(T.cast(c // lay.channels, "int32"), threads=lay.threads) as block:
                body(block, x, weight, bias, mean, mean, out, mean, spread_of, eps, eps, n)

        return normalized_sets

    @T.prim_func
    def normalized_and_tracked_sets(
        x: T.Tensor((size, vector), dtype),
        weight: T.Tensor((w,), weight_dtype),
        bias: T.Tensor((w,), weight_dtype),
        running_mean: T.Tensor((c,), running_dtype),
        running_var: T.Tensor((c,), running_dtype),
        out: T.Tensor((size, vector), dtype),
        mean: T.Tensor((c,), "float32"),
        spread_of: T.Tensor((c,), "float32"),
        eps: T.float32,
        momentum: T.float32,
        n: T.int32,
    ):
        with T.Kernel(T.cast(c // lay.channels, "int32"), threads=lay.threads) as block:
            body(block, x, weight, bias, running_mean, running_var, out, mean, spread_of, eps, momentum, n)

    return normalized_and_tracked_sets


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
            for i in T.unroll(slots):
                within = T.min(at[1] + i, lay.channels - 1)
                middle[i] = mean[block * lay.channels + within]
                sharp[i] = rstd[block * lay.channels + within]
                scale[i] = T.cast(weight[block * lay.channels + within], "float32") * sharp[i]
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
