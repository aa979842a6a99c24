"""The one module that imports z3, when the first question is asked."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Final

__all__ = ["load", "version"]

_SETTINGS: Final = (
    ("MALLOC_MMAP_THRESHOLD_", -3, 32 << 20),
    ("MALLOC_TRIM_THRESHOLD_", -1, 64 << 20),
)
"""Settings of glibc's allocator: variable with which a user chooses it, number for ``mallopt``, bytes."""


def load() -> Any:
    """The z3 module.

    Raises:
        ImportError: z3 is not installed.
    """
    try:
        import z3
    except ImportError as error:
        raise ImportError(
            f"proofs need z3 ({error}): pip install z3-solver. Selecting and explaining work without it"
        ) from error
    _keep_memory()
    return z3


@functools.cache
def _keep_memory() -> None:
    """Let the C library keep what a context has freed for the next one.

    A context is about 10 MB in one piece. Given back to the system and asked for again with each question, it takes
    up to 7 ms, where the question itself takes 2; at most 64 MB are kept. Where the C library is not glibc, or a user
    has chosen otherwise, everything stays as it is.
    """
    if any(name in os.environ for name, _, _ in _SETTINGS):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for _, number, size in _SETTINGS:
        mallopt(number, size)


def version() -> str:
    """The version of z3 as text."""
    text: str = load().get_version_string()
    return text
