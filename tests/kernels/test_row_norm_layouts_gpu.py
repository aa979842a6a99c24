"""Row normalization on a GPU of tensors that lie unusually, through the kernels and through the ops."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from tests.kernels.row_support import DTYPES, ROW_NORMS, WAYS, built, check, drawn, listed, row_call, same
from tests.kernels.support import DEVICE
from tileops import ops
from tileops.kernels.device_facts import device_facts
from tileops.kernels.norm.row_launches import SHORT_ROW

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("way", WAYS)
def test_any_shape_whose_trailing_axes_are_the_row_is_taken(way: str) -> None:
    n = 12288 if way == "cut" else 24
    kernel = built("layer_norm", way, n, torch.float16)
    norm, (x, weight, bias) = drawn("layer_norm", 6, n, torch.float16)
    out = kernel(x.view(2, 3, 4, n // 4), weight.view(4, n // 4), bias.view(4, n // 4))
    assert out.shape == (2, 3, 4, n // 4)
    check(norm, n, out.view(6, n), (x, weight, bias))
    assert kernel(x[:0], weight, bias).shape == (0, n)


@pytest.mark.parametrize(("name", "way"), list(itertools.product(ROW_NORMS, WAYS)))
def test_tensors_that_start_inside_their_storage_are_read_where_they_start(name: str, way: str) -> None:
    n = {"short": 256, "cut": 16384}.get(way, 768)
    kernel = built(name, way, n, torch.float16)
    norm, tensors = drawn(name, 5, n, torch.float16)
    expected = kernel(*tensors)
    check(norm, n, expected, tensors)
    for offset in (1, 3, 8):
        moved = []
        for tensor in tensors:
            storage = torch.full((tensor.numel() + offset,), float("nan"), dtype=tensor.dtype, device=DEVICE)
            storage[offset:] = tensor.reshape(-1)
            moved.append(storage[offset:].view(tensor.shape))
        assert same(kernel(*moved), expected)


@pytest.mark.parametrize("way", ["tiled", "short", "held"])
def test_a_column_and_a_row_that_are_contiguous_by_their_sizes_alone_are_taken(way: str) -> None:
    kernel = built("layer_norm", way, 1, torch.float32)
    column = torch.randn(1, 6, device=DEVICE).t()
    weight, bias = torch.ones(1, device=DEVICE), torch.full((1,), 2.0, device=DEVICE)
    assert column.is_contiguous()
    assert torch.equal(kernel(column, weight, bias), torch.full((6, 1), 2.0, device=DEVICE))
    norm, tensors = drawn("layer_norm", 1, 8, torch.float32)
    wide = torch.randn(1, 11, device=DEVICE)
    wide[:, :8] = tensors[0]
    check(norm, 8, built("layer_norm", way, 8, torch.float32)(wide[:, :8], *tensors[1:]), tensors)


@pytest.mark.parametrize("way", ["tiled", "held", "cut"])
def test_more_elements_than_32_bits_count_are_normalized_to_the_last(way: str) -> None:
    n = 16384
    rows = 2**31 // n + 5
    kernel = built("layer_norm", way, n, torch.float16)
    norm, (x, weight, bias) = drawn("layer_norm", 4, n, torch.float16)
    big = torch.zeros(rows, n, dtype=torch.float16, device=DEVICE)
    big[-4:] = x
    out = kernel(big, weight, bias)
    check(norm, n, out[-4:], (x, weight, bias))
    assert torch.equal(out[:2], bias.expand(2, n))


def test_more_short_rows_than_32_bits_count_elements_are_normalized_to_the_last() -> None:
    n = SHORT_ROW
    kernel = built("layer_norm", "short", n, torch.float16)
    norm, (x, weight, bias) = drawn("layer_norm", 4, n, torch.float16)
    big = torch.zeros(2**31 // n + 5, n, dtype=torch.float16, device=DEVICE)
    big[-4:] = x
    out = kernel(big, weight, bias)
    check(norm, n, out[-4:], (x, weight, bias))
    assert torch.equal(out[:2], bias.expand(2, n))


def layouts(tensor: torch.Tensor, n: int) -> list[torch.Tensor]:
    """The same values in other layouts: rows with a gap, rows off by an element, columns first, with more axes."""
    rows = tensor.numel() // n
    tensor = tensor.view(rows, n)
    gaps = torch.full((rows, n + 3), float("nan"), dtype=tensor.dtype, device=DEVICE)
    gaps[:, :n] = tensor
    off = torch.full((rows * n + 1,), float("nan"), dtype=tensor.dtype, device=DEVICE)
    off[1:] = tensor.reshape(-1)
    return [gaps[:, :n], off[1:].view(rows, n), tensor.t().contiguous().t(), tensor.view(2, rows // 2, n)]


@pytest.mark.parametrize("n", [1, 257, 4096, 12289, 65537, 300_000])
@pytest.mark.parametrize("name", ROW_NORMS)
def test_an_op_takes_inputs_of_any_layout(name: str, n: int) -> None:
    dtype = DTYPES[n % 3]
    op = getattr(ops, f"{ROW_NORMS[name].title}FwdOp")(n, eps=row_call(n, dtype).eps)
    norm, tensors = drawn(name, 6, n, dtype)
    for i in range(4):
        asked = [layouts(tensor, n)[i] for tensor in tensors[: norm.of_input]]
        found = op(*asked, *tensors[norm.of_input :])
        assert all(each.is_contiguous() for each in listed(found))
        check(norm, n, tuple(each.view(6, n) for each in listed(found)), tensors)
    assert op.cache_info().builds == 1, "one kernel for all layouts"


@pytest.mark.parametrize("name", ROW_NORMS)
def test_an_op_takes_the_way_of_its_length_and_of_few_rows(name: str) -> None:
    if device_facts(DEVICE).arch != 90:
        pytest.skip("not all ways run on this GPU")
    op = getattr(ops, f"{ROW_NORMS[name].title}FwdOp")()
    keys = {(256, True): "_short_rows", (256, False): "_short_rows", (4096, True): "_held_rows"}
    keys |= {(12289, True): "_cut_rows", (12289, False): "_held_rows", (65537, False): "_cut_rows", (300_000, True): ""}
    for (n, few_rows), key in keys.items():
        call = dataclasses.replace(row_call(n, torch.float16, few_rows=few_rows), device=DEVICE)
        assert op.key_for(name, call) == f"{name}{key}"
