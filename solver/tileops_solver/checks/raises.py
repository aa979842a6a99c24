"""On which calls does a rule throw, where it should serve or refuse?

Asked of every implementation whose device a valid call states, of ``unserved`` on every valid call, and of the call
spec's own ``invalid`` on every call of the domain. One finding a rule and type of exception, with the smallest call.
The rule's own function is run on that call and must throw that type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules import NotLifted, Rule
from tileops_rules.expr import TRUE, Expr, disjunction
from tileops_rules.outcome import Outcome as End
from tileops_rules.outcome import Raised
from tileops_rules.tree import condition, leaves

from tileops_solver.answer import InconsistencyError
from tileops_solver.checks.asked import Check, Result
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.places import from_import_root, place_of
from tileops_solver.subject import Subject, platforms_of
from tileops_solver.witness import Witness

__all__ = ["CHECK"]

_LONGEST_CONDITION: Final = 100
"""Characters of a condition that is written out in an edit."""


@dataclass(frozen=True)
class _Asked:
    """A rule that is looked at.

    Attributes:
        name: As messages name it.
        rule: The rule, or why there is none.
        keys: The implementation, where it is the rule of one.
        place: Gives ``file:line``.
        calls: The calls on which it must not throw, besides being valid.
        find: Looks for a call for which all of several expressions hold.
        instead: What to write in place of throwing.
    """

    name: str
    rule: Rule | NotLifted
    keys: tuple[str, ...]
    place: Callable[[], str]
    calls: Expr
    find: Callable[[list[Expr]], Witness]
    instead: str


def _run(subject: Subject) -> Result:
    result = Result.of(each for asked in _rules(subject) for each in _thrown(subject, asked))
    subject.step()
    return result


def _rules(subject: Subject) -> Iterator[_Asked]:
    selector = subject.selector
    for key in selector.keys:
        yield _Asked(
            name=f"refusal of {key}",
            rule=selector.rules.get(key) or selector.not_lifted[key],
            keys=(key,),
            place=functools.partial(place_of, selector, key),
            calls=subject.available(key),
            find=subject.find,
            instead="return a reason",
        )
    declared = selector.declared_unserved or selector.unserved_not_lifted
    if declared is not None:
        yield _Asked(
            name="unserved",
            rule=declared,
            keys=(),
            place=functools.partial(_place, declared),
            calls=TRUE,
            find=subject.find,
            instead="return None, or a reason",
        )
    invalid = selector.invalid or selector.invalid_not_lifted
    if invalid is not None:
        yield _Asked(
            name=f"{selector.spec.__name__}.invalid",
            rule=invalid,
            keys=(),
            place=functools.partial(_place, invalid),
            calls=TRUE,
            find=lambda parts: _find_anywhere(subject, parts),
            instead="return a reason",
        )


def _place(rule: Rule | NotLifted) -> str:
    return from_import_root(f"{rule.file}:{rule.line}")


def _find_anywhere(subject: Subject, parts: list[Expr]) -> Witness:
    """The smallest call of the domain, valid or not, whose device and archs are looked at, for which *parts* hold."""
    domain = subject.domain
    where = [domain.links]
    if subject.archs is not None and any(p.arch is not None for p in platforms_of(domain)):
        where.append(disjunction(platform.calls for platform in subject.platforms if platform.arch is not None))
    return subject.search([*where, *parts], lambda call: None)


def _thrown(subject: Subject, asked: _Asked) -> Iterator[Finding | Undecided]:
    if isinstance(asked.rule, NotLifted):
        if asked.find([asked.calls]).outcome is not Outcome.IMPOSSIBLE:
            reason = f"{asked.name} was not lifted: {asked.rule.cause}"
            yield subject.undecided("raises", asked.keys, reason, "" if asked.keys else asked.name)
        return
    for kind in _types(asked.rule):
        when = condition(asked.rule.tree, functools.partial(_throws, kind))
        witness = asked.find([asked.calls, when])
        subject_text = _named(kind) if asked.keys else f"{asked.name} {_named(kind)}"
        if witness.outcome is Outcome.UNKNOWN:
            yield subject.undecided("raises", asked.keys, witness.reason, subject_text)
        elif witness.outcome is Outcome.POSSIBLE:
            yield _finding(subject, asked, asked.rule, kind, when, witness.call, subject_text)


def _types(rule: Rule) -> list[type[BaseException]]:
    """The types that a rule throws, by name."""
    found = {leaf.outcome.type for leaf in leaves(rule.tree) if isinstance(leaf.outcome, Raised)}
    return sorted(found, key=_named)


def _throws(kind: type[BaseException], end: End) -> bool:
    return isinstance(end, Raised) and end.type is kind


def _named(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _finding(
    subject: Subject, asked: _Asked, rule: Rule, kind: type[BaseException], when: Expr, call: Any, subject_text: str
) -> Finding:
    text = _confirmed(asked, rule, kind, call)
    place = asked.place()
    edit = _edit(when, asked.instead)
    message = (
        f"{asked.name} ({place}) throws {_named(kind)}{f': {text}' if text else ''} on {call!r}, "
        f"where it should {asked.instead}: {edit}"
    )
    return subject.finding(
        "raises",
        Severity.ERROR,
        asked.keys,
        message,
        witness=call,
        subject=subject_text,
        edit=edit,
        places=(place,),
        facts={"exception": _named(kind), "text": text},
    )


def _confirmed(asked: _Asked, rule: Rule, kind: type[BaseException], call: Any) -> str:
    """What the rule's own function says as it throws.

    Raises:
        InconsistencyError: it does not throw, or another type.
    """
    try:
        said: Any = rule.original(call)
    except Exception as error:  # noqa: BLE001 - which one it is, is looked at
        if type(error) is kind:
            return str(error)
        said = error
    raise InconsistencyError(
        f"{asked.name} is proved to throw {_named(kind)} on a call and does not when it is run",
        call=call,
        facts=(f"call: {call!r}", f"it gives: {said!r}"),
    )


def _edit(when: Expr, instead: str) -> str:
    text = str(when)
    where = text if len(text) <= _LONGEST_CONDITION else "it would throw"
    return f"test for it first, and {instead} where {where}"


CHECK: Final = Check(
    id="raises",
    asks="On which calls does a rule throw, where it should serve or refuse?",
    kinds={"raises": Severity.ERROR},
    run=_run,
)
