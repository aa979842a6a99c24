"""Pairs of implementations: ordered, disjoint, overlapping with a witness, or undecided with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import pytest
from tileops_rules import Candidate, Rule, Selector
from tileops_solver import Finding, InconsistencyError, prove_pairs

from tests.speed import cpu_seconds, holds_within


@dataclass(frozen=True)
class Call:
    batch: int = 1
    length: int = 1
    heads: int = 1
    heads_kv: int = 1
    device: Optional[str] = None
    arch: Optional[int] = None

    def invalid(self) -> str | None:
        if self.heads_kv < 1 or self.heads % self.heads_kv != 0:
            return "heads are no multiple of heads_kv"
        return None


def one_batch(call: Call) -> str | None:
    return None if call.batch == 1 else "more than one batch"


def many_batches(call: Call) -> str | None:
    return None if call.batch >= 2 else "one batch"


def long(call: Call) -> str | None:
    return None if call.length >= 1024 else f"length {call.length} is below 1024"


def group_of_eight(call: Call) -> str | None:
    return None if call.heads == 8 * call.heads_kv else "another group"


def odd_heads(call: Call) -> str | None:
    return None if call.heads % 2 == 1 else "an even number of heads"


def everything(call: Call) -> None:
    return None


def by_the_clock(call: Call) -> str | None:
    return None if len(range(call.batch)) > 1 else "not now"


def selector(*candidates: Candidate) -> Selector:
    return Selector(Call, candidates, op="Op", interface="job")


def finding(chosen: Selector) -> Finding:
    (found,) = prove_pairs(chosen).findings
    return found


def counts(chosen: Selector) -> dict[str, int]:
    return dict(prove_pairs(chosen).pairs)


def test_an_unordered_overlap_is_found_with_the_smallest_call() -> None:
    found = finding(selector(Candidate("long_kv", long), Candidate("bs1", one_batch)))
    assert found.kind == "overlap"
    assert found.keys == ("bs1", "long_kv")
    assert found.witness == Call(length=1024, device="cuda", arch=80)
    assert type(found.witness) is Call
    assert (found.op, found.interface) == ("Op", "job")


def test_the_message_names_places_and_the_edit() -> None:
    found = finding(selector(Candidate("long_kv", long), Candidate("bs1", one_batch)))
    assert "bs1 and long_kv both serve Call(" in found.message
    assert "and neither is preferred" in found.message
    assert 'preferred_over = frozenset({"long_kv"}) in bs1' in found.message
    assert 'preferred_over = frozenset({"bs1"}) in long_kv' in found.message
    lines = [one_batch.__code__.co_firstlineno, long.__code__.co_firstlineno]
    assert found.places == tuple(f"test_overlap.py:{line}" for line in lines)
    assert all(place in found.message for place in found.places)


def test_the_edit_keeps_what_is_preferred_already() -> None:
    found = finding(
        selector(
            Candidate("long_kv", long, preferred_over={"group"}),
            Candidate("bs1", one_batch),
            Candidate("group", group_of_eight, supported_archs=[]),
        )
    )
    assert 'preferred_over = frozenset({"bs1", "group"}) in long_kv' in found.message


def test_the_edit_that_the_message_gives_settles_it() -> None:
    pairs = counts(selector(Candidate("long_kv", long, preferred_over={"bs1"}), Candidate("bs1", one_batch)))
    assert pairs == {"ordered": 1, "disjoint": 0, "overlapping": 0, "undecided": 0}


def test_a_transitive_preference_orders_a_pair() -> None:
    chosen = selector(
        Candidate("a", everything, preferred_over={"b"}),
        Candidate("b", everything, preferred_over={"c"}),
        Candidate("c", everything),
    )
    assert counts(chosen) == {"ordered": 3, "disjoint": 0, "overlapping": 0, "undecided": 0}


def test_the_general_implementation_is_in_no_pair() -> None:
    chosen = selector(Candidate("bs1", one_batch), Candidate("rest", everything, general=True))
    assert counts(chosen) == {"ordered": 0, "disjoint": 0, "overlapping": 0, "undecided": 0}


@pytest.mark.parametrize(
    "candidates",
    [
        [Candidate("a", one_batch), Candidate("b", many_batches)],
        [
            Candidate("a", everything, supported_archs=[80]),
            Candidate("b", everything, supported_archs=[90, 75]),
        ],
        [Candidate("a", everything, devices={"cpu"}), Candidate("b", everything)],
        [Candidate("a", group_of_eight), Candidate("b", odd_heads)],
        [
            Candidate("a", by_the_clock, supported_archs=[80]),
            Candidate("b", everything, supported_archs=[90]),
        ],
    ],
    ids=["rules", "archs", "devices", "arithmetic", "archs of a rule that is not lifted"],
)
def test_pairs_that_share_no_call_are_disjoint(candidates: list[Candidate]) -> None:
    assert counts(selector(*candidates)) == {"ordered": 0, "disjoint": 1, "overlapping": 0, "undecided": 0}


def test_archs_that_only_an_implementation_knows_take_part() -> None:
    found = finding(
        selector(
            Candidate("a", everything, supported_archs=[75]),
            Candidate("b", everything, supported_archs=[75, 90]),
        )
    )
    assert found.witness.arch == 75


def test_a_rule_that_is_not_lifted_leaves_its_pairs_undecided() -> None:
    proof = prove_pairs(selector(Candidate("bs1", one_batch), Candidate("clock", by_the_clock)))
    assert proof.pairs.undecided == 1
    assert proof.findings == ()
    (open_pair,) = proof.undecided
    assert open_pair.keys == ("bs1", "clock")
    assert "the rule of clock was not lifted" in open_pair.reason
    assert "batch" in open_pair.reason


def test_a_question_beyond_the_limits_leaves_its_pair_undecided() -> None:
    def one(call: Call) -> str | None:
        return None if call.batch * call.length * call.heads * call.heads_kv % 1024 == 3 else "no"

    def other(call: Call) -> str | None:
        return None if call.batch % 2 == 0 and call.length > 1 else "no"

    (open_pair,) = prove_pairs(selector(Candidate("one", one), Candidate("other", other))).undecided
    assert "more than 128" in open_pair.reason


def test_a_third_that_always_settles_the_overlap_is_named() -> None:
    chosen = selector(
        Candidate("bs1", one_batch),
        Candidate("long_kv", long),
        Candidate("third", everything, preferred_over={"bs1", "long_kv"}),
    )
    found = finding(chosen)
    assert found.keys == ("bs1", "long_kv")
    assert "On every such call third, preferred over both, is chosen" in found.message


def test_a_third_that_settles_only_some_calls_is_not_named() -> None:
    chosen = selector(
        Candidate("bs1", one_batch),
        Candidate("long_kv", long),
        Candidate("third", group_of_eight, preferred_over={"bs1", "long_kv"}),
    )
    assert "third" not in finding(chosen).message


def test_two_others_that_settle_the_overlap_between_them_are_both_named() -> None:
    def even_heads(call: Call) -> str | None:
        return None if call.heads % 2 == 0 else "odd"

    above = {"bs1", "long_kv"}
    chosen = selector(
        Candidate("bs1", one_batch),
        Candidate("long_kv", long),
        Candidate("odd", odd_heads, preferred_over=above),
        Candidate("even", even_heads, preferred_over=above),
    )
    (found,) = prove_pairs(chosen).findings
    assert "On every such call even or odd, preferred over both, is chosen" in found.message


def test_every_pair_is_reported_in_the_order_of_the_keys() -> None:
    made = [Candidate(key, everything) for key in ("b", "c", "a")]
    for order in (made, made[::-1]):
        assert [f.keys for f in prove_pairs(selector(*order)).findings] == [
            ("a", "b"),
            ("a", "c"),
            ("b", "c"),
        ]


def test_progress_is_told_of_every_implementation() -> None:
    told: list[int] = []
    prove_pairs(selector(*(Candidate(k, everything) for k in "abcd")), lambda: told.append(1))
    assert len(told) == 4


SWITCH = {"serves": True}


def switched(call: Call) -> str | None:
    return None if SWITCH["serves"] else "switched off"


def test_a_witness_that_the_real_method_refuses_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = selector(Candidate("a", switched), Candidate("b", everything))
    assert isinstance(chosen.rules["a"], Rule)
    monkeypatch.setitem(SWITCH, "serves", False)
    with pytest.raises(InconsistencyError, match="a is proved to serve a call that it does not serve") as caught:
        prove_pairs(chosen)
    assert any("switched off" in fact for fact in caught.value.facts)
    assert "report it" in str(caught.value)


def test_a_real_method_that_raises_on_the_witness_is_our_inconsistency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = selector(Candidate("a", switched), Candidate("b", everything))
    assert chosen.rules
    monkeypatch.delitem(SWITCH, "serves")
    with pytest.raises(InconsistencyError, match="does not serve when it is run"):
        prove_pairs(chosen)


def test_a_class_is_placed_at_its_own_line() -> None:
    class Base:
        @classmethod
        def refusal(cls, call: Call) -> str | None:
            return None

    class Left(Base):
        pass

    class Right(Base):
        pass

    made = [Candidate(k.__name__.lower(), k.refusal, implementation=k) for k in (Left, Right)]
    found = finding(selector(*made))
    first = Base.refusal.__func__.__code__.co_firstlineno  # type: ignore[attr-defined]
    assert found.places == (f"test_overlap.py:{first + 4}", f"test_overlap.py:{first + 7}")
    assert "in Left (" in found.message


def test_the_time_of_a_pair_is_milliseconds() -> None:
    chosen = selector(Candidate("a", group_of_eight), Candidate("b", odd_heads))
    prove_pairs(chosen)
    holds_within(0.1, lambda: cpu_seconds(lambda: prove_pairs(chosen)))
