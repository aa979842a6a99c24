"""Reference normalization of trailing rows."""

from __future__ import annotations

import torch

from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.norm.call_spec import (
    AdaLayerNormFwdInterface,
    AdaLayerNormZeroFwdInterface,
    FusedAddLayerNormFwdInterface,
    FusedAddRMSNormFwdInterface,
    LayerNormCall,
    LayerNormFwdInterface,
    RMSNormFwdInterface,
)

__all__ = [
    "AdaLayerNormReferenceKernel",
    "AdaLayerNormZeroReferenceKernel",
    "FusedAddLayerNormReferenceKernel",
    "FusedAddRMSNormReferenceKernel",
    "LayerNormReferenceKernel",
    "RMSNormReferenceKernel",
    "RowNormReferenceKernel",
    "ada_layer_norm",
    "ada_layer_norm_zero",
    "fused_add_layer_norm",
    "fused_add_rms_norm",
    "layer_norm",
    "rms_norm",
]


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, n: int, eps: float) -> torch.Tensor:
    """Layer normalization of runs of *n* trailing elements, computed and returned in float64.

    Args:
        x: Any shape whose trailing axes hold *n* elements; any dtype and device.
        weight: *n* elements.
        bias: *n* elements.
        n: Elements of a row.
        eps: Added to the variance.

    Returns:
        A float64 tensor shaped like *x*.
    """
    return (_standardized(x, n, eps) * _row(weight, n) + _row(bias, n)).reshape(x.shape)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, n: int, eps: float) -> torch.Tensor:
    """Root mean square normalization of runs of *n* trailing elements, computed and returned in float64.

    Args:
        x: Any shape whose trailing axes hold *n* elements; any dtype and device.
        weight: *n* elements.
        n: Elements of a row.
        eps: Added to the mean square.

    Returns:
        A float64 tensor shaped like *x*.
    """
    rows = _rows(x, n)
    scaled = rows / torch.sqrt(rows.square().mean(dim=1, keepdim=True) + eps)
    return (scaled * _row(weight, n)).reshape(x.shape)


def fused_add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, n: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """A sum, and its layer normalization computed in float64.

    Args:
        x: Any shape whose trailing axes hold *n* elements; any dtype and device.
        residual: What is added; shape and dtype of *x*.
        weight: *n* elements.
        bias: *n* elements.
        n: Elements of a row.
        eps: Added to the variance.

    Returns:
        The normalized sum in float64, and the sum in the dtype of *x*, rounded as torch rounds it.
    """
    total = x + residual
    return layer_norm(total, weight, bias, n, eps), total


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, n: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """A sum, and its root mean square normalization computed in float64.

    Args:
        x: Any shape whose trailing axes hold *n* elements; any dtype and device.
        residual: What is added; shape and dtype of *x*.
        weight: *n* elements.
        n: Elements of a row.
        eps: Added to the mean square.

    Returns:
        The normalized sum in float64, and the sum in the dtype of *x*, rounded as torch rounds it.
    """
    total = x + residual
    return rms_norm(total, weight, n, eps), total


def ada_layer_norm(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, n: int, eps: float) -> torch.Tensor:
    """Adaptive layer normalization of runs of *n* trailing elements, computed and returned in float64.

    Args:
        x: Any shape whose trailing axes hold *n* elements; any dtype and device.
        scale: What 1 is added to; shape of *x*.
        shift: What is added; shape of *x*.
        n: Elements of a row.
        eps: Added to the variance.

    Returns:
        A float64 tensor shaped like *x*.
    """
    return _standardized(x, n, eps).reshape(x.shape) * (1.0 + scale.double()) + shift.double()


def ada_layer_norm_zero(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, gate: torch.Tensor, n: int, eps: float
) -> torch.Tensor:
    """:func:`ada_layer_norm` multiplied by *gate*, which has the shape of *x*; in float64."""
    return ada_layer_norm(x, scale, shift, n, eps) * gate.double()


def _rows(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.double().reshape(-1, n) if n else x.double().reshape(0, 0)


def _row(values: torch.Tensor, n: int) -> torch.Tensor:
    return values.double().reshape(n)


def _standardized(x: torch.Tensor, n: int, eps: float) -> torch.Tensor:
    rows = _rows(x, n)
    centred = rows - rows.mean(dim=1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(dim=1, keepdim=True) + eps)


class RowNormReferenceKernel(Kernel):
    """What the references of row normalization hold: in float64, rounded once at the end.

    Args:
        n: Elements of a row.
        eps: Added to the variance or the mean square.
    """

    devices: frozenset[str] = frozenset({"cpu"})

    def __init__(self, n: int, eps: float) -> None:
        self.n = n
        self.eps = eps

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> Entry:
        """Row length and epsilon are held; everything else is read off the tensors."""
        identity = (call.n, call.eps)
        return identity, lambda: cls(*identity)


class LayerNormReferenceKernel(RowNormReferenceKernel, LayerNormFwdInterface):
    """Layer normalization in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize; see the interface."""
        return layer_norm(x, weight, bias, self.n, self.eps).to(x.dtype)


class RMSNormReferenceKernel(RowNormReferenceKernel, RMSNormFwdInterface):
    """Root mean square normalization in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Normalize; see the interface."""
        return rms_norm(x, weight, self.n, self.eps).to(x.dtype)


class FusedAddLayerNormReferenceKernel(RowNormReferenceKernel, FusedAddLayerNormFwdInterface):
    """Layer normalization of a sum in float64, rounded once at the end; the sum is torch's."""

    @torch.no_grad()
    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add and normalize; see the interface."""
        out, total = fused_add_layer_norm(x, residual, weight, bias, self.n, self.eps)
        return out.to(x.dtype), total


class FusedAddRMSNormReferenceKernel(RowNormReferenceKernel, FusedAddRMSNormFwdInterface):
    """Root mean square normalization of a sum in float64, rounded once at the end; the sum is torch's."""

    @torch.no_grad()
    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add and normalize; see the interface."""
        out, total = fused_add_rms_norm(x, residual, weight, self.n, self.eps)
        return out.to(x.dtype), total


class AdaLayerNormReferenceKernel(RowNormReferenceKernel, AdaLayerNormFwdInterface):
    """Adaptive layer normalization in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """Normalize and modulate; see the interface."""
        return ada_layer_norm(x, scale, shift, self.n, self.eps).to(x.dtype)


class AdaLayerNormZeroReferenceKernel(RowNormReferenceKernel, AdaLayerNormZeroFwdInterface):
    """Adaptive layer normalization with a gate in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Normalize, modulate and gate; see the interface."""
        return ada_layer_norm_zero(x, scale, shift, gate, self.n, self.eps).to(x.dtype)
