"""The audit: every question about every interface of a target, in one report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import combinations
from typing import Any

from tileops_rules import Selector
from tileops_rules.shapes import IntShape
from tileops_rules.watch import collector_paused

from tileops_solver.checks.asked import Result
from tileops_solver.checks.catalogue import Selection
from tileops_solver.checks.cycles import table_findings
from tileops_solver.checks.replays import replay_rules
from tileops_solver.findings import InterfaceReport, Pairs, Report, Undecided, Unlifted
from tileops_solver.places import from_import_root
from tileops_solver.proofs.replays import Replays
from tileops_solver.proofs.shelf import Shelf
from tileops_solver.proofs.store import ProofFile
from tileops_solver.subject import Subject, archs_of
from tileops_solver.targets import TargetError, op_classes

__all__ = ["Progress", "audit"]

Progress = Callable[[int, int, str], None]
"""Called with the steps done, the steps in all, and what is being looked at."""

_SubjectOf = Callable[[Selector, tuple[Selector, ...], str, ProofFile | None], Subject]


def audit(
    target: Any,
    *,
    progress: Progress | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    archs: Collection[int] | None = None,
    independent_of: Collection[str] = (),
    changes_within: Collection[str] = (),
    proofs: Shelf | None = None,
) -> Report:
    """Ask every question of the catalogue about each interface of *target*.

    Above all that no valid call is claimed twice without a declared winner. Every rule is also run against its
    original on at least 2,000 calls near its thresholds.

    Args:
        target: An op class or object, a module (walked with its sub-modules for classes that have
            ``kernel_types`` and ``interfaces``), or a :class:`~tileops_rules.Selector`; or several of these in a
            list or tuple.
        progress: Called as the work goes on.
        select: Ids of checks or kinds of finding to look for; all where empty.
        ignore: Those to leave out.
        archs: Archs to look at; all where None. Checks that speak of all archs together (edges, equal, unread) are
            then not asked.
        independent_of: Fields that are to be shown to change no choice; interfaces without them are left alone.
        changes_within: Integer fields of which every value is wanted at which the choice changes.
        proofs: Where answers are looked up and remembered; where None, they are looked up beside each op's package.

    Raises:
        TargetError: the target is none of these, or a module in it cannot be imported.
        UnknownCheck: *select* or *ignore* names neither a check nor a kind of finding.
        InconsistencyError: solver, rules and original functions do not agree; a mistake in this library.
        ImportError: z3 is needed and not installed.
    """
    asked = Selection(select, ignore, whole=archs is None)
    jobs = _jobs_of(target if isinstance(target, list | tuple) else [target])
    jobs.sort(key=lambda job: (job.op, job.interface, job.home))
    _check_fields(jobs, independent_of, changes_within)
    _check_archs(jobs, archs or ())
    steps = _Steps(sum(job.steps(asked) for job in jobs), progress)

    def subject_of(
        selector: Selector, siblings: tuple[Selector, ...], label: str, on_file: ProofFile | None
    ) -> Subject:
        return Subject(
            selector,
            siblings=siblings,
            step=lambda: steps.take(label),
            independent_of=independent_of,
            changes_within=changes_within,
            archs=archs,
            proofs=on_file,
        )

    shelf = Shelf() if proofs is None else proofs
    return Report(tuple(job.run(asked, steps, subject_of, shelf) for job in jobs))


def _check_archs(jobs: Iterable[_Job], archs: Iterable[int]) -> None:
    """Raise where an arch is none that any call states.

    Raises:
        TargetError: so it is.
    """
    known = {arch for job in jobs if job.selector is not None for arch in archs_of(job.selector.domain)}
    for arch in archs:
        if known and arch not in known:
            raise TargetError(f"{arch} is no arch that a call here can state: there are {sorted(known)}")


def _check_fields(jobs: Iterable[_Job], independent_of: Iterable[str], changes_within: Iterable[str]) -> None:
    """Raise where a field is asked about that no interface has, or that does not count.

    Raises:
        TargetError: so it is.
    """
    domains = [job.selector.domain for job in jobs if job.selector is not None]
    for name in (*independent_of, *changes_within):
        if not any(name in domain.fields for domain in domains):
            known = sorted({field for domain in domains for field in domain.fields})
            raise TargetError(f"no interface has a field {name}: there are {', '.join(known)}")
    for name in changes_within:
        shapes = [domain.fields[name] for domain in domains if name in domain.fields]
        if not any(isinstance(shape, IntShape) for shape in shapes):
            raise TargetError(f"{name} is no integer, so that its values have no order: ask for independence of it")


def _jobs_of(targets: Iterable[Any]) -> list[_Job]:
    selectors: dict[int, Selector] = {}
    ops: dict[int, Any] = {}
    for each in targets:
        if isinstance(each, list | tuple):
            return _jobs_of([inner for one in targets for inner in (one if isinstance(one, list | tuple) else [one])])
        if isinstance(each, Selector):
            selectors[id(each)] = each
        else:
            ops.update((id(op), op) for op in op_classes(each))
    jobs = [_Job(each.op, each.interface, each) for each in selectors.values()]
    for op in ops.values():
        mine = [_job(op, interface) for interface in op.interfaces]
        siblings = tuple(job.selector for job in mine if job.selector is not None)
        for job in mine:
            job.siblings = siblings
        jobs += mine
    return jobs


def _job(op: Any, interface: str) -> _Job:
    kind = op if isinstance(op, type) else type(op)
    try:
        _check_keys(op)
        return _Job(kind.__name__, interface, Selector.of(op, interface), op)
    except (TypeError, ValueError, AttributeError) as error:
        return _Job(kind.__name__, interface, None, op, error)


def _check_keys(kind: Any) -> None:
    faces = tuple(kind.interfaces.values())
    idle = sorted(str(key) for key, each in kind.kernel_types.items() if not any(_implements(each, f) for f in faces))
    if idle:
        raise ValueError(
            f"{kind.__name__}: {', '.join(idle)}: these keys implement none of its kernel interfaces; "
            f"inherit one of {', '.join(face.__name__ for face in faces)}"
        )


class _Steps:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def take(self, label: str) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total, label)


class _Job:
    """One interface: a selector, or the reason why there is none."""

    def __init__(
        self,
        op: str,
        interface: str,
        selector: Selector | None,
        source: Any = None,
        error: Exception | None = None,
    ) -> None:
        self.op = op
        self.interface = interface
        self.selector = selector
        self.siblings: tuple[Selector, ...] = ()
        self._source = source
        self._error = error

    @property
    def home(self) -> str:
        """Where the op was defined; tells apart two of one name."""
        kind = self._source if isinstance(self._source, type) else type(self._source)
        return f"{kind.__module__}.{kind.__qualname__}"

    def steps(self, asked: Selection) -> int:
        """Steps of work: those of each check, and one for lifting and replaying."""
        if self.selector is None:
            return 1
        return 1 + sum(check.steps(self.selector) for check in asked.checks)

    def run(self, asked: Selection, steps: _Steps, subject_of: _SubjectOf, shelf: Shelf) -> InterfaceReport:
        """The report of this interface."""
        if self.selector is None:
            steps.take(self.op)
            return self._broken()
        with collector_paused:  # It would go through all rules again and again, a fifth of the time.
            return self._report(self.selector, asked, steps, subject_of, shelf)

    def _report(
        self, selector: Selector, asked: Selection, steps: _Steps, subject_of: _SubjectOf, shelf: Shelf
    ) -> InterfaceReport:
        label = f"{self.op}.{self.interface}"
        on_file = None if self._source is None else shelf.file_of(self._source)
        replay_rules(selector, Replays(on_file, self.interface, selector.spec))
        steps.take(label)
        subject = subject_of(selector, self.siblings, label, on_file)
        results: list[Result] = []
        for check in asked.checks:
            subject.asking = check.id
            results.append(check.run(subject))
        return InterfaceReport(
            op=self.op,
            interface=self.interface,
            implementations=selector.keys,
            pairs=next((each.pairs for each in results if each.pairs is not None), Pairs()),
            not_lifted=_unlifted(selector),
            findings=tuple(finding for each in results for finding in each.findings if asked.keeps(finding)),
            assumed_domains=selector.domain.assumed(),
            undecided=tuple(open_point for each in results for open_point in each.undecided),
            answered=subject.answered,
            facts=tuple(fact for each in results for fact in each.facts),
        )

    def _broken(self) -> InterfaceReport:
        """An interface whose table is wrong: nothing is proved of its pairs."""
        face = self._source.interfaces[self.interface]
        classes = {
            key: self._source.kernel_types[key]
            for key in sorted(self._source.kernel_types, key=str)
            if _implements(self._source.kernel_types[key], face)
        }
        error = self._error if self._error is not None else ValueError("no selector")
        contested = [key for key, each in classes.items() if not getattr(each, "general", False)]
        undecided = tuple(
            Undecided(pair, "not asked: the table of implementations is wrong") for pair in combinations(contested, 2)
        )
        return InterfaceReport(
            op=self.op,
            interface=self.interface,
            implementations=tuple(classes),
            pairs=Pairs(undecided=len(undecided)),
            not_lifted=(),
            findings=table_findings(self.op, self.interface, classes, error),
            assumed_domains=(),
            undecided=undecided,
        )


def _implements(kind: Any, face: Any) -> bool:
    return isinstance(kind, type) and isinstance(face, type) and issubclass(kind, face)


def _unlifted(selector: Selector) -> tuple[Unlifted, ...]:
    failed = dict(selector.not_lifted)
    if selector.invalid_not_lifted is not None:
        failed[f"{selector.spec.__name__}.invalid"] = selector.invalid_not_lifted
    if selector.unserved_not_lifted is not None:
        failed["unserved"] = selector.unserved_not_lifted
    return tuple(Unlifted(key, from_import_root(error.place), error.cause) for key, error in sorted(failed.items()))
