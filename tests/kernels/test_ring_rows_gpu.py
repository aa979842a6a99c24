"""Rows that come through a ring, on a GPU against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.row_support import DTYPES, ROW_NORMS, check, drawn, row_call, same
from tests.kernels.support import DEVICE, build
from tileops.kernels.device_facts import device_facts

pytestmark = pytest.mark.gpu

NAMES = ["layer_norm", "rms_norm"]
LENGTHS = [8, 264, 520, 768, 1000, 1024]
ROWS = [1, 3, 4, 5, 131, 2113, 6337, 8192]
"""Of a last block without a row, of one with fewer than a stage, and of several rounds of the ring."""


def ring(name: str, n: int, dtype: torch.dtype) -> Any:
    kernel = ROW_NORMS[name].ring()
    if device_facts(DEVICE).arch not in kernel.supported_archs:
        pytest.skip(f"{kernel.__name__} does not run on this GPU")
    return build(kernel, row_call(n, dtype, few_rows=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_rows_matches_float64_and_again_to_the_bit(name: str, n: int, dtype: torch.dtype) -> None:
    kernel = ring(name, n, dtype)
    for rows in ROWS:
        norm, tensors = drawn(name, rows, n, dtype)
        found = kernel(*tensors)
        check(norm, n, found, tensors)
        assert torch.equal(kernel(*tensors), found)


@pytest.mark.parametrize("name", NAMES)
def test_a_mean_far_above_the_deviation_costs_no_digits(name: str) -> None:
    norm, tensors = drawn(name, 777, 1024, torch.float32, mean=1e4, std=1e-2)
    check(norm, 1024, ring(name, 1024, torch.float32)(*tensors), tensors)


def test_one_element_far_from_the_rest_costs_the_rest_no_digits() -> None:
    norm, tensors = drawn("layer_norm", 640, 768, torch.float32)
    tensors[0][:, 5] = 1e4
    check(norm, 768, ring("layer_norm", 768, torch.float32)(*tensors), tensors, own=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_stays_in_its_row(name: str, value: float) -> None:
    _, tensors = drawn(name, 700, 768, torch.bfloat16)
    kernel = ring(name, 768, torch.bfloat16)
    clean = kernel(*tensors)
    tensors[0][333, 100] = value
    found = kernel(*tensors)
    other = torch.arange(700, device=DEVICE) != 333
    assert torch.equal(found[other], clean[other])
    function = torch.nn.functional.layer_norm if name == "layer_norm" else torch.nn.functional.rms_norm
    assert same(found[333].isnan(), function(tensors[0], (768,), *tensors[1:], eps=1e-5)[333].isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_read_or_written_past_the_rows(dtype: torch.dtype) -> None:
    n, rows = 520, 1003
    kernel = ring("layer_norm", n, dtype)
    _, (x, weight, bias) = drawn("layer_norm", rows, n, dtype)
    guarded = torch.full((rows + 8, n), float("nan"), dtype=dtype, device=DEVICE)
    guarded[4:-4] = x
    out = torch.full((rows + 8, n), 7.0, dtype=dtype, device=DEVICE)
    kernel.launch(guarded[4:-4], weight, bias, out[4:-4])
    assert torch.equal(out[4:-4], kernel(x, weight, bias))
    assert (out[:4] == 7.0).all()
    assert (out[-4:] == 7.0).all()
