"""The ops that normalize rows on CPU tensors, through their references, against torch in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import tileops.reference
from tests.ops.row_norms import (
    ADA_LAYER_NORM,
    ADA_LAYER_NORM_ZERO,
    FUSED_ADD_LAYER_NORM,
    MODULATED,
    RMS_NORM,
    ROW_NORMS,
    SUMS,
    WEIGHTED,
    RowNormCase,
    assert_rounded,
    listed,
    tensor,
)
from tileops.kernels.norm.call_spec import FEW_ROWS, LayerNormCall
from tileops.ops import FusedAddRMSNormFwdOp, RMSNormFwdOp, filled
from tileops.ops.inputs import InputError
from tileops.ops.norm import rows
from tileops.ops.norm.rows import RMS_EPS, row_call

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EPS = 1e-3

every = pytest.mark.parametrize("case", ROW_NORMS, ids=str)
weighted = pytest.mark.parametrize("case", WEIGHTED, ids=str)
summed = pytest.mark.parametrize("case", SUMS, ids=str)
modulated = pytest.mark.parametrize("case", MODULATED, ids=str)


@pytest.fixture(autouse=True)
def reference(no_backends: Any) -> None:
    tileops.reference.install()


@every
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 8, 257, 769, 3000])
def test_it_is_torchs_over_the_last_axis(case: RowNormCase, n: int, dtype: torch.dtype) -> None:
    tensors = case.tensors(3, 2, n, dtype=dtype)
    found = case.made(eps=EPS)(*tensors)
    assert [(t.dtype, t.shape, t.is_contiguous()) for t in listed(found)] == [(dtype, (3, 2, n), True)] * (
        1 + case.is_sum
    )
    assert_rounded(found, case.expected((n,), EPS, *tensors))


@every
@pytest.mark.parametrize("shape", [(3, 5), [3, 5], torch.Size([3, 5])], ids=["tuple", "list", "size"])
def test_a_shape_of_two_axes_normalizes_two_axes(case: RowNormCase, shape: Any) -> None:
    tensors = case.tensors(4, 3, 5, axes=2)
    assert_rounded(case.made(normalized_shape=shape, eps=EPS)(*tensors), case.expected((3, 5), EPS, *tensors))


@weighted
def test_without_a_shape_the_axes_are_those_of_the_weight(case: RowNormCase) -> None:
    tensors = case.tensors(4, 3, 5, axes=2)
    assert_rounded(case.made(eps=EPS)(*tensors), case.expected((3, 5), EPS, *tensors))


@modulated
def test_a_shape_of_one_size_is_that_of_the_last_axis(case: RowNormCase) -> None:
    tensors = case.tensors(4, 3, 5)
    assert_rounded(case.made(normalized_shape=5, eps=EPS)(*tensors), case.expected((5,), EPS, *tensors))


@weighted
@pytest.mark.parametrize("given", [0, 1])
def test_weights_that_are_left_out_are_ones_and_zeros(case: RowNormCase, given: int) -> None:
    tensors = case.tensors(4, 3, 5)[: len(case.of_input) + given]
    op = case.made(normalized_shape=5, eps=EPS)
    assert_rounded(op(*tensors), case.expected((5,), EPS, *tensors))
    nones = [None] * (len(case.arguments) - len(tensors))
    assert_rounded(op(*tensors, *nones), case.expected((5,), EPS, *tensors, *nones))


@pytest.mark.parametrize("case", [case for case in WEIGHTED if "bias" in case.of_row], ids=str)
def test_a_bias_may_come_without_a_weight(case: RowNormCase) -> None:
    *tensors, _, bias = case.tensors(4, 3, 5)
    op = case.made(normalized_shape=5, eps=EPS)
    assert_rounded(op(*tensors, bias=bias), case.expected((5,), EPS, *tensors, None, bias))


@weighted
def test_ones_and_zeros_are_made_once(case: RowNormCase) -> None:
    filled._tensors.clear()
    op = case.made(normalized_shape=8)
    kept: list[list[int]] = []
    for count in (2, 3):
        op(*case.tensors(count, 8)[: len(case.of_input)])
        kept.append([id(each) for each in filled._tensors.values()])
    assert kept[0] == kept[1]
    assert len(kept[0]) == len(case.of_row)


@every
def test_arguments_may_be_named(case: RowNormCase) -> None:
    tensors = case.tensors(4, 8)
    op = case.made(eps=EPS)
    named = dict(reversed(list(zip(case.arguments, tensors, strict=True))))
    for found, expected in zip(listed(op(**named)), listed(op(*tensors)), strict=True):
        assert torch.equal(found, expected)


@every
def test_epsilon_is_the_ops(case: RowNormCase) -> None:
    tensors = [each * 1e-3 for each in case.tensors(4, 8)]
    for eps in (0.5, 1e-12):
        assert_rounded(case.made(eps=eps)(*tensors), case.expected((8,), eps, *tensors))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_epsilon_of_none_is_torchs(dtype: torch.dtype) -> None:
    x = (tensor(4, 8) * 1e-4).to(dtype)
    exact = functional.rms_norm(x.double(), (8,), eps=RMS_EPS)
    torchs = functional.rms_norm(x, (8,)).double()
    torch.testing.assert_close(torchs, exact, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert_rounded(RMSNormFwdOp(8)(x), (exact,))
    assert_rounded(FusedAddRMSNormFwdOp(8)(x, torch.zeros_like(x)), (exact, x))
    assert RMSNormFwdOp(8, eps=None).eps == RMSNormFwdOp(8).eps == FusedAddRMSNormFwdOp().eps == RMS_EPS


@every
def test_the_epsilon_of_the_others_is_that_of_torchs_layer_norm(case: RowNormCase) -> None:
    if "rms" not in case.interface:
        assert case.made().eps == torch.nn.LayerNorm(1).eps


@every
def test_a_large_mean_beside_a_small_deviation_keeps_its_digits(case: RowNormCase) -> None:
    tensors = list(case.tensors(4, 768))
    tensors[0] = 1e4 + 1e-2 * tensors[0]
    assert_rounded(case.made(eps=1e-5)(*tensors), case.expected((768,), 1e-5, *tensors))


@every
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_rows_of_one_element_are_torchs(case: RowNormCase, eps: float) -> None:
    tensors = case.tensors(5, 1)
    tensors[0][3] = 0.0
    assert_rounded(case.made(eps=eps)(*tensors), case.expected((1,), eps, *tensors))


@every
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_flow_as_in_torch(case: RowNormCase, poison: float, dtype: torch.dtype) -> None:
    op = case.made(eps=EPS)
    for argument in range(len(case.arguments)):
        tensors = case.tensors(3, 8, dtype=dtype)
        tensors[argument].view(-1, 8)[-1, 2] = poison
        found, expected = op(*tensors), case.expected((8,), EPS, *tensors)
        assert_rounded(found, expected)
        in_dtype = case.torch((8,), EPS, *_summed(case, tensors))
        assert torch.equal(listed(found)[0].isnan(), in_dtype.isnan()), case.arguments[argument]


def _summed(case: RowNormCase, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (tensors[0] + tensors[1], *tensors[2:]) if case.is_sum else tensors


@summed
def test_what_is_normalized_is_the_sum_as_it_was_rounded(case: RowNormCase) -> None:
    # 1 + 1/512 is 1 in bfloat16, so that the rows of the sum are constant.
    x = torch.ones(4, 8, dtype=torch.bfloat16)
    residual = torch.full_like(x, 2**-9)
    residual[:, 0] = 0.0
    out, total = case.made(normalized_shape=8)(x, residual)
    assert torch.equal(total, x)
    assert (out == out[:, :1]).all()
    assert out.data_ptr() != total.data_ptr()


@summed
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_sum_that_overflows_is_an_infinity(case: RowNormCase, dtype: torch.dtype) -> None:
    x = tensor(2, 8, dtype=dtype)
    x[1, 3] = torch.finfo(dtype).max
    found = case.made(normalized_shape=8, eps=EPS)(x, x)
    assert listed(found)[1][1, 3] == math.inf
    assert_rounded(found, case.expected((8,), EPS, x, x))


@modulated
@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 1, 8)] * 3,
        [(8,), (1,), ()],
        [(2, 3, 8), (1, 3, 1), (3, 8)],
        [(2, 3, 1), (1, 1, 8), (2, 1, 1)],
    ],
    ids=str,
)
def test_what_modulates_is_broadcast_to_the_input(case: RowNormCase, shapes: list[tuple[int, ...]]) -> None:
    x = tensor(2, 3, 8)
    modulation = [tensor(*shape, seed=i + 1) for i, shape in enumerate(shapes)][: len(case.of_input) - 1]
    found = case.made(eps=EPS)(x, *modulation)
    assert_rounded(found, case.expected((8,), EPS, x, *modulation))


def test_a_gate_of_zeros_gives_zeros() -> None:
    x, scale, shift, gate = ADA_LAYER_NORM_ZERO.tensors(4, 8)
    assert torch.equal(ADA_LAYER_NORM_ZERO.made()(x, scale, shift, gate * 0).abs(), torch.zeros(4, 8))


@every
@pytest.mark.parametrize(
    "viewed",
    [
        lambda t: t.t().contiguous().t(),
        lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],
        lambda t: torch.cat([t.reshape(-1)[:1], t.reshape(-1)])[1:].view(t.shape),
        lambda t: t[:1].expand(t.shape) if t.dim() > 1 else t,
    ],
    ids=["transposed", "strided", "offset", "expanded"],
)
def test_views_give_the_right_answer_and_stay_as_they_are(
    case: RowNormCase, viewed: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    views = [viewed(each) for each in case.tensors(6, 8)]
    held = [each.clone() for each in views]
    assert_rounded(case.made(eps=EPS)(*views), case.expected((8,), EPS, *views))
    assert all(map(torch.equal, views, held))


@every
def test_a_kernel_gets_contiguous_tensors_of_full_size(case: RowNormCase, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, int]] = []

    def forward(self: Any, *tensors: torch.Tensor) -> torch.Tensor:
        seen.extend((each.is_contiguous(), each.numel()) for each in tensors)
        return tensors[0]

    monkeypatch.setattr(case.reference, "forward", forward)
    made = [each.repeat_interleave(2, dim=-1)[..., ::2] for each in case.tensors(6, 8)]
    case.made()(*made)
    if case in MODULATED:
        case.made()(made[0], *[each[:1] for each in made[1:]])
    else:
        case.made(normalized_shape=8)(*made[: len(case.of_input)])
    assert seen == [*[(True, 48)] * len(case.of_input), *[(True, 8)] * len(case.of_row)] * 2


@every
def test_results_are_new_tensors_and_nothing_is_written(case: RowNormCase) -> None:
    tensors = case.tensors(4, 8)
    held = [each.clone() for each in tensors]
    places = {each.data_ptr() for each in tensors}
    results = listed(case.made()(*tensors))
    assert all(map(torch.equal, tensors, held))
    assert not places & {each.data_ptr() for each in results}


@summed
def test_the_residual_may_be_the_input_itself(case: RowNormCase) -> None:
    x, *_ = case.tensors(4, 8)
    assert_rounded(case.made(normalized_shape=8, eps=EPS)(x, x), case.expected((8,), EPS, x, x))


@every
@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (4, 0), (0,)])
def test_an_empty_input_gives_empty_results_and_chooses_nothing(case: RowNormCase, shape: tuple[int, ...]) -> None:
    op = case.made(normalized_shape=shape[-1])
    tensors = case.tensors(*shape, dtype=torch.bfloat16)
    found = listed(op(*tensors))
    assert [(t.shape, t.dtype, t.device.type) for t in found] == [(shape, torch.bfloat16, "cpu")] * (1 + case.is_sum)
    assert op.cache_info().misses == 0
    assert len({id(each) for each in found}) == len(found)
    again = listed(op(*tensors[: len(case.of_input)]))
    assert [each.shape for each in again] == [each.shape for each in found]


@every
def test_an_empty_input_is_checked_all_the_same(case: RowNormCase) -> None:
    tensors = [*case.tensors(0, 8)]
    tensors[-1] = tensor(7)
    with pytest.raises(InputError, match=f"{case.arguments[-1]} has shape"):
        case.made(normalized_shape=8)(*tensors)


@every
def test_it_needs_a_backend_for_what_is_not_empty(case: RowNormCase) -> None:
    from tileops.backend import registry

    registry.restore({})
    op = case.made(normalized_shape=8)
    assert listed(op(*case.tensors(0, 8)))[0].shape == (0, 8)
    with pytest.raises(RuntimeError, match="in-tree kernels do not run on cpu"):
        op(*case.tensors(1, 8))


# -------------------------------------------------------------------------------------------------------------- errors


@every
def test_what_is_no_tensor_is_a_type_error_that_names_it(case: RowNormCase) -> None:
    op = case.made(normalized_shape=8)
    for i, argument in enumerate(case.arguments):
        tensors: list[Any] = [*case.tensors(2, 8)]
        for other in ([1.0], 0.5, tensors[i].numpy()):
            tensors[i] = other
            with pytest.raises(TypeError, match=rf"(?s){case.op.__name__}: {argument} is .* pass a torch\.Tensor"):
                op(*tensors)


@every
def test_what_must_be_given_is_no_tensor_when_it_is_none(case: RowNormCase) -> None:
    for i, argument in enumerate(case.of_input):
        tensors: list[Any] = [*case.tensors(2, 8)]
        tensors[i] = None
        with pytest.raises(TypeError, match=f"{argument} is None"):
            case.made(normalized_shape=8)(*tensors)


@every
@pytest.mark.parametrize(
    ("changed", "fragment"),
    [
        (lambda t: t.half(), "is torch.float16 and x is torch.float32"),
        (lambda t: t.to("meta"), "is on meta and x on cpu"),
        (lambda t: t[..., :7], "has shape"),
        (lambda t: t[None], "has shape"),
    ],
    ids=["dtype", "device", "short", "axes"],
)
def test_tensors_that_do_not_go_together_are_named_with_their_values(
    case: RowNormCase, changed: Any, fragment: str
) -> None:
    op = case.made(normalized_shape=8)
    for i, argument in enumerate(case.arguments[1:], 1):
        tensors = list(case.tensors(2, 8))
        tensors[i] = changed(tensors[i])
        with pytest.raises(InputError, match=f"{argument} {fragment}") as error:
            op(*tensors)
        assert (error.value.op, error.value.argument) == (case.op.__name__, argument)
        if fragment == "has shape":
            assert error.value.found == tuple(tensors[i].shape)
            assert error.value.expected == tuple((tensors[0] if argument in case.of_input else tensor(8)).shape)
            assert str(error.value.found) in str(error.value)
            assert str(error.value.expected) in str(error.value)


@every
@pytest.mark.parametrize("shape", [(2, 7), (8, 2), (8, 1), ()], ids=str)
def test_an_input_that_does_not_end_in_the_normalized_shape_is_refused(
    case: RowNormCase, shape: tuple[int, ...]
) -> None:
    others = case.tensors(2, 8)[1:]
    with pytest.raises(InputError, match=r"x has shape .*, which does not end in the normalized shape \(8,\)") as error:
        case.made(normalized_shape=8)(tensor(*shape), *others)
    assert (error.value.found, error.value.expected) == (shape, (8,))


@weighted
def test_without_shape_and_weight_nothing_says_what_to_normalize(case: RowNormCase) -> None:
    inputs = case.tensors(2, 8)[: len(case.of_input)]
    with pytest.raises(InputError, match="weight is None and so is normalized_shape"):
        case.made()(*inputs)
    with pytest.raises(InputError, match="weight has no axis"):
        case.made()(*inputs, tensor(1)[0])


@modulated
def test_a_scalar_has_no_axis_to_normalize(case: RowNormCase) -> None:
    with pytest.raises(InputError, match="x has no axis"):
        case.made()(*[tensor(1)[0] for _ in case.arguments])


@modulated
@pytest.mark.parametrize("shape", [(2, 8), (3, 1, 8), (4, 2, 3, 8), (1, 2, 3, 8), (2, 3, 0)], ids=str)
def test_what_does_not_broadcast_to_the_input_is_refused(case: RowNormCase, shape: tuple[int, ...]) -> None:
    x, *others = case.tensors(2, 3, 8)
    others[-1] = tensor(*shape)
    with pytest.raises(InputError, match=rf"{case.arguments[-1]} has shape .* does not broadcast .* \(2, 3, 8\)"):
        case.made()(x, *others)


@every
def test_a_dtype_without_kernels_is_refused(case: RowNormCase) -> None:
    with pytest.raises(InputError, match=r"x is torch\.float64: convert it to one of torch\.float32, "):
        case.made()(*case.tensors(2, 8, dtype=torch.float64))


@every
@pytest.mark.parametrize("shape", [(), [], (-1,), -3])
def test_a_normalized_shape_has_axes(case: RowNormCase, shape: Any) -> None:
    with pytest.raises(ValueError, match=f"{case.op.__name__}: normalized_shape is"):
        case.made(normalized_shape=shape)


@every
@pytest.mark.parametrize("eps", [-1e-5, math.nan, math.inf])
def test_epsilon_is_finite_and_not_negative(case: RowNormCase, eps: float) -> None:
    with pytest.raises(ValueError, match=f"{case.op.__name__}: eps is"):
        case.made(eps=eps)


# ------------------------------------------------------------------------------------------------------- what is asked


@every
@pytest.mark.parametrize(("count", "few"), [(1, True), (FEW_ROWS, True), (FEW_ROWS + 1, False), (200, False)])
@pytest.mark.parametrize("n", [1, 9])
def test_the_call_tells_row_length_epsilon_dtype_and_whether_rows_are_few(
    case: RowNormCase, n: int, count: int, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    op = case.made(eps=0.25)
    kernel_for = op.kernel_for
    monkeypatch.setattr(type(op), "kernel_for", lambda self, *each: asked.append(each) or kernel_for(*each))
    op(*case.tensors(count, n, dtype=torch.bfloat16))
    assert asked == [(case.interface, LayerNormCall(n, 0.25, torch.bfloat16, few, device=torch.device("cpu")))]


def test_rows_over_two_axes_are_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LayerNormCall] = []
    op = ADA_LAYER_NORM.made(normalized_shape=(3, 5))
    kernel_for = op.kernel_for
    monkeypatch.setattr(type(op), "kernel_for", lambda self, name, call: asked.append(call) or kernel_for(name, call))
    for count in (FEW_ROWS, FEW_ROWS + 1):
        op(*ADA_LAYER_NORM.tensors(count, 3, 5))
    assert [(call.n, call.few_rows) for call in asked] == [(15, True), (15, False)]


@every
def test_one_kernel_serves_any_number_of_rows(case: RowNormCase) -> None:
    op = case.made()
    for count in range(1, 30):
        op(*case.tensors(count, 8))
    info = op.cache_info()
    assert (info.builds, info.misses, info.hits) == (1, 2, 27)


@every
def test_epsilon_that_is_changed_is_seen(case: RowNormCase) -> None:
    op = case.made(eps=EPS)
    tensors = case.tensors(4, 8)
    op(*tensors)
    op.eps = 0.5
    assert_rounded(op(*tensors), case.expected((8,), 0.5, *tensors))


def test_a_call_spec_is_made_once_and_no_more_than_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    row_call.cache_clear()
    op = RMS_NORM.made()
    for count in (1, 2, 17, 18):
        op(*RMS_NORM.tensors(count, 8))
    assert (row_call.cache_info().misses, row_call.cache_info().hits) == (2, 2)
    device = torch.device("cpu")
    for n in range(2 * rows.MOST_CALLS):
        row_call(n, 0.0, torch.float32, False, device)
    assert row_call.cache_info().currsize == rows.MOST_CALLS
    facts = [(8, 0.5, torch.float16, True), (9, 0.5, torch.float16, True), (8, 0.25, torch.float16, True)]
    facts += [(8, 0.5, torch.bfloat16, True), (8, 0.5, torch.float16, False)]
    assert [row_call(*each, device) for each in facts] == [LayerNormCall(*each, device=device) for each in facts]


@every
def test_an_op_can_be_deep_copied(case: RowNormCase) -> None:
    op = case.made(normalized_shape=8, eps=0.5)
    tensors = case.tensors(2, 8)
    for found, expected in zip(listed(copy.deepcopy(op)(*tensors)), listed(op(*tensors)), strict=True):
        assert torch.equal(found, expected)


@every
def test_parameters_with_gradients_are_taken_and_none_is_recorded(case: RowNormCase) -> None:
    tensors = [torch.nn.Parameter(each) for each in case.tensors(4, 8)]
    with torch.no_grad():
        expected = case.expected((8,), EPS, *tensors)
        assert_rounded(case.made(eps=EPS)(*tensors), expected)


def test_fused_results_unpack_and_chain() -> None:
    op = FUSED_ADD_LAYER_NORM.made(normalized_shape=8)
    hidden, residual = tensor(4, 8), tensor(4, 8, seed=1)
    for _ in range(3):
        hidden, residual = op(hidden, residual)
    assert hidden.shape == residual.shape == (4, 8)
