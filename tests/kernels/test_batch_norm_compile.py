"""Every kernel that normalizes channels compiles for every kind of arch that it lists. No GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.kernels.support import on_arch
from tests.kernels.test_compile import shared_bytes
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.ops import BatchNormBwdOp, BatchNormFwdOp, InstanceNormFwdOp

pytestmark = pytest.mark.compile

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
KERNELS = {**BatchNormFwdOp.kernel_types, **BatchNormBwdOp.kernel_types, **InstanceNormFwdOp.kernel_types}
ARCHS = [80, 89, 90]
CALLS = {
    "fwd_train_whole": BatchNormCall(32, 64, 1, dtype=HALF, weight_dtype=HALF, running_dtype=FULL),
    "fwd_train_wide": BatchNormCall(4, 256, 784, dtype=FULL, running_dtype=FULL),
    "fwd_train_cluster": BatchNormCall(32, 256, 3136, dtype=HALF, weight_dtype=HALF, running_dtype=FULL),
    "fwd_train_split": BatchNormCall(3, 5, 90300, dtype=HALF, weight_dtype=FULL, running_dtype=HALF),
    "fwd_train_kernel": BatchNormCall(4096, 1024, 64, dtype=BRAIN, weight_dtype=BRAIN),
    "fwd_infer_kernel": BatchNormCall(4, 256, 784, dtype=BRAIN, weight_dtype=FULL, running_dtype=FULL),
    "bwd_wide": BatchNormCall(256, 512, 1, dtype=HALF, weight_dtype=HALF),
    "bwd_cluster": BatchNormCall(32, 256, 3136, dtype=HALF, weight_dtype=FULL),
    "bwd_split": BatchNormCall(3, 5, 90300, dtype=HALF, weight_dtype=FULL),
    "bwd_kernel": BatchNormCall(4096, 1024, 64, dtype=BRAIN, weight_dtype=BRAIN),
    "instance_norm_wide": BatchNormCall(8, 128, 1024, dtype=HALF, weight_dtype=FULL, running_dtype=FULL),
    "instance_norm_cluster": BatchNormCall(3, 5, 131_072, dtype=BRAIN, weight_dtype=FULL, running_dtype=BRAIN),
    "instance_norm_split": BatchNormCall(2, 3, 90301, dtype=BRAIN, weight_dtype=BRAIN),
    "instance_norm": BatchNormCall(32, 64, 112 * 160, dtype=HALF, weight_dtype=FULL, running_dtype=HALF),
    "instance_norm_infer": BatchNormCall(4, 256, 49, dtype=HALF, weight_dtype=HALF, running_dtype=HALF),
}

SETS = [
    ("fwd_train_wide", BatchNormCall(128, 2048, 49, dtype=HALF)),
    ("fwd_train_wide", BatchNormCall(4, 24, 49, dtype=FULL)),
    ("bwd_wide", BatchNormCall(128, 2048, 49, dtype=HALF)),
    ("bwd_wide", BatchNormCall(4, 24, 49, dtype=FULL)),
    ("fwd_train_kernel", BatchNormCall(4096, 1024, 49, dtype=BRAIN, running_dtype=FULL)),
    ("bwd_kernel", BatchNormCall(4096, 1024, 49, dtype=BRAIN)),
]
"""Channels that are taken as sets: held in shared memory where the arch has as much, or in registers, and streamed."""


def programs(kernel: Any) -> Iterator[Any]:
    """What a built kernel launches, the last of each part first."""
    for holder in (kernel, getattr(kernel, "launch", None), getattr(kernel, "track", None)):
        for name in ("compiled", "parts"):
            if getattr(holder, name, None) is not None:
                yield getattr(holder, name)


def test_each_kernel_has_a_call_that_it_serves() -> None:
    assert set(CALLS) == set(KERNELS)
    assert {key: KERNELS[key].refusal(on_arch(call, 90)) for key, call in CALLS.items()} == dict.fromkeys(CALLS)


@pytest.mark.parametrize(
    ("key", "asked", "arch"),
    [
        (key, asked, arch)
        for arch in ARCHS
        for key, asked in [*CALLS.items(), *SETS]
        if arch in (KERNELS[key].supported_archs or ARCHS)
    ],
)
def test_it_compiles_in_what_it_says_a_block_takes(key: str, asked: BatchNormCall, arch: int) -> None:
    call, kind = on_arch(asked, arch), KERNELS[key]
    _, builder = kind.entry_for(call)
    built = list(programs(builder()))
    threads = [int(each) for one in built for each in re.findall(r"__launch_bounds__\((\d+),", one.get_kernel_source())]
    assert max(threads) == kind.block_threads(call)
    stated = kind.block_smem_bytes(call)
    taken = max(shared_bytes(one) if "extern __shared__" in one.get_kernel_source() else 0 for one in built)
    # Of a cluster it is stated what the largest takes, and barriers, which are not asked for at a launch.
    assert taken <= stated if "cluster" in key else taken == stated


@pytest.mark.parametrize("key", ["fwd_train_wide", "fwd_train_split", "fwd_train_kernel", "bwd_kernel"])
def test_planes_of_whole_vectors_are_read_sixteen_bytes_at_a_time(key: str) -> None:
    call = on_arch(BatchNormCall(4096, 64, 64, dtype=HALF, weight_dtype=HALF), 90)
    if key == "fwd_train_wide":
        call = on_arch(BatchNormCall(4, 64, 64, dtype=HALF, weight_dtype=HALF), 90)
    _, builder = KERNELS[key].entry_for(call)
    for one in programs(builder()):
        assert "*(uint4*)(x + " in one.get_kernel_source()


def test_one_program_serves_batches_channels_and_planes_of_any_size() -> None:
    identities = set()
    for n, c, spatial in ((4096, 1024, 64), (1000, 2048, 56), (65, 600, 512)):
        call = on_arch(BatchNormCall(n, c, spatial, dtype=HALF), 90)
        identities.add(KERNELS["fwd_train_kernel"].entry_for(call)[0])
    assert len(identities) == 1
