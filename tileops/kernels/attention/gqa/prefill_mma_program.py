"""TileLang program of grouped-query prefill by ``mma.sync``. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

One block attends one tile of queries of one head. Tiles of keys and values come by ``cp.async`` through a ring
that is driven by hand: every trip commits one group for keys and one for values, empty ones past the end, so that
the waits are constants whatever the number of trips.

What is done to scores: see ``score_macros_program.py``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.score_macros_program import WEIGHT_BITS, ScoreScale, hide, scale_scores

__all__ = ["PASSES", "attend_tiles"]

PASSES = ("TL_DISABLE_WGMMA", "TL_ENABLE_FAST_MATH")


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
    tile_queries: int,
    tile_keys: int,
    stages: int,
    threads: int,
) -> Any:
    """Attend tiles of queries of one head to the keys that any of them sees.

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
        tile_queries: Queries of a block; a warp has 16 of them.
        tile_keys: Keys a trip.
        stages: Tiles of keys and of values in the ring, at least 2.
        threads: Threads a block, two for each query.

    Returns:
        A program of ``(q, k, v, out, window_left, window_right)``, the windows being at most the sequences' lengths.
    """
    batch = T.dynamic("batch")
    seqlen_q = T.dynamic("seqlen_q")
    seqlen_kv = T.dynamic("seqlen_kv")
    group = heads // heads_kv
    ahead = stages - 1
    bounded_right = bounded_right or is_causal
    score = ScoreScale(sm_scale, softcap)
    folded, scale = score.folded, score.scale

    @T.macro
    def bring(k, v, k_ring, v_ring, sequence, head_kv, at, slot):
        T.async_copy(k[sequence, at : at + tile_keys, head_kv, :], k_ring[slot, :, :])
        T.async_copy(v[sequence, at : at + tile_keys, head_kv, :], v_ring[slot, :, :])

    @T.macro
    def bring_nothing():
        T.ptx_commit_group()
        T.ptx_commit_group()

    @T.prim_func
    def gqa_prefill_mma_attend(
        q: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        k: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        v: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        out: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        window_left: T.int32,
        window_right: T.int32,
    ):
        with T.Kernel(T.ceildiv(seqlen_q, tile_queries) * batch * heads, threads=threads) as block:
            q_tile = T.alloc_shared((tile_queries, dim), dtype)
            k_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            v_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            scores = T.alloc_fragment((tile_queries, tile_keys), "float32")
            weights = T.alloc_fragment((tile_queries, tile_keys), dtype)
            acc = T.alloc_fragment((tile_queries, dim), "float32")
            top = T.alloc_fragment((tile_queries,), "float32")
            base = T.alloc_fragment((tile_queries,), "float32")
            before = T.alloc_fragment((tile_queries,), "float32")
            shrink = T.alloc_fragment((tile_queries,), "float32")
            tile_sum = T.alloc_fragment((tile_queries,), "float32")
            total = T.alloc_fragment((tile_queries,), "float32")
            sequence = T.alloc_var("int32")
            begin = T.alloc_var("int32")
            row = T.alloc_var("int32")
            low = T.alloc_var("int32")
            high = T.alloc_var("int32")
            clear_low = T.alloc_var("int32")
            clear_high = T.alloc_var("int32")

            right = 0 if is_causal else window_right
            sequence = block // heads % batch
            head = block % heads
            # The last queries see most keys: they begin first.
            begin = (T.ceildiv(seqlen_q, tile_queries) - 1 - block // (heads * batch)) * tile_queries
            row = begin + seqlen_kv - seqlen_q
            high = T.ceildiv(seqlen_kv, tile_keys)
            clear_high = seqlen_kv // tile_keys
            low = 0
            clear_low = 0
            if bounded_right:
                high = T.min(high, (T.max(row + tile_queries + right, 0) + tile_keys - 1) // tile_keys)
                clear_high = T.min(clear_high, T.max(row + right + 1, 0) // tile_keys)
            if bounded_left:
                low = T.max(row - window_left, 0) // tile_keys
                clear_low = T.max(row + tile_queries - 1 - window_left + tile_keys - 1, 0) // tile_keys

            for i, d in T.Parallel(tile_queries, dim):
                q_tile[i, d] = T.if_then_else(begin + i < seqlen_q, q[sequence, begin + i, head, d], T.cast(0, dtype))
            T.clear(acc)
            T.clear(total)
            T.clear(base)
            T.fill(top, -T.infinity("float32"))

            for step in T.unroll(ahead):
                if low + step < high:
                    bring(k, v, k_ring, v_ring, sequence, head // group, (low + step) * tile_keys, step)
                else:
                    bring_nothing()

            for step in T.serial(T.max(high - low, 0)):
                if low + step + ahead < high:
                    bring(
                        k,
                        v,
                        k_ring,
                        v_ring,
                        sequence,
                        head // group,
                        (low + step + ahead) * tile_keys,
                        (step + ahead) % stages,
                    )
                else:
                    bring_nothing()
                at = (low + step) * tile_keys
                slot = step % stages

                T.ptx_wait_group(2 * ahead + 1)  # all but this trip's values and what runs ahead
                T.sync_threads()
                T.clear(scores)
                T.gemm(q_tile, k_ring[slot, :, :], scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                scale_scores(scores, tile_queries, tile_keys, score)
                if low + step < clear_low or low + step >= clear_high:
                    hide(
                        scores, tile_queries, tile_keys, at, row, seqlen_kv, window_left, right, bounded_left,
                        bounded_right,
                    )  # fmt: skip
                T.reduce_max(scores, top, dim=1, clear=False)
                T.copy(base, before)
                for i in T.Parallel(tile_queries):
                    # A row that has seen minus infinity alone keeps its base: weights of 0, not NaN.
                    if folded:
                        base[i] = T.if_then_else(
                            top[i] == -T.infinity("float32"), base[i], top[i] * scale - WEIGHT_BITS
                        )
                    else:
                        base[i] = T.if_then_else(top[i] == -T.infinity("float32"), base[i], top[i] - WEIGHT_BITS)
                    # The base only grows, but for the first: that may lie below the 0 it began with.
                    shrink[i] = T.exp2(T.min(before[i] - base[i], 0.0))
                for i, j in T.Parallel(tile_queries, tile_keys):
                    if folded:
                        scores[i, j] = T.exp2(scores[i, j] * scale - base[i])
                    else:
                        scores[i, j] = T.exp2(scores[i, j] - base[i])
                T.reduce_sum(scores, tile_sum, dim=1)
                T.copy(scores, weights)
                for i in T.Parallel(tile_queries):
                    total[i] = total[i] * shrink[i] + tile_sum[i]
                for i, d in T.Parallel(tile_queries, dim):
                    acc[i, d] = acc[i, d] * shrink[i]
                T.ptx_wait_group(2 * ahead)  # all but what runs ahead
                T.sync_threads()
                T.gemm(weights, v_ring[slot, :, :], acc, policy=T.GemmWarpPolicy.FullRow)
                T.sync_threads()

            for i in T.Parallel(tile_queries):
                shrink[i] = T.if_then_else(total[i] == 0.0, 0.0, 1.0 / total[i])
            for i, d in T.Parallel(tile_queries, dim):
                if begin + i < seqlen_q:
                    out[sequence, begin + i, head, d] = acc[i, d] * shrink[i]

    return gqa_prefill_mma_attend
