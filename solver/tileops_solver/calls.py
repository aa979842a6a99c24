"""Calls from ``field=value`` texts."""

from __future__ import annotations

import ast
import dataclasses
import enum
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import DEVICE_FACTS, Domain
from tileops_rules.expr import exact_key
from tileops_rules.printing import value_text
from tileops_rules.shapes import (
    DeviceName,
    DeviceShape,
    FiniteShape,
    FloatShape,
    NoneShape,
    Outside,
    RecordShape,
    SequenceShape,
    Shape,
    StrShape,
    TupleShape,
    UnionShape,
)

__all__ = ["ValueProblem", "accepted_fields", "asked_call", "call_from", "completed"]

_FLOATS: Final = ("inf", "-inf", "nan")


class ValueProblem(Exception):
    """A ``field=value`` text cannot be read."""


def accepted_fields(domain: Domain) -> str:
    """A line for each field: its name and what it takes."""
    lines = []
    for name, shape in domain.fields.items():
        slots = list(shape.slots())
        shown = str(slots[0]) if len(slots) == 1 else _annotation(domain.spec, name)
        lines.append(f"  {name}: {shown}")
    return "\n".join(lines)


def call_from(domain: Domain, texts: Iterable[str]) -> Any:
    """The call that has the stated values, and its class's defaults elsewhere.

    Args:
        domain: Of the call's class.
        texts: ``field=value`` each; a field of a nested call spec is ``field.part=value``.

    Raises:
        ValueProblem: a field is unknown, stated twice or missing, or a value cannot be read.
    """
    stated: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueProblem(f"{text!r} is not field=value; the fields are\n{accepted_fields(domain)}")
        _place(stated, name.strip().split("."), value.strip(), text)
    unknown = [name for name in stated if name not in domain.fields]
    if unknown:
        raise ValueProblem(
            f"{domain.spec.__name__} has no field {', '.join(unknown)}; the fields are\n{accepted_fields(domain)}"
        )
    return _record(domain, domain.spec, domain.fields, stated)


def completed(selector: Selector, call: Any) -> Any:
    """The call as a question on any machine: one that states an arch and no device is on such a CUDA device.

    An op that resolves its own calls does so; this is for specs of other packages.
    """
    device = selector.domain.fields.get("device")
    arch = getattr(call, "arch", None)
    facts = KNOWN_ARCHS.get(arch) if isinstance(arch, int) else None
    if not isinstance(device, DeviceShape) or arch is None:
        return call
    added: dict[str, Any] = {}
    if getattr(call, "device", None) is None:
        added["device"] = device.make("cuda")
    for name in DEVICE_FACTS:
        if name in selector.domain.fields and getattr(call, name) is None and facts is not None:
            added[name] = getattr(facts, name)
    return dataclasses.replace(call, **added) if added else call


def asked_call(op: Any, selector: Selector, texts: Iterable[str]) -> Any:
    """The call that is asked about: as :func:`call_from` has it, with the facts of its device filled in.

    Args:
        op: The op, which may resolve its own calls.
        selector: Of one of its interfaces.
        texts: ``field=value`` each.

    Raises:
        ValueProblem: a field or value is not accepted, or the call states no device.
    """
    call = call_from(selector.domain, texts)
    try:
        return selector.resolved(completed(selector, call) if getattr(op, "resolve", None) is None else call)
    except (TypeError, ValueError) as error:
        raise ValueProblem(str(error)) from error


def _annotation(spec: type, name: str) -> str:
    hint = next(f.type for f in dataclasses.fields(spec) if f.name == name)
    return hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))


def _place(stated: dict[str, Any], names: list[str], value: str, text: str) -> None:
    *outer, last = names
    for name in outer:
        inner = stated.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ValueProblem(
                f"{text!r} speaks of a part of {name}, which is stated as a whole: write one or the other"
            )
        stated = inner
    if last in stated:
        raise ValueProblem(f"{'.'.join(names)} is stated twice: write it once")
    stated[last] = value


def _record(domain: Domain, kind: Any, shapes: Mapping[str, Shape], stated: Mapping[str, Any]) -> Any:
    values = {}
    for name, given in stated.items():
        shape = shapes.get(name)
        if shape is None:
            raise ValueProblem(f"{kind.__name__} has no field {name}: it has {', '.join(shapes)}")
        values[name] = _value(domain, shape, given)
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueProblem(
            f"{kind.__name__} cannot be built from what is stated ({error}); the fields are\n{accepted_fields(domain)}"
        ) from error
    except Exception as error:
        raise ValueProblem(f"{kind.__name__} cannot be built from what is stated: {error}") from error


def _value(domain: Domain, shape: Shape, given: Any) -> Any:
    if isinstance(given, Mapping):
        if isinstance(shape, RecordShape):
            return _record(domain, shape.cls, shape.parts, given)
        raise ValueProblem(f"{_name(shape)} has no parts to state: write {_name(shape)}=value")
    return _read(shape, given)


def _name(shape: Shape) -> str:
    return ".".join(map(str, shape.path))


def _read(shape: Shape, text: str) -> Any:
    if isinstance(shape, DeviceShape):
        return _device(shape, text)
    if isinstance(shape, FiniteShape):
        return _finite(shape, text)
    if isinstance(shape, UnionShape):
        return _union(shape, text)
    if isinstance(shape, StrShape):
        value = _literal(text)
        return value if type(value) is str else text
    if isinstance(shape, FloatShape):
        value = float(text) if text in _FLOATS else _literal(text)
        if type(value) is int:
            return float(value)
        return _of_kind(shape, value, text, "a number")
    value = _literal(text)
    if isinstance(shape, TupleShape | SequenceShape):
        value = tuple(value) if isinstance(value, list) else value
        return _of_kind(shape, value, text, "a tuple, as in (4, 8)")
    return _of_kind(shape, value, text, "a Python literal of its type")


def _of_kind(shape: Shape, value: Any, text: str, wanted: str) -> Any:
    if value is not _NOTHING and shape.kind_of(value):
        return value
    slots = " ".join(str(slot) for slot in shape.slots()) if not isinstance(shape, TupleShape | SequenceShape) else ""
    raise ValueProblem(f"{_name(shape)}={text} cannot be read: write {wanted}{f' ({slots})' if slots else ''}")


_NOTHING: Final = object()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _NOTHING


def _device(shape: DeviceShape, text: str) -> Any:
    literal = _literal(text)
    if literal is None:
        return None
    name = literal if type(literal) is str else text
    if "torch" not in sys.modules and shape.make is not str:
        return DeviceName(name.split(":")[0])
    try:
        return shape.make(name)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueProblem(
            f"device={text} is no device: {str(error).splitlines()[0]}; write cuda, cuda:0 or cpu"
        ) from error


def _finite(shape: FiniteShape, text: str) -> Any:
    literal = _literal(text)
    for value in shape.slot.values:
        if text in _spellings(value) or (literal is not _NOTHING and exact_key(literal) == exact_key(value)):
            return value
    if literal is not _NOTHING and not shape.slot.declared:
        return literal
    accepted = ", ".join(map(value_text, shape.slot.values))
    raise ValueProblem(f"{_name(shape)}={text} is outside the domain of {_name(shape)}, which is one of {accepted}")


def _spellings(value: Any) -> tuple[str, ...]:
    """The texts that stand for a value besides its literal."""
    if isinstance(value, enum.Enum):
        return value.name, str(value)
    text = str(value)
    return text, text.removeprefix("torch.")


def _union(shape: UnionShape, text: str) -> Any:
    problems = []
    options = sorted(shape.options.values(), key=lambda option: isinstance(option, StrShape))
    if any(isinstance(option, NoneShape) for option in options) and text == "None":
        return None
    for option in options:
        if isinstance(option, NoneShape):
            continue
        try:
            return _read(option, text)
        except (ValueProblem, Outside) as problem:
            problems.append(str(problem))
    raise ValueProblem(problems[0] if problems else f"{_name(shape)}={text} cannot be read: write None")
