"""TileLang program of grouped-query prefill on Hopper. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

What a block does: see ``prefill_loops_program.py``. Here stands what the program for float8 does otherwise: values
lie as they come, and results leave by TMA, from a tile of their own or from that of the queries.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.prefill_loops_program import BLOCK_THREADS, attend_block, ring_of
from tileops.kernels.attention.gqa.prefill_macros_program import PASSES, Held, divide, lay_out, rescale
from tileops.kernels.attention.gqa.prefill_shape_program import (
    CONSUMER_THREADS,
    QUERIES,
    Launch,
    PrefillShape,
    Products,
    QueryTile,
    WeightRange,
)
from tileops.kernels.attention.gqa.score_macros_program import WEIGHT_BITS, ScoreScale

__all__ = ["PASSES", "attend_tiles"]

WEIGHTS = WeightRange(WEIGHT_BITS, growth=8)
ITEM_BYTES = 2


def attend_tiles(
    heads: int,
    heads_kv: int,
    dim: int,
    dtype: str,
    sm_scale: float,
    softcap: float,
    is_causal: bool,
    bounded_left: bool,
    bounded_right: bool,
    tile_keys: int,
    stages: int,
    own_out: bool,
    held_queries: bool,
    cluster: int,
    sm_count: int,
) -> Any:
    """Attend tiles of 128 queries of one head to the keys that any of them sees.

    Args:
        heads: Query heads.
        heads_kv: Key heads, a divisor of *heads*.
        dim: Elements of a head.
        dtype: Of every tensor.
        sm_scale: Factor of the scores.
        softcap: Bound of the scores, 0 for none.
        is_causal: Whether a query sees no key after its own position.
        bounded_left: Whether ``window_left`` says how many keys before its position a query sees, not all.
        bounded_right: Whether ``window_right`` says how many keys after its position it sees, not all. Where
            *is_causal* none is seen, whatever it says.
        tile_keys: Keys a trip.
        stages: Tiles of keys, and of values, in the ring.
        own_out: Whether results have a shared tile of their own; else they take the place of the queries.
        held_queries: Whether queries are multiplied from registers, not from shared memory.
        cluster: Blocks that share keys and values: 1, or 2 where a key head has an even number of query heads.
        sm_count: Multiprocessors; the most blocks of a launch.

    Returns:
        A program of ``(q, k, v, out, window_left, window_right)``, the windows being at most the sequences' lengths.
    """
    batch = T.dynamic("batch")
    seqlen_q = T.dynamic("seqlen_q")
    seqlen_kv = T.dynamic("seqlen_kv")
    bounded_right = bounded_right or is_causal
    shape = PrefillShape(heads, heads_kv, dim * ITEM_BYTES, tile_keys, bounded_left, bounded_right, cluster, sm_count)

    def values_at(v: Any, sequence: Any, head_kv: Any, at: Any) -> Any:
        return v[sequence, at : at + tile_keys, head_kv, :]

    @T.macro
    def clear(held: Held, out_tile):
        T.clear(held.acc)

    @T.macro
    def multiply_values(held: Held, v_ring, slot):
        T.wgmma_gemm(held.weights, v_ring[slot, :, :], held.acc, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def pack(held: Held):
        T.copy(held.scores, held.weights)

    @T.macro
    def settle(held: Held, out_tile):
        rescale(held.acc, held.shrink, dim)

    @T.macro
    def finish(held: Held, out_tile, tile: QueryTile, launch: Launch):
        divide(held, dim, 1.0)
        lay_out(held.acc, out_tile, own_out)
        T.tma_copy(
            out_tile,
            launch.out[tile.sequence, tile.begin : tile.begin + QUERIES, tile.head, :],
            leader_scope_threads=CONSUMER_THREADS,
        )
        if not own_out:
            T.tma_store_wait(0)

    products = Products(
        dtype=dtype,
        dim=dim,
        depth=dim,
        values_tile=(tile_keys, dim),
        stages=stages,
        score=ScoreScale(sm_scale, softcap),
        weight=WEIGHTS,
        held_queries=held_queries,
        lent_queries=not own_out,
        stored_by_tma=True,
        ping_pong=False,
        weights_first=False,
        gathered_trips=0,
        values_at=values_at,
        factor_of=lambda scales, sequence, head: None,
        clear=clear,
        pack=pack,
        multiply_values=multiply_values,
        settle=settle,
        gather=None,
        finish=finish,
    )

    @T.prim_func
    def gqa_prefill_attend(
        q: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        k: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        v: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        out: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        window_left: T.int32,
        window_right: T.int32,
    ):
        with T.Kernel(shape.grid(seqlen_q, batch), threads=BLOCK_THREADS, **shape.placement) as block:
            ring = ring_of(shape, products)
            out_tile = T.alloc_shared((QUERIES, dim), dtype) if own_out else ring.q_tile
            launch = Launch(q, k, v, out, None, window_left, 0 if is_causal else window_right)
            attend_block(ring, out_tile, block, launch, shape, products)

    return gqa_prefill_attend
