"""Regions as a reader would write them: short formulas for the calls on which a predicate holds.

``describe`` leaves out what every call at hand has anyway, and says of each field what the rest forces on it::

    describe(serves, domain, valid)    # "seqlen_kv >= 1024 & batch == 1 & heads == 32 & dtype == torch.float16"

Every clause that is left out was shown to follow from the others; one of which that was not decided stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import (
    FALSE,
    KINDS,
    TRUE,
    Expr,
    Path,
    among,
    at_most,
    conjunction,
    constant,
    disjunction,
    equals,
    integer,
    negation,
    paths_of,
    walk,
)
from tileops_rules.substituting import REBUILD

from tileops_solver.codes import codes_of
from tileops_solver.definite import definitely
from tileops_solver.engine import Outcome, Question
from tileops_solver.narrowing import Narrowed, narrow
from tileops_solver.wording import worded

__all__ = ["describe", "shortened"]

_MOST_QUESTIONS: Final = 600
"""Questions asked about one region, about 3 s of work; what is then left stays as it is."""

_MOST_KEPT: Final = 40
"""Solutions kept to try on further questions: 0.1 ms each, a check takes 20 ms."""


def describe(expr: Expr, domain: Domain, given: Expr = TRUE) -> str:
    """A short formula that holds on the same calls as *expr*, of those for which *given* holds.

    ``True`` where that is all of them, ``False`` where it is none. A comparison in it holds only where its divisors
    are not 0 and its fields are there. The same question gives the same text, in every process.

    Args:
        expr: The region.
        domain: Where the slots of both range.
        given: What is known of the calls that it speaks of, such as that they are valid.
    """
    return worded(shortened(expr, domain, given), domain)


def shortened(expr: Expr, domain: Domain, given: Expr = TRUE) -> Expr:
    """What :func:`describe` puts into words: a predicate that holds on the same calls, of those in *given*."""
    plain = _positive(expr)
    return _Shortening(domain).all_of(plain.args if plain.kind == "and" else [plain], [given])


def _positive(expr: Expr) -> Expr:
    """*expr* with negations at single questions only."""
    yes: dict[Expr, Expr] = {}
    no: dict[Expr, Expr] = {}
    for node in walk(expr):
        if KINDS[node.kind].sort != "bool":
            continue
        if node.kind == "not":
            yes[node], no[node] = no[node.args[0]], yes[node.args[0]]
        elif node.kind in ("and", "or"):
            both = conjunction(yes[a] for a in node.args), disjunction(no[a] for a in node.args)
            either = disjunction(yes[a] for a in node.args), conjunction(no[a] for a in node.args)
            yes[node], no[node] = both if node.kind == "and" else either
        else:
            yes[node], no[node] = node, negation(node)
    return yes[expr]


def _with_numbers(expr: Expr, numbers: Mapping[Path, int]) -> Expr:
    """*expr* where the integer slots of *numbers* are these; *expr* itself where it would divide by 0."""
    made: dict[Expr, Expr] = {}
    for node in walk(expr):
        args = [made[arg] for arg in node.args]
        if node.kind in ("floordiv", "mod") and args[1] is constant(0):
            return expr
        if node.kind == "int" and node.data in numbers:
            made[node] = constant(numbers[node.data])
        else:
            made[node] = REBUILD[node.kind](node, args) if args else node
    return _positive(made[expr])


def _holds(expr: Expr, values: Mapping[Path, Any]) -> bool:
    try:
        return bool(evaluate(expr, values))
    except ZeroDivisionError:
        return False


class _Shortening:
    """Leaves out of a predicate what its surroundings say already, asking the solver whether they do."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._left = _MOST_QUESTIONS
        self._impossible: dict[Expr, bool] = {}
        self._fields: dict[Expr, frozenset[str | int]] = {}
        self._found: list[dict[Path, Any]] = []
        self._order = {path: i for i, path in enumerate(domain.slots)}

    def all_of(self, parts: Sequence[Expr], around: Sequence[Expr]) -> Expr:
        """The conjunction of *parts*, shortened, where everything in *around* holds."""
        forced = self._forced(parts, around)
        if forced is None:
            return FALSE
        own = set(parts)
        numbers = {clause.args[0].data: clause.data for clause in forced if clause.kind == "equals"}
        kept = [_with_numbers(part, numbers) if self._bulk(part) else part for part in parts if part not in forced]
        kept = list(dict.fromkeys(part for part in kept if part not in forced))
        for part in sorted(kept, key=self._bulk, reverse=True):
            at = kept.index(part)
            short = self._short(part, [*around, *forced, *kept[:at], *kept[at + 1 :]])
            if short.kind == "and":
                kept[at : at + 1] = short.args
            else:
                kept[at] = short
        kept = [part for part in kept if part is not TRUE]
        for clause in sorted(forced, key=lambda each: (each in own, -self._place(each))):
            others = [each for each in forced if each is not clause]
            if self._follows(clause, [*around, *others, *kept]):
                forced = others
        return conjunction(sorted([*forced, *kept], key=lambda each: (self._bulk(each), self._place(each))))

    def _any_of(self, parts: Sequence[Expr], around: Sequence[Expr]) -> Expr:
        """The disjunction of *parts*, shortened."""
        kept = list(parts)
        for part in sorted(parts, key=self._bulk, reverse=True):
            at = kept.index(part)
            others = [self._fails(each) for each in (*kept[:at], *kept[at + 1 :])]
            kept[at] = self._short(part, [*around, *others])
        return disjunction(kept)

    def _short(self, expr: Expr, around: Sequence[Expr]) -> Expr:
        if self._follows(expr, around):
            return TRUE
        if self._never([*around, expr]):
            return FALSE
        if expr.kind == "and":
            return self.all_of(expr.args, around)
        if expr.kind != "or":
            return expr
        cases = [case.args if case.kind == "and" else (case,) for case in expr.args]
        common = [part for part in cases[0] if all(part in case for case in cases)]
        if not common:
            return self._any_of(expr.args, around)
        rest = disjunction(conjunction(part for part in case if part not in common) for case in cases)
        return self.all_of([*common, rest], around)

    # ----------------------------------------------------------------------------------------------------- questions

    def _follows(self, expr: Expr, around: Iterable[Expr]) -> bool:
        """Whether *expr* was shown to hold wherever everything in *around* does."""
        return self._never([*around, self._fails(expr)])

    def _fails(self, expr: Expr) -> Expr:
        return negation(definitely(expr, self._domain))

    def _never(self, parts: Iterable[Expr]) -> bool:
        """Whether *parts* were shown never to hold together.

        Parts that have no field in common, directly or through others, are asked about apart: mostly it is the same
        few of them that change from one question to the next.
        """
        return any(self._known(conjunction(group)) for group in self._apart(conjunction(parts)))

    def _known(self, asked: Expr) -> bool:
        known = self._impossible.get(asked)
        if known is None:
            known = self._impossible[asked] = self._ask(asked)
        return known

    def _apart(self, asked: Expr) -> list[list[Expr]]:
        groups: list[tuple[set[str | int], list[Expr]]] = []
        for part in asked.args if asked.kind == "and" else [asked]:
            fields = self._fields.get(part)
            if fields is None:
                fields = self._fields[part] = frozenset(path[0] for path in paths_of(part))
            mine = [group for group in groups if not fields.isdisjoint(group[0])]
            groups = [group for group in groups if group not in mine]
            groups.append(
                (set(fields).union(*(group[0] for group in mine)), [*(p for _, ps in mine for p in ps), part])
            )
        return [parts for _, parts in groups]

    def _ask(self, asked: Expr) -> bool:
        """Whether *asked* was shown never to hold; answers to earlier questions are tried before the solver is."""
        if asked is FALSE:
            return True
        with Question(asked, self._domain) as question:
            if question.known is not None and any(_holds(question.expr, values) for values in reversed(self._found)):
                return False
            if self._left <= 0:
                return False
            self._left -= 1
            reply = question.check()
            if reply.outcome is Outcome.POSSIBLE:
                self._found = [*self._found[-_MOST_KEPT:], self._domain.complete(question.values(reply.codes))]
        return reply.outcome is Outcome.IMPOSSIBLE

    # ------------------------------------------------------------------------------------------------- single fields

    def _forced(self, parts: Iterable[Expr], around: Sequence[Expr]) -> list[Expr] | None:
        """What *parts* force on single fields beyond what *around* does; None where they cannot hold."""
        whole = conjunction([*around, *parts])
        inside = self._narrowed(whole)
        if inside is None:
            return None
        outside = self._narrowed(conjunction(around))
        found: list[Expr] = []
        for path in sorted(paths_of(whole), key=self._order.__getitem__):
            clause = self._clause(path, inside, outside)
            if clause is not TRUE:
                found.append(clause)
        return found

    def _clause(self, path: Path, inside: Narrowed, outside: Narrowed | None) -> Expr:
        slot = self._domain.slots[path]
        if slot.sort == "int":
            low, high = inside.slot_limits(path)
            least, most = (slot.lo, slot.hi) if outside is None else outside.slot_limits(path)
            if low == high:
                return TRUE if least == most else equals(integer(path), low)
            below = TRUE if low <= least else negation(at_most(integer(path), low - 1))
            above = TRUE if high >= most else at_most(integer(path), high)
            return conjunction([below, above])
        if slot.sort == "finite" and path in inside.codes:
            mine = inside.codes[path]
            if outside is None or len(mine) < len(outside.codes.get(path, slot.values)):
                return among(path, [slot.values[code] for code in mine])
        return TRUE

    def _narrowed(self, expr: Expr) -> Narrowed | None:
        certain = definitely(expr, self._domain)
        read = frozenset(paths_of(certain))
        each = {path: codes for path, codes in codes_of(certain, self._domain, apart=True).items() if path in read}
        return narrow(certain, self._domain, each)

    # --------------------------------------------------------------------------------------------------------- order

    def _bulk(self, expr: Expr) -> int:
        """How much there is to read in it: one field, several, alternatives."""
        return 0 if len(paths_of(expr)) == 1 else 2 if expr.kind in ("and", "or") else 1

    def _place(self, expr: Expr) -> int:
        return min((self._order[path] for path in paths_of(expr)), default=0)
