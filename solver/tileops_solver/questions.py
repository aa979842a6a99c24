"""Questions by hand: is there a call for which a predicate holds?"""

from __future__ import annotations

from typing import Any

from tileops_rules import Predicate
from tileops_rules.expr import conjunction

from tileops_solver.answer import Answer, InconsistencyError, Verdict
from tileops_solver.engine import Outcome
from tileops_solver.validity import rejection, selector_of_all
from tileops_solver.witness import smallest_call

__all__ = ["find_call"]


def find_call(predicate: Predicate, *, within: Predicate | None = None) -> Answer:
    """Look for a call for which *predicate* holds.

    Only valid calls count: every field is in its domain, device facts are as the device has them, and the
    call spec's own ``invalid`` and ``__post_init__`` have nothing against it.

    >>> c = fields(AttentionCall)
    >>> find_call(rule.serves & (c.seqlen_kv >= 1024)).call
    AttentionCall(seqlen_kv=1024)

    Args:
        predicate: The question.
        within: A further predicate that the call must satisfy; the same as ``predicate & within``.

    Returns:
        FOUND with the smallest such call: field by field, in order, the declared default where that is
        possible, else the number nearest to 0. NONE where it is proved that there is none. UNDECIDED, with
        the reason, where neither was shown within the solver's limits.

    Raises:
        TypeError: *predicate* is none, or *within* speaks of another class.
        InconsistencyError: solver and predicate do not agree; a mistake in this library.
        ImportError: the question needs z3, and z3 is not installed.
    """
    for given in (predicate, within):
        if given is not None and not isinstance(given, Predicate):
            raise TypeError(
                f"find_call takes a Predicate, not {given!r}: write one with fields(Spec), or take a rule's .serves"
            )
    asked = predicate if within is None else predicate & within
    selector = selector_of_all(asked.domain)

    def accepts(call: Any) -> str | None:
        reason = rejection(selector, call)
        if reason is None:
            _confirm(asked, call)
        return reason

    question = conjunction([selector.valid.expr, asked.expr])
    witness = smallest_call(question, asked.domain, accepts)
    if witness.outcome is Outcome.POSSIBLE:
        return Answer(Verdict.FOUND, witness.call)
    verdict = Verdict.NONE if witness.outcome is Outcome.IMPOSSIBLE else Verdict.UNDECIDED
    return Answer(verdict, reason=witness.reason)


def _confirm(predicate: Predicate, call: Any) -> None:
    try:
        holds = predicate(call)
    except ZeroDivisionError:
        holds = False
    if not holds:
        raise InconsistencyError(
            "the call that was found does not satisfy its predicate",
            call=call,
            facts=(f"call: {call!r}", f"predicate: {predicate}"),
        )
