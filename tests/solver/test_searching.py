"""Orders, constraints and searches over a domain that can be tried whole."""

from __future__ import annotations

import contextlib
import itertools
import random
import types
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Range
from tileops_rules import expr as ex
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import evaluate
from tileops_solver import engine
from tileops_solver.engine import Outcome, Question, Reply
from tileops_solver.orders import Along, Around, FromZero, Listed
from tileops_solver.searching import Search, _thresholds


@dataclass(frozen=True)
class Call:
    a: Annotated[int, Range(-4, 5)] = 2
    b: Annotated[int, Range(-3, 6)] = 0
    kind: Literal["x", "y", "z"] = "y"


DOMAIN = domain_of(Call)
A, B, KIND = ("a",), ("b",), ("kind",)
a, b = ex.integer(A), ex.integer(B)
RANGES = [(lo, hi) for lo in range(-4, 4) for hi in range(lo, 5)]


@pytest.mark.parametrize("preferred", [-9, -2, -1, 0, 1, 3, 9])
@pytest.mark.parametrize("kind", [FromZero, Around])
def test_an_order_numbers_every_code_once(kind: Any, preferred: int) -> None:
    for lo, hi in RANGES:
        order = kind(lo, hi, preferred)
        codes = range(lo, hi + 1)
        assert [code for code in range(-12, 13) if order.holds(code)] == list(codes)
        places = {order.place(code): code for code in codes}
        assert len(places) == len(codes)
        assert min(places) >= 0
        for place, code in places.items():
            assert order.code(place) == code

        def key(code: int, kind: Any = kind) -> tuple[Any, ...]:
            if kind is Around:
                return abs(code - preferred), code < preferred
            return code != preferred, code < 0, abs(code)

        assert [places[place] for place in sorted(places)] == sorted(codes, key=key)
        last = max(places) + 2
        for start, end in itertools.combinations_with_replacement(range(last), 2):
            covered = [code for low, high in order.spans(start, end) for code in range(low, high + 1)]
            wanted = sorted(code for place, code in places.items() if start <= place < end)
            if kind is FromZero and start > 0:  # its place in the row of numbers is empty, and may cover it again
                covered = [code for code in covered if code != preferred]
            assert sorted(set(covered)) == wanted, (lo, hi, start, end)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("start", [-3, 0, 2])
@pytest.mark.parametrize("many", range(4))
def test_codes_along_a_direction_are_an_order(start: int, step: int, many: int) -> None:
    codes = [start + step * i for i in range(many)]
    order = Along(start, step, start + step * (many - 1))
    assert {code for code in range(-12, 13) if order.holds(code)} == set(codes)
    assert [order.place(code) for code in codes] == list(range(many))
    assert [order.code(place) for place in range(many)] == codes
    for first, end in itertools.combinations_with_replacement(range(many + 3), 2):
        covered = [code for low, high in order.spans(first, end) for code in range(low, high + 1)]
        assert sorted(covered) == sorted(codes[first:end]), (first, end)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("seed", range(12))
def test_the_first_code_of_one_slot_leaves_the_others_free(seed: int, step: int) -> None:
    draw = random.Random(seed)
    start = draw.randint(-4, 5)
    expr = ex.conjunction(
        [
            ex.negation(ex.equals(ex.mod(ex.add(a, b), ex.constant(draw.randint(2, 5))), draw.randint(0, 1))),
            ex.at_most(ex.multiply(a, b), draw.randint(-12, 8)),
            ex.at_least(a, start) if step > 0 else ex.at_most(a, start),
        ]
    )
    with Question(expr, DOMAIN) as question:
        solutions = {codes[A] for codes in every() if answers(question, codes)}
        reply = question.check()
        assert (reply.outcome is Outcome.POSSIBLE) is bool(solutions)
        if not solutions:
            return
        search = Search(question, lambda _, span, best: Along(start, step, span[step > 0]))
        nearest = min(solutions, key=lambda code: abs(code - start))
        for _ in range(2):
            assert search.first_at(A, reply.codes) == nearest, "and what was required meanwhile is forgotten"


def test_a_list_is_an_order() -> None:
    order = Listed((5, 2, 7), 5)
    assert [order.place(code) for code in (5, 2, 7)] == [0, 1, 2]
    assert [order.code(place) for place in range(3)] == [5, 2, 7]
    assert order.holds(7)
    assert not order.holds(3)
    assert list(order.spans(1, 3)) == [(2, 2), (7, 7)]
    assert list(order.spans(2, 2)) == []


def every() -> list[dict[Any, int]]:
    return [{A: x, B: y, KIND: k} for x, y, k in itertools.product(range(-4, 6), range(-3, 7), range(3))]


def answers(question: Question, codes: dict[Any, int]) -> bool:
    return bool(evaluate(question.expr, question.values(codes)))


class Bits(Question):
    """Asked over bit-vectors alone."""

    def _arithmetics(self) -> Any:
        return (plan for plan in super()._arithmetics() if plan.width is not None)


@pytest.mark.parametrize("asking", [Question, Bits])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_required_excluded_and_kept_counts_level_by_level(seed: int, asking: type[Question]) -> None:
    draw = random.Random(seed)
    product = ex.multiply(a, b)
    expr = ex.conjunction(
        [ex.at_most(product, draw.randint(0, 9)), ex.negation(ex.equals(product, draw.randint(-3, 3)))]
    )
    with asking(expr, DOMAIN, apart=True) as question:
        assert list(question.codes) == [A, B, KIND]

        def drawn() -> Any:
            which = draw.randrange(4)
            if which == 0:
                path = draw.choice([A, B, KIND])
                spans = [(draw.randint(-6, 3), draw.randint(-1, 9)) for _ in range(draw.randint(1, 2))]
                spans = [(min(s), max(s)) for s in spans]
                question.require(path, *spans)
                return lambda codes: any(low <= codes[path] <= high for low, high in spans)
            if which == 1:
                kept = draw.choice(every())
                question.exclude(kept)
                return lambda codes: codes != kept
            if which == 2:
                path, code = draw.choice([(A, draw.randint(-4, 5)), (B, draw.randint(-3, 6))])
                question.exclude({path: code})
                return lambda codes: codes[path] != code
            base = draw.choice(every())
            most = draw.randint(0, 2)
            kept = {**base, A: draw.choice([base[A], base[A], 77])}  # 77 is no code that a can keep
            question.change_at_most(kept, most)
            return lambda codes: sum(codes[path] != code for path, code in kept.items()) <= most

        def check(wanted: list[Any]) -> None:
            left = [codes for codes in every() if answers(question, codes) and all(each(codes) for each in wanted)]
            assert [codes for codes in every() if answers(question, codes) and question.allows(codes)] == left
            reply = question.check()
            assert reply.outcome is (Outcome.POSSIBLE if left else Outcome.IMPOSSIBLE)
            if left:
                assert dict(reply.codes) in left
                assert question.holds(reply.codes)

        wanted: list[Any] = []
        check(wanted)
        wanted.append(drawn())
        check(wanted)
        for _ in range(2):
            with question.level():
                inside = [*wanted, drawn()]
                check(inside)
                with question.level():
                    check([*inside, drawn()])
                check(inside)
            check(wanted)


@pytest.mark.parametrize("kind", [FromZero, Around])
@pytest.mark.parametrize("seed", range(10))
def test_a_search_finds_the_first_solution_of_all(seed: int, kind: Any) -> None:
    draw = random.Random(seed)
    expr = ex.conjunction(
        [
            ex.at_most(ex.multiply(a, b), draw.randint(-6, 8)),
            ex.negation(ex.equals(ex.mod(ex.add(a, b), ex.constant(3)), draw.randint(0, 2))),
            ex.disjunction([ex.among(KIND, ["x"]), ex.at_least(a, draw.randint(-2, 4))]),
        ]
    )
    middle = {A: draw.randint(-5, 6), B: draw.randint(-4, 7), KIND: draw.randint(0, 2)}
    with Question(expr, DOMAIN) as question:
        found = Search(question, lambda path, span, best: kind(*span, middle[path])).first()
        whole = {A: (-4, 5), B: (-3, 6), KIND: (0, question.codes[KIND].hi)}
        orders = {path: kind(*span, middle[path]) for path, span in whole.items()}
        solutions = []
        for x, y, k in itertools.product(*(range(low, high + 1) for low, high in whole.values())):
            codes = {A: x, B: y, KIND: k}
            if answers(question, codes):
                solutions.append(codes)
        assert found == min(solutions, key=lambda codes: [orders[path].place(codes[path]) for path in orders])


@pytest.mark.parametrize("kind", [Question, Bits])
def test_what_a_slot_cannot_be_excludes_nothing(kind: Any) -> None:
    with kind(ex.equals(a, 2), DOMAIN) as question:
        question.exclude({A: -6})
        assert question.check().outcome is Outcome.POSSIBLE
        question.exclude({A: 2})
        assert question.check().outcome is Outcome.IMPOSSIBLE


def test_thresholds_are_the_constants_of_a_slot_their_neighbours_and_its_divisors() -> None:
    question = ex.conjunction(
        [
            ex.at_most(a, 7),
            ex.equals(ex.add(a, b), 3),
            ex.equals(ex.mod(b, ex.constant(16)), 0),
            ex.equals(ex.mod(ex.multiply(a, b), ex.constant(5)), 3),
            ex.among(KIND, ["x"]),
            ex.at_most(ex.mod(a, b), 30),
        ]
    )
    found = _thresholds(question)
    assert set(found) == {A, B}
    assert found[A].constants == {6, 7, 8, 2, 3, 4, 29, 30, 31}
    assert found[A].divisors == {5}
    assert found[B].divisors == {16, 5}
    assert found[B].constants == {2, 3, 4, -1, 0, 1, 29, 30, 31}
    assert set(found[B].about(37)) == {*found[B].constants, 16, 5, 32, 48, 35, 40}
    assert found[A].about(5).count(5) == 1


def test_a_solver_that_could_not_take_a_limit_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = engine._Stage.add

    def fails_over_integers(stage: Any, constraint: Any) -> None:
        if stage.plan.width is None:
            raise MemoryError("full")
        taken(stage, constraint)

    with Question(ex.equals(ex.multiply(a, b), 4), DOMAIN) as question:
        assert "integers" in question.check().reason
        monkeypatch.setattr(engine._Stage, "add", fails_over_integers)
        question.require(A, (4, 4))
        reply = question.check()
        assert reply.outcome is Outcome.POSSIBLE
        assert "bit-vectors" in reply.reason
        assert (reply.codes[A], reply.codes[B]) == (4, 1)


def test_limits_are_those_that_are_written_of() -> None:
    """Figures that the design and the documentation name; a change of one is meant."""
    assert (engine.INTEGER_WORK, engine.INTEGER_WORK_ALONE, engine.BITS_WORK) == (100_000, 300_000, 4_000_000)
    assert (engine.INTEGER_PRICE, engine.QUESTION_WORK) == (10, 12_000_000)
    assert (engine.WIDEST, engine.MOST_GATES) == (128, 131_072)


class Told:
    """A question about one slot that is answered with the largest code that is left; it notes what is required."""

    expr = ex.TRUE
    known = None

    def __init__(self, *solutions: int) -> None:
        self.codes = {A: types.SimpleNamespace(lo=0, hi=1000)}
        self.solutions = solutions
        self.required: list[list[tuple[int, int]]] = []
        self.spans: list[tuple[int, int]] = []
        self.unknown = False

    @contextlib.contextmanager
    def level(self) -> Any:
        yield
        self.spans = []

    def require(self, path: Any, *spans: tuple[int, int]) -> None:
        self.required.append(list(spans))
        self.spans = list(spans)

    def check(self) -> Reply:
        left = [code for code in self.solutions if not self.spans or any(lo <= code <= hi for lo, hi in self.spans)]
        if self.unknown and self.spans:
            return Reply(Outcome.UNKNOWN, reason="on purpose")
        return Reply(Outcome.POSSIBLE, {A: max(left)}) if left else Reply(Outcome.IMPOSSIBLE)

    def holds(self, codes: Any) -> bool:
        return codes[A] in self.solutions

    def allows(self, codes: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("preferred", "solutions", "required"),
    [
        (0, (100, 700, 1000), [[(0, 0), (0, 999)], [(0, 0), (0, 349)], [(0, 0), (0, 99)], [(100, 100)]]),
        (
            0,
            (600, 700, 1000),
            [[(0, 0), (0, 999)], [(0, 0), (0, 349)], [(350, 699)], [(350, 474)], [(475, 599)], [(600, 600)]],
        ),
        (5, (5, 900), [[(5, 5)]]),
        (5, (0, 900), [[(5, 5)], [(0, 0)]]),
        (5, (1, 900), [[(5, 5), (0, 0)], [(1, 1)]]),
        (0, (2,), [[(0, 0), (0, 1)], [(2, 2)]]),
        (2000, (3, 4), [[(0, 3)], [(0, 0)], [(1, 2)], [(3, 3)]]),
    ],
)
def test_what_is_before_the_best_is_asked_for_at_once_then_by_halves(
    preferred: int, solutions: Any, required: Any
) -> None:
    asked: Any = Told(*solutions)
    found = Search(asked, lambda path, span, best: FromZero(*span, preferred)).first()
    assert asked.required == required
    assert found == {A: required[-1][0][0]}


def test_a_search_that_gets_no_answer_keeps_the_best_it_has() -> None:
    asked: Any = Told(100, 1000)
    asked.unknown = True
    assert Search(asked, lambda path, span, best: FromZero(*span, 0)).first() == {A: 1000}
    assert asked.required == [[(0, 0), (0, 999)], [(1000, 1000)]]
    nothing: Any = Told()
    reply = Search(nothing, lambda path, span, best: FromZero(*span, 0)).first()
    assert isinstance(reply, Reply)
    assert reply.outcome is Outcome.IMPOSSIBLE


def test_a_solver_is_told_of_slots_in_the_order_in_which_they_are_read() -> None:
    """The same in every process: z3 may answer in one order what it does not in another."""
    names = [f"f{i}" for i in (3, 7, 1, 9, 0, 8, 2, 6, 4, 5)]
    spec = make_dataclass("Ten", [(name, Annotated[int, Range(0, 50)], 0) for name in sorted(names)], frozen=True)
    total = ex.integer((names[0],))
    for name in names[1:]:
        total = ex.add(ex.multiply(total, ex.constant(2)), ex.multiply(ex.integer((name,)), ex.integer((name,))))
    with Question(ex.equals(total, 1000), domain_of(spec)) as question:
        question.check()
        stage = question._stage
        assert stage is not None
        told = [str(each) for each in stage.solver.assertions()]
    read = [name for (name,) in stage._encoder.variables]
    assert len(read) == 10
    assert [name for line in told[:20] for name in names if name in line] == [name for name in read for _ in range(2)]
