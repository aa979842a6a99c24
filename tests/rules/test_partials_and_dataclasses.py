"""Rules with arguments that are fixed before, and calls that are handed to ``dataclasses``."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_rules import Candidate, NotLifted, lift
from tileops_rules.fingerprint import spelled
from tileops_rules.lifting import _function_of
from tileops_rules.symbolic_call import GivenUp, SymbolicCall


@dataclass(frozen=True)
class Call:
    n: int = 1


def rule(*fixed: Any, **more: Any) -> Any:
    return fixed, more


class Holder:
    def method(self, *fixed: Any) -> Any:
        return fixed

    def __call__(self, call: Any) -> Any:
        return call.n


HOLDER = Holder()


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (rule, (rule, None, (), {})),
        (functools.partial(rule, 1), (rule, None, (1,), {})),
        (functools.partial(functools.partial(rule, 1), 2), (rule, None, (1, 2), {})),
        (functools.partial(rule, limit=1, other=2), (rule, None, (), {"limit": 1, "other": 2})),
        (functools.partial(functools.lru_cache(rule), 1, a=2), (rule, None, (1,), {"a": 2})),
        (
            functools.partial(functools.lru_cache(functools.partial(rule, 1, a=1, b=2)), 2, a=3),
            (rule, None, (1, 2), {"a": 3, "b": 2}),
        ),
        (HOLDER.method, (Holder.method, HOLDER, (), {})),
        (functools.partial(HOLDER.method, 1), (Holder.method, HOLDER, (1,), {})),
        (HOLDER, (Holder.__call__, HOLDER, (), {})),
    ],
    ids=["plain", "one", "nested", "named", "cached", "cached-nested", "method", "method-one", "callable"],
)
def test_the_function_behind_a_callable_is_found_with_what_was_fixed(refusal: Any, expected: Any) -> None:
    assert _function_of(refusal) == expected


@pytest.mark.parametrize("value", [5, len, Holder, int])
def test_what_is_no_python_function_is_said(value: Any) -> None:
    with pytest.raises(NotLifted, match="is no Python function") as error:
        _function_of(value)
    assert (error.value.file, error.value.line) == ("<unknown>", 0)
    assert error.value.cause == f"{value!r} is no Python function"


def test_a_keyword_that_was_fixed_twice_has_its_last_value() -> None:
    def above(call: Any, *, limit: int, text: str) -> str | None:
        return text if call.n > limit else None

    refusal = functools.partial(functools.lru_cache(functools.partial(above, limit=5, text="above")), limit=7)
    lifted = lift(refusal, Call)
    assert [lifted(Call(n)) for n in (5, 6, 7, 8)] == [None, None, None, "above"]


def test_a_call_is_no_dataclass_to_look_into() -> None:
    asked = {
        dataclasses.is_dataclass: "the whole call is passed to dataclasses: ask for its fields",
        dataclasses.fields: (
            "the whole call is passed to dataclasses (replace, asdict or fields): ask for its fields instead"
        ),
    }
    for function, cause in asked.items():
        with pytest.raises(NotLifted) as error:
            lift(functools.partial(lambda ask, call: "is" if ask(call) else None, function), Call)
        assert error.value.cause == cause
    assert lift(lambda call: None if hasattr(type(call), "__dataclass_fields__") else "no", Call).paths == 1
    with pytest.raises(GivenUp):
        SymbolicCall.__dataclass_fields__  # type: ignore[attr-defined]  # noqa: B018


def test_a_candidate_has_what_it_is_given_and_else_the_usual() -> None:
    usual = Candidate("plain", rule)
    assert (usual.general, usual.preferred_over, usual.devices) == (False, frozenset(), frozenset({"cuda"}))
    assert (usual.supported_archs, usual.implementation) == (None, None)
    given = Candidate(
        "other",
        rule,
        general=True,
        preferred_over=["plain"],
        devices=["cpu", "cuda"],
        supported_archs=[90, 80, 90],
        implementation=Holder,
    )
    assert (given.key, given.refusal, given.general) == ("other", rule, True)
    assert (given.preferred_over, given.devices) == (frozenset({"plain"}), frozenset({"cpu", "cuda"}))
    assert (given.supported_archs, given.implementation) == ((80, 90), Holder)
    assert usual == Candidate("plain", rule) != given


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64 - 1, f"int {2**64 - 1}"),
        (2**64, f"int 0x1{'0' * 16}"),
        (1 - 2**64, f"int {1 - 2**64}"),
        (-(2**64), f"int -0x1{'0' * 16}"),
        (0, "int 0"),
    ],
)
def test_integers_beyond_64_bits_are_spelled_in_hexadecimal(value: int, text: str) -> None:
    assert spelled(value) == text
