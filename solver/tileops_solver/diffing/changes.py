"""What a comparison finds, as plain values, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tileops_solver.report.json import plain

__all__ = ["KINDS", "Change", "Differences", "InterfaceChanges"]

KINDS: Final = (
    "added interface",
    "removed interface",
    "renamed interface",
    "added",
    "removed",
    "renamed",
    "widened",
    "narrowed",
    "moved",
    "newly served",
    "newly unserved",
    "newly tied",
    "no longer tied",
    "newly dead",
    "newly raising",
    "no longer raising",
    "declared unserved",
    "no longer declared unserved",
)
"""Every kind of change, in the order in which they are shown.

``widened`` and ``narrowed`` speak of what one implementation serves, chosen or not; ``moved`` (from one implementation
to another), ``newly served`` (from nobody), ``newly unserved`` (to nobody) and the ties of which one is chosen. An
implementation is ``newly dead`` where some call chose it and none does now. Where the rule of any implementation that
can run raises, the call does, whatever the others say: ``newly raising`` and ``no longer raising`` tell of such calls.
"""

_FROM_TO: Final = (
    "renamed interface",
    "renamed",
    "moved",
    "newly served",
    "newly unserved",
    "newly tied",
    "no longer tied",
)


@dataclass(frozen=True)
class Change:
    """One difference between two sets of rules.

    Attributes:
        kind: A key of :data:`KINDS`.
        old: The implementation, or the choice, before; None where there is none.
        new: The same now.
        region: The calls concerned, of the valid ones, as a formula; empty where all of them are, as for a name.
        witness: The smallest such call, or None.
    """

    kind: str
    old: str | None
    new: str | None
    region: str = ""
    witness: Any = None

    def __str__(self) -> str:
        names = f"{self.old} -> {self.new}" if self.kind in _FROM_TO else self.new or self.old
        head = f"{self.kind}: {names}" if names else self.kind
        where = f"\n    where {self.region}" if self.region else ""
        return head + where + (f"\n    as in {self.witness!r}" if self.witness is not None else "")

    def as_json(self) -> dict[str, Any]:
        """The same as plain values; the witness also as text."""
        witness = None if self.witness is None else {"call": repr(self.witness), "fields": plain(self.witness)}
        return {"kind": self.kind, "old": self.old, "new": self.new, "region": self.region, "witness": witness}


@dataclass(frozen=True)
class InterfaceChanges:
    """What changed in one interface.

    Attributes:
        op: The op, as it is called now where it still is there.
        interface: The interface.
        changes: What changed, by kind.
        notes: What else differs, such as a field's range; no choice depends on it.
        undecided: What was not shown either way, with the reason.
    """

    op: str
    interface: str
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "op": self.op,
            "interface": self.interface,
            "changes": [change.as_json() for change in self.changes],
            "notes": list(self.notes),
            "undecided": list(self.undecided),
        }


@dataclass(frozen=True)
class Differences:
    """The result of a comparison.

    Attributes:
        interfaces: One entry an interface of either side, sorted.
    """

    interfaces: tuple[InterfaceChanges, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of all interfaces."""
        return tuple(change for each in self.interfaces for change in each.changes)

    @property
    def undecided(self) -> int:
        """How many questions were not decided; while it is not 0, no absence of changes is a proof."""
        return sum(len(each.undecided) for each in self.interfaces)

    @property
    def same(self) -> bool:
        """Whether it was shown that every call gets the implementation that it got."""
        return not self.changes and not self.undecided

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "interfaces": [each.as_json() for each in self.interfaces],
            "totals": {
                "interfaces": len(self.interfaces),
                "changes": len(self.changes),
                "undecided": self.undecided,
            },
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for each in self.interfaces:
            if not each.changes and not each.undecided:
                continue
            yield f"{each.op}.{each.interface}"
            for change in each.changes:
                yield f"  {change}"
            for note in each.notes:
                yield f"  note: {note}"
            for reason in each.undecided:
                yield f"  undecided: {reason}"
            yield ""
        changed = sum(bool(each.changes) for each in self.interfaces)
        yield f"interfaces: {len(self.interfaces)}, changed: {changed}"
        yield f"changes: {len(self.changes)}"
        yield f"undecided: {self.undecided}"
