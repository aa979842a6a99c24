"""A question over ``fields`` has the answer that the same expression has on a call."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from tileops_rules import OutsideDomain, Predicate, Range, fields
from tileops_rules.shapes import DeviceName

if TYPE_CHECKING:
    import decimal


class Mode(enum.IntEnum):
    FAST = 1
    SAFE = 2


@dataclass(frozen=True)
class Tile:
    rows: Annotated[int, Range(0, 8)] = 4
    cols: Annotated[int, Range(0, 8)] = 2


CUDA = DeviceName("cuda")


@dataclass(frozen=True)
class Call:
    k: Annotated[int, Range(-20, 20)] = 3
    m: Annotated[int, Range(-6, 6)] = 1
    eps: float = 0.5
    name: str = "plain"
    window: Optional[Annotated[int, Range(0, 9)]] = None
    scale: Optional[float] = None
    either: int | str = "s"
    shape: tuple[Annotated[int, Range(0, 9)], ...] = ()
    pair: tuple[Annotated[int, Range(0, 9)], str] = (1, "x")
    tile: Tile = Tile()
    mode: Mode = Mode.FAST
    layout: Literal["nhd", 7] = "nhd"
    arch: int | None = 80
    device: Any = CUDA
    odd: decimal.Decimal = None  # type: ignore[assignment]


c = fields(Call)
CALLS = [
    *(Call(k=k, m=m) for k, m in itertools.product(range(-20, 21), (-3, -1, 0, 1, 2, 5))),
    *(Call(eps=v) for v in (-math.inf, -1.0, 0.0, 0.25, 0.5, 1.0, math.inf, math.nan)),
    *(Call(name=v) for v in ("", "x", "y")),
    *(Call(window=v) for v in (None, 0, 3, 4, 9)),
    *(Call(scale=v) for v in (None, 0.0, 0.5, 2.0, math.nan)),
    *(Call(either=v) for v in ("s", "x", 0, 3)),
    *(Call(shape=v) for v in ((), (0,), (3,), (3, 4), (4, 3, 1))),
    *(Call(pair=v) for v in ((0, "x"), (3, "y"))),
    *(Call(tile=Tile(rows, cols)) for rows, cols in ((0, 0), (4, 4), (8, 2))),
    *(Call(mode=mode, layout=layout) for mode in Mode for layout in ("nhd", 7)),
    *(Call(arch=arch) for arch in (80, 86, 90)),
    Call(device=DeviceName("cpu"), arch=None),
]


def isin(field: Any, *values: Any) -> Any:
    return field.isin(values) if hasattr(field, "isin") else field in values


def length(field: Any) -> Any:
    return len(field) if isinstance(field, tuple) else field.length


def nan(field: Any) -> Any:
    return math.isnan(field) if isinstance(field, float) else field.is_nan()


ASKED: list[Callable[[Any], Any]] = [
    lambda c: c.k + 3 > 5,
    lambda c: 3 + c.k > 5,
    lambda c: c.k + c.m > 5,
    lambda c: c.k - 3 > 5,
    lambda c: 3 - c.k > 5,
    lambda c: c.k - c.m > 5,
    lambda c: c.k * 3 > 5,
    lambda c: 3 * c.k > 5,
    lambda c: c.k * c.m > 5,
    lambda c: c.k // 3 == 2,
    lambda c: 20 // c.k == 6,
    lambda c: c.k // c.m == 2,
    lambda c: c.k // c.m + 1 == 3,
    lambda c: 20 // (c.k // c.m) == 3,
    lambda c: c.k % 3 == 2,
    lambda c: 20 % c.k == 2,
    lambda c: c.k % c.m == 1,
    lambda c: c.k % c.m != 1,
    lambda c: c.k // c.m < c.k % c.m,
    lambda c: c.k // c.m != c.k % c.m,
    lambda c: c.k // c.m > 3,
    lambda c: c.k // c.m > 1.5,
    lambda c: isin(c.k // c.m, 1, 2),
    lambda c: -(c.k // c.m) == 2,
    lambda c: abs(c.k // c.m) == 2,
    lambda c: (c.k // c.m).bit_length() == 2,
    lambda c: -c.k > 2,
    lambda c: abs(c.k) <= 3,
    lambda c: c.k.bit_length() == 2,
    lambda c: c.k < c.m,
    lambda c: c.k <= c.m,
    lambda c: c.k == c.m,
    lambda c: c.k != c.m,
    lambda c: c.k >= c.m,
    lambda c: c.k > c.m,
    lambda c: c.k < 3,
    lambda c: c.k <= 3,
    lambda c: c.k == 3,
    lambda c: c.k != 3,
    lambda c: c.k >= 3,
    lambda c: c.k > 3,
    lambda c: c.k < 2.5,
    lambda c: c.k == 3.0,
    lambda c: c.k != 3.0,
    lambda c: c.k != 2.5,
    lambda c: c.k >= math.inf,
    lambda c: c.k == True,  # noqa: E712 - a question
    lambda c: isin(c.k, 1, 3, 5),
    lambda c: c.eps < 0.5,
    lambda c: c.eps <= 0.5,
    lambda c: c.eps == 0.5,
    lambda c: c.eps != 0.5,
    lambda c: c.eps >= 0.5,
    lambda c: c.eps > 0.5,
    lambda c: c.eps == 1,
    lambda c: c.eps == math.nan,
    lambda c: nan(c.eps),
    lambda c: c.name == "x",
    lambda c: c.name != "x",
    lambda c: isin(c.name, "x", "y"),
    lambda c: c.window == None,  # noqa: E711 - a question
    lambda c: c.window != None,  # noqa: E711
    lambda c: c.window == 3,
    lambda c: c.window != 3,
    lambda c: c.window < 3,
    lambda c: c.window <= 3,
    lambda c: c.window >= 3,
    lambda c: c.window > 3,
    lambda c: c.scale == 0.5,
    lambda c: c.scale < 0.5,
    lambda c: c.scale >= 0.5,
    lambda c: c.either == 3,
    lambda c: c.either == "x",
    lambda c: c.either != "x",
    lambda c: c.either < 3,
    lambda c: length(c.shape) == 2,
    lambda c: c.shape[0] == 3,
    lambda c: c.shape[1] < c.shape[0],
    lambda c: c.pair[0] >= 3,
    lambda c: c.pair[1] == "y",
    lambda c: c.tile.rows == c.tile.cols,
    lambda c: c.tile.rows * c.tile.cols > 8,
    lambda c: c.mode == Mode.FAST,
    lambda c: c.mode != Mode.FAST,
    lambda c: isin(c.mode, Mode.SAFE),
    lambda c: c.mode < Mode.SAFE,
    lambda c: c.mode <= 1,
    lambda c: c.mode >= Mode.SAFE,
    lambda c: c.mode > 1,
    lambda c: c.layout == 7,
    lambda c: c.layout == "nhd",
    lambda c: c.layout == "hnd",
    lambda c: isin(c.layout, 7, "other"),
    lambda c: c.arch >= 86,
    lambda c: c.arch > 86,
    lambda c: c.arch < 86,
    lambda c: c.arch <= 86,
    lambda c: c.arch == 90,
    lambda c: c.arch == None,  # noqa: E711
    lambda c: c.device.type == "cuda",
    lambda c: c.device.type != "cuda",
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"line {asked.__code__.co_firstlineno}")
def test_a_question_has_the_answer_of_its_expression(asked: Callable[[Any], Any]) -> None:
    question = asked(c)
    assert isinstance(question, Predicate)
    answers = set()
    for call in CALLS:
        try:
            expected = bool(asked(call))
        except (ZeroDivisionError, TypeError, IndexError):
            expected = False  # a question without an answer does not hold
        answers.add(expected)
        try:
            found = question(call)
        except (ZeroDivisionError, OutsideDomain):
            found = False
        assert found is expected, call
    assert answers == {True, False} or asked(c).expr.kind == "truth"


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (lambda: bool(c.k), TypeError, "the field k has no truth value in a question"),
        (lambda: bool(c.tile), TypeError, "the field tile has no truth value in a question"),
        (lambda: c.k < "x", TypeError, "k cannot be compared with 'x': compare it with a constant of its own kind"),
        (lambda: c.k == None, TypeError, "k cannot be compared with None"),  # noqa: E711
        (lambda: c.k == c.eps, TypeError, "k cannot be compared with <field eps>"),
        (lambda: c.k != "x", TypeError, "k cannot be compared with 'x'"),
        (lambda: c.k + 1.5, TypeError, "unsupported operand"),
        (lambda: c.k // 0, ZeroDivisionError, "k is divided by 0"),
        (lambda: c.k % 0, ZeroDivisionError, "k is divided by 0"),
        (lambda: c.eps < "x", TypeError, "eps cannot be compared with 'x'"),
        (lambda: c.eps < c.k, TypeError, "eps cannot be compared with <field k>"),
        (lambda: c.eps == 2**60 + 1, TypeError, "eps cannot be compared with 1152921504606846977"),
        (lambda: c.name == 3, TypeError, "name cannot be compared with 3"),
        (lambda: c.mode == c.k, TypeError, "mode cannot be compared with <field k>"),
        (lambda: c.mode < c.k, TypeError, "mode cannot be compared with <field k>"),
        (lambda: c.either == 1.5, TypeError, "either cannot be compared with 1.5"),
        (lambda: c.tile.depth, AttributeError, "tile has no part 'depth': it has rows, cols"),
        (lambda: c.tile.length, AttributeError, "tile has no part 'length'"),
        (lambda: c.pair.length, AttributeError, "pair has no part 'length': it has 0, 1"),
        (lambda: c.nothing, AttributeError, "Call has no field 'nothing': it has k, m, eps"),
        (lambda: c.odd, TypeError, "odd is annotated"),
        (lambda: fields(int), TypeError, "is no dataclass"),
    ],
)
def test_what_no_question_can_be_is_said(asked: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match="(?s).*" + text.replace("(", "[(]")):
        asked()


def test_fields_show_their_names_and_can_be_kept_in_sets() -> None:
    assert repr(c.k) == "<field k>"
    assert repr(c.k + 1) == "<field k + 1>"
    assert repr(c.eps) == "<field eps>"
    assert repr(c.device.type) == "<field device.type>"
    assert dir(c) == [*sorted(Call.__dataclass_fields__)]
    for field in (c.k, c.eps, c.name, c.mode, c.window, c.tile):
        assert len({field, field}) == 1


def test_a_value_that_an_optional_field_never_has_is_asked_of_its_other_kind() -> None:
    assert str(c.window == 99) == "window.type == 'int' & window == 99"
    assert str(c.window > 99) == "window.type == 'int' & window >= 100"
    assert str(c.scale >= 3) == "scale.type == 'float' & scale >= 3.0"
    assert not (c.window == 99)(Call(window=9))


def test_the_same_divisor_is_asked_about_once() -> None:
    assert str(c.k // c.m + c.k % c.m == 3) == "m != 0 & (k % m) + (k // m) == 3"
    assert str(c.k // c.m == c.k % c.m).startswith("m != 0 & ")
    assert str(c.k // 3 == 1) == "k >= 3 & k <= 5"
    assert str(20 // (c.k // c.m) == 1) == "m != 0 & k // m != 0 & 20 // (k // m) == 1"
