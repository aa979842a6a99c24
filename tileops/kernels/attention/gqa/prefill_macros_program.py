"""The steps of prefill on Hopper, whatever it multiplies. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

In what order a block takes them: see ``prefill_loops_program.py``. What is done to scores: see
``score_macros_program.py``.
"""

import dataclasses
from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.prefill_shape_program import (
    CONSUMER_THREADS,
    QUERIES,
    WARP,
    PrefillShape,
    Products,
    WeightRange,
)
from tileops.kernels.attention.gqa.score_macros_program import ScoreScale, hide, scale_scores

__all__ = [
    "CHAINS",
    "LOWEST",
    "PASSES",
    "Held",
    "bend",
    "divide",
    "has_grown",
    "held_of",
    "lay_out",
    "multiply_keys",
    "placed",
    "release",
    "release_everywhere",
    "rescale",
    "shared_barrier",
    "weigh",
    "weigh_first",
]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_ENABLE_FAST_MATH")

LOWEST = -3.0e38
"""What the maximum of no score stands for: finite, so that differences to minus infinity are no NaN."""
CHAINS = 8
"""Keys after which a row of scores comes back to the same thread."""
STORE_TURN = 8
"""Named barrier of both multiplying warpgroups, around the store of their results."""


@dataclasses.dataclass(frozen=True)
class Held:
    """What the multiplying warpgroups hold in registers, in float32 but for weights and queries.

    Attributes:
        scores: ``(QUERIES, tile_keys)``; then what the weights are before they are rounded.
        weights: ``(QUERIES, tile_keys)``.
        acc: Results, ``(QUERIES, dim)``.
        queries: ``(QUERIES, depth)``; where they are not held, the tile in shared memory.
        tops: The largest scores of a trip, over every eighth key: ``(QUERIES, CHAINS)``.
        sums: Sums of the weights of all trips, over every eighth key: ``(QUERIES, CHAINS)``.
        top: The base that the largest score of a trip asks for, ``(QUERIES,)`` like all that follow.
        base: What is taken from scores before their exponential.
        before: What was taken a trip before.
        shrink: What sums and results of the trips before are to be multiplied by.
        total: Sum of the weights.
        inverse: What results are multiplied by at the end.
    """

    scores: Any
    weights: Any
    acc: Any
    queries: Any
    tops: Any
    sums: Any
    top: Any
    base: Any
    before: Any
    shrink: Any
    total: Any
    inverse: Any


def shared_barrier(counts: list[int], cluster: int) -> Any:
    """Barriers that every block of a cluster may arrive at."""
    return T.alloc_barrier(counts) if cluster == 1 else T.alloc_cluster_barrier(counts)


@T.macro
def release(barriers, slot, tx):
    """One thread of each warp says that its warp has read what it was waiting for."""
    if tx % WARP == 0:
        T.mbarrier_arrive(barriers[slot])


@T.macro
def release_everywhere(barriers, slot, tx, cluster):
    """The same, to each block of the cluster."""
    if tx % WARP == 0:
        if cluster == 1:
            T.mbarrier_arrive(barriers[slot])
        else:
            for rank in T.unroll(cluster):
                T.mbarrier_arrive(barriers[slot], rank)


@T.macro
def placed(tile, rows, section, batch, block, shape: PrefillShape):
    """First query, head and sequence of a tile: sections one after the other, in each the longest tiles first.

    Every other section begins with its shortest tiles instead, so that where two meet tiles are of one length,
    and the last one ends with its shortest.
    """
    part = T.alloc_var("int32")
    inside = T.alloc_var("int32")
    width = T.alloc_var("int32")
    begin = T.alloc_var("int32")
    head = T.alloc_var("int32")
    part = tile // (section * (shape.group // shape.cluster) * rows)
    inside = tile % (section * (shape.group // shape.cluster) * rows)
    width = T.min(section, shape.heads_kv * batch - part * section) * (shape.group // shape.cluster)
    begin = inside // width
    if ((shape.heads_kv * batch - 1) // section - part) % 2 == 0:
        begin = rows - 1 - begin
    head = part * section * shape.group + inside % width * shape.cluster + block % shape.cluster
    return begin * QUERIES, head % shape.heads, head // shape.heads


@T.macro
def held_of(q_tile, tile_keys, products: Products):
    """Fragments of :class:`Held`."""
    scores = T.alloc_fragment((QUERIES, tile_keys), "float32")
    weights = T.alloc_fragment((QUERIES, tile_keys), products.dtype)
    acc = T.alloc_fragment((QUERIES, products.dim), "float32")
    queries = T.alloc_fragment((QUERIES, products.depth), products.dtype) if products.held_queries else q_tile
    tops = T.alloc_fragment((QUERIES, CHAINS), "float32")
    sums = T.alloc_fragment((QUERIES, CHAINS), "float32")
    top = T.alloc_fragment((QUERIES,), "float32")
    base = T.alloc_fragment((QUERIES,), "float32")
    before = T.alloc_fragment((QUERIES,), "float32")
    shrink = T.alloc_fragment((QUERIES,), "float32")
    total = T.alloc_fragment((QUERIES,), "float32")
    inverse = T.alloc_fragment((QUERIES,), "float32")
    return Held(scores, weights, acc, queries, tops, sums, top, base, before, shrink, total, inverse)


@T.macro
def multiply_keys(queries, k_ring, scores, slot):
    """Products of the queries with the keys of a tile."""
    T.wgmma_gemm(
        queries, k_ring[slot, :, :], scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow
    )


@T.macro
def bend(
    scores, at, row, masked, seqlen_kv, window_left, window_right, shape: PrefillShape, score: ScoreScale, factor=None
):  # fmt: skip
    """Scale where the scale is not folded into the exponent, and hide keys that a query does not see."""
    scale_scores(scores, QUERIES, shape.tile_keys, score, factor)
    if masked:
        hide(
            scores, QUERIES, shape.tile_keys, at, row, seqlen_kv, window_left, window_right, shape.bounded_left,
            shape.bounded_right,
        )  # fmt: skip


@T.macro
def weigh(held: Held, keys, folded, scale, weight: WeightRange):
    """Scores of so many *keys* become weights, still in float32; where *folded*, scores are to be scaled by *scale*.

    Largest scores and sums are taken over every eighth key first: these lie in one thread, in chains that
    do not wait for each other. Sums stay so until the last trip.
    """
    for i, j in T.Parallel(QUERIES, CHAINS):
        held.tops[i, j] = LOWEST
    for n in T.unroll(keys // CHAINS):
        for i, j in T.Parallel(QUERIES, CHAINS):
            held.tops[i, j] = T.max(held.tops[i, j], held.scores[i, n * CHAINS + j])
    T.reduce_max(held.tops, held.top, dim=1)
    for i in T.Parallel(QUERIES):
        held.before[i] = held.base[i]
        held.top[i] = held.top[i] * scale - weight.first if folded else held.top[i] - weight.first
        held.base[i] = T.if_then_else(held.top[i] > held.before[i] + weight.growth, held.top[i], held.before[i])
        held.shrink[i] = T.exp2(held.before[i] - held.base[i])
    for i, j in T.Parallel(QUERIES, CHAINS):
        held.sums[i, j] = held.sums[i, j] * held.shrink[i]
    for n in T.unroll(keys // CHAINS):
        for i, j in T.Parallel(QUERIES, CHAINS):
            if folded:
                held.scores[i, n * CHAINS + j] = T.exp2(held.scores[i, n * CHAINS + j] * scale - held.base[i])
            else:
                held.scores[i, n * CHAINS + j] = T.exp2(held.scores[i, n * CHAINS + j] - held.base[i])
    for n in T.unroll(keys // CHAINS):
        for i, j in T.Parallel(QUERIES, CHAINS):
            held.sums[i, j] = held.sums[i, j] + held.scores[i, n * CHAINS + j]


@T.macro
def weigh_first(held: Held):
    """Have all weights of a trip before products are awaited: ptxas (CUDA 13.0) moves that wait up to the last branch.

    No sum of weights is negative: nothing ends here.
    """
    negative = T.alloc_var("int32")
    negative = 0
    for i, j in T.Parallel(QUERIES, CHAINS):
        negative = negative | T.if_then_else(held.sums[i, j] < 0.0, 1, 0)
    if T.any_sync(negative != 0):
        T.evaluate(T.call_extern("handle", "__trap"))


@T.macro
def has_grown(shrink):
    """Whether any base of a warp has grown."""
    grown = T.alloc_var("int32")
    grown = 0
    for i in T.Parallel(QUERIES):
        grown = grown | T.if_then_else(shrink[i] < 1.0, 1, 0)
    return T.any_sync(grown != 0)


@T.macro
def rescale(acc, shrink, dim):
    """Bring results to the base of their row, where any base of a warp has grown."""
    if has_grown(shrink):
        for i, d in T.Parallel(QUERIES, dim):
            acc[i, d] = acc[i, d] * shrink[i]


@T.macro
def divide(held: Held, dim, factor):
    """Results become averages, times *factor*; those of a query that saw no key become zeros."""
    T.reduce_sum(held.sums, held.total, dim=1)
    for i in T.Parallel(QUERIES):
        held.inverse[i] = T.if_then_else(held.total[i] == 0.0, 0.0, factor / held.total[i])
    for i, d in T.Parallel(QUERIES, dim):
        held.acc[i, d] = held.acc[i, d] * held.inverse[i]


@T.macro
def lay_out(acc, out_tile, own_out):
    """Lay the results of a tile out in shared memory, which those before may still be leaving where it is their own."""
    if own_out:
        T.tma_store_wait(0)  # the results before these have left the tile
        T.sync_threads(STORE_TURN, CONSUMER_THREADS)
    T.copy(acc, out_tile)
    T.fence_proxy_async()
    T.sync_threads(STORE_TURN, CONSUMER_THREADS)
