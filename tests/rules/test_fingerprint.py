"""Digests of expressions, domains and trees: the same everywhere, and different where anything is."""

from __future__ import annotations

import enum
import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import OneOf, Range, fields, lift
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.fingerprint import (
    NotSpelled,
    digest,
    expr_digest,
    field_digest,
    fields_read,
    spelled,
    tree_digest,
)


class Mode(enum.Enum):
    PLAIN = 1
    FUSED = 2


class Level(enum.IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Tile:
    rows: int = 1


@dataclass(frozen=True)
class Call:
    n: int = 3
    m: Annotated[int, Range(-5, 6)] = 0
    kind: Literal["x", "y"] = "x"
    mode: Mode = Mode.PLAIN
    scale: float | None = None
    shape: tuple[int, ...] = ()
    tile: Tile = Tile()


class Same:
    """Two objects of it read alike and are not equal."""

    def __repr__(self) -> str:
        return "Same()"


VALUES: list[Any] = [
    None,
    True,
    False,
    1,
    0,
    -1,
    2**200,
    1.0,
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    "1",
    "",
    "a, b",
    b"1",
    (),
    (1,),
    (1, 2),
    ((1,), 2),
    ("a", "b"),
    [1],
    {1},
    {1: 2},
    {2: 1},
    Mode.PLAIN,
    Mode.FUSED,
    Level.ONE,
    Mode,
    Tile(1),
    Tile(2),
    int,
]


def test_values_that_differ_are_spelled_differently() -> None:
    assert len({spelled(value) for value in VALUES}) == len(VALUES)


def test_the_order_of_a_set_makes_no_difference() -> None:
    names = [f"name{i}" for i in range(64)]
    assert spelled(set(names)) == spelled({*names[::-1]})
    assert spelled(frozenset(names)) != spelled(set(names))


@pytest.mark.parametrize("value", [Same(), (1, Same()), {1: Same()}, lambda: None, object()])
def test_what_might_read_like_another_value_is_not_spelled(value: Any) -> None:
    with pytest.raises(NotSpelled):
        spelled(value)


def test_rows_of_parts_do_not_run_into_each_other() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", ""), digest("", "abc")}) == 5


N, M = E.integer(("n",)), E.integer(("m",))

EXPRESSIONS: list[Callable[[], E.Expr]] = [
    lambda: E.TRUE,
    lambda: E.FALSE,
    lambda: E.at_most(N, 3),
    lambda: E.at_most(N, 4),
    lambda: E.at_most(M, 3),
    lambda: E.equals(N, 3),
    lambda: E.negation(E.equals(N, 3)),
    lambda: E.among(("n",), [1, 2]),
    lambda: E.among(("n",), [1]),
    lambda: E.among(("n",), [True]),
    lambda: E.among(("n",), [1.0]),
    lambda: E.among(("n",), ["1"]),
    lambda: E.among(("n",), [Mode.PLAIN]),
    lambda: E.among(("n",), [Mode.FUSED]),
    lambda: E.str_is(("n",), "1"),
    lambda: E.float_is(("n",), "<", 1.0),
    lambda: E.float_is(("n",), "<=", 1.0),
    lambda: E.float_is(("n",), "nan", 0.0),
    lambda: E.equals(E.mod(N, E.constant(2)), 0),
    lambda: E.equals(E.mod(N, M), 0),
    lambda: E.equals(E.floordiv(N, M), 0),
    lambda: E.equals(E.multiply(N, M), 0),
    lambda: E.equals(E.add(N, M), 0),
    lambda: E.equals(E.add(E.scale(N, 2), M), 0),
    lambda: E.conjunction([E.at_most(N, 3), E.at_most(M, 3)]),
    lambda: E.disjunction([E.at_most(N, 3), E.at_most(M, 3)]),
    lambda: E.at_most(E.integer(("shape", 0)), 3),
    lambda: E.at_most(E.integer(("shape", "0")), 3),
]


def test_expressions_that_differ_have_different_digests() -> None:
    assert len({expr_digest(make()) for make in EXPRESSIONS}) == len(EXPRESSIONS)


def test_an_expression_that_is_made_again_has_the_same_digest() -> None:
    before = [expr_digest(make()) for make in EXPRESSIONS]
    gc.collect()
    assert [expr_digest(make()) for make in EXPRESSIONS] == before


def test_a_digest_is_the_same_on_every_machine_and_version() -> None:
    question = E.conjunction([E.at_most(N, 3), E.among(("mode",), [Mode.PLAIN]), E.float_is(("scale",), ">", 0.5)])
    domain = domain_of(Call)
    assert expr_digest(question).hex()[:16] == "fb6547c90bffb7b6"
    assert digest(*(field_digest(domain, name) for name in domain.fields)).hex()[:16] == "a32a79c3de3c01fb"


def test_expressions_over_values_without_spelling_have_no_digest() -> None:
    with pytest.raises(NotSpelled):
        expr_digest(E.conjunction([E.at_most(N, 3), E.among(("mode",), [Same()])]))


def test_a_deep_expression_needs_no_recursion() -> None:
    deep = E.at_most(N, 0)
    for i in range(5_000):
        deep = E.negation(E.conjunction([E.at_most(M, i % 7), E.equals(N, i), deep]))
    assert len(expr_digest(deep)) == 32


def test_fields_read_are_those_of_the_slots() -> None:
    c = fields(Call)
    assert fields_read(((c.n > 3) & (c.mode == Mode.PLAIN)).expr) == {"n", "mode"}
    assert fields_read(E.integer(("tile", "rows"))) == {"tile"}
    assert fields_read(E.TRUE) == frozenset()


def one_field(hint: Any, default: Any) -> bytes:
    kind = make_dataclass("One", [("n", hint, default)], frozen=True)
    return field_digest(domain_of(kind), "n")


RANGES: list[tuple[Any, Any]] = [
    (int, 0),
    (int, 1),
    (int, -1),
    (Annotated[int, Range(0, 5)], 0),
    (Annotated[int, Range(0, 6)], 0),
    (Annotated[int, Range(1, 5)], 1),
    (float, 0.0),
    (float, 1.0),
    (Annotated[float, Range(0.0, 1.0)], 0.0),
    (float | None, None),
    (float | None, 1.0),
    (int | None, None),
    (int | float, 1),
    (str, ""),
    (str, "a"),
    (bool, False),
    (bool, True),
    (Literal["x", "y"], "x"),
    (Literal["x", "y"], "y"),
    (Literal["x", "y", "z"], "x"),
    (Annotated[int, OneOf(1, 2)], 1),
    (Annotated[float, OneOf(1.0, 2.0)], 1.0),
    (Mode, Mode.PLAIN),
    (Mode, Mode.FUSED),
    (tuple[int, ...], ()),
    (tuple[int, ...], (1,)),
    (tuple[float, ...], ()),
    (tuple[int, int], (0, 0)),
    (tuple[int, int], (0, 1)),
    (tuple[int, float], (0, 0.0)),
    (Tile, Tile()),
]


def test_fields_that_range_over_other_values_have_different_digests() -> None:
    assert len({one_field(*each) for each in RANGES}) == len(RANGES)


def test_whether_a_range_was_declared_or_assumed_makes_no_difference() -> None:
    assert one_field(int, 0) == one_field(Annotated[int, Range(0, 2**40)], 0)


def test_the_archs_and_devices_are_part_of_their_fields() -> None:
    @dataclass(frozen=True)
    class OnDevice:
        device: str = "cuda"
        arch: int | None = None

    plain = domain_of(OnDevice, frozenset({"cuda"}))
    assert field_digest(plain, "device") != field_digest(domain_of(OnDevice), "device")
    assert field_digest(plain, "arch") != field_digest(domain_of(OnDevice, archs=frozenset({75})), "arch")


def tree_of(refusal: Callable[[Any], Any]) -> bytes:
    return tree_digest(lift(refusal, Call).tree)


def test_trees_differ_with_their_questions_reasons_and_exceptions() -> None:
    def raises(call: Any) -> str | None:
        if call.n > 3:
            raise ValueError("too many")
        return None

    def raises_otherwise(call: Any) -> str | None:
        if call.n > 3:
            raise TypeError("too many")
        return None

    rules: list[Callable[[Any], Any]] = [
        lambda call: None,
        lambda call: "no" if call.n > 3 else None,
        lambda call: "no" if call.n > 4 else None,
        lambda call: "NO" if call.n > 3 else None,
        lambda call: f"{call.n}" if call.n > 3 else None,
        lambda call: f"{call.m}" if call.n > 3 else None,
        lambda call: f"{call.n:>4}" if call.n > 3 else None,
        lambda call: 1 if call.n > 3 else None,
        lambda call: True if call.n > 3 else None,
        lambda call: "no" if call.kind == "x" else None,
        lambda call: None if call.kind == "x" else "no",
        raises,
        raises_otherwise,
    ]
    assert len({tree_of(rule) for rule in rules}) == len(rules)
    assert tree_of(lambda call: "no" if call.n > 3 else None) == tree_of(lambda call: "no" if not call.n <= 3 else None)
