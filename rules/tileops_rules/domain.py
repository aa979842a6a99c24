"""What values a call's fields can take, read off the annotations of its class.

One table, :data:`ASSUMED`, says what a field ranges over that declares nothing; ``Annotated[int, Range(1,
1024)]``, ``Annotated[torch.dtype, OneOf(...)]`` and ``Literal[...]`` declare it. A declared domain is enforced
on real calls; outside an assumed one, rules run as ordinary Python.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.expr import Expr, Path, among, conjunction, disjunction, exact_key, negation
from tileops_rules.shapes import (
    LARGEST_INT,
    LONGEST_TUPLE,
    DeviceName,
    DeviceShape,
    FiniteShape,
    FloatShape,
    IntShape,
    NoneShape,
    OpaqueShape,
    Outside,
    RecordShape,
    SequenceShape,
    Shape,
    Slot,
    StrShape,
    TupleShape,
    UnionShape,
    nearest_inside,
)

__all__ = ["ASSUMED", "DEVICE_FACTS", "Domain", "OneOf", "Outside", "Range", "domain_of"]

DEVICE_FACTS: Final = ("arch", "sm_count", "smem_budget")
"""Fields that describe a CUDA device: where a call has a device of another type, they are None."""

ASSUMED: Final[Mapping[str, str]] = {
    "int": f"from the smaller of 0 and its default to {LARGEST_INT}",
    "float": "every float, NaN and infinities included",
    "str": "the constants it is compared with, and any other string",
    "torch.dtype": "the dtypes of the loaded torch",
    "arch": "the known archs and those that an implementation lists",
    "device": "the device types that the implementations list",
    "tuple": f"lengths 0 to {LONGEST_TUPLE}",
}
"""What an undeclared field is taken to range over, by kind of field."""

_NO_DEFAULT: Final = object()
_DEEPEST: Final = 4


@dataclasses.dataclass(frozen=True)
class Range:
    """Declares that a number lies in ``lo..hi``, both included; None leaves an end as it is assumed.

    Raises:
        ValueError: ``lo`` is above ``hi``.
    """

    lo: int | float | None = None
    hi: int | float | None = None

    def __post_init__(self) -> None:
        if self.lo is not None and self.hi is not None and self.lo > self.hi:
            raise ValueError(f"Range({self.lo}, {self.hi}) holds nothing: write the smaller end first")


class OneOf:
    """Declares that a field holds one of *values*.

    Raises:
        ValueError: no value is given.
    """

    def __init__(self, *values: Any) -> None:
        if not values:
            raise ValueError("OneOf() holds nothing: name at least one value")
        self.values = values

    def __repr__(self) -> str:
        return f"OneOf({', '.join(map(repr, self.values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneOf) and other.values == self.values

    def __hash__(self) -> int:
        return hash(self.values)


class Domain:
    """The slots of a call spec class, and the way between calls and slot values.

    Attributes:
        spec: The class.
        fields: Field name to its shape.
        slots: Path to slot.
        links: What holds in every call beyond each slot's own domain (device facts are None exactly off CUDA).
        device_types: What ``device`` ranges over.
        archs: What ``arch`` ranges over.
    """

    def __init__(self, spec: type, device_types: frozenset[str], archs: frozenset[int]) -> None:
        if not dataclasses.is_dataclass(spec):
            raise TypeError(
                f"{spec!r} is no dataclass: a call spec is a frozen dataclass, write @dataclass(frozen=True)"
            )
        self.spec = spec
        self.device_types = device_types
        self.archs = archs
        reader = _Annotations(self)
        self.fields: dict[str, Shape] = reader.shapes(spec, ())
        self.slots: dict[Path, Slot] = {s.path: s for shape in self.fields.values() for s in shape.slots()}
        self.links: Expr = _device_links(self)

    def read(self, call: Any) -> dict[Path, Any]:
        """The slot values of *call*.

        Raises:
            Outside: a value is not in its slot's domain.
        """
        values: dict[Path, Any] = {}
        for name, shape in self.fields.items():
            shape.read(getattr(call, name), values)
        return values

    def build(self, values: Mapping[Path, Any]) -> Any:
        """A real call with these slot values; slots that are left out hold their nearest inside value."""
        full = self.complete(values)
        return self.spec(**{name: shape.build(full) for name, shape in self.fields.items()})

    def complete(self, values: Mapping[Path, Any]) -> dict[Path, Any]:
        """*values*, with every slot that they leave out at its default, or else the value nearest to nothing."""
        return {path: values[path] if path in values else nearest_inside(slot) for path, slot in self.slots.items()}

    def assumed(self) -> tuple[str, ...]:
        """A line for each domain that was assumed and not declared."""
        return tuple(f"{slot.name}: {slot}" for slot in self.slots.values() if not slot.declared)


class _Annotations:
    """Turns annotations into shapes."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._names = _Names(domain.spec)

    def shapes(self, spec: type, at: Path) -> dict[str, Shape]:
        """The fields of *spec* that its ``__init__`` takes."""
        names = _Names(spec)
        found: dict[str, Shape] = {}
        for f in dataclasses.fields(spec):
            if f.init:
                default = _default_of(f)
                self._names = names
                found[f.name] = self.shape(names.resolve(f.name, f.type, default), (*at, f.name), default, ())
        return found

    def shape(self, hint: Any, path: Path, default: Any, notes: tuple[Any, ...]) -> Shape:
        hint, notes = _unwrapped(hint, notes)
        if isinstance(hint, typing.ForwardRef):
            hint, notes = _unwrapped(self._names.resolve(str(path[0]), hint.__forward_arg__, default), notes)
        one_of = next((n for n in notes if isinstance(n, OneOf)), None)
        if one_of is not None:
            return self._finite(path, one_of.values, default, declared=True)
        origin = typing.get_origin(hint)
        if origin is Literal:
            return self._finite(path, typing.get_args(hint), default, declared=True)
        if origin in (typing.Union, types.UnionType):
            return self._union(typing.get_args(hint), path, default, notes)
        if hint is None or hint is type(None):
            return self._finite(path, (None,), None, declared=True)
        if len(path) == 1 and path[0] == "device" and (hint is str or _named(hint, "device") or hint is Any):
            return self._device(hint, path)
        if origin is tuple and not typing.get_args(hint) and hint is not typing.Tuple:  # noqa: UP006 - tuple[()]
            return TupleShape(path, ())
        if origin is tuple or hint is tuple or _named(hint, "Size"):
            return self._tuple(typing.get_args(hint), path, default, notes)
        if isinstance(hint, type):
            return self._plain(hint, path, default, notes)
        why = hint if isinstance(hint, str) else repr(hint)
        return OpaqueShape(path, f"annotated {why}", _or_none(default))

    def _plain(self, hint: type, path: Path, default: Any, notes: tuple[Any, ...]) -> Shape:
        if issubclass(hint, bool):
            return self._finite(path, (False, True), default, declared=True)
        if issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag):
            return self._finite(path, tuple(hint), default, declared=True)
        if hint is int:
            return self._int(path, default, notes)
        if hint is float:
            return self._float(path, default, notes)
        if hint is str:
            return StrShape(path, Slot(path, "str", default=default if type(default) is str else None))
        if _named(hint, "dtype"):
            torch: Any = sys.modules.get("torch")
            dtypes = sorted({v for v in vars(torch).values() if isinstance(v, hint)}, key=str) if torch else ()
            return self._finite(path, tuple(dtypes), default) if dtypes else OpaqueShape(path, "a dtype without torch")
        if dataclasses.is_dataclass(hint) and len(path) < _DEEPEST:
            return RecordShape(path, hint, self.shapes(hint, path))
        return OpaqueShape(path, f"annotated {hint.__name__}", _or_none(default))

    def _finite(self, path: Path, values: tuple[Any, ...], default: Any, *, declared: bool = False) -> Shape:
        key = exact_key(default)
        first = tuple(v for v in values if exact_key(v) == key)
        ordered = first + tuple(v for v in values if exact_key(v) != key)
        return FiniteShape(path, Slot(path, "finite", values=ordered, declared=declared))

    def _int(self, path: Path, default: Any, notes: tuple[Any, ...]) -> Shape:
        limits = next((n for n in notes if isinstance(n, Range)), None)
        known = default if type(default) is int else 0
        if path == ("arch",) and limits is None:
            return self._finite(path, tuple(sorted(self._domain.archs)), default)
        lo, hi = min(0, known), max(LARGEST_INT, known)
        if limits is not None:
            lo = lo if limits.lo is None else int(limits.lo)
            hi = hi if limits.hi is None else int(limits.hi)
        standing = default if type(default) is int else None
        return IntShape(path, Slot(path, "int", lo, hi, declared=limits is not None, default=standing))

    def _float(self, path: Path, default: Any, notes: tuple[Any, ...]) -> Shape:
        limits = next((n for n in notes if isinstance(n, Range)), None)
        lo, hi = (None, None) if limits is None else (limits.lo, limits.hi)
        standing = float(default) if type(default) in (int, float) else None
        return FloatShape(path, Slot(path, "float", lo, hi, declared=limits is not None, default=standing))

    def _device(self, hint: Any, path: Path) -> Shape:
        slot = Slot((*path, "type"), "finite", values=tuple(sorted(self._domain.device_types, key=_cuda_first)))
        return DeviceShape(path, slot, str if hint is str else _make_device)

    def _tuple(self, args: tuple[Any, ...], path: Path, default: Any, notes: tuple[Any, ...]) -> Shape:
        standing = default if type(default) is tuple else ()
        if args and args[-1] is not Ellipsis:
            return TupleShape(
                path,
                tuple(
                    self.shape(a, (*path, i), standing[i] if i < len(standing) else _NO_DEFAULT, notes)
                    for i, a in enumerate(args)
                ),
            )
        item = args[0] if args else int
        longest = max(LONGEST_TUPLE, len(standing))
        items = tuple(
            self.shape(item, (*path, i), standing[i] if i < len(standing) else _NO_DEFAULT, notes)
            for i in range(longest)
        )
        lengths = (len(standing), *(n for n in range(longest + 1) if n != len(standing)))
        return SequenceShape(path, Slot((*path, "len"), "finite", values=lengths), items)

    def _union(self, args: tuple[Any, ...], path: Path, default: Any, notes: tuple[Any, ...]) -> Shape:
        if path == ("device",):
            return self._device(next((a for a in args if a is not type(None)), Any), path)
        real = [a for a in args if a is not type(None)]
        options: dict[str, Shape] = {}
        for arg in args:
            plain = _unwrapped(arg, ())[0]
            name = "None" if arg is type(None) else getattr(plain, "__name__", str(plain))
            at = path if len(real) == 1 or arg is type(None) else (*path, f"<{name}>")
            options[name] = self.shape(arg, at, default, notes)
        if all(isinstance(s, FiniteShape) for s in options.values()):
            slots = [s for shape in options.values() for s in shape.slots()]
            values = tuple({exact_key(v): v for s in slots for v in s.values}.values())
            declared = all(s.declared for s in slots)
            return self._finite(path, values, default, declared=declared)
        if "None" in options:
            options["None"] = NoneShape(path)
        if any(isinstance(s, RecordShape) and s.path == path and "type" in s.parts for s in options.values()):
            # Its field would stand where the union says which of its kinds a value has.
            return OpaqueShape(
                path, "annotated as a record with a field named type, or another kind", _or_none(default)
            )
        standing = None if default is _NO_DEFAULT else default
        names = sorted(options, key=lambda n: (not options[n].matches(standing), n))
        choice = Slot((*path, "type"), "finite", values=tuple(names), declared=True)
        return UnionShape(path, choice, options)


class _Names:
    """Resolves the annotations of a class one by one, so that one unknown name does not hide the others."""

    def __init__(self, spec: type) -> None:
        self._owners = {name: owner for owner in reversed(spec.__mro__) for name in inspect.get_annotations(owner)}

    def resolve(self, field: str, hint: Any, default: Any) -> Any:
        """The object that an annotation stands for.

        Where it has none, the default's type, or a text that says why.
        """
        if not isinstance(hint, str):
            return hint
        owner = self._owners.get(field)
        module = sys.modules.get(owner.__module__) if owner is not None else None
        known = _Fallback(vars(module) if module is not None else {}, vars(owner) if owner is not None else {})
        try:
            return eval(hint, {}, known)
        except Exception as error:  # noqa: BLE001 - an annotation may be any expression; why is kept and shown
            if default is _NO_DEFAULT or default is None:
                return f"{hint!r}, which does not resolve ({error})"
            return type(default)


class _Fallback(dict[str, Any]):
    """Names of a class and its module, then loaded modules and typing: what ``if TYPE_CHECKING`` imports hides."""

    def __init__(self, *scopes: Mapping[str, Any]) -> None:
        super().__init__()
        self._scopes = scopes

    def __missing__(self, name: str) -> Any:
        for scope in self._scopes:
            if name in scope:
                return scope[name]
        if hasattr(typing, name):
            return getattr(typing, name)
        if name in sys.modules:
            return sys.modules[name]
        raise KeyError(name)


def _unwrapped(hint: Any, notes: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            inner, *more = typing.get_args(hint)
            hint, notes = inner, (*more, *notes)
        elif typing.get_origin(hint) is typing.Final:
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint, notes


def _default_of(f: dataclasses.Field[Any]) -> Any:
    if f.default is not dataclasses.MISSING:
        return f.default
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else _NO_DEFAULT


def _or_none(default: Any) -> Any:
    return None if default is _NO_DEFAULT else default


def _named(hint: Any, name: str) -> bool:
    return isinstance(hint, type) and hint.__name__ == name and hint.__module__.split(".")[0] == "torch"


def _cuda_first(device_type: str) -> tuple[bool, str]:
    return device_type != "cuda", device_type


def _make_device(device_type: str) -> Any:
    torch: Any = sys.modules.get("torch")
    return torch.device(device_type) if torch is not None else DeviceName(device_type)


def _device_links(domain: Domain) -> Expr:
    device = domain.fields.get("device")
    if not isinstance(device, DeviceShape):
        return conjunction([])
    on_cuda = among(device.slot.path, ["cuda"]) if "cuda" in device.slot.values else disjunction([])
    parts = []
    for name in DEVICE_FACTS:
        shape = domain.fields.get(name)
        absent: Callable[[], Expr] | None = None
        if isinstance(shape, FiniteShape) and any(v is None for v in shape.slot.values):
            absent = lambda path=shape.path: among(path, [None])  # noqa: E731
        elif isinstance(shape, UnionShape) and "None" in shape.options:
            absent = lambda path=shape.choice.path: among(path, ["None"])  # noqa: E731
        if absent is not None:
            parts.append(disjunction([negation(on_cuda), negation(absent())]))
            parts.append(disjunction([on_cuda, absent()]))
    return conjunction(parts)


_domains: weakref.WeakKeyDictionary[type, dict[Any, Domain]] = weakref.WeakKeyDictionary()


def domain_of(
    spec: type,
    device_types: frozenset[str] = frozenset({"cuda", "cpu"}),
    archs: frozenset[int] = frozenset(),
) -> Domain:
    """The domain of *spec*, one object for the same question.

    Args:
        spec: A dataclass.
        device_types: What its ``device`` ranges over.
        archs: Archs beyond the known ones that its ``arch`` ranges over.

    Raises:
        TypeError: *spec* is no dataclass.
    """
    torch_loaded = "torch" in sys.modules
    key = (device_types, archs | frozenset(KNOWN_ARCHS), torch_loaded)
    mine = _domains.setdefault(spec, {})
    if key not in mine:
        mine[key] = Domain(spec, key[0], key[1])
    return mine[key]
