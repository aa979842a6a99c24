"""Where things stand in source, so that every process and machine names the same place."""

from __future__ import annotations

import inspect
from pathlib import Path

from tileops_rules import Selector

__all__ = ["from_import_root", "place_of"]


def place_of(selector: Selector, key: str) -> str:
    """``file:line`` of an implementation: its class, or where there is no source of that, its refusal."""
    kind = selector.candidate(key).implementation
    return from_import_root(selector.place(key)) if kind is None else class_place(kind, selector.place(key))


def class_place(kind: type, otherwise: str) -> str:
    """``file:line`` of a class; without its source, of its own refusal, else the top of its module's file.

    Args:
        kind: The class.
        otherwise: What to say where there is no file at all.
    """
    # TVM, once imported, has inspect.getfile raise KeyError for a class of a module that is not loaded.
    try:
        file = inspect.getsourcefile(kind)
    except (OSError, TypeError, KeyError):
        file = None
    line = None if file is None else _first_line(kind)
    if file is None or line is None:
        own = getattr(vars(kind).get("refusal"), "__func__", None)
        code = getattr(own, "__code__", None)
        return from_import_root(otherwise if code is None else f"{code.co_filename}:{code.co_firstlineno}")
    return from_import_root(f"{file}:{line}")


def _first_line(kind: type) -> int | None:
    """The line of the ``class`` statement; None where there is no such statement, as for a class made by ``type()``."""
    known = vars(kind).get("__firstlineno__")
    if isinstance(known, int):
        return known
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError, KeyError):
        return None


def from_import_root(place: str) -> str:
    """``file:line`` with the file as seen from the folder that its top-level package or module is in."""
    file, _, line = place.rpartition(":")
    path = Path(file)
    if not path.is_absolute():
        return place
    root = path.parent
    while (root / "__init__.py").exists():
        root = root.parent
    return f"{path.relative_to(root).as_posix()}:{line}"
