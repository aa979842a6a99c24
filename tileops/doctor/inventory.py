"""Which implementations of which op can run on a machine with given CUDA devices."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from tileops.doctor.diagnosis import Card, Implementation, Probe, Status
from tileops.doctor.machine import Machine

__all__ = ["inventory"]


def inventory(machine: Machine, cards: Sequence[Card]) -> tuple[list[Implementation], list[Probe]]:
    """Return the implementations of the ops of ``tileops.ops``, and what of them could not be looked at.

    Implementations that backends registered are among them, and the CPU references even where they are not
    installed. Both lists are ordered by the names of the ops.
    """
    selection_of = machine.load("tileops.ops.selection").selection_of
    references = machine.load("tileops.reference").REFERENCES
    found: list[Implementation] = []
    failures: list[Probe] = []
    ops = tuple(_op_classes(machine.load("tileops.ops")))
    for op in ops:
        try:
            kernel_types = dict(selection_of(op).kernel_types)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the op is the finding
            failures.append(_broken(f"op {op.__name__}", error, "no call of it can run; see the error"))
            continue
        waiting = {key: kernel for name, key, kernel in references if name == op.__name__ and key not in kernel_types}
        for interface, required in sorted(op.interfaces.items()):
            for key, kernel in sorted({**waiting, **kernel_types}.items()):
                if issubclass(kernel, required):
                    found.append(_implementation(op.__name__, interface, key, kernel, cards, key in waiting))
    backend = machine.load("tileops.backend")
    for name, failure in backend.load_failures().items():
        failures.append(_broken(f"plug-in {name}", failure, "correct or uninstall it; its kernels are left out"))
    failures += [_unclaimed(each, [op.__name__ for op in ops]) for each in backend.unclaimed()]
    return found, failures


def _unclaimed(registration: Any, ops: Sequence[str]) -> Probe:
    """What there is to say of a kernel that is registered for an op of which no class is imported."""
    alike = difflib.get_close_matches(registration.op_name, ops, n=1)
    return Probe(
        f"kernel {registration.key}",
        Status.BROKEN if alike else Status.MISSING,
        f"registered at {registration.place} for {registration.op_name}, and no op of that name is imported",
        f"no op takes it: write {alike[0]} there"
        if alike
        else f"nothing to do if another module defines that op; those of tileops.ops are {', '.join(ops)}",
    )


def _op_classes(ops: Any) -> Iterator[Any]:
    """Yield the classes that *ops* exports and that have tables, each once."""
    seen = set()
    for name in sorted(dir(ops)):
        op = getattr(ops, name)
        tables = isinstance(op, type) and getattr(op, "kernel_types", None) and getattr(op, "interfaces", None)
        if tables and op not in seen:
            seen.add(op)
            yield op


def _broken(name: str, error: BaseException, advice: str) -> Probe:
    return Probe(name, Status.BROKEN, f"{type(error).__name__}: {error}", advice)


def _implementation(
    op: str, interface: str, key: str, kernel: Any, cards: Sequence[Card], waiting: bool
) -> Implementation:
    devices = tuple(sorted(kernel.devices))
    archs = None if kernel.supported_archs is None else tuple(sorted(kernel.supported_archs))
    runs, reason = _judge(devices, archs, cards)
    if waiting:
        reason += ", once tileops.reference.install() is called"
    return Implementation(op, interface, key, devices, archs, runs, reason)


def _judge(devices: tuple[str, ...], archs: tuple[int, ...] | None, cards: Sequence[Card]) -> tuple[bool, str]:
    """Return whether one of the devices is here, and which, or what is needed."""
    if "cpu" in devices:
        return True, "on the CPU"
    if "cuda" not in devices:
        return False, f"needs a device of type {' or '.join(devices)}"
    fitting = [f"cuda:{card.index}" for card in cards if archs is None or card.arch in archs]
    if fitting:
        return True, f"on {', '.join(fitting)}"
    wanted = "a CUDA device"
    if archs is not None:
        wanted += f" of {', '.join(f'SM{arch}' for arch in archs)}"
    here = f"; here: {', '.join(f'SM{card.arch}' for card in cards)}" if cards else ""
    return False, f"needs {wanted}{here}"
