"""LayerNormFwdOp on CPU tensors, through the reference, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.reference
from tileops.ops import LayerNormFwdOp, filled
from tileops.ops.inputs import InputError


@pytest.fixture(autouse=True)
def reference(no_backends: Any) -> None:
    tileops.reference.install()


def expected(x: torch.Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> torch.Tensor:
    weight, bias = (None if t is None else t.double() for t in (weight, bias))
    return torch.nn.functional.layer_norm(x.double(), shape, weight, bias, eps)


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_rounded(result: torch.Tensor, exact: torch.Tensor) -> None:
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(result.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 7, 8, 255, 256, 257, 769])
def test_it_normalizes_the_axes_of_the_weight(n: int, dtype: torch.dtype) -> None:
    x, weight, bias = (tensor(*s, dtype=dtype, seed=i) for i, s in enumerate([(3, 5, n), (n,), (n,)]))
    result = LayerNormFwdOp()(x, weight, bias)
    assert (result.dtype, result.shape, result.is_contiguous()) == (dtype, x.shape, True)
    assert_rounded(result, expected(x, (n,), weight, bias))


def test_a_weight_of_two_axes_normalizes_two_axes() -> None:
    x, weight, bias = tensor(4, 3, 5), tensor(3, 5, seed=1), tensor(3, 5, seed=2)
    assert_rounded(LayerNormFwdOp()(x, weight, bias), expected(x, (3, 5), weight, bias))


@pytest.mark.parametrize("shape", [5, (5,), [3, 5], torch.Size([3, 5])])
def test_what_is_left_out_is_ones_and_zeros(shape: Any) -> None:
    x = tensor(4, 3, 5)
    op = LayerNormFwdOp(shape)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    bias = tensor(*sizes, seed=2)
    assert_rounded(op(x), expected(x, sizes))
    assert_rounded(op(x, bias=bias), expected(x, sizes, bias=bias))
    assert_rounded(op(x, tensor(*sizes)), expected(x, sizes, tensor(*sizes)))


def test_epsilon_is_the_ops() -> None:
    x = tensor(4, 8) * 1e-3
    assert_rounded(LayerNormFwdOp(8, eps=0.5)(x), expected(x, (8,), eps=0.5))
    assert_rounded(LayerNormFwdOp(8)(x), expected(x, (8,)))


@pytest.mark.parametrize(
    "view",
    [
        lambda: tensor(8, 6).t(),
        lambda: tensor(6, 16)[:, ::2],
        lambda: tensor(49)[1:].view(6, 8),
        lambda: tensor(6, 1).expand(6, 8),
    ],
    ids=["transposed", "strided", "offset", "expanded"],
)
def test_views_give_the_right_answer_and_stay_as_they_are(view: Any) -> None:
    x = view()
    before = x.clone()
    weight = tensor(16)[::2]
    assert_rounded(LayerNormFwdOp()(x, weight), expected(x, (8,), weight))
    assert torch.equal(x, before)


def test_a_kernel_gets_contiguous_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts: list[bool] = []

    def forward(self: Any, *tensors: torch.Tensor) -> torch.Tensor:
        layouts.extend(each.is_contiguous() for each in tensors)
        return tensors[0]

    op = LayerNormFwdOp()
    monkeypatch.setattr(tileops.reference.LayerNormReferenceKernel, "forward", forward)
    op(tensor(8, 6).t(), tensor(16)[::2], tensor(16, seed=1)[::2])
    assert layouts == [True, True, True]


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (4, 0), (0,)])
def test_an_empty_input_gives_an_empty_result_and_chooses_nothing(shape: tuple[int, ...]) -> None:
    op = LayerNormFwdOp(shape[-1])
    result = op(tensor(*shape, dtype=torch.bfloat16))
    assert (result.shape, result.dtype, result.device.type) == (shape, torch.bfloat16, "cpu")
    assert op.cache_info().misses == 0


def test_an_empty_input_needs_no_backend(no_backends: Any) -> None:
    from tileops.backend import registry

    registry.restore({})
    assert LayerNormFwdOp(8)(tensor(0, 8)).shape == (0, 8)
    with pytest.raises(RuntimeError, match="in-tree kernels do not run on cpu"):
        LayerNormFwdOp(8)(tensor(1, 8))


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (
            (tensor(2, 8), tensor(7)),
            r"x has shape \(2, 8\), which does not end in the normalized shape \(7,\)",
        ),
        ((tensor(8), tensor(2, 8)), "does not end in the normalized shape"),
        (
            (tensor(2, 8), tensor(8), tensor(1, 8)),
            r"bias has shape \(1, 8\), not the normalized shape \(8,\)",
        ),
        ((tensor(2, 8), tensor(8, dtype=torch.float16)), r"weight is torch.float16 and x is torch.float32"),
        ((tensor(2, 8), tensor(8), tensor(8).to("meta")), "bias is on meta and x on cpu"),
        ((tensor(2, 8), tensor(1)[0]), "weight has no axis"),
        ((tensor(2, 8),), "weight is None and so is normalized_shape"),
    ],
)
def test_tensors_that_do_not_go_together_are_named_with_their_values(arguments: Any, fragment: str) -> None:
    with pytest.raises(InputError, match=fragment) as error:
        LayerNormFwdOp()(*arguments)
    assert isinstance(error.value, ValueError)
    assert error.value.argument in ("x", "weight", "bias")


def test_a_weight_of_another_shape_than_the_ops_is_refused() -> None:
    with pytest.raises(InputError, match="weight has shape"):
        LayerNormFwdOp(8)(tensor(2, 8), tensor(2, 8))


@pytest.mark.parametrize("arguments", [([1.0],), (tensor(2, 8), [1.0]), (tensor(2, 8), tensor(8), 0.0)])
def test_what_is_no_tensor_is_a_type_error(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"pass a torch\.Tensor"):
        LayerNormFwdOp(8)(*arguments)


def test_a_dtype_without_kernels_is_refused() -> None:
    with pytest.raises(InputError, match=r"LayerNormFwdOp: x is torch\.float64: convert it to one of torch\.float32, "):
        LayerNormFwdOp(8)(tensor(2, 8, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(), [], (-1,), -3])
def test_a_normalized_shape_has_axes(shape: Any) -> None:
    with pytest.raises(ValueError, match="normalized_shape"):
        LayerNormFwdOp(shape)


@pytest.mark.parametrize("eps", [-1e-5, float("nan"), float("inf")])
def test_epsilon_is_finite_and_not_negative(eps: float) -> None:
    with pytest.raises(ValueError, match="eps"):
        LayerNormFwdOp(8, eps=eps)


def test_ones_and_zeros_are_made_once_and_bounded() -> None:
    filled._tensors.clear()
    LayerNormFwdOp(8)(tensor(2, 8))
    first = dict(filled._tensors)
    LayerNormFwdOp(8)(tensor(3, 8))
    assert len(first) == 2
    assert {key: id(value) for key, value in filled._tensors.items()} == {k: id(v) for k, v in first.items()}
    free = LayerNormFwdOp()
    for n in range(1, 100):
        free(tensor(2, n), tensor(n))
    assert len(filled._tensors) == filled.MOST_FILLED


def test_ones_made_in_inference_mode_serve_outside_it() -> None:
    filled._tensors.clear()
    with torch.inference_mode():
        LayerNormFwdOp(8)(tensor(2, 8))
    assert len(filled._tensors) == 2
    assert not any(each.is_inference() for each in filled._tensors.values())


def test_one_kernel_serves_any_number_of_rows() -> None:
    op = LayerNormFwdOp(8)
    for rows in range(1, 20):
        op(tensor(rows, 8))
    assert op.cache_info().builds == 1


def test_an_op_can_be_deep_copied() -> None:
    import copy

    op = LayerNormFwdOp(8, eps=0.5)
    x = tensor(2, 8)
    assert torch.equal(copy.deepcopy(op)(x), op(x))


def test_sizes_may_be_any_integers_and_leave_nothing_behind() -> None:
    import numpy

    for shape in (numpy.int64(24), (numpy.int64(24),), [numpy.int32(24)]):
        assert LayerNormFwdOp(shape)(tensor(2, 24)).shape == (2, 24)
    assert LayerNormFwdOp(24)(tensor(2, 24)).shape == (2, 24)
    wrongs: list[Any] = ["24", (24.0,), 24.0]
    for wrong in wrongs:
        with pytest.raises(TypeError, match=r"LayerNormFwdOp: normalized_shape is .*: pass an integer"):
            LayerNormFwdOp(wrong)
