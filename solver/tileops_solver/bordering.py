"""The boundary cases of an interface: for each region and each face of it, calls just inside, on and just outside.

Two regions of each implementation are looked at on each platform: what it *claims* (it can run there and
serves), and, where others win over it, its *choice*. A case stands at a spot of a face that only this face
decides: with its answer turned round and all others kept, the region would say the opposite. It is the smallest
call of the region with one field changed where that is such a call, else the smallest one that the solver finds.
Where there is none just outside, the case there says which other conditions change with it, and one more stands
at the nearest value at which only the face decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tileops_rules import Predicate, Selector
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import FALSE, TRUE, Expr, Path, conjunction, equals, negation, paths_of

from tileops_solver.answer import InconsistencyError
from tileops_solver.cases import Border, Case, Cases, choice_of
from tileops_solver.engine import Outcome, Question
from tileops_solver.faces import Face, Ray, Spot, atom_text, faces_of
from tileops_solver.orders import Along
from tileops_solver.placing import answer_at, atoms_of, holds_on, replaced, shown_on, with_facts_of
from tileops_solver.real_methods import serving
from tileops_solver.searching import Search
from tileops_solver.subject import Platform, Subject
from tileops_solver.validity import rejection
from tileops_solver.witness import Witness

__all__ = ["MOST_CASES", "cases_of"]

MOST_CASES: Final = 2_000
"""Cases of one interface at which the search stops, unless another number is given."""

_STEPS_TRIED: Final = 64
"""Values along a ray that are tried by themselves before the solver is asked for the nearest."""


def cases_of(subject: Subject, *, within: Predicate | None = None, most: int = MOST_CASES) -> Cases:
    """The boundary cases of an interface.

    Args:
        subject: The interface, and the archs to look at.
        within: Look only among the calls for which this holds.
        most: Stop after this many cases.

    Raises:
        InconsistencyError: solver, rules and original functions do not agree.
    """
    search = _Search(subject, TRUE if within is None else within.expr)
    complete = True
    for _ in search.run():
        if len(search.found) > most:
            complete = False
            break
    selector = subject.selector
    cases = tuple(_numbered(list(search.found.values())[:most]))
    return Cases(selector.op, selector.interface, selector.spec.__name__, cases, tuple(search.undecided), complete)


def _numbered(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases, each with a name of its own."""
    names: Counter[str] = Counter()
    for case in cases:
        names[str(case)] += 1
        yield replace(case, number=names[str(case)])


@dataclass(frozen=True)
class _Region:
    platform: Platform
    key: str
    kind: str
    expr: Expr
    around: Expr
    starts: tuple[Witness, ...] = ()

    def border(self, face: str, where: str, at: str, also: tuple[str, ...] = ()) -> Border:
        return Border(self.key, self.kind, face, where, at, also)


class _Search:
    def __init__(self, subject: Subject, within: Expr) -> None:
        self._subject = subject
        self._within = within
        self._asked: dict[Expr, Witness] = {}
        self._before: dict[Expr, Any] = {}
        self.found: dict[Any, Case] = {}
        self.undecided: list[str] = []

    def run(self) -> Iterator[None]:
        """Look at every region, giving way after each case."""
        for key in self._subject.unlifted:
            self.undecided.append(f"{key}: {self._subject.causes([key])}")
        for platform in self._subject.platforms:
            around = conjunction([platform.calls, self._within])
            for key in self._subject.lifted:
                yield from self._whole(platform, key, around)
                for region in self._regions(platform, key, around):
                    for face in faces_of(region.expr, self._subject.domain, self._subject.valid):
                        yield from self._at_face(region, face)

    def _whole(self, platform: Platform, key: str, around: Expr) -> Iterator[None]:
        """The smallest call that an implementation serves on a platform; where it cannot run, would serve."""
        subject = self._subject
        runs = holds_on(platform, subject.available(key)) is not FALSE
        where, at = ("inside" if runs else "outside"), ("" if platform.name else "smallest")
        region = _Region(platform, key, "claims", subject.selector.rules[key].serves.expr, around)
        witness = self._ask(region, "", [region.expr])
        if witness is not None:
            yield from self._add(region, witness, region.border(_runs_on(subject.selector, key, platform), where, at))

    def _regions(self, platform: Platform, key: str, around: Expr) -> Iterator[_Region]:
        """What an implementation claims, and its choice where others win over it, with their smallest calls."""
        subject = self._subject
        claims = holds_on(platform, subject.lifted[key])
        if claims is FALSE:
            return
        claimed = _Region(platform, key, "claims", claims, around)
        start = self._ask(claimed, "", [claims])
        if start is not None:
            yield replace(claimed, starts=(start,))
        better = [holds_on(platform, subject.lifted[k]) for k in subject.better(key) if k in subject.lifted]
        chosen = conjunction([claims, *map(negation, better)])
        if chosen is not claims:
            # Its faces are those of the winners too: a step from where these begin leads to them.
            starts = (self._ask(claimed, "", [expr]) for expr in (chosen, *better) if expr is not FALSE)
            yield _Region(platform, key, "choice", chosen, around, tuple(filter(None, starts)))

    # -------------------------------------------------------------------------------------------------- one face

    def _at_face(self, region: _Region, face: Face) -> Iterator[None]:
        yes, no = (replaced(region.expr, {face.atom: answer}) for answer in (TRUE, FALSE))
        decides = conjunction([yes, negation(no)] if face.positive else [no, negation(yes)])
        if decides is FALSE:
            return
        start: Witness | None = None
        for spot in face.spots:
            if start is None and not spot.inside:
                return  # no call inside depends on this condition: others bound the region before it does
            place, witness = spot, self._at(region, face, spot, decides)
            if witness is None and not spot.inside:
                yield from self._with_others(region, face, spot, start)
            if witness is None:
                place, witness = self._ahead(region, face, spot, decides)
            if witness is not None:
                start = start or witness
                yield from self._add(region, witness, self._border(region, face, place, witness))

    def _at(self, region: _Region, face: Face, spot: Spot, question: Expr) -> Witness | None:
        """A call at a spot for which *question* holds: at best one change away from where the region begins."""
        parts = [spot.fixed, spot.settled(question)]
        if FALSE in parts:
            return None
        return self._moved(region, region.starts, spot, parts) or self._ask(region, face.text, parts)

    def _moved(self, region: _Region, starts: Iterable[Witness], spot: Spot, parts: list[Expr]) -> Witness | None:
        """One of *starts* with one slot changed so that it is at the spot, where *parts* hold there."""
        for start in starts:
            values = self._subject.domain.read(start.call)
            for path, value in spot.moves(values):
                found = self._tried(region, {**values, path: value}, parts)
                if found is not None:
                    return found
        return None

    def _tried(self, region: _Region, values: Mapping[Path, Any], parts: list[Expr]) -> Witness | None:
        """The call with these slot values, where it is a valid one on the region's platform for which *parts* hold."""
        subject = self._subject
        try:
            call = subject.domain.build(values)
            held = subject.domain.read(call)
        except Exception:  # noqa: BLE001 - a spec's own constructor may refuse it in any way; then the solver is asked
            return None
        if not all(answer_at(part, held) for part in (subject.valid, region.around, *parts)):
            return None
        if rejection(subject.selector, call) is not None:
            return None
        subject.confirm(call, subject.lifted)
        return Witness(Outcome.POSSIBLE, call)

    def _ahead(self, region: _Region, face: Face, spot: Spot, decides: Expr) -> tuple[Spot, Witness | None]:
        """The nearest call beyond a spot that only the face decides."""
        if not isinstance(spot.ahead, Ray):
            for further in spot.ahead:
                witness = self._at(region, face, further, decides)
                if witness is not None:
                    return further, witness
            return spot, None
        return spot, self._along(region, face, spot, spot.ahead, decides)

    def _along(self, region: _Region, face: Face, spot: Spot, ray: Ray, decides: Expr) -> Witness | None:
        """The call on a ray nearest to its start: of those one change away, else, by the solver, of all."""
        if ray.subject.kind != "int":
            return self._one_change_away(region, spot, ray, decides) or self._by_halves(region, face, ray, decides)
        parts = [self._subject.valid, region.around, ray.until(None), decides]
        with Question(conjunction(parts), self._subject.domain) as question:
            reply = question.check()
            if reply.outcome is Outcome.IMPOSSIBLE:
                return None
            near = self._one_change_away(region, spot, ray, decides)
            if near is not None:
                return near
            path, found = ray.subject.data, None
            if path in reply.codes:
                search = Search(question, lambda _, span, best: Along(ray.start, ray.step, span[ray.step > 0]))
                found = equals(ray.subject, search.first_at(path, reply.codes))
        nearest = None if found is None else self._ask(region, face.text, [found, decides])
        return nearest or self._by_halves(region, face, ray, decides)

    def _one_change_away(self, region: _Region, spot: Spot, ray: Ray, decides: Expr) -> Witness | None:
        """A call on a ray, near its start, that is one change away from where the region begins."""
        for value in range(ray.start, ray.start + ray.step * _STEPS_TRIED, ray.step) if spot.path else ():
            there = replace(spot, held=value, fixed=equals(ray.subject, value))
            near = self._moved(region, region.starts, there, [there.fixed, decides])
            if near is not None:
                return near
        return None

    def _by_halves(self, region: _Region, face: Face, ray: Ray, decides: Expr) -> Witness | None:
        """The call on a ray nearest to its start, by asking for the smallest call of ever smaller parts of it."""
        best = self._ask(region, face.text, [ray.until(None), decides])
        start, width = ray.start, 2
        while best is not None and start != (far := self._value(ray.subject, best)):
            width = min(width, abs(far - start))
            end = start + ray.step * (width - 1)
            found = self._ask(region, face.text, [replace(ray, start=start).until(end), decides])
            if found is None:
                start, width = end + ray.step, 2 * width
            else:
                best, width = found, (abs(self._value(ray.subject, found) - start) + 1) // 2
        return best

    def _with_others(self, region: _Region, face: Face, spot: Spot, start: Witness | None) -> Iterator[None]:
        """A call at a spot outside that agrees with *start*, on the face, in as many conditions as can be."""
        parts = [spot.fixed, negation(region.expr)]
        if start is None:
            return
        witness = self._moved(region, (start,), spot, parts) or self._ask(region, face.text, parts)
        if witness is None:
            return
        others: list[str] = []
        before = self._subject.domain.read(start.call)
        for atom in atoms_of(region.expr):
            kept = None if atom is face.atom else answer_at(atom, before)
            if kept is None:
                continue
            wanted = atom if kept else negation(atom)
            if answer_at(wanted, self._subject.domain.read(witness.call)):
                parts.append(wanted)
                continue
            closer = self._ask(region, face.text, [*parts, wanted]) if set(paths_of(atom)) != {spot.path} else None
            if closer is None:
                others.append(atom_text(atom, kept, self._subject.domain))
            else:
                witness = closer
                parts.append(wanted)
        yield from self._add(region, witness, self._border(region, face, spot, witness, tuple(others)))

    def _border(self, region: _Region, face: Face, spot: Spot, witness: Witness, also: tuple[str, ...] = ()) -> Border:
        value = str(self._value(spot.ahead.subject, witness)) if isinstance(spot.ahead, Ray) else spot.value
        return region.border(face.text, spot.where, f"{face.subject}={value}", also)

    def _value(self, subject: Expr, witness: Witness) -> int:
        value: int = evaluate(subject, self._subject.domain.read(witness.call))
        return value

    # -------------------------------------------------------------------------------------------------- one call

    def _ask(self, region: _Region, face: str, parts: list[Expr]) -> Witness | None:
        """The smallest call on the region's platform for which *parts* hold; None where there is none."""
        question, bare = conjunction([region.around, *parts]), conjunction(parts)
        witness = self._asked.get(question) or self._as_before(region, bare)
        if witness is None:
            witness = self._subject.find([question], self._subject.lifted)
        self._asked[question] = witness
        if witness.outcome is Outcome.UNKNOWN:
            line = f"{region.platform.name} {region.kind} of {region.key}, {face or 'the smallest call'}"
            line = f"{line.strip()}: {witness.reason}"
            if line not in self.undecided:
                self.undecided.append(line)
        if witness.outcome is not Outcome.POSSIBLE:
            return None
        self._before[bare] = witness.call
        return witness

    def _as_before(self, region: _Region, bare: Expr) -> Witness | None:
        """What answered the same question on an earlier platform, where it does so with the facts of this one."""
        call = self._before.get(bare)
        if call is None or region.platform.arch is None:
            return None
        return self._tried(region, with_facts_of(region.platform, self._subject.domain.read(call)), [bare])

    def _add(self, region: _Region, witness: Witness, border: Border) -> Iterator[None]:
        name, call = region.platform.name, witness.call
        held = tuple((path, repr(value)) for path, value in self._subject.domain.read(call).items())
        case = self.found.get((name, held))
        if case is None:
            self._confirm(region, border, call)
            expected, note = choice_of(self._subject.selector, call)
            shown = shown_on(name, region.platform.arch, call)
            self.found[name, held] = Case(call, expected, name, (border,), shown, note)
        elif border not in case.borders:
            self._confirm(region, border, call)
            self.found[name, held] = replace(case, borders=(*case.borders, border))
        yield

    def _confirm(self, region: _Region, border: Border, call: Any) -> None:
        """Hold a border against the original methods.

        Raises:
            InconsistencyError: the call is not where the border says.
        """
        selector = self._subject.selector
        mask, _ = serving(selector, call)
        if region.kind == "choice":
            index = selector.keys.index(region.key)
            inside = index in selector.undefeated(mask)
        else:
            inside = bool(mask >> selector.keys.index(region.key) & 1)
        if inside is (border.where == "outside"):
            raise InconsistencyError(
                f"a call that is to be {border.where} at `{border.face}` of {region.key} is not when it is run",
                call=call,
                facts=(f"call: {call!r}", f"region ({region.kind}): {region.expr}"),
            )


def _runs_on(selector: Selector, key: str, platform: Platform) -> str:
    """What decides whether an implementation runs on a platform, as text."""
    candidate = selector.candidate(key)
    if not platform.name:
        return ""
    archs = candidate.supported_archs
    if platform.arch is not None and archs is not None and "cuda" in candidate.devices:
        return f"arch in {archs}" if len(archs) != 1 else f"arch == {archs[0]}"
    devices = sorted(candidate.devices)
    return f"device.type in {tuple(devices)}" if len(devices) != 1 else f"device.type == {devices[0]!r}"
