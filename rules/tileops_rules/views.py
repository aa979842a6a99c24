"""What a rule reaches besides the call, handed to it in a form in which stand-ins can be looked for.

A function of the rule's own package runs as a copy: its set literals, and the sets and dicts that it reaches as
globals, closure variables or class attributes, compare element by element. Nothing is read from source text, so
functions made by ``exec`` or ``lambda`` lift like others.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from tileops_rules.standin import Asks
from tileops_rules.tables import DictView, ListView, SetView

__all__ = ["ClassView", "Views", "package_of"]


def package_of(module: str | None) -> str:
    """The top-level package of a module's name."""
    return (module or "").split(".")[0]


_OF_THE_CLASS: Final = frozenset(
    {"__dict__", "__module__", "__name__", "__qualname__", "__mro__", "__doc__", "__bases__"}
)


class ClassView:
    """A class as the rule sees it: functions and tables found on it are views."""

    def __init__(self, views: Views, real: type) -> None:
        object.__setattr__(self, "_views", views)
        object.__setattr__(self, "_real", real)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def __getattribute__(self, name: str) -> Any:
        if name in ("_views", "_real", "__class__"):
            return object.__getattribute__(self, name)
        views: Views = object.__getattribute__(self, "_views")
        real: type = object.__getattribute__(self, "_real")
        return views.attribute(real.__mro__, name, self, real) if name not in _OF_THE_CLASS else getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        asks: Asks = self._views.asks
        asks.refuse(f"{self._real.__qualname__}.{name} is set: a rule is a function of the call alone")

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._real(*args, **more)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._real)

    def __subclasscheck__(self, cls: Any) -> bool:
        return issubclass(getattr(cls, "_real", cls), self._real)

    def __eq__(self, other: object) -> bool:
        return getattr(other, "_real", other) is self._real

    def __hash__(self) -> int:
        return hash(self._real)

    def __repr__(self) -> str:
        return repr(self._real)

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[Any] = iter(self._real)
        return found


class _ModuleView:
    """A module of the rule's own package: what is found in it is a view."""

    def __init__(self, views: Views, real: types.ModuleType) -> None:
        self._views = views
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return self._views.value(getattr(self._real, name), f"{self._real.__name__}.{name}")


class _SuperView:
    def __init__(self, views: Views, mro: tuple[type, ...], bound: Any, real: type) -> None:
        self._views = views
        self._mro = mro
        self._bound = bound
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return self._views.attribute(self._mro, name, self._bound, self._real)


class _TypeMeta(type):
    def __call__(cls, *args: Any, **more: Any) -> Any:
        if len(args) == 1 and not more:
            kind = type(args[0])
            return args[0].__class__ if kind.__module__.startswith("tileops_rules.") else kind
        return type(*args, **more)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type)


class _Type(metaclass=_TypeMeta):
    """``type`` for a rule: of a stand-in, the type it stands for."""


def _super(*args: Any) -> Any:
    """``super`` for a rule: of a class view, a view."""
    if args:
        start, bound = args
    else:
        frame = sys._getframe(1)
        start = frame.f_locals["__class__"]
        bound = frame.f_locals[frame.f_code.co_varnames[0]]
    start = getattr(start, "_real", start)
    if type(bound) is ClassView:
        mro, real, views = bound._real.__mro__, bound._real, bound._views
    else:
        spec = getattr(type(bound), "__views__", None)
        if spec is None:
            return super(start, bound)
        views, real = spec(bound)
        mro = real.__mro__
    return _SuperView(views, mro[mro.index(start) + 1 :], bound, real)


def _unviewed(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(_unviewed(part) for part in value)
    return value._real if type(value) is ClassView else value


def _isinstance(value: Any, kinds: Any) -> bool:
    return isinstance(value, _unviewed(kinds))


def _issubclass(cls: Any, kinds: Any) -> bool:
    return issubclass(_unviewed(cls), _unviewed(kinds))


_BUILTINS: Final = {
    **vars(builtins),
    "super": _super,
    "type": _Type,
    "isinstance": _isinstance,
    "issubclass": _issubclass,
}


class Views:
    """Hands out views for one lift and remembers what was read through them.

    Attributes:
        asks: The explorer.
        own: Top-level packages whose functions run as copies.
        reads: What the rule read besides the call: name to value.
        catches: Some function of the rule has exception handlers.
    """

    def __init__(self, asks: Asks, own: frozenset[str]) -> None:
        self.asks = asks
        self.own = own
        self.reads: dict[str, Any] = {}
        self._copies: dict[types.FunctionType, types.FunctionType] = {}
        self._tables: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._classes: dict[type, ClassView] = {}
        self.catches = False
        self._place = ("<unknown>", 0)

    def value(self, real: Any, label: str, *, as_class: bool = False) -> Any:
        """The view of a value that the rule reaches as *label*."""
        if isinstance(real, types.FunctionType):
            return self.function(real) if package_of(real.__module__) in self.own else real
        if isinstance(real, functools._lru_cache_wrapper) and isinstance(real.__wrapped__, types.FunctionType):
            return self.value(real.__wrapped__, label)
        if isinstance(real, types.ModuleType):
            return _ModuleView(self, real) if package_of(real.__name__) in self.own else real
        if isinstance(real, type):
            return self.class_view(real) if as_class else real
        if hasattr(type(real), "__next__"):
            self.asks.give_up(
                *self._place,
                f"{label} is an iterator, which changes as it is used: a rule is a function of the call alone",
            )
        if not callable(real):
            self.reads[label] = real
        return self.inner(real)

    def class_view(self, real: type) -> ClassView:
        """The view of a class; always the same object."""
        found = self._classes.get(real)
        if found is None:
            found = self._classes[real] = ClassView(self, real)
        return found

    def inner(self, real: Any) -> Any:
        """The view of a value found inside another: of sets and dicts, and of tuples and lists of them."""
        if isinstance(real, set | frozenset | dict | types.MappingProxyType):
            found = self._tables.get(id(real))
            if found is None:
                kind = SetView if isinstance(real, set | frozenset) else DictView
                found = self._tables[id(real)] = kind(self, real)
            return found
        if type(real) is tuple:
            parts = tuple(self.inner(part) for part in real)
            return real if all(a is b for a, b in zip(parts, real, strict=True)) else parts
        if type(real) is list:
            found = self._tables.get(id(real))
            if found is None:
                self._kept.append(real)
                found = self._tables[id(real)] = ListView(self.inner(part) for part in real)
                found.asks = self.asks
            return found
        return real

    def function(self, real: types.FunctionType) -> types.FunctionType:
        """A copy of *real* whose surroundings are views."""
        found = self._copies.get(real)
        if found is None:
            found = self.asks.unwatched(self._copied, real)
        return found

    def _copied(self, real: types.FunctionType) -> types.FunctionType:
        code = real.__code__
        self._place = (code.co_filename, code.co_firstlineno)
        self.catches = self.catches or any(part.co_exceptiontable for part in _nested(code))
        _check_stores(self.asks, code)
        names: dict[str, Any] = {"__builtins__": _BUILTINS, "__name__": real.__globals__.get("__name__")}
        cells = tuple(types.CellType() for _ in code.co_freevars)
        copy = types.FunctionType(_code_view(self, code), names, real.__name__, None, cells)
        self._copies[real] = copy
        label = f"{real.__module__}.{real.__qualname__}"
        as_classes = functools.lru_cache(None)(lambda: _only_for_attributes(code))
        for name in _names_of(code):
            if name in real.__globals__:
                value = real.__globals__[name]
                viewed = isinstance(value, type) and self._is_own_class(value) and name in as_classes()
                names[name] = self.value(value, f"{real.__module__}.{name}", as_class=viewed)
        for name, cell, original in zip(code.co_freevars, cells, real.__closure__ or (), strict=True):
            try:
                content = original.cell_contents
            except ValueError:
                continue
            if name == "__class__":
                cell.cell_contents = content
                continue
            viewed = isinstance(content, type) and self._is_own_class(content) and name in as_classes()
            cell.cell_contents = self.value(content, f"{label}.{name}", as_class=viewed)
        copy.__defaults__ = real.__defaults__ and tuple(
            self.value(v, f"{label}.default{i}") for i, v in enumerate(real.__defaults__)
        )
        copy.__kwdefaults__ = real.__kwdefaults__ and {
            n: self.value(v, f"{label}.{n}") for n, v in real.__kwdefaults__.items()
        }
        return copy

    def _is_own_class(self, cls: type) -> bool:
        return package_of(cls.__module__) in self.own and not issubclass(cls, enum.Enum | BaseException)

    def attribute(self, mro: tuple[type, ...], name: str, bound: Any, real: type) -> Any:
        """What ``bound.name`` is, where *bound* is a class view or a symbolic call of class *real*."""
        for owner in mro:
            if name in owner.__dict__:
                return self._bound(owner.__dict__[name], f"{owner.__module__}.{owner.__qualname__}.{name}", bound, real)
        if type(bound) is ClassView:
            return getattr(real, name)
        raise AttributeError(f"{real.__name__!r} object has no attribute {name!r}")

    def _bound(self, raw: Any, label: str, bound: Any, real: type) -> Any:
        on_class = type(bound) is ClassView
        if isinstance(raw, classmethod):
            target = bound if on_class else self.class_view(real)
            inner = raw.__func__
            while isinstance(inner, functools._lru_cache_wrapper):
                inner = inner.__wrapped__
            return types.MethodType(self.value(inner, label), target)
        if isinstance(raw, staticmethod):
            return self.value(raw.__func__, label)
        if isinstance(raw, types.FunctionType | functools._lru_cache_wrapper):
            copy = self.value(raw, label)
            return copy if on_class else types.MethodType(copy, bound)
        if isinstance(raw, property) and not on_class and raw.fget is not None:
            return self.value(raw.fget, label)(bound)
        if isinstance(raw, functools.cached_property) and not on_class:
            return self.value(raw.func, label)(bound)
        if hasattr(type(raw), "__get__") and not isinstance(raw, type):
            return raw.__get__(None, real) if on_class else raw.__get__(bound, real)
        return self.value(raw, label)


def _code_view(views: Views, code: types.CodeType) -> types.CodeType:
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, frozenset):
            constant = SetView(views, constant)
        elif isinstance(constant, types.CodeType):
            constant = _code_view(views, constant)
        constants.append(constant)
    return code.replace(co_consts=tuple(constants))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


@functools.lru_cache(4096)
def _names_of(code: types.CodeType) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in _nested(code) for name in part.co_names))


_STORES: Final = frozenset(
    dis.opmap[f"{what}_{where}"] for what in ("STORE", "DELETE") for where in ("GLOBAL", "DEREF", "ATTR")
)


@functools.lru_cache(4096)
def _stores(code: types.CodeType) -> tuple[tuple[int, str, str], ...]:
    if all(_STORES.isdisjoint(part.co_code[::2]) for part in _nested(code)):
        return ()
    found = []
    for part in _nested(code):
        for step in dis.get_instructions(part):
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                found.append((_line_of(step, part), "global", str(step.argval)))
            if step.opname in ("STORE_ATTR", "DELETE_ATTR"):
                found.append((_line_of(step, part), "attribute", str(step.argval)))
            if step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in code.co_freevars:
                found.append((_line_of(step, part), "nonlocal", str(step.argval)))
    return tuple(found)


def _line_of(step: Any, code: types.CodeType) -> int:
    position = step.positions
    return int(position.lineno) if position is not None and position.lineno else code.co_firstlineno


def _check_stores(asks: Any, code: types.CodeType) -> None:
    for line, scope, name in _stores(code):
        asks.give_up(code.co_filename, line, f"{scope} {name} is stored to: a rule is a function of the call alone")


_LOADS_NAME: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
"""The last two stand in the body of a class, before Python 3.12 and since."""


@functools.lru_cache(4096)
def _only_for_attributes(code: types.CodeType) -> frozenset[str]:
    """Global and closure names that the code only ever takes attributes of."""
    attribute: set[str] = set()
    other: set[str] = set()
    for part in _nested(code):
        loaded: str | None = None
        for step in dis.get_instructions(part):
            if loaded is not None:
                (attribute if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else other).add(loaded)
                loaded = None
            if step.opname in _LOADS_NAME:
                loaded = str(step.argval)
    return frozenset(attribute - other)
