"""TILEOPS_GENERAL: a call that falls to the general implementation is allowed, warned of once, or an error."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import tileops.reference
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.kernel_base import Kernel
from tileops.ops import GQADenseFwdOp, LayerNormFwdOp, general
from tileops.ops.general import FellToGeneral, FellToGeneralWarning
from tileops.ops.op_base import Op


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "_told", {})


@pytest.fixture
def warned() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def below(limit: int, **members: Any) -> dict[str, Any]:
    """Members of a kernel that serves n below *limit*, with the number in its reason."""

    def refusal(cls: Any, call: Any) -> str | None:
        return None if call.n < limit else f"n {call.n} is not below {limit}"

    return {"refusal": classmethod(refusal), **members}


def fitted(toys: Any, **more: Any) -> type[Op]:
    """An op with one specialised kernel on SM90, for n below 8, and a general one."""
    kernels = {
        "small": toys.kernel("Small", **below(8, supported_archs=[90])),
        "rest": toys.kernel("Rest", general=True),
        **more,
    }
    made: type[Op] = toys.op(kernels)
    return made


def mode(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TILEOPS_GENERAL", value)


def test_by_default_nothing_is_said(toys: Any, two_devices: Any, warned: Any) -> None:
    op = fitted(toys)()
    assert op.when_general == "allow"
    op.kernel_for("toy", toys.Call(n=9, device=two_devices[0]))
    assert warned == []


def test_warn_says_which_call_and_why_once_for_a_reason(
    toys: Any, two_devices: Any, warned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode(monkeypatch, "warn")
    op = fitted(toys)()
    for n in (3, 9, 9, 10, 500):
        op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
    fitted(toys)().kernel_for("toy", toys.Call(n=77, device=two_devices[0]))
    (only,) = warned
    assert issubclass(only.category, FellToGeneralWarning)
    assert issubclass(only.category, RuntimeWarning)
    assert only.filename == __file__
    text = str(only.message)
    assert text.startswith("ToyFwdOp.toy: ToyCall(device=device(type='cuda', index=0), arch=90")
    assert "n=9) fell to the general implementation rest:\n  small: refuses: n 9 is not below 8\n" in text
    assert "TILEOPS_GENERAL=allow" in text


def test_other_reasons_another_interface_and_another_op_are_told_apart(
    toys: Any, two_devices: Any, warned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode(monkeypatch, "warn")
    device = two_devices[0]
    both = toys.op(
        {
            "small": toys.kernel("Small", **below(8)),
            "smaller": toys.kernel("Smaller", **below(8, preferred_over=frozenset({"small"}))),
            "rest": toys.kernel("Rest", general=True),
        },
        {"toy": toys.Interface, "again": toys.Interface},
        name="OtherFwdOp",
    )()
    fitted(toys)().kernel_for("toy", toys.Call(n=9, device=device))
    both.kernel_for("toy", toys.Call(n=9, device=device))
    both.kernel_for("again", toys.Call(n=9, device=device))
    assert len(warned) == 3
    both.kernel_for("again", toys.Call(n=10, device=device))
    assert len(warned) == 3


def test_error_raises_each_time_and_builds_nothing(
    toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode(monkeypatch, "error")
    op = fitted(toys)()
    call = toys.Call(n=9, device=two_devices[0])
    for _ in range(2):
        with pytest.raises(FellToGeneral, match="small: refuses: n 9 is not below 8") as error:
            op.kernel_for("toy", call)
    assert isinstance(error.value, ValueError)
    assert (error.value.op, error.value.interface, error.value.call) == ("ToyFwdOp", "toy", call)
    assert [entry.key for entry in error.value.explanation.near_misses] == ["small"]
    assert (toys.built, op.cache_info().calls) == ([], 0)
    assert op.kernel_for("toy", toys.Call(n=3, device=two_devices[0])) is not None
    assert op.key_for("toy", call) == "rest"
    assert op.kernel_for("toy", call, key="rest") is not None


def test_where_no_specialised_one_can_run_nothing_is_said(
    toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode(monkeypatch, "error")
    op = fitted(toys)()
    kernel = op.kernel_for("toy", toys.Call(n=9, device=two_devices[1]))
    assert type(kernel).__name__ == "Rest"
    alone = toys.op({"rest": toys.kernel("Rest", general=True)})()
    alone.kernel_for("toy", toys.Call(n=9, device=two_devices[0]))


def test_a_hit_asks_nothing(toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mode(monkeypatch, "warn")
    op = fitted(toys)()
    call = toys.Call(n=9, device=two_devices[0])
    with pytest.warns(FellToGeneralWarning):
        kernel = op.kernel_for("toy", call)

    def unexpected(*_: Any, **__: Any) -> None:
        raise AssertionError("a hit came this far")

    monkeypatch.setattr(general, "fallen", unexpected)
    assert op.kernel_for("toy", call) is kernel
    with pytest.raises(AssertionError, match="came this far"):
        op.kernel_for("toy", toys.Call(n=10, device=two_devices[0]))


@pytest.mark.parametrize("served", ["allow", "specialised"])
def test_a_miss_that_falls_to_no_general_one_explains_nothing(
    toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch, served: str
) -> None:
    mode(monkeypatch, "allow" if served == "allow" else "error")
    op = fitted(toys)()
    monkeypatch.setattr(general, "fallen", None)
    op.kernel_for("toy", toys.Call(n=9 if served == "allow" else 3, device=two_devices[0]))


def test_the_mode_is_read_at_construction(toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mode(monkeypatch, "error")
    kind = fitted(toys)
    strict = kind()
    mode(monkeypatch, "allow")
    loose = kind()
    call = toys.Call(n=9, device=two_devices[0])
    loose.kernel_for("toy", call)
    with pytest.raises(FellToGeneral):
        strict.kernel_for("toy", call)


def test_one_op_can_be_set_by_itself_and_its_calls_are_looked_at_anew(toys: Any, two_devices: Any) -> None:
    kind = fitted(toys)
    op, other = kind(), kind()
    call = toys.Call(n=9, device=two_devices[0])
    op.kernel_for("toy", call)
    op.request_tune()
    op.when_general = "error"
    with pytest.raises(FellToGeneral):
        op.kernel_for("toy", call)
    other.kernel_for("toy", call)
    op.when_general = "allow"
    toys.tuned.clear()
    assert toys.tuned == [op.kernel_for("toy", call)]


@pytest.mark.parametrize("value", ["Warn", "strict", "0"])
def test_another_value_names_the_three(toys: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    op = fitted(toys)()
    with pytest.raises(ValueError, match=r"ToyFwdOp\.when_general is .*allow .*warn .*error"):
        op.when_general = value  # type: ignore[assignment]
    assert op.when_general == "allow"
    mode(monkeypatch, value)
    with pytest.raises(ValueError, match=r"TILEOPS_GENERAL is .*allow .*warn .*error"):
        fitted(toys)()


def test_a_copy_takes_the_mode_over() -> None:
    op = LayerNormFwdOp(8)
    op.when_general = "error"
    for duplicate in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert duplicate.when_general == "error"
        assert duplicate.eps == op.eps


def test_a_rule_that_is_not_lifted_is_told_once_all_the_same(toys: Any, two_devices: Any, warned: Any) -> None:
    def refusal(cls: Any, call: Any) -> str | None:
        return None if str(call.n).startswith("7") else f"n {call.n} does not start with 7"

    kinds = {"odd": toys.kernel("Odd", refusal=classmethod(refusal)), "rest": toys.kernel("Rest", general=True)}
    op = toys.op(kinds)()
    assert "not proved" in str(warned.pop().message)
    op.when_general = "warn"
    for n in (8, 9, 10, 123):
        op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
    (only,) = warned
    assert "n 8 does not start with 7" in str(only.message)


def test_what_was_told_is_bounded(toys: Any, two_devices: Any, warned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mode(monkeypatch, "warn")
    monkeypatch.setattr(general, "MOST_TOLD", 4)
    for limit in range(3, 12):
        op = toys.op({"s": toys.kernel("S", **below(limit)), "rest": toys.kernel("Rest", general=True)}, name="AnOp")()
        op.kernel_for("toy", toys.Call(n=20, device=two_devices[0]))
        assert len(general._told) <= 4
    assert len(warned) == 9


def test_threads_that_fall_at_once_are_told_once(
    toys: Any, two_devices: Any, warned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode(monkeypatch, "warn")
    op = fitted(toys)()
    calls = [toys.Call(n=n, device=two_devices[0]) for n in range(8, 40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda call: op.kernel_for("toy", call), calls))
    assert len(warned) == 1


def test_attention_with_two_sequences_misses_the_kernel_for_one_by_one_clause(
    two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GQADecodeKernel, "__init__", lambda self, build: None)
    op = GQADenseFwdOp()
    op.when_general = "error"
    sizes = {"heads": 32, "heads_kv": 4, "dim": 128, "seqlen_kv": 4096}
    with pytest.raises(FellToGeneral) as error:
        op.kernel_for("gqa_dense", AttentionCall(batch=2, **sizes, device=two_devices[0]))
    near = [
        "gqa_dense_decode_bs1",
        "gqa_dense_decode_long_context",
        "gqa_dense_decode_sliding_window",
        "gqa_dense_fp8_decode",
    ]
    assert [entry.key for entry in error.value.explanation.near_misses if "decode" in entry.key] == near
    op.kernel_for("gqa_dense", AttentionCall(batch=1, **sizes, device=two_devices[0]))
    said = str(op.explain("gqa_dense", AttentionCall(batch=2, **sizes, arch=90)))
    assert all(key in said.partition("one reason away: ")[2] for key in near)


def test_tensors_that_fall_to_it_say_so_from_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(tileops.reference.LayerNormReferenceKernel):
        @classmethod
        def refusal(cls, call: Any) -> str | None:
            return super().refusal(call) if call.n <= 8 else f"n {call.n} is above 8"

    tileops.reference.install()
    from tileops.backend import register_kernel_type

    register_kernel_type("LayerNormFwdOp", "short", Short)
    monkeypatch.setattr(LayerNormFwdOp, "kernel_types", {})  # its general kernel makes way for this one
    monkeypatch.setattr(tileops.reference.LayerNormReferenceKernel, "general", True)
    monkeypatch.setattr(Short, "general", False)
    mode(monkeypatch, "warn")
    op = LayerNormFwdOp()
    with pytest.warns(FellToGeneralWarning, match="short: refuses: n 9 is above 8") as caught:
        op(torch.ones(2, 9), torch.ones(9))
    assert caught[0].filename == __file__
    assert isinstance(op.kernel_for("layer_norm", _norm(8)), Kernel)


def _norm(n: int) -> Any:
    from tileops.kernels.norm.call_spec import LayerNormCall

    return LayerNormCall(n=n, dtype=torch.float32, device=torch.device("cpu"))
