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
