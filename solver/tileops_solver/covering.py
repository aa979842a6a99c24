"""The smallest set of implementations that together serve all calls of another: by counterexamples.

Every call that is to be served must be served by a member. A set that is smallest among those that have a member
for each call *seen so far* is asked whether it leaves a call out. If it does, that call is one more to be seen; if
it leaves none out, no smaller set does either, since every set that leaves none out has a member for each call seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tileops_solver.engine import Outcome

__all__ = ["Cover", "Gap", "TooHard", "smallest_cover", "smallest_hitting_set"]

_MOST_CALLS: Final = 256
"""Calls seen before the search for the smallest set is given up: each takes a question."""

_MOST_DROPPED: Final = 64
"""Members of a set that is not known to be smallest of which it is asked whether they are needed."""

_MOST_NODES: Final = 100_000
"""Sets looked at in the search for one that hits: about 0.1 s."""

Gap = Callable[[Sequence[str]], tuple[Outcome, frozenset[str]]]
"""Of a set of members: is there a call that none of them serves, and, where there is, who serves it."""


class TooHard(Exception):
    """The search for a smallest hitting set took too long."""


@dataclass(frozen=True)
class Cover:
    """A set of members that leaves no call out.

    Attributes:
        members: The set, sorted.
        smallest: No set of fewer members leaves none out, and none of as many that stands before it in
            dictionary order; proved.
    """

    members: tuple[str, ...]
    smallest: bool


def smallest_cover(members: Iterable[str], gap: Gap) -> Cover:
    """The smallest subset of *members* that leaves no call out; the first in dictionary order of several.

    Args:
        members: They leave no call out together: it is known, and not asked again.
        gap: Asks about a subset.

    Returns:
        The subset. Where a question was not decided, or there were too many: a subset that leaves none out, from
        which single members were dropped as far as the questions allow.
    """
    every = tuple(sorted(members))
    seen: list[frozenset[str]] = []
    try:
        while len(seen) < _MOST_CALLS:
            chosen = smallest_hitting_set(seen)
            outcome, serving = gap(chosen)
            if outcome is Outcome.IMPOSSIBLE:
                return Cover(chosen, True)
            if outcome is Outcome.UNKNOWN:
                break
            seen.append(serving & frozenset(every))
    except TooHard:
        pass
    return Cover(_irreducible(every, seen, gap), False)


def _irreducible(every: Sequence[str], seen: Sequence[frozenset[str]], gap: Gap) -> tuple[str, ...]:
    """*every* without members that are shown not to be needed, one after another."""
    kept = list(every)
    asked = 0
    for member in every:
        rest = [each for each in kept if each != member]
        if any(not serving & frozenset(rest) for serving in seen):
            continue
        asked += 1
        if asked > _MOST_DROPPED:
            break
        if gap(rest)[0] is Outcome.IMPOSSIBLE:
            kept = rest
    return tuple(kept)


def smallest_hitting_set(sets: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """The smallest set with a member in each of *sets*, sorted; the first in dictionary order of several.

    Args:
        sets: None of them empty.

    Raises:
        TooHard: more sets were looked at than a search may.
    """
    needed = _without_supersets(sets)
    if _disjoint(needed) == len(needed):
        return tuple(sorted(min(each) for each in needed))
    search = _Search(needed)
    size = 0
    while not search.can_hit((), size):
        size += 1
    chosen: tuple[str, ...] = ()
    for member in sorted(frozenset().union(*sets)):
        if search.can_hit((*chosen, member), size - len(chosen) - 1):
            chosen = (*chosen, member)
    return chosen


def _without_supersets(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """The sets that matter: one that holds another is hit whenever that one is."""
    kept: list[frozenset[str]] = []
    for each in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(other <= each for other in kept):
            kept.append(each)
    return kept


class _Search:
    def __init__(self, sets: Sequence[frozenset[str]]) -> None:
        self._sets = sets
        self._nodes = 0

    def can_hit(self, chosen: tuple[str, ...], more: int) -> bool:
        """Whether *chosen* and *more* further members can hit every set."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise TooHard
        left = [each for each in self._sets if each.isdisjoint(chosen)]
        apart = _disjoint(left)
        if apart == len(left) or more < apart:
            return more >= apart
        smallest = min(left, key=len)
        return any(self.can_hit((*chosen, member), more - 1) for member in sorted(smallest))


def _disjoint(sets: Sequence[frozenset[str]]) -> int:
    """How many of *sets* were found that have no member in common: each needs a member of its own."""
    taken: set[str] = set()
    count = 0
    for each in sets:
        if taken.isdisjoint(each):
            taken |= each
            count += 1
    return count
