"""Puts one changed module in the place of the one on disk: in this process, and in each Python that it starts.

Python runs this file by itself where its folder is on ``PYTHONPATH``. It imports the standard library alone.

Variables of the environment, each unset where it does not apply:
    TILEOPS_MUTATED: ``module name:file:file of its marshalled code``.
    TILEOPS_MUTATION_LINES: a folder in which this process leaves the lines that it ran, of the files that the patterns
        in ``TILEOPS_MUTATION_SOURCE`` fit.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import marshal
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

MUTATED = "TILEOPS_MUTATED"
LINES = "TILEOPS_MUTATION_LINES"
SOURCE = "TILEOPS_MUTATION_SOURCE"


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a file's module with other code; everything else, its source too, is the file's."""

    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, self.path)
        loader.code = self.code
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


def install(name: str, path: str, code: CodeType) -> None:
    """Let the next import of *name* run *code*."""
    sys.meta_path.insert(0, _Finder(name, path, code))


def _collect_lines(folder: str) -> None:
    import coverage

    watched = coverage.Coverage(data_file=None, include=os.environ[SOURCE].split(os.pathsep), config_file=False)
    watched.start()

    def leave() -> None:
        watched.stop()
        data = watched.get_data()
        lines = {path: sorted(data.lines(path) or ()) for path in data.measured_files()}
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(lines))

    atexit.register(leave)


if MUTATED in os.environ:
    _name, _path, _code = os.environ[MUTATED].split(":")
    install(_name, _path, marshal.loads(Path(_code).read_bytes()))
if LINES in os.environ:
    _collect_lines(os.environ[LINES])
