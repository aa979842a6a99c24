"""Reference layer normalization."""

from __future__ import annotations

import torch

from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.norm.call_spec import LayerNormCall, LayerNormFwdInterface

__all__ = ["LayerNormReferenceKernel", "layer_norm"]


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
    rows = x.double().reshape(-1, n) if n else x.double().reshape(0, 0)
    centred = rows - rows.mean(dim=1, keepdim=True)
    variance = centred.square().mean(dim=1, keepdim=True)
    scaled = centred / torch.sqrt(variance + eps)
    return (scaled * weight.double().reshape(n) + bias.double().reshape(n)).reshape(x.shape)


class LayerNormReferenceKernel(Kernel, LayerNormFwdInterface):
    """Layer normalization in float64, rounded once at the end.

    Args:
        n: Elements of a row.
        eps: Added to the variance.
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

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize; see the interface."""
        return layer_norm(x, weight, bias, self.n, self.eps).to(x.dtype)
