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
        n = self.n
        # Asked of both at once: a call for each costs as much as an answer.
        if (x.data_ptr() | weight.data_ptr()) % ALIGNMENT_BYTES or weight.ndim != 1:
            weight, rows = as_row(weight, n), as_rows(x, n)
        elif x.ndim == 3 and x.shape[2] == n and (launch := self.launch_planes or self._build_planes()) is not None:
            out = torch.empty_like(x)
            if x.numel():
                launch(x, weight, out)
            return out
        else:
            rows = x if x.ndim == 2 and x.shape[1] == n else x.view(-1, n)
        out = torch.empty_like(x)
        if x.numel():
            self.launch(rows, weight, out if rows is x else out.view(-1, n))
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
