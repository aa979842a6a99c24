"""The values at which a slot is tried: near the constants it is compared with, and a few that are always worth it."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, paths_of, walk
from tileops_rules.facts import float_places
from tileops_rules.shapes import Slot, nearest_inside

__all__ = ["Pool", "Pools", "split"]

_SMALL: Final = (0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 1024, 4096)

_REACH: Final = 64
"""How far around the values of a pool one is searched that fits all questions, where none of them does."""


@dataclass
class Pool:
    """Values for one slot on one path.

    Attributes:
        values: All of them, numbers in order.
        edges: Those next to a threshold of the path, and the plainest one.
        asked: The path's questions about this slot alone, with their answers.
        steps: Divisors in those questions: what fits may stand that far apart.
    """

    values: Sequence[Any]
    edges: tuple[Any, ...] = ()
    asked: tuple[tuple[Expr, bool], ...] = ()
    steps: tuple[int, ...] = ()
    _weighted: Sequence[Any] = ()

    @property
    def weighted(self) -> Sequence[Any]:
        """The values, with the edges so often that they are half of it."""
        if not self._weighted:
            often = 1 + len(self.values) // max(len(self.edges), 1)
            self._weighted = [*self.values, *self.edges * often]
        return self._weighted

    def allows(self, path: Path, value: Any) -> bool:
        """Whether a value gives the answers of the path."""
        return all(_holds(question, path, value) is answer for question, answer in self.asked)


class Pools:
    """The pool of each slot where nothing is known of it yet.

    Args:
        domain: What the slots range over.
        questions: Those whose constants are worth a try.
    """

    def __init__(self, domain: Domain, questions: Iterable[Expr]) -> None:
        self._slots = domain.slots
        self._pools: dict[Path, Pool] = {}
        self._numbers: dict[Path, set[int]] = {}
        self._floats: dict[Path, set[float]] = {}
        self._texts: dict[Path, list[str]] = {}
        for question in questions:
            numbers, floats, texts = _constants(question)
            for path, values in numbers:
                self._numbers.setdefault(path, set()).update(values)
            for path, value in floats:
                self._floats.setdefault(path, set()).add(value)
            for path, text in texts:
                self._texts.setdefault(path, []).append(text)

    def __getitem__(self, path: Path) -> Pool:
        found = self._pools.get(path)
        if found is None:
            slot = self._slots[path]
            numbers, floats, texts = self._numbers.get(path), self._floats.get(path), self._texts.get(path)
            asked = numbers or floats or texts
            # Slots of equal values of other types are equal, so that finite ones are never looked up.
            made = _values(slot, numbers, floats, texts) if asked or slot.sort == "finite" else _usual(slot)
            plainest = nearest_inside(slot)
            found = self._pools[path] = Pool(made, (plainest,) if plainest in made else ())
        return found


@functools.lru_cache(4096)
def _usual(slot: Slot) -> tuple[Any, ...]:
    return tuple(_values(slot, None, None, None))


def _values(slot: Slot, numbers: set[int] | None, floats: set[float] | None, texts: list[str] | None) -> Sequence[Any]:
    if slot.sort == "finite":
        return slot.values
    if slot.sort == "int":
        near = sorted({*(numbers or ()), *_SMALL, slot.lo, slot.hi})
        return near[bisect.bisect_left(near, slot.lo) : bisect.bisect_right(near, slot.hi)]
    if slot.sort == "float":
        ends = {float(end) for end in (slot.lo, slot.hi) if end is not None}
        return [v for v in float_places((floats or {0.0, 1.0}) | ends) if slot.holds(v)]
    return [*dict.fromkeys(texts or ()), "", "any other"]


def _constants(
    question: Expr,
) -> tuple[tuple[tuple[Path, frozenset[int]], ...], tuple[tuple[Path, float], ...], tuple[tuple[Path, str], ...]]:
    """What a question compares its slots with: numbers and their neighbours, floats, texts."""
    if question.kind in ("at_most", "equals") and question.args[0].kind == "int":
        limit = question.data
        return ((question.args[0].data, frozenset({limit - 1, limit, limit + 1, limit + 2})),), (), ()
    numbers: list[tuple[Path, frozenset[int]]] = []
    floats: list[tuple[Path, float]] = []
    texts: list[tuple[Path, str]] = []
    for node in walk(question):
        if node.kind == "float_is":
            floats.append((node.data[0], node.data[2]))
        elif node.kind == "str_is":
            texts.append(node.data)
        elif node.kind in ("at_most", "equals"):
            near = _near(node)
            numbers.extend((path, near) for path in paths_of(node))
        elif node.kind in ("mod", "floordiv") and node.args[1].kind == "const":
            step = node.args[1].data
            multiples = frozenset(near for k in (1, 2, 17) for near in range(step * k - 1, step * k + 2))
            numbers.extend((path, multiples) for path in paths_of(node))
    return tuple(numbers), tuple(floats), tuple(texts)


def _near(question: Expr) -> frozenset[int]:
    limit = question.data
    found = {limit - 1, limit, limit + 1, limit + 2}
    argument = question.args[0]
    coefficients = argument.data[1] if argument.kind == "sum" else (1,)
    for c in coefficients:
        share = limit // abs(c)
        found |= {share - 1, share, share + 1}
    if argument.kind == "product" and limit > 0:
        root = math.isqrt(limit)
        found |= {root - 1, root, root + 1, *(limit // k for k in (2, 3, 4, 8, 16, 64))}
    return frozenset(found)


def split(path: Path, pool: Pool, question: Expr, slot: Slot) -> tuple[Pool, Pool]:
    """The values of a pool that answer a question about its slot alone with yes, and those that answer no."""
    values, edges = pool.values, pool.edges
    of_slot = question.kind in ("at_most", "equals") and question.args[0].kind == "int"
    if of_slot and question.kind == "at_most":
        limit = question.data
        at = bisect.bisect_right(values, limit)
        yes, no = values[:at], values[at:]
        yes_edges = (*(e for e in edges if e <= limit), *yes[-1:])
        no_edges = (*(e for e in edges if e > limit), *no[:1])
    elif of_slot:
        value = question.data
        at = bisect.bisect_left(values, value)
        there = at < len(values) and values[at] == value
        yes, no = values[at : at + there], [*values[:at], *values[at + there :]]
        yes_edges = tuple(yes)
        no_edges = (*(e for e in edges if e != value), *values[:at][-1:], *values[at + there : at + 2])
    else:
        answers = [_holds(question, path, value) for value in values]
        yes = [v for v, answer in zip(values, answers, strict=True) if answer]
        no = [v for v, answer in zip(values, answers, strict=True) if answer is False]
        yes_edges = (*(e for e in edges if e in yes), *yes[-1:])
        no_edges = (*(e for e in edges if e in no), *no[:1])
    steps = pool.steps if of_slot else (*pool.steps, *_divisors(question))
    made = []
    for kept, kept_edges, answer in ((yes, yes_edges, True), (no, no_edges, False)):
        asked = (*pool.asked, (question, answer))
        if not kept and slot.sort == "int":
            kept = _searched(path, values, asked, slot)
        made.append(Pool(kept, tuple(dict.fromkeys(kept_edges)), asked, steps))
    return made[0], made[1]


def _divisors(question: Expr) -> list[int]:
    return [node.args[1].data for node in walk(question) if node.kind == "mod" and node.args[1].kind == "const"]


def _searched(path: Path, values: Sequence[int], asked: Sequence[tuple[Expr, bool]], slot: Slot) -> list[int]:
    """A number that gives all answers, near the first and the last of *values*; nothing where there is none."""
    for distance in range(_REACH):
        for start in {*values[:1], *values[-1:]}:
            for value in (start + distance, start - distance):
                if slot.lo <= value <= slot.hi and all(_holds(q, path, value) is answer for q, answer in asked):
                    return [value]
    return []


def _holds(question: Expr, path: Path, value: Any) -> bool | None:
    try:
        return bool(evaluate(question, {path: value}))
    except ZeroDivisionError:
        return None
