"""How fast this machine is at the moment: what tests allow in seconds is meant for it as it usually is.

Where others run on the same processor a test may take half as long again, and with it everything else does.
"""

from __future__ import annotations

import sys
import time

__all__ = ["LIFTING_SLOWER", "slowness"]

LIFTING_SLOWER = 1 if sys.version_info < (3, 12) else 2
"""How many times longer a rule may take to be lifted: from CPython 3.12 on setting a profile function instruments code
anew, which makes watching a path dearer. An audit with proofs on file takes 3 s there."""

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
