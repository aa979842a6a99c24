"""Layer normalization of a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.call_spec import FusedAddLayerNormFwdInterface
from tileops.kernels.norm.fused_add_layer_norm import (
    FusedAddLayerNormCutRowsKernel,
    FusedAddLayerNormHeldRowsKernel,
    FusedAddLayerNormKernel,
    FusedAddLayerNormShortRowsKernel,
)
from tileops.ops.filled import filled
from tileops.ops.norm.rows import SummedRowNorm
from tileops.ops.op_base import Op

__all__ = ["FusedAddLayerNormFwdOp"]


class FusedAddLayerNormFwdOp(SummedRowNorm, Op):
    """Layer normalization of ``x + residual`` over trailing axes; the sum is a second result.

    The results are those of the addition, rounded to the dtype, and of
    :class:`~tileops.ops.LayerNormFwdOp` on it. Forward only: kernels record no gradient.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size. ``None`` normalizes
            over the trailing axes that the weight has.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "fused_add_layer_norm": FusedAddLayerNormKernel,
        "fused_add_layer_norm_short_rows": FusedAddLayerNormShortRowsKernel,
        "fused_add_layer_norm_held_rows": FusedAddLayerNormHeldRowsKernel,
        "fused_add_layer_norm_cut_rows": FusedAddLayerNormCutRowsKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"fused_add_layer_norm": FusedAddLayerNormFwdInterface}

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add, and normalize the trailing axes of the sum; nothing is written in place.

        Args:
            x: float32, float16 or bfloat16, whose trailing axes are the normalized shape.
            residual: What is added, with the shape, dtype and device of *x*.
            weight: Scale of the normalized shape, with the dtype and device of *x*; ``None`` for ones.
            bias: Shift, likewise; ``None`` for zeros.

        Returns:
            The normalized sum and the sum, contiguous tensors with the shape, dtype and device of *x*. Where *x*
            has no element they are empty, and no kernel is chosen.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        call = self._call(x, self.normalized_shape or self._shape_of(weight), weight, bias)
        self._check_residual(residual, x)
        if call is None:
            return self.empty_result(x)
        kernel = self.kernel_for("fused_add_layer_norm", call)
        scale = filled(1.0, call.n, x) if weight is None else weight.contiguous()
        shift = filled(0.0, call.n, x) if bias is None else bias.contiguous()
        result: tuple[torch.Tensor, torch.Tensor] = kernel(x.contiguous(), residual.contiguous(), scale, shift)
        return result
