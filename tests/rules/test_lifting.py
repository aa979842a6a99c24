"""What lifts, what it lifts to, and what says that it does not lift."""

from __future__ import annotations

import itertools
import math
import operator
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from tileops_rules import NotLifted, Range, lift

from tests.rules import rule_examples, unliftable_examples
from tests.rules.rule_examples import LAUNCHES, LIFTED, Base, Call, Derived, Mode, Wider, helper
from tests.rules.unliftable_examples import NOT_LIFTED
from tests.speed import LIFTING_SLOWER, cpu_seconds, holds_within

if TYPE_CHECKING:
    pass


LONGEST_S = 5 if sys.version_info < (3, 12) else 30
"""What 20,000 paths may take: from Python 3.12 on it grows with the code that is loaded; 4 to 20 s were seen."""


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
    assert reads[f"{rule_examples.__name__}.Base.HEADS"] == Base.HEADS
    assert reads[f"{rule_examples.__name__}.Derived.LIMIT"] == 2048
    assert reads[f"{rule_examples.__name__}.LAUNCHES"] == LAUNCHES


def test_values_are_taken_as_they_were_when_lifted() -> None:
    limits = [10]

    def refusal(call: Call) -> str | None:
        return None if call.n < limits[0] else "over"

    rule = lift(refusal, Call)
    limits[0] = 0
    assert rule.serves(Call(n=5))
    assert rule(Call(n=5)) is None


@pytest.mark.parametrize("refusal", NOT_LIFTED, ids=lambda f: f.__name__)
def test_what_has_no_symbolic_meaning_is_not_lifted_and_says_where(refusal: Any) -> None:
    with pytest.raises(NotLifted) as caught:
        lift(refusal, Call)
    assert caught.value.file == unliftable_examples.__file__
    first = refusal.__code__.co_firstlineno
    last = max(line for _, _, line in refusal.__code__.co_lines() if line)
    assert first <= caught.value.line <= last
    assert NOT_LIFTED[refusal] in caught.value.cause


@pytest.mark.parametrize("limit", [2.5, 3.0, -0.0, 1e300, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt])
def test_an_integer_compares_with_a_float_exactly(compare: Any, limit: float) -> None:
    def refusal(call: Call) -> str | None:
        return None if compare(call.n, limit) else "no"

    rule = lift(refusal, Call)
    for n in range(6):
        assert rule.serves(Call(n=n)) is compare(n, limit)


@dataclass(frozen=True)
class Long:
    n: Annotated[int, Range(0, 2**60)] = 1


@pytest.mark.parametrize("steps", range(-3, 8))
@pytest.mark.parametrize("limit", [1.0, 1.0 + 2.0**-52, 0.3, 0.1])
def test_a_true_division_is_decided_as_python_rounds_it(limit: float, steps: int) -> None:
    divisor = 2**53 if limit >= 1 else 10
    n = (2**53 if limit >= 1 else int(limit * 10)) + steps

    def refusal(call: Long) -> str | None:
        if call.n / divisor == limit:
            return "equal"
        return None if call.n / divisor < limit else "above"

    if n >= 0:
        assert lift(refusal, Long)(Long(n)) == refusal(Long(n))
        assert lift(refusal, Long).serves(Long(n)) is (refusal(Long(n)) is None)


def test_a_value_outside_an_assumed_domain_is_left_to_the_original() -> None:
    def refusal(call: Call) -> str | None:
        return None if call.n >= 0 and call.n <= 2**40 else f"n {call.n}"

    rule = lift(refusal, Call)
    assert rule.paths == 1
    assert rule(Call(n=-3)) == "n -3"
    shown = lift(lambda call: f"{call.n}", Call)
    assert shown(Call(n=True)) == "True"
    assert lift(lambda call: f"{call.n}" if call.n < 9 else None, Call)(Call(n=True)) == "True"


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

    def at_the_edge(call: Call) -> str | None:
        if call.n <= 32:
            return "short"
        return None if call.n >= 33 and call.n != 32 and not call.n < 33 else "impossible"

    assert lift(at_the_edge, Call).paths == 2


def test_over_the_path_budget_is_said_with_the_count() -> None:
    def refusal(call: Call) -> str | None:
        ones = sum(1 for bit in range(20) if (call.n >> bit) % 2)
        return None if ones > 3 else "few"

    def refused() -> None:
        with pytest.raises(NotLifted, match="20000 paths"):
            lift(refusal, Call)

    holds_within(LONGEST_S, lambda: cpu_seconds(refused))
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
    holds_within(2e-3 * LIFTING_SLOWER, lambda: cpu_seconds(lambda: lift(twelve, Call)))


def test_a_device_index_decides_nothing() -> None:
    @dataclass(frozen=True)
    class OnDevice:
        device: Any = field(default=None)

    with pytest.raises(NotLifted, match="index"):
        lift(lambda call: None if call.device.index == 0 else "no", OnDevice)
    assert (
        str(lift(lambda call: None if call.device.type == "cuda" else "no", OnDevice).serves) == "device.type == 'cuda'"
    )


def test_a_function_made_by_exec_without_a_module_name_lifts() -> None:
    names: dict[str, Any] = {}
    exec("def made(call):\n    return None if abs(call.n) == 5 else 'x'", names)
    rule = lift(names["made"], Call)
    assert [rule.serves(Call(n=n)) for n in (4, 5)] == [False, True]
    assert not rule.raises(Call(n=5))


def test_properties_may_use_super_and_classes_of_their_own_package() -> None:
    def refusal(call: Wider) -> str | None:
        return None if call.wide else "narrow"

    rule = lift(refusal, Wider)
    for call in (Wider(n=2000), Wider(n=2000, extra=2), Wider(n=2), Wider(n=2000, flag=True)):
        assert rule(call) == refusal(call)


def test_an_int_in_a_float_field_is_left_to_the_original() -> None:
    def refusal(call: Call) -> str | None:
        return None if isinstance(call.eps, float) else "not a float"

    rule = lift(refusal, Call)
    assert [rule(Call(eps=value)) for value in (3.0, 3)] == [None, "not a float"]


def test_the_sign_of_a_zero_quotient_is_kept() -> None:
    @dataclass(frozen=True)
    class Signed:
        n: Annotated[int, Range(-9, 9)] = 0
        m: Annotated[int, Range(-9, 9)] = 1

    def refusal(call: Signed) -> str | None:
        return "zero" if call.m == 0 else f"{call.n / call.m}"

    rule = lift(refusal, Signed)
    assert [rule(Signed(n, m)) for n, m in ((0, -3), (0, 3), (4, -2))] == ["-0.0", "0.0", "-2.0"]


def test_a_format_that_python_refuses_raises_on_the_path() -> None:
    rule = lift(lambda call: f"{call.name:d}", Call)
    assert rule.raises(Call())
    raising = lift(lambda call: int("x") if call.n == 3 else _raise(KeyError(call.n)), Call)
    assert raising.raises(Call(n=3))
    assert raising.raises(Call(n=4))


def _raise(error: Exception) -> None:
    raise error
