"""Stand-ins for the values of a call's fields, handed to plain Python.

A comparison asks the explorer and comes back as a real ``bool``, so ``is True``, ``sum`` and ``sorted`` mean
what they say. What a stand-in cannot answer it refuses; the refusal is recorded on the path, whatever the rule
catches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tileops_rules import expr as E
from tileops_rules.expr import Path
from tileops_rules.integers import IntSymbol
from tileops_rules.outcome import Fill
from tileops_rules.printing import slot_text
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
    StrShape,
    TupleShape,
    UnionShape,
)
from tileops_rules.standin import FLOAT_ARITHMETIC, Asks, StandIn, refuse_all, type_error

__all__ = ["DeviceSymbol", "FloatSymbol", "StrSymbol", "symbol_of", "symbols_in"]


class _SlotSymbol(StandIn):
    __slots__ = ("_path",)
    _path: Path

    def __init__(self, asks: Asks, path: Path) -> None:
        self._asks = asks
        self._path = path

    def _fill(self, conversion: str, spec: str) -> Fill:
        return Fill("object", slot_text(self._path), (), self._path, conversion, spec)


class FloatSymbol(_SlotSymbol):
    """A float field; it compares with constants, and with itself to find NaN."""

    __slots__ = ()
    _sample = 0.0

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def _compare(self, other: Any, operator: str) -> Any:
        if isinstance(other, StandIn):
            if type(other) is FloatSymbol and other._path == self._path:
                is_nan = self._asks.decide(E.float_is(self._path, "nan", 0.0))
                return not is_nan and operator in ("==", "<=", ">=")
            self._asks.refuse(f"{self._name()} is compared with {other._name()}: a float compares with constants only")
        if not isinstance(other, int | float):
            if operator == "==":
                return NotImplemented
            raise type_error(operator, "float", other)
        try:
            limit = float(other)
        except OverflowError:
            limit = math.nan
        if limit != other and other == other:
            self._asks.refuse(f"{self._name()} is compared with {other}, which no float equals")
        return self._asks.ask(E.float_is, self._path, operator, limit)

    __lt__, __le__ = IntSymbol.__lt__, IntSymbol.__le__
    __gt__, __ge__ = IntSymbol.__gt__, IntSymbol.__ge__
    __eq__, __ne__ = IntSymbol.__eq__, IntSymbol.__ne__
    __hash__ = StandIn.__hash__

    def __bool__(self) -> bool:
        return not self._asks.decide(E.float_is(self._path, "==", 0.0))

    def __getattr__(self, name: str) -> Any:
        if hasattr(float, name):
            return self._asks.refuse(f"{self._name()}.{name} has no symbolic answer")
        raise AttributeError(f"'float' object has no attribute {name!r}")


refuse_all(FloatSymbol, FLOAT_ARITHMETIC)


class StrSymbol(_SlotSymbol):
    """A string field; it compares with constants."""

    __slots__ = ()
    _sample = ""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def __eq__(self, other: Any) -> Any:
        if type(other) is str:
            return self._asks.ask(E.str_is, self._path, other)
        if isinstance(other, StandIn):
            if type(other) is StrSymbol and other._path == self._path:
                return True
            self._asks.refuse(f"{self._name()} is compared with {other._name()}: a string compares with constants only")
        return NotImplemented

    def __ne__(self, other: Any) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __bool__(self) -> bool:
        return not self._asks.decide(E.str_is(self._path, ""))

    __hash__ = StandIn.__hash__

    def __getattr__(self, name: str) -> Any:
        if hasattr(str, name):
            return self._asks.refuse(f"{self._name()}.{name} has no symbolic answer")
        raise AttributeError(f"'str' object has no attribute {name!r}")


refuse_all(
    StrSymbol,
    {
        "__len__": "len()",
        "__iter__": "iteration",
        "__getitem__": "indexing",
        "__contains__": "in",
        "__add__": "+",
        "__radd__": "+",
        "__mul__": "*",
        "__rmul__": "*",
        "__mod__": "%",
        "__lt__": "<",
        "__le__": "<=",
        "__gt__": ">",
        "__ge__": ">=",
    },
)


class DeviceSymbol(_SlotSymbol):
    """A device: only its type has a symbolic answer."""

    _sample = ""

    __slots__ = ("_slot",)

    def __init__(self, asks: Asks, shape: DeviceShape) -> None:
        super().__init__(asks, shape.path)
        self._slot = shape.slot

    @property
    def type(self) -> str:
        """The device type on this path."""
        text: str = self._asks.pick(self._slot)
        return text

    @property
    def index(self) -> Any:
        """Refused: which card it is decides nothing."""
        return self._asks.refuse(
            f"{self._name()}.index is read: a choice may depend on the device's type, not on its index"
        )

    def __eq__(self, other: Any) -> Any:
        if other is None:
            return False
        return self._asks.refuse(f"{self._name()} is compared with {other!r}: compare {self._name()}.type instead")

    __hash__ = StandIn.__hash__


def symbol_of(asks: Asks, shape: Shape) -> Any:
    """What a rule is handed for the part of the call that *shape* describes."""
    if isinstance(shape, IntShape):
        return asks.integer(shape)
    if isinstance(shape, FiniteShape):
        return asks.pick(shape.slot)
    if isinstance(shape, FloatShape):
        return FloatSymbol(asks, shape.path)
    if isinstance(shape, StrShape):
        return StrSymbol(asks, shape.path)
    if isinstance(shape, NoneShape):
        return None
    if isinstance(shape, DeviceShape):
        return DeviceSymbol(asks, shape)
    if isinstance(shape, UnionShape):
        return symbol_of(asks, shape.options[asks.pick(shape.choice)])
    if isinstance(shape, TupleShape):
        return tuple(symbol_of(asks, part) for part in shape.parts)
    if isinstance(shape, SequenceShape):
        return tuple(symbol_of(asks, item) for item in shape.items[: asks.pick(shape.length)])
    if isinstance(shape, RecordShape):
        return asks.record(shape)
    why = shape.why if isinstance(shape, OpaqueShape) else type(shape).__name__
    return asks.refuse(f"{slot_text(shape.path)} is read, which is {why}: no question can speak of it")


def symbols_in(value: Any) -> Iterator[StandIn]:
    """The stand-ins in a value or in the tuples it is made of."""
    if isinstance(type(value), type) and issubclass(type(value), StandIn):
        yield value
    elif type(value) is tuple or isinstance(value, list):
        for item in value:
            yield from symbols_in(item)
