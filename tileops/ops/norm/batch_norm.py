"""Batch normalization and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.batch_norm_bwd import (
    BatchNormBwdClusterKernel,
    BatchNormBwdKernel,
    BatchNormBwdSplitKernel,
    BatchNormBwdWideKernel,
)
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.batch_norm_train import (
    BatchNormFwdTrainClusterKernel,
    BatchNormFwdTrainKernel,
    BatchNormFwdTrainSplitKernel,
    BatchNormFwdTrainWholeKernel,
    BatchNormFwdTrainWideKernel,
)
from tileops.kernels.norm.call_spec import (
    BatchNormBwdInterface,
    BatchNormInferFwdInterface,
    BatchNormTrainFwdInterface,
)
from tileops.ops.inputs import InputError, require_alike, require_tensor
from tileops.ops.norm.channels import ChannelNorm, channel_call
from tileops.ops.op_base import Op

__all__ = ["BatchNormBwdOp", "BatchNormFwdOp"]


class BatchNormFwdOp(ChannelNorm, Op):
    """Batch normalization of ``(n, c, *spatial)``: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    It computes what :func:`torch.nn.functional.batch_norm` does. Forward only: kernels record no gradient. For that of
    training, :meth:`with_statistics` returns what :class:`BatchNormBwdOp` takes.

    Args:
        training: Whether mean and variance are those of the batch, and the running ones are moved.
        momentum: Share of the batch in the running statistics. What torch's modules mean by ``None`` is a number that
            changes from call to call; pass that number.
        eps: Added to the variance: finite, above 0 in training and from 0 up otherwise.

    Raises:
        TypeError: *training* is neither True nor False, or *momentum* is None.
        ValueError: *eps* is no such number.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "fwd_train_whole": BatchNormFwdTrainWholeKernel,
        "fwd_train_wide": BatchNormFwdTrainWideKernel,
        "fwd_train_cluster": BatchNormFwdTrainClusterKernel,
        "fwd_train_split": BatchNormFwdTrainSplitKernel,
        "fwd_train_kernel": BatchNormFwdTrainKernel,
        "fwd_infer_kernel": BatchNormFwdInferKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "batch_norm_fwd_train": BatchNormTrainFwdInterface,
        "batch_norm_fwd_infer": BatchNormInferFwdInterface,
    }

    def __init__(self, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(momentum, eps)
        self.training = self._switch("training", training)
        if self.training and self.eps <= 0.0:
            raise ValueError(f"BatchNormFwdOp: eps is {eps}: in training, pass a finite number above 0")

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None = None,
        running_var: torch.Tensor | None = None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalize the channels of *x*.

        Args:
            x: float32, float16 or bfloat16, of two axes or more: samples, channels, and any others.
            running_mean: One element a channel, float32 or in the dtype of *x*. In training it is moved in place, or
                None; otherwise it is what is normalized by.
            running_var: Likewise, and None where *running_mean* is.
            weight: One element a channel, float32 or in the dtype of *x*; None for ones.
            bias: Likewise, in the dtype of *weight*; None for zeros.

        Returns:
            A contiguous tensor with the shape, dtype and device of *x*. Where *x* has no element it is empty, no kernel
            is chosen, and running statistics stay as they are.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together; running statistics are missing; or, in training,
                channels have one value.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        if self.training:
            return self._train(x, running_mean, running_var, weight, bias)[0]
        self._check_input("x", x)
        running_dtype = self._check_running(x, running_mean, running_var, needed=True)
        scale, shift = self._affine(x, weight, bias)
        if not x.numel():
            return torch.empty(x.shape, dtype=x.dtype, device=x.device)
        call = channel_call(x.shape, self.eps, x.dtype, self.momentum, scale.dtype, running_dtype, x.device)
        kernel = self.kernel_for("batch_norm_fwd_infer", call)
        given = [each.contiguous() for each in (running_mean, running_var) if each is not None]
        result: torch.Tensor = kernel(x.contiguous(), scale, shift, *given)
        return result

    def with_statistics(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None = None,
        running_var: torch.Tensor | None = None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalize in training, and return what a gradient needs; takes what :meth:`forward` takes.

        Returns:
            The result; the mean of each channel; its ``1 / sqrt(var + eps)``. The last two are float32.

        Raises:
            RuntimeError: the op is not in training.
            InputError: as :meth:`forward`, or *x* has no element: there are no statistics of none.
        """
        if not self.training:
            raise RuntimeError("BatchNormFwdOp: with_statistics is for training: construct the op with training=True")
        self._check_input("x", x)
        if not x.numel():
            message = f"has shape {tuple(x.shape)}: no element, and so no statistics"
            raise InputError(self, "x", message, found=tuple(x.shape))
        return self._train(x, running_mean, running_var, weight, bias)

    def _train(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        self._check_input("x", x)
        running_dtype = self._check_running(x, running_mean, running_var, needed=False)
        scale, shift = self._affine(x, weight, bias)
        values = x.numel() // x.shape[1] if x.shape[1] else 0
        if values == 1:
            message = f"has shape {tuple(x.shape)}: more than 1 value per channel is needed in training"
            raise InputError(self, "x", message, found=tuple(x.shape))
        if not values:
            nothing = torch.empty(0, dtype=torch.float32, device=x.device)
            return torch.empty(x.shape, dtype=x.dtype, device=x.device), nothing, nothing
        call = channel_call(x.shape, self.eps, x.dtype, self.momentum, scale.dtype, running_dtype, x.device)
        kernel = self.kernel_for("batch_norm_fwd_train", call)
        if running_mean is None or running_var is None:
            results: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = kernel(x.contiguous(), scale, shift, None, None)
            return results
        moved = running_mean.contiguous(), running_var.contiguous()
        results = kernel(x.contiguous(), scale, shift, *moved)
        for kept, new in zip((running_mean, running_var), moved, strict=True):
            if new is not kept:
                kept.copy_(new)
        return results


class BatchNormBwdOp(ChannelNorm, Op):
    """The gradients of batch normalization in training.

    With ``normal = (x - mean) * rstd``, those of bias and weight are the sums of ``grad`` and of ``grad * normal`` over
    a channel, and that of the input is ``weight * rstd * (grad - mean(grad) - normal * mean(grad * normal))``.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "bwd_wide": BatchNormBwdWideKernel,
        "bwd_cluster": BatchNormBwdClusterKernel,
        "bwd_split": BatchNormBwdSplitKernel,
        "bwd_kernel": BatchNormBwdKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"batch_norm_bwd": BatchNormBwdInterface}

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)

    def forward(
        self,
        grad: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        mean: torch.Tensor,
        rstd: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the gradients of input, weight and bias; nothing is written in place.

        Args:
            grad: Gradient of the result, with the shape, dtype and device of *x*.
            x: The input: float32, float16 or bfloat16, of two axes or more.
            weight: One element a channel, float32 or in the dtype of *x*; None for ones.
            mean: What :meth:`BatchNormFwdOp.with_statistics` returned, as *rstd*: float32, one element a channel.
            rstd: The ``1 / sqrt(var + eps)`` of each channel.

        Returns:
            The gradient of *x*, contiguous, with its shape and dtype; those of weight and bias, in the dtype of
            *weight*, or of *x* where that is None. Where *x* has no element the last two are zeros.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        self._check_input("x", x)
        self._check_input("grad", grad)
        require_alike(self, "grad", grad, "x", x)
        if grad.shape != x.shape:
            found, expected = tuple(grad.shape), tuple(x.shape)
            raise InputError(self, "grad", f"has shape {found}, not {expected}, that of x", found=found)
        for argument, tensor in (("mean", mean), ("rstd", rstd)):
            require_tensor(self, argument, tensor)
            self._check_pair(x, argument, tensor, argument, None)
            if tensor.dtype != torch.float32:
                message = f"is {tensor.dtype}, not torch.float32: pass what with_statistics returned"
                raise InputError(self, argument, message, found=tensor.dtype, expected=torch.float32)
        scale, _ = self._affine(x, weight, None)
        if not x.numel():
            return self.empty_result(grad, x, weight, mean, rstd)
        call = channel_call(x.shape, self.eps, x.dtype, self.momentum, scale.dtype, None, x.device)
        kernel = self.kernel_for("batch_norm_bwd", call)
        results: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = kernel(
            grad.contiguous(), x.contiguous(), scale, mean.contiguous(), rstd.contiguous()
        )
        return results

    def empty_result(
        self,
        grad: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        mean: torch.Tensor,
        rstd: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tensors like the results: a contiguous one in the shape of *x*, not filled, and zeros."""
        like = x if weight is None else weight
        grad_weight, grad_bias = (torch.zeros(x.shape[1], dtype=like.dtype, device=x.device) for _ in range(2))
        return torch.empty(x.shape, dtype=x.dtype, device=x.device), grad_weight, grad_bias
