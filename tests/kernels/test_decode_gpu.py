"""Grouped-query decode on a GPU against float64.

The bound on the error of one element, in terms of ``mass``, the average of ``|v|`` under the weights: weights
are rounded to the input's dtype before they meet the values (half a unit of it), the result is rounded once
more, and scores are float32 sums of ``dim`` products, whose error moves weights by as much, in numerator and
denominator.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from tests.kernels.support import DEVICE, FLOAT32_UNIT, build, on_arch, on_this_gpu, rounding_unit
from tileops.kernels import tilelang_build
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import (
    DIMS,
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
)
from tileops.kernels.device_facts import device_facts
from tileops.kernels.tilelang_build import compile_program

pytestmark = pytest.mark.gpu

LENGTHS = [1, 2, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 4097, 8192]
DTYPES = [torch.float16, torch.bfloat16]
GROUPS = [1, 4, 5, 7, 8, 16, 64, 96]


def tensors(call: AttentionCall, *, q_std: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normal queries, keys and values; keys and values end in memory that is NaN."""
    draw = torch.Generator(DEVICE).manual_seed(call.seqlen_kv + 13 * call.heads)
    q = torch.randn(call.batch, 1, call.heads, call.dim, generator=draw, device=DEVICE) * q_std
    made = [q.to(call.dtype)]
    for _ in range(2):
        shape = (call.batch, call.seqlen_kv, call.heads_kv, call.dim)
        size = math.prod(shape)
        storage = torch.full((size + 128 * call.heads_kv * call.dim,), float("nan"), dtype=call.dtype, device=DEVICE)
        storage[:size] = torch.randn(size, generator=draw, device=DEVICE).to(call.dtype)
        made.append(storage[:size].view(shape))
    return made[0], made[1], made[2]


def expected(
    call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the largest error that a kernel may make in each element."""
    scale = call.sm_scale if call.sm_scale is not None else call.dim**-0.5
    group = call.heads // call.heads_kv
    queries = q.double().view(call.batch, call.heads_kv, group, call.dim)
    keys, values = k.double(), v.double()
    scores = torch.einsum("bhgd,bnhd->bhgn", queries, keys) * scale
    if call.softcap:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    weights = torch.softmax(scores, dim=-1)
    result = torch.einsum("bhgn,bnhd->bhgd", weights, values)
    mass = torch.einsum("bhgn,bnhd->bhgd", weights, values.abs())
    largest = torch.einsum("bhgd,bnhd->bhgn", queries.abs(), keys.abs()).amax(dim=-1, keepdim=True) * abs(scale)
    scores_error = 2 * math.sqrt(call.dim) * FLOAT32_UNIT * largest
    unit = rounding_unit(call.dtype)
    allowed = unit * result.abs() + (unit + 2 * scores_error + 16 * FLOAT32_UNIT) * mass
    shape = (call.batch, 1, call.heads, call.dim)
    return result.view(shape), allowed.view(shape)


def check(call: AttentionCall, out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    result, allowed = expected(call, q, k, v)
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    error = (out.double() - result).abs() / (allowed + torch.finfo(out.dtype).smallest_normal)
    assert not error.isnan().any()
    assert error.max().item() <= 1.0, call


def run(kernel: type[GQADecodeKernel], call: AttentionCall, **options: Any) -> None:
    q, k, v = tensors(call, **options)
    check(call, build(kernel, call)(q, k, v), q, k, v)


def kernels_for(call: AttentionCall) -> list[type[GQADecodeKernel]]:
    arch = on_this_gpu(call).arch
    return [
        kernel
        for kernel in (GQADecodeKernel, GQADecodeBs1Kernel, GQADecodeLongContextKernel)
        if arch in kernel.supported_archs and kernel.refusal(on_this_gpu(call)) is None
    ]


@pytest.mark.parametrize("seqlen_kv", LENGTHS)
def test_every_kernel_that_serves_a_length_matches_float64(seqlen_kv: int) -> None:
    call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=seqlen_kv)
    serving = kernels_for(call)
    assert GQADecodeKernel in serving
    assert (GQADecodeLongContextKernel in serving) == (seqlen_kv >= 1024)
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
        run(
            GQADecodeKernel,
            AttentionCall(batch=batch, heads=2 * group, heads_kv=2, dim=128, seqlen_kv=seqlen_kv),
        )


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


def test_a_run_of_far_lower_scores_than_the_others_is_merged_right() -> None:
    call = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=130, sm_scale=1.0)
    q, k, v = tensors(call)
    q[..., 0], k[:, :128, :, 0], k[:, 128:, :, 0] = 64.0, 8.0, -64.0
    kernel = build(GQADecodeKernel, call)
    check(call, kernel.attend_in_runs(q, k, v, 3, 1), q, k, v)
    check(call, kernel.attend_in_runs(q, k, v, 1, 3), q, k, v)
    k[..., 0] = -64.0  # about -4100 for every key: far below where a base of 0 could be left
    check(call, kernel.attend_in_runs(q, k, v, 3, 1), q, k, v)


@pytest.mark.parametrize("softcap", [0.0, 50.0])
def test_large_scores_keep_their_digits(softcap: float) -> None:
    call = AttentionCall(heads=16, heads_kv=4, dim=128, seqlen_kv=1025, softcap=softcap, dtype=torch.bfloat16)
    run(GQADecodeKernel, call, q_std=100.0)


@pytest.mark.parametrize(("runs", "tiles"), [(1, 3), (2, 2), (3, 1), (7, 1), (128, 1), (5, 3)])
def test_any_cut_of_the_keys_gives_the_same_attention_with_empty_runs_too(runs: int, tiles: int) -> None:
    call = AttentionCall(batch=2, heads=8, heads_kv=2, dim=128, seqlen_kv=150)
    q, k, v = tensors(call)
    kernel = build(GQADecodeKernel, call)
    assert kernel.build.tile.keys == 64, "150 keys are three tiles, the last of them partial"
    check(call, kernel.attend_in_runs(q, k, v, runs, tiles), q, k, v)


def test_many_small_weights_beside_a_large_one_are_not_lost() -> None:
    call = AttentionCall(heads=8, heads_kv=1, dim=64, seqlen_kv=32_768, sm_scale=1.0)
    q = torch.zeros(1, 1, 8, 64, dtype=call.dtype, device=DEVICE)
    q[..., 0] = 1.0
    k = torch.zeros(1, call.seqlen_kv, 1, 64, dtype=call.dtype, device=DEVICE)
    k[0, 0, 0, 0] = 16.0  # float16 holds exp(-16) to one part in two, and all of the result is in such weights
    v = torch.ones(1, call.seqlen_kv, 1, 64, dtype=call.dtype, device=DEVICE)
    v[0, 0] = 0.0
    kernel = build(GQADecodeKernel, call)
    check(call, kernel.attend_in_runs(q, k, v, 1, call.seqlen_kv // kernel.build.tile.keys), q, k, v)
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
    here = device_facts(DEVICE).arch
    if here is None or here <= arch:
        pytest.skip(f"arch {here} is not newer than {arch}: its own kernels are what the other tests run")
    # nvcc turns what TileLang writes for the older arch into code of this one.
    target = {"kind": "cuda", "arch": f"sm_{arch}", "code": [f"sm_{here}"]}
    monkeypatch.setattr(tilelang_build, "target_for", lambda _: target)
    compile_program.cache_clear()
    try:
        for kernel, heads_kv, softcap in ((GQADecodeKernel, 2, 20.0), (GQADecodeLongContextKernel, 4, 0.0)):
            call = AttentionCall(heads=32, heads_kv=heads_kv, dim=dim, seqlen_kv=4097, softcap=softcap)
            if kernel.refusal(on_arch(call, arch)) is None:
                built = kernel.entry_for(on_arch(call, arch))[1]()
                assert "wgmma" not in built.attend.get_kernel_source()
                for seqlen_kv in (1, 31, 32, 65, 4097):
                    shorter = dataclasses.replace(call, seqlen_kv=seqlen_kv)
                    q, k, v = tensors(shorter)
                    check(shorter, built(q, k, v), q, k, v)
    finally:
        compile_program.cache_clear()


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
