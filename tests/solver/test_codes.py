"""Codes stand for every class of values that a question can tell apart; definedness and narrowing by brute force."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Range
from tileops_rules import expr as ex
from tileops_rules.bounds import bounds_of
from tileops_rules.domain import Domain, domain_of
from tileops_rules.evaluating import evaluate
from tileops_solver.codes import Codes, codes_of
from tileops_solver.definite import definitely
from tileops_solver.encode import Cost, beyond_ranges, bits_cost, code_range
from tileops_solver.narrowing import Narrowed, SlotBounds, narrow

FLOATS = [-math.inf, -1e9, -2.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 1e9, math.inf, math.nan]


@dataclass(frozen=True)
class Call:
    n: int = 3
    low: Annotated[int, Range(2, 9)] = 2
    kind: Literal["x", "y", "z"] = "y"
    ratio: float = 0.5
    part: Annotated[float, Range(0.5, 1.5)] = 0.75
    above: Annotated[float, Range(lo=1.0)] = 0.0
    name: str = "plain"
    unnamed: str = None  # type: ignore[assignment]


DOMAIN = domain_of(Call)


def one(expr: ex.Expr, name: str, *, apart: bool = False) -> Codes:
    return codes_of(expr, DOMAIN, apart)[(name,)]


def test_an_integer_stands_for_itself() -> None:
    codes = one(ex.at_most(ex.integer(("low",)), 5), "low")
    assert (codes.lo, codes.hi, codes.preferred, codes.values) == (2, 9, 2, ())
    assert codes.value(7) == 7
    assert one(ex.at_most(ex.integer(("n",)), 5), "n").preferred == 3


def test_values_that_no_question_tells_apart_share_a_code_and_the_first_is_shown() -> None:
    codes = one(ex.among(("kind",), ["x", "z"]), "kind")
    assert (codes.lo, codes.hi, codes.preferred, codes.values) == (0, 1, 0, ("y", "x"))
    assert one(ex.among(("kind",), ["x", "z"]), "kind", apart=True).values == ("y", "x", "z")
    both = ex.conjunction([ex.among(("kind",), ["x"]), ex.negation(ex.among(("kind",), ["y", "x"]))])
    codes = one(both, "kind")
    assert codes.values == ("y", "x", "z")
    assert {str(atom): sorted(codes.holding[atom]) for atom in codes.holding} == {
        "kind == 'x'": [1],
        "kind in ('x', 'y')": [0, 1],
    }


def test_floats_stand_for_every_place_between_the_constants_plainest_first() -> None:
    codes = one(ex.float_is(("ratio",), "<", 1.0), "ratio")
    assert codes.values == (0.5, 1.0)
    codes = one(ex.disjunction([ex.float_is(("ratio",), c, 1.0) for c in ("<", "==", "nan")]), "ratio")
    assert codes.values[:3] == (0.5, 1.0, 2.0)
    assert math.isnan(codes.values[3])
    assert (codes.hi, codes.preferred) == (3, 0)
    assert one(ex.float_is(("above",), ">", 0.0), "above").values == (1.0,), "its default is outside its domain"
    assert one(ex.float_is(("above",), ">", 5.0), "above").values == (1.0, 6.0)
    within = one(ex.disjunction([ex.float_is(("part",), c, 1.0) for c in ("<", "==", ">")]), "part").values
    assert within == (0.75, 1.0, math.nextafter(1.5, 0.0)) or within == (0.75, 1.0, 1.25)


@pytest.mark.parametrize("seed", range(40))
def test_every_value_has_the_answers_of_some_code(seed: int) -> None:
    draw = random.Random(seed)
    name = draw.choice(["ratio", "part", "above", "name", "kind"])
    atoms: list[ex.Expr] = []
    for _ in range(draw.randint(1, 4)):
        if name == "name":
            atoms.append(ex.str_is((name,), draw.choice(["", "plain", "other1", "x"])))
        elif name == "kind":
            atoms.append(ex.among((name,), draw.sample("xyz", draw.randint(1, 2))))
        else:
            limit = draw.choice([0.0, 0.5, 1.0, 2.0])
            atoms.append(ex.float_is((name,), draw.choice(["<", "<=", "==", ">=", ">", "nan"]), limit))
    codes = codes_of(ex.disjunction(atoms), DOMAIN)[(name,)]
    assert codes.lo == codes.preferred == 0
    assert codes.hi == len(codes.values) - 1
    slot = DOMAIN.slots[(name,)]
    for code, value in enumerate(codes.values):
        assert slot.holds(value)
        assert codes.value(code) is value
        for atom, yes in codes.holding.items():
            assert evaluate(atom, {(name,): value}) is (code in yes)
    answers = [tuple(evaluate(atom, {(name,): value}) for atom in codes.holding) for value in codes.values]
    assert len(set(answers)) == len(answers)
    tried = {"name": ["", "plain", "other1", "other2", "x", "y"], "kind": list("xyz")}.get(name, FLOATS)
    for value in tried:
        if slot.holds(value):
            assert tuple(evaluate(atom, {(name,): value}) for atom in codes.holding) in answers


def test_a_text_that_is_none_of_the_constants_is_found() -> None:
    texts = ["", "other1", "other2"]
    codes = one(ex.disjunction([ex.str_is(("unnamed",), text) for text in texts]), "unnamed")
    assert codes.values == ("", "other1", "other2", "other3")
    assert one(ex.str_is(("unnamed",), "x"), "unnamed").values == ("x", "")
    assert one(ex.str_is(("name",), "x"), "name").values == ("plain", "x")


def test_slots_come_in_the_order_of_the_call_and_only_those_that_are_read() -> None:
    question = ex.conjunction([ex.str_is(("name",), "x"), ex.at_most(ex.integer(("n",)), 3)])
    assert list(codes_of(question, DOMAIN)) == [("n",), ("name",)]
    assert list(codes_of(question, DOMAIN, apart=True)) == list(DOMAIN.slots)


# ------------------------------------------------------------------------------------------------------ definedness


@dataclass(frozen=True)
class Inner:
    depth: Annotated[int, Range(0, 2)] = 1


@dataclass(frozen=True)
class Partly:
    a: Annotated[int, Range(-2, 2)] = 1
    b: Annotated[int, Range(-2, 2)] = 0
    window: Annotated[int, Range(0, 2)] | None = None
    shape: tuple[Annotated[int, Range(0, 1)], ...] = ()
    inner: Inner | None = None
    pair: tuple[Annotated[int, Range(0, 1)], bool] = (0, True)


PARTLY = domain_of(Partly)


def question_of(draw: random.Random, depth: int = 3) -> ex.Expr:
    if depth and draw.random() < 0.6:
        parts = [question_of(draw, depth - 1) for _ in range(draw.randint(1, 3))]
        return draw.choice([ex.conjunction, ex.disjunction, lambda each: ex.negation(each[0])])(parts)
    a, b = ex.integer(("a",)), ex.integer(("b",))
    number = draw.choice(
        [
            a,
            ex.floordiv(a, b),
            ex.mod(a, b),
            ex.floordiv(a, ex.constant(2)),
            ex.mod(a, ex.constant(2)),
            ex.absolute(ex.floordiv(b, a)),
            ex.integer(("window",)),
            ex.integer(("shape", 0)),
            ex.add(ex.integer(("shape", 1)), a),
            ex.integer(("inner", "depth")),
            ex.integer(("pair", 0)),
        ]
    )
    return draw.choice([ex.at_most, ex.equals])(number, draw.randint(-2, 2))


def calls() -> list[Any]:
    numbers = list(itertools.product((-2, -1, 0, 2), repeat=2))
    more = list(itertools.product((None, 0, 2), ((), (1,), (0, 1), (1, 0, 1)), (None, Inner(0), Inner(2))))
    draw = random.Random(0)
    return [Partly(a, b, *draw.choice(more), (draw.randint(0, 1), True)) for a, b in numbers for _ in range(9)]


def test_a_question_holds_definitely_exactly_where_its_answer_is_yes() -> None:
    every = [PARTLY.read(call) for call in calls()]
    changed = 0
    for seed in range(300):
        question = question_of(random.Random(seed))
        definite = definitely(question, PARTLY)
        changed += definite is not question
        for values in every:
            try:
                expected = evaluate(question, values)
            except ZeroDivisionError:
                expected = False
            try:
                found = evaluate(definite, values)
            except ZeroDivisionError:
                found = False
            assert found is expected, (seed, str(question), values)
    assert changed > 100


def test_a_question_that_always_has_an_answer_stays_as_it_is() -> None:
    a = ex.integer(("a",))
    for question in (
        ex.at_most(ex.floordiv(a, ex.constant(2)), 1),
        ex.at_most(ex.mod(a, ex.constant(3)), 1),
        ex.equals(ex.mod(ex.integer(("b",)), ex.constant(-2)), 1),
        ex.among(("window", "type"), ["None"]),
        ex.among(("shape", "len"), [1]),
        ex.equals(ex.integer(("pair", 0)), 1),
    ):
        assert definitely(question, PARTLY) is question
    by_b = ex.at_most(ex.floordiv(a, ex.integer(("b",))), 1)
    assert str(definitely(by_b, PARTLY)) == "b != 0 & a // b <= 1"
    assert str(definitely(ex.negation(by_b), PARTLY)) == "b != 0 & a // b >= 2"
    second = ex.equals(ex.integer(("shape", 1)), 1)
    assert str(definitely(second, PARTLY)) == "shape.len in (2, 3, 4, 5, 6, 7, 8) & shape[1] == 1"
    last = ex.equals(ex.integer(("shape", 7)), 1)
    assert str(definitely(last, PARTLY)) == "shape.len == 8 & shape[7] == 1"
    window = ex.equals(ex.integer(("window",)), 1)
    assert str(definitely(window, PARTLY)) == "window.type == 'int' & window == 1"
    depth = ex.equals(ex.integer(("inner", "depth")), 1)
    assert str(definitely(depth, PARTLY)) == "inner.type == 'Inner' & inner.depth == 1"


# --------------------------------------------------------------------------------------------------- what is known


def known_of(*parts: ex.Expr) -> Narrowed:
    question = ex.conjunction(parts)
    known = narrow(question, DOMAIN, codes_of(question, DOMAIN))
    assert known is not None
    return known


n, low = ex.integer(("n",)), ex.integer(("low",))


def test_limits_of_a_slot_and_of_a_sum_are_kept_apart() -> None:
    known = known_of(ex.at_most(n, 20), ex.at_least(n, 4), ex.at_most(ex.add(n, low), 9))
    assert known.slot_limits(("n",)) == (4, 20)
    assert known.bounds(n) == (4, 20)
    assert known.bounds(ex.add(n, low)) == (6, 9)
    bounds = SlotBounds(known)
    assert bounds(ex.add(n, low)) == (6, 29)
    assert bounds(ex.multiply(n, low)) == (8, 180)
    assert known.slot_limits(("low",)) == (2, 9)


def test_an_end_that_is_left_out_moves_by_one() -> None:
    assert known_of(ex.negation(ex.equals(low, 2))).slot_limits(("low",)) == (3, 9)
    assert known_of(ex.negation(ex.equals(low, 9))).slot_limits(("low",)) == (2, 8)
    assert known_of(ex.negation(ex.equals(low, 5))).slot_limits(("low",)) == (2, 9)
    assert known_of(ex.equals(low, 5)).slot_limits(("low",)) == (5, 5)
    assert known_of(ex.negation(ex.at_most(low, 5))).slot_limits(("low",)) == (6, 9)


def test_alternatives_leave_what_all_of_them_allow() -> None:
    x, z = ex.among(("kind",), ["x"]), ex.among(("kind",), ["z"])
    either = ex.disjunction([ex.conjunction([ex.equals(low, 3), x]), ex.conjunction([ex.equals(low, 7), z])])
    known = known_of(either)
    assert known.slot_limits(("low",)) == (3, 7)
    codes = codes_of(either, DOMAIN)[("kind",)]
    assert {codes.values[code] for code in known.codes[("kind",)]} == {"x", "z"}
    known = known_of(either, ex.at_most(low, 5))
    assert known.slot_limits(("low",)) == (3, 3)
    assert {codes.values[code] for code in known.codes[("kind",)]} == {"x"}
    assert known_of(ex.disjunction([ex.equals(low, 3), ex.at_most(n, 5)])).slot_limits(("low",)) == (2, 9)


def test_what_an_alternative_leaves_narrows_the_ones_before_it() -> None:
    first = ex.disjunction([ex.equals(low, 3), ex.conjunction([ex.equals(low, 7), ex.at_most(n, 4)])])
    second = ex.disjunction([ex.at_least(low, 6), ex.conjunction([ex.equals(low, 5), ex.at_most(n, 2)])])
    assert known_of(first, second).slot_limits(("low",)) == (7, 7)
    assert known_of(first, second).slot_limits(("n",)) == (0, 4)


def test_a_copy_is_narrowed_on_its_own() -> None:
    known = known_of(ex.at_most(low, 5), ex.among(("kind",), ["x", "y"]))
    copy = known.copy()
    assert copy.limit(low, 4, None)
    assert not copy.limit(low, None, 3)
    assert copy.allow(("kind",), frozenset({0}))
    assert not copy.allow(("kind",), frozenset({1}))
    assert known.slot_limits(("low",)) == (2, 5)
    assert known.codes != copy.codes
    assert known.limit(low, 5, 5)
    assert known.limit(low, None, None)
    assert known.consistent()


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        (ex.at_most(low, 9), True),
        (ex.at_most(low, 8), False),
        (ex.negation(ex.at_most(low, 1)), True),
        (ex.negation(ex.at_most(low, 2)), False),
        (ex.equals(low, 9), False),
        (ex.equals(low, 2), False),
        (ex.negation(ex.equals(low, 10)), True),
        (ex.negation(ex.equals(low, 1)), True),
        (ex.negation(ex.equals(low, 2)), False),
        (ex.negation(ex.equals(low, 9)), False),
        (ex.at_most(ex.add(low, n), 9), False),
        (ex.among(("kind",), ["x", "y", "z"]), True),
        (ex.among(("kind",), ["x", "y"]), False),
        (ex.negation(ex.among(("kind",), ["x", "y"])), False),
    ],
    ids=str,
)
def test_what_holds_wherever_slots_are_in_their_ranges_is_left_out_and_nothing_else(
    question: ex.Expr, holds: bool
) -> None:
    beside = ex.at_most(n, 7)
    codes = codes_of(ex.conjunction([question, beside, ex.negation(ex.equals(low, 4))]), DOMAIN)
    known = narrow(ex.TRUE, DOMAIN, codes)
    assert known is not None
    assert beyond_ranges(question, codes, known) is (ex.TRUE if holds else question)
    both = beyond_ranges(ex.conjunction([question, beside]), codes, known)
    assert both is (beside if holds else ex.conjunction([question, beside]))
    alone = narrow(ex.equals(low, 5), DOMAIN, codes)
    assert alone is not None
    assert beyond_ranges(ex.equals(low, 5), codes, alone) is ex.TRUE


# --------------------------------------------------------------------------------------------- width and arithmetic


def cost_of(question: ex.Expr, domain: Domain = DOMAIN) -> Cost:
    codes = codes_of(question, domain)
    known = narrow(question, domain, codes)
    assert known is not None
    return bits_cost(question, known, codes)


@dataclass(frozen=True)
class Small:
    a: Annotated[int, Range(0, 7)] = 0
    b: Annotated[int, Range(0, 100)] = 0
    c: Annotated[int, Range(-16, 7)] = 0


SMALL = domain_of(Small)
a, b, c = (ex.integer((name,)) for name in "abc")


@pytest.mark.parametrize(
    ("question", "width", "operations", "additions"),
    [
        (ex.at_most(a, 3), 3, 0, 0),  # the question itself cuts the range of a to 0..3
        (ex.negation(ex.equals(a, 3)), 4, 0, 0),
        (ex.negation(ex.equals(c, 3)), 6, 0, 0),  # five would do for -16..7; a bit to spare
        (ex.negation(ex.equals(b, 64)), 8, 0, 0),
        (ex.negation(ex.equals(ex.add(a, b), 64)), 8, 0, 0),
        (ex.negation(ex.equals(ex.add(ex.scale(a, 6), b), 64)), 9, 0, 1),
        (ex.negation(ex.equals(ex.add(ex.scale(a, -7), b), 64)), 8, 0, 2),
        (ex.negation(ex.equals(ex.multiply(a, b), 64)), 11, 1, 0),
        (ex.negation(ex.equals(ex.multiply(ex.multiply(a, b), c), 64)), 15, 2, 0),  # -11200 at the smallest
        (ex.negation(ex.equals(ex.mod(b, ex.constant(16)), 1)), 8, 0, 0),
        (ex.negation(ex.equals(ex.mod(b, ex.constant(10)), 1)), 8, 1, 0),
        (ex.negation(ex.equals(ex.floordiv(b, c), 1)), 8, 2, 0),
        (ex.negation(ex.equals(ex.floordiv(b, ex.add(a, ex.constant(1))), 1)), 8, 2, 0),
        (ex.negation(ex.equals(ex.bit_length(b), 1)), 9, 0, 0),
    ],
    ids=str,
)
def test_the_width_and_the_arithmetic_are_those_counted_by_hand(
    question: ex.Expr, width: int, operations: int, additions: int
) -> None:
    cost = cost_of(question, SMALL)
    assert (cost.operations, cost.additions) == (operations, additions)
    assert cost.width == width
    assert cost.gates == operations * width**2 + additions * width


def test_the_range_of_a_slot_is_what_the_question_leaves() -> None:
    question = ex.conjunction([ex.at_most(a, 3), ex.negation(ex.at_most(a, 0))])
    codes = codes_of(question, SMALL)
    known = narrow(question, SMALL, codes)
    assert known is not None
    assert code_range(("a",), codes[("a",)], known) == (1, 3)
    kinds = ex.conjunction([ex.negation(ex.among(("kind",), ["y"])), ex.among(("kind",), ["x", "y"])])
    codes = codes_of(kinds, DOMAIN)
    known = narrow(kinds, DOMAIN, codes)
    assert known is not None
    assert code_range(("kind",), codes[("kind",)], known) == (1, 1)


def test_bounds_of_the_rules_and_of_the_solver_are_the_same() -> None:
    known = known_of(ex.at_most(n, 20))
    for expr in (ex.add(n, low), ex.multiply(n, low), ex.mod(n, ex.constant(8)), ex.floordiv(n, low)):
        limits = {("n",): (0, 20), ("low",): (2, 9)}
        assert known.bounds(expr) == SlotBounds(known)(expr) == bounds_of(expr, lambda e, of=limits: of[e.data])
