"""TileLang program of grouped-query prefill on Hopper. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

A block has three warpgroups with roles of their own. The last one brings queries, keys and values by TMA; the
first two multiply, 64 queries each, and meet the copies at barriers only. Blocks stay: each takes one tile of
queries after another, longest first. What it shares with the program for float8: see ``prefill_macros_program.py``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.prefill_macros_program import (
    CHAINS,
    CONSUMER_REGISTERS,
    CONSUMER_THREADS,
    CONSUMER_WARPS,
    LOWEST,
    PASSES,
    PRODUCER_REGISTERS,
    QUERIES,
    WARP,
    WARPGROUP,
    PrefillShape,
    WeightRange,
    bend,
    divide,
    lay_out,
    multiply_keys,
    placed,
    release,
    release_everywhere,
    rescale,
    shared_barrier,
    weigh,
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
    shape = PrefillShape(heads, heads_kv, dim * ITEM_BYTES, tile_keys, bounded_left, bounded_right, cluster)
    score = ScoreScale(sm_scale, softcap)
    group = shape.group

    @T.macro
    def multiply_values(weights, v_ring, acc, slot):
        T.wgmma_gemm(weights, v_ring[slot, :, :], acc, policy=T.GemmWarpPolicy.FullRow)

    @T.prim_func
    def gqa_prefill_attend(
        q: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        k: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        v: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        out: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        window_left: T.int32,
        window_right: T.int32,
    ):
        with T.Kernel(
            shape.grid(seqlen_q, batch, sm_count), threads=CONSUMER_THREADS + WARPGROUP, **shape.placement
        ) as block:
            q_tile = T.alloc_shared((QUERIES, dim), dtype)
            k_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            v_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            out_tile = T.alloc_shared((QUERIES, dim), dtype) if own_out else q_tile
            q_full = T.alloc_barrier(1)
            q_free = T.alloc_barrier(CONSUMER_WARPS)
            k_full = T.alloc_barrier([1] * stages)
            k_free = shared_barrier([CONSUMER_WARPS * cluster] * stages, cluster)
            v_full = T.alloc_barrier([1] * stages)
            v_free = shared_barrier([CONSUMER_WARPS * cluster] * stages, cluster)

            right = 0 if is_causal else window_right
            offset = seqlen_kv - seqlen_q
            tx = T.get_thread_binding()
            blocks = T.alloc_var("int32")
            tiles = T.alloc_var("int32")
            rounds = T.alloc_var("int32")
            rows = T.alloc_var("int32")
            section = T.alloc_var("int32")
            tile = T.alloc_var("int32")
            begin = T.alloc_var("int32")
            head = T.alloc_var("int32")
            sequence = T.alloc_var("int32")
            low = T.alloc_var("int32")
            high = T.alloc_var("int32")
            trip = T.alloc_var("int32")
            rows = T.ceildiv(seqlen_q, QUERIES)
            section = shape.section_of(seqlen_kv, batch)
            tiles = rows * (heads // cluster) * batch
            blocks = T.min(tiles, sm_count // cluster)
            rounds = (tiles + blocks - 1) // blocks
            trip = 0

            with T.ws(2):
                T.dec_max_nreg(PRODUCER_REGISTERS)
                if tx < CONSUMER_THREADS + WARP:
                    for r in T.serial(rounds):
                        tile = shape.tile_of(r, blocks, block)
                        if tile < tiles:
                            begin, head, sequence = placed(tile, rows, section, batch, block, shape)
                            high = shape.high_of(begin + offset, seqlen_kv, right)
                            low = shape.low_of(begin + offset, high, window_left)
                            T.mbarrier_wait_parity(q_free, (r & 1) ^ 1)
                            T.tma_copy(
                                q[sequence, begin : begin + QUERIES, head, :],
                                q_tile,
                                barrier=q_full,
                                leader_scope_threads=WARP,
                            )
                            release(q_full, 0, tx)
                            for step in T.serial(high - low):
                                at = (high - 1 - step) * tile_keys
                                slot = trip % stages
                                phase = trip // stages & 1
                                T.mbarrier_wait_parity(k_free[slot], phase ^ 1)
                                T.tma_copy(
                                    k[sequence, at : at + tile_keys, head // group, :],
                                    k_ring[slot, :, :],
                                    barrier=k_full[slot],
                                    leader_scope_threads=WARP,
                                    **shape.sharing,
                                )
                                release(k_full, slot, tx)
                                T.mbarrier_wait_parity(v_free[slot], phase ^ 1)
                                T.tma_copy(
                                    v[sequence, at : at + tile_keys, head // group, :],
                                    v_ring[slot, :, :],
                                    barrier=v_full[slot],
                                    leader_scope_threads=WARP,
                                    **shape.sharing,
                                )
                                release(v_full, slot, tx)
                                trip += 1

            with T.ws(0, 1):
                T.inc_max_nreg(CONSUMER_REGISTERS)
                scores = T.alloc_fragment((QUERIES, tile_keys), "float32")
                weights = T.alloc_fragment((QUERIES, tile_keys), dtype)
                acc = T.alloc_fragment((QUERIES, dim), "float32")
                tops = T.alloc_fragment((QUERIES, CHAINS), "float32")
                sums = T.alloc_fragment((QUERIES, CHAINS), "float32")
                top = T.alloc_fragment((QUERIES,), "float32")
                base = T.alloc_fragment((QUERIES,), "float32")
                before = T.alloc_fragment((QUERIES,), "float32")
                shrink = T.alloc_fragment((QUERIES,), "float32")
                total = T.alloc_fragment((QUERIES,), "float32")
                inverse = T.alloc_fragment((QUERIES,), "float32")
                clear_low = T.alloc_var("int32")
                clear_high = T.alloc_var("int32")
                queries = T.alloc_fragment((QUERIES, dim), dtype) if held_queries else q_tile

                for r in T.serial(rounds):
                    tile = shape.tile_of(r, blocks, block)
                    if tile < tiles:
                        begin, head, sequence = placed(tile, rows, section, batch, block, shape)
                        high = shape.high_of(begin + offset, seqlen_kv, right)
                        low = shape.low_of(begin + offset, high, window_left)
                        clear_high = shape.clear_high_of(begin + offset, low, high, seqlen_kv, right)
                        clear_low = shape.clear_low_of(begin + offset, low, clear_high, window_left)
                        T.clear(acc)
                        T.clear(sums)
                        T.fill(base, LOWEST)
                        T.mbarrier_wait_parity(q_full, r & 1)
                        if held_queries:
                            T.copy(q_tile, queries)
                            release(q_free, 0, tx)
                        T.mbarrier_wait_parity(k_full[trip % stages], trip // stages & 1)
                        multiply_keys(queries, k_ring, scores, trip % stages)
                        T.wait_wgmma(0)
                        T.warpgroup_fence_operand(scores, num_regs=tile_keys // 2)
                        release_everywhere(k_free, trip % stages, tx, cluster)
                        bend(
                            scores,
                            (high - 1) * tile_keys,
                            begin + offset,
                            True,
                            seqlen_kv,
                            window_left,
                            right,
                            shape,
                            score,
                        )
                        weigh(
                            scores, tops, top, base, before, shrink, sums, tile_keys, score.folded, score.scale, WEIGHTS
                        )
                        T.copy(scores, weights)

                        for masked, first, count in (
                            (True, high - 2, high - 1 - clear_high),
                            (False, clear_high - 1, clear_high - clear_low),
                            (True, clear_low - 1, clear_low - low),
                        )[0 if bounded_right else 1 : 3 if bounded_left else 2]:
                            for step in T.serial(count):
                                trip += 1
                                slot = trip % stages
                                T.mbarrier_wait_parity(k_full[slot], trip // stages & 1)
                                multiply_keys(queries, k_ring, scores, slot)
                                before_slot = (trip - 1) % stages
                                T.mbarrier_wait_parity(v_full[before_slot], (trip - 1) // stages & 1)
                                multiply_values(weights, v_ring, acc, before_slot)
                                T.wait_wgmma(1)
                                T.warpgroup_fence_operand(scores, num_regs=tile_keys // 2)
                                release_everywhere(k_free, slot, tx, cluster)
                                bend(
                                    scores,
                                    (first - step) * tile_keys,
                                    begin + offset,
                                    masked,
                                    seqlen_kv,
                                    window_left,
                                    right,
                                    shape,
                                    score,
                                )
                                weigh(
                                    scores,
                                    tops,
                                    top,
                                    base,
                                    before,
                                    shrink,
                                    sums,
                                    tile_keys,
                                    score.folded,
                                    score.scale,
                                    WEIGHTS,
                                )
                                T.wait_wgmma(0)
                                T.warpgroup_fence_operand(acc, num_regs=dim // 2)
                                T.warpgroup_fence_operand(scores, num_regs=tile_keys // 2)
                                release_everywhere(v_free, before_slot, tx, cluster)
                                T.copy(scores, weights)
                                rescale(acc, shrink, dim)

                        if own_out and not held_queries:
                            release(q_free, 0, tx)
                        T.mbarrier_wait_parity(v_full[trip % stages], trip // stages & 1)
                        multiply_values(weights, v_ring, acc, trip % stages)
                        T.wait_wgmma(0)
                        T.warpgroup_fence_operand(acc, num_regs=dim // 2)
                        release_everywhere(v_free, trip % stages, tx, cluster)
                        trip += 1
                        divide(acc, sums, total, inverse, dim, 1.0)
                        lay_out(acc, out_tile, own_out)
                        T.tma_copy(
                            out_tile,
                            out[sequence, begin : begin + QUERIES, head, :],
                            leader_scope_threads=CONSUMER_THREADS,
                        )
                        if not own_out:
                            T.tma_store_wait(0)
                            release(q_free, 0, tx)

                T.tma_store_wait(0)  # the shared tile outlives its last store

            if cluster > 1:
                T.cluster_sync()  # no block leaves while another may still arrive at its barriers

    return gqa_prefill_attend
