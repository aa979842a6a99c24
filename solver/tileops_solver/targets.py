"""What is audited: from a name on the command line, a module or a class to the op classes in it."""

from __future__ import annotations

import importlib
import pkgutil
import types
from collections.abc import Iterator, Mapping
from typing import Any

from tileops_rules import Selector

__all__ = ["TargetError", "named", "op_classes", "op_named", "selector_of"]


class TargetError(Exception):
    """A target cannot be read."""


def named(target: str) -> Any:
    """The module ``package.module``, or the class ``package.module:Class``.

    Raises:
        TargetError: it cannot be imported, or the module has no such class.
    """
    module_name, _, attribute = target.partition(":")
    module = _imported(module_name)
    if not attribute:
        return module
    found: Any = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, type) or not _is_op(found):
        what = "nothing of that name" if found is None else f"{found!r} there"
        there = sorted(name for name, value in vars(module).items() if isinstance(value, type) and _is_op(value))
        others = f"; it has {', '.join(there)}" if there else ""
        raise TargetError(
            f"{target} is no op class, which has kernel_types and interfaces: {module_name} has {what}{others}"
        )
    return found


def op_named(op: str, ops_module: str, *, plugins: bool = False) -> Any:
    """The op class ``module:Class``, or the class of that name in *ops_module*.

    Args:
        op: Which.
        ops_module: Where a name without a module is looked up.
        plugins: Whether it is to hold what plug-ins register for it.

    Raises:
        TargetError: it cannot be imported, or there is no such class.
    """
    found = named(op if ":" in op else f"{ops_module}:{op}")
    return with_plugins(found)[0] if plugins else found


def selector_of(op: Any, interface: str) -> Selector:
    """The implementations of one interface of an op class or object.

    Raises:
        TargetError: the op has no such interface, or nothing can be chosen among its implementations.
    """
    if not hasattr(op, "interfaces"):
        raise TargetError(f"{op!r} is no op: give an op class or object with kernel_types and interfaces")
    if interface not in op.interfaces:
        name = op.__name__ if isinstance(op, type) else type(op).__name__
        raise TargetError(f"{name} has no interface {interface!r}: it has {', '.join(sorted(op.interfaces))}")
    try:
        return Selector.of(op, interface)
    except (TypeError, ValueError) as error:
        raise TargetError(f"nothing can be chosen: {error}") from error


def op_classes(target: Any) -> tuple[Any, ...]:
    """The op classes of a module and its sub-modules, each once, but for empty tables; or the op itself.

    Raises:
        TargetError: a sub-module cannot be imported, or *target* is neither a module nor an op.
    """
    if not isinstance(target, types.ModuleType):
        if not _is_op(target):
            raise TargetError(
                f"{target!r} cannot be audited: give an op class with kernel_types and interfaces, a module, "
                f"or a Selector"
            )
        return (target,)
    found: dict[int, Any] = {}
    for module in _modules(target):
        for value in list(vars(module).values()):
            if isinstance(value, type) and _is_op(value) and _tables(value):
                found.setdefault(id(value), value)
    return tuple(sorted(found.values(), key=lambda kind: (kind.__name__, kind.__module__, kind.__qualname__)))


def with_plugins(target: Any) -> Any:
    """*target* with what plug-ins register for its ops: a list of views of them.

    An op class gives its view by a classmethod ``with_registered``; one without has no plug-ins.
    """
    return [getattr(op, "with_registered", lambda op=op: op)() for op in op_classes(target)]


def _is_op(value: Any) -> bool:
    return all(isinstance(getattr(value, member, None), Mapping) for member in ("kernel_types", "interfaces"))


def _tables(kind: Any) -> bool:
    return bool(kind.kernel_types) and bool(kind.interfaces)


def _modules(module: types.ModuleType) -> Iterator[types.ModuleType]:
    yield module
    for info in sorted(
        pkgutil.iter_modules(getattr(module, "__path__", ()), f"{module.__name__}."), key=lambda i: i.name
    ):
        if info.name.rpartition(".")[2] != "__main__":
            yield from _modules(_imported(info.name))


def _imported(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise TargetError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
