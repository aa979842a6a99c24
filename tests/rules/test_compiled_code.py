"""The Python that is written for shapes, questions and trees: it means what they mean, and reads as it should."""

from __future__ import annotations

import enum
import itertools
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, OneOf, OutsideDomain, Range, Selector, lift
from tileops_rules import expr as E
from tileops_rules.compile import Writer, _by_identity, fills, tree_paths, tree_size
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.outcome import Fill, Raised, Returned, Template
from tileops_rules.shapes import Outside, Shape, Slot
from tileops_rules.tree import Ask, Leaf, Pick, Tree


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


class Size(enum.IntEnum):
    S = 1
    L = 2


class Text(str):
    """Equal to a text, and not one."""


class Card:
    """A stand-in for a torch device."""

    def __init__(self, type: str) -> None:
        self.type = type


CUDA = Card("cuda")


@dataclass(frozen=True)
class Tile:
    rows: Annotated[int, Range(1, 8)] = 4
    mode: Mode = Mode.FAST


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(-3, 9)] = 1
    dtype: Annotated[str, OneOf("f16", "bf16", "f32")] = "f16"
    layout: Annotated[str, OneOf("a", "b", "c", "d")] = "a"
    mixed: Literal[1, 2, True, "1", None] = 1
    few: Literal[1, True, None] = 1
    modes: Mode = Mode.FAST
    size: Size = Size.S
    flag: bool = False
    eps: float = 0.5
    scale: Annotated[float, Range(0.0, 1.0)] = 0.5
    above: Annotated[float, Range(lo=0.25)] = 0.5
    below: Annotated[float, Range(hi=0.25)] = 0.0
    name: str = ""
    window: Optional[Annotated[int, Range(0, 9)]] = None
    title: Optional[str] = None
    either: Annotated[int, Range(0, 9)] | float = 0
    pair: tuple[int, Mode] = (1, Mode.FAST)
    shape: tuple[Annotated[int, Range(0, 9)], ...] = ()
    tile: Tile = Tile()
    maybe: Optional[Tile] = None
    device: Any = CUDA


DOMAIN = domain_of(Call, frozenset({"cuda", "cpu"}))


def apart(text: str) -> str:
    """The same text in another place of memory."""
    return "".join([*text])


VALUES = [
    None, True, False, -4, -3, 0, 1, 2, 9, 10, 0.0, -0.0, 0.25, 0.2, 0.3, 0.5, 1.0, 1.25, -1.0, math.inf, -math.inf,
    math.nan, apart("f16"), apart("bf16"), apart("f32"), "f64", apart("a"), "b", "c", "d", "e", "1", "", "cuda:0",
    Text("f16"), Text("a"), Mode.FAST, Mode.SAFE, Size.S, Size.L, (), (1,), (1, Mode.SAFE), (1, 2), (0,) * 8, (0,) * 9,
    (10,), (3, Mode.FAST), [1], ["f16"], ([1], 2), Tile(), Tile(9), Tile(8, Mode.SAFE), Card("cuda"), Card("mps"),
]  # fmt: skip


def loading(shape: Shape, needed: frozenset[E.Path]) -> Any:
    """What a function does that only loads the slots of one field."""
    writer = Writer(DOMAIN.slots)
    writer.line(0, "def load(value):")
    writer.load(1, "value", shape, needed, "return {slot}.path")
    held = ", ".join(f"{path!r}: {variable}" for path, variable in writer._variables.items() if "<record>" not in path)
    writer.line(1, f"return {{{held}}}")
    return writer.function("load")


def exact(values: Mapping[E.Path, Any]) -> dict[E.Path, Any]:
    """Slot values in which equal values of other types differ; an absent slot is None."""
    return {path: E.exact_key(repr(v) if type(v) is float else v) for path, v in values.items() if v is not None}


@pytest.mark.parametrize("field", DOMAIN.fields)
def test_loading_a_field_gives_its_slots_or_finds_it_outside(field: str) -> None:
    shape = DOMAIN.fields[field]
    load = loading(shape, frozenset(DOMAIN.slots))
    inside = 0
    for value in VALUES:
        expected: dict[E.Path, Any] = {}
        outside = None
        try:
            shape.read(value, expected)
        except Outside as error:
            outside = error.slot.path[:1]
        found = load(value)
        assert (found[:1] if outside else exact(found)) == (outside or exact(expected)), value
        inside += outside is None
    assert inside > (0 if field == "maybe" else 1)


def test_what_is_neither_needed_nor_declared_is_not_loaded() -> None:
    assert loading(DOMAIN.fields["n"], frozenset())(99) == ("n",)
    assert loading(DOMAIN.fields["eps"], frozenset())("anything") == {}
    assert loading(DOMAIN.fields["eps"], frozenset({("n",)}))("anything") == {}
    assert loading(DOMAIN.fields["eps"], frozenset({("eps",)}))("anything") == ("eps",)
    assert loading(DOMAIN.fields["tile"], frozenset({("tile", "mode")}))(Tile(9)) == ("tile", "rows")
    assert loading(DOMAIN.fields["shape"], frozenset({("shape", 0)}))((4, 5)) == {("shape", 0): 4}


def lines(field: str, needed: frozenset[E.Path] = frozenset(DOMAIN.slots)) -> list[str]:
    writer = Writer(DOMAIN.slots)
    writer.load(1, "x", DOMAIN.fields[field], needed, "return ({slot}, {value})")
    return writer.lines


LOOKED_UP = [
    "    try: _x = (type(v0), v0) not in _k3",
    "    except TypeError: _x = True",
    "    if _x: return (_k2, v0)",
]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("n", ["    v0 = x", "    if type(v0) is not int or not -3 <= v0 <= 9: return (_k2, v0)"]),
        ("name", ["    v0 = x", "    if type(v0) is not str: return (_k2, v0)"]),
        ("eps", ["    v0 = x", "    if type(v0) is not float: return (_k2, v0)"]),
        (
            "scale",
            ["    v0 = x", "    if type(v0) is not float or not v0 >= _k3 or not v0 <= _k4: return (_k2, v0)"],
        ),
        ("flag", ["    v0 = x", "    if v0 is not _k3 and v0 is not _k4: return (_k2, v0)"]),
        ("modes", ["    v0 = x", "    if v0 is not _k3 and v0 is not _k4: return (_k2, v0)"]),
        ("dtype", ["    v0 = x", *LOOKED_UP]),
        ("layout", ["    v0 = x", *LOOKED_UP]),
        ("device", ["    v0 = _device_type(x)", *LOOKED_UP]),
        (
            "window",
            [
                "    v1 = x",
                "    if v1 is None: v0 = 'None'",
                "    else:",
                "        v0 = 'int'",
                "        if type(v1) is not int or not 0 <= v1 <= 9: return (_k2, v1)",
            ],
        ),
        (
            "tile",
            [
                "    v0 = x",
                "    if type(v0) is not _k3: return (_k2, v0)",
                "    v1 = v0.rows",
                "    if type(v1) is not int or not 1 <= v1 <= 8: return (_k4, v1)",
                "    v2 = v0.mode",
                "    if v2 is not _k6 and v2 is not _k7: return (_k5, v2)",
            ],
        ),
        (
            "pair",
            [
                "    _d = {}",
                "    try: _k2.read(x, _d)",
                "    except _Outside as _o:",
                "        _w = _o",
                "        return (_w.slot, _w.value)",
                "    v0 = _d.get(_k3)",
                "    v1 = _d.get(_k4)",
            ],
        ),
    ],
)
def test_the_code_that_loads_a_field_reads_so(field: str, expected: list[str]) -> None:
    assert lines(field) == expected


def test_many_values_that_are_themselves_are_looked_for_in_one_set() -> None:
    class Side(enum.Enum):
        N, E, S, W = range(4)

    three, four = (Slot(("s",), "finite", values=tuple(Side)[:n]) for n in (3, 4))
    writer = Writer({})
    assert writer._not_inside("v", three) == "v is not _k2 and v is not _k3 and v is not _k4"
    assert writer._not_inside("v", four) == "v not in _k5"
    assert writer.namespace["_k5"] == frozenset(Side)
    assert writer._not_inside("v", Slot(("s",), "finite", values=(1, True))) == "(type(v), v) not in _k6"
    assert writer.namespace["_k6"] == {(int, 1), (bool, True)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, True), (True, True), (False, True), (Mode.FAST, True), (Size.S, False), (1, False), (0, False),
        (1.0, False), ("x", False), ((), False), (type("dtype", (), {"__module__": "torch"})(), True),
        (type("dtype", (), {"__module__": "numpy"})(), False), (type("device", (), {"__module__": "torch"})(), False),
    ],
)  # fmt: skip
def test_only_what_nothing_else_equals_is_compared_by_identity(value: Any, expected: bool) -> None:
    assert _by_identity(value) is expected


def asked(question: E.Expr, call: dict[E.Path, Any]) -> Any:
    """The answer of the written question, given the slots in variables."""
    writer = Writer(DOMAIN.slots)
    code = writer.code(question)
    return eval(code, writer.namespace, {variable: call[path] for path, variable in writer._variables.items()})


FINITE = [slot for slot in DOMAIN.slots.values() if slot.sort == "finite" and len(slot.values) > 1]


@pytest.mark.parametrize("slot", FINITE, ids=lambda slot: slot.name)
def test_a_written_question_about_a_finite_slot_means_what_it_means(slot: Slot) -> None:
    chosen = [c for n in (1, 2, 3) for c in itertools.combinations(slot.values, n)]
    for values, value in itertools.product(chosen, slot.values):
        question = E.among(slot.path, values)
        held = apart(value) if type(value) is str else value
        assert asked(question, {slot.path: held}) is evaluate(question, {slot.path: value}), (values, value)


N, A, B, M = E.integer(("n",)), E.integer(("a",)), E.integer(("b",)), E.integer(("m",))


@pytest.mark.parametrize(
    ("expr", "code"),
    [
        (E.constant(-3), "(-3)"),
        (E.add(A, B), "(v0 + v1)"),
        (E.add(E.scale(A, -2), E.constant(5)), "(-2*v0 + 5)"),
        (E.add(E.add(A, E.scale(B, 3)), E.constant(-1)), "(v0 + 3*v1 + -1)"),
        (E.multiply(A, B), "(v0*v1)"),
        (E.floordiv(A, B), "(v0 // v1)"),
        (E.mod(A, E.constant(8)), "(v0 % (8))"),
        (E.absolute(A), "abs(v0)"),
        (E.bit_length(A), "v0.bit_length()"),
        (E.TRUE, "True"),
        (E.at_most(A, -1), "(v0 <= -1)"),
        (E.equals(E.multiply(A, B), 2), "((v0*v1) == 2)"),
        (E.float_is(("f",), "<=", 0.5), "(v0 <= _k2)"),
        (E.float_is(("f",), "nan", 0.5), "(v0 != v0)"),
        (E.str_is(("t",), "x"), "(v0 == _k2)"),
        (E.negation(E.equals(A, 1)), "(not (v0 == 1))"),
        (E.conjunction([E.equals(A, 1), E.at_most(B, 2)]), "((v0 == 1) and (v1 <= 2))"),
        (E.disjunction([E.equals(A, 1), E.equals(A, 2)]), "((v0 == 1) or (v0 == 2))"),
        (E.among(("few",), [1]), "(_k2(v0) in _k3)"),
        (E.among(("mixed",), [1, "1"]), "(_k2(v0) in _k3)"),
        (E.among(("dtype",), ["f16"]), "(v0 == _k2)"),
        (E.among(("dtype",), ["f16", "f32"]), "(v0 in _k2)"),
        (E.among(("modes",), [Mode.SAFE]), "(v0 is _k2)"),
        (E.among(("flag",), [True]), "(v0 is _k2)"),
    ],
)
def test_each_kind_of_question_is_written_so(expr: E.Expr, code: str) -> None:
    assert Writer(DOMAIN.slots).code(expr) == code


def test_a_constant_gets_one_name_and_names_tell_constants_apart() -> None:
    writer = Writer({})
    one, other = [1], [1]
    names = [writer.name(one), writer.name(other, "held"), writer.name(one, "held")]
    assert names == ["_k2", "_held3", "_k2"]
    assert writer.namespace["_k2"] is one
    assert writer.namespace["_held3"] is other
    assert [writer.variable(path) for path in (("a",), ("b",), ("a",))] == ["v0", "v1", "v0"]


def leaf(value: Any) -> Leaf:
    return Leaf(Returned(value, ("test", str(value))))


FILL = Fill("ratio", "b / m", (B, M))
FILLED = leaf(Template(("b over m is ", FILL, "!")))
SHARED = Ask(E.at_most(A, 3), leaf(None), leaf("a"))
TREE: Tree = Ask(
    E.equals(N, 1),
    Ask(E.at_most(A, 7), SHARED, FILLED),
    Pick(("few",), (((1, None), SHARED), ((True,), leaf("few is True")))),
)


def test_the_size_of_a_tree_counts_shared_branches_at_each_place() -> None:
    assert [tree_size(each) for each in (FILLED, SHARED, TREE)] == [1, 3, 11]


def test_the_paths_of_a_tree_are_those_of_its_questions_and_of_the_places_in_its_reasons() -> None:
    assert set(tree_paths(TREE)) == {("n",), ("a",), ("few",), ("b",), ("m",)}
    assert tree_paths(FILLED) == (("b",), ("m",))
    assert tree_paths(Leaf(Raised(ValueError, "x"))) == ()
    assert fills(FILL) == (FILL,)
    assert fills(Template(("x", FILL, FILL))) == (FILL, FILL)
    assert fills("x") == fills(None) == ()


def test_a_tree_is_written_with_its_smaller_branch_inside() -> None:
    slots = {**DOMAIN.slots, ("few",): Slot(("few",), "finite", values=(1, None, True))}
    writer = Writer(slots)
    writer.tree(0, TREE, lambda end: f"return {end.outcome!s}", "return lost")
    assert writer.lines == [
        "if (v0 == 1):",
        "    if not (v1 <= 7): return b over m is {b / m}!",
        "    if (v1 <= 3): return None",
        "    return a",
        "if (_k2(v2) in _k3):",
        "    if (v1 <= 3): return None",
        "    return a",
        "if (_k2(v2) in _k4): return few is True",
        "return lost",
    ]


@dataclass(frozen=True)
class Plain:
    """Nothing is declared, and nothing is invalid."""

    n: int = 1
    m: int = 1
    device: Any = CUDA
    arch: Optional[int] = 90


def few(call: Plain) -> str | None:
    return None if call.n < 5 else f"n is {call.n}"


class Side(enum.Enum):
    N, E, S, W = range(4)


@dataclass(frozen=True)
class Sided:
    """Domains of values that are looked up by their hash."""

    dtype: Annotated[str, OneOf("f16", "f32")] = "f16"
    side: Side = Side.N
    tile: Annotated[Any, OneOf((8, 16), (8, 1))] = (8, 16)


def test_a_value_that_cannot_be_hashed_is_outside_as_any_other() -> None:
    """It is refused with the domain's own error, and never with Python's."""

    def refusal(call: Sided) -> str | None:
        return f"side {call.side}" if call.side is Side.S or call.dtype == "f32" or call.tile == (8, 1) else None

    rule = lift(refusal, Sided)
    selector = Selector(Sided, [Candidate("one", refusal)])
    wrong: Any = ["f16"]
    for call in (Sided(dtype=wrong), Sided(side=wrong), Sided(tile=wrong), Sided(tile=(wrong, 16))):
        assert rule(call) == refusal(call)
        with pytest.raises(OutsideDomain) as caught:
            selector.mask(call)
        assert str(caught.value).startswith(
            f"{call.tile if call.tile != (8, 16) else wrong!r} is outside the domain of"
        )


def test_a_rule_reads_of_a_call_what_it_needs_and_no_more() -> None:
    rule = lift(few, Plain)
    assert [rule(types.SimpleNamespace(n=n)) for n in (4, 5)] == [None, "n is 5"]


def test_a_replay_draws_the_same_calls_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []

    def near(tree: Tree, domain: Any, count: int, seed: int) -> list[Any]:
        drawn.append((count, seed))
        return []

    monkeypatch.setattr("tileops_rules.rule.calls_near", near)
    rule = lift(few, Plain)
    drawn.clear()
    assert rule.replay(5) is None
    assert rule.replayed(6) is rule
    assert rule.replay(7, 3) is None
    assert drawn == [(5, 0), (6, 0), (7, 3)]


KINDS: dict[str, set[type]] = {
    "n": {int}, "eps": {int, float}, "name": {str}, "pair": {tuple}, "shape": {tuple}, "tile": {Tile},
    "window": {int, type(None)},
}  # fmt: skip


@pytest.mark.parametrize("field", KINDS)
def test_the_kind_of_a_value_is_its_type_whatever_its_range(field: str) -> None:
    for value in (0, 99, True, 1.5, "", "x", (), (1, 2, 3), ("x",), Tile(), Tile(99), None, Size.S, Text("x")):
        assert DOMAIN.fields[field].kind_of(value) is (type(value) in KINDS[field]), value


def test_a_selector_asks_rules_alone_where_nothing_is_declared() -> None:
    calls: list[Plain] = []

    def noted(call: Plain) -> None:
        calls.append(call)

    rest = Candidate("rest", lambda call: None, general=True, devices={"cuda", "cpu"})
    selector = Selector(Plain, [Candidate("few", few), rest])
    selector.plain_mask = noted  # type: ignore[assignment, method-assign]
    for n, kind in itertools.product((4, 5), ("cuda", "cpu")):
        call = Plain(n, device=Card(kind), arch=90 if kind == "cuda" else None)
        assert selector.mask(call) == 2 + (n < 5 and kind == "cuda")
    assert calls == []


def test_without_implementations_a_call_is_on_a_cuda_device() -> None:
    assert Selector(Plain, []).domain.device_types == frozenset({"cuda"})
