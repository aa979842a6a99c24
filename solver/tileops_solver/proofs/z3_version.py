"""The version of the installed z3, without importing it: that takes longer than most ops to construct."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import metadata, util
from typing import Final

from tileops_solver import z3_backend

__all__ = ["installed"]

_START: Final = "z3_solver-"
_END: Final = ".dist-info"


def installed(likely: str = "") -> str | None:
    """The version of the z3 that an import would find; None where there is none.

    It is the distribution's version, read off the name of the folder that the installer leaves beside the package.
    Where there is no such folder, the metadata are asked, and then z3 itself.

    Args:
        likely: The version to look for first.
    """
    folder = next(_folders(), None)
    if folder is None:
        return _otherwise()
    if likely and os.path.isdir(os.path.join(folder, f"{_START}{likely}{_END}")):
        return likely
    found = [name for name in os.listdir(folder) if name.startswith(_START) and name.endswith(_END)]
    return found[0].removeprefix(_START).removesuffix(_END) if len(found) == 1 else _otherwise()


def _folders() -> Iterator[str]:
    """The folders on the path that hold a package z3, in order."""
    for entry in sys.path:
        if os.path.isfile(os.path.join(entry or os.curdir, "z3", "__init__.py")):
            yield entry or os.curdir


def _otherwise() -> str | None:
    try:
        if util.find_spec("z3") is None:
            return None
    except ValueError:  # a module without a spec stands in sys.modules: only z3 itself can say
        return z3_backend.version()
    try:
        return metadata.version("z3-solver")
    except metadata.PackageNotFoundError:
        return z3_backend.version()
