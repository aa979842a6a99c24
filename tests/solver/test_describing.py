"""A described region holds on exactly the calls of the original, and is short."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from tileops_rules import Range, fields
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.parsing import parse
from tileops_solver import describing
from tileops_solver.codes import codes_of
from tileops_solver.describing import describe, shortened
from tileops_solver.engine import Outcome, Reply


@dataclass(frozen=True)
class Call:
    a: Annotated[int, Range(-3, 4)] = 2
    b: Annotated[int, Range(0, 6)] = 0
    c: Annotated[int, Range(1, 5)] = 1
    kind: Literal["x", "y", "z", "w"] = "y"
    flag: bool = False
    ratio: float = 0.5
    name: str = "plain"
    window: Optional[Annotated[int, Range(0, 3)]] = None
    either: Union[Annotated[int, Range(0, 2)], str] = 0
    shape: tuple[Annotated[int, Range(0, 2)], ...] = ()


DOMAIN = domain_of(Call)
c = fields(Call)
NUMBERS = [E.integer((name,)) for name in "abc"]
OTHERS = [
    c.kind == "x",
    c.kind.isin(["y", "z"]),
    c.flag == True,  # noqa: E712 - a question, not a test
    c.ratio < 0.5,
    c.ratio <= 2.0,
    c.ratio.is_nan(),
    c.name == "q",
    c.window == None,  # noqa: E711
    c.window >= 2,
    c.shape.length == 2,
    c.shape[1] == 1,
]


def holds(expr: E.Expr, values: dict[Any, Any]) -> bool:
    try:
        return bool(evaluate(expr, values))
    except ZeroDivisionError:
        return False


def calls(*exprs: E.Expr) -> Iterator[dict[Any, Any]]:
    """Every way to fill the slots that some of *exprs* reads; slots that the call does not have are left out."""
    codes = codes_of(E.conjunction(exprs), DOMAIN)
    for choice in itertools.product(*(range(each.lo, each.hi + 1) for each in codes.values())):
        values = {path: each.value(code) for (path, each), code in zip(codes.items(), choice, strict=True)}
        if values.get(("window", "type")) == "None":
            values.pop(("window",), None)
        for path in [p for p in values if p[0] == "shape" and isinstance(p[1], int)]:
            if ("shape", "len") in values and values[("shape", "len")] <= path[1]:
                del values[path]
        yield values


def question(draw: random.Random, depth: int = 3) -> E.Expr:
    if depth and draw.random() < 0.7:
        parts = [question(draw, depth - 1) for _ in range(draw.randint(2, 3))]
        joined = draw.choice([E.conjunction, E.disjunction])(parts)
        return E.negation(joined) if draw.random() < 0.25 else joined
    if draw.random() < 0.4:
        asked = draw.choice(OTHERS).expr
    else:
        left, right = draw.sample(NUMBERS, 2)
        number = draw.choice(
            [left, left, left, E.add(left, E.scale(right, -2)), E.multiply(left, right), E.mod(left, right)]
        )
        asked = draw.choice([E.at_most, E.equals])(number, draw.randint(-2, 5))
    return E.negation(asked) if draw.random() < 0.4 else asked


def checked(seed: int) -> tuple[int, int]:
    draw = random.Random(seed)
    expr, given = question(draw), question(draw, 1) if draw.random() < 0.7 else E.TRUE
    text = describe(expr, DOMAIN, given)
    read = parse(text, DOMAIN)
    differing = [at for at in calls(expr, given, read) if holds(given, at) and holds(expr, at) is not holds(read, at)]
    assert differing == [], (seed, str(expr), str(given), text, differing[:1])
    return len(str(expr)), len(text)


def test_a_description_holds_on_exactly_the_calls_of_the_region() -> None:
    lengths = [checked(seed) for seed in range(25)]
    assert sum(short for _, short in lengths) < 0.6 * sum(long for long, _ in lengths)


@pytest.mark.nightly
def test_two_thousand_descriptions_hold_on_exactly_the_calls_of_their_regions() -> None:
    for seed in range(1000, 3000):
        checked(seed)


@pytest.mark.parametrize(
    ("expr", "given", "text"),
    [
        ((c.b >= 1) & (c.b <= 3) & (c.a + c.b >= -3), True, "1 <= b <= 3"),
        ((c.b >= 1) & (c.b <= 3), c.b >= 1, "b <= 3"),
        ((c.b >= 2) & (c.b < 3), True, "b == 2"),
        ((c.b == 1) | (c.b == 3) | (c.b == 5), True, "b in (1, 3, 5)"),
        ((c.b == 1) | (c.b == 2) | (c.b == 5), True, "1 <= b <= 2 | b == 5"),
        ((c.b != 1) & (c.b != 3), True, "b not in (1, 3)"),
        ((c.b <= 1) | (c.b >= 3), c.b >= 1, "b != 2"),
        (c.kind.isin(["x", "y"]) & ~(c.kind == "x"), True, "kind == 'y'"),
        (~(c.kind == "x") & ~(c.kind == "w"), True, "kind in ('y', 'z')"),
        ((2 * c.a <= c.b), True, "2*a <= b"),
        ((2 * c.a < c.b), True, "2*a < b"),
        (c.a != c.b + 2, True, "a != b + 2"),
        (c.window >= 2, True, "window >= 2"),
        ((c.flag == True) & (c.a == 1) | (c.flag == False) & (c.a == 1), True, "a == 1"),  # noqa: E712
        ((c.b >= 0) | (c.ratio < 0.5), True, "True"),
        ((c.a > 3) & (c.b > 3) & (c.a + c.b < 8), True, "False"),
        ((c.kind == "x") & ((c.a == 1) | (c.b == 2)), True, "kind == 'x' & (a == 1 | b == 2)"),
        ((c.c % 2 == 0) & (c.c % 2 == 0) & (c.c >= 2), True, "c % 2 == 0"),
        (c.b % c.c == 1, c.b >= 1, "b % c == 1"),
        ((c.a <= 1) | ((c.a >= 2) & (c.b == 1)), True, "a <= 1 | b == 1"),
        (((c.a * c.b <= 3) & (c.b == 1)) | ((c.a * c.b <= 3) & (c.c == 1)), True, "a*b <= 3 & (b == 1 | c == 1)"),
        ((c.a == 3) & (c.a * c.b <= c.c), True, "a == 3 & 3*b <= c"),
    ],
)
def test_a_region_reads_as_it_would_be_written(expr: Any, given: Any, text: str) -> None:
    assert describe(expr.expr, DOMAIN, E.TRUE if given is True else given.expr) == text


def test_the_order_of_the_questions_changes_no_word() -> None:
    parts = [(c.a >= 1).expr, (c.kind == "x").expr, ((c.b == 1) | (c.c == 2)).expr, (c.b + c.c >= 3).expr]
    texts = {describe(E.conjunction(order), DOMAIN) for order in itertools.permutations(parts)}
    assert len(texts) == 1


def test_a_clause_of_which_nothing_is_decided_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    expr = ((c.a + c.b <= 3) & (c.a + c.b + c.c <= 8)).expr
    assert describe(expr, DOMAIN) == "a + b <= 3"

    class Silent(describing.Question):
        def check(self) -> Reply:
            return Reply(Outcome.UNKNOWN, reason="on purpose")

    monkeypatch.setattr(describing, "Question", Silent)
    assert describe(expr, DOMAIN) == "a + b <= 3 & a + b + c <= 8"


def test_beyond_the_number_of_questions_nothing_more_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "_MOST_QUESTIONS", 0)
    expr = ((c.a + c.b <= 3) & (c.a + c.b + c.c <= 8)).expr
    assert shortened(expr, DOMAIN) is expr


def test_the_rules_of_the_real_ops_are_short() -> None:
    pytest.importorskip("torch")
    from tileops_rules import Selector

    from tileops.ops.attention.gqa_dense import GQADenseFwdOp

    selector = Selector.of(GQADenseFwdOp, "gqa_dense")
    for key in selector.keys:
        claims = selector.claims(key)
        assert claims is not None
        text = describe(claims.expr, selector.domain, selector.valid.expr)
        assert len(text) < 400, text
        assert "device" not in text, "what the arch says is not said twice"


# ------------------------------------------------------------------------------------------------------- one by one

A, B, C = NUMBERS
KIND = (c.kind == "x").expr


def test_negations_are_moved_to_single_questions() -> None:
    p, q, r = E.at_most(A, 1), E.equals(B, 2), KIND
    no = E.negation
    for expr, plain in (
        (p, p),
        (no(p), no(p)),
        (no(no(p)), p),
        (no(E.conjunction([p, q])), E.disjunction([no(p), no(q)])),
        (no(E.disjunction([p, q])), E.conjunction([no(p), no(q)])),
        (no(E.conjunction([p, no(E.disjunction([q, r]))])), E.disjunction([no(p), q, r])),
        (E.disjunction([p, no(E.conjunction([q, no(r)]))]), E.disjunction([p, no(q), r])),
        (E.conjunction([p, E.disjunction([no(q), r])]), E.conjunction([p, E.disjunction([no(q), r])])),
        (E.TRUE, E.TRUE),
        (no(E.TRUE), E.FALSE),
    ):
        assert describing._positive(expr) is plain, str(expr)


@pytest.mark.parametrize(
    ("expr", "numbers", "left"),
    [
        (E.at_most(E.add(A, B), 5), {"a": 3}, E.at_most(B, 2)),
        (E.at_most(E.add(A, B), 5), {"c": 3}, E.at_most(E.add(A, B), 5)),
        (E.at_most(E.add(A, B), 5), {"a": 3, "b": 2}, E.TRUE),
        (E.equals(E.multiply(A, B), 6), {"b": 2}, E.equals(A, 3)),
        (E.negation(E.conjunction([E.at_most(A, 1), E.at_most(B, 1)])), {"a": 1}, E.at_least(B, 2)),
        (E.equals(E.mod(A, B), 1), {"b": 2}, E.equals(E.mod(A, E.constant(2)), 1)),
        (E.equals(E.mod(A, B), 1), {"b": 0}, E.equals(E.mod(A, B), 1)),
        (E.at_most(E.floordiv(A, B), 1), {"b": 0}, E.at_most(E.floordiv(A, B), 1)),
        (E.conjunction([KIND, E.equals(A, 2)]), {"a": 2}, KIND),
    ],
)
def test_a_number_that_is_known_is_put_in_where_it_divides_nothing_by_0(
    expr: E.Expr, numbers: dict[str, int], left: E.Expr
) -> None:
    assert describing._with_numbers(expr, {(name,): value for name, value in numbers.items()}) is left


def test_a_question_without_an_answer_does_not_hold() -> None:
    question = E.equals(E.mod(A, B), 1)
    found = [describing._holds(question, {("a",): 3, ("b",): b}) for b in (2, 3, 0)]
    assert found == [True, False, False]


def shortening() -> describing._Shortening:
    return describing._Shortening(DOMAIN)


def test_parts_without_a_field_in_common_are_asked_about_apart() -> None:
    def apart(*parts: E.Expr) -> list[list[E.Expr]]:
        return shortening()._apart(E.conjunction(parts))

    a, b, kind, flag = E.at_most(A, 1), E.at_most(B, 1), KIND, (c.flag == True).expr  # noqa: E712
    ab, bc = E.at_most(E.add(A, B), 5), E.at_most(E.add(B, C), 5)
    assert apart(a) == [[a]]
    assert apart(a, b, kind) == [[a], [b], [kind]]
    assert apart(a, kind, E.at_least(A, 0)) == [[kind], [a, E.at_least(A, 0)]]
    assert apart(a, kind, b, ab) == [[kind], [a, b, ab]]
    assert apart(a, kind, b, flag, ab, bc) == [[kind], [flag], [a, b, ab, bc]]
    assert apart(ab, bc, a) == [[ab, bc, a]], "what a group is about grows with it"
    length, item = (c.shape.length == 2).expr, (c.shape[1] == 1).expr
    assert sum(len(group) for group in apart(length, item)) == len(E.conjunction([length, item]).args)
    assert len(apart(length, item)) == 1, "both are about shape"


def test_a_call_that_was_found_answers_the_next_question_and_a_question_is_asked_once() -> None:
    short = shortening()
    before = short._left
    assert short._known(E.at_most(E.multiply(A, B), 5)) is False
    assert short._left == before - 1
    assert short._known(E.at_most(E.multiply(A, B), 6)) is False
    assert short._known(E.at_most(E.multiply(A, B), 5)) is False
    assert short._left == before - 1, "the call found first is one for both"
    assert short._known(E.conjunction([E.equals(E.multiply(A, B), 5), E.at_most(B, 4)])) is True
    assert short._ask(E.FALSE) is True
    short._left = 1
    impossible = [E.conjunction([E.equals(E.multiply(A, B), value), E.at_most(B, 4)]) for value in (7, 11)]
    assert [short._known(each) for each in impossible] == [True, False], "beyond the last question nothing is shown"


def test_what_is_read_first_is_about_one_field_then_several_then_alternatives() -> None:
    short = shortening()
    bulks = [E.at_most(A, 1), KIND, E.at_most(E.add(A, B), 5), ((c.a == 1) | (c.b == 2)).expr, E.TRUE]
    assert [short._bulk(each) for each in bulks] == [0, 0, 1, 2, 1]
    assert short._bulk(((c.a == 1) | (c.a == 3)).expr) == 0
    places = [E.at_most(A, 1), E.at_most(C, 1), E.at_most(E.add(C, B), 1), KIND, E.TRUE]
    assert [short._place(each) for each in places] == [0, 2, 1, 3, 0]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((c.a + c.b + c.c <= 8) & (c.a + c.b <= 3), "a + b <= 3"),
        ((c.a + c.b <= 3) & (c.a + c.b + c.c <= 8), "a + b <= 3"),
        ((c.a + c.b <= 3) & (c.b + c.c <= 4) & (c.a + 2 * c.b + c.c <= 7), "a + b <= 3 & b + c <= 4"),
        ((c.a + 2 * c.b + c.c <= 7) & (c.a + c.b <= 3) & (c.b + c.c <= 4), "a + b <= 3 & b + c <= 4"),
        (((c.b == 1) | (c.a == 1)) & (c.a * c.b == 4), "a*b == 4 & (a == 1 | b == 1)"),
        (((c.a == 1) | (c.b == 1)) & ((c.a == 1) | (c.b == 1) | (c.c == 2)), "a == 1 | b == 1"),
        (((c.a == 1) | (c.b == 1) | (c.c == 2)) & ((c.a == 1) | (c.b == 1)), "a == 1 | b == 1"),
        (((c.a == 1) & (c.b >= 2)) | (c.b >= 2), "b >= 2"),
        ((c.a >= 1) & ((c.a <= 0) | (c.b >= 2)), "a >= 1 & b >= 2"),
        ((c.a >= 1) & ((c.a <= 0) | ((c.b >= 2) & (c.a >= 0))), "a >= 1 & b >= 2"),
        (
            ((c.a * c.b <= 5) & (c.a + c.c <= 4) & (c.kind == "x"))
            | ((c.a + c.c <= 4) & (c.a * c.b <= 5) & (c.flag == True)),  # noqa: E712
            "a*b <= 5 & a + c <= 4 & (kind == 'x' | flag == True)",
        ),
        (
            ((c.a + c.c <= 4) & (c.a * c.b <= 5) & (c.kind == "x"))
            | ((c.a * c.b <= 5) & (c.a + c.c <= 4) & (c.flag == True)),  # noqa: E712
            "a + c <= 4 & a*b <= 5 & (kind == 'x' | flag == True)",
        ),
    ],
)
def test_what_follows_from_what_stands_before_or_after_it_is_left_out(expr: Any, text: str) -> None:
    assert describe(expr.expr, DOMAIN) == text


@pytest.mark.parametrize(
    ("inside", "outside", "clause"),
    [
        (c.b >= 2, None, "b >= 2"),
        (c.b <= 4, None, "b <= 4"),
        ((c.b >= 2) & (c.b <= 4), None, "b >= 2 & b <= 4"),
        ((c.b >= 2) & (c.b <= 4), c.b >= 2, "b <= 4"),
        ((c.b >= 2) & (c.b <= 4), c.b <= 4, "b >= 2"),
        (c.b == 3, None, "b == 3"),
        (c.b == 3, (c.b >= 3), "b == 3"),
        (c.b == 3, (c.b == 3), "True"),
        (c.b >= 0, None, "True"),
        (c.kind == "x", None, "kind == 'x'"),
        (c.kind == "x", c.kind.isin(["x", "z"]), "kind == 'x'"),
        (c.kind == "x", c.kind == "x", "True"),
        (c.ratio < 0.5, None, "True"),
    ],
)
def test_what_is_forced_on_a_field_is_said_where_it_is_more_than_is_known(
    inside: Any, outside: Any, clause: str
) -> None:
    around = [] if outside is None else [outside.expr]
    forced = shortening()._forced([inside.expr], around)
    assert forced is not None
    assert str(E.conjunction(forced)) == clause


def test_nothing_is_forced_by_what_cannot_hold() -> None:
    assert shortening()._forced([E.at_most(B, 2), E.at_least(B, 3)], []) is None
