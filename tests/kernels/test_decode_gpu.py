"""Grouped-query decode on a GPU against float64: bounds are in :mod:`tests.kernels.decode_support`."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.kernels.decode_support import check, expected, more_of, tensors
from tests.kernels.support import DEVICE, build, generated_for, on_arch, on_this_gpu
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import (
    DIMS,
    MANY_KEYS,
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)
from tileops.kernels.attention.gqa.decode_kernel import DecodeKernel
from tileops.ops import GQADenseFwdOp

pytestmark = pytest.mark.gpu

LENGTHS = [1, 2, 17, 63, 64, 65, 127, 128, 129, 130, 511, 512, 513, 1023, 1024, 1025, 4097, 8192, 65_535, 65_537]
DTYPES = [torch.float16, torch.bfloat16]
GROUPS = [1, 4, 5, 6, 7, 8, 16, 17, 64, 96]
KERNELS = (
    GQADecodeKernel,
    GQADecodeBs1Kernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)


def run(kernel: type[DecodeKernel], call: AttentionCall, **options: Any) -> None:
    q, k, v = tensors(call, **options)
    check(call, build(kernel, call)(q, k, v, *more_of(call)), q, k, v)


def kernels_for(call: AttentionCall) -> list[type[DecodeKernel]]:
    arch = on_this_gpu(call).arch
    return [
        kernel
        for kernel in KERNELS
        if arch in (kernel.supported_archs or ()) and kernel.refusal(on_this_gpu(call)) is None
    ]


def in_pairs(batch: int, group: int, **fields: Any) -> AttentionCall:
    """A call whose key heads are read by twos, of *batch* sequences where 132 multiprocessors are to be filled."""
    call = AttentionCall(**{"batch": batch, "heads": 4 * group, "heads_kv": 4, "dim": 128, **fields})
    sm_count = on_this_gpu(call).sm_count
    assert sm_count is not None
    call = dataclasses.replace(call, batch=batch + max(0, (sm_count - 131) // 2))
    assert GQADecodeKernel.entry_for(on_this_gpu(call))[0].layout.shape.key_heads == 2
    return call


@pytest.mark.parametrize("seqlen_kv", LENGTHS)
def test_every_kernel_that_serves_a_length_matches_float64(seqlen_kv: int) -> None:
    call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=seqlen_kv)
    serving = kernels_for(call)
    assert GQADecodeKernel in serving
    assert (GQADecodeLongContextKernel in serving) == (seqlen_kv >= 1024)
    assert (GQADecodeBs1Kernel in serving) == (seqlen_kv < MANY_KEYS and on_this_gpu(call).arch == 90)
    for kernel in serving:
        run(kernel, call)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_every_head_size_and_dtype_matches_float64(dim: int, dtype: torch.dtype) -> None:
    for seqlen_kv in (1, 129, 4097):
        call = AttentionCall(heads=8, heads_kv=2, dim=dim, seqlen_kv=seqlen_kv, dtype=dtype)
        for kernel in kernels_for(call):
            run(kernel, call)


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_size_matches_float64_in_a_batch(group: int) -> None:
    for batch, seqlen_kv in ((1, 65), (3, 1025), (40, 300)):
        call = AttentionCall(batch=batch, heads=2 * group, heads_kv=2, dim=128, seqlen_kv=seqlen_kv)
        for kernel in kernels_for(call):
            run(kernel, call)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_rings_of_two_heads_match_float64_for_every_head_size_and_dtype(dim: int, dtype: torch.dtype) -> None:
    for seqlen_kv in (1, 129, 1025):
        run(GQADecodeKernel, in_pairs(64, 4, dim=dim, seqlen_kv=seqlen_kv, dtype=dtype))


@pytest.mark.parametrize("group", [1, 5, 7, 8])
def test_rings_of_two_heads_match_float64_for_every_group_and_cut(group: int) -> None:
    for batch, seqlen_kv in ((60, 1), (61, 63), (64, 65), (67, 600), (133, 4097)):
        run(GQADecodeKernel, in_pairs(batch, group, seqlen_kv=seqlen_kv))
        run(GQADecodeSlidingWindowKernel, in_pairs(batch, group, seqlen_kv=seqlen_kv, window_size_left=100))


@pytest.mark.parametrize(
    "fields",
    [
        {"is_causal": True},
        {"sm_scale": 0.3},
        {"sm_scale": -0.05},
        {"sm_scale": 0.0},
        {"softcap": 30.0},
        {"softcap": 0.5, "sm_scale": 1.0},
        {"window_size_right": 0},
    ],
    ids=str,
)
def test_scale_softcap_and_causality_are_honoured(fields: dict[str, Any]) -> None:
    for dtype in DTYPES:
        call = AttentionCall(batch=2, heads=16, heads_kv=4, dim=128, seqlen_kv=1025, dtype=dtype, **fields)
        run(GQADecodeKernel, call)


@pytest.mark.parametrize("window", [0, 1, 15, 100, 5000])
def test_a_left_window_hides_the_keys_before_it_which_are_not_read(window: int) -> None:
    for batch, seqlen_kv in ((1, 1), (3, 130), (2, 4097)):
        call = AttentionCall(
            batch=batch, heads=16, heads_kv=4, dim=128, seqlen_kv=seqlen_kv, window_size_left=window, softcap=9.0
        )
        q, k, v = tensors(call)
        for hidden in (k, v):
            hidden[:, : max(0, seqlen_kv - 1 - window)] = float("nan")
        out = build(GQADecodeSlidingWindowKernel, call)(q, k, v)
        for hidden in (k, v):
            hidden[:, : max(0, seqlen_kv - 1 - window)] = 0.0
        check(call, out, q, k, v)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("dim", "rotary_dim"), [(128, 128), (128, 64), (80, 32), (96, 24), (64, 2), (256, 250)])
def test_heads_are_rotated_at_their_positions(dim: int, rotary_dim: int, interleaved: bool) -> None:
    rope: dict[str, Any] = {"fuse_rope": True, "rotary_dim": rotary_dim, "rope_interleaved": interleaved}
    for heads, seqlen_kv in ((8, 1), (40, 129), (10, 1025)):
        call = AttentionCall(batch=2, heads=heads, heads_kv=2, dim=dim, seqlen_kv=seqlen_kv, **rope)
        run(GQADecodeKernel, call)
        run(GQADecodeSlidingWindowKernel, dataclasses.replace(call, window_size_left=100, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_float8_matches_float64_for_every_head_size(dim: int, dtype: torch.dtype) -> None:
    for group, seqlen_kv in ((4, 1), (5, 129), (20, 4097)):
        call = AttentionCall(
            batch=2, heads=2 * group, heads_kv=2, dim=dim, seqlen_kv=seqlen_kv, dtype=dtype, is_fp8=True
        )
        run(GQAFp8DecodeKernel, call)
    run(GQAFp8DecodeKernel, dataclasses.replace(call, window_size_left=77, softcap=5.0))


@pytest.mark.parametrize("seqlen_kv", LENGTHS)
def test_float8_matches_float64_at_every_length(seqlen_kv: int) -> None:
    run(GQAFp8DecodeKernel, AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=seqlen_kv, is_fp8=True))


def test_no_keys_give_zeros() -> None:
    call = AttentionCall(heads=8, heads_kv=2, seqlen_kv=0)
    for kernel in kernels_for(call):
        assert not build(kernel, call)(*tensors(call)).any()


def test_many_equal_keys_have_equal_weights() -> None:
    call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=5000)
    q, k, v = tensors(call)
    k[:] = k[:, :1].clone()
    for kernel in kernels_for(call):
        check(call, build(kernel, call)(q, k, v), q, k, v)


def test_a_run_of_far_lower_scores_than_the_others_is_merged_right() -> None:
    call = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=700, sm_scale=1.0)
    q, k, v = tensors(call)
    q[..., 0], k[:, :140, :, 0], k[:, 140:, :, 0] = 64.0, 8.0, -64.0
    kernel = build(GQADecodeKernel, call)
    for runs in (1, 2, 6):
        check(call, kernel.attend_in_runs(q, k, v, runs), q, k, v)
    k[..., 0] = -64.0  # about -4100 for every key: far below where a base of 0 could be left
    check(call, kernel.attend_in_runs(q, k, v, 6), q, k, v)


@pytest.mark.parametrize("softcap", [0.0, 50.0])
def test_large_scores_keep_their_digits(softcap: float) -> None:
    call = AttentionCall(heads=16, heads_kv=4, dim=128, seqlen_kv=1025, softcap=softcap, dtype=torch.bfloat16)
    run(GQADecodeKernel, call, q_std=100.0)


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 7, 16, 33, 128, 3000])
def test_any_cut_of_the_keys_gives_the_same_attention(runs: int) -> None:
    for batch, seqlen_kv in ((1, 1), (2, 150), (5, 1025), (3, 4097)):
        call = AttentionCall(batch=batch, heads=32, heads_kv=4, dim=128, seqlen_kv=seqlen_kv)
        q, k, v = tensors(call)
        for kernel in kernels_for(dataclasses.replace(call, batch=1)):
            made = build(kernel, dataclasses.replace(call, batch=1))
            check(call, made.attend_in_runs(q, k, v, runs), q, k, v)


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_lengths_around_the_borders_of_tiles_and_runs_match_float64(around: int) -> None:
    for keys in (16, 32, 128, 256, 512, 1024, 33 * 128, 33 * 6 * 128, 33 * 7 * 128):
        call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=keys + around)
        for kernel in kernels_for(call):
            run(kernel, call)


def test_all_kernels_that_serve_a_call_agree() -> None:
    for fields in ({}, {"window_size_left": 300}, {"is_fp8": True}, {"softcap": 20.0}):
        call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=2049, **fields)  # type: ignore[arg-type]
        op = GQADenseFwdOp(window_size_left=call.window_size_left, softcap=call.softcap, out_dtype=torch.float16)
        q, k, v = tensors(call)
        more = more_of(call)
        _, allowed = expected(call, q, k, v)
        chosen = op(q, k, v, *(more[0] or ()))
        here = dataclasses.replace(call, device=DEVICE)
        others = []
        for key, kernel in op.kernel_types.items():
            if on_this_gpu(call).arch in (kernel.supported_archs or ()) and kernel.refusal(on_this_gpu(call)) is None:
                others.append(op.kernel_for("gqa_dense", here, key=key)(q, k, v, *more))
        assert len(others) >= 2
        for other in others:
            # Prefill of float8 rounds weights to float8, and sums on the tensor cores.
            slack = 2.0**-3 if call.is_fp8 else 0.0
            assert ((other.double() - chosen.double()).abs() <= 2 * allowed + slack).all(), call


def test_many_small_weights_beside_a_large_one_are_not_lost() -> None:
    call = AttentionCall(heads=8, heads_kv=1, dim=64, seqlen_kv=32_768, sm_scale=1.0)
    q = torch.zeros(1, 1, 8, 64, dtype=call.dtype, device=DEVICE)
    q[..., 0] = 1.0
    k = torch.zeros(1, call.seqlen_kv, 1, 64, dtype=call.dtype, device=DEVICE)
    k[0, 0, 0, 0] = 16.0  # float16 holds exp(-16) to one part in two, and all of the result is in such weights
    v = torch.ones(1, call.seqlen_kv, 1, 64, dtype=call.dtype, device=DEVICE)
    v[0, 0] = 0.0
    kernel = build(GQADecodeKernel, call)
    check(call, kernel.attend_in_runs(q, k, v, 1), q, k, v)
    check(call, kernel(q, k, v), q, k, v)


def test_a_bad_key_or_value_reaches_the_heads_that_see_it_and_no_other() -> None:
    call = AttentionCall(batch=3, heads=8, heads_kv=2, dim=128, seqlen_kv=200)
    kernel = build(GQADecodeKernel, call)
    q, k, v = tensors(call)
    clean = kernel(q, k, v)
    k[1, 70, 1, 5] = float("nan")
    out = kernel(q, k, v)
    assert out[1, 0, 4:].isnan().all()
    out[1, 0, 4:] = clean[1, 0, 4:]
    assert torch.equal(out, clean)
    k[1, 70, 1, 5] = 0.0
    clean = kernel(q, k, v)
    v[2, 199, 0, 17] = float("nan")
    out = kernel(q, k, v)
    assert out[2, 0, :4, 17].isnan().all()
    out[2, 0, :4, 17] = clean[2, 0, :4, 17]
    assert torch.equal(out, clean)


@pytest.mark.parametrize("arch", [80, 89])
@pytest.mark.parametrize("dim", [128, 256])
def test_what_is_generated_for_older_archs_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, arch: int, dim: int
) -> None:
    with generated_for(arch, monkeypatch):
        for kernel, heads_kv, softcap in ((GQADecodeKernel, 2, 20.0), (GQADecodeLongContextKernel, 4, 0.0)):
            call = AttentionCall(heads=32, heads_kv=heads_kv, dim=dim, seqlen_kv=4097, softcap=softcap)
            if kernel.refusal(on_arch(call, arch)) is None:
                built = kernel.entry_for(on_arch(call, arch))[1]()
                for seqlen_kv in (1, 31, 32, 65, 4097):
                    shorter = dataclasses.replace(call, seqlen_kv=seqlen_kv)
                    q, k, v = tensors(shorter)
                    check(shorter, built(q, k, v), q, k, v)


@pytest.mark.parametrize("seqlen_kv", [129, 8192])
def test_the_same_input_gives_the_same_bits(seqlen_kv: int) -> None:
    call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=seqlen_kv)
    q, k, v = tensors(call)
    for kernel in kernels_for(call):
        built = build(kernel, call)
        first = built(q, k, v)
        assert all(torch.equal(built(q, k, v), first) for _ in range(20)), kernel


def test_a_decode_loop_runs_on_one_build_and_holds_no_more_memory() -> None:
    whole = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=8192)
    q, k, v = tensors(whole)
    first = build(GQADecodeKernel, whole)
    lengths = [*range(1, 400), *range(400, 8193, 97), 8192]
    first(q, k, v)
    held = torch.cuda.memory_allocated()
    for seqlen_kv in lengths:
        call = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=seqlen_kv)
        kernel = build(GQADecodeKernel, call)
        assert kernel is first
        step_k, step_v = k[:, :seqlen_kv], v[:, :seqlen_kv]
        out = kernel(q, step_k, step_v)
        if seqlen_kv % 37 == 0:
            check(call, out, q, step_k, step_v)
    del out
    assert torch.cuda.memory_allocated() == held


@pytest.mark.parametrize(
    "laid",
    [
        lambda x: torch.cat([x, torch.full_like(x, float("nan"))], dim=1)[:, : x.shape[1]],
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: torch.stack([x, x], dim=3)[..., 1, :],
    ],
    ids=["in a longer cache", "heads first", "every other head", "heads last", "beside another"],
)
def test_keys_and_values_are_read_where_they_lie(laid: Any) -> None:
    for fields in ({}, {"is_fp8": True}):
        call = AttentionCall(batch=3, heads=8, heads_kv=2, dim=64, seqlen_kv=100, **fields)  # type: ignore[arg-type]
        q, k, v = tensors(call)
        for kernel in kernels_for(call):
            made, more = build(kernel, call), more_of(call)
            assert torch.equal(made(q, laid(k), laid(v), *more), made(q, k, v, *more))


def test_a_longer_cache_is_not_copied() -> None:
    call = AttentionCall(batch=3, heads=8, heads_kv=2, dim=64, seqlen_kv=5000)
    cache = torch.zeros(2, 3, 9000, 2, 64, dtype=call.dtype, device=DEVICE)
    q, kernel = tensors(call)[0], build(GQADecodeKernel, call)
    kernel(q, cache[0, :, :5000], cache[1, :, :5000])
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernel(q, cache[0, :, :5000], cache[1, :, :5000])
    assert torch.cuda.max_memory_allocated() - before < cache[0, :, :5000].nbytes // 2


@pytest.mark.parametrize("offset", [1, 4])
def test_tensors_that_start_inside_their_storage_are_read_where_they_start(offset: int) -> None:
    call = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=100)
    made = tensors(call)
    moved = []
    for tensor in made:
        storage = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device=DEVICE)
        storage[offset:] = tensor.reshape(-1)
        moved.append(storage[offset:].view(tensor.shape))
    kernel = build(GQADecodeKernel, call)
    assert torch.equal(kernel(*moved), kernel(*made))


def test_one_head_whose_strides_are_unusual_but_contiguous_is_taken() -> None:
    call = AttentionCall(heads=4, heads_kv=1, dim=64, seqlen_kv=77)
    q, k, v = tensors(call)
    kernel = build(GQADecodeKernel, call)
    turned = [t.reshape(1, 1, 77, 64).transpose(1, 2) for t in (k, v)]
    assert all(t.is_contiguous() and t.shape == k.shape for t in turned)
    assert torch.equal(kernel(q, *turned), kernel(q, k, v))


def test_more_elements_than_32_bits_count_are_attended_to_the_last() -> None:
    call = AttentionCall(batch=2, heads=8, heads_kv=8, dim=128, seqlen_kv=1_060_000)
    assert call.seqlen_kv * call.heads_kv * call.dim * call.batch > 2**31
    q = torch.ones(2, 1, 8, 128, dtype=call.dtype, device=DEVICE)
    k = torch.zeros(2, call.seqlen_kv, 8, 128, dtype=call.dtype, device=DEVICE)
    v = torch.zeros(2, call.seqlen_kv, 8, 128, dtype=call.dtype, device=DEVICE)
    k[:, -1] = 8.0  # the last key outweighs all others by exp(90)
    v[:, -1] = torch.randn(2, 8, 128, device=DEVICE).to(call.dtype)
    assert torch.equal(build(GQADecodeKernel, call)(q, k, v)[:, 0], v[:, -1])


def test_ten_thousand_steps_of_the_op_build_nothing_new_and_hold_no_more_memory() -> None:
    op = GQADenseFwdOp(is_causal=True)
    q, k, v = tensors(AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=12_000))
    for keys in (1, 1024, 12_000):
        op(q, k[:, :keys], v[:, :keys])
    warm, held = op.cache_info(), torch.cuda.memory_allocated()
    for keys in range(2000, 12_000):
        out = op(q, k[:, :keys], v[:, :keys])
    check(AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=keys), out, q, k[:, :keys], v[:, :keys])
    del out
    info = op.cache_info()
    assert (info.builds, info.misses, info.calls) == (warm.builds, warm.misses, warm.calls)
    assert torch.cuda.memory_allocated() == held
