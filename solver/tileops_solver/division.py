"""Python's ``//`` and ``%`` in z3's words: the one place where the two differ.

Python rounds a quotient towards minus infinity and gives a remainder the sign of the divisor. z3's integer
``div`` and ``mod`` are Euclidean (the remainder is never negative), which is the same only for a positive
divisor; its bit-vector ``/`` rounds towards zero. A divisor of 0 is nobody's question: rules fork on it
before they divide, so any value will do there.
"""

from __future__ import annotations

from typing import Any

from tileops_rules.bounds import Bounds

__all__ = [
    "bits_floor",
    "bits_floor_range",
    "bits_mod",
    "integers_floor",
    "integers_mod",
    "residue_of_product",
    "shift_of",
]


def integers_floor(z3: Any, left: Any, right: Any, divisor: Bounds) -> Any:
    """``left // right`` of z3 integers.

    Args:
        z3: The z3 module.
        left: Dividend.
        right: Divisor.
        divisor: Interval of *right*; where its sign is known, so is the form of the quotient.
    """
    if divisor[0] >= 0:
        return left / right
    mirrored = (-left) / (-right)
    return mirrored if divisor[1] <= 0 else z3.If(right > 0, left / right, mirrored)


def integers_mod(z3: Any, left: Any, right: Any, divisor: Bounds) -> Any:
    """``left % right`` of z3 integers; the arguments are those of :func:`integers_floor`."""
    if divisor[0] >= 0:
        return left % right
    mirrored = -((-left) % (-right))
    return mirrored if divisor[1] <= 0 else z3.If(right > 0, left % right, mirrored)


def residue_of_product(z3: Any, factors: list[Any], modulus: int) -> Any:
    """``(f1 * f2 * ...) % modulus`` of z3 integers without a product of two unknowns.

    Integer arithmetic does not find that odd times odd is odd. Split over the residues of one factor at a
    time every case is
    linear: ``r * f`` for ``r`` in ``0..modulus-1``.
    """
    first, *rest = factors
    product = first % modulus
    for factor in rest:
        residue = factor % modulus
        cases: Any = (residue * (modulus - 1)) % modulus
        for r in range(modulus - 2, -1, -1):
            cases = z3.If(product == r, (residue * r) % modulus if r > 1 else residue * r, cases)
        product = cases
    return product


def shift_of(divisor: int) -> int | None:
    """``k`` where *divisor* is ``2**k``, else None."""
    return divisor.bit_length() - 1 if divisor > 0 and divisor & (divisor - 1) == 0 else None


def bits_floor(z3: Any, left: Any, right: Any, dividend: Bounds, divisor: Bounds) -> Any:
    """``left // right`` of signed z3 bit-vectors in which :func:`bits_floor_range` fits.

    Args:
        z3: The z3 module.
        left: Dividend.
        right: Divisor.
        dividend: Interval of *left*.
        divisor: Interval of *right*.
    """
    shift = shift_of(divisor[0]) if divisor[0] == divisor[1] else None
    if shift is not None:
        return left >> shift
    if dividend[0] >= 0 and divisor[0] >= 0:
        return z3.UDiv(left, right)
    return (left - left % right) / right


def bits_floor_range(dividend: Bounds, divisor: Bounds) -> Bounds:
    """Interval of ``left - left % right``, from which a signed quotient is taken without rounding."""
    largest = max(abs(divisor[0]), abs(divisor[1]))
    return dividend[0] - largest, dividend[1] + largest


def bits_mod(z3: Any, left: Any, right: Any, dividend: Bounds, divisor: Bounds) -> Any:
    """``left % right`` of signed z3 bit-vectors; the arguments are those of :func:`bits_floor`."""
    if divisor[0] == divisor[1] and shift_of(divisor[0]) is not None:
        return left & (divisor[0] - 1)
    if dividend[0] >= 0 and divisor[0] >= 0:
        return z3.URem(left, right)
    return left % right
