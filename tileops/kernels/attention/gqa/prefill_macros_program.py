"""What the prefill programs of Hopper share, whatever they multiply. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

A block has three warpgroups: two multiply, 64 queries each, and the last one brings tiles by TMA. Blocks stay: each
takes one tile of queries after another, longest first. What is done to scores: see ``score_macros_program.py``.
"""

import dataclasses
from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.score_macros_program import ScoreScale, hide, scale_scores

__all__ = [
    "CHAINS",
    "CONSUMERS",
    "CONSUMER_REGISTERS",
    "CONSUMER_THREADS",
    "CONSUMER_WARPS",
    "LOWEST",
    "PASSES",
    "PRODUCER_REGISTERS",
    "QUERIES",
    "WARP",
    "WARPGROUP",
    "PrefillShape",
    "WeightRange",
    "bend",
    "divide",
    "has_grown",
    "lay_out",
    "multiply_keys",
    "placed",
    "release",
    "release_everywhere",
    "rescale",
    "shared_barrier",
    "weigh",
]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_ENABLE_FAST_MATH")

WARP = 32
WARPGROUP = 128
CONSUMERS = 2
CONSUMER_THREADS = CONSUMERS * WARPGROUP
CONSUMER_WARPS = CONSUMER_THREADS // WARP
PRODUCER_REGISTERS = 24
CONSUMER_REGISTERS = 240
QUERIES = 64 * CONSUMERS
"""Queries of a tile."""
LOWEST = -3.0e38
"""What the maximum of no score stands for: finite, so that differences to minus infinity are no NaN."""
CHAINS = 8
"""Keys after which a row of scores comes back to the same thread."""
L2_BYTES = 32 << 20
"""Keys and values that may be in use at a time, so that they stay in the L2 cache."""
STORE_TURN = 8
"""Named barrier of both multiplying warpgroups, around the store of their results."""


@dataclasses.dataclass(frozen=True)
class WeightRange:
    """How weights of a row are scaled before they are rounded.

    Attributes:
        bits: The largest weight of a row is no more than ``2**bits``.
        growth: A row is brought to a new base when its largest score exceeds the old one by this, not whenever it
            grows: its weights begin ``2**growth`` below the largest that may be, and results are seldom scaled.
    """

    bits: int
    growth: int

    @property
    def first(self) -> int:
        """The largest weight of a row that has just got its base, as a power of 2."""
        return self.bits - self.growth


@dataclasses.dataclass(frozen=True)
class PrefillShape:
    """Which tile a block takes, and which keys a tile of queries sees.

    Attributes:
        heads: Query heads.
        heads_kv: Key heads, a divisor of *heads*.
        head_bytes: Bytes of a key or value of one head.
        tile_keys: Keys a trip.
        bounded_left: Whether a query sees only so many keys before its position.
        bounded_right: Whether it sees only so many after its position.
        cluster: Blocks that share keys and values: 1, or 2 where a key head has an even number of query heads.
    """

    heads: int
    heads_kv: int
    head_bytes: int
    tile_keys: int
    bounded_left: bool
    bounded_right: bool
    cluster: int

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.heads_kv

    @property
    def placement(self) -> dict[str, Any]:
        """What the launch is told of clusters."""
        return {"cluster_dims": (self.cluster, 1, 1)} if self.cluster > 1 else {}

    @property
    def sharing(self) -> dict[str, Any]:
        """What a copy of keys or values is told of clusters."""
        return {"cluster_mask": (1 << self.cluster) - 1} if self.cluster > 1 else {}

    def grid(self, seqlen_q: Any, batch: Any, sm_count: int) -> Any:
        """Blocks of a launch."""
        clusters = T.min(T.ceildiv(seqlen_q, QUERIES) * (self.heads // self.cluster) * batch, sm_count // self.cluster)
        return clusters * self.cluster

    def section_of(self, seqlen_kv: Any, batch: Any) -> Any:
        """Key heads whose keys and values stay in the L2 cache together; tiles of these come side by side."""
        return T.max(T.min(L2_BYTES // (2 * self.head_bytes) // seqlen_kv, self.heads_kv * batch), 1)

    def tile_of(self, r: Any, blocks: Any, block: Any) -> Any:
        """Tile of round *r*: rounds run over the blocks to and fro, so that each gets as much work as any other."""
        return r * blocks + T.if_then_else(r % 2 == 0, block // self.cluster, blocks - 1 - block // self.cluster)

    def low_of(self, row: Any, high: Any, window_left: Any) -> Any:
        """First tile of keys that a tile of queries multiplies, the first of which stands at *row*."""
        return T.min(T.max(row - window_left, 0) // self.tile_keys, high - 1) if self.bounded_left else 0

    def high_of(self, row: Any, seqlen_kv: Any, window_right: Any) -> Any:
        """One past the last tile of keys that it multiplies: one tile at least."""
        high = T.ceildiv(seqlen_kv, self.tile_keys)
        if self.bounded_right:
            high = T.min(high, (T.max(row + QUERIES + window_right, 1) + self.tile_keys - 1) // self.tile_keys)
        return high

    def clear_high_of(self, row: Any, low: Any, high: Any, seqlen_kv: Any, window_right: Any) -> Any:
        """One past the last tile of keys that no query of the tile fails to see, the last multiplied one apart."""
        clear = seqlen_kv // self.tile_keys
        if self.bounded_right:
            clear = T.min(clear, T.max(row + window_right + 1, 0) // self.tile_keys)
        return T.max(T.min(clear, high - 1), low)

    def clear_low_of(self, row: Any, low: Any, clear_high: Any, window_left: Any) -> Any:
        """First of those tiles."""
        if not self.bounded_left:
            return low
        clear = T.max(row + QUERIES - 1 - window_left + self.tile_keys - 1, 0) // self.tile_keys
        return T.min(T.max(clear, low), clear_high)


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
def weigh(scores, tops, top, base, before, shrink, sums, keys, folded, scale, weight: WeightRange):
    """Scores of so many *keys* become weights, still in float32; where *folded*, scores are to be scaled by *scale*.

    Largest scores and sums are taken over every eighth key first: these lie in one thread, in chains that
    do not wait for each other. Sums stay so until the last trip.
    """
    for i, j in T.Parallel(QUERIES, CHAINS):
        tops[i, j] = LOWEST
    for n in T.unroll(keys // CHAINS):
        for i, j in T.Parallel(QUERIES, CHAINS):
            tops[i, j] = T.max(tops[i, j], scores[i, n * CHAINS + j])
    T.reduce_max(tops, top, dim=1)
    for i in T.Parallel(QUERIES):
        before[i] = base[i]
        top[i] = top[i] * scale - weight.first if folded else top[i] - weight.first
        base[i] = T.if_then_else(top[i] > before[i] + weight.growth, top[i], before[i])
        shrink[i] = T.exp2(before[i] - base[i])
    for i, j in T.Parallel(QUERIES, CHAINS):
        sums[i, j] = sums[i, j] * shrink[i]
    for n in T.unroll(keys // CHAINS):
        for i, j in T.Parallel(QUERIES, CHAINS):
            if folded:
                scores[i, n * CHAINS + j] = T.exp2(scores[i, n * CHAINS + j] * scale - base[i])
            else:
                scores[i, n * CHAINS + j] = T.exp2(scores[i, n * CHAINS + j] - base[i])
    for n in T.unroll(keys // CHAINS):
        for i, j in T.Parallel(QUERIES, CHAINS):
            sums[i, j] = sums[i, j] + scores[i, n * CHAINS + j]


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
def divide(acc, sums, total, inverse, dim, factor):
    """Results become averages, times *factor*; those of a query that saw no key become zeros."""
    T.reduce_sum(sums, total, dim=1)
    for i in T.Parallel(QUERIES):
        inverse[i] = T.if_then_else(total[i] == 0.0, 0.0, factor / total[i])
    for i, d in T.Parallel(QUERIES, dim):
        acc[i, d] = acc[i, d] * inverse[i]


@T.macro
def lay_out(acc, out_tile, own_out):
    """Lay the results of a tile out in shared memory, which those before may still be leaving where it is their own."""
    if own_out:
        T.tma_store_wait(0)  # the results before these have left the tile
        T.sync_threads(STORE_TURN, CONSUMER_THREADS)
    T.copy(acc, out_tile)
    T.fence_proxy_async()
    T.sync_threads(STORE_TURN, CONSUMER_THREADS)
