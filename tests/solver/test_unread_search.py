"""Fields that nobody reads, against what a run of every method on every call was seen to read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_solver.checks.unread import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Plain, Whole, random_rule


@dataclass(frozen=True)
class Wide:
    """A call with more fields than one rule reads."""

    a: Annotated[int, Range(0, 4)] = 1
    b: Annotated[int, Range(-1, 2)] = 0
    kind: Literal["x", "y", "z"] = "y"
    flag: bool = False
    turn: Annotated[int, Range(0, 1)] = 0
    device: Optional[str] = None
    arch: Annotated[Optional[int], OneOf(None, 80, 90)] = None

    @property
    def large(self) -> bool:
        return self.flag or self.turn > 0

    def invalid(self) -> str | None:
        return "too much" if self.a + self.b == 6 and self.turn else None


FIELDS = ("a", "b", "kind", "flag", "turn")
"""All but what every kernel goes by."""


class Watched:
    """Passes for a call, and notes which of its fields are read, through its properties too."""

    def __init__(self, call: Any, seen: set[str]) -> None:
        self.__dict__["_watched"] = (call, seen)

    def __getattr__(self, name: str) -> Any:
        call, seen = self.__dict__["_watched"]
        behind = getattr(type(call), name)
        if isinstance(behind, property):
            return behind.__get__(self)
        seen.add(name)
        return getattr(call, name)


def read(function: Callable[[Any], Any], call: Any) -> tuple[set[str], Exception | None]:
    """The fields that a function reads of a call, all where it gives the call back, and what it raised."""
    seen: set[str] = set()
    watched = Watched(call, seen)
    try:
        given = function(watched)
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return seen, error
    return (set(FIELDS) if isinstance(given, tuple) and watched in given else seen), None


# ------------------------------------------------------------------------------------------------ random identities

PARTS = ("call.a", "call.b", "call.kind", "call.flag", "call.turn", "call.large", "call", "call.a % 2", "call.arch")
SOMETIMES = ("call.turn if call.flag else 0", "call.kind == 'x' and call.b", "call.large or call.a", "TABLE[call.b]")


def random_identity(draw: random.Random) -> Any:
    """A build identity, made from source: parts of the call, some of them only now and then, or an exception."""
    parts = draw.sample(PARTS, draw.choice((0, 1, 1, 2))) + draw.sample(SOMETIMES, draw.choice((0, 0, 0, 1)))
    lines = ["def entry_for(cls, call):", f"    return ({''.join(f'{part}, ' for part in parts)}None)"]
    if draw.random() < 0.1:
        lines.insert(1, f"    if call.a >= {draw.choice((0, 2, 4))}: raise LookupError(call.kind)")
    names: dict[str, Any] = {"__name__": "random_identities", "TABLE": {-1: 0, 0: 1, 1: 2, 2: 3}}
    exec("\n".join(lines), names)
    return classmethod(names["entry_for"])


def unliftable(refusal: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda call: refusal(call) if len(range(call.a)) >= 0 else None


def rule_set(seed: int) -> Selector:
    """Up to three implementations, of which some state a build identity; a rule in thirty is not lifted."""
    draw = random.Random(seed)
    made = []
    for key in "abc"[: draw.choice((1, 1, 2, 3))]:
        refusal = random_rule(draw, Plain)
        stated = {"entry_for": random_identity(draw)} if draw.random() < 0.6 else {}
        rule = unliftable(refusal) if draw.random() < 1 / 30 else refusal
        made.append(Candidate(key, rule, implementation=type(key, (), stated)))
    return Selector(Wide, made, op="Op", interface="job")


# --------------------------------------------------------------------------------------------------- all calls tried


@dataclass(frozen=True)
class Reads:
    """What build identities were seen to read: on every served call, and on some."""

    always: frozenset[str]
    sometimes: frozenset[str]
    raises: Literal["never", "on some", "on all"]


def reads(function: Callable[[Any], Any], calls: Iterable[Any]) -> Reads:
    seen = [read(function, call) for call in calls]
    if not seen:
        return Reads(frozenset(), frozenset(), "never")
    raised = [error is not None for _, error in seen]
    every = [frozenset(names) for names, _ in seen]
    how: Literal["never", "on some", "on all"] = "on all" if all(raised) else "on some" if any(raised) else "never"
    return Reads(frozenset.intersection(*every), frozenset().union(*every), how)


def agrees(seed: int) -> str:
    """Hold what is said against every call; gives what it was.

    That is *sampled* where a field is read after all: a build identity is asked on some of the calls that it serves,
    so that only what it reads on all of them is seen for certain. It is *beyond* where a field is left out that is
    read on no call: a path may read it that no call takes, and of which lifting could not tell so.
    """
    selector = rule_set(seed)
    whole = Whole(selector)
    result = CHECK.run(Subject(selector))
    opaque = tuple(each.key for each in selector.candidates if each.refusal.__name__ == "<lambda>")
    if opaque:
        assert ([u.keys for u in result.undecided], result.findings) == ([opaque], ())
        return "not lifted"

    by_rules = set().union(*(read(c.refusal, call)[0] for c in selector.candidates for call in whole.everything))
    stated = {each.key: getattr(each.implementation, "entry_for", None) for each in selector.candidates}
    identities = {key: reads(entry, whole.serves[key]) for key, entry in stated.items() if entry is not None}
    if result.undecided:
        (point,) = result.undecided
        (key,) = point.keys
        assert identities[key].raises != "never"
        assert all(identities[other].raises != "on all" for other in identities if other < key)
        assert point.reason.startswith(f"entry_for of {key} raised ")
        assert result.findings == ()
        return "raises"

    assert all(each.raises != "on all" for each in identities.values())
    found = [each.subject for each in result.findings]
    certain = by_rules.union(*(each.always for each in identities.values()))
    possible = by_rules.union(*(each.sometimes for each in identities.values()))
    assert found == [name for name in FIELDS if name in found]
    unread = set(FIELDS) - possible
    beyond = unread - set(found)
    written = {name for each in selector.candidates for name in each.refusal.__code__.co_names}
    assert set(found) <= set(FIELDS) - certain
    assert beyond <= written
    readers = "no rule and no build identity reads" if identities else "no rule reads"
    for each in result.findings:
        assert (each.kind, each.severity, each.keys, each.witness) == ("unread", Severity.NOTE, (), None)
        assert each.message.startswith(f"Op.job: {readers} Wide.{each.subject}: ")
    if beyond:
        return "beyond"
    return "sampled" if set(found) != unread else "found" if found else "nothing"


def test_every_field_that_nobody_reads_is_found_and_no_other() -> None:
    seen = Counter(agrees(seed) for seed in range(60))
    assert min(seen[name] for name in ("found", "nothing", "raises", "not lifted")) >= 1
    assert seen["sampled"] + seen["beyond"] <= 1


@pytest.mark.nightly
def test_so_it_is_for_2000_rule_sets() -> None:
    seen = Counter(agrees(seed) for seed in range(1000, 3000))
    assert seen["sampled"] <= 10
    assert seen["beyond"] <= 10
