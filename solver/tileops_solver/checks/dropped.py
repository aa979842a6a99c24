"""Does an implementation serve a valid call that one of its base classes refuses?

Every class in the method resolution order, the implementation's own apart, that has a ``refusal`` in its own
namespace is looked at. Its function is bound to the implementation, as ``super()`` would bind it, so that it reads
the class attributes that the implementation has, and goes on from there as ``super()`` in it goes on. It is lifted
as any rule is. What is found is a call; how the override is written plays no part.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any, Final

from tileops_rules import NotLifted, Rule, lift
from tileops_rules.expr import conjunction, negation
from tileops_rules.selector import REPLAYS_AT_CONSTRUCTION

from tileops_solver.answer import InconsistencyError
from tileops_solver.checks.asked import Check, Result
from tileops_solver.checks.edits import class_name
from tileops_solver.checks.reach import at_most_served
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.places import class_place, from_import_root, place_of
from tileops_solver.subject import Subject

__all__ = ["CHECK"]

_Lifted = dict[types.FunctionType, Rule | NotLifted]
"""Refusals of base classes that say the same for every implementation."""

_REACHES_LOCALS: Final = frozenset({"super", "locals", "vars", "eval", "exec", "sys", "inspect"})


def _run(subject: Subject) -> Result:
    lifted: _Lifted = {}
    # A rule by hand has no class, and no bases.
    kinds = [(c.key, c.implementation) for c in subject.selector.candidates if c.implementation is not None]
    overridden = ((key, kind, base) for key, kind in kinds for base in _bases(kind))
    result = Result.of(each for case in overridden for each in _asked(subject, *case, lifted))
    subject.step()
    return result


def _bases(kind: type) -> list[type]:
    """The classes whose own refusal may be dropped."""
    return [base for base in kind.__mro__[1:] if "refusal" in vars(base)]


def _bound(base: type, kind: type) -> Any:
    """The refusal that *base* itself has, for *kind*."""
    raw = vars(base)["refusal"]
    bind = getattr(type(raw), "__get__", None)
    return raw if bind is None else bind(raw, None, kind)


def _asked(subject: Subject, key: str, kind: type, base: type, lifted: _Lifted) -> Iterator[Finding | Undecided]:
    selector = subject.selector
    refusal = _bound(base, kind)
    if refusal == selector.candidate(key).refusal:
        return  # It is the implementation's own, inherited as it stands.
    try:
        rule = _rule(subject, refusal, lifted)
    except NotLifted as error:
        if error.call is not None:
            raise InconsistencyError(
                f"{subject.name}: {_unlifted(base, error)}", call=error.call, facts=(f"call: {error.call!r}",)
            ) from error
        yield subject.undecided("dropped-limit", (key,), _unlifted(base, error), _name(base))
        return
    refused = conjunction([negation(rule.serves.expr), negation(rule.raises.expr)])
    witness = subject.find([at_most_served(subject, key), refused], (key,))
    if witness.outcome is Outcome.IMPOSSIBLE:
        return
    if witness.outcome is Outcome.UNKNOWN or key not in subject.lifted:
        yield subject.undecided("dropped-limit", (key,), witness.reason or subject.causes([key]), _name(base))
    else:
        yield _finding(subject, key, base, rule, witness.call)


def _rule(subject: Subject, refusal: Any, lifted: _Lifted) -> Rule:
    """A base class's refusal, lifted; once for all implementations where it does not look at the class it is bound to.

    Raises:
        NotLifted: something in it has no symbolic meaning.
    """
    function = getattr(refusal, "__func__", None)
    if not isinstance(function, types.FunctionType) or _looks_at_its_class(function):
        return lift(refusal, subject.selector.spec, domain=subject.domain).replayed(REPLAYS_AT_CONSTRUCTION)
    if function not in lifted:
        try:
            rule = lift(refusal, subject.selector.spec, domain=subject.domain)
            lifted[function] = rule.replayed(REPLAYS_AT_CONSTRUCTION)
        except NotLifted as error:
            lifted[function] = error
    found = lifted[function]
    if isinstance(found, NotLifted):
        raise found
    return found


def _looks_at_its_class(function: types.FunctionType) -> bool:
    """Whether a class method may do anything with its first argument: by name, from inside, or through ``super()``."""
    code = function.__code__
    if not code.co_argcount or code.co_freevars or code.co_cellvars or _REACHES_LOCALS & set(code.co_names):
        return True
    first = code.co_varnames[0]
    named = (step.argval for step in dis.get_instructions(code))
    return any(name == first or (isinstance(name, tuple) and first in name) for name in named)


def _unlifted(base: type, error: NotLifted) -> str:
    return f"the refusal of its base class {_name(base)} was not lifted: {error.cause}"


def _name(base: type) -> str:
    return base.__qualname__.rpartition("<locals>.")[2]


def _finding(subject: Subject, key: str, base: type, rule: Rule, call: Any) -> Finding:
    selector = subject.selector
    try:
        reason = rule.original(call)
    except Exception as error:  # noqa: BLE001 - shown as what the base class said
        reason = None
        said = repr(error)
    else:
        said = repr(reason)
    if reason is None:
        raise InconsistencyError(
            f"the refusal of {_name(base)} is proved to refuse a call for {key} and does not when it is run",
            call=call,
            facts=(f"call: {call!r}", f"it says: {said}", f"rule: {rule}"),
        )
    name = class_name(selector, key)
    base_place = class_place(base, rule.place)
    message = (
        f"{key} serves {call!r}, which its base class {_name(base)} ({base_place}) refuses: {reason!s}. "
        f"End {name}.refusal in `return super().refusal(call)` ({place_of(selector, key)}), or take the limit out of "
        f"{_name(base)}"
    )
    return subject.finding(
        "dropped-limit",
        Severity.ERROR,
        (key,),
        message,
        witness=call,
        subject=_name(base),
        edit=f"return super().refusal(call) as the last line of {name}.refusal",
        places=(place_of(selector, key), base_place),
        facts={"base": _name(base), "reason": str(reason), "refusal": from_import_root(rule.place)},
    )


CHECK: Final = Check(
    id="dropped-limit",
    asks="Does an implementation serve a valid call that one of its base classes refuses?",
    kinds={"dropped-limit": Severity.ERROR},
    run=_run,
)
