"""What every test may rely on: settings for hypothesis, and what is done where a GPU or nvcc is missing.

Nothing here imports torch: the tests of ``rules`` and ``solver`` run where it is not installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
REQUIRE_NVCC = "TILEOPS_REQUIRE_NVCC"

settings.register_profile(
    "tileops",
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tileops")


def pytest_configure(config: pytest.Config) -> None:
    """Give every test modes of its own: the caller's environment must not decide results."""
    os.environ.pop("TILEOPS_PROOF", None)
    os.environ.pop("TILEOPS_GENERAL", None)
    os.environ["TILEOPS_TUNING"] = "off"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot do, with the reason."""
    if item.get_closest_marker("compile"):
        from tileops.kernels import tilelang_build

        if tilelang_build.nvcc_path() is None:
            pytest.skip("there is no nvcc, so kernels are not compiled here; install the CUDA toolkit")
    if item.get_closest_marker("gpu"):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a compile test into a failure where TILEOPS_REQUIRE_NVCC=1 says that nvcc is there."""
    report = yield
    required = os.environ.get(REQUIRE_NVCC, "0") not in ("", "0")
    if report.skipped and required and item.get_closest_marker("compile"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{REQUIRE_NVCC} is set, so this compile test must run: {reason}"
    return report


@pytest.fixture(scope="session")
def fresh_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python ARGUMENTS...`` in a new process that finds this tree, whether it is installed or not.

    Keyword ``env`` adds variables to the environment; ``cwd`` is the folder to run in.
    """
    folders = [str(ROOT), str(ROOT / "rules"), str(ROOT / "solver")]
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(
        *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path, **(env or {})}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
        )

    return run
