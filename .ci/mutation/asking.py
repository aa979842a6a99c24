"""Pytest, as a mutant is asked: chosen tests alone, in a given order, quiet, with a limit of time for each."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from project import Project

__all__ = ["Chosen", "run_pytest"]

_FIRST_LIMIT_S = 30.0
"""Processor time for imports and collection."""


class Chosen:
    """A pytest plugin.

    Attributes:
        failed: The tests that failed, or files that could not be collected, in order.
        asked: Number of tests that were run.
    """

    def __init__(self, seconds: dict[str, float], grace_s: float) -> None:
        """*seconds* has the chosen tests in order, each with the time it usually takes; *grace_s* is added to it."""
        self._seconds = seconds
        self._grace_s = grace_s
        self._order = {name: place for place, name in enumerate(seconds)}
        self._functions = {name.split("[")[0] for name in seconds}
        self.failed: list[str] = []
        self.asked = 0

    def pytest_sessionstart(self) -> None:
        """Before any test module is imported."""
        calm_hypothesis()
        signal.setitimer(signal.ITIMER_PROF, _FIRST_LIMIT_S)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests, in their order."""
        # A mutant can change the parameters of a test, and so its name: then all of that test are asked.
        here = {item.nodeid for item in items}
        renamed = {name.split("[")[0] for name in self._order if name not in here}
        chosen = [item for item in items if item.nodeid in self._order or item.nodeid.split("[")[0] in renamed]
        items[:] = sorted(chosen, key=lambda item: self._order.get(item.nodeid, len(self._order)))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Give a test five times what it takes, and the grace."""
        self.asked += 1
        signal.setitimer(signal.ITIMER_PROF, self._grace_s + 5 * self._seconds.get(item.nodeid, 1.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one that fails."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.failed.append(f"{report.nodeid or 'pytest'} (collecting)")


def calm_hypothesis() -> None:
    """The same examples each time, no deadline, and no search for a smaller one once a test has failed."""
    try:
        from hypothesis import HealthCheck, Phase, settings
    except ImportError:
        return
    settings.register_profile(
        "mutation",
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutation")


def run_pytest(project: Project, scratch: Path, files: Sequence[str], plugins: Sequence[Any], *options: str) -> int:
    """Run the tests in *files* in this process, a forked child; gives pytest's exit code."""
    project.prepare_child(scratch)
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "--assert=plain", "--tb=no"]
    return int(pytest.main([*files, *quiet, "--no-header", "--no-summary", *options], plugins=list(plugins)))
