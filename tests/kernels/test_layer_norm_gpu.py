"""LayerNorm on a GPU against float64.

The bound on the error of one element: rounding the result to its dtype costs half a unit in the last place.
The rest is float32 arithmetic on numbers no larger than the widest normalized distance of the row. A thread
adds at most 64 values before the tree over threads: ``ARITHMETIC`` covers sums, square root and products.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, rounding_unit
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.norm.layer_norm import LayerNormKernel

pytestmark = pytest.mark.gpu

LENGTHS = [1, 7, 8, 255, 256, 257, 513, 768, 769, 3000, 3584, 16384, 16385, 65537]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EPS = 1e-5
ARITHMETIC = 32 * FLOAT32_UNIT
GUARD = 256


def kernel_for(n: int, dtype: torch.dtype) -> Any:
    return build(LayerNormKernel, LayerNormCall(n=n, eps=EPS, dtype=dtype))


def inputs(rows: int, n: int, dtype: torch.dtype, *, mean: float = 0.0, std: float = 1.0) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator(DEVICE).manual_seed(n + rows)
    x, weight, bias = (
        torch.randn(shape, generator=draw, device=DEVICE, dtype=torch.float32) for shape in ((rows, n), (n,), (n,))
    )
    return (x * std + mean).to(dtype), weight.to(dtype), bias.to(dtype)


def expected(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the largest error that the kernel may make in each element."""
    n = weight.numel()
    rows = x.double().reshape(-1, n)
    variance, mean = torch.var_mean(rows, dim=1, correction=0, keepdim=True)
    deviation = torch.sqrt(variance + EPS)
    result = (rows - mean) / deviation * weight.double() + bias.double()
    widest = (rows - mean).abs().amax(dim=1, keepdim=True) / deviation
    allowed = rounding_unit(x.dtype) * result.abs() + ARITHMETIC * (
        widest * weight.double().abs() + bias.double().abs()
    )
    return result.reshape(x.shape), allowed.reshape(x.shape)


def check(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    result, allowed = expected(x, weight, bias)
    tiny = torch.finfo(out.dtype).smallest_normal
    error = (out.double() - result).abs() / (allowed + tiny)
    assert out.dtype == x.dtype
    assert not error.isnan().any()
    assert error.max().item() <= 1.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_rows_of_any_length_match_float64_and_nothing_beside_them_is_written(n: int, dtype: torch.dtype) -> None:
    kernel = kernel_for(n, dtype)
    for rows in (1, 5, 131):
        x, weight, bias = inputs(rows, n, dtype)
        size = rows * n
        held, written = (torch.full((size + 2 * GUARD,), float("nan"), dtype=dtype, device=DEVICE) for _ in range(2))
        held[GUARD : GUARD + size] = x.reshape(-1)
        before = held.clone()
        inside = slice(GUARD, GUARD + size)
        kernel.compiled(held[inside].view(rows, n), weight, bias, written[inside].view(rows, n))
        check(written[inside].view(rows, n), x, weight, bias)
        assert written[:GUARD].isnan().all()
        assert written[GUARD + size :].isnan().all()
        assert torch.equal(held.nan_to_num(9.0), before.nan_to_num(9.0)), "the input is not written"


@pytest.mark.parametrize("n", [256, 769, 16385])
def test_a_mean_far_above_the_deviation_costs_no_digits(n: int) -> None:
    x, weight, bias = inputs(33, n, torch.float32, mean=1e4, std=1e-2)
    check(kernel_for(n, torch.float32)(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize("n", [256, 769, 16385, 65537])
def test_a_first_element_far_from_the_rest_costs_no_digits(n: int) -> None:
    x, weight, bias = inputs(33, n, torch.float32)
    x[:, 0] = 1e6
    check(kernel_for(n, torch.float32)(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize("n", [1, 8, 769, 65537])
def test_a_constant_row_gives_the_bias(n: int) -> None:
    _, weight, bias = inputs(3, n, torch.float32)
    x = torch.full((3, n), 3e38, device=DEVICE)
    assert torch.equal(kernel_for(n, torch.float32)(x, weight, bias), bias.expand(3, n))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [7, 769, 16385])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("column", [0, 6])
def test_one_bad_element_makes_its_row_nan_and_no_other(n: int, dtype: torch.dtype, poison: float, column: int) -> None:
    kernel = kernel_for(n, dtype)
    x, weight, bias = inputs(9, n, dtype)
    clean = kernel(x, weight, bias)
    x[4, column] = poison
    out = kernel(x, weight, bias)
    assert torch.nn.functional.layer_norm(x.double(), (n,), eps=EPS)[4].isnan().all(), "as torch does"
    assert out[4].isnan().all()
    out[4] = clean[4]
    assert torch.equal(out, clean)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [8, 3000, 65537])
def test_the_same_input_gives_the_same_bits(n: int, dtype: torch.dtype) -> None:
    kernel = kernel_for(n, dtype)
    x, weight, bias = inputs(257, n, dtype)
    first = kernel(x, weight, bias)
    assert all(torch.equal(kernel(x, weight, bias), first) for _ in range(5))


def test_any_shape_whose_trailing_axes_are_the_row_is_taken() -> None:
    kernel = kernel_for(24, torch.float16)
    draw = torch.Generator(DEVICE).manual_seed(0)
    x = torch.randn(2, 3, 4, 6, generator=draw, device=DEVICE, dtype=torch.float16)
    weight, bias = (torch.randn(4, 6, generator=draw, device=DEVICE, dtype=torch.float16) for _ in range(2))
    out = kernel(x, weight, bias)
    assert out.shape == x.shape
    check(out.view(6, 24), x.view(6, 24), weight.view(24), bias.view(24))
    assert kernel(x[:0], weight, bias).shape == (0, 3, 4, 6)


@pytest.mark.parametrize("offset", [1, 3, 8])
def test_tensors_that_start_inside_their_storage_are_read_where_they_start(offset: int) -> None:
    kernel = kernel_for(768, torch.float16)
    x, weight, bias = inputs(5, 768, torch.float16)
    moved = []
    for tensor in (x, weight, bias):
        storage = torch.full((tensor.numel() + offset,), float("nan"), dtype=tensor.dtype, device=DEVICE)
        storage[offset:] = tensor.reshape(-1)
        moved.append(storage[offset:].view(tensor.shape))
    assert torch.equal(kernel(*moved), kernel(x, weight, bias))


def test_a_column_that_is_contiguous_by_its_sizes_alone_is_taken() -> None:
    kernel = kernel_for(1, torch.float32)
    x = torch.randn(1, 6, device=DEVICE).t()
    weight, bias = torch.ones(1, device=DEVICE), torch.full((1,), 2.0, device=DEVICE)
    assert x.is_contiguous()
    assert torch.equal(kernel(x, weight, bias), torch.full((6, 1), 2.0, device=DEVICE))


def test_more_elements_than_32_bits_count_are_normalized_to_the_last() -> None:
    rows, n = 540_000, 4096
    assert rows * n > 2**31
    kernel = kernel_for(n, torch.float16)
    x, weight, bias = inputs(4, n, torch.float16)
    big = torch.zeros(rows, n, dtype=torch.float16, device=DEVICE)
    big[-4:] = x
    out = kernel(big, weight, bias)
    check(out[-4:], x, weight, bias)
    assert torch.equal(out[:2], bias.expand(2, n))
