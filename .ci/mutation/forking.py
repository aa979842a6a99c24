"""Runs work in forked children, a few at a time, each within limits of time and memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Ended", "Limits", "Work", "in_children"]

_PAUSE_S = 0.005
_STOPPED = {signal.SIGXCPU, signal.SIGKILL, signal.SIGPROF}


@dataclass(frozen=True)
class Limits:
    """What a child may use.

    Attributes:
        cpu_s: Processor time, which a busy machine does not shorten.
        wall_s: Time on the clock, for a child that waits for ever.
        memory_gib: Address space.
    """

    cpu_s: float
    wall_s: float
    memory_gib: float


@dataclass(frozen=True)
class Work:
    """One child: *run* gives what it says to the parent, as bytes."""

    tag: Any
    run: Callable[[], bytes]
    limits: Limits


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        tag: That of its work.
        said: What it said; the traceback where it fell over an exception.
        why: ``"done"``, ``"time"`` or ``"fell"``.
        seconds: From start to end, on the clock.
    """

    tag: Any
    said: bytes
    why: str
    seconds: float


@dataclass
class _Child:
    work: Work
    pid: int
    pipe: int
    started: float
    said: bytearray = field(default_factory=bytearray)


def in_children(works: Iterable[Work], jobs: int, tick: Callable[[], None] = lambda: None) -> Iterator[Ended]:
    """Run each of *works* in a child of its own, *jobs* at a time, and give them as they end.

    Closing the iterator kills the children that are left. The process must have one thread. *tick* is called now
    and then.
    """
    waiting = iter(works)
    running: list[_Child] = []
    more = True
    try:
        while running or more:
            while more and len(running) < jobs:
                work = next(waiting, None)
                if work is None:
                    more = False
                else:
                    running.append(_start(work))
            ended = [(child, why) for child in running if (why := _look(child)) is not None]
            for child, why in ended:
                running.remove(child)
                yield Ended(child.work.tag, bytes(child.said), why, time.monotonic() - child.started)
            if not ended:
                tick()
                time.sleep(_PAUSE_S)
    finally:
        for child in running:
            _kill(child)
            _reap(child)


def _start(work: Work) -> _Child:
    mine, its = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(mine)
        _be_the_child(work, its)
    os.close(its)
    os.set_blocking(mine, False)
    return _Child(work, pid, mine, time.monotonic())


def _be_the_child(work: Work, pipe: int) -> None:
    """Never returns: what the parent has open, or does at its exit, is none of the child's business."""
    code = 1
    try:
        os.setsid()
        cpu = max(1, round(work.limits.cpu_s))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
        memory = int(work.limits.memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        try:
            said, code = work.run(), 0
        except Exception:  # noqa: BLE001 - handed to the parent
            said = traceback.format_exc().encode()
        while said:
            said = said[os.write(pipe, said) :]
    finally:
        os._exit(code)


def _look(child: _Child) -> str | None:
    _read(child)
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid == 0:
        if time.monotonic() - child.started <= child.work.limits.wall_s:
            return None
        _kill(child)
        _reap(child)
        return "time"
    _kill(child)  # what it started and left behind
    _read(child)
    os.close(child.pipe)
    if os.WIFSIGNALED(status):
        return "time" if os.WTERMSIG(status) in _STOPPED else "fell"
    return "done" if os.WEXITSTATUS(status) == 0 else "fell"


def _read(child: _Child) -> None:
    try:
        while chunk := os.read(child.pipe, 1 << 16):
            child.said += chunk
    except BlockingIOError:
        return


def _kill(child: _Child) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _reap(child: _Child) -> None:
    os.waitpid(child.pid, 0)
    os.close(child.pipe)
