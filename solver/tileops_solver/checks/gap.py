"""Is every valid call served, or declared to be served by nobody?

For each arch, and each other type of device, the smallest valid call is looked for that no implementation there
serves and that the interface's ``unserved`` gives no reason for: a *gap*. It comes with what every
implementation says of it and with the nearest call that is served. The other way round, a call for which
``unserved`` gives a reason and which is served is a *served gap*: the declaration is out of date.

A rule that raises on a call does not serve it, and an ``unserved`` that raises declares nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules import Explanation, Selector
from tileops_rules.expr import FALSE, Expr, disjunction, negation

from tileops_solver.answer import InconsistencyError, Verdict
from tileops_solver.checks.asked import Check, Result
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.nearest import Nearest, Neighbourhood
from tileops_solver.places import class_place
from tileops_solver.subject import Platform, Subject

__all__ = ["CHECK", "Refusal"]

_DECLARED: Final = "declared unserved"
"""Names the question whether what is declared is served, where it stays open."""


@dataclass(frozen=True)
class Refusal:
    """Why an implementation does not serve a call.

    Attributes:
        key: The implementation.
        status: ``refuses``, ``cannot run`` or ``raises``.
        reasons: Every reason that applies.
    """

    key: str
    status: str
    reasons: tuple[str, ...]


def _run(subject: Subject) -> Result:
    results = [_gap(subject, platform) for platform in subject.platforms]
    results.append(_served_gap(subject))
    subject.step()
    return Result(
        tuple(result for result in results if isinstance(result, Finding)),
        tuple(result for result in results if isinstance(result, Undecided)),
    )


# ------------------------------------------------------------------------------------------------------------- gaps


def _gap(subject: Subject, platform: Platform) -> Finding | Undecided | None:
    """The gap on *platform*; None where it is proved that there is none."""
    unlifted = subject.unlifted
    selector = subject.selector
    declared = _declared(selector)
    nobody = [platform.calls, negation(subject.served), negation(declared)]
    if selector.unserved_not_lifted is None:
        # Whatever a rule that was not lifted says of calls on which it cannot run, it serves none of them.
        witness = subject.find([*nobody, *(negation(subject.available(key)) for key in unlifted)], selector.keys)
        if witness.outcome is Outcome.POSSIBLE:
            _confirm_declared(selector, witness.call, declared=False)
            return _gap_found(subject, platform, witness.call)
        if witness.outcome is Outcome.UNKNOWN:
            return subject.undecided("gap", (), witness.reason, platform.name)
        if not unlifted:
            return None
    witness = subject.find(nobody)
    if witness.outcome is Outcome.IMPOSSIBLE:
        return None
    reasons = [*_unserved_cause(selector), subject.causes(unlifted)]
    if witness.outcome is Outcome.UNKNOWN:
        reasons.append(witness.reason)
    return subject.undecided("gap", unlifted, "; ".join(filter(None, reasons)), platform.name)


def _gap_found(subject: Subject, platform: Platform, call: Any) -> Finding:
    selector = subject.selector
    refusals = _refusals(selector.explain(call))
    there = f" on {platform.name}" if platform.name else ""
    if all(refusal.status == "cannot run" for refusal in refusals):
        there = f", for none lists {platform.name or 'its device'}"
    near, said = _nearest(subject, call)
    edit = f"serve it, or give the reason why nobody does in {_unserved_at(selector)}"
    return subject.finding(
        "gap",
        Severity.WARNING,
        (),
        f"no implementation serves {call!r}{there}: {_grouped(refusals)}. {said} {edit[0].upper()}{edit[1:]}.",
        witness=call,
        subject=platform.name,
        edit=edit,
        places=[_face_place(selector)],
        facts={"refusals": refusals} if near is None else {"refusals": refusals, "nearest": near},
    )


def _nearest(subject: Subject, call: Any) -> tuple[Nearest | None, str]:
    """The served call nearest to *call*, and the sentence about it."""
    around = Neighbourhood(subject.selector)
    answer = subject.near(call, around.nearest)
    if answer.verdict is Verdict.FOUND:
        near = around.described(call, answer.call)
        return near, f"Nearest to it {near.key} serves {near.call!r}: {near}."
    if answer.verdict is Verdict.NONE:
        return None, "No call at all is served."
    return None, f"The nearest call that is served was not found: {answer.reason}."


def _refusals(explanation: Explanation) -> tuple[Refusal, ...]:
    return tuple(Refusal(entry.key, entry.status, entry.reasons) for entry in explanation.entries)


def _grouped(refusals: Iterable[Refusal]) -> str:
    """The refusals as text, those that are alike together."""
    keys: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for refusal in refusals:
        keys.setdefault((refusal.status, refusal.reasons), []).append(refusal.key)
    told = [f"{', '.join(mine)}: {status}: {'; '.join(reasons)}" for (status, reasons), mine in keys.items()]
    return " | ".join(told) or "there is none"


# ------------------------------------------------------------------------------------------------------ declarations


def _declared(selector: Selector) -> Expr:
    """The calls for which ``unserved`` gives a reason; none where it was not lifted."""
    rule = selector.declared_unserved
    return FALSE if rule is None else negation(disjunction([rule.serves.expr, rule.raises.expr]))


def _unserved_cause(selector: Selector) -> list[str]:
    failed = selector.unserved_not_lifted
    return [] if failed is None else [f"unserved was not lifted: {failed.cause}"]


def _served_gap(subject: Subject) -> Finding | Undecided | None:
    """A call that is declared to be served by nobody, and served; None where it is proved that there is none."""
    selector = subject.selector
    if selector.unserved is None:
        return None
    unlifted = subject.unlifted
    if selector.unserved_not_lifted is not None:
        reason = "; ".join(_unserved_cause(selector))
        return subject.undecided("gap", (), reason, _DECLARED)
    declared = _declared(selector)
    witness = subject.find([declared, subject.served], selector.keys)
    if witness.outcome is Outcome.POSSIBLE:
        return _served_gap_found(subject, witness.call)
    if witness.outcome is Outcome.UNKNOWN:
        return subject.undecided("gap", (), witness.reason, _DECLARED)
    if not unlifted:
        return None
    maybe = subject.find([declared, disjunction(subject.available(key) for key in unlifted)])
    if maybe.outcome is Outcome.IMPOSSIBLE:
        return None
    return subject.undecided("gap", unlifted, subject.causes(unlifted), _DECLARED)


def _served_gap_found(subject: Subject, call: Any) -> Finding:
    selector = subject.selector
    reason = _confirm_declared(selector, call, declared=True)
    keys = [e.key for e in selector.explain(call).entries if e.status in ("chosen", "loses", "ties", "in vain")]
    edit = f"take such calls out of {_unserved_at(selector)}, or refuse them in {' and '.join(keys)}"
    return subject.finding(
        "served-gap",
        Severity.WARNING,
        keys,
        f"{call!r} is declared to be served by nobody ({reason!r}) and {', '.join(keys)} "
        f"serve{'s' if len(keys) == 1 else ''} it: {edit}.",
        witness=call,
        edit=edit,
        facts={"reason": reason},
    )


def _confirm_declared(selector: Selector, call: Any, *, declared: bool) -> Any:
    """What ``unserved`` itself says of a call, held against its rule; an error that it raised declares nothing.

    Raises:
        InconsistencyError: it gives a reason and its rule does not, or the other way round.
    """
    try:
        reason = None if selector.unserved is None else selector.unserved(call)
    except Exception as error:  # noqa: BLE001 - what it raised is what it says
        reason, said = None, f"{type(error).__name__}: {error}"
    else:
        said = repr(reason)
    if (reason is not None) is not declared:
        proved = "a reason for a call, and gives none" if declared else "no reason for a call, and gives one"
        raise InconsistencyError(
            f"unserved is proved to give {proved} when it is run",
            call=call,
            facts=(f"call: {call!r}", f"it says: {said}", f"rule: {_declared(selector)}"),
        )
    return reason


# ------------------------------------------------------------------------------------------------------------ places


def _face(selector: Selector) -> type | None:
    """The interface class, where the selector was made of one."""
    owner = getattr(selector.unserved, "__self__", None)
    if isinstance(owner, type):
        return owner
    kinds = [candidate.implementation for candidate in selector.candidates if candidate.implementation is not None]
    faces = (base for kind in kinds for base in kind.__mro__ if vars(base).get("request") is selector.spec)
    return next(faces, None)


def _face_place(selector: Selector) -> str:
    """Where the interface stands; the call spec where there is none."""
    return class_place(_face(selector) or selector.spec, "<unknown>:0")


def _unserved_at(selector: Selector) -> str:
    face = _face(selector)
    if face is None:
        return "unserved of the Selector"
    return f"unserved of {face.__name__} ({_face_place(selector)})"


CHECK: Final = Check(
    id="gap",
    asks="Is every valid call served, or declared to be served by nobody?",
    kinds={"gap": Severity.WARNING, "served-gap": Severity.WARNING},
    run=_run,
)
