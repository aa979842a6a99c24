"""The first solution of a question, slot by slot: always the same one, whatever solutions z3 happens to give.

Slots are fixed one by one, in the order of the spec's fields, each at its first possible code in an order that
the caller gives. z3's solutions only say where to look first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tileops_rules.expr import Expr, Path, paths_of, walk

from tileops_solver.encode import code_range
from tileops_solver.engine import Outcome, Question, Reply, Span
from tileops_solver.orders import Order

__all__ = ["OrderOf", "Search"]

_MOST_GUESSES: Final = 16
"""Thresholds tried in plain Python for one slot before z3 is asked: 0.1 ms each, a check takes 1 ms."""

OrderOf = Callable[[Path, Span, Mapping[Path, int]], Order]
"""The order of a slot, given the span of its codes and a solution in which the slots before it are fixed."""


class Search:
    """Finds the first solution of a question.

    Args:
        question: The question; what is required of it later counts too.
        order: In which order the codes of a slot are tried.
    """

    def __init__(self, question: Question, order: OrderOf) -> None:
        self._question = question
        self._order = order
        self._thresholds: dict[Path, _Thresholds] | None = None

    def first(self) -> dict[Path, int] | Reply:
        """The first solution under what is required, or the reply of the solver where it gave none."""
        question = self._question
        reply = question.check()
        if reply.outcome is not Outcome.POSSIBLE:
            return reply
        best = dict(reply.codes)
        with question.level():
            for path in question.codes:
                best = self._fixed(path, best)
        return best

    def first_at(self, path: Path, best: Mapping[Path, int]) -> int:
        """The first possible code of one slot, the others being free, as far as the solver knows.

        Args:
            path: The slot.
            best: A solution.
        """
        with self._question.level():
            return self._fixed(path, dict(best))[path]

    def _fixed(self, path: Path, best: dict[Path, int]) -> dict[Path, int]:
        """*best*, or a solution with an earlier code at *path*: the first possible one, which is then required."""
        question = self._question
        order = self._order(path, self._range(path), best)
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

    def _guess(self, path: Path, best: Mapping[Path, int], order: Order, excluded: int) -> dict[Path, int] | None:
        """A better solution that differs from *best* at *path* only, where a threshold gives one."""
        limit = order.place(best[path])
        if limit <= excluded:
            return None
        if self._thresholds is None:
            self._thresholds = _thresholds(self._question.expr)
        near = self._thresholds[path].about(order.preferred) if path in self._thresholds else []
        places = {order.place(code) for code in (order.preferred, 0, 1, *near) if order.holds(code)}
        for place in sorted(p for p in places if excluded <= p < limit)[:_MOST_GUESSES]:
            candidate = {**best, path: order.code(place)}
            if self._question.holds(candidate) and self._question.allows(candidate):
                return candidate
        return None


class _Thresholds:
    """Where the answers of a question about one slot may change."""

    def __init__(self) -> None:
        self.constants: set[int] = set()
        self.divisors: set[int] = set()

    def about(self, middle: int) -> list[int]:
        """Codes worth trying first where those near *middle* are wanted."""
        multiples = (end for d in self.divisors for end in (middle - middle % d, middle + -middle % d))
        return sorted({*self.constants, *self.divisors, *multiples})


def _thresholds(expr: Expr) -> dict[Path, _Thresholds]:
    """For each slot, the constants that its questions compare with, their neighbours, and its divisors."""
    found: dict[Path, _Thresholds] = {}
    for node in walk(expr):
        constants: set[int] = set()
        divisors: set[int] = set()
        if node.kind in ("at_most", "equals"):
            constants = {node.data - 1, node.data, node.data + 1}
        elif node.kind in ("mod", "floordiv") and node.args[1].kind == "const" and node.args[1].data:
            divisors = {node.args[1].data}
        else:
            continue
        for path in paths_of(node):
            mine = found.setdefault(path, _Thresholds())
            mine.constants |= constants
            mine.divisors |= divisors
    return found
