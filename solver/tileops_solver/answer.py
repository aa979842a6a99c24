"""What a question can come back with: three answers, never two; and the error for a mistake of ours."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "InconsistencyError", "Verdict"]


class Verdict(enum.Enum):
    """The three answers to "is there such a call?"."""

    FOUND = "found"
    """There is: the answer holds the smallest one."""

    NONE = "none"
    """There is none in the whole domain: proved."""

    UNDECIDED = "undecided"
    """Neither was shown; never to be read as a proof."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question; it holds plain Python values only.

    Attributes:
        verdict: Which of the three.
        call: The call where one was found, else None.
        reason: How a proof went, or why nothing was decided; empty where a call was found.
    """

    verdict: Verdict
    call: Any = None
    reason: str = ""

    def __bool__(self) -> bool:
        raise TypeError(
            "an Answer has three outcomes and no truth value: compare its verdict, as in answer.verdict is Verdict.NONE"
        )


class InconsistencyError(Exception):
    """Solver, rule and original function do not agree: a mistake in this library, never a finding.

    Attributes:
        call: The call on which they differ, or None where it could not be built.
        facts: What each of them said, in words.
    """

    def __init__(self, message: str, *, call: Any = None, facts: tuple[str, ...] = ()) -> None:
        said = "".join(f"\n  {fact}" for fact in facts)
        super().__init__(f"{message}{said}\nThis is an error of tileops_solver or tileops_rules: please report it.")
        self.call = call
        self.facts = facts
