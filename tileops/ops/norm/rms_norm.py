"""Root mean square normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.call_spec import RMSNormFwdInterface
from tileops.kernels.norm.rms_norm import (
    RMSNormCutRowsKernel,
    RMSNormHeldRowsKernel,
    RMSNormKernel,
    RMSNormRingRowsKernel,
    RMSNormShortRowsKernel,
)
from tileops.ops.filled import filled
from tileops.ops.norm.rows import RMS_EPS, RowNorm
from tileops.ops.op_base import Op

__all__ = ["RMSNormFwdOp"]


class RMSNormFwdOp(RowNorm, Op):
    """Root mean square normalization over trailing axes: ``x / sqrt(mean(x * x) + eps) * weight``.

    It computes what :func:`torch.nn.functional.rms_norm` does. Forward only: kernels record no gradient.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size. ``None`` normalizes
            over the trailing axes that the weight has.
        eps: Added to the mean square; finite, from 0 up. ``None`` for :data:`~tileops.ops.norm.rows.RMS_EPS`.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "rms_norm": RMSNormKernel,
        "rms_norm_ring_rows": RMSNormRingRowsKernel,
        "rms_norm_short_rows": RMSNormShortRowsKernel,
        "rms_norm_held_rows": RMSNormHeldRowsKernel,
        "rms_norm_cut_rows": RMSNormCutRowsKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"rms_norm": RMSNormFwdInterface}

    def __init__(self, normalized_shape: int | Sequence[int] | None = None, eps: float | None = None) -> None:
        super().__init__(normalized_shape, RMS_EPS if eps is None else eps)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize the trailing axes of *x*; nothing is written in place.

        Args:
            x: float32, float16 or bfloat16, whose trailing axes are the normalized shape.
            weight: Scale of the normalized shape, with the dtype and device of *x*; ``None`` for ones.

        Returns:
            A contiguous tensor with the shape, dtype and device of *x*. Where *x* has no element it is empty,
            and no kernel is chosen.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        call = self._call(x, self.normalized_shape or self._shape_of(weight), weight)
        if call is None:
            return self.empty_result(x)
        kernel = self.kernel_for("rms_norm", call)
        scale = filled(1.0, call.n, x) if weight is None else weight.contiguous()
        result: torch.Tensor = kernel(x.contiguous(), scale)
        return result
