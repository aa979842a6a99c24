"""The references of row normalization against loops written out by hand, in Python's own floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.reference import (
    REFERENCES,
    AdaLayerNormReferenceKernel,
    AdaLayerNormZeroReferenceKernel,
    FusedAddLayerNormReferenceKernel,
    FusedAddRMSNormReferenceKernel,
    LayerNormReferenceKernel,
    RMSNormReferenceKernel,
)
from tileops.reference.norm import (
    RowNormReferenceKernel,
    ada_layer_norm,
    ada_layer_norm_zero,
    fused_add_layer_norm,
    fused_add_rms_norm,
    layer_norm,
    rms_norm,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
Row = Sequence[float]


def standardized(row: Row, eps: float) -> list[float]:
    mean = math.fsum(row) / len(row)
    variance = math.fsum((each - mean) ** 2 for each in row) / len(row)
    return [(each - mean) / math.sqrt(variance + eps) for each in row]


def scaled(row: Row, eps: float) -> list[float]:
    root = math.sqrt(math.fsum(each * each for each in row) / len(row) + eps)
    return [each / root for each in row]


# Of a row: its epsilon, then what stands in that row, or in every row, of each tensor after the input.
BY_HAND: dict[Any, Callable[..., list[float]]] = {
    layer_norm: lambda x, eps, w, b: [v * s + t for v, s, t in zip(standardized(x, eps), w, b, strict=True)],
    rms_norm: lambda x, eps, w: [v * s for v, s in zip(scaled(x, eps), w, strict=True)],
    ada_layer_norm: lambda x, eps, a, b: [v * (1 + s) + t for v, s, t in zip(standardized(x, eps), a, b, strict=True)],
    ada_layer_norm_zero: lambda x, eps, a, b, g: [
        (v * (1 + s) + t) * u for v, s, t, u in zip(standardized(x, eps), a, b, g, strict=True)
    ],
}
OF_ROW = {layer_norm: 2, rms_norm: 1, ada_layer_norm: 0, ada_layer_norm_zero: 0}
OF_INPUT = {layer_norm: 1, rms_norm: 1, ada_layer_norm: 3, ada_layer_norm_zero: 4}
KERNELS: dict[Any, Any] = {
    layer_norm: LayerNormReferenceKernel,
    rms_norm: RMSNormReferenceKernel,
    fused_add_layer_norm: FusedAddLayerNormReferenceKernel,
    fused_add_rms_norm: FusedAddRMSNormReferenceKernel,
    ada_layer_norm: AdaLayerNormReferenceKernel,
    ada_layer_norm_zero: AdaLayerNormZeroReferenceKernel,
}
FUSED: dict[Any, Any] = {fused_add_layer_norm: layer_norm, fused_add_rms_norm: rms_norm}

named = {"ids": lambda each: each.__name__}
plain = pytest.mark.parametrize("function", BY_HAND, **named)
fused = pytest.mark.parametrize("function", FUSED, **named)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tensors_for(function: Any, rows: int, n: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    shapes = [(rows, n)] * OF_INPUT[function] + [(n,)] * OF_ROW[function]
    return [draw(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


def by_hand(function: Any, eps: float, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    x, *others = (each.double() for each in tensors)
    of_rows = [each.expand(x.shape) for each in others]
    rows = [BY_HAND[function](row.tolist(), eps, *(each[i].tolist() for each in of_rows)) for i, row in enumerate(x)]
    return torch.tensor(rows, dtype=torch.float64).reshape(x.shape)


def kernel(function: Any, call: LayerNormCall) -> Any:
    found = KERNELS[function]
    assert found.refusal(call) is None
    return found.entry_for(call)[1]()


@plain
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 257])
@pytest.mark.parametrize("eps", [0.25, 1e-5])
def test_it_is_what_the_loop_gives(function: Any, n: int, dtype: torch.dtype, eps: float) -> None:
    tensors = tensors_for(function, 4, n, dtype)
    expected = by_hand(function, eps, tensors)
    exact = function(*tensors, n, eps)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, expected, rtol=1e-12, atol=1e-12)
    out = kernel(function, LayerNormCall(n=n, eps=eps, dtype=dtype))(*tensors)
    assert (out.dtype, out.shape) == (dtype, tensors[0].shape)
    assert torch.equal(out, exact.to(dtype))


@fused
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_is_rounded_before_it_is_normalized(function: Any, dtype: torch.dtype) -> None:
    inner = FUSED[function]
    x, *weights = tensors_for(inner, 4, 33, dtype)
    residual = draw(4, 33, dtype=dtype, seed=9) * 1e-3
    # The nearest of the dtype to the exact sum, found without adding in it.
    total = (x.double() + residual.double()).to(dtype)
    exact, found = function(x, residual, *weights, 33, 1e-5)
    assert torch.equal(found, total)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, by_hand(inner, 1e-5, [total, *weights]), rtol=1e-12, atol=1e-12)
    if dtype != torch.float32:
        unrounded = inner((x.double() + residual.double()), *weights, 33, 1e-5)
        assert not torch.allclose(exact, unrounded, rtol=1e-6, atol=0), "the inputs tell the two apart"
    out, again = kernel(function, LayerNormCall(n=33, dtype=dtype))(x, residual, *weights)
    assert torch.equal(again, total)
    assert torch.equal(out, exact.to(dtype))
    assert len({each.data_ptr() for each in (x, residual, out, again)}) == 4


@plain
def test_rows_may_lie_over_several_axes(function: Any) -> None:
    tensors = tensors_for(function, 6, 20)
    shaped = [each.view(2, 3, 4, 5) if each.dim() == 2 else each.view(4, 5) for each in tensors]
    found = function(*shaped, 20, 1e-5)
    assert found.shape == (2, 3, 4, 5)
    assert torch.equal(found.view(6, 20), function(*tensors, 20, 1e-5))


@plain
@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (0, 0)])
def test_of_nothing_is_nothing(function: Any, shape: tuple[int, int]) -> None:
    assert function(*tensors_for(function, *shape), shape[1], 1e-5).shape == shape


@fused
@pytest.mark.parametrize("shape", [(3, 0), (0, 4)])
def test_of_nothing_and_nothing_are_two(function: Any, shape: tuple[int, int]) -> None:
    x, *weights = tensors_for(FUSED[function], *shape)
    assert [each.shape for each in function(x, x, *weights, shape[1], 1e-5)] == [shape, shape]


@plain
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_bad_element_spoils_its_row_alone(function: Any, poison: float) -> None:
    tensors = tensors_for(function, 3, 8)
    tensors[0][1, 2] = poison
    found = function(*tensors, 8, 1e-5)
    assert not found[[0, 2]].isnan().any()
    if function is rms_norm and math.isinf(poison):
        assert found[1].isnan().tolist() == [False, False, True, *[False] * 5]
        assert found[1].nan_to_num().eq(0).all()
        signs = torch.signbit(tensors[0][1]) ^ torch.signbit(tensors[1])
        assert torch.equal(torch.signbit(found[1])[3:], signs[3:])
    else:
        assert found[1].isnan().all()


def test_a_large_mean_beside_a_small_deviation_keeps_its_digits() -> None:
    x = (1e4 + 1e-2 * draw(2, 769)).float()
    for function in BY_HAND:
        tensors = [x, *tensors_for(function, 2, 769)[1:]]
        torch.testing.assert_close(
            function(*tensors, 769, 1e-5), by_hand(function, 1e-5, tensors), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("function", KERNELS, **named)
def test_row_length_and_epsilon_are_the_build_and_how_many_rows_is_not(function: Any) -> None:
    def identity(**facts: Any) -> Any:
        return KERNELS[function].entry_for(LayerNormCall(**{"n": 8, "eps": 0.5, **facts}))[0]

    assert identity() == identity(few_rows=True) == identity(dtype=torch.float32)
    assert len({identity(), identity(n=9), identity(eps=0.25)}) == 3


def test_every_row_reference_is_registered_under_the_name_of_its_interface() -> None:
    found = {kernel: (op, key) for op, key, kernel in REFERENCES if issubclass(kernel, RowNormReferenceKernel)}
    expected = {
        kernel: (kernel.__name__.replace("ReferenceKernel", "FwdOp"), f"reference_{function.__name__}")
        for function, kernel in KERNELS.items()
    }
    assert found == expected
