"""A call for which a question holds, looked for in plain Python: most questions that can hold need no solver.

Slots start at the values one would show, inside the intervals that the question forces. While a part of the question
fails, one slot that it reads is moved to a value near a constant of the question, where that leaves fewer parts
failing. What is found holds by Python's arithmetic; where nothing is found, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tileops_rules.building import keeps_its_values
from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, conjunction, paths_of, walk

from tileops_solver.boxes import Boxes
from tileops_solver.codes import Codes
from tileops_solver.encode import code_range
from tileops_solver.engine import Question
from tileops_solver.narrowing import Narrowed
from tileops_solver.witness import same_values, usual_facts

__all__ = ["guessed_call", "guessed_in_box"]

_MOST_MOVES: Final = 24
"""Slots moved for one question."""

_MOST_CODES: Final = 24
"""Values tried for one slot."""

_MOST_READ: Final = 2_000
"""Parts read for one question, and four times its own number more: a part takes 5 to 20 microseconds."""


def guessed_call(expr: Expr, domain: Domain, accepts: Callable[[Any], str | None]) -> Any | None:
    """A call of *domain* for which *expr* holds, or None where none was found.

    Args:
        expr: The question; it includes whatever makes a call valid.
        domain: Where its slots range.
        accepts: Asked of the call; a text where it cannot be, for a reason that *expr* does not know.
    """
    with Question(expr, domain) as question:
        if question.known is None:
            return None
        return _built(question.expr, question.codes, question.known, domain, accepts)


def guessed_in_box(boxes: Boxes, key: str, domain: Domain, accepts: Callable[[Any], str | None]) -> Any | None:
    """As :func:`guessed_call`, for a valid call that one of some claims holds for, whose box is known already."""
    known = boxes.boxes[key]
    if known is None:
        return None
    return _built(conjunction([boxes.valid, boxes.claims[key]]), boxes.codes, known, domain, accepts)


def _built(
    expr: Expr,
    codes: Mapping[Path, Codes],
    known: Narrowed,
    domain: Domain,
    accepts: Callable[[Any], str | None],
) -> Any | None:
    values = _Guess(expr, codes, known).values()
    if values is None:
        return None
    try:
        call = domain.build({**usual_facts(domain, values), **values})
    except Exception:  # noqa: BLE001 - a spec's own constructor may raise anything; then this is no call
        return None
    kept = keeps_its_values(domain) or same_values(domain, call, values)
    return call if kept and accepts(call) is None else None


class _Guess:
    def __init__(self, expr: Expr, codes: Mapping[Path, Codes], known: Narrowed) -> None:
        self._codes = codes
        self._known = known
        self._parts = expr.args if expr.kind == "and" else (expr,)
        self._left = _MOST_READ + 4 * len(self._parts)

    def values(self) -> dict[Path, Any] | None:
        """Values of all slots for which every part holds; None where none were found."""
        codes = {path: self._start(path) for path in self._codes}
        values = {path: self._codes[path].value(code) for path, code in codes.items()}
        failing = self._failing(values, self._parts)
        for _ in range(_MOST_MOVES):
            if not failing:
                return values
            moved = self._moved(codes, values, failing)
            if moved is None:
                return None
            path, code, failing = moved
            codes[path], values[path] = code, self._codes[path].value(code)
        return None

    def _start(self, path: Path) -> int:
        mine = self._codes[path]
        if mine.values:
            allowed = self._known.codes[path]
            return mine.preferred if mine.preferred in allowed else min(allowed)
        low, high = code_range(path, mine, self._known)
        return max(low, min(mine.preferred, high))

    def _failing(self, values: Mapping[Path, Any], parts: Sequence[Expr]) -> list[Expr]:
        self._left -= len(parts)
        return [part for part in parts if not _holds(part, values)]

    def _moved(
        self, codes: Mapping[Path, int], values: Mapping[Path, Any], failing: list[Expr]
    ) -> tuple[Path, int, list[Expr]] | None:
        """A slot, its new code and the parts that then fail, fewest of all; None where none fewer would."""
        best: tuple[Path, int, list[Expr]] | None = None
        fewest = len(failing)
        for path in paths_of(failing[0]):
            near = [part for part in self._parts if path in paths_of(part)]
            elsewhere = [part for part in failing if path not in paths_of(part)]
            for code in self._options(path, near, codes):
                moved = {**values, path: self._codes[path].value(code)}
                left = elsewhere + self._failing(moved, near)
                if len(left) < fewest:
                    best, fewest = (path, code, left), len(left)
                if not left or self._left < 0:
                    return best if not left else None
        return best

    def _options(self, path: Path, parts: Iterable[Expr], codes: Mapping[Path, int]) -> list[int]:
        """Codes of a slot worth trying."""
        mine = self._codes[path]
        if mine.values:
            return [code for code in sorted(self._known.codes[path]) if code != codes[path]][:_MOST_CODES]
        low, high = code_range(path, mine, self._known)
        found = dict.fromkeys(code for part in parts for code in _thresholds(part, low))
        inside = [code for code in (low, *found, high) if low <= code <= high and code != codes[path]]
        return list(dict.fromkeys(inside))[:_MOST_CODES]


def _thresholds(expr: Expr, low: int) -> Iterator[int]:
    """Numbers at which an answer may change: constants and their neighbours, and multiples of divisors above *low*."""
    for node in walk(expr):
        if node.kind in ("at_most", "equals"):
            yield from (node.data, node.data + 1, node.data - 1)
            yield from (-node.data, 1 - node.data)
        elif node.kind in ("mod", "floordiv") and node.args[1].kind == "const" and node.args[1].data:
            width = node.args[1].data
            yield from (low + -low % width, width, 2 * width)
        elif node.kind == "sum":
            yield from (abs(factor) for factor in node.data[1])


def _holds(expr: Expr, values: Mapping[Path, Any]) -> bool:
    try:
        return bool(evaluate(expr, values))
    except ZeroDivisionError:
        return False
