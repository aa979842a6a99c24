"""TileLang program of grouped-query prefill of float8 on Hopper. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

Blocks, barriers and trips are those of ``prefill_program.py``; what differs:

- Products of float8 go over dim in steps of 32: heads are filled up with zeros, which is what a copy gives for what
  lies past the end of a tensor.
- The matrix unit reads float8 along the sum: values come as ``turn_values`` lays them out, and weights go from the
  registers that hold scores to those of the next product without leaving their thread.
- A tensor core holds some 13 bits of a sum. Results are gathered in float32 every few trips, in shared memory, each
  thread its own; without that, averages of many keys come out too small.
- Each thread stores the results it holds.
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
    has_grown,
    multiply_keys,
    placed,
    release,
    release_everywhere,
    shared_barrier,
    weigh,
)
from tileops.kernels.attention.gqa.score_macros_program import ScoreScale

__all__ = ["PASSES", "attend_tiles"]

FLOAT8 = "float8_e4m3fn"
WEIGHTS = WeightRange(8, growth=2)
"""Float8 (e4m3) ends at 448 and is fully precise down to ``2**-6``, so that weights down to ``2**-12`` of the largest
are rounded by half a unit in the last place."""
SMALLEST_SCALE = 2.0**-126
"""What the scale of scores is at least: minus infinity, which is a score that is hidden, times zero would be NaN."""
MULTIPLY_TURNS = 8
"""First of the two named barriers at which the multiplying warpgroups pass the tensor cores to each other."""


def attend_tiles(
    heads: int,
    heads_kv: int,
    dim: int,
    depth: int,
    dtype: str,
    sm_scale: float,
    softcap: float,
    is_causal: bool,
    bounded_left: bool,
    bounded_right: bool,
    tile_keys: int,
    stages: int,
    gather: int,
    ping_pong: bool,
    held_queries: bool,
    cluster: int,
    run_keys: int,
    sm_count: int,
) -> Any:
    """Attend tiles of 128 queries of one head to the keys that any of them sees.

    Args:
        heads: Query heads.
        heads_kv: Key heads, a divisor of *heads*.
        dim: Elements of a head.
        depth: Elements of a query or key in shared memory: *dim* and zeros, up to a multiple of 32.
        dtype: Of the results.
        sm_scale: Factor of the scores.
        softcap: Bound of the scores, 0 for none.
        is_causal: Whether a query sees no key after its own position.
        bounded_left: Whether ``window_left`` says how many keys before its position a query sees, not all.
        bounded_right: Whether ``window_right`` says how many keys after its position it sees, not all. Where
            *is_causal* none is seen, whatever it says.
        tile_keys: Keys a trip, a multiple of 32.
        stages: Tiles of keys, and of values, in the ring.
        gather: Trips, a power of 2, after which results are gathered in float32; 0 for never.
        ping_pong: Whether the two warpgroups take turns at the tensor cores.
        held_queries: Whether queries are multiplied from registers, not from shared memory.
        cluster: Blocks that share keys and values: 1, or 2 where a key head has an even number of query heads.
        run_keys: Keys by whose multiple the keys of turned values are filled up.
        sm_count: Multiprocessors; the most blocks of a launch.

    Returns:
        A program of ``(q, k, turned, q_scale, k_scale, v_scale, out, window_left, window_right)``: values as
        ``turn_values`` lays them out, scales of any strides, windows at most the sequences' lengths.
    """
    batch = T.dynamic("batch")
    seqlen_q = T.dynamic("seqlen_q")
    seqlen_kv = T.dynamic("seqlen_kv")
    padded_kv = T.dynamic("runs_kv") * run_keys
    q_strides = (T.dynamic("q_batch_stride"), T.dynamic("q_head_stride"))
    k_strides = (T.dynamic("k_batch_stride"), T.dynamic("k_head_stride"))
    v_strides = (T.dynamic("v_batch_stride"), T.dynamic("v_head_stride"))
    bounded_right = bounded_right or is_causal
    shape = PrefillShape(heads, heads_kv, dim, tile_keys, bounded_left, bounded_right, cluster)
    score = ScoreScale(sm_scale, softcap)
    group = shape.group

    @T.macro
    def turn_wait(warpgroup):
        """Wait until the other warpgroup has issued its products."""
        if ping_pong:
            if warpgroup == 0:
                T.sync_threads(MULTIPLY_TURNS, CONSUMER_THREADS)
            else:
                T.sync_threads(MULTIPLY_TURNS + 1, CONSUMER_THREADS)

    @T.macro
    def turn_pass(warpgroup):
        """Let the other warpgroup issue its products."""
        if ping_pong:
            T.named_barrier_arrive(MULTIPLY_TURNS + 1 - warpgroup, CONSUMER_THREADS)

    @T.macro
    def pack(scores, weights):
        """Each thread keeps its weights: keys trade places within every 16, as they do in turned values."""
        for i, j in T.Parallel(QUERIES, tile_keys):
            weights[i, j // 16 * 16 + j % 8 // 2 * 4 + j % 16 // 8 * 2 + j % 2] = T.cast(scores[i, j], FLOAT8)

    @T.macro
    def multiply_values(weights, v_ring, acc, slot):
        T.wgmma_gemm(weights, v_ring[slot, :, :], acc, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    def place(i, d):
        """Where the thread that holds element *d* of the result of query *i* keeps what it has gathered of it."""
        return d // 8 * 2 + i % 16 // 8, i // 16 * WARP + i % 8 * 4 + d % 8 // 2, d % 2

    # Loops over gathered results name the results too: so each thread keeps to the places of those it holds.
    @T.macro
    def clear_results(acc, gathered):
        for i, d in T.Parallel(QUERIES, dim):
            acc[i, d] = 0.0
            if gather:
                gathered[place(i, d)] = 0.0

    @T.macro
    def rescale_results(acc, gathered, shrink):
        if has_grown(shrink):
            for i, d in T.Parallel(QUERIES, dim):
                acc[i, d] = acc[i, d] * shrink[i]
                if gather:
                    gathered[place(i, d)] = gathered[place(i, d)] * shrink[i]

    @T.macro
    def gather_results(acc, gathered, trip):
        """Move results to the sums, every few trips."""
        if trip % gather == 0:
            for i, d in T.Parallel(QUERIES, dim):
                gathered[place(i, d)] = gathered[place(i, d)] + acc[i, d]
                acc[i, d] = 0.0

    @T.macro
    def fetch_results(acc, gathered):
        if gather:
            for i, d in T.Parallel(QUERIES, dim):
                acc[i, d] = acc[i, d] + gathered[place(i, d)]

    @T.prim_func
    def gqa_fp8_prefill_attend(
        q: T.Tensor((batch, seqlen_q, heads, dim), FLOAT8),
        k: T.Tensor((batch, seqlen_kv, heads_kv, dim), FLOAT8),
        turned: T.Tensor((batch, heads_kv, dim, padded_kv), FLOAT8),
        q_scale: T.StridedTensor((batch, heads), q_strides, "float32"),
        k_scale: T.StridedTensor((batch, heads_kv), k_strides, "float32"),
        v_scale: T.StridedTensor((batch, heads_kv), v_strides, "float32"),
        out: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        window_left: T.int32,
        window_right: T.int32,
    ):
        with T.Kernel(
            shape.grid(seqlen_q, batch, sm_count), threads=CONSUMER_THREADS + WARPGROUP, **shape.placement
        ) as block:
            q_tile = T.alloc_shared((QUERIES, depth), FLOAT8)
            k_ring = T.alloc_shared((stages, tile_keys, depth), FLOAT8)
            v_ring = T.alloc_shared((stages, dim, tile_keys), FLOAT8)
            gathered = T.alloc_shared((dim // 4, CONSUMER_THREADS, 2), "float32") if gather else None
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
                                q[sequence, begin : begin + QUERIES, head, 0:depth],
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
                                    k[sequence, at : at + tile_keys, head // group, 0:depth],
                                    k_ring[slot, :, :],
                                    barrier=k_full[slot],
                                    leader_scope_threads=WARP,
                                    **shape.sharing,
                                )
                                release(k_full, slot, tx)
                                T.mbarrier_wait_parity(v_free[slot], phase ^ 1)
                                T.tma_copy(
                                    turned[sequence, head // group, :, at : at + tile_keys],
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
                weights = T.alloc_fragment((QUERIES, tile_keys), FLOAT8)
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
                queries = T.alloc_fragment((QUERIES, depth), FLOAT8) if held_queries else q_tile
                warpgroup = tx // WARPGROUP
                if warpgroup == 1:
                    turn_pass(warpgroup)

                for r in T.serial(rounds):
                    tile = shape.tile_of(r, blocks, block)
                    if tile < tiles:
                        begin, head, sequence = placed(tile, rows, section, batch, block, shape)
                        high = shape.high_of(begin + offset, seqlen_kv, right)
                        low = shape.low_of(begin + offset, high, window_left)
                        clear_high = shape.clear_high_of(begin + offset, low, high, seqlen_kv, right)
                        clear_low = shape.clear_low_of(begin + offset, low, clear_high, window_left)
                        factor = q_scale[sequence, head] * k_scale[sequence, head // group]
                        scale = T.max(factor * score.scale, SMALLEST_SCALE)
                        clear_results(acc, gathered)
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
                            scores, (high - 1) * tile_keys, begin + offset, True, seqlen_kv, window_left, right, shape,
                            score, factor,
                        )  # fmt: skip
                        weigh(scores, tops, top, base, before, shrink, sums, tile_keys, score.folded, scale, WEIGHTS)
                        pack(scores, weights)

                        for masked, first, count in (
                            (True, high - 2, high - 1 - clear_high),
                            (False, clear_high - 1, clear_high - clear_low),
                            (True, clear_low - 1, clear_low - low),
                        )[0 if bounded_right else 1 : 3 if bounded_left else 2]:
                            for step in T.serial(count):
                                trip += 1
                                slot = trip % stages
                                T.mbarrier_wait_parity(k_full[slot], trip // stages & 1)
                                turn_wait(warpgroup)
                                multiply_keys(queries, k_ring, scores, slot)
                                before_slot = (trip - 1) % stages
                                T.mbarrier_wait_parity(v_full[before_slot], (trip - 1) // stages & 1)
                                multiply_values(weights, v_ring, acc, before_slot)
                                turn_pass(warpgroup)
                                T.wait_wgmma(1)
                                T.warpgroup_fence_operand(scores, num_regs=tile_keys // 2)
                                release_everywhere(k_free, slot, tx, cluster)
                                bend(
                                    scores, (first - step) * tile_keys, begin + offset, masked, seqlen_kv, window_left,
                                    right, shape, score, factor,
                                )  # fmt: skip
                                weigh(
                                    scores, tops, top, base, before, shrink, sums, tile_keys, score.folded, scale,
                                    WEIGHTS,
                                )  # fmt: skip
                                T.wait_wgmma(0)
                                T.warpgroup_fence_operand(acc, num_regs=dim // 2)
                                T.warpgroup_fence_operand(scores, num_regs=tile_keys // 2)
                                release_everywhere(v_free, before_slot, tx, cluster)
                                pack(scores, weights)
                                rescale_results(acc, gathered, shrink)
                                if gather:
                                    gather_results(acc, gathered, trip)

                        if not held_queries:
                            release(q_free, 0, tx)
                        T.mbarrier_wait_parity(v_full[trip % stages], trip // stages & 1)
                        multiply_values(weights, v_ring, acc, trip % stages)
                        T.wait_wgmma(0)
                        T.warpgroup_fence_operand(acc, num_regs=dim // 2)
                        release_everywhere(v_free, trip % stages, tx, cluster)
                        trip += 1
                        fetch_results(acc, gathered)
                        divide(acc, sums, total, inverse, dim, v_scale[sequence, head // group])
                        T.copy(acc, out[sequence, begin : begin + QUERIES, head, :])

            if cluster > 1:
                T.cluster_sync()  # no block leaves while another may still arrive at its barriers

    return gqa_fp8_prefill_attend
