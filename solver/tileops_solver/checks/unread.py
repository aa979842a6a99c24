"""Is there a field that no rule and no build identity reads?

Such a field either changes nothing, or a kernel relies on something that its rule does not look at. What a rule
reads is known of each of its paths; one that no call takes counts too, where lifting could not tell so. What a
build identity reads is what ``entry_for`` was seen to read on calls near the thresholds of its implementation's
rule. Facts of the device belong to every kernel and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tileops_rules import NotLifted, Predicate
from tileops_rules.domain import DEVICE_FACTS
from tileops_rules.expr import conjunction
from tileops_rules.replay import calls_near

from tileops_solver.checks.asked import Check, Result
from tileops_solver.field_reads import fields_read
from tileops_solver.findings import Finding, Severity
from tileops_solver.places import class_place
from tileops_solver.subject import Subject

__all__ = ["CHECK"]

CALLS: Final = 256
"""Calls near the thresholds of a rule; its build identity is asked of those that it serves."""

SERVED: Final = 16
"""Served calls after which an identity is taken to have read what it reads."""

_SEED: Final = 20260229


def _run(subject: Subject) -> Result:
    subject.step()
    every = dict.fromkeys(name for name in subject.domain.fields if name not in ("device", *DEVICE_FACTS))
    try:
        read = set(_by_rules(subject))
        identities = [key for key in subject.lifted if _entry(subject, key) is not None]
        for key in identities:
            read |= _by_identity(subject, key)
    except NotLifted as error:
        return Result(undecided=(subject.undecided("unread", subject.unlifted, error.cause),))
    except _Raised as error:
        return Result(undecided=(subject.undecided("unread", (error.key,), str(error)),))
    return Result(tuple(_finding(subject, name, bool(identities)) for name in every if name not in read))


def _by_rules(subject: Subject) -> Iterator[str]:
    """The fields that refusals read.

    Raises:
        NotLifted: one was not lifted.
    """
    for error in subject.selector.not_lifted.values():
        raise error
    for rule in subject.selector.rules.values():
        yield from (str(path[0]) for path in rule.touched)


class _Raised(Exception):
    """An ``entry_for`` raised on a call that its implementation serves."""

    def __init__(self, key: str, call: Any, error: Exception) -> None:
        super().__init__(f"entry_for of {key} raised {type(error).__name__}: {error} on {call!r}, which it serves")
        self.key = key


def _entry(subject: Subject, key: str) -> Any:
    return getattr(subject.selector.candidate(key).implementation, "entry_for", None)


def _by_identity(subject: Subject, key: str) -> set[str]:
    read: set[str] = set()
    for call in _served(subject, key):
        try:
            read |= fields_read(_entry(subject, key), call)
        except Exception as error:
            raise _Raised(key, call, error) from error
    return read


def _served(subject: Subject, key: str) -> Iterator[Any]:
    """Calls that an implementation serves: near its thresholds, and the smallest one."""
    serves = Predicate(subject.domain, conjunction([subject.valid, subject.lifted[key]]))
    found = 0
    for call, _ in calls_near(subject.selector.rules[key].tree, subject.domain, CALLS, _SEED):
        if serves(call):
            yield call
            found += 1
            if found == SERVED:
                return
    smallest = subject.find([subject.lifted[key]], (key,))
    if smallest.call is not None:
        yield smallest.call


def _finding(subject: Subject, name: str, identities: bool) -> Finding:
    spec = subject.selector.spec
    readers = "no rule and no build identity reads" if identities else "no rule reads"
    return subject.finding(
        "unread",
        Severity.NOTE,
        (),
        f"{readers} {spec.__name__}.{name}: either it changes nothing here, or a kernel relies on what its rule does "
        f"not look at",
        subject=name,
        edit=f"refuse the values of {name} that a kernel does not honour, or leave the field out of {spec.__name__}",
        places=(class_place(spec, "<unknown>:0"),),
    )


CHECK: Final = Check(
    id="unread",
    asks="Is there a field that no rule and no build identity reads?",
    kinds={"unread": Severity.NOTE},
    run=_run,
    whole=True,
)
