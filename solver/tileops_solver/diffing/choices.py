"""Who is chosen where, on one of the two sides of a comparison.

Of a rule that was not lifted nothing is known but where its implementation can run. A choice is stated here only
where it does not depend on such a rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import combinations
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import FALSE, Expr, Path, conjunction, disjunction, negation

__all__ = ["NOBODY", "TIE", "Side", "fails", "holds"]

NOBODY: Final = "(nobody)"
"""The choice where no implementation serves a call, or where it is no valid call."""

TIE: Final = "(a tie)"
"""The choice where several serve and none is preferred."""


def holds(expr: Expr, values: Mapping[Path, Any]) -> bool:
    """Whether *expr* holds where the slots hold *values*; it does not where it divides by 0 or misses a slot."""
    try:
        return bool(evaluate(expr, values))
    except ZeroDivisionError:
        return False


def fails(expr: Expr, where: Expr) -> Expr:
    """The negation of *expr* for calls on which *where* holds: without the clauses that the two have in common."""
    known = set(where.args if where.kind == "and" else (where,))
    return negation(conjunction(p for p in (expr.args if expr.kind == "and" else (expr,)) if p not in known))


class Side:
    """One of the two sets of rules.

    Attributes:
        selector: The rules.
        names: Key to the name under which the two sides are compared.
        keys: The implementations that are looked at, under those names.
        valid: The calls that there are.
        inside: Which calls it has at all.
    """

    def __init__(
        self, selector: Selector, inside: Expr, names: Mapping[str, str], keys: Collection[str] | None = None
    ) -> None:
        self.selector = selector
        self.inside = inside
        self.names = names
        self.keys = tuple(name for key in selector.keys if (name := names[key]) in (keys or names.values()))
        self.valid = conjunction([inside, selector.valid.expr])
        self._own = {name: key for key, name in names.items()}
        self._wins = {names[key]: frozenset(names[k] for k in over) for key, over in selector.wins_over.items()}
        self._choices: dict[str, Expr] = {}

    def only(self, keys: Collection[str]) -> Side:
        """The same, with no implementation but *keys*."""
        return Side(self.selector, self.inside, self.names, keys)

    def own(self, name: str) -> str:
        """The key that is compared under *name*; a choice of nobody as it stands."""
        return self._own.get(name, name)

    @cached_property
    def _claims(self) -> dict[str, Expr]:
        claims = {name: self.selector.claims(self._own[name]) for name in self.keys}
        return {name: conjunction([self.valid, claim.expr]) for name, claim in claims.items() if claim is not None}

    @property
    def unlifted(self) -> tuple[str, ...]:
        """The implementations of whose rules nothing is known."""
        return tuple(name for name in self.keys if name not in self._claims)

    def serves(self, name: str) -> Expr | None:
        """The valid calls that an implementation can run and serves; None where its rule was not lifted."""
        return self._claims.get(name)

    def may_serve(self, name: str) -> Expr:
        """The same; of one whose rule was not lifted, the calls that it can run."""
        found = self._claims.get(name)
        return conjunction([self.valid, self.selector.available(self._own[name]).expr]) if found is None else found

    def order(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        """What an implementation wins over, and what wins over it."""
        return self._wins[name], frozenset(other for other in self._wins if name in self._wins[other])

    @cached_property
    def declared(self) -> Expr | None:
        """The valid calls that are declared unserved; None where that was not lifted."""
        if self.selector.unserved_not_lifted is not None:
            return None
        rule = self.selector.declared_unserved
        return FALSE if rule is None else conjunction([self.valid, negation(rule.serves.expr)])

    @cached_property
    def raising(self) -> Expr:
        """The valid calls on which the rule of an implementation that can run raises, as far as rules were lifted."""
        found = (self.selector.raising(self._own[name]) for name in self.keys)
        return conjunction([self.valid, disjunction(each.expr for each in found if each is not None)])

    @property
    def choices(self) -> tuple[str, ...]:
        """Everything that may be chosen."""
        return (*self.keys, NOBODY, TIE)

    def chosen(self, choice: str) -> Expr:
        """The calls for which a choice is known to be made."""
        found = self._choices.get(choice)
        if found is None:
            made = self._tie() if choice == TIE else self._nobody() if choice == NOBODY else self._one(choice)
            found = self._choices[choice] = made
        return found

    def _nobody(self) -> Expr:
        return conjunction(negation(self.may_serve(name)) for name in self.keys)

    def _above(self, name: str) -> Collection[str]:
        return [other for other in self.keys if name in self._wins[other]]

    def _beside(self, name: str) -> Collection[str]:
        return [o for o in self.keys if o != name and o not in self._wins[name] and name not in self._wins[o]]

    def _one(self, name: str) -> Expr:
        """Nothing that wins over it serves, and what stands beside it does not or is beaten by another one."""
        mine = self._claims.get(name)
        if mine is None:
            return FALSE
        beaten = [fails(self.may_serve(other), mine) for other in self._above(name)]
        for other in self._beside(name):
            winners = [self._claims[third] for third in self._above(other) if third in self._claims]
            beaten.append(disjunction([fails(self.may_serve(other), mine), *winners]))
        return conjunction([mine, *beaten])

    def _tie(self) -> Expr:
        """Two serve that stand beside each other, and nothing that wins over either of them."""
        return disjunction(
            conjunction(
                [
                    *(self._claims[name] for name in pair),
                    *(negation(self.may_serve(other)) for name in pair for other in self._above(name)),
                ]
            )
            for pair in combinations(self._claims, 2)
            if pair[1] in self._beside(pair[0])
        )

    def choice_at(self, values: Mapping[Path, Any]) -> str | None:
        """The choice where the slots hold *values*; None where it depends on a rule that was not lifted."""
        return next((choice for choice in self.choices if holds(self.chosen(choice), values)), None)
