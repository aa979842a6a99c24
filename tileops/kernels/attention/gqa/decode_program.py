"""Decode of one query of each sequence over its keys, in one launch. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

A *unit* is the query heads that a block holds, of one sequence: at most ``16 * row_warps`` of one key head, or those of
two. The tiles of keys of all sequences make one line, which is cut into *runs* that differ by one tile at most; a block
takes one run for the heads of its unit. Blocks that follow each other take the same run for the heads that follow: what
they read lies side by side in memory. Where a sequence lies in one run, its block writes the result. Otherwise every
block writes its part, and the block that is the last to do so adds the parts, always in the order of the keys.

Every *key warp* reads keys of its own into a ring of its own and holds its own softmax: warps meet when the block
leaves a sequence. Where a key head has more than 16 query heads, several warps share the keys of one ring; so they do
where a ring has two key heads, which are read together, and then each warp takes the keys of one. The blocks
of a cluster, where there is one, take one run together: each adds up a slice of what all of them hold.

Splitting the keys of a sequence over blocks is FlashDecoding (Dao et al., 2023); the softmax that is held while keys
come is that of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), in base 2.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.decode_chunk_program import (
    THROUGH_L2,
    fetch,
    meet,
    rotate_keys,
    score,
    take_queries,
    take_scales,
    weigh,
)
from tileops.kernels.attention.gqa.decode_layout import WARP, DecodeLayout
from tileops.kernels.attention.gqa.decode_merge_program import (
    AT_ONCE,
    NOTHING,
    add_runs,
    meet_blocks,
    meet_warps,
    part_of,
    rows_of_block,
    write_rows,
)
from tileops.kernels.attention.gqa.decode_shape import STEP
from tileops.kernels.attention.gqa.score_macros_program import LOG2_E, WEIGHT_BITS

__all__ = ["PASSES", "decode"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_DISABLE_SAFE_MEMORY_ACCESS")
"""Barriers are where they are written; accesses are guarded by hand: keys past the end are read as the last one."""


@T.macro
def weights_of(scores, weights, held, top, low, total, shrink, scale, key, lane, seqlen_kv, softcap, lay: DecodeLayout):
    """Scores of 16 keys from *key* on become weights; what a row holds is brought to its new base."""
    for half in T.unroll(lay.halves):
        for i in T.unroll(4):
            at = i // 2 * 4 + half * 2 + i % 2
            if softcap > 0.0:
                scores[at] = T.tanh(scores[at] * scale[half]) * (softcap * LOG2_E)
            else:
                scores[at] = scores[at] * scale[half]
            scores[at] = T.if_then_else(
                key + i // 2 * 8 + lane % 4 * 2 + i % 2 < seqlen_kv, scores[at], -T.infinity("float32")
            )
        top[half] = T.max(
            T.max(scores[half * 2], scores[half * 2 + 1]),
            T.max(scores[4 + half * 2], scores[5 + half * 2]),
        )
        top[half] = T.max(top[half], T.shfl_xor(top[half], 1))
        top[half] = T.max(top[half], T.shfl_xor(top[half], 2))
        top[half] = T.max(top[half] - WEIGHT_BITS, low[half])
        shrink[half] = T.exp2(low[half] - top[half])
        low[half] = top[half]
        total[half] = total[half] * shrink[half]
        for i in T.unroll(4):
            at = i // 2 * 4 + half * 2 + i % 2
            scores[at] = T.exp2(scores[at] - low[half])
            total[half] += scores[at]
        for i in T.unroll(2):
            for j in T.vectorized(2):
                weights[i * 4 + half * 2 + j] = T.cast(scores[i * 4 + half * 2 + j], lay.held_dtype)
        for i in T.unroll(lay.depth * 4):
            held[i // 2 * 4 + half * 2 + i % 2] = held[i // 2 * 4 + half * 2 + i % 2] * shrink[half]


def decode(lay: DecodeLayout, sm_scale: float, softcap: float) -> Any:
    """One query of each sequence over keys ``first .. seqlen_kv - 1``, of which there is one at least.

    Args:
        lay: Heads, dtypes, and what a block looks like.
        sm_scale: Factor of the scores.
        softcap: Bound of the scores, 0 for none.

    Returns:
        A program of ``(q, k, v, parts, stats, counters, out, first, runs, base, rem)``, *q* and *out* with one query of
        each sequence; after ``v``, of float8 ``q_scale (batch, heads)``, ``k_scale`` and ``v_scale (batch, heads_kv)``,
        and where heads are rotated ``cos`` and ``sin (positions, rotary_dim / 2)``. Elements of a head lie side by
        side, heads, keys and sequences at any multiple of 16 bytes. Keys before *first* are not read. Run ``r`` takes
        *base* tiles, one more where ``r < rem``. A tile has ``16 * key_warps * cluster`` keys. ``parts`` have room for
        ``2 * runs * units`` parts, ``stats`` for as many for each block of a cluster. ``counters`` are zero before and
        after a launch, one for each run, unit and block of a cluster.
    """
    batch = T.dynamic("batch")
    seqlen_kv = T.dynamic("seqlen_kv")
    k_strides = [T.dynamic(f"k_{each}", "int64") for each in ("sequence", "key", "head")]
    v_strides = [T.dynamic(f"v_{each}", "int64") for each in ("sequence", "key", "head")]
    slots = T.dynamic("slots")
    stat_slots = T.dynamic("stat_slots")
    counted = T.dynamic("counted")
    positions = T.dynamic("positions")
    scale_strides = [T.dynamic(f"{each}_scale_stride") for each in "qkv"]
    shape = lay.shape
    units, unit_rows, depth, stages, cluster = lay.units, lay.unit_rows, lay.depth, shape.stages, shape.cluster
    step_keys, tile_keys = STEP * shape.key_warps, shape.tile_keys
    held_share, held_stats = (lay.share, unit_rows) if cluster > 1 else (1, 1)
    cluster_dims = {"cluster_dims": cluster} if cluster > 1 else {}
    scale_in = sm_scale / softcap if softcap > 0.0 else sm_scale * LOG2_E

    @T.macro
    def attend(q, k, v, scales, rotation, parts, stats, counters, out, first, runs, base, rem):
        with T.Kernel(runs * (units * cluster), threads=shape.threads, **cluster_dims) as block:
            T.import_source(THROUGH_L2)
            ring = T.alloc_shared((lay.pool_rows, lay.dim), lay.dtype)
            merged = T.view(ring, (lay.pool_floats,), "float32")
            warp_base = T.alloc_shared((shape.key_warps, unit_rows), "float32")
            warp_total = T.alloc_shared((shape.key_warps, unit_rows), "float32")
            block_stats = T.alloc_shared((unit_rows, 2), "float32")
            mine = T.alloc_shared((cluster * held_share, 4), "float32")
            all_shares = T.alloc_shared((cluster, held_share, 4), "float32")
            all_stats = T.alloc_shared((cluster, held_stats, 2), "float32")
            ticket = T.alloc_shared((1,), "int32")

            queries = T.alloc_local((depth * 8,), lay.held_dtype)
            fragment = T.alloc_local((16,), lay.held_dtype)
            packed = T.alloc_local((16,), lay.dtype)
            swapped = T.alloc_local((2,), lay.dtype)
            weights = T.alloc_local((8,), lay.held_dtype)
            scale = T.alloc_local((2,), "float32")
            value_scale = T.alloc_local((1,), "float32")
            scores = T.alloc_local((8,), "float32")
            held = T.alloc_local((depth * 8,), "float32")
            top = T.alloc_local((2,), "float32")
            low = T.alloc_local((2,), "float32")
            total = T.alloc_local((2,), "float32")
            shrink = T.alloc_local((2,), "float32")
            added = T.alloc_local((4,), "float32")
            loaded = T.alloc_local((AT_ONCE * 4,), "float32")
            loaded_stats = T.alloc_local((AT_ONCE * 2,), "float32")

            run = T.alloc_var("int32")
            unit = T.alloc_var("int32")
            span = T.alloc_var("int32")
            start = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            sequence_from = T.alloc_var("int32")
            sequence_to = T.alloc_var("int32")
            trips = T.alloc_var("int32")
            head_kv = T.alloc_var("int32")
            head = T.alloc_var("int32")
            rows = T.alloc_var("int32")
            key_from = T.alloc_var("int32")
            run_from = T.alloc_var("int32")
            run_to = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            key = T.alloc_var("int32")
            item = T.alloc_var("int32")
            row = T.alloc_var("int32")
            column = T.alloc_var("int32")
            counter = T.alloc_var("int32")

            thread = T.get_thread_binding()
            lane = thread % WARP
            key_warp = thread // lay.lanes
            row_warp = thread % lay.lanes // WARP
            ring_lane = thread % lay.lanes
            own_head = row_warp if shape.key_heads > 1 else 0
            ring_from = key_warp * stages * shape.key_heads
            rank = block % cluster
            own_row = lay.first_row(row_warp, lane)

            if cluster > 1:
                T.cluster_arrive_relaxed()
            run = T.truncdiv(block, units * cluster)
            unit = T.truncdiv(T.truncmod(block, units * cluster), cluster)
            span = T.truncdiv(seqlen_kv - first + (tile_keys - 1), tile_keys)
            start = run * base + T.min(run, rem)
            stop = start + base
            if run < rem:
                stop = stop + 1
            sequence_from = T.truncdiv(start, span)
            sequence_to = T.truncdiv(stop - 1, span)
            head_kv = T.truncdiv(unit, lay.head_blocks) * shape.key_heads
            rows = T.truncmod(unit, lay.head_blocks) * unit_rows
            head = head_kv * lay.group + rows
            rows = T.min(lay.group * shape.key_heads - rows, unit_rows)

            for sequence in T.serial(sequence_from, sequence_to + 1):
                key_from = T.max(start - sequence * span, 0)
                trips = T.min(stop - sequence * span, span) - key_from
                key_from = first + key_from * tile_keys + rank * step_keys + key_warp * STEP
                if key_from + (trips - 1) * tile_keys >= seqlen_kv:
                    trips = trips - 1  # of the last tile, this warp has no key

                for stage in T.unroll(stages):
                    key = key_from + stage * tile_keys
                    if stage < trips:
                        fetch(
                            k, ring, sequence, key, head_kv, ring_from + stage * shape.key_heads, ring_lane, seqlen_kv,
                            lay,
                        )  # fmt: skip
                    T.ptx_commit_group()
                    if stage < trips:
                        slot = lay.value_slots + ring_from + stage * shape.key_heads
                        fetch(v, ring, sequence, key, head_kv, slot, ring_lane, seqlen_kv, lay)
                    T.ptx_commit_group()

                take_queries(
                    q, rotation, queries, sequence, head, lay.ends_at(row_warp, rows), own_row, lane, seqlen_kv, lay
                )  # fmt: skip
                take_scales(scales, scale, value_scale, sequence, head, head_kv, rows, row_warp, lane, scale_in, lay)
                run_from = sequence * span
                run_to = run_from + span - 1
                if run_from < rem * (base + 1):
                    run_from = T.truncdiv(run_from, base + 1)
                else:
                    run_from = rem + T.truncdiv(run_from - rem * (base + 1), base)
                if run_to < rem * (base + 1):
                    run_to = T.truncdiv(run_to, base + 1)
                else:
                    run_to = rem + T.truncdiv(run_to - rem * (base + 1), base)
                for i in T.unroll(depth * 8):
                    held[i] = 0.0
                for i in T.unroll(2):
                    low[i] = NOTHING
                    total[i] = 0.0
                for i in T.unroll(8):
                    weights[i] = T.cast(0, lay.held_dtype)

                for trip in T.serial(trips):
                    slot = ring_from + T.truncmod(trip, stages) * shape.key_heads
                    key = key_from + trip * tile_keys
                    T.ptx_wait_group(2 * stages - 1)
                    meet(key_warp, lay)
                    if lay.rotary_dim > 0:
                        rotate_keys(ring, rotation, key, slot, ring_lane, seqlen_kv, lay)
                        meet(key_warp, lay)
                    for i in T.unroll(8):
                        scores[i] = 0.0
                    score(queries, ring, scores, fragment, packed, slot + own_head, lane, lay)
                    meet(key_warp, lay)
                    if trip + stages < trips:
                        fetch(k, ring, sequence, key + stages * tile_keys, head_kv, slot, ring_lane, seqlen_kv, lay)
                    T.ptx_commit_group()
                    weights_of(
                        scores, weights, held, top, low, total, shrink, scale, key, lane, seqlen_kv, softcap, lay
                    )  # fmt: skip
                    T.ptx_wait_group(2 * stages - 1)
                    meet(key_warp, lay)
                    slot = lay.value_slots + slot
                    weigh(weights, ring, held, fragment, packed, swapped, slot + own_head, lane, lay)
                    meet(key_warp, lay)
                    if trip + stages < trips:
                        fetch(v, ring, sequence, key + stages * tile_keys, head_kv, slot, ring_lane, seqlen_kv, lay)
                    T.ptx_commit_group()

                meet_warps(
                    merged, warp_base, warp_total, block_stats, held, low, top, total, shrink, value_scale, key_warp,
                    own_row, lay.ends_at(row_warp, unit_rows), lane, lay,
                )  # fmt: skip
                if cluster > 1:
                    meet_blocks(mine, all_shares, all_stats, block_stats, merged, added, thread, rank, lay)
                for turn in T.serial(T.ceildiv(lay.share, shape.threads)):
                    item = turn * shape.threads + thread
                    row = T.truncdiv(rank * lay.share + item, lay.columns)
                    column = T.truncmod(rank * lay.share + item, lay.columns)
                    if item < lay.share and row < rows:
                        rows_of_block(
                            added, top, total, shrink, merged, block_stats, all_shares, all_stats, row, column, item,
                            lay
                        )  # fmt: skip
                        if run_from == run_to:
                            write_rows(out, added, total, sequence, head + row, column, lay)
                        else:
                            slot = part_of(run, base, rem, sequence * span) * units + unit
                            for j in T.vectorized(4):
                                parts[slot, row, column * 4 + j] = added[j]
                            if column == 0 or item == 0:
                                stats[slot * cluster + rank, row, 0] = top[0]
                                stats[slot * cluster + rank, row, 1] = total[0]
                if cluster > 1:
                    T.cluster_arrive()
                T.sync_threads()
                if run_from != run_to:
                    counter = (run_from * units + unit) * cluster + rank
                    if thread == 0:
                        ticket[0] = T.atomic_add(counters[counter], 1, memory_order="acq_rel", return_prev=True)
                    T.sync_threads()
                    if ticket[0] == run_to - run_from:
                        if thread == 0:
                            counters[counter] = 0
                        for turn in T.serial(T.ceildiv(lay.share, shape.threads)):
                            item = turn * shape.threads + thread
                            row = T.truncdiv(rank * lay.share + item, lay.columns)
                            column = T.truncmod(rank * lay.share + item, lay.columns)
                            if item < lay.share and row < rows:
                                add_runs(
                                    added, low, total, top, shrink, loaded, loaded_stats, parts, stats, run_from,
                                    run_to, base, rem, sequence * span, unit, rank, row, column, lay,
                                )  # fmt: skip
                                write_rows(out, added, total, sequence, head + row, column, lay)
                    T.sync_threads()
            if cluster > 1:
                T.cluster_wait()

    one = (batch, 1, lay.heads, lay.dim)
    keys = (batch, seqlen_kv, lay.heads_kv, lay.dim)
    if lay.is_fp8:

        @T.prim_func
        def gqa_decode_fp8(
            q: T.Tensor(one, lay.dtype),
            k: T.StridedTensor(keys, (*k_strides, 1), lay.dtype),
            v: T.StridedTensor(keys, (*v_strides, 1), lay.dtype),
            q_scale: T.StridedTensor((batch, lay.heads), (scale_strides[0], 1), "float32"),
            k_scale: T.StridedTensor((batch, lay.heads_kv), (scale_strides[1], 1), "float32"),
            v_scale: T.StridedTensor((batch, lay.heads_kv), (scale_strides[2], 1), "float32"),
            parts: T.Tensor((slots, unit_rows, lay.dim), "float32"),
            stats: T.Tensor((stat_slots, unit_rows, 2), "float32"),
            counters: T.Tensor((counted,), "int32"),
            out: T.Tensor(one, lay.out_dtype),
            first: T.int32,
            runs: T.int32,
            base: T.int32,
            rem: T.int32,
        ):
            attend(q, k, v, (q_scale, k_scale, v_scale), (), parts, stats, counters, out, first, runs, base, rem)

        return gqa_decode_fp8

    if lay.rotary_dim > 0:

        @T.prim_func
        def gqa_decode_rotated(
            q: T.Tensor(one, lay.dtype),
            k: T.StridedTensor(keys, (*k_strides, 1), lay.dtype),
            v: T.StridedTensor(keys, (*v_strides, 1), lay.dtype),
            cos: T.Tensor((positions, lay.half_rotated), "float32"),
            sin: T.Tensor((positions, lay.half_rotated), "float32"),
            parts: T.Tensor((slots, unit_rows, lay.dim), "float32"),
            stats: T.Tensor((stat_slots, unit_rows, 2), "float32"),
            counters: T.Tensor((counted,), "int32"),
            out: T.Tensor(one, lay.out_dtype),
            first: T.int32,
            runs: T.int32,
            base: T.int32,
            rem: T.int32,
        ):
            attend(q, k, v, (), (cos, sin), parts, stats, counters, out, first, runs, base, rem)

        return gqa_decode_rotated

    @T.prim_func
    def gqa_decode(
        q: T.Tensor(one, lay.dtype),
        k: T.StridedTensor(keys, (*k_strides, 1), lay.dtype),
        v: T.StridedTensor(keys, (*v_strides, 1), lay.dtype),
        parts: T.Tensor((slots, unit_rows, lay.dim), "float32"),
        stats: T.Tensor((stat_slots, unit_rows, 2), "float32"),
        counters: T.Tensor((counted,), "int32"),
        out: T.Tensor(one, lay.out_dtype),
        first: T.int32,
        runs: T.int32,
        base: T.int32,
        rem: T.int32,
    ):
        attend(q, k, v, (), (), parts, stats, counters, out, first, runs, base, rem)

    return gqa_decode
