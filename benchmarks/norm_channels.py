"""The normalizations of channels, as ``norm.py`` measures them: float16 input, float32 weights and statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from timing import CUDA, Case, Work, compiled

from tileops.ops import BatchNormBwdOp, BatchNormFwdOp, InstanceNormFwdOp

EPS, MOMENTUM = 1e-5, 0.1
SHAPES = (
    (32, 64),
    (256, 512),
    (8, 64, 32, 32),
    (4, 128, 32, 32),
    (4, 256, 28, 28),
    (128, 2048, 7, 7),
    (32, 64, 112, 112),
    (32, 256, 56, 56),
    (8, 32, 512, 512),
    (4, 128, 1024, 1024),
)


def train(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Batch norm in training."""
    return F.batch_norm(x, mean, var, w, b, True, MOMENTUM, EPS)


def infer(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Batch norm from running statistics."""
    return F.batch_norm(x, mean, var, w, b, False, MOMENTUM, EPS)


def instance(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Instance norm without running statistics."""
    return F.instance_norm(x, None, None, w, b, True, MOMENTUM, EPS)


def backward(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Any:
    """The gradients of batch norm in training."""
    return torch.ops.aten.native_batch_norm_backward(grad, x, w, None, None, mean, rstd, True, EPS, [True] * 3)


def channel_cases() -> Iterator[Case]:
    """The normalizations of channels; the least traffic of training is two reads and one write."""
    for shape in SHAPES:
        x, grad = (torch.randn(shape, device=CUDA, dtype=torch.float16) for _ in range(2))
        weight, bias, mean, var = (torch.rand(shape[1], device=CUDA) + 0.5 for _ in range(4))
        size = x.numel() * x.element_size()
        trained, inferred = BatchNormFwdOp(training=True), BatchNormFwdOp()
        _, saved, rstd = trained.with_statistics(x, None, None, weight, bias)
        given = (x, mean, var, weight, bias)
        yield case("batch norm training", shape, 3 * size, trained, train, given)
        yield case("batch norm inference", shape, 2 * size, inferred, infer, given)
        yield case("batch norm backward", shape, 5 * size, BatchNormBwdOp(), backward, (grad, x, weight, saved, rstd))
        if len(shape) > 2:
            op = InstanceNormFwdOp()
            works = works_of(lambda x, w, b, op=op: op(x, None, None, w, b), instance, (x, weight, bias))
            yield Case("instance norm", shape, x.dtype, 2 * size, works)


def case(name: str, shape: tuple[int, ...], moved: int, op: Any, peer: Any, tensors: tuple[torch.Tensor, ...]) -> Case:
    """One op and its peers on the same tensors."""
    return Case(name, shape, torch.float16, moved, works_of(op, peer, tensors))


def works_of(op: Any, peer: Any, tensors: tuple[torch.Tensor, ...]) -> dict[str, Work]:
    """Ours, torch's and the compiled one."""
    return {
        "ours": lambda: op(*tensors),
        "torch": lambda: peer(*tensors),
        "torch.compile": compiled(peer, *tensors),
    }
