"""TileLang programs of layer normalization. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

Both programs work on ``x - x[0]`` of a row. The difference is exact where the row's values lie close
together, so that a mean far larger than the deviation costs no accuracy, and the mean itself is never
rounded to the magnitude of ``x``. Variances are sums of squared distances from the mean, never differences
of two large sums.
"""

from typing import Any

import tilelang.language as T

__all__ = ["rows_in_registers", "rows_in_tiles"]


def rows_in_registers(n: int, eps: float, dtype: str, rows: int, tile: int, threads: int) -> Any:
    """Rows that one tile holds: read once, normalized from registers.

    Args:
        n: Elements of a row, at most *tile*.
        eps: Added to the variance.
        dtype: Of every tensor.
        rows: Rows a block.
        tile: Columns of the tile, a power of two (reductions over other widths are replicated, and slow).
        threads: Threads a block.
    """
    m = T.dynamic("m", "int64")

    @T.prim_func
    def layer_norm_rows(
        x: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        bias: T.Tensor((n,), dtype),
        out: T.Tensor((m, n), dtype),
    ):
        with T.Kernel(T.ceildiv(m, rows), threads=threads) as block:
            shifted = T.alloc_fragment((rows, tile), "float32")
            squares = T.alloc_fragment((rows, tile), "float32")
            first = T.alloc_fragment((rows,), "float32")
            mean = T.alloc_fragment((rows,), "float32")
            rstd = T.alloc_fragment((rows,), "float32")

            for i in T.Parallel(rows):
                first[i] = T.if_then_else(block * rows + i < m, T.cast(x[block * rows + i, 0], "float32"), 0.0)
            for i, j in T.Parallel(rows, tile):
                shifted[i, j] = T.if_then_else(
                    T.And(block * rows + i < m, j < n),
                    T.cast(x[block * rows + i, j], "float32") - first[i],
                    0.0,
                )
            T.reduce_sum(shifted, mean, dim=1)
            for i in T.Parallel(rows):
                mean[i] = mean[i] / n
            for i, j in T.Parallel(rows, tile):
                squares[i, j] = T.if_then_else(j < n, (shifted[i, j] - mean[i]) * (shifted[i, j] - mean[i]), 0.0)
            T.reduce_sum(squares, rstd, dim=1)
            for i in T.Parallel(rows):
                rstd[i] = T.rsqrt(rstd[i] / n + eps)
            for i, j in T.Parallel(rows, tile):
                if block * rows + i < m and j < n:
                    out[block * rows + i, j] = (shifted[i, j] - mean[i]) * rstd[i] * T.cast(
                        weight[j], "float32"
                    ) + T.cast(bias[j], "float32")

    return layer_norm_rows


def rows_in_tiles(n: int, eps: float, dtype: str, tile: int, threads: int) -> Any:
    """Rows longer than one tile: one block a row, read twice, tile by tile.

    Each column of the tile keeps count, mean and squared distances of what passed through it (Welford's
    update); the columns are merged once, at the end. The last tile may be partial: its columns from
    ``n - (tiles - 1) * tile`` on have seen one value fewer.

    Args:
        n: Elements of a row, more than *tile*.
        eps: Added to the variance.
        dtype: Of every tensor.
        tile: Columns of the tile, a power of two.
        threads: Threads a block.
    """
    m = T.dynamic("m", "int64")
    tiles = -(-n // tile)
    last = n - (tiles - 1) * tile

    @T.prim_func
    def layer_norm_long_rows(
        x: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        bias: T.Tensor((n,), dtype),
        out: T.Tensor((m, n), dtype),
    ):
        with T.Kernel(m, threads=threads) as row:
            column = T.alloc_local((1,), "int32")
            first = T.alloc_fragment((1,), "float32")
            shifted = T.alloc_fragment((1, tile), "float32")
            means = T.alloc_fragment((1, tile), "float32")
            squares = T.alloc_fragment((1, tile), "float32")
            mean = T.alloc_fragment((1,), "float32")
            rstd = T.alloc_fragment((1,), "float32")

            # TileLang 0.1.15 counts the lanes of an access that begins at a multiple of n in 16 bits, and does not
            # compile one at a constant column where n modulo 65,536 is 32,768 or more.
            column[0] = 0
            first[0] = T.cast(x[row, column[0]], "float32")
            T.clear(means)
            T.clear(squares)
            for t in T.serial(tiles):
                share = T.float32(1.0) / T.cast(t + 1, "float32")
                for i, j in T.Parallel(1, tile):
                    shifted[i, j] = T.if_then_else(
                        t * tile + j < n, T.cast(x[row, t * tile + j], "float32") - first[0], 0.0
                    )
                for i, j in T.Parallel(1, tile):
                    if t * tile + j < n:
                        away = shifted[i, j] - means[i, j]
                        means[i, j] = means[i, j] + away * share
                        squares[i, j] = squares[i, j] + away * (shifted[i, j] - means[i, j])
            for i, j in T.Parallel(1, tile):
                shifted[i, j] = means[i, j] * T.if_then_else(j < last, T.float32(tiles), T.float32(tiles - 1))
            T.reduce_sum(shifted, mean, dim=1)
            mean[0] = mean[0] / n
            for i, j in T.Parallel(1, tile):
                squares[i, j] = squares[i, j] + (means[i, j] - mean[0]) * (means[i, j] - mean[0]) * T.if_then_else(
                    j < last, T.float32(tiles), T.float32(tiles - 1)
                )
            T.reduce_sum(squares, rstd, dim=1)
            rstd[0] = T.rsqrt(rstd[0] / n + eps)
            for t in T.serial(tiles):
                for _, j in T.Parallel(1, tile):
                    if t * tile + j < n:
                        out[row, t * tile + j] = (T.cast(x[row, t * tile + j], "float32") - first[0] - mean[0]) * rstd[
                            0
                        ] * T.cast(weight[t * tile + j], "float32") + T.cast(bias[t * tile + j], "float32")

    return layer_norm_long_rows
