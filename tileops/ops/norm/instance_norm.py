"""Instance normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.call_spec import (
    InstanceNormFwdInterface,
    InstanceNormInferFwdInterface,
    InstanceNormTrainFwdInterface,
)
from tileops.kernels.norm.instance_norm import (
    InstanceNormFwdClusterKernel,
    InstanceNormFwdInferKernel,
    InstanceNormFwdKernel,
    InstanceNormFwdSplitKernel,
    InstanceNormFwdWideKernel,
)
from tileops.ops.inputs import InputError
from tileops.ops.norm.channels import ChannelNorm, channel_call
from tileops.ops.op_base import Op

__all__ = ["InstanceNormFwdOp"]


class InstanceNormFwdOp(ChannelNorm, Op):
    """Instance normalization of ``(n, c, *spatial)``: each channel of each sample by its own mean and variance.

    It computes what :func:`torch.nn.functional.instance_norm` does. Forward only: kernels record no gradient.

    Args:
        use_input_stats: Whether mean and variance are those of the input; otherwise they are the running ones.
        momentum: Share of the input in the running statistics.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        TypeError: *use_input_stats* is neither True nor False, or *momentum* is None.
        ValueError: *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "instance_norm_wide": InstanceNormFwdWideKernel,
        "instance_norm_cluster": InstanceNormFwdClusterKernel,
        "instance_norm_split": InstanceNormFwdSplitKernel,
        "instance_norm": InstanceNormFwdKernel,
        "instance_norm_infer": InstanceNormFwdInferKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "instance_norm_fwd": InstanceNormFwdInterface,
        "instance_norm_fwd_train": InstanceNormTrainFwdInterface,
        "instance_norm_fwd_infer": InstanceNormInferFwdInterface,
    }

    def __init__(self, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(momentum, eps)
        self.use_input_stats = self._switch("use_input_stats", use_input_stats)

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None = None,
        running_var: torch.Tensor | None = None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalize each channel of each sample of *x*.

        Args:
            x: float32, float16 or bfloat16, of two axes or more: samples, channels, and any others.
            running_mean: One element a channel, float32 or in the dtype of *x*, or None. By the statistics of the
                input it is moved in place, towards their average over the samples; otherwise it is what is normalized
                by.
            running_var: Likewise, and None where *running_mean* is.
            weight: One element a channel, float32 or in the dtype of *x*; None for ones.
            bias: Likewise, in the dtype of *weight*; None for zeros.

        Returns:
            A contiguous tensor with the shape, dtype and device of *x*. Where *x* has no element it is empty, and no
            kernel is chosen; where it has no sample, running statistics that are to be moved become NaN, the average
            over none, as torch has it.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together; running statistics are missing; or, by the
                statistics of the input, a channel of a sample has one value.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        self._check_input("x", x)
        running_dtype = self._check_running(x, running_mean, running_var, needed=not self.use_input_stats)
        scale, shift = self._affine(x, weight, bias)
        if self.use_input_stats and math.prod(x.shape[2:]) == 1:
            message = f"has shape {tuple(x.shape)}: more than 1 spatial element is needed for statistics of the input"
            raise InputError(self, "x", message, found=tuple(x.shape))
        kept = [each for each in (running_mean, running_var) if each is not None]
        if not x.numel():
            if self.use_input_stats and not x.shape[0]:
                for each in kept:
                    each.fill_(math.nan)
            return torch.empty(x.shape, dtype=x.dtype, device=x.device)
        call = channel_call(x.shape, self.eps, x.dtype, self.momentum, scale.dtype, running_dtype, x.device)
        given = [each.contiguous() for each in kept]
        if not self.use_input_stats:
            interface = "instance_norm_fwd_infer"
        else:
            interface = "instance_norm_fwd_train" if given else "instance_norm_fwd"
        result: torch.Tensor = self.kernel_for(interface, call)(x.contiguous(), scale, shift, *given)
        if self.use_input_stats:
            for each, new in zip(kept, given, strict=True):
                if new is not each:
                    each.copy_(new)
        return result
