"""TileLang program of grouped-query prefill on Hopper. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

A block has three warpgroups with roles of their own. The last one brings queries, keys and values by TMA; the
first two multiply, 64 queries each, and meet the copies at barriers only. Blocks stay: each takes one tile of
queries after another, longest first.

What is done to scores: see ``score_macros_program.py``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.score_macros_program import WEIGHT_BITS, ScoreScale, hide, scale_scores

__all__ = ["PASSES", "attend_tiles"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_ENABLE_FAST_MATH")


GROWTH_BITS = 8
"""A row is brought to a new base when its largest score exceeds the old one by this, not whenever it grows: its
weights begin ``2**8`` below the largest that may be, and results are seldom scaled."""

WARP = 32
WARPGROUP = 128
CONSUMERS = 2
CONSUMER_THREADS = CONSUMERS * WARPGROUP
CONSUMER_WARPS = CONSUMER_THREADS // WARP
PRODUCER_REGISTERS = 24
CONSUMER_REGISTERS = 240
LOWEST = -3.0e38
"""What the maximum of no score stands for: finite, so that differences to minus infinity are no NaN."""
CHAINS = 8
"""Keys after which a row of scores comes back to the same thread."""
L2_BYTES = 32 << 20
"""Keys and values that may be in use at a time, so that they stay in the L2 cache."""
STORE_TURN = 8
"""Named barrier of both multiplying warpgroups, around the store of their results."""


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
    group = heads // heads_kv
    tile_queries = 64 * CONSUMERS
    bounded_right = bounded_right or is_causal
    score = ScoreScale(sm_scale, softcap)
    folded, scale = score.folded, score.scale
    threads = CONSUMER_THREADS + WARPGROUP
    placement = {"cluster_dims": (cluster, 1, 1)} if cluster > 1 else {}
    sharing = {"cluster_mask": (1 << cluster) - 1} if cluster > 1 else {}

    def shared_barrier(counts):
        """Barriers that every block of a cluster may arrive at."""
        return T.alloc_barrier(counts) if cluster == 1 else T.alloc_cluster_barrier(counts)

    @T.macro
    def release(barriers, slot, tx):
        """One thread of each warp says that its warp has read what it was waiting for."""
        if tx % WARP == 0:
            T.mbarrier_arrive(barriers[slot])

    @T.macro
    def release_everywhere(barriers, slot, tx):
        """The same, to each block of the cluster."""
        if tx % WARP == 0:
            if cluster == 1:
                T.mbarrier_arrive(barriers[slot])
            else:
                for rank in T.unroll(cluster):
                    T.mbarrier_arrive(barriers[slot], rank)

    @T.macro
    def bend(scores, at, row, masked, seqlen_kv, window_left, window_right):
        """Scale where the scale is not folded into the exponent, and hide keys that a query does not see."""
        scale_scores(scores, tile_queries, tile_keys, score)
        if masked:
            hide(
                scores, tile_queries, tile_keys, at, row, seqlen_kv, window_left, window_right, bounded_left,
                bounded_right,
            )  # fmt: skip

    @T.macro
    def weigh(scores, tops, top, base, before, shrink, sums):
        """Scores become weights, still in float32.

        Largest scores and sums are taken over every eighth key first: these lie in one thread, in chains that
        do not wait for each other. Sums stay so until the last trip.
        """
        for i, j in T.Parallel(tile_queries, CHAINS):
            tops[i, j] = LOWEST
        for n in T.unroll(tile_keys // CHAINS):
            for i, j in T.Parallel(tile_queries, CHAINS):
                tops[i, j] = T.max(tops[i, j], scores[i, n * CHAINS + j])
        T.reduce_max(tops, top, dim=1)
        for i in T.Parallel(tile_queries):
            before[i] = base[i]
            top[i] = top[i] * scale - (WEIGHT_BITS - GROWTH_BITS) if folded else top[i] - (WEIGHT_BITS - GROWTH_BITS)
            base[i] = T.if_then_else(top[i] > before[i] + GROWTH_BITS, top[i], before[i])
            shrink[i] = T.exp2(before[i] - base[i])
        for i, j in T.Parallel(tile_queries, CHAINS):
            sums[i, j] = sums[i, j] * shrink[i]
        for n in T.unroll(tile_keys // CHAINS):
            for i, j in T.Parallel(tile_queries, CHAINS):
                if folded:
                    scores[i, n * CHAINS + j] = T.exp2(scores[i, n * CHAINS + j] * scale - base[i])
                else:
                    scores[i, n * CHAINS + j] = T.exp2(scores[i, n * CHAINS + j] - base[i])
        for n in T.unroll(tile_keys // CHAINS):
            for i, j in T.Parallel(tile_queries, CHAINS):
                sums[i, j] = sums[i, j] + scores[i, n * CHAINS + j]

    @T.macro
    def rescale(acc, shrink):
        """Bring results to the base of their row, where any base of a warp has grown."""
        grown = T.alloc_var("int32")
        grown = 0
        for i in T.Parallel(tile_queries):
            grown = grown | T.if_then_else(shrink[i] < 1.0, 1, 0)
        if T.any_sync(grown != 0):
            for i, d in T.Parallel(tile_queries, dim):
                acc[i, d] = acc[i, d] * shrink[i]

    @T.macro
    def multiply_keys(queries, k_ring, scores, slot):
        T.wgmma_gemm(
            queries, k_ring[slot, :, :], scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow
        )

    @T.macro
    def multiply_values(weights, v_ring, acc, slot):
        T.wgmma_gemm(weights, v_ring[slot, :, :], acc, policy=T.GemmWarpPolicy.FullRow)

    def section_of(seqlen_kv, batch):
        """Key heads whose keys and values stay in the L2 cache together; tiles of these come side by side."""
        return T.max(T.min(L2_BYTES // (2 * dim * 2) // seqlen_kv, heads_kv * batch), 1)

    def low_of(row, high, window_left):
        """First tile of keys that a tile of queries multiplies, the first of which stands at *row*."""
        return T.min(T.max(row - window_left, 0) // tile_keys, high - 1) if bounded_left else 0

    def high_of(row, seqlen_kv, window_right):
        """One past the last tile of keys that it multiplies: one tile at least."""
        high = T.ceildiv(seqlen_kv, tile_keys)
        if bounded_right:
            high = T.min(high, (T.max(row + tile_queries + window_right, 1) + tile_keys - 1) // tile_keys)
        return high

    def clear_high_of(row, low, high, seqlen_kv, window_right):
        """One past the last tile of keys that no query of the tile fails to see, the last multiplied one apart."""
        clear = seqlen_kv // tile_keys
        if bounded_right:
            clear = T.min(clear, T.max(row + window_right + 1, 0) // tile_keys)
        return T.max(T.min(clear, high - 1), low)

    def clear_low_of(row, low, clear_high, window_left):
        """First of those tiles."""
        if not bounded_left:
            return low
        clear = T.max(row + tile_queries - 1 - window_left + tile_keys - 1, 0) // tile_keys
        return T.min(T.max(clear, low), clear_high)

    @T.macro
    def placed(tile, rows, section, batch, block):
        """First query, head and sequence of a tile: sections one after the other, in each the longest tiles first.

        Every other section begins with its shortest tiles instead, so that where two meet tiles are of one length,
        and the last one ends with its shortest.
        """
        part = T.alloc_var("int32")
        inside = T.alloc_var("int32")
        width = T.alloc_var("int32")
        begin = T.alloc_var("int32")
        head = T.alloc_var("int32")
        part = tile // (section * (group // cluster) * rows)
        inside = tile % (section * (group // cluster) * rows)
        width = T.min(section, heads_kv * batch - part * section) * (group // cluster)
        begin = inside // width
        if ((heads_kv * batch - 1) // section - part) % 2 == 0:
            begin = rows - 1 - begin
        head = part * section * group + inside % width * cluster + block % cluster
        return begin * tile_queries, head % heads, head // heads

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
            T.min(T.ceildiv(seqlen_q, tile_queries) * (heads // cluster) * batch, sm_count // cluster) * cluster,
            threads=threads,
            **placement,
        ) as block:
            q_tile = T.alloc_shared((tile_queries, dim), dtype)
            k_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            v_ring = T.alloc_shared((stages, tile_keys, dim), dtype)
            out_tile = T.alloc_shared((tile_queries, dim), dtype) if own_out else q_tile
            q_full = T.alloc_barrier(1)
            q_free = T.alloc_barrier(CONSUMER_WARPS)
            k_full = T.alloc_barrier([1] * stages)
            k_free = shared_barrier([CONSUMER_WARPS * cluster] * stages)
            v_full = T.alloc_barrier([1] * stages)
            v_free = shared_barrier([CONSUMER_WARPS * cluster] * stages)

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
            rows = T.ceildiv(seqlen_q, tile_queries)
            section = section_of(seqlen_kv, batch)
            tiles = rows * (heads // cluster) * batch
            blocks = T.min(tiles, sm_count // cluster)
            rounds = (tiles + blocks - 1) // blocks
            trip = 0

            with T.ws(2):
                T.dec_max_nreg(PRODUCER_REGISTERS)
                if tx < CONSUMER_THREADS + WARP:
                    for r in T.serial(rounds):
                        # Rounds run over the blocks to and fro, so that each gets as much work as any other.
                        tile = r * blocks + T.if_then_else(r % 2 == 0, block // cluster, blocks - 1 - block // cluster)
                        if tile < tiles:
                            begin, head, sequence = placed(tile, rows, section, batch, block)
                            high = high_of(begin + offset, seqlen_kv, right)
                            low = low_of(begin + offset, high, window_left)
                            T.mbarrier_wait_parity(q_free, (r & 1) ^ 1)
                            T.tma_copy(
                                q[sequence, begin : begin + tile_queries, head, :],
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
                                    **sharing,
                                )
                                release(k_full, slot, tx)
                                T.mbarrier_wait_parity(v_free[slot], phase ^ 1)
                                T.tma_copy(
                                    v[sequence, at : at + tile_keys, head // group, :],
                                    v_ring[slot, :, :],
                                    barrier=v_full[slot],
                                    leader_scope_threads=WARP,
                                    **sharing,
                                )
                                release(v_full, slot, tx)
                                trip += 1

            with T.ws(0, 1):
                T.inc_max_nreg(CONSUMER_REGISTERS)
                scores = T.alloc_fragment((tile_queries, tile_keys), "float32")
                weights = T.alloc_fragment((tile_queries, tile_keys), dtype)
                acc = T.alloc_fragment((tile_queries, dim), "float32")
                tops = T.alloc_fragment((tile_queries, CHAINS), "float32")
                sums = T.alloc_fragment((tile_queries, CHAINS), "float32")
                top = T.alloc_fragment((tile_queries,), "float32")
                base = T.alloc_fragment((tile_queries,), "float32")
                before = T.alloc_fragment((tile_queries,), "float32")
                shrink = T.alloc_fragment((tile_queries,), "float32")
                total = T.alloc_fragment((tile_queries,), "float32")
                inverse = T.alloc_fragment((tile_queries,), "float32")
                clear_low = T.alloc_var("int32")
                clear_high = T.alloc_var("int32")
                queries = T.alloc_fragment((tile_queries, dim), dtype) if held_queries else q_tile

                for r in T.serial(rounds):
                    tile = r * blocks + T.if_then_else(r % 2 == 0, block // cluster, blocks - 1 - block // cluster)
                    if tile < tiles:
                        begin, head, sequence = placed(tile, rows, section, batch, block)
                        high = high_of(begin + offset, seqlen_kv, right)
                        low = low_of(begin + offset, high, window_left)
                        clear_high = clear_high_of(begin + offset, low, high, seqlen_kv, right)
                        clear_low = clear_low_of(begin + offset, low, clear_high, window_left)
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
                        release_everywhere(k_free, trip % stages, tx)
                        bend(scores, (high - 1) * tile_keys, begin + offset, True, seqlen_kv, window_left, right)
                        weigh(scores, tops, top, base, before, shrink, sums)
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
                                release_everywhere(k_free, slot, tx)
                                bend(
                                    scores,
                                    (first - step) * tile_keys,
                                    begin + offset,
                                    masked,
                                    seqlen_kv,
                                    window_left,
                                    right,
                                )
                                weigh(scores, tops, top, base, before, shrink, sums)
                                T.wait_wgmma(0)
                                T.warpgroup_fence_operand(acc, num_regs=dim // 2)
                                T.warpgroup_fence_operand(scores, num_regs=tile_keys // 2)
                                release_everywhere(v_free, before_slot, tx)
                                T.copy(scores, weights)
                                rescale(acc, shrink)

                        if own_out and not held_queries:
                            release(q_free, 0, tx)
                        T.mbarrier_wait_parity(v_full[trip % stages], trip // stages & 1)
                        multiply_values(weights, v_ring, acc, trip % stages)
                        T.wait_wgmma(0)
                        T.warpgroup_fence_operand(acc, num_regs=dim // 2)
                        release_everywhere(v_free, trip % stages, tx)
                        trip += 1
                        T.reduce_sum(sums, total, dim=1)
                        for i in T.Parallel(tile_queries):
                            inverse[i] = T.if_then_else(total[i] == 0.0, 0.0, 1.0 / total[i])
                        for i, d in T.Parallel(tile_queries, dim):
                            acc[i, d] = acc[i, d] * inverse[i]
                        if own_out:
                            T.tma_store_wait(0)  # the results before these have left the tile
                            T.sync_threads(STORE_TURN, CONSUMER_THREADS)
                        T.copy(acc, out_tile)
                        T.fence_proxy_async()
                        T.sync_threads(STORE_TURN, CONSUMER_THREADS)
                        T.tma_copy(
                            out_tile,
                            out[sequence, begin : begin + tile_queries, head, :],
                            leader_scope_threads=CONSUMER_THREADS,
                        )
                        if not own_out:
                            T.tma_store_wait(0)
                            release(q_free, 0, tx)

                T.tma_store_wait(0)  # the shared tile outlives its last store

            if cluster > 1:
                T.cluster_sync()  # no block leaves while another may still arrive at its barriers

    return gqa_prefill_attend
