"""Rules that a snapshot holds: what they answer, what is known of them, and what of an interface is written down."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from tileops_rules import Candidate, NotLifted, OneOf, Predicate, Range, Selector
from tileops_rules import expr as ex
from tileops_rules.expr import FALSE, TRUE
from tileops_solver.recorded import Named, RecordedRule, RecordedSelector, call_class, recorded_value
from tileops_solver.snapshot_data import _READ, _WRITE, _fields, data_of, selector_from

DATA: dict[str, Any] = {
    "call": "Call",
    "fields": {
        "a": {"int": [0, 9], "default": "4", "declared": True},
        "kind": {"one of": ["'x'", "<Mode.FAST: 1>"], "first": "<Mode.FAST: 1>"},
        "b": {"int": [-2, 9]},
        "arch": {"one of": ["80", "90", "None"], "first": "None"},
    },
    "valid": ["a + b >= 1"],
    "valid, not lifted": {"invalid": "reads the clock"},
    "implementations": {
        "one": {"devices": ["cuda"], "archs": [80], "preferred over": ["two"], "serves": ["a >= 3"]},
        "two": {"devices": ["cpu", "cuda"], "serves": ["a <= 2"], "raises": ["b == 7"]},
        "odd": {"devices": ["cuda"], "general": True, "not lifted": "calls len"},
    },
    "unserved": {"calls": ["b == 7"]},
}


def selector() -> RecordedSelector:
    return selector_from("Op", "face", DATA)


def test_an_interface_is_read_with_all_that_is_recorded_of_it() -> None:
    made = selector()
    assert (made.op, made.interface, made.spec.__name__, made.keys) == ("Op", "face", "Call", ("odd", "one", "two"))
    about = {c.key: (c.general, sorted(c.devices), c.supported_archs, list(c.preferred_over)) for c in made.candidates}
    assert {key: (*rest[:2], rest[2] and sorted(rest[2]), rest[3]) for key, rest in about.items()} == {
        "one": (False, ["cuda"], [80], ["two"]),
        "two": (False, ["cpu", "cuda"], None, []),
        "odd": (True, ["cuda"], None, []),
    }
    assert str(made.valid.expr) == "a + b >= 1"
    assert {key: str(rule.serves.expr) for key, rule in made.rules.items()} == {"one": "a >= 3", "two": "a <= 2"}
    assert [str(each.raises.expr) for each in made.rules.values()] == ["False", "a >= 3 & b == 7"]
    (name,) = made.validity_not_lifted
    missing = made.validity_not_lifted[name]
    assert (name, missing.file, missing.line, missing.cause) == ("invalid", "snapshot", 0, "reads the clock")
    odd = made.not_lifted["odd"]
    assert (odd.file, odd.line, odd.cause) == ("snapshot", 0, "calls len")
    assert made.declared_unserved is not None
    assert str(made.declared_unserved.serves.expr) == "b != 7"
    plain = selector_from("Op", "face", {k: v for k, v in DATA.items() if k not in ("unserved", "valid, not lifted")})
    assert plain.declared_unserved is None
    assert plain.validity_not_lifted == {}


def test_a_recorded_rule_answers_as_the_rule_did() -> None:
    made = selector()
    usual = {("a",): 4, ("b",): 1, ("kind",): Named("<Mode.FAST: 1>")}
    calls = [made.domain.build({**usual, ("a",): a}) for a in range(5)]
    two = made.candidate("two").refusal
    assert [two(call) for call in calls] == [None, None, None, "refuses it", "refuses it"]
    with pytest.raises(NotLifted) as caught:
        made.candidate("odd").refusal(calls[0])
    assert caught.value is made.not_lifted["odd"]


def rule(serves: ex.Expr | None, raises: ex.Expr = FALSE, cause: str = "") -> Any:
    return RecordedRule(serves, raises, cause).rule(selector().domain)


A, B = ex.at_most(ex.integer(("a",)), 2), ex.equals(ex.integer(("b",)), 7)


def test_a_rule_serves_first_and_raises_then() -> None:
    made = rule(A, B)
    domain = made.domain

    def call(a: int, b: int) -> Any:
        return domain.build({("a",): a, ("b",): b})

    assert made.original(call(1, 7)) is None
    assert made.original(call(3, 1)) == "refuses it"
    with pytest.raises(Exception, match=r"^it raised$") as caught:
        made.original(call(3, 7))
    assert type(caught.value).__name__ == "_RecordedError"
    assert (made.file, made.line, made.paths, made.reads) == ("snapshot", 0, 2, {})
    assert made.touched == {("a",), ("b",)}
    assert str(made.serves.expr) == "a <= 2"
    assert str(made.raises.expr) == "a >= 3 & b == 7"


@pytest.mark.parametrize(
    ("serves", "raises", "texts"),
    [
        (TRUE, FALSE, ("True", "False", set())),
        (FALSE, FALSE, ("False", "False", set())),
        (A, FALSE, ("a <= 2", "False", {("a",)})),
        (FALSE, B, ("False", "b == 7", {("b",)})),
        (FALSE, TRUE, ("False", "True", set())),
    ],
)
def test_what_is_always_so_is_not_asked(serves: ex.Expr, raises: ex.Expr, texts: tuple[str, str, Any]) -> None:
    made = rule(serves, raises)
    assert (str(made.serves.expr), str(made.raises.expr), set(made.touched)) == texts


def test_a_rule_that_was_not_lifted_says_why() -> None:
    with pytest.raises(NotLifted) as caught:
        rule(None, cause="reads the clock")
    assert (caught.value.file, caught.value.line, caught.value.cause) == ("snapshot", 0, "reads the clock")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("'x'", "x"),
        ("(1, 2)", (1, 2)),
        ("None", None),
        ("0.5", 0.5),
        ("torch.float16", Named("torch.float16")),
        ("<Mode.FAST: 1>", Named("<Mode.FAST: 1>")),
        ("0x10", Named("0x10")),
        ('"x"', Named('"x"')),
        ("", Named("")),
    ],
)
def test_a_text_stands_for_the_value_that_reads_so(text: str, value: Any) -> None:
    found = recorded_value(text)
    assert found == value
    assert type(found) is type(value)
    assert repr(Named(text)) == text


def test_a_call_shows_what_it_does_not_have_anyway() -> None:
    made = selector()
    assert repr(made.domain.build({})) == "Call()"
    assert repr(made.domain.build({("a",): 5, ("kind",): "x"})) == "Call(a=5, kind='x')"
    assert repr(call_class("Tile", ["rows"])(3)) == "Tile(rows=3)"


# --------------------------------------------------------------------------------------------------------- the shapes


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


@dataclass(frozen=True)
class Tile:
    rows: Annotated[int, Range(0, 9)] = 4


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 99)] = 1
    bare: Annotated[int, Range(0, 99)] = None  # type: ignore[assignment]
    eps: float = 0.5
    rate: Annotated[float, Range(0.0, None)] = 2.0
    name: str = "plain"
    mode: Mode = Mode.SAFE
    layout: Literal["nhd", 3, -1] = "nhd"
    window: Optional[Annotated[int, Range(1, 9)]] = None
    either: Union[Annotated[int, Range(0, 9)], float, None] = None
    shape: tuple[Annotated[int, Range(0, 9)], ...] = ()
    sizes: tuple[Annotated[int, Range(0, 9)], ...] = (2,)
    pair: tuple[bool, Annotated[int, Range(0, 9)]] = (True, 2)
    tile: Tile = Tile()
    anything: Any = None
    table: Annotated[Any, OneOf((8, 16), None)] = (8, 16)
    device: Optional[str] = None


SIZE = {"int": (0, 9), "declared": True}
LENGTHS = tuple(map(str, range(9)))
FIELDS: Mapping[str, Any] = {
    "n": {"int": (0, 99), "default": "1", "declared": True},
    "bare": {"int": (0, 99), "declared": True},
    "eps": {"float": (None, None), "default": "0.5"},
    "rate": {"float": ("0.0", None), "default": "2.0", "declared": True},
    "name": {"str": "any", "default": "'plain'"},
    "mode": {"one of": ("<Mode.FAST: 1>", "<Mode.SAFE: 2>"), "first": "<Mode.SAFE: 2>", "declared": True},
    "layout": {"one of": ("-1", "3", "'nhd'"), "first": "'nhd'", "declared": True},
    "window": {
        "first": "None",
        "either": {"None": {"none": True}, "int": {"int": (1, 9), "declared": True}},
    },
    "either": {
        "first": "None",
        "either": {"None": {"none": True}, "float": {"float": (None, None)}, "int": SIZE},
    },
    "shape": {"length": {"one of": LENGTHS, "first": "0"}, "each": SIZE},
    "sizes": {
        "length": {"one of": LENGTHS, "first": "1"},
        "items": [{**SIZE, "default": "2"}, *[SIZE] * 7],
    },
    "pair": {
        "parts": [{"one of": ("False", "True"), "first": "True", "declared": True}, {**SIZE, "default": "2"}],
    },
    "tile": {"record": "Tile", "fields": {"rows": {**SIZE, "default": "4"}}},
    "anything": {"opaque": "annotated Any"},
    "table": {"one of": ("(8, 16)", "None"), "first": "(8, 16)", "declared": True},
    "device": {"device": ("cuda", "cpu")},
}


def live() -> Selector:
    return Selector(Call, [Candidate("k", lambda call: None, devices={"cuda", "cpu"})], op="Op", interface="face")


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_written_so(name: str) -> None:
    assert data_of(live())["fields"][name] == FIELDS[name]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_was_written_is_read_back(name: str) -> None:
    shapes = _fields(FIELDS, ())
    assert list(shapes) == sorted(FIELDS)
    again = _WRITE[type(shapes[name])](shapes[name])
    assert again == FIELDS[name]
    domain = live().domain
    here = {slot.path: (slot.sort, slot.lo, slot.hi, slot.declared) for slot in domain.fields[name].slots()}
    there = {slot.path: (slot.sort, slot.lo, slot.hi, slot.declared) for slot in shapes[name].slots()}
    assert there == here
    assert len(_READ) == len(_WRITE) == 11


def test_an_interface_is_written_so() -> None:
    data = data_of(live())
    assert {name: value for name, value in data.items() if name != "fields"} == {
        "call": "Call",
        "valid": [],
        "implementations": {"k": {"devices": ("cpu", "cuda"), "serves": []}},
    }
    recorded = selector()
    again = data_of(recorded)
    assert again["unserved"] == {"calls": ["b == 7"]}
    assert again["valid, not lifted"] == {"invalid": "reads the clock"}
    assert again["implementations"] == {
        "odd": {"devices": ("cuda",), "general": True, "not lifted": "calls len"},
        "one": {"devices": ("cuda",), "preferred over": ("two",), "archs": (80,), "serves": ["a >= 3"]},
        "two": {"devices": ("cpu", "cuda"), "serves": ["a <= 2"], "raises": ["a >= 3", "b == 7"]},
    }
    assert isinstance(recorded.valid, Predicate)
