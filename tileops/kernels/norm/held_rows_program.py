"""The TileLang program of rows that are held in registers. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

A row belongs to ``lanes`` threads of one block, or of each block of a cluster. Each thread holds a few vectors of it
in the input's dtype from the load to the store, so that a row is read once, and everything that does not depend on
the statistics is loaded before them.

The statistics of centred rows are about the row's first element: where a mean is large beside the deviation, the
differences are exact. Each warp finds the mean of what it holds, then the squared distances from that mean; the warps'
results are merged by their counts, means and squares (Chan, Golub and LeVeque, 1979). No variance is a difference of
two large sums.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.row_macros_program import WARP, entry
from tileops.kernels.norm.row_recipes import RowRecipe

__all__ = ["PASSES", "held_rows"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE")
"""Barriers stand where they are needed, and what other blocks of a cluster write into shares memory with nothing."""


def held_rows(
    n: int,
    eps: float,
    dtype: str,
    recipe: RowRecipe,
    *,
    vector: int,
    lanes: int,
    groups: int,
    rows: int,
    blocks: int,
    resident: int,
    ahead: bool,
    in_shared: bool,
) -> Any:
    """Rows of *n* elements, each held by *lanes* threads in each of *blocks* blocks.

    Args:
        n: Elements of a row.
        eps: Added to the variance, or to the mean square.
        dtype: Of every tensor.
        recipe: What is computed.
        vector: Elements of one load; a divisor of *n* and a power of two, 16 bytes at most.
        lanes: Threads of a block that share a row: a power of two up to 32, or a multiple of 32.
        groups: Groups of *lanes* threads in a block.
        rows: Rows that a group holds at a time; they share weight and bias.
        blocks: Blocks of a cluster that share a row; above 1 a block has one group and one row.
        resident: Blocks that a multiprocessor is to hold at least; the compiler keeps to the registers that allows.
        ahead: Shared weights are loaded before the statistics are known, else when they are used.
        in_shared: The row waits in shared memory, else in registers; a block has one group and one row then.
    """
    span = lanes * vector
    steps = -(-n // (span * blocks))
    share = steps * span
    ragged = n != share * blocks
    facts = 3 if ragged else 2
    held_elements = steps * vector
    width = min(lanes, WARP)
    warps = max(1, lanes // WARP)
    centred, shared, residual = recipe.centred, recipe.shared, recipe.residual
    modulation = (1 if shared else rows) * held_elements if ahead else vector

    @T.macro
    def load_row(target, at, step, source, row, column):
        for v in T.unroll(steps):
            if column + v * span < n:
                for k in T.vectorized(vector):
                    target[at + v * step + k] = source[row, column + v * span + k]

    @T.macro
    def load_shared(target, source, column):
        for v in T.unroll(steps):
            if column + v * span < n:
                for k in T.vectorized(vector):
                    target[v * vector + k] = source[column + v * span + k]

    @T.macro
    def add_over_warp(value, r):
        if width >= 32:
            value[r] += T.shfl_xor(value[r], 16)
        if width >= 16:
            value[r] += T.shfl_xor(value[r], 8)
        if width >= 8:
            value[r] += T.shfl_xor(value[r], 4)
        if width >= 4:
            value[r] += T.shfl_xor(value[r], 2)
        if width >= 2:
            value[r] += T.shfl_xor(value[r], 1)

    @T.macro
    def merge(r, parts, group, parts_count, each, means, squares):
        """Merge results of *each* elements, or of as many as stand beside them: a mean and squares about it."""
        squares[r] = 0.0
        if centred:
            means[r] = 0.0
            for i in T.unroll(parts_count):
                means[r] += parts[group, r, i, 0] * (parts[group, r, i, 2] if ragged else 1.0)
                squares[r] += parts[group, r, i, 2] if ragged else 1.0
            means[r] = means[r] / T.max(squares[r], 1.0)
            squares[r] = 0.0
            for i in T.unroll(parts_count):
                squares[r] += parts[group, r, i, 1]
                squares[r] += (
                    (parts[group, r, i, 0] - means[r])
                    * (parts[group, r, i, 0] - means[r])
                    * (parts[group, r, i, 2] if ragged else each)
                )
        else:
            for i in T.unroll(parts_count):
                squares[r] += parts[group, r, i, 1]

    @T.macro
    def body(m, block, x, other, weight, shift, gate, out, sums):
        T.annotate_min_blocks_per_sm(resident)
        thread = T.get_thread_binding()
        group = thread // lanes
        lane = thread % lanes
        warp = lane // WARP
        rank = block % blocks
        column = rank * share + lane * vector
        first = (T.cast(block, "int64") // blocks * groups + group) * rows

        # Where a row's values wait: the first of a thread's, the next of them, and the next row's.
        held = T.alloc_shared((share,), dtype) if in_shared else T.alloc_local((rows * held_elements,), dtype)
        begin = lane * vector if in_shared else 0
        step = span if in_shared else vector
        added = T.alloc_local((rows * held_elements,), dtype)
        scales = T.alloc_local((modulation,), dtype)
        shifts = T.alloc_local((modulation,), dtype)
        gates = T.alloc_local((modulation,), dtype)
        origin = T.alloc_local((rows,), "float32")
        means = T.alloc_local((rows,), "float32")
        squares = T.alloc_local((rows,), "float32")
        wide = T.alloc_local((vector,), "float32")
        zero = T.alloc_local((1,), "int32")
        if warps > 1 or blocks > 1:
            parts = T.alloc_shared((groups, rows, warps, facts), "float32")
        if blocks > 1:
            mine = T.alloc_shared((rows, facts), "float32")
            pieces = T.alloc_shared((1, rows, blocks, facts), "float32")
            T.cluster_arrive_relaxed()

        # TileLang 0.1.15 counts the lanes of an access that begins at a multiple of n in 16 bits, and does not
        # compile one at a constant column where n modulo 65,536 is 32,768 or more.
        zero[0] = 0
        for r in T.unroll(rows):
            if first + r < m:
                load_row(held, begin + r * held_elements, step, x, first + r, column)
                if residual:
                    load_row(added, r * held_elements, vector, other, first + r, column)
                if centred:
                    origin[r] = T.cast(x[first + r, zero[0]], "float32")
                    if residual:
                        origin[r] = T.cast(
                            T.cast(origin[r] + T.cast(other[first + r, zero[0]], "float32"), dtype), "float32"
                        )
                if ahead and not shared:
                    load_row(scales, r * held_elements, vector, weight, first + r, column)
                    load_row(shifts, r * held_elements, vector, shift, first + r, column)
                    if recipe.gated:
                        load_row(gates, r * held_elements, vector, gate, first + r, column)
        if shared and ahead:
            load_shared(scales, weight, column)
            if recipe.biased:
                load_shared(shifts, shift, column)
        if residual:
            for r in T.unroll(rows):
                for v in T.unroll(steps):
                    # By way of a third buffer: where one is read and written in the same loop over a single element,
                    # TileLang 0.1.15 reads the register in which it puts the result together.
                    for k in T.vectorized(vector):
                        wide[k] = T.cast(held[begin + r * held_elements + v * step + k], "float32") + T.cast(
                            added[r * held_elements + v * vector + k], "float32"
                        )
                    for k in T.vectorized(vector):
                        held[begin + r * held_elements + v * step + k] = T.cast(wide[k], dtype)
                    if first + r < m and column + v * span < n:
                        for k in T.vectorized(vector):
                            sums[first + r, column + v * span + k] = held[begin + r * held_elements + v * step + k]

        count = T.alloc_local((1,), "float32")
        if ragged:
            count[0] = 0.0
            for v in T.unroll(steps):
                count[0] += T.cast(
                    T.max(0, T.min(width * vector, n - rank * share - warp * WARP * vector - v * span)), "float32"
                )
        else:
            count[0] = T.float32(steps * width * vector)
        if in_shared:
            T.sync_threads()  # so that values are read again, and not held in registers as well
        if centred:
            for r in T.unroll(rows):
                means[r] = 0.0
                for v in T.unroll(steps):
                    if column + v * span < n:
                        for k in T.vectorized(vector):
                            wide[k] = T.cast(held[begin + r * held_elements + v * step + k], "float32") - origin[r]
                        for k in T.unroll(vector):
                            means[r] += wide[k]
            if in_shared:
                T.sync_threads()
            for r in T.unroll(rows):
                add_over_warp(means, r)
                means[r] = means[r] / T.max(count[0], 1.0)
        else:
            T.clear(means)
        for r in T.unroll(rows):
            squares[r] = 0.0
            for v in T.unroll(steps):
                if column + v * span < n:
                    if centred:
                        for k in T.vectorized(vector):
                            wide[k] = (
                                T.cast(held[begin + r * held_elements + v * step + k], "float32") - origin[r] - means[r]
                            )
                        for k in T.unroll(vector):
                            squares[r] += wide[k] * wide[k]
                    else:
                        for k in T.unroll(vector):
                            squares[r] += T.cast(held[begin + r * held_elements + v * step + k], "float32") * T.cast(
                                held[begin + r * held_elements + v * step + k], "float32"
                            )
        for r in T.unroll(rows):
            add_over_warp(squares, r)
        if warps > 1 or blocks > 1:
            if lane % WARP == 0:
                for r in T.unroll(rows):
                    parts[group, r, warp, 0] = means[r]
                    parts[group, r, warp, 1] = squares[r]
                    if ragged:
                        parts[group, r, warp, 2] = count[0]
            T.sync_threads()
            for r in T.unroll(rows):
                merge(r, parts, group, warps, T.float32(steps * width * vector), means, squares)
        if blocks > 1:
            if thread == 0:
                for r in T.unroll(rows):
                    mine[r, 0] = means[r]
                    mine[r, 1] = squares[r]
                    if ragged:
                        mine[r, 2] = T.cast(T.max(0, T.min(share, n - rank * share)), "float32")
            T.cluster_wait()
            T.sync_threads()
            for other_rank in T.unroll(blocks):
                T.copy_cluster(mine, pieces[0, 0:rows, rank, 0:facts], dst_block=other_rank)
            T.cluster_sync()
            for r in T.unroll(rows):
                merge(r, pieces, 0, blocks, T.float32(share), means, squares)
        for r in T.unroll(rows):
            squares[r] = T.rsqrt(squares[r] / n + eps)
            means[r] = -means[r] * squares[r]
        for r in T.unroll(rows):
            if first + r < m:
                for v in T.unroll(steps):
                    if column + v * span < n:
                        if not ahead:
                            for k in T.vectorized(vector):
                                scales[k] = (
                                    weight[column + v * span + k]
                                    if shared
                                    else weight[first + r, column + v * span + k]
                                )
                            if recipe.biased:
                                for k in T.vectorized(vector):
                                    shifts[k] = (
                                        shift[column + v * span + k]
                                        if shared
                                        else shift[first + r, column + v * span + k]
                                    )
                            if recipe.gated:
                                for k in T.vectorized(vector):
                                    gates[k] = gate[first + r, column + v * span + k]
                        for k in T.vectorized(vector):
                            value = T.cast(held[begin + r * held_elements + v * step + k], "float32")
                            at = ((0 if shared else r * held_elements) + v * vector if ahead else 0) + k
                            normal = ((value - origin[r]) * squares[r] + means[r]) if centred else value * squares[r]
                            scale = T.cast(scales[at], "float32")
                            scaled = normal * (scale if shared else 1.0 + scale)
                            moved = (scaled + T.cast(shifts[at], "float32")) if recipe.biased else scaled
                            out[first + r, column + v * span + k] = (
                                moved * T.cast(gates[at], "float32") if recipe.gated else moved
                            )

    def launch(m: Any) -> Any:
        cluster = {"cluster_dims": blocks} if blocks > 1 else {}
        return T.Kernel(T.ceildiv(m, groups * rows) * blocks, threads=lanes * groups, **cluster)

    return entry(recipe, n, dtype, launch, body)
