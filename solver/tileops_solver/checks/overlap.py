"""Is there a valid call that two implementations can run and both serve, with neither preferred?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tileops_rules import Predicate, Selector
from tileops_rules.expr import Expr, conjunction, negation

from tileops_solver.answer import InconsistencyError
from tileops_solver.engine import Outcome, Question
from tileops_solver.findings import Finding, Pairs, Undecided
from tileops_solver.places import place_of
from tileops_solver.validity import rejection
from tileops_solver.witness import Witness, smallest_call

__all__ = ["PairProof", "prove_pairs"]


@dataclass(frozen=True)
class PairProof:
    """What is known of every pair of non-general implementations of one interface.

    Attributes:
        pairs: How many pairs are in which state.
        findings: One for each overlapping pair.
        undecided: One for each undecided pair, with the reason.
    """

    pairs: Pairs
    findings: tuple[Finding, ...]
    undecided: tuple[Undecided, ...]


def prove_pairs(selector: Selector, progress: Callable[[], None] | None = None) -> PairProof:
    """Prove every pair of non-general implementations disjoint, or find the smallest call that both serve.

    Args:
        selector: The implementations.
        progress: Called after each pair.

    Raises:
        InconsistencyError: solver, rules and original functions do not agree.
    """
    keys = [c.key for c in selector.candidates if not c.general]
    findings: list[Finding] = []
    undecided: list[Undecided] = []
    ordered = disjoint = 0
    for first, second in combinations(keys, 2):
        if second in selector.wins_over[first] or first in selector.wins_over[second]:
            ordered += 1
        else:
            witness = _ask(selector, first, second)
            if witness.outcome is Outcome.POSSIBLE:
                findings.append(_finding(selector, first, second, witness.call))
            elif witness.outcome is Outcome.UNKNOWN:
                undecided.append(Undecided((first, second), witness.reason))
            else:
                disjoint += 1
        if progress is not None:
            progress()
    pairs = Pairs(ordered, disjoint, len(findings), len(undecided))
    return PairProof(pairs, tuple(findings), tuple(undecided))


def _ask(selector: Selector, first: str, second: str) -> Witness:
    claims = [(key, selector.claims(key)) for key in (first, second)]
    known = [selector.available(key) if claim is None else claim for key, claim in claims]
    question = conjunction([selector.valid.expr, *(predicate.expr for predicate in known)])
    unlifted = [key for key, claim in claims if claim is None]
    if unlifted:
        return _without_rules(selector, question, unlifted)
    witness = smallest_call(question, selector.domain, lambda call: rejection(selector, call))
    if witness.outcome is Outcome.POSSIBLE:
        for key, claim in zip((first, second), known, strict=True):
            _confirm(selector, key, claim, witness.call)
    return witness


def _without_rules(selector: Selector, question: Expr, unlifted: list[str]) -> Witness:
    """What is known without a rule: two that never run on one device are disjoint all the same."""
    with Question(question, selector.domain) as asked:
        reply = asked.check()
    if reply.outcome is Outcome.IMPOSSIBLE:
        return Witness(reply.outcome, reason=reply.reason)
    causes = "; ".join(f"the rule of {key} was not lifted: {selector.not_lifted[key].cause}" for key in unlifted)
    return Witness(Outcome.UNKNOWN, reason=causes)


def _confirm(selector: Selector, key: str, claim: Predicate, call: Any) -> None:
    """Hold a witness against the rule and the function it was lifted from."""
    candidate = selector.candidate(key)
    if not (claim & selector.valid)(call):
        raise InconsistencyError(
            f"{key} is found to serve a valid call that its own predicate denies",
            call=call,
            facts=(f"call: {call!r}", f"predicate: {claim}", f"valid: {selector.valid}"),
        )
    try:
        said: Any = candidate.cannot_run(call) or candidate.refusal(call)
    except Exception as error:  # noqa: BLE001 - any exception is a difference to the rule, which says that it serves
        said = error
    if said is not None:
        raise InconsistencyError(
            f"{key} is proved to serve a call that it does not serve when it is run",
            call=call,
            facts=(f"call: {call!r}", f"it says: {said!r}"),
        )


def _finding(selector: Selector, first: str, second: str, call: Any) -> Finding:
    name = f"{selector.op}.{selector.interface}" if selector.op else selector.spec.__name__
    places = (place_of(selector, first), place_of(selector, second))
    settled = _settling(selector, first, second)
    note = ""
    if settled:
        names = " or ".join(settled)
        note = (
            f" On every such call {names}, preferred over both, is chosen; their order is needed "
            f"all the same, for where {names} cannot run or is changed."
        )
    message = (
        f"{name}: {first} and {second} both serve {call!r} and neither is preferred.{note} "
        f"Write {_edit(selector, first, second)} in {_named(selector, first)} ({places[0]}), "
        f"or {_edit(selector, second, first)} in {_named(selector, second)} ({places[1]})."
    )
    return Finding("overlap", (first, second), call, message, places, selector.op, selector.interface)


def _edit(selector: Selector, winner: str, loser: str) -> str:
    """The line that makes *winner* preferred over *loser* and keeps what it prefers already."""
    preferred = ", ".join(f'"{key}"' for key in sorted({loser, *selector.candidate(winner).preferred_over}))
    return f"preferred_over = frozenset({{{preferred}}})"


def _named(selector: Selector, key: str) -> str:
    kind = selector.candidate(key).implementation
    return key if kind is None else kind.__name__


def _settling(selector: Selector, first: str, second: str) -> tuple[str, ...]:
    """Those preferred over both that together serve all that both serve; empty where some is left."""
    thirds = [key for key in selector.keys if {first, second} <= selector.wins_over[key]]
    claims = {key: claim for key in thirds if (claim := selector.claims(key)) is not None}
    both = [claim.expr for key in (first, second) if (claim := selector.claims(key)) is not None]
    needed: list[str] = []
    left = conjunction([selector.valid.expr, *both])
    for key, claim in claims.items():
        with Question(conjunction([left, claim.expr]), selector.domain) as asked:
            if asked.check().outcome is Outcome.IMPOSSIBLE:
                continue
        needed.append(key)
        left = conjunction([left, negation(claim.expr)])
        with Question(left, selector.domain) as asked:
            if asked.check().outcome is Outcome.IMPOSSIBLE:
                return tuple(needed)
    return ()
