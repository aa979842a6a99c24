"""Small parts by themselves: where a question has an answer, who reads a call, what a call holds, what is explained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal, NamedTuple, Optional

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import (
    TRUE,
    Expr,
    among,
    at_most,
    conjunction,
    disjunction,
    equals,
    floordiv,
    integer,
    mod,
    negation,
    walk,
)
from tileops_rules.expr import constant as number
from tileops_solver.answer import Answer, Verdict
from tileops_solver.definite import _presence, definitely
from tileops_solver.engine import Outcome, Question
from tileops_solver.explaining import Explained, explain_call
from tileops_solver.field_reads import fields_read
from tileops_solver.orders import FromZero
from tileops_solver.targets import TargetError
from tileops_solver.witness import _Smallest, same_values, smallest_call, usual_facts, values_before

# --------------------------------------------------------------------------------------- where a question has an answer

N, M = integer(("n",)), integer(("m",))


@dataclass(frozen=True)
class Two:
    n: Annotated[int, Range(-3, 5)] = 1
    m: Annotated[int, Range(-2, 3)] = 0


@pytest.mark.parametrize(
    "question",
    [
        at_most(floordiv(N, M), 1),
        equals(mod(N, M), 0),
        negation(equals(mod(N, M), 0)),
        disjunction([equals(mod(N, M), 1), at_most(N, 0)]),
        conjunction([negation(at_most(floordiv(N, M), 0)), at_most(N, 4)]),
        negation(conjunction([at_most(floordiv(N, M), 0), at_most(N, 2)])),
        equals(mod(N, floordiv(N, M)), 0),
        at_most(floordiv(mod(M, N), mod(N, M)), 1),
    ],
    ids=str,
)
def test_a_question_holds_for_certain_where_it_has_an_answer_and_that_is_yes(question: Expr) -> None:
    """Of a part with no answer, what is joined to it may decide; and where nothing does, it does not hold."""

    def answer(part: Expr, values: Any) -> bool | None:
        if part.kind in ("and", "or"):
            parts = [answer(each, values) for each in part.args]
            stops = part.kind == "or"
            return stops if stops in parts else None if None in parts else not stops
        if part.kind == "not":
            inner = answer(part.args[0], values)
            return None if inner is None else not inner
        try:
            return bool(evaluate(part, values))
        except ZeroDivisionError:
            return None

    certain = definitely(question, domain_of(Two))
    seen = set()
    for n, m in itertools.product(range(-3, 6), range(-2, 4)):
        values = {("n",): n, ("m",): m}
        expected = answer(question, values)
        seen.add(expected)
        needs = [part for part in walk(certain) if part.kind in ("floordiv", "mod")]
        try:
            held = bool(evaluate(certain, values))
        except ZeroDivisionError:
            held = False
        assert held is (expected is True), (n, m)
        assert needs
    assert seen >= {True, None}


def test_a_division_by_a_constant_always_has_an_answer() -> None:
    for question in (equals(mod(N, number(4)), 0), at_most(floordiv(N, number(-2)), 3), at_most(N, 3)):
        assert definitely(question, domain_of(Two)) is question


class Pair(NamedTuple):
    left: Annotated[int, Range(0, 3)]
    right: Annotated[int, Range(0, 3)]


@dataclass(frozen=True)
class Inner:
    size: Annotated[int, Range(0, 3)] = 0
    window: Annotated[int, Range(0, 3)] | None = None


@dataclass(frozen=True)
class Deep:
    n: Annotated[int, Range(0, 3)] = 0
    window: Annotated[int, Range(0, 3)] | None = None
    shape: tuple[Annotated[int, Range(0, 5)], ...] = ()
    pair: tuple[Annotated[int, Range(0, 3)], Literal["x", "y"]] = (0, "x")
    inner: Inner = Inner()
    maybe: Optional[Inner] = None
    rows: tuple[Optional[Annotated[int, Range(0, 3)]], ...] = ()
    both: Optional[tuple[Annotated[int, Range(0, 3)], ...]] = None


DEEP = [
    Deep(),
    Deep(window=2, shape=(1, 2, 3), pair=(1, "y"), inner=Inner(1, 2), maybe=Inner(3), rows=(None, 1), both=()),
    Deep(shape=(5,) * 8, maybe=Inner(3, 1), rows=(2, None, 3), both=(1, 2, 3)),
]


@pytest.mark.parametrize("call", DEEP, ids=["plain", "some", "more"])
def test_a_slot_is_there_exactly_where_a_call_has_it(call: Deep) -> None:
    domain = domain_of(Deep)
    held, present = domain.read(call), _presence(domain)
    for path in domain.slots:
        there = present.get(path, TRUE)
        try:
            says = bool(evaluate(there, held))
        except ZeroDivisionError:
            says = False
        assert says is (path in held), path
    assert all(when is not TRUE for when in present.values())
    assert {path[0] for path in present} == {"window", "shape", "inner", "maybe", "rows", "both"}
    always = {path for path in domain.slots if path not in present}
    assert {path[0] for path in always} == {"n", "window", "shape", "pair", "inner", "maybe", "rows", "both"}


def test_when_a_slot_is_there_is_said_of_everything_that_it_is_part_of() -> None:
    def longer(name: str, index: int) -> str:
        return f"{name}.len in ({', '.join(map(str, range(index + 1, 9)))})" if index < 7 else f"{name}.len == 8"

    expected = {
        ("window",): "window.type == 'int'",
        ("inner", "window"): "inner.window.type == 'int'",
        ("maybe", "size"): "maybe.type == 'Inner'",
        ("maybe", "window", "type"): "maybe.type == 'Inner'",
        ("maybe", "window"): "maybe.type == 'Inner' & maybe.window.type == 'int'",
        ("both", "len"): "both.type == 'tuple'",
    }
    for i in range(8):
        expected["shape", i] = longer("shape", i)
        expected["rows", i, "type"] = longer("rows", i)
        expected["rows", i] = f"{longer('rows', i)} & rows[{i}].type == 'int'"
        expected["both", i] = f"both.type == 'tuple' & {longer('both', i)}"
    assert {path: str(when) for path, when in _presence(domain_of(Deep)).items()} == expected


@pytest.mark.parametrize("divided", [mod, floordiv])
def test_that_a_divisor_is_not_zero_is_part_of_the_question_and_of_its_negation(divided: Any) -> None:
    """z3 gives a division by zero any value, so that nothing short of that will do."""
    domain, there = domain_of(Two), negation(equals(M, 0))
    yes = equals(divided(N, M), 0)
    assert definitely(yes, domain) is conjunction([there, yes])
    assert definitely(negation(yes), domain) is conjunction([there, negation(yes)])
    assert definitely(disjunction([yes, at_most(N, 0)]), domain) is disjunction(
        [conjunction([there, yes]), at_most(N, 0)]
    )
    inner = equals(divided(N, divided(N, M)), 0)
    assert definitely(inner, domain) is conjunction([negation(equals(divided(N, M), 0)), there, inner])


def test_a_question_about_a_slot_that_is_not_there_does_not_hold_nor_its_negation() -> None:
    domain = domain_of(Deep)
    for path in _presence(domain):
        slot = domain.slots[path]
        asked = at_most(integer(path), 1) if slot.sort == "int" else among(path, slot.values[:1])
        for question in (asked, negation(asked)):
            certain = definitely(question, domain)
            for call in DEEP:
                held = domain.read(call)
                expected = path in held and bool(evaluate(question, held))
                try:
                    assert bool(evaluate(certain, held)) is expected
                except ZeroDivisionError:
                    assert not expected


# ----------------------------------------------------------------------------------------------------- who reads a call


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: int = 2


@dataclass(frozen=True)
class Box:
    inside: Any = None
    beside: int = 0


def in_tuples(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = (0, value)
    return value


def in_boxes(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = Box(value)
    return value


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        (lambda call: call, True),
        (lambda call: [1, call], True),
        (lambda call: (1, (2, [call])), True),
        (lambda call: frozenset({3}), False),
        (lambda call: {1: call}, False),
        (lambda call: Box(call), True),
        (lambda call: (Box((1, call)),), True),
        (lambda call: Box, False),
        (lambda call: Box(1), False),
        (lambda call: None, False),
        *((lambda call, d=d: in_tuples(call, d), d <= 4) for d in range(1, 7)),
        *((lambda call, d=d: in_boxes(call, d), d <= 4) for d in range(1, 7)),
    ],
)
def test_a_call_that_is_given_back_as_part_of_something_is_read_altogether(given: Any, whole: bool) -> None:
    assert fields_read(given, Call()) == ({"n", "m"} if whole else set())


def test_what_is_read_and_what_is_given_back_add_up() -> None:
    assert fields_read(lambda call: (call.n, 5), Call()) == {"n"}
    assert fields_read(lambda call: (call.n, call), Call()) == {"n", "m"}
    seen: list[Any] = []
    fields_read(seen.append, Call(n=7, m=8))
    assert (seen[0].n, seen[0].m, type(seen[0]).__name__) == (7, 8, "Call")


# ---------------------------------------------------------------------------------------------------- what a call holds


@dataclass(frozen=True)
class Held:
    n: int = 1
    m: int = 2
    ratio: float = 0.5
    window: Optional[int] = None


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ({}, True),
        ({("n",): 1}, True),
        ({("n",): 1, ("m",): 2, ("ratio",): 0.5}, True),
        ({("n",): 2}, False),
        ({("n",): 1, ("m",): 3}, False),
        ({("n",): 3, ("m",): 2}, False),
        ({("n",): True}, False),
        ({("n",): 1, ("elsewhere",): 9}, True),
        ({("ratio",): math.nan}, False),
        ({("ratio",): 0.25}, False),
    ],
)
def test_a_call_holds_values_where_each_slot_that_it_has_does(values: Any, same: bool) -> None:
    assert same_values(domain_of(Held), Held(), values) is same


def test_not_a_number_is_the_same_as_itself_and_nothing_else() -> None:
    domain = domain_of(Held)
    assert same_values(domain, Held(ratio=math.nan), {("ratio",): float("nan")})
    assert not same_values(domain, Held(ratio=math.nan), {("ratio",): 0.5})
    assert not same_values(domain, Held(n="one"), {("n",): 1})  # type: ignore[arg-type]
    assert not same_values(domain, object(), {("n",): 1})


def test_the_usual_facts_of_an_arch_are_given_where_the_call_says_nothing_else() -> None:
    @dataclass(frozen=True)
    class Facts:
        n: int = 0
        arch: Optional[int] = None
        smem_budget: Annotated[int, Range(0, 2**30)] = 0
        sm_count: Annotated[int, Range(0, 140)] = 0

    fields = [("arch", Optional[int], None), ("smem_budget", int), ("sm_count", Annotated[int, Range(0, 140)])]
    bare = make_dataclass("Bare", [fields[1], fields[2], fields[0]], frozen=True)
    assert usual_facts(domain_of(Facts), {("arch",): 90}) == {}, "it has its own defaults"
    known = KNOWN_ARCHS[90]
    assert usual_facts(domain_of(bare), {("arch",): 90}) == {
        ("smem_budget",): known.smem_budget,
        ("sm_count",): known.sm_count,
    }
    assert usual_facts(domain_of(bare), {("arch",): 89}) == {("smem_budget",): KNOWN_ARCHS[89].smem_budget}
    for values in ({}, {("arch",): None}, {("arch",): 12}):
        assert usual_facts(domain_of(bare), values) == {}


def test_the_values_before_a_slot_are_those_of_the_slots_that_are_fixed() -> None:
    question = conjunction([at_most(N, 3), at_most(M, 3), negation(at_most(N, (M.data and 0) or 0))])
    with Question(question, domain_of(Two)) as asked:
        codes = {("n",): 2, ("m",): 1}
        assert values_before(asked, ("n",), codes) == {}
        assert values_before(asked, ("m",), codes) == {("n",): 2}


def test_a_search_among_rejected_calls_that_finds_none_says_so_with_the_last_reason() -> None:
    domain = domain_of(Two)
    with Question(conjunction([equals(mod(N, M), 2), equals(N, 1)]), domain, apart=True) as asked:
        found = _Smallest(asked, lambda call: None).among_rejected()
    assert found.outcome is Outcome.UNKNOWN
    assert found.reason == "the calls that were found cannot be built: "
    rejected = smallest_call(at_most(N, -2), domain, lambda call: f"n is {call.n}")
    assert rejected.outcome is Outcome.UNKNOWN
    assert rejected.reason.startswith("the calls that were found cannot be built: n is -")
    assert rejected.values is None
    odd = smallest_call(at_most(N, 5), domain, lambda call: "odd" if call.n % 2 or call.m < 2 else None)
    assert (odd.outcome, odd.call.n % 2, odd.call.m >= 2) == (Outcome.POSSIBLE, 0, True)
    assert odd.values is None


@pytest.mark.parametrize(
    ("order", "codes"),
    [
        (FromZero(-2, 3, 1), [1, 0, 2, 3, -1, -2]),
        (FromZero(3, 6, 0), [3, 4, 5, 6]),
        (FromZero(3, 6, 5), [5, 3, 4, 6]),
        (FromZero(-5, -3, 0), [-3, -4, -5]),
        (FromZero(-5, -3, -4), [-4, -3, -5]),
        (FromZero(0, 0, 7), [0]),
    ],
)
def test_codes_are_tried_from_the_preferred_one_then_from_zero(order: FromZero, codes: list[int]) -> None:
    assert sorted(range(order.lo, order.hi + 1), key=order.place) == codes
    assert order._upwards == sum(code >= 0 for code in codes)
    places = {code: order.place(code) for code in codes}
    for start, end in itertools.combinations(range(max(places.values()) + 2), 2):
        covered = {code for low, high in order.spans(start, end) for code in range(low, high + 1)}
        wanted = {code for code, place in places.items() if start <= place < end}
        assert covered - {order.preferred} == wanted - {order.preferred}


# ---------------------------------------------------------------------------------------------------- what is explained


def op_of(refusal: Callable[[Any, Any], Any], unserved: Any = None) -> type:
    members = {"request": Call} if unserved is None else {"request": Call, "unserved": classmethod(unserved)}
    face = type("Face", (), members)
    kernel = type("Small", (face,), {"refusal": classmethod(refusal)})
    return type("SmallOp", (), {"kernel_types": {"small": kernel}, "interfaces": {"face": face}})


def small(cls: Any, call: Any) -> str | None:
    return None if call.n <= 4 else f"n is {call.n}"


def why_not(cls: Any, call: Any) -> str | None:
    return "too large for anybody" if call.n > 50 else None


def test_a_served_call_is_explained_without_a_nearest_one() -> None:
    found = explain_call(op_of(small, why_not), "face", ["n=3"])
    assert (found.op, found.interface, found.call) == ("SmallOp", "face", Call(n=3))
    assert (found.nearest, found.declared, found.explanation.winner) == (None, None, "small")
    assert str(found) == f"SmallOp.face: Call(n=3, m=2)\n{found.explanation}"
    assert found.as_json() == {
        "op": "SmallOp",
        "interface": "face",
        "call": {"n": 3, "m": 2},
        **found.explanation.as_json(),
        "nearest": None,
        "declared": None,
    }


def test_a_call_that_nobody_serves_is_explained_with_the_nearest_and_what_is_declared() -> None:
    found = explain_call(op_of(small, why_not), "face", ["n=60"])
    assert found.declared == "too large for anybody"
    assert found.nearest == Answer(Verdict.FOUND, Call(n=4))
    assert str(found).endswith("\ndeclared unserved: too large for anybody\nnearest served call: Call(n=4, m=2)")
    assert found.as_json()["nearest"] == {"n": 4, "m": 2}
    assert found.as_json()["declared"] == "too large for anybody"
    undeclared = explain_call(op_of(small), "face", ["n=60"])
    assert (undeclared.declared, undeclared.nearest) == (None, Answer(Verdict.FOUND, Call(n=4)))
    nobody = explain_call(op_of(lambda cls, call: "never"), "face", [])
    assert nobody.nearest is not None
    assert nobody.nearest.verdict is Verdict.NONE
    assert str(nobody).splitlines()[-1] == f"nearest served call: {Verdict.NONE.value} ({nobody.nearest.reason})"


def test_a_call_that_two_tie_for_is_served() -> None:
    face = type("Face", (), {"request": Call})
    kinds = {key: type(key, (face,), {"refusal": classmethod(small)}) for key in ("one", "two")}
    op = type("TwoOp", (), {"kernel_types": kinds, "interfaces": {"face": face}})
    assert explain_call(op, "face", ["n=3"]).nearest is None
    assert explain_call(op, "face", ["n=9"]).nearest == Answer(Verdict.FOUND, Call(n=4))
    with pytest.raises(TargetError):
        explain_call(op, "other", [])
    explained = Explained("Op", "job", Call(), Selector(Call, [Candidate("a", lambda call: None)]).explain(Call()))
    assert (explained.nearest, explained.declared) == (None, None)
