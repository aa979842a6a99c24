"""What a rule may call and store, what lifting it leaves behind, and what is no rule at all."""

from __future__ import annotations

import abc
import dataclasses
import enum
import fractions
import functools
import gc
import itertools
import math
import operator
import os
import string
import sys
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tileops_rules import NotLifted, Range, exploring, lift
from tileops_rules.watch import ALLOWED_MODULES, collector_paused

SIZES = {1: "one", 2: "two"}
FEW = {1, 2, 3}
LIST = [1, 2]


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 20)] = 1
    m: Annotated[int, Range(0, 20)] = 2


class Wider:
    MOST = 12


COUNT = itertools.count()
STATE = [0]
HOLDER = types.SimpleNamespace(value=1)


def stores_attribute(call: Call) -> str | None:
    HOLDER.value = 2
    return None


def deletes_attribute(call: Call) -> str | None:
    del HOLDER.value
    return None


def stores_global(call: Call) -> str | None:
    global STATE
    STATE = [1]
    return None


def deletes_global(call: Call) -> str | None:
    global STATE
    del STATE
    return None


def nonlocal_of(delete: bool) -> Any:
    held = 1

    def stores(call: Call) -> str | None:
        nonlocal held
        held = 2
        return None

    def deletes(call: Call) -> str | None:
        nonlocal held
        del held
        return None

    return deletes if delete else stores


def stores_nested(call: Call) -> str | None:
    def inner() -> None:
        HOLDER.value = 2

    inner()
    return None


def stores_in_class(call: Call) -> str | None:
    Wider.MOST = 3
    return None


def changes_a_table(call: Call) -> str | None:
    held = FEW
    held |= {9}
    return None if call.n in held else "x"


def changes_a_list(call: Call) -> str | None:
    held = LIST
    held += [9]
    return None if call.n in held else "x"


def of_its_own(call: Call) -> str | None:
    held = 0

    def inner() -> None:
        nonlocal held
        held += call.n

    inner()
    return None if held > 3 else "few"


REFUSED = [
    (changes_a_table, "{1, 2, 3} is changed, by __ior__"),
    (changes_a_list, "the list [1, 2] is changed, by __iadd__"),
    (stores_attribute, "attribute value is stored to"),
    (deletes_attribute, "attribute value is stored to"),
    (stores_global, "global STATE is stored to"),
    (deletes_global, "global STATE is stored to"),
    (nonlocal_of(False), "nonlocal held is stored to"),
    (nonlocal_of(True), "nonlocal held is stored to"),
    (stores_nested, "attribute value is stored to"),
    (stores_in_class, "attribute MOST is stored to"),
    (lambda call: setattr(Wider, "MOST", 3), "calls builtins.setattr"),
    (lambda call: delattr(Wider, "MOST"), "calls builtins.delattr"),
    (lambda call: next(COUNT), "COUNT is an iterator, which changes as it is used"),
    (lambda call: None if eval("1") else "x", "calls builtins.eval"),
    (lambda call: exec("1"), "calls builtins.exec"),
    (lambda call: None if globals() else "x", "calls builtins.globals"),
    (lambda call: None if locals() else "x", "calls builtins.locals"),
    (lambda call: None if id(call) else "x", "calls builtins.id"),
    (lambda call: input(), "calls builtins.input"),
    (lambda call: open("x"), "calls"),  # noqa: SIM115
    (lambda call: print("x"), "calls builtins.print"),  # noqa: T201
    (lambda call: breakpoint(), "calls"),
    (lambda call: os.getpid(), "calls posix.getpid"),
    (lambda call: os.path.join("a", "b"), "calls posixpath.join"),
    (lambda call: string.capwords("x"), "calls string.capwords"),
    (lambda call: gc.collect(), "calls gc.collect"),
    (lambda call: sys.getrecursionlimit(), "calls sys.getrecursionlimit"),
    (lambda call: os.environ.get("X"), "calls"),
]


@pytest.mark.parametrize(("refusal", "text"), REFUSED, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_no_function_of_the_call_is_refused_by_name(refusal: Any, text: str) -> None:
    with pytest.raises(NotLifted) as caught:
        lift(refusal, Call)
    assert text in caught.value.cause
    assert "a rule is a function of the call alone" in caught.value.cause
    assert caught.value.file == __file__


def test_variables_of_its_own_may_change() -> None:
    rule = lift(of_its_own, Call)
    assert [rule.serves(Call(n)) for n in (3, 4)] == [False, True]


class Shown(enum.Enum):
    LOW = 1

    @classmethod
    def lowest(cls) -> Shown:
        return min(cls, key=lambda each: each.value)


ALLOWED = [
    lambda call: None if math.gcd(12, 8) == call.n else "math",
    lambda call: None if operator.add(2, 2) == call.n else "operator",
    lambda call: None if operator.itemgetter(0)((call.n, 2)) == 4 else "operator",
    lambda call: None if list(itertools.chain([1], [2])) == [1, 2] and call.n > 2 else "itertools",
    lambda call: None if functools.reduce(operator.add, [call.n, 2]) == 6 else "functools",
    lambda call: None if functools.partial(operator.add, 2)(2) == call.n else "functools",
    lambda call: None if len(dataclasses.fields(Wide)) == call.n else "dataclasses",
    lambda call: None if Shown(1) is Shown.LOW and call.n > 2 else "enum",
    lambda call: None if Shown.lowest() is Shown.LOW and call.n > 2 else "enum",
    lambda call: None if types.SimpleNamespace(a=1).a < call.n else "types",
    lambda call: None if typing.get_origin(list[int]) is list and call.n > 2 else "typing",
    lambda call: None if fractions.Fraction(6, 4) < call.n else "fractions",
    lambda call: None if isinstance(3, Abstract) or call.n > 2 else "abc",
    lambda call: None if "x".upper() == "X" and b"x".hex() == "78" and (1.5).is_integer() is False and call.n else "x",
]


@dataclass(frozen=True)
class Open:
    n: int = 0


@dataclass(frozen=True)
class Wide:
    one: int = 1
    two: int = 2


class Abstract(abc.ABC):  # noqa: B024 - it is asked, not inherited
    """Asked by isinstance."""


@pytest.mark.parametrize("refusal", ALLOWED, ids=lambda refusal: f"line {refusal.__code__.co_firstlineno}")
def test_what_computes_and_nothing_else_may_be_called(refusal: Any) -> None:
    rule = lift(refusal, Call)
    assert rule.replay(64) is None
    for n in range(8):
        assert rule(Call(n)) == refusal(Call(n))


def test_the_modules_that_may_be_called_are_those_that_compute() -> None:
    assert set(ALLOWED_MODULES) == {
        *("builtins", "math", "operator", "_operator", "itertools", "functools", "_functools", "abc", "_abc"),
        *("dataclasses", "enum", "types", "typing", "fractions", "tileops_rules"),
    }


def test_lifting_leaves_the_interpreter_as_it_was() -> None:
    calls: list[str] = []

    def profile(frame: Any, event: str, arg: Any) -> None:
        calls.append(event)

    for refusal in (lambda call: None if call.n > 3 else "few", lambda call: None if os.getpid() else "x"):
        sys.setprofile(profile)
        try:
            with pytest.raises(NotLifted) if refusal.__code__.co_names[0] == "os" else collector_paused:
                lift(refusal, Call)
            assert sys.getprofile() is profile
        finally:
            sys.setprofile(None)
    assert gc.isenabled()


def test_the_collector_is_paused_until_the_last_one_leaves_and_only_if_it_ran() -> None:
    with collector_paused:
        assert not gc.isenabled()
        with collector_paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def catches(call: Call) -> str | None:
    try:
        return None if math.sqrt(call.n) > 2 else "few"
    except Exception:  # noqa: BLE001 - what is tested
        return "caught"


def catches_its_own(call: Call) -> str | None:
    try:
        if call.n == 3:
            raise KeyError("three")
        return SIZES[call.n] if call.n < 3 else None
    except KeyError as error:
        return f"caught {error}"
    except (ValueError, TypeError):
        return "other"


def test_a_rule_may_catch_its_own_errors_and_not_those_of_a_stand_in() -> None:
    rule = lift(catches_its_own, Call)
    assert [rule(Call(n)) for n in (0, 1, 3, 4)] == ["caught 0", "one", "caught 'three'", None]
    with pytest.raises(NotLifted, match="n is passed to float"):
        lift(catches, Call)
    before = sys.gettrace()
    lift(catches_its_own, Call)
    assert sys.gettrace() is before


def test_endless_recursion_is_no_rule() -> None:
    def endless(call: Call) -> str | None:
        return endless(call)

    with pytest.raises(NotLifted, match="recurses without end"):
        lift(endless, Call)


def test_more_questions_on_a_path_than_there_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploring, "_QUESTIONS_A_PATH", 20)
    many = [*range(21)]

    def asks_much(call: Open) -> str | None:
        return None if sum(1 for n in many if call.n % 1009 == n) else "x"

    with pytest.raises(NotLifted, match="over 20 questions on one path"):
        lift(asks_much, Open)
    many.pop()
    assert lift(asks_much, Open).paths == 21


def test_the_first_of_several_things_that_a_rule_catches_is_named() -> None:
    def refusal(call: Call) -> str | None:
        try:  # noqa: SIM105 - a rule may not call contextlib
            "".join([call.n])  # type: ignore[list-item]
        except TypeError:
            pass
        try:  # noqa: SIM105
            "".join([call.m])  # type: ignore[list-item]
        except TypeError:
            pass
        return None

    with pytest.raises(NotLifted, match="a stand-in reached code that takes no stand-ins") as caught:
        lift(refusal, Call)
    assert caught.value.line == refusal.__code__.co_firstlineno + 2


def test_a_budget_of_as_many_paths_as_there_are_is_enough() -> None:
    def refusal(call: Call) -> str | None:
        if call.n > 3:
            return "n"
        return "m" if call.m > 3 else None

    assert lift(refusal, Call, budget=3).paths == 3
    with pytest.raises(NotLifted, match=r"over the budget of 2 paths \(2 explored"):
        lift(refusal, Call, budget=2)


@pytest.mark.parametrize("refusal", [len, Call, 3, operator.itemgetter(0)], ids=str)
def test_what_is_no_python_function_is_not_lifted(refusal: Any) -> None:
    with pytest.raises(NotLifted, match="is no Python function"):
        lift(refusal, Call)


def test_generators_and_coroutines_are_not_lifted() -> None:
    def generator(call: Call) -> Any:
        yield call.n

    async def coroutine(call: Call) -> None:
        return None

    for refusal in (generator, coroutine):
        with pytest.raises(NotLifted, match="is a generator or coroutine") as caught:
            lift(refusal, Call)
        assert caught.value.place == f"{__file__}:{refusal.__code__.co_firstlineno}"
