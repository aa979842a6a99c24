"""Which fields of a call a function reads, seen by running it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

__all__ = ["fields_read"]


def fields_read(function: Callable[[Any], Any], call: Any) -> set[str]:
    """The fields of *call* that ``function(call)`` reads, through properties and methods too.

    A call that is part of what the function gives back, as a build identity that is the whole call, counts as
    read altogether.

    Args:
        function: It is run once, on a copy of *call* of a subclass of its class.
        call: A frozen dataclass.

    Raises:
        Exception: whatever the function raises.
    """
    seen: set[str] = set()
    spec: Any = type(call)
    copy: Any = object.__new__(_recorder(spec))
    for field in dataclasses.fields(call):
        object.__setattr__(copy, field.name, getattr(call, field.name))
    object.__setattr__(copy, "__seen__", seen)
    given = function(copy)
    if _holds(given, copy, 0):
        seen |= {field.name for field in dataclasses.fields(call)}
    return seen


def _holds(value: Any, call: Any, depth: int) -> bool:
    if value is call:
        return True
    if depth < 4 and isinstance(value, tuple | list | frozenset):
        return any(_holds(item, call, depth + 1) for item in value)
    if depth < 4 and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_holds(getattr(value, f.name, None), call, depth + 1) for f in dataclasses.fields(value))
    return False


@functools.lru_cache(maxsize=64)
def _recorder(spec: Any) -> Any:
    names = frozenset(field.name for field in dataclasses.fields(spec))

    def read(self: Any, name: str) -> Any:
        if name in names:
            object.__getattribute__(self, "__seen__").add(name)
        return object.__getattribute__(self, name)

    return type(spec.__name__, (spec,), {"__getattribute__": read, "__module__": spec.__module__})
