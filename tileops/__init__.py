"""Operators whose kernel choice is proved: TileLang kernels for CUDA, torch references for CPU."""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"

_ROOMS = frozenset({"backend", "kernels", "ops", "reference"})


def __getattr__(name: str) -> ModuleType:
    """Import a room when it is first asked for: ``import tileops`` alone loads no torch."""
    if name in _ROOMS:
        return importlib.import_module(f"tileops.{name}")
    raise AttributeError(f"module 'tileops' has no attribute {name!r}")
