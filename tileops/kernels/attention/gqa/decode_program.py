"""TileLang programs of grouped-query decode. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

Two launches. The first cuts the keys of each sequence into runs of whole tiles; a block attends the query
heads of one key head to one run. The second merges the runs. Numbers of sequences, keys, runs and tiles a run
are free at run time.

Softmax is held in base 2: scores are multiplied by ``log2(e)``, so that ``exp2`` serves throughout.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.score_macros_program import LOG2_E, WEIGHT_BITS

__all__ = ["attend_runs", "merge_runs"]


def attend_runs(
    heads: int,
    heads_kv: int,
    dim: int,
    dtype: str,
    sm_scale: float,
    softcap: float,
    tile_heads: int,
    tile_keys: int,
    stages: int,
    threads: int,
    async_proxy: bool,
) -> Any:
    """One query of each sequence against runs of its keys.

    A run that begins past the last key makes no trip: it gives zeros, and minus infinity for its sum.

    The ring of key and value tiles is driven by hand. ``T.Pipelined`` cannot be: over a run-time extent its
    ``cp.async`` form waits for a number of copies that is no constant, which does not compile, and its
    specialized form never ends when the extent is 1. Here every trip commits one group for keys and one for
    values, empty ones past the end, so that the waits are constants whatever the number of trips.

    Args:
        heads: Query heads.
        heads_kv: Key heads, a divisor of *heads*.
        dim: Elements of a head.
        dtype: Of queries, keys and values.
        sm_scale: Factor of the scores.
        softcap: Bound of the scores, 0 for none.
        tile_heads: Query heads a block; rows beyond those of the key head are computed and dropped.
        tile_keys: Keys a trip.
        stages: Tiles of keys and of values in the ring, at least 2.
        threads: Threads a block.
        async_proxy: Whether matrix products read shared memory through the asynchronous proxy (Hopper).

    Returns:
        A program of ``(q, k, v, sums, parts, run)``, the last being the tiles of a run.
    """
    batch = T.dynamic("batch")
    seqlen_kv = T.dynamic("seqlen_kv")
    runs = T.dynamic("runs")
    group = heads // heads_kv
    head_blocks = -(-group // tile_heads)
    ahead = stages - 1
    capped = softcap > 0.0
    scale_in = sm_scale / softcap if capped else sm_scale * LOG2_E
    scale_out = softcap * LOG2_E

    @T.prim_func
    def gqa_decode_attend(
        q: T.Tensor((batch, heads, dim), dtype),
        k: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        v: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        sums: T.Tensor((batch, heads, runs), "float32"),
        parts: T.Tensor((batch, heads, runs, dim), "float32"),
        run: T.int32,
    ):
        with T.Kernel(batch * (heads_kv * head_blocks), runs, threads=threads) as (place, part):
            q_tile = T.alloc_shared((tile_heads, dim), dtype)
            k_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            v_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            scores = T.alloc_fragment((tile_heads, tile_keys), "float32")
            weights = T.alloc_fragment((tile_heads, tile_keys), dtype)
            out = T.alloc_fragment((tile_heads, dim), "float32")
            top = T.alloc_fragment((tile_heads,), "float32")
            base = T.alloc_fragment((tile_heads,), "float32")
            base_before = T.alloc_fragment((tile_heads,), "float32")
            shrink = T.alloc_fragment((tile_heads,), "float32")
            tile_sum = T.alloc_fragment((tile_heads,), "float32")
            total = T.alloc_fragment((tile_heads,), "float32")

            sequence = place // (heads_kv * head_blocks)
            head_kv = place % (heads_kv * head_blocks) // head_blocks
            in_group = place % head_blocks * tile_heads
            head = head_kv * group + in_group
            begin = part * run
            trips = T.max(T.min(run, T.ceildiv(seqlen_kv, tile_keys) - begin), 0)

            for i, d in T.Parallel(tile_heads, dim):
                q_tile[i, d] = T.if_then_else(in_group + i < group, q[sequence, head + i, d], T.cast(0, dtype))
            T.clear(out)
            T.clear(total)
            T.clear(base)
            T.fill(top, -T.infinity("float32"))

            for trip in T.unroll(ahead):
                if trip < trips:
                    at = (begin + trip) * tile_keys
                    T.async_copy(k[sequence, at : at + tile_keys, head_kv, :], k_ring[trip, :, :])
                    T.async_copy(v[sequence, at : at + tile_keys, head_kv, :], v_ring[trip, :, :])
                else:
                    T.ptx_commit_group()
                    T.ptx_commit_group()

            for trip in T.serial(trips):
                if trip + ahead < trips:
                    later = (begin + trip + ahead) * tile_keys
                    into = (trip + ahead) % stages
                    T.async_copy(k[sequence, later : later + tile_keys, head_kv, :], k_ring[into, :, :])
                    T.async_copy(v[sequence, later : later + tile_keys, head_kv, :], v_ring[into, :, :])
                else:
                    T.ptx_commit_group()
                    T.ptx_commit_group()
                at = (begin + trip) * tile_keys
                slot = trip % stages

                T.ptx_wait_group(2 * ahead + 1)  # all but this trip's values and what runs ahead
                if async_proxy:
                    T.fence_proxy_async()
                T.sync_threads()
                T.clear(scores)
                T.gemm(q_tile, k_ring[slot, :, :], scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(tile_heads, tile_keys):
                    if capped:
                        scores[i, j] = T.tanh(scores[i, j] * scale_in) * scale_out
                    else:
                        scores[i, j] = scores[i, j] * scale_in
                for i, j in T.Parallel(tile_heads, tile_keys):
                    scores[i, j] = T.if_then_else(at + j < seqlen_kv, scores[i, j], -T.infinity("float32"))
                T.reduce_max(scores, top, dim=1, clear=False)
                T.copy(base, base_before)
                for i in T.Parallel(tile_heads):
                    # A row that has seen minus infinity alone keeps its base: weights of 0, not NaN.
                    base[i] = T.if_then_else(top[i] == -T.infinity("float32"), base[i], top[i] - WEIGHT_BITS)
                    # The base only grows, but for the first: that may lie below the 0 it began with.
                    shrink[i] = T.exp2(T.min(base_before[i] - base[i], 0.0))
                for i, j in T.Parallel(tile_heads, tile_keys):
                    scores[i, j] = T.exp2(scores[i, j] - base[i])
                T.reduce_sum(scores, tile_sum, dim=1)
                T.copy(scores, weights)
                for i in T.Parallel(tile_heads):
                    total[i] = total[i] * shrink[i] + tile_sum[i]
                for i, d in T.Parallel(tile_heads, dim):
                    out[i, d] = out[i, d] * shrink[i]
                T.ptx_wait_group(2 * ahead)  # all but what runs ahead
                if async_proxy:
                    T.fence_proxy_async()
                T.sync_threads()
                T.gemm(weights, v_ring[slot, :, :], out, policy=T.GemmWarpPolicy.FullRow)

            for i, d in T.Parallel(tile_heads, dim):
                if in_group + i < group:
                    parts[sequence, head + i, part, d] = T.if_then_else(total[i] == 0.0, 0.0, out[i, d] / total[i])
            for i in T.Parallel(tile_heads):
                if in_group + i < group:
                    sums[sequence, head + i, part] = T.if_then_else(
                        total[i] == 0.0, -T.infinity("float32"), T.log2(total[i]) + base[i]
                    )

    return gqa_decode_attend


def merge_runs(heads: int, dim: int, dtype: str, max_runs: int, ways: int, threads: int) -> Any:
    """Merge the runs of each sequence by their sums; a block merges one query head.

    Args:
        heads: Query heads.
        dim: Elements of a head.
        dtype: Of the output.
        max_runs: The most runs there may be.
        ways: Runs that are added side by side.
        threads: Threads a block.

    Returns:
        A program of ``(sums, parts, out)``.
    """
    batch = T.dynamic("batch")
    runs = T.dynamic("runs")
    width = 1 << (dim - 1).bit_length()  # a reduction across threads has a layout for powers of two alone

    @T.prim_func
    def gqa_decode_merge(
        sums: T.Tensor((batch, heads, runs), "float32"),
        parts: T.Tensor((batch, heads, runs, dim), "float32"),
        out: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(batch * heads, threads=threads) as place:
            shares = T.alloc_shared((max_runs,), "float32")
            weights = T.alloc_fragment((max_runs,), "float32")
            added = T.alloc_fragment((ways, width), "float32")
            merged = T.alloc_fragment((width,), "float32")
            top = T.alloc_fragment((1,), "float32")
            base = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            sequence = place // heads
            head = place % heads

            for r in T.Parallel(max_runs):
                weights[r] = T.if_then_else(r < runs, sums[sequence, head, r], -T.infinity("float32"))
            T.reduce_max(weights, top, dim=0)
            base[0] = T.if_then_else(top[0] == -T.infinity("float32"), 0.0, top[0])
            for r in T.Parallel(max_runs):
                weights[r] = T.exp2(weights[r] - base[0])
            T.reduce_sum(weights, total, dim=0)
            T.copy(weights, shares)
            T.clear(added)
            for step in T.serial(T.ceildiv(runs, ways)):
                for w, d in T.Parallel(ways, width):
                    if step * ways + w < runs and d < dim:
                        added[w, d] = added[w, d] + shares[step * ways + w] * parts[sequence, head, step * ways + w, d]
            T.reduce_sum(added, merged, dim=0)
            for d in T.Parallel(width):
                if d < dim:
                    out[sequence, head, d] = merged[d] / total[0]

    return gqa_decode_merge
