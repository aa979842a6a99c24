"""Which implementations may serve a call together, from intervals and sets of values alone.

What a claim forces is read off it once: an interval for each integer expression that it limits, a set of values for
each other slot. Two claims whose intervals or sets do not meet have no call in common; that is a proof, and needs no
solver. Who meets whom is worked out for all at once, slot by slot, in bit masks over the implementations.

A pair that meets here may still be disjoint: that is for narrowing them together, and then for the solver.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence

from tileops_rules.domain import Domain
from tileops_rules.expr import Expr, Path

from tileops_solver.codes import Codes, codes_of_all
from tileops_solver.definite import definitely
from tileops_solver.narrowing import Narrowed, narrow

__all__ = ["Boxes"]

_End = tuple[int, int]


class Boxes:
    """The boxes of some claims.

    Attributes:
        keys: What they are the claims of, in order.
        valid: What holds of every call, where it has an answer.
        claims: The claims, each where it has an answer.
        codes: The numbers under which values of slots stand, the same for all.
        boxes: What each claim forces; None where it claims nothing.
    """

    def __init__(self, domain: Domain, valid: Expr, claims: Mapping[str, Expr]) -> None:
        """Read the claims.

        Args:
            domain: What the slots range over.
            valid: What holds of every call.
            claims: For each key the calls that it claims, or more than these.
        """
        self.keys = tuple(claims)
        self._place = {key: i for i, key in enumerate(self.keys)}
        self.valid = definitely(valid, domain)
        self.claims = {key: definitely(claim, domain) for key, claim in claims.items()}
        codes = codes_of_all([self.valid, *self.claims.values()], domain)
        self.codes: Mapping[Path, Codes] = codes
        always = narrow(self.valid, domain, codes)
        boxes: list[Narrowed | None] = [
            None if always is None else narrow(claim, domain, codes, within=always) for claim in self.claims.values()
        ]
        self.boxes = dict(zip(self.keys, boxes, strict=True))
        every = (1 << len(boxes)) - 1
        self._apart = [every if box is None else 0 for box in boxes]
        empty = sum(1 << i for i, box in enumerate(boxes) if box is None)
        for i, box in enumerate(boxes):
            self._apart[i] |= empty if box is not None else 0
        full = {path: frozenset(range(each.hi + 1)) for path, each in codes.items() if each.values}
        self._part_by_codes(boxes, full, every)
        self._part_by_limits(boxes, always)

    def _part_by_codes(self, boxes: Sequence[Narrowed | None], full: Mapping[Path, frozenset[int]], every: int) -> None:
        for path, all_codes in full.items():
            limited = [
                (i, box.codes[path]) for i, box in enumerate(boxes) if box is not None and box.codes[path] != all_codes
            ]
            others = every & ~sum(1 << i for i, _ in limited)
            holding = dict.fromkeys(all_codes, others)
            for i, held in limited:
                for code in held:
                    holding[code] |= 1 << i
            met: dict[frozenset[int], int] = {}
            for i, held in limited:
                if held not in met:
                    meeting = 0
                    for code in held:
                        meeting |= holding[code]
                    met[held] = every & ~meeting
                self._apart[i] |= met[held]

    def _part_by_limits(self, boxes: Sequence[Narrowed | None], always: Narrowed | None) -> None:
        limits: dict[Expr, list[tuple[_End, int]]] = {}
        for i, box in enumerate(boxes):
            if box is None or always is None:
                continue
            for expr in box.limits:
                ends = box.bounds(expr)
                if expr not in always.limits or ends != always.bounds(expr):
                    limits.setdefault(expr, []).append((ends, i))
        for rows in limits.values():
            if len(rows) > 1:
                self._part_by_interval(rows)

    def _part_by_interval(self, rows: Sequence[tuple[_End, int]]) -> None:
        """Two intervals do not meet where one ends before the other starts."""
        by_start = sorted((low, i) for (low, _), i in rows)
        by_end = sorted((high, i) for (_, high), i in rows)
        starts, ends = [low for low, _ in by_start], [high for high, _ in by_end]
        ending = [0, *itertools.accumulate((1 << i for _, i in by_end), int.__or__)]
        starting = [0, *itertools.accumulate((1 << i for _, i in reversed(by_start)), int.__or__)]
        for (low, high), i in rows:
            before = ending[bisect.bisect_left(ends, low)]
            after = starting[len(rows) - bisect.bisect_right(starts, high)]
            self._apart[i] |= before | after

    def may_meet(self, key: str) -> tuple[str, ...]:
        """The other keys whose boxes meet that of *key*, in order: with no one else it has a call in common."""
        place = self._place[key]
        left = ((1 << len(self.keys)) - 1) & ~self._apart[place] & ~(1 << place)
        found = []
        while left:
            lowest = left & -left
            found.append(self.keys[lowest.bit_length() - 1])
            left ^= lowest
        return tuple(found)

    def meet(self, key: str, other: str) -> bool:
        """Whether the boxes of two keys meet; the box of one meets itself unless it is empty."""
        return not self._apart[self._place[key]] >> self._place[other] & 1
