"""Does every call that an implementation serves fit the device: shared memory and threads of a block?

An implementation states both as functions of the call, the same that it is built with: ``block_smem_bytes`` and
``block_threads``. They are lifted as rules are, and what they give is held against the arch: its shared memory
is at most what :data:`~tileops_rules.archs.KNOWN_ARCHS` says, and less where the call states a smaller
``smem_budget``, down to what a block may have on every arch.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules import NotLifted, Rule, lift
from tileops_rules.archs import KNOWN_ARCHS, LEAST_SMEM_BYTES, MOST_THREADS
from tileops_rules.expr import (
    TRUE,
    Expr,
    among,
    at_most,
    conjunction,
    constant,
    disjunction,
    integer,
    negation,
    subtract,
    truth,
)
from tileops_rules.outcome import Fill, Outcome, Raised
from tileops_rules.shapes import FiniteShape, IntShape, UnionShape
from tileops_rules.tree import condition, leaves

from tileops_solver.answer import InconsistencyError
from tileops_solver.checks.asked import Check, Result
from tileops_solver.engine import Outcome as Found
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.subject import Platform, Subject

__all__ = ["CHECK"]

REPLAYS: Final = 256
"""Calls on which a lifted need is compared with its function."""

_Limit = tuple[Expr, Expr]
"""Calls, and the most that a block may have there."""


@dataclass(frozen=True)
class _Need:
    """Something that a block takes, and that an implementation may state."""

    member: str
    what: str
    unit: str
    least: int
    limits: Callable[[Platform, Subject], tuple[_Limit, ...]]


def _run(subject: Subject) -> Result:
    kinds = {key: subject.selector.candidate(key).implementation for key in subject.lifted}
    stated = ((key, need, getattr(kind, need.member, None)) for key, kind in kinds.items() for need in NEEDS)
    result = Result.of(each for case in stated for each in _asked(subject, *case))
    subject.step()
    return result


def _asked(subject: Subject, key: str, need: _Need, stated: Any) -> Iterator[Finding | Undecided]:
    if stated is None:
        return
    try:
        rule = lift(stated, subject.selector.spec, domain=subject.domain).replayed(REPLAYS)
    except NotLifted as error:
        if error.call is not None:
            raise InconsistencyError(
                f"{subject.name}: {need.member} of {key} {error.cause}",
                call=error.call,
                facts=(f"call: {error.call!r}",),
            ) from error
        yield subject.undecided("fits", (key,), f"{need.member} was not lifted: {error.cause}", need.what)
        return
    ends: dict[Outcome, Expr] = {}
    for leaf in leaves(rule.tree):
        ends[leaf.outcome] = condition(rule.tree, functools.partial(operator.eq, leaf.outcome))
    silent = [when for outcome, when in ends.items() if outcome.serves]
    if silent and subject.find([subject.lifted[key], *silent], (key,)).outcome is Found.POSSIBLE:
        yield subject.finding(
            "unstated",
            Severity.NOTE,
            (key,),
            f"{key} states no {need.what} of a block for calls that it serves, so that nothing is proved of it; "
            f"write the classmethod {need.member}(cls, call), and build with what it gives",
            subject=need.what,
            edit=f"def {need.member}(cls, call): ...",
        )
    for platform in subject.platforms:
        limits = need.limits(platform, subject)
        if not limits and _is_cuda(platform):
            yield from _unknown(subject, key, need, platform)
        beyond = [conjunction([when, _beyond(outcome, need, limits)]) for outcome, when in ends.items()]
        witness = subject.find([subject.lifted[key], platform.calls, disjunction(beyond)], (key,))
        label = " of ".join(part for part in (need.what, platform.name) if part)
        if witness.outcome is Found.UNKNOWN:
            yield subject.undecided("fits", (key,), witness.reason, label)
        elif witness.outcome is Found.POSSIBLE:
            yield _finding(subject, key, need, label, rule, witness.call)


def _is_cuda(platform: Platform) -> bool:
    """Whether the calls of a platform may be on a CUDA device."""
    return platform.arch is not None or platform.name in ("", "cuda")


def _unknown(subject: Subject, key: str, need: _Need, platform: Platform) -> Iterator[Undecided]:
    """No limit is known on a platform: undecided where a call is served there."""
    if subject.find([subject.lifted[key], platform.calls]).outcome is not Found.IMPOSSIBLE:
        where = platform.name or "calls that state no arch"
        yield subject.undecided("fits", (key,), f"no {need.what} of a block is known for {where}", platform.name)


def _beyond(outcome: Outcome, need: _Need, limits: tuple[_Limit, ...]) -> Expr:
    """When an end of a need is no number, or one that is more than there is."""
    if isinstance(outcome, Raised):
        return TRUE
    value = _value(outcome)
    if value is None:
        return truth(not outcome.serves)
    above = [conjunction([calls, negation(at_most(subtract(value, most), 0))]) for calls, most in limits]
    return disjunction([*above, at_most(value, need.least - 1)])


def _finding(subject: Subject, key: str, need: _Need, label: str, rule: Rule, call: Any) -> Finding:
    try:
        taken: Any = rule.original(call)
    except Exception as error:  # noqa: BLE001 - that it raises is the finding
        said = f"{need.member} of {key} raised {type(error).__name__}: {error} on {call!r}, which it serves"
        return subject.finding(
            "fits",
            Severity.ERROR,
            (key,),
            f"{said}; refuse the call, or state its need",
            witness=call,
            subject=label,
            edit=f"refuse such calls in refusal, or state their {need.what}",
        )
    most = _most(need, call)
    if type(taken) is int and most is not None and need.least <= taken <= most:
        raise InconsistencyError(
            f"{key} is proved to take more {need.what} than there is, and does not when it is asked",
            call=call,
            facts=(f"call: {call!r}", f"{need.member}: {taken!r}", f"there is: {most}"),
        )
    there = "" if most is None else f" where a block has {most}"
    return subject.finding(
        "fits",
        Severity.ERROR,
        (key,),
        f"{key} serves {call!r} and takes {taken} {need.unit}{there}; "
        f"refuse what does not fit, as `if cls.{need.member}(call) > ...: return ...`, or build it smaller",
        witness=call,
        subject=label,
        edit=f"refuse calls whose {need.member} is above what there is",
        facts={"taken": taken, "most": most},
    )


def _value(outcome: Outcome) -> Expr | None:
    """The number that a need ends in; None where it ends in something else."""
    if isinstance(outcome, Raised):
        return None
    value = outcome.value
    if isinstance(value, Fill) and value.source == "expr":
        return value.args[0]
    return constant(value) if type(value) is int else None


def _most(need: _Need, call: Any) -> int | None:
    """What a block may have on the device of a call, in plain Python."""
    if need.member == "block_threads":
        return MOST_THREADS
    facts = KNOWN_ARCHS.get(getattr(call, "arch", None) or 0)
    stated = getattr(call, "smem_budget", None)
    known = [most for most in (stated, None if facts is None else facts.smem_budget) if most is not None]
    return min(known) if known else None


def _threads(platform: Platform, subject: Subject) -> tuple[_Limit, ...]:
    return ((TRUE, constant(MOST_THREADS)),) if _is_cuda(platform) else ()


def _smem(platform: Platform, subject: Subject) -> tuple[_Limit, ...]:
    """The arch's own budget, or the one that the call states where that is no larger."""
    facts = KNOWN_ARCHS.get(platform.arch or 0)
    if facts is None:
        return ()
    shape = subject.domain.fields.get("smem_budget")
    options = list(shape.options.items()) if isinstance(shape, UnionShape) else [("", shape)]
    limits: list[_Limit] = []
    for name, option in options:
        here = [among(shape.choice.path, [name])] if isinstance(shape, UnionShape) else []
        if isinstance(option, IntShape):
            stated = integer(option.path)
            inside = [at_most(stated, facts.smem_budget), negation(at_most(stated, LEAST_SMEM_BYTES - 1))]
            limits.append((conjunction([*here, *inside]), stated))
        elif isinstance(option, FiniteShape):
            for value in option.slot.values:
                most = facts.smem_budget if value is None else min(int(value), facts.smem_budget)
                limits.append((conjunction([*here, among(option.path, [value])]), constant(most)))
        else:
            limits.append((conjunction(here), constant(facts.smem_budget)))
    return tuple(limits)


NEEDS: Final = (
    _Need("block_smem_bytes", "shared memory", "bytes of shared memory", 0, _smem),
    _Need("block_threads", "threads", "threads", 1, _threads),
)

CHECK: Final = Check(
    id="fits",
    asks="Does every call that an implementation serves fit the shared memory and the threads of a block there?",
    kinds={"fits": Severity.ERROR, "unstated": Severity.NOTE},
    run=_run,
)
