"""Adaptive layer normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import AdaLayerNormFwdInterface
from tileops.kernels.norm.row_recipes import ADA_LAYER_NORM
from tileops.kernels.norm.rows import CutRows, HeldRows, RowKernel, ShortRows, TiledRows, as_rows

__all__ = [
    "AdaLayerNormCutRowsKernel",
    "AdaLayerNormHeldRowsKernel",
    "AdaLayerNormKernel",
    "AdaLayerNormShortRowsKernel",
]


class AdaLayerNormRows(RowKernel, AdaLayerNormFwdInterface):
    """What the kernels below have in common."""

    recipe = ADA_LAYER_NORM

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of *x*; see the interface."""
        n = self.n
        rows = as_rows(x, n)
        out = torch.empty_like(rows)
        if x.numel():
            self.launch(rows, as_rows(scale, n), as_rows(shift, n), out)
        return out if rows is x else out.view_as(x)


class AdaLayerNormKernel(TiledRows, AdaLayerNormRows):
    """Adaptive layer normalization of rows of any length."""


class AdaLayerNormHeldRowsKernel(HeldRows, AdaLayerNormRows):
    """Adaptive layer normalization of rows that a block holds."""


class AdaLayerNormShortRowsKernel(ShortRows, AdaLayerNormRows):
    """Adaptive layer normalization of rows that a warp holds."""

    preferred_over = frozenset({"ada_layer_norm_held_rows"})


class AdaLayerNormCutRowsKernel(CutRows, AdaLayerNormRows):
    """Adaptive layer normalization of long rows, or of few."""

    preferred_over = frozenset({"ada_layer_norm_held_rows"})
