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
        out = torch.empty_like(x)
        total = torch.empty_like(x)
        if x.numel():
            n = self.n
            self.launch(
                as_rows(x, n),
                as_rows(residual, n),
                as_row(weight, n),
                as_row(bias, n),
                as_rows(out, n),
                as_rows(total, n),
            )
        return out, total


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
