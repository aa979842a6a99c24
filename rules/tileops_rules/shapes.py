"""How a field's value is made of primitive slots, and how to take it apart and put it together again."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from tileops_rules.expr import Path, exact_key
from tileops_rules.printing import slot_text, value_text

__all__ = [
    "LARGEST_INT",
    "LONGEST_TUPLE",
    "DeviceShape",
    "FiniteShape",
    "FloatShape",
    "IntShape",
    "NoneShape",
    "OneSlot",
    "OpaqueShape",
    "Outside",
    "RecordShape",
    "SequenceShape",
    "Shape",
    "Slot",
    "StrShape",
    "TupleShape",
    "UnionShape",
]

LARGEST_INT = 2**40
"""Upper end of an integer field that declares none: above any size a tensor has, small enough to multiply in
128 bits."""

LONGEST_TUPLE = 8
"""Longest value that is considered for a tuple field of unknown length."""


@dataclass(frozen=True)
class Slot:
    """A primitive value of a call.

    Attributes:
        path: Where it is.
        sort: ``int`` (``lo``..``hi`` inclusive), ``finite`` (one of ``values``), ``float`` (``lo``..``hi``, or
            all where
            these are None) or ``str``.
        declared: The author wrote this domain; otherwise it is assumed.
        default: The value it has in a call that states nothing, or None.
    """

    path: Path
    sort: str
    lo: Any = None
    hi: Any = None
    values: tuple[Any, ...] = ()
    declared: bool = False
    default: Any = None

    @property
    def name(self) -> str:
        """The slot as a reader would write it."""
        return slot_text(self.path)

    def __str__(self) -> str:
        if self.sort == "int":
            return f"int in {self.lo}..{self.hi}"
        if self.sort == "finite":
            shown = ", ".join(value_text(v) for v in self.values[:12])
            return f"one of {shown}" + (f", ... ({len(self.values)})" if len(self.values) > 12 else "")
        if self.sort == "float":
            return "any float" if self.lo is None and self.hi is None else f"float in {self.lo}..{self.hi}"
        return "any string"

    def holds(self, value: Any) -> bool:
        """Whether *value* is exactly of this slot's type and inside its domain."""
        kind = type(value)
        if self.sort == "int":
            return kind is int and self.lo <= value <= self.hi
        if self.sort == "finite":
            key = exact_key(value)
            return any(exact_key(option) == key for option in self.values)
        if self.sort == "float":
            if kind is not float:
                return False
            if self.lo is None and self.hi is None:
                return True
            return bool((self.lo is None or value >= self.lo) and (self.hi is None or value <= self.hi))
        return kind is str


class Outside(Exception):
    """A value is not in the domain of its slot.

    Attributes:
        slot: The slot.
        value: The value.
        enforced: The domain was declared and the value breaks it; otherwise plain Python decides the call.
    """

    def __init__(self, slot: Slot, value: Any) -> None:
        super().__init__(slot, value)
        self.slot = slot
        self.value = value
        number_inside = (
            slot.sort == "int"
            and isinstance(value, numbers.Integral)
            and not _is_plain_int(value)
            and slot.lo <= int(value) <= slot.hi
        )
        integer_inside = slot.sort == "float" and type(value) is int and slot.holds(float(value))
        self.enforced = slot.declared and not number_inside and not integer_inside


@dataclass(frozen=True)
class Shape:
    """A field, or a part of one, at *path*."""

    path: Path

    def slots(self) -> Iterator[Slot]:
        """Every slot that it may be made of."""
        yield from ()

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        """Take *value* apart.

        Raises:
            Outside: a slot does not hold what it finds.
        """

    def build(self, values: Mapping[Path, Any]) -> Any:
        """The value whose slots are *values*."""
        return None

    def matches(self, value: Any) -> bool:
        """Whether a value of a union belongs to this alternative."""
        try:
            self.read(value, {})
        except Outside as outside:
            return self.kind_of(outside.value) and self.kind_of(value)
        return True

    def kind_of(self, value: Any) -> bool:
        """Whether *value* has this shape's Python type, whatever its range."""
        return False


@dataclass(frozen=True)
class OneSlot(Shape):
    """A field that is one slot."""

    slot: Slot

    def slots(self) -> Iterator[Slot]:
        yield self.slot

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        if not self.slot.holds(value):
            raise Outside(self.slot, value)
        into[self.path] = value

    def build(self, values: Mapping[Path, Any]) -> Any:
        return values[self.path]


@dataclass(frozen=True)
class IntShape(OneSlot):
    """An integer."""

    def kind_of(self, value: Any) -> bool:
        return type(value) is int


@dataclass(frozen=True)
class FloatShape(OneSlot):
    """A float; a call with an int there is left to the original, since Python tells the two apart."""

    def kind_of(self, value: Any) -> bool:
        return type(value) in (int, float)


@dataclass(frozen=True)
class StrShape(OneSlot):
    """A string."""

    def kind_of(self, value: Any) -> bool:
        return type(value) is str


@dataclass(frozen=True)
class FiniteShape(OneSlot):
    """One of a few values, handed to rules as the value itself."""

    def build(self, values: Mapping[Path, Any]) -> Any:
        key = exact_key(values[self.path])
        return next(option for option in self.slot.values if exact_key(option) == key)


@dataclass(frozen=True)
class NoneShape(Shape):
    """The ``None`` of an ``Optional``: it has no slot of its own."""

    def matches(self, value: Any) -> bool:
        return value is None

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        return None

    def kind_of(self, value: Any) -> bool:
        return value is None


class DeviceName:
    """Stands in a witness for a device where no torch is loaded."""

    def __init__(self, type: str) -> None:
        self.type = type
        self.index = None

    def __eq__(self, other: object) -> bool:
        return getattr(other, "type", None) == self.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"device({self.type!r})"


def _is_plain_int(value: object) -> bool:
    return type(value) is int


def device_type(value: Any) -> Any:
    """The device type of a ``torch.device``, of a string as torch writes devices, or of a look-alike."""
    return value.split(":")[0] if isinstance(value, str) else getattr(value, "type", None)


@dataclass(frozen=True)
class DeviceShape(Shape):
    """A device: its type is a finite slot, its index no rule may read."""

    slot: Slot
    make: Any

    def slots(self) -> Iterator[Slot]:
        yield self.slot

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        kind = device_type(value)
        if not self.slot.holds(kind):
            raise Outside(self.slot, value)
        into[self.slot.path] = kind

    def build(self, values: Mapping[Path, Any]) -> Any:
        return self.make(values[self.slot.path])

    def kind_of(self, value: Any) -> bool:
        return isinstance(device_type(value), str)


@dataclass(frozen=True)
class TupleShape(Shape):
    """A tuple of fixed length."""

    parts: tuple[Shape, ...]

    def slots(self) -> Iterator[Slot]:
        for part in self.parts:
            yield from part.slots()

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        if type(value) is not tuple or len(value) != len(self.parts):
            raise Outside(Slot(self.path, "finite", values=()), value)
        for part, item in zip(self.parts, value, strict=True):
            part.read(item, into)

    def build(self, values: Mapping[Path, Any]) -> Any:
        return tuple(part.build(values) for part in self.parts)

    def kind_of(self, value: Any) -> bool:
        return type(value) is tuple


@dataclass(frozen=True)
class SequenceShape(Shape):
    """A tuple of unknown length: a finite slot for the length, then one for each place it may have."""

    length: Slot
    items: tuple[Shape, ...]

    def slots(self) -> Iterator[Slot]:
        yield self.length
        for item in self.items:
            yield from item.slots()

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        if type(value) is not tuple or len(value) > len(self.items):
            raise Outside(self.length, value)
        into[self.length.path] = len(value)
        for item, shape in zip(value, self.items, strict=False):
            shape.read(item, into)

    def build(self, values: Mapping[Path, Any]) -> Any:
        return tuple(shape.build(values) for shape in self.items[: values[self.length.path]])

    def kind_of(self, value: Any) -> bool:
        return type(value) is tuple


@dataclass(frozen=True)
class RecordShape(Shape):
    """A nested dataclass."""

    cls: type
    parts: Mapping[str, Shape] = field(hash=False)

    def slots(self) -> Iterator[Slot]:
        for part in self.parts.values():
            yield from part.slots()

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        if type(value) is not self.cls:
            raise Outside(Slot(self.path, "finite", values=()), value)
        for name, part in self.parts.items():
            part.read(getattr(value, name), into)

    def build(self, values: Mapping[Path, Any]) -> Any:
        return self.cls(**{name: part.build(values) for name, part in self.parts.items()})

    def kind_of(self, value: Any) -> bool:
        return type(value) is self.cls


@dataclass(frozen=True)
class UnionShape(Shape):
    """One of several shapes; a finite slot says which, by its name."""

    choice: Slot
    options: Mapping[str, Shape] = field(hash=False)

    def slots(self) -> Iterator[Slot]:
        yield self.choice
        for option in self.options.values():
            yield from option.slots()

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        for name, option in self.options.items():
            if option.kind_of(value) or option.matches(value):
                option.read(value, into)
                into[self.choice.path] = name
                return
        raise Outside(self.choice, value)

    def build(self, values: Mapping[Path, Any]) -> Any:
        return self.options[values[self.choice.path]].build(values)

    def kind_of(self, value: Any) -> bool:
        return any(option.kind_of(value) for option in self.options.values())


@dataclass(frozen=True)
class OpaqueShape(Shape):
    """A field that no question can speak of.

    Attributes:
        why: What its annotation is, for the message to a rule that reads it.
        default: The value it has in every call that is built.
    """

    why: str
    default: Any = None

    def read(self, value: Any, into: MutableMapping[Path, Any]) -> None:
        return None

    def build(self, values: Mapping[Path, Any]) -> Any:
        return self.default

    def kind_of(self, value: Any) -> bool:
        return True


def nearest_inside(slot: Slot) -> Any:
    """The slot's default where that is inside its domain, else the inside value that is nearest to nothing at all."""
    if slot.default is not None and slot.holds(slot.default):
        return slot.default
    if slot.sort == "int":
        return min(max(0, slot.lo), slot.hi)
    if slot.sort == "finite":
        return slot.values[0]
    if slot.sort == "float":
        low = -math.inf if slot.lo is None else slot.lo
        high = math.inf if slot.hi is None else slot.hi
        return float(min(max(0.0, low), high))
    return ""
