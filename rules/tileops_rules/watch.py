"""Sees to it that a rule, while it is lifted, calls nothing outside its own package and a short allow-list."""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from tileops_rules.outcome import MARK_START

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

_TOGGLES: Final = sys.version_info < (3, 12)
"""Setting a profile function is cheap before Python 3.12; later it instruments code anew, so it stays for a rule."""

_IMPURE_BUILTINS: Final = frozenset(
    {"breakpoint", "delattr", "eval", "exec", "globals", "id", "input", "locals", "open", "print", "setattr"}
)
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
    """A context in which calls are looked at, from ``resume`` on, by ``sys.setprofile`` (of this thread alone).

    Attributes:
        looking: Calls are looked at now.

    Args:
        own: Top-level packages that may be called.
        refuse: Called with the frame and the cause where anything else is.
    """

    def __init__(self, own: frozenset[str], refuse: Callable[[Any, str], NoReturn]) -> None:
        self._allowed = own | ALLOWED_MODULES
        self._refuse = refuse
        # By identity: code objects of two modules may be equal.
        self._seen: dict[int, types.CodeType] = {}
        self._ours: dict[int, types.CodeType] = {}
        self._active = False
        self.looking = False
        self._caught: Callable[[Any, BaseException], None] | None = None
        self._traced: Any = None

    @contextmanager
    def throughout(self) -> Iterator[None]:
        """The context of all paths: what was watching before is put back at its end."""
        before = sys.getprofile()
        if not _TOGGLES:
            sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(before if callable(before) else None)
            if before is not None and not callable(before):
                before.enable()  # cProfile before Python 3.12, which setprofile() cannot put back

    def over(self, caught: Callable[[Any, BaseException], None] | None) -> Watch:
        """The context of one path; *caught* is called for each exception in a rule that has handlers of its own."""
        self._caught = caught
        return self

    def __enter__(self) -> None:
        self._active = True
        if self._caught is not None:
            self._traced = sys.gettrace()
            sys.settrace(self._trace)

    def __exit__(self, *_error: object) -> None:
        self.pause()
        self._active = False
        if self._caught is not None:
            sys.settrace(self._traced)

    def _trace(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_lines = False
        if event == "exception" and self._caught is not None:
            self._caught(frame, arg[1])
        return self._trace

    def pause(self) -> None:
        """Look away while the explorer does its own work, which is most of the calls."""
        if self.looking:
            self.looking = False
            if _TOGGLES:
                sys.setprofile(None)

    def resume(self) -> None:
        """Look, or look again."""
        if self._active and not self.looking:
            self.looking = True
            if _TOGGLES:
                sys.setprofile(self._look)

    def _look(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if id(frame.f_code) not in self._seen and self.looking:
                self._called(frame, frame.f_code)
        elif event == "c_call" and id(frame.f_code) not in self._ours and self.looking:
            self._called_built_in(frame, arg)

    def _called(self, frame: types.FrameType, code: types.CodeType) -> None:
        module = str(frame.f_globals.get("__name__") or "").split(".")[0]
        if module not in self._allowed:
            self._stop(frame.f_back, f"{frame.f_globals.get('__name__')}.{code.co_qualname}")
        self._seen[id(code)] = code

    def _called_built_in(self, frame: types.FrameType, function: Any) -> None:
        if str(frame.f_globals.get("__name__")).startswith("tileops_rules."):
            self._ours[id(frame.f_code)] = frame.f_code
            return
        self._check_receiver(frame, function)
        owner = function.__module__
        if owner is None:
            bound = function.__self__
            kind = bound if isinstance(bound, type) else type(bound)
            if kind.__module__.split(".")[0] in self._allowed:
                return
            if kind.__module__ == "torch" and kind.__name__ in _PURE_TORCH_TYPES:
                return
            owner = f"{kind.__module__}.{kind.__name__}"
        elif owner.split(".")[0] in self._allowed and not _is_impure(function):
            return
        self._stop(frame, f"{owner}.{function.__name__}")

    def _check_receiver(self, frame: types.FrameType, function: Any) -> None:
        """Refuse methods that look at the text of a field."""
        receiver = getattr(function, "__self__", None)
        if (
            isinstance(receiver, str)
            and str.__contains__(receiver, MARK_START)
            and function.__name__ not in ("format", "join")
        ):
            self.pause()
            self._refuse(frame, f"looks at the text of a field, by {function.__name__}(): compare the field itself")

    def _stop(self, frame: types.FrameType | None, name: str) -> NoReturn:
        self.pause()
        self._refuse(
            frame,
            f"calls {name}, outside its own package and the allowed modules: a rule is a function of the call alone",
        )
