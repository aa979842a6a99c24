"""Predicates, fields and domains: combining, printing, asking, and one row a node kind in every table."""

from __future__ import annotations

import enum
import math
import pickle
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import OneOf, OutsideDomain, Range, fields, lift
from tileops_rules import expr as E
from tileops_rules.bounds import BOUNDS, bounds_of
from tileops_rules.compile import CODE
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import EVALUATE, evaluate
from tileops_rules.printing import PRINT


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


@dataclass(frozen=True)
class Tile:
    rows: int = 16


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: Annotated[int, Range(-8, 8)] = 4
    eps: float = 1e-5
    name: str = "plain"
    mode: Mode = Mode.SAFE
    layout: Literal["nhd", "hnd"] = "nhd"
    window: Optional[int] = None
    shape: tuple[int, ...] = ()
    pair: tuple[int, int] = (1, 2)
    tile: Tile = Tile()
    dtype: Annotated[str, OneOf("f16", "f32")] = "f32"
    negative: int = -5
    listed: Any = field(default_factory=dict)


c = fields(Call)


def test_every_node_kind_has_a_row_in_every_table() -> None:
    integers = {name for name, kind in E.KINDS.items() if kind.sort == "int"}
    assert set(EVALUATE) == set(PRINT) == set(CODE) == set(E.KINDS)
    assert set(BOUNDS) == integers - {"int"}


def test_the_same_question_asked_in_two_ways_is_one_node() -> None:
    assert (c.n >= 3).expr is (~(c.n < 3)).expr is (c.n > 2).expr is (2 * c.n + 4 > 9).expr
    assert (-(-c.n // 64) <= 4).expr is (c.n <= 256).expr
    assert (c.n - c.m == 3).expr is (c.m + 3 == c.n).expr
    assert (c.n & c.n if False else c.n % 8 == 0).expr is ((c.n + 16) % 8 == 0).expr
    assert pickle.loads(pickle.dumps((c.n >= 3).expr)) is (c.n >= 3).expr


@pytest.mark.parametrize(
    ("predicate", "text", "holds", "fails"),
    [
        ((c.n >= 3) & (c.n % 8 == 0), "n >= 3 & n % 8 == 0", Call(n=8), Call(n=9)),
        (c.mode == Mode.FAST, "mode == <Mode.FAST: 1>", Call(mode=Mode.FAST), Call()),
        (c.dtype.isin(["f16", "f64"]), "dtype == 'f16'", Call(dtype="f16"), Call()),
        ((c.eps < 1e-3) | (c.name == "x"), "eps < 0.001 | name == 'x'", Call(eps=9.0, name="x"), Call(eps=math.nan)),
        (c.window == None, "window.type == 'None'", Call(), Call(window=1)),  # noqa: E711 - a question, not a test
        (c.window >= 64, "window.type == 'int' & window >= 64", Call(window=64), Call()),
        (c.shape.length == 2, "shape.len == 2", Call(shape=(1, 2)), Call()),
        (c.pair[0] * c.pair[1] > 50, "pair[0]*pair[1] >= 51", Call(pair=(3, 17)), Call(pair=(5, 10))),
        (c.tile.rows != 16, "tile.rows != 16", Call(tile=Tile(8)), Call()),
        (c.n % c.m == 1, "m != 0 & n % m == 1", Call(n=9, m=8), Call(n=9, m=0)),
        (c.n % c.m != 1, "m != 0 & n % m != 1", Call(n=8, m=8), Call(n=8, m=0)),
        (c.n.isin((3, 5)), "n == 3 | n == 5", Call(n=5), Call(n=4)),
        (~(c.layout == "nhd"), "layout != 'nhd'", Call(layout="hnd"), Call()),
        (abs(c.m) <= 2, "m <= 2 & m >= -2", Call(m=-2), Call(m=-3)),
        (c.n.bit_length() <= 3, "n <= 7 & n >= -7", Call(n=7), Call(n=8)),
    ],
)
def test_a_question_reads_as_it_would_be_written_and_holds_where_it_should(
    predicate: Any, text: str, holds: Call, fails: Call
) -> None:
    assert str(predicate) == text
    assert predicate(holds)
    assert not predicate(fails)
    assert not (~predicate)(holds)


def test_a_predicate_has_no_truth_value_and_says_what_to_write() -> None:
    with pytest.raises(TypeError, match="write &"):
        bool((c.n >= 3) and (c.n < 5))
    with pytest.raises(TypeError, match="write &"):
        bool(c.n)


def test_a_predicate_lists_its_fields_and_stays_with_its_class() -> None:
    assert ((c.n >= 3) & (c.tile.rows == 1)).fields == ("n", "tile")

    @dataclass(frozen=True)
    class Other:
        n: int = 0

    with pytest.raises(TypeError, match="no call in common"):
        (c.n >= 3) & (fields(Other).n >= 3)
    with pytest.raises(TypeError, match="speaks of Call"):
        (c.n >= 3)(Other())


def test_outside_its_domain_a_predicate_says_nothing() -> None:
    with pytest.raises(OutsideDomain):
        (c.n >= 3)(Call(n=-1))
    on_cuda = lift(lambda call: None if call.window > 3 else "narrow", Call).serves
    assert not on_cuda(Call(window=None))
    with pytest.raises(OutsideDomain, match="None is outside the domain of window"):
        type(on_cuda)(on_cuda.domain, E.at_most(E.integer(("window",)), 3))(Call(window=None))


def test_an_unknown_field_is_an_attribute_error_with_the_names() -> None:
    with pytest.raises(AttributeError, match="it has n, m, eps"):
        _ = c.nn


def test_an_undeclared_integer_starts_at_the_smaller_of_zero_and_its_default() -> None:
    slots = domain_of(Call).slots
    assert (slots[("negative",)].lo, slots[("n",)].lo, slots[("m",)].lo) == (-5, 0, -8)
    assert slots[("n",)].hi == 2**40
    assert slots[("m",)].declared
    assert not slots[("n",)].declared


def test_a_call_built_from_no_values_is_the_default_call() -> None:
    domain = domain_of(Call)
    built = domain.build({})
    assert all(getattr(built, name) == getattr(Call(), name) for name in domain.fields if name != "listed")


def test_an_empty_range_or_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        Range(3, 2)
    with pytest.raises(ValueError, match="holds nothing"):
        OneOf()


def test_importing_the_rules_loads_neither_torch_nor_z3(fresh_python: Any) -> None:
    done = fresh_python(
        "-c",
        "import sys, tileops_rules; print([m for m in ('torch', 'z3', 'networkx', 'click') if m in sys.modules])",
    )
    assert done.stdout.strip() == "[]", done.stderr


SMALL = {("a",): (-9, 12), ("b",): (-4, 7), ("d",): (1, 5)}


@st.composite
def integer_expressions(draw: st.DrawFn, depth: int = 3) -> E.Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(st.integers(-9, 9).map(E.constant), st.sampled_from([E.integer(path) for path in SMALL])))
    left, right = draw(integer_expressions(depth - 1)), draw(integer_expressions(depth - 1))
    operation = draw(st.sampled_from(["add", "multiply", "floordiv", "mod", "abs", "bit_length", "scale"]))
    if operation in ("floordiv", "mod"):
        divisor = draw(st.sampled_from([E.constant(3), E.constant(-4), E.constant(16), E.integer(("d",))]))
        return getattr(E, operation)(left, divisor)
    if operation == "abs":
        return E.absolute(left)
    if operation == "bit_length":
        return E.bit_length(left)
    return E.scale(left, draw(st.integers(-3, 3))) if operation == "scale" else getattr(E, operation)(left, right)


values = st.fixed_dictionaries({path: st.integers(lo, hi) for path, (lo, hi) in SMALL.items()})


@settings(max_examples=400, deadline=None)
@given(integer_expressions(), values)
def test_bounds_hold_every_value(expr: E.Expr, at: dict[Any, int]) -> None:
    low, high = bounds_of(expr, lambda e: SMALL[e.data])
    assert low <= evaluate(expr, at) <= high


@settings(max_examples=400, deadline=None)
@given(integer_expressions(), st.integers(-40, 40), values)
def test_normal_forms_keep_the_answer(expr: E.Expr, limit: int, at: dict[Any, int]) -> None:
    value = evaluate(expr, at)
    assert evaluate(E.at_most(expr, limit), at) is (value <= limit)
    assert evaluate(E.equals(expr, limit), at) is (value == limit)
    assert evaluate(E.negation(E.equals(expr, limit)), at) is (value != limit)


def test_a_lifted_rule_and_a_question_combine() -> None:
    rule = lift(lambda call: None if call.n >= 8 else "short", Call)
    assert str(rule.serves & (c.n < 8)) == "False"
    assert str(rule.serves | (c.n < 8)) == "True"
