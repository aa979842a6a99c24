"""Addition of a residual and layer normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import FusedAddLayerNormFwdInterface
from tileops.kernels.norm.row_recipes import FUSED_ADD_LAYER_NORM
from tileops.kernels.norm.rows import CutRows, HeldRows, RowKernel, ShortRows, TiledRows, as_row, as_rows

__all__ = [
    "FusedAddLayerNormCutRowsKernel",
    "FusedAddLayerNormHeldRowsKernel",
    "FusedAddLayerNormKernel",
    "FusedAddLayerNormShortRowsKernel",
]


class FusedAddLayerNormRows(RowKernel, FusedAddLayerNormFwdInterface):
    """What the kernels below have in common."""

    recipe = FUSED_ADD_LAYER_NORM

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalize the rows of *x*; see the interface."""
        n = self.n
        rows = as_rows(x, n)
        out, total = torch.empty_like(rows), torch.empty_like(rows)
        if x.numel():
            self.launch(rows, as_rows(residual, n), as_row(weight, n), as_row(bias, n), out, total)
        return (out, total) if rows is x else (out.view_as(x), total.view_as(x))


class FusedAddLayerNormKernel(TiledRows, FusedAddLayerNormRows):
    """Addition of a residual and layer normalization of rows of any length."""


class FusedAddLayerNormHeldRowsKernel(HeldRows, FusedAddLayerNormRows):
    """Addition of a residual and layer normalization of rows that a block holds."""


class FusedAddLayerNormShortRowsKernel(ShortRows, FusedAddLayerNormRows):
    """Addition of a residual and layer normalization of rows that a warp holds."""

    preferred_over = frozenset({"fused_add_layer_norm_held_rows"})


class FusedAddLayerNormCutRowsKernel(CutRows, FusedAddLayerNormRows):
    """Addition of a residual and layer normalization of long rows, or of few."""

    preferred_over = frozenset({"fused_add_layer_norm_held_rows"})
