"""Batch normalization by running statistics on a GPU against float64, in each way that values lie over threads."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.kernels.support import DEVICE, build, rounding_unit
from tests.kernels.test_batch_norm_gpu import (
    ARITHMETIC,
    DTYPES,
    EPS,
    GUARD,
    affine,
    call_of,
    drawn,
    in_guards,
    over,
    running,
    within,
)
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.infer_layout import EACH, ONE, SOME, TWO, Columns, Planes, infer_layout
from tileops.ops import BatchNormFwdOp

pytestmark = pytest.mark.gpu

SHAPES = [
    (32, 64),
    (1, 3),
    (70_000, 1),
    (1000, 513),
    (3, 40, 2),
    (5, 24, 3),
    (2, 3, 17),
    (9, 5, 7, 7),
    (33, 16, 7, 7),
    (128, 264, 7, 7),
    (70_001, 8, 1, 9),
    (6, 12, 8, 8),
    (270_000, 16, 8, 8),
    (8, 64, 32, 32),
    (3, 70_000, 2, 16),
    (4, 256, 28, 28),
    (1, 1, 90_301),
    (3, 5, 90_301),
    (2, 3, 1000, 1000),
    (1, 70_000, 1024),
    (1, 66_000, 1080),
]
"""Vectors of one channel, two, several and each its own; blocks counted along one axis; planes of a block and more."""


def tensors(shape: tuple[int, ...], dtype: torch.dtype, weight_dtype: torch.dtype, running_dtype: torch.dtype) -> Any:
    return drawn(*shape, dtype=dtype), *affine(shape[1], weight_dtype), *running(shape[1], running_dtype)


def check(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
) -> None:
    exact = F.batch_norm(x.double(), mean.double(), var.double(), weight.double(), bias.double(), eps=EPS)
    scale = (over(x, weight) / torch.sqrt(over(x, var) + EPS)).abs()
    largest = (x.double().abs() + over(x, mean).abs()) * scale + over(x, bias).abs()
    within(out, exact, rounding_unit(x.dtype) * exact.abs() + ARITHMETIC * largest)
    assert (out.dtype, out.shape) == (x.dtype, x.shape)


def kernel_for(shape: tuple[int, ...], dtype: torch.dtype, *, half: bool = False) -> Any:
    parameters = dtype if half else torch.float32
    return build(BatchNormFwdInferKernel, call_of(shape, dtype, weight_dtype=parameters, running_dtype=parameters))


def test_the_shapes_here_are_laid_out_in_every_way() -> None:
    layouts = [infer_layout(*shape[:2], math.prod(shape[2:]), dtype) for shape in SHAPES for dtype in DTYPES]
    columns = [each for each in layouts if isinstance(each, Columns)]
    assert {each.kind for each in columns} == {ONE, TWO, EACH, SOME}
    assert {each.counted for each in columns} == {True, False}
    assert {each.steps for each in columns} >= {1, 8}
    planes = {(each.counted, each.steps) for each in layouts if isinstance(each, Planes)}
    assert planes == {(False, 1), (False, 2), (True, 1), (True, 2)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_layout_matches_float64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for parameters in (torch.float32, dtype):
        given = tensors(shape, dtype, parameters, parameters)
        check(kernel_for(shape, dtype, half=parameters is dtype)(*given), *given)


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_beside_the_result_is_written_and_no_input_is(shape: tuple[int, ...]) -> None:
    dtype = torch.float16
    kernel, given = kernel_for(shape, dtype), tensors(shape, dtype, torch.float32, torch.float32)
    guarded = [in_guards(each) for each in given]
    before = [whole.clone() for _, whole in guarded]
    out, out_whole = in_guards(torch.zeros_like(given[0]))
    layout, plane = kernel.layout, math.prod(shape[2:])
    cut = (*shape[: 2 if isinstance(layout, Planes) else 1], -1, layout.vector)
    last = [] if isinstance(layout, Planes) else [plane // layout.vector if layout.kind == ONE else plane]
    x, *parameters = (inside for inside, _ in guarded)
    kernel.compiled(x.view(cut), *parameters, out.view(cut), EPS, *last)
    check(out, *given)
    assert out_whole[:GUARD].isnan().all()
    assert out_whole[-GUARD:].isnan().all()
    for (_, whole), was in zip(guarded, before, strict=True):
        assert torch.equal(whole.nan_to_num(9.0), was.nan_to_num(9.0))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_input_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    kernel, given = kernel_for(shape, torch.float16), tensors(shape, torch.float16, torch.float32, torch.float32)
    first = kernel(*given)
    for _ in range(3):
        assert torch.equal(kernel(*given), first)


@pytest.mark.parametrize("shape", [(32, 64), (4, 20, 12, 12), (33, 16, 7, 7), (3, 5, 90_300), (5, 24, 3)])
def test_tensors_that_start_inside_their_storage_are_read_where_they_start(shape: tuple[int, ...]) -> None:
    given = tensors(shape, torch.float16, torch.float16, torch.float16)
    kernel = kernel_for(shape, torch.float16, half=True)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        storage = torch.full((tensor.numel() + 1,), float("nan"), dtype=tensor.dtype, device=DEVICE)
        storage[1:] = tensor.reshape(-1)
        return storage[1:].view(tensor.shape)

    assert torch.equal(kernel(*map(moved, given)), kernel(*given))


@pytest.mark.parametrize("shape", [(32, 64), (33, 16, 7, 7), (5, 24, 3), (8, 64, 32, 32)])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_bad_value_or_statistic_stays_where_torch_has_it(shape: tuple[int, ...], poison: float) -> None:
    x, weight, bias, mean, var = tensors(shape, torch.float32, torch.float32, torch.float32)
    x.view(*shape[:2], -1)[0, 1, 0] = poison
    mean[2] = poison
    var[0], weight[0] = -1.0, 1.0
    var[3] = poison
    wanted = F.batch_norm(x.double(), mean.double(), var.double(), weight.double(), bias.double(), eps=EPS)
    out = kernel_for(shape, torch.float32)(x, weight, bias, mean, var)
    assert torch.equal(out.isnan(), wanted.isnan())
    assert torch.equal(out.isinf(), wanted.isinf())


def test_rows_of_more_values_than_32_bits_count_are_normalized_to_the_last() -> None:
    for shape in ((1, 2**24 + 1, 129), (2, 2**25 + 1, 33)):
        assert math.prod(shape[1:]) > 2**30
        c = shape[1]
        x = torch.ones(shape, dtype=torch.float16, device=DEVICE)
        mean = (torch.arange(c, device=DEVICE) % 1024).float()
        ones = torch.ones(c, device=DEVICE)
        out = BatchNormFwdOp(eps=0.0)(x, mean, ones)
        wanted = (1.0 - mean).half()
        assert torch.equal(out.amin(dim=(0, 2)), wanted)
        assert torch.equal(out.amax(dim=(0, 2)), wanted)
        del x, out
