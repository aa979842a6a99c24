"""Calls guessed in plain Python: what is found holds, and most of what can hold is found."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_rules import Candidate, Selector
from tileops_rules.expr import conjunction, negation
from tileops_solver.checks.reach import reach_of
from tileops_solver.engine import Outcome
from tileops_solver.guessing import guessed_call
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Whole, random_selector


def anything(call: Any) -> None:
    return None


def test_what_is_guessed_holds_and_most_of_what_can_hold_is_guessed() -> None:
    possible = found = 0
    for seed in range(60):
        whole = Whole(random_selector(seed))
        subject = Subject(whole.selector)
        draw = random.Random(seed)
        for _ in range(4):
            one, other = draw.choice(whole.keys), draw.choice(whole.keys)
            parts = [subject.valid, subject.lifted[one], negation(subject.lifted[other])]
            answer = whole.serves[one] - whole.serves[other]
            call = guessed_call(conjunction(parts), subject.domain, anything)
            possible += bool(answer)
            found += call is not None
            assert call is None or call in answer, seed
    assert possible > 50
    assert found >= 0.9 * possible


@dataclass(frozen=True)
class Call:
    rows: int = 1
    cols: int = 1
    heads: int = 1
    heads_kv: int = 1

    def invalid(self) -> str | None:
        return None if self.heads_kv > 0 and self.heads % self.heads_kv == 0 else "no groups"


def aligned(call: Call) -> str | None:
    return None if call.cols % 64 == 0 and call.cols % 128 != 0 and call.cols > 3 * call.rows else "no"


def groups(call: Call) -> str | None:
    return None if call.heads == 8 * call.heads_kv and call.rows >= 1000 else "no"


@pytest.mark.parametrize("rule", [aligned, groups])
def test_alignment_ratios_and_groups_need_no_solver(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Selector(Call, [Candidate("a", rule)]))
    monkeypatch.setattr("tileops_solver.z3_backend.load", None)
    witness = reach_of(subject).example(subject, "a")
    assert witness.outcome is Outcome.POSSIBLE
    assert rule(witness.call) is None
    assert witness.call.invalid() is None


def test_what_the_spec_rejects_is_not_guessed() -> None:
    @dataclass(frozen=True)
    class Strict:
        n: int = 0

        def __post_init__(self) -> None:
            if len(range(self.n)) < 3:
                raise ValueError("too few")

    subject = Subject(Selector(Strict, [Candidate("a", anything)]))
    assert guessed_call(subject.lifted["a"], subject.domain, anything) is None
    assert guessed_call(subject.lifted["a"], Subject(Selector(Call, [Candidate("a", anything)])).domain, str) is None


def test_a_long_search_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Selector(Call, [Candidate("a", aligned)]))
    question = conjunction([subject.valid, subject.lifted["a"]])
    assert guessed_call(question, subject.domain, anything) is not None
    monkeypatch.setattr("tileops_solver.guessing._MOST_READ", -1000)
    assert guessed_call(question, subject.domain, anything) is None
