"""Small instances, and running statistics that follow instances, on a GPU against float64.

The bound on one element is its own: half a unit of rounding, and float32 arithmetic on its distance from the mean and
on a deviation. Where one value is far from all others, theirs is small, so that what is lost about them shows.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, rounding_unit
from tests.kernels.test_batch_norm_gpu import (
    DTYPES,
    EPS,
    GUARD,
    MOMENTUM,
    affine,
    call_of,
    check_statistics,
    drawn,
    in_guards,
    running,
    within,
)
from tileops.kernels.norm.instance_layout import run_layout, takes_runs
from tileops.kernels.norm.instance_norm import InstanceNormFwdWideKernel
from tileops.ops import InstanceNormFwdOp

pytestmark = pytest.mark.gpu

ARITHMETIC = 16 * FLOAT32_UNIT

SHAPES = [
    (3, 5, 2),
    (7, 33, 7, 7),
    (70, 33, 7, 7),
    (128, 2048, 7, 7),
    (700, 3, 3),
    (5, 5, 30, 30),
    (45, 50, 9, 9),
    (9, 233, 13, 13),
    (3, 701, 25, 25),
    (2, 3, 1023),
    (700, 4, 6),
    (43, 50, 8),
    (43, 50, 4, 4),
    (41, 51, 8, 8),
    (41, 51, 12, 12),
    (21, 100, 28, 28),
    (21, 101, 32, 32),
]
"""Instances of whole loads and others, few and many, of which the last block has not as many as the rest."""


def exact_of(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and what float32 arithmetic on each element is measured by."""
    n, c = x.shape[:2]
    values = x.double().view(n, c, -1)
    variance, mean = torch.var_mean(values, dim=2, correction=0, keepdim=True)
    normal = (values - mean) / torch.sqrt(variance + EPS)
    scale, shift = weight.double().view(1, c, 1), bias.double().view(1, c, 1)
    return (normal * scale + shift).view(x.shape), ((normal.abs() + 1) * scale.abs() + shift.abs()).view(x.shape)


def check(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    exact, largest = exact_of(x, weight, bias)
    within(out, exact, rounding_unit(x.dtype) * exact.abs() + ARITHMETIC * largest)
    assert (out.dtype, out.shape) == (x.dtype, x.shape)


def kernel_for(shape: tuple[int, ...], dtype: torch.dtype, **facts: Any) -> Any:
    call = call_of(shape, dtype, **facts)
    return build(InstanceNormFwdWideKernel, call)


def test_the_shapes_here_are_laid_out_in_every_way() -> None:
    calls = [call_of(shape, dtype) for shape in SHAPES for dtype in DTYPES]
    small = [each for each in calls if takes_runs(each.instances, each.spatial, each.dtype)]
    layouts = [run_layout(each.instances, each.spatial, each.dtype) for each in small]
    assert {(lay.whole, lay.lanes) for lay in layouts} >= {
        *((False, lanes) for lanes in (1, 2, 8, 16, 32)),
        *((True, lanes) for lanes in (1, 2, 4, 8, 32)),
    }
    assert any(each.instances % lay.instances for each, lay in zip(small, layouts, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_small_instances_match_float64_and_running_statistics_follow_them(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    c = shape[1]
    for parameters, running_dtype in (
        (torch.float32, None),
        (dtype, None),
        (torch.float32, torch.float32),
        (dtype, dtype),
    ):
        kernel = kernel_for(shape, dtype, weight_dtype=parameters, running_dtype=running_dtype)
        x, (weight, bias) = drawn(*shape, dtype=dtype, mean=0.5), affine(c, parameters)
        moved = [] if running_dtype is None else list(running(c, running_dtype))
        was = [each.double() for each in moved]
        check(kernel(x, weight, bias, *moved), x, weight, bias)
        if moved:
            F.instance_norm(x.double(), *was, momentum=MOMENTUM, eps=EPS)
            for each, wanted in zip(moved, was, strict=True):
                check_statistics(each, wanted, wanted.abs() + 1.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_beside_the_result_is_written_and_no_input_is(shape: tuple[int, ...]) -> None:
    kernel = kernel_for(shape, torch.float16, running_dtype=torch.float32)
    n, c = shape[:2]
    given = (drawn(*shape, dtype=torch.float16), *affine(c, torch.float32))
    guarded = [in_guards(each) for each in given]
    before = [whole.clone() for _, whole in guarded]
    moved = [in_guards(each) for each in running(c, torch.float32)]
    (x, weight, bias), (mean, var) = ([inside for inside, _ in each] for each in (guarded, moved))
    check(kernel(x, weight, bias, mean, var), *given)
    for (_, whole), was in zip(guarded, before, strict=True):
        assert torch.equal(whole.nan_to_num(9.0), was.nan_to_num(9.0))
    for inside, whole in moved:
        assert not inside.isnan().any()
        assert whole[:GUARD].isnan().all()
        assert whole[-GUARD:].isnan().all()
    launch = kernel.launch
    if not takes_runs(n * c, x[0, 0].numel(), x.dtype):
        return
    (out, out_whole), kept = (
        in_guards(torch.zeros_like(x)),
        [in_guards(torch.zeros(n * c, device=DEVICE)) for _ in "mv"],
    )
    cut = (n * c, -1, launch.layout.vector) if launch.layout.whole else (-1,)
    launch.compiled(x.view(cut), weight, bias, out.view(cut), *(inside for inside, _ in kept), EPS, x[0, 0].numel())
    check(out, *given)
    for inside, whole in ((out, out_whole), *kept):
        assert not inside.isnan().any()
        assert whole[:GUARD].isnan().all()
        assert whole[-GUARD:].isnan().all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("first", [1e4, -1e6])
def test_a_first_value_far_from_the_rest_costs_no_digits_of_them(shape: tuple[int, ...], first: float) -> None:
    x, (weight, bias) = drawn(*shape, dtype=torch.float32), affine(shape[1], torch.float32)
    x.view(*shape[:2], -1)[:, :, 0] = first
    check(kernel_for(shape, torch.float32)(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mean_far_above_the_deviation_costs_no_digits(shape: tuple[int, ...]) -> None:
    x, (weight, bias) = drawn(*shape, dtype=torch.float32, mean=1e4, std=1e-2), affine(shape[1], torch.float32)
    check(kernel_for(shape, torch.float32)(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize("shape", SHAPES)
def test_constant_instances_give_the_bias(shape: tuple[int, ...]) -> None:
    weight, bias = affine(shape[1], torch.float32)
    out = kernel_for(shape, torch.float32)(torch.full(shape, 3e38, device=DEVICE), weight, bias)
    assert torch.equal(out, bias.view(1, -1, *(1,) * (len(shape) - 2)).expand(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, -1])
def test_one_bad_value_makes_its_instance_nan_and_no_other(shape: tuple[int, ...], poison: float, place: int) -> None:
    kernel = kernel_for(shape, torch.float16)
    x, (weight, bias) = drawn(*shape, dtype=torch.float16), affine(shape[1], torch.float32)
    clean = kernel(x, weight, bias)
    x.view(*shape[:2], -1)[place, 1, place] = poison
    out = kernel(x, weight, bias)
    assert out[place, 1].isnan().all()
    out[place, 1] = clean[place, 1]
    assert torch.equal(out, clean)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_input_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    kernel = kernel_for(shape, torch.float16, running_dtype=torch.float32)
    x, (weight, bias) = drawn(*shape, dtype=torch.float16), affine(shape[1], torch.float32)
    first, moved = None, running(shape[1], torch.float32)
    for _ in range(4):
        again = [each.clone() for each in moved]
        found = [kernel(x, weight, bias, *again), *again]
        first = first or found
        assert all(torch.equal(one, other) for one, other in zip(first, found, strict=True))


@pytest.mark.parametrize("shape", [(7, 33, 7, 7), (70, 33, 7, 7), (43, 50, 8), (5, 5, 30, 30)])
def test_tensors_that_start_inside_their_storage_are_read_where_they_start(shape: tuple[int, ...]) -> None:
    def moved(tensor: torch.Tensor) -> torch.Tensor:
        storage = torch.full((tensor.numel() + 1,), float("nan"), dtype=tensor.dtype, device=DEVICE)
        storage[1:] = tensor.reshape(-1)
        return storage[1:].view(tensor.shape)

    given = (drawn(*shape, dtype=torch.float16), *affine(shape[1], torch.float16))
    kernel = kernel_for(shape, torch.float16, weight_dtype=torch.float16)
    assert torch.equal(kernel(*map(moved, given)), kernel(*given))


@pytest.mark.parametrize(("n", "c"), [(2**20, 1), (2**20, 2), (2**20, 3), (2**20, 4), (1024, 9), (1025, 9), (2, 300)])
@pytest.mark.parametrize("momentum", [0.0, 0.25, 1.0])
def test_running_statistics_of_many_samples_are_as_float64_has_them(n: int, c: int, momentum: float) -> None:
    x, (weight, bias) = drawn(n, c, 4, dtype=torch.float32, mean=0.75), affine(c, torch.float32)
    found = running(c, torch.float32)
    wanted = [each.double() for each in found]
    start = [each.clone() for each in found]
    F.instance_norm(x.double(), *wanted, momentum=momentum, eps=EPS)
    again = [each.clone() for each in start]
    op = InstanceNormFwdOp(momentum=momentum, eps=EPS)
    op(x, *found, weight, bias)
    op(x, *again, weight, bias)
    for each, other, exact, old in zip(found, again, wanted, start, strict=True):
        within(each, exact, 8 * FLOAT32_UNIT * (exact.abs() + old.abs().double() + 1.0))
        assert torch.equal(each, other), "bitwise"
        if momentum == 0.0:
            assert torch.equal(each, old)


def test_a_bad_instance_reaches_the_running_statistics_of_its_channel_as_in_torch() -> None:
    # As torch has it on the CPU: an infinity in a mean is NaN or not by the order of the sums.
    x, (weight, bias) = drawn(2000, 3, 9, dtype=torch.float32), affine(3, torch.float32)
    x[1999, 1, 8] = float("inf")
    found = running(3, torch.float32)
    wanted = [each.cpu().double() for each in found]
    F.instance_norm(x.cpu().double(), *wanted, momentum=MOMENTUM, eps=EPS)
    InstanceNormFwdOp(momentum=MOMENTUM, eps=EPS)(x, *found, weight, bias)
    for each, exact in zip(found, wanted, strict=True):
        assert torch.equal(each.isnan().cpu(), exact.isnan())
        assert torch.equal(each.isinf().cpu(), exact.isinf())


def test_more_values_than_32_bits_count_are_normalized_to_the_last() -> None:
    shape = (2**18, 171, 7, 7)
    x = torch.zeros(shape, dtype=torch.float16, device=DEVICE)
    assert x.numel() > 2**31
    x[..., 0, 0] = 7.0
    out = kernel_for(shape, torch.float16)(x, torch.ones(171, device=DEVICE), torch.zeros(171, device=DEVICE))
    exact, _ = exact_of(x[:1, :1], torch.ones(1, device=DEVICE), torch.zeros(1, device=DEVICE))
    assert torch.allclose(out[-1, -1].double(), exact[0, 0], rtol=1e-3)
    assert (out == out[-1, -1]).all()
