"""``find_call``: what it takes, what limits it, and its three answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import pytest
from tileops_rules import fields, lift
from tileops_solver import Answer, InconsistencyError, Verdict, find_call


@dataclass(frozen=True)
class Heads:
    heads: int = 1
    heads_kv: int = 1
    length: int = 1

    def invalid(self) -> str | None:
        if self.heads_kv < 1:
            return "no heads"
        if self.heads % self.heads_kv != 0:
            return f"{self.heads} is no multiple of {self.heads_kv}"
        return None


F = fields(Heads)


def test_a_call_is_found_inside_what_the_spec_calls_valid() -> None:
    answer = find_call((F.heads > 5) & (F.heads_kv > 2))
    assert answer == Answer(Verdict.FOUND, Heads(heads=6, heads_kv=3))


def test_what_only_an_invalid_call_satisfies_is_proved_impossible() -> None:
    answer = find_call((F.heads_kv == 8) & (F.heads % 8 == 4))
    assert answer.verdict is Verdict.NONE
    assert answer.call is None
    assert answer.reason


def test_within_narrows_the_question() -> None:
    assert find_call(F.length >= 9, within=F.length % 4 == 0).call == Heads(length=12)
    assert find_call(F.length >= 9, within=F.length < 9).verdict is Verdict.NONE


def test_a_rule_is_asked_where_it_serves() -> None:
    def refusal(call: Heads) -> str | None:
        if call.length < 1024:
            return f"length {call.length} is short"
        return None if call.heads == 4 * call.heads_kv else "the group is not 4"

    rule = lift(refusal, Heads)
    assert find_call(rule.serves).call == Heads(heads=4, heads_kv=1, length=1024)
    assert find_call(rule.serves & (F.heads % 4 != 0)).verdict is Verdict.NONE
    assert find_call(rule.raises).verdict is Verdict.NONE


def test_a_question_beyond_the_limits_is_undecided_with_the_reason() -> None:
    @dataclass(frozen=True)
    class Four:
        n: int = 0
        m: int = 0
        k: int = 0
        j: int = 0

    g = fields(Four)
    product = g.n * g.m * g.k * g.j
    answer = find_call((product % 1024 == 3) & (g.n % 2 == 0))
    assert answer.verdict is Verdict.UNDECIDED
    assert answer.call is None
    assert "more than 128" in answer.reason


def test_an_invalid_that_is_not_lifted_is_run_on_what_is_found() -> None:
    @dataclass(frozen=True)
    class Opaque:
        n: int = 0
        m: int = 0

        def invalid(self) -> str | None:
            return None if len(range(self.n)) >= 1 else "n is too small"

    answer = find_call(fields(Opaque).m > 4)
    assert answer == Answer(Verdict.FOUND, Opaque(n=1, m=5))


def test_a_lifted_invalid_that_rejects_the_witness_is_our_inconsistency() -> None:
    allowed = {"least": 1}

    @dataclass(frozen=True)
    class Moving:
        n: int = 5

        def invalid(self) -> str | None:
            return None if self.n >= allowed["least"] else "n is too small"

    predicate = fields(Moving).n < 5
    assert find_call(predicate).call == Moving(1)
    allowed["least"] = 3
    with pytest.raises(InconsistencyError, match="rejects a call that its lifted form lets pass"):
        find_call(predicate)


@pytest.mark.parametrize("wrong", [True, None, "n > 3"])
def test_what_is_no_predicate_is_refused(wrong: object) -> None:
    if wrong is None:
        with pytest.raises(TypeError, match="takes a Predicate, not 3"):
            find_call(F.heads > 3, within=3)  # type: ignore[arg-type]
        return
    with pytest.raises(TypeError, match="takes a Predicate"):
        find_call(wrong)  # type: ignore[arg-type]


def test_an_answer_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="three outcomes"):
        bool(Answer(Verdict.NONE))


def test_predicates_on_other_classes_do_not_mix() -> None:
    @dataclass(frozen=True)
    class Other:
        n: int = 0

    with pytest.raises(TypeError):
        find_call(F.heads > 3, within=fields(Other).n > 3)


@dataclass(frozen=True)
class Mixed:
    x: Union[int, float] = 0
    y: int = 0


def test_the_alternatives_of_a_union_are_unknowns_of_their_own() -> None:
    c = fields(Mixed)
    asked = ((c.x >= 500) & (c.y == 1)) | ((c.x < 0.5) & (c.y == 2))
    assert find_call(asked & (c.y == 1)).call == Mixed(500, 1)
    assert find_call(asked & (c.y == 2)).call == Mixed(0.0, 2)
