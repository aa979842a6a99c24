"""What is known on a path: nothing is settled that is open, and nothing is open that is settled."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from tileops_rules import expr as E
from tileops_rules.evaluating import float_holds
from tileops_rules.facts import Facts, _between, float_places
from tileops_rules.shapes import Slot

N, M = E.integer(("n",)), E.integer(("m",))
F, S = ("f",), ("s",)
SLOTS = {
    ("n",): Slot(("n",), "int", 0, 10),
    ("m",): Slot(("m",), "int", 2, 5),
    F: Slot(F, "float"),
    ("u",): Slot(("u",), "float", 0.0, 1.0),
    S: Slot(S, "str"),
}
INF, NAN = math.inf, math.nan


def facts(*learned: tuple[E.Expr, bool]) -> Facts:
    made = Facts(SLOTS)
    for question, answer in learned:
        made.learn(question, answer)
    return made


# ------------------------------------------------------------------------------------------------------------ integers


def test_what_is_settled_of_an_integer_is_what_all_its_remaining_values_say() -> None:
    questions = [q for limit in range(-1, 12) for q in (E.at_most(N, limit), E.equals(N, limit))]
    draw = random.Random(0)
    for _ in range(60):
        known, left = Facts(SLOTS), list(range(11))
        for _ in range(8):
            for question in questions:
                said = {(v <= question.data) if question.kind == "at_most" else v == question.data for v in left}
                assert known.settled(question) is (said.pop() if len(said) == 1 else None), (question, left)
            assert known.remaining(N, len(left)) == left
            assert known.remaining(N, len(left) - 1) is None
            assert known.bounds(N) == (left[0], left[-1])
            question = draw.choice([q for q in questions if known.settled(q) is None] or [E.TRUE])
            if question is E.TRUE:
                break
            answer = draw.random() < 0.5
            known.learn(question, answer)
            holds = [(v <= question.data) if question.kind == "at_most" else v == question.data for v in left]
            left = [v for v, held in zip(left, holds, strict=True) if held is answer]


def test_what_is_known_of_a_field_holds_for_sums_of_it_and_a_sum_has_limits_of_its_own() -> None:
    total = E.add(N, M)
    assert facts().bounds(total) == (2, 15)
    known = facts((E.at_most(N, 4), True))
    assert known.bounds(total) == (2, 9)
    known.learn(E.at_most(total, 7), True)
    known.learn(E.at_most(total, 3), False)
    assert known.bounds(total) == (4, 7)
    assert known.settled(E.at_most(total, 7)) is True
    assert known.settled(E.at_most(total, 3)) is False
    assert known.settled(E.equals(total, 5)) is None
    known.learn(E.at_most(N, 0), True)
    assert known.bounds(total) == (4, 5)


def test_excluded_values_at_an_end_move_it_also_later() -> None:
    known = facts((E.equals(N, 5), False), (E.equals(N, 6), False), (E.at_most(N, 4), False))
    assert known.bounds(N) == (7, 10)
    known = facts((E.equals(N, 5), False), (E.equals(N, 4), False), (E.at_most(N, 5), True))
    assert known.bounds(N) == (0, 3)


def test_an_excluded_value_that_came_to_stand_at_an_end_does_not_remain() -> None:
    total = E.add(N, M)
    for excluded, answer, left in ((7, False, range(8, 16)), (9, True, range(2, 9)), (5, False, range(7, 16))):
        known = facts((E.equals(total, excluded), False), (E.at_most(N, 4), answer))
        assert known.remaining(total, len(left)) == list(left)
        assert known.remaining(total, len(left) - 1) is None


def test_a_copy_goes_its_own_way() -> None:
    learned = [
        (E.at_most(N, 8), True),
        (E.equals(N, 3), False),
        (E.float_is(F, "<", 0.5), True),
        (E.str_is(S, "x"), False),
    ]
    more = [
        (E.at_most(N, 4), True),
        (E.equals(N, 2), False),
        (E.float_is(F, "<", 0.25), False),
        (E.str_is(S, "y"), True),
    ]
    first = facts(*learned)
    first.bounds(N)
    second = first.copy()
    for question, answer in more:
        second.learn(question, answer)
    assert [first.settled(question) for question, _ in more] == [None] * 4
    assert [second.settled(question) for question, _ in more] == [answer for _, answer in more]
    assert [second.settled(question) for question, _ in learned] == [answer for _, answer in learned]


def test_a_copy_knows_what_was_known() -> None:
    for question, answer in (
        (E.at_most(M, 4), True),
        (E.equals(M, 4), False),
        (E.float_is(F, "<", 0.5), True),
        (E.str_is(S, "x"), False),
        (E.str_is(S, "x"), True),
    ):
        copied = facts((question, answer)).copy()
        copied.learn(E.at_most(N, 4), True)
        assert copied.settled(question) is answer


# ------------------------------------------------------------------------------------------------- floats and texts

DENSE = [-INF, -2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, INF, NAN]
COMPARISONS = ("<", "<=", "==", ">=", ">")


@pytest.mark.parametrize("path", [F, ("u",)])
def test_what_is_settled_of_a_float_is_what_all_its_remaining_values_say(path: Any) -> None:
    asked = [E.float_is(path, c, limit) for c in COMPARISONS for limit in (0.0, 0.5, 1.0)]
    asked.append(E.float_is(path, "nan", 0.0))
    draw = random.Random(1)
    for _ in range(60):
        known, left = Facts(SLOTS), [v for v in DENSE if SLOTS[path].holds(v)]
        for _ in range(5):
            for question in asked:
                said = {float_holds(v, *question.data[1:]) for v in left}
                assert known.settled(question) is (said.pop() if len(said) == 1 else None), (question, left)
            question = draw.choice([q for q in asked if known.settled(q) is None] or [E.TRUE])
            if question is E.TRUE:
                break
            answer = draw.random() < 0.5
            known.learn(question, answer)
            left = [v for v in left if float_holds(v, *question.data[1:]) is answer]


def test_a_text_is_settled_by_what_it_is_and_by_what_it_is_not() -> None:
    is_x, is_y, is_z = (E.str_is(S, text) for text in "xyz")
    assert facts().settled(is_x) is None
    known = facts((is_x, False), (is_y, False))
    assert [known.settled(each) for each in (is_x, is_y, is_z)] == [False, False, None]
    known = facts((is_x, False), (is_y, True))
    assert [known.settled(each) for each in (is_x, is_y, is_z)] == [False, True, False]


def test_of_any_other_question_nothing_is_settled() -> None:
    assert facts().settled(E.conjunction([E.at_most(N, 10), E.at_most(M, 10)])) is None


@pytest.mark.parametrize(
    ("constants", "places"),
    [
        (set(), [-INF, 0.0, INF, NAN]),
        ({0.0}, [-INF, -1.0, 0.0, 1.0, INF, NAN]),
        ({0.5, 2.0}, [-INF, 0.0, 0.5, 1.25, 2.0, 3.0, INF, NAN]),
        ({-3.0}, [-INF, -4.0, -3.0, 0.0, INF, NAN]),
        ({-1.0, 1.0}, [-INF, -2.0, -1.0, 0.0, 1.0, 2.0, INF, NAN]),
        ({1.0, math.nextafter(1.0, 2.0)}, [-INF, 0.0, 1.0, math.nextafter(1.0, 2.0), 2.0, INF, NAN]),
    ],
)
def test_floats_are_tried_at_each_constant_and_between_two(constants: set[float], places: list[float]) -> None:
    assert repr(float_places(constants)) == repr(places)


LARGE = 1e300
NEXT = math.nextafter(1.0, 2.0)


@pytest.mark.parametrize(
    ("low", "high", "between"),
    [
        (-1.0, 3.0, 0.0),
        (0.0, 3.0, 1.5),
        (-3.0, 0.0, -1.5),
        (-INF, -2.0, -3.0),
        (2.0, INF, 3.0),
        (-INF, 0.0, -1.0),
        (0.0, INF, 1.0),
        (-INF, -LARGE, math.nextafter(-LARGE, -INF)),
        (LARGE, INF, math.nextafter(LARGE, INF)),
        (1e308, 1.7e308, 1.35e308),
        (1.0, math.nextafter(NEXT, 2.0), NEXT),
        (5e-324, 1.5e-323, 1e-323),
    ],
)
def test_between_two_floats_the_plainest_is_taken(low: float, high: float, between: float) -> None:
    assert _between(low, high) == between
    assert low < between < high


def test_every_two_places_are_told_apart_by_some_comparison() -> None:
    constants = {0.0, 0.5, 3.0}
    places = float_places(constants)
    answers = [tuple(float_holds(v, c, limit) for c in COMPARISONS for limit in sorted(constants)) for v in places]
    for (one, first), (two, second) in itertools.combinations(zip(places, answers, strict=True), 2):
        assert first != second or {abs(one), abs(two)} & {INF}
