"""The law of lifting: the compiled function, the tree and the predicates equal the original method on every call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import NotLifted, lift
from tileops_rules.domain import Outside

from tests.rules.programs import Program, function_of, spec_of

LIFTED = {"yes": 0, "no": 0}


def said(function: Any, call: Any) -> tuple[str, Any, Any]:
    try:
        value = function(call)
        return "gives", type(value), value
    except Exception as error:  # noqa: BLE001 - compared
        return "raises", type(error), None


def inside(domain: Any, call: Any) -> bool:
    try:
        domain.read(call)
    except Outside:
        return False
    return True


def check(seed: int) -> None:
    program = Program(seed)
    source, calls = program.source, program.calls
    refusal, spec = function_of(source), spec_of(program.names)
    try:
        rule = lift(refusal, spec, budget=3000)
    except NotLifted:
        LIFTED["no"] += 1
        return
    LIFTED["yes"] += 1
    differing = rule.replay(48)
    assert differing is None, (source, differing, said(refusal, differing))
    for values in calls:
        call = spec(**values)
        expected = said(refusal, call)
        assert said(rule, call) == expected, (source, call)
        if inside(rule.domain, call):
            serves = expected == ("gives", type(None), None)
            assert rule.serves(call) is serves, (source, call, str(rule.serves))
            assert rule.raises(call) is (expected[0] == "raises"), (source, call, str(rule.raises))


SEEDS = st.integers(0, 2**48)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(SEEDS)
def test_the_compiled_function_equals_the_original(seed: int) -> None:
    check(seed)


def test_most_random_programs_lift() -> None:
    if sum(LIFTED.values()) < 300:
        pytest.skip("the programs of the test above were not run in this process")
    assert LIFTED["yes"] > 4 * LIFTED["no"], LIFTED


@pytest.mark.nightly
@settings(max_examples=10_000, deadline=None)
@given(SEEDS)
def test_the_compiled_function_equals_the_original_on_ten_thousand_programs(seed: int) -> None:
    check(seed)
