"""The kernels that normalize rows, described for tests: their tensors, and their results in float64 with a bound.

The bound on the error of one element: rounding the result to its dtype costs half a unit in the last place. The rest
is float32 arithmetic on numbers no larger than the widest normalized distance of the row, scaled, shifted and gated.
A thread adds at most 128 values before the tree over threads, warps and blocks: each addition may cost a unit of
float32, of which the square root halves what reaches the deviation. ``ARITHMETIC`` is that half: sums whose roundings
do not all point one way stay far below it, and it covers tree, square root and products too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, rounding_unit
from tileops.kernels.device_facts import device_facts
from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm import (
    ada_layer_norm,
    ada_layer_norm_zero,
    fused_add_layer_norm,
    fused_add_rms_norm,
    layer_norm,
    rms_norm,
)
from tileops.kernels.norm.call_spec import LayerNormCall

EPS = 1e-5
MOST_VALUES = 128
"""Values that a thread adds one after another: of the longest row of a cluster."""
ARITHMETIC = MOST_VALUES / 2 * FLOAT32_UNIT
CHUNK = 2**26
"""Elements that are held in float64 at a time: 0.5 GiB."""

WAYS = {"tiled": "", "short": "ShortRows", "held": "HeldRows", "cut": "CutRows"}
"""The ways to hold a row, with what the names of their classes and keys say of them."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

Tensors = tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Parts:
    """What an op makes of its tensors: ``((values - mean) / deviation * scale + shift) * gate``."""

    values: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor | float = 0.0
    gate: torch.Tensor | float = 1.0


@dataclasses.dataclass(frozen=True)
class RowNorm:
    """One op.

    Attributes:
        module: Where its kernels are.
        title: What their names begin with.
        of_input: How many of its first tensors have the shape of the input.
        of_row: How many of the others hold one row.
        parts: From its tensors to what it makes of them.
        centred: Whether the mean is taken off.
        summed: Whether the values that are normalized are a second result.
    """

    module: ModuleType
    title: str
    of_input: int
    of_row: int
    parts: Callable[..., Parts]
    centred: bool = True
    summed: bool = False

    def kernel(self, way: str) -> Any:
        found: type[Kernel] = getattr(self.module, f"{self.title}{WAYS[way]}Kernel")
        return found

    def ring(self) -> Any:
        """The kernel whose rows come through a ring, of an op that has one."""
        found: type[Kernel] = getattr(self.module, f"{self.title}RingRowsKernel")
        return found

    def tensors(
        self, rows: int, n: int, dtype: torch.dtype, device: torch.device, *, mean: float = 0.0, std: float = 1.0
    ) -> Tensors:
        """An argument each, the same for the same sizes; *mean* and *std* are those of what is normalized."""
        draw = torch.Generator(device).manual_seed((n + rows) % 1_000_003)
        shifted = 1 + self.summed
        made = []
        for i in range(self.of_input + self.of_row):
            shape = (rows, n) if i < self.of_input else (n,)
            about, by = (mean, std) if i < shifted else (0.0, 1.0)
            made.append(torch.empty(shape, dtype=dtype, device=device).normal_(about, by, generator=draw))
        return tuple(made)


def _plain(x: Any, weight: Any, bias: Any = 0.0) -> Parts:
    return Parts(x, weight, bias)


def _added(x: Any, residual: Any, weight: Any, bias: Any = 0.0) -> Parts:
    return Parts(x + residual, weight, bias)


def _modulated(x: Any, scale: Any, shift: Any, gate: Any = 1.0) -> Parts:
    return Parts(x, 1.0 + scale.double(), shift, gate)


ROW_NORMS = {
    "layer_norm": RowNorm(layer_norm, "LayerNorm", 1, 2, _plain),
    "rms_norm": RowNorm(rms_norm, "RMSNorm", 1, 1, _plain, centred=False),
    "fused_add_layer_norm": RowNorm(fused_add_layer_norm, "FusedAddLayerNorm", 2, 2, _added, summed=True),
    "fused_add_rms_norm": RowNorm(fused_add_rms_norm, "FusedAddRMSNorm", 2, 1, _added, centred=False, summed=True),
    "ada_layer_norm": RowNorm(ada_layer_norm, "AdaLayerNorm", 3, 0, _modulated),
    "ada_layer_norm_zero": RowNorm(ada_layer_norm_zero, "AdaLayerNormZero", 4, 0, _modulated),
}


def row_call(n: int, dtype: torch.dtype, eps: float = EPS, *, few_rows: bool = True) -> LayerNormCall:
    """A call of few rows, which more of the kernels serve."""
    return LayerNormCall(n=n, eps=eps, dtype=dtype, few_rows=few_rows)


def built(name: str, way: str, n: int, dtype: torch.dtype, *, few: bool = False) -> Any:
    """The kernel for many rows, or for *few*, where the GPU of this machine is one that it runs on."""
    kernel = ROW_NORMS[name].kernel(way)
    arch = device_facts(DEVICE).arch
    if arch not in kernel.supported_archs:
        pytest.skip(f"{kernel.__name__} does not run on sm_{arch}")
    return build(kernel, row_call(n, dtype, few_rows=few or way == "cut"))


def drawn(name: str, rows: int, n: int, dtype: torch.dtype, **about: float) -> tuple[RowNorm, Tensors]:
    """An op and tensors for it on the GPU."""
    return ROW_NORMS[name], ROW_NORMS[name].tensors(rows, n, dtype, DEVICE, **about)


def listed(results: Any) -> Tensors:
    """The results of a kernel, one or two."""
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def same(found: Any, expected: Any) -> bool:
    """Equal bit by bit, NaN to NaN."""
    return all(
        torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0))
        for a, b in zip(listed(found), listed(expected), strict=True)
    )


def bounded(
    norm: RowNorm, n: int, eps: float, tensors: Tensors, *, own: bool = False
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Some columns of all rows at a time: the result in float64, the largest error allowed, and what is normalized.

    With *own*, the distance of an element and the mean one of its row stand in for the widest: the error of a sum is
    bounded by the sum of magnitudes.
    """
    rows = [tensor.reshape(-1, n) for tensor in tensors]
    width = max(1, CHUNK // rows[0].shape[0])
    columns = [slice(start, start + width) for start in range(0, n, width)]

    def parts(where: slice) -> Parts:
        return norm.parts(*(tensor[:, where] for tensor in rows))

    def away(where: slice) -> torch.Tensor:
        return parts(where).values.double() - mean

    mean: Any = 0.0
    if norm.centred:
        mean = sum(away(where).sum(1, keepdim=True) for where in columns) / n
    square: Any = sum(away(where).square().sum(1, keepdim=True) for where in columns)
    deviation = torch.sqrt(square / n + eps)
    widest = torch.stack([away(where).abs().amax(1, keepdim=True) for where in columns]).amax(0) / deviation
    usual: Any = sum(away(where).abs().sum(1, keepdim=True) for where in columns) / n / deviation
    for where in columns:
        made = parts(where)
        scale, shift, gate = (torch.as_tensor(each).double() for each in (made.scale, made.shift, made.gate))
        result = (away(where) / deviation * scale + shift) * gate
        distance = away(where).abs() / deviation + usual if own else widest
        arithmetic = ARITHMETIC * (distance * scale.abs() + shift.abs()) * gate.abs()
        yield where, result, rounding_unit(tensors[0].dtype) * result.abs() + arithmetic, made.values


def check(norm: RowNorm, n: int, results: Any, tensors: Tensors, eps: float = EPS, *, own: bool = False) -> None:
    """Hold the results of a kernel against float64, and a sum bit by bit against that of torch; see :func:`bounded`."""
    x = tensors[0]
    found = listed(results)
    assert len(found) == 1 + norm.summed
    for each in found:
        assert each.shape == x.shape
        assert each.dtype == x.dtype
    if not x.numel():
        return
    out, *sums = (each.reshape(-1, n) for each in found)
    for where, result, allowed, values in bounded(norm, n, eps, tensors, own=own):
        error = (out[:, where].double() - result).abs() / (allowed + torch.finfo(x.dtype).smallest_normal)
        assert not error.isnan().any()
        assert error.max().item() <= 1.0
        for each in sums:
            assert torch.equal(each[:, where], values)
