"""The one module that imports z3, when the first question is asked."""

from __future__ import annotations

from typing import Any

__all__ = ["load", "version"]


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
    return z3


def version() -> str:
    """The version of z3 as text."""
    text: str = load().get_version_string()
    return text
