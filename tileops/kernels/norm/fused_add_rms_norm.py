"""Addition of a residual and RMS normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import FusedAddRMSNormFwdInterface
from tileops.kernels.norm.row_recipes import FUSED_ADD_RMS_NORM
from tileops.kernels.norm.rows import CutRows, HeldRows, RowKernel, ShortRows, TiledRows, as_row, as_rows

__all__ = [
    "FusedAddRMSNormCutRowsKernel",
    "FusedAddRMSNormHeldRowsKernel",
    "FusedAddRMSNormKernel",
    "FusedAddRMSNormShortRowsKernel",
]


class FusedAddRMSNormRows(RowKernel, FusedAddRMSNormFwdInterface):
    """What the kernels below have in common."""

    recipe = FUSED_ADD_RMS_NORM

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalize the rows of *x*; see the interface."""
        n = self.n
        rows = as_rows(x, n)
        out, total = torch.empty_like(rows), torch.empty_like(rows)
        if x.numel():
            self.launch(rows, as_rows(residual, n), as_row(weight, n), out, total)
        return (out, total) if rows is x else (out.view_as(x), total.view_as(x))


class FusedAddRMSNormKernel(TiledRows, FusedAddRMSNormRows):
    """Addition of a residual and RMS normalization of rows of any length."""


class FusedAddRMSNormHeldRowsKernel(HeldRows, FusedAddRMSNormRows):
    """Addition of a residual and RMS normalization of rows that a block holds."""


class FusedAddRMSNormShortRowsKernel(ShortRows, FusedAddRMSNormRows):
    """Addition of a residual and RMS normalization of rows that a warp holds."""

    preferred_over = frozenset({"fused_add_rms_norm_held_rows"})


class FusedAddRMSNormCutRowsKernel(CutRows, FusedAddRMSNormRows):
    """Addition of a residual and RMS normalization of long rows, or of few."""

    preferred_over = frozenset({"fused_add_rms_norm_held_rows"})
