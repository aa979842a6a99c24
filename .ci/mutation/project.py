"""The project that is mutated: its configuration, its modules, and the mark of their state."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HOOK = Path(__file__).with_name("hook")


@dataclass(frozen=True)
class Project:
    """What ``config.toml`` says.

    Attributes:
        root: The folder that all paths start from.
        packages: Folder of each package.
        tests: Folders or files of the tests.
        timed: Names whose use makes a test one that measures time.
        of_tables: Files of tests that hold tables and classes to what they should be: asked first about what runs on
            import.
        left_out: Tests that are not asked, with the reason.
        effort: Names of limits of effort: how much is tried before something gives up or takes another way. Another
            number is as right, so they are left alone.
        memory_gib: Address space of one mutant.
        grace_s: Processor time that a test may take beyond five times what it usually takes.
    """

    root: Path
    packages: dict[str, str]
    tests: tuple[str, ...]
    timed: frozenset[str]
    of_tables: frozenset[str]
    left_out: dict[str, str]
    effort: frozenset[str]
    memory_gib: float
    grace_s: float

    @classmethod
    def read(cls, root: Path, config: Path) -> Project:
        """Read the configuration."""
        told = tomllib.loads(config.read_text())
        tests = told["tests"]
        return cls(
            root.resolve(),
            told["packages"],
            tuple(tests["paths"]),
            frozenset(tests.get("timed", ())),
            frozenset(tests.get("of_tables", ())),
            tests.get("left_out", {}),
            frozenset(told.get("left_alone", {}).get("effort", ())),
            told.get("limits", {}).get("memory_gib", 6),
            told.get("limits", {}).get("grace_s", 5),
        )

    def modules(self) -> dict[str, str]:
        """The importable name of every module, by its file."""
        found = {}
        for folder in self.packages.values():
            above = (self.root / folder).parent
            for path in sorted((self.root / folder).rglob("*.py")):
                parts = path.relative_to(above).with_suffix("").parts
                found[str(path.relative_to(self.root))] = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        return found

    def inside(self) -> list[str]:
        """Patterns of the files of the packages, as coverage takes them."""
        return [f"{self.root / folder}/*" for folder in self.packages.values()]

    def search_path(self) -> list[str]:
        """Folders that a Python which runs the tests must find first: the hook, and those of the packages."""
        above = [str((self.root / folder).parent) for folder in self.packages.values()]
        return [str(HOOK), *dict.fromkeys([*above, str(self.root)])]

    def state(self) -> dict[str, str]:
        """Digests of everything on which the map of tests depends: one a file of tests, and one for all else."""
        tests: dict[str, str] = {}
        rest = hashlib.sha256(sys.version.encode())
        for folder in (*self.packages.values(), *self.tests, "tests/conftest.py"):
            start = self.root / folder
            for path in sorted(start.rglob("*.py")) if start.is_dir() else [start]:
                name = str(path.relative_to(self.root))
                if path.name.startswith("test_"):
                    tests[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
                elif path.is_file():
                    rest.update(f"{name}\0".encode() + path.read_bytes())
        return {"": rest.hexdigest()[:16], **tests}

    def prepare_child(self, scratch: Path) -> None:
        """Set up this process, a forked child, and those that it starts, to run tests of this project."""
        os.chdir(self.root)
        path = self.search_path()
        sys.path[:0] = path
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
        os.environ["CI"] = "true"  # hypothesis draws the same examples each time
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(scratch / "pyc")
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(scratch / "hypothesis")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
