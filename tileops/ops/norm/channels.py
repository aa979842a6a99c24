"""What the ops that normalize channels have in common: parameters, checks of tensors, and call specs."""

from __future__ import annotations

import functools
import math
from typing import Final

import torch

from tileops.kernels.norm.call_spec import NORM_DTYPES, BatchNormCall
from tileops.ops.filled import filled
from tileops.ops.inputs import (
    InputError,
    finite_eps,
    number,
    require_dtype,
    require_same_device,
    require_tensor,
    switch,
)
from tileops.ops.norm.rows import MOST_CALLS

__all__ = ["ChannelNorm", "channel_call"]

_Tensor: Final = torch.Tensor


@functools.lru_cache(MOST_CALLS, typed=True)
def channel_call(
    shape: torch.Size,
    eps: float,
    dtype: torch.dtype,
    momentum: float,
    weight_dtype: torch.dtype,
    running_dtype: torch.dtype | None,
    device: torch.device,
) -> BatchNormCall:
    """The call spec of an input of *shape*: the same object again, which takes a fraction of the time of making it."""
    n, c, *spatial = shape
    return BatchNormCall(n, c, math.prod(spatial), eps, dtype, momentum, weight_dtype, running_dtype, device=device)


class ChannelNorm:
    """The parameters of an op that normalizes channels, and what it asks of its tensors.

    Args:
        momentum: Share of the new statistics in the running ones.
        eps: Added to the variance; finite, from 0 up.

    Raises:
        TypeError: *momentum* is no number.
        ValueError: *eps* is no such number.
    """

    def __init__(self, momentum: float, eps: float) -> None:
        if momentum is None:
            raise TypeError(
                f"{type(self).__name__}: momentum is None: pass the share of this call, as 1 / (calls so far + 1)"
            )
        self.momentum = number(self, "momentum", momentum)
        self.eps = finite_eps(self, eps)

    def _switch(self, parameter: str, value: bool) -> bool:
        """*value*, which is a switch and no number of channels, as torch's modules take first.

        Raises:
            TypeError: it is neither True nor False.
        """
        return switch(self, parameter, value, "the number of channels is not stated: it is that of the input")

    def _check_input(self, argument: str, x: torch.Tensor) -> None:
        require_tensor(self, argument, x)
        require_dtype(self, argument, x, NORM_DTYPES)
        if x.dim() < 2:
            message = f"has shape {tuple(x.shape)}: it needs an axis of samples and one of channels"
            raise InputError(self, argument, message, found=tuple(x.shape))

    def _check_pair(
        self, x: torch.Tensor, first: str, one: torch.Tensor | None, second: str, two: torch.Tensor | None
    ) -> torch.dtype | None:
        """Check that both, where given, are one element a channel, alike, and go with *x*; their dtype."""
        dtype = None
        for argument, tensor in ((first, one), (second, two)):
            if tensor is None:
                continue
            require_tensor(self, argument, tensor)
            if tensor.shape != x.shape[1:2]:
                found, expected = tuple(tensor.shape), tuple(x.shape[1:2])
                message = f"has shape {found}, not {expected}, the channels of x"
                raise InputError(self, argument, message, found=found, expected=expected)
            require_same_device(self, argument, tensor, "x", x)
            if tensor.dtype not in (x.dtype, torch.float32):
                own = "" if x.dtype == torch.float32 else f" or {x.dtype}, that of x"
                message = f"is {tensor.dtype}: convert it to torch.float32{own}"
                raise InputError(self, argument, message, found=tensor.dtype, expected=x.dtype)
            if dtype not in (None, tensor.dtype):
                message = f"is {tensor.dtype} and {first} is {dtype}: convert one"
                raise InputError(self, argument, message, found=tensor.dtype, expected=dtype)
            dtype = tensor.dtype
        return dtype

    def _check_running(
        self, x: torch.Tensor, running_mean: torch.Tensor | None, running_var: torch.Tensor | None, *, needed: bool
    ) -> torch.dtype | None:
        """Check the running statistics: both or neither, and both where they are *needed*; their dtype."""
        for argument, tensor, other in (
            ("running_mean", running_mean, running_var),
            ("running_var", running_var, running_mean),
        ):
            if tensor is None and needed:
                raise InputError(self, argument, "is None, and it is what is normalized by: pass it")
            if tensor is None and other is not None:
                raise InputError(self, argument, "is None and the other running statistic is not: pass both or neither")
        return self._check_pair(x, "running_mean", running_mean, "running_var", running_var)

    def _affine(
        self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and bias, contiguous; ones and zeros in the place of what was left out, in the dtype of the other."""
        self._check_pair(x, "weight", weight, "bias", bias)
        c = x.shape[1]
        scale = filled(1.0, c, x if bias is None else bias) if weight is None else weight.contiguous()
        shift = filled(0.0, c, x if weight is None else weight) if bias is None else bias.contiguous()
        return scale, shift
