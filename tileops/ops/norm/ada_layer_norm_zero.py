"""Adaptive layer normalization with a gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.ada_layer_norm_zero import (
    AdaLayerNormZeroCutRowsKernel,
    AdaLayerNormZeroHeldRowsKernel,
    AdaLayerNormZeroKernel,
    AdaLayerNormZeroShortRowsKernel,
)
from tileops.kernels.norm.call_spec import AdaLayerNormZeroFwdInterface
from tileops.ops.norm.rows import RowNorm
from tileops.ops.op_base import Op

__all__ = ["AdaLayerNormZeroFwdOp"]


class AdaLayerNormZeroFwdOp(RowNorm, Op):
    """Adaptive layer normalization with a gate: ``((x - mean) / sqrt(var + eps) * (1 + scale) + shift) * gate``.

    Scale, shift and gate are computed from what the input is conditioned on; a gate of zeros is what training begins
    with (Peebles and Xie, 2023). Forward only: kernels record no gradient.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size. ``None`` normalizes over the
            last axis.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "ada_layer_norm_zero": AdaLayerNormZeroKernel,
        "ada_layer_norm_zero_short_rows": AdaLayerNormZeroShortRowsKernel,
        "ada_layer_norm_zero_held_rows": AdaLayerNormZeroHeldRowsKernel,
        "ada_layer_norm_zero_cut_rows": AdaLayerNormZeroCutRowsKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"ada_layer_norm_zero": AdaLayerNormZeroFwdInterface}

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Normalize the trailing axes of *x*, modulate and gate; nothing is written in place.

        Args:
            x: float32, float16 or bfloat16, whose trailing axes are the normalized shape.
            scale: What 1 is added to, with the dtype and device of *x*, and its shape or one that broadcasts to it:
                broadcasting costs a copy of the size of *x* at each call.
            shift: What is added, likewise.
            gate: What the sum is multiplied by, likewise.

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
        gate = self._modulation("gate", gate, x)
        if call is None:
            return self.empty_result(x)
        kernel = self.kernel_for("ada_layer_norm_zero", call)
        result: torch.Tensor = kernel(x.contiguous(), scale.contiguous(), shift.contiguous(), gate.contiguous())
        return result
