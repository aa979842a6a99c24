"""In which order the values of a slot are tried, and how many slots may leave the value they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tileops_rules import Range, fields
from tileops_solver import engine
from tileops_solver.engine import Outcome, Question
from tileops_solver.orders import Around, FromZero, Listed, Order


@pytest.mark.parametrize(("lo", "hi"), [(-4, 5), (0, 6), (2, 7), (-6, -1)])
@pytest.mark.parametrize("middle", range(-7, 9))
@pytest.mark.parametrize("kind", [FromZero, Around])
def test_the_spans_of_an_order_hold_the_codes_of_their_places(kind: Any, lo: int, hi: int, middle: int) -> None:
    check_order(kind(lo, hi, middle), range(lo, hi + 1))


def test_a_listed_order_is_its_list() -> None:
    order = Listed([4, 0, 3, 1], 4)
    check_order(order, [4, 0, 3, 1])
    assert sorted([0, 1, 3, 4], key=order.place) == [4, 0, 3, 1]


def check_order(order: Order, codes: Any) -> None:
    last = max(order.place(code) for code in codes)
    assert all(order.holds(code) and order.code(order.place(code)) == code for code in codes)
    for start in range(last + 2):
        for end in range(start, last + 2):
            inside = {code for low, high in order.spans(start, end) for code in range(low, high + 1)}
            wanted = {code for code in codes if start <= order.place(code) < end}
            assert inside - {order.preferred} == wanted - {order.preferred}
            assert order.preferred in inside or order.preferred not in wanted


def test_around_is_nearest_first_and_up_before_down() -> None:
    order = Around(-3, 9, 2)
    assert sorted(range(-3, 10), key=order.place)[:7] == [2, 3, 1, 4, 0, 5, -1]


def test_at_most_so_many_slots_change_in_both_arithmetics() -> None:
    @dataclass(frozen=True)
    class Sizes:
        n: Annotated[int, Range(0, 9)] = 0
        m: Annotated[int, Range(0, 9)] = 0
        k: Annotated[int, Range(0, 9)] = 0

    f = fields(Sizes)
    question = (f.n * f.m * f.k >= 27) & (f.k >= 2)
    home = {("n",): 1, ("m",): 1, ("k",): 1}
    for work in (engine.INTEGER_WORK, 1):
        with pytest.MonkeyPatch.context() as patched, Question(question.expr, question.domain) as asked:
            patched.setattr(engine, "INTEGER_WORK", work)
            for most, possible in ((0, False), (1, False), (2, True), (3, True)):
                with asked.level():
                    asked.change_at_most(home, most)
                    reply = asked.check()
                    assert (reply.outcome, most) == (Outcome.POSSIBLE if possible else Outcome.IMPOSSIBLE, most)
                    assert not possible or asked.allows(reply.codes)
                    for changes in range(4):
                        codes = {path: code + (i < changes) for i, (path, code) in enumerate(home.items())}
                        assert asked.allows(codes) is (changes <= most)
            assert asked.check().outcome is Outcome.POSSIBLE
