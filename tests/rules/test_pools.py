"""The values at which a slot is tried, worked out by hand: near every threshold, on both sides of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Range
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.pools import Pool, Pools, split

USUAL = [0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 1024, 4096]
LOW, HIGH = -100_000, 100_000


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(LOW, HIGH)] = 8
    m: Annotated[int, Range(LOW, HIGH)] = 4
    short: Annotated[int, Range(3, 64)] = 8
    far: Annotated[int, Range(2000, 2100)] = 2000
    eps: float = 0.5
    unit: Annotated[float, Range(0.0, 1.0)] = 0.25
    high: Annotated[float, Range(5.0, 6.0)] = 5.0
    above: Annotated[float, Range(5.0, None)] = 5.0
    below: Annotated[float, Range(None, -5)] = -5.0
    name: str = "plain"
    title: str = ""
    kind: Literal["a", "b", "c"] = "b"


DOMAIN = domain_of(Call)
N, M = E.integer(("n",)), E.integer(("m",))


def number(value: int) -> E.Expr:
    return E.constant(value)


def pool(name: str, *questions: E.Expr) -> Pool:
    return Pools(DOMAIN, questions)[(name,)]


def also(name: str, *questions: E.Expr) -> list[int]:
    """The values of an integer slot that are there for these questions alone."""
    return [value for value in pool(name, *questions).values if value not in (*USUAL, LOW, HIGH)]


# ------------------------------------------------------------------------------------- where nothing is known of a slot


def test_a_slot_that_no_question_compares_is_tried_at_the_usual_values_inside_its_domain() -> None:
    assert list(pool("n").values) == [LOW, *USUAL, HIGH]
    assert list(pool("short").values) == [3, 5, 7, 8, 16, 31, 32, 33, 63, 64]
    assert list(pool("far").values) == [2000, 2100]
    assert list(pool("kind").values) == ["b", "a", "c"]
    assert list(pool("name").values) == ["", "any other"]
    assert repr(list(pool("eps").values)) == repr([-math.inf, -1.0, 0.0, 0.5, 1.0, 2.0, math.inf, math.nan])
    assert list(pool("unit").values) == [0.0, 0.5, 1.0]


def test_the_plainest_value_is_an_edge_where_it_is_tried() -> None:
    edges = {name: pool(name).edges for name in ("n", "m", "short", "far", "eps", "unit", "name", "title", "kind")}
    assert edges == {
        "n": (8,),
        "m": (),
        "short": (8,),
        "far": (2000,),
        "eps": (0.5,),
        "unit": (),
        "name": (),
        "title": ("",),
        "kind": ("b",),
    }
    assert pool("m", E.at_most(M, 3)).edges == (4,)


def test_half_of_the_weighted_values_are_edges() -> None:
    assert list(Pool([1, 2, 3]).weighted) == [1, 2, 3]
    assert list(Pool([1, 2, 3], (2,)).weighted) == [1, 2, 3, 2, 2, 2, 2]
    assert list(Pool([1, 2, 3, 4, 5], (2, 5)).weighted) == [1, 2, 3, 4, 5, 2, 5, 2, 5, 2, 5]
    assert list(Pool([], (2,)).weighted) == [2]
    kept = Pool([1, 2, 3], (2,))
    assert kept.weighted is kept.weighted


def test_slots_without_questions_share_their_values_and_each_is_looked_at_once() -> None:
    pools = Pools(DOMAIN, [E.at_most(N, 40)])
    assert pools[("m",)].values is Pools(DOMAIN, [])[("m",)].values
    assert pools[("n",)] is pools[("n",)]


# ---------------------------------------------------------------------------------------------- what questions bring in


def test_a_comparison_with_a_constant_is_tried_around_it() -> None:
    assert also("n", E.at_most(N, 5000)) == [4999, 5000, 5001, 5002]
    assert also("n", E.equals(N, 5000)) == [4999, 5000, 5001, 5002]
    assert also("n", E.negation(E.at_most(N, -50))) == [-51, -50, -49, -48]
    assert also("m", E.at_most(N, 5000)) == []
    assert also("n", E.at_most(N, 5000), E.equals(N, 6000)) == [4999, 5000, 5001, 5002, 5999, 6000, 6001, 6002]


def test_a_comparison_of_a_sum_is_tried_around_the_constant_and_around_its_share() -> None:
    question = E.at_most(E.add(E.scale(M, 3), E.scale(N, -7)), 5000)  # 714 = 5000 // 7, 1666 = 5000 // 3
    assert also("n", question) == also("m", question)
    assert also("n", question) == [713, 714, 715, 1665, 1666, 1667, 4999, 5000, 5001, 5002]


def test_a_comparison_of_a_product_is_tried_around_the_root_and_at_round_shares() -> None:
    question = E.at_most(E.multiply(N, M), 90_020)  # the root is 300.03...
    shares = [1406, 5626, 11_252, 22_505, 30_006, 45_010]  # a 64th, 16th, 8th, 4th, third and half
    assert also("n", question) == sorted([299, 300, 301, *shares, 90_019, 90_020, 90_021, 90_022])
    assert also("m", question) == also("n", question)
    assert also("n", E.equals(E.multiply(N, M), 90_020)) == also("n", question)
    assert also("n", E.at_most(E.multiply(N, M), 1)) == []
    assert {0, 1, 2, 3} <= set(pool("n", E.at_most(E.multiply(N, M), 1)).values)
    assert also("n", E.at_most(E.multiply(N, M), 0)) == [-1]
    assert also("n", E.at_most(E.multiply(N, M), -20)) == [-21, -20, -19, -18]


def test_the_root_is_tried_for_products_alone() -> None:
    question = E.at_most(E.absolute(E.add(N, M)), 90_020)
    assert also("n", question) == [-90_022, -90_021, -90_020, -90_019, 90_019, 90_020, 90_021, 90_022]


def test_a_product_with_a_small_limit_is_tried_around_its_root_too() -> None:
    assert also("n", E.at_most(E.multiply(N, M), 36)) == [4, 6, 9, 12, 18, 35, 36, 37, 38]
    assert also("n", E.at_most(E.multiply(N, M), 25)) == [4, 6, 12, 24, 25, 26, 27]


@pytest.mark.parametrize("question", [E.equals(E.mod(N, number(24)), 17), E.at_most(E.mod(N, number(24)), 17)])
def test_a_remainder_is_tried_around_the_first_the_second_and_a_later_multiple(question: E.Expr) -> None:
    assert also("n", question) == [17, 18, 19, 23, 24, 25, 47, 48, 49, 407, 408, 409]
    assert also("m", question) == []


def test_a_quotient_inside_a_sum_is_tried_around_multiples_of_its_divisor() -> None:
    question = E.at_most(E.add(E.floordiv(N, number(24)), M), 5000)
    assert also("n", question) == [23, 24, 25, 47, 48, 49, 407, 408, 409, 4999, 5000, 5001, 5002]
    assert also("m", question) == [4999, 5000, 5001, 5002]


def test_a_divisor_that_is_a_field_has_no_multiples() -> None:
    question = E.at_most(E.mod(N, M), 5000)
    assert also("n", question) == also("m", question) == [4999, 5000, 5001, 5002]


def test_every_part_of_a_question_brings_in_its_own() -> None:
    is_x = E.str_is(("name",), "x")
    question = E.disjunction(
        [E.at_most(N, 300), E.equals(E.mod(M, number(24)), 0), E.float_is(("eps",), "<", 0.1), is_x]
    )
    assert also("n", question) == [299, 300, 301, 302]
    assert also("m", question) == [-1, 23, 24, 25, 47, 48, 49, 407, 408, 409]
    assert list(pool("name", question, E.str_is(("name",), "y"), is_x).values) == ["x", "y", "", "any other"]
    assert list(pool("title", question).values) == ["", "any other"]
    assert repr(list(pool("eps", question).values)) == repr([-math.inf, 0.0, 0.1, 1.1, math.inf, math.nan])
    both = pool("eps", question, E.float_is(("eps",), ">=", 0.3)).values
    assert repr(list(both)) == repr([-math.inf, 0.0, 0.1, 0.2, 0.3, 1.3, math.inf, math.nan])


def test_a_float_with_a_declared_range_is_tried_on_both_sides_of_a_threshold_and_at_its_ends() -> None:
    assert list(pool("unit", E.float_is(("unit",), "<", 0.5)).values) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert list(pool("unit", E.float_is(("unit",), "<", 7.0)).values) == [0.0, 0.5, 1.0]
    assert list(pool("high").values) == [5.0, 5.5, 6.0]
    assert list(pool("above").values) == [5.0, 6.0, math.inf]
    assert list(pool("below").values) == [-math.inf, -6.0, -5.0]


def test_values_outside_the_domain_are_left_out_and_its_ends_are_tried() -> None:
    short = E.integer(("short",))
    assert list(pool("short", E.at_most(short, 40)).values) == [
        *(3, 5, 7, 8, 16, 31, 32, 33, 39, 40, 41, 42, 63, 64),
    ]
    assert list(pool("short", E.at_most(short, 1)).values) == list(pool("short").values)
    assert list(pool("short", E.at_most(short, 64)).values) == list(pool("short").values)
    assert list(pool("far", E.at_most(E.integer(("far",)), 2050)).values) == [2000, 2049, 2050, 2051, 2052, 2100]


# ----------------------------------------------------------------------------------------------------- parting a pool


def parted(question: E.Expr, values: list[Any], edges: tuple[Any, ...] = (), name: str = "n") -> list[Any]:
    """Values and edges where the question is answered with yes, and the same where with no."""
    before = (E.truth(True), True)
    made = split((name,), Pool(values, edges, (before,), (5,)), question, DOMAIN.slots[(name,)])
    assert [each.asked for each in made] == [(before, (question, True)), (before, (question, False))]
    return [part for each in made for part in (list(each.values), list(each.edges))]


VALUES = [1, 5, 8, 9, 20]


@pytest.mark.parametrize(
    ("limit", "edges", "answers"),
    [
        (8, (), ([1, 5, 8], [8], [9, 20], [9])),
        (7, (), ([1, 5], [5], [8, 9, 20], [8])),
        (8, (1, 8, 9, 20), ([1, 5, 8], [1, 8], [9, 20], [9, 20])),
        (8, (8, 1), ([1, 5, 8], [8, 1], [9, 20], [9])),
        (1, (5,), ([1], [1], [5, 8, 9, 20], [5])),
        (19, (5,), ([1, 5, 8, 9], [5, 9], [20], [20])),
    ],
)
def test_a_limit_parts_the_values_and_those_next_to_it_are_edges(limit: int, edges: Any, answers: Any) -> None:
    assert parted(E.at_most(N, limit), VALUES, edges) == list(answers)


@pytest.mark.parametrize(
    ("value", "edges", "answers"),
    [
        (8, (), ([8], [8], [1, 5, 9, 20], [5, 9])),
        (8, (1, 8), ([8], [8], [1, 5, 9, 20], [1, 5, 9])),
        (1, (), ([1], [1], [5, 8, 9, 20], [5])),
        (5, (), ([5], [5], [1, 8, 9, 20], [1, 8])),
        (20, (), ([20], [20], [1, 5, 8, 9], [9])),
        (9, (9,), ([9], [9], [1, 5, 8, 20], [8, 20])),
    ],
)
def test_an_equation_picks_its_value_and_those_next_to_it_are_edges(value: int, edges: Any, answers: Any) -> None:
    assert parted(E.equals(N, value), VALUES, edges) == list(answers)


def test_an_equation_with_a_value_that_is_not_there_is_searched_for() -> None:
    assert parted(E.equals(N, 6), VALUES) == [[6], [], VALUES, [5, 8, 9]]
    assert parted(E.equals(N, -2), VALUES) == [[-2], [], VALUES, [1, 5]]
    assert parted(E.equals(N, 22), VALUES) == [[22], [], VALUES, [20]]


def test_any_other_question_parts_the_values_by_their_answers() -> None:
    even = E.equals(E.mod(N, number(2)), 0)
    assert parted(even, VALUES, (1, 8)) == [[8, 20], [8, 20], [1, 5, 9], [1]]
    assert parted(even, [1, 8, 10], ()) == [[8, 10], [10], [1], [1]]
    below = E.float_is(("eps",), "<", 0.5)
    assert parted(below, [-1.0, 0.0, 0.5, 2.0], (0.5,), "eps") == [[-1.0, 0.0], [0.0], [0.5, 2.0], [0.5]]
    is_x = E.str_is(("name",), "x")
    assert parted(is_x, ["x", "", "any other"], (), "name") == [["x"], ["x"], ["", "any other"], [""]]
    among = E.among(("kind",), ["a", "c"])
    assert parted(among, ["a", "b", "c"], ("b",), "kind") == [["a", "c"], ["c"], ["b"], ["b"]]


def test_a_value_without_an_answer_is_on_neither_side() -> None:
    question = E.at_most(E.mod(number(7), N), 1)
    assert parted(question, [-2, 0, 2, 4]) == [[-2, 2], [2], [4], [4]]
    yes, no = split(("n",), Pool([0, 2, 4]), question, DOMAIN.slots[("n",)])
    assert [yes.allows(("n",), value) for value in (0, 2, 4)] == [False, True, False]
    assert [no.allows(("n",), value) for value in (0, 2, 4)] == [False, False, True]
    low = split(("n",), yes, E.at_most(N, 3), DOMAIN.slots[("n",)])[0]
    assert [low.allows(("n",), value) for value in (2, 3, 6, 7, 8)] == [True, True, False, False, False]


def test_what_fits_is_looked_for_a_divisor_further_too() -> None:
    slot = DOMAIN.slots[("n",)]
    whole = E.equals(E.mod(N, number(24)), 17)
    start = Pool([1, 17], (), (), (5,))
    assert [each.steps for each in split(("n",), start, whole, slot)] == [(5, 24), (5, 24)]
    assert [each.steps for each in split(("n",), start, E.at_most(N, 9), slot)] == [(5,), (5,)]
    assert [each.steps for each in split(("n",), start, E.at_most(E.mod(N, N), 9), slot)] == [(5,), (5,)]
    double = E.at_most(E.add(E.mod(N, number(24)), E.mod(N, number(9))), 5)
    assert sorted(split(("n",), start, double, slot)[0].steps) == [5, 9, 24]


def test_an_edge_that_is_named_twice_is_there_once() -> None:
    yes, no = split(("n",), Pool([7, 8, 9], (8, 9)), E.at_most(N, 8), DOMAIN.slots[("n",)])
    assert (yes.edges, no.edges) == ((8,), (9,))


# -------------------------------------------------------------------------------------------- where no value was there


def searched(question: E.Expr, values: list[int], *more: E.Expr, name: str = "n") -> list[int]:
    """What is tried where the question is answered with yes, of values that all answer no, or more does not hold."""
    asked = tuple((each, True) for each in more)
    return list(split((name,), Pool(values, (), asked), question, DOMAIN.slots[(name,)])[0].values)


def test_where_no_value_answers_so_the_nearest_one_is_found() -> None:
    assert searched(E.equals(N, 501), [500]) == [501]
    assert searched(E.equals(N, 499), [500]) == [499]
    assert searched(E.equals(N, 563), [500]) == [563]
    assert searched(E.equals(N, 437), [500]) == [437]
    assert searched(E.equals(N, 564), [500]) == []
    assert searched(E.equals(N, 436), [500]) == []
    assert searched(E.equals(N, 263), [100, 150, 200]) == [263]
    assert searched(E.equals(N, 37), [100, 150, 200]) == [37]
    assert searched(E.equals(N, 150), [100, 200]) == [150]
    assert searched(E.equals(N, 500), [300, 499, 700]) == []
    assert searched(E.equals(N, 7), []) == []


def test_what_is_found_gives_the_earlier_answers_too() -> None:
    whole = E.equals(E.mod(N, number(24)), 17)
    odd_fifth = E.equals(E.mod(N, number(5)), 2)
    assert searched(whole, [500], odd_fifth) == [497]  # 497 = 24 * 20 + 17, and 2 more than a multiple of 5
    assert searched(whole, [500]) == [497]
    assert searched(E.equals(E.mod(N, number(24)), 22), [500]) == [502]
    assert searched(E.equals(N, 502), [500], E.at_most(N, 501)) == []


def test_what_is_found_is_inside_the_domain() -> None:
    far = E.integer(("far",))
    for inside in (2000, 2100):
        assert searched(E.equals(far, inside), [2050], name="far") == [inside]
    for outside in (1999, 2101):
        assert searched(E.equals(far, outside), [2050], name="far") == []


def test_only_integers_are_searched_for() -> None:
    assert parted(E.float_is(("eps",), "==", 1.0), [0.0], (), "eps") == [[], [], [0.0], [0.0]]
    assert parted(E.among(("kind",), ["c"]), ["a", "b"], (), "kind") == [[], [], ["a", "b"], ["a"]]


def test_the_other_side_is_searched_too() -> None:
    assert parted(E.at_most(N, 9), [1, 9]) == [[1, 9], [9], [10], []]
    assert parted(E.equals(N, 9), [9]) == [[9], [9], [10], []]
