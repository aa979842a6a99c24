"""The faces of a region: each atom of its predicate, and the places just inside, on and just outside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate, float_holds
from tileops_rules.expr import (
    Expr,
    Path,
    among,
    at_most,
    conjunction,
    equals,
    float_is,
    negation,
    paths_of,
    str_is,
    subtract,
    truth,
)
from tileops_rules.facts import float_places
from tileops_rules.printing import slot_text, value_text
from tileops_rules.shapes import SequenceShape, Shape, UnionShape

from tileops_solver.placing import answer_at, atoms_of, replaced

__all__ = ["Face", "Ray", "Spot", "atom_text", "faces_of"]

_MOST_VALUES: Final = 64
"""Values of a finite slot that are tried on one side of a face; more are the dtypes of a whole library."""


@dataclass(frozen=True)
class Ray:
    """Where to look on from a spot at which nothing is: ``subject`` at *start*, and on in steps of *step*."""

    subject: Expr
    start: int
    step: int

    def until(self, far: int | None) -> Expr:
        """The subject lies between the start and *far*, both included; None for no end."""
        low, high = (self.start, far) if self.step > 0 else (far, self.start)
        return conjunction(
            [
                *(() if low is None else [negation(at_most(self.subject, low - 1))]),
                *(() if high is None else [at_most(self.subject, high)]),
            ]
        )


@dataclass(frozen=True)
class Spot:
    """A place at a face.

    Attributes:
        where: ``inside`` the region, ``on`` its last value, or ``outside``.
        value: What the face's subject is there, as text.
        fixed: Holds for the calls there.
        path: The one slot that *fixed* speaks of, where it gives it one value.
        held: That value.
        ahead: Where to look where no such call can be: a ray of integers, or further spots from the nearest on.
    """

    where: str
    value: str
    fixed: Expr
    path: Path | None = None
    held: Any = None
    ahead: Ray | tuple[Spot, ...] = ()

    @property
    def inside(self) -> bool:
        """Whether calls there satisfy the face's atom."""
        return self.where != "outside"

    def settled(self, question: Expr) -> Expr:
        """What is left of a question there: conditions on the spot's one slot have their answers."""
        if self.path is None:
            return question
        mine = [atom for atom in atoms_of(question) if set(paths_of(atom)) == {self.path}]
        answers = {atom: answer_at(atom, {self.path: self.held}) for atom in mine}
        return replaced(question, {atom: truth(answer) for atom, answer in answers.items() if answer is not None})

    def moves(self, values: Mapping[Path, Any]) -> Iterator[tuple[Path, Any]]:
        """Changes of one slot that may bring a call with these slot values to the spot, the plainest first."""
        if self.path is not None:
            yield self.path, self.held
        elif self.fixed.kind == "equals":
            yield from _solved(self.fixed.args[0], self.fixed.data, values)


def _solved(subject: Expr, target: int, values: Mapping[Path, Any]) -> Iterator[tuple[Path, int]]:
    """Values of one integer slot at which a sum of slots, or a remainder of one by a constant, is *target*."""
    if subject.kind == "sum":
        try:
            missing = target - evaluate(subject, values)
        except ZeroDivisionError:
            return  # a number that it is made of is not there, or a divisor is 0
        for atom, factor in sorted(zip(subject.args, subject.data[1], strict=True), key=lambda term: abs(term[1])):
            if atom.kind == "int" and missing % factor == 0:
                yield atom.data, values[atom.data] + missing // factor
    elif subject.kind == "mod" and subject.args[0].kind == "int" and subject.args[1].kind == "const":
        path, divisor = subject.args[0].data, subject.args[1].data
        if path in values:
            up = (target - values[path]) % divisor
            yield from ((path, values[path] + step) for step in sorted((up, up - divisor), key=abs))


@dataclass(frozen=True)
class Face:
    """One atom of a region's predicate, as the region asks it: with the answer yes, or with the answer no.

    Attributes:
        atom: The atom.
        positive: The answer that the region asks for.
        text: The condition as its author would write it.
        subject: What is compared, as text.
        spots: The places at it, those inside first.
    """

    atom: Expr
    positive: bool
    text: str
    subject: str
    spots: tuple[Spot, ...]


def faces_of(region: Expr, domain: Domain, beside: Expr) -> Iterator[Face]:
    """The faces of *region*, atom by atom; each atom with both answers, of which mostly one bounds anything.

    Args:
        region: Its predicate.
        domain: What its fields range over.
        beside: What limits the calls besides; its constants are near values that a float may take.
    """
    surroundings = _Surroundings(region, conjunction([beside, region]), domain)
    for atom in atoms_of(region):
        for positive in (True, False):
            subject, spots = _ROWS[atom.kind](atom, positive, surroundings)
            inside_first = sorted(dict.fromkeys(spots), key=lambda spot: ("on", "inside", "outside").index(spot.where))
            yield Face(atom, positive, atom_text(atom, positive, domain), subject, tuple(inside_first))


def atom_text(atom: Expr, positive: bool, domain: Domain) -> str:
    """A condition as its author would write it: ``seqlen_kv >= 1024``, ``sm_scale is None``."""
    if atom.kind == "among":
        path, values = atom.data
        kind = _union_at(domain, path)
        if kind is not None and list(values) == ["None"]:
            return f"{slot_text(kind.path)} is {'' if positive else 'not '}None"
        if kind is not None and len(values) == 1 and set(kind.options) == {"None", values[0]}:
            return f"{slot_text(kind.path)} is {'not ' if positive else ''}None"
    if atom.kind == "float_is" and not positive:
        path, comparison, value = atom.data
        other = {"==": "!=", "nan": "not nan"}.get(comparison)
        if other is not None:
            return f"{slot_text(path)} != {value!r}" if comparison == "==" else f"not isnan({slot_text(path)})"
        return f"not {slot_text(path)} {comparison} {value!r}"
    return str(atom if positive else negation(atom))


# --------------------------------------------------------------------------------------------------------------
# One row for each kind of atom


@dataclass(frozen=True)
class _Surroundings:
    region: Expr
    near: Expr
    domain: Domain


_Spots = tuple[str, Iterable[Spot]]


def _at_most(atom: Expr, positive: bool, _: _Surroundings) -> _Spots:
    (subject,), limit = atom.args, atom.data
    step, on = (1, limit) if positive else (-1, limit + 1)
    return _subject(subject), [
        _number("on", subject, on),
        _number("inside", subject, on - step, -step),
        _number("outside", subject, on + step, step),
    ]


def _equals(atom: Expr, positive: bool, _: _Surroundings) -> _Spots:
    (subject,), value = atom.args, atom.data
    here, beside = ("on", "outside") if positive else ("outside", "inside")
    spots = [_number(here, subject, value)]
    if subject.kind == "mod":
        divisor = subject.args[1]
        spots += [_remainder(beside, subject, divisor, value + step) for step in (1, -1)]
    else:
        spots += [_number(beside, subject, value + step, step) for step in (-1, 1)]
    return _subject(subject), spots


def _subject(subject: Expr) -> str:
    return str(subject)


def _number(where: str, subject: Expr, value: int, step: int = 0) -> Spot:
    ahead = Ray(subject, value + step, step) if step else ()
    path = subject.data if subject.kind == "int" else None
    return Spot(where, str(value), equals(subject, value), path, value, ahead)


def _remainder(where: str, subject: Expr, divisor: Expr, value: int) -> Spot:
    if divisor.kind == "const":
        return _number(where, subject, value % divisor.data)
    if value >= 0:
        return _number(where, subject, value)
    return Spot(where, f"{divisor} - {-value}", equals(subtract(subject, divisor), value))


def _among(atom: Expr, positive: bool, around: _Surroundings) -> _Spots:
    path, values = atom.data
    slot, kind = around.domain.slots[path], _union_at(around.domain, path)
    shape = next((s for s in _shapes(around.domain) if isinstance(s, SequenceShape) and s.length.path == path), None)
    name = slot_text(kind.path) if kind else f"len({slot_text(shape.path)})" if shape else slot_text(path)
    spots: dict[str, list[Spot]] = {"inside": [], "outside": []}
    for value in slot.values:
        where = "inside" if any(v == value and type(v) is type(value) for v in values) is positive else "outside"
        shown = str(value) if kind else value_text(value)
        spots[where].append(Spot(where, shown, among(path, [value]), path, value))
    return name, [spot for side in spots.values() for spot in side[:_MOST_VALUES]]


def _float_is(atom: Expr, positive: bool, around: _Surroundings) -> _Spots:
    path, comparison, limit = atom.data
    name = slot_text(path)

    def at(value: float, further: Iterable[float] = ()) -> Spot:
        inside = float_holds(value, comparison, limit) is positive
        where = "outside" if not inside else "on" if value == limit and comparison != "nan" else "inside"
        same = (v for v in further if (float_holds(v, comparison, limit) is positive) is inside)
        return Spot(where, repr(value), _float_at(path, value), path, value, tuple(at(v) for v in same))

    apart = [at(v) for v in (math.nan, math.inf, -math.inf) if _told_apart(v, path, around.region)]
    if comparison == "nan":
        there, elsewhere = ("inside", "outside") if positive else ("outside", "inside")
        return name, [Spot(there, "nan", atom), Spot(elsewhere, "a number", negation(atom)), *apart]
    places = _near_floats(path, around.near)
    below, above = math.nextafter(limit, -math.inf), math.nextafter(limit, math.inf)
    spots = [at(limit)]
    if below < limit:
        spots.append(at(below, [v for v in reversed(places) if v < below]))
    if above > limit:
        spots.append(at(above, [v for v in places if v > above]))
    return name, [*spots, *apart]


def _float_at(path: Path, value: float) -> Expr:
    return float_is(path, "nan", 0.0) if math.isnan(value) else float_is(path, "==", value)


def _near_floats(path: Path, expr: Expr) -> list[float]:
    """The constants with which a float is compared anywhere, and their neighbours, in order."""
    found: set[float] = set()
    for atom in atoms_of(expr):
        if atom.kind == "float_is" and atom.data[0] == path and atom.data[1] != "nan":
            limit = atom.data[2]
            found |= {math.nextafter(limit, -math.inf), limit, math.nextafter(limit, math.inf)}
    return sorted(v for v in found if math.isfinite(v))


def _told_apart(value: float, path: Path, region: Expr) -> bool:
    """Whether the atoms of a region answer at *value* as at no ordinary number."""
    asked = [a.data[1:] for a in atoms_of(region) if a.kind == "float_is" and a.data[0] == path]

    def answers(at: float) -> list[bool]:
        return [float_holds(at, comparison, limit) for comparison, limit in asked]

    ordinary = float_places({limit for comparison, limit in asked if comparison != "nan"})
    return all(answers(v) != answers(value) for v in ordinary if math.isfinite(v))


def _str_is(atom: Expr, positive: bool, around: _Surroundings) -> _Spots:
    path, text = atom.data
    known = [a.data[1] for a in atoms_of(around.region) if a.kind == "str_is" and a.data[0] == path]
    here, elsewhere = ("inside", "outside") if positive else ("outside", "inside")
    spots = [Spot(here, repr(text), atom)]
    spots += [Spot(elsewhere, repr(other), str_is(path, other)) for other in known if other != text]
    other = conjunction(negation(str_is(path, each)) for each in known)
    return slot_text(path), [*spots, Spot(elsewhere, "another string", other)]


_ROWS: Final[Mapping[str, Callable[[Expr, bool, _Surroundings], _Spots]]] = {
    "at_most": _at_most,
    "equals": _equals,
    "among": _among,
    "float_is": _float_is,
    "str_is": _str_is,
}


def _shapes(domain: Domain) -> Iterator[Shape]:
    """Every part of a call."""
    waiting: list[Shape] = list(domain.fields.values())
    while waiting:
        shape = waiting.pop(0)
        yield shape
        for name in ("parts", "items", "options"):
            inner = getattr(shape, name, ())
            waiting.extend(inner.values() if isinstance(inner, Mapping) else inner)


def _union_at(domain: Domain, path: Path) -> UnionShape | None:
    """The field of several kinds whose kind a slot holds."""
    return next((s for s in _shapes(domain) if isinstance(s, UnionShape) and s.choice.path == path), None)
