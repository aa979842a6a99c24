"""A digest of a function and of all that it can reach: while it stays the same, so does what the function does.

Everything is taken in that a name in the code may stand for: globals, closure variables and defaults; members of
that name of the call's class, of the class that the function is bound to, and of every class and module of the
rule's own packages that is reached; and so on from these. That is more than a run reaches, and never less but for
one thing: how the class that the function is bound to makes its own objects, which a rule has no use for. Modules
and classes of other packages are taken by name and version, the standard library by the version of Python.

Bytecode is not the same in two versions of Python, so neither are these digests.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from tileops_rules.fingerprint import NotSpelled, digest, spelled, type_name
from tileops_rules.views import package_of

__all__ = ["CodeDigests"]

_DEEPEST: Final = 16
"""Containers inside containers; what lies deeper has no digest."""

_OF_PYTHON: Final = sys.stdlib_module_names | {"tileops_rules"}

_BY_ANY_NAME: Final = frozenset({"getattr", "hasattr"})
"""Where one of these is named, a member of any name may be meant."""

_BEYOND: Final = frozenset(
    {
        "__dict__",
        "__import__",
        "attrgetter",
        "eval",
        "exec",
        "globals",
        "import_module",
        "locals",
        "methodcaller",
        "vars",
    }
)
"""Where one of these is named, nobody can say what is reached."""

_NOT_DECIDING: Final = frozenset(
    {
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__conditional_annotations__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__init_subclass__",
        "__module__",
        "__set_name__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
"""Members of classes that say nothing of what calls do; what a field ranges over is part of the domain."""

_SCALARS: Final = frozenset({type(None), type(...), bool, int, float, complex, str, bytes})
_MAKING: Final = frozenset({"__init__", "__new__", "__call__"})


class CodeDigests:
    """Digests of functions of calls of one class; what they have in common is looked at once.

    Values are taken as they are when a function is asked about; do not keep one of these for longer than that.

    Args:
        spec: The class of the calls.
    """

    def __init__(self, spec: type) -> None:
        self._spec = spec
        self._common: dict[frozenset[str], tuple[_Reached, bytes]] = {}

    def of(self, function: Any) -> bytes:
        """The digest of what *function* does with a call.

        Args:
            function: A function, bound method, partial or callable object.

        Raises:
            NotSpelled: it reaches a value of which not all is known.
        """
        bound, own = _packages(function)
        own = (own | {package_of(kind.__module__) for kind in self._spec.__mro__}) - {"builtins", "abc", ""}
        if own not in self._common:
            reached = _Reached(own)
            self._common[own] = reached, reached.of_calls(self._spec)
        reached, common = self._common[own]
        return digest(common, reached.copy(bound).of(function))


def _packages(function: Any) -> tuple[frozenset[type], frozenset[str]]:
    """The classes that a function is bound to, and the packages that are its own."""
    bound: frozenset[type] = frozenset()
    while not isinstance(function, types.FunctionType):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            holder = function.__self__
            bound = frozenset(holder.__mro__ if isinstance(holder, type) else type(holder).__mro__)
            function = function.__func__
        elif isinstance(function, functools._lru_cache_wrapper):
            function = function.__wrapped__
        else:
            function = type(function)
            break
    return bound, frozenset(package_of(each.__module__) for each in (function, *bound))


class _Reached:
    """What was reached, numbered in the order in which it was: names of the code, and what they may be members of."""

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._bound: frozenset[type] = frozenset()
        self._names: dict[str, None] = {}
        self._functions: dict[types.FunctionType, int] = {}
        self._owners: dict[type | types.ModuleType, int] = {}
        self._every_name = False
        self._texts: list[str] = []
        self._looked_into = 0
        self._looked_for: list[int] = []
        self._seen: set[tuple[int, str]] = set()

    def copy(self, bound: frozenset[type]) -> _Reached:
        """One that goes on from here, with a function bound to the classes *bound*."""
        other = _Reached(self._own)
        other._bound = bound
        other._names = self._names.copy()
        other._functions = self._functions.copy()
        other._owners = self._owners.copy()
        other._every_name = self._every_name
        other._looked_into = self._looked_into
        other._looked_for = self._looked_for.copy()
        other._seen = self._seen.copy()
        return other

    def of_calls(self, spec: type) -> bytes:
        """The digest of the class of the calls, every member included."""
        self._texts.append(self._said(spec, 0))
        for kind in list(self._owners):
            self._names |= dict.fromkeys(vars(kind))
        return self._digest()

    def of(self, function: Any) -> bytes:
        """The digest of a function."""
        self._texts.append(self._said(function, 0))
        return self._digest()

    def _digest(self) -> bytes:
        while self._looked_into < len(self._functions) or self._members():
            for function in list(self._functions)[self._looked_into :]:
                self._looked_into += 1
                self._texts.append(_code_text(function.__code__))
                self._texts += self._surroundings(function)
        return digest("{}.{}".format(*sys.version_info), *self._texts)

    def _members(self) -> bool:
        """Look at members that were not looked at; whether there were any."""
        before = len(self._texts)
        names = list(self._names)
        for owner, number in list(self._owners.items()):
            members = vars(owner)
            if number == len(self._looked_for):
                self._looked_for.append(0)
                if isinstance(owner, type):
                    for name in [name for name in members if name.startswith("__") and name.endswith("__")]:
                        self._member(owner, number, name)
            for name in list(members) if self._every_name else names[self._looked_for[number] :]:
                if name in members:
                    self._member(owner, number, name)
            self._looked_for[number] = len(names)
        return len(self._texts) > before

    def _member(self, owner: type | types.ModuleType, number: int, name: str) -> None:
        if (number, name) in self._seen:
            return
        self._seen.add((number, name))
        value = vars(owner)[name]
        if isinstance(owner, type):
            left_out = name in _NOT_DECIDING or _made_by_dataclass(value) or (name in _MAKING and owner in self._bound)
        else:
            left_out = name.startswith("__")
        if not left_out:
            self._texts.append(f"{number} {name} {self._said(value, 0)}")

    def _surroundings(self, function: types.FunctionType) -> Iterator[str]:
        for part in _nested(function.__code__):
            self._names |= dict.fromkeys(part.co_names)
            self._names |= dict.fromkeys(each for each in part.co_consts if isinstance(each, str))
            self._every_name = self._every_name or not _BY_ANY_NAME.isdisjoint(part.co_names)
            if not _BEYOND.isdisjoint(part.co_names) or dis.opmap["IMPORT_NAME"] in part.co_code[::2]:
                raise NotSpelled(function)
            for name in part.co_names:
                if name in function.__globals__:
                    yield f"global {name} {self._said(function.__globals__[name], 0)}"
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                yield f"cell {name} is empty"
            else:
                yield f"cell {name} {self._said(content, 0)}"
        yield f"defaults {self._said(function.__defaults__, 0)} {self._said(function.__kwdefaults__, 0)}"

    def _said(self, value: Any, depth: int) -> str:
        """What a value is, as far as its text tells; what lies behind it is reached later.

        Raises:
            NotSpelled: not all of it is known.
        """
        if type(value) in _SCALARS:
            return spelled(value)
        if depth > _DEEPEST:
            raise NotSpelled(value)
        row = next((say for kinds, say in _SAYINGS if isinstance(value, kinds)), None)
        if row is not None:
            return row(self, value, depth + 1)
        if not is_dataclass(value):
            with contextlib.suppress(NotSpelled):
                return spelled(value)
        return self._object(value, depth + 1)

    def all_of(self, values: Iterable[Any], depth: int) -> str:
        """What each of *values* is."""
        return str([self._said(each, depth) for each in values])

    def function(self, function: types.FunctionType, depth: int) -> str:
        """A function of the rule's own packages by its number, another by name."""
        if function.__module__ is not None and package_of(function.__module__) not in self._own:
            return f"function {function.__module__}.{function.__qualname__} of {_version(function.__module__)}"
        return f"function {self._functions.setdefault(function, len(self._functions))}"

    def owner(self, kind: type, depth: int) -> str:
        """A class: by name; one of the rule's own packages by its number too, and with its bases."""
        name = type_name(kind)
        if package_of(kind.__module__) not in self._own:
            return f"class {name} of {_version(kind.__module__)}"
        metaclass: type = type(kind)
        bases = kind.__mro__ + metaclass.__mro__
        for each in bases:
            if package_of(each.__module__) in self._own:
                self._owners.setdefault(each, len(self._owners))
        return f"class {[(type_name(each), self._owners.get(each)) for each in bases]}"

    def module(self, module: types.ModuleType, depth: int) -> str:
        """A module of the rule's own packages by its number, another by name."""
        if package_of(module.__name__) not in self._own:
            return f"module {module.__name__} of {_version(module.__name__)}"
        return f"module {module.__name__} {self._owners.setdefault(module, len(self._owners))}"

    def member(self, value: enum.Enum, depth: int) -> str:
        """A member of an enum, whose class has methods too."""
        return f"{spelled(value)} of {self.owner(type(value), depth)}"

    def _object(self, value: Any, depth: int) -> str:
        """A dataclass, or an object of the rule's own packages: its class, and all that it holds."""
        kind = type(value)
        if is_dataclass(kind):
            held = {f.name: getattr(value, f.name) for f in fields(kind)}
        elif package_of(kind.__module__) in self._own and not any(vars(each).get("__slots__") for each in kind.__mro__):
            held = {}
        else:
            raise NotSpelled(value)
        held |= getattr(value, "__dict__", {})
        return f"object of {self.owner(kind, depth)} {self._said(held, depth)}"


_Saying = Callable[[_Reached, Any, int], str]

_SAYINGS: Final[tuple[tuple[Any, _Saying], ...]] = (
    (types.FunctionType, _Reached.function),
    (type, _Reached.owner),
    (types.ModuleType, _Reached.module),
    (enum.Enum, _Reached.member),
    (
        (types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType),
        lambda reached, value, depth: f"built-in {value.__qualname__}",
    ),
    (
        (types.MemberDescriptorType, types.GetSetDescriptorType, types.ClassMethodDescriptorType),
        lambda reached, value, depth: f"descriptor {value.__qualname__}",
    ),
    (types.MethodType, lambda reached, value, depth: reached.all_of((value.__func__, value.__self__), depth)),
    (
        (classmethod, staticmethod),
        lambda reached, value, depth: f"{type(value).__name__} {reached.all_of((value.__func__,), depth)}",
    ),
    (functools._lru_cache_wrapper, lambda reached, value, depth: reached.all_of(("cache", value.__wrapped__), depth)),
    (functools.cached_property, lambda reached, value, depth: reached.all_of(("cached", value.func), depth)),
    (property, lambda reached, value, depth: reached.all_of(("property", value.fget), depth)),
    (
        functools.partial,
        lambda reached, value, depth: reached.all_of(("partial", value.func, value.args, value.keywords), depth),
    ),
    ((tuple, list), lambda reached, value, depth: f"{type(value).__name__} {reached.all_of(value, depth)}"),
    (range, lambda reached, value, depth: repr(value)),
    ((set, frozenset), lambda reached, value, depth: f"set {sorted(map(spelled, value))}"),
    (
        Mapping,
        lambda reached, value, depth: f"mapping {reached.all_of((p for item in value.items() for p in item), depth)}",
    ),
)
"""How a value is said, by its type; what is none of these is plain, or an object of the rule's own packages."""


def _made_by_dataclass(value: Any) -> bool:
    """Whether a member was written by ``@dataclass``, from the fields alone."""
    code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
    return code is not None and code.co_filename == "<string>" and code.co_name.startswith("__")


def _version(module: str) -> str:
    """The version of a package that is not the rule's own.

    Raises:
        NotSpelled: it has none.
    """
    package = package_of(module)
    if package in _OF_PYTHON:
        return "Python"
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is None:
        raise NotSpelled(module)
    return str(version)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


@functools.lru_cache(4096)
def _code_text(code: types.CodeType) -> str:
    """All of a code object that decides what it does; not where it stands."""
    constants = [_code_text(each) if isinstance(each, types.CodeType) else spelled(each) for each in code.co_consts]
    facts = (
        code.co_name,
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_exceptiontable,
    )
    return f"{constants} {facts}"
