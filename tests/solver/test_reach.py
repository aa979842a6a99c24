"""Examples that are looked up once and moved to other archs; and pairs of calls that differ in one field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import domain_of
from tileops_rules.expr import FALSE, at_most, equals, integer
from tileops_solver.checks.reach import Reach, at_least_served, at_most_served, partners, reach_of, reached
from tileops_solver.engine import Outcome
from tileops_solver.subject import Platform, Subject, platforms_of
from tileops_solver.twins import Pair, TwinDomain

from tests.solver.test_subject import Call, Facts, N, by_the_clock, counted, even, selector, small

# -------------------------------------------------------------------------------------------------- what is looked up


def test_reached_is_everything_one_or_more_steps_away() -> None:
    following = {"a": ["b", "c"], "b": ["d"], "d": ["b"], "x": ["a"]}
    assert reached("a", following) == {"b", "c", "d"}
    assert reached("b", following) == {"b", "d"}, "itself only where a way leads back"
    assert reached("c", following) == set()
    assert reached("x", following) == {"a", "b", "c", "d"}


def test_partners_are_those_that_win_and_may_meet() -> None:
    made = selector(
        Candidate("a", small, preferred_over={"b", "far"}),
        Candidate("b", even),
        Candidate("far", lambda call: None if call.n > 50 else "near"),
        Candidate("clock", by_the_clock, preferred_over={"b"}),
    )
    subject = Subject(made)
    assert {key: partners(subject, key) for key in subject.selector.keys} == {
        "a": (),
        "b": ("a", "clock"),
        "far": (),
        "clock": (),
    }
    assert at_most_served(subject, "a") is at_least_served(subject, "a") is subject.lifted["a"]
    assert at_most_served(subject, "clock") is subject.available("clock")
    assert at_least_served(subject, "clock") is FALSE
    assert reach_of(subject) is reach_of(subject)
    assert reach_of(subject) is not reach_of(Subject(made))


def there(arch: int) -> Platform:
    return next(p for p in platforms_of(selector(spec=Facts).domain) if p.arch == arch)


def test_a_call_that_is_known_to_be_served_is_moved_to_an_arch_with_its_facts() -> None:
    made = selector(
        Candidate("a", small), Candidate("big", lambda call: None if call.smem_budget > 200_000 else "no"), spec=Facts
    )
    reach = Reach(Subject(made))
    assert list(reach.on("a", there(90))) == [], "nothing is known yet"
    known = Facts(n=3, arch=80, smem_budget=7, sm_count=1)
    reach.learn("a", known)
    reach.learn("a", Facts(n=2))
    facts = KNOWN_ARCHS[90]
    moved = replace(known, arch=90, smem_budget=facts.smem_budget, sm_count=facts.sm_count)
    assert list(reach.on("a", there(90))) == [moved, replace(moved, n=2)]
    reach.learn("big", Facts(arch=90, smem_budget=227 * 1024))
    assert list(reach.on("big", there(80))) == [], "there it has less"
    assert [call.arch for call in reach.on("big", there(90))] == [90]
    assert reach.serves("a", known)
    assert not reach.serves("big", known)
    assert reach.serving(moved, ["a", "big", "clock"]) == {"a", "big"}
    assert reach.serving(moved, ["big"]) == {"big"}


def test_a_call_is_not_moved_where_its_class_changes_or_rejects_it_or_its_own_rule_does() -> None:
    @dataclass(frozen=True)
    class Moves:
        n: Annotated[int, Range(0, 9)] = 1
        arch: int = 80

        def __post_init__(self) -> None:
            if self.arch == 90:
                object.__setattr__(self, "n", 9)
            if self.arch == 86:
                raise ValueError("not made")

    made = selector(Candidate("a", small), spec=Moves)
    reach = Reach(Subject(made))
    reach.learn("a", Moves(n=3))
    found = {arch: list(reach.on("a", platform)) for arch, platform in by_arch(made).items()}
    assert found == {
        80: [Moves(n=3)],
        86: [],
        89: [Moves(n=3, arch=89)],
        90: [],
        100: [Moves(n=3, arch=100)],
        120: [Moves(n=3, arch=120)],
    }

    @dataclass(frozen=True)
    class Rejects:
        n: Annotated[int, Range(0, 9)] = 1
        arch: Annotated[int, OneOf(80, 90)] = 80

        def invalid(self) -> str | None:
            return "odd on 90" if len(range(self.n)) % 2 and self.arch == 90 else None

    made = selector(Candidate("a", small), spec=Rejects)
    assert made.invalid is None
    reach = Reach(Subject(made))
    reach.learn("a", Rejects(n=3))
    reach.learn("a", Rejects(n=2))
    assert list(reach.on("a", by_arch(made)[90])) == [Rejects(n=2, arch=90)]


def by_arch(made: Selector) -> dict[int, Platform]:
    return {p.arch: p for p in platforms_of(made.domain) if p.arch is not None}


def test_an_example_is_looked_for_once_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = selector(Candidate("a", small), Candidate("never", lambda call: "never"))
    subject = Subject(made)
    reach = Reach(subject)
    found = reach.example(subject, "a")
    assert found.outcome is Outcome.POSSIBLE
    assert found.call.n <= 4
    assert reach.example(subject, "never").outcome is Outcome.IMPOSSIBLE
    refuse: Callable[..., Any] = lambda *given, **named: pytest.fail("asked again")  # noqa: E731
    monkeypatch.setattr("tileops_solver.checks.reach.guessed_in_box", refuse)
    monkeypatch.setattr(Subject, "find", refuse)
    assert reach.example(subject, "a") is found
    assert reach.example(subject, "never").outcome is Outcome.IMPOSSIBLE


def test_some_call_is_guessed_or_found_or_proved_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(selector(Candidate("a", small)), archs=[])
    reach = Reach(subject)
    assert reach.some(subject, [at_most(N, 3)]).call.n <= 3
    assert counted(subject) == (0, 0, 0), "a guess is nobody's answer"
    assert reach.some(subject, [at_most(N, 3), equals(N, 5)]).outcome is Outcome.IMPOSSIBLE
    monkeypatch.setattr("tileops_solver.checks.reach.guessed_call", lambda *given: None)
    assert reach.some(subject, [equals(N, 3)]).call == Call(n=3)
    assert counted(subject)[2] == 1


# ------------------------------------------------------------------------------------------------------ pairs of calls


@dataclass(frozen=True)
class Deep:
    n: Annotated[int, Range(0, 9)] = 1
    window: Annotated[int, Range(0, 3)] | None = None
    shape: tuple[Annotated[int, Range(0, 5)], ...] = (1, 2)


def test_a_domain_of_pairs_has_a_field_twice_and_all_others_once() -> None:
    plain = domain_of(Deep)
    for field in ("n", "window", "shape"):
        twins = TwinDomain(plain, field)
        assert list(twins.fields) == ["n", "window", "shape", f"{field}'"]
        mine = {path for path in plain.slots if path[0] == field}
        assert set(twins.slots) == set(plain.slots) | {(f"{field}'", *path[1:]) for path in mine}
        again = {slot.path: slot for slot in twins.fields[f"{field}'"].slots()}
        assert set(again) == {(f"{field}'", *path[1:]) for path in mine}
        for path, slot in again.items():
            assert twins.slots[path] == slot == replace(plain.slots[field, *path[1:]], path=path)
        assert twins.links is plain.links
        assert (twins.spec, twins.archs, twins.device_types) == (plain.spec, plain.archs, plain.device_types)


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        ("n", Deep(n=1), Deep(n=7)),
        ("window", Deep(n=3), Deep(n=3, window=2)),
        ("window", Deep(window=1), Deep()),
        ("shape", Deep(shape=()), Deep(shape=(5, 4, 3))),
    ],
)
def test_a_pair_is_read_and_built_again(field: str, one: Deep, other: Deep) -> None:
    twins = TwinDomain(domain_of(Deep), field)
    values = twins.read(Pair(one, other))
    assert twins.build(values) == Pair(one, other)
    assert {path: value for path, value in values.items() if path[0] != f"{field}'"} == domain_of(Deep).read(one)


def test_a_question_of_the_other_call_reads_the_second_field() -> None:
    twins = TwinDomain(domain_of(Deep), "n")
    assert str(twins.other(at_most(N, 3))) == "n' <= 3"
    assert twins.other(at_most(integer(("m",)), 3)) is at_most(integer(("m",)), 3)
