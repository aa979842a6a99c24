"""How replays choose: which paths are gone, how often, and what is drawn on each; draws are scripted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
import tileops_rules.replay as replay
from tileops_rules import Range, lift
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.outcome import Fill, Returned, Template
from tileops_rules.pools import Pool
from tileops_rules.tree import Ask, Leaf, Pick, Tree

NUMBER = Annotated[int, Range(-100_000, 100_000)]


@dataclass(frozen=True)
class Call:
    n: NUMBER = 8
    m: NUMBER = 4
    short: Annotated[int, Range(3, 64)] = 8
    eps: float = 0.5
    kind: Literal["a", "b", "c"] = "b"


@dataclass(frozen=True)
class OnDevice:
    n: NUMBER = 8
    device: str = "cuda"
    arch: Optional[int] = None


@dataclass(frozen=True)
class Bounded:
    high: Annotated[float, Range(5.0, 6.0)] = 5.0
    unit: Annotated[float, Range(0.0, 1.0)] = 0.5


DOMAIN = domain_of(Call)
N, M, SHORT = E.integer(("n",)), E.integer(("m",)), E.integer(("short",))
KIND = ("kind",)
PRODUCT = E.at_most(E.multiply(N, M), 1000)


def leaf(value: Any) -> Leaf:
    return Leaf(Returned(value, value))


class Scripted:
    """Stands for ``random.Random``: the rows of *picks* say which element is taken, of *numbers* what is drawn."""

    def __init__(self, picks: Sequence[int] = (), numbers: Sequence[float] = ()) -> None:
        self.picks = list(picks)
        self.numbers = list(numbers)
        self.weights: list[list[float]] = []

    def random(self) -> float:
        return self.numbers.pop(0)

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.picks.pop(0)]

    def choices(self, options: Sequence[Any], weights: Any = None, k: int = 1) -> list[Any]:
        if weights is None:
            return [options[i % len(options)] for i in range(k)]
        self.weights.append([round(weight, 6) for weight in weights])
        return [options[self.picks.pop(0)]]


def near(tree: Tree, domain: Any = DOMAIN, draw: Any = None, seed: int = 0) -> Any:
    made = replay._Near(tree, domain, seed)
    made._draw = draw or made._draw
    return made


# ------------------------------------------------------------------------------------------------------ what is read

CHAIN = Ask(
    E.at_most(N, 9), leaf("few"), Pick(KIND, ((("a", "c"), leaf(None)), (("b",), Ask(PRODUCT, leaf(1), leaf(2)))))
)
"""Four ends: one on the left of the first question, three on its right."""


def test_the_slots_that_are_read_are_those_picked_shown_and_asked_about() -> None:
    assert near(CHAIN)._read == (KIND, ("m",), ("n",))
    shown = Template(("it is ", Fill("expr", "short", (SHORT,))))
    tree = Ask(E.at_most(N, 9), leaf(shown), leaf(None))
    assert near(tree)._read == (("short",), ("n",))
    assert near(leaf("x"))._read == ()


def test_slots_that_the_domain_ties_together_are_read_together_or_not_at_all() -> None:
    domain = domain_of(OnDevice)
    linked = near(leaf(None), domain)._linked
    assert len(linked) > 1
    device = linked[0]
    values = domain.slots[device].values
    picked = Pick(device, ((values[:1], leaf(None)), (values[1:], leaf("no"))))
    assert near(picked, domain)._read == linked
    below = Ask(E.at_most(N, 5), picked, leaf(None))
    assert near(below, domain)._read == (device, ("n",), *linked[1:])
    assert near(Ask(E.at_most(N, 5), leaf(None), leaf("no")), domain)._read == (("n",),)


def test_what_stands_where_a_path_does_not_ask_is_drawn_from_the_pool_of_each_slot() -> None:
    draw = Scripted(picks=[1, 2, 4])
    pools = near(CHAIN)._pools
    assert near(CHAIN, draw=draw)._others() == {
        KIND: "a",
        ("m",): pools[("m",)].values[2],
        ("n",): pools[("n",)].values[4],
    }


@pytest.mark.parametrize("seed", range(4))
def test_what_stands_there_agrees_with_what_the_domain_ties_together(seed: int) -> None:
    domain = domain_of(OnDevice)
    linked = near(leaf(None), domain)._linked
    tree = Pick(linked[0], tuple(((value,), leaf(str(value))) for value in domain.slots[linked[0]].values))
    there = near(tree, domain, seed=seed)
    for _ in range(20):
        values = there._others()
        assert set(values) == set(linked)
        assert replay.evaluate(domain.links, values)


# ------------------------------------------------------------------------------------------------------- which paths


def shares(tree: Tree, count: int) -> list[int]:
    return [share for _, share in near(tree)._shares(count)]


def test_calls_are_spread_evenly_over_the_paths_where_each_gets_two() -> None:
    assert near(CHAIN)._leaves[id(CHAIN)] == 4
    assert shares(CHAIN, 8) == [2, 2, 2, 2]
    assert shares(CHAIN, 10) == [3, 3, 2, 2]
    assert shares(CHAIN, 15) == [4, 4, 4, 3]
    assert shares(leaf(1), 5) == [5]


def test_of_a_larger_tree_paths_are_drawn_with_two_calls_each() -> None:
    assert shares(CHAIN, 7) == [2, 2, 2, 1]
    assert shares(CHAIN, 6) == [2, 2, 2]
    assert shares(CHAIN, 1) == [1]
    assert shares(CHAIN, 0) == []


def test_every_path_is_gone_once_with_what_it_asked() -> None:
    plans = list(near(CHAIN)._every_path())
    kinds = [list(plan.pools[KIND].values) if KIND in plan.pools else None for plan in plans]
    low = [plan.pools[("n",)].values[-1] <= 9 for plan in plans]
    together = [plan.together for plan in plans]
    assert sorted(zip(low, map(str, kinds), map(str, together), strict=True)) == sorted(
        [
            (True, "None", "()"),
            (False, "['a', 'c']", "()"),
            (False, "['b']", str(((PRODUCT, True),))),
            (False, "['b']", str(((PRODUCT, False),))),
        ]
    )
    assert all(set(plan.pools) <= {KIND, ("n",)} for plan in plans)


@pytest.mark.parametrize("seed", range(5))
def test_with_two_calls_for_each_path_every_path_is_gone(seed: int) -> None:
    assert len({repr(plan) for plan, _ in near(CHAIN, seed=seed)._shares(8)}) == 4


def test_a_path_keeps_what_was_asked_of_other_slots() -> None:
    inner = Ask(E.at_most(SHORT, 9), leaf(0), leaf(1))
    plans = list(near(Ask(E.at_most(N, 9), inner, leaf(2)))._every_path())
    assert [set(plan.pools) for plan in plans] == [{("n",), ("short",)}, {("n",), ("short",)}, {("n",)}]


def test_the_seed_is_0_where_none_is_given() -> None:
    given, zero, one = (list(replay.calls_near(CHAIN, DOMAIN, 8, *seed)) for seed in ((), (0,), (1,)))
    assert given == zero != one


def test_a_path_that_asks_twice_parts_what_is_left() -> None:
    inner = Ask(E.at_most(N, 20), leaf(1), leaf(2))
    tree = Ask(E.at_most(N, 9), leaf(0), inner)
    values = [list(plan.pools[("n",)].values) for plan in near(tree)._every_path()]
    assert [(min(each), max(each)) for each in values] == [(-100_000, 9), (10, 20), (21, 100_000)]


def test_a_branch_is_drawn_by_its_share_of_the_paths_and_none_hardly_ever() -> None:
    draw = Scripted(picks=[0, 1, 1])
    plan = near(CHAIN, draw=draw)._random_path()
    # Of no and yes: 3 and 1 of 4 paths; of the two kinds: 1 and 2 of 3; of the product: 1 of 2 each.
    assert draw.weights == [[1.25, 0.75], [0.833333, 1.166667], [1.0, 1.0]]
    assert plan.together == ((PRODUCT, True),)
    assert list(plan.pools[KIND].values) == ["b"]
    assert near(leaf(1), draw=draw)._random_path() == replay._Plan({}, ())


# ---------------------------------------------------------------------------------------------------- which base call


class Recorder:
    """Stands for the maker of calls."""

    made: list[Recorder] = []

    def __init__(self, domain: Any, read: Any, seed: int, bases: int) -> None:
        self.given = (domain, read, seed, bases)
        self.bases: list[int] = []
        self.values: list[Any] = []
        Recorder.made.append(self)

    def call(self, base: int, values: Any) -> Any:
        self.bases.append(base)
        self.values.append(values)
        return None if len(self.bases) % 3 == 0 else (len(self.bases), values)


@pytest.mark.parametrize(
    ("count", "bases", "others"), [(0, 2, 2), (24, 3, 2), (31, 3, 2), (200, 25, 3), (191, 23, 2), (192, 24, 3)]
)
def test_bases_and_what_is_not_asked_about_take_turns(
    monkeypatch: pytest.MonkeyPatch, count: int, bases: int, others: int
) -> None:
    monkeypatch.setattr(replay, "CallMaker", Recorder)
    tree = Ask(E.at_most(N, 9), leaf(0), Pick(KIND, ((("a", "b", "c"), leaf(2)),)))
    there = near(tree, seed=11)
    rows = [{("n",): 1000 + i, KIND: i} for i in range(9)]
    drawn: list[Any] = []
    monkeypatch.setattr(there, "_others", lambda: drawn.append(rows[len(drawn)]) or drawn[-1])
    found = list(there.calls(count))
    maker = Recorder.made.pop()
    assert maker.given == (DOMAIN, (KIND, ("n",)), 11, bases)
    assert maker.bases == [turn % bases for turn in range(1, count + 1)]
    assert len(drawn) == others
    assert [number for number, _ in found] == [n for n in range(1, count + 1) if n % 3]
    free = [(turn, values[KIND]) for turn, values in enumerate(maker.values, 1) if values[("n",)] <= 9]
    assert all(kind == turn % others for turn, kind in free)
    assert len(free) == (count + 1) // 2


# --------------------------------------------------------------------------------------------------- values on a path


def values(plan: Any, count: int, domain: Any = DOMAIN, tree: Tree = CHAIN) -> list[Any]:
    return list(near(tree, domain, Scripted())._values(plan, count))


def test_a_path_that_asks_nothing_gives_no_values() -> None:
    assert values(replay._Plan({}, ()), 3) == [{}, {}, {}]


def test_values_are_drawn_from_the_pools_of_the_path_with_their_edges_more_often() -> None:
    plan = replay._Plan({("n",): Pool([1, 2, 3], (3,)), KIND: Pool(["a"])}, ())
    drawn = [1, 2, 3, 3, 3, 3, 3, 1, 2]
    assert values(plan, 9) == [{("n",): n, KIND: "a"} for n in drawn]


def test_a_pool_in_which_nothing_is_left_gives_way_to_the_slot_s_own() -> None:
    own = near(CHAIN)._pools[("n",)].weighted
    assert values(replay._Plan({("n",): Pool([])}, ()), 4) == [{("n",): n} for n in own[:4]]


def test_slots_of_a_question_about_several_are_drawn_too_and_meet_it() -> None:
    there = near(CHAIN, draw=Scripted(picks=[0] * 40, numbers=[0.0] * 40))
    plan = replay._Plan({("n",): Pool([100])}, ((PRODUCT, False),))
    rows = list(there._values(plan, 12))
    assert all(set(row) == {("n",), ("m",)} for row in rows)
    assert all(row[("n",)] * row[("m",)] > 1000 for row in rows)


def test_tied_slots_are_drawn_together_and_as_the_path_wants_them() -> None:
    domain = domain_of(OnDevice)
    linked = near(leaf(None), domain)._linked
    device, arch = linked[0], next(path for path in linked if path[-1] == "arch")
    wanted = next(value for value in domain.slots[device].values if value != "cuda")
    rows = values(replay._Plan({device: Pool((wanted,)), ("n",): Pool([7])}, ()), 5, domain)
    assert len(rows) == 5
    for row in rows:
        assert set(row) == {*linked, ("n",)}
        assert (row[device], row[("n",)], row[arch]) == (wanted, 7, None)
    known = values(replay._Plan({device: Pool(("cuda",))}, ()), 5, domain)
    assert {row[arch] for row in known} <= {v for v in domain.slots[arch].values if v is not None}
    assert len({row[arch] for row in known}) > 1
    free = values(replay._Plan({("n",): Pool([7])}, ()), 2, domain)
    assert free == [{("n",): 7}] * 2


def test_tied_slots_whose_values_never_agree_leave_the_others_as_drawn() -> None:
    domain = domain_of(OnDevice)
    linked = near(leaf(None), domain)._linked
    device, arch = linked[0], next(path for path in linked if path[-1] == "arch")
    plan = replay._Plan({device: Pool(("cuda",)), arch: Pool((None,)), ("n",): Pool([7])}, ())
    assert values(plan, 3, domain) == [{("n",): 7}] * 3


# ------------------------------------------------------------------------------- questions about several slots at once


def meet(answer: bool, start: dict[str, int], draw: Scripted, pools: Any = None, question: E.Expr = PRODUCT) -> Any:
    tree = Ask(question, leaf(1), leaf(2))
    held = {(name,): value for name, value in start.items()}
    near(tree, draw=draw)._meet(question, answer, held, replay._Plan(pools or {}, ()))
    return {path[0]: value for path, value in held.items()}


def test_half_of_what_is_met_stays_and_half_moves_to_where_the_answer_changes() -> None:
    start = {"m": 30, "n": 3}
    assert meet(True, start, Scripted(numbers=[0.49])) == start
    assert meet(True, start, Scripted([1], [0.5])) == {"m": 30, "n": 33}
    assert meet(True, start, Scripted([0], [0.9])) == {"m": 333, "n": 3}
    assert meet(False, {"m": 30, "n": 90}, Scripted([1], [0.9])) == {"m": 30, "n": 34}


def test_what_is_met_stays_where_no_edge_is_known() -> None:
    start = {"m": 0, "n": 3}
    assert meet(True, start, Scripted([1], [0.9])) == start


def test_what_is_not_met_moves_to_the_edge_at_once() -> None:
    assert meet(False, {"m": 30, "n": 3}, Scripted([1])) == {"m": 30, "n": 34}
    assert meet(True, {"m": 30, "n": 90}, Scripted([0])) == {"m": 11, "n": 90}


def test_where_no_edge_is_known_other_values_are_drawn_until_one_answers_so() -> None:
    pools = {("n",): Pool([5, 6, 7, 100]), ("m",): Pool([0, 40, 50])}
    # Where m is 0, no edge of n is known, and no n helps; then m has one.
    assert meet(False, {"m": 0, "n": 0}, Scripted([1, 3, 0]), pools) == {"m": 11, "n": 100}
    # No edge of a divisor is known: 4 % 5 is above 2, 4 % 4 is not, and an edge of n is.
    question = E.at_most(E.mod(N, M), 2)
    drawn = {("n",): Pool([4, 5, 13]), ("m",): Pool([5, 7, 4])}
    assert meet(True, {"m": 7, "n": 4}, Scripted([1, 2]), drawn, question) == {"m": 4, "n": 4}
    assert meet(True, {"m": 7, "n": 4}, Scripted([1, 0, 1, 2]), drawn, question) == {"m": 4, "n": 4}
    assert meet(True, {"m": 7, "n": 4}, Scripted([1, 0, 0]), drawn, question) == {"m": 5, "n": 2}


def test_a_dozen_draws_are_tried() -> None:
    draw = Scripted([0, 0] * 12)
    pools = {("m",): Pool([0]), ("n",): Pool([0])}
    assert meet(False, {"m": 0, "n": 0}, draw, pools) == {"m": 0, "n": 0}
    assert draw.picks == []


def test_a_slot_without_a_pool_on_the_path_or_with_an_empty_one_is_drawn_from_its_own() -> None:
    own = near(Ask(PRODUCT, leaf(1), leaf(2)))._pools[("n",)].weighted
    for pools in ({}, {("n",): Pool([])}):
        draw = Scripted([1, 9] * 12)
        assert meet(False, {"m": 0, "n": 0}, draw, pools) == {"m": 0, "n": own[9]}


# ----------------------------------------------------------------------------------------------- where answers change


def edge(question: E.Expr, answer: bool, held: dict[str, int], name: str, pool: Pool | None = None) -> Any:
    there = near(Ask(question, leaf(1), leaf(2)))
    before = {(key,): value for key, value in held.items()}
    after = dict(before)
    found = there._edge(question, answer, after, (name,), pool or Pool([]))
    assert after == before
    return found


SUM = E.equals(E.add(N, E.scale(M, 3)), 50)
TWICE = E.equals(E.add(E.scale(N, 2), E.scale(M, 3)), 51)
ABOVE = E.at_most(E.subtract(M, N), 10)
OF_SHORT = E.at_most(E.multiply(M, SHORT), 640)


@pytest.mark.parametrize(
    ("question", "held", "name", "yes", "no"),
    [
        (PRODUCT, {"n": 7, "m": 30}, "n", 33, 34),
        (PRODUCT, {"n": 7, "m": -30}, "n", -33, -34),
        (PRODUCT, {"n": 7, "m": 25}, "n", 40, 41),
        (PRODUCT, {"n": 7, "m": 25}, "m", 142, 143),
        (PRODUCT, {"n": 7, "m": 0}, "n", None, None),
        (SUM, {"n": 0, "m": 4}, "n", 38, 39),
        (SUM, {"n": 38, "m": 0}, "m", 4, 5),
        (TWICE, {"n": 0, "m": 4}, "n", None, 19),
        (TWICE, {"n": 0, "m": 5}, "n", 18, 19),
        (ABOVE, {"n": 7, "m": 0}, "n", -10, -11),
        (ABOVE, {"n": 7, "m": 0}, "m", 17, 18),
        (OF_SHORT, {"m": 10, "short": 5}, "short", 64, None),
        (OF_SHORT, {"m": 200, "short": 5}, "short", 3, 4),
        (OF_SHORT, {"m": 213, "short": 5}, "short", 3, 4),
        (OF_SHORT, {"m": 300, "short": 5}, "short", None, 3),
        (OF_SHORT, {"m": 9, "short": 5}, "short", None, None),
        (E.at_most(E.mod(N, M), 5), {"n": 7, "m": 4}, "m", None, None),
        (E.disjunction([E.at_most(N, 5), E.at_most(M, 5)]), {"n": 7, "m": 4}, "n", None, None),
    ],
)
def test_the_edge_of_a_slot_is_its_last_value_with_that_answer(
    question: E.Expr, held: dict[str, int], name: str, yes: int | None, no: int | None
) -> None:
    assert (edge(question, True, held, name), edge(question, False, held, name)) == (yes, no)


def test_an_edge_keeps_the_earlier_answers_and_may_lie_a_divisor_further() -> None:
    even_eight = ((E.equals(E.mod(N, E.constant(8)), 0), True),)
    pool = Pool([], (), even_eight, (8,))
    question = E.at_most(E.multiply(N, M), 1100)  # of m = 30, up to 36
    assert edge(question, True, {"n": 1, "m": 30}, "n", pool) == 32
    assert edge(question, False, {"n": 1, "m": 30}, "n", pool) == 40
    assert edge(question, True, {"n": 1, "m": 30}, "n", Pool([], (), even_eight)) is None
    assert edge(question, True, {"n": 1, "m": 30}, "n", Pool([], (), even_eight, (5, 8))) == 40 - 8
    assert edge(question, True, {"n": 1, "m": 34}, "n", Pool([], (), even_eight)) == 32


# ------------------------------------------------------------------------------------------------------ floats, as seen


def test_a_float_with_a_declared_range_is_tried_on_both_sides_and_replays() -> None:
    def refusal(call: Any) -> str | None:
        return "above" if call.unit > 0.7 else None

    rule = lift(refusal, Bounded)
    assert Counter(call.unit > 0.7 for call, _ in replay.calls_near(rule.tree, rule.domain, 40)) == {
        True: 20,
        False: 20,
    }
    assert all(5.0 <= call.high <= 6.0 for call, _ in replay.calls_near(rule.tree, rule.domain, 40))
    assert rule.replay(64) is None
    assert math.isfinite(min(call.high for call, _ in replay.calls_near(rule.tree, rule.domain, 40)))
