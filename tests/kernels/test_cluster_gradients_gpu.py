"""Gradients of channels that lie in the shared memory of clusters, on a GPU against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.support import DEVICE, build, on_this_gpu, rounding_unit
from tests.kernels.test_batch_norm_gpu import (
    ARITHMETIC,
    DTYPES,
    EPS,
    affine,
    call_of,
    check_statistics,
    drawn,
    in_guards,
    over,
    within,
)
from tileops.kernels.norm.batch_norm_bwd import BatchNormBwdClusterKernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.cluster_launches import cluster_extents

pytestmark = pytest.mark.gpu

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
SHAPES = {
    (3, 130, 56, 56): 1,
    (4, 128, 64, 32): 1,
    (6, 70, 56, 56): 2,
    (9, 33, 52, 60): 4,
    (5, 3, 20, 84): 8,
    (70, 5, 16, 16): 8,
    (1, 3, 300, 304): 8,
    (16, 9, 112, 112): 8,
}
"""By shape, of all dtypes: blocks that share a channel. Some have planes that lie in two blocks or in pieces of them,
some more planes than a warp has lanes, some last blocks with less than the others."""
LONGEST = [((32, 9, 112, 112), HALF), ((8, 40, 208, 208), BRAIN)]
CASES = [*((shape, dtype) for shape in SHAPES for dtype in DTYPES), *LONGEST]
SMALL = [(1, 9, 8), (1, 3, 40), (3, 4, 24), (2, 5, 520), (40, 6, 8)]
"""Samples, channels and values of a plane that leave blocks, and pieces of blocks, without any."""
TIMES = 10


def kernel_of(shape: tuple[int, ...], dtype: torch.dtype, weight_dtype: torch.dtype = FULL) -> Any:
    return build(BatchNormBwdClusterKernel, call_of(shape, dtype, weight_dtype=weight_dtype))


def given(
    shape: tuple[int, ...], dtype: torch.dtype, weight_dtype: torch.dtype = FULL, mean: float = 0.5
) -> tuple[torch.Tensor, ...]:
    """What the kernel takes, its large tensors between NaNs: gradient, input, weight, mean and rstd."""
    x, _ = in_guards(drawn(*shape, dtype=dtype, mean=mean))
    grad, _ = in_guards(drawn(*shape, dtype=dtype, seed=7, mean=0.1))
    variance, center = torch.var_mean(x.double().transpose(0, 1).flatten(1), 1, correction=0)
    return grad, x, affine(shape[1], weight_dtype)[0], center.float(), torch.rsqrt(variance + EPS).float()


def hold(found: tuple[torch.Tensor, ...], tensors: tuple[torch.Tensor, ...]) -> None:
    """Hold gradients against what torch finds in float64 from the same *tensors*."""
    grad, x, weight, mean, rstd = (each.double() for each in tensors)
    exact, exact_weight, exact_bias = torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, None, None, mean, rstd, True, EPS, [True, True, True]
    )
    axes = [0, *range(2, x.dim())]
    normal = (x - over(x, mean)) * over(x, rstd)
    products = grad.abs() * normal.abs()
    out, grad_weight, grad_bias = found
    check_statistics(grad_bias, exact_bias, grad.abs().sum(axes))
    check_statistics(grad_weight, exact_weight, products.sum(axes))
    largest = grad.abs() + over(x, grad.abs().mean(axes)) + normal.abs() * over(x, products.mean(axes))
    largest = largest * over(x, (weight * rstd).abs())
    within(out, exact, rounding_unit(out.dtype) * exact.abs() + ARITHMETIC * largest)
    assert (out.shape, out.dtype) == (x.shape, tensors[1].dtype)
    assert grad_weight.dtype == grad_bias.dtype == tensors[2].dtype


def same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_the_shapes_are_of_every_cluster_and_of_every_number_of_resident_blocks() -> None:
    found = set()
    for shape, dtype in CASES:
        layout = BatchNormBwdClusterKernel.layout_of(on_this_gpu(call_of(shape, dtype)))
        assert layout.blocks == SHAPES.get(shape, 8)
        found.add((layout.blocks, layout.resident))
    assert {blocks for blocks, _ in found} == {1, 2, 4, 8}
    assert {resident for _, resident in found} == {1, 2, 3, 4}


@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_gradients_match_float64_and_are_the_same_to_the_bit_each_time(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for weight_dtype in {FULL, dtype}:
        kernel, tensors = kernel_of(shape, dtype, weight_dtype), given(shape, dtype, weight_dtype)
        before = [each.clone() for each in tensors]
        first = kernel(*tensors)
        hold(first, tensors)
        for _ in range(TIMES):
            assert same(kernel(*tensors), first)
        assert same(tensors, tuple(before)), "what is given is not written"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SMALL)
def test_a_kernel_of_each_cluster_takes_channels_that_leave_blocks_without_any(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for built in ((3, 130, 56, 56), (6, 70, 56, 56), (9, 33, 52, 60), (5, 3, 20, 84)):
        tensors = given(shape, dtype)
        hold(kernel_of(built, dtype)(*tensors), tensors)


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_beside_the_results_is_written(shape: tuple[int, ...]) -> None:
    kernel, tensors = kernel_of(shape, HALF), given(shape, HALF)
    grad, x, *rest = tensors
    results = [in_guards(torch.zeros_like(each)) for each in (x, *rest[:1] * 2)]
    n, c = shape[:2]
    values = x.numel() // c
    kernel.compiled(
        *(each.view(-1, kernel.laid.vector) for each in (grad, x)),
        *rest,
        results[0][0].view(-1, kernel.laid.vector),
        *(inside for inside, _ in results[1:]),
        1.0 / values,
        *cluster_extents(kernel.laid, n, c, values),
    )
    inside = tuple(each for each, _ in results)
    hold(inside, tensors)
    assert same(inside, kernel(*tensors))
    for each, whole in results:
        assert whole.isnan().sum().item() == whole.numel() - each.numel()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mean_far_above_the_deviation_costs_no_digits(shape: tuple[int, ...]) -> None:
    tensors = given(shape, FULL, mean=1e3)
    hold(kernel_of(shape, FULL)(*tensors), tensors)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("sample", [0, -1])
def test_one_bad_value_spoils_its_channel_and_no_other(
    shape: tuple[int, ...], poison: float, which: int, sample: int
) -> None:
    kernel, tensors = kernel_of(shape, HALF), given(shape, HALF)
    clean = kernel(*tensors)
    tensors[which].view(*shape[:2], -1)[sample, 1, sample] = poison
    found = kernel(*tensors)
    out, grad_weight, grad_bias = found
    assert not out[:, 1].isfinite().any()
    assert poison == poison or out[:, 1].isnan().all()
    assert not grad_weight[1].isfinite()
    assert grad_bias[1].isfinite() == (which == 1)
    for each, was in zip(found, clean, strict=True):
        axis = 1 if each.dim() > 1 else 0
        each.select(axis, 1).copy_(was.select(axis, 1))
    assert same(found, clean)


def test_tensors_that_start_inside_their_storage_are_read_where_they_start() -> None:
    shape = (6, 70, 56, 56)
    kernel, tensors = kernel_of(shape, HALF), given(shape, HALF)
    moved = []
    for each in tensors[:2]:
        storage = torch.full((each.numel() + 1,), float("nan"), dtype=each.dtype, device=DEVICE)
        storage[1:] = each.reshape(-1)
        moved.append(storage[1:].view(shape))
    assert same(kernel(*moved, *tensors[2:]), kernel(*tensors))


def test_launches_on_several_streams_at_once_give_what_they_give_alone() -> None:
    works = [(kernel_of(shape, HALF), given(shape, HALF)) for shape in SHAPES]
    alone = [kernel(*tensors) for kernel, tensors in works]
    streams = [torch.cuda.Stream(DEVICE) for _ in range(4)]
    torch.cuda.synchronize()
    outs = []
    for turn in range(10):
        for i, stream in enumerate(streams):
            which = (turn + 3 * i) % len(works)
            kernel, tensors = works[which]
            with torch.cuda.stream(stream):
                outs.append((which, kernel(*tensors)))
    torch.cuda.synchronize()
    for which, found in outs:
        assert same(found, alone[which])


def test_long_channels_that_held_ones_leave_are_taken_and_longer_ones_are_not() -> None:
    for dtype, spatial in ((HALF, 14336), (BRAIN, 14336), (FULL, 7168)):
        for n, served in ((32, True), (33, False)):
            call = on_this_gpu(BatchNormCall(n, 64, spatial, dtype=dtype))
            assert (BatchNormBwdClusterKernel.refusal(call) is None) is served
