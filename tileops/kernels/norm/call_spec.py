"""Call specs and interfaces of the normalization kernels."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Annotated

import torch
from tileops_rules import OneOf

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import KernelInterface

__all__ = ["LayerNormCall", "LayerNormFwdInterface"]


@dataclasses.dataclass(frozen=True)
class LayerNormCall(CallSpec):
    """The facts by which a kernel that normalizes trailing rows is chosen and built.

    Attributes:
        n: Elements of a row: the product of the trailing axes that are normalized.
        eps: Added to the variance before the square root.
        dtype: Of input, weight, bias and output.
    """

    n: int = 0
    eps: float = 1e-5
    dtype: Annotated[torch.dtype, OneOf(torch.float32, torch.float16, torch.bfloat16)] = torch.float16

    def invalid(self) -> str | None:
        """What no op asks for: a row of fewer than no elements."""
        if self.n < 0:
            return f"n {self.n} is negative"
        return None


class LayerNormFwdInterface(KernelInterface):
    """Layer normalization over the trailing ``call.n`` elements."""

    request = LayerNormCall

    @abstractmethod
    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize each run of ``call.n`` trailing elements.

        The result is ``(x - mean) / sqrt(var + eps) * weight + bias``, ``var`` being the biased variance.
        Mean and variance are computed in float32 or wider, and stay accurate where the mean is large beside
        the deviation. A NaN or an infinity in a row makes the whole row NaN.
        Every tensor is contiguous on ``call.device``; nothing is written in place.

        Args:
            x: Any shape whose trailing axes hold ``call.n`` elements, in ``call.dtype``. It may hold no row.
            weight: ``call.n`` elements of scale, in ``call.dtype``, of any shape.
            bias: ``call.n`` elements of shift, in ``call.dtype``, of any shape.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """
