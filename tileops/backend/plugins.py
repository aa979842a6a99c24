"""Plug-ins: installed distributions that register kernels through an entry point.

Each entry point of the group ``tileops.backends`` is a callable without arguments. All are called once, at
the first op construction, in the order of their names. A plug-in that raises, or whose kernels make an op
fail its construction checks, is taken out whole: everything it registered is undone, a ``RuntimeWarning``
says why, and :func:`load_failures` keeps the exception. With ``TILEOPS_PROOF=strict`` it is raised as well.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import sys
import threading
import warnings
from collections import deque
from importlib.machinery import PathFinder
from typing import Any, Final

from tileops.backend.errors import BackendError
from tileops.backend.places import outside_stacklevel
from tileops.backend.registry import registering_as, withdraw

__all__ = ["GROUP", "Failure", "Plugin", "ensure_loaded", "failures", "load_failures", "reject"]

GROUP: Final = "tileops.backends"
"""The entry point group."""


@dataclasses.dataclass(frozen=True, eq=False)
class Plugin:
    """One entry point.

    Attributes:
        name: Its name; with the distribution where two distributions use one name.
        distribution: The distribution that has it, with its version.
        entry_point: The entry point.
    """

    name: str
    distribution: str
    entry_point: Any

    def __str__(self) -> str:
        return f"backend plug-in {self.name!r} of distribution {self.distribution}"


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a plug-in was taken out.

    Attributes:
        plugin: The plug-in.
        error: What it raised, or what the op raised with its kernels.
        op_name: The op class that failed its checks; None where the plug-in itself raised.
    """

    plugin: Plugin
    error: BaseException
    op_name: str | None

    def __str__(self) -> str:
        cause = f"{type(self.error).__name__}: {self.error}"
        if self.op_name is None:
            return f"{self.plugin} raised while it registered kernels, and all of them were left out: {cause}"
        return (
            f"{self.plugin} was taken out with everything it registered, because {self.op_name} "
            f"cannot be constructed with its kernels: {cause}"
        )


class _State:
    """What was found and called; replaced as a whole by tests."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.waiting: deque[Plugin] | None = None
        self.calling = False
        self.done = False
        self.failures: tuple[Failure, ...] = ()


_state = _State()


def ensure_loaded() -> None:
    """Find and call the plug-ins, where that was not done before.

    Returns at once inside a plug-in's own call, so that it may construct ops. A plug-in that is interrupted
    (``KeyboardInterrupt``) is called again by the next construction.
    """
    state = _state
    if state.done:
        return
    with state.lock:
        if state.done or state.calling:
            return
        if state.waiting is None:
            state.waiting = deque(_discover())
        failed: list[Failure] = []
        state.calling = True
        try:
            while state.waiting:
                plugin = state.waiting[0]
                error = _called(plugin)
                state.waiting.popleft()
                if error is not None:
                    failed.append(Failure(plugin, error, None))
            state.done = True
        finally:
            state.calling = False
            state.failures += tuple(failed)
    for failure in failed:
        _warn(failure)


def failures(op_name: str) -> tuple[Failure, ...]:
    """The failures that concern an op class: of plug-ins that raised, and of those whose kernels broke it."""
    return tuple(each for each in _state.failures if each.op_name is None or each.op_name == op_name)


def load_failures() -> dict[str, BaseException]:
    """The plug-ins that were taken out, by name, each with the exception that says why."""
    return {each.plugin.name: each.error for each in _state.failures}


def reject(plugin: Plugin, error: Exception, op_name: str) -> Failure:
    """Take *plugin* out because *op_name* cannot be constructed with its kernels, and warn."""
    withdraw(plugin)
    failure = Failure(plugin, error.with_traceback(None), op_name)
    with _state.lock:
        _state.failures += (failure,)
    _warn(failure)
    return failure


def raised(failure: Failure) -> Exception:
    """The exception that ``strict`` raises for a failure: the op's own, or one about the plug-in."""
    if failure.op_name is not None and isinstance(failure.error, Exception):
        return failure.error
    error = BackendError(
        f"{failure}; correct or uninstall it",
        plugin=failure.plugin.name,
        distribution=failure.plugin.distribution,
    )
    error.__cause__ = failure.error
    return error


def _mentioned() -> bool:
    """Whether an installed distribution may have an entry point of the group.

    Where none has, as is usual, the files that say so are read in a third of the time that a list of all entry points
    takes to make. Where distributions come from elsewhere than folders of the search path, the list is made.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return True
    group = GROUP.encode()
    for folder in sys.path:
        try:
            entries = os.scandir(folder or ".")
        except NotADirectoryError:
            return True  # an archive
        except OSError:
            continue
        with entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info", ".egg")):
                    inside = "/EGG-INFO/entry_points.txt" if entry.name.endswith(".egg") else "/entry_points.txt"
                    try:
                        with open(entry.path + inside, "rb") as file:
                            if group in file.read():
                                return True
                    except OSError:
                        continue
    return False


def _discover() -> list[Plugin]:
    if not _mentioned():
        return []
    found: list[Plugin] = []
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: (point.name, _distribution(point)))
    names: set[str] = set()
    for point in points:
        distribution = _distribution(point)
        name = f"{point.name} ({distribution})" if point.name in names else point.name
        names.add(point.name)
        found.append(Plugin(name, distribution, point))
    return found


def _distribution(point: Any) -> str:
    distribution = getattr(point, "dist", None)
    if distribution is None:
        return "(unknown)"
    return f"{distribution.name} {distribution.version}"


def _called(plugin: Plugin) -> Exception | None:
    try:
        with registering_as(plugin):
            plugin.entry_point.load()()
    except Exception as error:  # noqa: BLE001 - whatever another package raises, ops without it must work
        return error
    return None


def _warn(failure: Failure) -> None:
    warnings.warn(str(failure), RuntimeWarning, stacklevel=outside_stacklevel())
