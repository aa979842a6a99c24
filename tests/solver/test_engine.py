"""The one place that asks z3: what it answers, when it gives up, and what it leaves behind."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Any

import pytest
from tileops_rules import Range, fields
from tileops_rules import expr as ex
from tileops_rules.domain import domain_of
from tileops_rules.expr import Expr
from tileops_solver import InconsistencyError, engine, z3_backend
from tileops_solver.engine import Outcome, Question, Reply

from tests.speed import cpu_seconds, holds_within


@dataclass(frozen=True)
class Sizes:
    n: int = 0
    m: int = 0
    k: int = 0
    l: int = 0  # noqa: E741 - a size
    small: Annotated[int, Range(0, 63)] = 0


DOMAIN = domain_of(Sizes)
F = fields(Sizes)


def ask(expr: Expr) -> Reply:
    with Question(expr, DOMAIN) as question:
        return question.check()


def answered_within(allowed_s: float, question: Expr) -> None:
    holds_within(allowed_s, lambda: cpu_seconds(lambda: ask(question)))


def odd(field: Any) -> Any:
    return field % 2 == 1


def test_odd_times_odd_is_no_multiple_of_16() -> None:
    question = odd(F.n) & odd(F.m) & (F.n * F.m % 16 == 0)
    reply = ask(question.expr)
    assert reply.outcome is Outcome.IMPOSSIBLE
    assert "integers" in reply.reason
    answered_within(0.5, question.expr)


def test_what_integers_do_not_answer_bit_vectors_do() -> None:
    question = odd(F.n) & odd(F.m) & (F.n * F.m % 1024 == 0)
    reply = ask(question.expr)
    assert reply.outcome is Outcome.IMPOSSIBLE
    assert "bit-vectors of 82 bits" in reply.reason
    answered_within(1.0, question.expr)


def test_three_odd_factors_are_split_over_residues_too() -> None:
    question = odd(F.n) & odd(F.m) & odd(F.k) & (F.n * F.m * F.k % 8 == 4)
    assert ask(question.expr).outcome is Outcome.IMPOSSIBLE


def test_the_width_comes_from_what_the_question_says_of_single_fields() -> None:
    question = (F.n <= 1000) & (F.m <= 1000) & odd(F.n) & odd(F.m) & (F.n * F.m % 1024 == 0)
    assert "bit-vectors of 2" in ask(question.expr).reason


def test_a_fact_about_a_product_does_not_make_the_width_smaller() -> None:
    product = ex.multiply(ex.integer(("n",)), ex.integer(("m",)))
    narrow = ex.conjunction([ex.at_most(product, 8), ex.negation(ex.at_most(ex.integer(("n",)), 2**39))])
    with Question(narrow, DOMAIN) as question:
        assert question.known is not None
        assert engine.bits_cost(narrow, question.known, question.codes).width > 80


def test_a_question_wider_than_the_ceiling_is_undecided_and_quick() -> None:
    question = (F.n * F.m * F.k * F.l % 1024 == 3) & (F.n % 2 == 0) & (F.n > 3) & (F.m > 3) & (F.k > 2) & (F.l > 2)
    reply = ask(question.expr)
    assert reply.outcome is Outcome.UNKNOWN
    assert "162 bits are more than 128" in reply.reason
    assert "integers: no answer within 300,000 units of work" in reply.reason
    answered_within(1.5, question.expr)


def test_a_question_of_too_much_arithmetic_is_undecided_and_quick() -> None:
    question = odd(F.n) & odd(F.m) & (F.n * F.m % 1024 == 0)
    for i in range(1, 20):
        question = question & ((F.n + i) * (F.m + 7) % 1023 != 5)
    reply = ask(question.expr)
    assert reply.outcome is Outcome.UNKNOWN
    assert "gates in 82 bits are more than 131,072" in reply.reason
    answered_within(1.5, question.expr)


def test_work_used_up_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "QUESTION_WORK", 1000)
    reply = ask((odd(F.n) & odd(F.m) & (F.n * F.m % 1024 == 0)).expr)
    assert reply.outcome is Outcome.UNKNOWN
    assert "no answer within" in reply.reason
    assert "used up" in reply.reason


@pytest.mark.parametrize("error", [MemoryError("no more"), "z3"])
@pytest.mark.parametrize("where", ["encode", "ask"])
def test_what_z3_throws_is_undecided_with_its_words(monkeypatch: pytest.MonkeyPatch, error: Any, where: str) -> None:
    thrown = z3_backend.load().Z3Exception("out of memory") if error == "z3" else error

    def fail(*args: Any, **more: Any) -> Any:
        raise thrown

    monkeypatch.setattr(engine.Encoder if where == "encode" else engine._Stage, where, fail)
    reply = ask((F.n * F.m == 35).expr)
    assert reply.outcome is Outcome.UNKNOWN
    assert type(thrown).__name__ in reply.reason
    assert "integers" in reply.reason
    assert "bit-vectors" in reply.reason


def test_an_interrupt_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    question = (F.n * F.n + F.m * F.m == F.k * F.k) & (F.n > 2) & (F.m > F.n) & (F.k > 30)
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    solver = z3_backend.load().Solver
    check = solver.check

    def interrupted(*arguments: Any) -> Any:
        """Interrupted while z3 searches, not while it makes a context, which would be left half made."""
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            return check(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    monkeypatch.setattr(solver, "check", interrupted)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(question.expr)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def contexts() -> int:
    gc.collect()
    return sum(type(thing) is z3_backend.load().Context for thing in gc.get_objects())


def test_no_z3_object_outlives_its_question() -> None:
    before = contexts()
    with Question((F.n * F.m == 35).expr, DOMAIN) as question:
        reply = question.check()
        assert contexts() == before + 1
    assert reply.outcome is Outcome.POSSIBLE
    assert contexts() == before
    assert all(type(code) is int for code in reply.codes.values())


def test_no_z3_object_hangs_on_to_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    before = contexts()
    monkeypatch.setattr(Question, "holds", lambda self, codes: False)
    with pytest.raises(InconsistencyError) as caught:
        ask((F.n * F.m == 35).expr)
    assert caught.value.__traceback__ is not None
    assert contexts() == before


def test_a_solution_that_python_denies_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        engine.Encoder.__init__.__globals__["ENCODE"], "at_most", lambda e, node, args: args[0] >= node.data
    )
    with pytest.raises(InconsistencyError, match="does not hold in Python") as caught:
        ask(((F.n + F.m <= 7) & (F.n * F.m >= 5)).expr)
    assert any("n + m <= 7" in fact or "m + n <= 7" in fact for fact in caught.value.facts)


def test_questions_in_many_threads_have_contexts_of_their_own() -> None:
    replies: dict[int, Outcome] = {}

    def work(number: int) -> None:
        wanted = odd(F.n) & odd(F.m) & (F.n * F.m % 16 == (0 if number % 2 else number % 16 + 1))
        replies[number] = ask(wanted.expr).outcome

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {i: Outcome.IMPOSSIBLE if i % 2 else Outcome.POSSIBLE for i in range(8)}


def test_levels_forget_what_was_required_in_them() -> None:
    with Question((F.n * F.m == 35).expr, DOMAIN) as question:
        with question.level():
            question.require(("n",), (2, 4))
            assert question.check().outcome is Outcome.IMPOSSIBLE
        question.require(("n",), (2, 6))
        assert question.check().codes == {("n",): 5, ("m",): 7}
        question.exclude({("n",): 5, ("m",): 7})
        assert question.check().outcome is Outcome.IMPOSSIBLE


def test_the_cheap_answer_needs_no_z3(fresh_python: Callable[..., Any]) -> None:
    code = """
import sys
from dataclasses import dataclass
from tileops_rules import fields
from tileops_solver import Verdict, find_call
@dataclass(frozen=True)
class Call:
    n: int = 0
c = fields(Call)
print(find_call((c.n > 5) & (c.n <= 5)).verdict, [m for m in ("z3", "networkx") if m in sys.modules])
"""
    done = fresh_python("-c", code)
    assert done.stdout == "Verdict.NONE []\n", done.stderr


def test_a_slot_that_the_question_leaves_free_keeps_a_code_in_its_range() -> None:
    """z3 is not told of it until something is required of it, and no longer once that is forgotten."""
    free = ("small",)
    expr = ((F.n + F.m == 5) & (F.small >= 40) & (F.small <= 44)).expr
    with Question(expr, DOMAIN) as question:
        assert 40 <= question.check().codes[free] <= 44
        for span in ((0, 41), (43, 60), (44, 44)):
            with question.level():
                question.require(free, span)
                assert max(40, span[0]) <= question.check().codes[free] <= min(44, span[1])
            assert 40 <= question.check().codes[free] <= 44
        with question.level():
            question.require(free, (0, 39), (45, 63))
            assert question.check().outcome is Outcome.IMPOSSIBLE
        fixed = dict(question.check().codes)
        for path in fixed:
            if path != free:
                question.require(path, (fixed[path], fixed[path]))
        seen = set()
        for _ in range(5):
            reply = question.check()
            assert reply.outcome is Outcome.POSSIBLE
            seen.add(reply.codes[free])
            question.exclude(reply.codes)
        assert seen == {40, 41, 42, 43, 44}
        assert question.check().outcome is Outcome.IMPOSSIBLE
