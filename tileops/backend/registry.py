"""The kernels that backends add to ops, and who added each.

What is registered for one op is a tuple that is never changed, only replaced: an op that was constructed
keeps the tuple it saw, and two ops that saw the same tuple share what was proved about it.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import sys
import threading
from collections.abc import Iterator, Mapping

from tileops.backend.errors import BackendError

__all__ = [
    "Registration",
    "known_op",
    "register_kernel_type",
    "registering_as",
    "registrations",
    "restore",
    "sandbox",
    "snapshot",
    "unclaimed",
    "withdraw",
]


@dataclasses.dataclass(frozen=True)
class Registration:
    """One kernel that a backend added to an op.

    Attributes:
        op_name: The op class's ``__name__``.
        key: The key that the kernel stands under.
        kernel: The class.
        place: ``file:line`` where it was registered.
        source: The plug-in that registered it; None for a direct call.
    """

    op_name: str
    key: str
    kernel: type
    place: str
    source: object | None = None


Snapshot = Mapping[str, tuple[Registration, ...]]

_lock = threading.RLock()
_table: dict[str, tuple[Registration, ...]] = {}
_known: set[str] = set()
_source: contextvars.ContextVar[object | None] = contextvars.ContextVar("tileops_backend_source", default=None)


def register_kernel_type(op_name: str, key: str, kernel: type) -> None:
    """Add *kernel* to the op class called *op_name*, under *key*.

    Ops constructed from now on have it; those constructed before keep what they have. What the class says
    of itself is checked where an op is constructed. The op need not be imported yet; :func:`unclaimed` tells
    whether one of that name has been.

    Args:
        op_name: ``__name__`` of the op class (``"LayerNormFwdOp"``).
        key: A snake_case name that no in-tree implementation of the op has.
        kernel: A class that inherits :class:`~tileops.kernels.kernel_base.Kernel` and an interface of the op.

    Raises:
        TypeError: *op_name* or *key* is no string, or *kernel* is no class.
        BackendError: the op has a registration under *key* already; ``places`` has both.
    """
    if not isinstance(op_name, str):
        name = getattr(op_name, "__name__", "LayerNormFwdOp")
        raise TypeError(f"op_name is {op_name!r}: write the op class's name as a string, {name!r}")
    if not isinstance(key, str):
        raise TypeError(f"key is {key!r}: write a snake_case string")
    if not isinstance(kernel, type):
        raise TypeError(f"kernel {key} of {op_name} is {kernel!r}, which is no class: register the class itself")
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    added = Registration(op_name, key, kernel, place, _source.get())
    with _lock:
        present = _table.get(op_name, ())
        for other in present:
            if other.key == key:
                raise BackendError(
                    f"{op_name} has a registered kernel under {key!r} already: {_named(other)}, and now "
                    f"{_named(added)}; register the second under another key",
                    op_name=op_name,
                    key=key,
                    places=(other.place, place),
                )
        _table[op_name] = (*present, added)


def registrations(op_name: str) -> tuple[Registration, ...]:
    """What is registered for an op class; the same tuple as long as that does not change."""
    return _table.get(op_name, ())


def known_op(name: str) -> None:
    """Note that an op class of that name is there; op classes do so when they are defined."""
    _known.add(name)


def unclaimed() -> tuple[Registration, ...]:
    """The registrations for ops of which no class is imported: ``tileops doctor`` lists them.

    Such a kernel is never chosen. Either the op's module has not been imported yet, or its name is misspelt.
    """
    return tuple(each for name, present in sorted(_table.items()) if name not in _known for each in present)


def withdraw(source: object) -> None:
    """Undo every registration that was made by *source*."""
    with _lock:
        for op_name, present in list(_table.items()):
            kept = tuple(each for each in present if each.source is not source)
            if not kept:
                del _table[op_name]
            elif len(kept) < len(present):
                _table[op_name] = kept


@contextlib.contextmanager
def registering_as(source: object) -> Iterator[None]:
    """Note *source* on what this thread registers in the block; a block that raises registers nothing."""
    token = _source.set(source)
    try:
        yield
    except BaseException:
        withdraw(source)
        raise
    finally:
        _source.reset(token)


def snapshot() -> Snapshot:
    """What is registered now, for :func:`restore`."""
    with _lock:
        return dict(_table)


def restore(before: Snapshot) -> None:
    """Register exactly what *before* holds."""
    with _lock:
        _table.clear()
        _table.update(before)


@contextlib.contextmanager
def sandbox(*, empty: bool = False) -> Iterator[None]:
    """Undo at the end of the block whatever was registered in it, for tests.

    Args:
        empty: Begin the block with nothing registered.
    """
    before = snapshot()
    if empty:
        restore({})
    try:
        yield
    finally:
        restore(before)


def _named(registration: Registration) -> str:
    kernel = registration.kernel
    return f"{kernel.__module__}.{kernel.__qualname__} at {registration.place}"
