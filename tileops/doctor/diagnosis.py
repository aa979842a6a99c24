"""What an examination finds, as plain values."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

__all__ = ["Card", "Diagnosis", "Implementation", "Probe", "Status"]


class Status(Enum):
    """How a probe ended."""

    OK = "ok"
    MISSING = "missing"
    """It is not here; the library works without it as far as the advice says."""
    BROKEN = "broken"
    """It is here and does not work, or stands in the way."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """The outcome of one probe.

    Attributes:
        name: What was looked for.
        status: How it ended.
        found: The version or place found, or why nothing was.
        advice: What to do next; empty where nothing is to be done.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Card:
    """A CUDA device.

    Attributes:
        index: Its ordinal.
        name: The product's name.
        arch: Compute capability as an integer (``90`` for 9.0).
        sm_count: Multiprocessors.
        smem_budget: Shared memory one block may opt in to, in bytes.
        memory: Device memory, in bytes.
    """

    index: int
    name: str
    arch: int
    sm_count: int
    smem_budget: int
    memory: int


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One implementation of one op's interface, and whether it can run here.

    Attributes:
        op: The op class's name.
        interface: The interface's name within the op.
        key: The implementation's key.
        devices: Device types it runs on, sorted.
        archs: CUDA architectures it runs on, sorted; ``None`` for all.
        runs: Whether a device of this machine is among them.
        reason: Where it runs, or what it would need.
    """

    op: str
    interface: str
    key: str
    devices: tuple[str, ...]
    archs: tuple[int, ...] | None
    runs: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Everything one examination found."""

    probes: tuple[Probe, ...]
    cards: tuple[Card, ...]
    implementations: tuple[Implementation, ...]

    @property
    def broken(self) -> tuple[Probe, ...]:
        """The probes that found something broken; ``tileops doctor`` exits with 1 if there are any."""
        return tuple(probe for probe in self.probes if probe.status is Status.BROKEN)

    def as_json(self) -> dict[str, Any]:
        """Return the same as values that ``json`` can write."""
        return {
            "broken": bool(self.broken),
            "probes": [{**dataclasses.asdict(probe), "status": probe.status.value} for probe in self.probes],
            "cards": [dataclasses.asdict(card) for card in self.cards],
            "implementations": [dataclasses.asdict(each) for each in self.implementations],
        }
