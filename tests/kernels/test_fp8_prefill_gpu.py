"""Float8 attention on a GPU against float64 on the same float8 numbers.

The bound on the error of one element, in terms of ``mass``, the average of ``|v|`` under the weights:

- Weights are rounded to float8: half a unit of it, or of its least number, where the largest of a row is ``2**6`` or
  more.
- A tensor core of Hopper adds 32 products to a running sum and drops what lies 13 bits or more below the largest of
  these. For scores that is taken as four times ``2**-13`` of the sum of the absolute values of a row's products; it
  moves weights, in numerator and denominator. Results are sums of 512 keys or fewer, each product of which may lose
  ``2**-13`` of the mass.
- The result is rounded to its dtype.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import pytest
import torch

from tests.kernels import prefill_support
from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, on_this_gpu, rounding_unit
from tileops.kernels.attention.call_spec import AttentionCall, Scales
from tileops.kernels.attention.gqa.fp8_prefill import GQAFp8Kernel
from tileops.kernels.attention.gqa.fp8_prefill_limits import FP8_PREFILL_ARCH, FP8_PREFILL_DIMS
from tileops.kernels.device_facts import device_facts
from tileops.kernels.tilelang_build import compile_program

pytestmark = pytest.mark.gpu

FLOAT8 = torch.float8_e4m3fn
WEIGHT_UNIT = rounding_unit(FLOAT8)
LEAST_WEIGHT = 2.0**-10 / 2.0**6
"""Half of the least float8 number, by the least that the largest weight of a row is."""
SUM_UNIT = 2.0**-13
SUM_KEYS = 512
LENGTHS = [1, 2, 127, 128, 129, 223, 224, 225, 1023, 1025]


class Tensors(NamedTuple):
    """What the kernel is called with."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scales: Scales


@pytest.fixture(autouse=True)
def hopper() -> None:
    """Float8 is multiplied in products of warpgroups there alone."""
    arch = device_facts(DEVICE).arch
    if arch != FP8_PREFILL_ARCH:
        pytest.skip(f"arch {arch} is not {FP8_PREFILL_ARCH}")


def prompt(**fields: Any) -> AttentionCall:
    """As of the other prefill kernels, in float8 with bfloat16 results, unless *fields* say otherwise."""
    return prefill_support.prompt(**{"dtype": torch.bfloat16, "is_fp8": True, **fields})


def nan_tailed(made: torch.Tensor) -> torch.Tensor:
    """*made* in float8, with NaN behind its last number."""
    storage = torch.full((made.numel() + 128 * 256,), float("nan"), device=DEVICE).to(FLOAT8)
    storage[: made.numel()] = made.to(FLOAT8).flatten()
    return storage[: made.numel()].view(made.shape)


def tensors(call: AttentionCall, *, q_std: float = 1.0, k_std: float = 1.0, whole: bool = False) -> Tensors:
    """Normal queries, keys and values, with scales that differ by head and sequence.

    Where *whole*, queries and keys are whole multiples of 8 up to 24, of which a tensor core adds any 256 products
    without an error, and their scales are powers of 2.
    """
    draw = torch.Generator(DEVICE).manual_seed(call.seqlen_kv + 13 * call.heads)

    def drawn(length: int, heads: int, std: float) -> torch.Tensor:
        shape = (call.batch, length, heads, call.dim)
        if whole and std:
            return nan_tailed(torch.randint(-3, 4, shape, generator=draw, device=DEVICE) * 8.0)
        return nan_tailed(torch.randn(shape, generator=draw, device=DEVICE) * (std or 1.0))

    def scale(heads: int, low: float) -> torch.Tensor:
        drawn = torch.rand(call.batch, heads, generator=draw, device=DEVICE) + low
        return torch.exp2(torch.round(torch.log2(drawn))) if whole else drawn

    q = drawn(call.max_seqlen_q, call.heads, q_std)
    k, v = drawn(call.seqlen_kv, call.heads_kv, k_std), drawn(call.seqlen_kv, call.heads_kv, 0.0)
    return Tensors(q, k, v, Scales(scale(call.heads, 0.4), scale(call.heads_kv, 0.6), scale(call.heads_kv, 0.5)))


def check(call: AttentionCall, out: torch.Tensor, made: Tensors, *, sum_unit: float = 4 * SUM_UNIT) -> None:
    """Hold *out* against float64, one head of one sequence at a time."""
    scale = call.sm_scale if call.sm_scale is not None else call.dim**-0.5
    group = call.heads // call.heads_kv
    unit = rounding_unit(call.dtype)
    tiny = torch.finfo(call.dtype).smallest_normal
    unseen = prefill_support.hidden(call, DEVICE)
    assert (out.shape, out.dtype, out.is_contiguous()) == (made.q.shape, call.dtype, True)
    if call.seqlen_kv == 0:
        assert not out.any()
        return
    for b in range(call.batch):
        for h in range(call.heads):
            kept = h // group
            queries = made.q[b, :, h].double() * made.scales.q[b, h].double()
            keys = made.k[b, :, kept].double() * made.scales.k[b, kept].double()
            values = made.v[b, :, kept].double() * made.scales.v[b, kept].double()
            scores = queries @ keys.T * scale
            if call.softcap:
                scores = call.softcap * torch.tanh(scores / call.softcap)
            weights = torch.softmax(scores.masked_fill(unseen, -torch.inf), dim=-1).nan_to_num(nan=0.0)
            result, mass = weights @ values, weights @ values.abs()
            seen = (~unseen).double() @ values.abs()
            largest = (queries.abs() @ keys.abs().T).amax(dim=-1, keepdim=True) * abs(scale)
            moved = torch.expm1(2 * (sum_unit + 2 * math.sqrt(call.dim) * FLOAT32_UNIT) * largest)
            dropped = SUM_UNIT * min(call.seqlen_kv, SUM_KEYS)
            allowed = unit * result.abs() + (WEIGHT_UNIT + moved + dropped + 16 * FLOAT32_UNIT) * mass + tiny
            allowed += LEAST_WEIGHT * weights.amax(dim=-1, keepdim=True) * seen
            error = (out[b, :, h].double() - result).abs() / allowed
            assert not error.isnan().any(), (call, b, h)
            assert float(error.max()) <= 1.0, (call, b, h, float(error.max()))
            assert not out[b, :, h][unseen.all(dim=-1)].any(), "a query that sees no key gives zeros"


def run(call: AttentionCall, *, sum_unit: float = 4 * SUM_UNIT, **how: Any) -> None:
    """Run *call*, hold it against float64, and against itself bit for bit."""
    made = tensors(call, **how)
    built = build(GQAFp8Kernel, call)
    out = built(*made)
    check(call, out, made, sum_unit=sum_unit)
    assert torch.equal(built(*made), out), "other bits from the same input"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("is_causal", [True, False])
def test_lengths_around_the_tiles_match_float64(length: int, is_causal: bool) -> None:
    run(prompt(batch=2, max_seqlen_q=length, is_causal=is_causal))


@pytest.mark.parametrize(
    ("queries", "keys"), [(2, 1000), (5, 4097), (130, 131), (300, 1111), (1025, 1023), (700, 300), (129, 1), (300, 0)]
)
@pytest.mark.parametrize("is_causal", [True, False])
def test_queries_stand_at_the_end_of_the_keys(queries: int, keys: int, is_causal: bool) -> None:
    run(prompt(batch=2, max_seqlen_q=queries, seqlen_kv=keys, is_causal=is_causal))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", FP8_PREFILL_DIMS)
def test_every_head_size_and_dtype_matches_float64(dim: int, dtype: torch.dtype) -> None:
    for queries, keys in ((1, 1), (1, 700), (2, 1), (129, 129), (300, 1025), (200, 3000)):
        run(prompt(dim=dim, dtype=dtype, max_seqlen_q=queries, seqlen_kv=keys))


@pytest.mark.parametrize("group", [1, 4, 5, 7, 16])
def test_every_group_size_matches_float64(group: int) -> None:
    run(prompt(batch=2, heads=2 * group, heads_kv=2, dim=64, max_seqlen_q=257))


@pytest.mark.parametrize("keys", [1, 2, 31, 224, 225, 4097])
def test_one_query_sees_every_key(keys: int) -> None:
    for is_causal in (True, False):
        run(prompt(batch=3, max_seqlen_q=1, seqlen_kv=keys, is_causal=is_causal))


@pytest.mark.parametrize("left", [0, 1, 127, 224, 300, 5000])
@pytest.mark.parametrize(("is_causal", "right"), [(True, -1), (False, -1), (False, 0), (False, 70), (False, 5000)])
def test_left_windows_match_float64(left: int, is_causal: bool, right: int) -> None:
    fields = {"is_causal": is_causal, "window_size_left": left, "window_size_right": right}
    for queries, keys in ((1, 1), (1, 700), (700, 700), (130, 500), (500, 130)):
        run(prompt(max_seqlen_q=queries, seqlen_kv=keys, **fields))


@pytest.mark.parametrize("right", [0, 1, 223, 224, 300])
def test_right_windows_alone_match_float64(right: int) -> None:
    for queries, keys in ((300, 300), (130, 500), (500, 130)):
        run(prompt(max_seqlen_q=queries, seqlen_kv=keys, is_causal=False, window_size_right=right))


@pytest.mark.parametrize("dim", FP8_PREFILL_DIMS)
def test_every_head_size_has_windows(dim: int) -> None:
    run(prompt(dim=dim, max_seqlen_q=300, seqlen_kv=900, is_causal=False, window_size_left=250, window_size_right=40))


def test_lengths_and_windows_are_a_matter_of_the_launch() -> None:
    compile_program.cache_clear()
    for left in (5, 200):
        for length in (2, 129, 1000):
            call = prompt(window_size_left=left, max_seqlen_q=length)
            made = tensors(call)
            check(call, GQAFp8Kernel.entry_for(on_this_gpu(call))[1]()(*made), made)
    assert compile_program.cache_info().misses == 2, "attention and the layout of values"


@pytest.mark.parametrize(
    "fields",
    [
        {"sm_scale": 0.3},
        {"sm_scale": -0.05, "dtype": torch.float16},
        {"sm_scale": 0.0},
        {"softcap": 30.0},
        {"softcap": 0.5, "sm_scale": 1.0},
        {"softcap": 20.0, "sm_scale": -0.3, "window_size_left": 90},
    ],
    ids=str,
)
def test_scale_and_softcap_are_honoured(fields: dict[str, Any]) -> None:
    run(prompt(max_seqlen_q=460, **fields))


@pytest.mark.parametrize("dim", FP8_PREFILL_DIMS)
def test_large_scores_without_bits_to_drop_match_float64(dim: int) -> None:
    run(prompt(dim=dim, max_seqlen_q=1025), whole=True, sum_unit=0.0)


def test_large_scores_are_off_by_what_a_tensor_core_drops() -> None:
    for window in (-1, 200):
        run(prompt(max_seqlen_q=1025, window_size_left=window), q_std=30.0, k_std=30.0)


def test_the_average_of_many_keys_is_not_too_small() -> None:
    call = prompt(heads=2, heads_kv=1, max_seqlen_q=128, seqlen_kv=40_000, is_causal=False)
    made = tensors(call, whole=True)
    made.q.zero_()
    values = (torch.rand(made.v.shape, device=DEVICE) + 1.0).to(FLOAT8)
    out = build(GQAFp8Kernel, call)(made.q, made.k, values, made.scales)
    mean = values.double().mean(dim=1, keepdim=True) * made.scales.v.double()[:, None, :, None]
    assert float((out.double() / mean - 1).abs().max()) < 0.02, "a sum of all keys would be half of it"


def test_many_small_weights_beside_a_large_one_are_not_lost() -> None:
    call = prompt(heads=2, heads_kv=1, dim=64, max_seqlen_q=128, seqlen_kv=16_384, sm_scale=1.0, is_causal=False)
    made = tensors(call)
    for at in (0, call.seqlen_kv - 1):  # the first and the last key that is multiplied
        q, k, v = torch.zeros_like(made.q), torch.zeros_like(made.k), torch.ones_like(made.v, dtype=torch.float32)
        q[..., 0] = 1.0
        k[0, at, 0, 0] = 10.0
        v[0, at] = 0.0
        ones = Scales(*(torch.ones_like(scale) for scale in made.scales))
        whole = Tensors(q, k, v.to(FLOAT8), ones)
        check(call, build(GQAFp8Kernel, call)(*whole), whole)


def test_tiny_and_huge_scales_cancel() -> None:
    call = prompt(max_seqlen_q=200)
    made = tensors(call)
    expected = build(GQAFp8Kernel, call)(*made)
    moved = Scales(made.scales.q * 2.0**60, made.scales.k * 2.0**-60, made.scales.v)
    assert torch.equal(build(GQAFp8Kernel, call)(*made[:3], moved), expected)
    nothing = Scales(made.scales.q * 2.0**-100, made.scales.k * 2.0**-100, made.scales.v)
    flat = Tensors(*made[:3], nothing)
    check(call, build(GQAFp8Kernel, call)(*flat), flat)


def test_scales_are_read_with_any_strides() -> None:
    call = prompt(batch=3, max_seqlen_q=200)
    made = tensors(call)
    one = Scales(*(scale[:1].expand(3, -1) for scale in made.scales))
    assert one.q.stride(0) == 0
    check(call, build(GQAFp8Kernel, call)(*made[:3], one), Tensors(*made[:3], one))
    every = Scales(*(scale[:1, :1].expand_as(scale) for scale in made.scales))
    check(call, build(GQAFp8Kernel, call)(*made[:3], every), Tensors(*made[:3], every))
    turned = Scales(*(scale.T.contiguous().T for scale in made.scales))
    assert torch.equal(build(GQAFp8Kernel, call)(*made[:3], turned), build(GQAFp8Kernel, call)(*made))


def test_more_tiles_than_blocks_are_each_attended_once() -> None:
    run(prompt(batch=3, heads=16, heads_kv=4, max_seqlen_q=1300))
    run(prompt(batch=3, heads=20, heads_kv=4, dim=64, max_seqlen_q=1300, seqlen_kv=1500))


def test_a_bad_key_or_query_reaches_the_results_that_see_it_and_no_other() -> None:
    call = prompt(batch=2, max_seqlen_q=300)
    built = build(GQAFp8Kernel, call)
    made = tensors(call)
    clean = built(*made)
    nan = 0x7F
    made.k.view(torch.uint8)[1, 70, 1, 5] = nan
    made.q.view(torch.uint8)[0, 9, 3, 1] = nan
    out = built(*made)
    assert out[1, 70:, 4:].isnan().all()
    assert out[0, 9, 3].isnan().all()
    out[1, 70:, 4:] = clean[1, 70:, 4:]
    out[0, 9, 3] = clean[0, 9, 3]
    assert torch.equal(out, clean)


def test_views_and_offsets_are_read_where_they_start() -> None:
    for dim in (80, 128):
        call = prompt(batch=2, dim=dim, max_seqlen_q=200)
        made = tensors(call)
        built = build(GQAFp8Kernel, call)
        expected = built(*made)
        turned = made.q.transpose(1, 2).contiguous().transpose(1, 2)
        both = torch.stack([made.k.view(torch.uint8), made.v.view(torch.uint8)], dim=3).view(FLOAT8)
        assert torch.equal(built(turned, both[..., 0, :], both[..., 1, :], made.scales), expected)
        moved = [torch.empty(each.numel() + 1, dtype=torch.uint8, device=DEVICE)[1:] for each in made[:3]]
        for each, kept in zip(moved, made[:3], strict=True):
            each.copy_(kept.view(torch.uint8).flatten())
            assert each.data_ptr() % 16 != 0
        views = [each.view(FLOAT8).view(kept.shape) for each, kept in zip(moved, made[:3], strict=True)]
        assert torch.equal(built(*views, made.scales), expected)


def test_one_sequence_of_a_larger_tensor_is_read_without_a_copy() -> None:
    call = prompt(max_seqlen_q=1, seqlen_kv=500)
    made = tensors(dataclasses.replace(call, max_seqlen_q=500))
    last = made.q[:, -1:]
    check(call, build(GQAFp8Kernel, call)(last, *made[1:]), Tensors(last, *made[1:]))


@pytest.mark.parametrize(
    "how", [{"cluster": 2}, {"ping_pong": False}, {"held_queries": True}], ids=lambda how: next(iter(how))
)
def test_other_ways_to_build_compute_the_same(how: dict[str, Any]) -> None:
    call = prompt(batch=2, max_seqlen_q=700)
    usual = GQAFp8Kernel.entry_for(on_this_gpu(call))[0]
    tile = dataclasses.replace(usual.tile, keys=128, gather=4)  # leaves registers for queries
    made = tensors(call)
    check(call, GQAFp8Kernel(dataclasses.replace(usual, tile=tile, **how))(*made), made)
