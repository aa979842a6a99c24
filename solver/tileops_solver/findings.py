"""What an audit says: the numbers of its JSON, under the same names, as plain immutable objects."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = [
    "Allowed",
    "Answered",
    "Finding",
    "InterfaceReport",
    "Pairs",
    "Report",
    "Severity",
    "Totals",
    "Undecided",
    "Unlifted",
]


class _Numbers(Mapping[str, Any]):
    """A dataclass of numbers that reads as a mapping too: ``pairs["ordered"]`` is ``pairs.ordered``."""

    def __getitem__(self, name: str) -> Any:
        if name not in tuple(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (f.name for f in fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Pairs(_Numbers):
    """Pairs of non-general implementations of one interface, each in exactly one of four states.

    Attributes:
        ordered: One is preferred over the other, directly or transitively; nothing is asked.
        disjoint: Proved: no valid call is served by both.
        overlapping: A call is served by both, and neither is preferred: a finding.
        undecided: Neither was shown.
    """

    ordered: int = 0
    disjoint: int = 0
    overlapping: int = 0
    undecided: int = 0


class Severity(enum.Enum):
    """How much a finding weighs; the first two fail an audit."""

    ERROR = "error"
    """Some call goes wrong: two claim it, a rule throws, a kernel does not fit."""

    WARNING = "warning"
    """Nothing goes wrong today that was not meant to, but a statement has no effect or a call no kernel."""

    NOTE = "note"
    """Worth knowing; an audit stays clean."""


@dataclass(frozen=True)
class Finding:
    """Something wrong with the rules.

    Attributes:
        kind: What is wrong: a row of ``tileops_solver.checks.catalogue``; or why no op can be constructed with
            the interface at all: ``cycle`` (of preferences), ``preference`` (for itself, for no sibling, or of
            the general implementation), ``general`` (more than one), ``key`` (not snake_case), ``contract``
            (anything else).
        keys: The implementations concerned.
        witness: The smallest call that shows it, where one does, else None.
        message: What is wrong, with the values, and what to write instead.
        places: ``file:line`` of each of *keys*, the file from its import root; of the interface or call spec
            where no implementation is concerned.
        op: The op.
        interface: The interface.
        severity: How much it weighs.
        subject: What besides *keys* it is about, as an arch (``sm_90``) or a field; may be empty.
        edit: The line that would settle it, where there is one, with where it goes.
        facts: Further values under names, as the nearest served call of a gap.
    """

    kind: str
    keys: tuple[str, ...]
    witness: Any
    message: str
    places: tuple[str, ...]
    op: str = ""
    interface: str = ""
    severity: Severity = Severity.ERROR
    subject: str = ""
    edit: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def id(self) -> str:
        """The same for the same finding in every run: ``Op.interface:kind:key+key:subject``."""
        name = f"{self.op}.{self.interface}" if self.op else self.interface
        return ":".join(part for part in (name, self.kind, "+".join(self.keys), self.subject) if part)

    @property
    def fails(self) -> bool:
        """Whether an audit fails for it."""
        return self.severity is not Severity.NOTE


@dataclass(frozen=True)
class Allowed:
    """A finding that somebody has looked at and lets stand.

    Attributes:
        finding: The finding.
        reason: Why it may stand.
    """

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Unlifted:
    """A rule that could not be lifted, so that nothing is proved of it.

    Attributes:
        key: The implementation; ``<Spec>.invalid`` for a call spec's own rule.
        place: ``file:line`` of what could not be lifted.
        cause: Why.
    """

    key: str
    place: str
    cause: str


@dataclass(frozen=True)
class Undecided:
    """A question of which nothing was shown.

    Attributes:
        keys: The implementations it is about.
        reason: Why.
        check: Id of the check that asked.
        subject: What besides *keys* it is about; may be empty.
    """

    keys: tuple[str, ...]
    reason: str
    check: str = "overlap"
    subject: str = ""


@dataclass(frozen=True, eq=False)
class Answered(_Numbers):
    """Who answered the questions about an interface.

    Attributes:
        cheap: Intervals and sets of values alone.
        on_file: A proof on file.
        solver: z3.
    """

    cheap: int = 0
    on_file: int = 0
    solver: int = 0


@dataclass(frozen=True)
class InterfaceReport:
    """One interface of one op.

    Attributes:
        op: The op.
        interface: The interface.
        implementations: Its keys, sorted.
        pairs: The state of every pair of non-general ones.
        not_lifted: Rules that were not lifted.
        findings: What is wrong.
        assumed_domains: A line for each domain that was assumed and not declared.
        undecided: The questions that were not decided, with the reason.
        answered: Who answered the questions.
        facts: Lines that were asked for and are no findings, as where a choice changes.
        allowed: Findings that are let stand, with the reason; they are not among *findings*.
    """

    op: str
    interface: str
    implementations: tuple[str, ...]
    pairs: Pairs
    not_lifted: tuple[Unlifted, ...]
    findings: tuple[Finding, ...]
    assumed_domains: tuple[str, ...]
    undecided: tuple[Undecided, ...] = ()
    answered: Answered = field(default_factory=Answered)
    facts: tuple[str, ...] = ()
    allowed: tuple[Allowed, ...] = ()


@dataclass(frozen=True, eq=False)
class Totals(_Numbers):
    """The numbers of all interfaces together.

    Attributes:
        interfaces: How many interfaces there are.
        implementations: Implementations.
        pairs: States of pairs, as in each interface.
        ordered: The same, for a reader that wants one number.
        disjoint: The same.
        overlapping: The same.
        undecided: The same.
        not_lifted: Rules that were not lifted.
        findings: Findings that fail an audit: errors and warnings.
        notes: Findings that do not.
        allowed: Findings that are let stand.
        assumed_domains: Domains that were assumed.
        not_proved: Undecided questions and rules not lifted; while it is not 0, no absence of findings is a
            proof.
        answered: Who answered the questions.
    """

    interfaces: int
    implementations: int
    pairs: Pairs
    ordered: int
    disjoint: int
    overlapping: int
    undecided: int
    not_lifted: int
    findings: int
    notes: int
    allowed: int
    assumed_domains: int
    not_proved: int
    answered: Answered


@dataclass(frozen=True)
class Report:
    """The result of an audit.

    Attributes:
        interfaces: One entry an interface, sorted by op and interface.
    """

    interfaces: tuple[InterfaceReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all interfaces."""
        return tuple(finding for each in self.interfaces for finding in each.findings)

    def beyond(self, ids: Collection[str]) -> Report:
        """This report without the findings of these ids, as those of an audit before a plug-in was added."""
        return Report(
            tuple(
                dataclasses.replace(each, findings=tuple(f for f in each.findings if f.id not in ids))
                for each in self.interfaces
            )
        )

    @property
    def totals(self) -> Totals:
        """Sums over the interfaces."""
        pairs = Pairs(**_summed(each.pairs for each in self.interfaces))
        not_lifted = sum(len(each.not_lifted) for each in self.interfaces)
        undecided = sum(len(each.undecided) for each in self.interfaces)
        failing = sum(finding.fails for finding in self.findings)
        return Totals(
            interfaces=len(self.interfaces),
            implementations=sum(len(each.implementations) for each in self.interfaces),
            pairs=pairs,
            **pairs,
            not_lifted=not_lifted,
            findings=failing,
            notes=len(self.findings) - failing,
            allowed=sum(len(each.allowed) for each in self.interfaces),
            assumed_domains=sum(len(each.assumed_domains) for each in self.interfaces),
            not_proved=undecided + not_lifted,
            answered=Answered(**_summed(each.answered for each in self.interfaces)),
        )


def _summed(tables: Iterable[_Numbers]) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name in table:
            total[name] = total.get(name, 0) + table[name]
    return total
