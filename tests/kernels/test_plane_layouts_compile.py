"""Programs of given statistics and of small instances compile in what is stated of their blocks. No GPU is needed."""

from __future__ import annotations

import re

import pytest
import torch

from tests.kernels.support import on_arch
from tests.kernels.test_batch_norm_compile import programs
from tests.kernels.test_compile import shared_bytes
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.instance_norm import InstanceNormFwdWideKernel

pytestmark = pytest.mark.compile

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
INFERENCE = [
    BatchNormCall(32, 64, 1, dtype=HALF, weight_dtype=HALF, running_dtype=FULL),
    BatchNormCall(128, 2048, 49, dtype=HALF, running_dtype=FULL),
    BatchNormCall(128, 2048, 3, dtype=BRAIN, weight_dtype=BRAIN, running_dtype=BRAIN),
    BatchNormCall(64, 512, 784, dtype=HALF, running_dtype=FULL),
    BatchNormCall(3, 70_000, 3136, dtype=FULL, running_dtype=FULL),
]
INSTANCES = [
    BatchNormCall(128, 2048, 49, dtype=HALF),
    BatchNormCall(4096, 64, 49, dtype=BRAIN, weight_dtype=BRAIN, running_dtype=FULL),
    BatchNormCall(3, 5, 1023, dtype=HALF, weight_dtype=FULL, running_dtype=HALF),
    BatchNormCall(64, 64, 784, dtype=FULL, running_dtype=FULL),
]
CALLS = [
    (kind, call)
    for kind, calls in ((BatchNormFwdInferKernel, INFERENCE), (InstanceNormFwdWideKernel, INSTANCES))
    for call in calls
]


@pytest.mark.parametrize("arch", [80, 89, 90])
@pytest.mark.parametrize(("kind", "asked"), CALLS)
def test_it_compiles_in_what_it_says_a_block_takes(kind: type, asked: BatchNormCall, arch: int) -> None:
    call = on_arch(asked, arch)
    assert kind.refusal(call) is None
    _, builder = kind.entry_for(call)
    built = list(programs(builder()))
    threads = [int(each) for one in built for each in re.findall(r"__launch_bounds__\((\d+),", one.get_kernel_source())]
    assert max(threads) == kind.block_threads(call)
    stated = kind.block_smem_bytes(call)
    assert max(shared_bytes(one) if "extern __shared__" in one.get_kernel_source() else 0 for one in built) == stated


@pytest.mark.parametrize(
    ("kind", "asked"), [(BatchNormFwdInferKernel, INFERENCE[1]), (InstanceNormFwdWideKernel, INSTANCES[0])]
)
def test_planes_that_no_load_divides_are_read_sixteen_bytes_at_a_time(kind: type, asked: BatchNormCall) -> None:
    _, builder = kind.entry_for(on_arch(asked, 90))
    source = (
        builder().compiled.get_kernel_source()
        if kind is BatchNormFwdInferKernel
        else builder().launch.compiled.get_kernel_source()
    )
    assert "*(uint4*)(x + " in source
    assert "*(uint4*)(out + " in source


def test_a_new_batch_size_costs_no_build() -> None:
    def identities(kind: type, *facts: tuple[int, int, int]) -> set[object]:
        return {kind.entry_for(on_arch(BatchNormCall(*each, dtype=HALF, running_dtype=FULL), 90))[0] for each in facts}

    for c, spatial in ((2048, 49), (64, 3136), (512, 784)):
        calls = [(n, c, spatial) for n in (128, 129, 1000)]
        assert len(identities(BatchNormFwdInferKernel, *calls)) == 1
        assert len(identities(InstanceNormFwdWideKernel, *calls)) == 1
