"""The rules of one interface as plain values, as a snapshot's text has them, and back.

Fields, keys and clauses are sorted; nothing in it says where the code stands. Values stand as they read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tileops_rules import NotLifted, Rule, Selector
from tileops_rules.domain import Domain
from tileops_rules.expr import FALSE, Expr, Path, negation
from tileops_rules.parsing import parse_lines
from tileops_rules.printing import value_text
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
from tileops_rules.writing import canonical, written

from tileops_solver.recorded import RecordedDomain, RecordedRule, RecordedSelector, call_class, recorded_value

__all__ = ["Line", "NoStableText", "data_of", "selector_from"]

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class NoStableText(Exception):
    """A value of a field prints differently in each process, or as another one does."""


class Line(dict[str, Any]):
    """Values that stand on one line of a snapshot."""


# ------------------------------------------------------------------------------------------------------------ writing


def data_of(selector: Selector) -> dict[str, Any]:
    """What a snapshot holds of one interface.

    Raises:
        NoStableText: a value cannot be written.
    """
    data: dict[str, Any] = {
        "call": selector.spec.__name__,
        "fields": {name: _shape_data(shape) for name, shape in selector.domain.fields.items()},
        "valid": _lines(selector.valid.expr),
        "implementations": {key: _implementation(selector, key) for key in selector.keys},
    }
    missing = selector.validity_not_lifted
    if missing:
        data["valid, not lifted"] = {name: _cause(error) for name, error in missing.items()}
    if selector.declared_unserved is not None or selector.unserved_not_lifted is not None:
        data["unserved"] = _rule(selector.declared_unserved, selector.unserved_not_lifted, "calls", negation)
    return data


def _implementation(selector: Selector, key: str) -> dict[str, Any]:
    candidate = selector.candidate(key)
    data: dict[str, Any] = {"devices": tuple(sorted(candidate.devices))}
    if candidate.general:
        data["general"] = True
    if candidate.preferred_over:
        data["preferred over"] = tuple(sorted(candidate.preferred_over))
    if candidate.supported_archs is not None:
        data["archs"] = tuple(sorted(candidate.supported_archs))
    return {**data, **_rule(selector.rules.get(key), selector.not_lifted.get(key), "serves", lambda expr: expr)}


def _rule(rule: Rule | None, failed: NotLifted | None, name: str, view: Callable[[Expr], Expr]) -> dict[str, Any]:
    if rule is None:
        return {"not lifted": "" if failed is None else _cause(failed)}
    data = {name: _lines(view(rule.serves.expr))}
    return data if rule.raises.expr is FALSE else {**data, "raises": _lines(rule.raises.expr)}


def _cause(error: NotLifted) -> str:
    return _ADDRESS.sub("", error.cause)


def _lines(expr: Expr) -> list[str]:
    return list(written(canonical(expr)))


def _shape_data(shape: Shape) -> dict[str, Any]:
    return _WRITE[type(shape)](shape)


def _slot(slot: Slot, data: dict[str, Any]) -> Line:
    if slot.default is not None:
        data["default"] = _text(slot, slot.default)
    if slot.declared:
        data["declared"] = True
    return Line(data)


def _text(slot: Slot, value: Any) -> str:
    text = value_text(value)
    if not text or _ADDRESS.search(text):
        raise NoStableText(
            f"{slot.name} may hold {value!r}, whose text is another one in each process: "
            f"give its class a __repr__ that says what it is"
        )
    return text


def _options(slot: Slot) -> dict[str, Any]:
    """The values of a finite slot in order, and the one that comes first."""
    texts = [_text(slot, value) for value in slot.values]
    if len(set(texts)) < len(texts):
        raise NoStableText(f"two values of {slot.name} read alike: {slot}; give them texts that differ")
    return {"one of": tuple(sorted(texts, key=_numbers_first)), "first": texts[0]}


def _numbers_first(text: str) -> tuple[bool, int, str]:
    number = text.lstrip("-").isdecimal()
    return not number, int(text) if number else 0, text


def _float_data(shape: FloatShape) -> Line:
    ends = (shape.slot.lo, shape.slot.hi)
    return _slot(shape.slot, {"float": tuple(end if end is None else repr(end) for end in ends)})


def _sequence(shape: SequenceShape) -> dict[str, Any]:
    items = [_shape_data(item) for item in shape.items]
    same = all(item == items[0] for item in items)
    return {"length": Line(_options(shape.length)), **({"each": items[0]} if same else {"items": items})}


_WRITE: Final[Mapping[type[Shape], Callable[[Any], dict[str, Any]]]] = {
    IntShape: lambda s: _slot(s.slot, {"int": (s.slot.lo, s.slot.hi)}),
    FloatShape: _float_data,
    StrShape: lambda s: _slot(s.slot, {"str": "any"}),
    FiniteShape: lambda s: _slot(s.slot, _options(s.slot)),
    DeviceShape: lambda s: Line({"device": s.slot.values}),
    NoneShape: lambda s: Line({"none": True}),
    OpaqueShape: lambda s: Line({"opaque": _ADDRESS.sub("", s.why)}),
    TupleShape: lambda s: {"parts": [_shape_data(part) for part in s.parts]},
    SequenceShape: _sequence,
    RecordShape: lambda s: {
        "record": s.cls.__name__,
        "fields": {name: _shape_data(part) for name, part in s.parts.items()},
    },
    UnionShape: lambda s: {
        "first": s.choice.values[0],
        "either": {name: _shape_data(option) for name, option in s.options.items()},
    },
}

# ------------------------------------------------------------------------------------------------------------ reading


def selector_from(op: str, interface: str, data: Mapping[str, Any]) -> RecordedSelector:
    """The selector that :func:`data_of` was given, without its code.

    Raises:
        LookupError, TypeError, ValueError: *data* is no such thing; a :class:`~tileops_rules.parsing.ParseError` where
            a clause cannot be read.
    """
    domain = RecordedDomain(data["call"], _fields(data["fields"], ()))
    candidates: dict[str, dict[str, Any]] = {}
    rules: dict[str, RecordedRule] = {}
    for key, each in data["implementations"].items():
        candidates[key] = {
            "general": each.get("general", False),
            "preferred_over": each.get("preferred over", ()),
            "devices": each["devices"],
            "supported_archs": each.get("archs"),
        }
        rules[key] = _recorded(each, "serves", domain, lambda expr: expr)
    return RecordedSelector(
        op,
        interface,
        domain,
        parse_lines(data["valid"], domain),
        candidates,
        rules,
        data.get("valid, not lifted", {}),
        _recorded(data["unserved"], "calls", domain, negation) if "unserved" in data else None,
    )


def _recorded(data: Mapping[str, Any], name: str, domain: Domain, view: Callable[[Expr], Expr]) -> RecordedRule:
    if "not lifted" in data:
        return RecordedRule(None, FALSE, data["not lifted"])
    raises = parse_lines(data["raises"], domain) if "raises" in data else FALSE
    return RecordedRule(view(parse_lines(data[name], domain)), raises)


def _fields(data: Mapping[str, Any], at: Path) -> dict[str, Shape]:
    return {name: _shape(data[name], (*at, name)) for name in sorted(data)}


def _shape(data: Mapping[str, Any], path: Path) -> Shape:
    kind = next(kind for kind in _READ if kind in data)
    return _READ[kind](data, path)


def _default(data: Mapping[str, Any]) -> Any:
    return recorded_value(data["default"]) if "default" in data else None


def _finite(data: Mapping[str, Any], path: Path) -> Slot:
    first = data["first"]
    texts = [first, *(text for text in data["one of"] if text != first)]
    return Slot(path, "finite", values=tuple(map(recorded_value, texts)), declared=data.get("declared", False))


def _number(data: Mapping[str, Any], path: Path) -> Shape:
    lo, hi = data["int"]
    return IntShape(path, Slot(path, "int", lo, hi, declared=data.get("declared", False), default=_default(data)))


def _float(data: Mapping[str, Any], path: Path) -> Shape:
    lo, hi = (end if end is None else float(end) for end in data["float"])
    default = float(data["default"]) if "default" in data else None
    return FloatShape(path, Slot(path, "float", lo, hi, declared=data.get("declared", False), default=default))


def _device(data: Mapping[str, Any], path: Path) -> Shape:
    return DeviceShape(path, Slot((*path, "type"), "finite", values=tuple(data["device"])), str)


def _items(data: Mapping[str, Any], path: Path) -> Shape:
    length = _finite(data["length"], (*path, "len"))
    items = data["items"] if "items" in data else [data["each"]] * max(length.values)
    return SequenceShape(path, length, tuple(_shape(item, (*path, i)) for i, item in enumerate(items)))


def _record(data: Mapping[str, Any], path: Path) -> Shape:
    return RecordShape(path, call_class(data["record"], sorted(data["fields"])), _fields(data["fields"], path))


def _union(data: Mapping[str, Any], path: Path) -> Shape:
    options = data["either"]
    names = [data["first"], *(name for name in sorted(options) if name != data["first"])]
    apart = sum(name != "None" for name in options) > 1
    shapes = {
        name: _shape(options[name], (*path, f"<{name}>") if apart and name != "None" else path)
        for name in sorted(options)
    }
    return UnionShape(path, Slot((*path, "type"), "finite", values=tuple(names), declared=True), shapes)


_READ: Final[Mapping[str, Callable[[Mapping[str, Any], Path], Shape]]] = {
    "int": _number,
    "float": _float,
    "str": lambda data, path: StrShape(path, Slot(path, "str", default=_default(data))),
    "one of": lambda data, path: FiniteShape(path, _finite(data, path)),
    "device": _device,
    "none": lambda data, path: NoneShape(path),
    "opaque": lambda data, path: OpaqueShape(path, data["opaque"]),
    "parts": lambda data, path: TupleShape(
        path, tuple(_shape(part, (*path, i)) for i, part in enumerate(data["parts"]))
    ),
    "length": _items,
    "record": _record,
    "either": _union,
}
