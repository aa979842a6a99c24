"""The proof at construction and its three modes."""

from __future__ import annotations

import random
import subprocess
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tileops.ops.op_base import NotProvedError, UnorderedOverlapError

MODES = ("warn", "strict", "off")


def overlapping(toys: Any, **members: Any) -> dict[str, Any]:
    return {
        "low": toys.kernel("Low", serves=lambda c: c.n < 10, **members),
        "high": toys.kernel("High", serves=lambda c: c.n > 5),
    }


def random_rule(call: Any) -> bool:
    return random.random() < 0.5


@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_an_unordered_overlap_fails_at_construction_with_the_smallest_call(
    toys: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("TILEOPS_PROOF", mode)
    op = toys.op(overlapping(toys))
    with pytest.raises(UnorderedOverlapError, match=r"both serve .*neither is preferred") as error:
        op()
    found = error.value
    assert isinstance(found, ValueError)
    assert set(found.keys) == {"low", "high"}
    assert type(found.witness) is toys.Call
    assert (found.witness.n, found.witness.m) == (6, 0)
    assert len(found.findings) == 1
    assert len(found.places) == 2
    text = str(found)
    assert all(place in text for place in found.places)
    assert all("conftest.py:" in place for place in found.places)
    assert 'preferred_over = frozenset({"high"})' in text
    assert "n=6" in text


def test_the_witness_is_served_by_both_of_the_original_methods(toys: Any) -> None:
    kernels = overlapping(toys)
    with pytest.raises(UnorderedOverlapError) as error:
        toys.op(kernels)()
    for key in error.value.keys:
        assert kernels[key].refusal(error.value.witness) is None


def test_the_edit_that_the_message_names_makes_it_construct(toys: Any) -> None:
    op = toys.op(overlapping(toys, preferred_over=frozenset({"high"})))()
    assert op.key_for("toy", toys.Call(n=7, arch=90)) == "low"


def test_a_preference_through_a_third_counts(toys: Any) -> None:
    kernels = {
        "one": toys.kernel("One", preferred_over=frozenset({"two"})),
        "two": toys.kernel("Two", preferred_over=frozenset({"three"})),
        "three": toys.kernel("Three"),
    }
    assert toys.op(kernels)().key_for("toy", toys.Call(arch=90)) == "one"


def test_the_edge_is_needed_even_where_a_third_always_settles_it(toys: Any) -> None:
    kernels = overlapping(toys)
    kernels["top"] = toys.kernel("Top", preferred_over=frozenset({"low", "high"}))
    with pytest.raises(UnorderedOverlapError, match="top") as error:
        toys.op(kernels)()
    assert set(error.value.keys) == {"low", "high"}


def test_every_overlapping_pair_of_every_interface_is_reported(toys: Any) -> None:
    from tileops.kernels.kernel_base import Kernel

    other = {
        key: toys.kernel(key, bases=(Kernel, toys.OtherInterface), forward=lambda self, x, scale: x)
        for key in ("left", "right")
    }
    kernels = {**overlapping(toys), "third": toys.kernel("Third", serves=lambda c: c.n == 7), **other}
    interfaces = {"toy": toys.Interface, "other": toys.OtherInterface}
    with pytest.raises(UnorderedOverlapError) as error:
        toys.op(kernels, interfaces)()
    pairs = {frozenset(finding.keys) for finding in error.value.findings}
    assert pairs == {
        frozenset(pair) for pair in (("low", "high"), ("low", "third"), ("high", "third"), ("left", "right"))
    }
    assert all(finding.message in str(error.value) for finding in error.value.findings)


def test_implementations_that_never_run_on_one_device_are_disjoint(toys: Any) -> None:
    kernels = {
        "hopper": toys.kernel("Hopper", supported_archs=[90]),
        "ampere": toys.kernel("Ampere", supported_archs=[80, 86]),
        "cpu": toys.kernel("Cpu", devices=frozenset({"cpu"})),
    }
    op = toys.op(kernels)()
    assert [op.key_for("toy", toys.Call(arch=arch)) for arch in (80, 86, 90)] == [
        "ampere",
        "ampere",
        "hopper",
    ]


def test_a_general_implementation_overlaps_with_nothing(toys: Any) -> None:
    kernels = {"all": toys.kernel("All", general=True), "some": toys.kernel("Some", serves=lambda c: c.n > 3)}
    op = toys.op(kernels)()
    assert op.key_for("toy", toys.Call(n=4, arch=90)) == "some"
    assert op.key_for("toy", toys.Call(n=3, arch=90)) == "all"


def test_what_the_call_spec_rules_out_is_no_overlap(toys: Any) -> None:
    kernels = {
        "one": toys.kernel("One", serves=lambda c: c.n == 13),
        "two": toys.kernel("Two", serves=lambda c: c.m == 13),
    }
    toys.op(kernels)()


class TestNotProved:
    def test_warn_says_so_once_and_leaves_it_to_the_call(self, toys: Any) -> None:
        kernels = {"odd": toys.kernel("Odd", serves=random_rule), "any": toys.kernel("Any")}
        op = toys.op(kernels)
        with pytest.warns(RuntimeWarning, match="not proved") as caught:
            made = op()
        assert len(caught) == 1
        assert "odd" in str(caught[0].message)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            op()
        answers = set()
        for _ in range(64):
            try:
                answers.add(made.key_for("toy", toys.Call(arch=90)))
            except ValueError as error:
                answers.add("ambiguous" if "dispatch is ambiguous" in str(error) else str(error))
        assert answers == {"any", "ambiguous"}

    def test_strict_makes_it_an_error_every_time(self, toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILEOPS_PROOF", "strict")
        op = toys.op({"odd": toys.kernel("Odd", serves=random_rule), "any": toys.kernel("Any")})
        for _ in range(2):
            with pytest.raises(NotProvedError, match="not proved") as error:
                op()
            assert isinstance(error.value, ValueError)
            assert any("odd" in line for line in error.value.open_points)

    def test_a_rule_that_is_not_lifted_is_told_even_where_it_stands_alone(self, toys: Any) -> None:
        with pytest.warns(RuntimeWarning, match="the rule of odd was not lifted"):
            toys.op({"odd": toys.kernel("Odd", serves=random_rule)})()

    def test_off_asks_nothing(self, toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILEOPS_PROOF", "off")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            toys.op({"odd": toys.kernel("Odd", serves=random_rule), "any": toys.kernel("Any")})()
            toys.op(overlapping(toys))()


class TestMode:
    def test_it_is_read_at_each_construction(self, toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        op = toys.op(overlapping(toys))
        monkeypatch.setenv("TILEOPS_PROOF", "off")
        op()
        monkeypatch.setenv("TILEOPS_PROOF", "warn")
        with pytest.raises(UnorderedOverlapError):
            op()
        monkeypatch.setenv("TILEOPS_PROOF", "off")
        op()

    @pytest.mark.parametrize("value", ["", "on", "STRICT", "1"])
    def test_another_value_names_the_three(self, toys: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("TILEOPS_PROOF", value)
        with pytest.raises(ValueError, match="TILEOPS_PROOF") as error:
            toys.op({"one": toys.kernel()})()
        assert all(mode in str(error.value) for mode in MODES)

    @pytest.mark.parametrize("mode", MODES)
    def test_the_checks_of_the_table_hold_in_every_mode(
        self, toys: Any, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        monkeypatch.setenv("TILEOPS_PROOF", mode)
        with pytest.raises(ValueError, match="more than one general"):
            toys.op({"one": toys.kernel("One", general=True), "two": toys.kernel("Two", general=True)})()


def test_the_order_of_registration_decides_nothing(toys: Any) -> None:
    kernels = {
        "all": toys.kernel("All", general=True),
        "low": toys.kernel("Low", serves=lambda c: c.n < 10, preferred_over=frozenset({"even"})),
        "even": toys.kernel("Even", serves=lambda c: c.n % 2 == 0),
        "huge": toys.kernel("Huge", serves=lambda c: c.n >= 1000, preferred_over=frozenset({"even"})),
    }
    draw = random.Random(7)
    expected = None
    for _ in range(6):
        items = list(kernels.items())
        draw.shuffle(items)
        op = toys.op(dict(items))()
        keys = [op.key_for("toy", toys.Call(n=n, arch=90)) for n in (0, 1, 9, 10, 11, 998, 999, 1000, 1001)]
        expected = expected or keys
        assert keys == expected
    assert expected == ["low", "low", "low", "even", "all", "even", "all", "huge", "huge"]


def test_a_changed_preference_is_proved_anew(toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = overlapping(toys, preferred_over=frozenset({"high"}))
    op = toys.op(kernels)
    op()
    monkeypatch.setattr(kernels["low"], "preferred_over", frozenset())
    with pytest.raises(UnorderedOverlapError):
        op()
    monkeypatch.setattr(kernels["low"], "preferred_over", frozenset({"high"}))
    op()


def test_the_solver_is_not_imported_where_no_pair_needs_a_proof(
    fresh_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = (
        "import sys\n"
        "from tileops.ops import GQADenseFwdOp, LayerNormFwdOp\n"
        "GQADenseFwdOp(), LayerNormFwdOp()\n"
        "sys.stdout.write(str({'z3', 'networkx', 'tilelang', 'tileops_solver.engine'} & set(sys.modules)))\n"
    )
    done = fresh_python("-W", "error::RuntimeWarning", "-c", code)
    assert (done.stdout, done.returncode) == ("set()", 0), done.stderr
