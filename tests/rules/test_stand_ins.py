"""Every operation on a stand-in either means what it means in Python, on every call, or is refused by its name."""

from __future__ import annotations

import enum
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from tileops_rules import NotLifted, Range, lift

if TYPE_CHECKING:
    import decimal


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


@dataclass(frozen=True)
class Tile:
    rows: Annotated[int, Range(0, 8)] = 4
    cols: Annotated[int, Range(0, 8)] = 2

    @property
    def area(self) -> int:
        return self.rows * self.cols


class Device:
    """Looks like a torch device."""

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type, self.index = type, index


CUDA = Device("cuda")


@dataclass(frozen=True)
class Call:
    k: Annotated[int, Range(-20, 20)] = 3
    m: Annotated[int, Range(0, 6)] = 1
    eps: float = 0.5
    name: str = "plain"
    window: Optional[Annotated[int, Range(0, 9)]] = None
    either: int | float = 0
    shape: tuple[Annotated[int, Range(0, 9)], ...] = ()
    pair: tuple[int, int] = (1, 2)
    tile: Tile = Tile()
    mode: Mode = Mode.FAST
    layout: Literal["nhd", 7] = "nhd"
    flag: bool = False
    device: Any = CUDA
    odd: decimal.Decimal = None  # type: ignore[assignment]


TABLE = {1: "one", 2: "two", 4: "four"}
BY_TEXT = {"x": 1, "y": 2}
PAIRS = {(1, 2): "a", (3, 4): "b"}
NESTED = {"x": {1, 2}, "y": [3, 4]}
SOME = frozenset({1, 2, 5})
TEXTS = {"x", "y"}
LIST = [10, 20, 30]
TUPLE = (10, 20, 30)
EMPTY: dict[int, int] = {}
LONG = frozenset(range(0, 130, 2))
AT_MOST = frozenset(range(64))
NAMES = {
    name: value for name, value in globals().items() if name.isupper() or name in ("Mode", "Tile", "Call", "math")
} | {"__name__": __name__}

FLOATS = [-math.inf, -1.5, -0.0, 0.0, 0.25, 0.5, 1.0, 3.0, 1e300, math.inf, math.nan]
SHAPES = [(), (0,), (3,), (3, 4), (1, 2, 3), (9,) * 8]
CALLS = {
    "k": [Call(k=k, m=m) for k, m in itertools.product(range(-20, 21), (0, 1, 2, 5))],
    "eps": [Call(eps=eps, k=k) for eps, k in itertools.product(FLOATS, (0, 1))],
    "name": [Call(name=name, k=k) for name, k in itertools.product(("", "x", "y", "xy", "plain"), (0, 1, 2))],
    "window": [Call(window=w, k=k) for w, k in itertools.product([None, *range(10)], (0, 3))],
    "either": [Call(either=v) for v in (0, 1, 7, 0.0, 0.5, math.nan)],
    "shape": [Call(shape=shape, k=k) for shape, k in itertools.product(SHAPES, (-4, 0, 1, 3))],
    "pair": [Call(pair=pair, k=k) for pair, k in itertools.product([(0, 0), (1, 2), (3, 4), (4, 3)], (1, 3, 4))],
    "tile": [Call(tile=Tile(rows, cols), k=8) for rows, cols in itertools.product((0, 1, 4, 8), (0, 2, 8))],
    "finite": [
        Call(mode=mode, layout=layout, flag=flag, k=k)
        for mode, layout, flag, k in itertools.product(Mode, ("nhd", 7), (False, True), (0, 1, 2))
    ],
    "device": [Call(device=Device(kind, 1)) for kind in ("cuda", "cpu")],
}

MEANT = {
    "k": [
        "call.k + 3 > 5", "3 + call.k > 5", "call.k + call.m > 5", "call.k + True == 3",
        "call.k - 3 > 5", "3 - call.k > 5", "call.m - call.k > 5",
        "call.k * 3 > 5", "3 * call.k > 5", "call.k * call.m > 5", "call.k * 0 == 0",
        "-call.k > 2", "+call.k > 2", "~call.k > 2", "~call.k == -4", "abs(call.k) > 3", "abs(call.k) == call.m",
        "call.k // 3 == 2", "call.k // -3 == 2", "100 // call.k == 33", "call.m // call.k == 0", "call.k // 0",
        "call.k % 3 == 2", "call.k % -3 == -2", "100 % call.k == 1", "call.m % call.k == 1", "call.k % 0",
        "divmod(call.k, 3) == (1, 2)", "divmod(100, call.k) == (33, 1)", "divmod(call.k, 0)", "divmod(1, call.k)",
        "call.k / 4 < 1.3", "call.k / 4 == 0.75", "call.k / -4 >= 0.75", "4 / call.k < 1.3", "call.k / call.m <= 1.5",
        "call.k / 3 != 1", "call.k / 3 > 1", "bool(call.k / 3)", "not call.k / 3", "call.k / 0", "0.1 < call.k / 10",
        "call.k / 4 == None", "call.k / 4 != 'x'", "call.k / 4 < math.inf", "call.k / 4 > math.nan",
        "call.k / 4 != math.nan", "call.k / 4 >= -math.inf", "call.k / 10 == 10**400", "call.k / 4 < 2**60 + 1",
        "call.k / 10 < 10**400", "call.k / 10 <= -(10**400)",
        "call.k / 10 <= 0.3", "call.k / 10 < 0.3", "call.k / 10 == 0.3", "call.k / 3 <= 1e308 * 1.7",
        "call.k ** 2 > 50", "call.k ** 0 == 1", "call.k ** 1 == 3", "call.k ** 3 < -100", "call.k ** 8 == 6561",
        "call.k << 2 > 9", "call.k << 0 == 3", "call.k >> 1 == 3", "call.k >> 0 == 3", "call.k << -1", "call.k >> -1",
        "call.k & 7 == 5", "7 & call.k == 5", "call.k & 0 == 0", "call.k & 1", "call.k & True == 1",
        "call.k.bit_length() == 3", "call.k.conjugate() == 3", "call.k.real == 3", "call.k.imag == 0",
        "call.k.numerator == 3", "call.k.denominator == 1", "round(call.k) == 3",
        *(f"call.k {c} {v}" for c in ("<", "<=", "==", "!=", ">=", ">") for v in ("3", "2.5", "3.0", "call.m", "True")),
        "call.k == None", "call.k != None", "call.k < None", "call.k >= 'x'", "call.k == 'x'", "call.k != (1,)",
        "3 < call.k", "3 == call.k", "2.5 <= call.k", "call.k in (1, 2, 5)", "call.k in {1, 2, 5}",
        "call.k not in SOME", "call.k in TABLE", "call.k in TABLE and TABLE[call.k] == 'two'", "call.k in EMPTY",
        "TABLE.fromkeys((1, 2)) == {1: None, 2: None} and call.k > 2", "call.k in list(TABLE.keys())",
        "bool(call.k)", "not call.k", "call.k and call.k > 3", "call.k or call.m", "call.k is call.k",
        "call.k < math.inf", "call.k <= -math.inf", "call.k == math.nan", "call.k != math.nan", "call.k > -math.inf",
        "LIST[call.m] == 20", "TUPLE[call.m] == 20", "'abcdefg'[call.m] == 'b'", "(4, 5)[call.k & 1] == 5",
        "LIST[call.m % 3] == 10", "TABLE[call.m] == 'two'", "TABLE.get(call.m) == 'two'",
        "TABLE.get(call.m, 'x') > 'p'",
        "(call.k, call.m) in PAIRS", "PAIRS.get((call.m, call.m + 1)) == 'a'", "isinstance(call.k, int)",
        "isinstance(call.k, float)", "type(call.k) is int", "type(call.k) is bool", "call.k.nothing",
        "min(call.k, call.m) > 1", "max(call.k, 3, call.m) == 5", "sum((call.k, call.m)) == 4",
        "sorted((call.k, call.m, 2))[0] == call.m", "all((call.k, call.m))", "any((call.k > 3, call.m > 3))",
        "-3 <= call.k < call.m", "f'{call.k}' and call.k > 3", "call.k in AT_MOST", "call.k in range(2, 5)",
        "call.k * call.k == 9", "(call.k + 1) * (call.k - 1) == 8",
    ],
    "eps": [
        *(f"call.eps {c} {v}" for c in ("<", "<=", "==", "!=", ">=", ">") for v in ("0.5", "1", "0", "-1.5")),
        "call.eps == call.eps", "call.eps != call.eps", "call.eps <= call.eps", "call.eps < call.eps",
        "call.eps >= call.eps", "call.eps > call.eps", "call.eps == math.nan", "call.eps < math.nan",
        "call.eps == None", "call.eps != 'x'", "call.eps < None", "call.eps > 'x'", "bool(call.eps)", "not call.eps",
        "call.eps and call.k", "isinstance(call.eps, float)", "isinstance(call.eps, int)", "type(call.eps) is float",
        "0.25 < call.eps <= 1", "call.eps in (0.5, 1.0)", "call.eps.nothing", "call.eps == True",
    ],
    "name": [
        "call.name == 'x'", "call.name != 'x'", "'x' == call.name", "call.name == ''", "bool(call.name)",
        "not call.name", "call.name in ('x', 'y')", "call.name in TEXTS", "call.name not in {'x', 'y'}",
        "call.name == call.name", "call.name != call.name", "call.name == None", "call.name != 3", "call.name == 3",
        "call.name in BY_TEXT", "BY_TEXT.get(call.name) == 2", "BY_TEXT.get(call.name, 5) == 5",
        "BY_TEXT[call.name] == 2",
        "isinstance(call.name, str)", "type(call.name) is str", "call.name.nothing",
        "call.k in NESTED.get(call.name, ())", "call.name in NESTED and call.k in NESTED[call.name]",
        "any(call.name == key and call.k in value for key, value in NESTED.items())",
        "any(call.k in value for value in NESTED.values())", "any(call.name == key for key in NESTED)",
    ],
    "window": [
        "call.window is None", "call.window is not None", "call.window == None", "call.window == 3",
        "call.window is not None and call.window > 3", "call.window or call.k", "call.window > 3", "bool(call.window)",
        "(call.window or 5) == 5", "isinstance(call.window, int)", "call.window in (None, 3)", "call.window in SOME",
        "type(call.window) is int", "call.window is None or call.window % 2 == call.k",
    ],
    "either": ["call.either == 0", "call.either > 0.5", "isinstance(call.either, float)", "type(call.either) is int"],
    "shape": [
        "call.shape == ()", "call.shape == (3, 4)", "call.shape != (3,)", "len(call.shape) == 2", "bool(call.shape)",
        "call.shape and call.shape[-1] == 4", "call.shape[0] == 3", "call.shape[1] > 3", "sum(call.shape) == 7",
        "call.k in call.shape", "3 not in call.shape", "math.prod(call.shape) == 12", "call.shape[1:] == (4,)",
        "max(call.shape) == 4", "max(call.shape, default=0) > 3", "all(d < 4 for d in call.shape)",
        "tuple(reversed(call.shape)) == (4, 3)", "call.shape + (1,) == (3, 1)", "isinstance(call.shape, tuple)",
        "call.shape[len(call.shape) - 1] == 4", "call.shape[call.k] == 4", "call.shape.index(3) == 0",
    ],
    "pair": [
        "call.pair == (1, 2)", "call.pair[0] < call.pair[1]", "call.pair[call.k % 2] == 3", "call.k in call.pair",
        "call.pair in PAIRS", "call.pair in {(1, 2)}", "call.pair in PAIRS and PAIRS[call.pair] == 'b'", "call.pair[2]",
        "sum(call.pair) == 7", "call.pair == (4, call.k)", "len(call.pair) == 2",
    ],
    "tile": [
        "call.tile.rows > 3", "call.tile.rows * call.tile.cols == call.k", "call.tile.area == call.k",
        "call.tile.nothing", "isinstance(call.tile, Tile)", "bool(call.tile)", "call.tile.rows == call.tile.cols",
        "type(call.tile) is Tile",
    ],
    "finite": [
        "call.mode is Mode.FAST", "call.mode == Mode.SAFE", "call.mode.value > call.k", "call.mode in (Mode.SAFE,)",
        "call.layout == 7", "call.layout == 'nhd' and call.flag", "call.flag is True", "call.flag == call.k",
        "not call.flag", "{Mode.FAST: 1, Mode.SAFE: 2}[call.mode] == call.k", "call.flag + call.k == 2",
        "call.mode.name == 'SAFE'", "isinstance(call.mode, Mode)", "hash(call.mode) == hash(Mode.FAST)",
    ],
    "device": ["call.device.type == 'cuda'", "call.device == None", "call.device is None"],
}  # fmt: skip

REFUSED = {
    "call.k + 1.5 > 3": "k is mixed with the float 1.5",
    "1.5 - call.k > 3": "k is mixed with the float 1.5",
    "call.k / 1.5 > 3": "k is mixed with the float 1.5",
    "call.k // 1.5 > 3": "k is mixed with the float 1.5",
    "call.k ** 9 > 3": "k is raised to 9: only constant powers 0 to 8 lift",
    "call.k ** -1 > 3": "k is raised to -1",
    "call.k ** call.m > 3": "k is raised to m",
    "call.k ** 0.5 > 3": "k is raised to 0.5",
    "pow(call.k, 2, 3) > 3": "k is raised to 2",
    "call.k << call.m": "k is shifted by m",
    "call.k >> 1.0": "k is shifted by 1.0",
    "call.k & 6": "k & 6: only a mask",
    "call.k & -1": "k & -1: only a mask",
    "call.k & call.m": "k & m: only a mask",
    "call.m & call.eps": "m & eps: only a mask",
    "call.k | 1": "k is passed to |",
    "1 | call.k": "k is passed to |",
    "call.k ^ 1": "k is passed to ^",
    "1 ^ call.k": "k is passed to ^",
    "2 ** call.k": "k is passed to **",
    "1 << call.k": "k is passed to <<",
    "1 >> call.k": "k is passed to >>",
    "round(call.k, 1)": "k is rounded to 1 digits",
    "int(call.k)": "k is passed to int()",
    "float(call.k)": "k is passed to float() or math",
    "complex(call.k)": "k is passed to complex()",
    "math.trunc(call.k)": "k is passed to math.trunc()",
    "math.floor(call.k)": "k is passed to math.floor()",
    "math.ceil(call.k)": "k is passed to math.ceil()",
    "math.sqrt(call.k)": "k is passed to float() or math",
    "range(call.k)": "k is needed as a number (by range(), math or a conversion)",
    "'x' in 'abc'[call.pair[0]:]": "pair[0] is needed as a number",
    "LIST[call.pair[0]]": "pair[0] is needed as a number (by range(), an index or a conversion) and may",
    "TABLE[call.pair[0]]": "pair[0] is the key of a dict and may still have more than 64 values",
    "hash(call.k)": "k is hashed, by a set or dict",
    "call.k in set([1, call.m])": "is hashed, by a set or dict",
    "call.k.to_bytes(2, 'big')": "k.to_bytes has no symbolic answer",
    "call.k < call.eps": "k is compared with eps, a field of another kind",
    "call.k in LONG": "k is looked for among 65 constants, more than the 64 that lift",
    "call.eps + 1 > 0": "eps is passed to +",
    "1 - call.eps > 0": "eps is passed to -",
    "call.eps * 2 > 0": "eps is passed to *",
    "1 / call.eps > 0": "eps is passed to /",
    "call.eps // 2 > 0": "eps is passed to //",
    "call.eps % 2 > 0": "eps is passed to %",
    "2 ** call.eps > 0": "eps is passed to **",
    "divmod(call.eps, 2)": "eps is passed to divmod()",
    "-call.eps < 0": "eps is passed to -",
    "+call.eps < 0": "eps is passed to +",
    "abs(call.eps) < 1": "eps is passed to abs()",
    "int(call.eps) < 1": "eps is passed to int()",
    "float(call.eps) < 1": "eps is passed to float() or math",
    "round(call.eps) < 1": "eps is passed to round()",
    "math.trunc(call.eps) < 1": "eps is passed to math.trunc()",
    "math.floor(call.eps) < 1": "eps is passed to math.floor()",
    "math.ceil(call.eps) < 1": "eps is passed to math.ceil()",
    "call.eps.is_integer()": "eps.is_integer has no symbolic answer",
    "call.eps < 2**60 + 1": "eps is compared with 1152921504606846977, which no float equals",
    "call.eps == call.k": "eps is compared with k: a float compares with constants only",
    "hash(call.eps)": "eps is hashed",
    "call.k / 4 + 1 > 0": "is passed to +",
    "call.k / 4 < call.m": "is compared with m: a true division compares with constants only",
    "call.k / 1 == call.m": "a true division compares with constants only",
    "call.k == call.eps": "k is compared with eps, a field of another kind",
    "call.device.nothing": "a stand-in reached code that takes no stand-ins",
    "call.k / 4 < None": "a true division compares with constants only",
    "(call.k / 4).is_integer()": ".is_integer has no symbolic answer",
    "int(call.k / 4) < 1": "is passed to int()",
    "len(call.name) > 1": "name is passed to len()",
    "call.name[0] == 'x'": "name is passed to indexing",
    "list(call.name)": "name is passed to iteration",
    "'x' in call.name": "name is passed to in",
    "call.name + 'x' == 'xx'": "name is passed to +",
    "'x' + call.name == 'xx'": "name",
    "call.name * 2 == 'xx'": "name is passed to *",
    "2 * call.name == 'xx'": "name is passed to *",
    "call.name % 2 == 'xx'": "name is passed to %",
    "call.name < 'x'": "name is passed to <",
    "call.name <= 'x'": "name is passed to <=",
    "call.name > 'x'": "name is passed to >",
    "call.name >= 'x'": "name is passed to >=",
    "call.name.upper() == 'X'": "name.upper has no symbolic answer",
    "call.name == call.k": "name is compared with k: a string compares with constants only",
    "hash(call.name)": "name is hashed",
    "call.device.index == 1": "device.index is read",
    "call.device == 'cuda'": "device is compared with 'cuda': compare device.type instead",
    "hash(call.device)": "device is hashed",
    "call.odd is None": "odd is read, which is",
    "call == 3": "the whole call is passed to ==",
    "call != 3": "the whole call is passed to !=",
    "hash(call)": "the whole call is passed to hash()",
    "call.tile == Tile()": "the whole call is passed to ==",
    "call.__dict__": "Call.__dict__ is read",
    "call.__setattr__('k', 1)": "the whole call is passed to a store to k",
    "call.__delattr__('k')": "the whole call is passed to a deletion of k",
    "LIST.append(1)": "the list [10, 20, 30] is changed, by append",
    "LIST.sort()": "the list [10, 20, 30] is changed, by sort",
    "LIST.clear()": "the list [10, 20, 30] is changed, by clear",
    "TABLE.pop(1)": "is changed, by pop",
    "TABLE.update({})": "is changed, by update",
    "TABLE.setdefault(1, 2)": "is changed, by setdefault",
    "TEXTS.add('z')": "is changed, by add",
    "TEXTS.discard('z')": "is changed, by discard",
    "TEXTS.__ior__(TEXTS)": "is changed, by __ior__",
    "(lambda held: held.__iand__(TEXTS))(TEXTS)": "is changed, by __iand__",
    "TEXTS.__ixor__(TEXTS)": "is changed, by __ixor__",
    "TEXTS.__isub__(TEXTS)": "is changed, by __isub__",
    "LIST.__iadd__(LIST)": "is changed, by __iadd__",
    "LIST.__imul__(2)": "is changed, by __imul__",
    "TABLE.__setitem__(9, 9)": "is changed, by item assignment",
    "TABLE.__delitem__(9)": "is changed, by item deletion",
    "LIST.__setitem__(0, 9)": "is changed, by __setitem__",
    "f'{call.k:>{call.m}}'": "formatted with a width or precision that is itself a field",
}


def rule_of(condition: str) -> Any:
    names = dict(NAMES)
    exec(f"def refusal(call):\n    return None if {condition} else 'no'\n", names)
    return names["refusal"]


def said(function: Any, call: Any) -> tuple[str, Any]:
    try:
        return "gives", function(call)
    except Exception as error:  # noqa: BLE001 - compared
        return "raises", (type(error), str(error))


@pytest.mark.parametrize(
    ("group", "condition"), [(group, condition) for group, each in MEANT.items() for condition in each]
)
def test_what_lifts_means_what_it_means_in_python(group: str, condition: str) -> None:
    refusal = rule_of(condition)
    try:
        rule = lift(refusal, Call)
    except NotLifted as error:
        pytest.fail(f"not lifted: {error.cause}")
    for call in CALLS[group]:
        expected = said(refusal, call)
        assert said(rule, call) == expected, call
        if expected[0] == "gives":
            assert rule.serves(call) is (expected[1] is None), call
        assert rule.raises(call) is (expected[0] == "raises"), call


@pytest.mark.parametrize("condition", REFUSED)
def test_what_has_no_symbolic_answer_is_refused_by_its_name(condition: str) -> None:
    with pytest.raises(NotLifted) as caught:
        lift(rule_of(condition), Call)
    assert REFUSED[condition] in caught.value.cause
    assert caught.value.line == 2


SHOWN = [
    "f'{call.k}'", "f'{call.k!r}'", "f'{call.k!s:>5}'", "f'{call.k:>5}|{call.k:05d}'", "f'{call.k + 1}'",
    "f'{call.m:c}'", "str(call.k)",
    "repr(call.k)", "f'{call.k / 4}'", "f'{call.k / 4:.1f}'", "f'{call.eps}'", "f'{call.eps:.2f}'", "f'{call.name}'",
    "f'{call.name!r}'", "f'{call.name:>9}'", "f'{call.window}'", "f'{call.shape}'", "f'{call.pair[0]}'",
    "f'{call.tile}'",
    "f'{call.tile.rows}'", "f'{call.mode}'", "f'{call.layout!r}'", "f'{call.either}'", "str(call.name)",
    "repr(call.eps)",
    "'{} {}'.format(call.k, call.m)", "'%s and %r' % (call.k, call.m)", "', '.join([f'{call.k}', f'{call.m}'])",
    "f'{call.k}' f'{call.k}'", "call.k", "call.name", "call.eps", "3", "2.5", "True", "(1, 'x')", "Mode.FAST", "b'x'",
    "call.k / 4",
]  # fmt: skip


@pytest.mark.parametrize("shown", SHOWN)
def test_a_reason_reads_as_the_original_has_it(shown: str) -> None:
    names = dict(NAMES)
    exec(f"def refusal(call):\n    return None if call.m == 5 else {shown}\n", names)
    refusal = names["refusal"]
    rule = lift(refusal, Call)
    for call in [*CALLS["k"][::3], *CALLS["eps"], *CALLS["name"], *CALLS["window"], *CALLS["shape"], *CALLS["tile"]]:
        assert said(rule, call) == said(refusal, call)
        assert type(rule(call)) is type(refusal(call))


@pytest.mark.parametrize("shown", ["f'{call}'", "str(call)", "repr(call)", "f'{call.tile}'", "repr(call.tile)"])
def test_a_whole_call_is_shown_as_it_is(shown: str) -> None:
    names = dict(NAMES)
    exec(f"def refusal(call):\n    return {shown}\n", names)
    rule = lift(names["refusal"], Call)
    for call in (Call(k=5), Call(tile=Tile(1, 2))):
        assert rule(call) == names["refusal"](call)


@pytest.mark.parametrize("returned", ["[1]", "{1: 2}", "object()", "(1, [2])", "call", "call.tile", "(call.k,)"])
def test_what_cannot_stand_for_the_next_call_is_not_returned(returned: str) -> None:
    names = dict(NAMES)
    exec(f"def refusal(call):\n    return {returned}\n", names)
    with pytest.raises(NotLifted, match="return None, or the reason as a text"):
        lift(names["refusal"], Call)
