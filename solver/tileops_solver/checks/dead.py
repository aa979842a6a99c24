"""Does every implementation, and every arch that it lists, have a call for which it is chosen?

An implementation is chosen for a call that it can run and serves while none that wins over it serves it; of two
that serve it without an order, both count. One that is never chosen is, by what explains it,

* ``empty``: there is no valid call that it can run and serves;
* ``killed``: it serves some, and of the preferences over it, as they are written, there is one without which it
  would be chosen for some call;
* ``dead``: it serves some, and no single preference explains it. Named is the smallest set of implementations that
  win over it and together serve everything that it serves; of several, the first in dictionary order.

The same is asked for each arch that an implementation lists in ``supported_archs``: whether it serves anything
there, and, where the implementation is chosen for some call at all, whether it is for one there.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.expr import TRUE, Expr, negation

from tileops_solver.answer import InconsistencyError
from tileops_solver.checks.asked import Check, Result
from tileops_solver.checks.edits import class_name, listed, preference, stated_preferences
from tileops_solver.checks.reach import at_least_served, at_most_served, partners, reach_of, reached
from tileops_solver.covering import Cover, smallest_cover
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.real_methods import chosen_keys
from tileops_solver.subject import Platform, Subject

__all__ = ["CHECK"]


@dataclass(frozen=True)
class _Where:
    """The calls among which an implementation is looked for.

    Attributes:
        calls: The calls.
        label: Names the archs, as ``sm_90``; empty for all calls.
        arch: The arch, where it is one that the implementation lists.
    """

    calls: Expr = TRUE
    label: str = ""
    arch: Platform | None = None

    @property
    def there(self) -> str:
        """``" on sm_90"``, or nothing."""
        return f" on {listed(self.label.split('+'))}" if self.label else ""


class _State(enum.Enum):
    """How an implementation stands somewhere."""

    EMPTY = enum.auto()
    CHOSEN = enum.auto()
    NEVER = enum.auto()
    UNDECIDED = enum.auto()


_Said = Finding | Undecided


def _run(subject: Subject) -> Result:
    return Result.of(_said(subject))


def _said(subject: Subject) -> Iterator[_Said]:
    for key in subject.selector.keys:
        yield from _judged(subject, key)
        subject.step()


def _judged(subject: Subject, key: str) -> Iterator[_Said]:
    candidate = subject.selector.candidate(key)
    looked_at = [platform for platform in subject.platforms if platform.arch is not None]
    mine = [platform for platform in looked_at if platform.arch in (candidate.supported_archs or ())]
    whole = _Where()
    if subject.archs is not None and looked_at:
        if reach_of(subject).some(subject, [subject.available(key)]).outcome is Outcome.IMPOSSIBLE:
            return  # It runs on none of the archs that are looked at: that is no fault of it.
        alone = mine[0] if mine and len(looked_at) == 1 else None
        whole = _Where(label="+".join(platform.name for platform in looked_at), arch=alone)
    state = yield from _stands(subject, key, whole)
    if state is _State.EMPTY:
        return
    for platform in mine:
        if platform.name != whole.label:
            where = _Where(platform.calls, platform.name, platform)
            if state is _State.CHOSEN:
                yield from _stands(subject, key, where)
            else:
                yield from _serves(subject, key, where)


def _stands(subject: Subject, key: str, where: _Where) -> Generator[_Said, None, _State]:
    """What is to be said of *key* there, and how it stands."""
    example = yield from _serves(subject, key, where)
    if isinstance(example, _State):
        return example
    reach = reach_of(subject)
    above = partners(subject, key)
    if not _contested(subject, above, example):
        return _State.CHOSEN
    if where.arch is not None and any(not _contested(subject, above, call) for call in reach.on(key, where.arch)):
        return _State.CHOSEN
    mine = [subject.lifted[key], where.calls]
    free = reach.some(subject, [*mine, *(negation(at_most_served(subject, k)) for k in above)])
    if free.outcome is Outcome.POSSIBLE:
        reach.learn(key, free.call)
        return _State.CHOSEN
    unlifted = [k for k in above if k not in subject.lifted]
    if free.outcome is Outcome.IMPOSSIBLE and unlifted:
        free = reach.some(subject, [*mine, *(negation(at_least_served(subject, k)) for k in above)])
    if free.outcome is not Outcome.IMPOSSIBLE:
        reason = free.reason or subject.causes(unlifted)
        yield subject.undecided("dead", (key,), f"whether it is ever chosen{where.there}: {reason}", where.label)
        return _State.UNDECIDED
    yield from _explained(subject, key, where, example)
    return _State.NEVER


def _serves(subject: Subject, key: str, where: _Where) -> Generator[_Said, None, Any]:
    """A call that *key* serves there; or how it stands, where there is none or none was found."""
    reach = reach_of(subject)
    lifted = key in subject.lifted
    if lifted and where.arch is not None:
        moved = next(reach.on(key, where.arch), None)
        if moved is not None:
            return moved
    if lifted and not where.label:
        found = reach.example(subject, key)
    else:
        found = reach.some(subject, [at_most_served(subject, key), where.calls])
    if found.outcome is Outcome.IMPOSSIBLE:
        yield _empty(subject, key, where)
        return _State.EMPTY
    if found.outcome is Outcome.UNKNOWN or not lifted:
        reason = found.reason or subject.causes([key])
        yield subject.undecided("dead", (key,), f"whether it serves a call{where.there}: {reason}", where.label)
        return _State.UNDECIDED
    reach.learn(key, found.call)
    return found.call


def _contested(subject: Subject, above: Sequence[str], call: Any) -> bool:
    """Whether one of *above* serves *call*, or may serve it."""
    selector, reach = subject.selector, reach_of(subject)
    return any(
        reach.serves(k, call) if k in subject.lifted else selector.candidate(k).cannot_run(call) is None for k in above
    )


# ------------------------------------------------------------------------------------------------- what explains it


def _explained(subject: Subject, key: str, where: _Where, example: Any) -> Iterator[_Said]:
    """The finding that *key* is never chosen there."""
    cover = _cover(subject, key, where)
    open_edges: list[str] = []
    for winner in _written(subject.selector, key):
        left = _without(subject.selector, winner, key)
        if set(cover.members) <= left:
            continue  # What is left takes every call just the same.
        outcome = _would_be_chosen(subject, key, where, left)
        if outcome is Outcome.POSSIBLE:
            yield _killed(subject, key, where, example, winner)
            return
        if outcome is Outcome.UNKNOWN:
            open_edges.append(winner)
    for winner in open_edges:
        yield subject.undecided("dead", (key, winner), f"whether {key} would be chosen{where.there} without the edge")
    yield _dead(subject, key, where, example, cover)


def _cover(subject: Subject, key: str, where: _Where) -> Cover:
    """The smallest set of implementations that take every call of *key* there."""
    above = frozenset(k for k in partners(subject, key) if k in subject.lifted)
    reach = reach_of(subject)

    def gap(members: Sequence[str]) -> tuple[Outcome, frozenset[str]]:
        parts = [subject.lifted[key], where.calls, *(negation(subject.lifted[k]) for k in members)]
        found = reach.some(subject, parts)
        serving = reach.serving(found.call, above) if found.outcome is Outcome.POSSIBLE else frozenset()
        if found.outcome is Outcome.POSSIBLE and (not serving or serving & frozenset(members)):
            raise InconsistencyError(
                f"{key} is proved to serve a call that some other takes, and those that serve it are others",
                call=found.call,
                facts=(f"call: {found.call!r}", f"asked without: {members}", f"served by: {sorted(serving)}"),
            )
        return found.outcome, serving

    return smallest_cover(above, gap)


def _written(selector: Selector, key: str) -> tuple[str, ...]:
    """Those whose ``preferred_over`` names *key*: none for the general implementation, below all by itself."""
    if selector.candidate(key).general:
        return ()
    return tuple(c.key for c in selector.candidates if key in c.preferred_over)


def _without(selector: Selector, winner: str, key: str) -> set[str]:
    """Those that would still win over *key* were the edge from *winner* to it not written."""
    above: dict[str, list[str]] = {}
    for candidate in selector.candidates:
        for below in candidate.preferred_over:
            if (candidate.key, below) != (winner, key):
                above.setdefault(below, []).append(candidate.key)
    return reached(key, above)


def _would_be_chosen(subject: Subject, key: str, where: _Where, above: set[str]) -> Outcome:
    """Whether *key* serves a call there that none of *above* serves."""
    mine = [subject.lifted[key], where.calls]
    answers = [
        reach_of(subject).some(subject, [*mine, *(negation(served(subject, k)) for k in sorted(above))]).outcome
        for served in ((at_most_served, at_least_served) if above - subject.lifted.keys() else (at_most_served,))
    ]
    if answers[0] is Outcome.POSSIBLE or answers[-1] is Outcome.IMPOSSIBLE:
        return answers[0] if answers[0] is Outcome.POSSIBLE else Outcome.IMPOSSIBLE
    return Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------------------ what is said


def _empty(subject: Subject, key: str, where: _Where) -> Finding:
    edit = _removal(subject.selector, key, where)
    lists = f"lists {where.arch.arch} in supported_archs and " if where.arch is not None else ""
    message = f"{key} {lists}serves no valid call{where.there}: write {edit}, or let its refusal return None for some"
    return subject.finding("empty", Severity.WARNING, (key,), message, subject=where.label, edit=edit)


def _removal(selector: Selector, key: str, where: _Where) -> str:
    """The edit that leaves *key* out there."""
    if not where.label:
        return f'kernel_types without "{key}"'
    listed_archs = selector.candidate(key).supported_archs
    if where.arch is None or listed_archs is None:
        left_out = where.label.replace("sm_", "").replace("+", ", ")
        return f"supported_archs without {left_out} in {class_name(selector, key)}"
    archs = [arch for arch in listed_archs if arch != where.arch.arch]
    return f"supported_archs = {archs} in {class_name(selector, key)}"


def _lost(subject: Subject, key: str, where: _Where, example: Any, others: Sequence[str]) -> tuple[Any, str, Any]:
    """The smallest call that *key* serves there, a clause that says who wins it, and the winners."""
    found = subject.find([subject.lifted[key], where.calls], (key, *others))
    call = found.call if found.outcome is Outcome.POSSIBLE else example
    won = chosen_keys(subject.selector, call)
    return call, f"{key} serves {call!r}, where {listed(won)} {'is' if len(won) == 1 else 'are'} chosen", won


def _killed(subject: Subject, key: str, where: _Where, example: Any, winner: str) -> Finding:
    selector = subject.selector
    call, clause, won = _lost(subject, key, where, example, (winner,))
    drop = f"{preference(stated_preferences(selector, winner) - {key})} in {class_name(selector, winner)}"
    turn = f"{preference(stated_preferences(selector, key) | {winner})} in {class_name(selector, key)}"
    message = (
        f"{clause}, and it is never chosen{where.there}, for {winner} is preferred over it. Without that preference it "
        f"would be: drop it by {drop}, or turn it round by {turn} as well"
    )
    return subject.finding(
        "killed",
        Severity.WARNING,
        (key,),
        message,
        witness=call,
        subject=where.label,
        edit=f"{drop}; to turn it round, {turn} as well",
        facts={"edge": (winner, key), "chosen": won},
    )


def _dead(subject: Subject, key: str, where: _Where, example: Any, cover: Cover) -> Finding:
    selector = subject.selector
    call, clause, won = _lost(subject, key, where, example, cover.members)
    smallest = cover.smallest and all(k in subject.lifted for k in partners(subject, key))
    over = "" if selector.candidate(key).general else ", preferred over it,"
    together = "serves" if len(cover.members) == 1 else "together serve"
    note = "" if smallest else " (no smaller set was found)"
    edit = _removal(selector, key, where)
    message = (
        f"{clause}, and it is never chosen{where.there}: {listed(cover.members)}{over} {together} all that it serves"
        f"{where.there}{note}. Write {edit}, or refuse some of these calls in "
        f"{listed(class_name(selector, k) for k in cover.members)}"
    )
    return subject.finding(
        "dead",
        Severity.WARNING,
        (key,),
        message,
        witness=call,
        subject=where.label,
        edit=edit,
        facts={"shadowed_by": cover.members, "smallest": smallest, "chosen": won},
    )


CHECK: Final = Check(
    id="dead",
    asks="Does every implementation, and every arch that it lists, have a call for which it is chosen?",
    kinds={"dead": Severity.WARNING, "empty": Severity.WARNING, "killed": Severity.WARNING},
    run=_run,
    steps=lambda selector: len(selector.keys),
)
