"""Every decode kernel as TileLang generates it, against float64 without a GPU, in any order of its blocks and warps."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch

from tests.emulation.harness import SCHEDULES, Emulator, Schedule
from tests.kernels.decode_support import check, more_of, tensors
from tileops.kernels.attention.call_spec import AttentionCall, Scales
from tileops.kernels.attention.gqa.decode import (
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)
from tileops.kernels.attention.gqa.decode_kernel import DecodeKernel
from tileops.ops import GQADenseFwdOp

pytestmark = pytest.mark.compile

CPU = torch.device("cpu")
BF16 = torch.bfloat16
ROPE = {"fuse_rope": True, "rotary_dim": 24}
BUILDS: dict[str, tuple[type[DecodeKernel], int, dict[str, Any]]] = {
    "8 heads of 128": (GQADecodeKernel, 90, {"heads": 16, "heads_kv": 2}),
    "8 heads of 128 in clusters": (GQADecodeBs1Kernel, 90, {"heads": 16, "heads_kv": 2}),
    "8 heads of 128, long": (GQADecodeLongContextKernel, 80, {"heads": 32, "heads_kv": 4}),
    "5 heads of 80 in clusters, bfloat16, a bound": (
        GQADecodeBs1Kernel, 90, {"heads": 10, "heads_kv": 2, "dim": 80, "dtype": BF16, "softcap": 5.0}
    ),
    "64 heads of 64 in clusters": (GQADecodeBs1Kernel, 90, {"heads": 64, "heads_kv": 1, "dim": 64}),
    "1 head of 64, bfloat16": (GQADecodeKernel, 80, {"heads": 2, "heads_kv": 2, "dim": 64, "dtype": BF16}),
    "17 heads of 80": (GQADecodeKernel, 89, {"heads": 17, "heads_kv": 1, "dim": 80}),
    "64 heads of 128, bfloat16": (GQADecodeKernel, 90, {"heads": 64, "heads_kv": 1, "dtype": BF16}),
    "96 heads of 64, in two units": (GQADecodeKernel, 90, {"heads": 96, "heads_kv": 1, "dim": 64}),
    "4 heads of 256": (GQADecodeKernel, 89, {"heads": 4, "heads_kv": 1, "dim": 256}),
    "halves rotated": (GQADecodeKernel, 90, {"heads": 20, "heads_kv": 1, "dim": 64, **ROPE}),
    "neighbours rotated, bfloat16, in a window": (
        GQADecodeSlidingWindowKernel,
        80,
        {
            "heads": 8, "heads_kv": 2, "dim": 80, "dtype": BF16, "window_size_left": 150, "rope_interleaved": True,
            **ROPE
        },
    ),
    "two heads a ring, 8 heads of 128 each": (GQADecodeKernel, 90, {"heads": 32, "heads_kv": 4, "batch": 99}),
    "two heads a ring, 5 heads of 80 each, bfloat16, in a window": (
        GQADecodeSlidingWindowKernel,
        80,
        {
            "heads": 10, "heads_kv": 2, "dim": 80, "dtype": BF16, "window_size_left": 150, "softcap": 9.0,
            "batch": 999
        },
    ),
    "two heads a ring, 1 head of 256 each": (
        GQADecodeKernel, 89, {"heads": 2, "heads_kv": 2, "dim": 256, "batch": 999}
    ),
    "a window and a bound": (
        GQADecodeSlidingWindowKernel, 90, {"heads": 16, "heads_kv": 2, "window_size_left": 100, "softcap": 9.0}
    ),
    "float8": (GQAFp8DecodeKernel, 89, {"heads": 8, "heads_kv": 1, "dim": 80, "is_fp8": True}),
    "float8, 17 heads, bfloat16": (
        GQAFp8DecodeKernel, 90, {"heads": 17, "heads_kv": 1, "dim": 128, "is_fp8": True, "dtype": BF16}
    ),
}  # fmt: skip
DAILY = (
    "8 heads of 128",
    "8 heads of 128 in clusters",
    "8 heads of 128, long",
    "17 heads of 80",
    "64 heads of 128, bfloat16",
    "two heads a ring, 8 heads of 128 each",
    "two heads a ring, 5 heads of 80 each, bfloat16, in a window",
    "neighbours rotated, bfloat16, in a window",
    "float8, 17 heads, bfloat16",
)
"""Builds that are tried each time, among them one of each kernel; TileLang takes seconds for each."""
LAUNCHES = (
    (1, 1, None), (3, 17, 2), (1, 130, 2), (3, 130, 4), (3, 300, 2), (2, 300, 5), (1, 1025, 33), (3, 1025, None),
)  # fmt: skip
"""Sequences, their keys, and runs that these are cut into, ``None`` for as many as the kernel takes."""


def made_for(emulator: Emulator, name: str, **fields: Any) -> tuple[Any, AttentionCall]:
    """The kernel of a build, and a call of it with other *fields*, which change nothing that is built."""
    kind, arch, built = BUILDS[name]
    longest = AttentionCall(**{"dim": 128, "seqlen_kv": 1025, **built})
    return emulator.build(kind, longest, arch), dataclasses.replace(longest, **fields)


def launched(
    kernel: Any, call: AttentionCall, runs: int | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """One launch, after which counters must be zero."""
    more = more_of(call, CPU)
    if runs is None:
        out: torch.Tensor = kernel(q, k, v, *more)
    else:
        window = call.window_size_left
        first = max(0, call.seqlen_kv - 1 - window) if window >= 0 else 0
        out = kernel.attend_in_runs(q, k, v, runs, first, *more)
    assert not kernel.attend.given["counters"].any(), "counters are zero after a launch"
    return out


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.nightly) for name in BUILDS]
)
def test_every_cut_in_every_order_matches_float64(emulator: Emulator, name: str) -> None:
    for batch, seqlen_kv, runs in LAUNCHES:
        kernel, call = made_for(emulator, name, batch=batch, seqlen_kv=seqlen_kv)
        q, k, v = tensors(call, device=CPU)
        first = launched(kernel, call, runs, q, k, v)
        check(call, first, q, k, v)
        for order, schedule in SCHEDULES.items():
            with emulator.scheduled(schedule):
                assert torch.equal(launched(kernel, call, runs, q, k, v), first), (call, runs, order)


def test_every_kernel_is_emulated() -> None:
    decode = {kind for kind in GQADenseFwdOp.kernel_types.values() if issubclass(kind, DecodeKernel)}
    assert {kind for kind, _, _ in BUILDS.values()} == {BUILDS[name][0] for name in DAILY} == decode


@pytest.mark.parametrize("name", ["8 heads of 128", "8 heads of 128 in clusters", "float8"])
@pytest.mark.parametrize(
    "laid",
    [
        lambda x: torch.cat([x, torch.full_like(x.float(), float("nan")).to(x.dtype)], dim=1)[:, : x.shape[1]],
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
        lambda x: torch.stack([x, x], dim=3)[..., 1, :],
    ],
    ids=["in a longer cache", "heads first", "every other head", "beside another"],
)
def test_keys_and_values_are_read_where_they_lie(emulator: Emulator, laid: Any, name: str) -> None:
    kernel, call = made_for(emulator, name, batch=3, seqlen_kv=100)
    q, k, v = tensors(call, device=CPU)
    placed = laid(k), laid(v)
    out = launched(kernel, call, 2, q, *placed)
    for each, tensor in zip("kv", placed, strict=True):
        assert kernel.attend.given[each] is tensor, "not a copy"
    assert torch.equal(out, launched(kernel, call, 2, q, k, v))


def test_scales_are_read_where_they_lie(emulator: Emulator) -> None:
    kernel, call = made_for(emulator, "float8", batch=3, seqlen_kv=100)
    q, k, v = tensors(call, device=CPU)
    scales, _ = more_of(call, CPU)
    assert scales is not None
    wider = Scales(*(torch.cat([each, torch.full((3, 5), float("nan"))], dim=1)[:, : each.shape[1]] for each in scales))
    assert torch.equal(kernel(q, k, v, wider), kernel(q, k, v, scales))


@pytest.mark.parametrize("name", ["96 heads of 64, in two units", "64 heads of 64 in clusters"])
def test_random_cuts_in_random_orders_match_float64(emulator: Emulator, name: str) -> None:
    draw = random.Random(name)
    for seed in range(1, 13):
        keys = draw.choice((60, 600, 1200))
        kernel, call = made_for(emulator, name, batch=draw.randint(1, 6), seqlen_kv=draw.randint(1, keys))
        made, runs = tensors(call, device=CPU), draw.randint(1, 40)
        with emulator.scheduled(Schedule(backward=draw.random() < 0.5, seed=seed, resident=draw.randint(1, 6))):
            check(call, launched(kernel, call, runs, *made), *made)


def test_keys_before_the_window_are_not_read(emulator: Emulator) -> None:
    for batch, seqlen_kv, runs in ((1, 1, None), (3, 130, 4), (1, 1025, 3)):
        kernel, call = made_for(emulator, "a window and a bound", batch=batch, seqlen_kv=seqlen_kv)
        q, k, v = tensors(call, device=CPU)
        before = max(0, seqlen_kv - 1 - call.window_size_left)
        k[:, :before] = v[:, :before] = float("nan")
        out = launched(kernel, call, runs, q, k, v)
        k[:, :before] = v[:, :before] = 0.0
        check(call, out, q, k, v)


@pytest.mark.parametrize("name", ["8 heads of 128", "two heads a ring, 8 heads of 128 each"])
def test_a_bad_key_or_value_reaches_the_heads_that_see_it_and_no_other(emulator: Emulator, name: str) -> None:
    kernel, call = made_for(emulator, name, batch=3, seqlen_kv=300)
    q, k, v = tensors(call, device=CPU)
    clean = launched(kernel, call, 4, q, k, v)
    k[1, 70, 1, 5] = float("nan")
    v[2, 299, 0, 17] = float("nan")
    out = launched(kernel, call, 4, q, k, v)
    assert out[1, 0, 8:16].isnan().all()
    assert out[2, 0, :8, 17].isnan().all()
    out[1, 0, 8:16], out[2, 0, :8, 17] = clean[1, 0, 8:16], clean[2, 0, :8, 17]
    assert torch.equal(out, clean)


@pytest.mark.parametrize("name", ["8 heads of 128", "8 heads of 128 in clusters"])
def test_scores_far_apart_and_far_below_zero_are_merged_right(emulator: Emulator, name: str) -> None:
    kernel, call = made_for(emulator, name, seqlen_kv=1025)
    q, k, v = tensors(call, device=CPU)
    q[..., 0], k[:, :140, :, 0], k[:, 140:, :, 0] = 64.0, 80.0, -640.0
    for runs in (1, 3):
        check(call, launched(kernel, call, runs, q, k, v), q, k, v)
    k[..., 0] = -640.0
    check(call, launched(kernel, call, 3, q, k, v), q, k, v)
