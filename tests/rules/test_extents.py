"""How far one field may move: nothing that any rule answers changes there, whatever the rules ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tileops_rules import Candidate, Range, Selector
from tileops_rules.extents import Extent, extent_of


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 400)] = 1
    m: Annotated[int, Range(0, 60)] = 1
    flag: bool = False

    def invalid(self) -> str | None:
        return "n is more than five times m, and 300" if self.n > 300 and self.n > 5 * self.m else None


def short(call: Call) -> str | None:
    return None if call.n <= 128 else f"n {call.n} is above 128"


def steep(call: Call) -> str | None:
    if call.flag and 3 * call.n >= 100 + 2 * call.m:
        return "3 n is large"
    return "n is 17" if call.n == 17 else None


def falling(call: Call) -> str | None:
    return None if 2 * call.m - 3 * call.n < 7 else "n is small"


def throwing(call: Call) -> str | None:
    if call.n == 250:
        raise ValueError("250")
    return None


RULES = (short, steep, falling, throwing)


def selector(*rules: Callable[[Call], str | None]) -> Selector:
    return Selector(Call, [Candidate(f"rule_{i}", rule) for i, rule in enumerate(rules)])


def answers(rules: tuple[Callable[[Call], str | None], ...], call: Call) -> list[object]:
    """Of each rule whether it serves, refuses or raises, and of the call whether it can be."""
    found: list[object] = [call.invalid() is None]
    for rule in rules:
        try:
            found.append(rule(call) is None)
        except ValueError:
            found.append("raises")
    return found


EXTENT = extent_of(selector(*RULES), "n")


@given(st.integers(0, 400), st.integers(0, 60), st.booleans())
def test_no_rule_answers_differently_within_the_range(n: int, m: int, flag: bool) -> None:
    call = Call(n, m, flag)
    assert isinstance(EXTENT, Extent)
    found = EXTENT.around(call)
    assert found is not None
    low, high = found
    assert 0 <= low <= n <= high <= 400
    for value in range(low, high + 1):
        assert answers(RULES, replace(call, n=value)) == answers(RULES, call), value


@given(st.integers(0, 400), st.integers(0, 60))
def test_a_range_ends_where_one_rule_answers_differently_or_the_domain_does(n: int, m: int) -> None:
    extent = extent_of(selector(short), "n")
    assert extent is not None
    found = extent.around(Call(n, m))
    assert found is not None
    for outside in (found[0] - 1, found[1] + 1):
        if 0 <= outside <= 400:
            assert answers((short,), Call(outside, m)) != answers((short,), Call(n, m))


def test_a_call_outside_the_domain_has_no_range() -> None:
    assert EXTENT is not None
    assert EXTENT.around(Call(n=401)) is None
    assert EXTENT.around(Call(m=-1)) is None


def test_a_field_that_no_rule_asks_about_has_its_whole_domain() -> None:
    extent = extent_of(Selector(Call, [Candidate("short", lambda call: None)]), "m")
    assert extent is not None
    assert extent.around(Call(n=3)) == (0, 60)


@pytest.mark.parametrize(
    "rule",
    [
        lambda call: None if call.n % 8 == 0 else "remainder",
        lambda call: None if call.n * call.m < 900 else "product",
        lambda call: None if call.n // 8 + call.n < 90 else "quotient",
        lambda call: None if abs(call.n - call.m) % 3 == 0 else "distance",
    ],
    ids=["remainder", "product", "quotient", "distance"],
)
def test_of_a_field_that_is_asked_otherwise_nothing_is_known(rule: Callable[[Call], str | None]) -> None:
    assert extent_of(selector(short, rule), "n") is None


def test_nothing_is_known_where_a_rule_was_not_lifted_or_the_field_is_no_integer() -> None:
    assert extent_of(selector(short, lambda call: "odd" if int(call.n) % 2 else None), "n") is None
    assert extent_of(selector(short), "flag") is None
    assert extent_of(selector(short), "nothing") is None


@dataclass(frozen=True)
class Guarded:
    n: Annotated[int, Range(0, 200)] = 1
    w: int | None = None
    m: Annotated[int, Range(0, 9)] = 0
    shape: tuple[int, ...] = ()


@pytest.mark.parametrize(
    "rule",
    [
        lambda call: None if call.w is None or call.n + call.w <= 100 else "w",
        lambda call: None if call.m == 0 or call.n + 100 // call.m <= 50 else "m",
        lambda call: None if len(call.shape) == 0 or call.n + call.shape[0] <= 50 else "shape",
    ],
    ids=["None", "zero", "empty"],
)
def test_what_is_not_there_has_no_border(rule: Callable[[Guarded], str | None]) -> None:
    extent = extent_of(Selector(Guarded, [Candidate("rule", rule)]), "n")
    assert extent is not None
    assert extent.around(Guarded(n=7)) == (0, 200)
    found = extent.around(Guarded(n=7, w=20, m=4, shape=(10,)))
    assert found is not None
    assert found[1] in (80, 25, 40)


def test_a_field_that_holds_none_has_no_range() -> None:
    rule = lambda call: None if call.w is None or call.w <= 100 else "w"  # noqa: E731
    extent = extent_of(Selector(Guarded, [Candidate("rule", rule)]), "w")
    assert extent is not None
    assert extent.around(Guarded(w=None)) is None
    found = extent.around(Guarded(w=5))
    assert found is not None
    assert found[1] == 100
