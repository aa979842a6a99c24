"""Call specs and interfaces of the normalization kernels."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Annotated, ClassVar, Final

import torch
from tileops_rules import OneOf

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import KernelInterface
from tileops.kernels.norm.limits import (
    channel_refusal,
    instance_refusal,
    running_refusal,
)

__all__ = [
    "ARCHS",
    "FEW_ROWS",
    "MAX_ROW",
    "MIN_ROW",
    "NORM_DTYPES",
    "AdaLayerNormFwdInterface",
    "AdaLayerNormZeroFwdInterface",
    "BatchNormBwdInterface",
    "BatchNormCall",
    "BatchNormInferFwdInterface",
    "BatchNormTrainFwdInterface",
    "ChannelNorm",
    "FusedAddLayerNormFwdInterface",
    "FusedAddRMSNormFwdInterface",
    "InstanceNormFwdInterface",
    "InstanceNormInferFwdInterface",
    "InstanceNormTrainFwdInterface",
    "LayerNormCall",
    "LayerNormFwdInterface",
    "RMSNormFwdInterface",
    "RowNormFwdInterface",
    "RunningNorm",
    "row_refusal",
]

ARCHS: Final = (80, 86, 89, 90)
"""The architectures that row normalization is built for."""
NORM_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
"""What inputs and results of the normalizations may be."""
MIN_ROW: Final = 1
"""Fewest elements of a row: the mean of none is undefined."""
MAX_ROW: Final = 2**28
"""Most elements of a row. Statistics of longer ones lose digits: at 2**30 a result was 1.4 times as far from float64
as tests allow (H200, 2026-11-29)."""
FEW_ROWS: Final = 16
"""Most rows that count as few: with a block to a row they leave most multiprocessors of a card idle."""


def row_refusal(n: int) -> str | None:
    """Why rows of *n* elements are normalized by no kernel, or ``None``."""
    return None if MIN_ROW <= n <= MAX_ROW else f"n {n} is not from {MIN_ROW} to {MAX_ROW}"


@dataclasses.dataclass(frozen=True)
class LayerNormCall(CallSpec):
    """The facts by which a kernel that normalizes trailing rows is chosen and built.

    Layer, RMS, fused-add and adaptive layer normalization take it.

    Attributes:
        n: Elements of a row: the product of the trailing axes that are normalized.
        eps: Added to the variance, or to the mean square, before the square root.
        dtype: Of every tensor.
        few_rows: Whether there are at most ``FEW_ROWS`` rows. It speaks of speed alone: whatever it says, a kernel
            takes any number of rows.
    """

    n: int = 0
    eps: float = 1e-5
    dtype: Annotated[torch.dtype, OneOf(*NORM_DTYPES)] = torch.float16
    few_rows: bool = False

    def invalid(self) -> str | None:
        """What no op asks for: a row of fewer than no elements."""
        if self.n < 0:
            return f"n {self.n} is negative"
        return None


class RowNormFwdInterface(KernelInterface):
    """What the interfaces that normalize trailing rows have in common; no kernel implements it by itself.

    In each of them every tensor is contiguous on ``call.device`` and in ``call.dtype``, nothing is written in place,
    and the results are new tensors. Sums are float32 or wider. Where the squares of a row's elements, or of their
    distances from one of them, overflow float32 or do so in sum, what is normalized of that row is undefined.
    """

    request = LayerNormCall

    @classmethod
    def unserved(cls, call: LayerNormCall) -> str | None:
        """On CUDA devices: architectures that nothing is built for, and rows without a mean or too long to count."""
        if call.arch is None:
            return None
        if call.arch not in ARCHS:
            return f"nothing is built for sm_{call.arch}, only for sm_{', sm_'.join(map(str, ARCHS))}"
        return row_refusal(call.n)


class LayerNormFwdInterface(RowNormFwdInterface):
    """Layer normalization over the trailing ``call.n`` elements."""

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


class RMSNormFwdInterface(RowNormFwdInterface):
    """Root mean square normalization over the trailing ``call.n`` elements."""

    @abstractmethod
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Divide each run of ``call.n`` trailing elements by the root of its mean square.

        The result is ``x / sqrt(mean(x * x) + eps) * weight``, rounded once. The mean is computed in float32 or
        wider. A NaN in a row makes the whole row NaN. An infinity becomes NaN and the other elements of its row
        zero of their sign, before they meet the weight.
        Every tensor is contiguous on ``call.device``; nothing is written in place.

        Args:
            x: Any shape whose trailing axes hold ``call.n`` elements, in ``call.dtype``. It may hold no row.
            weight: ``call.n`` elements of scale, in ``call.dtype``, of any shape.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """


class FusedAddLayerNormFwdInterface(RowNormFwdInterface):
    """Addition of a residual, and layer normalization of the sum over the trailing ``call.n`` elements."""

    @abstractmethod
    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add, and normalize each run of ``call.n`` trailing elements of the sum.

        The sum is rounded to ``call.dtype`` first; what is normalized is the rounded sum, as
        :class:`LayerNormFwdInterface` has it: the results are those of the two steps one after the other.
        A sum that overflows ``call.dtype`` is an infinity, which makes its row of the first result NaN.
        Every tensor is contiguous on ``call.device``; nothing is written in place.

        Args:
            x: Any shape whose trailing axes hold ``call.n`` elements, in ``call.dtype``. It may hold no row.
            residual: What is added: shape and dtype of *x*. It may be *x* itself.
            weight: ``call.n`` elements of scale, in ``call.dtype``, of any shape.
            bias: ``call.n`` elements of shift, in ``call.dtype``, of any shape.

        Returns:
            The normalized sum and the sum: two new tensors shaped like *x*, in ``call.dtype``.
        """


class FusedAddRMSNormFwdInterface(RowNormFwdInterface):
    """Addition of a residual, and RMS normalization of the sum over the trailing ``call.n`` elements."""

    @abstractmethod
    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add, and divide each run of ``call.n`` trailing elements of the sum by the root of its mean square.

        The sum is rounded to ``call.dtype`` first; what is normalized is the rounded sum, as
        :class:`RMSNormFwdInterface` has it: the results are those of the two steps one after the other.
        Every tensor is contiguous on ``call.device``; nothing is written in place.

        Args:
            x: Any shape whose trailing axes hold ``call.n`` elements, in ``call.dtype``. It may hold no row.
            residual: What is added: shape and dtype of *x*. It may be *x* itself.
            weight: ``call.n`` elements of scale, in ``call.dtype``, of any shape.

        Returns:
            The normalized sum and the sum: two new tensors shaped like *x*, in ``call.dtype``.
        """


class AdaLayerNormFwdInterface(RowNormFwdInterface):
    """Layer normalization over the trailing ``call.n`` elements, each element scaled and shifted by its own."""

    @abstractmethod
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """Normalize each run of ``call.n`` trailing elements, then modulate.

        The result is ``(x - mean) / sqrt(var + eps) * (1 + scale) + shift``, rounded once, ``var`` being the biased
        variance. Mean and variance are as :class:`LayerNormFwdInterface` has them.
        A NaN or an infinity in a row of *x* makes the whole row NaN; one in *scale* or *shift* reaches its own
        element alone.
        Every tensor is contiguous on ``call.device``; nothing is written in place.

        Args:
            x: Any shape whose trailing axes hold ``call.n`` elements, in ``call.dtype``. It may hold no row.
            scale: Shape and dtype of *x*.
            shift: Shape and dtype of *x*.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """


class AdaLayerNormZeroFwdInterface(RowNormFwdInterface):
    """Adaptive layer normalization over the trailing ``call.n`` elements, with a gate for each element."""

    @abstractmethod
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Normalize each run of ``call.n`` trailing elements, modulate, then gate.

        The result is ``((x - mean) / sqrt(var + eps) * (1 + scale) + shift) * gate``, rounded once, ``var`` being
        the biased variance. Mean and variance are as :class:`LayerNormFwdInterface` has them.
        A NaN or an infinity in a row of *x* makes the whole row NaN, under a gate of zero too; one in another
        tensor reaches its own element alone.
        Every tensor is contiguous on ``call.device``; nothing is written in place.

        Args:
            x: Any shape whose trailing axes hold ``call.n`` elements, in ``call.dtype``. It may hold no row.
            scale: Shape and dtype of *x*.
            shift: Shape and dtype of *x*.
            gate: Shape and dtype of *x*.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """


@dataclasses.dataclass(frozen=True)
class BatchNormCall(CallSpec):
    """The facts by which a kernel that normalizes channels of ``(n, c, *spatial)`` is chosen and built.

    Batch and instance normalization take it, forward and backward.

    Attributes:
        n: Samples.
        c: Channels.
        spatial: Values of one channel of one sample: the product of the trailing axes, 1 where there is none.
        eps: Added to the variance before the square root.
        dtype: Of input, output and the gradients of both.
        momentum: Share of the new statistics in the running ones.
        weight_dtype: Of weight and bias and of their gradients: float32 or ``dtype``.
        running_dtype: Of the running statistics: float32 or ``dtype``; ``None`` where there are none.
    """

    n: int = 0
    c: int = 0
    spatial: int = 1
    eps: float = 1e-5
    dtype: Annotated[torch.dtype, OneOf(*NORM_DTYPES)] = torch.float16
    momentum: float = 0.1
    weight_dtype: Annotated[torch.dtype, OneOf(*NORM_DTYPES)] = torch.float32
    running_dtype: Annotated[torch.dtype | None, OneOf(None, *NORM_DTYPES)] = None

    @property
    def values(self) -> int:
        """Values of a channel over all samples."""
        return self.n * self.spatial

    @property
    def instances(self) -> int:
        """Channels of all samples, each by itself."""
        return self.n * self.c

    def invalid(self) -> str | None:
        """What no op asks for: negative extents, and parameters of a dtype that is neither float32 nor the input's."""
        if self.n < 0 or self.c < 0 or self.spatial < 0:
            return f"n {self.n}, c {self.c} or spatial {self.spatial} is negative"
        if self.weight_dtype not in (torch.float32, self.dtype):
            return f"weight_dtype is {self.weight_dtype}, neither torch.float32 nor {self.dtype}"
        if self.running_dtype not in (None, torch.float32, self.dtype):
            return f"running_dtype is {self.running_dtype}, neither torch.float32 nor {self.dtype}"
        return None


class ChannelNorm:
    """What the interfaces that normalize channels have in common.

    In each of them every tensor is contiguous on ``call.device``. The input has the shape ``(n, c, *spatial)`` of the
    call and is read as it lies. Nothing is written in place but the running statistics, and these by training alone.
    Arithmetic is float32 or wider. A NaN or an infinity among the values of a set of statistics makes its results and
    its statistics NaN or infinite, and touches no other set. Where distances from one value of a set overflow float32,
    or their squares do so in sum, its results are undefined.
    """

    request: ClassVar[type[CallSpec]] = BatchNormCall

    @staticmethod
    @abstractmethod
    def extents_refusal(call: BatchNormCall) -> str | None:
        """Why no kernel counts extents like those of *call*, or ``None``."""

    @classmethod
    def unserved(cls, call: BatchNormCall) -> str | None:
        """On CUDA devices: architectures that nothing is built for, and extents that no kernel counts."""
        if call.arch is None:
            return None
        if call.arch not in ARCHS:
            return f"nothing is built for sm_{call.arch}, only for sm_{', sm_'.join(map(str, ARCHS))}"
        return cls.extents_refusal(call)


class RunningNorm(ChannelNorm):
    """What the interfaces that normalize channels by running statistics have in common."""

    extents_refusal = staticmethod(running_refusal)

    @classmethod
    def unserved(cls, call: BatchNormCall) -> str | None:
        """On every device: calls without running statistics."""
        return running_refusal(call) if call.running_dtype is None else super().unserved(call)


class BatchNormTrainFwdInterface(ChannelNorm, KernelInterface):
    """Batch normalization by the statistics of the batch."""

    extents_refusal = staticmethod(channel_refusal)

    @abstractmethod
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalize each channel by its own mean and biased variance.

        The result is ``(x - mean) / sqrt(var + eps) * weight + bias``; it stays accurate where the mean is large beside
        the deviation. Where ``var + eps`` is 0 the result is *bias*. Each running statistic becomes
        ``(1 - momentum) * running + momentum * new``, the new variance being the unbiased one: NaN for channels of one
        value.

        Args:
            x: Shape ``(n, c, *spatial)``, in ``call.dtype``.
            weight: ``c`` elements of scale, in ``call.weight_dtype``.
            bias: ``c`` elements of shift, in ``call.weight_dtype``.
            running_mean: ``c`` elements in ``call.running_dtype``, written in place; None where that is None.
            running_var: Likewise.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``; the mean and ``1 / sqrt(var + eps)`` of each channel, new
            float32 tensors of ``c`` elements.
        """


class BatchNormInferFwdInterface(RunningNorm, KernelInterface):
    """Batch normalization by running statistics."""

    @abstractmethod
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
    ) -> torch.Tensor:
        """Normalize each channel by the statistics that are given; nothing is written in place.

        The result is ``(x - running_mean) / sqrt(running_var + eps) * weight + bias``.

        Args:
            x: Shape ``(n, c, *spatial)``, in ``call.dtype``.
            weight: ``c`` elements of scale, in ``call.weight_dtype``.
            bias: ``c`` elements of shift, in ``call.weight_dtype``.
            running_mean: ``c`` elements, in ``call.running_dtype``, which is not None.
            running_var: Likewise.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """


class BatchNormBwdInterface(ChannelNorm, KernelInterface):
    """The gradients of batch normalization by the statistics of the batch."""

    extents_refusal = staticmethod(channel_refusal)

    @abstractmethod
    def forward(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the gradients of input, weight and bias; nothing is written in place.

        Args:
            grad: Gradient of the result: shape ``(n, c, *spatial)``, in ``call.dtype``.
            x: The input: shape ``(n, c, *spatial)``, in ``call.dtype``.
            weight: ``c`` elements of scale, in ``call.weight_dtype``.
            mean: The mean of each channel, as training returned it: ``c`` elements, float32.
            rstd: Its ``1 / sqrt(var + eps)``, likewise.

        Returns:
            The gradient of *x*, shaped like it, in ``call.dtype``; those of weight and bias, ``c`` elements in
            ``call.weight_dtype``. All are new tensors.
        """


class InstanceNormFwdInterface(ChannelNorm, KernelInterface):
    """Instance normalization by the statistics of each channel of each sample."""

    extents_refusal = staticmethod(instance_refusal)

    @abstractmethod
    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize each channel of each sample by its own mean and biased variance.

        The result is as :class:`BatchNormTrainFwdInterface` has it for a batch of that one sample.

        Args:
            x: Shape ``(n, c, *spatial)``, in ``call.dtype``.
            weight: ``c`` elements of scale, in ``call.weight_dtype``.
            bias: ``c`` elements of shift, in ``call.weight_dtype``.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """


class InstanceNormTrainFwdInterface(ChannelNorm, KernelInterface):
    """Instance normalization by the statistics of each channel of each sample, which running ones follow."""

    extents_refusal = staticmethod(instance_refusal)

    @abstractmethod
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
    ) -> torch.Tensor:
        """Normalize as :class:`InstanceNormFwdInterface` has it, and move the running statistics.

        Each of them becomes ``(1 - momentum) * running + momentum * new``, where the new mean and the new unbiased
        variance of a channel are averages over the samples: NaN for planes of one value.

        Args:
            x: Shape ``(n, c, *spatial)``, in ``call.dtype``.
            weight: ``c`` elements of scale, in ``call.weight_dtype``.
            bias: ``c`` elements of shift, in ``call.weight_dtype``.
            running_mean: ``c`` elements in ``call.running_dtype``, written in place; None where that is None.
            running_var: Likewise.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """


class InstanceNormInferFwdInterface(RunningNorm, KernelInterface):
    """Instance normalization by running statistics: batch normalization by them."""

    @abstractmethod
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
    ) -> torch.Tensor:
        """Normalize each channel by the statistics that are given, as :class:`BatchNormInferFwdInterface` has it.

        Args:
            x: Shape ``(n, c, *spatial)``, in ``call.dtype``.
            weight: ``c`` elements of scale, in ``call.weight_dtype``.
            bias: ``c`` elements of shift, in ``call.weight_dtype``.
            running_mean: ``c`` elements, in ``call.running_dtype``, which is not None.
            running_var: Likewise.

        Returns:
            A new tensor shaped like *x*, in ``call.dtype``.
        """
