"""Boundary cases against every call of a small domain: where they stand, what they are to get, and none left out."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_rules import Candidate, Selector
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import FALSE, TRUE, conjunction, negation, paths_of
from tileops_solver import InconsistencyError, bordering
from tileops_solver.bordering import cases_of
from tileops_solver.cases import Border, Case
from tileops_solver.faces import faces_of
from tileops_solver.placing import replaced
from tileops_solver.report.cases import as_json, as_text
from tileops_solver.subject import Subject
from tileops_solver.testing import boundary_calls

from tests.solver.tiny import READ, chosen, random_selector, serves


def in_region(selector: Selector, border: Border, call: Any) -> bool:
    if border.region == "claims":
        return serves(selector, border.key, call)
    better = {"first": (), "second": ("first",), "third": ("first", "second")}[border.key]
    return serves(selector, border.key, call) and not any(
        serves(selector, k, call) for k in better if k in selector.keys
    )


def values_of(call: Any) -> dict[Any, Any]:
    return {(f.name,): getattr(call, f.name) for f in dataclasses.fields(call)}


def check_case(selector: Selector, case: Case) -> None:
    """What a case says of itself, by the original functions alone."""
    assert case.call.invalid() is None
    if not case.note:
        assert case.expected == chosen(selector, case.call), case
    for border in case.borders:
        assert in_region(selector, border, case.call) is (border.where != "outside"), (case, border)
        if border.face:
            holds = bool(eval_face(border.face, case.call))
            assert holds is (border.where != "outside"), (case, border)


def eval_face(face: str, call: Any) -> Any:
    """A face's text as Python; `is None` of a field stands for itself."""
    names = {f.name: getattr(call, f.name) for f in dataclasses.fields(call)}
    return eval(face, {"isnan": math.isnan}, names)


def sides_by_enumeration(subject: Subject, expr: Any) -> set[tuple[str, bool]]:
    """For each face that some call inside depends on: that there is one, and whether there is one outside."""
    found: set[tuple[str, bool]] = set()
    slots = paths_of(expr)
    told_apart = {tuple(repr(values.get(path)) for path in slots): values for values in READ}.values()
    for face in faces_of(expr, subject.domain, subject.valid):
        yes, no = (replaced(expr, {face.atom: answer}) for answer in (TRUE, FALSE))
        decides = conjunction([yes, negation(no)] if face.positive else [no, negation(yes)])
        sides = {answer(face.atom, values) is face.positive for values in told_apart if answer(decides, values)}
        if True in sides:
            found |= {(face.text, side) for side in sides}
    return found


def answer(expr: Any, values: Mapping[Any, Any]) -> bool:
    try:
        return bool(evaluate(expr, values))
    except ZeroDivisionError:
        return False


def check_set(seed: int) -> int:
    """Hold the boundary cases of a random rule set against every call; gives the number of cases."""
    selector = random_selector(seed)
    subject = Subject(selector)
    found = cases_of(subject)
    assert found.complete
    assert found.undecided == ()
    assert len({str(case) for case in found.cases}) == len(found.cases), "each name is there once"
    for case in found.cases:
        check_case(selector, case)
    for key, region in itertools.product(selector.keys, ("claims", "choice")):
        there = {
            (border.face, border.where != "outside")
            for case in found.cases
            for border in case.borders
            if (border.key, border.region) == (key, region)
        }
        better = [subject.lifted[k] for k in subject.better(key)] if region == "choice" else []
        expr = conjunction([subject.lifted[key], *map(negation, better)])
        if region == "choice" and expr is subject.lifted[key]:
            assert not there, "nothing is taken from what it claims"
            continue
        wanted = sides_by_enumeration(subject, expr)
        assert wanted <= there, (seed, key, region, sorted(wanted - there))
    return len(found.cases)


@pytest.mark.parametrize("seed", range(12))
def test_every_case_is_where_it_says_and_no_side_of_a_face_is_missing(seed: int) -> None:
    assert check_set(seed) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12, 400))
def test_no_side_of_a_face_is_missing_in_many_more_rule_sets(seed: int) -> None:
    check_set(seed)


# ------------------------------------------------------------------------------------------------- by hand


@dataclass(frozen=True)
class Sized:
    n: int = 8
    m: int = 1


def borders_of(selector: Selector, **facts: Any) -> set[tuple[str, str, str]]:
    """Face, side and value of every border, and what changes with it."""
    cases = cases_of(Subject(selector), **facts).cases
    return {(b.face, b.where, " & ".join([b.at, *b.also])) for case in cases for b in case.borders if b.face}


def test_the_calls_at_integer_faces_are_the_bound_and_its_neighbours_or_the_nearest_that_can_be() -> None:
    def refusal(call: Sized) -> str | None:
        return None if 8 <= call.n <= 64 and call.n % 8 == 0 else "no"

    assert borders_of(Selector(Sized, [Candidate("only", refusal)])) == {
        ("n >= 8", "on", "n=8"),
        ("n >= 8", "inside", "n=16"),
        ("n >= 8", "outside", "n=7 & n % 8 == 0"),
        ("n >= 8", "outside", "n=0"),
        ("n <= 64", "on", "n=64"),
        ("n <= 64", "inside", "n=56"),
        ("n <= 64", "outside", "n=65 & n % 8 == 0"),
        ("n <= 64", "outside", "n=72"),
        ("n % 8 == 0", "on", "n % 8=0"),
        ("n % 8 == 0", "outside", "n % 8=1"),
        ("n % 8 == 0", "outside", "n % 8=7"),
    }


def test_the_calls_at_float_faces_are_the_constant_its_neighbours_and_nan_where_it_is_told_apart() -> None:
    @dataclass(frozen=True)
    class Scaled:
        ratio: float = 1.0

    def narrow(call: Scaled) -> str | None:
        return None if call.ratio < 2.0 else "no"

    def wide(call: Scaled) -> str | None:
        return None if call.ratio < 2.0 or call.ratio >= 2.0 else "not a number"

    below, above = math.nextafter(2.0, 0.0), math.nextafter(2.0, 3.0)
    assert borders_of(Selector(Scaled, [Candidate("only", narrow)])) == {
        ("ratio < 2.0", "inside", f"ratio={below!r}"),
        ("ratio < 2.0", "outside", "ratio=2.0"),
        ("ratio < 2.0", "outside", f"ratio={above!r}"),
    }
    outside = {border for border in borders_of(Selector(Scaled, [Candidate("only", wide)])) if border[1] == "outside"}
    assert outside == {("ratio < 2.0", "outside", "ratio=nan"), ("ratio >= 2.0", "outside", "ratio=nan")}


def test_a_case_differs_from_the_smallest_call_in_one_field_where_that_is_enough() -> None:
    def refusal(call: Sized) -> str | None:
        return None if call.n >= 100 and call.m >= 10 and call.n + call.m <= 300 else "no"

    found = {str(case): case.call for case in cases_of(Subject(Selector(Sized, [Candidate("only", refusal)]))).cases}
    assert found == {
        "smallest-inside-only": Sized(100, 10),
        "n=101-inside-only": Sized(101, 10),
        "n=99-outside-only": Sized(99, 10),
        "m=11-inside-only": Sized(100, 11),
        "m=9-outside-only": Sized(100, 9),
        "m+n=300-on-only": Sized(100, 200),
        "m+n=299-inside-only": Sized(100, 199),
        "m+n=301-outside-only": Sized(100, 201),
    }


def test_a_remainder_beside_a_face_is_a_step_from_the_smallest_call_and_not_far_away() -> None:
    @dataclass(frozen=True)
    class Wide:
        dim: int = 64

    def refusal(call: Wide) -> str | None:
        return None if call.dim >= 16 and call.dim % 16 == 0 else "no"

    calls = {str(case): case.call.dim for case in cases_of(Subject(Selector(Wide, [Candidate("only", refusal)]))).cases}
    assert (calls["dim%16=1-outside-only"], calls["dim%16=15-outside-only"]) == (65, 63)


@dataclass(frozen=True)
class Placed:
    n: int = 1
    device: str | None = None
    arch: int | None = None
    sm_count: int | None = None


def placed_selector(**least: int) -> Selector:
    def wide(call: Placed) -> str | None:
        return None if call.n >= least.get("wide", 1) else "n is too small"

    def narrow(call: Placed) -> str | None:
        return None if call.n < least.get("narrow", 5) else "n is too large"

    return Selector(
        Placed,
        [
            Candidate("wide", wide, general=True, supported_archs=[80, 90]),
            Candidate("narrow", narrow, supported_archs=[90]),
            Candidate("slow", lambda call: None, devices={"cpu"}),
        ],
        op="PlacedOp",
        interface="placed",
    )


def test_each_platform_has_its_own_cases_and_where_one_cannot_run_is_a_face() -> None:
    cases = cases_of(Subject(placed_selector())).cases
    told = {(str(case), case.face, case.expected) for case in cases if case.borders[0].at in ("", "n=4", "n=5")}
    archs = ("sm_86", "sm_89", "sm_100", "sm_120")
    assert told == {
        *((f"{name}-outside-narrow", "arch == 90", None) for name in archs),
        ("sm_80-outside-narrow", "arch == 90", "wide"),
        ("sm_90-inside-narrow", "arch == 90", "narrow"),
        ("sm_90-n=4-on-narrow", "n <= 4", "narrow"),
        ("sm_90-n=5-outside-narrow", "n <= 4", "wide"),
        ("cpu-outside-narrow", "device.type == 'cuda'", "slow"),
    }, "the others stand at one of these too"
    at = {(case.call.n, case.call.arch): {str(b) for b in case.borders} for case in cases}
    assert {"outside-slow", "inside-wide", "n=1-on-wide"} <= at[1, 90]
    assert {"n=4-outside-choice-wide"} <= at[4, 90]
    assert {"n=5-on-choice-wide"} <= at[5, 90]
    assert all((case.call.device == "cuda") is (case.call.arch is not None) for case in cases)


def test_archs_and_within_narrow_what_is_looked_at() -> None:
    from tileops_rules import fields

    selector = placed_selector()
    few = cases_of(Subject(selector, archs=[90])).cases
    assert {case.platform for case in few} == {"sm_90"}
    c = fields(Placed, domain=selector.domain)
    odd = cases_of(Subject(selector, archs=[90]), within=(c.sm_count == 7) & (c.n >= 3)).cases
    assert {(case.call.n, case.call.sm_count) for case in odd} == {(3, 7), (4, 7), (5, 7), (6, 7)}


def test_where_a_float_beside_the_constant_is_not_valid_the_nearest_that_is_stands_there() -> None:
    @dataclass(frozen=True)
    class Capped:
        cap: float = 0.0

        def invalid(self) -> str | None:
            return None if self.cap == 0.0 or self.cap >= 0.5 else "neither off nor large enough"

    def refusal(call: Capped) -> str | None:
        return None if call.cap == 0.0 else "no"

    assert borders_of(Selector(Capped, [Candidate("only", refusal)])) == {
        ("cap == 0.0", "on", "cap=0.0"),
        ("cap == 0.0", "outside", "cap=0.5"),
    }


class PlacedOp:
    interfaces: Mapping[str, Any] = {"placed": type("Face", (), {"request": Placed})}
    kernel_types: Mapping[str, Any] = {
        "small": type(
            "Small",
            (interfaces["placed"],),
            {
                "supported_archs": [90],
                "refusal": staticmethod(lambda call: None if call.n < 64 else "n is not below 64"),
            },
        )
    }


def test_boundary_calls_are_a_list_with_names_for_parametrize() -> None:
    found = boundary_calls(PlacedOp, "placed", archs=[90])
    assert [str(case) for case in found] == [
        "sm_90-inside-small",
        "sm_90-n=63-on-small",
        "sm_90-n=62-inside-small",
        "sm_90-n=64-outside-small",
    ]
    assert [case.expected for case in found] == ["small", "small", "small", None]
    assert (found[1].face, found[1].where, found[1].platform, found[1].call.n) == ("n <= 63", "on", "sm_90", 63)
    assert [str(c) for c in boundary_calls(PlacedOp(), "placed", archs=[90])] == [str(case) for case in found]


def test_boundary_calls_are_the_same_in_any_order_of_the_implementations() -> None:
    def again(reverse: bool) -> list[str]:
        candidates = list(placed_selector().candidates)
        selector = Selector(Placed, reversed(candidates) if reverse else candidates)
        return [f"{case} {case.call!r} {case.expected}" for case in cases_of(Subject(selector)).cases]

    assert again(False) == again(True)


def test_more_calls_than_allowed_are_an_error_and_never_left_out_silently() -> None:
    with pytest.raises(ValueError, match="more than 3 boundary calls: name archs"):
        boundary_calls(PlacedOp, "placed", archs=[90], most=3)
    assert len(boundary_calls(PlacedOp, "placed", archs=[90], most=4)) == 4
    stopped = cases_of(Subject(Selector.of(PlacedOp, "placed")), most=3)
    assert (stopped.complete, len(stopped.cases)) == (False, 3)
    assert "the limit is reached" in as_text(stopped)


def test_a_rule_that_is_not_lifted_is_told_and_not_passed_over() -> None:
    class Op(PlacedOp):
        kernel_types = {
            **PlacedOp.kernel_types,
            "odd": type(
                "Odd",
                (PlacedOp.interfaces["placed"],),
                {"general": True, "refusal": staticmethod(lambda call: None if len(range(call.n)) > 3 else "no")},
            ),
        }

    with pytest.warns(RuntimeWarning, match="boundary calls of Op.placed may be missing:\n  odd: the rule of odd"):
        found = boundary_calls(Op, "placed", archs=[90])
    assert {case.call.n: case.expected for case in found} == {1: "small", 62: "small", 63: "small", 64: "odd"}


def test_ties_and_rules_that_raise_are_notes_and_nothing_is_expected() -> None:
    def low(call: Sized) -> str | None:
        return None if call.n < 10 else "no"

    def high(call: Sized) -> str | None:
        return None if call.n > 5 else "no"

    def fragile(call: Sized) -> str | None:
        return None if 12 // (call.n - 20) == 1 else "no"

    tied = cases_of(Subject(Selector(Sized, [Candidate("low", low), Candidate("high", high)]))).cases
    assert {case.note for case in tied if 5 < case.call.n < 10} == {"high, low tie"}
    assert all(case.expected is None for case in tied if case.note)
    raising = cases_of(Subject(Selector(Sized, [Candidate("low", low), Candidate("fragile", fragile)]))).cases
    assert [(c.call.n, c.expected, c.note) for c in raising if c.note] == [
        (20, None, "the rule of fragile raises ZeroDivisionError")
    ]


def test_a_rule_that_changed_since_it_was_lifted_is_our_inconsistency() -> None:
    least = {"n": 4}

    def refusal(call: Sized) -> str | None:
        return None if call.n >= least["n"] else "no"

    selector = Selector(Sized, [Candidate("only", refusal)])
    assert selector.rules
    least["n"] = 5
    with pytest.raises(InconsistencyError):
        cases_of(Subject(selector))


def test_a_case_that_is_not_on_its_side_of_the_border_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(*arguments: Any) -> Any:
        for face in faces_of(*arguments):
            other = {"on": "outside", "inside": "outside", "outside": "inside"}
            spots = (dataclasses.replace(spot, where=other[spot.where]) for spot in face.spots)
            yield dataclasses.replace(face, spots=tuple(sorted(spots, key=lambda spot: spot.where)))

    monkeypatch.setattr(bordering, "faces_of", turned)
    with pytest.raises(InconsistencyError, match="is to be inside at `n <= 63` of small is not when it is run"):
        boundary_calls(PlacedOp, "placed", archs=[90])


def test_an_invalid_that_is_not_lifted_limits_what_is_found() -> None:
    @dataclass(frozen=True)
    class Opaque:
        n: int = 1

        def invalid(self) -> str | None:
            return None if len(range(self.n)) != 7 else "n is 7"

    def refusal(call: Opaque) -> str | None:
        return None if call.n <= 6 else "no"

    found = cases_of(Subject(Selector(Opaque, [Candidate("only", refusal)]))).cases
    assert {case.call.n for case in found} == {1, 5, 6, 8}, "7 cannot be; 8 is the nearest outside"


def test_the_list_is_written_as_text_and_as_json() -> None:
    found = cases_of(Subject(Selector.of(PlacedOp, "placed"), archs=[90]))
    assert as_text(found) == (
        "PlacedOp.placed: 4 boundary cases (Placed)\n"
        "\n"
        "sm_90: small, what it serves\n"
        "  arch == 90  inside         -> small  Placed()\n"
        "  n <= 63     on       n=63  -> small  Placed(n=63)\n"
        "  n <= 63     inside   n=62  -> small  Placed(n=62)\n"
        "  n <= 63     outside  n=64  -> none   Placed(n=64)\n"
    )
    data = json.loads(as_json(found))
    assert (data["op"], data["interface"], data["spec"], data["complete"]) == ("PlacedOp", "placed", "Placed", True)
    assert data["cases"][3] == {
        "id": "sm_90-n=64-outside-small",
        "platform": "sm_90",
        "expected": None,
        "note": "",
        "call": {"n": 64, "device": "cuda", "arch": 90, "sm_count": 132},
        "borders": [
            {"key": "small", "region": "claims", "face": "n <= 63", "where": "outside", "at": "n=64", "also": []}
        ],
    }


def test_it_is_imported_without_pytest(fresh_python: Callable[..., Any]) -> None:
    code = "import sys, tileops_solver.testing; print([m for m in ('pytest', 'torch', 'z3') if m in sys.modules])"
    done = fresh_python("-c", code)
    assert done.stdout == "[]\n", done.stderr
