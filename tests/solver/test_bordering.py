"""How the cases at a border are looked for: along a ray, beside other conditions, platform by platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_rules import expr as E
from tileops_solver import InconsistencyError, bordering
from tileops_solver.bordering import cases_of
from tileops_solver.cases import Border, Case
from tileops_solver.engine import Outcome
from tileops_solver.placing import shown_on
from tileops_solver.subject import Subject
from tileops_solver.witness import Witness


@dataclass(frozen=True)
class Linked:
    n: Annotated[int, Range(0, 30)] = 0
    m: Annotated[int, Range(0, 9)] = 0
    k: Annotated[int, Range(0, 9)] = 0

    def invalid(self) -> str | None:
        return "6 comes with a larger m or k" if self.n == 6 and self.m <= 5 and self.k <= 5 else None


def found(selector: Selector) -> dict[str, Case]:
    cases = cases_of(Subject(selector))
    assert cases.complete
    assert cases.undecided == ()
    return {str(case): case for case in cases.cases}


def only(spec: type, rule: Callable[[Any], bool]) -> dict[str, Case]:
    return found(Selector(spec, [Candidate("only", lambda call: None if rule(call) else "no")]))


def test_where_other_conditions_change_too_as_few_as_can_be_do() -> None:
    """With n at 6 one of m and k is out of its bounds, and one is enough."""
    cases = only(Linked, lambda call: call.n <= 5 and call.m <= 5 and call.k <= 5)
    beside, further = (cases[f"n={n}-outside-only"] for n in (6, 7))
    assert (beside.call, beside.borders) == (
        Linked(6, 0, 6),
        (Border("only", "claims", "n <= 5", "outside", "n=6", ("k <= 5",)),),
    )
    assert (further.call, further.borders) == (
        Linked(7, 0, 0),
        (Border("only", "claims", "n <= 5", "outside", "n=7"),),
    )
    assert {name: case.call for name, case in cases.items()} == {
        "smallest-inside-only": Linked(0, 0, 0),
        "n=5-on-only": Linked(5, 0, 0),
        "n=4-inside-only": Linked(4, 0, 0),
        "n=6-outside-only": Linked(6, 0, 6),
        "n=7-outside-only": Linked(7, 0, 0),
        "m=5-on-only": Linked(0, 5, 0),
        "m=4-inside-only": Linked(0, 4, 0),
        "m=6-outside-only": Linked(0, 6, 0),
        "k=5-on-only": Linked(0, 0, 5),
        "k=4-inside-only": Linked(0, 0, 4),
        "k=6-outside-only": Linked(0, 0, 6),
    }


@dataclass(frozen=True)
class Joined:
    n: Annotated[int, Range(0, 30)] = 0
    m: Annotated[int, Range(0, 9)] = 0
    k: Annotated[int, Range(0, 9)] = 0
    j: Annotated[int, Range(0, 9)] = 0

    def invalid(self) -> str | None:
        if self.n != 6 or self.m > 5 or (self.k > 5 and self.j > 5):
            return None
        return "6 comes with a larger m, or with both k and j larger"


def test_one_other_condition_stands_before_two_whichever_call_is_smaller() -> None:
    cases = only(Joined, lambda call: call.k <= 5 and call.j <= 5 and call.m <= 5 and call.n <= 5)
    beside = cases["n=6-outside-only"]
    assert beside.call == Joined(6, 6, 0, 0)
    assert beside.borders == (Border("only", "claims", "n <= 5", "outside", "n=6", ("m <= 5",)),)


def test_what_is_not_decided_is_told_once_for_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Witness(Outcome.UNKNOWN, None, reason="on purpose")
    monkeypatch.setattr(Subject, "find", lambda *arguments: unknown)
    cases = cases_of(Subject(Selector(Linked, [Candidate("only", lambda call: None if call.n <= 5 else "no")])))
    assert (cases.cases, cases.complete) == ((), True)
    assert cases.undecided == ("claims of only, the smallest call: on purpose",)


@dataclass(frozen=True)
class Stepped:
    n: Annotated[int, Range(0, 30)] = 0
    m: Annotated[int, Range(0, 9)] = 1

    def invalid(self) -> str | None:
        return "not there" if self.n == 18 or (self.n == 19 and self.m != 3) else None


def test_along_one_field_a_call_with_one_change_stands_before_a_nearer_one_with_two() -> None:
    cases = only(Stepped, lambda call: call.n <= 17)
    assert {name: case.call for name, case in cases.items()} == {
        "smallest-inside-only": Stepped(0, 1),
        "n=17-on-only": Stepped(17, 1),
        "n=16-inside-only": Stepped(16, 1),
        "n=20-outside-only": Stepped(20, 1),
    }


@dataclass(frozen=True)
class Even:
    n: Annotated[int, Range(0, 4000)] = 0
    m: Annotated[int, Range(0, 4000)] = 0

    def invalid(self) -> str | None:
        return "not there" if 300 < self.n + self.m < 777 else None


def test_along_a_sum_the_nearest_call_is_found_however_far_it_is() -> None:
    cases = only(Even, lambda call: call.n + call.m <= 300)
    assert {name: case.call.n + case.call.m for name, case in cases.items()} == {
        "smallest-inside-only": 0,
        "m+n=300-on-only": 300,
        "m+n=299-inside-only": 299,
        "m+n=777-outside-only": 777,
    }
    assert cases["m+n=777-outside-only"].borders == (
        Border("only", "claims", f"{E.add(E.integer(('n',)), E.integer(('m',)))} <= 300", "outside", "m + n=777"),
    )


@dataclass(frozen=True)
class Optionally:
    n: Annotated[int, Range(0, 50)] = 1
    m: Annotated[int, Range(0, 50)] = 1
    window: Optional[Annotated[int, Range(0, 9)]] = None


@pytest.mark.parametrize(
    ("rule", "sides"),
    [
        (lambda c: c.window is None or c.n + c.window <= 12, {"n + window": (12, 11)}),
        (lambda c: c.m == 0 or c.n + c.n // c.m <= 12, {"n + (n // m)": (12, 11, 13)}),
    ],
    ids=["a field that is not there", "a divisor that is 0"],
)
def test_a_sum_of_which_the_smallest_call_has_no_value_is_a_face_as_any(
    rule: Callable[[Any], bool], sides: dict[str, tuple[int, ...]]
) -> None:
    cases = only(Optionally, rule)
    for subject, values in sides.items():
        seen = {border.at for case in cases.values() for border in case.borders}
        assert {f"{subject}={value}" for value in values} <= seen
        for case in cases.values():
            for border in case.borders:
                assert rule(case.call) is (border.where != "outside"), border


# ---------------------------------------------------------------------------------------------- several platforms


@dataclass(frozen=True)
class Placed:
    n: int = 1
    m: int = 1
    device: str | None = None
    arch: int | None = None
    sm_count: int | None = None


def placed() -> Selector:
    return Selector(
        Placed,
        [
            Candidate("wide", lambda c: None if c.n * c.m >= 12 else "small", general=True),
            Candidate("narrow", lambda c: None if c.n * c.m >= 20 and c.m <= 7 else "no", supported_archs=[80, 90]),
        ],
    )


def test_no_question_is_asked_twice_and_on_a_further_arch_mostly_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = Subject.find

    def counted(self: Subject, parts: Iterable[Any], *rest: Any) -> Any:
        parts = tuple(parts)
        asked.append(parts)
        return real(self, parts, *rest)

    monkeypatch.setattr(Subject, "find", counted)
    cases_of(Subject(placed(), archs=[90]))
    first, times = len(asked), Counter(asked)
    assert max(times.values()) == 1
    asked.clear()
    cases_of(Subject(placed(), archs=[80, 90]))
    assert max(Counter(asked).values()) == 1
    assert len(asked) < 1.5 * first


# ------------------------------------------------------------------------------------------------ original methods


@pytest.mark.parametrize("wrong", range(1, 8))
def test_every_border_of_a_case_is_held_against_the_original_methods(
    monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    """One call stands at two faces: whichever time it is run, an answer that is not the rule's is an error."""
    rule: Callable[[Any], bool] = lambda call: call.n >= 2 and call.m <= 5  # noqa: E731
    seen = only(Linked, rule)
    real, times = bordering.serving, 0
    assert len(seen["smallest-inside-only"].borders) == 2

    def turned(selector: Selector, call: Any) -> Any:
        nonlocal times
        times += 1
        mask, raising = real(selector, call)
        return (mask ^ 1 if times == wrong else mask), raising

    monkeypatch.setattr(bordering, "serving", turned)
    with pytest.raises(InconsistencyError, match="is not when it is run") as raised:
        only(Linked, rule)
    assert "region (claims)" in str(raised.value.facts)
    assert times == wrong


def test_as_many_runs_as_borders_confirm_them(monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = bordering.serving, 0

    def counted(selector: Selector, call: Any) -> Any:
        nonlocal times
        times += 1
        return real(selector, call)

    monkeypatch.setattr(bordering, "serving", counted)
    cases = only(Linked, lambda call: call.n >= 2 and call.m <= 5)
    assert times == sum(len(case.borders) for case in cases.values())


# ----------------------------------------------------------------------------------------------------- what is shown


@pytest.mark.parametrize(
    ("platform", "arch", "call", "shown"),
    [
        ("sm_90", 90, Placed(1, 1, "cuda", 90, 132), "Placed()"),
        ("sm_90", 90, Placed(3, 1, "cuda", 90, 132), "Placed(n=3)"),
        ("sm_90", 90, Placed(1, 2, "cuda", 90, 131), "Placed(m=2, sm_count=131)"),
        ("cpu", None, Placed(1, 1, "cpu"), "Placed()"),
        ("", None, Placed(1, 4, None, 90), "Placed(m=4, arch=90)"),
        ("", None, Placed(True, 1), "Placed(n=True)"),
    ],
)
def test_a_call_is_shown_without_what_every_call_there_has(
    platform: str, arch: int | None, call: Placed, shown: str
) -> None:
    assert shown_on(platform, arch, call) == shown
