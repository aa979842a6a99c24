"""What lifts, what it lifts to, and what says that it does not lift."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import math
import operator
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from tileops_rules import NotLifted, OneOf, Range, lift

if TYPE_CHECKING:
    import decimal


class Mode(enum.Enum):
    FAST = "fast"
    SAFE = "safe"


@dataclass(frozen=True)
class Tile:
    rows: int = 16
    cols: int = 64


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: int = 4
    k: Annotated[int, Range(1, 100)] = 8
    eps: float = 1e-5
    name: str = "plain"
    flag: bool = False
    mode: Mode = Mode.FAST
    layout: Literal["nhd", "hnd"] = "nhd"
    window: Optional[int] = None
    scale: float | None = None
    shape: tuple[int, ...] = ()
    pair: tuple[int, int] = (1, 2)
    bare: tuple = ()
    tile: Tile = Tile()
    dtype: Annotated[str, OneOf("f16", "bf16", "f32")] = "f16"
    odd: decimal.Decimal = None  # type: ignore[assignment]

    @property
    def wide(self) -> bool:
        return self.n >= 1024 and not self.flag

    def padded(self, to: int) -> int:
        return -(-self.n // to) * to


LAUNCHES = ((32, 4), (64, 8), (128, 8), (256, 16), (512, 16), (1024, 32))
DTYPES = {"f16", "bf16"}
SIZES = {64: "a", 128: "b", 256: "c"}
ALLOWED = frozenset({16, 32, 48})
BYTES = {"f16": 2, "bf16": 2, "f32": 4}


def helper(call: Call) -> bool:
    return call.n % 8 == 0 and call.m in ALLOWED


WIDTHS = {"f16": {64, 128}, "bf16": frozenset({64}), "f32": ()}
GROUPS = (({1, 2, 3}, "few"), ({16, 32}, "many"))


def tables_in_tables(call: Call) -> str | None:
    if call.n in WIDTHS[call.dtype]:
        return next((name for sizes, name in GROUPS if call.m in sizes), None)
    return "width" if call.n in range(5, 9) else f"{type(call.n) is int} {isinstance(call.m, int)}"


class Base:
    LIMIT = 4096
    HEADS = {(32, 4), (32, 8)}

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        if call.n > cls.LIMIT:
            return f"n={call.n} is above {cls.LIMIT}"
        return None

    @classmethod
    def band_for(cls, call: Call) -> int:
        return next((i for i, (threads, per) in enumerate(LAUNCHES) if call.n <= threads * per), -1)


class Derived(Base):
    LIMIT = 2048

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        if (call.n, call.m) in cls.HEADS:
            return "a pair of the table"
        if cls.band_for(call) in (0, 2):
            return f"band of {call.n}"
        return super().refusal(call)


def table_search(call: Call) -> str | None:
    for threads, per in LAUNCHES:
        if call.n <= threads * per:
            return None if threads >= 64 else f"{threads} threads are too few for {call.n}"
    return "too long"


def best_fit(call: Call) -> str | None:
    best = None
    for threads, per in LAUNCHES:
        held = threads * per
        if held >= call.n and (best is None or held < best):
            best = held
    return None if best is not None and best <= 4096 else f"best is {best}"


def matches(call: Call) -> str | None:
    match call.mode:
        case Mode.FAST if call.n > 3:
            return None
        case Mode.FAST:
            return "small"
    match call.pair:
        case (1, x) if x > 4:
            return None
        case (a, b):
            return f"pair {a} {b}"


def unpack(call: Call) -> str | None:
    if len(call.shape) != 4:
        return f"rank {len(call.shape)}"
    _, c, *spatial = call.shape
    if c % 16 or math.prod(spatial) > 4096:
        return f"{c} channels, {spatial[0]}"
    return None if call.shape[-1] >= 2 and call.shape[1:3] != (16, 16) else "narrow"


def optional(call: Call) -> str | None:
    if call.window is not None and call.window < 128:
        return f"window {call.window}"
    if call.scale is None:
        return None
    return None if 0.0 < call.scale <= 1.0 else f"scale {call.scale!r}"


def nested(call: Call) -> str | None:
    if call.tile.rows * call.tile.cols > 8192:
        return f"{call.tile.rows}x{call.tile.cols}"
    return None if isinstance(call.tile, Tile) and call.tile.rows in (16, 32) else "rows"


def indexed(call: Call) -> str | None:
    if not 0 <= call.n < 4:
        return "outside the table"
    return (None, "one", None, "three")[call.n]


def keyed(call: Call) -> str | None:
    if call.n in SIZES and call.dtype in DTYPES:
        return None if SIZES[call.n] != "b" else "b"
    return f"{BYTES[call.dtype] * 8} bits"


def arithmetic(call: Call) -> str | None:
    if (call.n + 2 * call.m - 1) // 16 >= 5 or call.n & 15 == 3:
        return "sum"
    if divmod(call.n, 7)[1] == 2 or abs(call.m - 10) < 3 or call.n >> 4 == 9 or (call.m << 2) == 40:
        return "odd"
    if min(call.n, call.m) > 40 or max(call.n, 3) ** 2 < 10 or (~call.m) == -6:
        return "minmax"
    return None if call.n.bit_length() <= 7 else f"{call.n.bit_length()} bits"


def division(call: Call) -> str | None:
    if call.n % call.m == 0:
        return "divides"
    return None if call.n // call.m > 2 and call.n / call.m <= 5.5 else f"{call.n / call.m:.3f}"


def chained(call: Call) -> str | None:
    checks = [10 < call.n <= 20, call.flag, call.name == "x" or call.name in ("y", "z")]
    if sum(checks) == 2:
        return "two"
    if any(call.n == size for size in (3, 5)) or not all(v != call.m for v in ALLOWED):
        return "any"
    return (sorted([call.n, call.m])[0] > 2 and None) or "small"


def floats(call: Call) -> str | None:
    if call.eps != call.eps:
        return "nan"
    return None if 0.0 <= call.eps < 1e-3 and call.eps not in (0.5, 1e-6) else f"eps {call.eps}"


def closures() -> Any:
    allowed = {2, 3, 5}
    limits: dict[str, int] = {"f16": 10, "bf16": 20, "f32": 30}

    def inner(call: Call, _sizes: tuple[int, ...] = (1, 2)) -> str | None:
        return None if call.m in allowed and call.n < limits[call.dtype] else f"{call.m}"

    return inner


def walrus(call: Call) -> str | None:
    return None if (rest := call.n % 32) and rest < 5 else f"rest {rest}"


def bare(call: Call) -> str | None:
    return None if call.bare and call.bare[0] == 3 and call.bare != (3, 4) else "bare"


def raising(call: Call) -> str | None:
    if call.n == 13:
        raise KeyError("thirteen")
    try:
        if call.n < 5:
            raise ValueError("low")
    except ValueError:
        return "low"
    return None


EXEC: dict[str, Any] = {"__name__": __name__}
exec("def made(call):\n    return None if call.n in {1, 2, 3} else 'no'\n", EXEC)

LIFTED = [
    helper,
    tables_in_tables,
    Base.refusal,
    Derived.refusal,
    Derived.band_for,
    table_search,
    best_fit,
    matches,
    unpack,
    optional,
    nested,
    indexed,
    keyed,
    arithmetic,
    division,
    chained,
    floats,
    closures(),
    walrus,
    bare,
    raising,
    EXEC["made"],
    lambda call: None if call.wide and call.padded(64) != 2048 else f"{call.padded(64)}",
    functools.partial(lambda limit, call: None if call.n < limit else "over", 10),
]


@pytest.mark.parametrize("refusal", LIFTED, ids=lambda f: getattr(f, "__qualname__", "partial"))
def test_a_lifted_rule_gives_what_its_original_gives(refusal: Any) -> None:
    rule = lift(refusal, Call)
    assert rule.replay(3000, seed=1) is None
    draws = itertools.product((0, 1, 3, 5, 13, 16, 64, 127, 128, 1024, 5000), (0, 1, 4, 8, 16, 48), (False, True))
    for n, m, flag in draws:
        for more in (
            {},
            {"dtype": "f32", "name": "x"},
            {"eps": math.nan, "scale": 0.5},
            {"shape": (2, 16, 8, 4), "bare": (3,)},
        ):
            call = Call(n=n, m=m, flag=flag, **more)
            assert said(rule, call) == said(refusal, call)
            assert rule.serves(call) is (said(refusal, call) == ("gives", None))
            assert rule.raises(call) is (said(refusal, call)[0] == "raises")


def said(function: Any, call: Call) -> tuple[str, Any]:
    try:
        return "gives", function(call)
    except Exception as error:  # noqa: BLE001 - compared
        return "raises", (type(error), error.args)


def test_reasons_keep_their_places() -> None:
    assert lift(Base.refusal, Call).reasons == ("n={n} is above 4096",)
    assert "{n / m" not in str(lift(helper, Call).serves)


def test_what_a_rule_reads_besides_the_call_is_listed() -> None:
    reads = lift(Derived.refusal, Call).reads
    assert reads[f"{__name__}.Base.HEADS"] == Base.HEADS
    assert reads[f"{__name__}.Derived.LIMIT"] == 2048
    assert reads[f"{__name__}.LAUNCHES"] == LAUNCHES


def test_values_are_taken_as_they_were_when_lifted() -> None:
    limits = [10]

    def refusal(call: Call) -> str | None:
        return None if call.n < limits[0] else "over"

    rule = lift(refusal, Call)
    limits[0] = 0
    assert rule.serves(Call(n=5))
    assert rule(Call(n=5)) is None


COUNTER = 0


def stores_global(call: Call) -> str | None:
    global COUNTER
    COUNTER = 1
    return None


def by_dict(call: Call) -> str | None:
    return SIZES[call.n]


def by_get(call: Call) -> str | None:
    return SIZES.get(call.n)


def over_range(call: Call) -> str | None:
    return None if sum(1 for _ in range(call.n)) > 3 else "few"


def asks_device(call: Call) -> str | None:
    return None if os.cpu_count() == 4 else "cores"


def asks_time(call: Call) -> str | None:
    return None if time.time() > 0 else "clock"


def log2(call: Call) -> str | None:
    return None if math.log2(call.n) < 4 else "long"


def converts(call: Call) -> str | None:
    return None if int(call.n) > 4 else "small"


def swallows(call: Call) -> str | None:
    try:
        int(call.n)
    except BaseException:  # noqa: BLE001 - what is tested
        return None
    return "never"


def replaces(call: Call) -> str | None:
    return None if dataclasses.replace(call, n=3).n == 3 else "no"


def hashes(call: Call) -> str | None:
    return None if hash(call) else "no"


def float_arithmetic(call: Call) -> str | None:
    return None if call.eps * 2 > 1 else "small"


def unknown_set(call: Call) -> str | None:
    return None if call.n in set(itertools.chain(ALLOWED, (1,))) else "no"


def odd_mask(call: Call) -> str | None:
    return None if call.n & 6 else "no"


def text_method(call: Call) -> str | None:
    return None if call.name.startswith("x") else "no"


def in_text(call: Call) -> str | None:
    return None if call.name in "abc" else "no"


def opaque(call: Call) -> str | None:
    return None if call.odd is None else "no"


def endless(call: Call) -> str | None:
    n = call.n
    while n > 0:
        n -= 1
    return None


def dictionary(call: Call) -> str | None:
    return None if call.__dict__ else "no"


NOT_LIFTED = {
    stores_global: "COUNTER",
    by_dict: "n",
    by_get: "n",
    over_range: "n",
    asks_device: "cpu_count",
    asks_time: "time.time",
    log2: "n",
    converts: "int()",
    swallows: "int()",
    replaces: "call",
    hashes: "hash",
    float_arithmetic: "eps",
    unknown_set: "n",
    odd_mask: "6",
    text_method: "startswith",
    in_text: "stand-in",
    opaque: "odd",
    endless: "questions",
    dictionary: "__dict__",
}


@pytest.mark.parametrize("refusal", NOT_LIFTED, ids=lambda f: f.__name__)
def test_what_has_no_symbolic_meaning_is_not_lifted_and_says_where(refusal: Any) -> None:
    with pytest.raises(NotLifted) as caught:
        lift(refusal, Call)
    assert caught.value.file == __file__
    first = refusal.__code__.co_firstlineno
    last = max(line for _, _, line in refusal.__code__.co_lines() if line)
    assert first <= caught.value.line <= last
    assert NOT_LIFTED[refusal] in caught.value.cause


def test_a_builtin_is_not_lifted() -> None:
    with pytest.raises(NotLifted):
        lift(operator.attrgetter("n"), Call)


def test_a_rule_that_answers_differently_each_time_is_found_by_replay() -> None:
    seen: list[int] = []

    def refusal(call: Call) -> str | None:
        seen.append(1)
        return None if len(seen) < 40 else "worn out"

    with pytest.raises(NotLifted):
        lift(refusal, Call).replayed(200)


def test_a_search_over_a_table_costs_paths_in_proportion_to_its_length() -> None:
    table = tuple((32 * (i + 1), i) for i in range(40))

    def first(call: Call) -> str | None:
        return next((None if i % 2 else f"{i}" for size, i in table if call.n <= size), "too long")

    def best(call: Call) -> str | None:
        found = None
        for size, _ in reversed(table):
            if call.n <= size and (found is None or size < found):
                found = size
        return None if found is not None else "too long"

    assert lift(first, Call).paths == 41
    assert lift(best, Call).paths <= 41


def test_a_settled_question_is_not_asked_again() -> None:
    def refusal(call: Call) -> str | None:
        if call.n > 64:
            return "long" if call.n <= 32 else None
        return None if call.n <= 100 and -(-call.n // 64) <= 1 and call.n // 65 == 0 else "impossible"

    rule = lift(refusal, Call)
    assert rule.paths == 2
    assert rule.reasons == ()


def test_over_the_path_budget_is_said_with_the_count() -> None:
    def refusal(call: Call) -> str | None:
        ones = sum(1 for bit in range(20) if (call.n >> bit) % 2)
        return None if ones > 3 else "few"

    start = time.process_time()
    with pytest.raises(NotLifted, match="20000 paths"):
        lift(refusal, Call)
    assert time.process_time() - start < 5
    with pytest.raises(NotLifted, match="100 paths"):
        lift(refusal, Call, budget=100)


def twelve(call: Call) -> str | None:
    if call.n % 8:
        return f"n={call.n} is no multiple of 8"
    if call.n > 8192:
        return "n"
    if call.m < 4:
        return "m"
    if call.m > 64:
        return "m"
    if call.dtype not in ("f16", "bf16"):
        return f"{call.dtype}"
    if call.flag:
        return "flag"
    if call.mode is not Mode.FAST:
        return "mode"
    if call.eps < 0:
        return "eps"
    if call.window is not None:
        return "window"
    if call.layout != "nhd":
        return "layout"
    if call.tile.rows * call.tile.cols > 8192:
        return "tile"
    return None if call.n * call.m <= 65536 else f"{call.n * call.m} elements"


def test_the_usual_refusal_has_a_few_dozen_paths_and_lifts_in_two_milliseconds() -> None:
    rule = lift(twelve, Call)
    assert rule.paths <= 36
    best = min(_seconds(lambda: lift(twelve, Call)) for _ in range(30))
    assert best <= 2e-3, f"{best * 1e3:.2f} ms"


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_a_device_index_decides_nothing() -> None:
    @dataclass(frozen=True)
    class OnDevice:
        device: Any = field(default=None)

    with pytest.raises(NotLifted, match="index"):
        lift(lambda call: None if call.device.index == 0 else "no", OnDevice)
    assert (
        str(lift(lambda call: None if call.device.type == "cuda" else "no", OnDevice).serves) == "device.type == 'cuda'"
    )
