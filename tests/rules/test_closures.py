"""Closures give what evaluating step by step gives, and leave what is undefined to it."""

from __future__ import annotations

import enum
import random
from typing import Any

import pytest
from tileops_rules import expr as E
from tileops_rules.closures import CLOSURES, reader
from tileops_rules.evaluating import _evaluated, evaluate

SLOTS: dict[E.Path, list[Any]] = {
    ("a",): [-7, -1, 0, 1, 2, 5, 64],
    ("b",): [-3, 0, 1, 4],
    ("c",): [0, 3, 9],
    ("k",): ["x", "y", 1, True, 1.0, None],
    ("t",): ["x", "y", ""],
    ("f",): [0.0, -0.0, 0.5, float("inf"), float("nan")],
}
NUMBERS = [("a",), ("b",), ("c",)]


def number(draw: random.Random, depth: int = 3) -> E.Expr:
    if not depth or draw.random() < 0.25:
        return draw.choice([E.integer(draw.choice(NUMBERS)), E.constant(draw.randint(-4, 9))])
    left, right = number(draw, depth - 1), number(draw, depth - 1)
    divisor = draw.choice([right, E.constant(draw.choice([-3, 2, 8]))])
    safe = divisor.kind != "const" or divisor.data != 0
    return draw.choice(
        [
            lambda: E.add(left, right),
            lambda: E.subtract(E.scale(left, draw.randint(-3, 3)), E.add(right, E.integer(("c",)))),
            lambda: E.multiply(left, right),
            lambda: E.multiply(E.multiply(left, right), E.integer(("b",))),
            lambda: E.floordiv(left, divisor) if safe else left,
            lambda: E.mod(left, divisor) if safe else left,
            lambda: E.absolute(left),
            lambda: E.bit_length(left),
        ]
    )()


def question(draw: random.Random, depth: int = 2) -> E.Expr:
    if depth and draw.random() < 0.5:
        parts = [question(draw, depth - 1) for _ in range(draw.randint(2, 3))]
        return draw.choice([E.conjunction, E.disjunction, lambda parts: E.negation(parts[0])])(parts)
    return draw.choice(
        [
            lambda: E.at_most(number(draw), draw.randint(-9, 30)),
            lambda: E.equals(number(draw), draw.randint(-3, 9)),
            lambda: E.among(("k",), draw.sample(SLOTS["k",], draw.randint(1, 4))),
            lambda: E.among(("t",), draw.sample(SLOTS["t",], 2)),
            lambda: E.float_is(("f",), draw.choice(["<", "<=", "==", ">=", ">", "nan"]), draw.choice([0.0, 0.5])),
            lambda: E.str_is(("t",), draw.choice(["x", "z"])),
        ]
    )()


def said(function: Any, *args: Any) -> tuple[str, Any]:
    try:
        value = function(*args)
        return type(value).__name__, value
    except ZeroDivisionError:
        return "undefined", None


def test_every_node_kind_has_a_row() -> None:
    assert set(CLOSURES) == set(E.KINDS)


@pytest.mark.parametrize("seed", range(60))
def test_closures_give_what_evaluating_step_by_step_gives(seed: int) -> None:
    draw = random.Random(seed)
    undefined = 0
    for _ in range(20):
        expr = draw.choice([number, question])(draw)
        assert reader(expr) is not None
        assert reader(expr) is reader(expr)
        for _ in range(8):
            values = {path: draw.choice(options) for path, options in SLOTS.items() if draw.random() < 0.9}
            step_by_step = said(_evaluated, expr, values)
            undefined += step_by_step[0] == "undefined"
            assert said(evaluate, expr, values) == step_by_step, (str(expr), values)
    assert undefined < 160


def test_what_is_nested_deeply_or_shared_often_is_evaluated_step_by_step() -> None:
    deep = E.integer(("a",))
    for _ in range(3000):
        deep = E.absolute(E.add(deep, E.constant(1)))
    assert reader(deep) is None
    assert evaluate(deep, {("a",): 1}) == 3001
    shared = E.equals(E.integer(("a",)), 0)
    for i in range(30):
        some, other = E.at_most(E.integer(("b",)), i), E.at_most(E.integer(("c",)), i)
        shared = E.disjunction([E.conjunction([shared, some]), E.conjunction([E.negation(shared), other])])
    assert reader(shared) is None
    assert evaluate(shared, {("a",): 0, ("b",): 0, ("c",): 0}) is True


A, B = E.integer(("a",)), E.integer(("b",))


def abs_of(expr: E.Expr, levels: int) -> E.Expr:
    for _ in range(levels):
        expr = E.absolute(expr)
    return expr


def test_forty_levels_are_read_at_once_and_one_more_is_not() -> None:
    for levels, read in ((38, True), (39, True), (40, False)):
        assert (reader(abs_of(A, levels)) is not None) is read
    for shallow, deep in ((A, B), (B, A)):
        # A sum of two slots: the deeper one counts, whichever stands first.
        assert reader(E.add(shallow, abs_of(deep, 38))) is not None
        assert reader(E.add(shallow, abs_of(deep, 39))) is None
        assert evaluate(E.add(shallow, abs_of(deep, 39)), {("a",): 2, ("b",): 3}) == 5


def test_shared_parts_may_be_read_four_times_each_and_sixteen_more() -> None:
    five = A
    for _ in range(5):
        five = E.floordiv(five, five)
    # Six nodes, 63 reads; each absolute value above adds one of each, so 4 more are allowed.
    assert reader(abs_of(five, 7)) is None  # 70 reads, 13 nodes: 68
    assert reader(abs_of(five, 8)) is not None  # 71 reads, 14 nodes: 72
    both = E.floordiv(five, A)
    assert reader(abs_of(both, 6)) is None  # 71 reads, 13 nodes: 68
    assert reader(abs_of(both, 7)) is not None  # 72 reads, 14 nodes: 72
    thrice = E.floordiv(E.floordiv(five, A), A)
    assert reader(abs_of(thrice, 6)) is None  # 73 reads, 14 nodes: 72


def test_a_number_of_terms_and_factors_is_read_as_such() -> None:
    values = {("a",): 5, ("b",): -3, ("c",): 7}
    c = E.integer(("c",))
    for expr, expected in (
        (E.add(E.scale(A, 2), E.constant(3)), 13),
        (E.add(E.scale(A, 2), E.add(E.scale(B, -4), E.constant(1))), 23),
        (E.add(E.add(A, E.scale(B, 2)), E.add(E.scale(c, 3), E.constant(-1))), 19),
        (E.multiply(A, B), -15),
        (E.multiply(E.multiply(A, B), c), -105),
        (E.floordiv(c, B), -3),
        (E.floordiv(c, E.constant(4)), 1),
        (E.mod(c, B), -2),
        (E.mod(c, E.constant(4)), 3),
        (E.absolute(B), 3),
        (E.bit_length(c), 3),
    ):
        read = reader(expr)
        assert read is not None
        assert read(values) == expected, str(expr)


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


class Size(enum.IntEnum):
    S = 1


@pytest.mark.parametrize(
    "options",
    [
        (1,), (1, 2), ("x",), (True,), (None,), (Mode.FAST,), (Size.S,), (0.0,), (1.0, 0.5), (1, "x"), (1, True),
        (Mode.FAST, None), ((1, 2),), (Size.S, 1), (float("inf"),),
    ],
)  # fmt: skip
def test_one_of_some_values_means_one_of_the_same_type(options: tuple[Any, ...]) -> None:
    read = reader(E.among(("k",), options))
    assert read is not None
    for value in (0, 1, 2, True, False, None, "x", "".join(["", "x"]), "", Mode.FAST, Mode.SAFE, Size.S, 0.0, -0.0, 0.5,
                  1.0, (1, 2), (1,), float("inf")):  # fmt: skip
        assert read({("k",): value}) is any(type(v) is type(value) and v == value for v in options), value


def test_a_part_that_settles_an_answer_hides_an_undefined_one_on_either_side() -> None:
    zero = E.equals(E.floordiv(E.integer(("a",)), E.integer(("b",))), 1)
    false, true = E.at_most(E.integer(("a",)), 0), E.at_most(E.integer(("a",)), 9)
    values = {("a",): 5, ("b",): 0}
    for parts in ([zero, false], [false, zero]):
        assert evaluate(E.conjunction(parts), values) is False
    for parts in ([zero, true], [true, zero]):
        assert evaluate(E.disjunction(parts), values) is True
    with pytest.raises(ZeroDivisionError):
        evaluate(E.conjunction([zero, true]), values)


def test_equal_values_of_other_types_are_told_apart() -> None:
    one = E.among(("k",), [1])
    assert [evaluate(one, {("k",): value}) for value in (1, True, 1.0)] == [True, False, False]
    both = E.among(("k",), [1, True])
    assert [evaluate(both, {("k",): value}) for value in (1, True, 1.0, 0)] == [True, True, False, False]
