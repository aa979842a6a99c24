"""The nearest served call, asked of the solver on request; and the error of a call that nobody serves."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from tileops_rules import NoImplementation
from tileops_solver import Answer, Verdict

from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.norm.call_spec import MAX_ROW, LayerNormCall
from tileops.ops import GQADenseFwdOp, LayerNormFwdOp
from tileops.ops.nearest import NotServed


def decode(**fields: Any) -> AttentionCall:
    usual = {"heads": 32, "heads_kv": 4, "dim": 128, "seqlen_kv": 4096, "arch": 90}
    return AttentionCall(**{**usual, **fields})


class TestTheError:
    def test_it_holds_the_call_every_clause_of_each_and_the_way_to_the_nearest(self, two_devices: Any) -> None:
        op = GQADenseFwdOp()
        call = decode(dim=72, dtype=torch.float32, max_seqlen_q=2, arch=None, device=two_devices[0])
        with pytest.raises(NotServed, match="no implementation serves this call") as caught:
            op.kernel_for("gqa_dense", call)
        error = caught.value
        assert isinstance(error, NoImplementation)
        assert isinstance(error, ValueError)
        assert (error.op, error.interface, error.call) == ("GQADenseFwdOp", "gqa_dense", call)
        assert error.call.arch == 90
        for entry in error.explanation.entries:
            said = " ".join(entry.reasons)
            assert all(field in said for field in ("dim 72", "dtype torch.float32")), said
            assert ("max_seqlen_q 2" in said) == ("decode" in entry.key), said
            assert all(reason in str(error) for reason in entry.reasons)
        assert str(error).endswith("ask op.nearest('gqa_dense', call), or nearest() of this error")
        assert str(error).startswith("GQADenseFwdOp.gqa_dense: no implementation serves this call: AttentionCall(")

    def test_it_shows_once(self) -> None:
        with pytest.raises(NotServed) as caught:
            LayerNormFwdOp().key_for("layer_norm", LayerNormCall(n=0, arch=90))
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    def test_its_nearest_is_a_call_that_is_served(self) -> None:
        op = LayerNormFwdOp()
        with pytest.raises(NotServed) as caught:
            op.key_for("layer_norm", LayerNormCall(n=MAX_ROW + 7, arch=90))
        answer = caught.value.nearest()
        assert answer.verdict is Verdict.FOUND
        assert op.key_for("layer_norm", answer.call) == "layer_norm"
        assert answer.call.n == MAX_ROW

    def test_a_declared_gap_is_said(self, toys: Any, two_devices: Any) -> None:
        interface = type(
            "GappyFwdInterface",
            (toys.Interface,),
            {"unserved": classmethod(lambda cls, call: f"n {call.n} is odd" if call.n % 2 else None)},
        )
        from tileops.kernels.kernel_base import Kernel

        kernel = toys.kernel("Even", serves=lambda call: call.n % 2 == 0, bases=(Kernel, interface))
        op = toys.op({"even": kernel}, {"toy": interface})()
        with pytest.raises(NotServed, match="n 3 is odd") as caught:
            op.kernel_for("toy", toys.Call(n=3, device=two_devices[0]))
        assert caught.value.declared == "n 3 is odd"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"dim": 72}, {"dim": 80}),
        ({"dim": 72, "batch": 5}, {"dim": 80, "batch": 5}),
        ({"seqlen_kv": 0}, {"seqlen_kv": 0}),
        ({"max_seqlen_q": 3, "dim": 112}, {"max_seqlen_q": 1, "dim": 112}),
        ({"max_seqlen_q": 3, "dim": 300}, {"max_seqlen_q": 3, "dim": 256}),
        ({"dim": 300, "batch": 3}, {"dim": 256, "batch": 3}),
        (
            {"max_seqlen_q": 2, "seqlen_kv": 7, "fuse_rope": True, "rotary_dim": 8},
            {"max_seqlen_q": 1, "seqlen_kv": 7, "fuse_rope": True, "rotary_dim": 8},
        ),
        ({}, {}),
    ],
    ids=str,
)
def test_it_changes_the_fewest_fields_by_the_least(asked: Any, expected: Any) -> None:
    op = GQADenseFwdOp()
    answer = op.nearest("gqa_dense", decode(**asked))
    assert answer.verdict is Verdict.FOUND
    assert answer.call == decode(**expected)
    assert repr(answer.call) == repr(decode(**expected))
    op.key_for("gqa_dense", answer.call)


def test_for_a_device_that_is_here_the_answer_can_be_run(two_devices: Any, toys: Any) -> None:
    kernels = {"small": toys.kernel("Small", serves=lambda c: c.n < 8), "large": toys.kernel("L", supported_archs=[80])}
    kernels["large"].refusal = classmethod(lambda cls, call: None if call.n > 100 else "n is small")
    op = toys.op(kernels)()
    near = op.nearest("toy", toys.Call(n=99, m=5, device=two_devices[0])).call
    assert near == toys.Call(n=7, m=5, device=two_devices[0])
    assert type(op.kernel_for("toy", near)).__name__ == "Small"
    near = op.nearest("toy", toys.Call(n=99, m=5, device=two_devices[1])).call
    assert near == toys.Call(n=101, m=5, device=two_devices[1])
    assert type(op.kernel_for("toy", near)).__name__ == "L"


def test_where_nothing_is_served_there_is_none_with_a_reason(toys: Any) -> None:
    op = toys.op({"never": toys.kernel("Never", serves=lambda call: call.n < 0)})()
    answer = op.nearest("toy", toys.Call(n=3, arch=90))
    assert (answer.verdict, answer.call) == (Verdict.NONE, None)
    assert answer.reason


def test_undecided_is_handed_on(toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    undecided = Answer(Verdict.UNDECIDED, reason="too large")

    def nearest_served(selector: Any, call: Any) -> Answer:
        asked.append((selector, call))
        return undecided

    op = toys.op({"one": toys.kernel("One", serves=lambda call: call.n > 5)})()
    solver = types.ModuleType("tileops_solver")
    solver.nearest_served = nearest_served  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tileops_solver", solver)
    assert op.nearest("toy", toys.Call(n=3, arch=90)) == undecided
    ((selector, call),) = asked
    assert selector.keys == ("one",)
    assert (call.n, call.arch, call.sm_count) == (3, 90, 132)


def test_questions_are_checked_as_those_of_key_for(toys: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    with pytest.raises(TypeError, match="state a device or an arch"):
        op.nearest("toy", toys.Call(n=3))
    with pytest.raises(TypeError, match="takes a ToyCall call spec"):
        op.nearest("toy", LayerNormCall(arch=90))
    with pytest.raises(ValueError, match="has no interface 'other'"):
        op.nearest("other", toys.Call(arch=90))
    with pytest.raises(ValueError, match="n and m are both 13"):
        op.nearest("toy", toys.Call(n=13, m=13, arch=90))


def test_without_the_solver_the_error_is_whole_and_only_the_question_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    op = LayerNormFwdOp()
    monkeypatch.setitem(sys.modules, "tileops_solver", None)
    with pytest.raises(NotServed, match="n 0 is not from 1") as caught:
        op.key_for("layer_norm", LayerNormCall(n=0, arch=90))
    with pytest.raises(ImportError, match="tileops_solver"):
        caught.value.nearest()
