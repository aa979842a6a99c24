"""What decides how an implementation stands: arch by arch, without one edge, by which set; and the edits in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import pytest
from tileops_rules import Candidate, Selector
from tileops_solver import Finding, InconsistencyError
from tileops_solver.checks import dead, edges
from tileops_solver.checks.dead import CHECK, _cover, _removal, _Where
from tileops_solver.checks.edits import listed, preference
from tileops_solver.checks.reach import Reach
from tileops_solver.engine import Outcome
from tileops_solver.subject import Platform, Subject
from tileops_solver.witness import Witness


@dataclass(frozen=True)
class Call:
    n: int = 0
    device: Optional[str] = None
    arch: Optional[int] = None


def everything(call: Any) -> None:
    return None


def on(*archs: int) -> Callable[[Any], Any]:
    return lambda call: None if call.arch in archs else "another arch"


def even(call: Any) -> str | None:
    return None if call.n % 2 == 0 else "odd"


def odd(call: Any) -> str | None:
    return None if call.n % 2 else "even"


def by_the_clock(call: Any) -> str | None:
    return None if len(range(call.n)) > 1 else "not now"


def selector(*candidates: Candidate) -> Selector:
    return Selector(Call, candidates, op="Op", interface="job")


def found(*candidates: Candidate, archs: list[int] | None = None) -> list[Finding]:
    result = CHECK.run(Subject(selector(*candidates), archs=archs))
    assert result.undecided == ()
    return list(result.findings)


def brief(findings: list[Finding]) -> list[tuple[str, tuple[str, ...], str]]:
    return [(each.kind, each.keys, each.subject) for each in findings]


def test_what_is_never_chosen_is_told_on_which_listed_archs_it_serves_nothing() -> None:
    told = found(
        Candidate("top", everything, preferred_over={"below"}),
        Candidate("below", on(80), supported_archs=[80, 90, 100]),
    )
    assert brief(told) == [
        ("killed", ("below",), ""),
        ("empty", ("below",), "sm_90"),
        ("empty", ("below",), "sm_100"),
    ]


@pytest.mark.parametrize("alive", [80, 90])
@pytest.mark.parametrize("narrow", [False, True])
def test_what_is_chosen_somewhere_is_told_on_which_listed_archs_it_is_not(alive: int, narrow: bool) -> None:
    """Whichever call is its first example."""
    dead_on = 170 - alive
    rule = even if narrow else everything
    told = found(
        Candidate("top", on(dead_on), preferred_over={"below"}),
        Candidate("below", rule, supported_archs=[80, 90]),
    )
    assert brief(told) == [("killed", ("below",), f"sm_{dead_on}")]


def test_that_an_edge_is_to_blame_is_asked_on_the_arch_alone() -> None:
    """Without either edge it would be chosen on sm_80, where it is, and not on sm_90."""
    told = found(
        Candidate("first", on(90), preferred_over={"below"}),
        Candidate("second", everything, supported_archs=[90], preferred_over={"below"}),
        Candidate("below", everything, supported_archs=[80, 90]),
    )
    mine = [each for each in told if each.keys == ("below",)]
    assert brief(mine) == [("dead", ("below",), "sm_90")]
    assert mine[0].facts["shadowed_by"] == ("first",)


def test_that_an_edge_is_to_blame_is_asked_of_its_own_calls_alone() -> None:
    """Without the edge from first, second takes all that it serves; of the others it serves none."""
    told = found(
        Candidate("first", everything, preferred_over={"below"}),
        Candidate("second", even, preferred_over={"below", "first"}),
        Candidate("below", even),
    )
    assert brief(told) == [("dead", ("below",), "")]
    assert told[0].facts["shadowed_by"] == ("first",)


def test_what_a_rule_that_was_not_lifted_may_take_on_an_arch_is_open_there_alone() -> None:
    result = CHECK.run(
        Subject(
            selector(
                Candidate("clock", by_the_clock, preferred_over={"below"}, supported_archs=[90]),
                Candidate("below", everything, supported_archs=[80, 90]),
            )
        )
    )
    assert result.findings == ()
    assert [(point.keys, point.subject) for point in result.undecided] == [
        (("below",), "sm_90"),
        (("clock",), ""),
        (("clock",), "sm_90"),
    ]
    assert result.undecided[0].reason.startswith("whether it is ever chosen on sm_90: the rule of clock was not lifted")
    assert result.undecided[1].reason.startswith("whether it serves a call: the rule of clock was not lifted")


# --------------------------------------------------------------------------------------------- the set that shadows it


def test_a_call_that_nobody_takes_of_one_that_is_never_chosen_is_our_inconsistency() -> None:
    subject = Subject(selector(Candidate("a", even, preferred_over={"b"}), Candidate("b", everything)))
    with pytest.raises(InconsistencyError, match="b is proved to serve a call that some other takes") as caught:
        _cover(subject, "b", _Where())
    call = caught.value.call
    assert call.n % 2 == 1 or caught.value.facts[2] == "served by: []"
    assert caught.value.facts == (f"call: {call!r}", "asked without: ('a',)", "served by: []")


def test_a_call_that_a_member_takes_of_a_set_that_was_asked_without_is_our_inconsistency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(
        selector(
            Candidate("a", even, preferred_over={"c"}),
            Candidate("b", odd, preferred_over={"c"}),
            Candidate("c", everything),
        )
    )
    assert _cover(subject, "c", _Where()).members == ("a", "b")
    call = Call(n=4, device="cuda", arch=80)
    monkeypatch.setattr(Reach, "some", lambda *given: Witness(Outcome.POSSIBLE, call))
    with pytest.raises(InconsistencyError) as caught:
        _cover(subject, "c", _Where())
    assert caught.value.call is call
    assert caught.value.facts == (f"call: {call!r}", "asked without: ('a',)", "served by: ['a']")


# ------------------------------------------------------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("where", "supported", "text"),
    [
        (_Where(), [80, 90], 'kernel_types without "a"'),
        (_Where(label="sm_80", arch=Platform("sm_80", None, 80)), [80, 90], "supported_archs = [90] in a"),  # type: ignore[arg-type]
        (_Where(label="sm_80", arch=Platform("sm_80", None, 80)), [80], "supported_archs = [] in a"),  # type: ignore[arg-type]
        (_Where(label="sm_80+sm_90"), [80, 90, 100], "supported_archs without 80, 90 in a"),
        (_Where(label="sm_80"), None, "supported_archs without 80 in a"),
        (_Where(label="sm_80", arch=Platform("sm_80", None, 80)), None, "supported_archs without 80 in a"),  # type: ignore[arg-type]
    ],
)
def test_the_edit_that_leaves_it_out(where: _Where, supported: list[int] | None, text: str) -> None:
    assert _removal(selector(Candidate("a", everything, supported_archs=supported)), "a", where) == text


def test_where_two_archs_are_looked_at_both_are_named() -> None:
    (finding,) = found(
        Candidate("top", everything, preferred_over={"below"}), Candidate("below", everything), archs=[90, 80]
    )
    assert finding.subject == "sm_80+sm_90"
    assert "it is never chosen on sm_80 and sm_90, for top is preferred over it" in finding.message
    (nothing,) = found(Candidate("a", on(100), supported_archs=[80, 90, 100]), archs=[80])
    assert nothing.message == (
        "Op.job: a lists 80 in supported_archs and serves no valid call on sm_80: write supported_archs = [90, 100] in "
        "a, or let its refusal return None for some"
    )
    (without_list,) = found(Candidate("a", on(100)), archs=[80, 90])
    assert without_list.message == (
        "Op.job: a serves no valid call on sm_80 and sm_90: write supported_archs without 80, 90 in a, or let its "
        "refusal return None for some"
    )


def test_a_dead_one_is_told_with_who_takes_its_calls() -> None:
    (finding,) = [
        each
        for each in found(
            Candidate("first", everything, preferred_over={"below"}),
            Candidate("second", everything, preferred_over={"below", "first"}),
            Candidate("below", even),
        )
        if each.keys == ("below",)
    ]
    call = Call(device="cuda", arch=80)
    assert finding.message == (
        f"Op.job: below serves {call!r}, where second is chosen, and it is never chosen: first, preferred over it, "
        f'serves all that it serves. Write kernel_types without "below", or refuse some of these calls in first'
    )
    assert finding.facts == {"shadowed_by": ("first",), "smallest": True, "chosen": ("second",)}
    (general,) = found(Candidate("a", even), Candidate("b", odd), Candidate("rest", everything, general=True))
    assert general.message == (
        f"Op.job: rest serves {call!r}, where a is chosen, and it is never chosen: a and b together serve all that it "
        f'serves. Write kernel_types without "rest", or refuse some of these calls in a and b'
    )


def test_a_killed_one_is_told_with_the_edge_and_both_ways_out() -> None:
    (finding,) = found(Candidate("a", everything, preferred_over={"b"}), Candidate("b", even))
    call = Call(device="cuda", arch=80)
    drop, turn = "preferred_over = frozenset() in a", 'preferred_over = frozenset({"a"}) in b'
    assert finding.message == (
        f"Op.job: b serves {call!r}, where a is chosen, and it is never chosen, for a is preferred over it. Without "
        f"that preference it would be: drop it by {drop}, or turn it round by {turn} as well"
    )
    assert finding.edit == f"{drop}; to turn it round, {turn} as well"
    assert finding.facts == {"edge": ("a", "b"), "chosen": ("a",)}


def test_lists_and_lines_are_written_as_one_would() -> None:
    assert [listed(names) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert preference([]) == "preferred_over = frozenset()"
    assert preference(["b", "a"]) == 'preferred_over = frozenset({"a", "b"})'
    assert _Where().there == ""
    assert _Where(label="sm_80").there == " on sm_80"
    assert _Where(label="sm_80+sm_90+sm_100").there == " on sm_80, sm_90 and sm_100"
    made = selector(Candidate("a", everything, preferred_over={"b"}), Candidate("b", everything))
    assert dead._without(made, "a", "b") == set()
    assert dead._without(made, "b", "a") == set()
    assert dead._without(made, "x", "b") == {"a"}


# ------------------------------------------------------------------------------------------------ edges without effect


def below(limit: int) -> Callable[[Any], Any]:
    return lambda call: None if call.n < limit else "too many"


@pytest.mark.parametrize(
    ("winner", "loser", "disjoint"),
    [
        (below(10), everything, False),
        (everything, below(10), False),
        (below(10), below(5), False),
        (lambda call: "never", everything, True),
        (everything, lambda call: "never", True),
    ],
)
def test_an_example_of_either_that_the_other_serves_settles_it_with_no_question(
    winner: Any, loser: Any, disjoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(selector(Candidate("a", winner, preferred_over={"b"}), Candidate("b", loser)))
    monkeypatch.setattr(Reach, "some", lambda *given: pytest.fail("asked"))
    assert edges._disjoint(subject, ("a", "b")) is disjoint


def test_the_example_of_the_loser_is_looked_at_where_that_of_the_winner_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = {"a": Call(n=50, device="cuda", arch=80), "b": Call(n=7, device="cuda", arch=80)}
    subject = Subject(selector(Candidate("a", everything, preferred_over={"b"}), Candidate("b", below(10))))
    monkeypatch.setattr(Reach, "example", lambda self, of, key: Witness(Outcome.POSSIBLE, examples[key]))
    monkeypatch.setattr(Reach, "some", lambda *given: pytest.fail("asked"))
    assert edges._disjoint(subject, ("a", "b")) is False
    turned = Subject(selector(Candidate("b", everything), Candidate("a", below(10), preferred_over={"b"})))
    examples.update({"a": examples["b"], "b": examples["a"]})
    assert edges._disjoint(turned, ("a", "b")) is False
