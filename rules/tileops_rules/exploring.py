"""Runs a function on a symbolic call, once for each path, and grows its decision tree."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn

from tileops_rules.domain import Domain
from tileops_rules.errors import NotLifted
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, constant, integer, paths_of
from tileops_rules.facts import Facts
from tileops_rules.integers import IntSymbol
from tileops_rules.outcome import MARK_END, MARK_START, Fill, Outcome, Template, Unrepeatable, raised, returned
from tileops_rules.shapes import FiniteShape, IntShape, RecordShape, Shape, Slot
from tileops_rules.standin import TABLE_LIMIT, Mark, StandIn
from tileops_rules.symbolic_call import GivenUp, SymbolicCall
from tileops_rules.symbols import symbol_of, symbols_in
from tileops_rules.texts import look_at_text
from tileops_rules.tree import Growing, Tree, frozen
from tileops_rules.views import Views
from tileops_rules.watch import Watch

__all__ = ["PATH_BUDGET", "Explorer"]

PATH_BUDGET: Final = 20_000
"""Most paths of one rule. A rule of a dozen conditions has a few dozen; 20,000 short ones take a second or two."""

_QUESTIONS_A_PATH: Final = 600
_QUESTIONS_IN_ALL: Final = 400_000
_ANSWERS_A_PATH: Final = 20_000
_ANSWERS_IN_ALL: Final = 300_000
"""Answers, the repeated and the settled ones included: 20,000 paths of 15 answers. They take one to four seconds."""

_STAND_INS: Final = (
    "IntSymbol",
    "FloatSymbol",
    "StrSymbol",
    "RatioSymbol",
    "DeviceSymbol",
    "SymbolicCall",
    "ClassView",
    "SetView",
    "DictView",
    "_ModuleView",
)

_HERE: Final = str(FilePath(__file__).parent)
_ESCAPED_MARK: Final = repr(MARK_START)[1:-1]


@dataclass(slots=True)
class _Step:
    """A fork on the way to where exploring is now.

    Attributes:
        node: The node that forks.
        choice: Index of the branch that is taken.
        traced: Number of answers given before it.
        facts: What was known before it.
        picked: Values of finite slots before it.
    """

    node: Growing
    choice: int
    traced: int
    facts: Facts
    picked: dict[Path, Any]


class Explorer:
    """Runs a function once for each path and grows its tree.

    A run first repeats the answers that led to the last fork, unwatched and without asking anything, since the
    run before it did the same; from there on every answer is new.
    """

    def __init__(self, domain: Domain, own: frozenset[str], budget: int) -> None:
        self.domain = domain
        self.views = Views(self, own)
        self.budget = budget
        self.refusal: tuple[str, int, str] | None = None
        self._watch = Watch(own, self._give_up_at)
        self._fills: dict[Fill, int] = {}
        self._marks: list[Fill] = []
        self._root = Growing()
        self._here = self._root
        self._steps: list[_Step] = []
        self._trace: list[tuple[Any, Any]] = []
        self._cursor = 0
        self._repeating = False
        self._facts = Facts(domain.slots)
        self._picked: dict[Path, Any] = {}
        self._asked = 0
        self._answered = 0
        self._looked_at: set[Any] = set()
        self._read: dict[Path, Shape] = {}
        self._questions: dict[tuple[Callable[..., Expr], tuple[Any, ...]], Expr] = {}
        self._combined: dict[tuple[Any, ...], Any] = {}
        self._integers: dict[Path, IntSymbol] = {}
        self._lasting: dict[Path, IntSymbol] = {}
        self._outcomes: dict[str | None, Outcome] = {}
        self._alone = {p: s.values[0] for p, s in domain.slots.items() if s.sort == "finite" and len(s.values) == 1}
        self._linked = frozenset(paths_of(domain.links))

    def close(self) -> None:
        """Let go of everything: stand-ins and views hold this, which holds them, and only the collector would tell."""
        vars(self.views).clear()
        vars(self).clear()

    # ---------------------------------------------------------------------------------- one path after another

    def explore(self, body: Callable[[Any], Any], place: tuple[str, int]) -> tuple[Tree, int]:
        """The finished tree and the number of its paths.

        Raises:
            NotLifted: something is unsupported, or the budget is spent.
        """
        with self._watch.throughout():
            return self._explored(body, place)

    def _explored(self, body: Callable[[Any], Any], place: tuple[str, int]) -> tuple[Tree, int]:
        paths = 0
        call = SymbolicCall(self, self.domain.spec, self.domain.fields)
        self._picked = dict(self._alone)
        while True:
            paths += 1
            self._answered += len(self._trace)
            if paths > self.budget or self._asked > _QUESTIONS_IN_ALL or self._answered > _ANSWERS_IN_ALL:
                raise NotLifted(
                    *place,
                    f"over the budget of {self.budget} paths ({paths - 1} explored, {self._asked} questions asked, "
                    f"{self._answered} answers given): "
                    f"state the region by fewer independent conditions",
                )
            self._here.outcome = self._run(body, call, place)
            if not self._next():
                return frozen(self._root), paths

    def _run(self, body: Callable[[Any], Any], call: SymbolicCall, place: tuple[str, int]) -> Outcome | None:
        self._cursor = 0
        self._repeating = bool(self._trace)
        self._symbols: dict[Path, Any] = dict(self._lasting)
        outcome: Outcome | None = None
        try:
            with self._watch.over(self._swallowed if self.views.catches else None):
                self._resume()
                value = body(call)
        except GivenUp as error:
            if self.refusal is None:
                self.refusal = (
                    *_place_of_traceback(error),
                    "the whole call is passed to dataclasses: ask for its fields",
                )
        except RecursionError as error:
            self.refusal = self.refusal or (
                *place,
                f"the rule recurses without end on a symbolic call ({error})",
            )
        except Exception as error:  # noqa: BLE001 - whatever a rule raises is an outcome of its path
            outcome = self._raised(error)
        except BaseException:
            if self.refusal is None:
                raise
        else:
            outcome = self._returned(value, place)
        if self.refusal is not None:
            raise NotLifted(*self.refusal)
        if self._cursor != len(self._trace):
            raise NotLifted(*place, "asks fewer questions when it is run again: a rule is a function of the call alone")
        return outcome

    def _returned(self, value: Any, place: tuple[str, int]) -> Outcome:
        if type(value) is Mark:
            value = str.__str__(value)
        try:
            if value is None or type(value) is str:
                known = self._outcomes.get(value)
                if known is None:
                    known = self._outcomes[value] = returned(value, self._template)
                return known
            if isinstance(type(value), type) and issubclass(type(value), StandIn):
                return returned(value._fill("", ""), self._template)
            if type(value) is SymbolicCall or next(symbols_in(value), None) is not None:
                raise Unrepeatable(f"{value.__class__.__name__} made of fields")
            return returned(value, self._template)
        except Unrepeatable as error:
            raise NotLifted(*place, f"returns a {error}: return None, or the reason as a text") from error

    def _swallowed(self, frame: Any, error: BaseException) -> None:
        """Note an exception that a stand-in caused, even where the rule catches it."""
        if self.refusal is None and isinstance(error, Exception):
            self._blame(str.__str__(str(error)), lambda: _rule_place(frame))

    def _raised(self, error: Exception) -> Outcome:
        text = str.__str__(str(error))
        self._blame(text, lambda: _place_of_traceback(error))
        return raised(error, text)

    def _blame(self, text: str, place: Callable[[], tuple[str, int]]) -> None:
        """Refuse where the text of an error shows that a stand-in reached code that takes none."""
        if any(name in text for name in _STAND_INS):
            self.refusal = (*place(), f"a stand-in reached code that takes no stand-ins: {text}")

    def _next(self) -> bool:
        """Go to the next branch that was not explored; False where there is none."""
        while self._steps:
            step = self._steps[-1]
            node = step.node
            step.choice = choice = step.choice + 1
            if choice == len(node.answers):
                self._steps.pop()
            else:
                del self._trace[step.traced :]
                self._picked, self._facts = step.picked, step.facts
                self._enter(node, choice)
                self._trace.append((node.question, node.answers[choice]))
                return True
        return False

    def _enter(self, node: Growing, choice: int) -> None:
        child = Growing()
        if node.children is not None:
            node.children[choice] = child
        self._here = child
        # What the step keeps stays as it is: the other branches go on from there.
        if isinstance(node.question, Expr):
            self._facts = self._facts.copy()
            self._facts.learn(node.question, bool(node.answers[choice]))
        elif node.question is not None:
            self._picked = {**self._picked, node.question.path: node.answers[choice]}

    # --------------------------------------------------------------------------------- what stand-ins ask for

    def _resume(self) -> None:
        if not self._repeating:
            self._watch.resume()

    def _answer(self, key: Any, find: Callable[[Any], Any]) -> Any:
        """The answer to *key*: the one of the run before, or what *find* gives."""
        if self._repeating:
            return self._repeated(key)
        if len(self._trace) >= _ANSWERS_A_PATH:
            self.refuse(f"over {_ANSWERS_A_PATH} answers on one path: does a loop run over a field or a long range?")
        answer = find(key)
        self._looked_at.add(key)
        self._trace.append((key, answer))
        self._cursor += 1
        return answer

    def _repeated(self, key: Any) -> Any:
        """The answer of the run before; after the last one, what the rule does is new and watched."""
        before, answer = self._trace[self._cursor]
        if before is not key and before != key:
            self.refuse("asks other questions when it is run again: a rule is a function of the call alone")
        self._advance()
        return answer

    def _advance(self) -> None:
        self._cursor += 1
        if self._cursor == len(self._trace):
            self._repeating = False
            self._watch.resume()

    def _fork(self, question: Expr | Slot, answers: tuple[Any, ...]) -> Any:
        self._asked += 1
        if len(self._steps) >= _QUESTIONS_A_PATH:
            self.refuse(f"over {_QUESTIONS_A_PATH} questions on one path: does a loop run over a field?")
        node = self._here
        node.question, node.answers, node.children = question, answers, [None] * len(answers)
        self._steps.append(_Step(node, 0, len(self._trace), self._facts, self._picked))
        self._enter(node, 0)
        return answers[0]

    def decide(self, question: Expr) -> bool:
        """The answer on this path; asks only what is not settled."""
        self._watch.pause()
        try:
            return self._decide(question)
        finally:
            self._resume()

    def ask(self, make: Callable[..., Expr], *args: Any) -> bool:
        """The answer to the question ``make(*args)``."""
        key = (make, args)
        question = self._questions.get(key)
        if question is not None and self._repeating:
            before, answer = self._trace[self._cursor]
            if before is question:
                self._advance()
                return bool(answer)
        self._watch.pause()
        try:
            if question is None:
                question = self._questions[key] = make(*args)
            return self._decide(question)
        finally:
            self._resume()

    def combined(self, combine: Callable[[Expr, Expr], Expr], left: Expr, right: Expr | int, swap: bool) -> Any:
        """The stand-in, or the number, of ``combine(left, right)``; made once."""
        key = (combine, left, right, swap)
        found = self._combined.get(key)
        if found is None:
            self._watch.pause()
            try:
                other = right if isinstance(right, Expr) else constant(right)
                made = combine(other, left) if swap else combine(left, other)
                found = made.data if made.kind == "const" else IntSymbol(self, made)
                self._combined[key] = found
            finally:
                self._resume()
        return found

    def _decide(self, question: Expr) -> bool:
        kind = question.kind
        if kind == "truth":
            return bool(question.data)
        if kind == "not":
            return not self._decide(question.args[0])
        if kind == "and":
            return all(self._decide(part) for part in question.args)
        if kind == "or":
            return any(self._decide(part) for part in question.args)
        return bool(self._answer(question, self._settle))

    def _settle(self, question: Expr) -> bool:
        settled = self._facts.settled(question)
        return bool(self._fork(question, (True, False))) if settled is None else settled

    def pick(self, slot: Slot) -> Any:
        """The value of a finite slot on this path."""
        if self._repeating:
            return self._repeated(slot)
        watched = self._watch.looking
        self._watch.pause()
        try:
            return self._answer(slot, self._pick)
        finally:
            if watched:
                self._watch.resume()

    def _pick(self, slot: Slot) -> Any:
        if slot.path not in self._picked:
            values = slot.values
            if slot.path in self._linked:
                values = tuple(v for v in values if self._consistent(slot.path, v))
            if len(values) > 1:
                return self._fork(slot, values)
            self._picked = {**self._picked, slot.path: values[0]}
        return self._picked[slot.path]

    def _consistent(self, path: Path, value: Any) -> bool:
        try:
            return bool(evaluate(self.domain.links, {**self._picked, path: value}))
        except ZeroDivisionError:
            return True

    def remaining(self, expr: Expr) -> list[int] | None:
        """The values that an expression may still have, where they are few."""
        self._watch.pause()
        try:
            found: list[int] | None = self._answer(("remaining", expr), self._remaining)
            return found
        finally:
            self._resume()

    def _remaining(self, key: tuple[str, Expr]) -> list[int] | None:
        return self._facts.remaining(key[1], TABLE_LIMIT)

    def refuse(self, cause: str) -> NoReturn:
        """Record what could not be answered at the place in the rule that is running, and end the path."""
        self.give_up(*_rule_place(), cause)

    def give_up(self, file: str, line: int, cause: str) -> NoReturn:
        """Record that the rule cannot be lifted, and end the path."""
        if self.refusal is None:
            self.refusal = (file, line, cause)
        raise GivenUp(cause)

    def _give_up_at(self, frame: Any, cause: str) -> NoReturn:
        self.give_up(*_rule_place(frame), cause)

    def mark(self, fill: Fill) -> Mark:
        """A text that stands for a place in a reason, made of characters of the private use area."""
        index = self._fills.get(fill)
        if index is None:
            index = self._fills[fill] = len(self._marks)
            self._marks.append(fill)
        self._watch.pause()
        try:
            self._check_text(fill)
        finally:
            self._resume()
        made = Mark(f"{MARK_START}{index}{MARK_END}")
        made.asks, made.fill = self, fill
        return made

    def _check_text(self, fill: Fill) -> None:
        """Refuse where a function that is running looks at the text that is being made."""
        frame: Any = sys._getframe(2)
        bare = fill.source == "object" and fill.conversion != "r"
        while frame is not None and frame.f_code is not _RUN:
            if not frame.f_code.co_filename.startswith(_HERE):
                look = look_at_text(frame.f_code, frame.f_lasti, may_be_empty=bare)
                if look is not None:
                    self.give_up(
                        frame.f_code.co_filename,
                        frame.f_lineno or 0,
                        f"the text of {fill.text} is looked at, by {look}: compare the field itself",
                    )
            frame = frame.f_back

    def symbol(self, shape: Shape) -> Any:
        """The stand-in of a field."""
        path = shape.path
        if path in self._symbols:
            return self._symbols[path]
        if self._repeating:
            found = self._repeated(shape.slot) if type(shape) is FiniteShape else symbol_of(self, shape)
            self._symbols[path] = found
        else:
            self._watch.pause()
            try:
                found = self._symbols[shape.path] = symbol_of(self, shape)
                self._read[shape.path] = shape
                if type(shape) is IntShape:
                    self._lasting[shape.path] = found
            finally:
                self._resume()
        return found

    def unwatched(self, make: Callable[..., Any], *args: Any) -> Any:
        """``make(*args)``, this package's own work."""
        self._watch.pause()
        try:
            return make(*args)
        finally:
            self._resume()

    def integer(self, shape: IntShape) -> IntSymbol:
        """The stand-in of an integer slot, made once."""
        found = self._integers.get(shape.path)
        if found is None:
            found = self._integers[shape.path] = IntSymbol(self, integer(shape.path))
        return found

    def record(self, shape: RecordShape) -> Any:
        """The stand-in of a nested call spec."""
        return SymbolicCall(self, shape.cls, dict(shape.parts))

    def touched(self) -> frozenset[Path]:
        """The slots that were read, and those that some answer depended on, asked or settled by the domain."""
        found = {slot.path for shape in self._read.values() for slot in shape.slots()}
        for key in self._looked_at:
            if isinstance(key, Slot):
                found.add(key.path)
            else:
                found.update(paths_of(key[1] if isinstance(key, tuple) else key))
        return frozenset(found)

    def _template(self, text: str) -> Any:
        if _ESCAPED_MARK in text:
            raise Unrepeatable("text in which repr() has changed the text of a field")
        if MARK_START not in text:
            return text
        parts: list[str | Fill] = []
        for piece in text.split(MARK_START):
            number, mark, rest = piece.partition(MARK_END)
            parts.extend([self._marks[int(number)], rest] if mark else [piece])
        return Template(tuple(p for p in parts if p != ""))


_RUN: Final = Explorer._run.__code__


def _rule_place(frame: Any = None) -> tuple[str, int]:
    """File and line of the innermost running code that is not this package's."""
    frame = frame or sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno or 0) if frame is not None else ("<unknown>", 0)


_STANDARD: Final = str(FilePath(inspect.__file__).parent)


def _place_of_traceback(error: BaseException) -> tuple[str, int]:
    place = ("<unknown>", 0)
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not file.startswith((_HERE, _STANDARD)):
            place = (file, step.tb_lineno or 0)
        step = step.tb_next
    return place
