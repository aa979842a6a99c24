"""Every finding's call is run on the real methods: where they say otherwise than the rules, no finding is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_solver import InconsistencyError
from tileops_solver.checks.catalogue import CHECKS
from tileops_solver.subject import Subject


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 30)] = 1
    m: Annotated[int, Range(0, 30)] = 1


NUMBERS = {"limit": 10}


def up_to(limit: str) -> Callable[[Call], str | None]:
    def refusal(call: Call) -> str | None:
        return None if call.n < NUMBERS[limit] else "above"

    return refusal


def throws(call: Call) -> str | None:
    if call.n == NUMBERS["limit"]:
        raise LookupError("ten")
    return None


def everything(call: Call) -> str | None:
    return None if call.n >= 0 and NUMBERS["limit"] else "never"


# What each check finds, and the number that its rules read afterwards: the same rules, other methods.
FOUND: dict[str, tuple[list[Candidate], int]] = {
    "overlap": ([Candidate("a", up_to("limit")), Candidate("b", lambda call: None if call.n < 20 else "x")], -1),
    "gap": ([Candidate("a", up_to("limit"))], 40),
    "dead": ([Candidate("a", up_to("limit")), Candidate("b", everything, preferred_over={"a"})], 0),
    "raises": ([Candidate("a", throws)], 11),
    "equal": ([Candidate("a", up_to("limit")), Candidate("b", up_to("limit"), preferred_over={"a"})], -1),
}


def results(name: str) -> Any:
    return next(check for check in CHECKS if check.id == name)


@pytest.fixture(autouse=True)
def _as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NUMBERS, "limit", 10)


@pytest.mark.parametrize("name", FOUND)
def test_what_the_methods_bear_out_is_found(name: str) -> None:
    found = results(name).run(Subject(Selector(Call, FOUND[name][0])))
    assert [finding.kind for finding in found.findings] == [{"dead": "killed"}.get(name, name)]
    assert found.undecided == ()


@pytest.mark.parametrize("name", FOUND)
def test_what_the_methods_contradict_is_our_inconsistency(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, other = FOUND[name]
    selector = Selector(Call, candidates)
    assert len(selector.rules) == len(candidates)
    monkeypatch.setitem(NUMBERS, "limit", other)
    with pytest.raises(InconsistencyError) as caught:
        results(name).run(Subject(selector))
    assert isinstance(caught.value.call, Call)
    assert caught.value.facts
