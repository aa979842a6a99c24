"""In which order the values of a slot are tried.

An order numbers the codes of a slot by *places* from 0 on, first choice first. Places may be left empty: what
counts is which of two codes comes first, and which codes stand between two places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tileops_solver.engine import Span

__all__ = ["Along", "Around", "FromZero", "Listed", "Order"]


class Order(Protocol):
    """An order of the codes of a slot."""

    @property
    def preferred(self) -> int:
        """The code that would come first, whether it is a choice or not."""

    def holds(self, code: int) -> bool:
        """Whether *code* is a choice."""

    def place(self, code: int) -> int:
        """Where *code*, a choice, stands."""

    def code(self, place: int) -> int:
        """The code at *place*, which is not an empty one."""

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The codes of the places from *start* up to but without *end*."""


@dataclass(frozen=True)
class FromZero:
    """The preferred code, then 0, 1, 2, ..., then -1, -2, ...

    Attributes:
        lo: Smallest code.
        hi: Largest code, included.
        preferred: The first choice; outside ``lo..hi`` it is none.
    """

    lo: int
    hi: int
    preferred: int

    def holds(self, code: int) -> bool:
        """Whether *code* is a choice."""
        return self.lo <= code <= self.hi

    @property
    def _first(self) -> int:
        return max(self.lo, 0)

    @property
    def _upwards(self) -> int:
        """Number of codes from 0 up."""
        return max(0, self.hi - self._first + 1)

    def place(self, code: int) -> int:
        """Where *code* stands. The preferred one stands first; its place in the row of numbers is left empty."""
        if code == self.preferred:
            return 0
        return 1 + code - self._first if code >= 0 else 1 + self._upwards + min(self.hi, -1) - code

    def code(self, place: int) -> int:
        """The code at *place*."""
        if place == 0:
            return self.preferred
        place -= 1
        return self._first + place if place < self._upwards else min(self.hi, -1) - (place - self._upwards)

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The codes of the places from *start* up to but without *end*."""
        if start == 0 < end and self.holds(self.preferred):
            yield self.preferred, self.preferred
        start, end = max(start - 1, 0), end - 1
        if start < min(end, self._upwards):
            yield self._first + start, self._first + min(end, self._upwards) - 1
        start, end = max(start, self._upwards) - self._upwards, end - self._upwards
        if start < end:
            top = min(self.hi, -1)
            yield top - end + 1, top - start


@dataclass(frozen=True)
class Around:
    """The preferred code, then those about it: 1 above, 1 below, 2 above, 2 below, ...

    Attributes:
        lo: Smallest code.
        hi: Largest code, included.
        preferred: The middle; outside ``lo..hi`` it is no choice itself.
    """

    lo: int
    hi: int
    preferred: int

    def holds(self, code: int) -> bool:
        """Whether *code* is a choice."""
        return self.lo <= code <= self.hi

    def place(self, code: int) -> int:
        """Where *code* stands: odd places above the middle, even ones below."""
        away = code - self.preferred
        return 2 * away - 1 if away > 0 else -2 * away

    def code(self, place: int) -> int:
        """The code at *place*."""
        return self.preferred + (place + 1) // 2 if place % 2 else self.preferred - place // 2

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The codes of the places from *start* up to but without *end*."""
        below = (self.preferred - (end - 1) // 2, self.preferred - max((start + 1) // 2, 1))
        above = (self.preferred + start // 2 + 1, self.preferred + end // 2)
        here = (self.preferred, self.preferred if start == 0 < end else self.preferred - 1)
        for low, high in (below, here, above):
            if max(low, self.lo) <= min(high, self.hi):
                yield max(low, self.lo), min(high, self.hi)


@dataclass(frozen=True)
class Along:
    """The preferred code, then the next ones in one direction.

    Attributes:
        preferred: Where it begins, a choice.
        step: 1 or -1.
        end: The last choice.
    """

    preferred: int
    step: int
    end: int

    def holds(self, code: int) -> bool:
        """Whether *code* is a choice."""
        return 0 <= self.place(code) <= self.place(self.end)

    def place(self, code: int) -> int:
        """Where *code* stands."""
        return (code - self.preferred) * self.step

    def code(self, place: int) -> int:
        """The code at *place*."""
        return self.preferred + place * self.step

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The codes of the places from *start* up to but without *end*."""
        near, far = self.code(max(start, 0)), self.code(min(end - 1, self.place(self.end)))
        if (far - near) * self.step >= 0:
            yield min(near, far), max(near, far)


@dataclass(frozen=True)
class Listed:
    """The codes as they are listed.

    Attributes:
        codes: Every choice once.
        preferred: The first choice, where it is one.
    """

    codes: Sequence[int]
    preferred: int

    def holds(self, code: int) -> bool:
        """Whether *code* is a choice."""
        return code in self.codes

    def place(self, code: int) -> int:
        """Where *code* stands."""
        return self.codes.index(code)

    def code(self, place: int) -> int:
        """The code at *place*."""
        return self.codes[place]

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The codes of the places from *start* up to but without *end*."""
        for code in self.codes[start:end]:
            yield code, code
