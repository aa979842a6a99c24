"""What tests allow in seconds is meant for the usual machine with nobody else on it.

Where others run on the same processor everything takes longer, for a moment or for minutes, so a limit is stretched
by what a fixed piece of work takes at that moment, and a claim is tried until it holds or patience ends.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

__all__ = ["LIFTING_SLOWER", "cpu_seconds", "holds_within", "slowness"]

LIFTING_SLOWER = 1 if sys.version_info < (3, 12) else 2
"""How many times longer a rule may take to be lifted: from CPython 3.12 on setting a profile function instruments code
anew, which makes watching a path dearer. An audit with proofs on file takes 3 s there."""

USUAL_S = 6.7e-3
"""What :func:`_counted` takes where the limits of tests were set: an Intel Xeon of 2 cores, CPython 3.11, idle."""

PATIENCE_S = 60.0
"""How long a claim is tried: neighbours that keep a processor busy rarely do so without a pause for longer."""


class _Step:
    def __init__(self, at: int) -> None:
        self.at = at

    def value(self, names: dict[str, int]) -> int:
        return names["a"] + self.at % 7


def _counted() -> float:
    """Seconds of a fixed work of what rules are made of: calls, attributes, dictionaries and small objects."""
    start = time.process_time()
    total = 0
    kept: list[tuple[int, dict[str, int]]] = []
    for i in range(13_500):
        names = {"a": i, "b": total & 7}
        total += _Step(i).value(names)
        kept.append((total, names))
    return time.process_time() - start


def slowness() -> float:
    """How many times longer than usual a fixed piece of work takes, 1 or more."""
    return max(1.0, min(_counted() for _ in range(10)) / USUAL_S)


def cpu_seconds(work: Callable[[], object]) -> float:
    """What ``work`` takes of this process' processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def holds_within(allowed_s: float, measured: Callable[[], float], *, patience_s: float = PATIENCE_S) -> None:
    """Ask ``measured`` for seconds until they are at most ``allowed_s`` of the usual machine.

    A claim that is false fails at every try, so it costs ``patience_s`` and then raises.

    Raises:
        AssertionError: no try of ``patience_s`` seconds (three at least) came within ``allowed_s``.
    """
    least, tries, until = math.inf, 0, time.monotonic() + patience_s
    while tries < 3 or time.monotonic() < until:
        slow = slowness()
        took = measured()
        slow = max(slow, slowness())
        if took <= allowed_s * slow:
            return
        least, tries = min(least, took / slow), tries + 1
        time.sleep(min(0.05 * tries, 1.0))
    raise AssertionError(f"{least * 1e3:.3g} ms at best in {tries} tries; {allowed_s * 1e3:.3g} ms are allowed")
