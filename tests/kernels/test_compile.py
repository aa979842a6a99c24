"""Every kernel compiles for every arch that it lists. No GPU is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.kernels.support import on_arch
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import (
    DIMS,
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
)
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.norm.layer_norm import LayerNormKernel

pytestmark = pytest.mark.compile

DECODE = (GQADecodeKernel, GQADecodeBs1Kernel, GQADecodeLongContextKernel)


def built(kernel: Any, call: Any, arch: int) -> Any:
    resolved = on_arch(call, arch)
    assert kernel.refusal(resolved) is None
    identity, builder = kernel.entry_for(resolved)
    return identity, builder()


def shared_bytes(compiled: Any) -> int:
    """Shared memory of a launch as the host code asks for it: the last integer that it passes on."""
    passed = re.findall(r"v_int64\) = \(\(int64_t\)(\d+)\);", compiled.get_host_source())
    return int(passed[-1])


@pytest.mark.parametrize("arch", LayerNormKernel.supported_archs)
@pytest.mark.parametrize("n", [769, 65537, 100_000], ids=["registers", "tiles", "lanes"])
def test_layer_norm_compiles_for_every_arch_it_lists(arch: int, n: int) -> None:
    call = LayerNormCall(n=n, dtype=torch.bfloat16)
    _, kernel = built(LayerNormKernel, call, arch)
    source = kernel.compiled.get_kernel_source()
    assert f"__launch_bounds__({LayerNormKernel.block_threads(call)}," in source
    assert shared_bytes(kernel.compiled) == LayerNormKernel.block_smem_bytes(call), (
        "what is stated is what is asked for"
    )


@pytest.mark.parametrize(("kernel", "arch"), [(kernel, arch) for kernel in DECODE for arch in kernel.supported_archs])
def test_decode_compiles_for_every_arch_it_lists(kernel: Any, arch: int) -> None:
    call = AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=4096)
    build, kernel = built(kernel, call, arch)
    source = kernel.attend.get_kernel_source()
    assert ("wgmma" in source) == (arch >= 90), "Hopper's matrix unit is used there and only there"
    assert shared_bytes(kernel.attend) == build.tile.smem_bytes(128), "what the rule counts is what is asked for"
    assert shared_bytes(kernel.attend) == type(kernel).block_smem_bytes(on_arch(call, arch))
    assert shared_bytes(kernel.merge) <= shared_bytes(kernel.attend)
    threads = re.findall(r"__launch_bounds__\((\d+),", source + kernel.merge.get_kernel_source())
    assert max(map(int, threads)) == type(kernel).block_threads(call)


@pytest.mark.parametrize("arch", GQADecodeKernel.supported_archs)
def test_the_largest_head_compiles_with_softcap_in_the_shared_memory_there_is(arch: int) -> None:
    call = AttentionCall(heads=14, heads_kv=2, dim=256, softcap=30.0, dtype=torch.bfloat16)
    build, kernel = built(GQADecodeKernel, call, arch)
    assert shared_bytes(kernel.attend) == build.tile.smem_bytes(256)


@pytest.mark.nightly
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("arch", GQADecodeKernel.supported_archs)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_head_size_compiles(arch: int, dim: int, dtype: torch.dtype) -> None:
    build, kernel = built(GQADecodeKernel, AttentionCall(heads=5, dim=dim, dtype=dtype), arch)
    assert shared_bytes(kernel.attend) == build.tile.smem_bytes(dim)
