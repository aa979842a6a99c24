"""Where and when kernels are launched: on the current stream, on the device they were built for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels.row_support import ROW_NORMS, WAYS, listed, row_call, same
from tests.kernels.support import DEVICE, build
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.device_facts import device_facts
from tileops.kernels.kernel_base import Kernel

pytestmark = pytest.mark.gpu

DECODE = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=300)
Inputs = Callable[[torch.device], list[torch.Tensor]]


def decode_inputs(device: torch.device) -> list[torch.Tensor]:
    shapes = ((1, 1, 8, 64), (1, 300, 2, 64), (1, 300, 2, 64))
    return [torch.randn(shape, device=device, dtype=torch.float16) for shape in shapes]


def rows_of(name: str, way: str, n: int) -> tuple[type[Kernel], Any, Inputs]:
    """A kernel of rows, a call for it, and nine rows, other ones each time."""
    norm = ROW_NORMS[name]

    def inputs(device: torch.device) -> list[torch.Tensor]:
        return [tensor.normal_() for tensor in norm.tensors(9, n, torch.float16, device)]

    return norm.kernel(way), row_call(n, torch.float16), inputs


CASES = [
    *(rows_of("layer_norm", way, 12288 if way == "cut" else 256) for way in WAYS),
    rows_of("fused_add_rms_norm", "held", 512),
    (GQADecodeKernel, DECODE, decode_inputs),
]


def built_here(kernel: type[Kernel], call: Any) -> Any:
    """The kernel, where the GPU of this machine is one that it runs on."""
    archs, arch = kernel.supported_archs, device_facts(DEVICE).arch
    if archs is not None and arch not in archs:
        pytest.skip(f"{kernel.__name__} does not run on sm_{arch}")
    return build(kernel, call)


@pytest.mark.parametrize(("kernel", "call", "inputs"), CASES)
def test_launches_go_to_the_current_stream(kernel: type[Kernel], call: Any, inputs: Inputs) -> None:
    built = built_here(kernel, call)
    held = inputs(DEVICE)
    built(*held)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # a launch on any other stream fails here
        out = built(*held)
    for tensor, fresh in zip(held, inputs(DEVICE), strict=True):
        tensor.copy_(fresh)
    graph.replay()
    assert same(out, built(*held))


@pytest.mark.parametrize(("kernel", "call", "inputs"), CASES)
def test_a_kernel_runs_on_its_device_whichever_is_current(kernel: type[Kernel], call: Any, inputs: Inputs) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device here; this needs two")
    first, second = built_here(kernel, call), torch.device("cuda", 1)
    resolved = dataclasses.replace(call, device=second, **dataclasses.asdict(device_facts(second)))
    built = kernel.entry_for(resolved)[1]()
    built.launch_device = second
    torch.cuda.set_device(0)
    held = inputs(second)
    out = built(*held)
    assert {each.device for each in listed(out)} == {second}
    assert torch.cuda.current_device() == 0
    assert same(tuple(each.to(DEVICE) for each in listed(out)), first(*(tensor.to(DEVICE) for tensor in held)))
