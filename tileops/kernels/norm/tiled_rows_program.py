"""The TileLang program of rows of any length, read twice. Imports TileLang: loaded by builders only.

A block has one row and goes over it a tile at a time. Each thread finds the facts of what it has of a tile and merges
them into those that it knows, about the point of its first tile; the threads are merged at the end. What the facts of a
row are: see ``row_macros_program``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.row_macros_program import (
    FACTS,
    MOST,
    WARP,
    WIDENING,
    add_over,
    entry,
    look,
    merge,
    split_mean,
)
from tileops.kernels.norm.row_recipes import RowRecipe

__all__ = ["PASSES", "tiled_rows"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE")
"""Barriers stand where they are needed."""


def tiled_rows(
    n: int,
    eps: float,
    dtype: str,
    recipe: RowRecipe,
    *,
    vector: int,
    threads: int,
    steps: int,
    planes: bool = False,
) -> Any:
    """Rows of *n* elements, a block each.

    Args:
        n: Elements of a row.
        eps: Added to the variance, or to the mean square.
        dtype: Of every tensor.
        recipe: What is computed.
        vector: Elements of one load; a divisor of *n* and a power of two, 16 bytes at most.
        threads: Threads of a block, a multiple of 32.
        steps: Vectors that a thread has of a tile.
        planes: Whether rows have two axes; see :func:`~tileops.kernels.norm.row_macros_program.entry`.
    """
    span = threads * vector
    tiles = -(-n // (span * steps))
    warps = threads // WARP
    facts = FACTS[recipe.centred] + recipe.centred
    centred, shared, residual = recipe.centred, recipe.shared, recipe.residual

    @T.macro
    def body(m, block, x, other, weight, shift, gate, out, sums):
        if dtype == "bfloat16":
            T.import_source(WIDENING)
        thread = T.get_thread_binding()
        row = T.cast(block, "int64")
        begin = thread * vector
        held = T.alloc_local((steps * vector,), dtype)
        added = T.alloc_local((vector,), dtype)
        wide = T.alloc_local((vector,), "float32")
        scales = T.alloc_local((vector,), dtype)
        shifts = T.alloc_local((vector,), dtype)
        gates = T.alloc_local((vector,), dtype)
        point = T.alloc_local((1,), "float32")
        rest = T.alloc_local((1,), "float32")
        square = T.alloc_local((1,), "float32")
        count = T.alloc_local((1,), "float32")
        tile_point = T.alloc_local((1,), "float32")
        tile_rest = T.alloc_local((1,), "float32")
        tile_square = T.alloc_local((1,), "float32")
        tile_count = T.alloc_local((1,), "float32")
        parts = T.alloc_shared((1, 1, warps, facts), "float32")

        point[0] = 0.0
        rest[0] = 0.0
        square[0] = 0.0
        count[0] = 0.0
        for t in T.serial(tiles):
            for v in T.unroll(steps):
                if t * span * steps + v * span + begin < n:
                    for k in T.vectorized(vector):
                        held[v * vector + k] = x[row, t * span * steps + v * span + begin + k]
            if residual:
                for v in T.unroll(steps):
                    if t * span * steps + v * span + begin < n:
                        for k in T.vectorized(vector):
                            added[k] = other[row, t * span * steps + v * span + begin + k]
                        # By way of a third buffer; see held_rows_program.
                        for k in T.vectorized(vector):
                            wide[k] = T.cast(held[v * vector + k], "float32") + T.cast(added[k], "float32")
                        for k in T.vectorized(vector):
                            held[v * vector + k] = T.cast(wide[k], dtype)
                        for k in T.vectorized(vector):
                            sums[row, t * span * steps + v * span + begin + k] = held[v * vector + k]
            tile_count[0] = 0.0
            for v in T.unroll(steps):
                if t * span * steps + v * span + begin < n:
                    tile_count[0] += T.float32(vector)
            look(
                centred,
                held,
                0,
                vector,
                steps,
                vector,
                span,
                t * span * steps + begin,
                n,
                1,
                tile_count[0],
                T.fast_rcp(T.max(tile_count[0], 1.0)),
                tile_point,
                tile_rest,
                tile_square,
                0,
                False,
                held,
                False,
                False,
                0,
            )
            square[0] += tile_square[0]
            if centred:
                if count[0] == 0.0:
                    point[0] = tile_point[0]
                count[0] += tile_count[0]
                tile_rest[0] += (tile_point[0] - point[0]) - rest[0]
                tile_rest[0] *= T.min(tile_count[0], 1.0)
                tile_count[0] = tile_count[0] / T.max(count[0], 1.0)
                square[0] += tile_rest[0] * tile_rest[0] * tile_count[0] * (count[0] * (1.0 - tile_count[0]))
                rest[0] += tile_rest[0] * tile_count[0]

        # The facts of a warp: a point near its mean, and what its threads have about that.
        if centred:
            tile_count[0] = count[0]
            add_over(tile_count, 0, WARP)
            tile_point[0] = (point[0] + rest[0]) * (count[0] / T.max(tile_count[0], 1.0))
            add_over(tile_point, 0, WARP)
            rest[0] = ((point[0] - tile_point[0]) + rest[0]) * T.min(count[0], 1.0)
            square[0] += count[0] * rest[0] * rest[0]
            rest[0] *= count[0]
            add_over(rest, 0, WARP)
            rest[0] = rest[0] / T.max(tile_count[0], 1.0)
        add_over(square, 0, WARP)
        if centred:
            square[0] = T.max(square[0] - T.min(rest[0] * rest[0] * tile_count[0], MOST), 0.0)
        if thread % WARP == 0:
            if centred:
                parts[0, 0, thread // WARP, 0] = tile_point[0]
                parts[0, 0, thread // WARP, 1] = rest[0]
                parts[0, 0, thread // WARP, 2] = square[0]
                parts[0, 0, thread // WARP, 3] = tile_count[0]
            else:
                parts[0, 0, thread // WARP, 0] = square[0]
        T.sync_threads()
        merge(
            centred,
            parts,
            0,
            0,
            warps,
            thread,
            parts[0, 0, thread % warps, 3] if centred else 1.0,
            T.float32(1.0 / n),
            point,
            rest,
            square,
            0,
        )
        square[0] = T.rsqrt(square[0] * T.float32(1.0 / n) + eps)
        if centred:
            split_mean(point, rest, 0)
            rest[0] = -rest[0] * square[0]

        for t in T.serial(tiles):
            for v in T.unroll(steps):
                if t * span * steps + v * span + begin < n:
                    for k in T.vectorized(vector):
                        held[v * vector + k] = (sums if residual else x)[row, t * span * steps + v * span + begin + k]
                    for k in T.vectorized(vector):
                        scales[k] = (
                            weight[t * span * steps + v * span + begin + k]
                            if shared
                            else weight[row, t * span * steps + v * span + begin + k]
                        )
                    if recipe.biased:
                        for k in T.vectorized(vector):
                            shifts[k] = (
                                shift[t * span * steps + v * span + begin + k]
                                if shared
                                else shift[row, t * span * steps + v * span + begin + k]
                            )
                    if recipe.gated:
                        for k in T.vectorized(vector):
                            gates[k] = gate[row, t * span * steps + v * span + begin + k]
                    for k in T.vectorized(vector):
                        value = T.cast(held[v * vector + k], "float32")
                        normal = ((value - point[0]) * square[0] + rest[0]) if centred else value * square[0]
                        scale = T.cast(scales[k], "float32")
                        scaled = normal * (scale if shared else 1.0 + scale)
                        moved = (scaled + T.cast(shifts[k], "float32")) if recipe.biased else scaled
                        out[row, t * span * steps + v * span + begin + k] = (
                            moved * T.cast(gates[k], "float32") if recipe.gated else moved
                        )

    def launch(m: Any) -> Any:
        return T.Kernel(m, threads=threads)

    return entry(recipe, n, dtype, launch, body, planes=planes)
