"""The ops that normalize rows, described for tests: their tensors, and what torch makes of them in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import tileops.reference
from tileops.kernels.kernel_base import Kernel
from tileops.ops import (
    AdaLayerNormFwdOp,
    AdaLayerNormZeroFwdOp,
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
)
from tileops.ops.op_base import Op

Results = tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class RowNormCase:
    """One op.

    Attributes:
        op: Its class.
        interface: The name of its interface.
        reference: Its reference kernel.
        of_input: The arguments that have the shape of the input, the input among them.
        of_row: The arguments that hold one row.
        torch: What torch has: the normalized shape, epsilon and the tensors in float64, to the normalized result.
    """

    op: type[Op]
    interface: str
    reference: type[Kernel]
    of_input: tuple[str, ...]
    of_row: tuple[str, ...]
    torch: Callable[..., torch.Tensor]

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*self.of_input, *self.of_row)

    @property
    def is_sum(self) -> bool:
        return "residual" in self.of_input

    def made(self, **parameters: Any) -> Any:
        return self.op(**parameters)

    def tensors(self, *shape: int, axes: int = 1, dtype: torch.dtype = torch.float32, seed: int = 0) -> Results:
        """An argument each, the rows over the last *axes* of *shape*."""
        sizes = [shape] * len(self.of_input) + [shape[len(shape) - axes :]] * len(self.of_row)
        return tuple(tensor(*size, dtype=dtype, seed=seed + i) for i, size in enumerate(sizes))

    def expected(self, shape: tuple[int, ...], eps: float, *tensors: torch.Tensor | None) -> Results:
        """What torch makes of it: the normalized result in float64, and the sum where there is one."""
        if not self.is_sum:
            return (self.torch(shape, eps, *map(doubled, tensors)),)
        x, residual, *weights = tensors
        assert x is not None
        assert residual is not None
        total = x + residual
        return self.torch(shape, eps, total.double(), *map(doubled, weights)), total

    def __str__(self) -> str:
        return self.interface


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def doubled(given: torch.Tensor | None) -> torch.Tensor | None:
    return None if given is None else given.double()


def listed(results: Any) -> Results:
    """The results of an op, one or two."""
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def assert_rounded(found: Any, expected: Results) -> None:
    """The first result is the first that is expected, rounded; what is expected beside it comes bit by bit."""
    result, *sums = listed(found)
    info = torch.finfo(result.dtype)
    torch.testing.assert_close(
        result.double(), expected[0], rtol=info.eps, atol=max(info.smallest_normal, 1e-9), equal_nan=True
    )
    assert len(sums) == len(expected) - 1
    for each, sure in zip(sums, expected[1:], strict=True):
        torch.testing.assert_close(each, sure, rtol=0, atol=0, equal_nan=True)


def _layer(shape: Any, eps: float, x: Any, weight: Any = None, bias: Any = None) -> torch.Tensor:
    return functional.layer_norm(x, shape, weight, bias, eps)


def _rms(shape: Any, eps: float, x: Any, weight: Any = None) -> torch.Tensor:
    return functional.rms_norm(x, shape, weight, eps)


def _ada(shape: Any, eps: float, x: Any, scale: Any, shift: Any) -> torch.Tensor:
    return functional.layer_norm(x, shape, eps=eps) * (1 + scale) + shift


def _ada_zero(shape: Any, eps: float, x: Any, scale: Any, shift: Any, gate: Any) -> torch.Tensor:
    return _ada(shape, eps, x, scale, shift) * gate


def _case(op: Any, interface: str, of_input: str, of_row: str, torchs: Any) -> RowNormCase:
    reference = getattr(tileops.reference, op.__name__.replace("FwdOp", "ReferenceKernel"))
    return RowNormCase(op, interface, reference, tuple(of_input.split()), tuple(of_row.split()), torchs)


LAYER_NORM = _case(LayerNormFwdOp, "layer_norm", "x", "weight bias", _layer)
RMS_NORM = _case(RMSNormFwdOp, "rms_norm", "x", "weight", _rms)
FUSED_ADD_LAYER_NORM = _case(FusedAddLayerNormFwdOp, "fused_add_layer_norm", "x residual", "weight bias", _layer)
FUSED_ADD_RMS_NORM = _case(FusedAddRMSNormFwdOp, "fused_add_rms_norm", "x residual", "weight", _rms)
ADA_LAYER_NORM = _case(AdaLayerNormFwdOp, "ada_layer_norm", "x scale shift", "", _ada)
ADA_LAYER_NORM_ZERO = _case(AdaLayerNormZeroFwdOp, "ada_layer_norm_zero", "x scale shift gate", "", _ada_zero)

ROW_NORMS = (
    LAYER_NORM,
    RMS_NORM,
    FUSED_ADD_LAYER_NORM,
    FUSED_ADD_RMS_NORM,
    ADA_LAYER_NORM,
    ADA_LAYER_NORM_ZERO,
)
WEIGHTED = tuple(case for case in ROW_NORMS if case.of_row)
SUMS = tuple(case for case in ROW_NORMS if case.is_sum)
MODULATED = tuple(case for case in ROW_NORMS if "scale" in case.of_input)
