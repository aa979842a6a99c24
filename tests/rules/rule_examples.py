"""Call specs and rules of every kind that an author may write."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from tileops_rules import OneOf, Range

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


@dataclass(frozen=True)
class Wider(Call):
    """Properties that use super() and a class of their own package."""

    extra: int = 3

    @property
    def wide(self) -> bool:
        return super().wide and self.extra > Base.LIMIT - 4094


def collects(call: Call) -> str | None:
    reasons = []
    if call.n % 8:
        reasons.append(f"n {call.n}")
    if call.m not in ALLOWED ^ {48, 64}:
        reasons.append("m %s" % call.m)  # noqa: UP031 - what is tested
    if call.k > 50:
        reasons.append("k {}".format(call.k))  # noqa: UP032 - what is tested
    return "; ".join(reasons) or None


def table_of_reasons(call: Call) -> str | None:
    checks = ((call.n <= 9, f"n {call.n}"), (call.m <= 9, f"m {call.m}"))
    for fits, why in checks:
        if not fits:
            return why
    return {True: None, False: f"k {call.k}"}[call.k < 9]


def through_a_local(call: Call) -> str | None:
    reason = f"{call.n}" if call.n > 3 else None
    if reason is not None and reason:
        text = "n " + reason
        return text + f"{call.m:>6}"
    return None if isinstance(call.eps, float) and type(call) is Call else "kind"


class Named(Base):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        if cls == Named and call.n == 5:
            return f"{cls.__name__} {type(call).__name__} {issubclass(cls, Base)}"
        return super().refusal(call)


LIFTED = [
    collects,
    table_of_reasons,
    through_a_local,
    Named.refusal,
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
