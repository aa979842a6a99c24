"""Calls near the thresholds: every path is tried, and a rule that is off by one anywhere is found out."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import tileops_rules.rule as rule_module
from tileops_rules import NotLifted, Range, Rule, fields, lift
from tileops_rules.domain import domain_of
from tileops_rules.replay import calls_near
from tileops_rules.shapes import DeviceName
from tileops_rules.tree import follow, leaves

from tests.rules.rule_examples import LIFTED
from tests.rules.rule_examples import Call as Example


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2
    SLOW = 3


@dataclass(frozen=True)
class Tile:
    rows: int = 16
    cols: int = 4


CUDA = DeviceName("cuda")


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: int = 4
    k: Annotated[int, Range(-50, 50)] = 0
    eps: float = 1e-5
    ratio: Annotated[float, Range(0.0, 1.0)] = 0.5
    name: str = "plain"
    mode: Mode = Mode.SAFE
    layout: Literal["a", 1] = "a"
    window: int | None = None
    shape: tuple[int, ...] = ()
    tile: Tile = Tile()
    device: Any = CUDA
    arch: int | None = None


OFF_BY_ONE: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda c: c.n <= 777, lambda c: c.n <= 778),
    (lambda c: c.n <= 777, lambda c: c.n <= 776),
    (lambda c: c.n == 777, lambda c: False),
    (lambda c: c.n != 777, lambda c: True),
    (lambda c: c.k < -17, lambda c: c.k <= -17),
    (lambda c: 300 < c.n <= 777, lambda c: 300 < c.n <= 778),
    (lambda c: 300 < c.n <= 777, lambda c: 299 < c.n <= 777),
    (lambda c: c.n + c.m <= 1000, lambda c: c.n + c.m <= 1001),
    (lambda c: c.n - 3 * c.m <= 50, lambda c: c.n - 3 * c.m < 50),
    (lambda c: 7 * c.n <= 1000, lambda c: 7 * c.n <= 1010),
    (lambda c: c.n * c.m <= 6000, lambda c: c.n * c.m <= 6001),
    (lambda c: c.n * c.n <= 10**6, lambda c: c.n * c.n < 10**6),
    (lambda c: c.n == c.m, lambda c: False),
    (lambda c: c.n * 2 == c.m + 9, lambda c: False),
    (lambda c: c.n <= c.m, lambda c: c.n < c.m),
    (lambda c: c.n % 24 == 0, lambda c: c.n % 48 == 0),
    (lambda c: c.n % 24 == 23, lambda c: False),
    (lambda c: -(-c.n // 48) <= 3, lambda c: -(-c.n // 48) <= 4),
    (lambda c: c.n // 48 == 5, lambda c: False),
    (lambda c: abs(c.k) <= 13, lambda c: abs(c.k) <= 14),
    (lambda c: c.n.bit_length() <= 9, lambda c: c.n.bit_length() <= 10),
    (lambda c: c.eps < 0.25, lambda c: c.eps <= 0.25),
    (lambda c: c.eps < 0.25, lambda c: not c.eps >= 0.25),  # they differ at NaN
    (lambda c: c.eps == 0.25, lambda c: False),
    (lambda c: c.ratio >= 1.0, lambda c: False),
    (lambda c: c.name == "x", lambda c: False),
    (lambda c: c.name in ("x", "y"), lambda c: c.name == "x"),
    (lambda c: c.mode is Mode.SLOW, lambda c: False),
    (lambda c: c.layout == 1, lambda c: False),
    (lambda c: c.window is None, lambda c: False),
    (lambda c: c.window == 77, lambda c: False),
    (lambda c: c.window is not None and c.window < 77, lambda c: c.window is not None and c.window <= 77),
    (lambda c: len(c.shape) == 3, lambda c: False),
    (lambda c: c.shape[:1] == (9,), lambda c: False),
    (lambda c: c.tile.rows * c.tile.cols <= 512, lambda c: c.tile.rows * c.tile.cols < 512),
    (lambda c: c.tile.rows > 77, lambda c: c.tile.rows >= 77),
    (lambda c: c.device.type == "cuda", lambda c: True),
    (lambda c: c.arch == 90, lambda c: False),
    (lambda c: c.arch is None, lambda c: False),
    (lambda c: c.n > 500 and c.m <= 40 and c.k == 7, lambda c: c.n > 500 and c.m <= 40 and c.k == 8),
    (lambda c: c.n == 0, lambda c: False),
    (lambda c: c.n == 2**40, lambda c: False),
    (lambda c: c.k == -50, lambda c: False),
]


def refusal_of(condition: Callable[[Any], Any]) -> Callable[[Any], str | None]:
    def refusal(call: Call) -> str | None:
        return None if condition(call) else "no"

    return refusal


def refusing(rule: Rule, original: Callable[[Any], Any]) -> Rule:
    """*rule* with another original: as if lifting had gone wrong by one."""
    return Rule(
        original=original,
        domain=rule.domain,
        tree=rule.tree,
        paths=rule.paths,
        touched=rule.touched,
        reads=rule.reads,
        file=rule.file,
        line=rule.line,
    )


@pytest.mark.parametrize(("right", "wrong"), OFF_BY_ONE, ids=lambda each: f"line {each.__code__.co_firstlineno}")
def test_a_tree_that_is_off_by_one_is_found_out_when_it_is_made(right: Any, wrong: Any) -> None:
    rule = lift(refusal_of(right), Call)
    assert rule.replay(64) is None
    found = [refusing(rule, refusal_of(wrong)).replay(64, seed) for seed in range(8)]
    assert sum(call is not None for call in found) >= 7
    assert all(bool(right(call)) is not bool(wrong(call)) for call in found if call is not None)
    assert refusing(rule, refusal_of(wrong)).replay(1000) is not None
    for call, _ in calls_near(rule.tree, rule.domain, 64):
        assert rule(call) == refusal_of(right)(call)
        assert rule.serves(call) is bool(right(call))


def test_a_difference_of_type_and_one_of_exceptions_are_differences() -> None:
    rule = lift(lambda call: 1 if call.n > 5 else None, Call)
    assert refusing(rule, lambda call: True if call.n > 5 else None).replay(64) is not None
    assert refusing(rule, lambda call: 1.0 if call.n > 5 else None).replay(64) is not None
    assert refusing(rule, lambda call: 1 if call.n > 5 else {}["x"]).replay(64) is not None
    raising = lift(lambda call: {}["x"] if call.n > 5 else None, Call)
    assert raising.replay(64) is None
    assert refusing(raising, lambda call: None).replay(64) is not None
    assert refusing(raising, lambda call: [][1] if call.n > 5 else None).replay(64) is not None
    nan = lift(lambda call: math.nan if call.n > 5 else None, Call)
    assert nan.replay(64) is None
    with pytest.raises(NotLifted, match="gives something else than its tree on Call") as caught:
        refusing(rule, lambda call: None).replayed(64)
    assert caught.value.call.n > 5
    assert rule.replayed(64) is rule


UNREACHABLE = {"{n.bit_length()} bits"}  # of 128 and more, after n + 2*m < 81


@pytest.mark.parametrize("refusal", LIFTED, ids=lambda f: getattr(f, "__qualname__", "partial"))
def test_every_end_of_a_rule_is_reached(refusal: Any) -> None:
    rule = lift(refusal, Example)
    met = Counter(id(follow(rule.tree, values)) for _, values in calls_near(rule.tree, rule.domain, 2000))
    ends = {id(leaf.outcome): str(leaf.outcome) for leaf in leaves(rule.tree)}
    assert [text for end, text in ends.items() if not met[end] and text not in UNREACHABLE] == []


def test_the_number_of_calls_is_kept_and_the_seed_decides_them() -> None:
    rule = lift(refusal_of(lambda c: c.n > 500 and c.m <= 40 and c.name == "x"), Call)

    def drawn(count: int, seed: int) -> list[Any]:
        return [call for call, _ in calls_near(rule.tree, rule.domain, count, seed)]

    for count in (1, 2, 7, 64, 300):
        assert len(drawn(count, 0)) == count
    assert drawn(64, 3) == drawn(64, 3) != drawn(64, 4)
    several = {call.m for call in drawn(300, 0)}
    assert len(several) > 10
    others = drawn(1000, 0)
    assert len({call.k for call in others}) > 3, "what the rule does not read differs too"
    assert any(call.mode is not Mode.SAFE for call in others)
    for call, values in calls_near(rule.tree, rule.domain, 100):
        assert (call.n, call.m, call.name) == (values[("n",)], values[("m",)], values[("name",)])
        rule.domain.read(call)


@dataclass(frozen=True)
class Named:
    name: str = "none"
    size: int = 0


@dataclass(frozen=True)
class Checked:
    size: int = 0

    def __post_init__(self) -> None:
        if self.size > 5:
            raise ValueError("too large")


@dataclass(frozen=True)
class Mixed:
    part: Tile | Named = Tile()
    several: tuple[Checked, ...] = ()
    n: int = 0


def test_a_reason_finds_its_way_into_one_of_several_records() -> None:
    def refusal(call: Mixed) -> str | None:
        if isinstance(call.part, Named):
            return f"{call.part.name} of {call.part.size}"
        return f"{call.part.rows}" if call.part.rows > 3 else None

    rule = lift(refusal, Mixed)
    for part in (Tile(2), Tile(5), Named("x", 3), Named()):
        assert rule(Mixed(part)) == refusal(Mixed(part))
    assert rule.replay(64) is None


def test_records_that_check_themselves_are_built_by_their_class() -> None:
    rule = lift(lambda call: None if len(call.several) == 2 and call.several[0].size <= 7 else "no", Mixed)
    drawn = [call for call, _ in calls_near(rule.tree, rule.domain, 200)]
    assert all(part.size <= 5 for call in drawn for part in call.several)
    assert any(call.several for call in drawn)


@dataclass(frozen=True)
class Choosy:
    n: int = 1

    def __post_init__(self) -> None:
        if self.n == 777:
            raise ValueError("not this one")


def test_calls_that_a_class_refuses_to_build_are_left_out() -> None:
    rule = lift(lambda call: None if call.n <= 777 else "no", Choosy)
    drawn = [call.n for call, _ in calls_near(rule.tree, rule.domain, 64)]
    assert 777 not in drawn
    assert 778 in drawn
    assert rule.replay(64) is None


@pytest.mark.parametrize("refusal", LIFTED, ids=lambda f: getattr(f, "__qualname__", "partial"))
def test_a_tree_too_large_to_compile_is_walked_with_the_same_answers(
    refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = lift(refusal, Example)
    calls = [call for call, _ in calls_near(compiled.tree, compiled.domain, 100)]
    outside = [Example(n=-3), Example(n=True), Example(m=2**50), Example(eps=3)]
    expected = [said(compiled, call) for call in (*calls, *outside)]
    monkeypatch.setattr(rule_module, "LARGEST_CODE", 0)
    walked = lift(refusal, Example)
    assert walked._compiled == walked._walk
    assert [said(walked, call) for call in (*calls, *outside)] == expected


def said(function: Any, call: Any) -> tuple[str, Any]:
    try:
        return "gives", function(call)
    except Exception as error:  # noqa: BLE001 - compared
        return "raises", (type(error), str(error))


def test_a_rule_and_its_predicates_show_themselves() -> None:
    rule = lift(refusal_of(lambda c: c.n <= 7), Call)
    assert str(rule) == "serves where n <= 7"
    assert repr(rule) == "<Rule of refusal_of.<locals>.refusal, 2 paths>"
    assert rule.place == f"{rule.file}:{rule.line}"
    assert rule.file == __file__
    assert rule.spec is Call
    assert repr(rule.serves) == "Predicate(Call: n <= 7)"
    assert rule.serves.spec is Call
    assert rule.serves == lift(refusal_of(lambda c: c.n < 8), Call).serves
    assert hash(rule.serves) == hash(lift(refusal_of(lambda c: c.n < 8), Call).serves)
    assert rule.serves != rule.raises
    assert rule.serves != "n <= 7"
    assert rule.touched == {("n",)}
    wide = domain_of(Call, frozenset({"cuda"}), frozenset({77}))
    narrow, wider = fields(Call).n <= 7, fields(Call, domain=wide).n >= 3
    assert (narrow & wider).domain is wide
    assert (wider | narrow).domain is wide
    with pytest.raises(TypeError):
        narrow & 3  # type: ignore[operator]
