"""The call to show for a question that can hold: always the same one, and the smallest.

Each slot in turn, in the order of the spec's fields, has its first possible value in this order: the value
that the spec declares (for a CUDA device's facts: those that the chosen arch usually has), then 0, 1, 2, ...,
then -1, -2, ...; for classes of values, the plainest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import DEVICE_FACTS, Domain, Outside
from tileops_rules.expr import Expr, Path, exact_key

from tileops_solver.engine import Outcome, Question, Reply, Span
from tileops_solver.orders import FromZero, Order
from tileops_solver.searching import Search

__all__ = ["MOST_REJECTED", "Witness", "same_values", "smallest_call", "usual_facts", "values_before"]

MOST_REJECTED: Final = 50
"""Calls that the spec itself may reject before a search is given up."""


@dataclass(frozen=True)
class Witness:
    """How a search ended.

    Attributes:
        outcome: POSSIBLE with a call, IMPOSSIBLE, or UNKNOWN.
        call: The call.
        reason: Why nothing was found, or how that was proved.
        cheap: Intervals and sets of values alone gave the answer.
        values: The slot values that make the call, where the question alone decides them.
    """

    outcome: Outcome
    call: Any = None
    reason: str = ""
    cheap: bool = False
    values: Mapping[Path, Any] | None = None


def smallest_call(expr: Expr, domain: Domain, accepts: Callable[[Any], str | None]) -> Witness:
    """The smallest call of *domain* for which *expr* holds.

    Args:
        expr: The question; it includes whatever makes a call valid.
        domain: Where its slots range.
        accepts: Asked of each call that is built; a text where the call cannot be, for a reason that *expr*
            does not know. The search then goes on without it.

    Raises:
        InconsistencyError: a solution does not satisfy *expr* in Python.
    """
    with Question(expr, domain) as question:
        witness = _Smallest(question, accepts).first()
    if witness is not None:
        return witness
    with Question(expr, domain, apart=True) as question:
        return replace(_Smallest(question, accepts).among_rejected(), values=None)


class _Smallest:
    def __init__(self, question: Question, accepts: Callable[[Any], str | None]) -> None:
        self._question = question
        self._domain = question.domain
        self._accepts = accepts
        self._search = Search(question, self._order)
        self._why = ""

    def first(self) -> Witness | None:
        """The smallest call, or how it is known that there is none; None where the spec rejects it."""
        found = self._search.first()
        if isinstance(found, Reply):
            return Witness(found.outcome, reason=found.reason, cheap=self._question.known is None)
        return self._built(found)

    def among_rejected(self) -> Witness:
        """The first call that the spec accepts, searched for among at most :data:`MOST_REJECTED`.

        Each further call differs from the first one in one slot, chosen in turn, so that the field to blame
        comes up soon, whichever it is.
        """
        question = self._question
        paths = list(question.codes)
        start: dict[Path, int] = {}
        for number in range(MOST_REJECTED):
            found: dict[Path, int] | Reply | None = None
            if start:
                turn = paths[(number - 1) % len(paths)]
                with question.level():
                    codes = question.codes[turn]
                    question.require(turn, (codes.lo, start[turn] - 1), (start[turn] + 1, codes.hi))
                    found = self._search.first()
            if not isinstance(found, dict):
                found = self._search.first()
            if isinstance(found, Reply):
                return Witness(Outcome.UNKNOWN, reason=f"the calls that were found cannot be built: {self._why}")
            witness = self._built(found)
            if witness is not None:
                return witness
            start = start or found
            question.exclude(found)
        return Witness(Outcome.UNKNOWN, reason=f"{MOST_REJECTED} calls were found that cannot be built: {self._why}")

    def _built(self, codes: dict[Path, int]) -> Witness | None:
        """The call of a solution; None, with the reason noted, where it cannot be."""
        values = self._question.values(codes)
        name = self._domain.spec.__name__
        try:
            call = self._domain.build({**usual_facts(self._domain, values), **values})
        except Exception as error:  # noqa: BLE001 - a spec's own constructor may raise anything
            self._why = f"{name} raised {type(error).__name__}: {error}"
            return None
        if not same_values(self._domain, call, values):
            self._why = f"{name} changed the values it was given"
            return None
        refused = self._accepts(call)
        if refused is not None:
            self._why = refused
            return None
        return Witness(Outcome.POSSIBLE, call, values=values)

    def _order(self, path: Path, span: Span, best: Mapping[Path, int]) -> Order:
        """From zero, but for what is to be had where any will do: facts of a device follow the arch."""
        codes = self._question.codes[path]
        preferred = codes.preferred
        if not codes.values:
            preferred = usual_facts(self._domain, values_before(self._question, path, best)).get(path, preferred)
        return FromZero(*span, preferred)


def values_before(question: Question, path: Path, codes: Mapping[Path, int]) -> dict[Path, Any]:
    """The values in *codes* of the slots that come before *path*."""
    before = takewhile(lambda each: each != path, question.codes)
    return {each: question.codes[each].value(codes[each]) for each in before}


def usual_facts(domain: Domain, values: Mapping[Path, Any]) -> dict[Path, Any]:
    """What a device of the arch in *values* usually has, for the integer slots of the device facts."""
    usual = KNOWN_ARCHS.get(values.get(("arch",), 0) or 0)
    if usual is None:
        return {}
    found: dict[Path, Any] = {}
    for name in DEVICE_FACTS:
        slot = domain.slots.get((name,))
        fact = getattr(usual, name, None)
        if slot is not None and slot.sort == "int" and slot.default is None and slot.holds(fact):
            found[name,] = fact
    return found


def same_values(domain: Domain, call: Any, values: Mapping[Path, Any]) -> bool:
    """Whether *call* holds *values* in the slots that it has."""
    try:
        held = domain.read(call)
    except (Outside, AttributeError):
        return False
    return all(
        exact_key(held[p]) == exact_key(v) or (held[p] != held[p] and v != v) for p, v in values.items() if p in held
    )
