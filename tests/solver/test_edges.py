"""Preferences without effect: between disjoint regions, implied by others, on the general implementation."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_rules import Candidate, Selector
from tileops_solver import Finding, audit
from tileops_solver.checks.edges import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Whole, random_selector


def found(*selectors: Selector, archs: list[int] | None = None) -> list[Finding]:
    results = [CHECK.run(Subject(each, siblings=selectors, archs=archs)) for each in selectors]
    assert all(each.undecided == () for each in results)
    return [finding for each in results for finding in each.findings]


def said(findings: list[Finding]) -> set[tuple[str, str, str, str]]:
    return {(f.interface, f.kind, *f.keys) for f in findings}


def idle(whole: Whole, edge: tuple[str, str]) -> set[str]:
    """What the edge is, by enumeration."""
    winner, loser = edge
    if loser == whole.general:
        return {"edge-general"}
    kinds = set()
    if all(whole.above(key) == whole.above(key, without=edge) for key in whole.keys):
        kinds.add("edge-implied")
    if not whole.serves[winner] & whole.serves[loser]:
        kinds.add("edge-disjoint")
    return kinds


def expected(*selectors: Selector, archs: list[int] | None = None) -> set[tuple[str, str, str, str]]:
    wholes = {each.interface: Whole(each, archs) for each in selectors}
    facts = set()
    for edge in {edge for whole in wholes.values() for edge in whole.written}:
        homes = sorted(name for name, whole in wholes.items() if edge in whole.written)
        kinds = [idle(wholes[name], edge) for name in homes]
        if all(kinds):
            facts |= {(homes[0], kind, *edge) for kind in kinds[0]}
    return facts


@pytest.mark.parametrize("seed", range(50))
def test_every_finding_and_every_absence_is_what_a_search_of_all_calls_says(seed: int) -> None:
    selector = random_selector(seed)
    assert said(found(selector)) == expected(selector)


def two_interfaces(seed: int) -> list[Selector]:
    """Parts of one table of implementations, with the edges among those that are there."""
    whole = random_selector(seed)
    draw = random.Random(seed)
    parts = []
    for name in ("one", "two"):
        keys = set(draw.sample(whole.keys, draw.randint(2, len(whole.keys))))
        made = [
            Candidate(
                c.key,
                c.refusal,
                general=c.general,
                preferred_over=c.preferred_over & keys,
                devices=c.devices,
                supported_archs=c.supported_archs,
            )
            for c in whole.candidates
            if c.key in keys
        ]
        parts.append(Selector(whole.spec, made, op="Op", interface=name))
    return draw.sample(parts, 2)


@pytest.mark.parametrize("seed", range(40))
def test_an_edge_is_idle_only_where_it_is_so_in_every_interface_that_has_it(seed: int) -> None:
    parts = two_interfaces(seed)
    assert said(found(*parts)) == expected(*parts)


@pytest.mark.nightly
def test_so_it_is_for_many_rule_sets() -> None:
    for seed in range(2000, 4000):
        selector = random_selector(seed, most=8)
        assert said(found(selector)) == expected(selector), seed
        parts = two_interfaces(seed)
        assert said(found(*parts)) == expected(*parts), seed
        assert said(found(*parts, archs=[90])) == expected(*parts, archs=[90]), seed


def test_the_rule_sets_show_every_kind() -> None:
    kinds = Counter(kind for seed in range(50) for _, kind, *_ in expected(random_selector(seed)))
    assert set(kinds) == {"edge-general", "edge-implied", "edge-disjoint"}
    assert min(kinds.values()) >= 5


@dataclass(frozen=True)
class Call:
    n: int = 0


def below_ten(call: Call) -> str | None:
    return None if call.n < 10 else "too many"


def from_ten(call: Call) -> str | None:
    return None if call.n >= 10 else "too few"


def everything(call: Call) -> None:
    return None


def by_the_clock(call: Call) -> str | None:
    return None if len(range(call.n)) > 1 else "not now"


def selector(*candidates: Candidate, interface: str = "job") -> Selector:
    return Selector(Call, candidates, op="Op", interface=interface)


def only(*selectors: Selector) -> Finding:
    (finding,) = found(*selectors)
    return finding


def test_an_edge_between_disjoint_regions_is_a_warning_with_the_line_without_it() -> None:
    """A preference that joins two disjoint regions can have no effect (report 3)."""
    finding = only(
        selector(
            Candidate("low", below_ten, preferred_over={"high", "rest"}),
            Candidate("high", from_ten),
            Candidate("rest", everything),
        )
    )
    assert (finding.kind, finding.keys, finding.severity) == ("edge-disjoint", ("low", "high"), Severity.WARNING)
    assert finding.edit == 'preferred_over = frozenset({"rest"}) in low'
    assert finding.id == "Op.job:edge-disjoint:low+high"
    assert "low is preferred over high, to no effect: no valid call is served by both" in finding.message
    assert finding.edit in finding.message
    assert finding.places[0] in finding.message


def test_a_disjoint_edge_that_orders_others_says_so_and_what_to_write() -> None:
    """Dropped without more, it would leave low and any unordered."""
    candidates = [
        Candidate("low", below_ten, preferred_over={"high"}),
        Candidate("high", from_ten, preferred_over={"any"}),
        Candidate("any", everything),
    ]
    finding = only(selector(*candidates))
    assert finding.keys == ("low", "high")
    assert finding.edit == 'preferred_over = frozenset({"any"}) in low'
    assert finding.facts == {"orders": (("low", "any"),)}
    assert "it orders low over any by way of the two" in finding.message
    mended = selector(Candidate("low", below_ten, preferred_over={"any"}), *candidates[1:])
    assert found(mended) == []
    assert audit(mended, select=["overlap"]).findings == ()


def test_only_orders_that_are_lost_and_matter_are_to_be_written() -> None:
    """Of low over any there is another way; of low over top no call is served by both."""

    def from_twenty(call: Call) -> str | None:
        return None if call.n >= 20 else "too few"

    finding = only(
        selector(
            Candidate("low", below_ten, preferred_over={"high", "other"}),
            Candidate("high", from_ten, preferred_over={"any", "top"}),
            Candidate("other", everything, preferred_over={"any"}),
            Candidate("any", everything),
            Candidate("top", from_twenty),
        )
    )
    assert finding.keys == ("low", "high")
    assert finding.edit == 'preferred_over = frozenset({"other"}) in low'
    assert finding.facts == {}


def test_what_stands_above_takes_the_order_over_where_the_edge_goes() -> None:
    finding = only(
        selector(
            Candidate("first", everything, preferred_over={"low"}),
            Candidate("low", below_ten, preferred_over={"high"}),
            Candidate("high", from_ten),
        )
    )
    assert finding.edit == 'preferred_over = frozenset() in low; preferred_over = frozenset({"high", "low"}) in first'


def test_an_implied_edge_is_a_warning_with_the_way_that_implies_it() -> None:
    finding = only(
        selector(
            Candidate("a", everything, preferred_over={"b", "c"}),
            Candidate("b", everything, preferred_over={"c"}),
            Candidate("c", everything),
        )
    )
    assert (finding.kind, finding.keys, finding.severity) == ("edge-implied", ("a", "c"), Severity.WARNING)
    assert "that follows from the other preferences, by a over b over c" in finding.message
    assert finding.edit == 'preferred_over = frozenset({"b"}) in a'


def test_an_edge_on_the_general_implementation_is_a_note() -> None:
    report = audit(
        selector(Candidate("a", below_ten, preferred_over={"rest"}), Candidate("rest", everything, general=True)),
        select=["edges"],
    )
    (finding,) = report.findings
    assert (finding.kind, finding.severity) == ("edge-general", Severity.NOTE)
    assert finding.edit == "preferred_over = frozenset() in a"
    assert (report.totals.findings, report.totals.notes) == (0, 1)


def test_edges_with_an_effect_are_not_reported() -> None:
    chosen = selector(
        Candidate("a", everything, preferred_over={"b"}),
        Candidate("b", everything, preferred_over={"c"}),
        Candidate("c", below_ten),
    )
    assert found(chosen) == []


def test_a_finding_in_two_interfaces_is_told_once_with_what_it_is_in_the_other() -> None:
    one = selector(Candidate("a", below_ten, preferred_over={"b"}), Candidate("b", from_ten), interface="one")
    two = selector(
        Candidate("a", everything, preferred_over={"b", "m"}),
        Candidate("m", everything, preferred_over={"b"}),
        Candidate("b", everything),
        interface="two",
    )
    finding = only(two, one)
    assert (finding.interface, finding.kind, finding.keys) == ("one", "edge-disjoint", ("a", "b"))
    assert "in two that follows from the other preferences, by a over m over b" in finding.message


def test_an_edge_that_is_needed_in_another_interface_is_no_finding() -> None:
    one = selector(Candidate("a", below_ten, preferred_over={"b"}), Candidate("b", from_ten), interface="one")
    two = selector(Candidate("a", everything, preferred_over={"b"}), Candidate("b", everything), interface="two")
    assert found(one, two) == []


def test_the_edit_keeps_what_the_class_prefers_in_other_interfaces(op_module: Any) -> None:
    op_module(
        edge_ops="""
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class Call:
            n: int = 0

        class One:
            request = Call

        class Two:
            request = Call

        class Low(One, Two):
            preferred_over = frozenset({"high", "other"})

            @classmethod
            def refusal(cls, call):
                return None if call.n < 10 else "too many"

        class High(One):
            @classmethod
            def refusal(cls, call):
                return None if call.n >= 10 else "too few"

        class Other(Two):
            pass

        class SomeOp:
            kernel_types = {"low": Low, "high": High, "other": Other}
            interfaces = {"one": One, "two": Two}
        """
    )
    import edge_ops  # type: ignore[import-not-found]

    (finding,) = audit(edge_ops.SomeOp, select=["edges"]).findings
    assert finding.keys == ("low", "high")
    assert finding.edit == 'preferred_over = frozenset({"other"}) in Low'
    assert finding.places[0] == "edge_ops.py:14"


@pytest.mark.parametrize("key", ["a", "b"])
def test_a_rule_that_is_not_lifted_leaves_its_edges_undecided(key: str) -> None:
    rules = {"a": below_ten, "b": from_ten, key: by_the_clock}
    chosen = selector(Candidate("a", rules["a"], preferred_over={"b"}), Candidate("b", rules["b"]))
    result = CHECK.run(Subject(chosen))
    assert result.findings == ()
    (point,) = result.undecided
    assert (point.check, point.keys) == ("edges", ("a", "b"))
    assert f"the rule of {key} was not lifted" in point.reason


def test_an_effect_in_one_interface_decides_whatever_is_not_known_in_another() -> None:
    known = selector(Candidate("a", everything, preferred_over={"b"}), Candidate("b", everything), interface="one")
    clock = selector(Candidate("a", everything, preferred_over={"b"}), Candidate("b", by_the_clock), interface="two")
    assert found(known, clock) == []


def test_an_interface_without_the_edge_has_no_say() -> None:
    one = selector(Candidate("a", below_ten, preferred_over={"b"}), Candidate("b", from_ten), interface="one")
    two = selector(Candidate("a", everything), Candidate("b", everything, preferred_over={"a"}), interface="two")
    assert [f.keys for f in found(one, two)] == [("a", "b")]


@dataclass(frozen=True)
class Placed:
    n: int = 0
    arch: int = 80


def test_archs_that_do_not_meet_are_disjoint_whatever_the_rules_say() -> None:
    chosen = Selector(
        Placed,
        [
            Candidate("a", by_the_clock, supported_archs=[80], preferred_over={"b"}),
            Candidate("b", by_the_clock, supported_archs=[90]),
        ],
    )
    result = CHECK.run(Subject(chosen))
    assert [f.kind for f in result.findings] == ["edge-disjoint"]
    assert result.undecided == ()


def test_an_implied_edge_needs_no_rule_to_be_lifted() -> None:
    chosen = selector(
        Candidate("a", by_the_clock, preferred_over={"b", "c"}),
        Candidate("b", everything, preferred_over={"c"}),
        Candidate("c", everything),
    )
    result = CHECK.run(Subject(chosen))
    assert [(f.kind, f.keys) for f in result.findings] == [("edge-implied", ("a", "c"))]
    assert {point.keys for point in result.undecided} == {("a", "b"), ("a", "c")}
