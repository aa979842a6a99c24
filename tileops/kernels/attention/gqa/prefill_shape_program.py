"""What prefill on Hopper is told: its shape, its numbers, its tensors. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.score_macros_program import ScoreScale

__all__ = [
    "CONSUMER_THREADS",
    "CONSUMER_WARPS",
    "QUERIES",
    "WARP",
    "WARPGROUP",
    "Launch",
    "PrefillShape",
    "Products",
    "QueryTile",
    "WeightRange",
]

WARP = 32
WARPGROUP = 128
CONSUMERS = 2
CONSUMER_THREADS = CONSUMERS * WARPGROUP
CONSUMER_WARPS = CONSUMER_THREADS // WARP
QUERIES = 64 * CONSUMERS
"""Queries of a tile."""
L2_BYTES = 32 << 20
"""Keys and values that may be in use at a time, so that they stay in the L2 cache."""


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
        sm_count: Multiprocessors; the most blocks of a launch.
    """

    heads: int
    heads_kv: int
    head_bytes: int
    tile_keys: int
    bounded_left: bool
    bounded_right: bool
    cluster: int
    sm_count: int

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

    def grid(self, seqlen_q: Any, batch: Any) -> Any:
        """Blocks of a launch."""
        clusters = T.ceildiv(seqlen_q, QUERIES) * (self.heads // self.cluster) * batch
        return T.min(clusters, self.sm_count // self.cluster) * self.cluster

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


@dataclasses.dataclass(frozen=True)
class Launch:
    """What a launch is given.

    Attributes:
        q: Queries, ``(batch, seqlen_q, heads, dim)``.
        k: Keys, ``(batch, seqlen_kv, heads_kv, dim)``.
        v: Values, as :attr:`Products.values_at` reads them.
        out: Results, like *q*.
        scales: What :attr:`Products.factor_of` reads.
        window_left: How many keys before its position a query sees, where that is bounded.
        window_right: How many keys after its position it sees, where that is bounded.
    """

    q: Any
    k: Any
    v: Any
    out: Any
    scales: Any
    window_left: Any
    window_right: Any

    @property
    def batch(self) -> Any:
        """Sequences."""
        return self.q.shape[0]

    @property
    def seqlen_q(self) -> Any:
        """Queries of a sequence."""
        return self.q.shape[1]

    @property
    def seqlen_kv(self) -> Any:
        """Keys of a sequence."""
        return self.k.shape[1]

    def row_of(self, begin: Any) -> Any:
        """Position of the query *begin* among the keys of its sequence."""
        return begin + (self.seqlen_kv - self.seqlen_q)


@dataclasses.dataclass(frozen=True)
class QueryTile:
    """A tile of queries, and the tiles of keys that it is multiplied with.

    Attributes:
        round: Tiles that the block had before.
        begin: First query.
        head: Query head.
        sequence: Sequence.
        low: First tile of keys.
        high: One past the last.
        clear_low: First of the tiles of keys that every query sees whole; ``None`` for the warpgroup that brings.
        clear_high: One past the last of them.
    """

    round: Any
    begin: Any
    head: Any
    sequence: Any
    low: Any
    high: Any
    clear_low: Any = None
    clear_high: Any = None


@dataclasses.dataclass(frozen=True)
class Products:
    """What differs with the numbers that are multiplied.

    Macros are given what a block holds in registers (*held*, see ``prefill_macros_program.py``) and what the program
    has in shared memory for results (*results*).

    Attributes:
        dtype: Of queries, keys, values and weights.
        dim: Elements of a head.
        depth: Elements of a query or key in shared memory: *dim*, and zeros after it.
        values_tile: Extents of a tile of values in shared memory.
        stages: Tiles of keys, and of values, in shared memory.
        score: How scores are scaled.
        weight: How weights are scaled before they are rounded.
        held_queries: Whether queries are multiplied from registers, not from shared memory.
        lent_queries: Whether results take the place of the queries in shared memory.
        stored_by_tma: Whether results leave by TMA: a block then ends no sooner than they have left.
        ping_pong: Whether the two multiplying warpgroups take turns at the tensor cores.
        weights_first: Whether weights are there before the products of those of the trip before are awaited, and
            results are brought to a new base only while the next scores are multiplied.
        gathered_trips: Trips after which results are gathered, 0 for never.
        values_at: Region of ``(v, sequence, head_kv, at)``: the values of the keys from *at* on.
        factor_of: Of ``(scales, sequence, head)``: what scores are multiplied by beside their scale, or ``None``.
        clear: Macro of ``(held, results)``: results become zeros.
        pack: Macro of ``(held)``: weights are rounded.
        multiply_values: Macro of ``(held, v_ring, slot)``: products of the weights with a tile of values are added.
        settle: Macro of ``(held, results)``: results are brought to the base of their row.
        gather: Macro of ``(held, results)``: what is done with results every *gathered_trips* trips, ``None`` for
            nothing.
        finish: Macro of ``(held, results, tile, launch)``: results are divided and stored.
    """

    dtype: str
    dim: int
    depth: int
    values_tile: tuple[int, int]
    stages: int
    score: ScoreScale
    weight: WeightRange
    held_queries: bool
    lent_queries: bool
    stored_by_tma: bool
    ping_pong: bool
    weights_first: bool
    gathered_trips: int
    values_at: Callable[[Any, Any, Any, Any], Any]
    factor_of: Callable[[Any, Any, Any], Any]
    clear: Any
    pack: Any
    multiply_values: Any
    settle: Any
    gather: Any
    finish: Any
