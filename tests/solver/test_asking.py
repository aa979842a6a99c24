"""How a question is asked: which arithmetics, in which order, under which limits, and what moves with the solver."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Range, fields
from tileops_rules.domain import domain_of
from tileops_solver import engine, z3_backend
from tileops_solver.codes import _ROWS, _other, _plainness, codes_of, codes_of_all
from tileops_solver.engine import Outcome, Question, Reply


@dataclass(frozen=True)
class Sizes:
    n: int = 0
    m: int = 0
    k: int = 0
    small: Annotated[int, Range(0, 63)] = 0
    kind: Literal["x", "y"] = "x"


DOMAIN = domain_of(Sizes)
F = fields(Sizes)
PRODUCT = (F.n * F.m == 35).expr


# ------------------------------------------------------------------------------------------------------------ codes


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (0.0, (0, 0.0, False)),
        (-0.0, (0, 0.0, False)),
        (0.5, (0, 0.5, False)),
        (-0.5, (0, 0.5, True)),
        (2.0, (0, 2.0, False)),
        (math.inf, (1, math.inf, False)),
        (-math.inf, (1, math.inf, True)),
        (math.nan, (2, 0.0, False)),
    ],
)
def test_plain_numbers_come_before_infinities_and_these_before_nan(
    value: float, place: tuple[int, float, bool]
) -> None:
    assert _plainness(value) == place


@pytest.mark.parametrize(
    ("constants", "text"),
    [
        ([], ""),
        (["x"], ""),
        (["other1"], ""),
        ([""], "other1"),
        (["", "other2"], "other1"),
        (["", "other1"], "other2"),
        (["", "other1", "other2"], "other3"),
    ],
)
def test_another_text_is_the_shortest_that_is_no_constant(constants: list[str], text: str) -> None:
    assert _other(constants) == text


def test_slots_that_a_question_does_not_read_have_no_codes_unless_all_are_kept_apart() -> None:
    expr = (F.kind == "x").expr
    assert sorted(_ROWS) == ["finite", "float", "int", "str"]
    for found in (codes_of(expr, DOMAIN), codes_of_all([expr], DOMAIN)):
        assert {path: codes.values for path, codes in found.items()} == {("kind",): ("x", "y")}
    assert list(codes_of(expr, DOMAIN, apart=True)) == list(DOMAIN.slots)
    assert list(codes_of_all([expr, PRODUCT], DOMAIN)) == [("n",), ("m",), ("kind",)]


# ------------------------------------------------------------------------------------------------------------ stages


def plans(question: Question) -> list[tuple[str, int | None, int, int]]:
    return [(each.name, each.width, each.work, each.price) for each in question._arithmetics()]


def test_integers_are_asked_first_and_then_bit_vectors() -> None:
    with Question(PRODUCT, DOMAIN) as question:
        assert plans(question) == [
            ("integers", None, 100_000, 10),
            ("bit-vectors of 82 bits", 82, 4_000_000, 1),
        ]
        assert question._reasons == []
    with Question(((F.n > 5) & (F.n <= 5)).expr, DOMAIN) as question:
        assert plans(question) == []


def test_what_is_too_wide_for_bit_vectors_is_asked_over_integers_at_length() -> None:
    with Question((F.n * F.m * F.k * F.k == 35).expr, DOMAIN) as question:
        assert plans(question) == [("integers", None, 300_000, 10)]
        assert question._reasons == ["bit-vectors: not asked, 162 bits are more than 128"]


@pytest.mark.parametrize(("most", "asked"), [(82**2, True), (82**2 - 1, False)])
def test_what_is_too_much_arithmetic_for_bit_vectors_is_too(
    monkeypatch: pytest.MonkeyPatch, most: int, asked: bool
) -> None:
    monkeypatch.setattr(engine, "MOST_GATES", most)
    with Question(PRODUCT, DOMAIN) as question:
        assert [width for _, width, _, _ in plans(question)] == ([None, 82] if asked else [None])
        words = "bit-vectors: not asked, 6,724 gates in 82 bits are more than 6,723"
        assert question._reasons == ([] if asked else [words])


@pytest.mark.parametrize(("most", "asked"), [(82, True), (81, False)])
def test_the_widest_bit_vectors_are_asked_still(monkeypatch: pytest.MonkeyPatch, most: int, asked: bool) -> None:
    monkeypatch.setattr(engine, "WIDEST", most)
    with Question(PRODUCT, DOMAIN) as question:
        assert [width for _, width, _, _ in plans(question)] == ([None, 82] if asked else [None])


def test_every_solver_is_set_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    z3 = z3_backend.load()
    made = []

    class Recording(z3.SimpleSolver().__class__):  # type: ignore[misc]
        def set(self, *args: Any, **keys: Any) -> None:
            made.append(args)
            super().set(*args, **keys)

    plain = z3.SimpleSolver

    def recording(ctx: Any) -> Any:
        solver = plain(ctx=ctx)
        solver.__class__ = Recording
        return solver

    monkeypatch.setattr(z3, "SimpleSolver", recording)
    with Question(PRODUCT, DOMAIN) as question:
        assert question.check().outcome is Outcome.POSSIBLE
    assert made == [("random_seed", 0), ("ctrl_c", False), ("rlimit", 100_000)]


class Sparing(Question):
    """Is asked in bit-vectors once integers were asked."""

    def _ask(self) -> Reply:
        if self._stage is not None and self._stage.plan.width is None:
            self._note("integers: left out")
            return Reply(Outcome.UNKNOWN)
        return super()._ask()


def test_levels_stay_apart_where_the_next_solver_takes_over_within_them() -> None:
    with Sparing(PRODUCT, DOMAIN) as question:
        question.require(("n",), (2, 6))
        with question.level():
            question.exclude({("n",): 7})
            with question.level():
                question.require(("m",), (0, 6))
                assert question.check().outcome is Outcome.IMPOSSIBLE
                assert question._stage is not None
                assert question._stage.solver.num_scopes() == 2
            assert question.check().codes == {("n",): 5, ("m",): 7}
            question.require(("n",), (0, 4))
            assert question.check().outcome is Outcome.IMPOSSIBLE
        assert question._stage.solver.num_scopes() == 0
        assert question.check().codes == {("n",): 5, ("m",): 7}
        question.exclude({("n",): 5})
        assert question.check().outcome is Outcome.IMPOSSIBLE


@pytest.mark.parametrize("kind", ["memory", "z3"])
def test_an_order_that_a_solver_cannot_take_is_taken_by_the_next(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    thrown = MemoryError("no more") if kind == "memory" else z3_backend.load().Z3Exception("no more")
    plain = engine._Stage.add

    def fail(self: Any, constraint: Any) -> None:
        if self.plan.width is None:
            raise thrown
        plain(self, constraint)

    with Question(PRODUCT, DOMAIN) as question:
        assert question.check().reason == "found with integers"
        monkeypatch.setattr(engine._Stage, "add", fail)
        question.require(("n",), (6, 7))
        reply = question.check()
        assert (reply.outcome, reply.codes) == (Outcome.POSSIBLE, {("n",): 7, ("m",): 5})
        assert reply.reason == "found with bit-vectors of 82 bits"
        assert question._reasons == [f"integers: {type(thrown).__name__}: no more"]


def test_an_order_that_no_solver_can_take_leaves_the_question_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, constraint: Any) -> None:
        raise MemoryError("no more")

    with Question(PRODUCT, DOMAIN) as question:
        assert question.check().outcome is Outcome.POSSIBLE
        monkeypatch.setattr(engine._Stage, "add", fail)
        question.require(("n",), (6, 7))
        reply = question.check()
        assert reply == Reply(
            Outcome.UNKNOWN, reason="integers: MemoryError: no more; bit-vectors of 82 bits: MemoryError: no more"
        )


def test_a_question_that_is_closed_answers_no_more() -> None:
    with Question(PRODUCT, DOMAIN) as question:
        assert question.check().outcome is Outcome.POSSIBLE
    assert question.check() == Reply(Outcome.UNKNOWN, reason="the work that one question may take is used up")


@pytest.mark.parametrize(("left", "work"), [(0, 1), (9, 1), (10, 2), (999_989, 99_999), (999_990, 100_000)])
def test_no_check_is_given_more_than_the_question_has_left(left: int, work: int) -> None:
    with Question(PRODUCT, DOMAIN) as question:
        question.check()
        stage = question._stage
        assert stage is not None
        given = []
        plain = stage.solver.set
        stage.solver.set = lambda name, value: (given.append((name, value)), plain(name, value))
        stage.ask(left)
        assert given == [("rlimit", work)]
        del stage.solver.set


def test_work_is_counted_at_the_price_of_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((100, 107, 107, 107))
    monkeypatch.setattr(engine._Stage, "_count", lambda self: next(counts))
    with Question(PRODUCT, DOMAIN) as question:
        question.check()
        assert question._left == engine.QUESTION_WORK - 7 * 10
        question.check()
        assert question._left == engine.QUESTION_WORK - 7 * 10 - 10, "a check takes one unit at the least"


# ------------------------------------------------------------------------------------------------------- constraints


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (lambda q: q.require(("n",), (0, 4), (7, 7)), (7, 5)),
        (lambda q: q.require(("n",), (6, 6), (4, 3)), None),
        (lambda q: q.require(("n",), (-9, -1)), None),
        (lambda q: q.change_at_most({("n",): 5, ("m",): 6}, 1), (5, 7)),
        (lambda q: q.change_at_most({("n",): 4, ("m",): 6}, 1), None),
        (lambda q: q.change_at_most({("n",): 5, ("m",): 7}, 0), (5, 7)),
        (lambda q: q.change_at_most({("n",): -1, ("m",): 7}, 1), (5, 7)),
        (lambda q: q.change_at_most({("n",): -1, ("m",): 7}, 0), None),
        (lambda q: q.change_at_most({("n",): -1, ("m",): 8}, 1), None),
    ],
)
@pytest.mark.parametrize("kind", [Question, Sparing])
def test_a_constraint_leaves_what_it_allows(
    kind: type[Question], state: Callable[[Question], None], found: tuple[int, int] | None
) -> None:
    with kind((PRODUCT), DOMAIN) as question:
        for number in (1, 35):
            question.exclude({("n",): number})
        state(question)
        reply = question.check()
        if found is None:
            assert reply.outcome is Outcome.IMPOSSIBLE
        else:
            assert reply.codes == dict(zip([("n",), ("m",)], found, strict=True))
        for n, m in ((5, 7), (7, 5)):
            assert question.allows({("n",): n, ("m",): m}) is (found == (n, m))
        assert not question.allows({("n",): 1, ("m",): 35})


@pytest.mark.parametrize(("small", "n"), [(0, 63), (63, 0), (20, 43)])
def test_a_slot_may_keep_a_code_at_either_end_of_its_range(small: int, n: int) -> None:
    with Question(((F.n + F.small == 63) & (F.n <= 63)).expr, DOMAIN) as question:
        question.change_at_most({("small",): small, ("n",): n}, 0)
        assert question.check().codes == {("small",): small, ("n",): n}


def test_what_intervals_refute_is_impossible_with_that_reason() -> None:
    with Question(((F.n > 5) & (F.n <= 5)).expr, DOMAIN) as question:
        assert question.check() == Reply(Outcome.IMPOSSIBLE, reason="intervals and sets of values do not meet")
