"""Expressions, bounds and facts, held against brute force over small domains and against forms worked out by hand."""

from __future__ import annotations

import gc
import itertools
import math
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tileops_rules import expr as E
from tileops_rules.bounds import bounds_of
from tileops_rules.evaluating import evaluate, float_holds
from tileops_rules.facts import Facts, float_places
from tileops_rules.integers import against_constant, against_float, ordered
from tileops_rules.shapes import Slot

a, b = E.integer(("a",)), E.integer(("b",))
INTERVALS = [(lo, hi) for lo in range(-5, 6) for hi in range(lo, 6)]
SOME = [(-5, -2), (-4, 3), (-1, 0), (0, 0), (0, 5), (1, 1), (2, 5), (-3, -3), (4, 4)]


def values_of(expr: E.Expr, first: tuple[int, int], second: tuple[int, int]) -> Iterator[int]:
    for x, y in itertools.product(range(first[0], first[1] + 1), range(second[0], second[1] + 1)):
        try:
            yield evaluate(expr, {("a",): x, ("b",): y})
        except ZeroDivisionError:
            continue


@pytest.mark.parametrize(
    "expr",
    [
        E.add(a, b),
        E.add(E.scale(a, -3), E.add(b, E.constant(7))),
        E.multiply(a, b),
        E.floordiv(a, b),
        E.absolute(a),
        E.bit_length(a),
        E.floordiv(a, E.constant(3)),
    ],
    ids=str,
)
def test_the_interval_of_one_operation_is_the_smallest_there_is(expr: E.Expr) -> None:
    for first, second in itertools.product(INTERVALS, SOME):
        taken = list(values_of(expr, first, second))
        said = bounds_of(expr, lambda e, own=(first, second): own[e.data == ("b",)])
        assert said == ((min(taken), max(taken)) if taken else (0, 0)), (first, second)


def test_the_interval_of_a_remainder_is_the_smallest_where_the_divisor_is_one_number_or_larger() -> None:
    remainder = E.mod(a, b)
    for first, second in itertools.product(INTERVALS, INTERVALS):
        taken = list(values_of(remainder, first, second))
        low, high = bounds_of(remainder, lambda e, own=(first, second): own[e.data == ("b",)])
        if not taken:
            assert (low, high) == (0, 0)
            continue
        assert low <= min(taken)
        assert max(taken) <= high
        larger = abs(first[0]) < min(map(abs, second)) and abs(first[1]) < min(map(abs, second))
        same_sign = (first[0] >= 0) == (second[0] > 0) and (first[1] <= 0) == (second[1] < 0)
        one = second[0] == second[1] and first[0] // second[0] == first[1] // second[0]
        if (second[0] > 0 or second[1] < 0) and (one or (larger and same_sign)):
            assert (low, high) == (min(taken), max(taken)), (first, second)
        # No remainder reaches its divisor, and none of a dividend of its sign is longer than the dividend.
        assert high <= max(0, second[1] - 1)
        assert low >= min(0, second[0] + 1)
        if second[0] > 0 and first[0] >= 0:
            assert high <= first[1]
        if second[1] < 0 and first[1] <= 0:
            assert low >= first[0]


def test_the_interval_of_a_product_of_three_is_the_smallest_there_is() -> None:
    c = E.integer(("c",))
    ranges = {("a",): (-2, 3), ("b",): (-5, -1), ("c",): (-4, 2)}
    corners = [x * y * z for x in (-2, 3) for y in (-5, -1) for z in (-4, 2)]
    assert bounds_of(E.multiply(E.multiply(a, b), c), lambda e: ranges[e.data]) == (min(corners), max(corners))


# ------------------------------------------------------------------------------------------------- normal forms


def forms(values: list[Any]) -> set[int]:
    return {id(value) for value in values}


def test_the_order_of_terms_factors_and_steps_makes_no_difference() -> None:
    c = E.integer(("c",))
    sums = [E.add(E.add(x, y), z) for x, y, z in itertools.permutations([a, E.scale(b, -2), c])]
    assert len(forms(sums)) == 1
    products = [E.multiply(E.multiply(x, y), z) for x, y, z in itertools.permutations([a, b, c])]
    assert len(forms(products)) == 1
    assert E.multiply(E.scale(a, 3), E.scale(b, -2)) is E.scale(E.multiply(a, b), -6)
    assert E.multiply(a, E.constant(4)) is E.multiply(E.constant(4), a) is E.scale(a, 4)
    assert E.subtract(E.add(a, b), b) is a
    assert E.subtract(a, a) is E.constant(0)
    assert E.add(a, E.constant(0)) is a
    assert E.add(E.constant(0), a) is a
    assert E.scale(E.scale(a, -1), -1) is a
    assert E.add(a, E.constant(1)).data == (1, (1,))
    assert E.scale(a, 2).data == (0, (2,))


def test_a_product_with_a_shifted_sum_is_not_multiplied_out() -> None:
    shifted = E.add(a, E.constant(1))
    assert E.multiply(shifted, b).args == tuple(sorted((shifted, b), key=str))
    assert E.multiply(E.add(E.scale(a, 2), E.constant(2)), b).kind == "product"
    assert E.multiply(E.add(a, b), b).kind == "product"


def test_whole_parts_leave_a_quotient_and_a_remainder() -> None:
    eight = E.constant(8)
    assert E.floordiv(E.add(E.scale(a, 16), b), eight) is E.add(E.scale(a, 2), E.floordiv(b, eight))
    assert E.floordiv(E.add(b, E.constant(19)), eight) is E.add(
        E.floordiv(E.add(b, E.constant(3)), eight), E.constant(2)
    )
    assert E.floordiv(E.scale(a, 16), eight) is E.scale(a, 2)
    quotient = E.floordiv(b, eight)
    assert E.floordiv(E.add(E.scale(quotient, 8), b), eight) is E.scale(quotient, 2)
    assert E.mod(E.add(E.scale(a, 17), E.constant(-3)), eight) is E.mod(E.add(a, E.constant(5)), eight)
    assert E.mod(E.add(E.scale(a, 16), E.constant(11)), eight) is E.constant(3)
    assert E.floordiv(a, E.constant(-3)) is E.floordiv(E.scale(a, -1), E.constant(3))
    assert E.mod(a, E.constant(-3)) is E.scale(E.mod(E.scale(a, -1), E.constant(3)), -1)


def test_questions_are_asked_of_coprime_sums_whose_first_coefficient_is_positive() -> None:
    difference = E.subtract(E.scale(a, 2), E.scale(b, 3))
    assert E.at_most(E.scale(difference, 2), 5) is E.at_most(difference, 2)
    assert E.at_most(E.scale(difference, -2), 5) is E.negation(E.at_most(difference, -3))
    assert E.equals(E.scale(difference, -2), 4) is E.equals(difference, -2)
    assert E.equals(E.scale(difference, 2), 5) is E.FALSE
    assert E.at_most(difference, 7).args == (difference,)
    assert E.at_most(difference, 7).data == 7
    assert E.at_most(E.constant(3), 3) is E.TRUE
    assert E.at_most(E.constant(4), 3) is E.FALSE
    assert E.equals(E.constant(3), 3) is E.TRUE
    assert E.equals(E.constant(4), 3) is E.FALSE
    assert E.at_most(E.add(a, E.constant(5)), 3) is E.at_most(a, -2)


def test_what_one_field_decides_is_asked_of_that_field() -> None:
    quotient = E.floordiv(a, E.constant(16))
    assert E.at_most(quotient, 3) is E.at_most(a, 63)
    assert E.equals(quotient, 3) is E.conjunction([E.at_least(a, 48), E.at_most(a, 63)])
    assert E.at_most(E.absolute(a), 7) is E.conjunction([E.at_most(a, 7), E.at_least(a, -7)])
    assert E.at_most(E.bit_length(a), 3) is E.conjunction([E.at_most(a, 7), E.at_least(a, -7)])
    assert E.at_most(E.bit_length(a), 0) is E.conjunction([E.at_most(a, 0), E.at_least(a, 0)])
    assert [evaluate(E.at_most(E.bit_length(a), -1), {("a",): n}) for n in (-1, 0, 1)] == [False, False, False]
    assert E.at_most(E.bit_length(a), 1024).kind == "and"
    assert E.at_most(E.bit_length(a), 1025).kind == "at_most"
    by_field = E.floordiv(a, b)
    assert E.at_most(by_field, 3).args == (by_field,)
    assert E.equals(by_field, 3).args == (by_field,)


def test_connectives_drop_what_says_nothing_and_see_what_contradicts() -> None:
    one, two, three = E.at_most(a, 1), E.at_most(b, 2), E.equals(a, 3)
    assert E.conjunction([one, E.TRUE, one]) is one
    assert E.disjunction([one, E.FALSE, one]) is one
    assert E.conjunction([one, E.FALSE]) is E.conjunction([one, E.negation(one)]) is E.FALSE
    assert E.disjunction([one, E.TRUE]) is E.disjunction([E.negation(one), one]) is E.TRUE
    assert E.conjunction([]) is E.TRUE
    assert E.disjunction([]) is E.FALSE
    assert E.conjunction([E.conjunction([one, two]), three]).args == (one, two, three)
    assert E.disjunction([one, E.disjunction([two, three])]).args == (one, two, three)
    assert E.conjunction([E.disjunction([one, two]), three]).args == (E.disjunction([one, two]), three)
    assert E.negation(E.negation(one)) is one
    assert E.negation(E.TRUE) is E.FALSE
    assert E.negation(E.FALSE) is E.TRUE


def test_questions_about_one_slot_have_one_form() -> None:
    assert E.among(("k",), ["y", "x", "y"]) is E.among(("k",), ["x", "y"])
    assert E.among(("k",), []) is E.FALSE
    assert E.among(("k",), [1]) is not E.among(("k",), [True])
    assert E.among(("k",), [1, True]).data == (("k",), (True, 1))
    assert E.float_is(("f",), "<", -0.0) is E.float_is(("f",), "<", 0.0)
    assert math.copysign(1.0, E.float_is(("f",), "<", -0.0).data[2]) == 1.0
    assert E.float_is(("f",), "<", math.nan) is E.FALSE
    assert E.float_is(("f",), "nan", 3.0) is E.float_is(("f",), "nan", 0.0)
    assert E.float_is(("f",), "nan", 3.0).data == (("f",), "nan", 0.0)
    assert E.truth(1 == 1) is E.TRUE
    assert E.constant(True) is E.constant(1)
    assert type(E.constant(True).data) is int


def test_a_compound_stands_in_brackets_inside_another() -> None:
    product, sum_, quotient, rest = E.multiply(a, b), E.add(a, b), E.floordiv(a, b), E.mod(a, b)
    assert [str(E.scale(each, 2)) for each in (product, quotient, rest)] == ["2*(a*b)", "2*(a // b)", "2*(a % b)"]
    assert str(E.mod(sum_, b)) == "(a + b) % b"
    assert str(E.floordiv(b, product)) == "b // (a*b)"
    assert str(E.multiply(sum_, rest)) == "(a % b)*(a + b)"
    assert str(E.bit_length(product)) == "(a*b).bit_length()"
    assert str(E.absolute(sum_)) == "abs(a + b)"
    one, two, three = E.at_most(a, 1), E.at_most(b, 2), E.equals(a, 3)
    assert str(E.disjunction([E.conjunction([one, two]), three])) == "(a <= 1 & b <= 2) | a == 3"
    assert str(E.conjunction([E.disjunction([one, two]), three])) == "(a <= 1 | b <= 2) & a == 3"
    assert str(E.negation(E.conjunction([one, two]))) == "~(a <= 1 & b <= 2)"
    assert str(E.add(E.scale(a, -1), E.constant(-3))) == "-a - 3"
    assert str(E.add(E.scale(a, -2), E.add(b, E.constant(3)))) == "-2*a + b + 3"


def test_a_node_shows_its_text() -> None:
    assert repr(E.at_most(a, 3)) == "<a <= 3>"


def test_readers_give_every_node_once_and_slots_in_order() -> None:
    shared = E.add(a, b)
    whole = E.conjunction([E.at_most(shared, 3), E.negation(E.equals(shared, 1)), E.among(("k",), ["x"])])
    walked = list(E.walk(whole))
    assert len(walked) == len(set(walked)) == 8
    assert walked[:3] == [a, b, shared]
    assert walked[-1] is whole
    for place, node in enumerate(walked):
        assert all(argument in walked[:place] for argument in node.args)
    assert E.paths_of(whole) == (("a",), ("b",), ("k",))
    assert E.paths_of(E.conjunction([E.float_is(("f",), "<", 1.0), E.str_is(("s",), "x")])) == (("f",), ("s",))
    assert E.path_of(shared) is None


def test_a_node_that_nobody_holds_is_forgotten() -> None:
    gc.collect()

    def held() -> int:
        gc.collect()
        return sum(str(key[2]).startswith("('forgotten") for key in E._table)

    kept = [E.integer((f"forgotten{i}",)) for i in range(50)]
    assert held() == 50
    del kept
    assert held() == 0


def test_threads_that_make_a_node_at_once_get_one_node() -> None:
    for turn in range(20):
        barrier = threading.Barrier(4)
        made: list[E.Expr] = []

        def make(turn: int = turn, barrier: threading.Barrier = barrier, made: list[E.Expr] = made) -> None:
            barrier.wait()
            made.append(E.add(E.integer((f"thread{turn}",)), E.constant(turn + 1)))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(forms(made)) == 1
        assert len(made) == 4


# --------------------------------------------------------------------------------------------------- evaluating


def test_a_part_without_a_value_counts_only_where_the_answer_depends_on_it() -> None:
    undefined = E.at_most(E.floordiv(a, b), 3)
    missing = E.at_most(E.integer(("c",)), 3)
    yes, no = E.at_most(a, 5), E.at_most(a, -5)
    at = {("a",): 0, ("b",): 0}
    for part in (undefined, missing):
        assert evaluate(E.conjunction([part, no]), at) is False
        assert evaluate(E.disjunction([part, yes]), at) is True
        for open_one in (E.conjunction([part, yes]), E.disjunction([part, no]), E.negation(part), part):
            with pytest.raises(ZeroDivisionError, match="is undefined here"):
                evaluate(open_one, at)
    assert evaluate(undefined, {("a",): 8, ("b",): 2}) is False


@pytest.mark.parametrize("value", [-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, math.inf, math.nan])
@pytest.mark.parametrize("limit", [-math.inf, 0.0, 0.5, 1.0, math.inf])
def test_a_float_question_has_the_answer_of_python(value: float, limit: float) -> None:
    said = {comparison: float_holds(value, comparison, limit) for comparison in ("<", "<=", "==", ">=", ">", "nan")}
    assert said == {
        "<": value < limit,
        "<=": value <= limit,
        "==": value == limit,
        ">=": value >= limit,
        ">": value > limit,
        "nan": math.isnan(value),
    }


PYTHON: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    "==": lambda x, y: x == y,
    ">=": lambda x, y: x >= y,
    ">": lambda x, y: x > y,
}


@pytest.mark.parametrize("operator", PYTHON)
def test_comparisons_of_integers_are_those_of_python(operator: str) -> None:
    holds = PYTHON[operator]
    for x, y in itertools.product(range(-4, 5), repeat=2):
        at = {("a",): x, ("b",): y}
        assert evaluate(against_constant(a, operator, y), at) is holds(x, y)
        assert evaluate(ordered(a, operator, b), at) is holds(x, y)
        for near in (float(y), y + 0.5, y - 0.25, math.inf, -math.inf, math.nan):
            assert evaluate(against_float(a, operator, near), at) is holds(x, near)


# -------------------------------------------------------------------------------------------------------- facts

SLOTS = {
    ("a",): Slot(("a",), "int", -6, 9),
    ("b",): Slot(("b",), "int", 0, 4),
    ("f",): Slot(("f",), "float"),
    ("g",): Slot(("g",), "float", 0.0, 1.0),
    ("s",): Slot(("s",), "str"),
}
FLOATS = [-math.inf, -2.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0, 4.0, math.inf, math.nan]
TEXTS = ["", "x", "y", "other"]


def questions_of(draw: random.Random) -> E.Expr:
    kind = draw.choice("aabsfg")
    if kind in "fg":
        comparison = draw.choice(["<", "<=", "==", ">=", ">", "nan"])
        return E.float_is((kind,), comparison, draw.choice([0.0, 0.5, 1.0, 3.0]))
    if kind == "s":
        return E.str_is(("s",), draw.choice(TEXTS[:3]))
    subject = draw.choice([a, a, b, E.add(a, b), E.mod(a, E.constant(4)), E.multiply(a, b)])
    limit = draw.randint(-7, 10)
    return draw.choice([E.at_most, E.equals])(subject, limit)


def test_what_is_known_settles_nothing_wrongly_and_what_one_field_settles_always() -> None:
    every = {
        "ab": [{("a",): x, ("b",): y} for x, y in itertools.product(range(-6, 10), range(5))],
        "f": [{("f",): f} for f in FLOATS],
        "g": [{("g",): g} for g in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "s": [{("s",): s} for s in TEXTS],
    }
    settled = opened = alone = 0
    for seed in range(400):
        draw = random.Random(seed)
        facts = Facts(SLOTS)
        left = dict(every)
        own = True  # so far nothing but single fields was asked about
        for _ in range(8):
            question = questions_of(draw)
            if question.kind not in ("at_most", "equals", "float_is", "str_is"):
                continue
            group = next(name for name in left if E.paths_of(question)[0][0] in name)
            answers = {evaluate(question, at) for at in left[group]}
            said = facts.settled(question)
            if said is not None:
                settled += 1
                assert answers == {said}, (seed, str(question))
                continue
            opened += 1
            own = own and (group in "fgs" or question.args in ((a,), (b,)))
            if own:
                alone += 1
                assert len(answers) == 2, (seed, str(question))
            answer = draw.choice(sorted(answers))
            before, facts = facts, facts.copy()
            facts.learn(question, answer)
            assert facts.settled(question) is answer, (seed, str(question))
            assert before.settled(question) is None
            left[group] = [at for at in left[group] if evaluate(question, at) is answer]
    assert settled > 200
    assert opened > 1000
    assert alone > 500


def test_values_that_are_left_are_listed_where_they_are_few() -> None:
    facts = Facts(SLOTS)
    assert facts.bounds(a) == (-6, 9)
    assert facts.remaining(a, 15) is None
    assert facts.remaining(a, 16) == list(range(-6, 10))
    facts.learn(E.equals(a, 3), False)
    assert facts.remaining(a, 15) == [n for n in range(-6, 10) if n != 3]
    facts.learn(E.at_most(a, 4), True)
    facts.learn(E.at_most(a, 0), False)
    assert facts.bounds(a) == (1, 4)
    assert facts.remaining(a, 3) == [1, 2, 4]
    facts.learn(E.equals(a, 4), False)
    assert facts.bounds(a) == (1, 2), "an end that is left out moves inwards, past what was left out before"
    facts.learn(E.equals(a, 1), False)
    assert facts.bounds(a) == (2, 2)
    assert facts.bounds(E.multiply(a, a)) == (4, 4)
    assert facts.settled(E.equals(a, 2)) is True
    facts = Facts(SLOTS)
    for n in (8, 6, -5, -3):
        facts.learn(E.equals(a, n), False)
    facts.learn(E.equals(a, 9), False)
    assert facts.bounds(a) == (-6, 7)
    facts.learn(E.equals(a, -6), False)
    assert facts.bounds(a) == (-4, 7)


def test_there_is_a_float_for_every_way_to_answer_and_it_is_a_plain_one() -> None:
    assert float_places({0.5})[:-1] == [-math.inf, 0.0, 0.5, 1.5, math.inf]
    assert float_places({-0.5})[:-1] == [-math.inf, -1.5, -0.5, 0.0, math.inf]
    assert float_places(set())[:-1] == [-math.inf, 0.0, math.inf]
    assert float_places({0.0})[:-1] == [-math.inf, -1.0, 0.0, 1.0, math.inf]
    assert float_places({-1.0, 1.0, 2.0})[2:7] == [-1.0, 0.0, 1.0, 1.5, 2.0]
    assert float_places({1e300})[3] == math.nextafter(1e300, math.inf)
    assert float_places({-1e300})[1] == math.nextafter(-1e300, -math.inf)
    for constants in ({0.5, 1.0}, {-1e308, 1e308}, {1.0, math.nextafter(1.0, 2.0)}, {-3.0}, {1e300}, {-1e300, -5e-324}):
        places = float_places(set(constants))
        assert math.isnan(places[-1])
        ends = sorted({-math.inf, math.inf, *constants})
        assert set(ends) <= set(places)
        for low, high in itertools.pairwise(ends):
            between = [place for place in places if low < place < high]
            assert len(between) == (0 if math.nextafter(low, high) == high else 1), (constants, low, high)
        assert len(places) == len(set(places[:-1])) + 1
