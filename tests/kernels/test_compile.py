"""Every kernel compiles for every arch that it lists. No GPU is needed."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch

from tests.kernels.row_support import ROW_NORMS, row_call
from tests.kernels.support import on_arch
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import (
    DIMS,
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)
from tileops.kernels.attention.gqa.fp8_prefill import GQAFp8Kernel
from tileops.kernels.attention.gqa.fp8_prefill_limits import FP8_PREFILL_DIMS
from tileops.kernels.attention.gqa.prefill import (
    GQAPrefillKernel,
    GQAPrefillMmaKernel,
    GQAPrefillSlidingWindowKernel,
)
from tileops.kernels.attention.gqa.prefill_limits import PREFILL_DIMS

pytestmark = pytest.mark.compile

DECODE = (
    GQADecodeKernel,
    GQADecodeBs1Kernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)


def built(kernel: Any, call: Any, arch: int) -> Any:
    resolved = on_arch(call, arch)
    assert kernel.refusal(resolved) is None
    identity, builder = kernel.entry_for(resolved)
    return identity, builder()


def shared_bytes(compiled: Any) -> int:
    """Shared memory of a launch as the host code asks for it: the last integer that it passes on, if any is used."""
    if "__shared__" not in compiled.get_kernel_source():
        return 0
    passed = re.findall(r"v_int64\) = \(\(int64_t\)(\d+)\);", compiled.get_host_source())
    return int(passed[-1])


LENGTHS = {"tiled": (65537, 3000), "short": (256, 257), "held": (769, 12289, 3000, 16384), "cut": (12289, 16385, 65536)}
"""Lengths of each way: those of the widest loads and of one element, in registers and in shared memory."""
OTHERS = {
    "rms_norm": ("held", (12289, 65536)),
    "fused_add_layer_norm": ("cut", (65537,)),
    "fused_add_rms_norm": ("cut", (12289,)),
    "ada_layer_norm": ("short", (256, 257)),
    "ada_layer_norm_zero": ("cut", (16384,)),
}
"""One kernel of each op beside layer normalization."""


def row_cases() -> list[tuple[str, str, int, int]]:
    """Each way on each arch that it lists, and at each of its lengths on one of them at least."""
    asked = [("layer_norm", way, lengths) for way, lengths in LENGTHS.items()]
    asked += [(name, way, lengths) for name, (way, lengths) in OTHERS.items()]
    cases = []
    for name, way, lengths in asked:
        archs = ROW_NORMS[name].kernel(way).supported_archs
        for i in range(max(len(archs), len(lengths))):
            cases.append((name, way, lengths[i % len(lengths)], archs[i % len(archs)]))
    return cases


def barriers(launch: Any, way: str) -> int:
    """Barriers of a block that a program needs: where warps and where blocks meet."""
    return 1 if way == "tiled" else (launch.lanes > 32) + (launch.blocks > 1)


def buffers(source: str, smem: int) -> dict[str, int]:
    """Bytes of each buffer in the shared memory of a kernel, up to the one after it."""
    found = re.findall(r"void\* (\w+) = \(\(void\*\)\(\(char\*\)buf_dyn_shmem \+ (\d+)\)\);", source)
    begins = sorted((int(offset), name) for name, offset in found)
    ends = [offset for offset, _ in begins[1:]] + [smem]
    return {name: end - offset for (offset, name), end in zip(begins, ends, strict=True)}


@pytest.mark.parametrize(("name", "way", "n", "arch"), row_cases())
def test_row_kernels_compile_for_every_arch_they_list_and_take_what_they_state(
    name: str, way: str, n: int, arch: int
) -> None:
    call, cls = row_call(n, torch.bfloat16), ROW_NORMS[name].kernel(way)
    _, kernel = built(cls, call, arch)
    source = kernel.compiled.get_kernel_source()
    assert f"__launch_bounds__({cls.block_threads(call)}," in source
    assert shared_bytes(kernel.compiled) == cls.block_smem_bytes(call), "what is stated is what is asked for"
    launch = kernel.layout
    wide = {8: "uint4", 4: "uint2", 1: "bfloat16_t"}[launch.vector]
    assert launch.vector == 1 or f"*({wide}*)" in source, "loads are as wide as the row allows"
    assert source.count("__syncthreads();") == barriers(launch, way), "no barrier is added or taken away"
    looks = 2 if cls.recipe.centred else 1  # the second of them where the first value is far from the mean
    assert source.count("__syncwarp();") == (2 * looks if way != "tiled" and launch.in_shared else 0), (
        "nor one of a warp"
    )
    clusters = [source.count(f"tl::cluster_{step}();") for step in ("arrive_relaxed", "wait", "sync")]
    if way != "cut":
        assert clusters == [0, 0, 0]
        return
    assert clusters == [1, 1, 1]
    exchanged = (3 if ROW_NORMS[name].centred else 1) * 4
    held = -(-n // (launch.blocks * launch.lanes * launch.vector)) * launch.lanes * launch.vector * 2
    needed = {"held": held, "mine": exchanged, "parts": 8 * exchanged, "pieces": launch.blocks * exchanged}
    found = buffers(source, shared_bytes(kernel.compiled))
    assert found.keys() == needed.keys()
    assert all(found[each] >= needed[each] for each in needed), "another block writes over nothing that is in use"


def assert_decode_is_as_stated(kernel: Any, call: AttentionCall, arch: int) -> str:
    build, made = built(kernel, call, arch)
    source: str = made.attend.get_kernel_source()
    stated = kernel.block_smem_bytes(on_arch(call, arch))
    assert 0.85 * stated <= shared_bytes(made.attend) <= stated, "what the rule counts is enough, and little more"
    (threads,) = set(re.findall(r"__launch_bounds__\((\d+),", source))
    assert int(threads) == kernel.block_threads(on_arch(call, arch))
    cluster = build.layout.shape.cluster
    assert source.count("tl::cluster_arrive_relaxed();") == (cluster > 1)
    return source


@pytest.mark.parametrize(("kernel", "arch"), [(kernel, arch) for kernel in DECODE for arch in kernel.supported_archs])
def test_decode_compiles_for_every_arch_it_lists(kernel: Any, arch: int) -> None:
    call = AttentionCall(heads=128, heads_kv=8, dim=128, seqlen_kv=4096)
    if kernel is GQADecodeLongContextKernel:
        call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=4096)
    if kernel is GQADecodeSlidingWindowKernel:
        call = dataclasses.replace(call, window_size_left=100)
    if kernel is GQAFp8DecodeKernel:
        call = dataclasses.replace(call, is_fp8=True)
    source = assert_decode_is_as_stated(kernel, call, arch)
    assert "load_16_through_l2" in source


@pytest.mark.parametrize(
    ("arch", "heads", "fields"),
    [
        (80, 14, {"softcap": 30.0, "dim": 256}),
        (89, 14, {"fuse_rope": True, "rotary_dim": 24, "dim": 256}),
        (90, 64, {"fuse_rope": True, "rotary_dim": 64, "rope_interleaved": True, "dim": 80}),
    ],
)
def test_large_heads_softcap_and_rotation_compile(arch: int, heads: int, fields: dict[str, Any]) -> None:
    call = AttentionCall(heads=heads, heads_kv=2, dtype=torch.bfloat16, **fields)
    assert_decode_is_as_stated(GQADecodeKernel, call, arch)


@pytest.mark.nightly
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("arch", GQADecodeKernel.supported_archs)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_head_size_compiles(arch: int, dim: int, dtype: torch.dtype) -> None:
    _, kernel = built(GQADecodeKernel, AttentionCall(heads=5, dim=dim, dtype=dtype), arch)
    assert shared_bytes(kernel.attend) <= GQADecodeKernel.block_smem_bytes(
        on_arch(AttentionCall(heads=5, dim=dim, dtype=dtype), arch)
    )


def barrier_bytes(compiled: Any) -> int:
    """Shared memory that a kernel has before what its launch asks for: barriers, up to where the latter may begin."""
    source = compiled.get_kernel_source()
    sizes = re.findall(r"__shared__ __align__\(16\) uint64_t \w+\[(\d+)\];", source)
    (alignment,) = re.findall(r"extern __shared__ __align__\((\d+)\) uchar buf_dyn_shmem", source)
    taken = sum(-(-8 * int(size) // 16) * 16 for size in sizes)
    return -(-taken // int(alignment)) * int(alignment)


def assert_prefill_is_as_stated(kernel: Any, call: AttentionCall, arch: int) -> None:
    _, made = built(kernel, call, arch)
    source = made.attend.get_kernel_source()
    resolved = on_arch(call, arch)
    assert ("wgmma" in source) == ("tma_load" in source) == (kernel is not GQAPrefillMmaKernel)
    assert ("cluster_dims" in source or "cluster_sync" in source) == (
        kernel is not GQAPrefillMmaKernel and call.heads // call.heads_kv % 2 == 0
    )
    assert shared_bytes(made.attend) + barrier_bytes(made.attend) == kernel.block_smem_bytes(resolved)
    assert f"__launch_bounds__({kernel.block_threads(resolved)}," in source


@pytest.mark.parametrize(
    ("kernel", "arch", "fields"),
    [
        (GQAPrefillMmaKernel, 80, {"is_causal": True}),
        (GQAPrefillMmaKernel, 89, {"dim": 256, "softcap": 30.0, "window_size_left": 100}),
        (GQAPrefillKernel, 90, {"is_causal": True, "seqlen_kv": 8192}),
        (GQAPrefillSlidingWindowKernel, 90, {"heads": 20, "window_size_left": 100, "window_size_right": 5}),
    ],
)
def test_prefill_compiles_and_takes_what_it_states(kernel: Any, arch: int, fields: Any) -> None:
    call = AttentionCall(**{"heads": 32, "heads_kv": 4, "dim": 128, "max_seqlen_q": 300, "seqlen_kv": 300, **fields})
    assert_prefill_is_as_stated(kernel, call, arch)


@pytest.mark.parametrize(
    "fields", [{"dim": 80, "is_causal": True}, {"dim": 128, "window_size_left": 100, "softcap": 5.0}], ids=str
)
def test_float8_prefill_compiles_and_takes_what_it_states(fields: Any) -> None:
    assert_float8_is_as_stated(AttentionCall(heads=8, heads_kv=2, max_seqlen_q=9, seqlen_kv=9, is_fp8=True, **fields))


def assert_float8_is_as_stated(call: AttentionCall) -> None:
    _, made = built(GQAFp8Kernel, call, 90)
    resolved = on_arch(call, 90)
    assert shared_bytes(made.attend) + barrier_bytes(made.attend) == GQAFp8Kernel.block_smem_bytes(resolved)
    assert shared_bytes(made.turn) <= GQAFp8Kernel.block_smem_bytes(resolved)
    source = made.attend.get_kernel_source()
    assert f"__launch_bounds__({GQAFp8Kernel.block_threads(resolved)}," in source
    assert "wgmma" in source


@pytest.mark.nightly
@pytest.mark.parametrize("dim", FP8_PREFILL_DIMS)
def test_every_head_size_of_float8_prefill_compiles(dim: int) -> None:
    call = AttentionCall(heads=8, heads_kv=2, dim=dim, max_seqlen_q=9, seqlen_kv=9, is_fp8=True, is_causal=True)
    assert_float8_is_as_stated(call)


@pytest.mark.nightly
@pytest.mark.parametrize("dim", PREFILL_DIMS)
@pytest.mark.parametrize(
    ("kernel", "arch"),
    [
        (GQAPrefillMmaKernel, 80),
        (GQAPrefillMmaKernel, 89),
        (GQAPrefillMmaKernel, 90),
        (GQAPrefillKernel, 90),
        (GQAPrefillSlidingWindowKernel, 90),
    ],
)
def test_every_head_size_of_prefill_compiles(kernel: Any, arch: int, dim: int) -> None:
    window = 100 if kernel is GQAPrefillSlidingWindowKernel else -1
    call = AttentionCall(heads=6, heads_kv=3, dim=dim, max_seqlen_q=9, is_causal=True, window_size_left=window)
    assert_prefill_is_as_stated(kernel, call, arch)
