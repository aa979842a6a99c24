"""Why a call gets the implementation it gets: a value, in a stable order, made on request."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tileops_rules.candidates import Candidate
from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Path
from tileops_rules.outcome import Returned
from tileops_rules.rule import Rule
from tileops_rules.shapes import Outside
from tileops_rules.tree import Ask, Leaf, Tree

__all__ = ["Entry", "Explanation", "said"]

_MOST_NODES: Final = 20_000


@dataclass(frozen=True)
class Entry:
    """What one implementation said to a call.

    Attributes:
        key: The implementation.
        status: ``chosen``, ``loses`` (serves, but another is preferred), ``ties``, ``refuses``, ``cannot run``,
            ``raises``, or ``in vain`` (serves, but the rule of another raises, and so does the call).
        reasons: Why, where it does not serve: every refusing reason that applies, the first the one its
            refusal returns.
        loses_to: The implementation that wins over it, where it loses; the one that raises, where it serves in vain.
        general: It stands below every other implementation.
        templates: The reasons before the call's values are filled in, where *reasons* are known to be all that
            apply; empty where they are not, because its rule was not lifted or never serves.
    """

    key: str
    status: str
    reasons: tuple[str, ...] = ()
    loses_to: str | None = None
    general: bool = False
    templates: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def near(self) -> bool:
        """It refuses, and but for one reason it would serve."""
        return self.status == "refuses" and len(self.templates) == 1

    def __str__(self) -> str:
        note = " (general)" if self.general else ""
        if self.status == "chosen":
            return f"{self.key}{note}: serves, and is chosen"
        if self.status == "loses":
            return f"{self.key}{note}: serves but loses to {self.loses_to}"
        if self.status == "ties":
            return f"{self.key}{note}: serves, and ties with {self.loses_to}"
        if self.status == "in vain":
            return f"{self.key}{note}: serves in vain: the rule of {self.loses_to} raises, and so does the call"
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

    @property
    def fell_to_general(self) -> bool:
        """The general implementation runs, and a specialised one that can run there refuses.

        False where no specialised implementation can run on the call's device at all.
        """
        chosen = any(entry.general and entry.key == self.winner for entry in self.entries)
        return chosen and any(not entry.general and entry.status == "refuses" for entry in self.entries)

    @property
    def near_misses(self) -> tuple[Entry, ...]:
        """The specialised implementations that can run there and refuse for exactly one reason.

        One whose rule was not lifted is never among them: it tells one reason and may have others.
        """
        return tuple(entry for entry in self.entries if entry.near and not entry.general)

    def __str__(self) -> str:
        head = f"winner: {self.winner}" if self.winner is not None else "winner: none"
        lines = [head, *(f"  {entry}" for entry in self.entries)]
        if self.fell_to_general:
            near = ", ".join(entry.key for entry in self.near_misses)
            lines.append(f"fell to the general implementation; one reason away: {near or 'none'}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The explanation as plain values; ``near_misses`` holds keys."""
        return {
            "winner": self.winner,
            "entries": [entry.as_json() for entry in self.entries],
            "fell_to_general": self.fell_to_general,
            "near_misses": [entry.key for entry in self.near_misses],
        }


def said(candidate: Candidate, rule: Rule | None, domain: Domain, call: Any) -> Entry:
    """What one implementation says to a call, asked by itself.

    Args:
        candidate: The implementation.
        rule: Its refusal, lifted; None where it was not.
        domain: The domain of the calls.
        call: A valid call whose device facts are filled in.

    Returns:
        An entry whose status is ``serves``, ``refuses``, ``cannot run`` or ``raises``.
    """

    def entry(status: str, *reasons: str, templates: tuple[str, ...] = ()) -> Entry:
        return Entry(candidate.key, status, reasons, general=candidate.general, templates=templates)

    reason = candidate.cannot_run(call)
    if reason is not None:
        return entry("cannot run", reason)
    try:
        answer = candidate.refusal(call)
    except Exception as error:  # noqa: BLE001 - shown as what the implementation said
        return entry("raises", f"{type(error).__name__}: {error}")
    if answer is None:
        return entry("serves")
    first = str(answer)
    try:
        found = {} if rule is None else _all_reasons(rule.tree, call, domain.read(call))
    except Outside:
        found = {}
    reasons = tuple(dict.fromkeys((first, *found)))
    return entry("refuses", *reasons, templates=tuple(found.values()) if len(found) == len(reasons) else ())


def _all_reasons(tree: Tree, call: Any, values: Mapping[Path, Any]) -> dict[str, str]:
    """Every refusing reason of a tree that applies to a call, the one it returns first, each with its template.

    The way from the root to a serving end that goes against the fewest of the call's own answers shows what
    would have to change; each place where it does so leads, by the call's answers from there on, to a reason.

    Args:
        tree: A lifted refusal.
        call: The call.
        values: Its slot values.

    Returns:
        Reason to template; empty where no serving end was found.
    """
    order = itertools.count()
    best: dict[int, int] = {}
    queue: list[tuple[int, int, Tree, tuple[Tree, ...]]] = [(0, next(order), tree, ())]
    while queue and len(best) < _MOST_NODES:
        cost, _, node, left = heapq.heappop(queue)
        if best.get(id(node), cost + 1) <= cost:
            continue
        best[id(node)] = cost
        if isinstance(node, Leaf) and node.outcome.serves:
            found: dict[str, str] = {}
            for each in left:
                reason, template = _reason_from(each, call, values)
                found.setdefault(reason, template)
            return found
        for branch, own in _branches(node, values):
            if own:
                heapq.heappush(queue, (cost, next(order), branch, left))
            else:
                heapq.heappush(queue, (cost + 1, next(order), branch, (*left, node)))
    return {}


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


def _reason_from(tree: Tree, call: Any, values: Mapping[Path, Any]) -> tuple[str, str]:
    """The reason that the call's own answers lead to from a node on, and its template."""
    node = tree
    while not isinstance(node, Leaf):
        own = [branch for branch, mine in _branches(node, values) if mine]
        node = own[0] if own else _branches(node, values)[0][0]
    template = str(node.outcome)
    if not isinstance(node.outcome, Returned):
        return template, template
    try:
        return str(node.outcome.give(call, values)), template
    except (ZeroDivisionError, KeyError, AttributeError, TypeError, ValueError):
        return template, template
