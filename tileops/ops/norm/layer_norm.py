"""Layer normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.call_spec import LayerNormFwdInterface
from tileops.kernels.norm.layer_norm import (
    LayerNormCutRowsKernel,
    LayerNormHeldRowsKernel,
    LayerNormKernel,
    LayerNormRingRowsKernel,
    LayerNormShortRowsKernel,
)
from tileops.ops.filled import filled
from tileops.ops.norm.rows import RowNorm
from tileops.ops.op_base import Op

__all__ = ["LayerNormFwdOp"]


class LayerNormFwdOp(RowNorm, Op):
    """Layer normalization over trailing axes: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    It computes what :func:`torch.nn.functional.layer_norm` does. Forward only: kernels record no gradient.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size. ``None`` normalizes
            over the trailing axes that the weight has.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "layer_norm": LayerNormKernel,
        "layer_norm_ring_rows": LayerNormRingRowsKernel,
        "layer_norm_short_rows": LayerNormShortRowsKernel,
        "layer_norm_held_rows": LayerNormHeldRowsKernel,
        "layer_norm_cut_rows": LayerNormCutRowsKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"layer_norm": LayerNormFwdInterface}

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Normalize the trailing axes of *x*; nothing is written in place.

        Args:
            x: float32, float16 or bfloat16, whose trailing axes are the normalized shape.
            weight: Scale of the normalized shape, with the dtype and device of *x*; ``None`` for ones.
            bias: Shift, likewise; ``None`` for zeros.

        Returns:
            A contiguous tensor with the shape, dtype and device of *x*. Where *x* has no element it is empty,
            and no kernel is chosen.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        call = self._call(x, self.normalized_shape or self._shape_of(weight), weight, bias)
        if call is None:
            return self.empty_result(x)
        kernel = self.kernel_for("layer_norm", call)
        scale = filled(1.0, call.n, x) if weight is None else weight.contiguous()
        shift = filled(0.0, call.n, x) if bias is None else bias.contiguous()
        result: torch.Tensor = kernel(x.contiguous(), scale, shift)
        return result
