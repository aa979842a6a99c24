"""What is said of one field or number stands together: the words for intervals, sets and comparisons."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Range, fields
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_solver.wording import _compared, _joined, _met, _others, _subject, worded


@dataclass(frozen=True)
class Call:
    a: Annotated[int, Range(-3, 4)] = 2
    b: Annotated[int, Range(0, 6)] = 0
    c: Annotated[int, Range(1, 5)] = 1
    kind: Literal["x", "y", "z", "w"] = "x"
    five: Literal["p", "q", "r", "s", "t"] = "p"
    six: Literal[1, 2, 3, 4, 5, 6] = 1
    seven: Literal[1, 2, 3, 4, 5, 6, 7] = 1
    flag: bool = False
    mixed: Literal[1, True, 0] = 1
    ratio: float = 0.5
    name: str = ""
    window: Optional[Annotated[int, Range(0, 3)]] = None


DOMAIN = domain_of(Call)
c = fields(Call)
A, B, C = (E.integer((name,)) for name in "abc")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (c.b <= 3, "b <= 3"),
        (c.b >= 3, "b >= 3"),
        ((c.b >= 1) & (c.b <= 3), "1 <= b <= 3"),
        ((c.b >= 2) & (c.b <= 2), "b == 2"),
        (c.b <= 0, "b == 0"),
        (c.b >= 6, "b == 6"),
        (c.b <= 6, "True"),
        (c.b >= 0, "True"),
        (c.b <= 9, "True"),
        (c.b >= 7, "False"),
        (c.b == 9, "False"),
        ((c.b == 9) | (c.b == 2), "b == 2"),
        ((c.b >= 5) & (c.b <= 2), "False"),
        ((c.b >= 3) | (c.b <= 2), "True"),
        (c.b != 3, "b != 3"),
        (c.b != 0, "b >= 1"),
        (c.b != 6, "b <= 5"),
        (c.b != 9, "True"),
        ((c.b != 1) & (c.b != 3), "b not in (1, 3)"),
        ((c.b != 0) & (c.b != 3), "1 <= b <= 2 | b >= 4"),
        ((c.b == 1) | (c.b == 3), "b in (1, 3)"),
        ((c.b == 1) | (c.b == 2), "1 <= b <= 2"),
        ((c.b == 1) | (c.b == 2) | (c.b == 5), "1 <= b <= 2 | b == 5"),
        ((c.b <= 1) | (c.b >= 5), "b <= 1 | b >= 5"),
        ((c.b <= 1) | (c.b == 4), "b <= 1 | b == 4"),
        ((c.b <= 1) | (c.b == 3) | (c.b == 5), "b <= 1 | b in (3, 5)"),
        ((c.b <= 1) | (c.b >= 3), "b != 2"),
        ((c.b == 0) | (c.b == 2) | (c.b >= 5), "b >= 5 | b in (0, 2)"),
        (c.a == -3, "a == -3"),
        (c.a < 0, "a <= -1"),
        (c.c % 2 == 0, "c % 2 == 0"),
        ((c.c % 4 >= 1) & (c.c % 4 <= 2), "1 <= c % 4 <= 2"),
        ((c.a * c.b <= 3) | (c.a * c.b == 5), "a*b <= 3 | a*b == 5"),
    ],
)
def test_a_number_lies_in_intervals_and_at_points(expr: Any, text: str) -> None:
    """An end that the field has anyway is not said, nor is a number that it cannot be."""
    assert worded(expr.expr, DOMAIN) == text


@pytest.mark.parametrize(
    ("subject", "low", "high", "text"),
    [
        (E.subtract(A, B), None, 3, "a <= b + 3"),
        (E.subtract(A, B), 2, None, "a >= b + 2"),
        (E.subtract(A, B), None, 0, "a <= b"),
        (E.subtract(A, B), 0, None, "a >= b"),
        (E.subtract(A, B), None, -1, "a < b"),
        (E.subtract(A, B), 1, None, "a > b"),
        (E.subtract(A, B), 0, 0, "a == b"),
        (E.subtract(A, B), 2, 2, "a == b + 2"),
        (E.subtract(A, B), 1, 3, "1 <= a - b <= 3"),
        (E.subtract(A, E.scale(B, 2)), None, -2, "a <= 2*b - 2"),
        (E.subtract(A, E.add(B, C)), 1, None, "a > b + c"),
        (E.subtract(E.add(A, C), B), None, -1, "a + c < b"),
        (E.add(A, B), None, -1, "a + b <= -1"),
        (E.add(A, B), 1, None, "a + b >= 1"),
        (E.add(A, B), 2, 2, "a + b == 2"),
    ],
)
def test_a_difference_is_compared_as_its_two_sides(
    subject: E.Expr, low: int | None, high: int | None, text: str
) -> None:
    above = [] if low is None else [E.at_least(subject, low)]
    below = [] if high is None else [E.at_most(subject, high)]
    assert worded(E.conjunction([*above, *below]), DOMAIN) == text


@pytest.mark.parametrize(
    ("sign", "value", "text"),
    [
        ("<=", -1, "a < b"),
        ("<=", 1, "a <= b + 1"),
        (">=", 1, "a > b"),
        (">=", -1, "a >= b - 1"),
        ("!=", 1, "a != b + 1"),
        ("==", 0, "a == b"),
    ],
)
def test_one_more_or_less_is_strict_only_on_its_side(sign: str, value: int, text: str) -> None:
    assert _compared(E.subtract(A, B), sign, value) == text


def test_a_difference_that_leaves_numbers_out_says_which() -> None:
    apart = E.subtract(A, B)
    assert worded(E.negation(E.equals(apart, 2)), DOMAIN) == "a != b + 2"
    both = E.conjunction([E.negation(E.equals(apart, 2)), E.negation(E.equals(apart, 0))])
    assert worded(both, DOMAIN) == "a - b not in (0, 2)"
    assert worded(E.negation(both), DOMAIN) == "a - b in (0, 2)"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (c.kind == "x", "kind == 'x'"),
        (c.kind != "x", "kind != 'x'"),
        (c.kind.isin(["x", "y"]), "kind in ('x', 'y')"),
        (c.kind.isin(["x", "y", "z"]), "kind in ('x', 'y', 'z')"),
        (c.kind.isin(["x", "y", "z", "w"]), "True"),
        (~c.kind.isin(["x", "y", "z", "w"]), "False"),
        (~c.kind.isin(["x", "y"]), "kind in ('z', 'w')"),
        (~c.kind.isin(["x", "y", "z"]), "kind == 'w'"),
        (~c.five.isin(["p", "t"]), "five not in ('p', 't')"),
        ((c.kind != "x") & (c.kind != "y"), "kind in ('z', 'w')"),
        ((c.kind == "x") & (c.kind == "y"), "False"),
        ((c.kind == "x") | (c.kind != "x"), "True"),
        ((c.kind == "x") | (c.kind == "w"), "kind in ('x', 'w')"),
        (c.kind.isin(["x", "y"]) & (c.kind != "x"), "kind == 'y'"),
        (~((c.kind == "x") | (c.kind == "w")), "kind in ('y', 'z')"),
        ((c.six != 1) & (c.six != 2), "six in (3, 4, 5, 6)"),
        (~((c.seven == 1) | (c.seven == 2)), "seven not in (1, 2)"),
        (c.flag == True, "flag == True"),  # noqa: E712
        (~(c.flag == True), "flag == False"),  # noqa: E712
        (c.mixed == True, "mixed == True"),  # noqa: E712
        (c.mixed.isin([1, 0]), "mixed in (1, 0)"),
        (c.window == None, "window.type == 'None'"),  # noqa: E711
    ],
)
def test_a_field_of_few_values_is_one_of_some_or_none_of_fewer(expr: Any, text: str) -> None:
    assert worded(expr.expr, DOMAIN) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (E.TRUE, "True"),
        (E.FALSE, "False"),
        ((c.ratio < 0.5).expr, "ratio < 0.5"),
        ((c.name == "q").expr, "name == 'q'"),
        (((c.b <= 3) & (c.kind == "x") & (c.b >= 1)).expr, "1 <= b <= 3 & kind == 'x'"),
        (((c.kind == "x") & (c.b <= 3)).expr, "kind == 'x' & b <= 3"),
        (((c.kind == "x") | (c.b <= 3)).expr, "b <= 3 | kind == 'x'"),
        (((c.name == "q") | (c.ratio < 0.5) | (c.b <= 3)).expr, "b <= 3 | ratio < 0.5 | name == 'q'"),
        (((c.kind == "x") & ((c.b <= 1) | (c.b == 4))).expr, "kind == 'x' & (b <= 1 | b == 4)"),
        (((c.kind == "x") | ((c.b <= 1) | (c.b == 4))).expr, "b <= 1 | b == 4 | kind == 'x'"),
        (((c.kind == "x") | ((c.a <= 1) & (c.ratio < 0.5))).expr, "(a <= 1 & ratio < 0.5) | kind == 'x'"),
        (((c.kind == "x") & ((c.a <= 1) | (c.ratio < 0.5))).expr, "kind == 'x' & (a <= 1 | ratio < 0.5)"),
        (((c.b >= 1) & (c.kind == "x") & (c.b <= 3) & (c.ratio < 0.5)).expr, "1 <= b <= 3 & kind == 'x' & ratio < 0.5"),
        (((c.six != 1) & (c.six != 2) & (c.ratio < 0.5)).expr, "six in (3, 4, 5, 6) & ratio < 0.5"),
        (((c.seven != 1) & (c.seven != 2) & (c.ratio < 0.5)).expr, "seven not in (1, 2) & ratio < 0.5"),
        (((c.six == 1) | (c.six == 2) | (c.ratio < 0.5)).expr, "six in (1, 2) | ratio < 0.5"),
        ((c.window >= 2).expr, "window.type == 'int' & window >= 2"),
        (((c.ratio < 0.5) | (c.ratio >= 2.0)).expr, "ratio < 0.5 | ratio >= 2.0"),
    ],
)
def test_parts_about_one_subject_stand_together_and_alternatives_in_the_order_of_the_fields(
    expr: E.Expr, text: str
) -> None:
    assert worded(expr, DOMAIN) == text


@pytest.mark.parametrize(
    ("expr", "subject"),
    [
        (c.b <= 3, B),
        (c.b == 3, B),
        (c.a + c.b <= 3, E.add(A, B)),
        (c.kind == "x", ("kind",)),
        (~(c.kind == "x"), ("kind",)),
        ((c.b >= 1) & (c.b <= 3), B),
        ((c.b == 1) | ((c.b >= 3) & (c.b != 5)), B),
        ((c.b == 1) | (c.a == 3), None),
        ((c.b == 1) & (c.kind == "x"), None),
        ((c.b == 1) | ((c.b == 2) & (c.a == 3)), None),
        (c.ratio < 0.5, None),
        (c.name == "q", None),
        ((c.ratio < 0.5) & (c.ratio >= 0.1), None),
    ],
)
def test_the_subject_of_a_question_is_what_all_of_it_is_about(expr: Any, subject: Any) -> None:
    assert _subject(expr.expr) == subject


def test_sets_of_intervals_are_joined_met_and_turned_round_as_sets_of_integers_are() -> None:
    """Against sets of the numbers from -9 to 9, with ends beyond them."""
    numbers = range(-9, 10)
    ends: list[Any] = [(-math.inf, -2), (-4, -4), (-3, 1), (0, 0), (2, 5), (4, 7), (6, math.inf)]

    def held(intervals: Any) -> set[int]:
        return {n for n in numbers if any(low <= n <= high for low, high in intervals)}

    for several in itertools.chain.from_iterable(itertools.combinations(ends, size) for size in range(4)):
        joined = _joined(reversed(several))
        assert held(joined) == held(several)
        assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(joined)), "apart, and in order"
        assert held(_others(joined)) == set(numbers) - held(several)
        assert _others(_others(joined)) == joined
        assert held(_met([joined, [(-3, 4)]])) == held(several) & set(range(-3, 5))
        assert _met([joined]) == joined
        assert _met([joined, _others(joined)]) == []
    assert _met([]) == [(-math.inf, math.inf)]
    assert _others([]) == [(-math.inf, math.inf)]
    assert _others([(-math.inf, math.inf)]) == []
    assert _met([[(0, 3)], [(3, 5)]]) == [(3, 3)]
    assert _joined([(3, 5), (0, 2), (1, 1)]) == [(0, 5)]
    assert _joined([(0, 9), (1, 2), (4, 12)]) == [(0, 12)]
