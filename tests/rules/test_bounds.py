"""Bounds hold every value, as counting shows, and are as narrow as they claim to be; the known archs are these."""

from __future__ import annotations

import itertools

import pytest
from tileops_rules import expr as E
from tileops_rules.archs import KNOWN_ARCHS, LEAST_SMEM_BYTES, MOST_THREADS
from tileops_rules.bounds import Bounds, _mod_one, bounds_of
from tileops_rules.evaluating import _evaluated

INTERVALS = [(lo, hi) for lo, hi in itertools.combinations_with_replacement(range(-9, 10), 2)]
DIVISORS = [(low, high) for low, high in INTERVALS if low > 0 or high < 0]
X, Y, Z = (E.integer((name,)) for name in "xyz")


def values(lo: int, hi: int) -> range:
    return range(lo, hi + 1)


def counted(expr: E.Expr, slots: dict[E.Expr, Bounds]) -> Bounds:
    """Least and greatest value of x, y and z in their intervals; (0, 0) where there is none."""
    found = []
    for numbers in itertools.product(*(values(*bounds) for bounds in slots.values())):
        try:
            found.append(_evaluated(expr, {slot.data: n for slot, n in zip(slots, numbers, strict=True)}))
        except ZeroDivisionError:
            continue
    return (min(found), max(found)) if found else (0, 0)


def of(expr: E.Expr, x: Bounds, y: Bounds = (0, 0), z: Bounds = (0, 0)) -> Bounds:
    return bounds_of(expr, {X: x, Y: y, Z: z}.__getitem__)


def test_remainders_of_one_divisor_are_bounded_exactly() -> None:
    for (lo, hi), divisor in itertools.product(INTERVALS, [b for b in range(-9, 10) if b]):
        rests = [a % divisor for a in values(lo, hi)]
        assert _mod_one(lo, hi, divisor, divisor) == (min(rests), max(rests)), (lo, hi, divisor)


def test_remainders_of_several_divisors_hold_all_and_reach_no_further_than_dividend_and_divisor() -> None:
    for (lo, hi), (low, high) in itertools.product(INTERVALS, DIVISORS):
        rests = [a % b for a in values(lo, hi) for b in values(low, high)]
        least, most = _mod_one(lo, hi, low, high)
        assert least <= min(rests) <= max(rests) <= most, (lo, hi, low, high)
        if low == high:
            continue
        if all(a % b == a for a in values(lo, hi) for b in values(low, high)):
            assert (least, most) == (lo, hi), (lo, hi, low, high)
        elif low > 0:
            assert (least, most) == (0, min(high - 1, hi) if lo >= 0 else high - 1), (lo, hi, low, high)
        else:
            assert (least, most) == (max(low + 1, lo) if hi <= 0 else low + 1, 0), (lo, hi, low, high)


@pytest.mark.parametrize("make", [E.floordiv, E.mod], ids=["floordiv", "mod"])
def test_a_divisor_of_zero_is_left_out(make: object) -> None:
    assert callable(make)
    few = [(lo, hi) for lo, hi in INTERVALS if lo % 3 == 0 and hi % 3 == 0]
    for x, y in itertools.product(few, few):
        least, most = of(make(X, Y), x, y)
        low, high = counted(make(X, Y), {X: x, Y: y})
        assert least <= low <= high <= most, (x, y)
        assert y != (0, 0) or (least, most) == (0, 0)
        if make is E.floordiv:
            assert (least, most) == (low, high), (x, y)


@pytest.mark.parametrize(
    ("expr", "x", "y", "expected"),
    [
        (E.constant(7), (1, 2), (0, 0), (7, 7)),
        (X, (-3, 4), (0, 0), (-3, 4)),
        (E.add(E.scale(X, 2), E.constant(5)), (-3, 4), (0, 0), (-1, 13)),
        (E.subtract(E.constant(5), E.scale(X, 2)), (-3, 4), (0, 0), (-3, 11)),
        (E.subtract(E.scale(X, 3), E.scale(Y, 2)), (1, 2), (-5, 4), (-5, 16)),
        (E.multiply(X, Y), (-3, 4), (-5, 2), (-20, 15)),
        (E.multiply(X, Y), (1, 4), (2, 3), (2, 12)),
        (E.multiply(X, Y), (-4, -1), (2, 3), (-12, -2)),
        (E.multiply(E.multiply(X, Y), Y), (-1, 2), (-3, 3), (-18, 18)),
        (E.absolute(X), (-3, 4), (0, 0), (0, 4)),
        (E.absolute(X), (-5, 4), (0, 0), (0, 5)),
        (E.absolute(X), (2, 4), (0, 0), (2, 4)),
        (E.absolute(X), (-4, -2), (0, 0), (2, 4)),
        (E.absolute(X), (0, 4), (0, 0), (0, 4)),
        (E.absolute(X), (-4, 0), (0, 0), (0, 4)),
        (E.bit_length(X), (-9, 4), (0, 0), (0, 4)),
        (E.bit_length(X), (2, 7), (0, 0), (2, 3)),
        (E.bit_length(X), (-8, -1), (0, 0), (1, 4)),
        (E.floordiv(X, Y), (7, 9), (-2, 2), (-9, 9)),
        (E.floordiv(X, Y), (7, 9), (0, 2), (3, 9)),
        (E.floordiv(X, Y), (7, 9), (-2, 0), (-9, -4)),
        (E.mod(X, Y), (7, 9), (-3, 4), (-2, 3)),
        (E.mod(X, Y), (1, 2), (-3, -1), (-2, 0)),
        (E.mod(X, Y), (7, 9), (0, 0), (0, 0)),
    ],
)
def test_bounds_worked_out_by_hand(expr: E.Expr, x: Bounds, y: Bounds, expected: Bounds) -> None:
    assert of(expr, x, y) == expected


def test_a_slot_is_asked_for_once_and_a_shared_part_is_bounded_once() -> None:
    asked: list[E.Expr] = []

    def slot(e: E.Expr) -> Bounds:
        asked.append(e)
        return -2, 3

    square = E.multiply(X, X)
    assert bounds_of(E.add(E.absolute(square), E.mod(square, E.constant(5))), slot) == (0, 13)
    assert asked == [X]


def test_the_known_archs_are_those_of_the_table_of_compute_capabilities() -> None:
    assert {arch: (each.smem_budget, each.sm_count, each.name) for arch, each in KNOWN_ARCHS.items()} == {
        80: (166_912, 108, "A100"),
        86: (101_376, 84, "A40"),
        89: (101_376, 142, "L40S"),
        90: (232_448, 132, "H100 SXM"),
        100: (232_448, 148, "B200"),
        120: (101_376, 170, "RTX 5090"),
    }
    assert (MOST_THREADS, LEAST_SMEM_BYTES) == (1_024, 49_152)
