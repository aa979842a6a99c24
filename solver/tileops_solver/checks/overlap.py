"""Is there a valid call that two implementations can run and both serve, with neither preferred?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.expr import negation

from tileops_solver.checks.asked import Check, Result
from tileops_solver.checks.edits import class_name, preference
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Pairs, Severity, Undecided
from tileops_solver.places import place_of
from tileops_solver.proofs.store import ProofFile
from tileops_solver.subject import Subject
from tileops_solver.witness import Witness

__all__ = ["CHECK", "PairProof", "prove_pairs"]


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


def prove_pairs(
    selector: Selector, progress: Callable[[], None] | None = None, *, proofs: ProofFile | None = None
) -> PairProof:
    """Prove every pair of non-general implementations disjoint, or find the smallest call that both serve.

    Args:
        selector: The implementations.
        progress: Called after each implementation.
        proofs: Where answers are looked up.

    Raises:
        InconsistencyError: solver, rules and original functions do not agree.
    """
    result = _run(Subject(selector, step=progress or _nothing, proofs=proofs))
    return PairProof(result.pairs or Pairs(), result.findings, result.undecided)


def _nothing() -> None:
    return None


def _run(subject: Subject) -> Result:
    selector = subject.selector
    keys = _contested(selector)
    pairs = len(keys) * (len(keys) - 1) // 2
    ordered = sum(len(selector.wins_over[key].intersection(keys)) for key in keys)
    if subject.order_on_file():
        for _ in keys:
            subject.step()
        return Result(pairs=Pairs(ordered, pairs - ordered))
    findings: list[Finding] = []
    undecided: list[Undecided] = []
    asked = 0
    for first in keys:
        for second in _partners(subject, first):
            asked += 1
            witness = _ask(subject, first, second)
            if witness.outcome is Outcome.POSSIBLE:
                findings.append(_finding(subject, first, second, witness.call))
            elif witness.outcome is Outcome.UNKNOWN:
                undecided.append(subject.undecided("overlap", (first, second), witness.reason))
        subject.step()
    subject.settled_cheaply(pairs - ordered - asked)
    disjoint = pairs - ordered - len(findings) - len(undecided)
    if disjoint and not findings and not undecided:
        subject.keep_order()
    return Result(tuple(findings), tuple(undecided), pairs=Pairs(ordered, disjoint, len(findings), len(undecided)))


def _contested(selector: Selector) -> list[str]:
    return [c.key for c in selector.candidates if not c.general]


def _partners(subject: Subject, first: str) -> Iterator[str]:
    """Those after *first* that may serve a call with it, with no order between the two."""
    wins_over = subject.selector.wins_over
    for second in subject.may_meet(first):
        ordered = second in wins_over[first] or first in wins_over[second]
        if second > first and not ordered and not subject.selector.candidate(second).general:
            yield second


def _steps(selector: Selector) -> int:
    return len(_contested(selector))


def _ask(subject: Subject, first: str, second: str) -> Witness:
    claims = [subject.lifted.get(key, subject.available(key)) for key in (first, second)]
    unlifted = [key for key in (first, second) if key not in subject.lifted]
    if not unlifted:
        return subject.find(claims, (first, second))
    # Two that never run on one device are disjoint whatever their rules say.
    witness = subject.find(claims)
    if witness.outcome is Outcome.IMPOSSIBLE:
        return witness
    return Witness(Outcome.UNKNOWN, reason=subject.causes(unlifted))


def _finding(subject: Subject, first: str, second: str, call: Any) -> Finding:
    selector = subject.selector
    places = (place_of(selector, first), place_of(selector, second))
    settled = _settling(subject, first, second)
    note = ""
    if settled:
        names = " or ".join(settled)
        note = (
            f" On every such call {names}, preferred over both, is chosen; their order is needed "
            f"all the same, for where {names} cannot run or is changed."
        )
    edits = [_edit(selector, *pair) for pair in ((first, second), (second, first))]
    message = (
        f"{first} and {second} both serve {call!r} and neither is preferred.{note} "
        f"Write {edits[0]} ({places[0]}), or {edits[1]} ({places[1]})."
    )
    return subject.finding(
        "overlap",
        Severity.ERROR,
        (first, second),
        message,
        witness=call,
        edit=f"{edits[0]}, or {edits[1]}",
        facts={"settled_by": settled} if settled else {},
    )


def _edit(selector: Selector, winner: str, loser: str) -> str:
    """The line that makes *winner* preferred over *loser* and keeps what it prefers already, with its class."""
    line = preference({loser, *selector.candidate(winner).preferred_over})
    return f"{line} in {class_name(selector, winner)}"


def _settling(subject: Subject, first: str, second: str) -> tuple[str, ...]:
    """Those preferred over both that together serve all that both serve; empty where some is left."""
    wins_over = subject.selector.wins_over
    thirds = [key for key in subject.lifted if {first, second} <= wins_over[key]]
    needed: list[str] = []
    left = [subject.lifted[key] for key in (first, second)]
    for key in thirds:
        if subject.find([*left, subject.lifted[key]]).outcome is Outcome.IMPOSSIBLE:
            continue
        needed.append(key)
        left.append(negation(subject.lifted[key]))
        if subject.find(left).outcome is Outcome.IMPOSSIBLE:
            return tuple(needed)
    return ()


CHECK: Final = Check(
    id="overlap",
    asks="Is there a valid call that two implementations can run and both serve, with neither preferred?",
    kinds={"overlap": Severity.ERROR},
    run=_run,
    steps=_steps,
)
