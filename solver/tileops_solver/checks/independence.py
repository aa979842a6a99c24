"""Can a field change which implementation is chosen, and at which of its values does it?

The choice of a call is the set of implementations that serve it and over which no serving one wins: one key, none,
or several that tie. A field changes the choice where two valid calls that differ in this field alone have
different choices. Within an integer field the choice changes at a value ``v`` where two valid calls that hold
``v - 1`` and ``v`` there, and agree in every other field, have different choices.

Asked on request only, since whether a field should matter is for people to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tileops_rules.expr import (
    Expr,
    Path,
    among,
    at_most,
    conjunction,
    constant,
    disjunction,
    equals,
    integer,
    negation,
    subtract,
)
from tileops_rules.shapes import IntShape
from tileops_rules.substituting import with_numbers

from tileops_solver.answer import InconsistencyError
from tileops_solver.checks.asked import Check, Result
from tileops_solver.engine import Outcome, Question
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.real_methods import chosen_keys
from tileops_solver.subject import Subject
from tileops_solver.twins import Pair, TwinDomain
from tileops_solver.validity import rejection
from tileops_solver.witness import Witness

__all__ = ["CHECK", "MOST_CHANGES"]

MOST_CHANGES: Final = 64
"""Values at which a choice changes before the list is given up: a remainder makes it change for ever."""


def _run(subject: Subject) -> Result:
    fields = subject.domain.fields
    result = Result.of(
        [
            *(_independent(subject, field) for field in subject.independent_of if field in fields),
            *(_changes(subject, field) for field in subject.changes_within if isinstance(fields.get(field), IntShape)),
        ]
    )
    subject.step()
    return result


def _independent(subject: Subject, field: str) -> Finding | Undecided | str:
    if subject.unlifted:
        return subject.undecided("independence", subject.unlifted, subject.causes(subject.unlifted), field)
    twins = TwinDomain(subject.domain, field)
    for key in subject.lifted:
        witness = _differing(subject, twins, subject.chosen(key))
        if witness.outcome is Outcome.UNKNOWN:
            return subject.undecided("independence", (key,), witness.reason, field)
        if witness.outcome is Outcome.POSSIBLE:
            return _dependent(subject, field, witness.call)
    if not _can_differ(subject, twins, field):
        why = f"no two valid calls are shown to differ in {field} alone, so that there is nothing to compare"
        return subject.undecided("independence", (), why, field)
    return f"{field} changes no choice: proved"


def _can_differ(subject: Subject, twins: TwinDomain, field: str) -> bool:
    """Whether two valid calls differ in a field alone; of floats and strings that is taken for granted."""
    differ: list[Expr] = []
    for slot in subject.domain.fields[field].slots():
        if slot.sort == "int":
            here = integer(slot.path)
            differ.append(negation(equals(subtract(here, twins.other(here)), 0)))
        elif slot.sort == "finite":
            held = [among(slot.path, [value]) for value in slot.values]
            differ += [conjunction([here, negation(twins.other(here))]) for here in held]
        else:
            return True
    parts = [subject.valid, twins.other(subject.valid), disjunction(differ)]
    return subject.search(parts, lambda pair: None, domain=twins).outcome is Outcome.POSSIBLE


def _differing(subject: Subject, twins: TwinDomain, chosen: Expr) -> Witness:
    """The smallest pair of valid calls of which one is among the *chosen* and the other is not."""

    def accepts(pair: Pair) -> str | None:
        return rejection(subject.selector, pair.one) or rejection(subject.selector, pair.other)

    parts = [subject.valid, chosen, twins.other(subject.valid), negation(twins.other(chosen))]
    return subject.search(parts, accepts, domain=twins)


def _dependent(subject: Subject, field: str, pair: Pair) -> Finding:
    before, after = _choice(subject, pair.one), _choice(subject, pair.other)
    if before == after:
        raise InconsistencyError(
            f"{subject.name}: {field} is proved to change the choice of a call for which it does not change it",
            call=pair.one,
            facts=(f"one: {pair.one!r} gets {_words(before)}", f"other: {pair.other!r} gets {_words(after)}"),
        )
    return subject.finding(
        "independence",
        Severity.ERROR,
        tuple(sorted({*before, *after})),
        f"{field} changes the choice: {pair.one!r} gets {_words(before)}, and with {field}="
        f"{getattr(pair.other, field)!r} it gets {_words(after)}; "
        f"leave {field} out of their rules, or do not ask for independence of it",
        witness=pair.one,
        subject=field,
        edit=f"leave {field} out of the rules of {', '.join(sorted({*before, *after}))}",
        facts={"other": pair.other, "choices": (before, after)},
    )


def _choice(subject: Subject, call: Any) -> tuple[str, ...]:
    """The choice of a call by the original functions."""
    subject.confirm(call, subject.lifted)
    return chosen_keys(subject.selector, call)


def _words(choice: tuple[str, ...]) -> str:
    return " or ".join(choice) if choice else "no implementation"


def _changes(subject: Subject, field: str) -> Undecided | str:
    if subject.unlifted:
        return subject.undecided("changes", subject.unlifted, subject.causes(subject.unlifted), field)
    path: Path = (field,)
    slot = subject.domain.slots[path]
    earlier = _earlier(path)
    differ = [
        disjunction(
            [
                conjunction([chosen, negation(earlier(chosen))]),
                conjunction([negation(chosen), earlier(chosen)]),
            ]
        )
        for chosen in map(subject.chosen, subject.lifted)
    ]
    later = negation(at_most(integer(path), slot.lo))
    parts = [later, subject.valid, earlier(subject.valid), disjunction(differ)]
    found: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    with Question(conjunction(parts), subject.domain) as question:
        while len(found) <= MOST_CHANGES:
            reply = question.check()
            if reply.outcome is Outcome.UNKNOWN:
                return subject.undecided("changes", (), f"after {_listed(found)}: {reply.reason}", field)
            if reply.outcome is Outcome.IMPOSSIBLE:
                return f"within {field} the choice changes at {'exactly ' if found else ''}{_listed(found)}: proved"
            value = reply.codes[path]
            found[value] = _across(subject, field, value, question.values(reply.codes))
            question.require(path, (slot.lo, value - 1), (value + 1, slot.hi))
    return f"within {field} the choice changes at more than {MOST_CHANGES} values, as at {_listed(found)}"


def _earlier(path: Path) -> Callable[[Expr], Expr]:
    one_less = subtract(integer(path), constant(1))
    return lambda expr: with_numbers(expr, {path: one_less})


def _across(subject: Subject, field: str, value: int, values: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The choices just before and at a value, of the calls that the solver found."""
    calls = [subject.domain.build({**values, (field,): number}) for number in (value - 1, value)]
    before, after = (_choice(subject, call) for call in calls)
    if before == after:
        raise InconsistencyError(
            f"{subject.name}: the choice is proved to change at {field} {value}, and does not",
            call=calls[1],
            facts=(f"call: {calls[1]!r}", f"choice on both sides: {_words(after)}"),
        )
    return before, after


def _listed(found: dict[int, tuple[tuple[str, ...], tuple[str, ...]]]) -> str:
    return ", ".join(_described(found)) or "no value"


def _described(found: dict[int, tuple[tuple[str, ...], tuple[str, ...]]]) -> Iterator[str]:
    for value in sorted(found):
        before, after = found[value]
        yield f"{value} ({_words(before)} to {_words(after)})"


CHECK: Final = Check(
    id="independence",
    asks="Can a field change which implementation is chosen, and at which of its values does it?",
    kinds={"independence": Severity.ERROR},
    run=_run,
)
