"""Duplicate implementations, and rule sets that choose alike."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_solver import Finding, InconsistencyError, Verdict, audit, choose_alike
from tileops_solver.checks.equal import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Whole, random_rule, random_selector


def found(selector: Selector, archs: list[int] | None = None) -> list[Finding]:
    result = CHECK.run(Subject(selector, archs=archs))
    assert result.undecided == ()
    return list(result.findings)


def expected(whole: Whole) -> dict[tuple[str, ...], Any]:
    groups: dict[frozenset[Any], list[str]] = {}
    for key in whole.keys:
        groups.setdefault(whole.serves[key], []).append(key)
    return {tuple(sorted(keys)): whole.smallest(calls) for calls, keys in groups.items() if calls and len(keys) > 1}


def agrees(selector: Selector, archs: list[int] | None = None) -> None:
    assert {f.keys: f.witness for f in found(selector, archs)} == expected(Whole(selector, archs))


@pytest.mark.parametrize("seed", range(50))
def test_every_finding_and_every_absence_is_what_a_search_of_all_calls_says(seed: int) -> None:
    agrees(random_selector(seed))


def test_the_rule_sets_have_duplicates_enough() -> None:
    sizes = Counter(len(keys) for seed in range(50) for keys in expected(Whole(random_selector(seed))))
    assert sizes[2] >= 10
    assert sum(number for size, number in sizes.items() if size > 2) >= 3


def changed(seed: int) -> tuple[Selector, Selector]:
    """A rule set and one that differs in a rule, an edge, an arch, the general one, or nothing that counts."""
    one = random_selector(seed)
    draw = random.Random(seed)
    victim = draw.choice(one.keys)
    what = draw.choice(("rule", "edges", "gone", "general", "devices", "order"))
    made = []
    for c in one.candidates:
        values: dict[str, Any] = {
            "general": c.general,
            "preferred_over": c.preferred_over,
            "devices": c.devices,
            "supported_archs": c.supported_archs,
        }
        rule = c.refusal
        if c.key == victim and what == "rule":
            rule = random_rule(draw, one.spec)
        if c.key == victim and what == "edges":
            values["preferred_over"] = frozenset()
        if what == "general":
            values["general"] = False
        if c.key == victim and what == "devices":
            values["devices"] = frozenset({"cuda", "cpu"})
        if not (c.key == victim and what == "gone"):
            if what == "gone":
                values["preferred_over"] = c.preferred_over - {victim}
            made.append(Candidate(c.key, rule, **values))
    return one, Selector(one.spec, made)


def differing(one: Selector, other: Selector) -> list[Any]:
    """The calls of either domain for which the two choose differently, by enumeration."""
    wholes = [Whole(one), Whole(other)]
    calls = dict.fromkeys(call for whole in wholes for call in whole.calls)
    for whole in wholes:
        whole.calls = list(calls)
    return [call for call in calls if wholes[0].chosen(call) != wholes[1].chosen(call)]


@pytest.mark.parametrize("seed", range(40))
def test_two_rule_sets_choose_alike_exactly_where_no_call_tells_them_apart(seed: int) -> None:
    one, other = changed(seed)
    told = differing(one, other)
    answer = choose_alike(one, other)
    assert answer.verdict is (Verdict.FOUND if told else Verdict.NONE)
    if told:
        assert answer.call in told
        wider = max((one, other), key=lambda each: (len(each.domain.device_types), len(each.domain.archs)))
        assert answer.call == Whole(wider).smallest(told)


def test_the_changed_rule_sets_go_both_ways() -> None:
    told = Counter(bool(differing(*changed(seed))) for seed in range(40))
    assert told[True] >= 20
    assert told[False] >= 10


@pytest.mark.nightly
def test_so_it_is_for_many_rule_sets() -> None:
    for seed in range(2000, 4000):
        agrees(random_selector(seed, most=8))
        agrees(random_selector(seed), [90])
        test_two_rule_sets_choose_alike_exactly_where_no_call_tells_them_apart(seed)


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 1000)] = 0
    m: int = 0


def tens(call: Call) -> str | None:
    return None if call.n % 10 == 0 else "no ten"


def tens_again(call: Call) -> str | None:
    return f"{call.n} is no ten" if call.n % 2 or call.n % 5 else None


def hundreds(call: Call) -> str | None:
    return None if call.n % 100 == 0 else "no hundred"


def never(call: Call) -> str | None:
    return "never"


def selector(*candidates: Candidate) -> Selector:
    return Selector(Call, candidates, op="Op", interface="job")


def test_two_that_say_the_same_in_other_words_are_one_finding_with_a_call() -> None:
    chosen = selector(
        Candidate("a", tens, preferred_over={"b"}),
        Candidate("b", tens_again),
        Candidate("c", hundreds, preferred_over={"a"}),
    )
    (finding,) = found(chosen)
    assert (finding.kind, finding.keys, finding.severity) == ("equal", ("a", "b"), Severity.WARNING)
    assert finding.witness == Call()
    assert finding.id == "Op.job:equal:a+b"
    assert "a and b serve the same calls, as Call(n=0, m=0), where c is chosen" in finding.message
    assert finding.edit == "kernel_types with one of 'a' and 'b'"


def test_all_that_are_equal_are_one_finding() -> None:
    chosen = selector(Candidate("c", tens), Candidate("b", tens_again), Candidate("a", tens), Candidate("d", hundreds))
    (finding,) = found(chosen)
    assert finding.keys == ("a", "b", "c")


@dataclass(frozen=True)
class Wide:
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


def beyond_limits(call: Wide) -> str | None:
    return None if call.a * call.b * call.c * call.d % 1024 != 3 else "no"


def test_rules_that_read_the_same_are_equal_without_a_question() -> None:
    assert [f.keys for f in found(Selector(Wide, [Candidate(k, beyond_limits) for k in "ab"]))] == [("a", "b")]


def test_a_pair_that_the_solver_does_not_decide_is_undecided() -> None:
    def otherwise(call: Wide) -> str | None:
        return None if call.a * call.b * call.c * call.d % 1024 != 3 or call.a % 4 == 2 else "no"

    result = CHECK.run(Subject(Selector(Wide, [Candidate("a", beyond_limits), Candidate("b", otherwise)])))
    assert result.findings == ()
    assert [point.keys for point in result.undecided] == [("a", "b")]


def test_those_that_serve_nothing_are_not_equal() -> None:
    assert found(selector(Candidate("a", never), Candidate("b", never))) == []


def by_the_clock(call: Any) -> str | None:
    return None if len(range(call.n)) > 1 else "not now"


def test_a_rule_that_is_not_lifted_is_undecided() -> None:
    result = CHECK.run(Subject(selector(Candidate("a", tens), Candidate("b", by_the_clock))))
    assert result.findings == ()
    assert [point.keys for point in result.undecided] == [("b",)]
    assert "the rule of b was not lifted" in result.undecided[0].reason


@dataclass(frozen=True)
class Placed:
    n: int = 0
    device: Optional[str] = None
    arch: Optional[int] = None


def everything(call: Any) -> None:
    return None


def odd(call: Any) -> str | None:
    return None if call.n % 2 else "even"


@pytest.mark.parametrize(
    "other",
    [Candidate("a", everything, supported_archs=[90]), Candidate("a", everything)],
    ids=["it can run nowhere where the other does", "the other serves calls where it cannot run"],
)
def test_devices_alone_can_tell_apart_from_a_rule_that_is_not_lifted(other: Candidate) -> None:
    chosen = Selector(Placed, [other, Candidate("b", by_the_clock, supported_archs=[80])])
    assert found(chosen) == []


def test_the_same_rule_on_other_archs_is_not_equal() -> None:
    candidates = [Candidate("a", odd, supported_archs=[80, 90]), Candidate("b", odd, supported_archs=[90])]
    assert found(Selector(Placed, candidates)) == []
    assert [f.keys for f in found(Selector(Placed, candidates), archs=[90])] == [("a", "b")]


SWITCH = {"serves": True}


def switched(call: Call) -> str | None:
    return None if SWITCH["serves"] and call.n % 10 == 0 else "switched off"


def test_a_witness_that_a_real_method_refuses_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = selector(Candidate("a", tens), Candidate("b", switched))
    assert chosen.rules
    monkeypatch.setitem(SWITCH, "serves", False)
    with pytest.raises(InconsistencyError, match="b is proved to serve a call that it does not serve"):
        CHECK.run(Subject(chosen))


def test_an_audit_asks_it() -> None:
    report = audit(selector(Candidate("a", tens), Candidate("b", tens)), select=["equal"])
    assert report.totals.findings == 1


# ------------------------------------------------------------------------------------------------- two sets of rules


def test_a_refactoring_chooses_alike() -> None:
    one = selector(Candidate("a", tens), Candidate("rest", everything, general=True))
    other = selector(Candidate("a", tens_again, preferred_over={"rest"}), Candidate("rest", everything))
    answer = choose_alike(one, other)
    assert answer.verdict is Verdict.NONE
    assert choose_alike(one, one).reason


def test_the_smallest_call_that_is_chosen_differently_is_given() -> None:
    one = selector(Candidate("a", hundreds), Candidate("rest", everything, general=True))
    other = selector(Candidate("a", tens), Candidate("rest", everything, general=True))
    assert choose_alike(one, other).call == Call(n=10)


def test_implementations_are_matched_by_key() -> None:
    answer = choose_alike(selector(Candidate("a", tens)), selector(Candidate("b", tens)))
    assert (answer.verdict, answer.call) == (Verdict.FOUND, Call())


def test_a_tie_is_another_choice_than_one_of_the_two() -> None:
    tie = selector(Candidate("a", tens), Candidate("b", hundreds))
    settled = selector(Candidate("a", tens), Candidate("b", hundreds, preferred_over={"a"}))
    assert choose_alike(tie, settled).call == Call()


def test_an_arch_that_only_one_of_them_lists_is_asked_about() -> None:
    one = Selector(Placed, [Candidate("a", everything)])
    other = Selector(Placed, [Candidate("a", everything, supported_archs=[75, 80, 86, 89, 90, 100, 120])])
    assert choose_alike(one, other).verdict is Verdict.NONE
    without = Selector(Placed, [Candidate("a", everything, supported_archs=[80, 86, 89, 90, 100, 120])])
    assert choose_alike(other, without).call == Placed(device="cuda", arch=75)


def test_a_device_that_only_one_of_them_runs_on_is_asked_about() -> None:
    one = Selector(Placed, [Candidate("nobody", everything)])
    other = Selector(Placed, [Candidate("nobody", everything, devices={"cuda", "cpu"})])
    assert choose_alike(one, other).call == Placed(device="cpu")


def test_other_call_specs_cannot_be_compared() -> None:
    with pytest.raises(TypeError, match="Call and Placed are different call specs"):
        choose_alike(selector(Candidate("a", tens)), Selector(Placed, [Candidate("a", odd)]))


def test_a_rule_that_is_not_lifted_leaves_it_undecided_unless_it_cannot_run() -> None:
    known = Candidate("a", odd, supported_archs=[80])
    clock = Candidate("b", by_the_clock, supported_archs=[90])
    nowhere = Candidate("b", by_the_clock, supported_archs=[])
    answer = choose_alike(Selector(Placed, [known, clock]), Selector(Placed, [known]))
    assert answer.verdict is Verdict.UNDECIDED
    assert "the rule of b was not lifted" in answer.reason
    other = Candidate("a", everything, supported_archs=[80])
    found = choose_alike(Selector(Placed, [known, clock]), Selector(Placed, [other]))
    assert found.call == Placed(device="cuda", arch=80)
    assert choose_alike(Selector(Placed, [known, nowhere]), Selector(Placed, [known])).verdict is Verdict.NONE


def test_a_difference_where_an_unknown_rule_may_serve_is_none() -> None:
    clock = Candidate("b", by_the_clock, supported_archs=[80], preferred_over={"a"})
    answer = choose_alike(
        Selector(Placed, [Candidate("a", odd, supported_archs=[80]), clock]),
        Selector(Placed, [Candidate("a", everything, supported_archs=[80]), clock]),
    )
    assert answer.verdict is Verdict.UNDECIDED


def test_choices_that_do_not_differ_by_the_real_methods_are_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tileops_solver.checks.equal.chosen_keys", lambda selector, call: ("a",))
    with pytest.raises(InconsistencyError, match="choose alike when they are run"):
        choose_alike(selector(Candidate("a", tens)), selector(Candidate("a", hundreds)))


def test_real_methods_that_choose_alike_after_all_are_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = selector(Candidate("a", switched)), selector(Candidate("a", never))
    assert one.rules
    monkeypatch.setitem(SWITCH, "serves", False)
    with pytest.raises(InconsistencyError):
        choose_alike(one, other)
