"""Layer normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import LayerNormFwdInterface
from tileops.kernels.norm.row_recipes import LAYER_NORM
from tileops.kernels.norm.rows import CutRows, HeldRows, RowKernel, ShortRows, TiledRows, as_row, as_rows

__all__ = ["LayerNormCutRowsKernel", "LayerNormHeldRowsKernel", "LayerNormKernel", "LayerNormShortRowsKernel"]


class LayerNormRows(RowKernel, LayerNormFwdInterface):
    """What the kernels below have in common."""

    recipe = LAYER_NORM

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of *x*; see the interface."""
        out = torch.empty_like(x)
        if x.numel():
            n = self.n
            self.launch(as_rows(x, n), as_row(weight, n), as_row(bias, n), as_rows(out, n))
        return out


class LayerNormKernel(TiledRows, LayerNormRows):
    """Layer normalization of rows of any length."""


class LayerNormHeldRowsKernel(HeldRows, LayerNormRows):
    """Layer normalization of rows that a block holds."""


class LayerNormShortRowsKernel(ShortRows, LayerNormRows):
    """Layer normalization of rows that a warp holds."""

    preferred_over = frozenset({"layer_norm_held_rows"})


class LayerNormCutRowsKernel(CutRows, LayerNormRows):
    """Layer normalization of long rows, or of few."""

    preferred_over = frozenset({"layer_norm_held_rows"})
