"""The boundary calls of the normalizations of channels: their tensors, and the comparison with float64.

A batch has one set of statistics a channel, over all samples; instances have one a channel and sample. Either is looked
at a block of channels at a time, and a block that is too large in parts, so that no more than ``CHUNK`` values are held
in float64. The bounds are those of the kernels' own tests: half a unit in the last place of the dtype, and float32
arithmetic on the widest distance of a set of statistics.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tests.kernels.support import FLOAT32_UNIT, rounding_unit
from tests.ops.boundary_parts import Runs, Tensors, within
from tileops.kernels.norm.call_spec import BatchNormCall

ARITHMETIC = 32 * FLOAT32_UNIT
CHUNK = 2**26
"""Values that are held in float64 at a time: 0.5 GiB."""
COPIES = 14
"""Such values that a comparison has at once."""

WHOLE = slice(None)
Where = tuple[slice, slice]


def blocks(call: BatchNormCall, *, instances: bool) -> Iterator[Where]:
    """Samples and channels that are looked at together: whole sets of statistics, as many as a chunk has."""
    if not instances:
        width = max(1, CHUNK // max(1, call.values))
        yield from ((WHOLE, slice(at, at + width)) for at in range(0, call.c, width))
        return
    held = max(1, CHUNK // max(1, call.spatial))
    samples, width = max(1, held // max(1, call.c)), min(held, call.c)
    for first in range(0, call.n, samples):
        yield from ((slice(first, first + samples), slice(at, at + width)) for at in range(0, call.c, width))


def parts(block: torch.Tensor) -> Iterator[torch.Tensor]:
    """A block of ``(n, c, spatial)`` in float64, no more than a chunk at a time."""
    for where in cuts(block):
        yield block[where].double()


def cuts(block: torch.Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Where the parts of a block are."""
    n, c, spatial = block.shape
    plane = min(spatial, max(1, CHUNK // max(1, c)))
    samples = max(1, CHUNK // max(1, c * plane))
    for first in range(0, n, samples):
        for at in range(0, spatial, plane):
            yield slice(first, first + samples), WHOLE, slice(at, at + plane)


@dataclasses.dataclass(frozen=True)
class Moments:
    """Mean, biased variance and widest distance from the mean of each set of a block, in float64, kept dimensions."""

    mean: torch.Tensor
    variance: torch.Tensor
    widest: torch.Tensor
    values: int

    @property
    def unbiased(self) -> torch.Tensor:
        """The unbiased variance: NaN of one value."""
        if self.values == 1:
            return torch.full_like(self.variance, torch.nan)
        return self.variance * self.values / (self.values - 1)


def moments(block: torch.Tensor, axes: tuple[int, ...]) -> Moments:
    """The moments of a block over *axes*, in two passes."""
    values = block.numel() // max(1, block[:, :, :1].numel() if axes == (2,) else block.shape[1])
    mean: Any = sum(part.sum(axes, keepdim=True) for part in parts(block)) / values
    squares: Any = sum((part - mean).square().sum(axes, keepdim=True) for part in parts(block))
    widest = torch.stack([(part - mean).abs().amax(axes, keepdim=True) for part in parts(block)]).amax(0)
    return Moments(mean, squares / values, widest, values)


def channelwise(each: torch.Tensor, where: Where) -> torch.Tensor:
    """One value a channel, in float64, to go with a block."""
    return each[where[1]].double().view(1, -1, 1)


def held(found: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor, call: Any) -> None:
    """Hold one value a channel against float64, NaN against NaN; *scale* is what it is made of at its largest."""
    exact, scale = exact.view(-1), scale.view(-1).abs()
    nowhere = exact.isnan()
    assert torch.equal(found.isnan(), nowhere), call
    exact, scale, values = (each.masked_fill(nowhere, 0.0) for each in (exact, scale, found.double()))
    within(values, exact, rounding_unit(found.dtype) * exact.abs() + ARITHMETIC * scale, call, found.dtype)


def follows(call: BatchNormCall, found: torch.Tensor, was: torch.Tensor, by: torch.Tensor, scale: torch.Tensor) -> None:
    """Hold a running statistic that was moved; *by* is of one call, and made of values no larger than *scale*."""
    before, by = was.double(), by.view(-1)
    held(found, (1.0 - call.momentum) * before + call.momentum * by, before.abs() + scale.view(-1), call)


# -------------------------------------------------------------------------------------------------------- the tensors


def drawn(call: BatchNormCall, seed: int, *shape: int, dtype: torch.dtype, mean: float = 0.0) -> torch.Tensor:
    draw = torch.Generator(call.device).manual_seed(seed + (call.n + call.c + call.spatial) % 1_000_003)
    return torch.empty(shape, dtype=dtype, device=call.device).normal_(mean, 1.0, generator=draw)


def plane(call: BatchNormCall, seed: int, mean: float = 0.0) -> torch.Tensor:
    return drawn(call, seed, call.n, call.c, call.spatial, dtype=call.dtype, mean=mean)


def affine(call: BatchNormCall) -> Tensors:
    return tuple(drawn(call, seed, call.c, dtype=call.weight_dtype) for seed in (1, 2))


def running(call: BatchNormCall) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Running statistics as they are before a call."""
    if call.running_dtype is None:
        return None, None
    mean = drawn(call, 3, call.c, dtype=call.running_dtype)
    return mean, drawn(call, 4, call.c, dtype=call.running_dtype).abs_().add_(0.5)


def normalizing_inputs(call: BatchNormCall) -> tuple[Any, ...]:
    return plane(call, 0, mean=0.5), *affine(call), *running(call)


def plain_inputs(call: BatchNormCall) -> Tensors:
    return plane(call, 0, mean=0.5), *affine(call)


def gradient_inputs(call: BatchNormCall) -> Tensors:
    mean = drawn(call, 3, call.c, dtype=torch.float32)
    rstd = drawn(call, 4, call.c, dtype=torch.float32).abs_().add_(0.5)
    return plane(call, 5), plane(call, 0), affine(call)[0], mean, rstd


# ----------------------------------------------------------------------------------------------------- the comparison


def like(out: torch.Tensor, x: torch.Tensor, call: BatchNormCall) -> None:
    assert out.shape == x.shape, call
    assert out.dtype == x.dtype, call
    assert out.device == x.device, call


def normalized(
    call: BatchNormCall, out: torch.Tensor, x: torch.Tensor, given: Tensors, of: Where, got: Moments
) -> None:
    """Hold a block of the result, normalized by its own moments."""
    scale, shift = (channelwise(each, of) for each in given)
    deviation = torch.sqrt(got.variance + call.eps)
    for cut in cuts(x[of]):
        mine = (slice(None), slice(None)) if got.mean.shape[0] == 1 else (cut[0], slice(None))
        mean, spread, widest = (each[mine] for each in (got.mean, deviation, got.widest))
        exact = (x[of][cut].double() - mean) / spread * scale + shift
        largest = widest / spread * scale.abs() + shift.abs()
        allowed = rounding_unit(call.dtype) * exact.abs() + ARITHMETIC * largest
        within(out[of][cut].double(), exact, allowed, call)


def training_check(call: BatchNormCall, found: Any, tensors: tuple[Any, ...]) -> None:
    """Hold the result, the statistics that are returned, and the running ones."""
    x, weight, bias, *after = tensors
    out, mean, rstd = found
    like(out, x, call)
    assert mean.dtype == rstd.dtype == torch.float32, call
    before = running(call)
    for of in blocks(call, instances=False):
        got = moments(x[of], (0, 2))
        normalized(call, out, x, (weight, bias), of, got)
        inverse = 1.0 / torch.sqrt(got.variance + call.eps)
        held(mean[of[1]], got.mean, got.widest, call)
        held(rstd[of[1]], inverse, inverse, call)
        for each, was, by, scale in zip(
            after, before, (got.mean, got.unbiased), (got.widest, got.unbiased), strict=True
        ):
            if was is not None:
                follows(call, each[of[1]], was[of[1]], by, scale)


def instance_check(call: BatchNormCall, found: Any, tensors: tuple[Any, ...]) -> None:
    """Hold the result, and running statistics, which follow the averages over the samples."""
    x, weight, bias, *after = tensors
    like(found, x, call)
    before = running(call) if after else ()
    tracked = bool(after) and call.running_dtype is not None
    sums = torch.zeros((3, call.c if tracked else 0), dtype=torch.float64, device=x.device)
    for of in blocks(call, instances=True):
        got = moments(x[of], (2,))
        normalized(call, found, x, (weight, bias), of, got)
        if tracked:
            sums[:, of[1]] += torch.stack([each.sum((0, 2)) for each in (got.mean, got.unbiased, got.widest)])
    mean, variance, widest = (sums / call.n).unbind()
    for each, was, by, scale in zip(after, before, (mean, variance)[: len(after)], (widest, variance), strict=False):
        if was is not None:
            follows(call, each, was, by, scale + mean.abs())


def inference_check(call: BatchNormCall, found: Any, tensors: Tensors) -> None:
    """Hold the result; what is read stays as it was."""
    x, weight, bias, mean, variance = tensors
    like(found, x, call)
    before = running(call)
    assert all(was is not None and torch.equal(each, was) for each, was in zip((mean, variance), before, strict=True))
    for of in blocks(call, instances=False):
        scale, shift, middle = (channelwise(each, of) for each in (weight, bias, mean))
        scale = scale / torch.sqrt(channelwise(variance, of) + call.eps)
        for cut in cuts(x[of]):
            values = x[of][cut].double()
            exact = (values - middle) * scale + shift
            largest = (values.abs() + middle.abs()) * scale.abs() + shift.abs()
            allowed = rounding_unit(call.dtype) * exact.abs() + ARITHMETIC * largest
            within(found[of][cut].double(), exact, allowed, call)


def gradient_check(call: BatchNormCall, found: Any, tensors: Tensors) -> None:
    """Hold the three gradients; mean and deviation are what is given, whatever the input has."""
    grad, x, weight, mean, rstd = tensors
    out, grad_weight, grad_bias = found
    like(out, x, call)
    assert grad_weight.dtype == grad_bias.dtype == call.weight_dtype, call
    for of in blocks(call, instances=False):
        middle, spread, scale = (channelwise(each, of) for each in (mean, rstd, weight))
        pairs = [(grad[of][cut], x[of][cut], cut) for cut in cuts(x[of])]
        sums = torch.zeros((4, *middle.shape), dtype=torch.float64, device=x.device)
        for given, values, _ in pairs:
            each = given.double()
            product = each * ((values.double() - middle) * spread)
            sums += torch.stack([t.sum((0, 2), keepdim=True) for t in (each, product, each.abs(), product.abs())])
        total, products, widest, widest_products = sums
        held(grad_bias[of[1]], total, widest, call)
        held(grad_weight[of[1]], products, widest_products, call)
        factor = scale * spread
        for given, values, cut in pairs:
            normal = (values.double() - middle) * spread
            exact = (given.double() - total / call.values - normal * products / call.values) * factor
            largest = given.double().abs() + widest / call.values + normal.abs() * widest_products / call.values
            allowed = rounding_unit(call.dtype) * exact.abs() + ARITHMETIC * largest * factor.abs()
            within(out[of][cut].double(), exact, allowed, call)


def channel_bytes(call: BatchNormCall, *, planes: int = 2, instances: bool = False) -> int:
    """So many tensors like the input, a few values of each channel or instance, and what a comparison holds."""
    values = call.values * call.c
    of_channels = 40 * call.c
    if instances:
        of_channels += 8 * call.instances + (0 if call.running_dtype is None else 48 * call.c)
    return planes * values * call.dtype.itemsize + of_channels + COPIES * 8 * min(values, CHUNK)


CHANNEL_RUNS: Mapping[str, Runs] = {
    "batch_norm_fwd_train": Runs(normalizing_inputs, training_check, channel_bytes, ("c", "spatial", "n")),
    "batch_norm_fwd_infer": Runs(normalizing_inputs, inference_check, channel_bytes, ("c", "spatial", "n")),
    "batch_norm_bwd": Runs(
        gradient_inputs, gradient_check, functools.partial(channel_bytes, planes=3), ("c", "spatial", "n")
    ),
    "instance_norm_fwd": Runs(
        plain_inputs, instance_check, functools.partial(channel_bytes, instances=True), ("c", "spatial", "n")
    ),
    "instance_norm_fwd_train": Runs(
        normalizing_inputs, instance_check, functools.partial(channel_bytes, instances=True), ("c", "spatial", "n")
    ),
    "instance_norm_fwd_infer": Runs(normalizing_inputs, inference_check, channel_bytes, ("c", "spatial", "n")),
}
"""Keyed by interface."""
