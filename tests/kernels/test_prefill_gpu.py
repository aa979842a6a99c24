"""Grouped-query prefill on a GPU against float64, in every implementation that serves a call.

Bounds are in :mod:`tests.kernels.prefill_support`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.kernels.prefill_support import check, prompt, tensors
from tests.kernels.support import DEVICE, build, generated_for, on_arch, on_this_gpu, rounding_unit
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.prefill import (
    GQAPrefillKernel,
    GQAPrefillMmaKernel,
    GQAPrefillSlidingWindowKernel,
    PrefillKernel,
)
from tileops.kernels.attention.gqa.prefill_limits import PREFILL_DIMS
from tileops.kernels.tilelang_build import compile_program
from tileops.ops import GQADenseFwdOp

pytestmark = pytest.mark.gpu

KERNELS: dict[str, type[PrefillKernel]] = {
    "gqa_dense": GQAPrefillKernel,
    "gqa_dense_mma": GQAPrefillMmaKernel,
    "gqa_dense_sliding_window": GQAPrefillSlidingWindowKernel,
}
DTYPES = [torch.float16, torch.bfloat16]
LENGTHS = [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025]


def serving(call: AttentionCall) -> dict[str, type[PrefillKernel]]:
    """The kernels that serve *call* on this GPU: never fewer than the general one."""
    asked = on_this_gpu(call)
    found = {
        key: kernel
        for key, kernel in KERNELS.items()
        if asked.arch in (kernel.supported_archs or ()) and kernel.refusal(asked) is None
    }
    assert "gqa_dense_mma" in found, GQAPrefillMmaKernel.refusal(asked)
    return found


def run(call: AttentionCall, **stds: Any) -> None:
    """Run every kernel that serves *call*, hold each against float64, and against itself bit for bit."""
    made = tensors(call, **stds)
    for key, kernel in serving(call).items():
        built = build(kernel, call)
        out = built(*made)
        check(call, out, *made)
        assert torch.equal(built(*made), out), f"{key}: other bits from the same input"


@pytest.mark.parametrize("length", LENGTHS)
def test_every_kernel_matches_float64_at_lengths_around_its_tiles(length: int) -> None:
    for is_causal in (True, False):
        run(prompt(batch=2, max_seqlen_q=max(length, 2), seqlen_kv=length, is_causal=is_causal))


@pytest.mark.parametrize(
    ("queries", "keys"), [(2, 1000), (5, 4097), (130, 131), (300, 1111), (1025, 1023), (700, 300), (129, 1), (300, 0)]
)
@pytest.mark.parametrize("is_causal", [True, False])
def test_queries_stand_at_the_end_of_the_keys(queries: int, keys: int, is_causal: bool) -> None:
    run(prompt(batch=2, max_seqlen_q=queries, seqlen_kv=keys, is_causal=is_causal))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", PREFILL_DIMS)
def test_every_head_size_and_dtype_matches_float64(dim: int, dtype: torch.dtype) -> None:
    for queries, keys in ((2, 1), (129, 129), (300, 1025)):
        run(prompt(dim=dim, dtype=dtype, max_seqlen_q=queries, seqlen_kv=keys))
        if dtype is torch.float16:
            run(prompt(dim=dim, max_seqlen_q=queries, seqlen_kv=keys, window_size_left=100))


@pytest.mark.parametrize("group", [1, 5, 6, 7, 8, 16, 64])
def test_every_group_size_matches_float64(group: int) -> None:
    run(prompt(batch=2, heads=2 * group, heads_kv=2, dim=64, max_seqlen_q=257))
    if group in (5, 8):
        run(prompt(heads=group, heads_kv=1, max_seqlen_q=130, seqlen_kv=400, window_size_left=70))


@pytest.mark.parametrize("left", [0, 1, 63, 127, 128, 129, 300, 5000])
@pytest.mark.parametrize(("is_causal", "right"), [(True, -1), (False, -1), (False, 0), (False, 70), (False, 5000)])
def test_left_windows_match_float64(left: int, is_causal: bool, right: int) -> None:
    for queries, keys in ((1, 1), (1, 700), (700, 700), (130, 500), (500, 130)):
        run(
            prompt(
                max_seqlen_q=queries,
                seqlen_kv=keys,
                is_causal=is_causal,
                window_size_left=left,
                window_size_right=right,
            )
        )


@pytest.mark.parametrize("right", [0, 1, 127, 128, 300])
def test_right_windows_alone_match_float64(right: int) -> None:
    for queries, keys in ((300, 300), (130, 500), (500, 130)):
        run(prompt(max_seqlen_q=queries, seqlen_kv=keys, is_causal=False, window_size_right=right))


def test_a_window_is_a_matter_of_the_launch() -> None:
    compile_program.cache_clear()
    for left in (5, 200):
        call = prompt(window_size_left=left, max_seqlen_q=300)
        made = tensors(call)
        for kernel in serving(call).values():
            check(call, build(kernel, call)(*made), *made)
    assert compile_program.cache_info().misses <= len(serving(call))


@pytest.mark.parametrize(
    "fields",
    [
        {"sm_scale": 0.3},
        {"sm_scale": -0.05, "dtype": torch.bfloat16},
        {"sm_scale": 0.0},
        {"softcap": 30.0},
        {"softcap": 0.5, "sm_scale": 1.0, "dtype": torch.bfloat16},
        {"softcap": 20.0, "sm_scale": -0.3, "window_size_left": 90},
    ],
    ids=str,
)
def test_scale_and_softcap_are_honoured(fields: dict[str, Any]) -> None:
    run(prompt(max_seqlen_q=260, **fields))


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_match_float64(dtype: torch.dtype) -> None:
    for window in (-1, 200):
        run(prompt(max_seqlen_q=1025, dtype=dtype, window_size_left=window), q_std=30.0, k_std=30.0)


def test_many_small_weights_beside_a_large_one_are_not_lost() -> None:
    call = prompt(heads=2, heads_kv=1, dim=64, max_seqlen_q=128, seqlen_kv=16_384, sm_scale=1.0, is_causal=False)
    q = torch.zeros(1, 128, 2, 64, dtype=call.dtype, device=DEVICE)
    q[..., 0] = 1.0
    k = torch.zeros(1, call.seqlen_kv, 1, 64, dtype=call.dtype, device=DEVICE)
    v = torch.ones(1, call.seqlen_kv, 1, 64, dtype=call.dtype, device=DEVICE)
    for at in (0, call.seqlen_kv - 1):  # the first and the last key that is multiplied
        k.zero_()
        v.fill_(1.0)
        k[0, at, 0, 0] = 16.0
        v[0, at] = 0.0
        for kernel in serving(call).values():
            check(call, build(kernel, call)(q, k, v), q, k, v)


@pytest.mark.parametrize("keys", [8191, 8192])
def test_long_sequences_match_float64_on_both_sides_of_where_queries_are_held(keys: int) -> None:
    call = prompt(heads=4, heads_kv=1, dtype=torch.bfloat16, max_seqlen_q=700, seqlen_kv=keys)
    if "gqa_dense" in serving(call):
        assert build(GQAPrefillKernel, call).build.held_queries == (keys >= 8192)
    run(call)


def test_more_tiles_than_blocks_are_each_attended_once() -> None:
    run(prompt(batch=3, heads=16, heads_kv=4, max_seqlen_q=1300))
    run(prompt(batch=3, heads=20, heads_kv=4, dim=64, max_seqlen_q=1300, seqlen_kv=1500))


def test_a_bad_key_or_query_reaches_the_results_that_see_it_and_no_other() -> None:
    call = prompt(batch=2, max_seqlen_q=300)
    for kernel in serving(call).values():
        built = build(kernel, call)
        q, k, v = tensors(call)
        clean = built(q, k, v)
        k[1, 70, 1, 5] = float("nan")
        q[0, 9, 3, 1] = float("nan")
        out = built(q, k, v)
        assert out[1, 70:, 4:].isnan().all()
        assert out[0, 9, 3].isnan().all()
        out[1, 70:, 4:] = clean[1, 70:, 4:]
        out[0, 9, 3] = clean[0, 9, 3]
        assert torch.equal(out, clean)


def test_the_op_chooses_among_kernels_that_agree() -> None:
    op = GQADenseFwdOp(is_causal=True)
    windowed = GQADenseFwdOp(is_causal=True, window_size_left=100)
    for each, fields in ((op, {}), (windowed, {"window_size_left": 100})):
        call = prompt(max_seqlen_q=400, **fields)
        made = tensors(call)
        out = each(*made)
        check(call, out, *made)
        stated = dataclasses.replace(call, device=DEVICE)
        for key in serving(call):
            other = each.kernel_for("gqa_dense", stated, key=key)(*made)
            check(call, other, *made)
            apart = (other.double() - out.double()).abs().max()
            assert float(apart) <= 4 * rounding_unit(call.dtype) * float(made[2].abs().max()), key


def test_views_and_offsets_are_read_where_they_start() -> None:
    op = GQADenseFwdOp(is_causal=True)
    call = prompt(max_seqlen_q=200)
    q, k, v = tensors(call)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    both = torch.stack([k, v], dim=3)
    check(call, op(turned, both[..., 0, :], both[..., 1, :]), q, k, v)
    moved = torch.empty(k.numel() + 1, dtype=k.dtype, device=DEVICE)[1:].view(k.shape).copy_(k)
    assert moved.data_ptr() % 16 != 0
    check(call, op(q, moved, v), q, k, v)


def test_lengths_grow_without_a_build() -> None:
    op = GQADenseFwdOp(is_causal=True)
    for length in (2, 3, 129, 1000, 2047):
        call = prompt(max_seqlen_q=length)
        made = tensors(call)
        check(call, op(*made), *made)
    assert op.cache_info().builds == 1


@pytest.mark.parametrize("arch", [80, 89])
@pytest.mark.parametrize("dim", [128, 256])
def test_what_is_generated_for_older_archs_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, arch: int, dim: int
) -> None:
    with generated_for(arch, monkeypatch):
        call = prompt(dim=dim, softcap=20.0, max_seqlen_q=300, window_size_left=150)
        built = GQAPrefillMmaKernel.entry_for(on_arch(call, arch))[1]()
        for queries, keys in ((1, 1), (65, 64), (300, 700)):
            shorter = dataclasses.replace(call, max_seqlen_q=queries, seqlen_kv=keys)
            made = tensors(shorter)
            check(shorter, built(*made), *made)
