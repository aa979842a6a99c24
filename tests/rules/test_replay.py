"""Replays: which calls are tried, and that they find what differs."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import NotLifted, Range, Rule, Selector, lift
from tileops_rules import expr as E
from tileops_rules.building import keeps_its_values
from tileops_rules.domain import domain_of
from tileops_rules.replay import calls_near
from tileops_rules.tree import Ask, Leaf, Pick, Tree, below, follow, follower, walk_tree

from benchmarks.generated_interface import Size, generated_op
from tests.rules.programs import Program, function_of, spec_of
from tests.rules.rule_examples import LIFTED
from tests.rules.rule_examples import Call as ManyKinds
from tests.speed import cpu_seconds, holds_within


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: Annotated[int, Range(1, 64)] = 4
    kind: Literal["a", "b", "c"] = "a"
    eps: float = 1e-5
    name: str = "plain"
    window: Optional[int] = None
    shape: tuple[int, ...] = ()
    device: str = "cuda"
    arch: Optional[int] = None
    sm_count: Optional[int] = None


def bands(call: Call) -> str | None:
    if call.kind == "c":
        return "c"
    if call.n < 1024:
        return f"{call.n} is short"
    if call.n % 8:
        return f"{call.n} is odd"
    if call.n * call.m > 100_000:
        return f"{call.n * call.m} in all"
    if call.window is not None and call.window < 128:
        return f"window {call.window}"
    return None if call.eps <= 0.5 else "eps"


def near(function: Any, count: int, seed: int = 0) -> list[tuple[Call, Any]]:
    return list(calls_near(lift(function, Call).tree, domain_of(Call), count, seed))


def ends(rule: Rule, calls: list[tuple[Any, Any]]) -> set[int]:
    return {id(follow(rule.tree, rule.domain.read(call))) for call, _ in calls}


def test_every_path_is_tried() -> None:
    rule = lift(bands, Call)
    leaves = {id(node.outcome) for node in walk_tree(rule.tree) if isinstance(node, Leaf)}
    for seed in range(5):
        calls = list(calls_near(rule.tree, rule.domain, 64, seed))
        assert ends(rule, calls) == leaves


def test_every_threshold_is_tried_from_both_sides_where_it_decides() -> None:
    calls = [call for call, _ in near(bands, 256)]
    reached = [c for c in calls if c.kind != "c"]
    assert {1023, 1024} <= {c.n for c in reached}
    long = [c for c in reached if c.n >= 1024 and c.n % 8 == 0]
    products = [c.n * c.m for c in long]
    assert any(100_000 - 8 * 64 <= p <= 100_000 for p in products)
    assert any(100_000 < p <= 100_000 + 8 * 64 for p in products)
    inside = [c for c in long if c.n * c.m <= 100_000]
    assert {127, 128} <= {c.window for c in inside}
    last = [c.eps for c in inside if c.window is None or c.window >= 128]
    assert 0.5 in last
    assert any(0.5 < eps < 0.75 or eps > 0.5 for eps in last)


def test_a_question_that_no_usual_value_meets_is_met_by_search() -> None:
    def refusal(call: Call) -> str | None:
        if call.n <= 5000 or call.n >= 5100:
            return "far"
        return None if call.n % 37 == 11 else "no"

    assert any(refusal(call) is None for call, _ in near(refusal, 64))


def test_the_same_seed_gives_the_same_calls_and_another_others() -> None:
    assert repr(near(bands, 100, 3)) == repr(near(bands, 100, 3))
    assert repr(near(bands, 100, 3)) != repr(near(bands, 100, 4))


def test_as_many_calls_are_tried_as_were_asked_for() -> None:
    for count in (1, 2, 7, 64, 2000):
        assert len(near(bands, count)) == count


@pytest.mark.parametrize("function", LIFTED, ids=lambda f: getattr(f, "__qualname__", "partial"))
def test_calls_are_those_that_the_class_itself_builds(function: Any) -> None:
    domain = domain_of(ManyKinds)
    assert keeps_its_values(domain)
    for call, values in calls_near(lift(function, ManyKinds).tree, domain, 60, 1):
        held = {f.name: getattr(call, f.name) for f in dataclasses.fields(ManyKinds)}
        assert list(vars(call)) == list(vars(ManyKinds(**held)))
        assert repr(call) == repr(ManyKinds(**held))
        read = domain.read(call)
        assert all(repr(read[path]) == repr(value) for path, value in values.items() if path in read)


def test_device_facts_are_there_exactly_on_cuda() -> None:
    def refusal(call: Call) -> str | None:
        return None if call.arch == 90 and call.sm_count > 100 and call.n > 5 else "no"

    calls = [call for call, _ in near(refusal, 300)]
    assert {call.device for call in calls} == {"cuda", "cpu"}
    for call in calls:
        assert (call.arch is None) is (call.sm_count is None) is (call.device != "cuda")
    assert any(refusal(call) is None for call in calls)


# ---------------------------------------------------------------------------------------- classes of every kind


@dataclass(frozen=True)
class Doubled:
    n: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", 2 * self.n)


@dataclass(frozen=True)
class Picky:
    n: int = 1

    def __post_init__(self) -> None:
        if self.n % 3:
            raise ValueError("no multiple of 3")


@dataclass(frozen=True)
class Written:
    n: int = 1

    def __init__(self, n: int = 1) -> None:
        object.__setattr__(self, "n", n + 1)


@dataclass(frozen=True, slots=True)
class Slotted:
    n: int = 1


@dataclass(frozen=True)
class Derived:
    n: int = 1
    twice: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.n)


@dataclass(frozen=True)
class Inner:
    n: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", abs(self.n))


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()


@dataclass
class Thawed:
    n: int = 1


@dataclass(frozen=True)
class New:
    n: int = 1

    def __new__(cls, *args: Any, **more: Any) -> Any:
        return object.__new__(cls)


@pytest.mark.parametrize("spec", [Doubled, Picky, Written, Slotted, Derived, Outer, Thawed, New])
def test_what_a_class_does_with_its_values_is_left_to_it(spec: Any) -> None:
    def refusal(call: Any) -> str | None:
        n = call.inner.n if spec is Outer else call.n
        return f"{n} is above 10" if n > 10 else None

    domain = domain_of(spec)
    assert not keeps_its_values(domain)
    rule = lift(refusal, spec)
    calls = list(calls_near(rule.tree, domain, 200))
    assert calls
    for call, values in calls:
        assert values == domain.read(call)
        if spec in (Doubled, Derived):
            assert spec is Derived or call.n % 2 == 0
        if spec is Picky:
            assert call.n % 3 == 0
    assert rule.replay(200) is None


# --------------------------------------------------------------------------------------------- what differs is found


def mutants(tree: Tree, draw: random.Random, count: int) -> Iterator[Tree]:
    """Trees with one threshold moved by one, one answer turned round, or two values of a slot swapped."""
    inner = [node for node in walk_tree(tree) if isinstance(node, Ask | Pick)]
    for _ in range(count if inner else 0):
        yield moved(tree, draw.choice(inner), draw)


def moved(tree: Tree, target: Tree, draw: random.Random) -> Tree:
    made: dict[int, Tree] = {}
    for node in walk_tree(tree):
        branches = [made[id(branch)] for branch in below(node)]
        if isinstance(node, Leaf):
            made[id(node)] = node
        elif isinstance(node, Ask):
            question = node.question
            yes, no = branches
            if node is target and question.kind in ("at_most", "equals"):
                question = E._node(question.kind, question.args, question.data + draw.choice((-1, 1)))
            elif node is target:
                yes, no = no, yes
            made[id(node)] = Ask(question, yes, no)
        else:
            if node is target:
                branches = [*branches[1:], branches[0]]
            values = [values for values, _ in node.branches]
            made[id(node)] = Pick(node.path, tuple(zip(values, branches, strict=True)))
    return made[id(tree)]


def finds(rule: Rule, tree: Tree, count: int, seed: int) -> bool:
    """Whether a replay finds that the function and another tree than its own differ."""
    changed = Rule(
        original=rule.original,
        domain=rule.domain,
        tree=tree,
        paths=rule.paths,
        touched=rule.touched,
        reads=rule.reads,
        file=rule.file,
        line=rule.line,
    )
    try:
        return changed.replay(count, seed) is not None
    except (ZeroDivisionError, KeyError):
        return True  # The changed tree asks about a slot that the call does not have.


@pytest.fixture(scope="module")
def generated() -> list[Rule]:
    selector = Selector.of(generated_op(Size(implementations=24, fields=40, share=0.1)), "face")
    return list(selector.rules.values())


def test_an_injected_difference_is_found_at_construction_nearly_always(generated: list[Rule]) -> None:
    draw = random.Random(1)
    found = [finds(rule, mutant, 64, 0) for rule in generated for mutant in mutants(rule.tree, draw, 10)]
    assert len(found) == 240
    assert sum(found) >= 0.93 * len(found), sum(found)


def test_an_injected_difference_is_found_in_an_audit(generated: list[Rule]) -> None:
    draw = random.Random(2)
    assert all(finds(rule, mutant, 2000, 5) for rule in generated for mutant in mutants(rule.tree, draw, 6))


def test_an_injected_difference_in_a_random_program_is_found_where_there_is_one() -> None:
    """Many such mutants equal their originals; the floor is what is found where replays are as they should be."""
    draw = random.Random(3)
    found = tried = 0
    for seed in range(120):
        program = Program(seed)
        try:
            rule = lift(function_of(program.source), spec_of(program.names), budget=300)
        except NotLifted:
            continue
        for mutant in mutants(rule.tree, draw, 3):
            tried += 1
            found += finds(rule, mutant, 64, seed)
    assert tried > 200
    assert found >= 0.7 * tried, (found, tried)


# ---------------------------------------------------------------------------------------------------------- how fast


def test_two_thousand_calls_of_a_rule_take_thirty_milliseconds_at_most(generated: list[Rule]) -> None:
    """1,000 rules then take half a minute; it is a third of that on an idle machine."""
    rules, seeds = generated[:8], itertools.count()

    def seconds_a_rule() -> float:
        seed = next(seeds)
        return cpu_seconds(lambda: [check(rule, seed) for rule in rules]) / len(rules)

    def check(rule: Rule, seed: int) -> None:
        assert rule.replay(2000, seed) is None

    holds_within(30e-3, seconds_a_rule)


def test_following_a_tree_many_times_is_following_it_once(generated: list[Rule]) -> None:
    for rule in [*generated, *(lift(function, ManyKinds) for function in LIFTED)]:
        followed = follower(rule.tree)
        for call, _ in calls_near(rule.tree, rule.domain, 40, 9):
            values = rule.domain.read(call)
            assert followed(values) is follow(rule.tree, values)
