"""The proofs: does a predicate ever hold, and do two implementations of an op ever claim the same call?

Two functions do the work::

    find_call(rule.serves & (fields(Call).n >= 1024))   # an Answer: a call, none, or not decided
    audit(package.ops)                                  # a Report on every op in a module, class or Selector

A question has three outcomes, and each caller has to tell them apart:

1. :attr:`Verdict.FOUND`: the answer holds a real call, the smallest there is. It has been held against the
   predicate in plain Python, and in an audit against the original ``refusal`` methods.
2. :attr:`Verdict.NONE`: proved. No call in the whole domain will do; what the domain is, a report says.
3. :attr:`Verdict.UNDECIDED`: neither was shown, and the reason is given: work used up, a question too large
   to ask, a rule that was not lifted. It is never a proof and is never to be remembered as one.

Everything is asked of rules as :mod:`tileops_rules` lifts them, for any frozen dataclass and any class with
the members of the contract; nothing here imports torch or tileops. Answers depend on the rules alone: not on
the process, the order of registration or the speed of the machine, because work is limited in the solver's
own units and everything is sorted.

A disagreement between solver, rule and original function is a mistake of this library. It raises
:class:`InconsistencyError` and is never shown as a finding.

z3 is imported when the first question is asked that needs it, networkx by an audit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileops_solver.answer import Answer, InconsistencyError, Verdict
    from tileops_solver.auditing import audit
    from tileops_solver.checks.equal import choose_alike
    from tileops_solver.checks.overlap import PairProof, prove_pairs
    from tileops_solver.findings import Finding, Report
    from tileops_solver.nearest import nearest_served
    from tileops_solver.questions import find_call
    from tileops_solver.targets import TargetError

__all__ = [
    "Answer",
    "Finding",
    "InconsistencyError",
    "PairProof",
    "Report",
    "TargetError",
    "Verdict",
    "audit",
    "choose_alike",
    "find_call",
    "nearest_served",
    "prove_pairs",
]

_HOMES = {
    "Answer": "answer",
    "Finding": "findings",
    "InconsistencyError": "answer",
    "PairProof": "checks.overlap",
    "Report": "findings",
    "TargetError": "targets",
    "Verdict": "answer",
    "audit": "auditing",
    "choose_alike": "checks.equal",
    "find_call": "questions",
    "nearest_served": "nearest",
    "prove_pairs": "checks.overlap",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
