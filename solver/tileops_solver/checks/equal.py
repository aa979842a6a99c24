"""Do two implementations serve the same calls? And do two rule sets choose alike?

Two implementations are equal where no valid call is served by one of them, on a device on which it can run, and not
by the other, and some call is served by both. All that are equal to each other are one finding.

:func:`choose_alike` compares two rule sets over one call spec by what they choose: the implementations that serve a
call and over which no other serving one is preferred. That is one; none; or several, where an order is missing.
Implementations of the two sets are the same where their keys are; a rule that raises on a call does not serve it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tileops_rules import Candidate, Selector
from tileops_rules.expr import FALSE, Expr, conjunction, disjunction, negation

from tileops_solver.answer import Answer, InconsistencyError, Verdict
from tileops_solver.checks.asked import Check, Result
from tileops_solver.checks.edits import listed
from tileops_solver.checks.reach import reach_of
from tileops_solver.engine import Outcome
from tileops_solver.findings import Finding, Severity, Undecided
from tileops_solver.real_methods import chosen_keys
from tileops_solver.subject import Subject

__all__ = ["CHECK", "choose_alike"]


def _run(subject: Subject) -> Result:
    result = Result.of(_said(subject))
    subject.step()
    return replace(result, findings=tuple(sorted(result.findings, key=lambda finding: finding.keys)))


def _said(subject: Subject) -> Iterator[Finding | Undecided]:
    reach = reach_of(subject)
    examples: dict[str, Any] = {}
    for key in subject.lifted:
        found = reach.example(subject, key)
        if found.outcome is Outcome.POSSIBLE:
            examples[key] = found.call
        elif found.outcome is Outcome.UNKNOWN:
            yield subject.undecided("equal", (key,), f"whether it serves a call: {found.reason}")
    yield from _unlifted(subject, examples)
    for keys in _alike(subject, examples):
        groups: list[list[str]] = []
        for key in keys:
            yield from _sorted_in(subject, key, groups)
        for group in groups:
            if len(group) > 1:
                yield _finding(subject, group)


def _alike(subject: Subject, examples: dict[str, Any]) -> list[list[str]]:
    """The implementations that serve the same ones of all examples: only such can be equal.

    What serves the call of another has a box that meets that of the other: nobody else is asked.
    """
    reach = reach_of(subject)
    signatures: dict[str, frozenset[str]] = {}
    for key in examples:
        near = (other for other in subject.may_meet(key) if other in examples)
        signatures[key] = frozenset({key, *(other for other in near if reach.serves(key, examples[other]))})
    groups: dict[frozenset[str], list[str]] = {}
    for key, signature in signatures.items():
        groups.setdefault(signature, []).append(key)
    return [keys for keys in groups.values() if len(keys) > 1]


def _sorted_in(subject: Subject, key: str, groups: list[list[str]]) -> Iterator[Undecided]:
    """Put *key* into the group of those that it is equal to, or into one of its own."""
    for group in groups:
        reason = _differ(subject, key, group[0])
        if reason is None:
            group.append(key)
            return
        if reason:
            yield subject.undecided("equal", (group[0], key), reason)
    groups.append([key])


def _differ(subject: Subject, key: str, other: str) -> str | None:
    """None where the two serve the same calls, an empty text where they do not, else why that is not known."""
    reasons = []
    for one, two in ((key, other), (other, key)):
        found = reach_of(subject).some(subject, [subject.lifted[one], negation(subject.lifted[two])])
        if found.outcome is Outcome.POSSIBLE:
            return ""
        if found.outcome is Outcome.UNKNOWN:
            reasons.append(found.reason)
    return reasons[0] if reasons else None


def _unlifted(subject: Subject, examples: dict[str, Any]) -> Iterator[Undecided]:
    """Rules of which nothing is known, unless none of the others can be equal to them for the devices alone."""
    selector = subject.selector
    for key in subject.unlifted:
        others = [k for k, call in examples.items() if selector.candidate(key).cannot_run(call) is None]
        others += [k for k in subject.unlifted if k != key]
        if any(_may_be_equal(subject, key, other) for other in others):
            yield subject.undecided("equal", (key,), subject.causes([key]))


def _may_be_equal(subject: Subject, key: str, other: str) -> bool:
    """Whether *key*, whose rule is not known, can run wherever *other* serves a call."""
    if other not in subject.lifted:
        both = [subject.available(key), subject.available(other)]
        return reach_of(subject).some(subject, both).outcome is not Outcome.IMPOSSIBLE
    beyond = reach_of(subject).some(subject, [subject.lifted[other], negation(subject.available(key))])
    return beyond.outcome is not Outcome.POSSIBLE


def _finding(subject: Subject, keys: Sequence[str]) -> Finding:
    first, *rest = sorted(keys)
    witness = subject.find([subject.lifted[first]], (first, *rest))
    call = witness.call
    won = chosen_keys(subject.selector, call)
    edit = f"kernel_types with one of {listed(f'{key!r}' for key in (first, *rest))}"
    message = (
        f"{listed((first, *rest))} serve the same calls, as {call!r}, where {listed(won)} "
        f"{'is' if len(won) == 1 else 'are'} chosen: keep one of them, or let their refusals differ"
    )
    return subject.finding("equal", Severity.WARNING, (first, *rest), message, witness=call, edit=edit)


# ------------------------------------------------------------------------------------------------- two sets of rules


def choose_alike(one: Selector, other: Selector) -> Answer:
    """Look for a call for which two rule sets choose differently.

    Args:
        one: A rule set.
        other: Another one over the same call spec.

    Returns:
        FOUND with the smallest valid call for which they choose differently. NONE where it is proved that they
        choose alike. UNDECIDED, with the reason, where neither was shown, as where a rule was not lifted.

    Raises:
        TypeError: they are over different call specs.
        InconsistencyError: solver, rules and original functions do not agree; a mistake in this library.
        ImportError: the question needs z3, and z3 is not installed.
    """
    if one.spec is not other.spec:
        raise TypeError(
            f"{one.spec.__name__} and {other.spec.__name__} are different call specs: no call is one of both; "
            f"compare rule sets over one"
        )
    subjects = _over_one_domain(one, other)
    apart = [_undefeated(subject) for subject in subjects]
    differ = []
    for key in sorted(apart[0].keys() | apart[1].keys()):
        first, second = (chosen.get(key, FALSE) for chosen in apart)
        if first is not second:
            differ += [conjunction([first, negation(second)]), conjunction([second, negation(first)])]
    unknown = [(subject, key) for subject in subjects for key in subject.unlifted]
    known = [negation(subject.available(key)) for subject, key in unknown]
    answer = _asked(subjects, [disjunction(differ), *known])
    if answer.verdict is not Verdict.NONE or not unknown:
        return answer
    asked = subjects[0].find([disjunction(subject.available(key) for subject, key in unknown)])
    if asked.outcome is Outcome.IMPOSSIBLE:
        return answer
    reasons = dict.fromkeys(subject.causes([key]) for subject, key in unknown)
    return Answer(Verdict.UNDECIDED, reason="; ".join(reasons))


def _over_one_domain(one: Selector, other: Selector) -> tuple[Subject, Subject]:
    """Both over all devices and archs that either knows."""
    if one.domain is other.domain:
        return Subject(one), Subject(other)
    devices = one.domain.device_types | other.domain.device_types
    archs = (one.domain.archs | other.domain.archs) if "arch" in one.domain.fields else None
    taken = {*one.keys, *other.keys}
    nobody = next(key for key in ("nobody", *(f"nobody_{n}" for n in range(len(taken)))) if key not in taken)
    widening = Candidate(nobody, _refuses, devices=devices, supported_archs=archs)
    return Subject(_with(one, widening)), Subject(_with(other, widening))


def _with(selector: Selector, candidate: Candidate) -> Selector:
    return Selector(selector.spec, [*selector.candidates, candidate], op=selector.op, interface=selector.interface)


def _refuses(call: Any) -> str:
    return "it serves nothing: it names devices and archs"


def _undefeated(subject: Subject) -> dict[str, Expr]:
    """For each implementation, when it is chosen; where a rule was not lifted, of calls on which it cannot run."""
    return {key: subject.chosen(key) for key in subject.lifted}


def _asked(subjects: tuple[Subject, Subject], parts: list[Expr]) -> Answer:
    first, second = subjects
    found = first.find(parts, first.selector.keys)
    if found.outcome is Outcome.UNKNOWN:
        return Answer(Verdict.UNDECIDED, reason=found.reason)
    if found.outcome is Outcome.IMPOSSIBLE:
        return Answer(Verdict.NONE, reason=found.reason or "both have the same rules")
    second.confirm(found.call, second.selector.keys)
    chosen = [chosen_keys(subject.selector, found.call) for subject in subjects]
    if chosen[0] == chosen[1]:
        raise InconsistencyError(
            "two rule sets are proved to choose differently for a call and choose alike when they are run",
            call=found.call,
            facts=(f"call: {found.call!r}", f"chosen: {listed(chosen[0]) if chosen[0] else 'none'}"),
        )
    return Answer(Verdict.FOUND, found.call)


CHECK: Final = Check(
    id="equal",
    asks="Do two implementations serve the same calls?",
    kinds={"equal": Severity.WARNING},
    run=_run,
    whole=True,
)
