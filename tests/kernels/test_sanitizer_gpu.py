"""compute-sanitizer finds nothing in one small call of every kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.kernels.each_kernel import RUNS, runnable
from tileops import ops
from tileops.ops.op_base import Op

FAILED = 77
"""What the tool is to exit with where it found something."""
LIMIT_S = 900


def test_every_kernel_of_every_op_has_a_call() -> None:
    found = {
        (op, key)
        for op in vars(ops).values()
        if isinstance(op, type) and issubclass(op, Op) and op is not Op
        for key in op.kernel_types
    }
    assert found == set(RUNS)


@pytest.mark.gpu
@pytest.mark.nightly
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_finds_nothing(tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    each = [sys.executable, "-m", "tests.kernels.each_kernel"]
    expected = f"{len(list(runnable()))} kernels ran"
    # Once without the tool: what TileLang compiles is on disk then, and the compiler is not watched.
    plain = subprocess.run(each, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert expected in plain.stdout, plain.stderr
    # torch's allocator gives pieces of large allocations away: without it each tensor has bounds of its own.
    alone = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    watched = subprocess.run(
        [sanitizer, "--tool", tool, "--error-exitcode", str(FAILED), *each],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=alone,
        check=False,
    )
    assert watched.returncode == 0, watched.stdout[-8000:] + watched.stderr[-2000:]
    assert expected in watched.stdout
