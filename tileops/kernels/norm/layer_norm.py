"""Layer normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import LayerNormFwdInterface
from tileops.kernels.norm.row_recipes import LAYER_NORM
from tileops.kernels.norm.rows import CutRows, HeldRows, RingRows, RowKernel, ShortRows, TiledRows, as_row, as_rows
from tileops.kernels.tilelang_build import ALIGNMENT_BYTES

__all__ = [
    "LayerNormCutRowsKernel",
    "LayerNormHeldRowsKernel",
    "LayerNormKernel",
    "LayerNormRingRowsKernel",
    "LayerNormShortRowsKernel",
]


class LayerNormRows(RowKernel, LayerNormFwdInterface):
    """What the kernels below have in common."""

    recipe = LAYER_NORM

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of *x*; see the interface."""
        n, rows, launch = self.n, x, self.launch
        # Asked of all at once: a call for each costs as much as an answer.
        if (x.data_ptr() | weight.data_ptr() | bias.data_ptr()) % ALIGNMENT_BYTES or weight.ndim + bias.ndim != 2:
            weight, bias = as_row(weight, n), as_row(bias, n)
            rows = as_rows(x, n)
        elif x.ndim == 3 and x.shape[2] == n and (planes := self.launch_planes or self._build_planes()) is not None:
            launch = planes
        elif x.ndim != 2 or x.shape[1] != n:
            rows = x.view(-1, n)
        out = torch.empty_like(x)
        if x.numel():
            launch(rows, weight, bias, out if rows is x else out.view(-1, n))
        return out


class LayerNormKernel(TiledRows, LayerNormRows):
    """Layer normalization of rows of any length."""


class LayerNormHeldRowsKernel(HeldRows, LayerNormRows):
    """Layer normalization of rows that a block holds."""


class LayerNormRingRowsKernel(RingRows, LayerNormRows):
    """Layer normalization of many rows, a warp each."""

    preferred_over = frozenset({"layer_norm_held_rows"})


class LayerNormShortRowsKernel(ShortRows, LayerNormRows):
    """Layer normalization of rows that a warp holds."""

    preferred_over = frozenset({"layer_norm_ring_rows"})


class LayerNormCutRowsKernel(CutRows, LayerNormRows):
    """Layer normalization of long rows, or of few."""

    preferred_over = frozenset({"layer_norm_held_rows"})
