"""Expressions with other numbers or slots in place of theirs mean what they should."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import expr as E
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import KINDS, Expr, Path, walk
from tileops_rules.substituting import _LEAVES, REBUILD, renamed, with_numbers

A: Path = ("a",)
B: Path = ("b",)
NUMBERS = st.integers(-9, 9)


def numbers() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(NUMBERS.map(E.constant), st.sampled_from([E.integer(A), E.integer(B)]))

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        divisor = st.integers(1, 6).map(E.constant)
        return st.one_of(
            st.builds(E.add, inner, inner),
            st.builds(E.multiply, inner, inner),
            st.builds(E.floordiv, inner, divisor),
            st.builds(E.mod, inner, divisor),
            inner.map(E.absolute),
            inner.map(E.bit_length),
        )

    return st.recursive(leaves, grown, max_leaves=6)


def questions() -> st.SearchStrategy[Expr]:
    atoms = st.one_of(st.builds(E.at_most, numbers(), NUMBERS), st.builds(E.equals, numbers(), NUMBERS))
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            inner.map(E.negation),
            st.lists(inner, min_size=2, max_size=3).map(E.conjunction),
            st.lists(inner, min_size=2, max_size=3).map(E.disjunction),
        ),
        max_leaves=5,
    )


@settings(max_examples=200, deadline=None)
@given(questions(), NUMBERS, NUMBERS, NUMBERS)
def test_a_shifted_slot_asks_about_the_shifted_value(question: Expr, a: int, b: int, shift: int) -> None:
    shifted = with_numbers(question, {A: E.add(E.integer(A), E.constant(shift))})
    assert evaluate(shifted, {A: a, B: b}) == evaluate(question, {A: a + shift, B: b})


@settings(max_examples=100, deadline=None)
@given(questions(), NUMBERS, NUMBERS)
def test_a_renamed_slot_is_read_where_it_is_now(question: Expr, a: int, b: int) -> None:
    moved = renamed(question, {A: ("c",)})
    assert evaluate(moved, {("c",): a, B: b}) == evaluate(question, {A: a, B: b})
    assert renamed(moved, {("c",): A}) is question


def test_every_kind_of_node_is_rebuilt() -> None:
    assert set(REBUILD) | set(_LEAVES) | {"const", "truth"} == set(KINDS)
    assert not set(REBUILD) & set(_LEAVES)


def test_slots_of_every_sort_are_renamed() -> None:
    leaves: dict[str, Any] = {
        "int": E.at_most(E.integer(A), 3),
        "among": E.among(A, ["x", 1, True]),
        "float_is": E.float_is(A, "<=", 0.5),
        "str_is": E.str_is(A, "plain"),
    }
    assert set(leaves) == set(_LEAVES)
    for question in leaves.values():
        moved = renamed(E.negation(question), {A: B})
        assert {E.path_of(node) for node in walk(moved)} - {None} == {B}
        assert renamed(moved, {B: A}) is E.negation(question)
