"""Steps that the programs of rows share. Imports TileLang: loaded by builders only."""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.row_recipes import RowRecipe

__all__ = ["WARP", "entry"]

WARP = 32


def entry(recipe: RowRecipe, n: int, dtype: str, launch: Any, body: Any) -> Any:
    """The program of *recipe*: its tensors in the order in which the interface has them, then its results.

    Args:
        recipe: What is computed.
        n: Elements of a row.
        dtype: Of every tensor.
        launch: From the number of rows to a ``T.Kernel``.
        body: A macro of block, input, residual, weight or scale, bias or shift, gate, result and sum.
    """
    m = T.dynamic("m", "int64")

    if recipe.gated:

        @T.prim_func
        def gated_rows(
            x: T.Tensor((m, n), dtype),
            scale: T.Tensor((m, n), dtype),
            shift: T.Tensor((m, n), dtype),
            gate: T.Tensor((m, n), dtype),
            out: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, x, scale, shift, gate, out, out)

        return gated_rows

    if not recipe.shared:

        @T.prim_func
        def modulated_rows(
            x: T.Tensor((m, n), dtype),
            scale: T.Tensor((m, n), dtype),
            shift: T.Tensor((m, n), dtype),
            out: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, x, scale, shift, x, out, out)

        return modulated_rows

    if recipe.residual and recipe.biased:

        @T.prim_func
        def added_layer_norm_rows(
            x: T.Tensor((m, n), dtype),
            other: T.Tensor((m, n), dtype),
            weight: T.Tensor((n,), dtype),
            bias: T.Tensor((n,), dtype),
            out: T.Tensor((m, n), dtype),
            sums: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, other, weight, bias, x, out, sums)

        return added_layer_norm_rows

    if recipe.residual:

        @T.prim_func
        def added_rms_norm_rows(
            x: T.Tensor((m, n), dtype),
            other: T.Tensor((m, n), dtype),
            weight: T.Tensor((n,), dtype),
            out: T.Tensor((m, n), dtype),
            sums: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, other, weight, weight, x, out, sums)

        return added_rms_norm_rows

    if recipe.biased:

        @T.prim_func
        def layer_norm_rows(
            x: T.Tensor((m, n), dtype),
            weight: T.Tensor((n,), dtype),
            bias: T.Tensor((n,), dtype),
            out: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, x, weight, bias, x, out, out)

        return layer_norm_rows

    @T.prim_func
    def rms_norm_rows(
        x: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        out: T.Tensor((m, n), dtype),
    ):
        with launch(m) as block:
            body(m, block, x, x, weight, weight, x, out, out)

    return rms_norm_rows
