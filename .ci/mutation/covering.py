"""Which test runs which line: recorded once, every test in a child of its own so that no cache hides a line."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from asking import calm_hypothesis, run_pytest
from forking import Limits, Work, in_children
from project import Project

__all__ = ["TestMap", "record"]

_SLOW_S = 0.5


@dataclass
class TestMap:
    """What was recorded.

    Attributes:
        state: Digests of the sources and tests that it belongs to.
        seconds: Of every test that may be asked, what it took.
        lines: By file, by test, its lines, as a number with a bit for each line.
        imported: By file, the lines that imports and collection run.
        left_out: Tests that are not asked, with the reason.
    """

    __test__ = False

    state: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, int]] = field(default_factory=dict)
    imported: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        told = dict(self.__dict__)
        told["lines"] = {file: {t: hex(m) for t, m in tests.items()} for file, tests in self.lines.items()}
        told["imported"] = {file: hex(m) for file, m in self.imported.items()}
        path.write_text(json.dumps(told))

    @classmethod
    def read(cls, path: Path) -> TestMap:
        """Read it from a file."""
        told = json.loads(path.read_text())
        told["lines"] = {file: {t: int(m, 16) for t, m in tests.items()} for file, tests in told["lines"].items()}
        told["imported"] = {file: int(m, 16) for file, m in told["imported"].items()}
        return cls(**told)

    def leave_out(self, test: str, why: str) -> None:
        """Ask *test* no more."""
        self.left_out[test] = why
        self.seconds.pop(test, None)
        for tests in self.lines.values():
            tests.pop(test, None)

    def chosen(
        self, file: str, line: int, end: int, statement: tuple[int, int], of_tables: Container[str] = ()
    ) -> tuple[list[str], bool]:
        """The tests that can notice a change of lines *line* to *end*, the likely ones first.

        And whether any of them is known to run one of these lines. Fast tests come first; of one with many parameters
        each further one counts as slower, since they mostly notice the same things.

        A line that is run on import is noticed by anybody who reads what it made: every test is chosen, first those
        in the files *of_tables* and those that run others of its file. A line that no test runs may be one that
        coverage cannot see (in a profile or trace function): those that run others of its file are chosen.
        """
        for first, last in ((line, end), statement):
            mask = ((1 << (last + 1)) - 1) & ~((1 << first) - 1)
            # The line above counts too: a continue of which the compiler made a jump has none of its own.
            seen = mask | (1 << (first - 1)) & ~self.imported.get(file, 0)
            direct = {test for test, lines in self.lines.get(file, {}).items() if lines & seen}
            at_import = self.imported.get(file, 0) & mask
            if direct or at_import:
                break
        imported = self.imported.get(file, 0)
        near = {test for test, lines in self.lines.get(file, {}).items() if lines & ~imported}
        rest = set(self.seconds) if at_import else near if not direct else set()
        likely = direct
        if at_import:  # where only a fresh process runs the line, that is a slow test of something else
            quick = {test for test in direct if self.seconds[test] < _SLOW_S}
            likely = quick | {test for test in rest if test.split("::")[0] in of_tables}
        tiers = {test: 0 if test in likely else 1 if test in near else 2 for test in direct | rest}
        turns: dict[tuple[int, str], int] = {}
        places = {}
        for test in sorted(tiers, key=lambda test: (self.seconds[test], test)):
            name = tiers[test], test.split("[")[0]
            turn = turns[name] = turns.get(name, -1) + 1
            places[test] = tiers[test], self.seconds[test] * math.sqrt(turn + 1), test
        return sorted(places, key=places.__getitem__), bool(direct or at_import)


class _Recorder:
    """A pytest plugin that runs every test in a child of its own, with coverage."""

    def __init__(self, project: Project, jobs: int, kept: TestMap | None, done: Callable[[int, int], None]) -> None:
        self.project, self.jobs, self.done = project, jobs, done
        self.map = TestMap(project.state())
        self.kept = kept if kept is not None and kept.state[""] == self.map.state[""] else None
        self.importing = _Covered(project)
        self.importing.start()  # now: pytest imports the first conftest.py before it tells its plugins anything
        self.error: str | None = None

    def pytest_sessionstart(self) -> None:
        calm_hypothesis()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.error = f"{report.nodeid}: {report.longrepr}"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.map.imported = self.importing.stop()
        works = []
        for item in session.items:
            why = self.project.left_out.get(item.nodeid) or self._measures_time(item)
            if why:
                self.map.left_out[item.nodeid] = why
            elif not self._kept(item.nodeid):
                limits = Limits(300, 900, self.project.memory_gib)
                works.append(Work(item.nodeid, lambda item=item: self._one(item), limits))
        for count, ended in enumerate(in_children(works, self.jobs), 1):
            told = json.loads(ended.said) if ended.why == "done" else {"failed": f"{ended.why}: {ended.said.decode()}"}
            if told.get("failed"):
                self.map.left_out[ended.tag] = f"fails without any mutant: {told['failed'][-300:]}"
            elif not told["skipped"]:
                self.map.seconds[ended.tag] = round(told["seconds"], 4)
                for file, lines in told["lines"].items():
                    self.map.lines.setdefault(file, {})[ended.tag] = int(lines, 16)
            self.done(count, len(works))
        return True

    def _kept(self, test: str) -> bool:
        """Whether a test is known from a map that was recorded before: its file is the same, and the sources are."""
        file = test.split("::")[0]
        if self.kept is None or test not in self.kept.seconds or self.kept.state[file] != self.map.state[file]:
            return False
        self.map.seconds[test] = self.kept.seconds[test]
        for source, tests in self.kept.lines.items():
            if test in tests:
                self.map.lines.setdefault(source, {})[test] = tests[test]
        return True

    def _measures_time(self, item: pytest.Item) -> str:
        used = set(getattr(item, "fixturenames", ()))
        function = getattr(item, "function", None)
        if function is not None:
            used |= set(_names(function.__code__))
        found = sorted(used & self.project.timed)
        return f"measures time ({', '.join(found)})" if found else ""

    def _one(self, item: pytest.Item) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TILEOPS_MUTATION_LINES"] = folder
            os.environ["TILEOPS_MUTATION_SOURCE"] = os.pathsep.join(self.project.inside())
            covered = _Covered(self.project)
            covered.start()
            start = time.process_time()
            reports = runtestprotocol(item, nextitem=None, log=False)
            clock = sum(report.duration for report in reports)
            seconds = max(time.process_time() - start, clock if list(Path(folder).iterdir()) else 0.0)
            lines = covered.stop()
            for other in Path(folder).glob("*.json"):
                for file, more in json.loads(other.read_text()).items():
                    name = os.path.relpath(file, self.project.root)
                    lines[name] = lines.get(name, 0) | _mask(more)
        failed = next((str(report.longrepr) for report in reports if report.failed), "")
        skipped = any(report.skipped for report in reports)
        told = {"seconds": seconds, "failed": failed, "skipped": skipped}
        return json.dumps({**told, "lines": {file: hex(m) for file, m in lines.items()}}).encode()


class _Covered:
    """Coverage of the project's packages in this process."""

    def __init__(self, project: Project) -> None:
        import coverage

        self._root = project.root
        self._coverage = coverage.Coverage(data_file=None, include=project.inside(), config_file=False)

    def start(self) -> None:
        self._coverage.start()

    def stop(self) -> dict[str, int]:
        self._coverage.stop()
        data = self._coverage.get_data()
        return {os.path.relpath(file, self._root): _mask(data.lines(file) or ()) for file in data.measured_files()}


def _mask(lines: Any) -> int:
    mask = 0
    for line in lines:
        mask |= 1 << line
    return mask


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def record(
    project: Project, scratch: Path, jobs: int, kept: TestMap | None, progress: Callable[[int, int], None]
) -> TestMap:
    """Run every test once that *kept* does not have.

    Raises:
        RuntimeError: The tests cannot be collected.
    """
    path = scratch / "map.json"
    counted = scratch / "recorded"

    def run() -> bytes:
        def done(count: int, of: int) -> None:
            counted.write_text(f"{count} {of}")

        plugin = _Recorder(project, jobs, kept, done)
        code = run_pytest(project, scratch, project.tests, [plugin])
        if plugin.error or not plugin.map.seconds:
            return (plugin.error or f"pytest ended with {code} and no test passed").encode()
        plugin.map.write(path)
        return b""

    def tick() -> None:
        if counted.exists() and (text := counted.read_text()):
            count, of = text.split()
            progress(int(count), int(of))

    scratch.mkdir(parents=True, exist_ok=True)
    counted.unlink(missing_ok=True)
    for ended in in_children([Work("map", run, Limits(1000, 7200, project.memory_gib))], 1, tick):
        if ended.said or ended.why != "done":
            raise RuntimeError(f"the tests cannot be recorded ({ended.why}): {ended.said.decode()[-3000:]}")
    return TestMap.read(path)
