"""Who serves what: for each platform the calls for which each implementation is chosen, and those for which none is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.expr import FALSE, Expr, conjunction, negation
from tileops_rules.outcome import Returned
from tileops_rules.rule import Rule
from tileops_rules.tree import condition

from tileops_solver.describing import describe
from tileops_solver.engine import Outcome
from tileops_solver.placing import holds_on, shown_on
from tileops_solver.subject import Platform, Subject
from tileops_solver.witness import Witness

__all__ = ["ALL", "NEVER", "SOME", "UNDECIDED", "Line", "Region", "Regions", "regions_of"]

ALL: Final = "all"
SOME: Final = "some"
NEVER: Final = "never"
UNDECIDED: Final = "undecided"


@dataclass(frozen=True)
class Region:
    """The calls that one line of the table speaks of, on one platform.

    Attributes:
        extent: Of the platform's valid calls these are ``all``, ``some``, ``never`` one, or it is ``undecided``.
        where: A formula that holds for them, among the valid calls there; where undecided, for all that may be
            among them; empty for ``never``.
        call: The smallest such call, or None.
        witness: That call without what a call there has anyway: fields at their default, facts of a usual device.
        reasons: Why nobody is meant to serve them, where that is declared.
        undecided: Why it is undecided.
    """

    extent: str
    where: str = ""
    call: Any = dataclasses.field(default=None, compare=False)
    witness: str = ""
    reasons: tuple[str, ...] = ()
    undecided: str = ""


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        kind: ``chosen``: an implementation, and the calls for which it is chosen; ``declared``: calls that nobody
            serves and nobody is meant to; ``gap``: the others that nobody serves.
        name: The key of the implementation, else the kind in words.
        regions: For each platform its region, in the order of the platforms.
    """

    kind: str
    name: str
    regions: Mapping[str, Region]

    @property
    def together(self) -> tuple[tuple[tuple[str, ...], Region], ...]:
        """The platforms that read alike, with their region; the order is that of the first of each."""
        found: dict[Region, list[str]] = {}
        for platform, region in self.regions.items():
            found.setdefault(region, []).append(platform)
        return tuple((tuple(platforms), region) for region, platforms in found.items())


@dataclass(frozen=True)
class Regions:
    """Who serves what, of one interface.

    Attributes:
        op: Name of the op, may be empty.
        interface: Name of the interface.
        spec: Name of the class of the calls.
        general: Key of the general implementation, or None.
        platforms: Names of the platforms; an empty one where calls state neither device nor arch.
        lines: Implementations by key, what is declared unserved, if anything can be, and the gap.
    """

    op: str
    interface: str
    spec: str
    general: str | None
    platforms: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """The interface as messages name it."""
        return f"{self.op}.{self.interface}" if self.op else self.spec


def regions_of(subject: Subject) -> Regions:
    """Work out who serves what.

    A call on which two implementations tie counts for both, and one on which a rule raises for none, as it raises too;
    an audit finds both. A rule that was not lifted leaves
    undecided what depends on it.

    Args:
        subject: The interface, and the archs to look at.

    Raises:
        InconsistencyError: solver, rules and original functions do not agree.
    """
    selector = subject.selector
    formulas: dict[Expr, str] = {}
    columns = {platform.name: dict(_Column(subject, platform, formulas).cells()) for platform in subject.platforms}
    heads = dict.fromkeys(head for column in columns.values() for head in column)
    lines = (Line(*head, {name: column[head] for name, column in columns.items()}) for head in heads)
    general = next((c.key for c in selector.candidates if c.general), None)
    return Regions(selector.op, selector.interface, selector.spec.__name__, general, tuple(columns), tuple(lines))


class _Column:
    """The regions on one platform."""

    def __init__(self, subject: Subject, platform: Platform, formulas: dict[Expr, str]) -> None:
        self._subject = subject
        self._platform = platform
        self._formulas = formulas
        self._given = self._here(subject.valid)

    def cells(self) -> Iterator[tuple[tuple[str, str], Region]]:
        """Kind and name of each line, with its region."""
        selector = self._subject.selector
        for key in selector.keys:
            yield ("chosen", key), self._chosen(key)
        quiet = negation(self._subject.raising)
        nobody = conjunction([negation(self._subject.served), quiet])
        unknown = self._subject.causes(key for key in self._subject.unlifted if self._runs(key))
        declared, failed = selector.declared_unserved, selector.unserved_not_lifted
        if failed is not None:
            unknown = "; ".join(filter(None, [unknown, f"`unserved` was not lifted: {failed.cause}"]))
        if declared is not None:
            meant = condition(declared.tree, lambda outcome: isinstance(outcome, Returned) and not outcome.serves)
            yield ("declared", "declared unserved"), self._region(conjunction([nobody, meant]), unknown, declared)
            nobody = conjunction([nobody, negation(meant)])
        yield ("gap", "gap"), self._region(nobody, unknown)
        if self._subject.raising is not FALSE:
            yield ("raises", "raises"), self._region(self._subject.raising, "")

    def _chosen(self, key: str) -> Region:
        subject = self._subject
        if not self._runs(key):
            return Region(NEVER)
        better = [k for k in subject.better(key) if self._runs(k)]
        calls = subject.lifted.get(key, subject.available(key))
        above = (negation(subject.lifted[k]) for k in better if k in subject.lifted)
        kept = conjunction([calls, *above, negation(subject.raising)])
        return self._region(kept, subject.causes(k for k in (key, *better) if k not in subject.lifted))

    def _runs(self, key: str) -> bool:
        return holds_on(self._platform, self._subject.available(key)) is not FALSE

    def _region(self, calls: Expr, unknown: str, declared: Rule | None = None) -> Region:
        """The region of *calls*; *unknown* says which rules, not lifted, may take calls away from it."""
        here = self._here(calls)
        witness = self._find(here)
        if witness.outcome is Outcome.IMPOSSIBLE:
            return Region(NEVER)
        where = self._formula(here)
        reasons = () if declared is None else tuple(self._reasons(here, declared))
        if witness.outcome is Outcome.UNKNOWN or unknown:
            return Region(UNDECIDED, where, reasons=reasons, undecided=unknown or witness.reason)
        extent = ALL if where == "True" else SOME
        return Region(
            extent, where, witness.call, shown_on(self._platform.name, self._platform.arch, witness.call), reasons
        )

    def _reasons(self, here: Expr, declared: Rule) -> Iterator[str]:
        """The reasons that are given for some call in *here*."""
        for reason in sorted(declared.reasons):
            given = self._here(condition(declared.tree, _gives(reason)))
            if self._find(conjunction([here, given])).outcome is not Outcome.IMPOSSIBLE:
                yield reason

    def _formula(self, here: Expr) -> str:
        """*here* in words; worked out once for platforms of which the same is known besides their name."""
        whole = conjunction([self._given, here])
        if whole not in self._formulas:
            self._formulas[whole] = describe(here, self._subject.domain, self._given)
        return self._formulas[whole]

    def _here(self, calls: Expr) -> Expr:
        return holds_on(self._platform, calls)

    def _find(self, calls: Expr) -> Witness:
        return self._subject.find([self._platform.calls, calls], self._subject.lifted)


def _gives(reason: str) -> Callable[[Any], bool]:
    return lambda outcome: isinstance(outcome, Returned) and not outcome.serves and str(outcome) == reason
