"""Call specs and interfaces of the normalization kernels."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Annotated, Final

import torch
from tileops_rules import OneOf

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import KernelInterface

__all__ = ["ARCHS", "MAX_ROW", "MIN_ROW", "LayerNormCall", "LayerNormFwdInterface", "row_refusal"]

ARCHS: Final = (80, 86, 89, 90)
"""The architectures that row normalization is built for."""
MIN_ROW: Final = 1
"""Fewest elements of a row: the mean of none is undefined."""
MAX_ROW: Final = 2**28
"""Most elements of a row. Statistics of longer ones lose digits: at 2**30 a result was 1.4 times as far from float64
as tests allow (H200, 2026-11-29)."""


def row_refusal(n: int) -> str | None:
    """Why rows of *n* elements are normalized by no kernel, or ``None``."""
    return None if MIN_ROW <= n <= MAX_ROW else f"n {n} is not from {MIN_ROW} to {MAX_ROW}"


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

    @classmethod
    def unserved(cls, call: LayerNormCall) -> str | None:
        """On CUDA devices: architectures that nothing is built for, and rows without a mean or too long to count."""
        if call.arch is None:
            return None
        if call.arch not in ARCHS:
            return f"nothing is built for sm_{call.arch}, only for sm_{', sm_'.join(map(str, ARCHS))}"
        return row_refusal(call.n)

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
