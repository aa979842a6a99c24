"""Implementations that no call reaches: empty, killed by an edge, or dead; with the smallest set that shadows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Optional

import pytest
from tileops_rules import Candidate, Selector
from tileops_solver import Finding, InconsistencyError, audit
from tileops_solver.checks.dead import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Placed, Whole, random_selector, random_shadow

Said = dict[tuple[str, str, str], tuple[Any, Any]]


def found(selector: Selector, archs: list[int] | None = None) -> list[Finding]:
    result = CHECK.run(Subject(selector, archs=archs))
    assert result.undecided == ()
    assert len({finding.id for finding in result.findings}) == len(result.findings)
    return list(result.findings)


def said(findings: list[Finding]) -> Said:
    return {
        (f.kind, f.keys[0], f.subject): (f.witness, f.facts.get("edge") or f.facts.get("shadowed_by")) for f in findings
    }


def expected(whole: Whole, archs: list[int] | None = None) -> Said:
    return dict(everything_said(whole, archs))


def everything_said(whole: Whole, archs: list[int] | None) -> Iterator[tuple[tuple[str, str, str], tuple[Any, Any]]]:
    placed = whole.selector.spec is Placed
    for key in whole.keys:
        candidate = whole.selector.candidate(key)
        label = ""
        if archs is not None and placed:
            if all(candidate.cannot_run(call) for call in whole.calls):
                continue
            label = "+".join(f"sm_{arch}" for arch in sorted(archs))
        verdict = verdict_of(whole, key, whole.serves[key])
        if verdict is not None:
            yield (verdict[0], key, label), verdict[1:]
        if verdict is not None and verdict[0] == "empty":
            continue
        for arch in candidate.supported_archs or ():
            if label == f"sm_{arch}" or (archs is not None and arch not in archs):
                continue
            there = verdict_of(whole, key, {call for call in whole.serves[key] if call.arch == arch})
            if there is not None and (there[0] == "empty" or verdict is None):
                yield (there[0], key, f"sm_{arch}"), there[1:]


def verdict_of(whole: Whole, key: str, mine: set[Any] | frozenset[Any]) -> tuple[str, Any, Any] | None:
    """What there is to say of *key* among the calls *mine* that it serves."""
    if not mine:
        return "empty", None, None
    above = whole.above(key)
    if any(not any(call in whole.serves[k] for k in above) for call in mine):
        return None
    smallest = whole.smallest(mine)
    for winner in sorted(w for w, below in whole.written if below == key and key != whole.general):
        left = whole.above(key, without=(winner, key))
        if any(not any(call in whole.serves[k] for k in left) for call in mine):
            return "killed", smallest, (winner, key)
    for size in range(len(above) + 1):
        for members in combinations(sorted(above), size):
            if mine <= frozenset().union(*(whole.serves[k] for k in members)):
                return "dead", smallest, members
    raise AssertionError("nobody shadows it")


def agrees(selector: Selector, archs: list[int] | None = None) -> None:
    assert said(found(selector, archs)) == expected(Whole(selector, archs), archs)


@pytest.mark.parametrize("seed", range(40))
def test_every_finding_and_every_absence_is_what_a_search_of_all_calls_says(seed: int) -> None:
    agrees(random_selector(seed))


@pytest.mark.parametrize("seed", range(6))
def test_so_it_is_where_only_some_archs_are_looked_at(seed: int) -> None:
    agrees(random_selector(1000 + seed, Placed), [[90], [80, 89]][seed % 2])


@pytest.mark.parametrize("seed", range(15))
def test_the_set_that_shadows_is_the_smallest(seed: int) -> None:
    agrees(random_shadow(seed))


@pytest.mark.nightly
def test_so_it_is_for_many_rule_sets() -> None:
    for seed in range(2000, 4000):
        agrees(random_selector(seed, most=8))
        agrees(random_selector(seed, Placed), [[90], [80, 89]][seed % 2])
        agrees(random_shadow(seed))


def test_the_rule_sets_show_every_kind_and_sets_of_several() -> None:
    kinds = Counter(
        (kind, bool(subject)) for seed in range(40) for kind, _, subject in expected(Whole(random_selector(seed)))
    )
    assert {kind for kind, _ in kinds} == {"dead", "empty", "killed"}
    assert len(kinds) == 6
    sizes = Counter(
        len(fact)
        for seed in range(15)
        for (kind, *_), (_, fact) in expected(Whole(random_shadow(seed))).items()
        if kind == "dead"
    )
    assert sum(number for size, number in sizes.items() if size > 1) >= 8
    assert max(sizes) >= 4


# --------------------------------------------------------------------------------------------------- what is said


@dataclass(frozen=True)
class Call:
    m: int = 0
    n: int = 0
    device: Optional[str] = None
    arch: Optional[int] = None


def everything(call: Call) -> None:
    return None


def never(call: Call) -> str | None:
    return "never"


def small(call: Call) -> str | None:
    return None if call.n < 100 else "too many"


def aligned(call: Call) -> str | None:
    return None if call.n % 8 == 0 else "not aligned"


def unaligned(call: Call) -> str | None:
    return None if call.n % 8 else "aligned"


def few(call: Call) -> str | None:
    return None if call.n % 8 == 0 and call.m < 4 else "many, or not aligned"


def many(call: Call) -> str | None:
    return None if call.m >= 4 else "few"


def hopper(call: Call) -> str | None:
    return None if call.arch is not None and call.arch >= 90 else "not Hopper"


def by_the_clock(call: Call) -> str | None:
    return None if len(range(call.n)) > 1 else "not now"


def selector(*candidates: Candidate) -> Selector:
    return Selector(Call, candidates, op="Op", interface="job")


def only(*candidates: Candidate) -> Finding:
    (finding,) = found(selector(*candidates))
    return finding


def test_an_edge_that_makes_an_implementation_unreachable_is_named_with_both_ways_out() -> None:
    """A number that stands above another makes a faster kernel unreachable, and nobody knows (report 2)."""
    candidates = (
        Candidate("tensor_core", everything, preferred_over={"cublas", "rest"}),
        Candidate("cublas", aligned, preferred_over={"rest"}),
        Candidate("rest", small),
    )
    finding, *others = found(selector(*candidates))
    assert (finding.kind, finding.keys, finding.severity) == ("killed", ("cublas",), Severity.WARNING)
    assert finding.id == "Op.job:killed:cublas"
    assert finding.witness == Call(device="cuda", arch=80)
    assert finding.facts == {"edge": ("tensor_core", "cublas"), "chosen": ("tensor_core",)}
    assert (
        "where tensor_core is chosen, and it is never chosen, for tensor_core is preferred over it" in finding.message
    )
    assert finding.edit == (
        'preferred_over = frozenset({"rest"}) in tensor_core; '
        'to turn it round, preferred_over = frozenset({"rest", "tensor_core"}) in cublas as well'
    )
    assert finding.edit.split("; ")[0] in finding.message
    assert [(f.kind, f.keys, f.facts["shadowed_by"]) for f in others] == [("dead", ("rest",), ("tensor_core",))]
    mended = (
        Candidate("tensor_core", everything, preferred_over={"rest"}),
        Candidate("cublas", aligned, preferred_over={"rest", "tensor_core"}),
    )
    assert [f.keys for f in found(selector(*mended, Candidate("rest", small)))] == [("rest",)]


def test_the_smallest_set_that_shadows_is_named_and_no_larger_one() -> None:
    """Two shadow it together, though each of three takes some of its calls (report 2)."""
    between = {"first", "second"}
    finding = {
        f.keys[0]: f
        for f in found(
            selector(
                Candidate("few", few, preferred_over=between),
                Candidate("many", many, preferred_over={"few", *between}),
                Candidate("unaligned", unaligned, preferred_over=between),
                Candidate("aligned", aligned, preferred_over={"few", "many", *between}),
                Candidate("first", never, preferred_over={"slow"}),
                Candidate("second", never, preferred_over={"slow"}),
                Candidate("slow", small),
            )
        )
    }["slow"]
    assert (finding.kind, finding.severity) == ("dead", Severity.WARNING)
    assert finding.facts["shadowed_by"] == ("aligned", "unaligned")
    assert finding.facts["smallest"] is True
    assert "aligned and unaligned, preferred over it, together serve all that it serves" in finding.message
    assert finding.edit == 'kernel_types without "slow"'


def test_a_general_implementation_that_the_others_leave_nothing_is_dead_and_never_killed() -> None:
    finding = only(
        Candidate("aligned", aligned, preferred_over={"rest"}),
        Candidate("unaligned", unaligned, preferred_over={"rest"}),
        Candidate("rest", everything, general=True),
    )
    assert (finding.kind, finding.keys) == ("dead", ("rest",))
    assert finding.facts["shadowed_by"] == ("aligned", "unaligned")
    assert "aligned and unaligned together serve all that it serves" in finding.message


def test_a_rule_that_serves_nothing_is_empty_and_not_dead() -> None:
    finding = only(Candidate("a", never), Candidate("b", everything, preferred_over={"a"}))
    assert (finding.kind, finding.keys, finding.witness) == ("empty", ("a",), None)
    assert 'a serves no valid call: write kernel_types without "a"' in finding.message


def test_an_arch_in_the_list_that_the_rule_refuses_is_found() -> None:
    """A test of the arch in the rule that contradicts ``supported_archs`` (report 12)."""
    finding = only(Candidate("a", hopper, supported_archs=[80, 90, 100]), Candidate("rest", everything, general=True))
    assert (finding.kind, finding.keys, finding.subject) == ("empty", ("a",), "sm_80")
    assert finding.id == "Op.job:empty:a:sm_80"
    assert finding.edit == "supported_archs = [90, 100] in a"
    assert "a lists 80 in supported_archs and serves no valid call on sm_80" in finding.message


def test_an_implementation_that_is_dead_on_one_arch_that_it_lists_is_found_for_that_arch() -> None:
    """The same for one arch of those that it lists (report 2)."""
    finding = only(
        Candidate("new", hopper, preferred_over={"old"}),
        Candidate("old", aligned, supported_archs=[80, 90]),
    )
    assert (finding.kind, finding.keys, finding.subject) == ("killed", ("old",), "sm_90")
    assert finding.witness == Call(device="cuda", arch=90)
    assert "it is never chosen on sm_90" in finding.message
    assert finding.facts["edge"] == ("new", "old")


def test_a_general_one_that_is_dead_on_one_arch_is_to_leave_it_out_of_its_list() -> None:
    finding = only(Candidate("new", hopper), Candidate("rest", everything, general=True, supported_archs=[80, 90]))
    assert (finding.kind, finding.subject, finding.edit) == ("dead", "sm_90", "supported_archs = [80] in rest")
    assert "new serves all that it serves on sm_90" in finding.message


def test_without_a_list_no_arch_is_asked_about_apart() -> None:
    assert found(selector(Candidate("new", hopper, preferred_over={"old"}), Candidate("old", aligned))) == []


def test_where_archs_are_given_only_those_count() -> None:
    candidates = (Candidate("new", hopper, preferred_over={"old"}), Candidate("old", aligned))
    (finding,) = found(selector(*candidates), [90])
    assert (finding.kind, finding.keys, finding.subject) == ("killed", ("old",), "sm_90")
    assert found(selector(*candidates), [80, 90]) == []
    clock = Subject(selector(Candidate("clock", by_the_clock, supported_archs=[80, 90])), archs=[90])
    assert [point.keys for point in CHECK.run(clock).undecided] == [("clock",)]
    on_ampere = Candidate("ampere", aligned, supported_archs=[80])
    assert found(selector(on_ampere, Candidate("rest", everything, general=True)), [90]) == []


def test_a_rule_that_is_not_lifted_leaves_what_it_may_take_undecided() -> None:
    chosen = selector(
        Candidate("clock", by_the_clock, preferred_over={"a"}, supported_archs=[90]),
        Candidate("a", aligned, supported_archs=[90]),
        Candidate("b", unaligned),
    )
    result = CHECK.run(Subject(chosen))
    assert result.findings == ()
    assert {(point.check, point.keys) for point in result.undecided} == {("dead", ("a",)), ("dead", ("clock",))}
    assert all("the rule of clock was not lifted" in point.reason for point in result.undecided)


def test_what_it_cannot_take_is_decided_all_the_same() -> None:
    """It lives where the unknown one cannot run; it is dead where known ones take everything."""
    living = selector(
        Candidate("clock", by_the_clock, preferred_over={"a"}, supported_archs=[90]), Candidate("a", aligned)
    )
    assert CHECK.run(Subject(living)).findings == ()
    assert {point.keys for point in CHECK.run(Subject(living)).undecided} == {("clock",)}
    dead = selector(
        Candidate("clock", by_the_clock, preferred_over={"first", "second"}),
        Candidate("first", everything, preferred_over={"b"}),
        Candidate("second", never, preferred_over={"b"}),
        Candidate("top", everything, preferred_over={"first", "second"}),
        Candidate("b", aligned),
    )
    (finding,) = [f for f in CHECK.run(Subject(dead)).findings if f.keys == ("b",)]
    assert (finding.kind, finding.facts["shadowed_by"]) == ("dead", ("first",))
    assert finding.facts["smallest"] is False


def test_an_edge_of_which_it_is_not_known_whether_it_explains_is_undecided() -> None:
    chosen = selector(
        Candidate("clock", by_the_clock, preferred_over={"b"}),
        Candidate("first", everything, preferred_over={"b"}),
        Candidate("b", aligned),
    )
    result = CHECK.run(Subject(chosen))
    (finding,) = [f for f in result.findings if f.keys == ("b",)]
    assert finding.kind == "dead"
    assert [point.keys for point in result.undecided if "without the edge" in point.reason] == [("b", "first")]


def test_a_rule_that_is_not_lifted_and_can_run_nowhere_is_empty() -> None:
    finding = only(Candidate("clock", by_the_clock, supported_archs=[]), Candidate("a", everything))
    assert (finding.kind, finding.keys) == ("empty", ("clock",))


@dataclass(frozen=True)
class Wide:
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


def test_what_the_solver_does_not_decide_is_undecided() -> None:
    def one(call: Wide) -> str | None:
        return None if call.a * call.b * call.c * call.d % 1024 == 3 and call.a % 2 == 0 else "no"

    result = CHECK.run(Subject(Selector(Wide, [Candidate("one", one)])))
    assert result.findings == ()
    (point,) = result.undecided
    assert point.keys == ("one",)
    assert "more than 128" in point.reason


SWITCH = {"serves": True}


def switched(call: Call) -> str | None:
    return None if SWITCH["serves"] else "switched off"


@pytest.mark.parametrize("victim", [switched, everything])
def test_a_witness_that_the_real_methods_do_not_bear_out_is_our_inconsistency(
    monkeypatch: pytest.MonkeyPatch, victim: Any
) -> None:
    winner = everything if victim is switched else switched
    chosen = selector(Candidate("a", winner, preferred_over={"b"}), Candidate("b", victim))
    assert chosen.rules
    monkeypatch.setitem(SWITCH, "serves", False)
    with pytest.raises(InconsistencyError, match="is proved to serve a call that it does not serve"):
        CHECK.run(Subject(chosen))


def test_an_audit_asks_it_and_takes_a_step_for_each_implementation() -> None:
    steps: list[tuple[int, int]] = []
    report = audit(
        selector(Candidate("a", never), Candidate("b", everything)),
        select=["empty"],
        progress=lambda done, total, what: steps.append((done, total)),
    )
    assert [f.kind for f in report.findings] == ["empty"]
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_places_and_edits_name_classes(op_module: Any) -> None:
    op_module(
        dead_ops="""
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class Call:
            n: int = 0

        class Face:
            request = Call

            @classmethod
            def refusal(cls, call):
                return None

        class First(Face):
            preferred_over = frozenset({"second"})

        class Second(Face):
            pass

        class SomeOp:
            kernel_types = {"first": First, "second": Second}
            interfaces = {"face": Face}
        """
    )
    import dead_ops  # type: ignore[import-not-found]

    (finding,) = audit(dead_ops.SomeOp, select=["killed"]).findings
    assert finding.places == ("dead_ops.py:18",)
    assert finding.edit == (
        "preferred_over = frozenset() in First; "
        'to turn it round, preferred_over = frozenset({"first"}) in Second as well'
    )
