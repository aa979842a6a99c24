"""What the TileLang programs of channels share. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

``x`` of shape ``(n, c, *spatial)`` is seen as ``(n, c, q, vector)``. A thread walks over the vectors of its channel in
steps of ``lanes``; where it stands is kept as sample and vector of a plane, so that one division at the start is all.
No extent is built in but the vector.

Statistics are a count, a mean about the channel's first value and the squared distances from that mean. Two of them are
merged by their counts (Chan, Golub and LeVeque, 1979); no variance is a difference of two large sums.
"""

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout

__all__ = [
    "COUNT",
    "MEAN",
    "SQUARES",
    "advance",
    "gather",
    "keep",
    "load",
    "merge_block",
    "merge_lanes",
    "merge_one",
    "put_back",
    "start",
    "sum_lanes",
]

WARP = 32
COUNT, MEAN, SQUARES = 0, 1, 2
"""Where a statistic has its parts."""

SAMPLE, PLACE, SAMPLES, PLACES = 0, 1, 2, 3
"""Where a position has the sample, the vector of the plane, and how far a step goes in both."""


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
def merge_one(into, count, mean, squares, work):
    """Merge a second statistic into *into*."""
    work[0] = into[COUNT] + count
    work[1] = count / T.max(work[0], T.float32(1.0))
    work[2] = mean - into[MEAN]
    into[SQUARES] += squares + work[2] * work[2] * into[COUNT] * work[1]
    into[MEAN] += work[2] * work[1]
    into[COUNT] = work[0]


@T.macro
def merge_lanes(of, work, groups):
    """Merge the statistics *of* the lanes of a warp that share a channel; each gets the result."""
    work[0] = of[COUNT]
    sum_lanes(work, 0, groups)
    work[1] = of[MEAN] * of[COUNT]
    sum_lanes(work, 1, groups)
    work[1] = work[1] / T.max(work[0], T.float32(1.0))
    work[2] = of[SQUARES] + (of[MEAN] - work[1]) * (of[MEAN] - work[1]) * of[COUNT]
    sum_lanes(work, 2, groups)
    of[COUNT] = work[0]
    of[MEAN] = work[1]
    of[SQUARES] = work[2]


@T.macro
def merge_block(of, parts, stack, warp, group, lay: ChannelLayout):
    """Merge the statistics *of* the warps that share a channel through shared memory; each thread gets the result."""
    if lay.warps > 1:
        if T.get_thread_binding() % WARP < lay.groups:
            for i in T.unroll(3):
                parts[stack, warp, group, i] = of[i]
        T.sync_threads()
        of[COUNT] = 0.0
        of[MEAN] = 0.0
        of[SQUARES] = 0.0
        for i in T.unroll(lay.warps):
            of[COUNT] += parts[stack, i, group, COUNT]
            of[MEAN] += parts[stack, i, group, MEAN] * parts[stack, i, group, COUNT]
        of[MEAN] = of[MEAN] / T.max(of[COUNT], T.float32(1.0))
        for i in T.unroll(lay.warps):
            of[SQUARES] += parts[stack, i, group, SQUARES]
            of[SQUARES] += (
                (parts[stack, i, group, MEAN] - of[MEAN])
                * (parts[stack, i, group, MEAN] - of[MEAN])
                * parts[stack, i, group, COUNT]
            )


@T.macro
def gather(of, origin, held, valid, sums, lay: ChannelLayout):
    """Merge the chunk that is *held* into the statistic *of*: its mean first, then the distances from it.

    Args:
        of: Statistic of this thread.
        origin: The channel's first value.
        held: The chunk.
        valid: For each vector of the chunk, whether there is one.
        sums: Work space of five values.
        lay: The layout.
    """
    sums[3] = 0.0
    sums[4] = 0.0
    for v in T.unroll(lay.steps):
        if valid[v] != 0:
            sums[4] += T.float32(lay.vector)
            for k in T.unroll(lay.vector):
                sums[3] += T.cast(held[v * lay.vector + k], "float32") - origin[0]
    sums[3] = sums[3] / T.max(sums[4], T.float32(1.0))
    sums[0] = 0.0
    for v in T.unroll(lay.steps):
        if valid[v] != 0:
            for k in T.unroll(lay.vector):
                sums[0] += (T.cast(held[v * lay.vector + k], "float32") - origin[0] - sums[3]) * (
                    T.cast(held[v * lay.vector + k], "float32") - origin[0] - sums[3]
                )
    of[SQUARES] += sums[0]
    merge_one(of, sums[4], sums[3], T.float32(0.0), sums)


@T.macro
def keep(of, origin, channel, owner, running_mean, running_var, mean, spread, eps, momentum, tracked, unbiased):
    """Turn squares into ``1 / sqrt(var + eps)``; the *owner* of the channel writes the statistics down."""
    if owner:
        mean[channel] = origin[0] + of[MEAN]
        if unbiased:
            spread[channel] = of[SQUARES] / (of[COUNT] - T.float32(1.0))
        if tracked:
            running_mean[channel] = (T.float32(1.0) - momentum) * T.cast(
                running_mean[channel], "float32"
            ) + momentum * (origin[0] + of[MEAN])
            running_var[channel] = (T.float32(1.0) - momentum) * T.cast(running_var[channel], "float32") + momentum * (
                of[SQUARES] / (of[COUNT] - T.float32(1.0))
            )
    of[SQUARES] = of[SQUARES] / of[COUNT] + eps
    of[SQUARES] = T.if_then_else(of[SQUARES] == T.float32(0.0), T.float32(0.0), T.rsqrt(of[SQUARES]))
    if owner and not unbiased:
        spread[channel] = of[SQUARES]
