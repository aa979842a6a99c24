"""What the TileLang programs of sets of channels share. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

A set of channels is a run of whole vectors in each sample, see :class:`~tileops.kernels.norm.set_layout.SetLayout`.
A thread adds element by element; what belongs to one channel is a *slot* of its vectors, and slots are added over the
threads through shared memory.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_program import settle
from tileops.kernels.norm.set_layout import SetLayout

__all__ = [
    "PASSES",
    "add_up",
    "entry_of_sets",
    "move_pivots",
    "settle_set",
    "spread",
    "stand",
    "take_up",
    "take_up_gradients",
]

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


@T.macro
def take_up(
    x, weight, bias, running_mean, running_var, pivot, mine, scale, shift, was, at, block, tracked, lay: SetLayout
):
    """What is loaded before the values: the first of each channel as its pivot, and what is kept of it.

    Args:
        x: The input.
        weight: One element a channel.
        bias: One element a channel.
        running_mean: The same, where it is *tracked*.
        running_var: The same.
        pivot: Becomes the first value of the channels of this thread's vector.
        mine: Becomes that of the channel that this thread writes for.
        scale: Becomes the weights of the vector's channels.
        shift: Becomes their biases.
        was: Becomes what the running statistics of the thread's channel are, where they are kept.
        at: Where the thread stands.
        block: Which set.
        tracked: Whether running statistics are kept.
        lay: The layout.
    """
    thread = T.get_thread_binding()
    for i in T.unroll(lay.slots):
        within = T.min(at[1] + i, lay.channels - 1)
        pivot[i] = T.cast(
            x[block * lay.columns + within * lay.spatial // lay.vector, within * lay.spatial % lay.vector], "float32"
        )
        scale[i] = T.cast(weight[block * lay.channels + within], "float32")
        shift[i] = T.cast(bias[block * lay.channels + within], "float32")
    if thread < lay.channels:
        mine[0] = T.cast(
            x[block * lay.columns + thread * lay.spatial // lay.vector, thread * lay.spatial % lay.vector], "float32"
        )
        if tracked:
            was[0] = T.cast(running_mean[block * lay.channels + thread], "float32")
            was[1] = T.cast(running_var[block * lay.channels + thread], "float32")


@T.macro
def move_pivots(pivot, mine, totals, inverse, at, lay: SetLayout):
    """Move pivots by the mean distance from them that *totals* has of each channel."""
    thread = T.get_thread_binding()
    for i in T.unroll(lay.slots):
        pivot[i] += totals[T.min(at[1] + i, lay.channels - 1)] * inverse
    if thread < lay.channels:
        mine[0] += totals[thread] * inverse


@T.macro
def take_up_gradients(mean, rstd, weight, middle, sharp, scale, at, block, lay: SetLayout):
    """Mean, ``1 / sqrt(var + eps)``, and that times the weight, of the channels of this thread's vector."""
    for i in T.unroll(lay.slots):
        within = T.min(at[1] + i, lay.channels - 1)
        middle[i] = mean[block * lay.channels + within]
        sharp[i] = rstd[block * lay.channels + within]
        scale[i] = T.cast(weight[block * lay.channels + within], "float32") * sharp[i]


def entry_of_sets(
    dtype: str, weight_dtype: str, running_dtype: str | None, size: Any, c: Any, w: Any, lay: SetLayout, body: Any
) -> Any:
    """The program of sets that are normalized by their own statistics, with running statistics or without.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        size: Vectors of the input, a run-time extent.
        c: Channels, another.
        w: Elements of weight and bias, another.
        lay: The layout.
        body: A macro of block, input, weight, bias, running mean and variance, result, mean, spread, epsilon, momentum
            and samples.
    """
    vector = lay.vector
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
