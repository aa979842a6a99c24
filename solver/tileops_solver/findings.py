"""What an audit says: the numbers of its JSON, under the same names, as plain immutable objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Finding", "InterfaceReport", "Pairs", "Report", "Totals", "Undecided", "Unlifted"]


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


@dataclass(frozen=True)
class Finding:
    """Something wrong with the rules.

    Attributes:
        kind: ``overlap`` (two serve a call and neither is preferred); or why no op can be constructed with
            the interface at
            all: ``cycle`` (of preferences), ``preference`` (for itself, for no sibling, or of the general
            implementation), ``general`` (more than one), ``key`` (not snake_case), ``contract`` (anything
            else).
        keys: The implementations concerned.
        witness: The smallest call that shows it, where one does, else None.
        message: What is wrong, with the values, and what to write instead.
        places: ``file:line`` of each of *keys*, the file from its import root.
        op: The op.
        interface: The interface.
    """

    kind: str
    keys: tuple[str, ...]
    witness: Any
    message: str
    places: tuple[str, ...]
    op: str = ""
    interface: str = ""


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
    """A pair of which nothing was shown.

    Attributes:
        keys: The two implementations.
        reason: Why.
    """

    keys: tuple[str, str]
    reason: str


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
        undecided: The pairs counted as undecided, with the reason.
    """

    op: str
    interface: str
    implementations: tuple[str, ...]
    pairs: Pairs
    not_lifted: tuple[Unlifted, ...]
    findings: tuple[Finding, ...]
    assumed_domains: tuple[str, ...]
    undecided: tuple[Undecided, ...] = ()


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
        findings: Findings.
        assumed_domains: Domains that were assumed.
        not_proved: Undecided pairs and rules not lifted; while it is not 0, no absence of findings is a
            proof.
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
    assumed_domains: int
    not_proved: int


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

    @property
    def totals(self) -> Totals:
        """Sums over the interfaces."""
        pairs = _summed(each.pairs for each in self.interfaces)
        not_lifted = sum(len(each.not_lifted) for each in self.interfaces)
        return Totals(
            interfaces=len(self.interfaces),
            implementations=sum(len(each.implementations) for each in self.interfaces),
            pairs=pairs,
            **pairs,
            not_lifted=not_lifted,
            findings=len(self.findings),
            assumed_domains=sum(len(each.assumed_domains) for each in self.interfaces),
            not_proved=pairs.undecided + not_lifted,
        )


def _summed(all_pairs: Iterable[Pairs]) -> Pairs:
    total = dict.fromkeys(Pairs(), 0)
    for pairs in all_pairs:
        for name in pairs:
            total[name] += pairs[name]
    return Pairs(**total)
