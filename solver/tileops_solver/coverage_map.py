"""Which implementation is chosen over two fields of a call, the others fixed: rectangles with exact edges.

A rectangle is cut until the choice is the same everywhere in it, which intervals decide: at the thresholds of the
rules where one field alone matters, else in the middle. What is smaller than a stated share of the picture is not
cut further and counts as mixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.bounds import BOUNDS, Bounds
from tileops_rules.errors import OutsideDomain
from tileops_rules.evaluating import EVALUATE
from tileops_rules.expr import FALSE, KINDS, Expr, Path, conjunction, negation, paths_of, walk
from tileops_rules.shapes import FiniteShape, IntShape, Outside, Shape

from tileops_solver.calls import ValueProblem
from tileops_solver.subject import Subject
from tileops_solver.witness import usual_facts

__all__ = ["INVALID", "MIXED", "NOBODY", "UNSERVED", "Axis", "Cell", "CoverageMap"]

NOBODY: Final = "no implementation"
UNSERVED: Final = "declared unserved"
RAISES: Final = "raises"
INVALID: Final = "no valid call"
MIXED: Final = "finer than drawn"

FINEST: Final = 1 / 2000
"""Share of an axis below which a rectangle is not cut."""

MOST_CELLS: Final = 20_000

_SPAN: Final = 4
"""An axis ends at this many times the largest threshold on it."""


@dataclass(frozen=True)
class Axis:
    """One of the two fields.

    Attributes:
        field: Its name.
        path: Its slot.
        values: The values of a field with finitely many, in order; empty for an integer.
        lo: First integer, or 0.
        hi: Last integer, or the number of the last value.
        log: Whether equal lengths stand for equal ratios.
    """

    field: str
    path: Path
    values: tuple[Any, ...]
    lo: int
    hi: int
    log: bool = False

    def edge(self, value: int) -> float:
        """Where the lower edge of *value* stands."""
        return math.copysign(math.log2(1 + abs(value - 0.5)), value - 0.5) if self.log else value - 0.5

    @property
    def length(self) -> float:
        """From the first edge to the last."""
        return self.edge(self.hi + 1) - self.edge(self.lo)

    def share(self, lo: int, hi: int) -> float:
        """The share of the axis that the values from *lo* to *hi* take."""
        return (self.edge(hi + 1) - self.edge(lo)) / self.length


@dataclass(frozen=True)
class Cell:
    """A rectangle of one choice: values of x and of y, both ends included."""

    x: tuple[int, int]
    y: tuple[int, int]
    choice: str


class CoverageMap:
    """The choices over two fields.

    Attributes:
        selector: The implementations.
        x: The horizontal axis.
        y: The vertical axis.
        call: The call whose other fields are fixed.
        usual: Fields that are not fixed but follow the arch, where that is an axis.
    """

    def __init__(
        self,
        selector: Selector,
        x: str,
        y: str,
        call: Any,
        *,
        x_range: tuple[int, int] | None = None,
        y_range: tuple[int, int] | None = None,
    ) -> None:
        """Fix the other fields to those of *call*.

        Args:
            selector: The implementations.
            x: An integer field, or one with finitely many values.
            y: Another one.
            call: A call with its device facts filled in; what it holds in *x* and *y* does not matter.
            x_range: First and last integer to look at; around the thresholds of the rules where not given.
            y_range: The same for *y*.

        Raises:
            ValueProblem: a field is no axis, or both are one; a range is empty; *call* is outside the domain; or a
                rule was not lifted, so that nothing is known of the choice.
        """
        self.selector = selector
        self.call = call
        self._subject = Subject(selector)
        if self._subject.unlifted:
            raise ValueProblem(f"nothing can be drawn: {self._subject.causes(self._subject.unlifted)}")
        if x == y:
            raise ValueProblem(f"both axes are {x}: name two fields")
        self.x, self.y = self._axis(x, x_range), self._axis(y, y_range)
        try:
            self._fixed = selector.domain.read(call)
        except Outside as outside:
            raise ValueProblem(str(OutsideDomain.of(outside.slot, outside.value))) from outside
        self.usual: tuple[str, ...] = ()
        for axis in (self.x, self.y):
            if axis.field == "arch":
                self.usual = tuple(str(path[0]) for path in usual_facts(selector.domain, {axis.path: axis.values[0]}))

    @cached_property
    def fixed(self) -> Mapping[str, Any]:
        """The fields that are fixed and that some question reads, with their values."""
        read = {str(path[0]) for expr in self._questions.values() for path in paths_of(expr)}
        names = [n for n in self.selector.domain.fields if n in read - {self.x.field, self.y.field, *self.usual}]
        return {name: getattr(self.call, name) for name in names}

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The rectangles; together they cover both axes, and none meets another."""
        found: list[Cell] = []
        waiting = [(x, y) for x in self._starts(self.x) for y in self._starts(self.y)]
        while waiting:
            x, y = waiting.pop()
            choice, doubt = self._choice(x, y)
            if choice is not None:
                found.append(Cell(x, y, choice))
            elif len(found) + len(waiting) > MOST_CELLS or self._too_fine(x, y):
                found.append(Cell(x, y, MIXED))
            else:
                waiting += self._cut(x, y, doubt)
        return tuple(sorted(found, key=lambda cell: (cell.x, cell.y)))

    @property
    def choices(self) -> tuple[str, ...]:
        """The choices that occur, implementations first."""
        seen = {cell.choice for cell in self.cells}
        last = (NOBODY, UNSERVED, RAISES, INVALID, MIXED)
        return (*sorted(seen.difference(last)), *(choice for choice in last if choice in seen))

    def borders(self, axis: Axis) -> tuple[int, ...]:
        """The values of an axis at which a rectangle begins that has another choice than the one before it."""
        across = axis is self.x
        ends = {((c.x if across else c.y)[1], c.y if across else c.x): c.choice for c in self.cells}
        starts: set[int] = set()
        for cell in self.cells:
            own, other = (cell.x, cell.y) if across else (cell.y, cell.x)
            before = [c for (end, beside), c in ends.items() if end == own[0] - 1 and _meet(beside, other)]
            if any(choice != cell.choice for choice in before) and MIXED not in (cell.choice, *before):
                starts.add(own[0])
        return tuple(sorted(starts))

    @cached_property
    def _questions(self) -> dict[str, Expr]:
        """For each choice when it holds, beginning with what rules the others out; where none holds, nobody serves."""
        subject = self._subject
        declared = self.selector.declared_unserved
        questions = {INVALID: negation(self.selector.valid.expr)}
        if subject.raising is not FALSE:
            questions[RAISES] = subject.raising
        questions.update({key: subject.chosen(key) for key in subject.lifted})
        if declared is not None:
            questions[UNSERVED] = conjunction([negation(subject.served), negation(declared.serves.expr)])
        return questions

    def _axis(self, name: str, limits: tuple[int, int] | None) -> Axis:
        shape: Shape | None = self.selector.domain.fields.get(name)
        if isinstance(shape, FiniteShape):
            values = tuple(value for value in shape.slot.values if value is not None or name != "arch")
            values = tuple(sorted(values)) if all(type(value) is int for value in values) else values
            return Axis(name, shape.path, values, 0, len(values) - 1)
        if not isinstance(shape, IntShape):
            usable = [n for n, s in self.selector.domain.fields.items() if isinstance(s, FiniteShape | IntShape)]
            raise ValueProblem(f"{name} is no axis: name an integer or a field of few values, as {', '.join(usable)}")
        slot = shape.slot
        largest = max((abs(limit) for limit in self._thresholds(shape.path)), default=4)
        lo, hi = limits if limits is not None else (slot.lo, min(slot.hi, _SPAN * largest))
        lo, hi = max(lo, slot.lo), min(hi, slot.hi)
        if lo > hi:
            raise ValueProblem(f"the range of {name} from {lo} to {hi} is empty: {name} is {slot}")
        return Axis(name, shape.path, (), lo, hi, log=hi - lo >= 512)

    def _thresholds(self, path: Path) -> Iterator[int]:
        """What a slot alone is compared with in the rules."""
        for claim in self._subject.lifted.values():
            for node in walk(claim):
                if node.kind in ("at_most", "equals") and paths_of(node) == (path,):
                    yield node.data

    def _starts(self, axis: Axis) -> list[tuple[int, int]]:
        """Values of a finite field have no order: each stands for itself."""
        return [(i, i) for i in range(len(axis.values))] if axis.values else [(axis.lo, axis.hi)]

    def _choice(self, x: tuple[int, int], y: tuple[int, int]) -> tuple[str | None, Expr | None]:
        """The one choice in a rectangle; where there are several, None and a comparison that is not decided."""
        box = self._box(x, y)
        chosen: list[str] = []
        for name, question in self._questions.items():
            answer = box.answer(question)
            if answer is None:
                return None, box.doubt
            if answer:
                chosen.append(name)
            if answer and name in (INVALID, RAISES):
                break
        return " or ".join(chosen) or NOBODY, None

    def _box(self, x: tuple[int, int], y: tuple[int, int]) -> _Box:
        fixed = dict(self._fixed)
        for axis, span in ((self.x, x), (self.y, y)):
            if self.usual and axis.field == "arch":
                fixed |= usual_facts(self.selector.domain, {axis.path: axis.values[span[0]]})
        return _Box(fixed, self.x, x, self.y, y)

    def _too_fine(self, x: tuple[int, int], y: tuple[int, int]) -> bool:
        narrow = [lo == hi or axis.share(lo, hi) < FINEST for axis, (lo, hi) in ((self.x, x), (self.y, y))]
        return all(narrow)

    def _cut(
        self, x: tuple[int, int], y: tuple[int, int], doubt: Expr | None
    ) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Two halves of a rectangle: at a threshold where there is one, else across its longer side."""
        reads = paths_of(doubt) if doubt is not None else ()
        sides = [(axis, side) for axis, side in ((self.x, x), (self.y, y)) if side[0] < side[1] and axis.path in reads]
        if not sides:
            sides = [(axis, side) for axis, side in ((self.x, x), (self.y, y)) if side[0] < side[1]]
        axis, (lo, hi) = max(sides, key=lambda each: each[0].share(*each[1]))
        at = self._box(x, y).threshold(doubt, axis) if len(sides) == 1 else None
        middle = at if at is not None and lo < at <= hi else self._middle(axis, lo, hi)
        parts = ((lo, middle - 1), (middle, hi))
        return [(part, y) if axis is self.x else (x, part) for part in parts]

    @staticmethod
    def _middle(axis: Axis, lo: int, hi: int) -> int:
        if not axis.log:
            return (lo + hi + 1) // 2
        wanted = (axis.edge(lo) + axis.edge(hi + 1)) / 2
        near = math.copysign(2 ** abs(wanted) - 1, wanted)
        return min(max(lo + 1, round(near + 0.5)), hi)


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


class _Box:
    """Questions about all calls of a rectangle at once: yes, no, or not the same for all."""

    def __init__(
        self, fixed: Mapping[Path, Any], x: Axis, x_span: tuple[int, int], y: Axis, y_span: tuple[int, int]
    ) -> None:
        self._values = dict(fixed)
        self._spans: dict[Path, Bounds] = {}
        for axis, span in ((x, x_span), (y, y_span)):
            if axis.values:
                self._values[axis.path] = axis.values[span[0]]
            else:
                self._spans[axis.path] = span
        self._bounds: dict[Expr, Bounds] = {}
        self._answers: dict[Expr, bool | None] = {}
        self.doubt: Expr | None = None

    def answer(self, question: Expr) -> bool | None:
        """Whether it holds for all calls, for none, or (None) possibly for some only; ``doubt`` then says why."""
        for node in walk(question):
            if KINDS[node.kind].sort == "bool" and node not in self._answers:
                self._answers[node] = _CONNECTIVES.get(node.kind, _Box._atom)(self, node)
        found = self._answers[question]
        if found is None:
            self.doubt = self._undecided(question)
        return found

    def _undecided(self, node: Expr) -> Expr:
        """A comparison below *node* because of which it is undecided; one of a single slot first."""
        found: Expr | None = None
        waiting = [node]
        while waiting:
            each = waiting.pop()
            if self._answers.get(each, True) is None:
                if each.kind in ("at_most", "equals"):
                    if len(self._free(each)) == 1:
                        return each
                    found = found or each
                waiting += [a for a in each.args if KINDS[a.kind].sort == "bool"]
        return found if found is not None else node

    def _free(self, node: Expr) -> list[Path]:
        return [path for path in paths_of(node) if path in self._spans]

    def _connected(self, node: Expr) -> bool | None:
        answers = [self._answers[a] for a in node.args]
        if node.kind == "not":
            return None if answers[0] is None else not answers[0]
        settling = node.kind == "or"
        if settling in answers:
            return settling
        return None if None in answers else not settling

    def _atom(self, node: Expr) -> bool | None:
        if node.kind in ("at_most", "equals"):
            low, high = self._interval(node.args[0])
            if node.kind == "at_most":
                return True if high <= node.data else False if low > node.data else None
            if low == high == node.data:
                return True
            return None if low <= node.data <= high else False
        try:
            return bool(EVALUATE[node.kind](node, [], self._values))
        except KeyError:
            return False  # a slot that the call does not have: the alternative it belongs to is ruled out elsewhere

    def _interval(self, node: Expr) -> Bounds:
        found = self._bounds.get(node)
        if found is None:
            if node.kind == "int":
                value = self._values.get(node.data, 0)
                found = self._spans.get(node.data, (value, value))
            else:
                found = BOUNDS[node.kind](node, self._interval)
            self._bounds[node] = found
        return found

    def threshold(self, question: Expr | None, axis: Axis) -> int | None:
        """The value of *axis* from which a comparison that is linear in it alone has another answer."""
        if question is None or question.kind not in ("at_most", "equals"):
            return None
        number = question.args[0]
        terms = list(zip(number.args, number.data[1], strict=True)) if number.kind == "sum" else [(number, 1)]
        mine = [c for atom, c in terms if atom.kind == "int" and atom.data == axis.path]
        others = [(atom, c) for atom, c in terms if not (atom.kind == "int" and atom.data == axis.path)]
        if len(mine) != 1 or any(low != high for low, high in (self._interval(atom) for atom, _ in others)):
            return None
        rest = number.data[0] if number.kind == "sum" else 0
        rest += sum(c * self._interval(atom)[0] for atom, c in others)
        left = question.data - rest
        if question.kind == "equals":
            return self._beside(axis, left // mine[0] if left % mine[0] == 0 else None)
        step: int = mine[0]
        return int(left // step) + 1 if step > 0 else int(-(left // -step))

    def _beside(self, axis: Axis, value: int | None) -> int | None:
        if value is None:
            return None
        return value if value > self._spans[axis.path][0] else value + 1


_CONNECTIVES: Final[Mapping[str, Callable[[_Box, Expr], bool | None]]] = {
    "truth": lambda box, node: bool(node.data),
    "not": _Box._connected,
    "and": _Box._connected,
    "or": _Box._connected,
}
