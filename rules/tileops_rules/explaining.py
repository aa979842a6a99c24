"""Why a call gets the implementation it gets: a value, in a stable order, made on request."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Path
from tileops_rules.outcome import Returned
from tileops_rules.tree import Ask, Leaf, Tree

__all__ = ["Entry", "Explanation", "all_reasons"]

_MOST_NODES: Final = 20_000


@dataclass(frozen=True)
class Entry:
    """What one implementation said to a call.

    Attributes:
        key: The implementation.
        status: ``chosen``, ``loses`` (serves, but another is preferred), ``ties``, ``refuses``, ``cannot run``
            or ``raises``.
        reasons: Why, where it does not serve: every refusing reason that applies, the first the one its
            refusal returns.
        loses_to: The implementation that wins over it, where it loses.
        general: It stands below every other implementation.
    """

    key: str
    status: str
    reasons: tuple[str, ...] = ()
    loses_to: str | None = None
    general: bool = False

    def __str__(self) -> str:
        note = " (general)" if self.general else ""
        if self.status == "chosen":
            return f"{self.key}{note}: serves, and is chosen"
        if self.status == "loses":
            return f"{self.key}{note}: serves but loses to {self.loses_to}"
        if self.status == "ties":
            return f"{self.key}{note}: serves, and ties with {self.loses_to}"
        return f"{self.key}{note}: {self.status}: {'; '.join(self.reasons)}"

    def as_json(self) -> dict[str, Any]:
        """The entry as plain values."""
        return {
            "key": self.key,
            "status": self.status,
            "reasons": list(self.reasons),
            "loses_to": self.loses_to,
            "general": self.general,
        }


@dataclass(frozen=True)
class Explanation:
    """The winner, and what every implementation said.

    Attributes:
        winner: Key of the implementation that runs, or None.
        entries: One for each implementation, sorted by key.
    """

    winner: str | None
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        head = f"winner: {self.winner}" if self.winner is not None else "winner: none"
        return "\n".join([head, *(f"  {entry}" for entry in self.entries)])

    def as_json(self) -> dict[str, Any]:
        """The explanation as plain values."""
        return {"winner": self.winner, "entries": [entry.as_json() for entry in self.entries]}


def all_reasons(tree: Tree, call: Any, values: Mapping[Path, Any]) -> tuple[str, ...]:
    """Every refusing reason of a tree that applies to a call, the one it returns first.

    The way from the root to a serving end that goes against the fewest of the call's own answers shows what
    would have to change; each place where it does so leads, by the call's answers from there on, to a reason.

    Args:
        tree: A lifted refusal.
        call: The call.
        values: Its slot values.
    """
    order = itertools.count()
    best: dict[int, int] = {}
    queue: list[tuple[int, int, Tree, tuple[str, ...]]] = [(0, next(order), tree, ())]
    fallback = _reason_from(tree, call, values)
    while queue and len(best) < _MOST_NODES:
        cost, _, node, reasons = heapq.heappop(queue)
        if best.get(id(node), cost + 1) <= cost:
            continue
        best[id(node)] = cost
        if isinstance(node, Leaf):
            if node.outcome.serves:
                return tuple(dict.fromkeys(reasons)) or (fallback,)
            continue
        for branch, own in _branches(node, values):
            if own:
                heapq.heappush(queue, (cost, next(order), branch, reasons))
            else:
                reason = _reason_from(node, call, values)
                heapq.heappush(queue, (cost + 1, next(order), branch, (*reasons, reason)))
    return (fallback,)


def _branches(node: Tree, values: Mapping[Path, Any]) -> list[tuple[Tree, bool]]:
    if isinstance(node, Leaf):
        return []
    if isinstance(node, Ask):
        try:
            answer = bool(evaluate(node.question, values))
        except ZeroDivisionError:
            return [(node.yes, False), (node.no, False)]
        return [(node.yes, answer), (node.no, not answer)]
    mine = node.branch(values[node.path]) if node.path in values else None
    return [(branch, branch is mine) for _, branch in node.branches]


def _reason_from(tree: Tree, call: Any, values: Mapping[Path, Any]) -> str:
    """The reason that the call's own answers lead to from a node on."""
    node = tree
    while not isinstance(node, Leaf):
        own = [branch for branch, mine in _branches(node, values) if mine]
        node = own[0] if own else _branches(node, values)[0][0]
    if not isinstance(node.outcome, Returned):
        return str(node.outcome)
    try:
        return str(node.outcome.give(call, values))
    except (ZeroDivisionError, KeyError, AttributeError, TypeError, ValueError):
        return str(node.outcome)
