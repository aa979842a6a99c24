"""Keeps standard output for what a command says itself, whatever the modules that it imports print."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import TextIO

__all__ = ["standard_output_kept"]


@contextlib.contextmanager
def standard_output_kept() -> Iterator[None]:
    """While inside, what is printed to standard output goes to standard error, from Python and from C alike.

    What foreign modules print as the process ends goes there too.
    """
    ours = _descriptor_of(sys.stdout)
    if ours is None:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    _flush()
    kept = os.dup(ours)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            os.dup2(_descriptor_of(sys.stderr) or 2, ours)
            yield
    finally:
        _flush()
        os.dup2(kept, ours)
        os.close(kept)
        # Handlers run last in, first out: this one runs before those of the modules imported above.
        atexit.register(_divert, ours)


def _descriptor_of(stream: TextIO) -> int | None:
    """The file descriptor of a stream of the process, None where it is something else (a test's buffer)."""
    if stream not in (sys.__stdout__, sys.__stderr__):
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _divert(descriptor: int) -> None:
    _flush()
    os.dup2(2, descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
