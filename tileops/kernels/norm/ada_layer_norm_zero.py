"""Gated adaptive layer normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import AdaLayerNormZeroFwdInterface
from tileops.kernels.norm.row_recipes import ADA_LAYER_NORM_ZERO
from tileops.kernels.norm.rows import CutRows, HeldRows, RowKernel, ShortRows, TiledRows, as_rows

__all__ = [
    "AdaLayerNormZeroCutRowsKernel",
    "AdaLayerNormZeroHeldRowsKernel",
    "AdaLayerNormZeroKernel",
    "AdaLayerNormZeroShortRowsKernel",
]


class AdaLayerNormZeroRows(RowKernel, AdaLayerNormZeroFwdInterface):
    """What the kernels below have in common."""

    recipe = ADA_LAYER_NORM_ZERO

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of *x*; see the interface."""
        n = self.n
        rows = as_rows(x, n)
        out = torch.empty_like(rows)
        if x.numel():
            self.launch(rows, as_rows(scale, n), as_rows(shift, n), as_rows(gate, n), out)
        return out if rows is x else out.view_as(x)


class AdaLayerNormZeroKernel(TiledRows, AdaLayerNormZeroRows):
    """Gated adaptive layer normalization of rows of any length."""


class AdaLayerNormZeroHeldRowsKernel(HeldRows, AdaLayerNormZeroRows):
    """Gated adaptive layer normalization of rows that a block holds."""


class AdaLayerNormZeroShortRowsKernel(ShortRows, AdaLayerNormZeroRows):
    """Gated adaptive layer normalization of rows that a warp holds."""

    preferred_over = frozenset({"ada_layer_norm_zero_held_rows"})


class AdaLayerNormZeroCutRowsKernel(CutRows, AdaLayerNormZeroRows):
    """Gated adaptive layer normalization of long rows, or of few."""

    preferred_over = frozenset({"ada_layer_norm_zero_held_rows"})
