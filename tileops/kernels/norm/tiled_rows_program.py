"""The TileLang program of rows of any length, read twice. Imports TileLang: loaded by builders only.

A block has one row and goes over it a tile at a time. Each thread finds the mean of what it has of a tile and the
squared distances from it, and merges them into what it knows by counts, means and squares (Chan, Golub and LeVeque,
1979); the threads are merged so at the end. All of it is about the row's first element: where a mean is large beside
the deviation, the differences are exact.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.row_macros_program import WARP, entry
from tileops.kernels.norm.row_recipes import RowRecipe

__all__ = ["PASSES", "tiled_rows"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE")
"""Barriers stand where they are needed."""


def tiled_rows(n: int, eps: float, dtype: str, recipe: RowRecipe, *, vector: int, threads: int, steps: int) -> Any:
    """Rows of *n* elements, a block each.

    Args:
        n: Elements of a row.
        eps: Added to the variance, or to the mean square.
        dtype: Of every tensor.
        recipe: What is computed.
        vector: Elements of one load; a divisor of *n* and a power of two, 16 bytes at most.
        threads: Threads of a block, a multiple of 32.
        steps: Vectors that a thread has of a tile.
    """
    span = threads * vector
    tiles = -(-n // (span * steps))
    warps = threads // WARP
    centred, shared, residual = recipe.centred, recipe.shared, recipe.residual

    @T.macro
    def body(m, block, x, other, weight, shift, gate, out, sums):
        thread = T.get_thread_binding()
        row = T.cast(block, "int64")
        begin = thread * vector
        held = T.alloc_local((steps * vector,), dtype)
        added = T.alloc_local((vector,), dtype)
        wide = T.alloc_local((vector,), "float32")
        scales = T.alloc_local((vector,), dtype)
        shifts = T.alloc_local((vector,), dtype)
        gates = T.alloc_local((vector,), dtype)
        origin = T.alloc_local((1,), "float32")
        mean = T.alloc_local((1,), "float32")
        square = T.alloc_local((1,), "float32")
        count = T.alloc_local((1,), "float32")
        tile_mean = T.alloc_local((1,), "float32")
        tile_square = T.alloc_local((1,), "float32")
        tile_count = T.alloc_local((1,), "float32")
        zero = T.alloc_local((1,), "int32")
        parts = T.alloc_shared((warps, 3), "float32")

        # TileLang 0.1.15 counts the lanes of an access that begins at a multiple of n in 16 bits, and does not
        # compile one at a constant column where n modulo 65,536 is 32,768 or more.
        zero[0] = 0
        origin[0] = 0.0
        if centred:
            origin[0] = T.cast(x[row, zero[0]], "float32")
            if residual:
                origin[0] = T.cast(T.cast(origin[0] + T.cast(other[row, zero[0]], "float32"), dtype), "float32")
        mean[0] = 0.0
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
            tile_mean[0] = 0.0
            tile_square[0] = 0.0
            tile_count[0] = 0.0
            if centred:
                for v in T.unroll(steps):
                    if t * span * steps + v * span + begin < n:
                        tile_count[0] += T.float32(vector)
                        for k in T.unroll(vector):
                            tile_mean[0] += T.cast(held[v * vector + k], "float32") - origin[0]
                tile_mean[0] = tile_mean[0] / T.max(tile_count[0], 1.0)
            for v in T.unroll(steps):
                if t * span * steps + v * span + begin < n:
                    for k in T.unroll(vector):
                        away = T.cast(held[v * vector + k], "float32") - origin[0] - tile_mean[0]
                        tile_square[0] += away * away
            square[0] += tile_square[0]
            if centred:
                count[0] += tile_count[0]
                tile_mean[0] -= mean[0]
                tile_count[0] = tile_count[0] / T.max(count[0], 1.0)
                square[0] += tile_mean[0] * tile_mean[0] * tile_count[0] * (count[0] * (1.0 - tile_count[0]))
                mean[0] += tile_mean[0] * tile_count[0]

        # The warp's mean, then every thread's squares about it.
        if centred:
            tile_mean[0] = mean[0] * count[0]
            tile_count[0] = count[0]
            for level in T.unroll(5):
                tile_mean[0] += T.shfl_xor(tile_mean[0], 1 << level)
                tile_count[0] += T.shfl_xor(tile_count[0], 1 << level)
            tile_mean[0] = tile_mean[0] / T.max(tile_count[0], 1.0)
            square[0] += count[0] * (mean[0] - tile_mean[0]) * (mean[0] - tile_mean[0])
        for level in T.unroll(5):
            square[0] += T.shfl_xor(square[0], 1 << level)
        if thread % WARP == 0:
            parts[thread // WARP, 0] = tile_mean[0]
            parts[thread // WARP, 1] = square[0]
            parts[thread // WARP, 2] = tile_count[0]
        T.sync_threads()
        mean[0] = 0.0
        square[0] = 0.0
        if centred:
            for i in T.unroll(warps):
                mean[0] += parts[i, 0] * parts[i, 2]
            mean[0] = mean[0] / n
            for i in T.unroll(warps):
                square[0] += (parts[i, 0] - mean[0]) * (parts[i, 0] - mean[0]) * parts[i, 2]
        for i in T.unroll(warps):
            square[0] += parts[i, 1]
        square[0] = T.rsqrt(square[0] / n + eps)
        mean[0] = -mean[0] * square[0]

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
                        normal = (T.cast(held[v * vector + k], "float32") - origin[0]) * square[0] + mean[0]
                        scale = T.cast(scales[k], "float32")
                        scaled = normal * (scale if shared else 1.0 + scale)
                        moved = (scaled + T.cast(shifts[k], "float32")) if recipe.biased else scaled
                        out[row, t * span * steps + v * span + begin + k] = (
                            moved * T.cast(gates[k], "float32") if recipe.gated else moved
                        )

    def launch(m: Any) -> Any:
        return T.Kernel(m, threads=threads)

    return entry(recipe, n, dtype, launch, body)
