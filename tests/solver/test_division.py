"""The bridge between Python's division and z3's, from both sides, negatives included."""

from __future__ import annotations

from typing import Any

import pytest
from tileops_solver import division, z3_backend

NUMBERS = [-17, -16, -9, -8, -7, -2, -1, 0, 1, 2, 7, 8, 9, 15, 16, 17]
DIVISORS = [n for n in NUMBERS if n]
WIDTH = 8


@pytest.fixture(scope="module")
def z3() -> Any:
    return z3_backend.load()


def number(z3: Any, term: Any) -> int:
    value = z3.simplify(term)
    return int(value.as_signed_long() if isinstance(value, z3.BitVecNumRef) else value.as_long())


def of_sign(divisor: int) -> list[tuple[int, int]]:
    """Bounds that hold *divisor*: exactly it, its sign, and both signs."""
    return [(divisor, divisor), (1, 20) if divisor > 0 else (-20, -1), (-20, 20)]


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("left", NUMBERS)
def test_integers_divide_as_python_does(z3: Any, left: int, divisor: int) -> None:
    x, y = z3.IntVal(left), z3.IntVal(divisor)
    for bounds in of_sign(divisor):
        assert number(z3, division.integers_floor(z3, x, y, bounds)) == left // divisor
        assert number(z3, division.integers_mod(z3, x, y, bounds)) == left % divisor


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("left", NUMBERS)
def test_bit_vectors_divide_as_python_does(z3: Any, left: int, divisor: int) -> None:
    x, y = z3.BitVecVal(left, WIDTH), z3.BitVecVal(divisor, WIDTH)
    for bounds in of_sign(divisor):
        for dividend in [(left, left), (-20, 20), *([(0, 20)] if left >= 0 else [])]:
            low, high = division.bits_floor_range(dividend, bounds)
            assert -(1 << (WIDTH - 1)) <= low <= high < 1 << (WIDTH - 1)
            assert number(z3, division.bits_floor(z3, x, y, dividend, bounds)) == left // divisor
            assert number(z3, division.bits_mod(z3, x, y, dividend, bounds)) == left % divisor


@pytest.mark.parametrize("modulus", [2, 3, 8, 16])
def test_residues_of_products_are_those_of_python(z3: Any, modulus: int) -> None:
    for first in (-7, -1, 0, 3, 16):
        for second in (-5, 0, 2, 9):
            for third in (1, -3):
                factors = [z3.IntVal(n) for n in (first, second, third)]
                split = division.residue_of_product(z3, factors, modulus)
                assert number(z3, split) == first * second * third % modulus


@pytest.mark.parametrize(("divisor", "shift"), [(1, 0), (2, 1), (64, 6), (3, None), (0, None), (-4, None)])
def test_powers_of_two_divide_by_a_shift(divisor: int, shift: int | None) -> None:
    assert division.shift_of(divisor) == shift
