"""The faces of a region: what each kind of condition has just inside, on and just outside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from tileops_rules import Range, fields
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import evaluate
from tileops_solver.faces import Face, Ray, Spot, atom_text, faces_of


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 50)] = 1
    m: Annotated[int, Range(0, 9)] = 1
    k: Annotated[int, Range(0, 9)] = 1
    kind: Literal["x", "y", "z"] = "x"
    mixed: Literal[1, True, 0] = 1
    ratio: float = 1.0
    other: float = 1.0
    name: str = ""
    window: Optional[Annotated[int, Range(0, 9)]] = None
    either: Union[Annotated[int, Range(0, 2)], str] = 0
    shape: tuple[Annotated[int, Range(0, 2)], ...] = ()


DOMAIN = domain_of(Call)
c = fields(Call)
N, M, K, WINDOW = (E.integer((name,)) for name in ("n", "m", "k", "window"))
BELOW_2, ABOVE_2 = math.nextafter(2.0, 0), math.nextafter(2.0, 3)
BELOW_HALF, ABOVE_HALF = math.nextafter(0.5, 0), math.nextafter(0.5, 1)


def faces(region: Any, beside: E.Expr = E.TRUE) -> dict[str, Face]:
    """By their texts."""
    return {face.text: face for face in faces_of(region.expr, DOMAIN, beside)}


def told(face: Face) -> list[tuple[str, str]]:
    return [(spot.where, spot.value) for spot in face.spots]


# ----------------------------------------------------------------------------------------------- numbers


def test_a_bound_has_a_place_on_it_and_rays_to_both_sides() -> None:
    found = faces(c.n <= 17)
    assert list(found) == ["n <= 17", "n >= 18"]
    upper, lower = found.values()
    assert (upper.subject, upper.positive, lower.positive) == ("n", True, False)
    assert upper.atom is lower.atom is E.at_most(N, 17)
    path = ("n",)
    assert upper.spots == (
        Spot("on", "17", E.equals(N, 17), path, 17),
        Spot("inside", "16", E.equals(N, 16), path, 16, Ray(N, 15, -1)),
        Spot("outside", "18", E.equals(N, 18), path, 18, Ray(N, 19, 1)),
    )
    assert lower.spots == (
        Spot("on", "18", E.equals(N, 18), path, 18),
        Spot("inside", "19", E.equals(N, 19), path, 19, Ray(N, 20, 1)),
        Spot("outside", "17", E.equals(N, 17), path, 17, Ray(N, 16, -1)),
    )


def test_a_bound_on_several_fields_has_no_one_slot() -> None:
    total = E.add(N, E.scale(M, 2))
    (upper, _) = faces_of(E.at_most(total, 9), DOMAIN, E.TRUE)
    assert upper.subject == str(total)
    assert upper.spots == (
        Spot("on", "9", E.equals(total, 9), None, 9),
        Spot("inside", "8", E.equals(total, 8), None, 8, Ray(total, 7, -1)),
        Spot("outside", "10", E.equals(total, 10), None, 10, Ray(total, 11, 1)),
    )


def test_beside_one_number_there_are_those_below_and_above() -> None:
    equal, other = faces(c.n == 12).values()
    here = Spot("on", "12", E.equals(N, 12), ("n",), 12)
    below, above = (
        Spot("outside", str(12 + step), E.equals(N, 12 + step), ("n",), 12 + step, Ray(N, 12 + 2 * step, step))
        for step in (-1, 1)
    )
    assert (equal.text, equal.spots) == ("n == 12", (here, below, above))
    assert (other.text, told(other)) == ("n != 12", [("inside", "11"), ("inside", "13"), ("outside", "12")])
    assert [spot.ahead for spot in other.spots] == [Ray(N, 10, -1), Ray(N, 14, 1), ()]


@pytest.mark.parametrize(
    ("value", "above", "below"), [(0, "1", "7"), (7, "0", "6"), (3, "4", "2")], ids=["first", "last", "between"]
)
def test_beside_a_remainder_there_are_those_before_and_after_it(value: int, above: str, below: str) -> None:
    rest = E.mod(N, E.constant(8))
    equal, other = faces(c.n % 8 == value).values()
    assert equal.subject == "n % 8"
    assert told(equal) == [("on", str(value)), ("outside", above), ("outside", below)]
    assert told(other) == [("inside", above), ("inside", below), ("outside", str(value))]
    assert [spot.fixed for spot in equal.spots] == [E.equals(rest, int(v)) for v in (value, above, below)]
    assert all(spot.ahead == () and spot.path is None for spot in (*equal.spots, *other.spots))


def test_beside_no_remainder_by_another_field_there_is_one_less_than_that() -> None:
    rest = E.mod(N, M)
    found = faces((c.m >= 1) & (c.n % c.m == 0))["n % m == 0"]
    assert found.spots == (
        Spot("on", "0", E.equals(rest, 0), None, 0),
        Spot("outside", "1", E.equals(rest, 1), None, 1),
        Spot("outside", "m - 1", E.equals(E.subtract(rest, M), -1)),
    )
    (equal, _) = faces_of(E.equals(rest, 1), DOMAIN, E.TRUE)
    assert [(s.value, s.fixed) for s in equal.spots] == [(str(v), E.equals(rest, v)) for v in (1, 2, 0)]


# ---------------------------------------------------------------------------------------------- values


def test_a_set_of_values_has_each_value_on_its_side() -> None:
    held, left = faces(c.kind.isin(["z", "x"])).values()
    spots = [Spot("inside", repr(v), E.among(("kind",), [v]), ("kind",), v) for v in "xz"]
    assert held.spots == (*spots, Spot("outside", "'y'", E.among(("kind",), ["y"]), ("kind",), "y"))
    assert (held.subject, left.text) == ("kind", "kind not in ('x', 'z')")
    assert told(left) == [("inside", "'y'"), ("outside", "'x'"), ("outside", "'z'")]


def test_a_number_and_a_truth_value_that_are_equal_are_two_values() -> None:
    (held, _) = faces(c.mixed == True).values()  # noqa: E712
    assert told(held) == [("inside", "True"), ("outside", "1"), ("outside", "0")]
    assert [type(spot.held) for spot in held.spots] == [bool, int, int]


def test_the_kind_of_a_field_and_the_length_of_a_tuple_are_called_so() -> None:
    none, some = faces(c.window == None).values()  # noqa: E711
    assert (none.text, none.subject, told(none)) == (
        "window is None",
        "window",
        [("inside", "None"), ("outside", "int")],
    )
    assert (some.text, told(some)) == ("window is not None", [("inside", "int"), ("outside", "None")])
    (either, _) = faces_of(E.among(("either", "type"), ["str"]), DOMAIN, E.TRUE)
    assert (either.subject, told(either)) == ("either", [("inside", "str"), ("outside", "int")])
    (long, _) = faces(c.shape.length >= 3).values()
    assert long.subject == "len(shape)"
    assert told(long) == [*(("inside", str(i)) for i in range(3, 9)), *(("outside", str(i)) for i in range(3))]


def test_a_string_has_the_other_strings_of_the_region_and_one_of_none() -> None:
    found = faces((c.name == "q") | (c.name == "r") | (c.kind == "x"))
    is_q, is_r = E.str_is(("name",), "q"), E.str_is(("name",), "r")
    other = E.conjunction([E.negation(is_q), E.negation(is_r)])
    assert found["name == 'q'"].spots == (
        Spot("inside", "'q'", is_q),
        Spot("outside", "'r'", is_r),
        Spot("outside", "another string", other),
    )
    assert found["name != 'r'"].spots == (
        Spot("inside", "'q'", is_q),
        Spot("inside", "another string", other),
        Spot("outside", "'r'", is_r),
    )
    assert {face.subject for face in found.values()} == {"name", "kind"}


# ---------------------------------------------------------------------------------------------- floats


def at(where: str, value: float, *ahead: float) -> Spot:
    path = ("ratio",)
    fixed = E.float_is(path, "nan", 0.0) if math.isnan(value) else E.float_is(path, "==", value)
    return Spot(where, repr(value), fixed, path, value, tuple(at(where, each) for each in ahead))


def parts(spot: Spot) -> tuple[Any, ...]:
    """What a spot consists of; NaN is not itself, its text is."""
    further = [parts(each) for each in spot.ahead] if isinstance(spot.ahead, tuple) else spot.ahead
    return spot.where, spot.value, spot.fixed, spot.path, repr(spot.held), further


def same(found: tuple[Spot, ...], *expected: Spot) -> bool:
    return [parts(each) for each in found] == [parts(each) for each in expected]


def test_a_bound_on_a_float_has_its_neighbours_and_beyond_them_those_of_the_other_constants() -> None:
    found = faces((c.ratio < 2.0) & (c.ratio >= 0.5))
    assert {face.subject for face in found.values()} == {"ratio"}
    nan = math.nan
    assert same(
        found["ratio < 2.0"].spots,
        at("inside", BELOW_2, ABOVE_HALF, 0.5, BELOW_HALF),
        at("outside", 2.0),
        at("outside", ABOVE_2),
        at("outside", nan),
    )
    assert same(
        found["not ratio < 2.0"].spots,
        at("on", 2.0),
        at("inside", ABOVE_2),
        at("inside", nan),
        at("outside", BELOW_2, ABOVE_HALF, 0.5, BELOW_HALF),
    )
    assert same(
        found["ratio >= 0.5"].spots,
        at("on", 0.5),
        at("inside", ABOVE_HALF, BELOW_2, 2.0, ABOVE_2),
        at("outside", BELOW_HALF),
        at("outside", nan),
    )
    assert same(
        found["not ratio >= 0.5"].spots,
        at("inside", BELOW_HALF),
        at("inside", nan),
        at("outside", 0.5),
        at("outside", ABOVE_HALF, BELOW_2, 2.0, ABOVE_2),
    )


def test_what_is_beside_the_region_has_constants_too_but_tells_nothing_apart() -> None:
    beside = E.conjunction([E.float_is(("ratio",), "<=", 2.0), E.float_is(("other",), "<=", 7.0)])
    found = faces(c.ratio > 0.5, beside)
    assert same(
        found["ratio > 0.5"].spots,
        at("inside", ABOVE_HALF, BELOW_2, 2.0, ABOVE_2),
        at("outside", 0.5),
        at("outside", BELOW_HALF),
    )


def test_one_float_has_others_on_both_sides_that_lie_beyond_it() -> None:
    found = faces((c.ratio == 0.5) | (c.ratio == 2.0))
    assert same(
        found["ratio == 0.5"].spots,
        at("on", 0.5),
        at("outside", BELOW_HALF),
        at("outside", ABOVE_HALF, BELOW_2, 2.0, ABOVE_2),
    )
    assert same(
        found["ratio != 0.5"].spots,
        at("inside", BELOW_HALF),
        at("inside", ABOVE_HALF, BELOW_2, 2.0, ABOVE_2),
        at("outside", 0.5),
    )


def test_the_ends_of_the_floats_have_one_neighbour_and_are_tried_where_they_are_told_apart() -> None:
    largest = math.nextafter(math.inf, 0)
    found = faces((c.ratio < math.inf) & (c.ratio > 2.0))
    assert same(
        found["ratio < inf"].spots,
        at("inside", largest, ABOVE_2, 2.0, BELOW_2),
        at("outside", math.inf),
        at("outside", math.nan),
    )


def test_what_is_asked_of_another_float_tells_nothing_apart() -> None:
    found = faces((c.ratio < 2.0) & c.other.is_nan() & (c.n <= 3))
    assert same(
        found["ratio < 2.0"].spots,
        at("inside", BELOW_2),
        at("outside", 2.0),
        at("outside", ABOVE_2),
    )


def test_whether_a_float_is_a_number_is_no_constant() -> None:
    found = faces(~c.ratio.is_nan() & (c.ratio < 2.0) & (c.ratio < 0.5))
    assert same(
        found["ratio < 2.0"].spots,
        at("inside", BELOW_2, ABOVE_HALF, 0.5, BELOW_HALF),
        at("outside", 2.0),
        at("outside", ABOVE_2),
        at("outside", math.nan),
    )


def test_not_a_number_has_numbers_beside_it() -> None:
    atom = E.float_is(("ratio",), "nan", 0.0)
    found = faces(c.ratio.is_nan())
    numbers = E.negation(atom)
    assert same(
        found["isnan(ratio)"].spots,
        Spot("inside", "nan", atom),
        at("inside", math.nan),
        Spot("outside", "a number", numbers),
    )
    assert same(
        found["not isnan(ratio)"].spots,
        Spot("inside", "a number", numbers),
        Spot("outside", "nan", atom),
        at("outside", math.nan),
    )


# ----------------------------------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("atom", "yes", "no"),
    [
        (E.at_most(N, 17), "n <= 17", "n >= 18"),
        (E.equals(N, 17), "n == 17", "n != 17"),
        (E.among(("kind",), ["x"]), "kind == 'x'", "kind != 'x'"),
        (E.among(("kind",), ["x", "y"]), "kind in ('x', 'y')", "kind not in ('x', 'y')"),
        (E.among(("window", "type"), ["None"]), "window is None", "window is not None"),
        (E.among(("window", "type"), ["int"]), "window is not None", "window is None"),
        (E.among(("either", "type"), ["int"]), "either.type == 'int'", "either.type != 'int'"),
        (E.float_is(("ratio",), "==", 0.5), "ratio == 0.5", "ratio != 0.5"),
        (E.float_is(("ratio",), "<", 0.5), "ratio < 0.5", "not ratio < 0.5"),
        (E.float_is(("ratio",), ">=", 1e-9), "ratio >= 1e-09", "not ratio >= 1e-09"),
        (E.float_is(("ratio",), "nan", 0.0), "isnan(ratio)", "not isnan(ratio)"),
        (E.str_is(("name",), "q"), "name == 'q'", "name != 'q'"),
    ],
)
def test_a_condition_reads_as_its_author_would_write_it(atom: E.Expr, yes: str, no: str) -> None:
    assert atom_text(atom, True, DOMAIN) == yes
    assert atom_text(atom, False, DOMAIN) == no


# ------------------------------------------------------------------------------------------ spots and rays


@pytest.mark.parametrize(
    ("step", "far", "held"),
    [
        (1, None, range(7, 51)),
        (1, 9, range(7, 10)),
        (1, 7, range(7, 8)),
        (-1, None, range(8)),
        (-1, 5, range(5, 8)),
        (-1, 7, range(7, 8)),
    ],
)
def test_a_ray_holds_its_start_and_its_end(step: int, far: int | None, held: range) -> None:
    until = Ray(N, 7, step).until(far)
    assert [n for n in range(51) if evaluate(until, {("n",): n})] == list(held)


def test_only_a_place_outside_is_not_inside() -> None:
    assert [Spot(where, "", E.TRUE).inside for where in ("inside", "on", "outside")] == [True, True, False]


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ((c.n <= 7) & (c.m <= 3), "m <= 3"),
        ((c.n <= 4) & (c.m <= 3), "False"),
        ((c.n <= 4) | (c.m <= 3), "m <= 3"),
        ((c.n % 5 == 0) & (c.n + c.m <= 9), str(E.at_most(E.add(N, M), 9))),
        ((c.m <= 3) & (c.kind == "x"), "m <= 3 & kind == 'x'"),
        (~(c.n == 5) | (c.m == 3), "m == 3"),
    ],
)
def test_at_a_place_of_one_slot_conditions_on_it_alone_are_settled(question: Any, left: str) -> None:
    assert str(Spot("on", "5", E.equals(N, 5), ("n",), 5).settled(question.expr)) == left
    assert Spot("on", "5", E.equals(N, 5)).settled(question.expr) is question.expr


def test_a_condition_without_an_answer_at_a_place_stays() -> None:
    question = E.conjunction([E.equals(E.floordiv(E.constant(10), N), 2), E.at_most(N, 3)])
    assert str(Spot("on", "0", E.equals(N, 0), ("n",), 0).settled(question)) == "10 // n == 2"


@pytest.mark.parametrize(
    ("spot", "moves"),
    [
        (Spot("on", "5", E.equals(N, 5), ("n",), 5), {"n": 5}),
        (Spot("on", "x", E.among(("kind",), ["x"]), ("kind",), "x"), {"kind": "x"}),
        (Spot("on", "", E.at_most(N, 5)), {}),
        (Spot("on", "", E.equals(E.add(E.scale(N, 2), E.scale(M, 3)), 20)), {"n": 7, "m": 6}),  # it is 8
        (Spot("on", "", E.equals(E.add(E.scale(N, 3), E.scale(M, 2)), 15)), {"m": 6}),  # it is 7: 8 are missing
        (Spot("on", "", E.equals(E.subtract(N, M), 4)), {"n": 6, "m": -3}),  # it is -1
        (Spot("on", "", E.equals(E.add(N, E.multiply(M, K)), 20)), {"n": 14}),  # the product is 6
        (Spot("on", "", E.equals(E.add(E.multiply(M, K), E.mod(N, E.constant(4))), 20)), {}),
        (Spot("on", "", E.equals(E.add(N, WINDOW), 20)), {}),
        (Spot("on", "", E.equals(E.add(N, E.floordiv(M, E.subtract(K, E.constant(3)))), 20)), {}),
        (Spot("on", "", E.equals(E.mod(WINDOW, E.constant(8)), 3)), {}),
        (Spot("on", "", E.equals(E.mod(N, M), 1)), {}),
        (Spot("on", "", E.equals(E.mod(E.multiply(M, K), E.constant(8)), 1)), {}),
        (Spot("on", "", E.equals(E.multiply(N, M), 12)), {}),
    ],
)
def test_one_slot_is_moved_to_where_the_place_is(spot: Spot, moves: dict[str, Any]) -> None:
    """From a call without a window; a sum in which something has no value is not solved."""
    values = {("n",): 1, ("m",): 2, ("k",): 3, ("kind",): "y"}
    assert {path[0]: value for path, value in spot.moves(values)} == moves


def test_a_place_of_a_sum_is_reached_by_the_smallest_factor_first() -> None:
    spot = Spot("on", "", E.equals(E.add(E.scale(N, 3), E.scale(M, -2)), 5))
    assert list(spot.moves({("n",): 1, ("m",): 2})) == [(("m",), -1), (("n",), 3)]


@pytest.mark.parametrize(("n", "moves"), [(13, [11, 19]), (8, [11, 3]), (15, [19, 11]), (11, [11, 3]), (7, [11, 3])])
def test_a_remainder_is_reached_up_and_down_from_the_nearest_on(n: int, moves: list[int]) -> None:
    spot = Spot("on", "3", E.equals(E.mod(N, E.constant(8)), 3))
    assert list(spot.moves({("n",): n})) == [(("n",), value) for value in moves]
