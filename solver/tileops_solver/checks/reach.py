"""Which implementations serve a call, and calls that each one serves: looked up once for all checks of a subject.

An example here is any call, not the smallest: it shows that there is one, and is never shown to anyone.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.building import keeps_its_values
from tileops_rules.domain import DEVICE_FACTS
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import FALSE, Expr, Path, conjunction
from tileops_rules.shapes import Outside

from tileops_solver.engine import Outcome
from tileops_solver.guessing import guessed_call, guessed_in_box
from tileops_solver.subject import Platform, Subject
from tileops_solver.validity import rejection
from tileops_solver.witness import Witness

__all__ = ["Reach", "at_least_served", "at_most_served", "partners", "reach_of", "reached"]


def at_most_served(subject: Subject, key: str) -> Expr:
    """Calls outside which *key* serves nothing, whatever its rule says where that was not lifted."""
    return subject.lifted.get(key, subject.available(key))


def at_least_served(subject: Subject, key: str) -> Expr:
    """Calls that *key* serves for certain: none where its rule was not lifted."""
    return subject.lifted.get(key, FALSE)


def partners(subject: Subject, key: str) -> tuple[str, ...]:
    """The implementations that may take a call from *key*: those that win over it, where the two may meet."""
    better = subject.better(key)
    if not better:
        return ()
    near = frozenset(subject.may_meet(key))
    return tuple(k for k in better if k in near)


def reached(start: str, following: Mapping[str, Collection[str]]) -> set[str]:
    """Everything to which one or more steps lead from *start*; where none leads on, nothing is stated."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in following.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


class Reach:
    """What was looked up about one subject."""

    def __init__(self, subject: Subject) -> None:
        self._selector = subject.selector
        self._lifted = dict(subject.lifted)
        self._valid = subject.valid
        self._examples: dict[str, Witness] = {}
        self._calls: dict[str, list[Any]] = {}
        self._read: dict[int, tuple[Any, Mapping[Path, Any]]] = {}

    def example(self, subject: Subject, key: str) -> Witness:
        """A valid call that *key*, whose rule was lifted, serves; any one."""
        found = self._examples.get(key)
        if found is None:
            guess = guessed_in_box(subject.boxes, key, subject.domain, lambda call: rejection(self._selector, call))
            found = Witness(Outcome.POSSIBLE, guess) if guess is not None else subject.find([self._lifted[key]])
            self._examples[key] = found
            if found.outcome is Outcome.POSSIBLE:
                self.learn(key, found.call)
        return found

    def some(self, subject: Subject, parts: Sequence[Expr]) -> Witness:
        """A valid call for which all *parts* hold; any one."""
        guess = guessed_call(
            conjunction([self._valid, *parts]), subject.domain, lambda call: rejection(self._selector, call)
        )
        return subject.find(parts) if guess is None else Witness(Outcome.POSSIBLE, guess)

    def learn(self, key: str, call: Any) -> None:
        """Remember that *key* serves *call*."""
        self._calls.setdefault(key, []).append(call)

    def on(self, key: str, platform: Platform) -> Iterator[Any]:
        """Valid calls that *key* serves on an arch: those that it is known to serve elsewhere, moved there."""
        question = (self._valid, platform.calls, self._lifted[key])
        names = {field.name for field in dataclasses.fields(self._selector.spec)}
        facts = KNOWN_ARCHS.get(platform.arch or 0)
        known = {name: getattr(facts, name) for name in DEVICE_FACTS if hasattr(facts, name)}
        there = {name: value for name, value in {**known, "arch": platform.arch}.items() if name in names}
        for call in self._calls.get(key, []):
            if not self._moves(question, call, there):
                continue
            try:
                moved = dataclasses.replace(call, **there)
            except Exception:  # noqa: BLE001 - a spec's own constructor may raise anything; then there is no such call
                continue
            kept = keeps_its_values(self._selector.domain) or all(self._holds(part, moved) for part in question)
            if kept and rejection(self._selector, moved) is None:
                yield moved

    def _moves(self, question: Iterable[Expr], call: Any, there: Mapping[str, Any]) -> bool:
        """Whether a question holds for a call with the facts *there*, if its class keeps what it is given."""
        domain = self._selector.domain
        values = dict(self._values(call))
        try:
            for name, value in there.items():
                domain.fields[name].read(value, values)
            return all(evaluate(part, values) for part in question)
        except (ZeroDivisionError, Outside):
            return False

    def serves(self, key: str, call: Any) -> bool:
        """Whether *key*, whose rule was lifted, serves *call*, a valid one."""
        return self._holds(self._lifted[key], call)

    def serving(self, call: Any, among: Iterable[str]) -> frozenset[str]:
        """Those *among* implementations with a lifted rule that serve *call*, a valid one."""
        return frozenset(key for key in among if key in self._lifted and self.serves(key, call))

    def _values(self, call: Any) -> Mapping[Path, Any]:
        """The slot values of a call, read once.

        Raises:
            Outside: a value is not in its slot's domain.
        """
        held = self._read.get(id(call))
        if held is None:
            held = self._read[id(call)] = call, self._selector.domain.read(call)
        return held[1]

    def _holds(self, expr: Expr, call: Any) -> bool:
        try:
            return bool(evaluate(expr, self._values(call)))
        except (ZeroDivisionError, Outside):
            return False


_known: Final[weakref.WeakKeyDictionary[Subject, Reach]] = weakref.WeakKeyDictionary()


def reach_of(subject: Subject) -> Reach:
    """What is looked up about *subject*: the same object as long as the subject lives."""
    found = _known.get(subject)
    if found is None:
        found = _known[subject] = Reach(subject)
    return found
