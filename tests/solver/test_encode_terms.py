"""The terms themselves: as short as the intervals of the slots allow, and the numbers that a width is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Range
from tileops_rules import expr as ex
from tileops_rules.domain import domain_of
from tileops_rules.expr import KINDS, Expr
from tileops_solver import division, z3_backend
from tileops_solver.codes import codes_of
from tileops_solver.encode import ENCODE, Cost, Encoder, _partial_products, _partial_sums, beyond_ranges, bits_cost
from tileops_solver.narrowing import narrow


@dataclass(frozen=True)
class Call:
    a: Annotated[int, Range(0, 7)] = 0
    b: Annotated[int, Range(0, 5)] = 0
    c: Annotated[int, Range(-4, 7)] = 0
    d: Annotated[int, Range(-9, 0)] = 0
    bit: Annotated[int, Range(0, 1)] = 0
    kind: Literal["x", "y", "z", "w"] = "x"
    ratio: float = 0.5
    name: str = "plain"


DOMAIN = domain_of(Call)
WIDTH = 8
a, b, c, d, bit = (ex.integer((name,)) for name in ("a", "b", "c", "d", "bit"))
three = ex.constant(3)


@pytest.fixture(scope="module")
def z3() -> Any:
    return z3_backend.load()


def encoded(z3: Any, expr: Expr, width: int | None) -> tuple[Any, Any]:
    """The term of *expr*, and the unknowns by name."""
    codes = codes_of(expr, DOMAIN)
    known = narrow(ex.TRUE, DOMAIN, codes)
    assert known is not None
    encoder = Encoder(z3, z3.Context(), known, codes, width)
    term = encoder.encode(expr)
    return term, SimpleNamespace(**{str(path[0]): each for path, each in encoder.variables.items()})


def test_every_kind_of_node_has_a_row() -> None:
    assert sorted(ENCODE) == sorted(KINDS)


def mod_3_of_product(z3: Any, v: Any) -> Any:
    """``a * c % 3``, one case for each residue of ``a``."""
    first, second = v.a % 3, v.c % 3
    return z3.If(first == 0, second * 0, z3.If(first == 1, second * 1, (second * 2) % 3))


INTEGERS: list[tuple[Expr, Callable[[Any, Any], Any]]] = [
    (ex.add(a, b), lambda z3, v: v.a + v.b),
    (ex.subtract(ex.add(a, ex.constant(4)), ex.scale(b, 3)), lambda z3, v: v.a + v.b * -3 + 4),
    (ex.multiply(ex.multiply(a, b), c), lambda z3, v: v.a * v.b * v.c),
    (ex.mod(a, ex.constant(4)), lambda z3, v: v.a % 4),
    (ex.mod(a, b), lambda z3, v: v.a % v.b),
    (ex.mod(a, c), lambda z3, v: z3.If(v.c > 0, v.a % v.c, -((-v.a) % (-v.c)))),
    (ex.mod(a, d), lambda z3, v: -((-v.a) % (-v.d))),
    (ex.floordiv(a, b), lambda z3, v: v.a / v.b),
    (ex.floordiv(a, c), lambda z3, v: z3.If(v.c > 0, v.a / v.c, (-v.a) / (-v.c))),
    (ex.floordiv(a, d), lambda z3, v: (-v.a) / (-v.d)),
    (ex.mod(ex.multiply(a, c), three), lambda z3, v: mod_3_of_product(z3, v) % 3),
    (ex.mod(ex.add(ex.multiply(a, c), ex.scale(b, 2)), three), lambda z3, v: (mod_3_of_product(z3, v) + v.b * 2) % 3),
    (ex.mod(ex.add(a, b), three), lambda z3, v: (v.a + v.b) % 3),
    (ex.mod(ex.multiply(a, c), ex.constant(129)), lambda z3, v: (v.a * v.c) % 129),
    (ex.absolute(a), lambda z3, v: v.a),
    (ex.absolute(c), lambda z3, v: z3.If(v.c >= 0, v.c, -v.c)),
    (ex.absolute(d), lambda z3, v: -v.d),
    (ex.bit_length(b), lambda z3, v: z3.If(v.b >= 4, 3, z3.If(v.b >= 2, 2, z3.If(v.b >= 1, number(z3, v.b, 1), 0)))),
    (ex.bit_length(bit), lambda z3, v: z3.If(v.bit >= 1, number(z3, v.bit, 1), 0)),
]

BITS: list[tuple[Expr, Callable[[Any, Any], Any]]] = [
    (ex.add(a, b), lambda z3, v: v.a + v.b),
    (ex.multiply(ex.multiply(a, b), c), lambda z3, v: v.a * v.b * v.c),
    (ex.mod(a, ex.constant(4)), lambda z3, v: v.a & 3),
    (ex.mod(a, b), lambda z3, v: z3.URem(v.a, v.b)),
    (ex.mod(a, c), lambda z3, v: v.a % v.c),
    (ex.mod(c, b), lambda z3, v: v.c % v.b),
    (ex.floordiv(a, ex.constant(4)), lambda z3, v: v.a >> 2),
    (ex.floordiv(a, b), lambda z3, v: z3.UDiv(v.a, v.b)),
    (ex.floordiv(a, c), lambda z3, v: (v.a - v.a % v.c) / v.c),
    (ex.floordiv(c, b), lambda z3, v: (v.c - v.c % v.b) / v.b),
    (ex.mod(ex.multiply(a, c), three), lambda z3, v: (v.a * v.c) % 3),
    (ex.absolute(c), lambda z3, v: z3.If(v.c >= 0, v.c, -v.c)),
    (ex.bit_length(bit), lambda z3, v: z3.If(v.bit >= 1, number(z3, v.bit, 1), number(z3, v.bit, 0))),
]


def named(part: Any) -> str:
    return str(part) if isinstance(part, Expr) else ""


def number(z3: Any, like: Any, value: int) -> Any:
    """A constant of the sort and context of another term."""
    return z3.BitVecVal(value, WIDTH, like.ctx) if z3.is_bv(like) else z3.IntVal(value, like.ctx)


@pytest.mark.parametrize(("node", "expected"), INTEGERS, ids=named)
def test_an_integer_is_the_shortest_term_that_its_intervals_allow(
    z3: Any, node: Expr, expected: Callable[[Any, Any], Any]
) -> None:
    same(z3, node, expected, None)


@pytest.mark.parametrize(("node", "expected"), BITS, ids=named)
def test_a_bit_vector_is_the_shortest_term_that_its_intervals_allow(
    z3: Any, node: Expr, expected: Callable[[Any, Any], Any]
) -> None:
    same(z3, node, expected, WIDTH)


def same(z3: Any, node: Expr, expected: Callable[[Any, Any], Any], width: int | None) -> None:
    # A comparison whose normal form keeps the node as it is: floor divisions and lengths alone become intervals.
    codes = codes_of(ex.at_most(ex.add(node, bit), 1), DOMAIN)
    known = narrow(ex.TRUE, DOMAIN, codes)
    assert known is not None
    encoder = Encoder(z3, z3.Context(), known, codes, width)
    term = encoder.encode(node)
    assert encoder.term(node) is term
    variables = SimpleNamespace(**{str(path[0]): each for path, each in encoder.variables.items()})
    assert term.eq(expected(z3, variables)), term


QUESTIONS: list[tuple[Expr, Callable[[Any, Any], Any]]] = [
    (ex.at_most(a, 3), lambda z3, v: v.a <= 3),
    (ex.equals(a, 3), lambda z3, v: v.a == 3),
    (ex.negation(ex.equals(a, 3)), lambda z3, v: z3.Not(v.a == 3)),
    (ex.conjunction([ex.at_most(a, 3), ex.at_most(b, 2)]), lambda z3, v: z3.And(v.a <= 3, v.b <= 2)),
    (ex.disjunction([ex.at_most(a, 3), ex.at_most(b, 2)]), lambda z3, v: z3.Or(v.a <= 3, v.b <= 2)),
    (ex.float_is(("ratio",), "<", 1.0), lambda z3, v: v.ratio == 0),
    (ex.float_is(("ratio",), ">=", 1.0), lambda z3, v: v.ratio == 1),
    (ex.str_is(("name",), "q"), lambda z3, v: v.name == 1),
    (ex.among(("kind",), ["x"]), lambda z3, v: v.kind == 0),
    (ex.among(("kind",), ["y", "z"]), lambda z3, v: v.kind == 1),
]


@pytest.mark.parametrize(("question", "expected"), QUESTIONS, ids=named)
@pytest.mark.parametrize("width", [None, WIDTH])
def test_a_question_has_this_term(
    z3: Any, question: Expr, expected: Callable[[Any, Any], Any], width: int | None
) -> None:
    term, variables = encoded(z3, question, width)
    assert term.eq(expected(z3, variables)), term


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("x", lambda z3, kind: kind == 0),
        ("xy", lambda z3, kind: z3.Or(kind == 0, kind == 1)),
        ("yzw", lambda z3, kind: z3.Not(kind == 0)),
        ("xyz", lambda z3, kind: z3.Not(kind == 3)),
        ("xw", lambda z3, kind: z3.Or(kind == 0, kind == 3)),
        ("xyzw", lambda z3, kind: z3.BoolVal(True, kind.ctx)),
        ("q", lambda z3, kind: z3.BoolVal(False, kind.ctx)),
    ],
)
def test_the_fewer_codes_are_written_down(z3: Any, values: str, expected: Callable[[Any, Any], Any]) -> None:
    question = ex.among(("kind",), list(values))
    codes = codes_of(question, DOMAIN, apart=True)
    known = narrow(ex.TRUE, DOMAIN, codes)
    assert known is not None
    encoder = Encoder(z3, z3.Context(), known, codes, None)
    term = encoder.encode(question)
    assert term.eq(expected(z3, encoder.variable(("kind",)))), term
    assert encoder.holding(question) == (
        encoder.variable(("kind",)),
        codes[("kind",)].holding[question],
        codes[("kind",)],
    )


def test_an_integer_that_can_be_one_number_only_is_that_number(z3: Any) -> None:
    codes = codes_of(ex.at_most(a, 3), DOMAIN)
    known = narrow(ex.equals(a, 3), DOMAIN, codes)
    assert known is not None
    encoder = Encoder(z3, z3.Context(), known, codes, None)
    assert encoder.encode(a).eq(z3.IntVal(3, encoder.context))
    assert encoder.encode(ex.scale(a, 2)).eq(z3.IntVal(6, encoder.context))
    assert encoder.bounds(ex.scale(a, 2)) == (6, 6)
    assert encoder.variables == {}
    variable = encoder.variable(("a",))
    assert [str(each) for each in encoder.ranges()] == ["a >= 3", "a <= 3"]
    assert encoder.variable(("a",)) is variable
    with pytest.raises(KeyError, match="sum"):
        encoder.holding(ex.scale(a, 2))


def test_unknowns_are_called_as_their_slots_and_lie_in_their_ranges(z3: Any) -> None:
    question = ex.conjunction([ex.at_most(a, 3), ex.among(("kind",), ["y"]), ex.at_most(c, 2)])
    codes = codes_of(question, DOMAIN)
    known = narrow(question, DOMAIN, codes)
    assert known is not None
    encoder = Encoder(z3, z3.Context(), known, codes, None)
    assert [str(each) for each in encoder.ranges()] == [
        *("a >= 0", "a <= 3", "c >= -4", "c <= 2", "kind >= 1", "kind <= 1"),
    ]
    assert [str(each) for each in encoder.ranges([("c",)])] == ["c >= -4", "c <= 2"]
    assert encoder.splits_residues
    assert not Encoder(z3, z3.Context(), known, codes, 8).splits_residues


# ---------------------------------------------------------------------------------------------------------- division


@pytest.mark.parametrize(
    ("divisor", "form"),
    [((0, 5), "plain"), ((1, 5), "plain"), ((-5, 0), "mirrored"), ((-5, -1), "mirrored"), ((-1, 1), "both")],
)
def test_the_form_of_a_quotient_is_that_of_its_divisors_sign(z3: Any, divisor: tuple[int, int], form: str) -> None:
    x, y = z3.Ints("x y")
    quotient = {"plain": x / y, "mirrored": (-x) / (-y), "both": z3.If(y > 0, x / y, (-x) / (-y))}
    rest = {"plain": x % y, "mirrored": -((-x) % (-y)), "both": z3.If(y > 0, x % y, -((-x) % (-y)))}
    assert division.integers_floor(z3, x, y, divisor).eq(quotient[form])
    assert division.integers_mod(z3, x, y, divisor).eq(rest[form])


@pytest.mark.parametrize(
    ("dividend", "divisor", "form", "ends"),
    [
        ((0, 9), (4, 4), "shift", (-4, 13)),
        ((-3, 9), (4, 4), "shift", (-7, 13)),
        ((0, 9), (4, 5), "unsigned", (-5, 14)),
        ((0, 9), (0, 5), "unsigned", (-5, 14)),
        ((0, 9), (3, 3), "unsigned", (-3, 12)),
        ((0, 9), (0, 0), "unsigned", (0, 9)),
        ((-1, 9), (0, 5), "signed", (-6, 14)),
        ((0, 9), (-1, 5), "signed", (-5, 14)),
        ((0, 9), (-8, 5), "signed", (-8, 17)),
        ((0, 9), (-4, -4), "signed", (-4, 13)),
        ((-1, 9), (3, 3), "signed", (-4, 12)),
    ],
)
def test_the_form_of_a_quotient_in_bits_is_that_of_both_signs(
    z3: Any, dividend: tuple[int, int], divisor: tuple[int, int], form: str, ends: tuple[int, int]
) -> None:
    x, y = z3.BitVecs("x y", WIDTH)
    quotient = {"shift": x >> 2, "unsigned": z3.UDiv(x, y), "signed": (x - x % y) / y}
    rest = {"shift": x & 3, "unsigned": z3.URem(x, y), "signed": x % y}
    assert division.bits_floor(z3, x, y, dividend, divisor).eq(quotient[form])
    assert division.bits_mod(z3, x, y, dividend, divisor).eq(rest[form])
    assert division.bits_floor_range(dividend, divisor) == ends


# ------------------------------------------------------------------------------------------------- numbers of a width

ENDS = {a: (0, 7), b: (2, 5), c: (-4, 7)}


def test_the_numbers_on_the_way_to_a_sum_are_all_held() -> None:
    node = ex.add(ex.scale(a, 3), ex.subtract(ex.constant(9), ex.scale(c, 2)))
    assert _partial_sums(node, ENDS.__getitem__) == [3, 0, 21, 0, 21, -2, 8, -14, -14, 29]
    assert _partial_sums(ex.add(b, a), ENDS.__getitem__) == [1, 0, 7, 0, 7, 1, 2, 5, 2, 12]


def test_the_numbers_on_the_way_to_a_product_are_all_held() -> None:
    assert _partial_products(ex.multiply(a, b), ENDS.__getitem__) == [0, 35]
    assert _partial_products(ex.multiply(ex.multiply(b, b), c), ENDS.__getitem__) == [4, 25, -100, 175]
    assert _partial_products(ex.multiply(c, c), ENDS.__getitem__) == [-28, 49]


@pytest.mark.parametrize(
    ("question", "cost"),
    [
        (ex.negation(ex.equals(bit, 1)), Cost(2, 0, 0)),
        (ex.at_most(a, 1000), Cost(11, 0, 0)),
        (ex.at_most(c, 1000), Cost(11, 0, 0)),
        (ex.negation(ex.equals(a, 1000)), Cost(11, 0, 0)),
        (ex.negation(ex.equals(a, -1000)), Cost(11, 0, 0)),
        (ex.among(("kind",), ["y"]), Cost(2, 0, 0)),
        (ex.disjunction([ex.among(("kind",), [each]) for each in "xyz"]), Cost(3, 0, 0)),
        (ex.negation(ex.equals(ex.add(a, ex.scale(c, 100)), 5)), Cost(11, 0, 2)),
        (ex.negation(ex.equals(ex.absolute(ex.add(a, c)), 5)), Cost(5, 0, 0)),
        (ex.negation(ex.equals(ex.mod(a, ex.constant(-3)), -1)), Cost(6, 1, 0)),
        (ex.negation(ex.equals(ex.bit_length(ex.multiply(a, b)), 1)), Cost(8, 1, 0)),
    ],
    ids=str,
)
def test_a_width_holds_every_number_of_the_question(question: Expr, cost: Cost) -> None:
    codes = codes_of(question, DOMAIN)
    known = narrow(ex.TRUE, DOMAIN, codes)
    assert known is not None
    assert bits_cost(question, known, codes) == cost
    assert beyond_ranges(ex.TRUE, codes, known) is ex.TRUE


def test_a_width_holds_what_a_factor_of_zero_takes_back() -> None:
    question = ex.negation(ex.equals(ex.multiply(ex.multiply(a, b), d), 1))
    codes = codes_of(question, DOMAIN)
    known = narrow(ex.equals(d, 0), DOMAIN, codes)
    assert known is not None
    assert bits_cost(question, known, codes) == Cost(7, 2, 0)
    assert Cost(7, 2, 3).gates == 2 * 49 + 3 * 7
