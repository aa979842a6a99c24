"""Sets of neighbouring channels whose planes begin at odd places, on a GPU against float64."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.support import DEVICE, build, on_this_gpu, rounding_unit
from tests.kernels.test_batch_norm_gpu import (
    ARITHMETIC,
    DTYPES,
    EPS,
    affine,
    call_of,
    check,
    check_statistics,
    drawn,
    in_guards,
    moments,
    over,
    running,
    within,
)
from tileops.kernels.norm.set_layout import takes_sets
from tileops.ops import BatchNormBwdOp, BatchNormFwdOp

pytestmark = pytest.mark.gpu

CASES = [
    (1, 8, 17, 17),
    (20, 24, 17, 17),
    (2, 8, 7, 7),
    (127, 24, 7, 7),
    (128, 2048, 7, 7),
    (127, 20, 7, 7),
    (2, 24, 5, 5),
    (128, 24, 3, 3),
    (50, 8, 5, 1),
    (128, 16, 1, 1),
    (9, 16, 9, 2),
]


def test_most_of_the_cases_are_sets() -> None:
    found = 0
    for n, c, *plane in CASES:
        budget = on_this_gpu(call_of((n, c, *plane), torch.float16)).smem_budget
        found += takes_sets(n, c, plane[0] * plane[1], torch.float16, budget, 1)
    assert found > len(CASES) // 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", CASES)
def test_training_matches_float64_between_guards(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    key = "fwd_train_wide"
    kernel = build(BatchNormFwdOp.kernel_types[key], call_of(shape, dtype, running_dtype=torch.float32))
    n, c = shape[:2]
    x, _ = in_guards(drawn(*shape, dtype=dtype, mean=3.0))
    out, whole = in_guards(torch.zeros_like(x))
    weight, bias = affine(c, torch.float32)
    moved = running(c, torch.float32)
    mean, rstd = torch.empty(c, device=DEVICE), torch.empty(c, device=DEVICE)
    kernel.launch.normalize(x, n, c, out, mean, rstd, weight, bias, moved)
    check(out, x, weight, bias)
    wanted, variance, _ = moments(x)
    check_statistics(mean, wanted, wanted.abs() + 10 * variance.sqrt())
    check_statistics(rstd, 1 / torch.sqrt(variance + EPS), 1 / torch.sqrt(variance + EPS))
    assert whole.isnan().sum().item() == whole.numel() - out.numel(), "nothing beside the result is written"
    here = kernel(x, weight, bias, *running(c, torch.float32))[0]
    storage = torch.empty(x.numel() + 1, dtype=dtype, device=DEVICE)
    storage[1:] = x.reshape(-1)
    there = kernel(storage[1:].view(x.shape), weight, bias, *running(c, torch.float32))[0]
    assert torch.equal(here, out)
    assert torch.equal(there, out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", CASES)
def test_gradients_match_float64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel = build(BatchNormBwdOp.kernel_types["bwd_wide"], call_of(shape, dtype))
    values, axes = shape[0] * shape[2] * shape[3], [0, 2, 3]
    x, grad = drawn(*shape, dtype=dtype, mean=3.0), drawn(*shape, dtype=dtype, seed=7)
    weight, _ = affine(shape[1], torch.float32)
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


def test_a_bad_value_touches_no_neighbour_of_its_set() -> None:
    shape = (64, 16, 7, 7)
    kernel = build(BatchNormFwdOp.kernel_types["fwd_train_wide"], call_of(shape, torch.float16))
    x, (weight, bias) = drawn(*shape, dtype=torch.float16), affine(16, torch.float32)
    clean = kernel(x, weight, bias, None, None)[0]
    for channel, place in ((0, 6), (3, 0), (7, 6), (15, 0)):
        poisoned = x.clone()
        poisoned[5, channel, place, place] = float("nan")
        out = kernel(poisoned, weight, bias, None, None)[0]
        assert out[:, channel].isnan().all()
        out[:, channel] = clean[:, channel]
        assert torch.equal(out, clean)
