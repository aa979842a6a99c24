"""How what warps, blocks and runs of decode hold becomes one result. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

A row is held with a *base*: what is held are sums of weights ``2 ** (score - base)``, and of values with these weights.
What has another base is brought to the larger of both when it is added.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import STEP

__all__ = ["AT_ONCE", "NOTHING", "add_runs", "meet_blocks", "meet_warps", "part_of", "rows_of_block", "write_rows"]

NOTHING = -1.0e38
"""The base of a row that has seen no key: finite, so that differences of bases are no NaN."""

MOST_COPIED = 64
"""Vectors of a copy to another block: of more, TileLang 0.1.15 finds no layout unless they fill all threads."""

AT_ONCE = 16
"""Parts whose loads are in flight together when they are added."""


@T.macro
def meet_warps(
    merged, warp_base, warp_total, block_stats, held, low, top, total, shrink, value_scale, key_warp, own_row, end,
    lane, lay: DecodeLayout,
):  # fmt: skip
    """Bring what the key warps hold to one base, into *merged*; *block_stats* become base and weight of each row.

    A thread has the rows *own_row* and 8 after it, of those before *end*.
    """
    row = T.alloc_var("int32")
    for half in T.unroll(lay.halves):
        total[half] += T.shfl_xor(total[half], 1)
        total[half] += T.shfl_xor(total[half], 2)
        if lane % 4 == 0 and own_row + half * 8 < end:
            warp_base[key_warp, own_row + half * 8] = low[half]
            warp_total[key_warp, own_row + half * 8] = total[half]
    T.sync_threads()
    for half in T.unroll(lay.halves):
        if own_row + half * 8 < end:
            row = own_row + half * 8
            top[half] = warp_base[0, row]
            for w in T.unroll(1, lay.shape.key_warps):
                top[half] = T.max(top[half], warp_base[w, row])
            shrink[half] = T.exp2(low[half] - top[half]) * value_scale[0]
            total[half] = 0.0
            for w in T.unroll(lay.shape.key_warps):
                total[half] += warp_total[w, row] * T.exp2(warp_base[w, row] - top[half])
            if key_warp == 0 and lane % 4 == 0:
                block_stats[row, 0] = top[half]
                block_stats[row, 1] = total[half]
            if lay.is_fp8:
                for i in T.unroll(lay.depth * 4):
                    merged[
                        (key_warp * lay.unit_rows + row) * lay.float_pitch + i // 4 * STEP + lane % 4 * 4 + i % 4
                    ] = held[i // 4 * 8 + i % 2 * 4 + half * 2 + i % 4 // 2] * shrink[half]
            else:
                for i in T.unroll(lay.depth * 2):
                    for j in T.vectorized(2):
                        merged[(key_warp * lay.unit_rows + row) * lay.float_pitch + i * 8 + lane % 4 * 2 + j] = (
                            held[i * 4 + half * 2 + j] * shrink[half]
                        )
    T.sync_threads()


@T.macro
def add_warps(added, merged, row, column, lay: DecodeLayout):
    """Four results of a row: the sum over the key warps."""
    for j in T.unroll(4):
        added[j] = 0.0
    for w in T.unroll(lay.shape.key_warps):
        for j in T.vectorized(4):
            added[j] += merged[(w * lay.unit_rows + row) * lay.float_pitch + column * 4 + j]


def parts_of(share: int) -> list[tuple[int, int]]:
    """The copies that *share* vectors take."""
    return [(begin, min(begin + MOST_COPIED, share)) for begin in range(0, share, MOST_COPIED)]


@T.macro
def meet_blocks(mine, all_shares, all_stats, block_stats, merged, added, thread, rank, lay: DecodeLayout):
    """Give each block of the cluster its share of what this one has, and all that is known of the rows.

    Each block has said that it is there, by ``T.cluster_arrive_relaxed()`` or :func:`T.cluster_arrive`.
    """
    item = T.alloc_var("int32")
    for turn in T.serial(T.ceildiv(lay.shape.cluster * lay.share, lay.shape.threads)):
        item = turn * lay.shape.threads + thread
        if item < lay.unit_rows * lay.columns:
            add_warps(added, merged, T.truncdiv(item, lay.columns), T.truncmod(item, lay.columns), lay)
            for j in T.vectorized(4):
                mine[item, j] = added[j]
    T.cluster_wait()  # until the blocks have read what they were given before
    T.sync_threads()
    for other in T.unroll(lay.shape.cluster):
        for begin, end in parts_of(lay.share):
            T.copy_cluster(
                mine[other * lay.share + begin : other * lay.share + end, 0:4],
                all_shares[rank, begin:end, 0:4],
                dst_block=other,
            )
        T.copy_cluster(block_stats[0 : lay.unit_rows, 0:2], all_stats[rank, 0 : lay.unit_rows, 0:2], dst_block=other)
    T.cluster_sync()


@T.macro
def rows_of_block(
    added, top, total, shrink, merged, block_stats, all_shares, all_stats, row, column, mine, lay: DecodeLayout
):  # fmt: skip
    """Four results of a row, not divided by the weight: base, weight and sum of the block, or of its cluster."""
    if lay.shape.cluster > 1:
        for j in T.unroll(4):
            added[j] = 0.0
        top[0] = NOTHING
        for c in T.unroll(lay.shape.cluster):
            top[0] = T.max(top[0], all_stats[c, row, 0])
        total[0] = 0.0
        for c in T.unroll(lay.shape.cluster):
            shrink[0] = T.exp2(all_stats[c, row, 0] - top[0])
            total[0] += all_stats[c, row, 1] * shrink[0]
            for j in T.unroll(4):
                added[j] += all_shares[c, mine, j] * shrink[0]
    else:
        top[0] = block_stats[row, 0]
        total[0] = block_stats[row, 1]
        add_warps(added, merged, row, column, lay)


@T.macro
def write_rows(out, added, total, sequence, head, column, lay: DecodeLayout):
    """Divide four results by the weight of their row, and write them; zeros where it has none."""
    for j in T.unroll(4):
        added[j] = T.if_then_else(total[0] == 0.0, 0.0, added[j] / total[0])
    for j in T.vectorized(4):
        out[sequence, 0, head, column * 4 + j] = T.cast(added[j], lay.out_dtype)


def part_of(run: Any, base: Any, rem: Any, begin: Any) -> Any:
    """Which part is that of *run* of the sequence whose tiles begin at *begin*.

    A run has two at most: of a sequence that began before it, and of one that ends after it.
    """
    return run * 2 + T.if_then_else(run * base + T.min(run, rem) < begin, 1, 0)


@T.macro
def add_runs(
    added, low, total, top, shrink, loaded, loaded_stats, parts, stats, run_from, run_to, base, rem, begin, unit, rank,
    row, column, lay: DecodeLayout,
):  # fmt: skip
    """Four results of a row: the sum over the parts of all runs of the sequence, in the order of its keys."""
    slot = T.alloc_var("int32")
    low[0] = NOTHING
    total[0] = 0.0
    for j in T.unroll(4):
        added[j] = 0.0
    for near in T.serial(T.ceildiv(run_to - run_from + 1, AT_ONCE)):
        for u in T.unroll(AT_ONCE):
            slot = part_of(T.min(run_from + near * AT_ONCE + u, run_to), base, rem, begin) * lay.units + unit
            for j in T.vectorized(2):
                loaded_stats[u * 2 + j] = stats[slot * lay.shape.cluster + rank, row, j]
            for j in T.vectorized(4):
                loaded[u * 4 + j] = parts[slot, row, column * 4 + j]
        top[0] = low[0]
        for u in T.unroll(AT_ONCE):
            top[0] = T.max(top[0], loaded_stats[u * 2])
        shrink[0] = T.exp2(low[0] - top[0])
        low[0] = top[0]
        total[0] = total[0] * shrink[0]
        for j in T.unroll(4):
            added[j] = added[j] * shrink[0]
        for u in T.unroll(AT_ONCE):
            if run_from + near * AT_ONCE + u <= run_to:
                shrink[0] = T.exp2(loaded_stats[u * 2] - low[0])
                total[0] += loaded_stats[u * 2 + 1] * shrink[0]
                for j in T.unroll(4):
                    added[j] += loaded[u * 4 + j] * shrink[0]
