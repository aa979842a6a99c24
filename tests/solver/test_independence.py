"""Fields that change no choice, and the values at which a choice changes, against enumeration."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_solver import InconsistencyError, TargetError, audit
from tileops_solver.findings import InterfaceReport, Severity


@dataclass(frozen=True)
class Tiny:
    n: Annotated[int, Range(-2, 7)] = 1
    m: Annotated[int, Range(0, 4)] = 0
    mode: Literal["x", "y", "z"] = "x"
    flag: bool = False
    window: Optional[Annotated[int, Range(0, 2)]] = None

    def invalid(self) -> str | None:
        return "n is below m" if self.n < self.m - 2 else None


CALLS = [
    Tiny(n, m, mode, flag, window)
    for n, m, mode, flag, window in itertools.product(range(-2, 8), range(5), "xyz", (False, True), (None, 0, 1, 2))
]

CLAUSES: tuple[Callable[[Any], bool], ...] = (
    lambda c: c.n <= 3,
    lambda c: c.n % 2 == 0,
    lambda c: c.n * c.m >= 4,
    lambda c: c.mode == "x",
    lambda c: c.mode != "z",
    lambda c: not c.flag,
    lambda c: c.window is None,
    lambda c: c.window is not None and c.window >= 1,
    lambda c: c.n + c.m == 5,
    lambda c: c.n > c.m,
)


def refusing(*clauses: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    def refusal(call: Any) -> str | None:
        for clause in clauses:
            if not clause(call):
                return "no"
        return None

    return refusal


def random_selector(seed: int) -> Selector:
    draw = random.Random(seed)
    keys = ["a", "b", "c"][: draw.randint(1, 3)]
    general = draw.choice([None, keys[-1]])
    candidates = [
        Candidate(
            key,
            refusing(*draw.sample(CLAUSES, draw.randint(0, 3))),
            general=key == general,
            preferred_over=frozenset(k for k in keys[i + 1 :] if k != general and draw.random() < 0.5)
            if key != general
            else frozenset(),
        )
        for i, key in enumerate(keys)
    ]
    return Selector(Tiny, candidates)


def choice(selector: Selector, call: Any) -> frozenset[str]:
    """By the original functions alone."""
    serving = [c.key for c in selector.candidates if c.refusal(call) is None]
    beaten = {k for key in serving for k in selector.wins_over[key]}
    return frozenset(set(serving) - beaten)


def report(selector: Selector, **asked: Any) -> InterfaceReport:
    (found,) = audit(selector, select=["independence"], **asked).interfaces
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_field_is_independent_exactly_where_enumeration_finds_no_pair(seed: int) -> None:
    selector = random_selector(seed)
    chosen = {call: choice(selector, call) for call in CALLS if call.invalid() is None}
    for field in ("n", "m", "mode", "flag", "window"):
        groups: dict[Any, set[frozenset[str]]] = {}
        for call, keys in chosen.items():
            rest = tuple(v for name, v in vars(call).items() if name != field)
            groups.setdefault(rest, set()).add(keys)
        depends = any(len(different) > 1 for different in groups.values())
        found = report(selector, independent_of=[field])
        assert [f.subject for f in found.findings] == ([field] if depends else [])
        assert (f"{field} changes no choice: proved" in found.facts) is not depends
        for finding in found.findings:
            other = finding.facts["other"]
            assert finding.severity is Severity.ERROR
            assert replace(finding.witness, **{field: getattr(other, field)}) == other
            assert chosen[finding.witness] != chosen[other]
            assert tuple(map(frozenset, finding.facts["choices"])) == (chosen[finding.witness], chosen[other])


@pytest.mark.parametrize("seed", range(20))
def test_the_values_at_which_a_choice_changes_are_those_of_enumeration(seed: int) -> None:
    selector = random_selector(seed)
    chosen = {call: choice(selector, call) for call in CALLS if call.invalid() is None}
    for field in ("n", "m"):
        expected = set()
        for call, keys in chosen.items():
            before = replace(call, **{field: getattr(call, field) - 1})
            if before in chosen and chosen[before] != keys:
                expected.add(getattr(call, field))
        (fact,) = report(selector, changes_within=[field]).facts
        assert fact.startswith(f"within {field} the choice changes at ")
        assert fact.endswith(": proved")
        assert {int(value) for value in re.findall(r"(-?\d+) \(", fact)} == expected


def test_a_remainder_of_an_open_field_changes_too_often_to_list() -> None:
    @dataclass(frozen=True)
    class Open:
        n: int = 0

    (fact,) = report(Selector(Open, [Candidate("a", refusing(lambda c: c.n % 3 == 0))]), changes_within=["n"]).facts
    assert "at more than 64 values" in fact
    assert "proved" not in fact


def test_a_rule_that_was_not_lifted_leaves_it_undecided() -> None:
    selector = Selector(Tiny, [Candidate("a", lambda call: None if len(str(call.n)) > 1 else "short")])
    found = report(selector, independent_of=["mode"], changes_within=["n"])
    assert not found.findings
    assert not found.facts
    assert [(u.keys, u.subject) for u in found.undecided] == [(("a",), "mode"), (("a",), "n")]


SWITCH = {"on": True}


def test_a_method_that_changed_since_it_was_lifted_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    def switched(call: Any) -> str | None:
        return None if call.flag and SWITCH["on"] else "off"

    selector = Selector(Tiny, [Candidate("a", switched)])
    assert selector.rules
    monkeypatch.setattr("tileops_solver.auditing.replay_rules", lambda *args: None)
    monkeypatch.setitem(SWITCH, "on", False)
    with pytest.raises(InconsistencyError):
        audit(selector, select=["independence"], independent_of=["flag"])


def test_a_field_that_no_interface_has_is_refused() -> None:
    with pytest.raises(TargetError, match="no interface has a field tune"):
        audit(random_selector(0), independent_of=["tune"])
    with pytest.raises(TargetError, match="mode is no integer"):
        audit(random_selector(0), changes_within=["mode"])
