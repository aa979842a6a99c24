"""What is already known on one path, and which further questions that settles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from tileops_rules.bounds import BOUNDS, Bounds
from tileops_rules.evaluating import float_holds
from tileops_rules.expr import Expr, Path
from tileops_rules.shapes import Slot

__all__ = ["Facts"]


class Facts:
    """Answers given so far on one path.

    Integer questions narrow an interval for the sum they ask about, so ``n > 64`` settles ``n <= 32``; an
    interval of a field carries over to every expression that holds it.
    """

    def __init__(self, slots: Mapping[Path, Slot]) -> None:
        self._slots = slots
        self._limits: dict[Expr, Bounds] = {}
        self._excluded: dict[Expr, frozenset[int]] = {}
        self._bounds: dict[Expr, Bounds] = {}
        self._floats: dict[Path, tuple[tuple[str, float, bool], ...]] = {}
        self._texts: dict[Path, str] = {}
        self._not_texts: dict[Path, frozenset[str]] = {}

    def copy(self) -> Facts:
        """The same facts, to go on from without changing these."""
        other = Facts(self._slots)
        other._limits = dict(self._limits)
        other._excluded = dict(self._excluded)
        other._bounds = dict(self._bounds)
        other._floats = dict(self._floats)
        other._texts = dict(self._texts)
        other._not_texts = dict(self._not_texts)
        return other

    # ---------------------------------------------------------------------------------------------------- integers

    def bounds(self, expr: Expr) -> Bounds:
        """The interval that *expr* lies in on this path."""
        found = self._bounds.get(expr)
        if found is not None:
            return found
        if expr.kind == "int":
            slot = self._slots[expr.data]
            low, high = slot.lo, slot.hi
        else:
            low, high = BOUNDS[expr.kind](expr, self.bounds)
        known = self._limits.get(expr)
        if known is not None:
            low, high = max(low, known[0]), min(high, known[1])
        self._bounds[expr] = (low, high)
        return low, high

    def remaining(self, expr: Expr, most: int) -> list[int] | None:
        """The values that *expr* may still have, or None where these are more than *most*."""
        low, high = self.bounds(expr)
        excluded = self._excluded.get(expr, frozenset())
        if high - low + 1 - sum(low <= v <= high for v in excluded) > most:
            return None
        return [v for v in range(low, high + 1) if v not in excluded]

    def _narrow(self, expr: Expr, low: int | None, high: int | None) -> None:
        lo, hi = self.bounds(expr)
        lo = lo if low is None else max(lo, low)
        hi = hi if high is None else min(hi, high)
        excluded = self._excluded.get(expr)
        if excluded:
            while lo in excluded and lo <= hi:
                lo += 1
            while hi in excluded and lo <= hi:
                hi -= 1
        self._limits[expr] = (lo, hi)
        self._bounds.clear()

    # ---------------------------------------------------------------------------------------------- any one question

    def settled(self, question: Expr) -> bool | None:
        """The answer that the facts force, or None."""
        kind = question.kind
        if kind == "at_most":
            low, high = self.bounds(question.args[0])
            return True if high <= question.data else False if low > question.data else None
        if kind == "equals":
            low, high = self.bounds(question.args[0])
            value = question.data
            if value < low or value > high or value in self._excluded.get(question.args[0], ()):
                return False
            return True if low == high else None
        if kind == "float_is":
            return self._settled_float(*question.data)
        if kind == "str_is":
            path, text = question.data
            if path in self._texts:
                return bool(self._texts[path] == text)
            return False if text in self._not_texts.get(path, ()) else None
        return None

    def learn(self, question: Expr, answer: bool) -> None:
        """Take an answer that was not settled as a fact."""
        kind = question.kind
        if kind == "at_most":
            limit = question.data
            self._narrow(question.args[0], None if answer else limit + 1, limit if answer else None)
        elif kind == "equals":
            if answer:
                self._narrow(question.args[0], question.data, question.data)
            else:
                subject = question.args[0]
                self._excluded[subject] = self._excluded.get(subject, frozenset()) | {question.data}
                self._narrow(question.args[0], None, None)
        elif kind == "float_is":
            path, comparison, value = question.data
            self._floats[path] = (*self._floats.get(path, ()), (comparison, value, answer))
        elif answer:
            self._texts[question.data[0]] = question.data[1]
        else:
            path, text = question.data
            self._not_texts[path] = self._not_texts.get(path, frozenset()) | {text}

    # ------------------------------------------------------------------------------------------------------ floats

    def _settled_float(self, path: Path, comparison: str, value: float) -> bool | None:
        asked = self._floats.get(path, ())
        slot: Any = self._slots[path]
        limits = {limit for c, limit, _ in asked if c != "nan"} | ({value} if comparison != "nan" else set())
        limits |= {float(end) for end in (slot.lo, slot.hi) if end is not None}
        possible = {
            float_holds(place, comparison, value)
            for place in float_places(limits)
            if slot.holds(place) and all(float_holds(place, c, limit) is answer for c, limit, answer in asked)
        }
        return possible.pop() if len(possible) == 1 else None


def float_places(constants: set[float]) -> list[float]:
    """A float from each place that comparisons with *constants* can tell apart, NaN last."""
    places: list[float] = []
    ordered = sorted(constants | {-math.inf, math.inf})
    for low, high in itertools.pairwise(ordered):
        places.append(low)
        between = math.nextafter(low, high)
        if between < high:
            places.append(_between(low, high))
    return [*places, ordered[-1], math.nan]


def _between(low: float, high: float) -> float:
    """The plainest float strictly between two others: zero, a short decimal, or the neighbour of the lower one."""
    if low < 0.0 < high:
        return 0.0
    if math.isinf(low):
        middle = high - 1.0 if high - 1.0 < high else math.nextafter(high, -math.inf)
    elif math.isinf(high):
        middle = low + 1.0 if low + 1.0 > low else math.nextafter(low, math.inf)
    else:
        middle = low / 2 + high / 2
    return middle if low < middle < high else math.nextafter(low, high)
