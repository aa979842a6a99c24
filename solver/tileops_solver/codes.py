"""The values of a slot that one question can tell apart, each under a small integer.

A question compares a finite, float or string slot with a few constants only. Values that every such
comparison answers alike are one class; z3 sees the number of the class. Plainer values have smaller numbers,
so that the smallest number is the one to show. Integer slots stand for themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.evaluating import float_holds
from tileops_rules.expr import Expr, Path, exact_key, path_of, walk
from tileops_rules.facts import float_places
from tileops_rules.shapes import Slot, nearest_inside

__all__ = ["Codes", "codes_of", "codes_of_all"]


@dataclass(frozen=True)
class Codes:
    """One slot in one question.

    Attributes:
        slot: The slot.
        lo: Smallest number it is encoded as.
        hi: Largest number, included.
        preferred: The number of the value to show where any will do.
        values: The value shown for each number; empty for an integer slot, whose numbers are its values.
        holding: For each question about the slot, the numbers that answer yes; empty for an integer slot.
    """

    slot: Slot
    lo: int
    hi: int
    preferred: int
    values: tuple[Any, ...]
    holding: Mapping[Expr, frozenset[int]]

    def value(self, code: int) -> Any:
        """The value that stands for *code*."""
        return self.values[code] if self.values else code


def codes_of(expr: Expr, domain: Domain, apart: bool = False) -> dict[Path, Codes]:
    """The slots that *expr* reads, in the order of the domain.

    Args:
        expr: The question.
        domain: Where its slots range.
        apart: Take every slot of the domain, and every value of a finite one for itself: for a search that
            something else than *expr* limits too.
    """
    return codes_of_all([expr], domain, apart)


def codes_of_all(exprs: Iterable[Expr], domain: Domain, apart: bool = False) -> dict[Path, Codes]:
    """As :func:`codes_of`, for several questions that are to share their numbers."""
    found: dict[Path, dict[Expr, None]] = {}
    for expr in exprs:
        for node in walk(expr):
            path = path_of(node)
            if path is not None:
                found.setdefault(path, {})[node] = None
    atoms = {path: list(nodes) for path, nodes in found.items()}
    return {
        path: _ROWS[slot.sort](slot, atoms.get(path, []), apart)
        for path, slot in domain.slots.items()
        if path in atoms or apart
    }


def _int(slot: Slot, atoms: list[Expr], apart: bool) -> Codes:
    preferred = nearest_inside(slot)
    return Codes(slot, slot.lo, slot.hi, preferred, (), {})


def _classes(
    slot: Slot,
    values: Iterable[Any],
    atoms: list[Expr],
    yes: Callable[[Expr, Any], bool],
    apart: bool = False,
) -> Codes:
    """One number for each way in which *atoms* answer; the first of *values* that answers so stands for it.

    With *apart*, every value has a number of its own.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    shown: list[Any] = []
    for value in values:
        answers = (*(yes(atom, value) for atom in atoms), *((exact_key(value),) if apart else ()))
        if answers not in numbers:
            numbers[answers] = len(shown)
            shown.append(value)
    holding = {atom: frozenset(code for answers, code in numbers.items() if answers[i]) for i, atom in enumerate(atoms)}
    return Codes(slot, 0, len(shown) - 1, 0, tuple(shown), holding)


def _finite(slot: Slot, atoms: list[Expr], apart: bool) -> Codes:
    options = {atom: {exact_key(v) for v in atom.data[1]} for atom in atoms}
    return _classes(slot, slot.values, atoms, lambda atom, value: exact_key(value) in options[atom], apart)


def _float(slot: Slot, atoms: list[Expr], apart: bool) -> Codes:
    constants = {atom.data[2] for atom in atoms if atom.data[1] != "nan"}
    for end in (slot.lo, slot.hi):
        if end is not None:
            near = float(end)
            constants |= {math.nextafter(near, -math.inf), near, math.nextafter(near, math.inf)}
    places = sorted((p for p in float_places(constants) if slot.holds(p)), key=_plainness)
    first = [nearest_inside(slot)] if slot.holds(nearest_inside(slot)) else []
    return _classes(slot, [*first, *places], atoms, lambda atom, value: float_holds(value, atom.data[1], atom.data[2]))


def _plainness(value: float) -> tuple[int, float, bool]:
    """Finite before infinite before NaN; near zero first, positive first."""
    rank = 2 if math.isnan(value) else 1 if math.isinf(value) else 0
    return rank, 0.0 if rank == 2 else abs(value), value < 0


def _str(slot: Slot, atoms: list[Expr], apart: bool) -> Codes:
    constants = sorted(atom.data[1] for atom in atoms)
    first = [slot.default] if type(slot.default) is str else []
    return _classes(
        slot, [*first, *constants, _other(constants)], atoms, lambda atom, value: bool(atom.data[1] == value)
    )


def _other(constants: list[str]) -> str:
    """A string that is none of *constants*."""
    if "" not in constants:
        return ""
    number = 1
    while (text := f"other{number}") in constants:
        number += 1
    return text


_ROWS: Final[Mapping[str, Callable[[Slot, list[Expr], bool], Codes]]] = {
    "int": _int,
    "finite": _finite,
    "float": _float,
    "str": _str,
}
