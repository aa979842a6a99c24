"""The call to show for a question that can hold: always the same one, and the smallest.

Slots are fixed one by one in the order of the spec's fields, each at its first possible value in this order:
the value that the spec declares (for a CUDA device's facts: those that the chosen arch usually has), then 0,
1, 2, ..., then -1, -2, ...; for classes of values, the plainest. So the result is determined by the question
alone, whatever solutions z3 happens to give; they only say where to look first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import DEVICE_FACTS, Domain, Outside
from tileops_rules.expr import Expr, Path, exact_key, paths_of, walk

from tileops_solver.encode import code_range
from tileops_solver.engine import Outcome, Question, Span

__all__ = ["MOST_REJECTED", "Witness", "smallest_call"]

MOST_REJECTED: Final = 50
"""Calls that the spec itself may reject before a search is given up."""

_MOST_GUESSES: Final = 16
"""Thresholds tried in plain Python for one slot before z3 is asked: 0.1 ms each, a check takes 1 ms."""


@dataclass(frozen=True)
class Witness:
    """How a search ended.

    Attributes:
        outcome: POSSIBLE with a call, IMPOSSIBLE, or UNKNOWN.
        call: The call.
        reason: Why nothing was found, or how that was proved.
        cheap: Intervals and sets of values alone gave the answer.
    """

    outcome: Outcome
    call: Any = None
    reason: str = ""
    cheap: bool = False


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
        witness = _Search(question, accepts).first()
    if witness is not None:
        return witness
    with Question(expr, domain, apart=True) as question:
        return _Search(question, accepts).among_rejected()


class _Search:
    def __init__(self, question: Question, accepts: Callable[[Any], str | None]) -> None:
        self._question = question
        self._domain = question.domain
        self._accepts = accepts
        self._thresholds: dict[Path, list[int]] | None = None
        self._why = ""

    def first(self) -> Witness | None:
        """The smallest call, or how it is known that there is none; None where the spec rejects it."""
        found = self._smallest()
        return self._built(found) if isinstance(found, dict) else found

    def among_rejected(self) -> Witness:
        """The first call that the spec accepts, searched for among at most :data:`MOST_REJECTED`.

        Each further call differs from the first one in one slot, chosen in turn, so that the field to blame
        comes up soon, whichever it is.
        """
        question = self._question
        paths = list(question.codes)
        start: dict[Path, int] = {}
        for number in range(MOST_REJECTED):
            found: dict[Path, int] | Witness | None = None
            if start:
                turn = paths[(number - 1) % len(paths)]
                with question.level():
                    codes = question.codes[turn]
                    question.require(turn, (codes.lo, start[turn] - 1), (start[turn] + 1, codes.hi))
                    found = self._smallest()
            if not isinstance(found, dict):
                found = self._smallest()
            if isinstance(found, Witness):
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
            call = self._domain.build({**_usual_facts(self._domain, values), **values})
        except Exception as error:  # noqa: BLE001 - a spec's own constructor may raise anything
            self._why = f"{name} raised {type(error).__name__}: {error}"
            return None
        if not _same_values(self._domain, call, values):
            self._why = f"{name} changed the values it was given"
            return None
        refused = self._accepts(call)
        if refused is not None:
            self._why = refused
            return None
        return Witness(Outcome.POSSIBLE, call)

    def _smallest(self) -> dict[Path, int] | Witness:
        """The smallest solution under what is required, or the outcome where there is none."""
        question = self._question
        reply = question.check()
        if reply.outcome is not Outcome.POSSIBLE:
            return Witness(reply.outcome, reason=reply.reason, cheap=question.known is None)
        best = dict(reply.codes)
        with question.level():
            for path in question.codes:
                best = self._fixed(path, best)
        return best

    def _fixed(self, path: Path, best: dict[Path, int]) -> dict[Path, int]:
        """*best*, or a solution with an earlier code at *path*: the first possible one, which is then required."""
        question = self._question
        order = _Order(*self._range(path), self._preferred(path, best))
        excluded = 0
        halve = False
        while True:
            best = self._guess(path, best, order, excluded) or best
            place = order.place(best[path])
            if place <= excluded:
                break
            # Everything before the best code at once, then half of it, in turn: mostly the first check is the last.
            end = excluded + (place - excluded + 1) // 2 if halve else place
            halve = not halve
            outcome, codes = self._between(path, order.spans(excluded, end))
            if outcome is Outcome.UNKNOWN:
                break
            if outcome is Outcome.POSSIBLE:
                best = codes
            else:
                excluded = end
        question.require(path, (best[path], best[path]))
        return best

    def _between(self, path: Path, spans: Iterable[Span]) -> tuple[Outcome, dict[Path, int]]:
        """Whether the slot can have a code in *spans*, and a solution in which it does."""
        inside = list(spans)
        if not inside:
            return Outcome.IMPOSSIBLE, {}
        with self._question.level():
            self._question.require(path, *inside)
            reply = self._question.check()
        return reply.outcome, dict(reply.codes)

    def _range(self, path: Path) -> Span:
        known = self._question.known
        codes = self._question.codes[path]
        return (codes.lo, codes.hi) if known is None else code_range(path, codes, known)

    def _preferred(self, path: Path, best: Mapping[Path, int]) -> int:
        """The code to have where any will do: facts of a device follow the arch, where that is fixed before."""
        codes = self._question.codes[path]
        if codes.values:
            return codes.preferred
        before = takewhile(lambda each: each != path, self._question.codes)
        fixed = {each: self._question.codes[each].value(best[each]) for each in before}
        usual: int = _usual_facts(self._domain, fixed).get(path, codes.preferred)
        return usual

    def _guess(self, path: Path, best: Mapping[Path, int], order: _Order, excluded: int) -> dict[Path, int] | None:
        """A better solution that differs from *best* at *path* only, where a threshold gives one."""
        if self._thresholds is None:
            self._thresholds = _thresholds(self._question.expr)
        places = {
            order.place(code) for code in (order.preferred, 0, 1, *self._thresholds.get(path, ())) if order.holds(code)
        }
        limit = order.place(best[path])
        for place in sorted(p for p in places if excluded <= p < limit)[:_MOST_GUESSES]:
            candidate = {**best, path: order.code(place)}
            if self._question.holds(candidate) and self._question.allows(candidate):
                return candidate
        return None


@dataclass(frozen=True)
class _Order:
    """The codes of a slot from the first choice to the last: the preferred one, 0, 1, 2, ..., -1, -2, ...

    Places count from 0. Codes run from *lo* to *hi*; a preferred one outside is no choice.
    """

    lo: int
    hi: int
    preferred: int

    def holds(self, code: int) -> bool:
        """Whether *code* is a choice."""
        return self.lo <= code <= self.hi

    @property
    def _first(self) -> int:
        return max(self.lo, 0)

    @property
    def _upwards(self) -> int:
        """Number of codes from 0 up."""
        return max(0, self.hi - self._first + 1)

    def place(self, code: int) -> int:
        """Where *code* stands. The preferred one stands first; its place in the row of numbers is left empty."""
        if code == self.preferred:
            return 0
        return 1 + code - self._first if code >= 0 else 1 + self._upwards + min(self.hi, -1) - code

    def code(self, place: int) -> int:
        """The code at *place*."""
        if place == 0:
            return self.preferred
        place -= 1
        return self._first + place if place < self._upwards else min(self.hi, -1) - (place - self._upwards)

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The codes of the places from *start* up to but without *end*."""
        if start == 0 < end and self.holds(self.preferred):
            yield self.preferred, self.preferred
        start, end = max(start - 1, 0), end - 1
        if start < min(end, self._upwards):
            yield self._first + start, self._first + min(end, self._upwards) - 1
        start, end = max(start, self._upwards) - self._upwards, end - self._upwards
        if start < end:
            top = min(self.hi, -1)
            yield top - end + 1, top - start


def _thresholds(expr: Expr) -> dict[Path, list[int]]:
    """For each slot, the constants that its questions compare with, and their neighbours."""
    found: dict[Path, set[int]] = {}
    for node in walk(expr):
        if node.kind in ("at_most", "equals"):
            near = {node.data - 1, node.data, node.data + 1}
        elif node.kind in ("mod", "floordiv") and node.args[1].kind == "const":
            near = {node.args[1].data}
        else:
            continue
        for path in paths_of(node):
            found.setdefault(path, set()).update(near)
    return {path: sorted(values) for path, values in found.items()}


def _usual_facts(domain: Domain, values: Mapping[Path, Any]) -> dict[Path, Any]:
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


def _same_values(domain: Domain, call: Any, values: Mapping[Path, Any]) -> bool:
    """Whether *call* holds *values* in the slots that it has."""
    try:
        held = domain.read(call)
    except (Outside, AttributeError):
        return False
    return all(
        exact_key(held[p]) == exact_key(v) or (held[p] != held[p] and v != v) for p, v in values.items() if p in held
    )
