"""What the ops that normalize trailing rows have in common: parameters, checks of tensors, and call specs.

At a call each question is asked once, in its cheapest form. Where the answer is not the usual one, a slower function
says what is wrong.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import torch

from tileops.kernels.norm.call_spec import FEW_ROWS, NORM_DTYPES, LayerNormCall
from tileops.ops.inputs import InputError, finite_eps, require_alike, require_dtype, require_tensor

__all__ = ["MOST_CALLS", "RMS_EPS", "RowNorm", "SummedRowNorm", "row_call"]

MOST_CALLS: Final = 1024
"""Call specs that are kept; the one that was not asked for longest goes when another is made."""

RMS_EPS: Final = torch.finfo(torch.float32).eps
"""What an epsilon of None means to root mean square normalization: that of the type it is computed in, as
:class:`torch.nn.RMSNorm` has it, which is float32 for float16 and bfloat16 too."""

_Tensor: Final = torch.Tensor


@functools.lru_cache(MOST_CALLS)
def row_call(n: int, eps: float, dtype: torch.dtype, few_rows: bool, device: torch.device) -> LayerNormCall:
    """The call spec of these facts: the same object again, which takes a tenth of the time of making it."""
    return LayerNormCall(n, eps, dtype, few_rows, device=device)


class RowNorm:
    """The parameters of an op that normalizes trailing rows, and what it asks of its tensors.

    Args:
        normalized_shape: Sizes of the trailing axes that are normalized, or one size; None leaves them to the tensors
            of the call.
        eps: Added to the variance or the mean square; finite, from 0 up.

    Raises:
        ValueError: *normalized_shape* has no axis or a negative one, or *eps* is no such number.
    """

    def __init__(self, normalized_shape: int | Sequence[int] | None = None, eps: float = 1e-5) -> None:
        name = type(self).__name__
        self.normalized_shape = None if normalized_shape is None else _sizes(name, normalized_shape)
        if self.normalized_shape is not None and (not self.normalized_shape or min(self.normalized_shape) < 0):
            raise ValueError(
                f"{name}: normalized_shape is {self.normalized_shape}: name the sizes of one or more trailing axes, "
                f"or leave it out"
            )
        self.eps = finite_eps(self, eps)

    def empty_result(self, x: torch.Tensor, *others: torch.Tensor | None, **named: torch.Tensor | None) -> Any:
        """A contiguous tensor with the shape, dtype and device of *x*, not filled."""
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def _call(
        self,
        x: torch.Tensor,
        shape: tuple[int, ...],
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> LayerNormCall | None:
        """The call on *x*, which ends in the axes of *shape*; ``None`` where it has no element.

        All is asked in one call, as a call costs more than an answer.

        Raises:
            TypeError: an argument is no tensor.
            InputError: *x* does not end so, or is of a dtype that is not normalized, or *weight* or *bias* does not
                hold a row or does not go with *x*.
        """
        if not isinstance(x, _Tensor):
            require_tensor(self, "x", x)
        sizes, dtype, device, n = x.shape, x.dtype, x.device, shape[-1]
        if dtype not in NORM_DTYPES:
            require_dtype(self, "x", x, NORM_DTYPES)
        if len(shape) != 1 or not sizes or sizes[-1] != n:  # a slice of sizes takes longer than all that is asked here
            n = self._row_of(sizes, shape, x)
        if weight is not None and not (
            isinstance(weight, _Tensor) and weight.shape == shape and weight.dtype is dtype and weight.device == device
        ):
            self._refuse("weight", weight, shape, x, "the normalized shape")
        if bias is not None and not (
            isinstance(bias, _Tensor) and bias.shape == shape and bias.dtype is dtype and bias.device == device
        ):
            self._refuse("bias", bias, shape, x, "the normalized shape")
        elements = x.numel()
        return row_call(n, self.eps, dtype, elements <= FEW_ROWS * n, device) if elements else None

    def _row_of(self, sizes: tuple[int, ...], shape: tuple[int, ...], x: torch.Tensor) -> int:
        """Elements of a row, of any number of axes; *sizes* are those of *x*."""
        if sizes[-len(shape) :] != shape:
            self._refuse_rows(x, shape)
        return math.prod(shape)

    def _modulation(self, argument: str, tensor: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """*tensor* in the shape of *x*."""
        if _matches(tensor, x.shape, x):
            return tensor
        require_tensor(self, argument, tensor)
        require_alike(self, argument, tensor, "x", x)
        pairs = zip(reversed(tensor.shape), reversed(x.shape), strict=False)
        if tensor.dim() > x.dim() or any(size not in (1, wanted) for size, wanted in pairs):
            found, expected = tuple(tensor.shape), tuple(x.shape)
            message = f"has shape {found}, which does not broadcast to the shape of x, {expected}"
            raise InputError(self, argument, message, found=found, expected=expected)
        return tensor.expand(x.shape)

    def _last_axis(self, x: torch.Tensor) -> tuple[int, ...]:
        require_tensor(self, "x", x)
        if not x.shape:
            raise InputError(self, "x", "has no axis: the last one is to be normalized", found=())
        return x.shape[-1:]

    def _shape_of(self, weight: torch.Tensor | None) -> tuple[int, ...]:
        if weight is None:
            message = "is None and so is normalized_shape: pass a weight, or construct the op with the shape"
            raise InputError(self, "weight", message)
        require_tensor(self, "weight", weight)
        if not weight.shape:
            raise InputError(self, "weight", "has no axis: its axes are those to normalize", found=())
        return weight.shape

    def _refuse_rows(self, x: torch.Tensor, shape: tuple[int, ...]) -> NoReturn:
        shape = tuple(shape)
        message = f"has shape {tuple(x.shape)}, which does not end in the normalized shape {shape}"
        raise InputError(self, "x", message, found=tuple(x.shape), expected=shape)

    def _refuse(self, argument: str, tensor: torch.Tensor, shape: tuple[int, ...], x: torch.Tensor, whose: str) -> None:
        require_tensor(self, argument, tensor)
        require_alike(self, argument, tensor, "x", x)
        shape = tuple(shape)
        message = f"has shape {tuple(tensor.shape)}, not {whose} {shape}"
        raise InputError(self, argument, message, found=tuple(tensor.shape), expected=shape)


class SummedRowNorm(RowNorm):
    """What has a residual added first, and returns the sum too."""

    def empty_result(
        self, x: torch.Tensor, *others: torch.Tensor | None, **named: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Two contiguous tensors with the shape, dtype and device of *x*, not filled."""
        return super().empty_result(x), super().empty_result(x)

    def _check_residual(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        """Check that *residual* is like *x*."""
        if not _matches(residual, x.shape, x):
            self._refuse("residual", residual, tuple(x.shape), x, "the shape of x,")


def _sizes(name: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes as plain integers, whatever kind of integer they are."""
    try:
        if isinstance(normalized_shape, Sequence):
            return tuple(operator.index(size) for size in normalized_shape)
        return (operator.index(normalized_shape),)
    except TypeError:
        raise TypeError(
            f"{name}: normalized_shape is {normalized_shape!r}: pass an integer, or a sequence of them"
        ) from None


def _matches(tensor: torch.Tensor, shape: tuple[int, ...], x: torch.Tensor) -> bool:
    return (
        isinstance(tensor, _Tensor) and tensor.shape == shape and tensor.dtype is x.dtype and tensor.device == x.device
    )
