"""The nearest served call: the fewest fields changed, then the smallest changes, on the same device where possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, Optional

import pytest
from tileops_rules import Candidate, InvalidCall, OutsideDomain, Selector
from tileops_solver import Answer, InconsistencyError, Verdict, nearest_served
from tileops_solver.nearest import Change, Neighbourhood, _by_distance, _Neighbours

from tests.solver.test_nearest_of_all import Call
from tests.speed import cpu_seconds, holds_within

# ----------------------------------------------------------------------------------------------------- one at a time


@dataclass(frozen=True)
class Tile:
    rows: int = 1
    kind: Literal["wide", "tall"] = "wide"


@dataclass(frozen=True)
class Rich:
    m: int = 64
    k: int = 64
    scale: float = 0.25
    text: str = "abc"
    tile: Tile = field(default_factory=Tile)
    note: object = None
    device: Optional[str] = None
    arch: Optional[int] = None
    sm_count: Optional[int] = None
    smem_budget: Optional[int] = None


def near(rule: Callable[[Any], Any], call: Any, **placed: Any) -> Any:
    answer = nearest_served(Selector(type(call), [Candidate("only", rule, **placed)]), call)
    assert answer.verdict is Verdict.FOUND
    return answer.call


def on(arch: int, **values: Any) -> Rich:
    return Rich(**{"device": "cuda", "arch": arch, "sm_count": 100, "smem_budget": 90_000, **values})


@pytest.mark.parametrize(
    ("rule", "start", "end"),
    [
        (lambda c: None if c.k % 128 == 0 else "k", {"k": 7392}, {"k": 7424}),
        (lambda c: None if c.k % 128 == 0 else "k", {"k": 7360}, {"k": 7296 + 128}),
        (lambda c: None if c.k % 128 == 0 else "k", {"k": 7359}, {"k": 7296}),
        (lambda c: None if c.m % 16 == 0 and c.k % 16 == 0 else "no", {"m": 33, "k": 47}, {"m": 32, "k": 48}),
        (lambda c: None if c.m * c.k >= 5000 else "small", {"m": 70, "k": 70}, {"m": 70, "k": 72}),
        (lambda c: None if c.m >= 4096 or c.k == 1 else "no", {"m": 4095, "k": 9}, {"m": 4095, "k": 1}),
        (lambda c: None if c.m <= 8 and c.k > 10**9 else "no", {"m": 8}, {"m": 8, "k": 10**9 + 1}),
        (lambda c: None if c.scale < 0.0 else "no", {"scale": 3.0}, {"scale": -1.0}),
        (lambda c: None if c.scale != c.scale else "no", {"scale": 3.0}, {"scale": math.nan}),
        (lambda c: None if c.text == "z" else "no", {}, {"text": "z"}),
        (lambda c: None if c.tile.rows % 2 == 0 else "no", {"tile": Tile(7, "tall")}, {"tile": Tile(8, "tall")}),
    ],
    ids=range(11),
)
def test_each_kind_of_field_goes_where_the_rule_wants_it(
    rule: Callable[[Any], Any], start: dict[str, Any], end: dict[str, Any]
) -> None:
    assert repr(near(rule, on(90, **start))) == repr(on(90, **end))


def test_what_is_not_changed_stays_the_very_same() -> None:
    note = object()
    call = on(90, m=3, scale=1e-30, text="quite another", tile=Tile(5, "tall"), note=note)
    found = near(lambda c: None if c.m == 4 and 0.0 < c.scale < 1.0 and c.text != "abc" else "no", call)
    assert found == Rich(4, 64, 1e-30, "quite another", Tile(5, "tall"), note, "cuda", 90, 100, 90_000)
    assert found.note is note


def test_a_call_that_is_served_is_its_own_neighbour() -> None:
    call = on(90)
    assert near(lambda c: None, call) is call


def test_two_fields_are_changed_only_where_one_would_not_do() -> None:
    def rule(c: Rich) -> str | None:
        if c.m == 128 and c.k == 128:
            return None
        return None if c.m == 10**6 else "no"

    assert near(rule, on(90, m=127, k=127)) == on(90, m=10**6, k=127)


def test_the_device_changes_only_where_nothing_is_served_there() -> None:
    def rule(c: Rich) -> str | None:
        return None if c.m == 1 else "m"

    assert near(rule, on(90, m=64), supported_archs=[80, 90]) == on(90, m=1)
    moved = near(rule, on(120, m=64), supported_archs=[80, 90])
    assert moved == Rich(m=1, device="cuda", arch=90, sm_count=132, smem_budget=227 * 1024)


@pytest.mark.parametrize(
    ("least", "end"),
    [
        (80_000, on(90)),
        (98_304, Rich(device="cuda", arch=90, sm_count=132, smem_budget=227 * 1024)),
        (300_000, on(90, smem_budget=300_000)),
    ],
)
def test_the_facts_of_a_device_become_usual_ones_and_only_then_any(least: int, end: Rich) -> None:
    def rule(c: Rich) -> str | None:
        return None if c.smem_budget is not None and c.smem_budget >= least else "too little"

    assert near(rule, on(90)) == end


def test_another_device_alone_is_nearer_than_a_nearer_device_and_a_field() -> None:
    def rule(c: Call) -> str | None:
        return None if c.arch == 80 or c.n == 1 else "n"

    assert near(rule, Call(90, n=3, device="cuda"), supported_archs=[80, 89]) == Call(80, n=3, device="cuda")
    assert near(rule, Call(90, n=1, device="cuda"), supported_archs=[80, 89]) == Call(89, n=1, device="cuda")


@dataclass(frozen=True)
class Tagged:
    rows: int = 1
    tag: object = None


@dataclass(frozen=True)
class Tiled:
    n: int = 0
    tiles: tuple[Tagged, ...] = ()


def test_a_tuple_that_does_not_change_keeps_what_no_rule_can_read() -> None:
    tiles = (Tagged(3, "first"), Tagged(4, "second"))
    assert near(lambda c: None if c.n == 7 else "n", Tiled(tiles=tiles)) == Tiled(7, tiles)


def test_from_another_device_type_the_first_arch_comes_with_its_usual_facts() -> None:
    selector = Selector(Rich, [Candidate("gpu", lambda c: None), Candidate("host", lambda c: "no", devices={"cpu"})])
    answer = nearest_served(selector, Rich(m=3, device="cpu"))
    assert answer.call == Rich(m=3, device="cuda", arch=80, sm_count=108, smem_budget=163 * 1024)

    def large(c: Rich) -> str | None:
        return None if c.smem_budget is not None and c.smem_budget >= 300_000 else "too little"

    selector = Selector(Rich, [Candidate("gpu", large), Candidate("host", lambda c: "no", devices={"cpu"})])
    answer = nearest_served(selector, Rich(m=3, device="cpu"))
    assert answer.call == Rich(m=3, device="cuda", arch=80, sm_count=108, smem_budget=300_000)


def test_a_call_that_states_an_arch_alone_is_completed() -> None:
    found = near(lambda c: None if c.m == 1 else "m", Rich(arch=90))
    assert found == Rich(m=1, device="cuda", arch=90, sm_count=132, smem_budget=227 * 1024)


def test_an_int_in_a_float_field_counts_as_that_float() -> None:
    found = near(lambda c: None if c.m == 1 and c.scale >= 2.0 else "no", on(90, scale=3))
    assert found == on(90, m=1, scale=3)
    assert type(found.scale) is int


def test_nothing_served_at_all_is_proved() -> None:
    answer = nearest_served(Selector(Rich, [Candidate("never", lambda c: "no")]), on(90))
    assert answer.verdict is Verdict.NONE


def test_the_neighbour_is_described_with_its_changes_and_its_winner() -> None:
    def small(c: Rich) -> str | None:
        return None if c.m <= 8 else "large"

    keys = [Candidate("rest", small, general=True), Candidate("first", small, supported_archs=[80])]
    selector = Selector(Rich, keys)
    around = Neighbourhood(selector)
    nearby = around.described(on(80), around.nearest(on(80)).call)
    assert (nearby.key, nearby.changed, str(nearby)) == ("first", (Change("m", 64, 8),), "m 8 in place of 64")
    keys = [Candidate("first", small, supported_archs=[80])]
    around = Neighbourhood(Selector(Rich, keys))
    moved = around.described(on(90), around.nearest(on(90)).call)
    assert [change.field for change in moved.changed] == ["m", "arch", "sm_count", "smem_budget"]
    assert str(moved) == "m 8 in place of 64, arch 80 in place of 90"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (on(90, m=2**41), "2199023255552 is outside the domain of m, which is assumed"),
        (on(75, m=2), "75 is outside the domain of arch"),
        (Rich(device="cpu"), "'cpu' is outside the domain of device"),
        (Rich(device="cuda"), "a call on a CUDA device states arch, sm_count, smem_budget"),
    ],
    ids=["value", "arch", "device", "facts"],
)
def test_of_a_call_of_which_rules_say_nothing_it_is_undecided_why(call: Rich, said: str) -> None:
    only = Candidate("only", lambda c: None if c.m in (1, 2**42) else "no", devices={"cuda"})
    answer = nearest_served(Selector(Rich, [only]), call)
    assert answer.verdict is Verdict.UNDECIDED
    assert said in answer.reason
    assert nearest_served(Selector(Rich, [only]), on(90, m=2**42)).call == on(90, m=2**42), "served, by the method"


def test_a_call_that_cannot_be_is_refused_as_select_refuses_it() -> None:
    selector = Selector(Call, [Candidate("only", lambda c: None)])
    for error, call in (
        (InvalidCall, Call(90, sizes=(1, 1, 1), device="cuda")),
        (OutsideDomain, Call(90, n=9, device="cuda")),
    ):
        with pytest.raises(error) as caught:
            nearest_served(selector, call)
        with pytest.raises(error) as selected:
            selector.select(call)
        assert str(caught.value) == str(selected.value)
    with pytest.raises(TypeError, match="takes a Call call spec"):
        nearest_served(selector, on(90))


# ---------------------------------------------------------------------------------------------------- not lifted, lost


def strange(c: Any) -> str | None:
    return None if len(range(c.m)) == 5 else "not five"


def test_a_rule_that_is_not_lifted_leaves_its_own_platforms_undecided() -> None:
    keys = [
        Candidate("strange", strange, supported_archs=[90]),
        Candidate("plain", lambda c: None if c.m == 1 else "m", supported_archs=[80]),
    ]
    selector = Selector(Rich, keys)
    assert nearest_served(selector, on(80)).call == on(80, m=1)
    assert nearest_served(selector, on(90, m=5)).call == on(90, m=5), "served, by the method itself"
    for call in (on(90), on(120)):
        answer = nearest_served(selector, call)
        assert answer.verdict is Verdict.UNDECIDED
        assert "the rule of strange was not lifted" in answer.reason


def test_a_rule_that_raises_on_the_call_does_not_serve_it() -> None:
    def rule(c: Rich) -> str | None:
        if c.m > 10:
            raise ValueError("too large")
        return None

    assert near(rule, on(90)) == on(90, m=10)


def test_a_minimum_that_is_not_shown_is_undecided() -> None:
    @dataclass(frozen=True)
    class Wide:
        n: int = 0
        m: int = 0
        k: int = 0
        l: int = 0  # noqa: E741 - a size

    def rule(c: Wide) -> str | None:
        return None if c.n * c.m * c.k * c.l % 1024 == 3 and c.n % 2 == 0 else "no"

    answer = nearest_served(Selector(Wide, [Candidate("wide", rule)]), Wide(1, 1, 1, 1))
    assert answer.verdict is Verdict.UNDECIDED
    assert "more than 128" in answer.reason


@dataclass(frozen=True)
class Picky:
    """Its constructor cannot be lifted, and takes few calls."""

    n: int = 4
    m: int = 0

    def __post_init__(self) -> None:
        if len(range(self.n)) % 5 != 4:
            raise ValueError(f"n is {self.n}")


def test_calls_that_the_spec_rejects_are_passed_over() -> None:
    assert near(lambda c: None if c.n > 4 else "no", Picky()) == Picky(9)
    assert near(lambda c: None if 4 < c.n < 8 or c.m == 7 else "no", Picky()) == Picky(4, 7)


def test_a_spec_that_rejects_every_neighbour_leaves_it_undecided() -> None:
    answer = nearest_served(Selector(Picky, [Candidate("a", lambda c: None if 4 < c.n < 9 else "no")]), Picky())
    assert answer.verdict is Verdict.UNDECIDED
    assert "cannot be built: Picky raised ValueError: n is" in answer.reason


def test_a_constructor_that_changes_its_values_is_not_taken_at_its_word() -> None:
    @dataclass(frozen=True)
    class Rounding:
        n: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "n", len(range(self.n)) // 8 * 8)

    assert near(lambda c: None if c.n > 3 else "no", Rounding()) == Rounding(8)


SWITCH = {"serves": True}


def test_a_neighbour_that_the_real_method_refuses_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    def switched(c: Rich) -> str | None:
        return None if SWITCH["serves"] and c.m == 1 else "no"

    selector = Selector(Rich, [Candidate("a", switched)])
    assert selector.rules
    monkeypatch.setitem(SWITCH, "serves", False)
    with pytest.raises(InconsistencyError, match="a is proved to serve a call that it does not serve"):
        nearest_served(selector, on(90))


# -------------------------------------------------------------------------------------------------------------- time


def test_the_answer_of_a_question_of_a_real_size_comes_in_milliseconds() -> None:
    def rule(c: Rich) -> str | None:
        if c.m % 16 != 0 or not 16 <= c.m <= 256:
            return "m"
        if c.smem_budget is not None and (c.m + 128) * c.k * 2 > c.smem_budget:
            return "shared memory"
        return "odd" if c.k % 2 else None

    selector = Selector(Rich, [Candidate("only", rule, supported_archs=[80, 89, 90])])
    answer = nearest_served(selector, on(120, m=100, k=999))
    assert answer == Answer(Verdict.FOUND, Rich(96, 518, device="cuda", arch=90, sm_count=132, smem_budget=227 * 1024))
    holds_within(0.05, lambda: cpu_seconds(lambda: nearest_served(selector, on(120, m=100, k=999))))


# ----------------------------------------------------------------------------------------------------- part by part


@pytest.mark.parametrize(
    ("values", "middle", "span", "order"),
    [
        ((4, 2, 8, 6), 6, (0, 3), [6, 8, 4, 2]),
        ((4, 2, 8, 6), 5, (0, 3), [6, 4, 8, 2]),
        ((4, 2, 8, 6), 8, (0, 3), [8, 6, 4, 2]),
        ((4, 2, 8, 6), 6, (1, 2), [8, 2]),
        ((None, 7, True, 1, 9), 8, (0, 4), [9, 7, 1, None, True]),
        (("b", "a", -3, -4), -4, (0, 3), [-4, -3, "b", "a"]),
    ],
)
def test_values_are_tried_from_the_nearest_on_up_before_down_and_what_is_no_integer_last(
    values: tuple[Any, ...], middle: int, span: tuple[int, int], order: list[Any]
) -> None:
    codes: Any = SimpleNamespace(value=values.__getitem__)
    found = [values[code] for code in _by_distance(codes, middle, span)]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in order]


@pytest.mark.parametrize(
    ("changed", "many"),
    [
        ({}, False),
        ({"n": 3}, False),
        ({"kind": 1}, False),
        ({"ratio": 1}, True),
        ({"name": 1}, True),
        ({"n": 3, "ratio": 1}, True),
    ],
)
def test_a_changed_float_or_string_stands_for_more_values_than_are_tried(changed: dict[str, int], many: bool) -> None:
    sorts = {"n": "int", "kind": "finite", "ratio": "float", "name": "str"}
    home = {(name,): 0 for name in sorts}
    about = object.__new__(_Neighbours)
    codes = {(name,): SimpleNamespace(slot=SimpleNamespace(sort=sort)) for name, sort in sorts.items()}
    about._question = SimpleNamespace(codes=codes)  # type: ignore[assignment]
    about._home = home
    assert about._stands_for_many({**home, **{(name,): code for name, code in changed.items()}}) is many
