"""The TileLang program of rows that are held in registers. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

A row belongs to ``lanes`` threads of one block, or of each block of a cluster. Each thread holds a few vectors of it
in the input's dtype from the load to the store, so that a row is read once, and everything that does not depend on
the statistics is loaded before them.

Statistics: see ``row_macros_program``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.kept_results_program import KEEPING, store
from tileops.kernels.norm.row_macros_program import AFRESH, FACTS, WARP, WIDENING, entry, look, merge, split_mean
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
    distances: bool,
    once: bool,
    keeps: bool,
    planes: bool = False,
) -> Any:
    """Rows of *n* elements, each held by *lanes* threads in each of *blocks* blocks.

    Args:
        n: Elements of a row.
        eps: Added to the variance, or to the mean square.
        dtype: Of every tensor.
        recipe: What is computed.
        vector: Elements of one load; a divisor of *n* and a power of two, 16 bytes at most.
        lanes: Threads of a block that share a row: a power of two.
        groups: Groups of *lanes* threads in a block.
        rows: Rows that a group holds at a time; they share weight and bias.
        blocks: Blocks of a cluster that share a row; above 1 a block has one group and one row.
        resident: Blocks that a multiprocessor is to hold at least; the compiler keeps to the registers that allows.
        ahead: Shared weights are loaded before the statistics are known, else when they are used.
        in_shared: The row waits in shared memory, else in registers; a block has one group and one row then.
        distances: Of a row that is centred and waits in registers, float32 distances from a point wait there too, so
            that nothing is converted twice.
        once: A row of 16 bits that is centred is looked at once before the last time, about its first value, unless
            that is far from the mean; see ``row_macros_program``.
        keeps: Results are among the last to leave the L2 cache; see ``kept_results_program``.
        planes: Whether rows have two axes; see :func:`~tileops.kernels.norm.row_macros_program.entry`.
    """
    span = lanes * vector
    steps = -(-n // (span * blocks))
    share = steps * span
    ragged = n != share * blocks
    facts = FACTS[recipe.centred]
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
    def body(m, block, x, other, weight, shift, gate, out, sums):
        T.import_source(KEEPING + AFRESH + (WIDENING if dtype == "bfloat16" else ""))
        T.annotate_min_blocks_per_sm(resident)
        thread = T.get_thread_binding()
        group = thread // lanes
        lane = thread % lanes
        warp = lane // WARP
        rank = T.cast(block % blocks, "int32")
        column = rank * share + lane * vector
        first = (T.cast(block, "int64") // blocks * groups + group) * rows

        # Where a row's values wait: the first of a thread's, the next of them, and the next row's.
        held = T.alloc_shared((rows * share,), dtype) if in_shared else T.alloc_local((rows * held_elements,), dtype)
        begin = lane * vector if in_shared else 0
        step = span if in_shared else vector
        next_row = share if in_shared else held_elements
        added = T.alloc_local((rows * held_elements,), dtype)
        scales = T.alloc_local((modulation,), dtype)
        shifts = T.alloc_local((modulation,), dtype)
        gates = T.alloc_local((modulation,), dtype)
        point = T.alloc_local((rows,), "float32")
        rest = T.alloc_local((rows,), "float32")
        square = T.alloc_local((rows,), "float32")
        wide = T.alloc_local((vector,), "float32")
        results = T.alloc_local((vector,), dtype)
        counts = T.alloc_local((2,), "float32")
        inverses = T.alloc_local((2,), "float32")
        apart = T.alloc_local((rows * held_elements if distances else 1,), "float32")
        about = T.alloc_local((rows,), "float32")
        if warps > 1 or blocks > 1:
            parts = T.alloc_shared((groups, rows, warps, facts), "float32")
        if blocks > 1:
            mine = T.alloc_shared((rows, facts), "float32")
            pieces = T.alloc_shared((1, rows, blocks, facts), "float32")
            T.cluster_arrive_relaxed()

        for r in T.unroll(rows):
            if first + r < m:
                load_row(held, begin + r * next_row, step, x, first + r, column)
                if residual:
                    load_row(added, r * held_elements, vector, other, first + r, column)
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
                        wide[k] = T.cast(held[begin + r * next_row + v * step + k], "float32") + T.cast(
                            added[r * held_elements + v * vector + k], "float32"
                        )
                    for k in T.vectorized(vector):
                        held[begin + r * next_row + v * step + k] = T.cast(wide[k], dtype)
                    if first + r < m and column + v * span < n:
                        for k in T.vectorized(vector):
                            results[k] = held[begin + r * next_row + v * step + k]
                        store(sums[first + r, column + v * span], results, vector, dtype, keeps=keeps)

        # Elements of this lane's warp, and of the one whose facts it merges.
        if ragged:
            for i in T.unroll(2):
                counts[i] = 0.0
                for v in T.unroll(steps):
                    counts[i] += T.cast(
                        T.max(
                            0,
                            T.min(
                                width * vector,
                                n - rank * share - (warp if i == 0 else lane % warps) * WARP * vector - v * span,
                            ),
                        ),
                        "float32",
                    )
            inverses[0] = T.fast_rcp(T.max(counts[0], 1.0))
        else:
            counts[0] = T.float32(steps * width * vector)
            counts[1] = counts[0]
            inverses[0] = T.float32(1.0 / (steps * width * vector))
        if blocks > 1 and ragged:
            inverses[1] = T.fast_rcp(T.cast(T.max(1, T.min(share, n - rank * share)), "float32"))
        else:
            inverses[1] = T.float32(1.0 / min(share, n))
        if in_shared:
            T.sync_warp()  # so that values are read again, and not held in registers as well
        for r in T.unroll(rows):
            look(
                centred,
                held,
                begin + r * next_row,
                step,
                steps,
                vector,
                span,
                column,
                n,
                width,
                counts[0],
                inverses[0],
                point,
                rest,
                square,
                r,
                in_shared,
                apart,
                distances,
                once,
                held_elements * 2 if once and not in_shared else 0,
            )
            if distances:
                about[r] = point[r]
        if warps > 1:
            if lane % WARP == 0:
                for r in T.unroll(rows):
                    if centred:
                        parts[group, r, warp, 0] = point[r]
                        parts[group, r, warp, 1] = rest[r]
                        parts[group, r, warp, 2] = square[r]
                    else:
                        parts[group, r, warp, 0] = square[r]
            T.sync_threads()
            for r in T.unroll(rows):
                merge(
                    centred,
                    parts,
                    group,
                    r,
                    warps,
                    lane,
                    counts[1],
                    inverses[1],
                    point,
                    rest,
                    square,
                    r,
                )
        if blocks > 1:
            if thread == 0:
                for r in T.unroll(rows):
                    if centred:
                        mine[r, 0] = point[r]
                        mine[r, 1] = rest[r]
                        mine[r, 2] = square[r]
                    else:
                        mine[r, 0] = square[r]
            T.cluster_wait()
            T.sync_threads()
            for other_rank in T.unroll(blocks):
                T.copy_cluster(mine, pieces[0, 0:rows, rank, 0:facts], dst_block=other_rank)
            T.cluster_sync()
            for r in T.unroll(rows):
                merge(
                    centred,
                    pieces,
                    0,
                    r,
                    blocks,
                    lane,
                    T.cast(T.max(0, T.min(share, n - lane % blocks * share)), "float32"),
                    T.float32(1.0 / n),
                    point,
                    rest,
                    square,
                    r,
                )
        for r in T.unroll(rows):
            square[r] = T.rsqrt(square[r] * T.float32(1.0 / n) + eps)
            if centred:
                if distances:
                    rest[r] = ((about[r] - point[r]) - rest[r]) * square[r]
                else:
                    split_mean(point, rest, r)
                    rest[r] = -rest[r] * square[r]
        # Weights that are shared are loaded once for all rows.
        for i in T.unroll(steps if shared else steps * rows):
            vec = i % steps
            if column + vec * span < n:
                if shared and not ahead:
                    for k in T.vectorized(vector):
                        scales[k] = weight[column + vec * span + k]
                    if recipe.biased:
                        for k in T.vectorized(vector):
                            shifts[k] = shift[column + vec * span + k]
                for j in T.unroll(rows if shared else 1):
                    row = j if shared else i // steps
                    if first + row < m:
                        if not shared and not ahead:
                            for k in T.vectorized(vector):
                                scales[k] = weight[first + row, column + vec * span + k]
                            if recipe.biased:
                                for k in T.vectorized(vector):
                                    shifts[k] = shift[first + row, column + vec * span + k]
                            if recipe.gated:
                                for k in T.vectorized(vector):
                                    gates[k] = gate[first + row, column + vec * span + k]
                        for k in T.vectorized(vector):
                            value = T.cast(held[begin + row * next_row + vec * step + k], "float32")
                            at = ((0 if shared else row * held_elements) + vec * vector if ahead else 0) + k
                            if centred:
                                away = (
                                    apart[begin + row * next_row + vec * step + k] if distances else value - point[row]
                                )
                            normal = (away * square[row] + rest[row]) if centred else value * square[row]
                            scale = T.cast(scales[at], "float32")
                            scaled = normal * (scale if shared else 1.0 + scale)
                            moved = (scaled + T.cast(shifts[at], "float32")) if recipe.biased else scaled
                            results[k] = moved * T.cast(gates[at], "float32") if recipe.gated else moved
                        store(out[first + row, column + vec * span], results, vector, dtype, keeps=keeps)

    def launch(m: Any) -> Any:
        cluster = {"cluster_dims": blocks} if blocks > 1 else {}
        return T.Kernel(T.ceildiv(m, groups * rows) * blocks, threads=lanes * groups, **cluster)

    return entry(recipe, n, dtype, launch, body, planes=planes)
