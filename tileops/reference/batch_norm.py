"""Reference batch and instance normalization."""

from __future__ import annotations

import torch

from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.norm.call_spec import (
    BatchNormBwdInterface,
    BatchNormCall,
    BatchNormInferFwdInterface,
    BatchNormTrainFwdInterface,
    InstanceNormFwdInterface,
    InstanceNormInferFwdInterface,
    InstanceNormTrainFwdInterface,
)

__all__ = [
    "BatchNormBwdReferenceKernel",
    "BatchNormInferReferenceKernel",
    "BatchNormTrainReferenceKernel",
    "InstanceNormInferReferenceKernel",
    "InstanceNormReferenceKernel",
    "InstanceNormTrainReferenceKernel",
    "batch_norm_gradients",
    "moments",
    "normalized",
]


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean, biased and unbiased variance of each channel of ``(n, c, *spatial)``, in float64.

    The unbiased variance of one value is NaN.
    """
    channels = x.double().transpose(0, 1).reshape(x.shape[1], -1)
    mean = channels.mean(dim=1)
    squares = (channels - mean[:, None]).square().sum(dim=1)
    return mean, squares / channels.shape[1], squares / (channels.shape[1] - 1)


def normalized(
    x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """``(x - mean) * rstd * weight + bias``, channel by channel, in float64."""
    shape = (1, x.shape[1], *(1,) * (x.dim() - 2))
    mean, rstd, weight, bias = (each.double().reshape(shape) for each in (mean, rstd, weight, bias))
    return (x.double() - mean) * rstd * weight + bias


def batch_norm_gradients(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of input, weight and bias of batch normalization in training, in float64."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    ones, zeros = torch.ones_like(mean), torch.zeros_like(mean)
    normal = normalized(x, mean, rstd, ones, zeros)
    grads = grad.double()
    grad_bias, grad_weight = grads.sum(dim=axes), (grads * normal).sum(dim=axes)
    values = x.numel() // x.shape[1]
    shape = (1, x.shape[1], *(1,) * (x.dim() - 2))
    away = grads - (grad_bias / values).reshape(shape) - normal * (grad_weight / values).reshape(shape)
    return away * (weight.double() * rstd.double()).reshape(shape), grad_weight, grad_bias


def inverse_deviation(variance: torch.Tensor, eps: float) -> torch.Tensor:
    """``1 / sqrt(variance + eps)``, and 0 where that has no value."""
    rstd = 1.0 / torch.sqrt(variance + eps)
    return torch.where(variance + eps == 0.0, torch.zeros_like(rstd), rstd)


def move(running: torch.Tensor, new: torch.Tensor, momentum: float) -> None:
    """Move a running statistic in place."""
    running.copy_((1.0 - momentum) * running.double() + momentum * new)


class ChannelReference(Kernel):
    """What the references have in common.

    Args:
        eps: Added to the variance.
        momentum: Share of the new statistics in the running ones.
    """

    devices: frozenset[str] = frozenset({"cpu"})

    def __init__(self, eps: float, momentum: float) -> None:
        self.eps = eps
        self.momentum = momentum

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """Epsilon and momentum are held; everything else is read off the tensors."""
        identity = (call.eps, call.momentum)
        return identity, lambda: cls(*identity)


class BatchNormTrainReferenceKernel(ChannelReference, BatchNormTrainFwdInterface):
    """Batch normalization by the statistics of the batch in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalize; see the interface."""
        mean, variance, unbiased = moments(x)
        rstd = inverse_deviation(variance, self.eps)
        if running_mean is not None and running_var is not None:
            move(running_mean, mean, self.momentum)
            move(running_var, unbiased, self.momentum)
        return normalized(x, mean, rstd, weight, bias).to(x.dtype), mean.float(), rstd.float()


class BatchNormInferReferenceKernel(ChannelReference, BatchNormInferFwdInterface):
    """Batch normalization by running statistics in float64, rounded once at the end."""

    @classmethod
    def refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse calls without running statistics."""
        if call.running_dtype is None:
            return "running_dtype is None: there are no running statistics"
        return super().refusal(call)

    @torch.no_grad()
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
    ) -> torch.Tensor:
        """Normalize; see the interface."""
        rstd = 1.0 / torch.sqrt(running_var.double() + self.eps)
        return normalized(x, running_mean, rstd, weight, bias).to(x.dtype)


class BatchNormBwdReferenceKernel(ChannelReference, BatchNormBwdInterface):
    """The gradients in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the gradients; see the interface."""
        grads = batch_norm_gradients(grad, x, weight, mean, rstd)
        return grads[0].to(x.dtype), grads[1].to(weight.dtype), grads[2].to(weight.dtype)


class InstanceNormReferenceKernel(ChannelReference, InstanceNormFwdInterface):
    """Instance normalization in float64, rounded once at the end."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize; see the interface."""
        n, c = x.shape[:2]
        instances = x.reshape(1, n * c, *x.shape[2:])
        mean, variance, _ = moments(instances)
        rstd = inverse_deviation(variance, self.eps)
        return normalized(instances, mean, rstd, weight.repeat(n), bias.repeat(n)).to(x.dtype).reshape(x.shape)


class InstanceNormTrainReferenceKernel(ChannelReference, InstanceNormTrainFwdInterface):
    """Instance normalization in float64, with running statistics that follow."""

    @torch.no_grad()
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
    ) -> torch.Tensor:
        """Normalize; see the interface."""
        n, c = x.shape[:2]
        mean, _, unbiased = moments(x.reshape(1, n * c, *x.shape[2:]))
        if running_mean is not None and running_var is not None:
            move(running_mean, mean.reshape(n, c).mean(dim=0), self.momentum)
            move(running_var, unbiased.reshape(n, c).mean(dim=0), self.momentum)
        return InstanceNormReferenceKernel(self.eps, self.momentum).forward(x, weight, bias)


class InstanceNormInferReferenceKernel(BatchNormInferReferenceKernel, InstanceNormInferFwdInterface):
    """By running statistics, instance and batch normalization are one."""
