"""Root mean square normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.norm.call_spec import RMSNormFwdInterface
from tileops.kernels.norm.row_recipes import RMS_NORM
from tileops.kernels.norm.rows import CutRows, HeldRows, RingRows, RowKernel, ShortRows, TiledRows, as_row, as_rows
from tileops.kernels.tilelang_build import ALIGNMENT_BYTES

__all__ = [
    "RMSNormCutRowsKernel",
    "RMSNormHeldRowsKernel",
    "RMSNormKernel",
    "RMSNormRingRowsKernel",
    "RMSNormShortRowsKernel",
]


class RMSNormRows(RowKernel, RMSNormFwdInterface):
    """What the kernels below have in common."""

    recipe = RMS_NORM

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of *x*; see the interface."""
        n, rows, launch = self.n, x, self.launch
        # Asked of both at once: a call for each costs as much as an answer.
        if (x.data_ptr() | weight.data_ptr()) % ALIGNMENT_BYTES or weight.ndim != 1:
            weight, rows = as_row(weight, n), as_rows(x, n)
        elif x.ndim == 3 and x.shape[2] == n and (planes := self.launch_planes or self._build_planes()) is not None:
            launch = planes
        elif x.ndim != 2 or x.shape[1] != n:
            rows = x.view(-1, n)
        out = torch.empty_like(x)
        if x.numel():
            launch(rows, weight, out if rows is x else out.view(-1, n))
        return out


class RMSNormKernel(TiledRows, RMSNormRows):
    """Root mean square normalization of rows of any length."""


class RMSNormHeldRowsKernel(HeldRows, RMSNormRows):
    """Root mean square normalization of rows that a block holds."""


class RMSNormRingRowsKernel(RingRows, RMSNormRows):
    """Root mean square normalization of many rows, a warp each."""

    preferred_over = frozenset({"rms_norm_held_rows"})


class RMSNormShortRowsKernel(ShortRows, RMSNormRows):
    """Root mean square normalization of rows that a warp holds."""

    preferred_over = frozenset({"rms_norm_ring_rows"})


class RMSNormCutRowsKernel(CutRows, RMSNormRows):
    """Root mean square normalization of long rows, or of few."""

    preferred_over = frozenset({"rms_norm_held_rows"})
