"""Channels that lie in the shared memory of clusters of blocks, on a GPU against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.kernels.channel_support import (
    ARITHMETIC,
    DTYPES,
    EPS,
    MOMENTUM,
    drawn,
    hold,
    kernel_of,
    parameters,
    rows,
)
from tests.kernels.support import DEVICE, FLOAT32_UNIT, build
from tests.kernels.test_batch_norm_gpu import GUARD, in_guards
from tileops.kernels.norm.batch_norm_train import BatchNormFwdTrainClusterKernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.instance_norm import InstanceNormFwdClusterKernel

pytestmark = pytest.mark.gpu

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
Extents = tuple[int, int, int]
"""Samples, channels, and vectors of 16 bytes of a plane."""

FEW: dict[Extents, tuple[int, int]] = {
    (64, 128, 32): (1, 4),
    (251, 130, 33): (2, 3),
    (2, 70, 12345): (4, 2),
    (2, 4, 56000): (8, 1),
}
"""By extents: blocks of a cluster, and how many blocks are resident."""
SHAPES: dict[Extents, tuple[int, int]] = {
    **FEW,
    (200, 128, 32): (1, 2),
    (1, 130, 3600): (1, 3),
    (7, 300, 1000): (1, 2),
    (3, 64, 1001): (2, 4),
    (4, 200, 3136): (2, 2),
    (5, 33, 999): (4, 4),
    (100, 40, 180): (4, 3),
    (1, 1, 1024): (8, 4),
    (1, 1, 1025): (8, 4),
    (2, 3, 519): (8, 4),
    (3, 3, 4000): (8, 4),
    (2, 3, 15000): (8, 3),
    (16, 5, 3136): (8, 2),
    (2, 1, 57344): (8, 1),
}
"""The same: of each cluster each number that there is; planes of 512 bytes, more of them in a piece than a warp has
lanes, planes that lie in two blocks, last blocks with less than the others, and a cluster without a place left."""
INSTANCES: dict[Extents, tuple[int, int]] = {
    (32, 5, 2048): (1, 4),
    (14, 5, 9001): (2, 3),
    (5, 7, 25000): (4, 2),
    (2, 7, 100001): (8, 1),
}
"""The same, each channel of each sample by itself."""
SMALL: list[Extents] = [(1, 5, 9), (1, 2, 1), (3, 2, 1), (40, 6, 1), (2, 3, 3), (1, 1, 49)]
"""No kernel is chosen for these; they leave blocks, and pieces of blocks, without any."""
CASES = [(each, dtype) for dtype in DTYPES for each in (SHAPES if dtype is HALF else FEW)]
FOLLOWED = [((32, 5, 2048), HALF), ((2, 7, 100001), HALF), ((14, 5, 9001), FULL), ((5, 7, 25000), BRAIN)]

each_few = pytest.mark.parametrize("extents", FEW)
each_instance = pytest.mark.parametrize("extents", INSTANCES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def shape_of(extents: Extents, dtype: torch.dtype) -> Extents:
    """The shape of an input whose planes have so many vectors."""
    n, c, vectors = extents
    return n, c, vectors * 16 // dtype.itemsize


def training(extents: Extents, dtype: torch.dtype, *, tracked: bool = False) -> Any:
    return kernel_of(BatchNormFwdTrainClusterKernel, shape_of(extents, dtype), dtype, FULL if tracked else None)


def instances(extents: Extents, dtype: torch.dtype, *, tracked: bool = False) -> Any:
    return kernel_of(InstanceNormFwdClusterKernel, shape_of(extents, dtype), dtype, FULL if tracked else None)


def running(c: int) -> list[torch.Tensor]:
    return [drawn(c, dtype=FULL, seed=3), drawn(c, dtype=FULL, seed=4).abs() + 0.5]


def hold_statistics(mean: torch.Tensor, rstd: torch.Tensor, x: torch.Tensor) -> None:
    """Hold what a gradient would need."""
    values = rows(x)
    variance, center = torch.var_mean(values, 1, correction=0)
    deviation = torch.sqrt(variance + EPS)
    widest = (values - center[:, None]).abs().amax(1)
    assert ((mean - center).abs() <= FLOAT32_UNIT * center.abs() + ARITHMETIC * widest).all()
    assert ((rstd * deviation - 1).abs() <= ARITHMETIC).all()


def hold_running(moved: list[torch.Tensor], start: list[torch.Tensor], x: torch.Tensor) -> None:
    """Hold running statistics after one call of training."""
    variance, mean = torch.var_mean(rows(x), 1, correction=1)
    deviation = variance.sqrt() + mean.abs()
    for found, was, new in zip(moved, start, (mean, variance), strict=True):
        exact = (1 - MOMENTUM) * was.double() + MOMENTUM * new
        allowed = 2 * FLOAT32_UNIT * exact.abs() + ARITHMETIC * (deviation + new.abs() + was.abs())
        assert ((found - exact).abs() <= allowed).all()


def as_channels(x: torch.Tensor) -> torch.Tensor:
    """The channels of all samples as those of one."""
    return x.view(1, x.shape[0] * x.shape[1], -1)


def hold_instances(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    n = x.shape[0]
    hold(as_channels(out), as_channels(x), weight.repeat(n), bias.repeat(n))


def off_by_one(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, from the second element of a storage on."""
    storage = torch.full((tensor.numel() + 1,), float("nan"), dtype=tensor.dtype, device=DEVICE)
    storage[1:] = tensor.reshape(-1)
    return storage[1:].view(tensor.shape)


def assert_same(found: Any, wanted: Any) -> None:
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


# ------------------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize(("extents", "dtype"), CASES)
def test_training_matches_float64_and_moves_running_statistics_ten_times_to_the_bit(
    extents: Extents, dtype: torch.dtype
) -> None:
    kernel, c = training(extents, dtype, tracked=True), extents[1]
    x, (weight, bias) = drawn(*shape_of(extents, dtype), dtype=dtype) + 0.5, parameters(c)
    start = running(c)
    moved = [each.clone() for each in start]
    first = kernel(x, weight, bias, *moved)
    hold(first[0], x, weight, bias)
    hold_statistics(*first[1:], x)
    hold_running(moved, start, x)
    for _ in range(10):
        again = [each.clone() for each in start]
        outs = kernel(x, weight, bias, *again)
        assert_same((*outs, *again), (*first, *moved))


@each_dtype
@each_few
def test_training_without_running_statistics_matches_float64(extents: Extents, dtype: torch.dtype) -> None:
    x, (weight, bias) = drawn(*shape_of(extents, dtype), dtype=dtype) - 2.0, parameters(extents[1])
    found = training(extents, dtype)(x, weight, bias, None, None)
    hold(found[0], x, weight, bias)
    hold_statistics(*found[1:], x)


def test_parameters_and_running_statistics_may_be_of_the_dtype_of_the_input() -> None:
    n, c, spatial = shape = shape_of((3, 3, 4000), BRAIN)
    call = BatchNormCall(
        n, c, spatial, eps=EPS, dtype=BRAIN, momentum=MOMENTUM, weight_dtype=BRAIN, running_dtype=BRAIN
    )
    x, weight, bias = drawn(*shape, dtype=BRAIN), *(each.to(BRAIN) for each in parameters(c))
    moved = [each.to(BRAIN) for each in running(c)]
    wanted = [each.double() for each in moved]
    out, mean, rstd = build(BatchNormFwdTrainClusterKernel, call)(x, weight, bias, *moved)
    hold(out, x, weight, bias)
    hold_statistics(mean, rstd, x)
    F.batch_norm(x.double(), *wanted, training=True, momentum=MOMENTUM)
    for each, exact in zip(moved, wanted, strict=True):
        torch.testing.assert_close(each.double(), exact, rtol=torch.finfo(BRAIN).eps, atol=1e-6)


@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("extents", [(64, 128, 32), (3, 64, 1001), (5, 33, 999), (1, 1, 1024)])
def test_a_launch_takes_channels_that_leave_blocks_without_any(extents: Extents, small: Extents) -> None:
    n, c, _ = small
    x, (weight, bias), moved = drawn(*shape_of(small, HALF), dtype=HALF), parameters(c), running(c)
    start = [each.clone() for each in moved]
    out, mean, rstd = training(extents, HALF, tracked=True).launch(x, n, c, weight, bias, *moved)
    hold(out, x, weight, bias)
    hold_statistics(mean, rstd, x)
    hold_running(moved, start, x)


@pytest.mark.parametrize("extents", SHAPES)
def test_nothing_beside_the_results_is_written_and_nothing_beside_the_input_is_read(extents: Extents) -> None:
    kernel, (n, c, _) = training(extents, HALF, tracked=True), extents
    x, x_whole = in_guards(drawn(*shape_of(extents, HALF), dtype=HALF))
    before, (weight, bias) = x_whole.clone(), parameters(c)
    out, out_whole = in_guards(torch.zeros_like(x))
    small = [in_guards(each) for each in (torch.zeros(c, device=DEVICE), torch.zeros(c, device=DEVICE), *running(c))]
    mean, spread, *moved = (inside for inside, _ in small)
    kernel.launch.normalize(x, n, c, out, mean, spread, weight, bias, tuple(moved))
    hold(out, x, weight, bias)
    hold_statistics(mean, spread, x)
    hold_running(moved, running(c), x)
    assert torch.equal(x_whole.nan_to_num(9.0), before.nan_to_num(9.0)), "the input is not written"
    for whole in (out_whole, *(whole for _, whole in small)):
        assert whole[:GUARD].isnan().all()
        assert whole[-GUARD:].isnan().all()


@each_few
def test_a_mean_far_above_the_deviation_costs_no_digits(extents: Extents) -> None:
    x, (weight, bias) = drawn(*shape_of(extents, FULL), dtype=FULL) * 1e-2 + 1e4, parameters(extents[1])
    hold(training(extents, FULL)(x, weight, bias, None, None)[0], x, weight, bias)


@pytest.mark.parametrize("far", [1e4, -1e6])
@pytest.mark.parametrize("place", [0, 77, -1])
@each_few
def test_a_value_far_from_the_rest_costs_the_rest_no_digits(extents: Extents, place: int, far: float) -> None:
    x = drawn(*shape_of(extents, FULL), dtype=FULL)
    weight, bias = torch.ones(extents[1], device=DEVICE), torch.zeros(extents[1], device=DEVICE)
    x[-1 if place < 0 else 0, :, place] = far
    values = rows(x)
    variance, mean = torch.var_mean(values, 1, correction=0, keepdim=True)
    exact = (values - mean) / torch.sqrt(variance + EPS)
    near = values.abs() < 1e3
    error = (rows(training(extents, FULL)(x, weight, bias, None, None)[0]) - exact).abs()
    allowed = ARITHMETIC * (exact.abs() + 1 / torch.sqrt(variance + EPS))
    assert (error <= allowed)[near].all(), "not of the digits of the far one"


@each_few
def test_squares_too_large_for_float32_make_the_variance_infinite(extents: Extents) -> None:
    x, (weight, bias) = drawn(*shape_of(extents, FULL), dtype=FULL), parameters(extents[1])
    x[:, 1, 77] = 1e20
    out, mean, rstd = training(extents, FULL)(x, weight, bias, None, None)
    assert rstd[1] == 0
    assert mean[1].isfinite()
    assert (out[:, 1] == bias[1]).all()


@each_few
def test_a_constant_channel_gives_the_bias(extents: Extents) -> None:
    shape, (_, bias) = shape_of(extents, FULL), parameters(extents[1])
    x = torch.full(shape, 3e38, device=DEVICE)
    out, _, _ = training(extents, FULL)(x, torch.ones_like(bias), bias, None, None)
    assert torch.equal(out, bias[None, :, None].expand(shape))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, -1])
@each_few
def test_one_bad_value_makes_its_channel_nan_and_no_other(extents: Extents, place: int, poison: float) -> None:
    kernel = training(extents, HALF)
    x, (weight, bias) = drawn(*shape_of(extents, HALF), dtype=HALF), parameters(extents[1])
    clean = kernel(x, weight, bias, None, None)
    x[place, 1, place] = poison
    out, mean, rstd = kernel(x, weight, bias, None, None)
    assert out[:, 1].isnan().all(), "as torch does"
    assert not mean[1].isfinite()
    assert rstd[1].isnan()
    for each, was in zip((out.transpose(0, 1), mean, rstd), (clean[0].transpose(0, 1), *clean[1:]), strict=True):
        each[1] = was[1]
        assert torch.equal(each, was)


@each_dtype
@each_few
def test_an_input_that_starts_off_by_one_element_gives_the_same(extents: Extents, dtype: torch.dtype) -> None:
    kernel = training(extents, dtype)
    x, (weight, bias) = drawn(*shape_of(extents, dtype), dtype=dtype), parameters(extents[1])
    moved = off_by_one(x)
    assert_same(kernel(moved, weight, bias, None, None), kernel(x, weight, bias, None, None))
    assert torch.equal(moved, x)


# ----------------------------------------------------------------------------------------------------------- instances


@each_dtype
@each_instance
def test_instances_match_float64_ten_times_to_the_bit(extents: Extents, dtype: torch.dtype) -> None:
    kernel = instances(extents, dtype)
    x, (weight, bias) = drawn(*shape_of(extents, dtype), dtype=dtype) + 0.5, parameters(extents[1])
    first = kernel(x, weight, bias)
    hold_instances(first, x, weight, bias)
    for _ in range(10):
        assert torch.equal(kernel(x, weight, bias), first)


@pytest.mark.parametrize(("extents", "dtype"), FOLLOWED)
def test_running_statistics_follow_instances(extents: Extents, dtype: torch.dtype) -> None:
    kernel, c = instances(extents, dtype, tracked=True), extents[1]
    x, (weight, bias) = drawn(*shape_of(extents, dtype), dtype=dtype) + 0.5, parameters(c)
    moved = running(c)
    wanted = [each.double() for each in moved]
    out = kernel(x, weight, bias, *moved)
    hold_instances(out, x, weight, bias)
    F.instance_norm(x.double(), *wanted, momentum=MOMENTUM, eps=EPS)
    for found, exact in zip(moved, wanted, strict=True):
        assert ((found - exact).abs() <= 2 * FLOAT32_UNIT * exact.abs() + ARITHMETIC * (exact.abs() + 1.0)).all()
    for _ in range(10):
        again = running(c)
        assert_same((kernel(x, weight, bias, *again), *again), (out, *moved))


@each_instance
def test_weights_of_fewer_channels_are_taken_in_turn(extents: Extents) -> None:
    kernel, (n, c, _) = instances(extents, HALF), extents
    x, (weight, bias) = drawn(*shape_of(extents, HALF), dtype=HALF), parameters(c)
    repeated, _, _ = kernel.launch(x, 1, n * c, weight.repeat(n), bias.repeat(n))
    assert torch.equal(kernel(x, weight, bias), repeated)
    again = kernel(torch.cat([x[:1]] * n), weight, bias)
    assert all(torch.equal(again[sample], again[0]) for sample in range(n)), "all samples have the same weights"


@each_instance
def test_nothing_beside_instances_is_written_and_nothing_beside_the_input_is_read(extents: Extents) -> None:
    kernel, (n, c, _) = instances(extents, HALF), extents
    x, _ = in_guards(drawn(*shape_of(extents, HALF), dtype=HALF))
    weight, bias = (in_guards(each)[0] for each in parameters(c))
    out, out_whole = in_guards(torch.zeros_like(x))
    small = [in_guards(torch.zeros(n * c, device=DEVICE)) for _ in range(2)]
    kernel.launch.normalize(x, 1, n * c, out, *(inside for inside, _ in small), weight, bias, ())
    hold_instances(out, x, weight, bias)
    hold_statistics(*(inside for inside, _ in small), as_channels(x))
    for whole in (out_whole, *(whole for _, whole in small)):
        assert whole[:GUARD].isnan().all()
        assert whole[-GUARD:].isnan().all()


@each_instance
def test_the_mean_of_an_instance_far_above_its_deviation_costs_no_digits(extents: Extents) -> None:
    x, (weight, bias) = drawn(*shape_of(extents, FULL), dtype=FULL) * 1e-2 + 1e4, parameters(extents[1])
    hold_instances(instances(extents, FULL)(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, -1])
@each_instance
def test_one_bad_value_makes_its_instance_nan_and_no_other(extents: Extents, place: int, poison: float) -> None:
    kernel = instances(extents, HALF)
    x, (weight, bias) = drawn(*shape_of(extents, HALF), dtype=HALF), parameters(extents[1])
    clean = kernel(x, weight, bias)
    x[place, 1, place] = poison
    out = kernel(x, weight, bias)
    assert out[place, 1].isnan().all()
    out[place, 1] = clean[place, 1]
    assert torch.equal(out, clean)


@each_dtype
@each_instance
def test_instances_that_start_off_by_one_element_give_the_same(extents: Extents, dtype: torch.dtype) -> None:
    kernel = instances(extents, dtype)
    x, (weight, bias) = drawn(*shape_of(extents, dtype), dtype=dtype), parameters(extents[1])
    moved = off_by_one(x)
    assert torch.equal(kernel(moved, weight, bias), kernel(x, weight, bias))
    assert torch.equal(moved, x)
