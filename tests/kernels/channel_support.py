"""What tests of kernels that normalize channels share on a GPU: draws, kernels, channels as rows, and the bound."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, rounding_unit
from tileops.kernels.norm.call_spec import BatchNormCall

EPS = 1e-5
MOMENTUM = 0.3
ARITHMETIC = 32 * FLOAT32_UNIT
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator(DEVICE).manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=draw, device=DEVICE).to(dtype)


def kernel_of(kind: type, shape: tuple[int, ...], dtype: torch.dtype, running: torch.dtype | None = None) -> Any:
    spatial = math.prod(shape[2:])
    return build(
        kind, BatchNormCall(*shape[:2], spatial, eps=EPS, dtype=dtype, momentum=MOMENTUM, running_dtype=running)
    )


def rows(x: torch.Tensor) -> torch.Tensor:
    """Channels of *x* as rows of float64."""
    return x.transpose(0, 1).reshape(x.shape[1], -1).double()


def hold(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Hold what is normalized against float64."""
    values = rows(x)
    variance, mean = torch.var_mean(values, 1, correction=0, keepdim=True)
    normal = (values - mean) / torch.sqrt(variance + EPS)
    widest = normal.abs().amax(1, keepdim=True)
    scale, shift = weight.double()[:, None], bias.double()[:, None]
    exact = normal * scale + shift
    allowed = rounding_unit(x.dtype) * exact.abs() + ARITHMETIC * (widest * scale.abs() + shift.abs())
    error = (rows(out) - exact).abs() / (allowed + torch.finfo(x.dtype).smallest_normal)
    assert error.max().item() <= 1.0


def parameters(c: int) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(c, dtype=torch.float32, seed=1), drawn(c, dtype=torch.float32, seed=2)
