"""Selection among candidates: drop what cannot run, then what refuses.

Of the rest, the one no other is preferred over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from tileops_rules import dispatching
from tileops_rules.asking import asked_of
from tileops_rules.candidates import Candidate, checked_preferences
from tileops_rules.domain import Domain, domain_of
from tileops_rules.errors import AmbiguousDispatch, NoImplementation, NotLifted, RefusalError
from tileops_rules.explaining import Entry, Explanation, said
from tileops_rules.expr import conjunction
from tileops_rules.lifting import lift
from tileops_rules.rule import Predicate, Rule
from tileops_rules.shapes import DeviceShape
from tileops_rules.watch import collector_paused

__all__ = ["Candidate", "Entry", "Explanation", "Selector"]

REPLAYS_AT_CONSTRUCTION: Final = 64
"""Calls on which each rule is compared with its original before it is used."""


class Selector:
    """Chooses among candidates for calls of one class.

    Attributes:
        spec: The class of the calls.
        candidates: Sorted by key; order decides nothing.
        op: Name of the op it stands for, may be empty.
        interface: Name of the interface there, may be empty.
        unserved: Says of a call why nobody is meant to serve it; None where nothing is declared.
        domain: What the fields range over.
        wins_over: For each key the keys it wins over, transitively, the general one included.
        agreed: Says of a lifted rule of a candidate that it was held against its original before, on more calls than
            would be tried here; None where nobody knows.
    """

    def __init__(
        self,
        spec: type,
        candidates: Iterable[Candidate],
        *,
        op: str = "",
        interface: str = "",
        resolve: Callable[[Any], Any] | None = None,
        unserved: Callable[[Any], Any] | None = None,
    ) -> None:
        """A selector by hand.

        Args:
            spec: A frozen dataclass; its ``invalid(self)``, where it has one, limits every question.
            candidates: The candidates, in any order.
            op: A name for reports.
            interface: A name for reports.
            resolve: Fills in the device facts of a call before it is asked about.
            unserved: Says of a call why nobody is meant to serve it, else None. It decides no selection: it is
                what an audit holds gaps against, and a line of the error where no candidate serves.

        Raises:
            SelectorError: a key is not in snake_case or stands twice, preferences name no sibling or form a cycle, or
                there are two general candidates.
            TypeError: *spec* is no dataclass, or a candidate lists archs and *spec* has no field ``arch``.
        """
        self.spec = spec
        self.candidates = tuple(sorted(candidates, key=lambda c: c.key))
        self.op = op
        self.interface = interface
        self.unserved = unserved
        self.agreed: Callable[[Rule], bool] | None = None
        self._resolve = resolve
        self._lock = threading.RLock()
        self._lifted: tuple[dict[str, Rule], dict[str, NotLifted]] | None = None
        self._claims: dict[str, Predicate | None] = {}
        self._available: dict[tuple[frozenset[str], tuple[int, ...] | None], Predicate] = {}
        self._winners: dict[int, int] = {}
        name = f"{op}.{interface}" if op else spec.__name__
        self.wins_over = checked_preferences(name, self.candidates)
        devices = frozenset().union(*(c.devices for c in self.candidates)) or frozenset({"cuda"})
        archs = frozenset(a for c in self.candidates for a in c.supported_archs or ())
        self.domain: Domain = domain_of(spec, devices, archs)
        if archs and "arch" not in self.domain.fields:
            raise TypeError(
                f"{spec.__name__} has no field arch, which supported_archs of a candidate speaks of: add arch: int"
            )
        self.mask: Callable[[Any], int] = self._first_mask

    @classmethod
    def of(cls, op: Any, interface: str) -> Selector:
        """The selector of an interface of an op class, or of anything with its members.

        Args:
            op: Has ``kernel_types`` (key to implementation class) and ``interfaces`` (name to interface class, whose
                ``request`` is the call's class).
            interface: A name in ``interfaces``.

        Raises:
            KeyError: the op has no such interface.
            SelectorError: as for the constructor.
        """
        owner = op if isinstance(op, type) else type(op)
        kinds: Mapping[str, type] = op.kernel_types
        if interface not in op.interfaces:
            raise KeyError(f"{owner.__name__} has no interface {interface!r}: it has {', '.join(op.interfaces)}")
        face = op.interfaces[interface]
        mine = {key: kind for key, kind in kinds.items() if issubclass(kind, face)}

        def sibling(key: str, kind: type) -> bool:
            """Whether a key stands beside a class in any interface of the op."""
            faces = (other for other in op.interfaces.values() if issubclass(kind, other))
            return key in kinds and any(issubclass(kinds[key], other) for other in faces)

        candidates = []
        for key, kind in mine.items():
            preferred: Iterable[str] = getattr(kind, "preferred_over", frozenset())
            if not isinstance(preferred, str):
                preferred = frozenset(p for p in preferred if p in mine or not sibling(p, kind))
            candidates.append(
                Candidate(
                    key,
                    getattr(kind, "refusal", _serves_all),
                    general=getattr(kind, "general", False),
                    preferred_over=preferred,
                    devices=getattr(kind, "devices", frozenset({"cuda"})),
                    supported_archs=getattr(kind, "supported_archs", None),
                    implementation=kind,
                )
            )
        return cls(
            face.request,
            candidates,
            op=owner.__name__,
            interface=interface,
            resolve=getattr(op, "resolve", None),
            unserved=getattr(face, "unserved", None),
        )

    # ------------------------------------------------------------------------------------------------ lifted, once

    def _lift_all(self) -> tuple[dict[str, Rule], dict[str, NotLifted]]:
        with self._lock:
            if self._lifted is None:
                with collector_paused:  # It would go through all that is kept again and again.
                    self._lifted = self._lifted_now()
            return self._lifted

    def _lifted_now(self) -> tuple[dict[str, Rule], dict[str, NotLifted]]:
        rules: dict[str, Rule] = {}
        failed: dict[str, NotLifted] = {}
        for candidate in self.candidates:
            try:
                rules[candidate.key] = self._held(lift(candidate.refusal, self.spec, domain=self.domain))
            except NotLifted as error:
                failed[candidate.key] = error
        return rules, failed

    def _held(self, rule: Rule) -> Rule:
        return rule if self.agreed is not None and self.agreed(rule) else rule.replayed(REPLAYS_AT_CONSTRUCTION)

    @property
    def rules(self) -> dict[str, Rule]:
        """The rules that were lifted, by key."""
        return self._lift_all()[0]

    @property
    def not_lifted(self) -> dict[str, NotLifted]:
        """Why the others were not, by key."""
        return self._lift_all()[1]

    @cached_property
    def _validity(self) -> tuple[dict[str, Rule], dict[str, NotLifted]]:
        rules: dict[str, Rule] = {}
        failed: dict[str, NotLifted] = {}
        for name in ("invalid", "__post_init__"):
            function = getattr(self.spec, name, None)
            if function is not None:
                try:
                    rules[name] = lift(function, self.spec, domain=self.domain).replayed(REPLAYS_AT_CONSTRUCTION)
                except NotLifted as error:
                    failed[name] = error
        return rules, failed

    @property
    def invalid(self) -> Rule | None:
        """The call class's own ``invalid``, lifted; None where it has none or it was not lifted."""
        return self._validity[0].get("invalid")

    @property
    def invalid_not_lifted(self) -> NotLifted | None:
        """Why ``invalid`` was not lifted, where it was not."""
        return self._validity[1].get("invalid")

    @property
    def validity_not_lifted(self) -> dict[str, NotLifted]:
        """Why ``invalid`` or ``__post_init__`` were not lifted, where they were not."""
        return self._validity[1]

    @cached_property
    def _declared(self) -> Rule | NotLifted | None:
        if self.unserved is None:
            return None
        try:
            return lift(self.unserved, self.spec, domain=self.domain).replayed(REPLAYS_AT_CONSTRUCTION)
        except NotLifted as error:
            return error

    @property
    def declared_unserved(self) -> Rule | None:
        """``unserved``, lifted when first asked for; None where there is none or it was not lifted."""
        return self._declared if isinstance(self._declared, Rule) else None

    @property
    def unserved_not_lifted(self) -> NotLifted | None:
        """Why ``unserved`` was not lifted, where it was not."""
        return self._declared if isinstance(self._declared, NotLifted) else None

    @cached_property
    def valid(self) -> Predicate:
        """The calls that can be.

        Device facts as the device has them, ``invalid`` silent, ``__post_init__`` content.
        """
        parts = [self.domain.links]
        rules, _ = self._validity
        if "invalid" in rules:
            parts.append(rules["invalid"].serves.expr)
        if "__post_init__" in rules:
            parts.append((~rules["__post_init__"].raises).expr)
        return Predicate(self.domain, conjunction(parts))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The candidates' keys, sorted."""
        return tuple(c.key for c in self.candidates)

    @cached_property
    def _by_key(self) -> dict[str, Candidate]:
        return {c.key: c for c in self.candidates}

    def candidate(self, key: str) -> Candidate:
        """The candidate of that key.

        Raises:
            KeyError: there is none.
        """
        found = self._by_key.get(key)
        if found is None:
            raise KeyError(f"no implementation has the key {key!r}: there are {', '.join(self.keys)}")
        return found

    def place(self, key: str) -> str:
        """``file:line`` of the function that states an implementation's calls."""
        file, line = self.candidate(key).place
        return f"{file}:{line}"

    def available(self, key: str) -> Predicate:
        """The calls on whose device an implementation can run."""
        candidate = self.candidate(key)
        where = candidate.devices, candidate.supported_archs
        if where not in self._available:
            self._available[where] = self._runs_on(*where)
        return self._available[where]

    def _runs_on(self, devices: frozenset[str], supported_archs: tuple[int, ...] | None) -> Predicate:
        everything = Predicate(self.domain, conjunction([]))
        device = self.domain.fields.get("device")
        on_device = everything
        archs = everything
        if isinstance(device, DeviceShape):
            on_device = asked_of(self.domain, device).type.isin(devices)
        if supported_archs is not None:
            archs = asked_of(self.domain, self.domain.fields["arch"]).isin(supported_archs)
            if isinstance(device, DeviceShape):
                archs = ~asked_of(self.domain, device).type.isin(["cuda"]) | archs
        return on_device & archs

    def claims(self, key: str) -> Predicate | None:
        """The calls that an implementation can run and serves; None where its rule was not lifted."""
        if key not in self._claims:
            rule = self.rules.get(key)
            self._claims[key] = None if rule is None else self.available(key) & rule.serves
        return self._claims[key]

    def raising(self, key: str) -> Predicate | None:
        """The calls that an implementation can run and on which its rule raises; None where that was not lifted."""
        rule = self.rules.get(key)
        return None if rule is None else self.available(key) & rule.raises

    # ------------------------------------------------------------------------------------------------------ one call

    def _first_mask(self, call: Any) -> int:
        with self._lock:
            self.compile()
        return self.mask(call)

    def compile(self) -> None:
        """Lift and compile now rather than at the first call."""
        with self._lock:
            if self.mask == self._first_mask:
                self.mask = dispatching.mask_function(self)

    def plain_mask(self, call: Any) -> int:
        """As ``mask``, by the original methods: for calls outside an assumed domain.

        Raises:
            OutsideDomain: a declared domain is broken.
            InvalidCall: ``invalid`` gives a reason.
            RefusalError: a refusal raised.
        """
        dispatching.enforce_declared(self.domain, call)
        dispatching.check_valid(self.spec, call)
        return sum(
            1 << i
            for i, c in enumerate(self.candidates)
            if c.cannot_run(call) is None and self.refused(c, call) is None
        )

    @staticmethod
    def refused(candidate: Candidate, call: Any) -> Any:
        """What the original refusal gives.

        Raises:
            RefusalError: it raised; the original is chained.
        """
        try:
            return candidate.refusal(call)
        except Exception as error:
            raise RefusalError(candidate.key, call, error) from error

    def winner(self, mask: int) -> int:
        """Index of the candidate that wins where those of *mask* serve.

        -1 where none serves, -2 where several tie.
        """
        found = self._winners.get(mask)
        if found is None:
            tied = self.undefeated(mask)
            found = self._winners[mask] = tied[0] if len(tied) == 1 else -2 if tied else -1
        return found

    def undefeated(self, mask: int) -> tuple[int, ...]:
        """Indices of the serving candidates over which no other serving one is preferred."""
        serving = [i for i in range(len(self.candidates)) if mask >> i & 1]
        beaten = {k for i in serving for k in self.wins_over[self.candidates[i].key]}
        return tuple(i for i in serving if self.candidates[i].key not in beaten)

    def pick(self, call: Any) -> int:
        """Index of the candidate that runs for a call whose device facts are filled in.

        Raises:
            NoImplementation: none serves it; with the explanation.
            AmbiguousDispatch: several serve it and none is preferred (only where no proof was possible).
            OutsideDomain, InvalidCall, RefusalError: as for ``mask``.
        """
        mask = self.mask(call)
        index = self._winners.get(mask)
        if index is None:
            index = self.winner(mask)
        if index >= 0:
            return index
        if index == -1:
            raise self._nobody(call)
        raise AmbiguousDispatch(call, tuple(self.candidates[i].key for i in self.undefeated(mask)))

    def _nobody(self, call: Any) -> NoImplementation:
        explanation = self._explained(call)
        try:
            return NoImplementation(call, explanation, None if self.unserved is None else self.unserved(call))
        except Exception as error:
            raise NoImplementation(call, explanation, f"unserved raised {type(error).__name__}: {error}") from error

    def resolved(self, call: Any) -> Any:
        """The call with its device facts filled in, where the op knows how.

        Raises:
            TypeError: it is not of this selector's class.
        """
        if not isinstance(call, self.spec):
            raise TypeError(f"this selector takes a {self.spec.__name__} call spec, not a {type(call).__name__}")
        return call if self._resolve is None else self._resolve(call)

    def select(self, call: Any) -> str:
        """The key that runs for a call.

        Raises:
            TypeError: it is not of this selector's class.
            NoImplementation, AmbiguousDispatch, OutsideDomain, InvalidCall, RefusalError: as for ``pick``.
        """
        return self.candidates[self.pick(self.resolved(call))].key

    def explain(self, call: Any) -> Explanation:
        """The winner, and what every candidate said.

        Raises:
            TypeError: *call* is not of this selector's class.
            OutsideDomain, InvalidCall: the call itself cannot be.
        """
        call = self.resolved(call)
        dispatching.enforce_declared(self.domain, call)
        dispatching.check_valid(self.spec, call)
        return self._explained(call)

    def said(self, key: str, call: Any) -> Entry:
        """What one implementation says of a call, asked by itself.

        Its status is ``serves``, ``refuses``, ``cannot run`` or ``raises``.

        Raises:
            KeyError: there is no such implementation.
            TypeError: *call* is not of this selector's class.
            OutsideDomain, InvalidCall: the call itself cannot be.
        """
        call = self.resolved(call)
        dispatching.enforce_declared(self.domain, call)
        dispatching.check_valid(self.spec, call)
        return said(self.candidate(key), self.rules.get(key), self.domain, call)

    def _explained(self, call: Any) -> Explanation:
        entries = [said(each, self.rules.get(each.key), self.domain, call) for each in self.candidates]
        mask = sum(1 << i for i, entry in enumerate(entries) if entry.status == "serves")
        tied = [self.candidates[i].key for i in self.undefeated(mask)]
        raising = next((entry.key for entry in entries if entry.status == "raises"), None)
        winner = tied[0] if len(tied) == 1 and raising is None else None
        for i, entry in enumerate(entries):
            if entry.status != "serves":
                continue
            if raising is not None:
                entries[i] = replace(entry, status="in vain", loses_to=raising)
            elif entry.key == winner:
                entries[i] = replace(entry, status="chosen")
            elif entry.key in tied:
                entries[i] = replace(entry, status="ties", loses_to=next(k for k in tied if k != entry.key))
            else:
                entries[i] = replace(entry, status="loses", loses_to=self._beater(entry.key, mask, winner))
        return Explanation(winner, tuple(entries))

    def _beater(self, key: str, mask: int, winner: str | None) -> str:
        if winner is not None and key in self.wins_over[winner]:
            return winner
        return next(c.key for i, c in enumerate(self.candidates) if mask >> i & 1 and key in self.wins_over[c.key])

    def __repr__(self) -> str:
        return f"<Selector of {self.op or self.spec.__name__}: {', '.join(self.keys)}>"


def _serves_all(call: Any) -> None:
    return None
