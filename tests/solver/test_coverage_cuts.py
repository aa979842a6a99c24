"""How an axis is measured, where a rectangle is cut, and what is known of all its calls at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_rules import expr as E
from tileops_solver import coverage_map
from tileops_solver.coverage_map import INVALID, MIXED, NOBODY, UNSERVED, Axis, Cell, CoverageMap, _Box


def axis(lo: int, hi: int, *, log: bool = False, field: str = "n") -> Axis:
    return Axis(field, (field,), (), lo, hi, log)


# ------------------------------------------------------------------------------------------------------------- axes


@pytest.mark.parametrize(
    ("value", "plain", "logarithmic"),
    [
        (-3, -3.5, -math.log2(4.5)),
        (0, -0.5, -math.log2(1.5)),
        (1, 0.5, math.log2(1.5)),
        (2, 1.5, math.log2(2.5)),
        (1000, 999.5, math.log2(1000.5)),
    ],
)
def test_a_value_begins_half_a_step_before_it(value: int, plain: float, logarithmic: float) -> None:
    assert axis(-9, 2000).edge(value) == plain
    assert axis(-9, 2000, log=True).edge(value) == pytest.approx(logarithmic, abs=1e-12)


def test_shares_of_an_axis_are_those_between_its_first_and_last_edge() -> None:
    assert axis(3, 12).length == 10
    assert axis(3, 12).share(3, 12) == 1
    assert axis(3, 12).share(4, 4) == 0.1
    assert axis(3, 12).share(5, 8) == 0.4
    log = axis(1, 100, log=True)
    assert log.length == pytest.approx(math.log2(101.5 / 1.5))
    assert log.share(1, 10) == pytest.approx(math.log2(11.5 / 1.5) / math.log2(101.5 / 1.5))


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: Annotated[int, Range(-40, 40)] = 1
    few: Annotated[int, OneOf(4, 1, 2)] = 1
    mode: Literal["b", "a"] = "b"
    mixed: Literal["b", 7] = "b"


@dataclass(frozen=True)
class Placed:
    n: int = 1
    arch: Optional[int] = 90
    device: Optional[str] = "cuda"


def selector(*rules: Callable[[Any], bool], **more: Any) -> Selector:
    made = [Candidate(f"k{i}", lambda c, rule=rule: None if rule(c) else "no") for i, rule in enumerate(rules)]
    return Selector(Call, made, **more)


def over(rule: Callable[[Any], bool], **ranges: tuple[int, int]) -> CoverageMap:
    return CoverageMap(selector(rule), "n", "m", Call(), **ranges)


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        (lambda c: c.n <= 100, (0, 400)),
        (lambda c: c.n < 100 and c.n != 7, (0, 396)),
        (lambda c: c.n == 50 or c.n <= 20, (0, 200)),
        (lambda c: c.n % 8 == 0 and c.n >= 3, (0, 8)),
        (lambda c: c.n + c.m <= 500, (0, 16)),
        (lambda c: c.m <= 5, (0, 16)),
    ],
)
def test_an_axis_ends_at_four_times_the_largest_threshold_on_it_alone(
    rule: Callable[[Any], bool], ends: tuple[int, int]
) -> None:
    coverage = over(rule)
    assert (coverage.x.lo, coverage.x.hi) == ends
    assert coverage.x == Axis("n", ("n",), (), *ends, log=False)


@pytest.mark.parametrize(
    ("asked", "ends"),
    [((-7, 9), (-7, 9)), ((-70, 90), (-40, 40)), ((12, 12), (12, 12)), (None, (-40, 20))],  # m <= -5 is refused
)
def test_an_axis_keeps_to_the_range_and_to_what_the_field_can_be(
    asked: tuple[int, int] | None, ends: tuple[int, int]
) -> None:
    coverage = CoverageMap(selector(lambda c: c.m >= -4), "n", "m", Call(), y_range=asked)
    assert (coverage.y.lo, coverage.y.hi) == ends


@pytest.mark.parametrize(("last", "log"), [(514, False), (515, False), (516, True), (9999, True)])
def test_an_axis_of_more_than_512_values_is_logarithmic(last: int, log: bool) -> None:
    assert over(lambda c: c.n <= 3, x_range=(4, last)).x == Axis("n", ("n",), (), 4, last, log)


def test_an_axis_of_few_values_has_them_in_order() -> None:
    made = CoverageMap(selector(lambda c: c.n <= 3), "few", "mode", Call())
    assert made.x == Axis("few", ("few",), (1, 2, 4), 0, 2)
    assert made.y == Axis("mode", ("mode",), ("b", "a"), 0, 1)
    assert CoverageMap(selector(lambda c: c.n <= 3), "mixed", "n", Call()).x.values == ("b", 7)
    placed = Selector(Placed, [Candidate("one", lambda c: None if c.n <= 3 else "no")])
    archs = CoverageMap(placed, "n", "arch", Placed()).y
    assert None not in archs.values
    assert list(archs.values) == sorted(archs.values)
    assert (archs.lo, archs.hi) == (0, len(archs.values) - 1)


# ------------------------------------------------------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("x", "y", "narrow"),
    [
        ((5, 5), (7, 7), True),
        ((5, 5), (7, 8), False),
        ((5, 6), (7, 7), True),
        ((5, 8), (7, 7), True),
        ((5, 9), (7, 7), False),
        ((5, 5000), (7, 7), False),
    ],
)
def test_a_rectangle_is_too_fine_where_each_side_is_one_value_or_a_2000th(
    x: tuple[int, int], y: tuple[int, int], narrow: bool
) -> None:
    coverage = over(lambda c: c.n <= 3, x_range=(0, 400), y_range=(0, 3))
    coverage.x = axis(1, 10_000)  # a 2000th is 5 values; below it are 4
    assert coverage._too_fine(x, y) is narrow


def test_the_number_of_rectangles_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rectangle becomes two with each cut, and none is cut where there are more than ten others."""
    coverage = over(lambda c: c.n % 2 == 0, x_range=(0, 500), y_range=(0, 0))
    monkeypatch.setattr(coverage_map, "MOST_CELLS", 10)
    assert len(coverage.cells) == 12
    assert coverage.cells == tuple(sorted(coverage.cells, key=lambda cell: (cell.x, cell.y)))
    assert coverage.choices == ("k0", NOBODY, MIXED)
    assert sum(cell.x[1] - cell.x[0] + 1 for cell in coverage.cells) == 501


def test_choices_are_named_with_implementations_first() -> None:
    chosen = Selector(
        Call,
        [
            Candidate("zeta", lambda c: None if 5 <= c.n <= 8 else "no"),
            Candidate("beta", lambda c: None if 7 <= c.n <= 9 else "no"),
        ],
        unserved=lambda c: "small" if c.n < 3 else None,
    )
    coverage = CoverageMap(chosen, "n", "m", Call(), x_range=(0, 12), y_range=(0, 0))
    assert merged(coverage) == [
        (0, 2, UNSERVED),
        (3, 4, NOBODY),
        (5, 6, "zeta"),
        (7, 8, "beta or zeta"),
        (9, 9, "beta"),
        (10, 12, NOBODY),
    ]
    assert coverage.choices == ("beta", "beta or zeta", "zeta", NOBODY, UNSERVED)
    coverage.__dict__["cells"] = tuple(
        Cell((i, i), (0, 0), choice) for i, choice in enumerate([MIXED, INVALID, UNSERVED, NOBODY, "b", "a", "b"])
    )
    assert coverage.choices == ("a", "b", NOBODY, UNSERVED, INVALID, MIXED)


def merged(coverage: CoverageMap) -> list[tuple[int, int, str]]:
    """Neighbours along x of one choice as one."""
    found: list[tuple[int, int, str]] = []
    for cell in coverage.cells:
        if found and found[-1][2] == cell.choice:
            found[-1] = (found[-1][0], cell.x[1], cell.choice)
        else:
            found.append((*cell.x, cell.choice))
    return found


def test_a_border_is_where_the_choice_beside_is_another_and_both_are_known() -> None:
    coverage = over(lambda c: c.n <= 3)
    coverage.__dict__["cells"] = (
        Cell((0, 4), (0, 9), "a"),
        Cell((5, 7), (0, 3), "b"),
        Cell((5, 7), (4, 9), "a"),
        Cell((8, 9), (0, 3), "b"),
        Cell((8, 9), (4, 9), "a"),
        Cell((10, 11), (0, 9), MIXED),
        Cell((12, 14), (0, 9), "a"),
        Cell((15, 19), (0, 5), "a"),
        Cell((15, 19), (6, 9), "c"),
        Cell((20, 29), (0, 5), "c"),
        Cell((20, 29), (6, 9), "c"),
        Cell((31, 39), (0, 9), "d"),
    )
    assert coverage.borders(coverage.x) == (5, 15, 20)
    assert coverage.borders(coverage.y) == (4, 6)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ((0, 4), (4, 9), True),
        ((0, 4), (5, 9), False),
        ((0, 9), (3, 4), True),
        ((3, 3), (3, 3), True),
        ((1, 5), (6, 8), False),
        ((2, 6), (5, 5), True),
    ],
)
def test_two_spans_meet_where_they_share_a_value(one: tuple[int, int], other: tuple[int, int], meet: bool) -> None:
    assert coverage_map._meet(one, other) is meet
    assert coverage_map._meet(other, one) is meet


def test_an_upright_axis_of_archs_takes_what_their_devices_usually_have() -> None:
    @dataclass(frozen=True)
    class DeviceCall:
        smem_budget: int
        stages: Annotated[int, Range(0, 9)] = 1
        arch: int = 90

    refusal = lambda c: None if c.stages * 32 * 1024 <= c.smem_budget else "does not fit"  # noqa: E731
    coverage = CoverageMap(Selector(DeviceCall, [Candidate("tiled", refusal)]), "stages", "arch", DeviceCall(0))
    fits = {
        coverage.y.values[j]: max(c.x[1] for c in coverage.cells if c.choice == "tiled" and c.y == (j, j))
        for j in range(len(coverage.y.values))
    }
    assert fits == {80: 5, 86: 3, 89: 3, 90: 7, 100: 7, 120: 3}
    assert coverage.usual == ("smem_budget",)


# -------------------------------------------------------------------------------------------------------------- cuts

N, M, K = (E.integer((name,)) for name in "nmk")


@pytest.mark.parametrize(
    ("doubt", "x", "y", "parts"),
    [
        (None, (0, 99), (0, 9), [((0, 49), (0, 9)), ((50, 99), (0, 9))]),
        (None, (0, 9), (0, 39), [((0, 9), (0, 19)), ((0, 9), (20, 39))]),
        (None, (3, 3), (4, 5), [((3, 3), (4, 4)), ((3, 3), (5, 5))]),
        (E.at_most(N, 17), (0, 9), (0, 39), [((0, 4), (0, 39)), ((5, 9), (0, 39))]),
        (E.at_most(N, 17), (0, 99), (0, 39), [((0, 17), (0, 39)), ((18, 99), (0, 39))]),
        (E.at_most(N, 98), (0, 99), (0, 39), [((0, 98), (0, 39)), ((99, 99), (0, 39))]),
        (E.at_most(N, 99), (0, 99), (0, 39), [((0, 49), (0, 39)), ((50, 99), (0, 39))]),
        (E.at_most(N, -1), (0, 99), (0, 39), [((0, 49), (0, 39)), ((50, 99), (0, 39))]),
        (E.at_most(M, 7), (0, 99), (0, 9), [((0, 99), (0, 7)), ((0, 99), (8, 9))]),
        (E.equals(N, 12), (0, 99), (0, 9), [((0, 11), (0, 9)), ((12, 99), (0, 9))]),
        (E.equals(N, 12), (12, 99), (0, 9), [((12, 12), (0, 9)), ((13, 99), (0, 9))]),
        (E.at_most(E.add(N, M), 30), (0, 99), (0, 9), [((0, 49), (0, 9)), ((50, 99), (0, 9))]),
        (E.at_most(E.add(N, M), 30), (0, 99), (9, 9), [((0, 21), (9, 9)), ((22, 99), (9, 9))]),
        (E.at_most(E.add(N, M), 30), (28, 28), (0, 39), [((28, 28), (0, 2)), ((28, 28), (3, 39))]),
    ],
)
def test_a_rectangle_is_cut_at_a_threshold_else_in_the_middle_of_its_longer_side(
    doubt: E.Expr | None, x: tuple[int, int], y: tuple[int, int], parts: list[Any]
) -> None:
    coverage = over(lambda c: c.n <= 3, x_range=(0, 99), y_range=(0, 39))
    assert coverage._cut(x, y, doubt) == parts


@pytest.mark.parametrize(
    ("lo", "hi", "log", "middle"),
    [
        (0, 1, False, 1),
        (0, 9, False, 5),
        (0, 10, False, 5),
        (7, 12, False, 10),
        (-9, 0, False, -4),
        (0, 1, True, 1),
        (5, 6, True, 6),
        (0, 1023, True, 26),
        (1, 1022, True, 39),
        (-1023, 0, True, -25),
        (100, 999, True, 317),
    ],
)
def test_the_middle_of_a_side_halves_it_as_it_is_drawn(lo: int, hi: int, log: bool, middle: int) -> None:
    """On a logarithmic axis the value whose lower edge is nearest to half-way, and never an end of the first half."""
    side = axis(lo, hi, log=log)
    assert CoverageMap._middle(side, lo, hi) == middle
    assert lo < middle <= hi
    if log:
        half = (side.edge(lo) + side.edge(hi + 1)) / 2
        off = {value: abs(side.edge(value) - half) for value in range(lo + 1, hi + 1)}
        assert off[middle] == pytest.approx(min(off.values()), abs=0.1)


def box(n: tuple[int, int] = (0, 99), m: tuple[int, int] = (5, 5), **fixed: Any) -> _Box:
    held = {(name,): value for name, value in fixed.items()}
    return _Box(held, axis(0, 99), n, axis(0, 39, field="m"), m)


@pytest.mark.parametrize(
    ("question", "at"),
    [
        (None, None),
        (E.among(("n",), [3]), None),
        (E.at_most(N, 17), 18),
        (E.negation(E.at_most(N, 17)), None),
        (E.equals(N, 12), 12),
        (E.equals(N, 0), 1),
        (E.at_most(E.add(E.scale(N, 2), E.scale(M, 3)), 36), 11),  # 2n <= 21
        (E.at_most(E.add(E.scale(N, 2), E.scale(M, 3)), 37), 12),  # 2n <= 22
        (E.at_most(E.subtract(E.scale(M, 3), E.scale(N, 2)), -9), 12),  # 2n >= 24
        (E.at_most(E.subtract(E.scale(M, 3), E.scale(N, 2)), 0), 8),  # 2n >= 15
        (E.at_most(E.subtract(E.scale(M, 3), E.scale(N, 2)), -1), 8),  # 2n >= 16
        (E.equals(E.add(E.scale(N, 2), E.scale(M, 3)), 36), None),  # 2n == 21
        (E.equals(E.add(E.scale(N, 2), E.scale(M, 3)), 37), 11),  # 2n == 22
        (E.equals(E.add(N, M), 5), 1),  # n == 0
        (E.at_most(E.add(N, K), 10), 4),  # k is 7
        (E.at_most(E.add(N, E.multiply(M, M)), 30), 6),
        (E.at_most(E.multiply(N, M), 30), None),
        (E.at_most(E.add(N, E.mod(N, E.constant(4))), 30), None),
        (E.at_most(E.mod(N, E.constant(4)), 2), None),
        (E.at_most(M, 17), None),
        (E.at_most(E.add(M, K), 17), None),
    ],
)
def test_the_threshold_of_a_comparison_is_where_its_answer_changes(question: E.Expr | None, at: int | None) -> None:
    here = box(k=7)
    assert here.threshold(question, axis(0, 99)) == at
    if at is not None:
        assert question is not None
        before, after = (box((value, value), k=7).answer(question) for value in (at - 1, at))
        assert before is not after


def test_there_is_no_threshold_where_another_number_is_not_settled() -> None:
    wide = box(m=(5, 6), k=7)
    assert wide.threshold(E.at_most(E.add(N, M), 30), axis(0, 99)) is None
    assert wide.threshold(E.at_most(E.add(N, E.add(M, K)), 30), axis(0, 99)) is None
    assert wide.threshold(E.at_most(E.add(N, K), 30), axis(0, 99)) == 24


# ----------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("question", "answer", "doubt"),
    [
        (E.TRUE, True, None),
        (E.FALSE, False, None),
        (E.at_most(N, 99), True, None),
        (E.at_most(N, 98), None, "n <= 98"),
        (E.at_most(N, 0), None, "n <= 0"),
        (E.at_most(N, -1), False, None),
        (E.equals(N, 0), None, "n == 0"),
        (E.equals(N, 99), None, "n == 99"),
        (E.equals(N, 100), False, None),
        (E.equals(N, -1), False, None),
        (E.equals(M, 5), True, None),
        (E.equals(M, 6), False, None),
        (E.at_most(E.add(N, M), 104), True, None),
        (E.negation(E.at_most(N, 50)), None, "n <= 50"),
        (E.negation(E.equals(N, 50)), None, "n == 50"),
        (E.negation(E.at_most(N, 99)), False, None),
        (E.negation(E.at_most(N, -1)), True, None),
        (E.conjunction([E.at_most(N, 50), E.equals(M, 6)]), False, None),
        (E.disjunction([E.at_most(N, 50), E.equals(M, 5)]), True, None),
        (E.conjunction([E.at_most(N, 50), E.equals(M, 5)]), None, "n <= 50"),
        (E.disjunction([E.at_most(N, 50), E.equals(M, 6)]), None, "n <= 50"),
        (E.among(("mode",), ["a", "c"]), True, None),
        (E.among(("mode",), ["b"]), False, None),
        (E.float_is(("scale",), "<", 1.0), True, None),
        (E.among(("gone",), ["b"]), False, None),
        (E.at_most(E.integer(("gone",)), 0), True, None),
    ],
)
def test_a_question_is_answered_for_all_calls_of_a_rectangle(
    question: E.Expr, answer: bool | None, doubt: str | None
) -> None:
    here = box(mode="a", scale=0.5)
    assert here.answer(question) is answer
    assert (None if here.doubt is None else str(here.doubt)) == doubt


def test_a_comparison_of_one_field_alone_is_doubted_first() -> None:
    both, alone = E.at_most(E.add(N, M), 50), E.at_most(N, 60)
    for parts in ([both, alone], [alone, both]):
        here = box(m=(0, 39))
        assert here.answer(E.conjunction(parts)) is None
        assert here.doubt is alone
    here = box(m=(0, 39))
    assert here.answer(E.conjunction([both, E.equals(E.multiply(N, M), 50)])) is None
    assert here.doubt in (both, E.equals(E.multiply(N, M), 50))


def test_a_number_that_stands_in_several_places_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[E.Expr] = Counter()

    def counted(rule: Callable[..., Any]) -> Callable[..., Any]:
        return lambda node, ask: (asked.update([node]), rule(node, ask))[1]

    monkeypatch.setattr(coverage_map, "BOUNDS", {k: counted(rule) for k, rule in coverage_map.BOUNDS.items()})
    number = N
    for step in range(2, 8):
        number = E.mod(E.add(number, E.floordiv(number, E.constant(2))), E.constant(10 * step))
    here = box()
    here.answer(E.conjunction([E.at_most(number, 3), E.equals(number, 2)]))
    assert set(asked.values()) == {1}
    assert len(asked) >= 12
