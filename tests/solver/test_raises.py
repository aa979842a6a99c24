"""Calls on which a rule throws: of an implementation, of ``unserved``, of the call spec's ``invalid``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest
from tileops_rules import Candidate, Selector
from tileops_solver import Finding, InconsistencyError, audit
from tileops_solver.checks.raises import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Whole, random_rule, random_selector


def found(selector: Selector, archs: list[int] | None = None) -> list[Finding]:
    result = CHECK.run(Subject(selector, archs=archs))
    assert result.undecided == ()
    return list(result.findings)


def thrown(function: Any, calls: list[Any]) -> dict[str, list[Any]]:
    """The calls on which a function throws, by the type's name."""
    types: dict[str, list[Any]] = {}
    for call in calls:
        try:
            function(call)
        except Exception as error:  # noqa: BLE001 - counted
            types.setdefault(type(error).__name__, []).append(call)
    return types


def expected(whole: Whole) -> dict[tuple[tuple[str, ...], str], Any]:
    facts: dict[tuple[tuple[str, ...], str], Any] = {}
    for candidate in whole.selector.candidates:
        there = [call for call in whole.calls if candidate.cannot_run(call) is None]
        for name, calls in thrown(candidate.refusal, there).items():
            facts[(candidate.key,), name] = whole.smallest(calls)
    if whole.selector.unserved is not None:
        for name, calls in thrown(whole.selector.unserved, whole.calls).items():
            facts[(), f"unserved {name}"] = whole.smallest(calls)
    return facts


def with_unserved(seed: int) -> Selector:
    import random

    chosen = random_selector(seed)
    unserved = random_rule(random.Random(seed), chosen.spec, throws=0.5)
    return Selector(chosen.spec, chosen.candidates, op="Op", interface="job", unserved=unserved)


@pytest.mark.parametrize("seed", range(50))
def test_every_finding_and_every_absence_is_what_a_search_of_all_calls_says(seed: int) -> None:
    selector = with_unserved(seed)
    assert {(f.keys, f.subject): f.witness for f in found(selector)} == expected(Whole(selector))


@pytest.mark.nightly
def test_so_it_is_for_many_rule_sets() -> None:
    for seed in range(2000, 4000):
        selector = with_unserved(seed)
        for archs in (None, [90]):
            said = {(f.keys, f.subject): f.witness for f in found(selector, archs)}
            assert said == expected(Whole(selector, archs)), seed


def test_the_rule_sets_throw_enough() -> None:
    kinds = Counter(name for seed in range(50) for _, name in expected(Whole(with_unserved(seed))))
    assert {"KeyError", "ValueError", "ZeroDivisionError", "unserved KeyError"} <= set(kinds)


DTYPES = Literal["float16", "bfloat16", "float8"]
VECTOR = {"float16": 8, "bfloat16": 8}


@dataclass(frozen=True)
class Call:
    k: int = 16
    heads: int = 1
    heads_kv: int = 0
    dtype: DTYPES = "float16"


def vectors(call: Call) -> str | None:
    return None if call.k % VECTOR[call.dtype] == 0 else "not whole vectors"


def everything(call: Call) -> None:
    return None


def test_a_table_that_lacks_a_dtype_is_named_with_the_call() -> None:
    """A dtype looked up in a table that does not have it is the implementation's defect, by name (report 9)."""
    selector = Selector(Call, [Candidate("vectors", vectors), Candidate("rest", everything)], op="Op", interface="job")
    (finding,) = found(selector)
    assert (finding.kind, finding.keys, finding.subject) == ("raises", ("vectors",), "KeyError")
    assert finding.severity is Severity.ERROR
    assert finding.witness == Call(dtype="float8")
    assert finding.facts == {"exception": "KeyError", "text": "'float8'"}
    assert "refusal of vectors (test_raises.py:" in finding.message
    assert "throws KeyError: 'float8' on Call(" in finding.message
    assert finding.edit == "test for it first, and return a reason where dtype == 'float8'"
    assert finding.places == (f"test_raises.py:{vectors.__code__.co_firstlineno}",)


def test_the_edit_that_is_given_settles_it() -> None:
    def mended(call: Call) -> str | None:
        if call.dtype == "float8":
            return "no vectors of float8"
        return vectors(call)

    assert found(Selector(Call, [Candidate("vectors", mended)])) == []


def two_ways(call: Call) -> str | None:
    if call.k == 3:
        raise ValueError(f"k is {call.k}")
    if call.k == 5:
        raise ValueError("five")
    return None if call.heads // call.heads_kv else "no group"


def test_there_is_one_finding_a_rule_and_type_with_the_smallest_call() -> None:
    findings = found(Selector(Call, [Candidate("two_ways", two_ways)]))
    assert [(f.subject, f.witness) for f in findings] == [
        ("ValueError", Call(k=3)),
        ("ZeroDivisionError", Call()),
    ]
    assert "throws ValueError: k is 3 on" in findings[0].message


@dataclass(frozen=True)
class Grouped:
    heads: int = 1
    heads_kv: int = 1

    def invalid(self) -> str | None:
        return None if self.heads % self.heads_kv == 0 else "no groups"


def by_groups(call: Grouped) -> str | None:
    return None if call.heads // call.heads_kv < 8 else "large"


def test_an_invalid_that_throws_is_found_on_calls_that_no_other_question_sees() -> None:
    (finding,) = found(Selector(Grouped, [Candidate("by_groups", by_groups)], op="Op", interface="job"))
    assert (finding.keys, finding.subject) == ((), "Grouped.invalid ZeroDivisionError")
    assert finding.id == "Op.job:raises:Grouped.invalid ZeroDivisionError"
    assert finding.witness == Grouped(heads_kv=0)
    assert finding.places == (f"test_raises.py:{Grouped.invalid.__code__.co_firstlineno}",)


def test_an_invalid_is_asked_about_calls_that_a_device_can_make() -> None:
    """Off CUDA there is no arch, and on it there is one: no call has an arch of None here."""

    @dataclass(frozen=True)
    class OnCuda:
        device: Optional[str] = None
        arch: Optional[int] = None

        def invalid(self) -> str | None:
            return "too new" if self.arch > 100 else None  # type: ignore[operator]

    assert found(Selector(OnCuda, [Candidate("a", everything)])) == []
    (finding,) = found(Selector(OnCuda, [Candidate("a", everything, devices={"cuda", "cpu"})]))
    assert finding.subject == "OnCuda.invalid TypeError"
    assert finding.witness == OnCuda(device="cpu")
    assert found(Selector(OnCuda, [Candidate("a", everything, devices={"cuda", "cpu"})]), [90]) == []


def test_a_rule_that_throws_on_invalid_calls_alone_is_no_finding() -> None:
    @dataclass(frozen=True)
    class Checked:
        n: int = 1
        m: int = 1

        def invalid(self) -> str | None:
            return None if self.m > 0 else "nothing to divide by"

    def divides(call: Any) -> str | None:
        return None if call.n % call.m == 0 else "no"

    assert found(Selector(Checked, [Candidate("divides", divides)])) == []


@dataclass(frozen=True)
class Placed:
    n: int = 0
    device: Optional[str] = None
    arch: Optional[int] = None


TILES = {80: 64, 90: 128}


def by_arch(call: Placed) -> str | None:
    if call.arch not in TILES:
        raise LookupError("no tile")
    return None


def test_only_devices_on_which_it_can_run_count() -> None:
    assert found(Selector(Placed, [Candidate("by_arch", by_arch, supported_archs=[80, 90])])) == []
    (finding,) = found(Selector(Placed, [Candidate("by_arch", by_arch, supported_archs=[80, 89, 90])]))
    assert finding.witness == Placed(device="cuda", arch=89)


class OurError(Exception):
    """Not a built-in one."""


def ours(call: Call) -> str | None:
    if call.k > 20:
        raise OurError
    return None


def test_an_exception_of_a_package_is_named_with_its_module() -> None:
    (finding,) = found(Selector(Call, [Candidate("ours", ours)]))
    assert finding.subject.endswith("test_raises.OurError")


def by_the_clock(call: Call) -> str | None:
    return None if len(range(call.k)) > 1 else "not now"


def test_rules_that_are_not_lifted_are_undecided() -> None:
    @dataclass(frozen=True)
    class Opaque:
        k: int = 0

        def invalid(self) -> str | None:
            return None if len(range(self.k)) else "nothing"

    chosen = Selector(Opaque, [Candidate("clock", by_the_clock), Candidate("fine", everything)], unserved=by_the_clock)
    result = CHECK.run(Subject(chosen))
    assert result.findings == ()
    assert [(point.keys, point.subject) for point in result.undecided] == [
        (("clock",), ""),
        ((), "unserved"),
        ((), "Opaque.invalid"),
    ]
    assert all("was not lifted" in point.reason for point in result.undecided)


def test_a_rule_that_can_run_nowhere_is_decided_whatever_it_says() -> None:
    chosen = Selector(Placed, [Candidate("clock", lambda call: len(range(call.n)) or None, supported_archs=[])])
    assert chosen.not_lifted
    assert found(chosen) == []


SWITCH = {"throws": True}


def switched(call: Call) -> str | None:
    if SWITCH["throws"] and call.k == 7:
        raise ValueError("switched on")
    return None


@pytest.mark.parametrize("then", [{"throws": False}, {}], ids=["nothing", "another type"])
def test_a_witness_on_which_the_real_method_does_not_throw_that_is_our_inconsistency(
    monkeypatch: pytest.MonkeyPatch, then: dict[str, bool]
) -> None:
    chosen = Selector(Call, [Candidate("switched", switched)])
    assert chosen.rules
    monkeypatch.setattr(f"{__name__}.SWITCH", then)
    with pytest.raises(InconsistencyError, match="refusal of switched is proved to throw ValueError"):
        CHECK.run(Subject(chosen))


def test_an_audit_counts_it_as_a_finding() -> None:
    report = audit(Selector(Call, [Candidate("vectors", vectors)]), select=["raises"])
    assert report.totals.findings == 1
