"""One side of a comparison, who is compared with whom, and how what was found is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Candidate, OneOf, Predicate, Range, Selector
from tileops_rules.expr import FALSE, TRUE, at_most, conjunction, floordiv, integer, negation
from tileops_solver import InconsistencyError
from tileops_solver.diffing.changes import Change, Differences, InterfaceChanges
from tileops_solver.diffing.choices import NOBODY, TIE, Side, fails, holds
from tileops_solver.diffing.comparing import differences
from tileops_solver.diffing.live import CannotBuild, chosen_by_methods, real_call
from tileops_solver.diffing.one_interface import Comparison, _kind

from tests.solver.test_diff import GENERAL, Call, every, narrow, selector, snapshot, spec, strange, told


def at_least(limit: int) -> Any:
    return lambda call: None if call.n >= limit else "few"


def below(limit: int) -> Any:
    return lambda call: None if call.n < limit else "many"


def named(found: Differences) -> list[tuple[str, str | None, str | None]]:
    return [(each.kind, each.old, each.new) for each in found.changes]


def compared(old: Selector, new: Selector) -> Differences:
    return differences(snapshot(old), snapshot(new))


# -------------------------------------------------------------------------------------------------------- as it is told

FOUND = Differences(
    (
        InterfaceChanges("A", "quiet", notes=("n ranges over more",)),
        InterfaceChanges(
            "B",
            "job",
            (Change("moved", "a", "b", "n == 3", Call(n=3)), Change("added", None, "c")),
            ("m is a new field",),
            ("what d serves",),
        ),
        InterfaceChanges("C", "job", undecided=("why",)),
        InterfaceChanges("D", "job", (Change("declared unserved", None, None, "n == 4"),)),
    )
)


def test_differences_are_told_line_by_line_and_without_what_is_the_same() -> None:
    assert str(FOUND) == (
        "B.job\n  moved: a -> b\n    where n == 3\n    as in Call(n=3, m=1, kind='x')\n  added: c\n"
        "  note: m is a new field\n  undecided: what d serves\n\n"
        "C.job\n  undecided: why\n\n"
        "D.job\n  declared unserved\n    where n == 4\n\n"
        "interfaces: 4, changed: 2\nchanges: 3\nundecided: 2"
    )
    assert (len(FOUND.changes), FOUND.undecided, FOUND.same) == (3, 2, False)


def test_differences_as_plain_values_hold_everything() -> None:
    empty: dict[str, Any] = {"changes": [], "notes": [], "undecided": []}
    call = {"call": "Call(n=3, m=1, kind='x')", "fields": {"n": 3, "m": 1, "kind": "x"}}
    moved = {"kind": "moved", "old": "a", "new": "b", "region": "n == 3", "witness": call}
    added = {"kind": "added", "old": None, "new": "c", "region": "", "witness": None}
    gone = {"kind": "declared unserved", "old": None, "new": None, "region": "n == 4", "witness": None}
    assert FOUND.as_json() == {
        "interfaces": [
            {"op": "A", "interface": "quiet", **empty, "notes": ["n ranges over more"]},
            {
                "op": "B",
                "interface": "job",
                "changes": [moved, added],
                "notes": ["m is a new field"],
                "undecided": ["what d serves"],
            },
            {"op": "C", "interface": "job", **empty, "undecided": ["why"]},
            {"op": "D", "interface": "job", **empty, "changes": [gone]},
        ],
        "totals": {"interfaces": 4, "changes": 3, "undecided": 2},
    }


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("renamed interface", "A.a", "B.a"), "renamed interface: A.a -> B.a"),
        (Change("renamed", "a", "b"), "renamed: a -> b"),
        (Change("moved", "a", "b"), "moved: a -> b"),
        (Change("newly served", NOBODY, "b"), "newly served: (nobody) -> b"),
        (Change("newly unserved", "a", NOBODY), "newly unserved: a -> (nobody)"),
        (Change("newly tied", "a", TIE), "newly tied: a -> (a tie)"),
        (Change("no longer tied", TIE, "a"), "no longer tied: (a tie) -> a"),
        (Change("removed interface", "A.a", None), "removed interface: A.a"),
        (Change("removed", "a", None), "removed: a"),
        (Change("added", None, "b"), "added: b"),
        (Change("widened", "a", "b"), "widened: b"),
        (Change("newly dead", "a", "b", "n == 1"), "newly dead: b\n    where n == 1"),
        (Change("no longer declared unserved", None, None), "no longer declared unserved"),
    ],
)
def test_a_change_is_told_from_what_to_what_where_there_are_two(change: Change, text: str) -> None:
    assert str(change) == text


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ("a", "b", "moved"),
        ("a", NOBODY, "newly unserved"),
        (NOBODY, "a", "newly served"),
        ("a", TIE, "newly tied"),
        (NOBODY, TIE, "newly tied"),
        (TIE, "a", "no longer tied"),
        (TIE, NOBODY, "no longer tied"),
    ],
)
def test_the_kind_of_a_change_is_that_of_the_two_choices(before: str, now: str, kind: str) -> None:
    assert _kind(before, now) == kind


# --------------------------------------------------------------------------------------------------------------- a side


def side(made: Selector, **names: str) -> Side:
    return Side(made, TRUE, {key: names.get(key, key) for key in made.keys})


TABLE: dict[str, Any] = {
    "a": (below(10), {"preferred_over": ["b"]}),
    "b": (below(20), {"preferred_over": ["c"]}),
    "c": (at_least(5), {}),
    "d": (at_least(15), {}),
    "rest": (lambda call: None if call.n != 30 else "no", {"general": True}),
}


def test_a_side_chooses_as_its_methods_do() -> None:
    made = selector(**TABLE)
    mine = side(made)
    assert mine.choices == ("a", "b", "c", "d", "rest", NOBODY, TIE)
    assert mine.order("a") == ({"b", "c", "rest"}, set())
    assert mine.order("b") == ({"c", "rest"}, {"a"})
    assert mine.order("d") == ({"rest"}, set())
    assert mine.order("rest") == (set(), {"a", "b", "c", "d"})
    for n in range(41):
        call = Call(n=n)
        by_hand = "a" if n < 10 else "b" if n < 15 else TIE
        assert mine.choice_at(made.domain.read(call)) == chosen_by_methods(made, call) == by_hand
    none = selector(a=below(5))
    assert chosen_by_methods(none, Call(n=7)) == NOBODY == side(none).choice_at(none.domain.read(Call(n=7)))


def test_a_side_knows_its_implementations_by_the_names_of_the_comparison() -> None:
    made = selector(**TABLE)
    mine = side(made, a="z")
    assert mine.keys == ("z", "b", "c", "d", "rest")
    assert (mine.own("z"), mine.own("b"), mine.own(NOBODY)) == ("a", "b", NOBODY)
    assert mine.order("z") == ({"b", "c", "rest"}, set())
    assert mine.serves("z") is made.rules["a"].serves.expr
    few = mine.only(["z", "c"])
    assert few.keys == ("z", "c")
    assert few.choice_at(made.domain.read(Call(n=12))) == "c"
    assert mine.choice_at(made.domain.read(Call(n=12))) == "b"


def test_of_a_call_that_a_side_does_not_have_or_that_is_not_valid_nobody_is_chosen() -> None:
    @dataclass(frozen=True)
    class Limited:
        n: Annotated[int, Range(0, 40)] = 1

        def invalid(self) -> str | None:
            return "seven" if self.n == 7 else None

    def unserved(call: Any) -> str | None:
        return "large" if call.n >= 30 else None

    made = Selector(Limited, [Candidate("a", below(9)), Candidate("odd", strange)], unserved=unserved)
    whole = Side(made, at_most(integer(("n",)), 35), {"a": "a", "odd": "odd"})
    for mine in (whole, whole.only(["a"])):
        assert mine.inside is whole.inside
        holding = {
            name: [n for n in range(41) if holds(expr, {("n",): n})]
            for name, expr in {
                "valid": mine.valid,
                "a": mine.serves("a"),
                "odd": mine.may_serve("odd"),
                "declared": mine.declared,
            }.items()
            if expr is not None
        }
        there = [n for n in range(36) if n != 7]
        assert holding == {"valid": there, "a": [*range(7), 8], "odd": there, "declared": [*range(30, 36)]}
    assert whole.only(["a"]).choice_at({("n",): 7}) == NOBODY == whole.only(["a"]).choice_at({("n",): 36})


def test_of_a_rule_that_was_not_lifted_a_side_knows_where_it_may_serve() -> None:
    made = selector(a=(below(10), {}), odd=(strange, {"preferred_over": ["b"]}), b=(at_least(20), {}))
    mine = side(made)
    assert mine.unlifted == ("odd",)
    assert mine.serves("odd") is None
    assert mine.may_serve("odd") is TRUE
    assert mine.chosen("odd") is FALSE
    assert mine.choice_at(made.domain.read(Call(n=25))) is None
    beaten = selector(a=(below(10), {"preferred_over": ["odd"]}), odd=(strange, {}))
    assert side(beaten).choice_at(beaten.domain.read(Call(n=5))) == "a"
    assert side(beaten).choice_at(beaten.domain.read(Call(n=15))) is None


def test_what_is_declared_is_valid_and_known() -> None:
    def picky(call: Any) -> str | None:
        return "even more" if call.n > 50 else None

    def declaring(unserved: Any) -> Side:
        return side(Selector(Call, [Candidate("a", below(10))], op="Op", interface="job", unserved=unserved))

    assert side(selector(a=below(10))).declared is FALSE
    assert declaring(strange).declared is None
    declared = declaring(picky).declared
    assert declared is not None
    assert [Predicate(selector().domain, declared)(Call(n=n)) for n in (50, 51)] == [False, True]


def test_a_question_that_divides_by_zero_does_not_hold_and_a_negation_leaves_out_what_is_known() -> None:
    n = integer(("n",))
    divided = at_most(floordiv(integer(("m",)), n), 3)
    assert [holds(divided, {("n",): each, ("m",): 7}) for each in (0, 1, 2)] == [False, False, True]
    low, high, more = at_most(n, 3), negation(at_most(n, 1)), at_most(n, 2)
    assert fails(conjunction([low, high]), low) is negation(high)
    assert fails(conjunction([low, high]), conjunction([low, more])) is negation(high)
    assert fails(low, low) is FALSE
    assert fails(more, low) is negation(more)


# ----------------------------------------------------------------------------------------------- who is whose successor


def rewritten(call: Any) -> str | None:
    """As ``narrow``, in other words."""
    return "other" if call.kind == "y" or not 3 * call.n < 27 else None


def squared(call: Any) -> str | None:
    """As ``narrow``, in words that only a proof takes for the same."""
    return None if call.kind == "x" and call.n * call.n <= 80 else "other"


def test_a_rename_is_one_for_one_and_found_in_other_words_too() -> None:
    old = selector(narrow=narrow, rest=GENERAL)
    for same in (rewritten, squared):
        new = selector(slim=same, rest=GENERAL)
        assert told(compared(old, new)) == [("renamed", "narrow", "slim", "")]
        assert told(compared(new, old)) == [("renamed", "slim", "narrow", "")]
    for other in (
        lambda call: rewritten(call) or ("m" if call.m > 9 else None),
        lambda call: None if call.n <= 8 else 1,
    ):
        found = named(compared(old, selector(slim=other, rest=GENERAL)))
        assert [each for each in found if each[0] in ("added", "removed", "renamed")] == [
            ("added", None, "slim"),
            ("removed", "narrow", None),
        ]
    two = selector(first=(narrow, {"preferred_over": ["second"]}), second=narrow)
    assert named(compared(two, selector(slim=narrow))) == [("removed", "second", None), ("renamed", "first", "slim")]
    assert named(compared(selector(slim=narrow), two)) == [("added", None, "second"), ("renamed", "slim", "first")]


def test_a_rule_that_was_not_lifted_is_renamed_to_nothing_and_its_coming_and_going_is_said() -> None:
    old, new = selector(odd=strange, rest=GENERAL), selector(even=strange, rest=GENERAL)
    found = compared(old, new)
    assert told(found) == [("added", None, "even", ""), ("removed", "odd", None, "")]
    assert [each.split(": its rule was not lifted ")[0] for each in found.interfaces[0].undecided] == [
        "what odd serves",
        "what even serves",
    ]
    assert ": its rule was not lifted before: " in found.interfaces[0].undecided[0]
    assert ": its rule was not lifted now: " in found.interfaces[0].undecided[1]
    known = compared(selector(odd=strange), selector(even=every))
    assert [each[:3] for each in told(known)] == [("added", None, "even"), ("removed", "odd", None)]


def test_a_declaration_that_was_not_lifted_is_said() -> None:
    made = Selector(Call, [Candidate("a", narrow)], op="Op", interface="job", unserved=strange)
    before, now = compared(made, selector(a=narrow)), compared(selector(a=narrow), made)
    for found, when in ((before, "before"), (now, "now")):
        (said,) = found.interfaces[0].undecided
        assert said.startswith(f"which calls are declared unserved: that was not lifted {when}: ")


@pytest.mark.parametrize("reads", ["refusal", "unserved", "neither"])
def test_a_field_of_another_kind_cannot_be_asked_about_where_any_rule_of_before_reads_it(reads: str) -> None:
    def by_field(call: Any) -> str | None:
        return "other" if call.f == 3 else None

    def made(field: Any) -> Selector:
        rule = by_field if reads == "refusal" else every
        unserved = by_field if reads == "unserved" else None
        return Selector(field, [Candidate("a", rule)], op="Op", interface="job", unserved=unserved)

    old, new = made(spec(f=(Literal[1, 2, 3], 1))), made(spec(f=(Annotated[int, Range(0, 9)], 1)))
    (said,) = compared(old, new).interfaces[0].undecided
    if reads == "neither":
        assert said.startswith("f is of another kind than before: whether calls that could hold another value there ")
    else:
        assert said == ("f is of another kind than before: the rules of before cannot be asked about calls of now")


# ---------------------------------------------------------------------------------------------------- what is looked at


def comparison(count: int) -> Comparison:
    made = selector(**{f"k{i:02}": (lambda call, i=i: None if call.n // 5 == i else "no") for i in range(count)})
    (found,) = snapshot(made).values()
    return Comparison(found, found)


@pytest.mark.parametrize(("count", "all_of_them"), [(11, True), (12, True), (13, False)])
def test_a_few_implementations_are_all_looked_at_and_of_more_those_that_meet_the_changed(
    count: int, all_of_them: bool
) -> None:
    looked_at, there = comparison(count)._near(["k03"])
    if all_of_them:
        assert looked_at == [f"k{i:02}" for i in range(count)]
        assert there is TRUE
    else:
        assert looked_at == ["k03"]
        assert there is not TRUE


@pytest.mark.parametrize("now", [None, "narrow"])
def test_a_choice_that_is_found_to_change_and_does_not_is_our_inconsistency(
    now: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Side, "choice_at", lambda self, values: now)
    with pytest.raises(InconsistencyError, match="a call was found whose choice changed") as caught:
        compared(selector(narrow=narrow, rest=GENERAL), selector(narrow=below(3), rest=GENERAL))
    assert caught.value.facts == ("before: narrow", f"now: {now}")
    assert caught.value.call is not None


# ----------------------------------------------------------------------------------------------------- the real methods


def test_methods_choose_one_nobody_or_a_tie_and_nobody_for_a_call_that_is_none() -> None:
    @dataclass(frozen=True)
    class Limited:
        n: Annotated[int, Range(0, 9)] = 1

        def invalid(self) -> str | None:
            return "seven" if self.n == 7 else None

    made = Selector(
        Limited,
        [Candidate("a", below(5)), Candidate("b", below(3)), Candidate("c", at_least(7)), Candidate("d", below(2))],
    )
    said = {n: chosen_by_methods(made, Limited(n)) for n in (1, 2, 4, 5, 7, 8, 11)}
    assert said == {1: TIE, 2: TIE, 4: "a", 5: NOBODY, 7: NOBODY, 8: "c", 11: NOBODY}


def test_a_recorded_call_is_built_of_its_own_class_or_it_is_said_why_not() -> None:
    @dataclass(frozen=True)
    class Picky:
        n: Annotated[int, Range(0, 9)] = 1
        width: Annotated[int, OneOf(8, 16)] = 8
        kind: Literal["x", "y"] = "x"
        scale: float = 1.0

        def __post_init__(self) -> None:
            if self.n == 3:
                raise ValueError("three")
            if self.n == 4:
                object.__setattr__(self, "n", 5)
            if self.n == 6:
                object.__setattr__(self, "n", 60)

    made = Selector(Picky, [])

    def built(**values: Any) -> Any:
        return real_call(made, {(name,): value for name, value in values.items()})

    whole = {"n": 2, "width": 16, "kind": "y", "scale": 2.0}
    assert built(**whole) == Picky(2, 16, "y", 2.0)
    nan = built(**{**whole, "scale": float("nan")})
    assert nan.scale != nan.scale
    for wrong, said in (
        ({"width": 32}, "width is never 32"),
        ({"kind": "z"}, "kind is never 'z'"),
        ({"n": 3}, "Picky raised ValueError: three"),
        ({"n": 4}, "Picky changed the values it was given"),
        ({"n": 6}, "Picky holds 60 in n"),
    ):
        with pytest.raises(CannotBuild) as caught:
            built(**{**whole, **wrong})
        assert str(caught.value) == said


# ----------------------------------------------------------------------------------------------------- rules that raise


def test_a_call_on_which_a_rule_begins_to_raise_is_a_change_though_another_serves_it() -> None:
    @dataclass(frozen=True)
    class Shared:
        n: Annotated[int, Range(0, 100)] = 1
        m: Annotated[int, Range(0, 100)] = 1

    def before(call: Any) -> str | None:
        return "many" if call.n > 50 else None

    def divided(call: Any) -> str | None:
        return "many" if call.n > 50 and call.n // call.m >= 0 else None

    old, new = (
        Selector(Shared, [Candidate("a", rule), Candidate("b", every, general=True)], op="Op", interface="job")
        for rule in (before, divided)
    )
    assert new.select(Shared(60, 1)) == old.select(Shared(60, 0)) == "b"
    with pytest.raises(RuntimeError):
        new.select(Shared(60, 0))
    for one, other, kind in ((old, new, "newly raising"), (new, old, "no longer raising")):
        (change,) = compared(one, other).changes
        assert (change.kind, change.old, change.new) == (kind, None, None)
        assert (change.witness.n, change.witness.m) == (51, 0)
        assert change.region == "m == 0 & n >= 51"
    assert compared(new, new).same
