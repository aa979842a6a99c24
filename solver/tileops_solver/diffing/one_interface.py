"""Compares the rules of one interface before and now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.expr import FALSE, TRUE, Expr, conjunction, disjunction, paths_of

from tileops_solver.answer import InconsistencyError
from tileops_solver.describing import describe
from tileops_solver.diffing.changes import KINDS, Change, InterfaceChanges
from tileops_solver.diffing.choices import NOBODY, TIE, Side, fails, holds
from tileops_solver.diffing.domains import common_domain, inside
from tileops_solver.diffing.live import CannotBuild, chosen_by_methods, real_call
from tileops_solver.engine import Outcome, Question
from tileops_solver.recorded import RecordedSelector
from tileops_solver.validity import rejection
from tileops_solver.witness import Witness, smallest_call

__all__ = ["Comparison"]

_FEW: Final = 12
"""So many implementations are all looked at; of more, those that meet the ones that changed."""


class Comparison:
    """One interface, before and now.

    Args:
        old: The rules before.
        new: The rules now.
        live: What the rules now were recorded from, where that is at hand: its methods are put to the test.
    """

    def __init__(self, old: RecordedSelector, new: RecordedSelector, live: Selector | None = None) -> None:
        self._live = live
        self._recorded = (old, new)
        self.domain, self._apart = common_domain(old.domain, new.domain)
        self._old = Side(old, inside(old.domain, self.domain), {key: key for key in old.keys})
        self._new = Side(new, inside(new.domain, self.domain), {key: key for key in new.keys})
        self._renamed: dict[str, str] = {}
        self._undecided: list[str] = []

    def result(self) -> InterfaceChanges:
        """What changed."""
        new = self._recorded[1]
        changes: list[Change] = []
        kept = self._unreadable()
        if not kept:
            self._find_renamed()
            changes = sorted(self._changes(), key=lambda each: (KINDS.index(each.kind), each.old or "", each.new or ""))
            self._say_unlifted()
        return InterfaceChanges(
            new.op, new.interface, tuple(changes), tuple(self._notes()), tuple(dict.fromkeys(self._undecided))
        )

    def _unreadable(self) -> bool:
        """Whether the rules before read fields that are of another kind now."""
        old = self._old
        asked = [old.valid, old.declared or TRUE, *(old.may_serve(name) for name in old.keys)]
        read = {str(path[0]) for expr in asked for path in paths_of(expr)}.intersection(self._apart)
        if read:
            self._undecided.append(
                f"{', '.join(sorted(read))} is of another kind than before: "
                f"the rules of before cannot be asked about calls of now"
            )
        for name in sorted(set(self._apart) - read):
            self._undecided.append(
                f"{name} is of another kind than before: whether calls that could hold another value there are served "
                f"as they were is not known"
            )
        return bool(read)

    # ------------------------------------------------------------------------------------------------ what is compared

    def _find_renamed(self) -> None:
        """Pair implementations that have another key and serve the same calls."""
        gone = [name for name in self._old.keys if name not in self._new.keys]
        come = [name for name in self._new.keys if name not in self._old.keys]
        names = {key: key for key in self._new.selector.keys}
        for old in gone:
            twin = next((new for new in come if self._alike(self._old.serves(old), self._new.serves(new))), None)
            if twin is not None:
                come.remove(twin)
                names[twin] = old
                self._renamed[old] = twin
        if self._renamed:
            self._new = Side(self._new.selector, self._new.inside, names)

    def _alike(self, old: Expr | None, new: Expr | None) -> bool:
        """Whether two claims are known and hold for the same calls."""
        return (
            old is not None
            and new is not None
            and self._never(conjunction([new, fails(old, new)]))
            and self._never(conjunction([old, fails(new, old)]))
        )

    def _never(self, expr: Expr) -> bool:
        with Question(expr, self.domain) as question:
            return question.check().outcome is Outcome.IMPOSSIBLE

    def _changed(self) -> list[str]:
        """The implementations whose calls or preferences differ, or of which that is not known."""
        old, new = self._old, self._new
        both = frozenset(old.keys) & frozenset(new.keys)
        orders = [{name: [over & both for over in side.order(name)] for name in both} for side in (old, new)]
        unlifted = {*old.unlifted, *new.unlifted}
        return [
            name
            for name in dict.fromkeys((*old.keys, *new.keys))
            if name not in both
            or name in unlifted
            or old.serves(name) is not new.serves(name)
            or orders[0][name] != orders[1][name]
        ]

    def _changes(self) -> Iterator[Change]:
        changed = self._changed()
        for old_key, new_key in self._renamed.items():
            yield Change("renamed", old_key, new_key)
        for name in changed:
            yield from self._of_one(name)
        yield from self._found("newly raising", None, None, self._new.raising, self._old.raising, self._new.valid)
        yield from self._found("no longer raising", None, None, self._old.raising, self._new.raising, self._old.valid)
        yield from self._declarations()
        if changed:
            yield from self._choices(changed)

    # --------------------------------------------------------------------------------------------- one implementation

    def _of_one(self, name: str) -> Iterator[Change]:
        before = self._old.serves(name) if name in self._old.keys else FALSE
        now = self._new.serves(name) if name in self._new.keys else FALSE
        if name not in self._old.keys:
            yield self._whole("added", None, name, now, self._new)
        elif name not in self._new.keys:
            yield self._whole("removed", name, None, before, self._old)
        elif before is not None and now is not None:
            yield from self._found("widened", name, name, now, before, self._new.valid)
            yield from self._found("narrowed", name, name, before, now, self._old.valid)

    def _declarations(self) -> Iterator[Change]:
        before, now = self._old.declared, self._new.declared
        if before is not None and now is not None:
            yield from self._found("declared unserved", None, None, now, before, self._new.valid)
            yield from self._found("no longer declared unserved", None, None, before, now, self._old.valid)

    def _whole(self, kind: str, old: str | None, new: str | None, serves: Expr | None, side: Side) -> Change:
        if serves is None:
            return Change(kind, old, new)
        witness = self._smallest(serves)
        region = describe(serves, self.domain, side.valid)
        return Change(kind, old, new, region, self._shown(witness.call))

    def _found(
        self, kind: str, old: str | None, new: str | None, more: Expr, less: Expr, given: Expr
    ) -> Iterator[Change]:
        """The calls of *more* that are none of *less*, if there are any."""
        if more is less:
            return
        region = conjunction([more, fails(less, more)])
        witness = self._smallest(region)
        if witness.outcome is Outcome.POSSIBLE:
            yield Change(kind, old, new, describe(region, self.domain, given), self._shown(witness.call))
        elif witness.outcome is Outcome.UNKNOWN:
            self._undecided.append(f"{kind}{'' if new is None else f': {new}'}: {witness.reason}")

    # -------------------------------------------------------------------------------------------------------- choices

    def _choices(self, changed: list[str]) -> Iterator[Change]:
        """Every pair of a choice before and another one now, and what is never chosen any more."""
        looked_at, there = self._near(changed)
        old, new = self._old.only(looked_at), self._new.only(looked_at)
        known = TRUE if not new.unlifted else disjunction(new.chosen(choice) for choice in new.choices)
        for choice in old.choices:
            before = conjunction([old.chosen(choice), there])
            if before is not FALSE and before is not conjunction([new.chosen(choice), there]):
                yield from self._moved(choice, before, known, old, new)
                yield from self._dead(choice, before, old, new)

    def _near(self, changed: list[str]) -> tuple[list[str], Expr]:
        """The implementations that may be chosen in place of *changed*, and the calls that these serve."""
        every = list(dict.fromkeys((*self._old.keys, *self._new.keys)))
        if len(every) <= _FEW:
            return every, TRUE
        sides = [(side, name) for name in changed for side in (self._old, self._new) if name in side.keys]
        there = disjunction(side.may_serve(name) for side, name in sides)
        met = {n for n in self._old.keys if n in changed or not self._never(self._with(self._old, n, there))}
        return [name for name in every if name in changed or name in met], there

    @staticmethod
    def _with(side: Side, name: str, there: Expr) -> Expr:
        return conjunction([side.may_serve(name), there])

    def _moved(self, choice: str, before: Expr, known: Expr, old: Side, new: Side) -> Iterator[Change]:
        left = [before, known, fails(new.chosen(choice), before)]
        while True:
            witness = self._smallest(conjunction(left))
            if witness.outcome is not Outcome.POSSIBLE:
                break
            now = new.choice_at(self.domain.read(witness.call))
            if now is None or now == choice:
                raise InconsistencyError(
                    "a call was found whose choice changed, and its choice did not change",
                    call=witness.call,
                    facts=(f"before: {choice}", f"now: {now}"),
                )
            region = conjunction([before, new.chosen(now)])
            given = conjunction(side.valid for side, one in ((old, choice), (new, now)) if one != NOBODY)
            names = (old.own(choice), new.own(now))
            yield Change(_kind(choice, now), *names, describe(region, self.domain, given), self._shown(witness.call))
            left.append(fails(new.chosen(now), before))
        if witness.outcome is Outcome.UNKNOWN:
            self._undecided.append(f"whether all calls of {old.own(choice)} stay with it: {witness.reason}")

    def _dead(self, name: str, before: Expr, old: Side, new: Side) -> Iterator[Change]:
        """An implementation that was chosen and never is now."""
        if name not in new.keys or new.unlifted or not self._never(new.chosen(name)):
            return
        witness = self._smallest(before)
        if witness.outcome is Outcome.POSSIBLE:
            region = describe(before, self.domain, old.valid)
            yield Change("newly dead", old.own(name), new.own(name), region, self._shown(witness.call))
        elif witness.outcome is Outcome.UNKNOWN:
            self._undecided.append(f"whether {name}, which no call chooses now, was chosen before: {witness.reason}")

    # ------------------------------------------------------------------------------------------------------ witnesses

    def _smallest(self, region: Expr) -> Witness:
        return smallest_call(region, self.domain, self._accepts)

    def _accepts(self, call: Any) -> str | None:
        """Put a call to the real methods, where there are any and it is a call for them."""
        live = self._live
        values = self.domain.read(call)
        if live is None or not holds(self._new.valid, values):
            return None
        try:
            real = real_call(live, values)
        except CannotBuild as problem:
            return str(problem)
        reason = rejection(live, real)
        expected = self._new.choice_at(values)
        if reason is None and expected is not None:
            said = chosen_by_methods(live, real)
            if said != self._new.own(expected):
                raise InconsistencyError(
                    f"{live.op}.{live.interface} chooses another implementation than its recorded rules say",
                    call=real,
                    facts=(f"call: {real!r}", f"rules: {self._new.own(expected)}", f"methods: {said}"),
                )
        return reason

    def _shown(self, call: Any) -> Any:
        """The call as its own class shows it, where that is at hand."""
        if self._live is None or call is None:
            return call
        try:
            return real_call(self._live, self.domain.read(call))
        except CannotBuild:
            return call

    # ----------------------------------------------------------------------------------------------------------- words

    def _say_unlifted(self) -> None:
        for label, side in (("before", self._old), ("now", self._new)):
            failed = side.selector.not_lifted
            for name in side.unlifted:
                cause = failed[side.own(name)].cause
                self._undecided.append(f"what {side.own(name)} serves: its rule was not lifted {label}: {cause}")
            for rule, error in sorted(side.selector.validity_not_lifted.items()):
                self._undecided.append(f"which calls are valid: {rule} was not lifted {label}: {error.cause}")
            if side.selector.unserved_not_lifted is not None:
                cause = side.selector.unserved_not_lifted.cause
                self._undecided.append(f"which calls are declared unserved: that was not lifted {label}: {cause}")

    def _notes(self) -> Iterator[str]:
        old, new = (selector.domain for selector in self._recorded)
        for name in sorted({*old.fields, *new.fields}):
            if name not in old.fields:
                yield f"{name} is a new field: the rules of before do not depend on it"
            elif name not in new.fields:
                yield f"{name} is no field any more: the rules of now do not depend on it"
            elif name in self._apart:
                yield f"{name} is of another kind than before"
            else:
                yield from _ranges(name, old.slots, new.slots)


def _ranges(field: str, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[str]:
    for path in old:
        if path[0] == field and path in new and str(old[path]) != str(new[path]):
            yield f"{new[path].name} ranges over {new[path]}, before over {old[path]}"


def _kind(before: str, now: str) -> str:
    if TIE in (before, now):
        return "newly tied" if now == TIE else "no longer tied"
    return "newly served" if before == NOBODY else "newly unserved" if now == NOBODY else "moved"
