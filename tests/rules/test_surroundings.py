"""What a rule reaches besides its call: classes, modules, descriptors, closures, tables."""

from __future__ import annotations

import enum
import functools
import itertools
import sys
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
from tileops_rules import NotLifted, Range, lift

from tests.rules import rule_examples

SIZES = {1: "one", 2: "two"}
FEW = {1, 2, 3}
MORE = frozenset({2, 4})
NOTHING: frozenset[int] = frozenset()
THIS = sys.modules[__name__]


class Doubled:
    """A descriptor of a rule's own package."""

    def __get__(self, instance: Any, owner: type | None = None) -> int:
        return 8 if instance is None else 2 * instance.n


class Counted:
    """Callable: its call is a refusal."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, call: Call) -> str | None:
        return None if call.n <= self.most else "over"


@dataclass(frozen=True)
class Base:
    n: Annotated[int, Range(0, 20)] = 1
    m: Annotated[int, Range(0, 20)] = 2
    LIMIT = 9

    @property
    def area(self) -> int:
        return self.n * self.m

    @functools.cached_property
    def longest(self) -> int:
        return max(self.n, self.m)

    def above(self, limit: int, *, by: int = 1) -> bool:
        return self.n >= limit + by

    @staticmethod
    def half(number: int) -> int:
        return number // 2

    @classmethod
    def limit(cls) -> int:
        return cls.LIMIT

    @classmethod
    @functools.lru_cache(8)
    def kept_limit(cls) -> int:
        return cls.LIMIT + 1


@dataclass(frozen=True)
class Call(Base):
    LIMIT = 7
    doubled = Doubled()

    @property
    def area(self) -> int:
        return super().area + 1

    @property
    def base_area(self) -> int:
        return super(Call, self).area  # noqa: UP008 - the long form


@functools.lru_cache(8)
def kept(number: int) -> int:
    return number + 1


def outer(number: int, by: int = 3, *, also: int = 1) -> int:
    return number * by + also


class Kernel:
    """An implementation with everything that a refusal may reach."""

    MOST = 6
    HELD: ClassVar[dict[str, Any]] = {"sizes": {1, 2, 3}, "list": [4, 5], "pairs": ({7, 8}, 9)}
    __slots__ = ()

    @classmethod
    def most(cls) -> int:
        return cls.MOST

    @staticmethod
    def twice(number: int) -> int:
        return 2 * number

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.n <= cls.most() else "base"


class Wider(Kernel):
    MOST = 12
    plain = kept
    descriptor = Doubled()

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        if call.m > 15:
            return "wide"
        return super().refusal(call)

    @classmethod
    def long_super(cls, call: Call) -> str | None:
        return super(Wider, cls).refusal(call)  # noqa: UP008

    @classmethod
    def names(cls, call: Call) -> str | None:
        if not isinstance(cls.__doc__, str | None) or cls.__bases__ != (Kernel,) or cls.__mro__[1] is not Kernel:
            return "bases"
        if cls.__dict__.get("MOST") != 12 or cls.__module__ != __name__:
            return "module"
        return None if f"{cls.__name__} {cls.__qualname__}" == "Wider Wider" and call.n > 3 else f"{cls!r}"

    @classmethod
    def kinds(cls, call: Call) -> str | None:
        if not issubclass(cls, Kernel) or issubclass(cls, enum.Enum) or not isinstance(cls, type):
            return "class"
        if issubclass(Kernel, cls) or cls == Kernel or cls != Wider or hash(cls) != hash(Wider):
            return "other"
        if not isinstance(call, Base) or not isinstance(call, (int, Call)) or isinstance(cls(), Doubled):
            return "instance"
        return None if isinstance(cls(), cls) and call.n > 2 else "kinds"

    @classmethod
    def tables(cls, call: Call) -> str | None:
        if call.n in cls.HELD["sizes"]:
            return "sizes"
        if call.n in cls.HELD["list"]:
            return "list"
        return "pairs" if any(call.n in held for held in cls.HELD["pairs"][:1]) else None

    @classmethod
    def functions(cls, call: Call) -> str | None:
        if cls.plain(3) != 4 or cls.twice(call.n) != 2 * call.n or cls.descriptor != 8:
            return "functions"
        return None if cls.twice(call.m) > 9 else "few"

    def bound(self, call: Call) -> str | None:
        return None if call.n < self.MOST and type(self) is Wider else "bound"


def closes_over(limit: int) -> Any:
    table = {limit: "limit"}

    def refusal(call: Call) -> str | None:
        def inner(number: int) -> bool:
            return number in table or number > limit

        return "held" if inner(call.n) else None

    return refusal


def by_default(call: Call, most: int = 5, table: Any = frozenset({1, 2})) -> str | None:
    return "default" if call.n > most or call.m in table else None


def by_keyword(call: Call, *, most: int = 5, table: Any = SIZES) -> str | None:
    return "keyword" if call.n > most or call.m in table else None


REACHING = [
    lambda call: None if call.area > 30 else "area",
    lambda call: None if call.base_area > 30 else "area",
    lambda call: None if call.longest > 8 else "longest",
    lambda call: None if call.above(4, by=2) else "above",
    lambda call: None if call.above(4) else "above",
    lambda call: None if call.half(call.n) == 3 else "half",
    lambda call: None if call.n <= call.limit() else "limit",
    lambda call: None if call.n <= call.kept_limit() else "limit",
    lambda call: None if call.n <= call.LIMIT else "LIMIT",
    lambda call: None if call.doubled > 7 else "doubled",
    lambda call: None if Call.doubled + call.n > 10 else "doubled",
    lambda call: None if kept(call.n) == 4 else "kept",
    lambda call: None if outer(call.n) == 10 else "outer",
    lambda call: None if outer(call.n, 2, also=call.m) == 10 else "outer",
    lambda call: None if THIS.outer(call.n) == 10 and call.m in THIS.SIZES else "module",
    lambda call: None if rule_examples.BYTES["f16"] == call.n else "other module",
    lambda call: None if type(call) is Call and type(call.n) is int and call.n > 3 else "type",
    lambda call: None if sum(n for n in (call.n, call.m)) > 9 else "sum",
    lambda call: None if (lambda n: n > 4)(call.n) else "inner",
    lambda call: next((str(i) for i in range(4) if call.n == i), None),
    lambda call: None if call.n in SIZES and SIZES[call.n] == "two" else "sizes",
    lambda call: None if bool(SIZES) and len(SIZES) == 2 and call.n > 2 else "sizes",
    lambda call: None if list(SIZES) == [1, 2] and list(reversed(SIZES)) == [2, 1] and call.n > 2 else "order",
    lambda call: None if list(SIZES.keys()) == [1, 2] and SIZES.copy() == SIZES and call.n > 3 else f"{call.n}",
    lambda call: None if SIZES == {1: "one", 2: "two"} and SIZES | {3: "x"} != SIZES and call.n > 1 else "equal",
    lambda call: None if call.n in rule_examples.ALLOWED | {3} else "union",
    lambda call: None if call.n in FEW | MORE else "union",
    lambda call: None if call.n in FEW & MORE else "both",
    lambda call: None if call.n in FEW - MORE else "less",
    lambda call: None if call.n in FEW ^ MORE else "either",
    lambda call: None if call.n in {2, 3} & FEW else "both",
    lambda call: None if call.n in {2, 9} | FEW else "both",
    lambda call: None if call.n in {2, 9} - FEW else "both",
    lambda call: None if call.n in {2, 9} ^ FEW else "both",
    lambda call: None if call.n in FEW.union({5}) else "union",
    lambda call: None if FEW < FEW else f"{call.n}",
    lambda call: None if FEW <= FEW and call.n > 3 else f"{call.n}",
    lambda call: None if MORE > FEW else f"{call.n}",
    lambda call: None if FEW >= FEW and call.n > 3 else f"{call.n}",
    lambda call: None if {1, 2, 3} == FEW and FEW != MORE and call.n > 3 else f"{call.n}",
    lambda call: None if NOTHING or call.n > 3 else "nothing",
    lambda call: None if FEW.isdisjoint(MORE) or call.n > 3 else "disjoint",
    lambda call: None if f"{SIZES!r}" == "{1: 'one', 2: 'two'}" and call.n > 3 else "shown",
    closes_over(4),
    by_default,
    by_keyword,
    functools.partial(by_default, most=3),
    functools.partial(functools.partial(by_default, most=9), most=3),
    functools.lru_cache(8)(lambda call: None if call.n > 3 else "cached"),
    Counted(5),
    Kernel.refusal,
    Wider.refusal,
    Wider.long_super,
    Wider.names,
    Wider.kinds,
    Wider.tables,
    Wider.functions,
    Wider().bound,
]  # fmt: skip


def said(function: Any, call: Any) -> tuple[str, Any]:
    try:
        return "gives", function(call)
    except Exception as error:  # noqa: BLE001 - compared
        return "raises", (type(error), str(error))


def name_of(refusal: Any) -> str:
    code = getattr(refusal, "__code__", None)
    return f"line {code.co_firstlineno}" if code is not None else getattr(refusal, "__name__", type(refusal).__name__)


@pytest.mark.parametrize("refusal", REACHING, ids=name_of)
def test_what_a_rule_reaches_means_what_it_means_in_python(refusal: Any) -> None:
    try:
        rule = lift(refusal, Call)
    except NotLifted as error:
        pytest.fail(f"not lifted: {error.cause}")
    answers = set()
    for n, m in itertools.product(range(21), (0, 1, 2, 3, 5, 14, 16)):
        call = Call(n, m)
        expected = said(refusal, call)
        answers.add(expected)
        assert said(rule, call) == expected, call
        assert rule.serves(call) is (expected == ("gives", None))
    assert len(answers) > 1


def test_what_was_read_is_listed_by_where_it_is() -> None:
    reads = lift(Wider.tables, Call).reads
    assert reads == {f"{__name__}.Kernel.HELD": Kernel.HELD}
    assert lift(closes_over(4), Call).reads == {
        f"{__name__}.closes_over.<locals>.refusal.limit": 4,
        f"{__name__}.closes_over.<locals>.refusal.table": {4: "limit"},
    }
    assert lift(by_default, Call).reads == {
        f"{__name__}.by_default.default0": 5,
        f"{__name__}.by_default.default1": frozenset({1, 2}),
    }
    assert lift(by_keyword, Call).reads == {f"{__name__}.by_keyword.most": 5, f"{__name__}.by_keyword.table": SIZES}
    assert lift(Wider.refusal, Call).reads == {f"{__name__}.Wider.MOST": 12}
    assert lift(lambda call: None if call.n <= call.limit() else "x", Call).reads == {f"{__name__}.Call.LIMIT": 7}


def test_a_rule_knows_where_it_is_and_how_many_paths_it_has() -> None:
    rule = lift(Wider.refusal, Call)
    assert (rule.file, rule.line) == (__file__, Wider.refusal.__code__.co_firstlineno)
    assert rule.paths == 3
    assert rule.reasons == ("base", "wide")
