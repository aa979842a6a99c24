"""Whether a field can change a choice, and at which of its values one changes, against a search of all pairs."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tileops_rules import Selector
from tileops_solver.checks.asked import Result
from tileops_solver.checks.independence import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Placed, Plain, Whole, random_selector

NUMBERS = ("a", "b")
AT = re.compile(r"(-?\d+) \((.+?) to (.+?)\)")

Choice = frozenset[str]


@dataclasses.dataclass(frozen=True)
class Holed(Plain):
    """A call without a device; those that cannot be stand between others."""

    def invalid(self) -> str | None:
        return "a hole" if (self.a == 2 and self.kind == "x") or (self.a > 2 and self.b == 0) else None


@dataclasses.dataclass(frozen=True)
class HoledPlaced(Placed):
    """A call on a device; those that cannot be stand between others."""

    def invalid(self) -> str | None:
        return "a hole" if (self.a == 1 and self.arch == 90) or (self.a > 1 and self.b == 0) else None


HOLED: dict[type, type] = {Plain: Holed, Placed: HoledPlaced}


def rule_set(seed: int) -> tuple[Selector, list[int] | None]:
    """A random one, and the archs to look at: all, for two of three."""
    made = random_selector(seed, most=4)
    archs = [80, 90] if seed % 3 == 0 and made.spec is Placed else None
    spec = HOLED[made.spec] if seed % 2 else made.spec
    return Selector(spec, made.candidates, op="Op", interface="job"), archs


def moved(call: Any, field: str, value: Any) -> Any:
    return dataclasses.replace(call, **{field: value})


def pairs_of(chosen: dict[Any, Choice], field: str) -> Iterator[tuple[Any, Any]]:
    """The ordered pairs of valid calls that differ in one field alone."""
    values = list(dict.fromkeys(getattr(call, field) for call in chosen))
    for call in chosen:
        others = (moved(call, field, value) for value in values if value != getattr(call, field))
        yield from ((call, other) for other in others if other in chosen)


def smallest_pair(whole: Whole, pairs: list[tuple[Any, Any]], field: str) -> tuple[Any, Any]:
    """The one to show: the smallest first call, and the smallest second one beside it."""
    one = whole.smallest([pair[0] for pair in pairs])
    return one, whole.smallest([pair[1] for pair in pairs if pair[0] == one])


def the_pair(whole: Whole, chosen: dict[Any, Choice], field: str) -> tuple[Any, Any] | str | None:
    """Two calls that the field tells apart; None where there are none; a text where no two differ in it alone."""
    pairs = list(pairs_of(chosen, field))
    for key in whole.keys:
        mine = [(one, other) for one, other in pairs if key in chosen[one] and key not in chosen[other]]
        if mine:
            return smallest_pair(whole, mine, field)
    return None if pairs else f"no two valid calls are shown to differ in {field} alone"


def asked(selector: Selector, archs: list[int] | None, **wanted: Any) -> Result:
    return CHECK.run(Subject(selector, archs=archs, **wanted))


def fields_agree(seed: int) -> Counter[str]:
    """Hold what is said of every field against all pairs of calls; gives how often each answer came."""
    selector, archs = rule_set(seed)
    whole = Whole(selector, archs)
    chosen = {call: whole.chosen(call) for call in whole.calls}
    fields = [each.name for each in dataclasses.fields(selector.spec)]
    result = asked(selector, archs, independent_of=fields)
    expected = {field: the_pair(whole, chosen, field) for field in fields}

    found = {each.subject: each for each in result.findings}
    assert len(found) == len(result.findings)
    assert {f: (e.witness, e.facts["other"]) for f, e in found.items()} == {
        field: pair for field, pair in expected.items() if isinstance(pair, tuple)
    }
    for field, each in found.items():
        before, after = (chosen[call] for call in expected[field])
        assert each.severity is Severity.ERROR
        assert each.facts["choices"] == (tuple(sorted(before)), tuple(sorted(after)))
        assert each.keys == tuple(sorted(before | after))
    assert list(result.facts) == [f"{f} changes no choice: proved" for f in fields if expected[f] is None]
    alone = {field: why for field, why in expected.items() if isinstance(why, str)}
    assert {each.subject for each in result.undecided} == set(alone)
    assert all(each.reason.startswith(alone[each.subject]) for each in result.undecided)
    return Counter({"found": len(found), "proved": len(result.facts), "undecided": len(alone)})


def words(choice: Choice) -> str:
    return " or ".join(sorted(choice)) or "no implementation"


def changes_agree(seed: int) -> Counter[str]:
    """Hold the values at which the choice is said to change against all calls; gives how many there were."""
    selector, archs = rule_set(seed)
    whole = Whole(selector, archs)
    chosen = {call: whole.chosen(call) for call in whole.calls}
    result = asked(selector, archs, changes_within=NUMBERS)
    assert (result.findings, result.undecided, len(result.facts)) == ((), (), len(NUMBERS))
    seen: Counter[str] = Counter()
    for field, fact in zip(NUMBERS, result.facts, strict=True):
        steps: dict[int, set[tuple[str, str]]] = {}
        for call, after in chosen.items():
            before = chosen.get(moved(call, field, getattr(call, field) - 1), after)
            if before != after:
                steps.setdefault(getattr(call, field), set()).add((words(before), words(after)))
        told = [(int(value), (before, after)) for value, before, after in AT.findall(fact)]
        assert [value for value, _ in told] == sorted(steps), fact
        assert all(change in steps[value] for value, change in told), fact
        listed = ", ".join(f"{value} ({before} to {after})" for value, (before, after) in told)
        assert fact == f"within {field} the choice changes at {f'exactly {listed}' if told else 'no value'}: proved"
        seen["changes" if told else "none"] += 1
    return seen


def test_what_is_said_of_a_field_is_what_all_pairs_of_calls_say() -> None:
    seen = sum((fields_agree(seed) for seed in range(20)), Counter())
    assert min(seen["found"], seen["proved"], seen["undecided"]) >= 5


def test_the_values_at_which_a_choice_changes_are_those_of_all_calls() -> None:
    seen = sum((changes_agree(seed) for seed in range(20)), Counter())
    assert min(seen["changes"], seen["none"]) >= 5


@pytest.mark.nightly
def test_what_is_said_of_every_field_of_2000_rule_sets_is_what_all_pairs_of_calls_say() -> None:
    for seed in range(1000, 3000):
        fields_agree(seed)


@pytest.mark.nightly
def test_the_values_at_which_the_choices_of_2000_rule_sets_change_are_those_of_all_calls() -> None:
    for seed in range(1000, 3000):
        changes_agree(seed)
