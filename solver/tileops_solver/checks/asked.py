"""What a check is: a question with an id, the kinds of finding it can make, and the function that asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tileops_rules import Selector

from tileops_solver.findings import Finding, Pairs, Severity, Undecided
from tileops_solver.subject import Subject

__all__ = ["Check", "Result"]


@dataclass(frozen=True)
class Result:
    """What a check says of one interface.

    Attributes:
        findings: What is wrong.
        undecided: What was not decided, with the reason.
        facts: Lines that were asked for and are no findings.
        pairs: States of pairs; of the overlap check alone.
    """

    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    facts: tuple[str, ...] = ()
    pairs: Pairs | None = None

    @classmethod
    def of(cls, said: Iterable[Finding | Undecided | str]) -> Result:
        """What was *said*, each kind in its order: findings, open questions, and lines that are neither."""
        every = tuple(said)
        return cls(
            tuple(each for each in every if isinstance(each, Finding)),
            tuple(each for each in every if isinstance(each, Undecided)),
            tuple(each for each in every if isinstance(each, str)),
        )


def _one(selector: Selector) -> int:
    return 1


@dataclass(frozen=True)
class Check:
    """A question that an audit asks of every interface.

    Attributes:
        id: Its name for ``--select`` and ``--ignore``.
        asks: The question, as a sentence.
        kinds: The kinds of finding it can make, with the weight of each.
        run: Asks it.
        steps: How often it calls :attr:`Subject.step`, for a selector.
        whole: It speaks of all archs together, so that it is not asked where only some are looked at.
    """

    id: str
    asks: str
    kinds: Mapping[str, Severity]
    run: Callable[[Subject], Result]
    steps: Callable[[Selector], int] = _one
    whole: bool = False
