"""Where in the user's code a message belongs."""

from __future__ import annotations

import sys

__all__ = ["outside_stacklevel"]

_PACKAGE = __name__.partition(".")[0]


def outside_stacklevel() -> int:
    """The ``stacklevel`` with which a warning of the calling function names code outside this package."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name != _PACKAGE and not name.startswith(f"{_PACKAGE}."):
            break
        frame = frame.f_back
        level += 1
    return level
