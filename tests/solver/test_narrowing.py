"""The cheap answer: never wrong, and enough for what rules usually differ in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import expr as ex
from tileops_rules import fields
from tileops_rules.domain import Domain, domain_of
from tileops_rules.expr import Expr
from tileops_solver.codes import codes_of
from tileops_solver.narrowing import Narrowed, SlotBounds, narrow

a, b, c = (ex.integer((name,)) for name in "abc")
sums = st.sampled_from(
    [
        a,
        b,
        c,
        ex.add(a, b),
        ex.subtract(ex.scale(a, 2), c),
        ex.multiply(a, b),
        ex.mod(a, ex.constant(4)),
        ex.absolute(a),
    ]
)
atoms = st.one_of(
    st.builds(ex.at_most, sums, st.integers(-9, 12)),
    st.builds(ex.equals, sums, st.integers(-6, 9)),
    st.builds(lambda v: ex.among(("kind",), v), st.lists(st.sampled_from("xyz"), min_size=1)),
    st.sampled_from([0.0, 0.5, 2.0]).map(lambda v: ex.float_is(("ratio",), "<=", v)),
)
questions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(ex.negation),
        st.lists(inner, min_size=2, max_size=5).map(ex.conjunction),
        st.lists(inner, min_size=2, max_size=4).map(ex.disjunction),
    ),
    max_leaves=10,
)


@settings(max_examples=250)
@given(question=questions)
def test_every_solution_is_inside_what_is_said_to_be_known(
    question: Expr, small: Domain, exhaustive: Callable[..., Any]
) -> None:
    found = exhaustive(question, small)
    known = narrow(question, small, codes_of(question, small))
    if known is None:
        assert not found.solutions
        return
    bounds = SlotBounds(known)
    for numbers in found.solutions:
        for path, code in numbers.items():
            if found.codes[path].values:
                assert code in known.codes[path]
            else:
                low, high = known.slot_limits(path)
                assert low <= code <= high
                low, high = bounds(ex.integer(path))
                assert low <= code <= high


@dataclass(frozen=True)
class Call:
    n: int = 0
    m: int = 0
    kind: Literal["x", "y", "z"] = "x"
    ratio: float = 0.0
    name: str = ""
    arch: int = 80


F = fields(Call)


def known_of(predicate: Any) -> Narrowed | None:
    domain = domain_of(Call)
    return narrow(predicate.expr, domain, codes_of(predicate.expr, domain))


@pytest.mark.parametrize(
    "predicate",
    [
        (F.n >= 1024) & (F.n <= 1023),
        (F.n // 16 >= 4) & (F.n < 64),
        (F.kind == "x") & (F.kind != "x"),
        F.kind.isin("xy") & F.kind.isin("z"),
        (F.arch >= 90) & F.arch.isin([80, 86]),
        (F.ratio > 0.5) & (F.ratio <= 0.5),
        (F.ratio > 0.5) & F.ratio.is_nan(),
        (F.name == "a") & (F.name == "b"),
        ((F.n >= 8) | (F.m >= 8)) & (F.n < 8) & (F.m < 8),
        ((F.n >= 8) | (F.n == 3)) & (F.n >= 4) & (F.n <= 7),
        (F.n + F.m <= 3) & (F.n >= 4),
        (F.n % 16 >= 16) & (F.m > 0),
        F.n < 0,
    ],
    ids=str,
)
def test_what_single_fields_refute_needs_no_solver(predicate: Any) -> None:
    assert known_of(predicate) is None


def test_a_choice_of_which_one_part_is_left_becomes_known() -> None:
    known = known_of(((F.n >= 8) & (F.m == 2) | (F.n <= 3) & (F.m == 5)) & (F.n >= 5))
    assert known is not None
    assert known.slot_limits(("m",)) == (2, 2)


def test_what_alternatives_say_of_its_parts_is_said_of_a_sum() -> None:
    @dataclass
    class Pair:
        n: int = 0
        m: int = 0

    domain = domain_of(Pair)
    n, m = (ex.integer((name,)) for name in "nm")
    total = ex.add(n, m)
    sides = [ex.conjunction([ex.equals(n, x), ex.equals(m, 40 - x)]) for x in (0, 40)]
    question = ex.conjunction([ex.at_most(total, 50), ex.disjunction(sides)])
    known = narrow(question, domain, codes_of(question, domain))
    assert known is not None
    assert known.bounds(total) == (40, 40)
    beyond = ex.conjunction([question, ex.disjunction([ex.at_most(total, 30), ex.at_least(total, 45)])])
    assert narrow(beyond, domain, codes_of(beyond, domain)) is None


def test_a_question_deeper_than_the_recursion_limit_is_narrowed_all_the_same() -> None:
    question = (F.n >= 7).expr
    for i in range(3000):
        part = ex.at_most(ex.integer(("m",)), 5000 - i)
        question = ex.conjunction([question, part]) if i % 2 else ex.disjunction([question, ex.negation(part)])
    domain = domain_of(Call)
    assert narrow(question, domain, codes_of(question, domain)) is not None
