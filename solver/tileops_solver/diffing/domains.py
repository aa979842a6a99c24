"""One domain for two sets of rules whose call specs differ: the values of both, and what each of them leaves out.

A field that one side alone has ranges as it does there; the other side does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.expr import (
    TRUE,
    Expr,
    among,
    at_most,
    conjunction,
    disjunction,
    exact_key,
    float_is,
    integer,
    negation,
)
from tileops_rules.shapes import (
    DeviceShape,
    FiniteShape,
    FloatShape,
    IntShape,
    NoneShape,
    OpaqueShape,
    RecordShape,
    SequenceShape,
    Shape,
    Slot,
    StrShape,
    TupleShape,
    UnionShape,
)

from tileops_solver.recorded import RecordedDomain, call_class

__all__ = ["common_domain", "inside"]


def common_domain(old: Domain, new: Domain) -> tuple[RecordedDomain, tuple[str, ...]]:
    """The domain of the calls of both, and the fields whose kinds do not go together.

    Such a field ranges as it does in *new*; a rule of *old* that reads it cannot be asked about there.
    """
    fields: dict[str, Shape] = {}
    apart: list[str] = []
    for name in sorted({*old.fields, *new.fields}):
        before, after = old.fields.get(name), new.fields.get(name)
        both = _both(before, after)
        if both is None:
            apart.append(name)
        found = both or after or before
        if found is not None:
            fields[name] = found
    return RecordedDomain(new.spec.__name__, fields), tuple(apart)


def _both(old: Shape | None, new: Shape | None) -> Shape | None:
    """A shape that holds the values of both; None where there is no such shape."""
    if old is None or isinstance(old, OpaqueShape):
        return new if new is not None else old
    if new is None or isinstance(new, OpaqueShape):
        return old
    if isinstance(old, UnionShape) != isinstance(new, UnionShape):
        return _union_with(old, new) if isinstance(old, UnionShape) else _union_with(new, old)
    return _JOIN[type(old)](old, new) if type(old) is type(new) else None


def _union_with(union: Shape, other: Shape) -> Shape | None:
    """A union one of whose alternatives stands where *other* does, as an optional field's."""
    if not isinstance(union, UnionShape):
        return None
    for name, option in union.options.items():
        if option.path == other.path and not isinstance(option, NoneShape):
            both = _both(option, other)
            return None if both is None else replace(union, options={**union.options, name: both})
    return None


def _wider(old: Slot, new: Slot) -> Slot:
    """A slot for the values of both."""
    declared = old.declared and new.declared
    default = old.default if new.default is None else new.default
    if old.sort == "finite":
        values = tuple({exact_key(v): v for v in (*new.values, *old.values)}.values())
        return replace(new, values=values, declared=declared)
    lo = None if old.lo is None or new.lo is None else min(old.lo, new.lo)
    hi = None if old.hi is None or new.hi is None else max(old.hi, new.hi)
    return replace(new, lo=lo, hi=hi, declared=declared, default=default)


def _one_slot(old: Any, new: Any) -> Shape:
    shape: Shape = replace(new, slot=_wider(old.slot, new.slot))
    return shape


def _parts(old: TupleShape, new: TupleShape) -> Shape | None:
    parts = [_both(*pair) for pair in zip(old.parts, new.parts, strict=False)]
    if len(old.parts) != len(new.parts) or None in parts:
        return None
    return replace(new, parts=tuple(part for part in parts if part is not None))


def _sequence(old: SequenceShape, new: SequenceShape) -> Shape | None:
    shorter = min(len(old.items), len(new.items))
    items = [_both(*pair) for pair in zip(old.items, new.items, strict=False)]
    if None in items:
        return None
    kept = (*(item for item in items if item is not None), *old.items[shorter:], *new.items[shorter:])
    return replace(new, length=_wider(old.length, new.length), items=kept)


def _named(old: Mapping[str, Shape], new: Mapping[str, Shape]) -> dict[str, Shape] | None:
    found = {name: _both(old.get(name), new.get(name)) for name in sorted({*old, *new})}
    kept = {name: shape for name, shape in found.items() if shape is not None}
    return kept if len(kept) == len(found) else None


def _record(old: RecordShape, new: RecordShape) -> Shape | None:
    parts = _named(old.parts, new.parts)
    return None if parts is None else replace(new, cls=call_class(new.cls.__name__, sorted(parts)), parts=parts)


def _union(old: UnionShape, new: UnionShape) -> Shape | None:
    options = _named(old.options, new.options)
    return None if options is None else replace(new, choice=_wider(old.choice, new.choice), options=options)


_JOIN: Final[Mapping[type[Shape], Callable[[Any, Any], Shape | None]]] = {
    IntShape: _one_slot,
    FloatShape: _one_slot,
    StrShape: _one_slot,
    FiniteShape: _one_slot,
    DeviceShape: _one_slot,
    NoneShape: lambda old, new: new,
    TupleShape: _parts,
    SequenceShape: _sequence,
    RecordShape: _record,
    UnionShape: _union,
}

# ------------------------------------------------------------------------------------------------------- what is left


def inside(side: Domain, whole: Domain) -> Expr:
    """Which calls of *whole* are calls of *side* too; the fields that it does not have are left alone."""
    return conjunction(_inside(side.fields.get(name), shape) for name, shape in whole.fields.items())


def _inside(side: Shape | None, whole: Shape) -> Expr:
    if side is None or isinstance(side, OpaqueShape):
        return TRUE
    if isinstance(whole, UnionShape):
        return _of_union(side, whole)
    if type(side) is not type(whole):
        return TRUE  # a field whose kinds do not go together: what depends on it is not asked
    return _LEFT[type(whole)](side, whole)


def _of_union(side: Shape, whole: UnionShape) -> Expr:
    options = side.options if isinstance(side, UnionShape) else _at_its_place(side, whole)
    if not options:
        return TRUE
    held = [name for name in whole.options if name in options]
    limits = (
        disjunction([negation(among(whole.choice.path, [name])), _inside(options[name], whole.options[name])])
        for name in held
    )
    return conjunction([_values(whole.choice, held), *limits])


def _at_its_place(side: Shape, whole: UnionShape) -> Mapping[str, Shape]:
    return {
        name: side
        for name, option in whole.options.items()
        if option.path == side.path and type(option) is type(side) and not isinstance(option, NoneShape)
    }


def _values(whole: Slot, held: Iterable[Any]) -> Expr:
    keys = {exact_key(value) for value in held}
    kept = [value for value in whole.values if exact_key(value) in keys]
    return TRUE if len(kept) == len(whole.values) else among(whole.path, kept)


def _in_range(side: IntShape, whole: IntShape) -> Expr:
    number = integer(whole.path)
    above = negation(at_most(number, side.slot.lo - 1)) if side.slot.lo > whole.slot.lo else TRUE
    below = at_most(number, side.slot.hi) if side.slot.hi < whole.slot.hi else TRUE
    return conjunction([above, below])


def _in_float_range(side: FloatShape, whole: FloatShape) -> Expr:
    if (side.slot.lo, side.slot.hi) == (whole.slot.lo, whole.slot.hi):
        return TRUE
    ends = ((">=", side.slot.lo), ("<=", side.slot.hi))
    return conjunction(float_is(whole.path, sign, float(end)) for sign, end in ends if end is not None)


def _in_parts(side: TupleShape, whole: TupleShape) -> Expr:
    return conjunction(_inside(*pair) for pair in zip(side.parts, whole.parts, strict=False))


def _in_sequence(side: SequenceShape, whole: SequenceShape) -> Expr:
    items = (
        disjunction([_values(whole.length, [n for n in whole.length.values if n <= i]), limit])
        for i, pair in enumerate(zip(side.items, whole.items, strict=False))
        if (limit := _inside(*pair)) is not TRUE
    )
    return conjunction([_values(whole.length, side.length.values), *items])


_LEFT: Final[Mapping[type[Shape], Callable[[Any, Any], Expr]]] = {
    IntShape: _in_range,
    FloatShape: _in_float_range,
    StrShape: lambda side, whole: TRUE,
    FiniteShape: lambda side, whole: _values(whole.slot, side.slot.values),
    DeviceShape: lambda side, whole: _values(whole.slot, side.slot.values),
    NoneShape: lambda side, whole: TRUE,
    TupleShape: _in_parts,
    SequenceShape: _in_sequence,
    RecordShape: lambda side, whole: conjunction(_inside(side.parts.get(n), part) for n, part in whole.parts.items()),
}
