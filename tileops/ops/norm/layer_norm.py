"""Layer normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.call_spec import LayerNormCall, LayerNormFwdInterface
from tileops.kernels.norm.layer_norm import LayerNormKernel
from tileops.ops.filled import filled
from tileops.ops.inputs import InputError, require_alike, require_tensor
from tileops.ops.op_base import Op

__all__ = ["LayerNormFwdOp"]


class LayerNormFwdOp(Op):
    """Layer normalization over trailing axes: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Forward only: kernels record no gradient.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size. ``None`` normalizes
            over the trailing axes that the weight has.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {"layer_norm": LayerNormKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"layer_norm": LayerNormFwdInterface}

    def __init__(self, normalized_shape: int | Sequence[int] | None = None, eps: float = 1e-5) -> None:
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = None if normalized_shape is None else tuple(normalized_shape)
        if self.normalized_shape is not None and (not self.normalized_shape or min(self.normalized_shape) < 0):
            raise ValueError(
                f"LayerNormFwdOp: normalized_shape is {self.normalized_shape}: name the sizes of one or more "
                f"trailing axes, or None for those of the weight"
            )
        self.eps = float(eps)
        if not 0.0 <= self.eps < math.inf:
            raise ValueError(f"LayerNormFwdOp: eps is {eps}: pass a finite number from 0 up")

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
        require_tensor(self, "x", x)
        shape = self._shape(x, weight)
        for name, tensor in (("weight", weight), ("bias", bias)):
            if tensor is not None:
                require_tensor(self, name, tensor)
                require_alike(self, name, tensor, "x", x)
                if tensor.shape != shape:
                    message = f"has shape {tuple(tensor.shape)}, not the normalized shape {shape}"
                    raise InputError(self, name, message, found=tuple(tensor.shape), expected=shape)
        if x.numel() == 0:
            return self.empty_result(x)
        n = math.prod(shape)
        kernel = self.kernel_for("layer_norm", LayerNormCall(n, self.eps, x.dtype, device=x.device))
        scale = filled(1.0, n, x) if weight is None else weight.contiguous()
        shift = filled(0.0, n, x) if bias is None else bias.contiguous()
        result: torch.Tensor = kernel(x.contiguous(), scale, shift)
        return result

    def empty_result(
        self, x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """A contiguous tensor with the shape, dtype and device of *x*, not filled."""
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def _shape(self, x: torch.Tensor, weight: object) -> tuple[int, ...]:
        """The sizes of the axes to normalize, which *x* ends in."""
        shape = self.normalized_shape
        if shape is None:
            if weight is None:
                raise InputError(
                    self,
                    "weight",
                    "is None and so is normalized_shape: pass a weight, or construct the op with the shape",
                )
            require_tensor(self, "weight", weight)
            shape = tuple(weight.shape)  # type: ignore[attr-defined]
            if not shape:
                raise InputError(self, "weight", "has no axis: its axes are those to normalize", found=())
        if x.dim() < len(shape) or tuple(x.shape[-len(shape) :]) != shape:
            message = f"has shape {tuple(x.shape)}, which does not end in the normalized shape {shape}"
            raise InputError(self, "x", message, found=tuple(x.shape), expected=shape)
        return shape
