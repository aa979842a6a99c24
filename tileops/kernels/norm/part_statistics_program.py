"""What is known of a part of a channel, and how parts are put together. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

Each value is looked at once for its statistics. They are taken about a place near the mean: that of the first values of
a thread to begin with, and of all that it saw before later on, so that no more than two bits are lost where the square
of a sum is taken off. A mean is kept as the nearest float32 and what is left over. Channels far from zero keep their
digits by that, and no single value, the first included, is what all others are compared with.
"""

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_program import COUNT, MEAN, SQUARES, sum_lanes
from tileops.kernels.norm.cut_layout import FACTS

__all__ = ["ABOUT", "CENTER", "SCALE", "SHIFT", "center", "conclude", "fold", "look", "unite"]

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
def unite(of, work, groups):
    """Merge the statistics *of* the lanes of a warp that share a channel; each gets the result.

    They are brought about the mean of all first, as well as it sums round: about what one lane has seen, that a value
    far from the rest was in it would cost the others digits.
    """
    work[0] = of[COUNT]
    sum_lanes(work, 0, groups)
    work[3] = 0.0
    if of[COUNT] != T.float32(0.0):
        work[3] = (of[ABOUT] + of[MEAN]) * (of[COUNT] / work[0])  # a share of a mean, which no sum of is too large
    sum_lanes(work, 3, groups)
    of[MEAN] += of[ABOUT] - work[3]
    work[1] = 0.0
    if of[COUNT] != T.float32(0.0):
        work[1] = of[MEAN] * of[COUNT]
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
def conclude(of, facts, work, owner, channel, targets, eps, momentum, tracked, unbiased):
    """From the statistic *of* a channel to the *facts* by which ``(x - center) * scale + shift`` normalizes it.

    Args:
        of: The statistic; becomes work space.
        facts: Weight and bias at SCALE and SHIFT, then the running statistics of the *owner*; becomes scale, shift and
            center.
        work: Work space of three values.
        owner: Whether this thread writes the statistics down.
        channel: Where it writes.
        targets: Mean, spread, running mean, running variance.
        eps: Added to the variance.
        momentum: Share of the new statistics.
        tracked: Whether running statistics are kept.
        unbiased: Whether the spread is the unbiased variance.
    """
    mean, spread, running_mean, running_var = targets
    center(of, work)
    of[SQUARES] = T.if_then_else(of[SQUARES] < T.float32(0.0), T.float32(0.0), of[SQUARES])
    work[0] = of[SQUARES] / (of[COUNT] - T.float32(1.0))
    of[SQUARES] = of[SQUARES] / of[COUNT] + eps
    of[SQUARES] = T.if_then_else(of[SQUARES] == T.float32(0.0), T.float32(0.0), T.rsqrt(of[SQUARES]))
    if owner:
        mean[channel] = of[ABOUT]
        if tracked:
            running_mean[channel] = (T.float32(1.0) - momentum) * facts[2] + momentum * of[ABOUT]
            running_var[channel] = (T.float32(1.0) - momentum) * facts[3] + momentum * work[0]
        spread[channel] = work[0] if unbiased else of[SQUARES]
    facts[SCALE] = facts[SCALE] * of[SQUARES]
    facts[SHIFT] = facts[SHIFT] - of[MEAN] * facts[SCALE]
    facts[CENTER] = of[ABOUT]
