"""Candidates for a selector, and what must hold among them before anything is proved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.errors import SelectorError
from tileops_rules.shapes import device_type

__all__ = ["Candidate", "checked_preferences", "written_in"]

_SNAKE_CASE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True)
class Candidate:
    """One of the implementations among which a selector chooses.

    Attributes:
        key: Its name, in snake_case.
        refusal: A function of the call: None where it serves it, else the reason.
        general: It stands below every other candidate; at most one does.
        preferred_over: Keys it wins over where both serve; transitive.
        devices: Device types it runs on, where the call has a ``device``.
        supported_archs: CUDA architectures it runs on; None for all.
        implementation: The class it was read from, for places and messages.
    """

    key: str
    refusal: Callable[[Any], Any]
    general: bool
    preferred_over: frozenset[str]
    devices: frozenset[str]
    supported_archs: tuple[int, ...] | None
    implementation: type | None

    def __init__(
        self,
        key: str,
        refusal: Callable[[Any], Any],
        *,
        general: bool = False,
        preferred_over: Iterable[str] = frozenset(),
        devices: Iterable[str] = frozenset({"cuda"}),
        supported_archs: Iterable[int] | None = None,
        implementation: type | None = None,
    ) -> None:
        """A candidate; see the class for what its members mean.

        Raises:
            SelectorError: *preferred_over* or *devices* is a plain string, which would be read as its letters.
        """
        for member, given in (("preferred_over", preferred_over), ("devices", devices)):
            if isinstance(given, str):
                note = written_in(implementation, member)
                raise SelectorError(
                    "preference" if member == "preferred_over" else member,
                    (key,),
                    f'{key}: {member} is {given!r}, a plain string{note}: write {member} = frozenset({{"{given}"}})',
                )
        values = {
            "key": key,
            "refusal": refusal,
            "general": bool(general),
            "preferred_over": frozenset(preferred_over),
            "devices": frozenset(devices),
            "supported_archs": None if supported_archs is None else tuple(sorted(set(supported_archs))),
            "implementation": implementation,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def place(self) -> tuple[str, int]:
        """File and line of the function that states its calls."""
        code = getattr(getattr(self.refusal, "__func__", self.refusal), "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code is not None else ("<unknown>", 0)

    def cannot_run(self, call: Any) -> str | None:
        """Why it cannot run on the call's device, or None."""
        has_device = hasattr(call, "device")
        kind = device_type(call.device) if has_device else "cuda"
        if has_device and kind not in self.devices:
            return f"runs on {', '.join(sorted(self.devices))}, not on {kind}"
        if kind == "cuda" and self.supported_archs is not None and call.arch not in self.supported_archs:
            return f"supports sm_{', sm_'.join(map(str, self.supported_archs))}, not sm_{call.arch}"
        return None


def written_in(implementation: type | None, member: str) -> str:
    """``, as <class> states`` where a member's value was written in a base class, else nothing."""
    for owner in implementation.__mro__ if implementation is not None else ():
        if member in owner.__dict__:
            return "" if owner is implementation else f" ({member} is written in its base class {owner.__name__})"
    return ""


def checked_preferences(name: str, candidates: Sequence[Candidate]) -> dict[str, frozenset[str]]:
    """The transitive closure of the preferences, after the checks that need no proof."""
    keys = [c.key for c in candidates]
    known = frozenset(keys)
    for candidate in candidates:
        if not _SNAKE_CASE.fullmatch(candidate.key):
            raise SelectorError(
                "key", (candidate.key,), f"{name}: the key {candidate.key!r} is not snake_case: write a_b_c"
            )
        if len(known) < len(keys) and keys.count(candidate.key) > 1:
            raise SelectorError(
                "key", (candidate.key,), f"{name}: the key {candidate.key!r} stands twice: give each its own"
            )
    general = [c for c in candidates if c.general]
    if len(general) > 1:
        notes = "".join(written_in(c.implementation, "general") for c in general)
        shown = ", ".join(c.key for c in general)
        raise SelectorError(
            "general",
            tuple(c.key for c in general),
            f"{name} has more than one general implementation: {shown}{notes}; write general = False in all but one",
        )
    for c in candidates:
        note = written_in(c.implementation, "preferred_over")
        if c.key in c.preferred_over:
            raise SelectorError(
                "preference", (c.key,), f"{name}: {c.key} prefers itself{note}; remove it from preferred_over"
            )
        if c.general and c.preferred_over:
            below = ", ".join(sorted(c.preferred_over))
            raise SelectorError(
                "preference",
                (c.key, *sorted(c.preferred_over)),
                f"{name}: the general implementation prefers {below}: {c.key} stands below every other{note}; "
                f"remove preferred_over, or general",
            )
        for other in sorted(c.preferred_over):
            if other not in known:
                raise SelectorError(
                    "preference",
                    (c.key, other),
                    f"{name}: {c.key} prefers {other}, which is no sibling{note}; its siblings are "
                    f"{', '.join(k for k in keys if k != c.key) or 'none'}",
                )
    closure = _closure({c.key: c.preferred_over for c in candidates})
    cycle = sorted(k for k, below in closure.items() if k in below)
    if cycle:
        around = ", ".join(k for k in cycle if cycle[0] in closure[k])
        raise SelectorError(
            "cycle",
            tuple(cycle),
            f"{name}: preferences form a cycle through {around}: remove one of their preferred_over entries",
        )
    last = frozenset(c.key for c in general)
    return {key: below | (last - {key}) for key, below in closure.items()}


def _closure(direct: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for start in direct:
        reached: set[str] = set()
        waiting = list(direct[start])
        while waiting:
            key = waiting.pop()
            if key not in reached:
                reached.add(key)
                waiting.extend(direct[key])
        found[start] = frozenset(reached)
    return found
