"""The served call that is nearest to one that is not: the fewest fields changed, then the smallest changes.

What is counted are the slots that the call has: a field, or a part of a tuple or of a nested spec. What a slot
brings with it (the value of a field that was None, a further element of a longer tuple) counts with that slot,
and what it takes away does not count. A device and the facts that follow from it count as one.

Among the calls with the fewest changes, slots are settled in the order of the spec's fields: unchanged where
that is possible, else as near as possible, up before down, where the value is an integer, and the plainest
value otherwise. The device stays as it is; only where nothing at all is served there is another one looked at,
with the facts that a device of its arch usually has; and only where nothing is served there either, any facts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tileops_rules import Candidate, Selector
from tileops_rules.dispatching import check_valid, enforce_declared
from tileops_rules.domain import DEVICE_FACTS, Domain
from tileops_rules.errors import OutsideDomain, RefusalError
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, among, conjunction, disjunction, equals, exact_key, integer, negation
from tileops_rules.printing import value_text
from tileops_rules.shapes import DeviceShape, FloatShape, Outside, Slot

from tileops_solver.answer import Answer, Verdict
from tileops_solver.calls import completed
from tileops_solver.codes import Codes
from tileops_solver.engine import Outcome, Question, Reply, Span
from tileops_solver.orders import Around, FromZero, Listed, Order
from tileops_solver.searching import Search
from tileops_solver.subject import Subject
from tileops_solver.validity import rejection
from tileops_solver.witness import MOST_REJECTED, usual_facts, values_before

__all__ = ["Change", "Nearest", "Neighbourhood", "nearest_served"]

_ARCH: Final[Path] = ("arch",)


def nearest_served(selector: Selector, call: Any) -> Answer:
    """The valid call nearest to *call* that some implementation serves.

    Args:
        selector: The implementations.
        call: Any valid call; facts of its device that it does not state are filled in.

    Returns:
        FOUND with *call* itself where it is served; else with the served call that differs from it in the
        fewest fields, and among these by the smallest changes: :mod:`tileops_solver.nearest` says how both
        are counted. It is proved that no call with fewer changes is served, and the real refusals were run.
        NONE where it is proved that no call is served. UNDECIDED, with the reason, where neither was shown: so of
        a call outside a domain that is only assumed, of which rules say nothing.

    Raises:
        TypeError: *call* is not of the selector's class.
        OutsideDomain: a field holds a value outside its declared domain (a ValueError).
        InvalidCall: the call itself cannot be (a ValueError).
        InconsistencyError: solver, rules and original functions do not agree; a mistake in this library.
        ImportError: the question needs z3, and z3 is not installed.
    """
    return Neighbourhood(selector).nearest(call)


@dataclasses.dataclass(frozen=True)
class Change:
    """A field in which two calls differ.

    Attributes:
        field: Its name.
        before: What it holds in the one.
        after: What it holds in the other.
    """

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field} {value_text(self.after)} in place of {value_text(self.before)}"


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The nearest served call, with what it takes to get there.

    Attributes:
        call: The call.
        key: The implementation that is chosen for it.
        changed: The fields in which it differs, in order.
    """

    call: Any
    key: str
    changed: tuple[Change, ...]

    def __str__(self) -> str:
        """The changes, without the facts that follow from another arch."""
        follow = DEVICE_FACTS[1:] if any(change.field == "arch" for change in self.changed) else ()
        return ", ".join(str(change) for change in self.changed if change.field not in follow)


class Neighbourhood:
    """Finds the nearest served calls of one selector.

    Args:
        selector: The implementations.
    """

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._domain = selector.domain
        self._subject = Subject(selector)

    def described(self, call: Any, near: Any) -> Nearest:
        """What there is to say of *near*, a served call, as a neighbour of *call*."""
        winner = self._selector.undefeated(self._mask(near))[0]
        changed = [Change(name, getattr(call, name), getattr(near, name)) for name in self._domain.fields]
        return Nearest(
            near,
            self._selector.candidates[winner].key,
            tuple(change for change in changed if not _same(change.before, change.after)),
        )

    def nearest(self, call: Any) -> Answer:
        """As :func:`nearest_served`, where the errors are listed."""
        call = completed(self._selector, self._selector.resolved(call))
        enforce_declared(self._domain, call)
        check_valid(self._domain.spec, call)
        if self._mask(call):
            return Answer(Verdict.FOUND, call)
        values = self._values(call)
        if isinstance(values, str):
            return Answer(Verdict.UNDECIDED, reason=values)
        self._subject.confirm(call, self._selector.keys)
        unlifted = self._subject.unlifted
        unknown = [key for key in unlifted if self._selector.candidate(key).cannot_run(call) is None]
        if unknown:
            return Answer(Verdict.UNDECIDED, reason=self._subject.causes(unknown))
        device = {slot.path for slot in _device_slots(self._domain)} & values.keys()
        here = [_holds(self._domain.slots[path], value) for path, value in values.items() if path in device]
        answer = self._searched(call, values, here)
        if answer.verdict is not Verdict.NONE or not here:
            return answer
        if unlifted:
            return Answer(Verdict.UNDECIDED, reason=self._subject.causes(unlifted))
        usual = _usual_devices(self._domain)
        answer = self._searched(call, values, usual, moving=True)
        return answer if answer.verdict is not Verdict.NONE or not usual else self._searched(call, values, moving=True)

    def _values(self, call: Any) -> dict[Path, Any] | str:
        """The slot values of *call*, or a text that says why rules say nothing of it.

        An int in a float field counts as that float.
        """
        values: dict[Path, Any] = {}
        for name, shape in self._domain.fields.items():
            value = getattr(call, name)
            try:
                shape.read(float(value) if isinstance(shape, FloatShape) and type(value) is int else value, values)
            except Outside as outside:
                return str(OutsideDomain.of(outside.slot, outside.value))
        if not evaluate(self._domain.links, values):
            facts = ", ".join(name for name in DEVICE_FACTS if name in self._domain.fields)
            return f"a call on a CUDA device states {facts}, and one on another device none of them: {call!r}"
        return values

    def _mask(self, call: Any) -> int:
        """A bit for each candidate that serves *call*, by the real methods; one that raises does not."""
        return sum(1 << i for i, each in enumerate(self._selector.candidates) if self._serves(each, call))

    def _serves(self, candidate: Candidate, call: Any) -> bool:
        if candidate.cannot_run(call) is not None:
            return False
        try:
            return self._selector.refused(candidate, call) is None
        except RefusalError:
            return False

    def _searched(
        self, call: Any, values: Mapping[Path, Any], devices: Iterable[Expr] = (), *, moving: bool = False
    ) -> Answer:
        """The nearest call among those on *devices*; *moving* where they are others than that of *call*."""
        expr = conjunction([*devices, self._subject.valid, self._subject.served])
        with Question(expr, self._domain, apart=True) as question:
            answer = _Neighbours(question, self._selector, call, values, moving=moving).nearest()
        if answer.verdict is Verdict.FOUND:
            self._subject.confirm(answer.call, self._selector.keys)
        return answer


class _Neighbours:
    """The search about one call.

    Args:
        question: What a neighbour must satisfy.
        selector: The implementations.
        call: The call.
        values: Its slot values.
        moving: Whether the device changes. It counts as one change then, for every neighbour alike.
    """

    def __init__(
        self, question: Question, selector: Selector, call: Any, values: Mapping[Path, Any], *, moving: bool
    ) -> None:
        self._question = question
        self._selector = selector
        self._domain = question.domain
        self._call = call
        self._values = values
        self._home = {path: _code(question.codes[path], value) for path, value in values.items()}
        device = {slot.path for slot in _device_slots(self._domain)}
        self._counted = {path: code for path, code in self._home.items() if path not in device}
        self._fewest = 0 if moving else 1
        self._search = Search(question, self._order)
        self._rejected: list[dict[Path, int]] = []
        self._why = ""

    def nearest(self) -> Answer:
        """The nearest call that satisfies the question."""
        reply = self._question.check()
        if reply.outcome is not Outcome.POSSIBLE:
            return _unfound(reply)
        for most in range(self._fewest, len(self._counted) + 1):
            answer = self._within(most)
            if answer.verdict is not Verdict.NONE:
                return answer
        return self._given_up()

    def _within(self, most: int) -> Answer:
        """The nearest call with at most *most* changes."""
        question = self._question
        with question.level():
            question.change_at_most(self._counted, most)
            for found in self._rejected:
                question.exclude(found)
            while True:
                solution = self._search.first()
                if isinstance(solution, Reply):
                    return _unfound(solution)
                call = self._built(solution)
                if call is not None:
                    return Answer(Verdict.FOUND, call)
                self._rejected.append(solution)
                question.exclude(solution)
                if len(self._rejected) == MOST_REJECTED or self._stands_for_many(solution):
                    return self._given_up()

    def _given_up(self) -> Answer:
        count = len(self._rejected)
        return Answer(Verdict.UNDECIDED, reason=f"{count} nearer calls were found that cannot be built: {self._why}")

    def _stands_for_many(self, codes: Mapping[Path, int]) -> bool:
        """Whether there are calls of these codes that were not tried: a float or string has more than one value."""
        many = (path for path, mine in self._question.codes.items() if mine.slot.sort in ("float", "str"))
        return any(codes[path] != self._home.get(path) for path in many)

    def _order(self, path: Path, span: Span, best: Mapping[Path, int]) -> Order:
        codes = self._question.codes[path]
        home = self._home.get(path)
        if home is None:  # a slot that the call does not have
            usual = {} if codes.values else usual_facts(self._domain, values_before(self._question, path, best))
            return FromZero(*span, usual.get(path, codes.preferred))
        if not codes.values:
            return Around(*span, home)
        middle = codes.value(home)
        return Listed(_by_distance(codes, middle, span), home) if type(middle) is int else FromZero(*span, home)

    def _built(self, codes: Mapping[Path, int]) -> Any:
        """The call of a solution; None, with the reason noted, where it cannot be."""
        values = {
            path: self._values[path] if code == self._home.get(path) else self._question.codes[path].value(code)
            for path, code in codes.items()
        }
        changed: dict[str, Any] = {}
        for name, shape in self._domain.fields.items():
            if any(codes[slot.path] != self._home.get(slot.path) for slot in shape.slots()):
                held: dict[Path, Any] = {}
                value = shape.build(values)
                shape.read(value, held)
                # What a call does not have has some code too: it changes nothing.
                if any(codes[path] != self._home.get(path) for path in held):
                    changed[name] = value
        kind = self._domain.spec.__name__
        try:
            call = dataclasses.replace(self._call, **changed)
        except Exception as error:  # noqa: BLE001 - a spec's own constructor may raise anything
            self._why = f"{kind} raised {type(error).__name__}: {error}"
            return None
        wanted = {name: changed.get(name, getattr(self._call, name)) for name in self._domain.fields}
        if not all(_same(getattr(call, name), value) for name, value in wanted.items()):
            self._why = f"{kind} changed the values it was given"
            return None
        refused = rejection(self._selector, call)
        self._why = refused or self._why
        return call if refused is None else None


def _device_slots(domain: Domain) -> Iterable[Slot]:
    """The slots that say which device a call is on."""
    for name, shape in domain.fields.items():
        if name in DEVICE_FACTS or isinstance(shape, DeviceShape):
            yield from shape.slots()


def _holds(slot: Slot, value: Any) -> Expr:
    """That a slot of a device holds *value*."""
    return among(slot.path, [value]) if slot.sort == "finite" else equals(integer(slot.path), value)


def _usual_devices(domain: Domain) -> list[Expr]:
    """That a device has the facts that are usual for its arch."""
    slot = domain.slots.get(_ARCH)
    found = []
    for arch in slot.values if slot is not None and slot.sort == "finite" else ():
        facts = usual_facts(domain, {_ARCH: arch})
        if facts:
            usual = conjunction(_holds(domain.slots[path], value) for path, value in facts.items())
            found.append(disjunction([negation(among(_ARCH, [arch])), usual]))
    return found


def _code(codes: Codes, value: Any) -> int:
    """The number of *value*."""
    if not codes.values:
        number: int = value
        return number
    if codes.slot.sort == "finite":
        return [exact_key(each) for each in codes.values].index(exact_key(value))
    answers = {atom: bool(evaluate(atom, {codes.slot.path: value})) for atom in codes.holding}
    return next(
        code
        for code in range(codes.hi + 1)
        if all((code in codes.holding[atom]) is answer for atom, answer in answers.items())
    )


def _by_distance(codes: Codes, middle: int, span: Span) -> list[int]:
    """The codes of a finite slot of integers from the nearest on, up before down; what is no integer comes last."""
    values = {code: codes.value(code) for code in range(span[0], span[1] + 1)}
    numbers = [code for code, value in values.items() if type(value) is int]
    numbers.sort(key=lambda code: (abs(values[code] - middle), -values[code]))
    return [*numbers, *(code for code, value in values.items() if type(value) is not int)]


def _same(left: Any, right: Any) -> bool:
    """Whether two values are one: of one type and equal, or the same NaN."""
    return left is right or (type(left) is type(right) and bool(left == right))


def _unfound(reply: Reply) -> Answer:
    verdict = Verdict.NONE if reply.outcome is Outcome.IMPOSSIBLE else Verdict.UNDECIDED
    return Answer(verdict, reason=reply.reason)
