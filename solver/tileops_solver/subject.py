"""What every check of an audit is given: one interface, and the way to ask about its calls."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tileops_rules import Predicate, Selector, fields
from tileops_rules.domain import Domain
from tileops_rules.expr import FALSE, TRUE, Expr, conjunction, disjunction, negation
from tileops_rules.shapes import DeviceShape

from tileops_solver.answer import Answer, InconsistencyError, Verdict
from tileops_solver.boxes import Boxes
from tileops_solver.engine import Outcome
from tileops_solver.findings import Answered, Finding, Severity, Undecided
from tileops_solver.places import place_of
from tileops_solver.proofs.labels import label_of
from tileops_solver.proofs.memory import Memory
from tileops_solver.proofs.store import ProofFile
from tileops_solver.validity import rejection
from tileops_solver.witness import Witness, smallest_call

__all__ = ["Platform", "Subject", "archs_of", "platforms_of"]

_WIDE: Final = 128
"""Values of a declared range of archs that are no longer looked at one by one."""


@dataclass(frozen=True)
class Platform:
    """What a call may run on: an arch, or another device type.

    Attributes:
        name: ``sm_90``, ``cpu``; empty where the calls do not say.
        calls: The calls there.
        arch: The arch, where it is one.
    """

    name: str
    calls: Expr
    arch: int | None = None


class Subject:
    """One interface of one op under audit.

    Attributes:
        selector: Its implementations.
        siblings: The selectors of all interfaces of the op, this one included.
        step: Called after each piece of work.
        independent_of: Fields that are to be shown to change no choice.
        changes_within: Fields of which the values are wanted where the choice changes.
        archs: The archs to look at; None for all.
        asking: The check that asks, as its answers are labelled on file.
    """

    def __init__(
        self,
        selector: Selector,
        *,
        siblings: Sequence[Selector] = (),
        step: Callable[[], None] = lambda: None,
        independent_of: Collection[str] = (),
        changes_within: Collection[str] = (),
        archs: Collection[int] | None = None,
        proofs: ProofFile | None = None,
    ) -> None:
        self.selector = selector
        self.asking = ""
        self.siblings = tuple(siblings) or (selector,)
        self.step = step
        self.independent_of = tuple(independent_of)
        self.changes_within = tuple(changes_within)
        self.archs = None if archs is None else frozenset(archs)
        self._proofs = proofs
        self._memory = Memory(proofs, selector) if proofs else None
        self._cheap = self._on_file = self._solver = 0

    def beside(self, selector: Selector) -> Subject:
        """Another interface of the op, with the same archs and the same answers on file."""
        other = Subject(selector, siblings=self.siblings, archs=self.archs, proofs=self._proofs)
        other.asking = self.asking
        return other

    @property
    def domain(self) -> Domain:
        """What the fields range over."""
        return self.selector.domain

    @property
    def name(self) -> str:
        """The interface as messages name it."""
        return f"{self.selector.op}.{self.selector.interface}" if self.selector.op else self.selector.spec.__name__

    @cached_property
    def valid(self) -> Expr:
        """The calls that can be, on the archs that are looked at."""
        parts = [self.selector.valid.expr]
        if self.archs is not None and any(p.arch is not None for p in platforms_of(self.domain)):
            parts.append(disjunction(p.calls for p in platforms_of(self.domain) if p.arch in self.archs))
        return conjunction(parts)

    @cached_property
    def platforms(self) -> tuple[Platform, ...]:
        """What is looked at, one by one."""
        every = platforms_of(self.domain)
        return every if self.archs is None else tuple(p for p in every if p.arch is None or p.arch in self.archs)

    @cached_property
    def lifted(self) -> Mapping[str, Expr]:
        """For each implementation with a lifted rule, the calls that it can run and serves."""
        claims = ((key, self.selector.claims(key)) for key in self.selector.keys)
        return {key: claim.expr for key, claim in claims if claim is not None}

    @property
    def unlifted(self) -> tuple[str, ...]:
        """The implementations of whose rule nothing is known."""
        return tuple(key for key in self.selector.keys if key not in self.lifted)

    def available(self, key: str) -> Expr:
        """The calls on whose device an implementation can run."""
        return self.selector.available(key).expr

    def better(self, key: str) -> tuple[str, ...]:
        """The implementations that win over *key* where both serve."""
        return self._winning.get(key, ())

    @cached_property
    def _winning(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for winner in self.selector.keys:
            for loser in self.selector.wins_over[winner]:
                found.setdefault(loser, []).append(winner)
        return {loser: tuple(winners) for loser, winners in found.items()}

    @cached_property
    def boxes(self) -> Boxes:
        """What intervals and sets of values say of all claims; of a rule that was not lifted, of where it can run."""
        claims = {key: self.lifted[key] if key in self.lifted else self.available(key) for key in self.selector.keys}
        return Boxes(self.domain, self.valid, claims)

    def may_meet(self, key: str) -> tuple[str, ...]:
        """The other implementations that may serve a call that *key* serves, in order: all others are proved not to."""
        return self.boxes.may_meet(key)

    def settled_cheaply(self, questions: int = 1) -> None:
        """Count questions that :attr:`boxes` answered, and that nobody was asked."""
        self._cheap += questions

    def chosen(self, key: str) -> Expr:
        """The calls that an implementation serves and over which no lifted one wins (a tie counts as chosen)."""
        return conjunction(
            [self.lifted[key], *(negation(self.lifted[k]) for k in self.better(key) if k in self.lifted)]
        )

    @cached_property
    def served(self) -> Expr:
        """The calls that some implementation with a lifted rule serves."""
        return disjunction(self.lifted.values())

    @cached_property
    def raising(self) -> Expr:
        """The calls on which the lifted rule of an implementation that can run raises, as a call then does."""
        found = map(self.selector.raising, self.selector.keys)
        return disjunction(each.expr for each in found if each is not None)

    def find(self, parts: Iterable[Expr], keys: Iterable[str] = ()) -> Witness:
        """The smallest valid call for which all *parts* hold.

        An answer that is on file is looked up; another one is remembered, where a file is to be written.

        Args:
            parts: The question.
            keys: Implementations whose real methods are run on the call that is found, to be held against
                their rules.

        Raises:
            InconsistencyError: solver, rules and original functions do not agree.
        """
        confirmed = tuple(keys)
        return self.search(
            [self.valid, *parts],
            lambda call: rejection(self.selector, call),
            confirm=lambda call: self.confirm(call, confirmed),
        )

    def search(
        self,
        parts: Sequence[Expr],
        accepts: Callable[[Any], str | None],
        *,
        domain: Domain | None = None,
        confirm: Callable[[Any], None] = lambda call: None,
    ) -> Witness:
        """The smallest call, valid or not, for which all *parts* hold; what :meth:`find` looks with.

        Args:
            parts: The question.
            accepts: Asked of a call that is built; a text where it cannot be, for a reason that *parts* do not know.
            domain: Where the calls are; the interface's own where not given.
            confirm: Run on the call that is found.

        Raises:
            InconsistencyError: solver, rules and original functions do not agree.
        """
        domain = self.domain if domain is None else domain
        question = conjunction(parts)
        if question is FALSE:
            self._cheap += 1
            return Witness(Outcome.IMPOSSIBLE, reason="two parts of the question contradict each other", cheap=True)
        if self._memory is not None:
            known = self._memory.recall(domain, parts, accepts, confirm)
            if known is not None:
                self._on_file += 1
                return known
        witness = smallest_call(question, domain, accepts)
        self._cheap += witness.cheap
        self._solver += not witness.cheap
        if witness.outcome is Outcome.POSSIBLE:
            confirm(witness.call)
        if self._memory is not None and self._memory.records:
            asked = [part for part in parts if part is not self.valid]
            self._memory.keep(label_of(self._asked_by, asked, self._names, domain), domain, parts, witness)
        return witness

    def near(self, call: Any, find: Callable[[Any], Answer]) -> Answer:
        """The served call nearest to *call*: from the file where it is there, else what *find* finds.

        A call from the file is run through the real methods.

        Raises:
            InconsistencyError: rules and original functions do not agree.
        """
        if self._memory is None:
            return find(call)
        known = self._memory.recall_near(call, self.served, lambda near: rejection(self.selector, near))
        if known is not None:
            if known.verdict is Verdict.FOUND:
                self.confirm(known.call, self.lifted)
            self._on_file += 1
            return known
        answer = find(call)
        if self._memory.records:
            values = ", ".join(f"{name}={getattr(call, name)!r}" for name in self.domain.fields)
            self._memory.keep_near(f"{self._asked_by}: nearest to {values}", call, self.served, answer)
        return answer

    @property
    def _asked_by(self) -> str:
        return f"{self.selector.interface} {self.asking}".strip()

    def order_on_file(self) -> bool:
        """Whether it is on file that no call is served by two implementations of which none is preferred."""
        known = self._memory is not None and self._memory.recall_order()
        self._on_file += known
        return known

    def keep_order(self) -> None:
        """Remember that no call is served by two implementations of which none is preferred."""
        if self._memory is not None and self.archs is None:
            self._memory.keep_order()

    @cached_property
    def _names(self) -> Mapping[Expr, str]:
        """What expressions are called in the labels of answers on file."""
        every: list[tuple[Expr, str]] = [(self.served, "served")]
        declared = self.selector.declared_unserved
        if declared is not None:
            every.append((disjunction([declared.serves.expr, declared.raises.expr]), "undeclared"))
        every += [(platform.calls, platform.name) for platform in self.platforms if platform.name]
        for key in self.lifted:
            every += [(self.available(key), f"where {key} can run"), (self.chosen(key), f"{key} chosen")]
        every += [(claim, key) for key, claim in self.lifted.items()]
        return {expr: name for expr, name in every if expr.kind != "truth"}

    def confirm(self, call: Any, keys: Iterable[str]) -> None:
        """Hold the rules of *keys* against the functions they were lifted from, on one call.

        Raises:
            InconsistencyError: one serves the call and its rule does not, or the other way round.
        """
        for key in keys:
            if key in self.lifted:
                self._confirm(key, call)

    def _confirm(self, key: str, call: Any) -> None:
        candidate = self.selector.candidate(key)
        claimed = Predicate(self.domain, self.lifted[key])(call)
        try:
            said: Any = candidate.cannot_run(call) or candidate.refusal(call)
        except Exception as error:  # noqa: BLE001 - what it raised is what it says; a rule that raises does not serve
            said = error
        if claimed is not (said is None):
            raise InconsistencyError(
                f"{key} is proved to serve a call that it does not serve when it is run"
                if claimed
                else f"{key} is proved not to serve a call that it serves when it is run",
                call=call,
                facts=(f"call: {call!r}", f"it says: {said!r}", f"rule: {self.lifted[key]}"),
            )

    @property
    def answered(self) -> Answered:
        """Who answered the questions so far."""
        return Answered(self._cheap, self._on_file, self._solver)

    def finding(
        self,
        kind: str,
        severity: Severity,
        keys: Sequence[str],
        message: str,
        *,
        witness: Any = None,
        subject: str = "",
        edit: str = "",
        places: Sequence[str] | None = None,
        facts: Mapping[str, Any] = types.MappingProxyType({}),
    ) -> Finding:
        """A finding about this interface; its text begins with the interface's name.

        Args:
            kind: A row of the catalogue.
            severity: How much it weighs.
            keys: The implementations concerned.
            message: What is wrong and what to write instead, without the name of the interface.
            witness: The call that shows it.
            subject: What besides *keys* it is about.
            edit: The line that would settle it.
            places: Where it stands; of *keys* where not given.
            facts: Further values under names.
        """
        where = tuple(place_of(self.selector, key) for key in keys) if places is None else tuple(places)
        return Finding(
            kind=kind,
            keys=tuple(keys),
            witness=witness,
            message=f"{self.name}: {message}",
            places=where,
            op=self.selector.op,
            interface=self.selector.interface,
            severity=severity,
            subject=subject,
            edit=edit,
            facts=dict(facts),
        )

    def undecided(self, check: str, keys: Sequence[str], reason: str, subject: str = "") -> Undecided:
        """A question of *check* that was not decided."""
        return Undecided(tuple(keys), reason, check, subject)

    def causes(self, keys: Iterable[str]) -> str:
        """Why nothing is known of the rules of *keys*."""
        failed = self.selector.not_lifted
        return "; ".join(f"the rule of {key} was not lifted: {failed[key].cause}" for key in keys if key in failed)


def archs_of(domain: Domain) -> frozenset[int]:
    """The known archs, those that implementations list, and those that the spec's own ``arch`` declares.

    Of an ``arch`` that is declared as a wide range, the values that nobody else names are left out.
    """
    slot = domain.slots.get(("arch",))
    declared: Iterable[Any] = ()
    if slot is not None and slot.sort == "finite":
        declared = (value for value in slot.values if isinstance(value, int))
    elif slot is not None and slot.sort == "int" and slot.hi - slot.lo < _WIDE:
        declared = range(slot.lo, slot.hi + 1)
    return domain.archs | frozenset(declared)


def platforms_of(domain: Domain) -> tuple[Platform, ...]:
    """Every arch, and every other device type, that calls of *domain* can state; one without a name where none."""
    arch, device = domain.fields.get("arch"), domain.fields.get("device")
    asked = fields(domain.spec, domain=domain)
    everywhere = [Platform("", TRUE)]
    if arch is not None:
        everywhere = [Platform(f"sm_{a}", (asked.arch == a).expr, a) for a in sorted(archs_of(domain))]
    if not isinstance(device, DeviceShape):
        return tuple(everywhere)
    found: list[Platform] = []
    for kind in device.slot.values:
        there = (asked.device.type == kind).expr
        if kind == "cuda" and arch is not None:
            found += [Platform(p.name, conjunction([there, p.calls]), p.arch) for p in everywhere]
        else:
            found.append(Platform(str(kind), there))
    return tuple(found)
