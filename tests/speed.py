"""How fast this machine is at the moment: what tests allow in seconds is meant for it as it usually is.

Where others run on the same processor a test may take half as long again, and with it everything else does.
"""

from __future__ import annotations

import time

__all__ = ["slowness"]

USUAL_S = 7.5e-3
"""What :func:`_counted` takes where the limits of tests were set: an Intel Xeon of 2 cores, CPython 3.11, idle."""


def _counted() -> float:
    start = time.process_time()
    total = 0
    for i in range(100_000):
        total += i * i % 7
    return time.process_time() - start


def slowness() -> float:
    """How many times longer than usual a fixed piece of work takes, 1 or more."""
    return max(1.0, min(_counted() for _ in range(10)) / USUAL_S)
