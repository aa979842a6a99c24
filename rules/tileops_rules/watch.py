"""Sees to it that a rule, while it is lifted, calls nothing outside its own package and a short allow-list."""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Final, NoReturn

__all__ = ["ALLOWED_MODULES", "Watch", "collector_paused"]

ALLOWED_MODULES: Final = frozenset(
    {
        "builtins",
        "math",
        "operator",
        "_operator",
        "itertools",
        "functools",
        "_functools",
        "abc",
        "_abc",
        "dataclasses",
        "enum",
        "types",
        "typing",
        "fractions",
        "tileops_rules",
    }
)
"""Top-level modules whose functions any rule may call."""

_IMPURE_BUILTINS: Final = frozenset({"breakpoint", "eval", "exec", "globals", "id", "input", "locals", "open", "print"})
_PURE_TORCH_TYPES: Final = frozenset({"dtype", "finfo", "iinfo", "Size"})


def _is_impure(function: Any) -> bool:
    return function.__self__ is builtins and function.__name__ in _IMPURE_BUILTINS


class _CollectorPaused:
    """A context without garbage collection: its callbacks and finalizers would run as if the rule had called them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_enabled:
                gc.enable()


collector_paused: Final = _CollectorPaused()


class Watch:
    """A context in which calls are looked at, from ``resume`` on, by ``sys.setprofile`` (of this thread alone)."""

    def __init__(self, own: frozenset[str], refuse: Callable[[Any, str], NoReturn]) -> None:
        self._allowed = own | ALLOWED_MODULES
        self._refuse = refuse
        self._seen: set[types.CodeType] = set()
        self._before: Any = None
        self._active = False

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        self._active = True

    def __exit__(self, *_error: object) -> None:
        self._active = False
        sys.setprofile(self._before)

    def pause(self) -> None:
        """Look away while the explorer does its own work, which is most of the calls."""
        if self._active:
            sys.setprofile(None)

    def resume(self) -> None:
        """Look, or look again."""
        if self._active:
            sys.setprofile(self._look)

    def _look(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code in self._seen:
                return
            module = str(frame.f_globals.get("__name__") or "").split(".")[0]
            if module in self._allowed:
                self._seen.add(code)
                return
            self._stop(frame.f_back, f"{frame.f_globals.get('__name__')}.{code.co_qualname}")
        elif event == "c_call":
            if frame.f_globals.get("__name__", "").startswith("tileops_rules."):
                return
            owner = arg.__module__
            if owner is None:
                bound = arg.__self__
                kind = bound if isinstance(bound, type) else type(bound)
                if kind.__module__.split(".")[0] in self._allowed:
                    return
                if kind.__module__ == "torch" and kind.__name__ in _PURE_TORCH_TYPES:
                    return
                owner = f"{kind.__module__}.{kind.__name__}"
            elif owner.split(".")[0] in self._allowed and not _is_impure(arg):
                return
            self._stop(frame, f"{owner}.{arg.__name__}")

    def _stop(self, frame: types.FrameType | None, name: str) -> NoReturn:
        sys.setprofile(None)
        self._refuse(
            frame,
            f"calls {name}, outside its own package and the allowed modules: a rule is a function of the call alone",
        )
