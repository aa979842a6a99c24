"""The questions of an audit, in the order in which they are asked: one row a check, one file a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tileops_solver.checks import dead, dropped, edges, equal, fits, gap, independence, overlap, raises, unread
from tileops_solver.checks.asked import Check
from tileops_solver.findings import Finding

__all__ = ["CHECKS", "Selection", "UnknownCheck"]

CHECKS: Final[tuple[Check, ...]] = (
    overlap.CHECK,
    gap.CHECK,
    dead.CHECK,
    edges.CHECK,
    raises.CHECK,
    fits.CHECK,
    dropped.CHECK,
    equal.CHECK,
    independence.CHECK,
    unread.CHECK,
)

ALWAYS: Final = ("cycle", "preference", "general", "key", "contract")
"""Kinds that say why no question can be asked at all; they cannot be selected away."""


class UnknownCheck(ValueError):
    """A name is neither a check nor a kind of finding.

    Attributes:
        name: The name.
        known: The checks and kinds that there are.
    """

    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(f"{name!r} is neither a check nor a kind of finding: there are {', '.join(sorted(known))}")
        self.name = name
        self.known = tuple(sorted(known))


class Selection:
    """Which checks are asked, and which kinds of finding are kept.

    Args:
        select: Ids of checks or kinds of finding; all where empty.
        ignore: Those to leave out.
        whole: All archs are looked at; else checks that speak of them together are left out.

    Raises:
        UnknownCheck: a name is none of them.
    """

    def __init__(self, select: Iterable[str] = (), ignore: Iterable[str] = (), *, whole: bool = True) -> None:
        self._select = frozenset(select)
        self._ignore = frozenset(ignore)
        self._whole = whole
        known = {check.id for check in CHECKS} | {kind for check in CHECKS for kind in check.kinds}
        for name in sorted(self._select | self._ignore):
            if name not in known:
                raise UnknownCheck(name, known)

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that can make a finding that is kept."""
        return tuple(check for check in CHECKS if any(self._keeps(check, kind) for kind in check.kinds))

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of finding that are kept."""
        return frozenset(kind for check in CHECKS for kind in check.kinds if self._keeps(check, kind)) | set(ALWAYS)

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding is kept."""
        check = next((check for check in CHECKS if finding.kind in check.kinds), None)
        return finding.kind in ALWAYS or check is None or self._keeps(check, finding.kind)

    def _keeps(self, check: Check, kind: str) -> bool:
        wanted = (not self._select or bool({check.id, kind} & self._select)) and (self._whole or not check.whole)
        return wanted and not {check.id, kind} & self._ignore
