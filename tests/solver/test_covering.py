"""Smallest hitting sets and covers, compared with trying every subset."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
from tileops_solver import covering
from tileops_solver.covering import Cover, TooHard, smallest_cover, smallest_hitting_set
from tileops_solver.engine import Outcome

MEMBERS = "abcdefgh"


def random_calls(seed: int) -> list[frozenset[str]]:
    """For each of some calls, who serves it."""
    draw = random.Random(seed)
    most = draw.randint(1, 4)
    return [frozenset(draw.sample(MEMBERS, draw.randint(1, most))) for _ in range(draw.randint(1, 14))]


def first_that_hits(sets: Sequence[frozenset[str]]) -> tuple[str, ...]:
    for size in range(len(MEMBERS) + 1):
        for chosen in combinations(MEMBERS, size):
            if all(each & set(chosen) for each in sets):
                return chosen
    raise AssertionError


def asks(calls: Sequence[frozenset[str]], gives_up: Callable[[int], bool] = lambda n: False) -> covering.Gap:
    asked = 0

    def gap(members: Sequence[str]) -> tuple[Outcome, frozenset[str]]:
        nonlocal asked
        asked += 1
        if gives_up(asked):
            return Outcome.UNKNOWN, frozenset()
        left = [each for each in calls if each.isdisjoint(members)]
        return (Outcome.POSSIBLE, left[-1]) if left else (Outcome.IMPOSSIBLE, frozenset())

    return gap


@pytest.mark.parametrize("seed", range(0, 400, 40))
def test_the_smallest_set_is_found_and_the_first_of_several(seed: int) -> None:
    for each in range(seed, seed + 40):
        calls = random_calls(each)
        assert smallest_hitting_set(calls) == first_that_hits(calls), each
        assert smallest_cover(MEMBERS, asks(calls)) == Cover(first_that_hits(calls), True), each


def test_nothing_is_needed_where_there_is_nothing_to_hit() -> None:
    assert smallest_hitting_set([]) == ()


@pytest.mark.parametrize("after", [1, 2, 3])
def test_where_a_question_is_not_decided_a_set_is_given_of_which_no_member_can_go(after: int) -> None:
    for seed in range(60):
        calls = random_calls(seed)
        if smallest_cover(MEMBERS, asks(calls, lambda n: n == after)).smallest:
            continue
        cover = smallest_cover(MEMBERS, asks(calls, lambda n: n == after))
        assert all(each & set(cover.members) for each in calls)
        for member in cover.members:
            rest = set(cover.members) - {member}
            assert any(each.isdisjoint(rest) for each in calls), (seed, member)


def test_where_nothing_is_decided_all_members_are_given() -> None:
    assert smallest_cover("cab", asks([frozenset("a")], lambda n: True)) == Cover(("a", "b", "c"), False)


def test_many_calls_with_a_server_of_their_own_take_no_search() -> None:
    names = [f"k{i:03}" for i in range(100)]
    calls = [frozenset({name, "z"}) if i % 2 else frozenset({name}) for i, name in enumerate(names)]
    assert smallest_cover([*names, "z"], asks(calls)) == Cover(tuple(sorted([*names[::2], "z"])), True)


def test_a_search_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "_MOST_NODES", 10)
    draw = random.Random(0)
    calls = [frozenset(draw.sample(MEMBERS, 3)) for _ in range(30)]
    with pytest.raises(TooHard):
        smallest_hitting_set(calls)
    cover = smallest_cover(MEMBERS, asks(calls))
    assert not cover.smallest
    assert all(each & set(cover.members) for each in calls)


def test_the_number_of_calls_looked_at_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "_MOST_CALLS", 2)
    cover = smallest_cover("abc", asks([frozenset("a"), frozenset("b"), frozenset("c")]))
    assert cover == Cover(("a", "b", "c"), False)


def test_the_number_of_members_asked_about_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "_MOST_DROPPED", 1)
    cover = smallest_cover("abc", asks([frozenset("c")], lambda n: n == 1))
    assert cover == Cover(("b", "c"), False)


def test_the_search_ends_at_the_number_of_sets_that_may_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by hand: 1 of no member, 3 of up to one, 2 that find two suffice, 3 to find the first two of those."""
    calls = [frozenset("ab"), frozenset("bc"), frozenset("ca")]
    monkeypatch.setattr(covering, "_MOST_NODES", 9)
    assert smallest_hitting_set(calls) == ("a", "b")
    monkeypatch.setattr(covering, "_MOST_NODES", 8)
    with pytest.raises(TooHard):
        smallest_hitting_set(calls)


def test_sets_without_a_member_in_common_are_counted_and_larger_ones_are_left_out() -> None:
    assert covering._disjoint([frozenset("ab"), frozenset("bc"), frozenset("cd"), frozenset("e")]) == 3
    assert covering._disjoint([]) == 0
    sets = [frozenset("abc"), frozenset("cd"), frozenset("ab"), frozenset("cd"), frozenset("e"), frozenset("de")]
    assert covering._without_supersets(sets) == [frozenset("e"), frozenset("ab"), frozenset("cd")]
