"""The domain of two call specs together: it has the values of both, and says which of them each one leaves out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_rules import expr as ex
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import Domain, Outside, domain_of
from tileops_rules.evaluating import evaluate
from tileops_solver import z3_backend
from tileops_solver.allowing import AllowFileError
from tileops_solver.checks.cycles import table_findings
from tileops_solver.coverage_map import CoverageMap
from tileops_solver.diffing.domains import common_domain, inside
from tileops_solver.diffing.live import NOBODY, chosen_by_methods
from tileops_solver.faces import Ray
from tileops_solver.places import class_place
from tileops_solver.placing import slots_of, with_facts_of
from tileops_solver.subject import Platform

Small, Middle, Large = (Annotated[int, Range(*ends)] for ends in ((0, 5), (3, 9), (-2, 20)))
Low, High = Annotated[float, Range(0.0, 1.0)], Annotated[float, Range(0.5, 2.0)]
PAIRS: list[tuple[Any, Any, list[Any]]] = [
    (Small, Middle, list(range(-3, 22))),
    (Middle, Large, list(range(-3, 22))),
    (Large, Small, list(range(-3, 22))),
    (Small, Small, list(range(-1, 7))),
    (int, Small, [0, 5, 6, 2**40, 2**40 + 1, -1]),
    (Low, High, [-1.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5]),
    (float, High, [-1.0, 0.5, 2.0, 2.5]),
    (Annotated[float, Range(lo=0.5)], Low, [-1.0, 0.0, 0.5, 1.0, 9.0]),
    (Literal["a", "b"], Literal["b", "c"], ["a", "b", "c", "d"]),
    (Literal[1, 2], Literal[True, 2], [1, 2, True]),
    (bool, bool, [True, False]),
    (str, str, ["", "x"]),
    (Annotated[str, OneOf("x", "y")], Annotated[str, OneOf("y")], ["x", "y", "z"]),
    (Small | None, Middle | None, [None, *range(-1, 11)]),
    (Small, Middle | None, [None, *range(-1, 11)]),
    (Small | None, Middle, [None, *range(-1, 11)]),
    (Small | Annotated[str, OneOf("x")], Middle | Annotated[str, OneOf("x", "y")], ["x", "y", 0, 4, 7]),
    (tuple[Small, ...], tuple[Middle, ...], [(), (0,), (4,), (7,), (4, 4), (0, 4), (4, 7), (7, 7, 7)]),
    (tuple[Small, bool], tuple[Middle, bool], [(0, True), (4, False), (7, True), (12, True)]),
]


def spec_of(annotation: Any, default: Any) -> type:
    return make_dataclass("Call", [("f", annotation, field(default=default))], frozen=True)


def reads(domain: Domain, call: Any) -> bool:
    try:
        domain.read(call)
    except Outside:
        return False
    return True


@pytest.mark.parametrize(("old", "new", "values"), PAIRS, ids=lambda each: "" if isinstance(each, list) else str(each))
def test_both_domains_are_in_it_and_each_is_told_from_the_rest(old: Any, new: Any, values: list[Any]) -> None:
    for first, second in itertools.permutations((old, new)) if old is not new else [(old, new)]:
        before, after = spec_of(first, values[-1]), spec_of(second, values[-1])
        sides = domain_of(before), domain_of(after)
        whole, apart = common_domain(*sides)
        assert apart == ()
        told = [inside(side, whole) for side in sides]
        for value in values:
            held = [reads(side, kind(value)) for side, kind in zip(sides, (before, after), strict=True)]
            if not any(held):
                continue
            read = whole.read(after(value))
            assert [bool(evaluate(each, read)) for each in told] == held, value


@dataclass(frozen=True)
class Tile:
    rows: int = 16
    cols: Annotated[int, Range(1, 8)] = 4


def test_records_go_together_part_by_part() -> None:
    old = make_dataclass("Call", [("tile", Tile, Tile())], frozen=True)
    wide = make_dataclass("Tile", [("rows", int, 16), ("cols", Annotated[int, Range(4, 9)], 4), ("depth", int, 1)])
    new = make_dataclass("Call", [("tile", wide, None)], frozen=True)
    whole, apart = common_domain(domain_of(old), domain_of(new))
    assert apart == ()
    assert set(whole.slots) == {("tile", part) for part in ("rows", "cols", "depth")}
    cols = whole.slots[("tile", "cols")]
    assert (cols.lo, cols.hi) == (1, 9)
    assert str(inside(domain_of(old), whole)) == "tile.cols <= 8"
    assert str(inside(domain_of(new), whole)) == "tile.cols >= 4"


def test_a_call_moved_to_another_arch_has_its_usual_facts() -> None:
    before = {("arch",): 80, ("sm_count",): KNOWN_ARCHS[80].sm_count, ("smem_budget",): 7, ("n",): 3}
    calls = ex.conjunction([ex.among(("device", "type"), ["cuda"]), ex.among(("arch",), [90])])
    there = Platform("sm_90", calls, 90)
    moved = with_facts_of(there, before)
    assert moved == {**before, ("arch",): 90, ("sm_count",): KNOWN_ARCHS[90].sm_count, ("device", "type"): "cuda"}
    assert slots_of(there).items() <= moved.items()
    unknown = {**before, ("arch",): 75}
    assert with_facts_of(there, unknown) == {**unknown, **slots_of(there)}


def test_the_version_of_z3_is_that_of_its_library() -> None:
    assert z3_backend.version() == z3_backend.load().get_version_string()


def test_borders_are_where_the_choice_changes_along_either_axis() -> None:
    candidate = Candidate("one", lambda call: None if call.n < 4 and call.m < 20 else "no")
    chart = CoverageMap(Selector(Call, [candidate]), "n", "m", Call(), y_range=(0, 60))
    assert chart.borders(chart.x) == (4,)
    assert 20 in chart.borders(chart.y)
    assert set(chart.borders(chart.y)) - {20} == set(range(1, 61)) - {20}, "of odd m no call is valid"


def test_a_field_of_one_side_alone_ranges_as_it_does_there() -> None:
    old = make_dataclass("Call", [("a", Small, 1), ("b", Middle, 4)], frozen=True)
    new = make_dataclass("Call", [("a", Small, 1), ("c", Middle, 4)], frozen=True)
    whole, apart = common_domain(domain_of(old), domain_of(new))
    assert apart == ()
    assert list(whole.fields) == ["a", "b", "c"]
    assert inside(domain_of(old), whole) is inside(domain_of(new), whole) is ex.TRUE
    other = make_dataclass("Call", [("a", Literal["x"], "x")], frozen=True)
    whole, apart = common_domain(domain_of(old), domain_of(other))
    assert apart == ("a",)
    assert whole.slots[("a",)].sort == "finite"
    shorter = make_dataclass("Call", [("a", tuple[int, int], (1, 2))], frozen=True)
    longer = make_dataclass("Call", [("a", tuple[int, int, int], (1, 2, 3))], frozen=True)
    assert common_domain(domain_of(shorter), domain_of(longer))[1] == ("a",)


@pytest.mark.parametrize(("start", "step"), [(4, 1), (4, -1)])
def test_a_ray_holds_what_lies_between_its_ends(start: int, step: int) -> None:
    ray = Ray(ex.integer(("n",)), start, step)
    for far in (start, start + 5 * step, None):
        ends = [start] if far is None else [start, far]
        for n in range(-10, 20):
            expected = min(ends) <= n <= max(ends) if far is not None else (n - start) * step >= 0
            assert evaluate(ray.until(far), {("n",): n}) is expected


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 9)] = 1
    m: int = 0

    def invalid(self) -> str | None:
        return "odd" if self.m % 2 else None


def test_what_methods_choose_is_a_key_or_nobody() -> None:
    one = Candidate("one", lambda call: None if call.n > 3 else "small")
    selector = Selector(Call, [one, Candidate("rest", lambda call: None if call.n > 2 else "small", general=True)])
    assert [chosen_by_methods(selector, Call(n)) for n in (2, 3, 4)] == [NOBODY, "rest", "one"]
    assert chosen_by_methods(selector, Call(n=10)) == NOBODY
    assert chosen_by_methods(selector, Call(n=5, m=1)) == NOBODY


class Face:
    request = Call


class First(Face):
    preferred_over = frozenset({"second"})

    @classmethod
    def refusal(cls, call: Call) -> None:
        return None


class Second(First):
    preferred_over = frozenset({"first"})


def test_a_circle_names_where_its_members_stand() -> None:
    classes = {"first": First, "second": Second}
    with pytest.raises(ValueError, match="cycle") as caught:
        Selector.of(type("Op", (), {"kernel_types": classes, "interfaces": {"face": Face}}), "face")
    (found,) = table_findings("Op", "face", classes, caught.value)
    assert found.kind == "cycle"
    assert found.places == (class_place(First, "?:1"), class_place(Second, "?:1"))
    assert f"first at {found.places[0]}; second at {found.places[1]}" in found.message
    (other,) = table_findings("Op", "face", {"first": Face}, TypeError("wrong"))
    assert (other.kind, other.keys, other.message, other.places) == ("contract", (), "wrong", ())


def test_a_file_of_allowances_is_named_by_its_error() -> None:
    error = AllowFileError(Path("allow.toml"), "line 3 has no id")
    assert (str(error), error.path) == ("allow.toml: line 3 has no id", Path("allow.toml"))
