"""``field=value`` texts become calls; places, targets and devices are read without a command line around them."""

from __future__ import annotations

import enum
import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import domain_of
from tileops_rules.shapes import DeviceName
from tileops_solver.calls import ValueProblem, accepted_fields, call_from, completed
from tileops_solver.places import class_place, from_import_root, place_of
from tileops_solver.targets import TargetError, named, op_classes, selector_of, with_plugins


class Mode(enum.Enum):
    FAST = "quick"
    SAFE = "slow"


@dataclass(frozen=True)
class Tile:
    rows: int = 16
    cols: int = 4


@dataclass(frozen=True)
class Call:
    n: int = 1
    k: Annotated[int, Range(0, 9)] = 2
    eps: float = 0.5
    name: str = "plain"
    mode: Mode = Mode.SAFE
    layout: Literal["nhd", 7] = "nhd"
    dtype: Annotated[str, OneOf("f16", "f32")] = "f16"
    flag: bool = False
    window: int | None = None
    either: int | str = 0
    scale: float | None = None
    only: Literal["x"] | None = None
    shape: tuple[int, ...] = ()
    pair: tuple[int, int] = (1, 2)
    tile: Tile = Tile()
    device: Any = None
    arch: int | None = None
    sm_count: int | None = None
    smem_budget: int | None = None


DOMAIN = domain_of(Call)


def read(*texts: str) -> Call:
    call: Call = call_from(DOMAIN, texts)
    return call


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("n=12", "n", 12),
        (" n = 12 ", "n", 12),
        ("n=-3", "n", -3),
        ("n=99999999999999", "n", 99999999999999),
        ("k=70", "k", 70),
        ("eps=0.25", "eps", 0.25),
        ("eps=3", "eps", 3.0),
        ("eps=-inf", "eps", -math.inf),
        ("eps=inf", "eps", math.inf),
        ("name=x", "name", "x"),
        ("name='x y'", "name", "x y"),
        ("name=3", "name", "3"),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
        ("mode=FAST", "mode", Mode.FAST),
        ("mode=Mode.FAST", "mode", Mode.FAST),
        ("layout=nhd", "layout", "nhd"),
        ("layout='nhd'", "layout", "nhd"),
        ("layout=7", "layout", 7),
        ("dtype=f32", "dtype", "f32"),
        ("flag=True", "flag", True),
        ("window=None", "window", None),
        ("window=5", "window", 5),
        ("either=5", "either", 5),
        ("either=five", "either", "five"),
        ("scale=2", "scale", 2.0),
        ("scale=None", "scale", None),
        ("only=x", "only", "x"),
        ("only=None", "only", None),
        ("shape=(2, 3)", "shape", (2, 3)),
        ("shape=[2, 3]", "shape", (2, 3)),
        ("shape=()", "shape", ()),
        ("pair=(3, 4)", "pair", (3, 4)),
        ("tile.rows=8", "tile", Tile(8, 4)),
        ("device=cuda", "device", DeviceName("cuda")),
        ("device=cuda:1", "device", DeviceName("cuda")),
        ("device='cpu'", "device", DeviceName("cpu")),
        ("device=None", "device", None),
        ("arch=90", "arch", 90),
        ("arch=75", "arch", 75),
        ("arch=None", "arch", None),
    ],
)
def test_a_text_is_read_as_its_field_has_values(text: str, field: str, value: Any) -> None:
    if "torch" in sys.modules and field == "device" and value is not None:
        pytest.skip("torch is loaded: devices are its own")
    found = getattr(read(text), field)
    assert found == value
    assert type(found) is type(value)


def test_several_texts_make_one_call() -> None:
    assert read("tile.rows=8", "n=3", "tile.cols=2") == Call(n=3, tile=Tile(8, 2))
    assert read() == Call()
    assert math.isnan(read("eps=nan").eps)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["n"], "'n' is not field=value; the fields are\n  n: int in 0.."),
        (["x=3"], "Call has no field x; the fields are\n  n: int"),
        (["x=3", "y=4"], "Call has no field x, y;"),
        (["n=1", "n=2"], "n is stated twice: write it once"),
        (["tile.rows=1", "tile.rows=2"], "tile.rows is stated twice"),
        (["tile=1", "tile.rows=2"], "'tile.rows=2' speaks of a part of tile, which is stated as a whole"),
        (["tile.depth=1"], "Tile has no field depth: it has rows, cols"),
        (["n.part=1"], "n has no parts to state: write n=value"),
        (["n=x"], "n=x cannot be read: write a Python literal of its type (int in 0.."),
        (["n=1.5"], "n=1.5 cannot be read: write a Python literal of its type"),
        (["n=True"], "n=True cannot be read"),
        (["eps=x"], "eps=x cannot be read: write a number (any float)"),
        (["eps=True"], "eps=True cannot be read: write a number"),
        (["tile.rows=x"], "tile.rows=x cannot be read"),
        (["mode=slow"], "mode=slow is outside the domain of mode, which is one of <Mode.SAFE: 'slow'>, <Mode.FAST"),
        (["layout=8"], "layout=8 is outside the domain of layout, which is one of 'nhd', 7"),
        (["flag=1"], "flag=1 is outside the domain of flag"),
        (["only=y"], "only=y is outside the domain of only"),
        (["window=x"], "window=x cannot be read: write a Python literal of its type (int in 0.."),
        (["scale=x"], "scale=x cannot be read: write a number"),
        (["shape=3"], "shape=3 cannot be read: write a tuple, as in (4, 8)"),
        (["pair=x"], "pair=x cannot be read: write a tuple, as in (4, 8)"),
    ],
)
def test_what_cannot_be_read_is_said(texts: list[str], words: str) -> None:
    with pytest.raises(ValueProblem) as caught:
        read(*texts)
    assert words in str(caught.value)


@dataclass(frozen=True)
class Optionally:
    none_first: None | Annotated[int, Range(0, 3)] = None  # noqa: RUF036 - the order is what is tested


def test_of_what_may_be_none_it_is_said_what_else_can_be_read() -> None:
    with pytest.raises(ValueProblem) as caught:
        call_from(domain_of(Optionally), ["none_first=x"])
    assert str(caught.value) == ("none_first=x cannot be read: write a Python literal of its type (int in 0..3)")


@dataclass(frozen=True)
class Strict:
    n: int
    m: int = 1

    def __post_init__(self) -> None:
        if self.m > 5:
            raise LookupError("too many")


def test_a_class_that_refuses_is_quoted() -> None:
    with pytest.raises(ValueProblem, match=r"Strict cannot be built from what is stated \(.*'n'.*\); the fields are"):
        call_from(domain_of(Strict), ["m=2"])
    with pytest.raises(ValueProblem, match="Strict cannot be built from what is stated: too many"):
        call_from(domain_of(Strict), ["n=1", "m=6"])


def test_every_field_is_listed_with_what_it_takes() -> None:
    lines = accepted_fields(DOMAIN).splitlines()
    assert len(lines) == len(DOMAIN.fields)
    assert lines[:4] == ["  n: int in 0..1099511627776", "  k: int in 0..9", "  eps: any float", "  name: any string"]
    assert "  shape: tuple[int, ...]" in lines
    assert "  tile: Tile" in lines
    assert "  window: int | None" in lines


def selector_on(spec: Any) -> Selector:
    return Selector(spec, [Candidate("one", lambda call: None)])


def test_a_call_that_states_an_arch_is_on_a_usual_card_of_it() -> None:
    selector = selector_on(Call)
    full = completed(selector, Call(arch=90))
    facts = KNOWN_ARCHS[90]
    assert (full.sm_count, full.smem_budget) == (facts.sm_count, facts.smem_budget)
    assert full.device.type == "cuda"
    kept = completed(selector, Call(arch=90, sm_count=7, device=DeviceName("cuda")))
    assert (kept.sm_count, kept.smem_budget) == (7, facts.smem_budget)
    assert completed(selector, Call(arch=75)).device.type == "cuda"
    assert completed(selector, Call(arch=75)).sm_count is None
    for call in (Call(), Call(device=DeviceName("cpu"))):
        assert completed(selector, call) is call
    assert completed(selector_on(Strict), Strict(1)) == Strict(1)
    whole = completed(selector, full)
    assert whole is full


# ---------------------------------------------------------------------------------------------- places and targets


class Face:
    request = Call


class Kernel(Face):
    @classmethod
    def refusal(cls, call: Call) -> None:
        return None


class Inheriting(Kernel):
    pass


def here(line: int) -> str:
    return from_import_root(f"{__file__}:{line}")


def line_of(words: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(words))


def test_a_place_is_that_of_the_class_and_else_of_its_refusal() -> None:
    assert class_place(Kernel, "x:1") == here(line_of("class Kernel(Face)"))
    assert class_place(Inheriting, "x:1") == here(line_of("class Inheriting(Kernel)"))
    made = type("Made", (Kernel,), {"refusal": Kernel.__dict__["refusal"], "__module__": "no.such.module"})
    assert class_place(made, "x:1") == here(Kernel.refusal.__code__.co_firstlineno)
    bare = type("Bare", (), {"__module__": "no.such.module"})
    assert class_place(bare, "there:3") == "there:3"
    op = type("Op", (), {"kernel_types": {"kernel": Kernel}, "interfaces": {"face": Face}})
    assert place_of(Selector.of(op, "face"), "kernel") == class_place(Kernel, "x:1")
    by_hand = Selector(Call, [Candidate("kernel", Kernel.refusal)])
    assert place_of(by_hand, "kernel") == here(Kernel.refusal.__code__.co_firstlineno)


def test_the_line_that_python_keeps_of_a_class_is_its_first() -> None:
    class Moved:
        __firstlineno__ = 4321

    assert class_place(Moved, "x:1") == here(4321)


def test_a_file_is_seen_from_the_folder_of_its_package(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    assert from_import_root(f"{inner / 'part.py'}:7") == "outer/inner/part.py:7"
    assert from_import_root(f"{tmp_path / 'alone.py'}:7") == "alone.py:7"
    assert from_import_root("<string>:7") == "<string>:7"
    assert from_import_root("near/by.py:7") == "near/by.py:7"


OPS = """
class Face:
    request = int
class Kernel(Face):
    pass
class Op:
    kernel_types = {"kernel": Kernel}
    interfaces = {"face": Face}
class Another(Op):
    pass
class Empty:
    kernel_types = {}
    interfaces = {"face": Face}
class Half:
    kernel_types = {"kernel": Kernel}
also = Op
class WithRegistered(Op):
    @classmethod
    def with_registered(cls):
        return "view"
"""


def test_the_ops_of_a_module_and_of_what_is_below_it_come_once_and_sorted(op_module: Callable[..., Path]) -> None:
    op_module(
        {"reading_ops.first": OPS, "reading_ops.second": "from reading_ops.first import Op\nclass Aa(Op): pass\n"}
    )
    found = op_classes(named("reading_ops"))
    assert [op.__name__ for op in found] == ["Aa", "Another", "Op", "WithRegistered"]
    op = named("reading_ops.first:Op")
    assert op_classes(op) == (op,)
    assert op_classes(op()) != ()
    assert with_plugins(named("reading_ops.first:WithRegistered")) == ["view"]
    assert with_plugins(op) == [op]
    assert isinstance(named("reading_ops.first"), types.ModuleType)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("reading_none", "reading_none cannot be imported: ModuleNotFoundError"),
        (
            "reading_more:Nothing",
            "reading_more:Nothing is no op class, which has kernel_types and interfaces: reading_more has nothing of "
            "that name; it has Another, Empty, Op, WithRegistered, also",
        ),
        ("reading_more:Half", "reading_more has <class 'reading_more.Half'> there; it has"),
        ("reading_more:Op.interfaces", "is no op class"),
        ("reading_exits", "reading_exits cannot be imported: SystemExit: 3"),
    ],
)
def test_a_target_that_cannot_be_read_is_said(op_module: Callable[..., Path], target: str, words: str) -> None:
    op_module(reading_more=OPS, reading_exits="raise SystemExit(3)\n")
    with pytest.raises(TargetError) as caught:
        named(target)
    assert words in str(caught.value)


def test_an_interface_that_an_op_lacks_is_said(op_module: Callable[..., Path]) -> None:
    op_module(reading_faces=OPS)
    op = named("reading_faces:Op")
    for each in (op, op()):
        with pytest.raises(TargetError, match="Op has no interface 'none': it has face"):
            selector_of(each, "none")
    with pytest.raises(TargetError, match=r"nothing can be chosen: .*is no dataclass"):
        selector_of(op, "face")
    with pytest.raises(TargetError, match="3 is no op: give an op class or object"):
        selector_of(3, "face")
    with pytest.raises(TargetError, match="3 cannot be audited: give an op class"):
        op_classes(3)
