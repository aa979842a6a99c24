"""Intervals and sets that a question forces on its slots: exact where they come out empty, cheap always.

They see one slot or one integer expression at a time, so two facts about *different* expressions (``a < b``
and ``b < a``) get past them; those are for z3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tileops_rules.bounds import BOUNDS, Bounds
from tileops_rules.domain import Domain
from tileops_rules.expr import Expr, Path, integer, path_of

from tileops_solver.codes import Codes

__all__ = ["Narrowed", "SlotBounds", "narrow"]

_DEEPEST: Final = 60
"""Connectives below this depth are left alone: reading them would go near Python's recursion limit."""

_MOST_STEPS: Final = 20_000
"""Connectives and atoms read for one question, about 30 ms of work; what is left is not narrowed further."""


class Narrowed:
    """What every call that satisfies a question must satisfy.

    Attributes:
        limits: Integer expression to interval.
        codes: Slot to the codes that it may have.
    """

    __slots__ = ("_domain", "_known", "codes", "limits")

    def __init__(self, domain: Domain, limits: Mapping[Expr, Bounds], codes: Mapping[Path, frozenset[int]]) -> None:
        self._domain = domain
        self._known: dict[Expr, Bounds] = {}
        self.limits = dict(limits)
        self.codes = dict(codes)

    def copy(self) -> Narrowed:
        """The same facts, to be narrowed on their own."""
        made = Narrowed(self._domain, self.limits, self.codes)
        made._known = self._known.copy()
        return made

    def bounds(self, expr: Expr) -> Bounds:
        """The interval of *expr*; empty (its end below its start) where there is no value."""
        found = self._known.get(expr)
        if found is None:
            low, high = self._plain(expr)
            known = self.limits.get(expr)
            if known is not None:
                low, high = max(low, known[0]), min(high, known[1])
            found = self._known[expr] = (low, high)
        return found

    def slot_limits(self, path: Path) -> Bounds:
        """The interval of an integer slot from the facts about this very slot."""
        slot = self._domain.slots[path]
        low, high = self.limits.get(integer(path), (slot.lo, slot.hi))
        return max(low, slot.lo), min(high, slot.hi)

    def _plain(self, expr: Expr) -> Bounds:
        if expr.kind == "int":
            slot = self._domain.slots[expr.data]
            return slot.lo, slot.hi
        return BOUNDS[expr.kind](expr, self.bounds)

    def limit(self, expr: Expr, low: int | None, high: int | None) -> bool:
        """Take ``low <= expr <= high`` as known; False where nothing is left."""
        lo, hi = self.bounds(expr)
        lo = lo if low is None else max(lo, low)
        hi = hi if high is None else min(hi, high)
        if (lo, hi) != self._known[expr]:
            self.limits[expr] = (lo, hi)
            self._known.clear()
        return lo <= hi

    def consistent(self) -> bool:
        """Whether what was learnt later leaves a value to every expression."""
        return all(low <= high for low, high in map(self.bounds, self.limits))

    def allow(self, path: Path, codes: frozenset[int]) -> bool:
        """Take it as known that the slot has one of *codes*; False where nothing is left."""
        left = self.codes[path] & codes if path in self.codes else codes
        self.codes[path] = left
        return bool(left)


def narrow(expr: Expr, domain: Domain, codes: Mapping[Path, Codes], within: Narrowed | None = None) -> Narrowed | None:
    """What *expr* forces, or None where it cannot hold at all.

    Args:
        expr: The question.
        domain: Where its slots range.
        codes: Of each slot that it reads.
        within: What is known already; left as it is.
    """
    if within is not None:
        start = within.copy()
    else:
        start = Narrowed(domain, {}, {path: frozenset(range(c.hi + 1)) for path, c in codes.items() if c.values})
    return _Reader(codes).assume(start, expr, True, 0)


class _Reader:
    def __init__(self, codes: Mapping[Path, Codes]) -> None:
        self._codes = codes
        self._steps = 0

    def assume(self, facts: Narrowed, expr: Expr, answer: bool, depth: int) -> Narrowed | None:
        """*facts* with ``expr`` answered so; None where that cannot be. May change *facts* itself."""
        self._steps += 1
        if expr.kind == "not":
            return self.assume(facts, expr.args[0], not answer, depth)
        if expr.kind == "truth":
            return facts if expr.data is answer else None
        if expr.kind in ("and", "or"):
            if depth > _DEEPEST or self._steps > _MOST_STEPS:
                return facts
            every = (expr.kind == "and") is answer
            read = self._all if every else self._any
            return read(facts, expr.args, answer, depth + 1)
        return facts if self._atom(facts, expr, answer) else None

    def _atom(self, facts: Narrowed, expr: Expr, answer: bool) -> bool:
        if expr.kind == "at_most":
            return (
                facts.limit(expr.args[0], None, expr.data) if answer else facts.limit(expr.args[0], expr.data + 1, None)
            )
        if expr.kind == "equals":
            if answer:
                return facts.limit(expr.args[0], expr.data, expr.data)
            low, high = facts.bounds(expr.args[0])
            return facts.limit(expr.args[0], low + (low == expr.data), high - (high == expr.data))
        path = path_of(expr)
        if path is None:
            return True
        mine = self._codes[path]
        yes = mine.holding[expr]
        return facts.allow(path, yes if answer else frozenset(range(mine.hi + 1)) - yes)

    def _all(self, facts: Narrowed, parts: Iterable[Expr], answer: bool, depth: int) -> Narrowed | None:
        """Atoms first, for alternatives to be read with all that is known; the outermost ones twice."""
        later: list[Expr] = []
        known: Narrowed | None = facts
        for part in parts:
            if (part.args[0] if part.kind == "not" else part).kind in ("and", "or"):
                later.append(part)
                continue
            known = self.assume(facts, part, answer, depth)
            if known is None:
                return None
        for _ in range(2 if len(later) > 1 and depth == 1 else 1):
            for part in later:
                known = self.assume(facts, part, answer, depth)
                if known is None:
                    return None
                facts = known
        return facts if facts.consistent() else None

    def _any(self, facts: Narrowed, parts: Iterable[Expr], answer: bool, depth: int) -> Narrowed | None:
        left = [found for part in parts if (found := self.assume(facts.copy(), part, answer, depth)) is not None]
        if not left:
            return None
        return left[0] if len(left) == 1 else _joined(facts, left)


def _joined(before: Narrowed, cases: list[Narrowed]) -> Narrowed:
    """What holds in every one of *cases*."""
    first, *rest = cases
    for expr, limit in first.limits.items():
        if expr.kind == "int" and all(case.limits.get(expr) == limit for case in (before, *rest)):
            continue  # nothing was learnt of this slot in any case
        if all(expr in case.limits for case in rest):
            ends = [case.bounds(expr) for case in cases]
            before.limit(expr, min(low for low, _ in ends), max(high for _, high in ends))
    for path in first.codes:
        before.allow(path, frozenset().union(*(case.codes.get(path, frozenset()) for case in cases)))
    return before


class SlotBounds:
    """Intervals of integer expressions from the facts about single slots alone, each worked out once.

    A fact about a product may not narrow that product here: arithmetic that wraps would make it true.
    """

    def __init__(self, known: Narrowed) -> None:
        self._known = known
        self._done: dict[Expr, Bounds] = {}

    def __call__(self, node: Expr) -> Bounds:
        """The interval of *node*."""
        found = self._done.get(node)
        if found is None:
            row = self._known.slot_limits(node.data) if node.kind == "int" else BOUNDS[node.kind](node, self)
            found = self._done[node] = row
        return found
