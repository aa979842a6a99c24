"""Does every preference, as it is written, have an effect?

An edge stands where ``preferred_over`` of one implementation names another. It has no effect of its own that is
``edge-general`` (the other is the general implementation, below all the same), ``edge-implied`` (without it the same
implementations win over the same others) or ``edge-disjoint`` (no valid call is served by both). Where one class
stands in several interfaces of an op, an edge is idle only if it is idle in each that has both; it is then
reported once, in the first of them by name, for what it is there.

Between disjoint regions an edge may still order others by way of the two; the finding then says to write that order
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tileops_rules import Selector

from tileops_solver.checks.asked import Check, Result
from tileops_solver.checks.edits import class_name, listed, preference, stated_preferences
from tileops_solver.checks.reach import at_most_served, reach_of, reached
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.places import place_of
from tileops_solver.subject import Subject

__all__ = ["CHECK"]

_Edge = tuple[str, str]

_WEIGHTS: Final[Mapping[str, Severity]] = {
    "edge-general": Severity.NOTE,
    "edge-implied": Severity.WARNING,
    "edge-disjoint": Severity.WARNING,
}

_WHY: Final[Mapping[str, str]] = {
    "edge-general": "{1} is the general implementation, which stands below all others anyway",
    "edge-implied": "that follows from the other preferences, by {path}",
    "edge-disjoint": "no valid call is served by both",
}


def _run(subject: Subject) -> Result:
    homes = _Homes(subject)
    written = (
        (winner, loser)
        for winner in subject.selector.keys
        for loser in sorted(subject.selector.candidate(winner).preferred_over)
    )
    result = Result.of(each for edge in written for each in _asked(homes, edge))
    subject.step()
    return result


class _Homes:
    """The interfaces of the op as subjects, by name."""

    def __init__(self, subject: Subject) -> None:
        self.here = subject
        self._others: dict[int, Subject] = {id(subject.selector): subject}

    def of(self, edge: _Edge) -> list[Subject]:
        """Those in which both keys stand with the edge between them."""
        winner, loser = edge
        ordered = sorted(self.here.siblings, key=lambda selector: selector.interface)
        return [
            self._subject(selector)
            for selector in ordered
            if {winner, loser} <= set(selector.keys) and loser in selector.candidate(winner).preferred_over
        ]

    def _subject(self, selector: Selector) -> Subject:
        found = self._others.get(id(selector))
        if found is None:
            found = self._others[id(selector)] = self.here.beside(selector)
        return found


def _asked(homes: _Homes, edge: _Edge) -> Iterator[Finding | Undecided]:
    here, *others = homes.of(edge)
    if here is not homes.here:
        return
    mine = _idle(here, edge)
    elsewhere = [_idle(other, edge) for other in others]
    if any(not any(verdict is not False for verdict in each.values()) for each in (mine, *elsewhere)):
        return  # It has an effect in some interface.
    open_points = [each for each in (mine, *elsewhere) if not any(verdict is True for verdict in each.values())]
    for kind, verdict in mine.items():
        if verdict is True and not open_points:
            yield _finding(here, edge, kind, [(s, e) for s, e in zip(others, elsewhere, strict=True)])
    reasons = [verdict for each in open_points or (mine,) for verdict in each.values() if isinstance(verdict, str)]
    if reasons:
        yield here.undecided("edges", edge, f"whether any call is served by both: {reasons[0]}")


def _idle(subject: Subject, edge: _Edge) -> dict[str, bool | str]:
    """For each kind, whether the edge is idle so; a reason where that is not known."""
    selector = subject.selector
    if selector.candidate(edge[1]).general:
        return {"edge-general": True}
    return {"edge-implied": _path(selector, edge) is not None, "edge-disjoint": _disjoint(subject, edge)}


def _path(selector: Selector, edge: _Edge) -> tuple[str, ...] | None:
    """A shortest way from the winner to the loser over other edges; the first in dictionary order."""
    winner, loser = edge
    paths: dict[str, tuple[str, ...]] = {winner: (winner,)}
    waiting = [winner]
    for key in waiting:
        for below in sorted(selector.candidate(key).preferred_over):
            if below not in paths and (key, below) != edge and (below == loser or loser in selector.wins_over[below]):
                paths[below] = (*paths[key], below)
                waiting.append(below)
    return paths.get(loser)


def _disjoint(subject: Subject, edge: _Edge) -> bool | str:
    winner, loser = edge
    reach = reach_of(subject)
    unlifted = [key for key in edge if key not in subject.lifted]
    if not unlifted:
        for one, other in (edge, (loser, winner)):
            example = reach.example(subject, one)
            if example.outcome is Outcome.IMPOSSIBLE:
                return True
            if example.outcome is Outcome.POSSIBLE and reach.serves(other, example.call):
                return False
    found = reach.some(subject, [at_most_served(subject, key) for key in edge])
    if found.outcome is Outcome.POSSIBLE:
        return subject.causes(unlifted) if unlifted else False
    return True if found.outcome is Outcome.IMPOSSIBLE else found.reason


# ------------------------------------------------------------------------------------------------------ what is said


def _finding(subject: Subject, edge: _Edge, kind: str, others: list[tuple[Subject, Mapping[str, Any]]]) -> Finding:
    winner, loser = edge
    selector = subject.selector
    path = _path(selector, edge)
    why = _WHY[kind].format(winner, loser, path=" over ".join(path or ()))
    for other, verdicts in others:
        same = verdicts.get(kind) is True
        other_kind = kind if same else next(k for k, verdict in verdicts.items() if verdict is True)
        other_path = _path(other.selector, edge)
        other_why = _WHY[other_kind].format(winner, loser, path=" over ".join(other_path or ()))
        why += f"; in {other.selector.interface} {'too ' if same else ''}{other_why}"
    lines = {winner: stated_preferences(selector, winner) - {loser}}
    named = {winner: class_name(selector, winner)}
    through: dict[_Edge, None] = {}
    for home in (subject, *(other for other, _ in others)) if kind == "edge-disjoint" else ():
        for pair in _through(home, edge):
            through[pair] = None
            named[pair[0]] = class_name(home.selector, pair[0])
            lines[pair[0]] = lines.get(pair[0], stated_preferences(home.selector, pair[0])) | {pair[1]}
    edit = "; ".join(f"{preference(keys)} in {named[key]}" for key, keys in lines.items())
    message = f"{winner} is preferred over {loser}, to no effect: {why}."
    if through:
        ordered = listed(f"{above} over {below}" for above, below in through)
        message = (
            f"{winner} is preferred over {loser}, and {why}; it orders {ordered} by way of the two, "
            f"which is better written itself."
        )
    return subject.finding(
        kind,
        _WEIGHTS[kind],
        edge,
        f"{message} Write {edit} ({place_of(selector, winner)})",
        edit=edit,
        facts={"orders": tuple(through)} if through else {},
    )


def _through(subject: Subject, edge: _Edge) -> tuple[_Edge, ...]:
    """Pairs besides its own that only this edge orders and that share a call, as far as is known."""
    winner, loser = edge
    selector = subject.selector
    written = {c.key: c.preferred_over - ({loser} if c.key == winner else set()) for c in selector.candidates}
    above = sorted({winner, *(k for k in selector.keys if winner in selector.wins_over[k])})
    below = sorted({loser, *(k for k in selector.wins_over[loser] if not selector.candidate(k).general)})
    found: list[_Edge] = []
    for one in above:
        left = reached(one, written)
        for other in below:
            if other not in left and (one, other) != edge:
                shared = reach_of(subject).some(subject, [at_most_served(subject, key) for key in (one, other)])
                if shared.outcome is not Outcome.IMPOSSIBLE:
                    found.append((one, other))
    return tuple(found)


CHECK: Final = Check(
    id="edges",
    asks="Does every preference, as it is written, have an effect?",
    kinds=_WEIGHTS,
    run=_run,
    whole=True,
)
