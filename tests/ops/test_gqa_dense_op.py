"""GQADenseFwdOp on CPU tensors, through the reference, against attention written out in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops.reference
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.ops import GQADenseFwdOp
from tileops.ops.inputs import InputError


@pytest.fixture(autouse=True)
def reference(no_backends: Any) -> None:
    tileops.reference.install()


def tensor(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def qkv(
    batch: int = 2,
    seq_q: int = 1,
    seq_kv: int = 33,
    heads: int = 8,
    heads_kv: int = 2,
    dim: int = 64,
    **kind: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = tensor(batch, seq_q, heads, dim, seed=1, **kind)
    k, v = (tensor(batch, seq_kv, heads_kv, dim, seed=s, **kind) for s in (2, 3))
    return q, k, v


def expected(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    is_causal: bool = False,
    sm_scale: float | None = None,
    softcap: float = 0.0,
) -> torch.Tensor:
    """One query and one head at a time."""
    batch, seq_q, heads, dim = q.shape
    seq_kv, heads_kv = k.shape[1], k.shape[2]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            kv = h // (heads // heads_kv)
            for i in range(seq_q):
                last = seq_kv - seq_q + i + 1 if is_causal else seq_kv
                if last <= 0:
                    continue
                scores = (k[b, :last, kv].double() @ q[b, i, h].double()) * (sm_scale or 1 / math.sqrt(dim))
                if softcap:
                    scores = softcap * torch.tanh(scores / softcap)
                out[b, i, h] = torch.softmax(scores, 0) @ v[b, :last, kv].double()
    return out


def assert_rounded(result: torch.Tensor, exact: torch.Tensor) -> None:
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(result.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("seq_kv", [1, 2, 33])
@pytest.mark.parametrize(("heads", "heads_kv"), [(1, 1), (8, 2), (5, 5), (7, 1)])
def test_decode_matches_float64(dtype: torch.dtype, seq_kv: int, heads: int, heads_kv: int) -> None:
    q, k, v = qkv(seq_kv=seq_kv, heads=heads, heads_kv=heads_kv, dtype=dtype)
    result = GQADenseFwdOp()(q, k, v)
    assert (result.dtype, result.shape, result.is_contiguous()) == (dtype, q.shape, True)
    assert_rounded(result, expected(q, k, v))


@pytest.mark.parametrize(
    "options",
    [{"is_causal": True}, {"sm_scale": 0.3}, {"softcap": 5.0}, {"is_causal": True, "softcap": 2.0}],
    ids=str,
)
@pytest.mark.parametrize("seq_q", [1, 3])
def test_every_option_is_what_it_says(options: Any, seq_q: int) -> None:
    q, k, v = qkv(seq_q=seq_q)
    assert_rounded(GQADenseFwdOp(**options)(q, k, v), expected(q, k, v, **options))


@pytest.mark.parametrize("heads_kv", [1, 2, 8])
def test_many_queries_give_a_contiguous_result(heads_kv: int) -> None:
    assert GQADenseFwdOp(is_causal=True)(*qkv(batch=1, seq_q=5, heads=8, heads_kv=heads_kv)).is_contiguous()


def test_two_ops_with_other_options_do_not_share_kernels() -> None:
    q, k, v = qkv(seq_q=3)
    for options in ({}, {"is_causal": True}, {}):
        assert_rounded(GQADenseFwdOp(**options)(q, k, v), expected(q, k, v, **options))


def test_a_window_hides_the_keys_before_it() -> None:
    q, k, v = qkv(seq_kv=9)
    result = GQADenseFwdOp(window_size_left=3)(q, k, v)
    assert_rounded(result, expected(q, k[:, 5:], v[:, 5:]))


def test_views_give_the_right_answer_and_stay_as_they_are() -> None:
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in qkv(seq_q=2))
    both = torch.stack([k, v], dim=3)
    k, v = both[..., 0, :], both[..., 1, :]
    assert not any(t.is_contiguous() for t in (q, k, v))
    before = both.clone()
    assert_rounded(GQADenseFwdOp()(q, k, v), expected(q, k, v))
    assert torch.equal(both, before)


def test_a_kernel_gets_tensors_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []

    def forward(self: Any, *arguments: Any) -> torch.Tensor:
        got.extend(arguments)
        first: torch.Tensor = arguments[0]
        return first

    op = GQADenseFwdOp()
    monkeypatch.setattr(tileops.reference.GQADenseReferenceKernel, "forward", forward)
    given = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in qkv(seq_q=2)]
    op(*given)
    assert [each is tensor for each, tensor in zip(got, given, strict=False)] == [True, True, True]
    assert got[3:] == [None, None]


FP8 = torch.float8_e4m3fn


def scales(*heads: int, batch: int | None = 2) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.rand((each,) if batch is None else (batch, each), generator=draw) + 0.5 for each in heads]


@pytest.mark.parametrize("out_dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("seq_q", [1, 3])
def test_float8_stands_for_what_its_scales_say(out_dtype: torch.dtype, batch: int | None, seq_q: int) -> None:
    q, k, v = qkv(seq_q=seq_q, dtype=FP8)
    given = scales(8, 2, 2, batch=batch)
    result = GQADenseFwdOp(is_causal=True, out_dtype=out_dtype)(q, k, v, *given)
    meant = [
        each.double() * scale.expand(2, each.shape[2]).double()[:, None, :, None]
        for each, scale in zip((q, k, v), given, strict=True)
    ]
    assert result.dtype == out_dtype
    assert_rounded(result, expected(*meant, is_causal=True))  # type: ignore[arg-type]


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, first: int, interleaved: bool) -> torch.Tensor:
    """Rotation written out, a pair at a time."""
    out, half = x.double().clone(), cos.shape[1]
    for i in range(x.shape[1]):
        for pair in range(half):
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
            c, s = cos[first + i, pair].double(), sin[first + i, pair].double()
            out[:, i, :, a] = x[:, i, :, a].double() * c - x[:, i, :, b].double() * s
            out[:, i, :, b] = x[:, i, :, b].double() * c + x[:, i, :, a].double() * s
    return out.to(x.dtype)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [64, 24, 2])
@pytest.mark.parametrize("seq_q", [1, 3])
def test_heads_are_rotated_at_their_positions(interleaved: bool, rotary_dim: int, seq_q: int) -> None:
    q, k, v = qkv(seq_q=seq_q, seq_kv=9)
    angles = torch.rand(12, rotary_dim // 2, generator=torch.Generator().manual_seed(3)) * 6
    cos, sin = angles.cos(), angles.sin()
    op = GQADenseFwdOp(rotary_dim=rotary_dim, rope_interleaved=interleaved)
    by_hand = turned(q, cos, sin, 9 - seq_q, interleaved), turned(k, cos, sin, 0, interleaved)
    assert_rounded(op(q, k, v, cos=cos, sin=sin), expected(*by_hand, v))


@pytest.mark.parametrize(
    ("options", "given", "fragment"),
    [
        (
            {},
            {"q_scale": torch.ones(8)},
            "q_scale is given and q is torch.float16: only torch.float8_e4m3fn has scales",
        ),
        ({}, {"v_scale": torch.ones(2)}, "v_scale is given and q is torch.float16"),
        ({}, {"cos": torch.ones(33, 8)}, "cos is given and rotary_dim is 0"),
        ({"rotary_dim": 16}, {"cos": torch.ones(33, 8), "sin": torch.ones(33, 9)}, r"sin has shape \(33, 9\): pass"),
        ({"rotary_dim": 16}, {"cos": torch.ones(32, 8), "sin": torch.ones(33, 8)}, r"cos .* pass \(33 or more, 8\)"),
        ({"rotary_dim": 16}, {"cos": torch.ones(40, 8), "sin": torch.ones(33, 8)}, "they have one shape"),
        ({"rotary_dim": 16}, {"cos": torch.ones(33, 8).half(), "sin": torch.ones(33, 8)}, "cos is torch.float16: pass"),
    ],
)
def test_what_a_call_does_not_take_is_named(options: Any, given: Any, fragment: str) -> None:
    with pytest.raises(InputError, match=fragment):
        GQADenseFwdOp(**options)(*qkv(), **given)


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({}, "q_scale is None and q is torch.float8_e4m3fn: float8 needs q_scale, k_scale and v_scale"),
        ({"q_scale": torch.ones(8), "k_scale": torch.ones(2)}, "v_scale is None"),
        ({"q_scale": torch.ones(8).double()}, "q_scale is torch.float64: pass torch.float32"),
        ({"q_scale": torch.ones(2, 8).double()}, "q_scale is torch.float64: pass torch.float32"),
        ({"q_scale": torch.ones(2, 8, device="meta")}, "q_scale is on meta and q on cpu"),
        ({"q_scale": torch.ones(2)}, r"q_scale has shape \(2,\): pass \(8,\) or \(2, 8\)"),
        ({"q_scale": torch.ones(1, 8)}, r"q_scale has shape \(1, 8\): pass \(8,\) or \(2, 8\)"),
        ({"q_scale": torch.ones(8, device="meta")}, "q_scale is on meta and q on cpu"),
    ],
)
def test_float8_asks_for_scales_that_fit(given: Any, fragment: str) -> None:
    with pytest.raises((InputError, TypeError), match=fragment):
        GQADenseFwdOp()(*qkv(dtype=FP8), **given)


def test_what_is_no_tensor_is_shown_in_short() -> None:
    with pytest.raises(TypeError, match=r"q is \[0, 1, 2, 3, 4, 5, \.\.\.\], a list: pass a torch\.Tensor$"):
        GQADenseFwdOp()(list(range(10_000)), *qkv()[1:])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cos is \\[1\\], a list: pass"):
        GQADenseFwdOp()(*qkv(), cos=[1])  # type: ignore[arg-type]


def test_a_rotated_op_asks_for_its_angles() -> None:
    with pytest.raises(InputError, match="cos is None and rotary_dim is 8: a rotation needs cos and sin"):
        GQADenseFwdOp(rotary_dim=8)(*qkv())
    with pytest.raises(InputError, match="sin is None"):
        GQADenseFwdOp(rotary_dim=8)(*qkv(), cos=torch.ones(64, 4))


def test_the_call_has_the_sizes_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    op = GQADenseFwdOp(is_causal=True, sm_scale=0.5, softcap=3.0, window_size_left=7, window_size_right=6)

    def kernel_along(interface: str, facts: Any, extent: int, call_of: Any) -> Any:
        calls.append(call_of())
        assert extent == 33
        return lambda q, *more: q

    monkeypatch.setitem(op.__dict__, "kernel_along", kernel_along)
    op(*qkv(batch=2, seq_q=3, seq_kv=33, heads=8, heads_kv=4, dim=16))
    assert calls == [
        AttentionCall(
            batch=2,
            heads=8,
            heads_kv=4,
            dim=16,
            max_seqlen_q=3,
            seqlen_kv=33,
            dtype=torch.float16,
            is_causal=True,
            sm_scale=0.5,
            softcap=3.0,
            window_size_left=7,
            window_size_right=6,
            device=torch.device("cpu"),
        )
    ]


@pytest.mark.parametrize(
    "laid_out",
    [lambda t: t, lambda t: t.t().contiguous().t(), lambda t: t.repeat_interleave(2, dim=1)[:, ::2], lambda t: t[:1]],
    ids=["rows", "columns", "every second", "one row for all"],
)
def test_scales_reach_a_kernel_as_rows_of_neighbours(laid_out: Callable[[torch.Tensor], torch.Tensor]) -> None:
    q, k = (torch.zeros(2, 1, heads, 16).to(torch.float8_e4m3fn) for heads in (8, 2))
    wanted = [scale[:1].expand(2, -1) if laid_out(scale).shape[0] == 1 else scale for scale in scales(8, 2, 2)]
    given = tuple(laid_out(scale)[0] if laid_out(scale).shape[0] == 1 else laid_out(scale) for scale in scales(8, 2, 2))
    found = GQADenseFwdOp()._scales(q, k, given)
    assert found is not None
    for scale, want in zip(found, wanted, strict=True):
        assert scale.shape == want.shape
        assert scale.stride(1) == 1
        assert torch.equal(scale, want)


@pytest.mark.parametrize(
    "sizes",
    [
        {"batch": 0},
        {"seq_q": 0},
        {"dim": 0},
        {"heads": 0},
        {"heads": 0, "heads_kv": 0},
        {"batch": 0, "seq_kv": 0},
    ],
    ids=str,
)
def test_an_empty_result_comes_at_once_and_chooses_nothing(sizes: Any) -> None:
    op = GQADenseFwdOp()
    q, k, v = qkv(**sizes)
    result = op(q, k, v)
    assert (result.shape, result.dtype) == (q.shape, q.dtype)
    assert op.cache_info().misses == 0


def test_queries_over_no_keys_are_an_ordinary_call() -> None:
    op = GQADenseFwdOp()
    q, k, v = qkv(seq_kv=0)
    assert torch.equal(op(q, k, v), torch.zeros_like(q))
    assert op.cache_info().misses == 1


def test_more_causal_queries_than_keys_leave_the_first_ones_zero() -> None:
    q, k, v = qkv(seq_q=5, seq_kv=3)
    result = GQADenseFwdOp(is_causal=True)(q, k, v)
    assert_rounded(result, expected(q, k, v, is_causal=True))
    assert not result[:, :2].any()


def swapped(**changes: Any) -> tuple[Any, Any, Any]:
    tensors = dict(zip("qkv", qkv(), strict=True))
    tensors.update({name: change(tensors[name]) for name, change in changes.items()})
    return tensors["q"], tensors["k"], tensors["v"]


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"q": lambda t: t[0]}, r"q has shape \(1, 8, 64\): pass \(batch, seq, heads, dim\)"),
        ({"k": lambda t: t[None]}, "k has shape"),
        ({"v": lambda t: t.bfloat16()}, "v is torch.bfloat16 and q is torch.float16"),
        ({"k": lambda t: t.to("meta")}, "k is on meta and q on cpu"),
        ({"v": lambda t: t[:, :-1]}, "keys and values have one shape"),
        ({"k": lambda t: t[:1], "v": lambda t: t[:1]}, "they differ in batch or dim"),
        ({"q": lambda t: t[..., :32]}, "they differ in batch or dim"),
        (
            {"q": lambda t: t[:, :, :7]},
            r"k has shape .*, both \(batch, seq, heads, dim\): 7 heads of q are no multiple of 2 of k",
        ),
        ({"k": lambda t: t[:, :, :0], "v": lambda t: t[:, :, :0]}, "8 heads of q are no multiple of 0 of k"),
    ],
)
def test_tensors_that_do_not_go_together_are_named_with_their_values(changes: Any, fragment: str) -> None:
    with pytest.raises(InputError, match=fragment) as error:
        GQADenseFwdOp()(*swapped(**changes))
    assert error.value.op == "GQADenseFwdOp"


def test_what_is_no_tensor_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"k is None: pass a torch\.Tensor"):
        GQADenseFwdOp()(*swapped(k=lambda t: None))


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"softcap": -1.0}, "softcap"),
        ({"softcap": float("inf")}, "softcap"),
        ({"sm_scale": float("nan")}, "sm_scale"),
        ({"window_size_left": -2}, "window_size_left"),
        ({"rotary_dim": 7}, "rotary_dim 7 is not an even number"),
        ({"rotary_dim": -2}, "rotary_dim -2"),
        ({"rope_interleaved": True}, "rope_interleaved is set and rotary_dim is 0"),
        ({"out_dtype": torch.float32}, "out_dtype torch.float32 is not torch.float16 or torch.bfloat16"),
    ],
)
def test_options_that_no_call_may_have_are_refused_at_construction(options: Any, fragment: str) -> None:
    with pytest.raises(ValueError, match=fragment):
        GQADenseFwdOp(**options)


@pytest.mark.parametrize("parameter", ["window_size_left", "window_size_right", "rotary_dim"])
@pytest.mark.parametrize("value", [1.0, 8.5, None, "8", True, torch.tensor(True), torch.ones(2)])
def test_a_size_is_an_integer(parameter: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"GQADenseFwdOp: {parameter} is .*, a \w+: pass an int"):
        GQADenseFwdOp(**{parameter: value})


def test_a_size_of_another_integer_type_is_kept_as_an_int() -> None:
    op = GQADenseFwdOp(window_size_left=torch.tensor(5))  # type: ignore[arg-type]
    assert type(op.window_size_left) is int
    assert op.window_size_left == 5


@pytest.mark.parametrize("parameter", ["is_causal", "rope_interleaved"])
@pytest.mark.parametrize("value", ["no", None, 1, torch.ones(2)])
def test_a_switch_is_true_or_false(parameter: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"GQADenseFwdOp: {parameter} is .*, not True or False"):
        GQADenseFwdOp(**{parameter: value})


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("sm_scale", "0.5"), ("softcap", None), ("sm_scale", [1.0]), ("softcap", True), ("softcap", 10**5000)],
    ids=["text", "None", "list", "bool", "long"],
)
def test_a_factor_is_a_number(parameter: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"GQADenseFwdOp: {parameter} is .*: pass a float"):
        GQADenseFwdOp(**{parameter: value})


@pytest.mark.parametrize("window", [2**31, 2**63, 2**70])
def test_a_window_of_any_size_past_the_keys_hides_nothing(window: int) -> None:
    given = qkv(seq_q=3)
    for side in ("window_size_left", "window_size_right"):
        assert torch.equal(GQADenseFwdOp(**{side: window})(*given), GQADenseFwdOp()(*given))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.float8_e5m2])
def test_a_query_of_another_dtype_is_refused_with_those_that_are_taken(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=f"q is {dtype}: convert q, k and v to one of .*float8_e4m3fn") as error:
        GQADenseFwdOp()(*(tensor.to(dtype) for tensor in qkv()))
    assert error.value.found is dtype


def test_without_a_backend_a_cpu_call_says_what_to_do(no_backends: Any) -> None:
    from tileops.backend import registry

    registry.restore({})
    with pytest.raises(RuntimeError, match=r"in-tree kernels do not run on cpu.*tileops.reference.install\(\)"):
        GQADenseFwdOp()(*qkv())
