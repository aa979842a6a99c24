"""The few questions that an examination asks of its machine, so that tests can answer them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tileops.kernels.tilelang_build import nvcc_path

__all__ = ["Machine"]


class Machine:
    """The machine this runs on. Each method raises what its source raises; nothing is hidden."""

    def python(self) -> str:
        """Return the interpreter's version and the system."""
        return f"{platform.python_version()} on {platform.system()} {platform.machine()}"

    def load(self, module: str) -> ModuleType:
        """Import *module*; what it prints while it is imported goes to standard error."""
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(module)

    def version(self, distribution: str) -> str:
        """Return the version of an installed *distribution*."""
        return importlib.metadata.version(distribution)

    def providers(self) -> Mapping[str, list[str]]:
        """Return the distributions that provide each import name."""
        return importlib.metadata.packages_distributions()

    def folder(self, package: str) -> Path | None:
        """Return the folder from which *package* would be imported, ``None`` where it is not found."""
        spec = importlib.util.find_spec(package)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or [])
        if places:
            return Path(places[0]).resolve()
        return Path(spec.origin).resolve() if spec.origin else None

    def nvcc(self) -> str | None:
        """Return where the nvcc lies with which kernels are built, ``None`` where there is none."""
        return nvcc_path()

    def output(self, *command: str) -> str:
        """Run *command* and return its standard output; 30 seconds at most."""
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
