"""What a field ranges over, read off its annotation, and the way from a call to slot values and back."""

from __future__ import annotations

import dataclasses
import enum
import math
import pkgutil
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NewType, Optional, Union

import pytest
import tileops_rules
from tileops_rules import NotLifted, OneOf, Range, lift
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import Domain, Outside, domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.shapes import LARGEST_INT, DeviceName, Slot, nearest_inside

if TYPE_CHECKING:
    import fractions

    from nowhere import Unknown


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


Count = NewType("Count", int)


@dataclass(frozen=True)
class Tile:
    rows: int = 16
    cols: Annotated[int, Range(1, 8)] = 4


@dataclass(frozen=True)
class Deep:
    tile: Tile = Tile(2, 3)
    scale: float | None = None


@dataclass(frozen=True)
class Call:
    plain: int = 1
    negative: int = -5
    huge: int = 2**50
    declared: Annotated[int, Range(-3, 9)] = 4
    from_two: Annotated[int, Range(lo=2)] = 4
    to_nine: Annotated[int, Range(hi=9)] = 4
    beyond: Annotated[int, Range(5, 9)] = 2
    counted: Count = Count(3)
    final: Final[int] = 7  # type: ignore[misc]
    flag: bool = True
    colour: Colour = Colour.BLUE
    level: Level = Level.HIGH
    bits: Bits = Bits.ONE
    layout: Literal["a", 3, True] = 3
    dtype: Annotated[str, OneOf("f16", "f32")] = "f32"
    nothing: None = None
    eps: float = 1e-5
    ratio: Annotated[float, Range(0.5, 2)] = 1.0
    above: Annotated[float, Range(lo=0.0)] = 0.0
    text: str = "plain"
    window: Optional[int] = None
    window_too: int | None = 3
    choice: Union[Literal["x"], None] = None
    either: int | str = "s"
    narrow: Annotated[int, Range(0, 3)] | Annotated[str, OneOf("x", "y")] | None = "y"
    shape: tuple[int, ...] = (2, 3)
    bare: tuple = ()
    bare_too: typing.Tuple = ()
    pair: tuple[int, str] = (1, "x")
    none_at_all: tuple[()] = ()
    sizes: Annotated[tuple[int, ...], Range(1, 4)] = ()
    tile: Tile = Tile()
    deep: Deep = Deep()
    unresolved: Unknown = 3  # type: ignore[valid-type]
    unknown: Unknown = None  # type: ignore[valid-type]
    fraction: fractions.Fraction = None  # type: ignore[assignment]
    function: Callable[[], int] = len  # type: ignore[assignment]
    arch: int = 90
    device: str = "cuda"
    kept: int = field(default=3, init=False)
    factory: tuple[int, int] = field(default_factory=lambda: (4, 5))


@pytest.fixture(scope="module")
def domain() -> Domain:
    return domain_of(Call)


BIG = LARGEST_INT
EXPECTED = {
    ("plain",): ("int", 0, BIG, False, 1),
    ("negative",): ("int", -5, BIG, False, -5),
    ("huge",): ("int", 0, 2**50, False, 2**50),
    ("declared",): ("int", -3, 9, True, 4),
    ("from_two",): ("int", 2, BIG, True, 4),
    ("to_nine",): ("int", 0, 9, True, 4),
    ("beyond",): ("int", 5, 9, True, 2),
    ("counted",): ("int", 0, BIG, False, 3),
    ("final",): ("int", 0, BIG, False, 7),
    ("unresolved",): ("int", 0, BIG, False, 3),
    ("flag",): ("finite", (True, False), True),
    ("colour",): ("finite", (Colour.BLUE, Colour.RED), True),
    ("level",): ("finite", (Level.HIGH, Level.LOW), True),
    ("layout",): ("finite", (3, "a", True), True),
    ("dtype",): ("finite", ("f32", "f16"), True),
    ("nothing",): ("finite", (None,), True),
    ("choice",): ("finite", (None, "x"), True),
    ("eps",): ("float", None, None, False, 1e-5),
    ("ratio",): ("float", 0.5, 2, True, 1.0),
    ("above",): ("float", 0.0, None, True, 0.0),
    ("text",): ("str", None, None, False, "plain"),
    ("window", "type"): ("finite", ("None", "int"), True),
    ("window",): ("int", 0, BIG, False, None),
    ("window_too", "type"): ("finite", ("int", "None"), True),
    ("window_too",): ("int", 0, BIG, False, 3),
    ("either", "type"): ("finite", ("str", "int"), True),
    ("either", "<int>"): ("int", 0, BIG, False, None),
    ("either", "<str>"): ("str", None, None, False, "s"),
    ("narrow", "type"): ("finite", ("str", "None", "int"), True),
    ("narrow", "<int>"): ("int", 0, 3, True, None),
    ("narrow", "<str>"): ("finite", ("y", "x"), True),
    ("shape", "len"): ("finite", (2, 0, 1, 3, 4, 5, 6, 7, 8), False),
    ("bare", "len"): ("finite", (0, 1, 2, 3, 4, 5, 6, 7, 8), False),
    ("bare_too", "len"): ("finite", (0, 1, 2, 3, 4, 5, 6, 7, 8), False),
    ("sizes", "len"): ("finite", (0, 1, 2, 3, 4, 5, 6, 7, 8), False),
    ("pair", 0): ("int", 0, BIG, False, 1),
    ("pair", 1): ("str", None, None, False, "x"),
    ("tile", "rows"): ("int", 0, BIG, False, 16),
    ("tile", "cols"): ("int", 1, 8, True, 4),
    ("deep", "tile", "rows"): ("int", 0, BIG, False, 16),
    ("deep", "tile", "cols"): ("int", 1, 8, True, 4),
    ("deep", "scale", "type"): ("finite", ("None", "float"), True),
    ("deep", "scale"): ("float", None, None, False, None),
    ("arch",): ("finite", (90, *(a for a in sorted(KNOWN_ARCHS) if a != 90)), False),
    ("device", "type"): ("finite", ("cuda", "cpu"), False),
    ("factory", 0): ("int", 0, BIG, False, 4),
    ("factory", 1): ("int", 0, BIG, False, 5),
} | {
    (name, i): ("int", lo, hi, declared, default)
    for name, lo, hi, declared, defaults in (
        ("shape", 0, BIG, False, (2, 3)),
        ("bare", 0, BIG, False, ()),
        ("bare_too", 0, BIG, False, ()),
        ("sizes", 1, 4, True, ()),
    )
    for i in range(8)
    for default in [defaults[i] if i < len(defaults) else None]
}


def told(slot: Slot) -> tuple[Any, ...]:
    if slot.sort == "finite":
        return slot.sort, slot.values, slot.declared
    return slot.sort, slot.lo, slot.hi, slot.declared, slot.default


def test_every_annotation_gives_the_slots_that_it_says(domain: Domain) -> None:
    assert {path: told(slot) for path, slot in domain.slots.items()} == EXPECTED
    assert [type(value) for value in domain.slots[("layout",)].values] == [int, str, bool]


def test_fields_come_in_their_order_and_those_that_no_call_can_state_are_left_out(domain: Domain) -> None:
    assert list(domain.fields) == [f.name for f in dataclasses.fields(Call) if f.init]
    assert list(domain.slots)[:3] == [("plain",), ("negative",), ("huge",)]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bits", "annotated Bits"),
        ("unknown", "'Unknown', which does not resolve"),
        ("fraction", "annotated 'fractions.Fraction'"),
        ("function", "annotated collections.abc.Callable"),
    ],
)
def test_a_field_that_no_question_can_speak_of_says_why(domain: Domain, name: str, why: str) -> None:
    shape = domain.fields[name]
    assert list(shape.slots()) == []
    if name != "fraction":
        assert why in shape.why
    assert shape.build({}) is getattr(Call(), name)


def test_the_default_call_is_taken_apart_and_put_together_again(domain: Domain) -> None:
    values = domain.read(Call(beyond=5))
    assert values[("shape", "len")] == 2
    assert (values[("shape", 0)], values[("shape", 1)]) == (2, 3)
    assert ("shape", 2) not in values
    assert values[("window", "type")] == "None"
    assert ("window",) not in values
    assert (values[("window_too", "type")], values[("window_too",)]) == ("int", 3)
    assert (values[("either", "type")], values[("either", "<str>")]) == ("str", "s")
    assert values[("deep", "tile", "cols")] == 3
    assert domain.build(values) == Call(beyond=5)
    assert type(domain.build(values).layout) is int


def test_a_call_that_states_nothing_has_defaults_and_else_what_is_nearest_to_nothing(domain: Domain) -> None:
    complete = domain.complete({})
    assert complete[("beyond",)] == 5, "a default outside the domain does not count"
    assert complete[("window",)] == 0
    assert complete[("ratio",)] == 1.0
    assert complete[("sizes", 0)] == 1
    assert complete[("either", "<str>")] == "s"
    assert domain.complete({("plain",): 12})[("plain",)] == 12
    built = domain.build({("plain",): 12, ("shape", "len"): 3, ("window", "type"): "int", ("either", "type"): "int"})
    assert (built.plain, built.shape, built.window, built.either) == (12, (2, 3, 0), 0, 0)


@pytest.mark.parametrize(
    ("slot", "nearest"),
    [
        (Slot(("n",), "int", 3, 9), 3),
        (Slot(("n",), "int", -9, -3), -3),
        (Slot(("n",), "int", -9, 9), 0),
        (Slot(("n",), "int", 0, 9, default=7), 7),
        (Slot(("n",), "int", 0, 9, default=70), 0),
        (Slot(("f",), "float"), 0.0),
        (Slot(("f",), "float", 0.5, None), 0.5),
        (Slot(("f",), "float", None, -2), -2.0),
        (Slot(("f",), "float", -1, 1, default=0.25), 0.25),
        (Slot(("k",), "finite", values=("b", "a")), "b"),
        (Slot(("s",), "str"), ""),
        (Slot(("s",), "str", default="x"), "x"),
    ],
    ids=str,
)
def test_the_value_nearest_to_nothing_is_inside(slot: Slot, nearest: Any) -> None:
    found = nearest_inside(slot)
    assert found == nearest
    assert type(found) is type(nearest)
    assert slot.holds(found)


@pytest.mark.parametrize(
    ("slot", "inside", "outside"),
    [
        (Slot(("n",), "int", -2, 3), [-2, 0, 3], [-3, 4, True, 1.0, "1", None]),
        (Slot(("k",), "finite", values=(1, "a", None)), [1, "a", None], [True, 1.0, "b", 2]),
        (Slot(("f",), "float"), [0.0, -math.inf, math.nan], [0, True, "0"]),
        (Slot(("f",), "float", 0.5, 2.0), [0.5, 2.0, 1.0], [0.25, 2.5, math.nan, 1]),
        (Slot(("f",), "float", 0.5, None), [0.5, math.inf], [0.25, math.nan, -math.inf]),
        (Slot(("f",), "float", None, 2.0), [2.0, -math.inf], [2.5, math.nan, math.inf]),
        (Slot(("s",), "str"), ["", "x"], [None, 3, b"x"]),
    ],
    ids=str,
)
def test_a_slot_holds_what_is_of_its_type_and_in_its_range(slot: Slot, inside: list[Any], outside: list[Any]) -> None:
    assert [value for value in inside if not slot.holds(value)] == []
    assert [value for value in outside if slot.holds(value)] == []


@pytest.mark.parametrize(
    ("slot", "text"),
    [
        (Slot(("n",), "int", -2, 3), "int in -2..3"),
        (Slot(("k",), "finite", values=("a", 2)), "one of 'a', 2"),
        (Slot(("k",), "finite", values=tuple(range(12))), f"one of {', '.join(map(str, range(12)))}"),
        (Slot(("k",), "finite", values=tuple(range(13))), f"one of {', '.join(map(str, range(12)))}, ... (13)"),
        (Slot(("f",), "float"), "any float"),
        (Slot(("f",), "float", 0.5, None), "float in 0.5..None"),
        (Slot(("f",), "float", None, 2), "float in None..2"),
        (Slot(("s",), "str"), "any string"),
    ],
    ids=str,
)
def test_a_domain_reads_as_it_is(slot: Slot, text: str) -> None:
    assert str(slot) == text


@pytest.mark.parametrize(
    ("change", "slot", "enforced"),
    [
        ({"plain": -1}, "plain", False),
        ({"plain": 1.0}, "plain", False),
        ({"declared": 10}, "declared", True),
        ({"declared": "x"}, "declared", True),
        ({"declared": True}, "declared", False),  # True is a number inside: Python decides, nobody complains
        ({"ratio": 3.0}, "ratio", True),
        ({"ratio": 1}, "ratio", False),
        ({"ratio": 3}, "ratio", True),
        ({"above": -1}, "above", True),
        ({"above": -0.5}, "above", True),
        ({"eps": 1}, "eps", False),
        ({"dtype": "f64"}, "dtype", True),
        ({"layout": 1}, "layout", True),
        ({"shape": [1]}, "shape.len", False),
        ({"shape": (1,) * 9}, "shape.len", False),
        ({"shape": (1, -1)}, "shape[1]", False),
        ({"pair": (1,)}, "pair", False),
        ({"pair": [1, "x"]}, "pair", False),
        ({"pair": (1, 2)}, "pair[1]", False),
        ({"tile": Deep()}, "tile", False),
        ({"tile": Tile(cols=9)}, "tile.cols", True),
        ({"window": -1}, "window", False),
        ({"window": "x"}, "window.type", True),
        ({"either": 1.5}, "either.type", True),
        ({"either": -1}, "either", False),
        ({"device": "tpu"}, "device.type", False),
        ({"device": 3}, "device.type", False),
        ({"arch": 75}, "arch", False),
    ],
    ids=str,
)
def test_a_value_outside_names_its_slot_and_is_enforced_where_it_was_declared(
    domain: Domain, change: dict[str, Any], slot: str, enforced: bool
) -> None:
    with pytest.raises(Outside) as caught:
        domain.read(dataclasses.replace(Call(beyond=5), **change))
    assert (caught.value.slot.name, caught.value.enforced) == (slot, enforced)
    assert caught.value.args == (caught.value.slot, caught.value.value)


def test_devices_are_read_by_their_type(domain: Domain) -> None:
    for device in ("cuda:1", "cuda", DeviceName("cuda")):
        assert domain.read(dataclasses.replace(Call(beyond=5), device=device))[("device", "type")] == "cuda"
    assert DeviceName("cuda") == DeviceName("cuda") != DeviceName("cpu")
    assert hash(DeviceName("cuda")) == hash(DeviceName("cuda"))
    assert repr(DeviceName("cuda")) == "device('cuda')"
    assert DeviceName("cuda").index is None


def test_a_whole_number_as_default_of_a_float_is_a_float() -> None:
    made = dataclasses.make_dataclass("Made", [("f", float, field(default=3)), ("g", float, field(default=None))])
    assert [repr(slot.default) for slot in domain_of(made).slots.values()] == ["3.0", "None"]


def test_device_types_and_archs_are_those_that_are_asked_about() -> None:
    domain = domain_of(Call, frozenset({"xpu", "cuda", "acl"}), frozenset({77}))
    assert domain.slots[("device", "type")].values == ("cuda", "acl", "xpu")
    assert set(domain.slots[("arch",)].values) == {77, *KNOWN_ARCHS}
    assert domain is domain_of(Call, frozenset({"acl", "cuda", "xpu"}), frozenset({77}))
    assert domain is not domain_of(Call)


@dataclass(frozen=True)
class OnDevice:
    device: Any = None
    arch: int | None = None
    sm_count: int | None = None
    smem_budget: Annotated[int, Range(0, 9)] = 3
    n: int = 0


def test_device_facts_are_none_exactly_off_cuda() -> None:
    domain = domain_of(OnDevice)
    for device in ("cuda", "cpu"):
        for arch in (None, 80):
            for count in ("None", "int"):
                values = {("device", "type"): device, ("arch",): arch, ("sm_count", "type"): count}
                fits = (arch is None) == (count == "None") == (device == "cpu")
                fits = (arch is None) == (device != "cuda") and (count == "None") == (device != "cuda")
                assert evaluate(domain.links, values) is fits
    assert str(domain_of(OnDevice, frozenset({"cpu"})).links) == "arch == None & sm_count.type == 'None'"
    assert str(domain_of(Tile).links) == "True"


def test_a_path_takes_device_facts_as_the_device_has_them() -> None:
    def refusal(call: OnDevice) -> str | None:
        if call.device.type == "cuda":
            return None if call.arch is not None and call.sm_count is not None else "never"
        return None if call.arch is None and call.sm_count is None else "never"

    def the_other_way(call: OnDevice) -> str | None:
        if call.arch is None:
            return None if call.device.type != "cuda" and call.sm_count is None else "never"
        return None if call.device.type == "cuda" and call.sm_count is not None else "never"

    for each in (refusal, the_other_way):
        rule = lift(each, OnDevice)
        assert rule.reasons == ()
        assert rule.paths == len(KNOWN_ARCHS) + 1


def test_what_was_assumed_is_said_a_line_a_slot() -> None:
    assert domain_of(Deep).assumed() == ("tile.rows: int in 0..1099511627776", "scale: any float")


def test_ranges_and_choices_equal_those_with_the_same_values() -> None:
    assert OneOf(1, 2) == OneOf(1, 2) != OneOf(2, 1)
    assert hash(OneOf(1, 2)) == hash(OneOf(1, 2))
    assert repr(OneOf(1, "a")) == "OneOf(1, 'a')"
    assert OneOf(1) != 1
    assert Range(3, 3) == Range(3, 3)
    assert Range() == Range(None, None)
    with pytest.raises(ValueError, match=r"Range\(3, 2\) holds nothing"):
        Range(3, 2)


@dataclass(frozen=True)
class Nested:
    inner: Nested | None = None
    n: int = 0


def test_a_record_within_itself_ends(domain: Domain) -> None:
    deepest = max(len([step for step in path if step == "inner"]) for path in domain_of(Nested).slots)
    assert deepest == 4


def test_a_class_that_is_no_dataclass_has_no_domain() -> None:
    with pytest.raises(TypeError, match="is no dataclass: a call spec is a frozen dataclass"):
        domain_of(int)


def test_a_type_alias_counts_as_what_it_stands_for() -> None:
    if not hasattr(typing, "TypeAliasType"):
        pytest.skip("this Python has no type statement")
    alias = typing.TypeAliasType("Alias", Annotated[int, Range(2, 3)])
    made = dataclasses.make_dataclass("Made", [("n", alias, field(default=2))], frozen=True)
    assert told(domain_of(made).slots[("n",)]) == ("int", 2, 3, True, 2)


def modules_of(package: Any) -> list[Any]:
    names = [each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [package, *(import_module(name) for name in names if not name.endswith("__main__"))]


GROWING = {"Growing", "Pool", "_Pending", "_Step"}
"""What is changed while it is worked on, and handed to nobody."""


def test_what_is_handed_out_cannot_be_changed() -> None:
    seen = 0
    for module in modules_of(tileops_rules):
        for cls in vars(module).values():
            if "__dataclass_params__" in getattr(cls, "__dict__", {}) and cls.__module__ == module.__name__:
                seen += 1
                assert cls.__dataclass_params__.frozen or cls.__name__ in GROWING, f"freeze {cls}"
    assert seen > 20


SHARED = {
    # bytes of shared memory that a block can opt in to, multiprocessors, card
    80: (166912, 108, "A100"),
    86: (101376, 84, "A40"),
    89: (101376, 142, "L40S"),
    90: (232448, 132, "H100 SXM"),
    100: (232448, 148, "B200"),
    120: (101376, 170, "RTX 5090"),
}


def test_the_table_of_archs_is_that_of_the_programming_guide() -> None:
    assert {arch: (f.smem_budget, f.sm_count, f.name) for arch, f in KNOWN_ARCHS.items()} == SHARED


@dataclass(frozen=True)
class Typed:
    type: int = 1
    rows: int = 2


@dataclass(frozen=True)
class HasTyped:
    tile: Optional[Typed] = None
    n: int = 1


def test_an_optional_record_with_a_field_named_type_is_not_asked_about() -> None:
    """The union's own question, which kind is it, would stand in the place of that field."""
    assert lift(lambda call: None if call.n > 1 else "small", HasTyped)(HasTyped(n=2)) is None
    with pytest.raises(NotLifted, match="a record with a field named type"):
        lift(lambda call: None if call.tile is None else "tiled", HasTyped)
