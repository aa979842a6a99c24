"""What the TileLang programs of channels share. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

``x`` of shape ``(n, c, *spatial)`` is seen as ``(n, c, q, vector)``. A thread walks over the vectors of its channel in
steps of ``lanes``; where it stands is kept as sample and vector of a plane, so that one division at the start is all.
No extent is built in but the vector.

Statistics are sums of the distances from a pivot that is near the mean, and of their squares: :func:`settle` makes of
them what normalizes ``x - pivot``. What a pivot lacks of the mean is in the first sum, so that it costs no digits.
"""

import math

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout

__all__ = [
    "ACROSS",
    "COUNT",
    "MEAN",
    "SQUARES",
    "advance",
    "begin",
    "go_back",
    "go_on",
    "load",
    "meet",
    "put_back",
    "settle",
    "start",
    "sum_lanes",
    "sum_over",
    "take",
]

WARP = 32
COUNT, MEAN, SQUARES = 0, 1, 2
"""Where a statistic has its parts."""

SAMPLE, PLACE, SAMPLES, PLACES = 0, 1, 2, 3
"""Where a position has the sample, the vector of the plane, and how far a step goes in both."""

ACROSS = 4
"""Sums that a thread adds to by turns: an addition need not wait for the one before it."""


@T.macro
def start(at, first, lanes, q):
    """Stand at vector *first* (int64) of a channel, to go on in steps of *lanes* vectors."""
    at[SAMPLE] = T.cast(T.truncdiv(first, T.cast(q, "int64")), "int32")
    at[PLACE] = T.cast(T.truncmod(first, T.cast(q, "int64")), "int32")
    at[SAMPLES] = T.truncdiv(T.int32(lanes), q)
    at[PLACES] = T.truncmod(T.int32(lanes), q)


@T.macro
def advance(at, q):
    """One step on."""
    at[SAMPLE] += at[SAMPLES]
    at[PLACE] += at[PLACES]
    if at[PLACE] >= q:
        at[PLACE] -= q
        at[SAMPLE] += 1


@T.macro
def put_back(at, q):
    """One step back."""
    at[SAMPLE] -= at[SAMPLES]
    at[PLACE] -= at[PLACES]
    if at[PLACE] < 0:
        at[PLACE] += q
        at[SAMPLE] -= 1


@T.macro
def load(held, v, x, at, channel, inside, n, vector):
    """Take the vector at *at* into place *v*, where there is one."""
    if inside and at[SAMPLE] < n:
        for k in T.vectorized(vector):
            held[v * vector + k] = x[at[SAMPLE], channel, at[PLACE], k]


@T.macro
def begin(at, place, channel, lane, c, walk, lay: ChannelLayout):
    """Stand at the first vector of *lane* of a channel that is held.

    Args:
        at: Becomes the vector of the plane, and the same again.
        place: Becomes the vector counted over the whole tensor, and the same again.
        channel: Of this thread.
        lane: Of this thread, among those that share its channel.
        c: Channels.
        walk: What the host knows of the way, see :func:`~tileops.kernels.norm.channel_launches.walk_of`.
        lay: The layout.
    """
    q, reciprocal, _, _, _ = walk
    sample = T.shift_right(lane * reciprocal, 20)
    at[0] = lane - sample * q
    place[0] = (T.cast(sample, "int64") * c + channel) * q + at[0]
    at[1] = at[0]
    place[1] = place[0]


@T.macro
def go_on(at, place, walk, lay: ChannelLayout):
    """One step on."""
    q, _, along, step, leap = walk
    if lay.steps > 1:
        at[0] += along
        place[0] += step
        if at[0] >= q:
            at[0] -= q
            place[0] += leap


@T.macro
def go_back(at, place):
    """Stand at the first vector again."""
    at[0] = at[1]
    place[0] = place[1]


@T.macro
def sum_lanes(value, i, groups):
    """Add ``value[i]`` over the lanes of a warp that share a channel; each gets the sum."""
    if groups <= 16:
        value[i] += T.shfl_xor(value[i], 16)
    if groups <= 8:
        value[i] += T.shfl_xor(value[i], 8)
    if groups <= 4:
        value[i] += T.shfl_xor(value[i], 4)
    if groups <= 2:
        value[i] += T.shfl_xor(value[i], 2)
    if groups <= 1:
        value[i] += T.shfl_xor(value[i], 1)


@T.macro
def sum_over(values, count, parts, first, stack, warp, group, lay: ChannelLayout):
    """Add each of the first *count* of *values* over the threads that share a channel; each gets the sums.

    Args:
        values: What is added.
        count: How many.
        parts: Shared memory of the shape (quantities, stacks, groups, warps), where there are several warps.
        first: Quantities of it that were used before, and may still be read.
        stack: Of this thread.
        warp: Of this thread, among those that share its channels.
        group: Of this thread.
        lay: The layout.
    """
    wide = math.gcd(4, lay.warps)
    for i in T.unroll(count):
        sum_lanes(values, i, lay.groups)
    if lay.warps > 1:
        one = T.alloc_local((wide,), "float32")
        other = T.alloc_local((wide,), "float32")
        if T.get_thread_binding() % WARP < lay.groups:
            for i in T.unroll(count):
                parts[first + i, stack, group, warp] = values[i]
        T.sync_threads()
        for i in T.unroll(count):
            for k in T.vectorized(wide):
                one[k] = parts[first + i, stack, group, k]
            for j in T.unroll(lay.warps // wide - 1):
                for k in T.vectorized(wide):
                    other[k] = parts[first + i, stack, group, (j + 1) * wide + k]
                for k in T.unroll(wide):
                    one[k] += other[k]
            values[i] = one[0]
            if wide == 2:
                values[i] += one[1]
            if wide == 4:
                values[i] = (one[0] + one[1]) + (one[2] + one[3])


@T.macro
def take(of, pivot, held, count, work, lay: ChannelLayout):
    """Take the first vectors of the chunk that is *held* into the statistic *of* this thread.

    It has a count, and about *pivot* the sums of distances and of their squares. The pivot follows the mean, and the
    sums with it, exactly: what a step of the pivot rounds off stays in the first sum. Where values come in as many at
    a time as before or fewer, what a step takes off the squares is no more than what they brought, so that no digits
    are lost. The first chunk is looked at twice, once for a pivot.

    Args:
        of: Count, sum of the distances, sum of their squares.
        pivot: About the mean of what was taken; at first any value of the channel.
        held: The chunk.
        count: Number of vectors in it.
        work: Work space of six values.
        lay: The layout.
    """
    looks = T.alloc_local((1,), "int32")
    looks[0] = T.if_then_else(of[COUNT] == T.float32(0.0), 2, 1)
    for look in T.serial(looks[0]):
        for i in T.unroll(ACROSS):
            work[i] = 0.0
        for v in T.unroll(lay.steps):
            if v < count:
                for k in T.unroll(lay.vector):
                    distance = T.cast(held[v * lay.vector + k], "float32") - pivot[0]
                    work[(v * lay.vector + k) % 2 * 2] += distance
                    work[(v * lay.vector + k) % 2 * 2 + 1] += distance * distance
        work[4] = T.cast(count * lay.vector, "float32")
        if look == 0 and of[COUNT] == T.float32(0.0):
            pivot[0] += (work[0] + work[2]) / T.max(work[4], T.float32(1.0))
        else:
            of[MEAN] += work[0] + work[2]
            of[SQUARES] += work[1] + work[3]
            of[COUNT] += work[4]
            work[5] = pivot[0] + of[MEAN] / T.max(of[COUNT], T.float32(1.0))
            work[4] = work[5] - pivot[0]
            of[SQUARES] += work[4] * (work[4] * of[COUNT] - T.float32(2.0) * of[MEAN])
            of[MEAN] -= work[4] * of[COUNT]
            pivot[0] = work[5]


@T.macro
def meet(of, pivot, origin, sums, inverse, parts, stack, warp, group, lay: ChannelLayout):
    """Bring the statistics of the threads that share a channel about one pivot, their mean.

    Args:
        of: Of this thread, about its pivot.
        pivot: Of this thread; becomes that of the channel.
        origin: Any value of the channel.
        sums: Becomes the sums of distances and of their squares over the channel.
        inverse: One over the number of values.
        parts: As :func:`sum_over` has it, of three quantities.
        stack: Of this thread.
        warp: Of this thread.
        group: Of this thread.
        lay: The layout.
    """
    sums[0] = T.if_then_else(of[COUNT] > T.float32(0.0), (pivot[0] - origin[0]) * of[COUNT] + of[MEAN], T.float32(0.0))
    sum_over(sums, 1, parts, 0, stack, warp, group, lay)
    origin[0] += sums[0] * inverse
    pivot[0] -= origin[0]
    sums[0] = T.if_then_else(of[COUNT] > T.float32(0.0), pivot[0] * of[COUNT] + of[MEAN], T.float32(0.0))
    sums[1] = T.if_then_else(
        of[COUNT] > T.float32(0.0),
        of[SQUARES] + pivot[0] * (pivot[0] * of[COUNT] + T.float32(2.0) * of[MEAN]),
        T.float32(0.0),
    )
    sum_over(sums, 2, parts, 1, stack, warp, group, lay)
    pivot[0] = origin[0]


@T.macro
def settle(
    pivot, sums, inverse, correction, scale, shift, was, owner, channel, targets, eps, momentum, tracked, unbiased
):
    """From the sums of the distances from *pivot*, and of their squares, to what normalizes ``x - pivot``.

    What the pivot lacks of the mean goes into *shift*, so that no digits of it are lost. The *owner* of the channel
    writes the statistics down.

    Args:
        pivot: About the mean.
        sums: The sum of the distances, and of their squares; becomes work space.
        inverse: One over the number of values.
        correction: One over one less.
        scale: The weight; becomes what distances are multiplied by.
        shift: The bias; becomes what is added.
        was: What the running statistics were, where they are kept.
        owner: Whether this thread writes.
        channel: Where it writes.
        targets: Mean, spread, running mean, running variance.
        eps: Added to the variance.
        momentum: Share of the new statistics.
        tracked: Whether running statistics are kept.
        unbiased: Whether the spread is the unbiased variance.
    """
    mean, spread, running_mean, running_var = targets
    sums[1] -= sums[0] * (sums[0] * inverse)
    sums[0] = sums[0] * inverse
    sums[1] = T.if_then_else(sums[1] < T.float32(0.0), T.float32(0.0), sums[1])
    scaled = T.alloc_local((1,), "float32")
    scaled[0] = sums[1] * inverse + eps
    scaled[0] = T.if_then_else(scaled[0] == T.float32(0.0), T.float32(0.0), T.rsqrt(scaled[0]))
    scale[0] = scale[0] * scaled[0]
    shift[0] = shift[0] - sums[0] * scale[0]
    if owner:
        sums[0] = pivot[0] + sums[0]
        mean[channel] = sums[0]
        if tracked or unbiased:
            sums[1] = sums[1] * correction
        if tracked:
            running_mean[channel] = (T.float32(1.0) - momentum) * was[0] + momentum * sums[0]
            running_var[channel] = (T.float32(1.0) - momentum) * was[1] + momentum * sums[1]
        if unbiased:
            spread[channel] = sums[1]
        else:
            spread[channel] = scaled[0]
