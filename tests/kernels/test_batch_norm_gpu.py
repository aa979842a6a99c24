"""Batch and instance normalization on a GPU against float64.

The bound on the error of one element: rounding the result to its dtype costs half a unit in the last place. The rest is
float32 arithmetic on numbers no larger than the widest normalized distance of the channel: ``ARITHMETIC`` covers sums,
merges, square root and products.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, rounding_unit
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.ops import BatchNormBwdOp, BatchNormFwdOp, InstanceNormFwdOp

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EPS = 1e-5
MOMENTUM = 0.3
ARITHMETIC = 32 * FLOAT32_UNIT
GUARD = 256

TRAINING = [
    ("fwd_train_whole", (32, 64)),
    ("fwd_train_whole", (4, 1000, 2, 4)),
    ("fwd_train_whole", (2, 33, 7)),
    ("fwd_train_whole", (31, 2049)),
    ("fwd_train_wide", (256, 512)),
    ("fwd_train_wide", (2, 3, 17)),
    ("fwd_train_wide", (8, 64, 32, 32)),
    ("fwd_train_wide", (4, 256, 28, 28)),
    ("fwd_train_wide", (128, 700, 7, 7)),
    ("fwd_train_wide", (5, 30, 3)),
    ("fwd_train_wide", (128, 24, 7, 7)),
    ("fwd_train_wide", (127, 16, 7, 7)),
    ("fwd_train_wide", (3, 40, 17, 17)),
    ("fwd_train_wide", (300, 16, 7, 7)),
    ("fwd_train_wide", (30, 600, 1, 2)),
    ("fwd_train_wide", (40, 2100)),
    ("fwd_train_wide", (1, 19, 16384)),
    ("fwd_train_split", (3, 5, 90300)),
    ("fwd_train_split", (3, 5, 90301)),
    ("fwd_train_split", (8, 32, 128, 128)),
    ("fwd_train_split", (9000, 40)),
    ("fwd_train_split", (5000, 3, 2)),
    ("fwd_train_kernel", (64, 600, 30, 30)),
    ("fwd_train_kernel", (30, 531, 25, 25)),
    ("fwd_train_kernel", (700, 100)),
    ("fwd_train_kernel", (3000, 24, 7, 7)),
    ("fwd_train_kernel", (50, 16, 21, 21)),
    ("fwd_train_kernel", (2, 3, 100_003)),
]


def call_of(shape: tuple[int, ...], dtype: torch.dtype, **facts: Any) -> BatchNormCall:
    spatial = math.prod(shape[2:])
    return BatchNormCall(shape[0], shape[1], spatial, eps=EPS, dtype=dtype, momentum=MOMENTUM, **facts)


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    draw = torch.Generator(DEVICE).manual_seed(seed + sum(shape))
    values = torch.randn(shape, generator=draw, device=DEVICE, dtype=torch.float32)
    return (values * std + mean).to(dtype)


def affine(c: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(c, dtype=dtype, seed=1), drawn(c, dtype=dtype, seed=2)


def running(c: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(c, dtype=dtype, seed=3), drawn(c, dtype=dtype, seed=4).abs() + 0.5


def over(x: torch.Tensor, channel: torch.Tensor) -> torch.Tensor:
    """One value a channel, to go with *x*."""
    return channel.double().reshape(1, -1, *(1,) * (x.dim() - 2))


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean, biased variance and widest normalized distance of each channel, in float64, a channel at a time."""
    found = []
    for channel in range(x.shape[1]):
        values = x[:, channel].double().reshape(-1)
        variance, mean = torch.var_mean(values, correction=0)
        found.append(torch.stack([mean, variance, (values - mean).abs().max() / torch.sqrt(variance + EPS)]))
    mean, variance, widest = torch.stack(found, dim=1)
    return mean, variance, widest


def within(found: torch.Tensor, exact: torch.Tensor, allowed: torch.Tensor) -> None:
    error = (found.double() - exact).abs() / (allowed + torch.finfo(found.dtype).smallest_normal)
    assert not error.isnan().any()
    assert error.max().item() <= 1.0


def check(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Hold a result in training against float64."""
    mean, variance, widest = moments(x)
    for channel in range(0, x.shape[1], max(1, 2**27 // max(1, x[:, 0].numel()))):
        some = slice(channel, channel + max(1, 2**27 // x[:, 0].numel()))
        part = x[:, some]
        scale = over(x, weight[some])
        shift = over(x, bias[some])
        exact = (part.double() - over(x, mean[some])) / torch.sqrt(over(x, variance[some]) + EPS) * scale + shift
        allowed = rounding_unit(x.dtype) * exact.abs()
        allowed = allowed + ARITHMETIC * (over(x, widest[some]) * scale.abs() + shift.abs())
        within(out[:, some], exact, allowed)
    assert out.dtype == x.dtype
    assert out.shape == x.shape


def check_statistics(found: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor) -> None:
    """Hold one value a channel against float64; *scale* is what it is computed from at its largest."""
    within(found, exact, rounding_unit(found.dtype) * exact.abs() + ARITHMETIC * scale)


def in_guards(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy of *x* between poisoned guards, and the whole of it."""
    whole = torch.full((x.numel() + 2 * GUARD,), float("nan"), dtype=x.dtype, device=DEVICE)
    inside = whole[GUARD : GUARD + x.numel()].view(x.shape)
    inside.copy_(x)
    return inside, whole


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("key", "shape"), TRAINING)
def test_training_matches_float64_and_moves_running_statistics(
    key: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    c, values = shape[1], math.prod(shape) // shape[1]
    for weight_dtype, running_dtype in ((torch.float32, torch.float32), (dtype, dtype), (dtype, None)):
        kind = BatchNormFwdOp.kernel_types[key]
        kernel = build(kind, call_of(shape, dtype, weight_dtype=weight_dtype, running_dtype=running_dtype))
        x, whole = in_guards(drawn(*shape, dtype=dtype, mean=0.5))
        before = whole.clone()
        weight, bias = affine(c, weight_dtype)
        moved: Any = (None, None) if running_dtype is None else running(c, running_dtype)
        was = [None if each is None else each.double() for each in moved]
        out, mean, rstd = kernel(x, weight, bias, *moved)
        check(out, x, weight, bias)
        assert torch.equal(whole.nan_to_num(9.0), before.nan_to_num(9.0)), "the input is not written"
        wanted_mean, variance, widest = moments(x)
        wide = widest * torch.sqrt(variance + EPS)
        check_statistics(mean, wanted_mean, wide)
        check_statistics(rstd, 1 / torch.sqrt(variance + EPS), 1 / torch.sqrt(variance + EPS))
        if running_dtype is not None:
            unbiased = variance * values / (values - 1)
            for each, old, new, scale in zip(moved, was, (wanted_mean, unbiased), (wide, unbiased), strict=True):
                check_statistics(each, (1 - MOMENTUM) * old + MOMENTUM * new, old.abs() + scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("key", "shape"), TRAINING)
def test_nothing_beside_the_result_is_written(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, dtype, running_dtype=torch.float32))
    x = drawn(*shape, dtype=dtype)
    n, c = shape[:2]
    out, out_whole = in_guards(torch.zeros_like(x))
    small = [in_guards(torch.zeros(c, device=DEVICE)) for _ in range(4)]
    (mean, _), (spread, _), (running_mean, _), (running_var, _) = small
    weight, bias = affine(c, torch.float32)
    kernel.launch.normalize(x, n, c, out, mean, spread, weight, bias, (running_mean, running_var))
    check(out, x, weight, bias)
    for whole in (out_whole, *(whole for _, whole in small)):
        assert whole[:GUARD].isnan().all()
        assert whole[-GUARD:].isnan().all()
    assert not any(inside.isnan().any() for inside, _ in small)


@pytest.mark.parametrize(("key", "shape"), TRAINING)
def test_a_mean_far_above_the_deviation_costs_no_digits(key: str, shape: tuple[int, ...]) -> None:
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, torch.float32))
    x = drawn(*shape, dtype=torch.float32, mean=1e4, std=1e-2)
    weight, bias = affine(shape[1], torch.float32)
    check(kernel(x, weight, bias, None, None)[0], x, weight, bias)


@pytest.mark.parametrize(("key", "shape"), TRAINING)
def test_a_first_value_far_from_the_rest_costs_no_digits(key: str, shape: tuple[int, ...]) -> None:
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, torch.float32))
    x = drawn(*shape, dtype=torch.float32)
    x.view(*shape[:2], -1)[0, :, 0] = 1e6
    weight, bias = affine(shape[1], torch.float32)
    check(kernel(x, weight, bias, None, None)[0], x, weight, bias)


@pytest.mark.parametrize(("key", "shape"), TRAINING)
def test_beside_a_first_value_far_from_the_rest_each_of_these_keeps_its_own_digits(
    key: str, shape: tuple[int, ...]
) -> None:
    """What is far away makes the deviation large, and the results of the rest small: to these the error is held."""
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, torch.float32))
    x = drawn(*shape, dtype=torch.float32)
    x.view(*shape[:2], -1)[0, :, 0] = 1e4
    ones = torch.ones(shape[1], device=DEVICE)
    out, _, _ = kernel(x, ones, torch.zeros_like(ones), None, None)
    mean, variance, _ = moments(x)
    exact = (x.double() - over(x, mean)) / torch.sqrt(over(x, variance) + EPS)
    within(out, exact, ARITHMETIC * (exact.abs() + 1 / torch.sqrt(over(x, variance) + EPS)))


@pytest.mark.parametrize(("key", "shape"), TRAINING)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("sample", [0, -1])
def test_one_bad_value_makes_its_channel_nan_and_no_other(
    key: str, shape: tuple[int, ...], poison: float, sample: int
) -> None:
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, torch.float16))
    x, (weight, bias) = drawn(*shape, dtype=torch.float16), affine(shape[1], torch.float32)
    clean, _, _ = kernel(x, weight, bias, None, None)
    x.view(*shape[:2], -1)[sample, 1, sample] = poison
    out, mean, rstd = kernel(x, weight, bias, None, None)
    assert out[:, 1].isnan().all(), "as torch does"
    assert not mean[1].isfinite()
    assert rstd[1].isnan()
    out[:, 1] = clean[:, 1]
    assert torch.equal(out, clean)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("key", "shape"), TRAINING)
def test_the_same_input_gives_the_same_bits(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, dtype))
    x, (weight, bias) = drawn(*shape, dtype=dtype), affine(shape[1], torch.float32)
    first = kernel(x, weight, bias, None, None)
    for _ in range(5):
        again = kernel(x, weight, bias, None, None)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_a_constant_channel_gives_the_bias() -> None:
    for key, shape in TRAINING:
        kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, torch.float32))
        _, bias = affine(shape[1], torch.float32)
        out, _, _ = kernel(torch.full(shape, 3e38, device=DEVICE), torch.ones_like(bias), bias, None, None)
        assert torch.equal(out, over(out, bias).float().expand(shape))


@pytest.mark.parametrize("offset", [1, 3, 8])
@pytest.mark.parametrize("training", [True, False])
def test_tensors_that_start_inside_their_storage_are_read_where_they_start(offset: int, training: bool) -> None:
    def moved(tensor: torch.Tensor) -> torch.Tensor:
        storage = torch.full((tensor.numel() + offset,), float("nan"), dtype=tensor.dtype, device=DEVICE)
        storage[offset:] = tensor.reshape(-1)
        return storage[offset:].view(tensor.shape)

    op = BatchNormFwdOp(training)
    for shape in ((32, 64), (4, 20, 12, 12), (3, 5, 90300), (300, 600, 49)):
        x, half = drawn(*shape, dtype=torch.float16), torch.float16
        tensors = [x, *running(shape[1], half), *affine(shape[1], half)]
        here = [moved(each) for each in tensors]
        assert torch.equal(op(*here), op(*tensors))
        assert all(torch.equal(one, other) for one, other in zip(here, tensors, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(32, 64), (2, 3, 17), (8, 64, 32, 32), (30, 531, 25, 25), (3, 5, 90301), (7, 2, 2)])
@pytest.mark.parametrize("key", ["fwd_infer_kernel"])
def test_inference_matches_float64(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for weight_dtype, running_dtype in ((torch.float32, torch.float32), (dtype, dtype)):
        kind = BatchNormFwdOp.kernel_types[key]
        kernel = build(kind, call_of(shape, dtype, weight_dtype=weight_dtype, running_dtype=running_dtype))
        x = drawn(*shape, dtype=dtype)
        weight, bias = affine(shape[1], weight_dtype)
        mean, var = running(shape[1], running_dtype)
        exact = F.batch_norm(x.double(), mean.double(), var.double(), weight.double(), bias.double(), eps=EPS)
        scale = (over(x, weight) / torch.sqrt(over(x, var) + EPS)).abs()
        largest = (x.double().abs() + over(x, mean).abs()) * scale + over(x, bias).abs()
        within(kernel(x, weight, bias, mean, var), exact, rounding_unit(dtype) * exact.abs() + ARITHMETIC * largest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("instance_norm_wide", (8, 128, 32, 32)),
        ("instance_norm_wide", (4, 64, 30, 30)),
        ("instance_norm_wide", (3, 5, 3)),
        ("instance_norm_split", (2, 3, 300, 301)),
        ("instance_norm", (16, 64, 140, 140)),
    ],
)
def test_instances_match_float64_and_running_statistics_follow_them(
    key: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    n, c = shape[:2]
    for running_dtype in (None, torch.float32, dtype):
        kernel = build(InstanceNormFwdOp.kernel_types[key], call_of(shape, dtype, running_dtype=running_dtype))
        x, (weight, bias) = drawn(*shape, dtype=dtype, mean=0.5), affine(c, torch.float32)
        moved = [] if running_dtype is None else list(running(c, running_dtype))
        was = [each.double() for each in moved]
        out = kernel(x, weight, bias, *moved)
        instances = x.view(1, n * c, -1)
        check(out.view(1, n * c, -1), instances, weight.repeat(n), bias.repeat(n))
        if moved:
            F.instance_norm(x.double(), *was, momentum=MOMENTUM, eps=EPS)
            for each, wanted in zip(moved, was, strict=True):
                check_statistics(each, wanted, wanted.abs() + 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("bwd_wide", (256, 64)),
        ("bwd_wide", (8, 64, 32, 32)),
        ("bwd_wide", (32, 700, 7, 7)),
        ("bwd_wide", (5, 30, 3)),
        ("bwd_wide", (128, 24, 7, 7)),
        ("bwd_wide", (127, 16, 7, 7)),
        ("bwd_wide", (2, 40, 17, 17)),
        ("bwd_wide", (160, 16, 7, 7)),
        ("bwd_wide", (32, 2100)),
        ("bwd_split", (3, 5, 90300)),
        ("bwd_split", (3, 5, 90301)),
        ("bwd_split", (9000, 40)),
        ("bwd_kernel", (64, 600, 30, 30)),
        ("bwd_kernel", (700, 100)),
        ("bwd_kernel", (3000, 24, 7, 7)),
        ("bwd_kernel", (50, 16, 21, 21)),
        ("bwd_kernel", (2, 3, 100_003)),
    ],
)
def test_gradients_match_float64(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = math.prod(shape) // shape[1]
    axes = [0, *range(2, len(shape))]
    for weight_dtype in (torch.float32, dtype):
        kernel = build(BatchNormBwdOp.kernel_types[key], call_of(shape, dtype, weight_dtype=weight_dtype))
        x, grad = drawn(*shape, dtype=dtype), drawn(*shape, dtype=dtype, seed=7)
        weight, _ = affine(shape[1], weight_dtype)
        mean, variance, _ = moments(x)
        mean, rstd = mean.float(), (1 / torch.sqrt(variance + EPS)).float()
        out, grad_weight, grad_bias = kernel(grad, x, weight, mean, rstd)
        normal = (x.double() - over(x, mean)) * over(x, rstd)
        products = grad.double() * normal
        sums, product_sums = grad.double().sum(axes), products.sum(axes)
        check_statistics(grad_bias, sums, grad.double().abs().sum(axes))
        check_statistics(grad_weight, product_sums, products.abs().sum(axes))
        away = grad.double() - over(x, sums / values) - normal * over(x, product_sums / values)
        scale = over(x, weight) * over(x, rstd)
        largest = grad.double().abs() + over(x, grad.double().abs().mean(axes))
        largest = (largest + normal.abs() * over(x, products.abs().mean(axes))) * scale.abs()
        within(out, away * scale, rounding_unit(dtype) * (away * scale).abs() + ARITHMETIC * largest)
        again = kernel(grad, x, weight, mean, rstd)
        assert all(torch.equal(one, other) for one, other in zip((out, grad_weight, grad_bias), again, strict=True))


def test_more_values_than_32_bits_count_are_normalized_to_the_last() -> None:
    shape = (5, 1, 2**29)
    assert math.prod(shape) > 2**31
    kernel = build(BatchNormFwdOp.kernel_types["fwd_train_split"], call_of(shape, torch.float16))
    x = torch.zeros(shape, dtype=torch.float16, device=DEVICE)
    x[-1, 0, -(2**28) :] = 2.0
    share = 2**28 / math.prod(shape)
    out, mean, rstd = kernel(x, torch.ones(1, device=DEVICE), torch.zeros(1, device=DEVICE), None, None)
    deviation = math.sqrt(4 * share * (1 - share) + EPS)
    assert mean.item() == pytest.approx(2 * share, rel=1e-6)
    assert rstd.item() == pytest.approx(1 / deviation, rel=1e-6)
    high, low = (torch.tensor((value - 2 * share) / deviation).half().item() for value in (2.0, 0.0))
    assert out[-1, 0, -1].item() == pytest.approx(high, rel=1e-3)
    assert out[-1, 0, -(2**28) - 1].item() == pytest.approx(low, rel=1e-3)
    assert out[0, 0, 0].item() == pytest.approx(low, rel=1e-3)
    # torch.unique takes no more than 32 bits count.
    for part in out.view(-1).split(2**28):
        values = part.unique().tolist()
        assert len(values) == 1
        assert values[0] in (out[0, 0, 0].item(), out[-1, 0, -1].item())


def test_inference_takes_more_values_than_32_bits_count() -> None:
    shape = (3, 7, 2**27)
    assert math.prod(shape) > 2**31
    x = torch.ones(shape, dtype=torch.float16, device=DEVICE)
    mean, var = torch.arange(7.0, device=DEVICE), torch.ones(7, device=DEVICE)
    out = BatchNormFwdOp(eps=0.0)(x, mean, var)
    for channel in range(7):
        assert out[:, channel].unique().tolist() == [1.0 - channel]


def test_a_column_that_is_contiguous_by_its_sizes_alone_is_taken() -> None:
    x = drawn(1, 6, dtype=torch.float32).t()
    assert x.is_contiguous()
    assert torch.equal(BatchNormFwdOp(True)(x), BatchNormFwdOp(True)(x.clone(memory_format=torch.contiguous_format)))
