"""Every expression means the same in z3's integers, in its bit-vectors and in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import expr as ex
from tileops_rules.domain import Domain, domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import KINDS, Expr
from tileops_solver import z3_backend
from tileops_solver.codes import codes_of
from tileops_solver.encode import ENCODE, Encoder, bits_cost
from tileops_solver.engine import Outcome, Question
from tileops_solver.narrowing import narrow

a, b, c = (ex.integer((name,)) for name in "abc")


class InOneArithmetic(Question):
    """A question that is asked over integers only, or over bit-vectors only."""

    bits = False

    def _arithmetics(self) -> Iterator[Any]:
        return (plan for plan in super()._arithmetics() if (plan.width is not None) is self.bits)


class InBits(InOneArithmetic):
    bits = True


ints = st.recursive(
    st.sampled_from([a, b, c]) | st.integers(-9, 9).map(ex.constant),
    lambda inner: st.one_of(
        st.builds(ex.add, inner, inner),
        st.builds(ex.subtract, inner, inner),
        st.builds(ex.multiply, inner, inner),
        st.builds(ex.scale, inner, st.integers(-5, 5)),
        st.builds(ex.floordiv, inner, st.sampled_from([-7, -4, -1, 2, 3, 8]).map(ex.constant)),
        st.builds(ex.mod, inner, st.sampled_from([-5, -2, 2, 3, 8, 16]).map(ex.constant)),
        st.builds(ex.absolute, inner),
        st.builds(ex.bit_length, inner),
    ),
    max_leaves=6,
)


@st.composite
def divided(draw: st.DrawFn) -> Expr:
    """A question that divides by an expression; where that is 0, it may have no answer, and so does not hold."""
    left, right = draw(ints), draw(ints)
    if right.kind == "const":
        right = b
    made = draw(st.sampled_from([ex.floordiv, ex.mod]))(left, right)
    question = draw(st.sampled_from([ex.at_most, ex.equals]))(made, draw(st.integers(-6, 9)))
    return ex.conjunction([ex.negation(ex.equals(right, 0)), question]) if draw(st.booleans()) else question


atoms = st.one_of(
    st.builds(ex.at_most, ints, st.integers(-40, 60)),
    st.builds(ex.equals, ints, st.integers(-12, 20)),
    divided(),
    st.builds(lambda v: ex.among(("kind",), v), st.lists(st.sampled_from("xyz"), min_size=1)),
    st.builds(
        lambda op, v: ex.float_is(("ratio",), op, v),
        st.sampled_from(["<", "<=", "==", ">=", ">", "nan"]),
        st.sampled_from([0.0, 0.5, 1.5, float("inf")]),
    ),
    st.sampled_from(["plain", "fancy", ""]).map(lambda v: ex.str_is(("name",), v)),
)
questions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(ex.negation),
        st.lists(inner, min_size=2, max_size=4).map(ex.conjunction),
        st.lists(inner, min_size=2, max_size=3).map(ex.disjunction),
    ),
    max_leaves=6,
)


def test_the_encoder_has_one_row_for_each_kind_of_node() -> None:
    assert set(ENCODE) == set(KINDS)


@pytest.mark.parametrize("arithmetic", [InOneArithmetic, InBits])
@settings(max_examples=200)
@given(question=questions)
def test_z3_answers_as_a_search_over_all_calls_does(
    question: Expr, arithmetic: type[InOneArithmetic], small: Domain, exhaustive: Callable[..., Any]
) -> None:
    if question.kind == "truth":
        return
    found = exhaustive(question, small)
    with arithmetic(question, small) as asked:
        asked.known = narrow(ex.TRUE, small, asked.codes)  # the cheap answer is another test's business
        reply = asked.check()
    if reply.outcome is Outcome.UNKNOWN:
        return  # rare, and honest: one arithmetic alone has its blind spots, a product as divisor for one
    assert reply.outcome is (Outcome.POSSIBLE if found.solutions else Outcome.IMPOSSIBLE)
    if found.solutions:
        assert any(reply.codes.items() <= solution.items() for solution in found.solutions)


@pytest.mark.parametrize("arithmetic", [InOneArithmetic, InBits])
@pytest.mark.parametrize(
    "node",
    [
        ex.add(ex.scale(a, -3), b),
        ex.multiply(ex.multiply(a, b), c),
        ex.floordiv(a, ex.constant(4)),
        ex.floordiv(a, ex.constant(-3)),
        ex.floordiv(ex.multiply(a, c), ex.add(ex.absolute(b), ex.constant(1))),
        ex.floordiv(c, ex.subtract(b, ex.constant(5))),
        ex.mod(a, ex.constant(4)),
        ex.mod(a, ex.constant(-3)),
        ex.mod(ex.add(ex.multiply(a, c), b), ex.constant(7)),
        ex.mod(c, ex.subtract(b, ex.constant(5))),
        ex.absolute(ex.subtract(a, c)),
        ex.bit_length(ex.multiply(a, c)),
    ],
    ids=str,
)
def test_a_node_takes_the_values_that_it_takes_in_python(
    node: Expr, arithmetic: type[InOneArithmetic], small: Domain
) -> None:
    codes = codes_of(ex.at_most(node, 0), small)
    taken = set()
    for choice in itertools.product(*(range(each.lo, each.hi + 1) for each in codes.values())):
        taken.add(evaluate(node, dict(zip(codes, choice, strict=True))))
    for value in range(min(taken) - 2, max(taken) + 3):
        with arithmetic(ex.equals(node, value), small) as asked:
            assert asked.check().outcome is (Outcome.POSSIBLE if value in taken else Outcome.IMPOSSIBLE)


@settings(max_examples=150)
@given(question=questions)
def test_no_intermediate_number_needs_more_bits_than_the_width(
    question: Expr, small: Domain, exhaustive: Callable[..., Any]
) -> None:
    with Question(question, small) as asked:
        if asked.known is None:
            return
        cost = bits_cost(asked.expr, asked.known, asked.codes)
        limit = 1 << (cost.width - 1)
        found = exhaustive(asked.expr, small)
        for numbers in found.solutions[:50]:
            values = asked.values(numbers)
            for node in ex.walk(asked.expr):
                if KINDS[node.kind].sort == "int":
                    try:
                        value = evaluate(node, values)
                    except ZeroDivisionError:
                        continue
                    assert -limit <= value < limit, f"{node} is {value}, over {cost.width} bits"


@dataclass(frozen=True)
class Wide:
    a: int = 0
    b: int = 0
    c: int = 0


def test_each_expression_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = ex.mod(ex.multiply(a, c), ex.constant(300))
    question = ex.conjunction(
        [ex.at_most(shared, 3), ex.negation(ex.equals(shared, 1)), ex.equals(ex.add(shared, b), 4)]
    )
    domain = domain_of(Wide)
    codes = codes_of(question, domain)
    known = narrow(ex.TRUE, domain, codes)
    assert known is not None
    z3 = z3_backend.load()
    encoder = Encoder(z3, z3.Context(), known, codes, None)
    asked: list[Expr] = []

    def counting(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
        asked.append(node)
        return ENCODE["mod"](encoder, node, args)

    monkeypatch.setattr("tileops_solver.encode.ENCODE", {**ENCODE, "mod": counting})
    first = encoder.encode(question)
    assert encoder.encode(question) is first
    assert asked == [shared]
