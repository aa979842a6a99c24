"""Predicates in words: what is said of one field stands together, as an interval or a set of values."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from tileops_rules.domain import Domain
from tileops_rules.expr import Expr, Path, add, constant, exact_key, linear, path_of, paths_of, scale
from tileops_rules.printing import path_text, value_text

__all__ = ["worded"]

Interval = tuple[float, float]
"""Integers from the first to the second end, both included; infinite where there is no end."""

_EVERYTHING: Final[Interval] = (-math.inf, math.inf)


def worded(expr: Expr, domain: Domain) -> str:
    """*expr* as text, with what it says of one field or number put together.

    Args:
        expr: A question whose negations stand at single comparisons.
        domain: Where its slots range.
    """
    return _Wording(domain).text(expr).text


class _Text(NamedTuple):
    text: str
    joint: str = ""
    """The connective outside parentheses, if there is one."""

    def inside(self, joint: str) -> str:
        """As an argument of a connective."""
        return f"({self.text})" if self.joint not in ("", joint) else self.text


class _Wording:
    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._order = {path: i for i, path in enumerate(domain.slots)}

    def text(self, expr: Expr) -> _Text:
        """*expr* in words."""
        if _subject(expr) is not None:
            return self._of_one([expr], "and")
        if expr.kind not in ("and", "or"):
            return _Text(str(expr))
        parts = sorted(expr.args, key=self._place) if expr.kind == "or" else expr.args
        groups: dict[Expr | Path, list[Expr]] = {}
        for part in parts:
            subject = _subject(part)
            groups.setdefault(part if subject is None else subject, []).append(part)
        texts = [
            self._of_one(group, expr.kind) if _subject(group[0]) is not None else self.text(group[0])
            for group in groups.values()
        ]
        joint = " & " if expr.kind == "and" else " | "
        if len(texts) == 1:
            return texts[0]
        return _Text(joint.join(each.inside(joint) for each in texts), joint)

    def _place(self, expr: Expr) -> tuple[int, str]:
        return min((self._order[path] for path in paths_of(expr)), default=0), str(expr)

    def _of_one(self, parts: Sequence[Expr], kind: str) -> _Text:
        """What *parts*, all about one subject, say of it together."""
        subject = _subject(parts[0])
        if isinstance(subject, Expr):
            sets = [_intervals(part) for part in parts]
            return self._number(subject, _met(sets) if kind == "and" else _joined(chain.from_iterable(sets)))
        path: Path = () if subject is None else subject
        options = self._domain.slots[path].values
        values = [self._values(part, options) for part in parts]
        keys = set.intersection(*values) if kind == "and" else set.union(*values)
        held = [value_text(option) for option in options if exact_key(option) in keys]
        left = [value_text(option) for option in options if exact_key(option) not in keys]
        if not held or not left:
            return _Text(str(bool(held)))
        negated = parts[0].kind == "not" if len(parts) == 1 and len(left) < len(held) else 2 * len(left) < len(held)
        return _Text(_one_of(path_text(path), left if negated else held, negated))

    def _values(self, expr: Expr, options: Iterable[Any]) -> set[Any]:
        every = {exact_key(option) for option in options}
        if expr.kind == "not":
            return every - self._values(expr.args[0], options)
        if expr.kind == "among":
            return every & {exact_key(value) for value in expr.data[1]}
        each = [self._values(part, options) for part in expr.args]
        return set.intersection(*each) if expr.kind == "and" else set.union(*each)

    def _number(self, subject: Expr, intervals: list[Interval]) -> _Text:
        whole: Interval = _EVERYTHING
        if subject.kind == "int":
            slot = self._domain.slots[subject.data]
            whole = (slot.lo, slot.hi)
        inside, left_out = _met([intervals, [whole]]), _met([_others(intervals), [whole]])
        if not inside or not left_out:
            return _Text(str(bool(inside)))
        name = str(subject)
        if len(left_out) < len(inside) and all(low == high for low, high in left_out):
            if len(left_out) == 1:
                return _Text(_compared(subject, "!=", int(left_out[0][0])))
            return _Text(_one_of(name, [str(low) for low, _ in left_out], negated=True))
        spans = [_open(span, whole) for span in inside]
        texts = [_between(subject, low, high) for low, high in spans if low != high]
        points = [int(low) for low, high in spans if low == high]
        if points:
            one = len(points) == 1
            texts.append(_compared(subject, "==", points[0]) if one else _one_of(name, [str(p) for p in points]))
        return _Text(" | ".join(texts), " | " if len(texts) > 1 else "")


def _open(span: Interval, whole: Interval) -> Interval:
    """*span* without the ends that every number has; a single number stays one."""
    low, high = span
    if low == high:
        return span
    return (-math.inf if low == whole[0] else low), (math.inf if high == whole[1] else high)


def _one_of(name: str, values: list[str], negated: bool = False) -> str:
    if len(values) == 1:
        return f"{name} {'!=' if negated else '=='} {values[0]}"
    return f"{name} {'not in' if negated else 'in'} ({', '.join(values)})"


def _between(subject: Expr, low: float, high: float) -> str:
    if math.isinf(low):
        return _compared(subject, "<=", int(high))
    return _compared(subject, ">=", int(low)) if math.isinf(high) else f"{low} <= {subject} <= {high}"


_STRICT: Final = {("<=", -1): "<", (">=", 1): ">"}


def _compared(subject: Expr, sign: str, value: int) -> str:
    """The comparison of a number with a constant; of a difference, as one of its two sides."""
    parts: dict[bool, list[Expr]] = {True: [], False: []}
    for atom, factor in linear(subject)[1].items():
        parts[factor > 0].append(scale(atom, abs(factor)))
    if not all(parts.values()):
        return f"{subject} {sign} {value}"
    strict = _STRICT.get((sign, value))
    right = [*parts[False], *([] if strict else [constant(value)])]
    return f"{functools.reduce(add, parts[True])} {strict or sign} {functools.reduce(add, right)}"


def _subject(expr: Expr) -> Expr | Path | None:
    """The number or finite slot that everything in *expr* is about; None where there is no such one."""
    if expr.kind in ("at_most", "equals"):
        return expr.args[0]
    if expr.kind == "among":
        return path_of(expr)
    if expr.kind not in ("not", "and", "or"):
        return None
    subjects = {_subject(part) for part in expr.args}
    return subjects.pop() if len(subjects) == 1 else None


def _intervals(expr: Expr) -> list[Interval]:
    """Where the subject of *expr* lies, in order and apart."""
    if expr.kind == "at_most":
        return [(-math.inf, expr.data)]
    if expr.kind == "equals":
        return [(expr.data, expr.data)]
    if expr.kind == "not":
        return _others(_intervals(expr.args[0]))
    each = [_intervals(part) for part in expr.args]
    return _met(each) if expr.kind == "and" else _joined(chain.from_iterable(each))


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _others(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    start = -math.inf
    for low, high in intervals:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    return found if start == math.inf else [*found, (start, math.inf)]


def _met(sets: Iterable[list[Interval]]) -> list[Interval]:
    found: list[Interval] = [_EVERYTHING]
    for intervals in sets:
        found = [
            (max(low, other[0]), min(high, other[1]))
            for low, high in found
            for other in intervals
            if max(low, other[0]) <= min(high, other[1])
        ]
    return found
