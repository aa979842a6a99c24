"""What a boundary case is: a call at a border of a region, and what the original methods make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tileops_rules import Selector

from tileops_solver.real_methods import serving

__all__ = ["Border", "Case", "Cases", "choice_of"]


@dataclass(frozen=True)
class Border:
    """Where a case stands.

    Attributes:
        key: The implementation.
        region: ``claims``, or ``choice`` for the calls for which it is chosen.
        face: The condition that bounds the region there; empty for the region's smallest call.
        where: ``inside``, ``on`` or ``outside`` of that condition.
        at: What the condition compares, and its value: ``seqlen_kv=1023``.
        also: The region's other conditions that change with it, where it cannot change alone.
    """

    key: str
    region: str
    face: str
    where: str
    at: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The place in words that may stand in the name of a test."""
        region = f"choice-{self.key}" if self.region == "choice" else self.key
        return "-".join(part for part in (self.at.replace(" ", ""), self.where, region) if part)


@dataclass(frozen=True)
class Case:
    """A call at a border, and what it is to get.

    Attributes:
        call: The call, with the facts of its device stated.
        expected: The key of the implementation that runs it; None where there is none.
        platform: What it runs on: ``sm_90``, ``cpu``.
        borders: Where it stands; the first gives the case its name.
        shown: The call without what a call on that platform has anyway.
        note: Why nothing is chosen although something serves the call, or may: a tie, a rule that raises.
        number: Counts the cases that would have the same name.
    """

    call: Any
    expected: str | None
    platform: str
    borders: tuple[Border, ...]
    shown: str = ""
    note: str = ""
    number: int = 1

    @property
    def face(self) -> str:
        """The condition at which it stands first."""
        return self.borders[0].face

    @property
    def where(self) -> str:
        """On which side of that condition."""
        return self.borders[0].where

    def __str__(self) -> str:
        number = str(self.number) if self.number > 1 else ""
        return "-".join(part for part in (self.platform, str(self.borders[0]), number) if part)


@dataclass(frozen=True)
class Cases:
    """The boundary cases of an interface.

    Attributes:
        op: Name of the op, may be empty.
        interface: Name of the interface.
        spec: Name of the class of the calls.
        cases: The cases, platform by platform.
        undecided: What was not decided, a line each: cases may be missing there.
        complete: Whether the search came to its end; else it stopped at its limit.
    """

    op: str
    interface: str
    spec: str
    cases: tuple[Case, ...]
    undecided: tuple[str, ...] = ()
    complete: bool = True


def choice_of(selector: Selector, call: Any) -> tuple[str | None, str]:
    """What runs a call by the original methods, or None and why, where it is not that nobody serves it."""
    mask, raising = serving(selector, call)
    chosen = [selector.keys[i] for i in selector.undefeated(mask)]
    if raising:
        return None, "; ".join(raising)
    if len(chosen) > 1:
        return None, f"{', '.join(chosen)} tie"
    return (chosen[0] if chosen else None), ""
