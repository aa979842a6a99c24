"""Where and when kernels are launched: on the current stream, on the device they were built for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels.support import DEVICE, build
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.device_facts import device_facts
from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.norm.layer_norm import LayerNormKernel

pytestmark = pytest.mark.gpu

LAYER_NORM = LayerNormCall(n=512)
DECODE = AttentionCall(heads=8, heads_kv=2, dim=64, seqlen_kv=300)


def layer_norm_inputs(device: torch.device) -> list[torch.Tensor]:
    return [torch.randn(shape, device=device, dtype=torch.float16) for shape in ((9, 512), (512,), (512,))]


def decode_inputs(device: torch.device) -> list[torch.Tensor]:
    shapes = ((1, 1, 8, 64), (1, 300, 2, 64), (1, 300, 2, 64))
    return [torch.randn(shape, device=device, dtype=torch.float16) for shape in shapes]


CASES = [(LayerNormKernel, LAYER_NORM, layer_norm_inputs), (GQADecodeKernel, DECODE, decode_inputs)]


@pytest.mark.parametrize(("kernel", "call", "inputs"), CASES)
def test_launches_go_to_the_current_stream(
    kernel: type[Kernel], call: Any, inputs: Callable[[torch.device], list[torch.Tensor]]
) -> None:
    built = build(kernel, call)
    held = inputs(DEVICE)
    built(*held)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # a launch on any other stream fails here
        out = built(*held)
    for tensor, fresh in zip(held, inputs(DEVICE), strict=True):
        tensor.copy_(fresh)
    graph.replay()
    assert torch.equal(out, built(*held))


@pytest.mark.parametrize(("kernel", "call", "inputs"), CASES)
def test_a_kernel_runs_on_its_device_whichever_is_current(
    kernel: type[Kernel], call: Any, inputs: Callable[[torch.device], list[torch.Tensor]]
) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device here; this needs two")
    second = torch.device("cuda", 1)
    resolved = dataclasses.replace(call, device=second, **dataclasses.asdict(device_facts(second)))
    built = kernel.entry_for(resolved)[1]()
    built.launch_device = second
    torch.cuda.set_device(0)
    held = inputs(second)
    out = built(*held)
    assert out.device == second
    assert torch.cuda.current_device() == 0
    assert torch.equal(out.to(DEVICE), build(kernel, call)(*(tensor.to(DEVICE) for tensor in held)))
