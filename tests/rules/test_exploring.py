"""Exploring: where its limits are, what it counts, what it looks away for, and which slots it has touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
import tileops_rules.exploring as exploring
from tileops_rules import NotLifted, Range, lift
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.exploring import Explorer
from tileops_rules.outcome import Fill
from tileops_rules.shapes import IntShape
from tileops_rules.symbolic_call import GivenUp
from tileops_rules.tree import leaves


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 10**9)] = 0
    m: Annotated[int, Range(0, 10**9)] = 0
    k: Annotated[int, Range(0, 10**9)] = 0
    h: Annotated[int, Range(0, 10**9)] = 0
    kind: Literal["a", "b", "c"] = "a"


@dataclass(frozen=True)
class OnDevice:
    n: int = 0
    device: str = "cuda"
    arch: Optional[int] = None


DOMAIN = domain_of(Call)
N, M = E.integer(("n",)), E.integer(("m",))
PLACE = ("here.py", 7)


def explorer(budget: int = 100) -> Explorer:
    there = Explorer(DOMAIN, frozenset({"tests"}), budget)
    there._check_text = lambda fill: None  # type: ignore[method-assign]  # the test runner looks at its texts
    return there


def chain(call: Any) -> str | None:
    """Four questions one after another: five paths."""
    if call.n <= 5:
        return "n"
    if call.m <= 5:
        return "m"
    if call.k <= 5:
        return "k"
    return "h" if call.h <= 5 else None


def over(**limits: int) -> str:
    """What is said of the chain under these limits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(exploring, name, value)
        with pytest.raises(NotLifted) as error:
            lift(chain, Call)
    return error.value.cause


# -------------------------------------------------------------------------------------------------------------- limits


def test_over_a_limit_it_is_said_what_was_spent() -> None:
    """Each path repeats the answers of the one before it: of the third, two, and of the fourth, three."""
    with pytest.raises(NotLifted) as error:
        lift(chain, Call, budget=2)
    assert error.value.cause == (
        "over the budget of 2 paths (2 explored, 2 questions asked, 3 answers given): "
        "state the region by fewer independent conditions"
    )
    assert error.value.line == chain.__code__.co_firstlineno
    assert lift(chain, Call, budget=5).paths == 5
    with pytest.raises(NotLifted, match=r"4 paths \(4 explored, 4 questions asked, 10 answers given\)"):
        lift(chain, Call, budget=4)


def test_questions_and_answers_in_all_are_limited_too() -> None:
    assert "(3 explored, 3 questions asked, 6 answers given)" in over(_QUESTIONS_IN_ALL=2)
    assert "(4 explored, 4 questions asked, 10 answers given)" in over(_QUESTIONS_IN_ALL=3)
    assert "(2 explored, 2 questions asked, 3 answers given)" in over(_ANSWERS_IN_ALL=2)
    assert "(3 explored, 3 questions asked, 6 answers given)" in over(_ANSWERS_IN_ALL=3)


@pytest.mark.parametrize(("counted", "most"), [("_asked", 400_000), ("_answered", 300_000)])
def test_so_many_questions_and_answers_may_there_be_in_all(counted: str, most: int) -> None:
    for spent, fits in ((most, True), (most + 1, False)):
        there = explorer()
        setattr(there, counted, spent)
        if fits:
            assert there.explore(lambda call: None, PLACE)[1] == 1
        else:
            with pytest.raises(NotLifted, match="0 explored"):
                there.explore(lambda call: None, PLACE)


def test_so_many_paths_may_a_rule_have() -> None:
    assert exploring.PATH_BUDGET == 20_000
    with pytest.raises(NotLifted, match="over the budget of 1 paths"):
        lift(chain, Call, budget=1)


def test_one_path_has_six_hundred_questions_at_most() -> None:
    there = explorer()
    for limit in range(600):
        there.decide(E.equals(N, 1_000_000 + limit) if limit else E.at_most(M, 5))
        there._facts = type(there._facts)(DOMAIN.slots)
    with pytest.raises(GivenUp):
        there.decide(E.at_most(N, 7))
    assert there.refusal is not None
    assert there.refusal[2] == "over 600 questions on one path: does a loop run over a field?"
    assert there._asked == 601


def test_one_path_has_twenty_thousand_answers_at_most() -> None:
    there = explorer()
    for _ in range(20_000):
        there.decide(E.at_most(N, 5))
    assert (there._asked, there.refusal) == (1, None)
    with pytest.raises(GivenUp):
        there.decide(E.at_most(N, 5))
    assert there.refusal is not None
    assert there.refusal[2] == ("over 20000 answers on one path: does a loop run over a field or a long range?")


def test_the_first_refusal_stays() -> None:
    there = explorer()
    with pytest.raises(GivenUp, match="first"):
        there.give_up("a.py", 1, "first")
    with pytest.raises(GivenUp, match="second"):
        there.give_up("b.py", 2, "second")
    assert there.refusal == ("a.py", 1, "first")


# ------------------------------------------------------------------------------------------- what is not asked about


@pytest.mark.parametrize(("device_type", "said"), [("cuda", None), ("cpu", "no")])
def test_a_slot_of_one_value_has_it_from_the_start(device_type: str, said: str | None) -> None:
    """The arch is None exactly off CUDA, where only one kind of device is there too."""
    domain = domain_of(OnDevice, frozenset({device_type}))

    def said_of(refusal: Callable[[Any], str | None]) -> set[Any]:
        return {leaf.outcome.value for leaf in leaves(lift(refusal, OnDevice, domain=domain).tree)}

    assert said_of(lambda call: "no" if call.arch is None else None) == {said}
    assert said_of(lambda call: "n" if call.n > 5 else "no" if call.arch is None else None) == {"n", said}


# ------------------------------------------------------------------------------------------------- what is looked at


class Watching:
    """Stands for the watch: what it was told, in order."""

    def __init__(self, looking: bool) -> None:
        self.looking = looking
        self.told: list[str] = []

    def pause(self) -> None:
        self.looking = False
        self.told.append("pause")

    def resume(self) -> None:
        self.looking = True
        self.told.append("resume")


KIND = DOMAIN.slots[("kind",)]
N_SHAPE = DOMAIN.fields["n"]
WORK: dict[str, Callable[[Any], Any]] = {
    "decide": lambda there: there.decide(E.at_most(N, 5)),
    "ask": lambda there: there.ask(lambda limit: E.at_most(N, limit), 5),
    "combined": lambda there: there.combined(E.add, N, M, False),
    "pick": lambda there: there.pick(KIND),
    "remaining": lambda there: there.remaining(N),
    "mark": lambda there: there.mark(Fill("expr", "n", (N,))),
    "symbol": lambda there: there.symbol(N_SHAPE),
    "unwatched": lambda there: there.unwatched(len, "abc"),
}


def watched(work: Callable[[Any], Any], looking: bool = True) -> tuple[Explorer, Watching]:
    there = explorer()
    there._symbols = {}
    there._watch = watch = Watching(looking)  # type: ignore[assignment]
    work(there)
    return there, watch


@pytest.mark.parametrize("name", WORK)
def test_the_explorer_looks_away_for_its_own_work_and_back_after_it(name: str) -> None:
    assert watched(WORK[name])[1].told == ["pause", "resume"]


def test_a_pick_leaves_the_watch_as_it_was() -> None:
    assert watched(WORK["pick"], looking=False)[1].told == ["pause"]


@pytest.mark.parametrize("name", ["decide", "ask", "combined", "mark", "unwatched"])
def test_while_answers_are_repeated_nothing_is_looked_at(name: str) -> None:
    there = explorer()
    there._symbols = {}
    there.decide(E.at_most(N, 5))
    there.decide(E.at_most(M, 5))
    there._repeating, there._cursor = True, 0
    there._watch = watch = Watching(False)  # type: ignore[assignment]
    WORK[name](there)
    assert watch.told == ["pause"]
    assert there._cursor == (1 if name in ("decide", "ask") else 0)
    there.decide(E.at_most(N, 5) if there._cursor == 0 else E.at_most(M, 5))
    assert (there._repeating, watch.looking) == ((False, True) if name in ("decide", "ask") else (True, False))


def test_the_watch_is_back_after_an_error() -> None:
    def failing() -> None:
        raise KeyError

    there = explorer()
    there._watch = watch = Watching(True)  # type: ignore[assignment]
    with pytest.raises(KeyError):
        there.unwatched(failing)
    assert watch.told == ["pause", "resume"]


def test_what_is_found_is_given() -> None:
    there = explorer()
    assert there.remaining(N) is None
    there.decide(E.at_most(N, 3))
    assert there.remaining(N) == [0, 1, 2, 3]
    assert [there.pick(KIND), there.pick(KIND)] == ["a", "a"]
    assert there.unwatched(len, "abc") == 3
    assert (there._asked, [value for _, value in there._trace]) == (2, [None, True, [0, 1, 2, 3], "a", "a"])


def test_as_many_remaining_values_as_a_table_may_have_are_given() -> None:
    there = explorer()
    there.decide(E.at_most(N, exploring.TABLE_LIMIT))
    assert there.remaining(N) is None
    there.decide(E.at_most(N, exploring.TABLE_LIMIT - 1))
    assert there.remaining(N) == list(range(exploring.TABLE_LIMIT))


def test_another_question_than_before_is_refused() -> None:
    there = explorer()
    there.decide(E.at_most(N, 5))
    there._repeating, there._cursor = True, 0
    with pytest.raises(GivenUp, match="asks other questions when it is run again"):
        there.decide(E.at_most(M, 5))


# --------------------------------------------------------------------------------------------------- what was touched


@pytest.mark.parametrize(
    ("work", "touched"),
    [
        (lambda there: None, set()),
        (WORK["decide"], {("n",)}),
        (lambda there: there.decide(E.at_most(E.add(N, M), 5)), {("n",), ("m",)}),
        (lambda there: there.decide(E.conjunction([E.at_most(N, 5), E.negation(E.at_most(M, 5))])), {("n",), ("m",)}),
        (lambda there: there.decide(E.at_most(N, 10**9)), {("n",)}),
        (lambda there: there.decide(E.TRUE), set()),
        (WORK["pick"], {("kind",)}),
        (WORK["remaining"], {("n",)}),
        (WORK["symbol"], {("n",)}),
        (WORK["combined"], set()),
    ],
)
def test_slots_are_touched_by_reading_them_and_by_what_an_answer_depends_on(work: Any, touched: set[Any]) -> None:
    assert watched(work)[0].touched() == touched


# ------------------------------------------------------------------------------------------------ stand-ins made once


def test_what_was_made_once_is_handed_out_again() -> None:
    there, _ = watched(lambda there: None)
    assert there.symbol(N_SHAPE) is there.symbol(N_SHAPE)
    assert isinstance(N_SHAPE, IntShape)
    assert there.integer(N_SHAPE) is there.integer(N_SHAPE)
    made = there.combined(E.add, N, M, False)
    assert there.combined(E.add, N, M, False) is made
    assert there.combined(E.subtract, N, 2, True)._expr is E.subtract(E.constant(2), N)
    assert there.combined(E.subtract, N, 2, False)._expr is E.subtract(N, E.constant(2))
    assert there.combined(E.subtract, N, N, False) == 0
    question = E.at_most(N, 5)
    calls: list[int] = []

    def make(limit: int) -> E.Expr:
        calls.append(limit)
        return question

    assert [there.ask(make, 5), there.ask(make, 5)] == [True, True]
    assert calls == [5]
    first, again = there.mark(Fill("expr", "n", (N,))), there.mark(Fill("expr", "n", (N,)))
    assert str.__str__(first) == str.__str__(again) != str.__str__(there.mark(Fill("expr", "m", (M,))))


@pytest.mark.parametrize(
    ("question", "answer", "asked"),
    [
        (E.TRUE, True, 0),
        (E.FALSE, False, 0),
        (E.negation(E.at_most(N, 5)), False, 1),
        (E.conjunction([E.at_most(N, 5), E.at_most(M, 5)]), True, 2),
        (E.conjunction([E.negation(E.at_most(N, 5)), E.at_most(M, 5)]), False, 1),
        (E.disjunction([E.at_most(N, 5), E.at_most(M, 5)]), True, 1),
        (E.disjunction([E.negation(E.at_most(N, 5)), E.at_most(M, 5)]), True, 2),
        (E.conjunction([E.at_most(N, 5), E.at_most(N, 6)]), True, 1),
    ],
)
def test_only_what_is_not_settled_is_asked_and_yes_comes_first(question: E.Expr, answer: bool, asked: int) -> None:
    there = explorer()
    assert there.decide(question) is answer
    assert (there._asked, len(there._steps)) == (asked, asked)
