"""The TileLang program of rows that come through a ring in shared memory. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

There are as many blocks as run at a time. Each goes over the rows with a few warps, a row to a warp: bulk copies bring
the rows that come next while these are normalized, no warp waits for another to know its row, and the weights stay in
registers from the first row to the last.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.row_macros_program import WARP, WIDENING, entry, look, split_mean
from tileops.kernels.norm.row_recipes import RowRecipe
from tileops.kernels.tilelang_build import BULK_COPIES

__all__ = ["PASSES", "ring_rows"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE")
"""Barriers stand where they are needed."""


def ring_rows(
    n: int,
    eps: float,
    dtype: str,
    recipe: RowRecipe,
    sm_count: int,
    *,
    vector: int,
    warps: int,
    stages: int,
    resident: int,
    distances: bool,
    planes: bool = False,
) -> Any:
    """Rows of *n* elements, a warp each.

    Args:
        n: Elements of a row; a multiple of 16 bytes.
        eps: Added to the variance, or to the mean square.
        dtype: Of every tensor.
        recipe: What is computed, of one input and weights that all rows share.
        sm_count: Multiprocessors.
        vector: Elements of one load, 16 bytes.
        warps: Warps of a block, and rows of a stage.
        stages: Stages of the ring.
        resident: Blocks that a multiprocessor is to hold.
        distances: Of a row that is centred, float32 distances from a point wait in registers, so that nothing is
            converted twice.
        planes: Whether rows have two axes; see :func:`~tileops.kernels.norm.row_macros_program.entry`.
    """
    span = WARP * vector
    steps = -(-n // span)
    held_elements = steps * vector
    item = 4 if dtype == "float32" else 2
    workers = sm_count * resident
    centred = recipe.centred

    @T.macro
    def bring(x, ring, filled, at, tile, m):
        """One thread asks for the rows of *tile*, which are to fill stage *at*."""
        left = T.cast(T.min(T.int64(warps), m - tile * warps), "int32") * (n * item)
        T.mbarrier_arrive_expect_tx(filled[at], left)
        T.call_extern(
            "handle",
            "tl::tma_load",
            T.address_of(ring[at, 0, 0]),
            T.address_of(x[tile * warps, 0]),
            filled[at],
            T.cast(left, "uint32"),
        )

    @T.macro
    def body(m, block, x, other, weight, shift, gate, out, sums):
        T.import_source(BULK_COPIES + (WIDENING if dtype == "bfloat16" else ""))
        T.annotate_min_blocks_per_sm(resident)
        thread = T.get_thread_binding()
        warp = thread // WARP
        column = thread % WARP * vector
        plan = T.alloc_local((2,), "int32")
        first = T.cast(block, "int32")
        tiles = T.cast((m + (warps - 1)) // warps, "int32")
        # Blocks that have as many tiles each as the last has at most, and their number.
        plan[0] = T.truncdiv(tiles + (workers - 1), workers)
        plan[0] = T.truncdiv(tiles + (plan[0] - 1), plan[0])
        plan[1] = T.truncdiv(tiles - first + (plan[0] - 1), plan[0])
        stride = plan[0]
        count = plan[1]
        ring = T.alloc_shared((stages, warps, n), dtype)
        filled = T.alloc_barrier([1] * stages)
        held = T.alloc_local((held_elements,), dtype)
        scales = T.alloc_local((held_elements,), dtype)
        shifts = T.alloc_local((held_elements,), dtype)
        point = T.alloc_local((1,), "float32")
        rest = T.alloc_local((1,), "float32")
        square = T.alloc_local((1,), "float32")
        apart = T.alloc_local((held_elements if distances else 1,), "float32")
        if thread == 0:
            for s in T.unroll(stages):
                if s < count:
                    bring(x, ring, filled, s, T.cast(first + s * stride, "int64"), m)
        for v in T.unroll(steps):
            if column + v * span < n:
                for k in T.vectorized(vector):
                    scales[v * vector + k] = weight[column + v * span + k]
        if recipe.biased:
            for v in T.unroll(steps):
                if column + v * span < n:
                    for k in T.vectorized(vector):
                        shifts[v * vector + k] = shift[column + v * span + k]
        for t in T.serial(count):
            row = T.cast(first + t * stride, "int64") * warps + warp
            at = t % stages
            T.mbarrier_wait_parity(filled[at], t // stages % 2)
            for v in T.unroll(steps):
                if column + v * span < n:
                    for k in T.vectorized(vector):
                        held[v * vector + k] = ring[at, warp, column + v * span + k]
            T.sync_threads()
            if thread == 0 and t + stages < count:
                bring(x, ring, filled, at, T.cast(first + (t + stages) * stride, "int64"), m)
            look(
                centred, held, 0, vector, steps, vector, span, column, n, WARP, T.float32(n), T.float32(1.0 / n),
                point, rest, square, 0, False, apart, distances, False, 0,
            )  # fmt: skip
            square[0] = T.rsqrt(square[0] * T.float32(1.0 / n) + eps)
            if centred:
                if not distances:
                    split_mean(point, rest, 0)
                rest[0] = -rest[0] * square[0]
            if row < m:
                for v in T.unroll(steps):
                    if column + v * span < n:
                        for k in T.vectorized(vector):
                            value = T.cast(held[v * vector + k], "float32")
                            if centred:
                                away = apart[v * vector + k] if distances else value - point[0]
                            normal = (away * square[0] + rest[0]) if centred else value * square[0]
                            scaled = normal * T.cast(scales[v * vector + k], "float32")
                            out[row, column + v * span + k] = (
                                scaled + T.cast(shifts[v * vector + k], "float32") if recipe.biased else scaled
                            )

    def launch(m: Any) -> Any:
        tiles = T.ceildiv(m, warps)
        return T.Kernel(T.ceildiv(tiles, T.ceildiv(tiles, workers)), threads=WARP * warps)

    return entry(recipe, n, dtype, launch, body, planes=planes)
