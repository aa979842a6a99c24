"""Calls guessed in plain Python: what is found holds, and most of what can hold is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_rules import expr as ex
from tileops_rules.domain import domain_of
from tileops_rules.expr import conjunction, negation
from tileops_solver.boxes import Boxes
from tileops_solver.checks.reach import reach_of
from tileops_solver.codes import codes_of
from tileops_solver.engine import Outcome
from tileops_solver.guessing import _Guess, _holds, _thresholds, guessed_call, guessed_in_box
from tileops_solver.narrowing import narrow
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Whole, random_selector


def anything(call: Any) -> None:
    return None


def test_what_is_guessed_holds_and_most_of_what_can_hold_is_guessed() -> None:
    possible = found = 0
    for seed in range(60):
        whole = Whole(random_selector(seed))
        subject = Subject(whole.selector)
        draw = random.Random(seed)
        for _ in range(4):
            one, other = draw.choice(whole.keys), draw.choice(whole.keys)
            parts = [subject.valid, subject.lifted[one], negation(subject.lifted[other])]
            answer = whole.serves[one] - whole.serves[other]
            call = guessed_call(conjunction(parts), subject.domain, anything)
            possible += bool(answer)
            found += call is not None
            assert call is None or call in answer, seed
    assert possible > 50
    assert found >= 0.9 * possible


@dataclass(frozen=True)
class Call:
    rows: int = 1
    cols: int = 1
    heads: int = 1
    heads_kv: int = 1

    def invalid(self) -> str | None:
        return None if self.heads_kv > 0 and self.heads % self.heads_kv == 0 else "no groups"


def aligned(call: Call) -> str | None:
    return None if call.cols % 64 == 0 and call.cols % 128 != 0 and call.cols > 3 * call.rows else "no"


def groups(call: Call) -> str | None:
    return None if call.heads == 8 * call.heads_kv and call.rows >= 1000 else "no"


@pytest.mark.parametrize("rule", [aligned, groups])
def test_alignment_ratios_and_groups_need_no_solver(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Selector(Call, [Candidate("a", rule)]))
    monkeypatch.setattr("tileops_solver.z3_backend.load", None)
    witness = reach_of(subject).example(subject, "a")
    assert witness.outcome is Outcome.POSSIBLE
    assert rule(witness.call) is None
    assert witness.call.invalid() is None


def test_what_the_spec_rejects_is_not_guessed() -> None:
    @dataclass(frozen=True)
    class Strict:
        n: int = 0

        def __post_init__(self) -> None:
            if len(range(self.n)) < 3:
                raise ValueError("too few")

    subject = Subject(Selector(Strict, [Candidate("a", anything)]))
    assert guessed_call(subject.lifted["a"], subject.domain, anything) is None
    assert guessed_call(subject.lifted["a"], Subject(Selector(Call, [Candidate("a", anything)])).domain, str) is None


def test_a_long_search_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Selector(Call, [Candidate("a", aligned)]))
    question = conjunction([subject.valid, subject.lifted["a"]])
    assert guessed_call(question, subject.domain, anything) is not None
    monkeypatch.setattr("tileops_solver.guessing._MOST_READ", -1000)
    assert guessed_call(question, subject.domain, anything) is None


# ------------------------------------------------------------------------------------------------------ step by step


@dataclass(frozen=True)
class Sizes:
    a: Annotated[int, Range(0, 100)] = 3
    b: Annotated[int, Range(0, 100)] = 3
    c: Annotated[int, Range(-20, -5)] = -9
    kind: Literal["x", "y", "z"] = "x"


SIZES = domain_of(Sizes)
a, b, c = (ex.integer((name,)) for name in "abc")


def guess_of(*parts: ex.Expr) -> tuple[_Guess, tuple[ex.Expr, ...]]:
    expr = conjunction(parts)
    codes = codes_of(expr, SIZES, apart=True)
    known = narrow(expr, SIZES, codes)
    assert known is not None
    return _Guess(expr, codes, known), expr.args if expr.kind == "and" else (expr,)


@pytest.mark.parametrize(
    ("expr", "low", "numbers"),
    [
        (ex.at_most(a, 7), 0, [7, 8, 6, -7, -6]),
        (ex.equals(a, 3), 0, [3, 4, 2, -3, -2]),
        (ex.at_most(ex.subtract(a, ex.scale(b, 2)), -7), 0, [1, 2, -7, -6, -8, 7, 8]),
        (ex.equals(ex.mod(a, ex.constant(16)), 5), 0, [0, 16, 32, 5, 6, 4, -5, -4]),
        (ex.equals(ex.mod(a, ex.constant(16)), 5), 3, [16, 16, 32, 5, 6, 4, -5, -4]),
        (ex.equals(ex.mod(a, ex.constant(16)), 5), 32, [32, 16, 32, 5, 6, 4, -5, -4]),
        (ex.equals(ex.mod(a, ex.constant(16)), 5), -20, [-16, 16, 32, 5, 6, 4, -5, -4]),
        (ex.at_most(ex.add(ex.floordiv(a, ex.constant(4)), b), 9), 5, [8, 4, 8, 1, 1, 9, 10, 8, -9, -8]),
        (ex.at_most(ex.mod(a, b), 2), 0, [2, 3, 1, -2, -1]),
        (ex.at_most(ex.multiply(a, b), 2), 0, [2, 3, 1, -2, -1]),
        (ex.among(("kind",), ["x"]), 0, []),
    ],
    ids=str,
)
def test_numbers_at_which_an_answer_may_change(expr: ex.Expr, low: int, numbers: list[int]) -> None:
    assert list(_thresholds(expr, low)) == numbers


def test_a_search_starts_at_what_one_would_show() -> None:
    guess, _ = guess_of(ex.at_least(a, 5), ex.at_most(b, 2), ex.at_least(c, -7), ex.among(("kind",), ["y", "z"]))
    assert {path[0]: guess._start(path) for path in SIZES.slots} == {"a": 5, "b": 2, "c": -7, "kind": 1}
    guess, _ = guess_of(ex.at_least(ex.add(a, b), 1))
    assert {path[0]: guess._start(path) for path in SIZES.slots} == {"a": 3, "b": 3, "c": -9, "kind": 0}


def test_the_values_tried_are_the_ends_and_what_the_parts_speak_of() -> None:
    either = ex.disjunction([ex.equals(a, 50), ex.at_least(ex.add(a, b), 60)])
    guess, parts = guess_of(ex.at_least(a, 10), ex.at_most(a, 90), either)
    codes = {path: guess._start(path) for path in SIZES.slots}
    # 10, the lower end, is where it stands; 91 and what is negative are outside.
    assert guess._options(("a",), parts, codes) == [90, 89, 50, 51, 49, 59, 60, 58]
    assert guess._options(("a",), parts[:1], codes) == [90]
    assert guess._options(("a",), parts[:1], {**codes, ("a",): 20}) == [10, 90]
    assert guess._options(("kind",), parts, codes) == [1, 2]
    assert guess._options(("kind",), parts, {**codes, ("kind",): 1}) == [0, 2]
    assert guess._options(("c",), (), codes) == [-20, -5]


TEN, MORE = ex.at_least(ex.add(a, b), 10), ex.at_least(ex.add(a, b), 150)
OTHER = ex.disjunction([ex.among(("kind",), ["y"]), ex.at_least(c, -6)])


def moved(*parts: ex.Expr) -> Any:
    guess, failing = guess_of(*parts)
    codes = {path: guess._start(path) for path in SIZES.slots}
    values = {**codes, ("kind",): "x"}
    assert guess._failing(values, failing) == list(failing)
    return guess._moved(codes, values, list(failing))


def test_the_first_move_that_leaves_fewest_parts_failing_is_made() -> None:
    # of a the codes 0, 1, 9, 10, 8 and 100 are tried, then the same of b: 9, 10, 8 and 100 mend one part of two
    assert moved(TEN, MORE) == (("a",), 9, [MORE])
    assert moved(TEN, OTHER) == (("a",), 9, [OTHER]), "a part that a slot is not read by fails as before"
    assert moved(OTHER, TEN) == (("kind",), 1, [TEN])
    assert moved(MORE, ex.at_least(ex.add(b, c), 80)) == (("b",), 100, [MORE])
    assert moved(OTHER) == (("kind",), 1, [])
    assert moved(MORE) is None


def test_moves_go_on_until_nothing_fails() -> None:
    guess, _ = guess_of(MORE, TEN, ex.at_least(ex.subtract(a, b), 1))
    assert guess.values() is None, "no move of one slot leaves less failing"
    guess, _ = guess_of(TEN, ex.disjunction([ex.among(("kind",), ["y"]), ex.at_least(ex.add(c, a), 200)]))
    assert guess.values() == {("a",): 9, ("b",): 3, ("c",): -9, ("kind",): "y"}


@pytest.mark.parametrize(("most", "found"), [(-1, True), (-2, False)])
def test_parts_are_read_as_long_as_the_limit_is_not_passed(
    monkeypatch: pytest.MonkeyPatch, most: int, found: bool
) -> None:
    # one part is read at the start and then for 0, 1 and 9 in turn; four times one are allowed anyway
    monkeypatch.setattr("tileops_solver.guessing._MOST_READ", most)
    guess, _ = guess_of(TEN)
    assert (guess.values() is not None) is found


def test_a_part_without_an_answer_does_not_hold() -> None:
    part = ex.at_most(ex.floordiv(a, b), 5)
    assert _holds(part, {("a",): 5, ("b",): 1})
    assert not _holds(part, {("a",): 6, ("b",): 1})
    assert not _holds(part, {("a",): 6, ("b",): 0})


@dataclass(frozen=True)
class Checked:
    n: int = 0

    def __post_init__(self) -> None:
        return None


@dataclass(frozen=True)
class Changed:
    n: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", 0)


def test_a_call_that_holds_other_values_than_it_was_given_is_none() -> None:
    def guessed(spec: type, accepts: Callable[[Any], str | None] = anything) -> Any:
        return guessed_call(ex.at_least(ex.integer(("n",)), 5), domain_of(spec), accepts)

    assert guessed(Checked) == Checked(5)
    assert guessed(Changed) is None
    assert guessed(Checked, lambda call: "refused" if call.n == 5 else None) is None
    asked = []
    assert guessed(Checked, asked.append) == Checked(5)
    assert asked == [Checked(5)]
    assert guessed_call(ex.FALSE, SIZES, anything) is None


def test_a_guess_in_a_box_is_valid_and_claimed() -> None:
    valid = ex.equals(ex.mod(a, ex.constant(7)), 0)
    boxes = Boxes(SIZES, valid, {"some": TEN, "none": ex.at_least(a, 101)})
    assert guessed_in_box(boxes, "some", SIZES, anything) == Sizes(a=7)
    assert guessed_in_box(boxes, "none", SIZES, anything) is None
    assert guess_of(TEN, OTHER)[0]._left == 2_000 + 4 * 2
