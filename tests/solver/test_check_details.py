"""Checks one by one, where they give up, contradict themselves or say something in words."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, NotLifted, Range, Selector
from tileops_solver import InconsistencyError, TargetError, Verdict, audit, choose_alike
from tileops_solver.auditing import _check_fields, _unlifted
from tileops_solver.checks import equal, gap, independence, overlap, unread
from tileops_solver.checks.catalogue import CHECKS
from tileops_solver.checks.replays import replay_rules
from tileops_solver.engine import Outcome
from tileops_solver.proofs.replays import Replays
from tileops_solver.subject import Subject
from tileops_solver.twins import TwinDomain
from tileops_solver.witness import Witness


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 20)] = 0
    m: Annotated[int, Range(0, 20)] = 0


@dataclass(frozen=True)
class Other:
    k: int = 0
    mode: Literal["x", "y"] = "x"


@dataclass(frozen=True)
class Placed:
    n: int = 0
    device: Optional[str] = None
    arch: Optional[int] = None


@dataclass(frozen=True)
class Wide:
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


def everything(call: Any) -> None:
    return None


def never(call: Any) -> str:
    return "never"


def even(call: Any) -> str | None:
    return None if call.n % 2 == 0 else "odd"


def by_the_clock(call: Any) -> str | None:
    return None if len(range(call.n)) > 1 else "not now"


def too_hard(call: Any) -> str | None:
    """More than the solver is asked, and false: an odd product of an even number."""
    return None if call.a * call.b * call.c * call.d % 1024 == 3 and call.a % 2 == 0 else "no"


def selector(*candidates: Candidate, spec: type = Call, **about: Any) -> Selector:
    return Selector(spec, candidates, **{"op": "Op", "interface": "job", **about})


SWITCH = {"on": True}


def switched(call: Any) -> str | None:
    return None if SWITCH["on"] else "switched off"


# ------------------------------------------------------------------------------------------------------------- an audit


def test_a_field_that_is_asked_about_is_one_of_some_interface() -> None:
    both = [selector(Candidate("a", everything)), selector(Candidate("a", everything), spec=Other)]
    for asked in ({"independent_of": ["tune"]}, {"changes_within": ["tune"]}, {"changes_within": ["n", "tune"]}):
        with pytest.raises(TargetError, match=r"^no interface has a field tune: there are k, m, mode, n$"):
            audit(both, **asked)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="mode is no integer, so that its values have no order"):
        audit(both, changes_within=["k", "mode"])
    jobs: Any = [types.SimpleNamespace(selector=each) for each in (*both, None)]
    _check_fields(jobs, ["n", "mode", "k"], ["k", "n"])


def test_a_broken_table_takes_one_step_and_the_others_theirs() -> None:
    class Face:
        request = Call

    class First(Face):
        preferred_over = frozenset({"second"})
        refusal = classmethod(lambda cls, call: None)

    class Second(First):
        preferred_over = frozenset({"first"})

    broken = type("BrokenOp", (), {"kernel_types": {"first": First, "second": Second}, "interfaces": {"job": Face}})
    steps: list[tuple[int, int, str]] = []
    report = audit(
        [selector(Candidate("a", everything)), broken],
        select=["overlap", "gap"],
        progress=lambda *step: steps.append(step),
    )
    assert steps == [(1, 4, "BrokenOp"), (2, 4, "Op.job"), (3, 4, "Op.job"), (4, 4, "Op.job")]
    assert [each.pairs.undecided for each in report.interfaces] == [1, 0]


def test_every_rule_that_was_not_lifted_is_listed() -> None:
    @dataclass(frozen=True)
    class Odd:
        n: int = 0

        def invalid(self) -> str | None:
            return "odd" if len(range(self.n)) % 2 else None

    made = selector(Candidate("clock", by_the_clock), Candidate("a", even), spec=Odd, unserved=by_the_clock)
    listed = _unlifted(made)
    assert [each.key for each in listed] == ["Odd.invalid", "clock", "unserved"]
    assert all(each.place.startswith("test_check_details.py:") and each.cause for each in listed)
    assert _unlifted(selector(Candidate("a", even))) == ()


def lying(key: str) -> Any:
    error = NotLifted("f.py", 3, "gives another answer than its tree", call=Call(n=7))
    return types.SimpleNamespace(
        op="Op",
        spec=Call,
        rules={},
        invalid=None,
        declared_unserved=None,
        not_lifted={} if key == "unserved" else {key: error},
        unserved_not_lifted=error if key == "unserved" else None,
    )


@pytest.mark.parametrize("key", ["a", "unserved"])
def test_a_rule_whose_replay_differed_is_our_inconsistency(key: str) -> None:
    with pytest.raises(InconsistencyError) as caught:
        replay_rules(lying(key), Replays(None, "job", Call))
    assert str(caught.value).startswith(f"Op: the rule of {key} (f.py:3) gives another answer than its tree\n")
    assert (caught.value.call, caught.value.facts) == (Call(n=7), ("call: Call(n=7, m=0)",))


@pytest.mark.parametrize("where", ["a", "unserved"])
def test_a_rule_that_gives_something_else_since_it_was_lifted_is_our_inconsistency(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = selector(Candidate("a", switched)) if where == "a" else selector(unserved=switched)
    assert made.rules or made.declared_unserved
    monkeypatch.setitem(SWITCH, "on", False)
    with pytest.raises(InconsistencyError, match=f"^Op: the rule of {where} .* does not give what its function") as it:
        replay_rules(made, Replays(None, "job", Call))
    assert it.value.facts[1:] == ("function: 'switched off'", "rule: None")


def test_what_the_solver_is_not_asked_leaves_every_check_without_an_answer() -> None:
    """Each says so under its own name, and none of them is silent."""

    def declared(call: Any) -> str | None:
        return "declared" if too_hard(call) is None else None

    made = Selector(Wide, [Candidate("a", too_hard), Candidate("b", everything)], unserved=declared)
    open_points = {
        check.id: [(p.keys, p.subject) for p in check.run(Subject(made, independent_of=["b"])).undecided]
        for check in CHECKS
        if check.id not in ("fits", "dropped-limit", "edges")
    }
    assert open_points == {
        "overlap": [(("a", "b"), "")],
        "gap": [((), "declared unserved")],
        "dead": [(("a",), "")],
        "raises": [],
        "equal": [(("a",), "")],
        "independence": [(("a",), "b")],
        "unread": [],
    }
    (equal_point,) = equal.CHECK.run(Subject(made)).undecided
    assert equal_point.reason.startswith("whether it serves a call: ")


# ---------------------------------------------------------------------------------------------------------- equal rules


def test_rules_that_were_not_lifted_may_be_equal_only_where_they_can_run_together() -> None:
    def open_points(*archs: list[int] | None) -> list[tuple[str, ...]]:
        made = [Candidate(f"k{i}", by_the_clock, supported_archs=each) for i, each in enumerate(archs)]
        return [point.keys for point in equal.CHECK.run(Subject(selector(*made, spec=Placed))).undecided]

    assert open_points([80], [90]) == []
    assert open_points([80], [80]) == [("k0",), ("k1",)]
    assert open_points([80], [90], [90, 100]) == [("k1",), ("k2",)]
    assert open_points([80], None) == [("k0",), ("k1",)]
    assert open_points([], None) == []
    assert open_points([80]) == []


@pytest.mark.parametrize("taken", [("nobody",), ("nobody", "nobody_0"), ("nobody", "nobody_0", "nobody_1")])
@pytest.mark.parametrize("turned", [False, True])
def test_keys_may_have_any_name_where_rule_sets_are_compared(taken: tuple[str, ...], turned: bool) -> None:
    one = Selector(Placed, [Candidate(key, never) for key in taken])
    other = Selector(Placed, [Candidate("a", even, devices={"cuda", "cpu"})])
    pair = (other, one) if turned else (one, other)
    assert choose_alike(*pair).call == Placed(device="cuda", arch=80)
    wider = Selector(Placed, [Candidate(key, never, devices={"cuda", "cpu"}) for key in taken])
    assert choose_alike(one, wider).verdict is Verdict.NONE


@pytest.mark.parametrize("turned", [False, True])
def test_the_rules_of_both_sets_are_held_against_their_methods(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = selector(Candidate("a", never)), selector(Candidate("a", switched))
    assert other.rules
    monkeypatch.setitem(SWITCH, "on", False)
    with pytest.raises(InconsistencyError, match="a is proved to serve a call that it does not serve when it is run"):
        choose_alike(*((other, one) if turned else (one, other)))


# ---------------------------------------------------------------------------------------------- declared and served all


@pytest.mark.parametrize(
    ("says", "declared", "message"),
    [
        (None, True, "unserved is proved to give a reason for a call, and gives none when it is run"),
        ("why", False, "unserved is proved to give no reason for a call, and gives one when it is run"),
        (ValueError("gone"), True, "unserved is proved to give a reason for a call, and gives none when it is run"),
    ],
)
def test_a_declaration_that_says_something_else_is_our_inconsistency(says: Any, declared: bool, message: str) -> None:
    def unserved(call: Any) -> Any:
        if isinstance(says, Exception):
            raise says
        return says

    made = selector(unserved=unserved)
    with pytest.raises(InconsistencyError) as caught:
        gap._confirm_declared(made, Call(n=3), declared=declared)
    assert str(caught.value).startswith(f"{message}\n")
    said = "ValueError: gone" if isinstance(says, Exception) else repr(says)
    assert caught.value.facts[:2] == ("call: Call(n=3, m=0)", f"it says: {said}")
    assert caught.value.call == Call(n=3)


def test_a_declaration_that_says_what_was_proved_is_given_back() -> None:
    def raises(call: Any) -> str:
        raise ValueError

    assert gap._confirm_declared(selector(unserved=lambda call: "why"), Call(), declared=True) == "why"
    assert gap._confirm_declared(selector(unserved=everything), Call(), declared=False) is None
    assert gap._confirm_declared(selector(unserved=raises), Call(), declared=False) is None
    assert gap._confirm_declared(selector(), Call(), declared=False) is None


# ---------------------------------------------------------------------------------------------------- overlapping pairs


def test_an_overlap_is_told_with_both_lines_and_who_settles_it() -> None:
    one, two = everything, even
    plain = selector(Candidate("one", one), Candidate("two", two))
    (finding,) = overlap.prove_pairs(plain).findings
    places = [f"test_check_details.py:{f.__code__.co_firstlineno}" for f in (one, two)]
    edits = ['preferred_over = frozenset({"two"}) in one', 'preferred_over = frozenset({"one"}) in two']
    write = f"Write {edits[0]} ({places[0]}), or {edits[1]} ({places[1]})."
    start = "Op.job: one and two both serve Call(n=0, m=0) and neither is preferred."
    assert finding.message == f"{start} {write}"
    assert finding.edit == f"{edits[0]}, or {edits[1]}"
    assert finding.facts == {}
    third = Candidate("third", one, preferred_over={"one", "two"})
    (settled,) = overlap.prove_pairs(selector(*plain.candidates, third)).findings
    note = (
        " On every such call third, preferred over both, is chosen; their order is needed all the same, for where "
        "third cannot run or is changed."
    )
    assert settled.message == f"{start}{note} {write}"
    assert settled.facts == {"settled_by": ("third",)}


# --------------------------------------------------------------------------------------------------- independent fields


@dataclass(frozen=True)
class Bound:
    """Every field but n is what n says."""

    n: Annotated[int, Range(0, 5)] = 0
    twice: Annotated[int, Range(0, 10)] = 0
    odd: bool = False
    scale: float = 1.0
    name: str = ""

    def invalid(self) -> str | None:
        return "not bound" if self.twice != 2 * self.n or self.odd != (self.n % 2 == 1) else None


def test_a_field_in_which_no_two_calls_differ_alone_is_never_proved_to_change_nothing() -> None:
    made = selector(Candidate("a", everything), spec=Bound)
    result = independence.CHECK.run(Subject(made, independent_of=["n", "twice", "odd", "scale", "name"]))
    assert [(p.check, p.keys, p.subject) for p in result.undecided] == [
        ("independence", (), field) for field in ("n", "twice", "odd")
    ]
    assert result.undecided[0].reason == (
        "no two valid calls are shown to differ in n alone, so that there is nothing to compare"
    )
    assert result.facts == ("scale changes no choice: proved", "name changes no choice: proved")
    assert result.findings == ()


def test_a_field_that_changes_the_choice_is_told_with_both_calls() -> None:
    made = selector(Candidate("a", even), Candidate("b", lambda call: None if call.n == 4 else "no"))
    (finding,) = independence.CHECK.run(Subject(made, independent_of=["n"])).findings
    assert finding.message == (
        "Op.job: n changes the choice: Call(n=0, m=0) gets a, and with n=1 it gets no implementation; "
        "leave n out of their rules, or do not ask for independence of it"
    )
    assert finding.edit == "leave n out of the rules of a"
    assert finding.facts == {"other": Call(n=1), "choices": (("a",), ())}
    (fact,) = independence.CHECK.run(Subject(made, changes_within=["n"])).facts
    assert "3 (no implementation to no implementation)" not in fact
    assert "4 (no implementation to a or b), 5 (a or b to no implementation), 6 (no implementation to a)" in fact
    assert [independence._words(choice) for choice in ((), ("a",), ("a", "b"))] == ["no implementation", "a", "a or b"]
    never_changes = independence.CHECK.run(Subject(made, changes_within=["m"])).facts
    assert never_changes == ("within m the choice changes at no value: proved",)


def test_a_change_that_the_methods_do_not_show_is_our_inconsistency() -> None:
    made = selector(Candidate("a", even))
    subject = Subject(made)
    values = made.domain.read(Call(n=9, m=5))
    assert independence._across(subject, "n", 4, values) == ((), ("a",))
    assert independence._across(subject, "n", 5, values) == (("a",), ())
    with pytest.raises(InconsistencyError) as caught:
        independence._across(subject, "m", 4, values)
    assert str(caught.value).startswith("Op.job: the choice is proved to change at m 4, and does not\n")
    assert caught.value.call == Call(n=9, m=4)
    assert caught.value.facts == ("call: Call(n=9, m=4)", "choice on both sides: no implementation")
    with pytest.raises(InconsistencyError, match="m is proved to change the choice of a call for which it does not"):
        independence._dependent(subject, "m", types.SimpleNamespace(one=Call(), other=Call(m=1)))  # type: ignore[arg-type]


def test_pairs_that_are_compared_are_both_valid() -> None:
    subject = Subject(selector(Candidate("a", lambda call: None if call.odd else "even"), spec=Bound))
    twins = TwinDomain(subject.domain, "odd")
    assert independence._differing(subject, twins, subject.chosen("a")).outcome is Outcome.IMPOSSIBLE
    assert not independence._can_differ(subject, twins, "odd")
    assert independence._can_differ(subject, TwinDomain(subject.domain, "scale"), "scale")
    free = Subject(selector(Candidate("a", even)))
    assert independence._can_differ(free, TwinDomain(free.domain, "n"), "n")


# -------------------------------------------------------------------------------------------------------- unread fields


def test_a_call_that_no_draw_meets_is_looked_for_to_ask_for_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    def rare(call: Any) -> str | None:
        return None if call.a * call.b == 1009 * 1031 and call.a > call.b > 1 else "no"

    subject = Subject(Selector(Wide, [Candidate("a", rare)]))
    calls = list(unread._served(subject, "a"))
    assert [(call.a, call.b) for call in calls] == [(1031, 1009)]
    often = Subject(selector(Candidate("a", everything)))
    assert len(list(unread._served(often, "a"))) == 16
    monkeypatch.setattr(Subject, "find", lambda *given: Witness(Outcome.IMPOSSIBLE))
    assert list(unread._served(Subject(selector(Candidate("a", never))), "a")) == []
