"""Channels that are cut over blocks, on a GPU against float64: one launch, whose blocks wait for one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels.channel_support import ARITHMETIC, DTYPES, EPS, MOMENTUM, drawn, hold, kernel_of, parameters, rows
from tests.kernels.support import DEVICE, FLOAT32_UNIT, rounding_unit
from tileops.kernels.norm.batch_norm_bwd import BatchNormBwdSplitKernel
from tileops.kernels.norm.batch_norm_train import BatchNormFwdTrainSplitKernel
from tileops.kernels.norm.instance_norm import InstanceNormFwdSplitKernel

pytestmark = pytest.mark.gpu

SHAPES = [
    (1, 1, 8192),
    (1, 1, 8193),
    (3, 5, 90300),
    (3, 5, 90301),
    (4, 500, 56, 56),
    (9000, 40),
    (9001, 4095),
    (5000, 3, 2),
    (2100, 33, 4),
    (2, 3, 1031, 1033),
    (16, 128, 256, 256),
    (9, 5, 700, 702),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_training_matches_float64_twenty_times_to_the_bit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel = kernel_of(BatchNormFwdTrainSplitKernel, shape, dtype, torch.float32)
    x, (weight, bias) = drawn(*shape, dtype=dtype) + 0.5, parameters(shape[1])
    start = [drawn(shape[1], dtype=torch.float32, seed=3), drawn(shape[1], dtype=torch.float32, seed=4).abs()]
    moved = [each.clone() for each in start]
    first = kernel(x, weight, bias, *moved)
    hold(first[0], x, weight, bias)
    variance, mean = torch.var_mean(rows(x), 1, correction=1)
    deviation = variance.sqrt() + mean.abs()
    for found, was, new in zip(moved, start, (mean, variance), strict=True):
        exact = (1 - MOMENTUM) * was.double() + MOMENTUM * new
        assert ((found - exact).abs() <= 2 * FLOAT32_UNIT * exact.abs() + ARITHMETIC * (deviation + was.abs())).all()
    for _ in range(20):
        again = [each.clone() for each in start]
        outs = kernel(x, weight, bias, *again)
        pairs = zip((*first, *moved), (*outs, *again), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_match_float64_twenty_times_to_the_bit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel = kernel_of(BatchNormBwdSplitKernel, shape, dtype)
    x, grad, (weight, _) = drawn(*shape, dtype=dtype), drawn(*shape, dtype=dtype, seed=7) + 0.3, parameters(shape[1])
    variance, mean = torch.var_mean(rows(x), 1, correction=0)
    mean, rstd = mean.float(), torch.rsqrt(variance + EPS).float()
    given = (grad, x, weight, mean, rstd)
    out, grad_weight, grad_bias = kernel(*given)
    grads, normal = rows(grad), (rows(x) - mean.double()[:, None]) * rstd.double()[:, None]
    products = grads * normal
    for found, exact in ((grad_bias, grads), (grad_weight, products)):
        allowed = 2 * FLOAT32_UNIT * exact.sum(1).abs() + ARITHMETIC * exact.abs().sum(1)
        assert ((found - exact.sum(1)).abs() <= allowed).all()
    scale = (weight.double() * rstd.double())[:, None]
    exact = (grads - grads.mean(1, keepdim=True) - normal * products.mean(1, keepdim=True)) * scale
    largest = grads.abs() + grads.abs().mean(1, keepdim=True) + normal.abs() * products.abs().mean(1, keepdim=True)
    allowed = rounding_unit(dtype) * exact.abs() + ARITHMETIC * largest * scale.abs()
    assert ((rows(out) - exact).abs() <= allowed + torch.finfo(dtype).smallest_normal).all()
    for _ in range(20):
        pairs = zip((out, grad_weight, grad_bias), kernel(*given), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 300, 301), (2, 3, 300, 304), (4, 100, 128, 128), (1, 3, 2100, 2000)])
def test_instances_match_float64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel = kernel_of(InstanceNormFwdSplitKernel, shape, dtype)
    n, c = shape[:2]
    x, (weight, bias) = drawn(*shape, dtype=dtype), parameters(c)
    hold(kernel(x, weight, bias).view(1, n * c, -1), x.view(1, n * c, -1), weight.repeat(n), bias.repeat(n))


@pytest.mark.parametrize("far", [1e4, -1e6])
@pytest.mark.parametrize("place", [0, 5000, -1])
def test_a_value_far_from_the_rest_costs_the_rest_no_digits(far: float, place: int) -> None:
    shape = (3, 5, 90300)
    kernel = kernel_of(BatchNormFwdTrainSplitKernel, shape, torch.float32)
    x, weight, bias = drawn(*shape, dtype=torch.float32), torch.ones(5, device=DEVICE), torch.zeros(5, device=DEVICE)
    x[0, :, place] = far
    values = rows(x)
    variance, mean = torch.var_mean(values, 1, correction=0, keepdim=True)
    exact = (values - mean) / torch.sqrt(variance + EPS)
    near = exact.abs() < 1
    error = (rows(kernel(x, weight, bias, None, None)[0]) - exact).abs()
    assert error[near].max().item() <= 4 * FLOAT32_UNIT, "not of the digits of the far one"


def test_a_mean_far_above_the_deviation_costs_no_digits() -> None:
    for shape in SHAPES[:8]:
        kernel = kernel_of(BatchNormFwdTrainSplitKernel, shape, torch.float32)
        x, (weight, bias) = drawn(*shape, dtype=torch.float32) * 1e-2 + 1e4, parameters(shape[1])
        hold(kernel(x, weight, bias, None, None)[0], x, weight, bias)


def test_squares_too_large_for_float32_make_the_variance_infinite() -> None:
    shape = (3, 5, 90300)
    x, (weight, bias) = drawn(*shape, dtype=torch.float32), parameters(5)
    x[:, 1, 77] = 1e20
    out, mean, rstd = kernel_of(BatchNormFwdTrainSplitKernel, shape, torch.float32)(x, weight, bias, None, None)
    assert rstd[1] == 0
    assert mean[1].isfinite()
    assert (out[:, 1] == bias[1]).all()


def cases() -> list[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    """Kernels and what they are called with: training and gradients, at several sizes."""
    found: list[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = []
    for seed, shape in enumerate([(8, 32, 128, 128), (32, 64, 112, 112), (9000, 40), (3, 5, 90301), (1, 500, 8192)]):
        x, grad = drawn(*shape, dtype=torch.float16, seed=seed), drawn(*shape, dtype=torch.float16, seed=seed + 9)
        weight, bias = parameters(shape[1])
        train = kernel_of(BatchNormFwdTrainSplitKernel, shape, torch.float16)
        _, mean, rstd = train(x, weight, bias, None, None)
        found.append((lambda *given, kernel=train: kernel(*given, None, None), (x, weight, bias)))
        found.append((kernel_of(BatchNormBwdSplitKernel, shape, torch.float16), (grad, x, weight, mean, rstd)))
    return found


def test_launches_on_several_streams_at_once_give_what_they_give_alone() -> None:
    works = cases()
    alone = [work(*given) for work, given in works]
    streams = [torch.cuda.Stream(DEVICE) for _ in range(4)]
    torch.cuda.synchronize()
    outs = []
    for turn in range(40):
        for i, stream in enumerate(streams):
            which = (turn + 3 * i) % len(works)
            work, given = works[which]
            with torch.cuda.stream(stream):
                outs.append((which, work(*given)))
    torch.cuda.synchronize()
    for which, found in outs:
        assert all(torch.equal(one, other) for one, other in zip(found, alone[which], strict=True))


def test_graphs_that_run_at_once_and_again_give_what_launches_give() -> None:
    works = cases()
    alone = [work(*given) for work, given in works]
    torch.cuda.synchronize()
    graphs = []
    for work, given in works:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs = work(*given)
        graphs.append((graph, outs))
    streams = [torch.cuda.Stream(DEVICE) for _ in graphs]
    for _ in range(10):
        for _, outs in graphs:
            for each in outs:
                each.fill_(float("nan"))
        torch.cuda.synchronize()
        for stream, (graph, _) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for (_, outs), wanted in zip(graphs, alone, strict=True):
            assert all(torch.equal(one, other) for one, other in zip(outs, wanted, strict=True))
    again = [work(*given) for work, given in works]
    for found, wanted in zip(again, alone, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
