"""Rows of two axes, which are launched without a view of them, give what rows of one axis do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.row_support import ROW_NORMS, built, drawn, row_call
from tests.kernels.support import DEVICE, build
from tileops.kernels.device_facts import device_facts

pytestmark = pytest.mark.gpu

NAMES = ["layer_norm", "rms_norm"]
WAYS = [("tiled", 300), ("short", 256), ("held", 768), ("held", 4096), ("cut", 16384), ("ring", 768)]


def kernel_of(name: str, way: str, n: int) -> Any:
    if way != "ring":
        return built(name, way, n, torch.bfloat16)
    kind = ROW_NORMS[name].ring()
    if device_facts(DEVICE).arch not in kind.supported_archs:
        pytest.skip(f"{kind.__name__} does not run on this GPU")
    return build(kind, row_call(n, torch.bfloat16, few_rows=False))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("way", "n"), WAYS)
def test_rows_of_two_axes_give_the_bits_of_rows_of_one(name: str, way: str, n: int) -> None:
    kernel = kernel_of(name, way, n)
    _, (x, *weights) = drawn(name, 60, n, torch.bfloat16)
    expected = kernel(x, *weights)
    assert kernel.launch_planes is None, "nothing is built before it is needed"
    for shape in ((3, 20, n), (60, 1, n), (1, 60, n), (1, 1, n)):
        rows = shape[0] * shape[1]
        found = kernel(x[:rows].view(shape), *weights)
        assert found.shape == shape
        assert torch.equal(found.view(rows, n), expected[:rows])
    assert kernel.launch_planes is not None
    assert torch.equal(kernel(x.view(3, 4, 5, n), *weights).view(60, n), expected), "of three axes by way of a view"
    assert kernel(x.view(60, n)[:0].view(0, 3, n), *weights).shape == (0, 3, n)


def test_a_row_whose_axes_of_one_have_strides_of_their_own_is_taken() -> None:
    kernel = built("layer_norm", "held", 768, torch.bfloat16)
    _, (x, *weights) = drawn("layer_norm", 4, 1536, torch.bfloat16)
    one, weights = x[:1, :768], [weight[:768].contiguous() for weight in weights]
    assert torch.equal(kernel(one.unsqueeze(0), *weights)[0], kernel(one.clone(), *weights))


def test_nothing_is_built_while_a_graph_is_captured() -> None:
    kernel = built("layer_norm", "held", 776, torch.bfloat16)
    _, (x, *weights) = drawn("layer_norm", 60, 776, torch.bfloat16)
    expected = kernel(x, *weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = kernel(x.view(3, 20, 776), *weights)
    assert kernel.launch_planes is None
    graph.replay()
    assert torch.equal(found.view(60, 776), expected)
