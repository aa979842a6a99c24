"""Compares two sets of rules, interface by interface: every call that is chosen for differently is found.

A pure refactor shows as nothing: rules written in another way, fields in another order, files elsewhere. What cannot
be shown either way is said, and never taken for no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tileops_rules import Selector

from tileops_solver.diffing.changes import Change, Differences, InterfaceChanges
from tileops_solver.diffing.one_interface import Comparison
from tileops_solver.snapshot import Name, Snapshot

__all__ = ["differences"]

_NONE: Final[Mapping[Name, Selector]] = MappingProxyType({})


def differences(old: Snapshot, new: Snapshot, live: Mapping[Name, Selector] = _NONE) -> Differences:
    """What *new* chooses otherwise than *old*.

    A choice is the implementation that wins, nobody, or a tie; a call that is not valid on one side is served by
    nobody there.

    Args:
        old: The rules before.
        new: The rules now.
        live: What *new* was taken from, where that is at hand: each call that is shown is put to its methods.

    Raises:
        InconsistencyError: rules and methods do not agree; a mistake in this library.
        ImportError: z3 is needed and not installed.
    """
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    found = [Comparison(old[name], new[name], live.get(name)).result() for name in old if name in new]
    for name in gone:
        twin = next(
            (each for each in sorted(come, key=lambda n: (n[1] != name[1], n)) if _alike(old, name, new, each)), None
        )
        if twin is None:
            found.append(InterfaceChanges(*name, (Change("removed interface", ".".join(name), None),)))
        else:
            come.remove(twin)
            renamed = Change("renamed interface", ".".join(name), ".".join(twin))
            found.append(InterfaceChanges(*twin, (renamed,)))
    found += [InterfaceChanges(*name, (Change("added interface", None, ".".join(name)),)) for name in come]
    return Differences(tuple(sorted(found, key=lambda each: (each.op, each.interface))))


def _alike(old: Snapshot, before: Name, new: Snapshot, now: Name) -> bool:
    """Whether two interfaces have the same implementations, and choose alike among them."""
    if old[before].keys != new[now].keys or set(old[before].domain.slots) != set(new[now].domain.slots):
        return False
    result = Comparison(old[before], new[now]).result()
    return not result.changes and not result.undecided
