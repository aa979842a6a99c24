"""The preference graph, and its agreement with what run time reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tileops_rules import Candidate, Selector
from tileops_solver.order import closure, cycles, preference_graph


@dataclass(frozen=True)
class Call:
    n: int = 0


def serves(call: Any) -> None:
    return None


@st.composite
def preferences(draw: st.DrawFn) -> tuple[dict[str, frozenset[str]], str | None]:
    """Preferences without a circle, and the general key or None: a key prefers some that come later."""
    keys = [f"k{i}" for i in range(draw(st.integers(1, 8)))]
    draw(st.randoms(use_true_random=False)).shuffle(keys)
    general = keys[-1] if draw(st.booleans()) else None
    found = {}
    for place, key in enumerate(keys):
        later = keys[place + 1 :]
        found[key] = frozenset(draw(st.sets(st.sampled_from(later)))) if later else frozenset()
    return found, general


@given(preferences())
def test_networkx_closes_preferences_as_the_selector_does(
    drawn: tuple[dict[str, frozenset[str]], str | None],
) -> None:
    preferred, general = drawn
    candidates = [Candidate(k, serves, preferred_over=v, general=k == general) for k, v in preferred.items()]
    selector = Selector(Call, candidates)
    graph = preference_graph(preferred, [] if general is None else [general])
    assert closure(graph) == selector.wins_over
    assert cycles(graph) == ()


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [
        ({"a": {"b"}, "b": {"a"}}, (("a", "b"),)),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, (("a", "b", "c"),)),
        ({"d": {"c"}, "c": {"d"}, "b": {"a"}, "a": {"b"}}, (("a", "b"), ("c", "d"))),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, ()),
    ],
)
def test_every_circle_is_found(preferred: dict[str, set[str]], expected: tuple[tuple[str, ...], ...]) -> None:
    assert cycles(preference_graph(preferred)) == expected
