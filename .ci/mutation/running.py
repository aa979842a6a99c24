"""One mutant after the other: which tests are asked, and how each ended."""

from __future__ import annotations

import json
import marshal
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from asking import Chosen, run_pytest
from covering import TestMap
from forking import Ended, Limits, Work, in_children
from hook.sitecustomize import MUTATED, install
from mutants import Mutant, compiled
from project import Project

__all__ = ["Result", "Runner"]

_COLLECTION_ERROR = 2


@dataclass(frozen=True)
class Result:
    """How one mutant ended.

    Attributes:
        key: Its name.
        module: Its file.
        line: Where.
        operator: What kind of fault.
        outcome: ``"killed"``, ``"survived"`` or ``"same"``: the compiler makes the same code of it.
        how: Of a killed one ``"test"``, ``"import"``, ``"time"`` or ``"fell"``; of a survivor ``"asked"`` or
            ``"no test"`` where none is known to run the line.
        by: The test that failed.
        chosen: Number of tests that can notice it.
        asked: Number of tests that were run.
        seconds: On the clock.
    """

    key: str
    module: str
    line: int
    operator: str
    outcome: str
    how: str
    by: str = ""
    chosen: int = 0
    asked: int = 0
    seconds: float = 0.0

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Runner:
    """Asks the tests of a project about mutants."""

    def __init__(self, project: Project, scratch: Path, tests: TestMap, most_s: float) -> None:
        """*most_s* is the most time of tests that one mutant is given, as the map has it."""
        self._project, self._scratch, self._tests, self._most_s = project, scratch, tests, most_s
        self._names = project.modules()
        self._sources: dict[str, str] = {}
        self._plain: dict[str, bytes] = {}
        self._killers: dict[tuple[str, str], Counter[str]] = {}

    def source(self, module: str) -> str:
        """The text of a module, as it was when first read."""
        if module not in self._sources:
            self._sources[module] = (self._project.root / module).read_text()
        return self._sources[module]

    def unmutated(self) -> list[str]:
        """The tests that fail where a module is replaced by itself, one after the other in one process.

        Raises:
            RuntimeError: they cannot be run so.
        """
        module = max(self._tests.lines, key=lambda file: len(self._tests.lines[file]))
        order = sorted(self._tests.seconds, key=lambda test: self._tests.seconds[test])
        code = compiled(self.source(module), self._path(module), None)
        (ended,) = in_children([self._work(None, module, code, order, "--maxfail=1000")], 1)
        told = json.loads(ended.said) if ended.why == "done" else {"asked": 0}
        if told["asked"] != len(order):
            said = ended.said.decode()[-2000:]
            raise RuntimeError(
                f"{told['asked']} of {len(order)} tests were run without any mutant ({ended.why}): {said}"
            )
        failed: list[str] = told["failed"]
        return failed

    def run(self, mutants: Iterable[Mutant], jobs: int, tick: Callable[[], None]) -> Iterator[Result]:
        """Ask about each of *mutants*, *jobs* at a time; results come as they are ready."""
        ready: list[Result] = []
        for ended in in_children(self._works(mutants, ready), jobs, tick):
            yield from ready
            ready.clear()
            yield self._result(ended)
        yield from ready

    def _works(self, mutants: Iterable[Mutant], ready: list[Result]) -> Iterator[Work]:
        for mutant in mutants:
            source, path = self.source(mutant.module), self._path(mutant.module)
            chosen, seen = self._tests.chosen(
                mutant.module, mutant.line, mutant.end, mutant.statement, self._project.of_tables
            )
            known = self._killers.get((mutant.module, mutant.function), Counter())
            order = self._affordable(sorted(chosen, key=lambda test: -known[test]))
            try:
                code = compiled(source, path, mutant.index, self._project.effort)
            except (SyntaxError, ValueError):
                ready.append(_result(mutant, "killed", "import"))
                continue
            if mutant.module not in self._plain:
                self._plain[mutant.module] = marshal.dumps(compiled(source, path, None))
            if marshal.dumps(code) == self._plain[mutant.module]:
                ready.append(_result(mutant, "same", "compiler"))
            elif not order:
                ready.append(_result(mutant, "survived", "no test"))
            else:
                yield self._work((mutant, len(chosen), seen), mutant.module, code, order)

    def _affordable(self, order: list[str]) -> list[str]:
        taken, left = [], self._most_s
        for test in order:
            if self._tests.seconds[test] <= left or not taken:
                taken.append(test)
                left -= self._tests.seconds[test]
        return taken

    def _path(self, module: str) -> str:
        return str(self._project.root / module)

    def _work(self, tag: Any, module: str, code: Any, order: list[str], *options: str) -> Work:
        name, path = self._names[module], self._path(module)
        seconds = {test: self._tests.seconds[test] for test in order}
        total = sum(seconds.values())

        def run() -> bytes:
            kept = self._scratch / f"mutated-{os.getpid()}"
            kept.write_bytes(marshal.dumps(code))
            try:
                os.environ[MUTATED] = f"{name}:{path}:{kept}"
                install(name, path, code)
                plugin = Chosen(seconds, self._project.grace_s)
                files = list(dict.fromkeys(test.split("::")[0] for test in order))
                exit_code = run_pytest(self._project, self._scratch, files, [plugin], *(options or ("-x",)))
            finally:
                kept.unlink()
            told = {"code": exit_code, "failed": plugin.failed, "asked": plugin.asked}
            return json.dumps(told).encode()

        return Work(tag, run, Limits(60 + 5 * total, 300 + 20 * total, self._project.memory_gib))

    def _result(self, ended: Ended) -> Result:
        mutant, chosen, seen = ended.tag
        if ended.why != "done":
            return _result(mutant, "killed", ended.why, ended.said.decode()[-300:], chosen, 0, ended.seconds)
        told = json.loads(ended.said)
        killer = told["failed"][0] if told["failed"] else ""
        if told["code"] == 0 or (told["code"] == 5 and not killer):
            how = "asked" if seen else "no test"
            return _result(mutant, "survived", how, "", chosen, told["asked"], ended.seconds)
        if "::" in killer:
            self._killers.setdefault((mutant.module, mutant.function), Counter())[killer] += 1
        how = "import" if told["code"] == _COLLECTION_ERROR else "test"
        return _result(mutant, "killed", how, killer, chosen, told["asked"], ended.seconds)


def _result(
    mutant: Mutant, outcome: str, how: str, by: str = "", chosen: int = 0, asked: int = 0, seconds: float = 0.0
) -> Result:
    place = (mutant.key, mutant.module, mutant.line, mutant.operator)
    return Result(*place, outcome, how, by, chosen, asked, round(seconds, 2))


def warm_up() -> None:
    """Import here, once, what every child would import: the packages of others, and none of the project's."""
    for name in ("hypothesis", "hypothesis.strategies", "z3", "networkx", "click.testing", "rich.progress", "coverage"):
        try:
            __import__(name)
        except ImportError:
            continue
    if "torch" in sys.modules:
        raise RuntimeError("torch is loaded: its threads do not survive a fork")
