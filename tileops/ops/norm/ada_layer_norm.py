"""Adaptive layer normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.ada_layer_norm import (
    AdaLayerNormCutRowsKernel,
    AdaLayerNormHeldRowsKernel,
    AdaLayerNormKernel,
    AdaLayerNormShortRowsKernel,
)
from tileops.kernels.norm.call_spec import AdaLayerNormFwdInterface
from tileops.ops.norm.rows import RowNorm
from tileops.ops.op_base import Op

__all__ = ["AdaLayerNormFwdOp"]


class AdaLayerNormFwdOp(RowNorm, Op):
    """Adaptive layer normalization over trailing axes: ``(x - mean) / sqrt(var + eps) * (1 + scale) + shift``.

    Scale and shift are computed from what the input is conditioned on (Peebles and Xie, 2023). Forward only: kernels
    record no gradient.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size. ``None`` normalizes over the
            last axis.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "ada_layer_norm": AdaLayerNormKernel,
        "ada_layer_norm_short_rows": AdaLayerNormShortRowsKernel,
        "ada_layer_norm_held_rows": AdaLayerNormHeldRowsKernel,
        "ada_layer_norm_cut_rows": AdaLayerNormCutRowsKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"ada_layer_norm": AdaLayerNormFwdInterface}

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """Normalize the trailing axes of *x* and modulate; nothing is written in place.

        Args:
            x: float32, float16 or bfloat16, whose trailing axes are the normalized shape.
            scale: What 1 is added to, with the dtype and device of *x*, and its shape or one that broadcasts to it:
                broadcasting costs a copy of the size of *x* at each call.
            shift: What is added, likewise.

        Returns:
            A contiguous tensor with the shape, dtype and device of *x*. Where *x* has no element it is empty,
            and no kernel is chosen.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        call = self._call(x, self.normalized_shape or self._last_axis(x))
        scale, shift = self._modulation("scale", scale, x), self._modulation("shift", shift, x)
        if call is None:
            return self.empty_result(x)
        kernel = self.kernel_for("ada_layer_norm", call)
        result: torch.Tensor = kernel(x.contiguous(), scale.contiguous(), shift.contiguous())
        return result
