"""The normalizations of rows, as ``norm.py`` measures them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from timing import CUDA, Case, Work, compiled, host_us

from tileops.ops import (
    AdaLayerNormFwdOp,
    AdaLayerNormZeroFwdOp,
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
)

EPS = 1e-5

ROWS = (
    (2048, 4096),
    (2048, 8192),
    (2048, 16384),
    (8192, 1024),
    (8192, 4096),
    (8192, 8192),
    (65536, 256),
    (1024, 65536),
    (8192, 3000),
)
SINGLE_ROWS = ((1, 1024), (1, 4096), (1, 8192), (1, 16384))
DTYPES = (torch.float16, torch.bfloat16)


def row_cases(libraries: dict[str, Any]) -> Iterator[Case]:
    """The row normalizations."""
    for dtype in DTYPES:
        for m, n in (*ROWS, *SINGLE_ROWS):
            x, other, scale, shift, gate = (torch.randn(m, n, device=CUDA, dtype=dtype) for _ in range(5))
            weight, bias = torch.randn(2, n, device=CUDA, dtype=dtype)
            size = x.numel() * x.element_size()

            def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, n: int = n) -> torch.Tensor:
                return F.layer_norm(x, (n,), w, b, EPS)

            def rms_norm(x: torch.Tensor, w: torch.Tensor, n: int = n) -> torch.Tensor:
                return F.rms_norm(x, (n,), w, EPS)

            def added_layer(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor, n: int = n) -> Any:
                total = x + r
                return F.layer_norm(total, (n,), w, b, EPS), total

            def added_rms(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, n: int = n) -> Any:
                total = x + r
                return F.rms_norm(total, (n,), w, EPS), total

            def ada(x: torch.Tensor, s: torch.Tensor, t: torch.Tensor, n: int = n) -> torch.Tensor:
                return F.layer_norm(x, (n,), None, None, EPS) * (1 + s) + t

            def zero(x: torch.Tensor, s: torch.Tensor, t: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
                return ada(x, s, t) * g

            for op, kind, tensors, moved in (
                (LayerNormFwdOp(n, EPS), layer_norm, (x, weight, bias), 2),
                (RMSNormFwdOp(n, EPS), rms_norm, (x, weight), 2),
                (FusedAddLayerNormFwdOp(n, EPS), added_layer, (x, other, weight, bias), 4),
                (FusedAddRMSNormFwdOp(n, EPS), added_rms, (x, other, weight), 4),
                (AdaLayerNormFwdOp(n, EPS), ada, (x, scale, shift), 4),
                (AdaLayerNormZeroFwdOp(n, EPS), zero, (x, scale, shift, gate), 5),
            ):
                works: dict[str, Work] = {
                    "ours": lambda op=op, tensors=tensors: op(*tensors),
                    "torch": lambda kind=kind, tensors=tensors: kind(*tensors),
                }
                if m > 1:
                    works["torch.compile"] = compiled(kind, *tensors)
                works.update(others(type(op).__name__, libraries, tensors))
                yield Case(type(op).__name__, (m, n), dtype, moved * size, works)


def others(op: str, libraries: dict[str, Any], tensors: tuple[torch.Tensor, ...]) -> dict[str, Work]:
    """What liger-kernel and flashinfer have of *op*."""
    found: dict[str, Work] = {}
    liger, flashinfer = libraries.get("liger"), libraries.get("flashinfer")
    if liger is not None and op == "LayerNormFwdOp":
        found["liger"] = lambda: liger.LigerLayerNormFunction.apply(*tensors, EPS)
    if liger is not None and op == "RMSNormFwdOp":
        found["liger"] = lambda: liger.LigerRMSNormFunction.apply(*tensors, EPS)
    if liger is not None and op == "FusedAddRMSNormFwdOp":
        x, residual, weight = tensors
        found["liger"] = lambda: liger.LigerFusedAddRMSNormFunction.apply(x, residual, weight, EPS, 0.0, "llama", False)
    if flashinfer is not None and op == "RMSNormFwdOp":
        found["flashinfer"] = lambda: flashinfer.rmsnorm(*tensors, eps=EPS)
    if flashinfer is not None and op == "FusedAddRMSNormFwdOp":
        x, residual = tensors[0].clone(), tensors[1].clone()
        found["flashinfer"] = lambda: flashinfer.fused_add_rmsnorm(x, residual, tensors[2], eps=EPS)
    return found


def host_rows() -> Iterator[dict[str, Any]]:
    """The whole call on a small input, as the host sees it."""
    for shape in ((1, 4096), (2, 3, 4096)):
        yield host_row(shape, LayerNormFwdOp(shape[-1], EPS), F.layer_norm, 2)
        yield host_row(shape, RMSNormFwdOp(shape[-1], EPS), F.rms_norm, 1)


def host_row(shape: tuple[int, ...], op: Any, kind: Callable[..., Any], weights: int) -> dict[str, Any]:
    """*op* and torch's function on one shape, with as many weights."""
    x = torch.randn(shape, device=CUDA, dtype=torch.bfloat16)
    given = tuple(torch.randn(weights, shape[-1], device=CUDA, dtype=torch.bfloat16))
    host = host_us({"ours": lambda: op(x, *given), "torch": lambda: kind(x, shape[-1:], *given, eps=EPS)})
    return {"op": type(op).__name__, "shape": shape, **{name: round(us, 1) for name, us in host.items()}}
