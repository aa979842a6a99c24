"""Interval bounds of integer expressions: the cheap answer that comes before any solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tileops_rules.expr import Expr

__all__ = ["BOUNDS", "Bounds", "bounds_of"]

Bounds = tuple[int, int]
_Ask = Callable[[Expr], Bounds]


def _sum(e: Expr, ask: _Ask) -> Bounds:
    low = high = e.data[0]
    for atom, c in zip(e.args, e.data[1], strict=True):
        lo, hi = ask(atom)
        low += c * (lo if c > 0 else hi)
        high += c * (hi if c > 0 else lo)
    return low, high


def _product(e: Expr, ask: _Ask) -> Bounds:
    low, high = ask(e.args[0])
    for factor in e.args[1:]:
        lo, hi = ask(factor)
        corners = (low * lo, low * hi, high * lo, high * hi)
        low, high = min(corners), max(corners)
    return low, high


def _parts_without_zero(lo: int, hi: int) -> list[Bounds]:
    return [part for part in ((lo, min(hi, -1)), (max(lo, 1), hi)) if part[0] <= part[1]]


def _floordiv(e: Expr, ask: _Ask) -> Bounds:
    lo, hi = ask(e.args[0])
    corners = [a // b for part in _parts_without_zero(*ask(e.args[1])) for b in part for a in (lo, hi)]
    return (min(corners), max(corners)) if corners else (0, 0)


def _mod_one(lo: int, hi: int, low: int, high: int) -> Bounds:
    """Of ``a % b`` for a in lo..hi and b in low..high, all of one sign."""
    if low == high and lo // low == hi // low:
        ends = (lo % low, hi % low)
        return min(ends), max(ends)
    if low > 0:
        if lo < 0:
            return 0, high - 1
        return (lo, hi) if hi < low else (0, min(high - 1, hi))
    if hi > 0:
        return low + 1, 0
    return (lo, hi) if lo > high else (max(low + 1, lo), 0)


def _mod(e: Expr, ask: _Ask) -> Bounds:
    lo, hi = ask(e.args[0])
    parts = [_mod_one(lo, hi, *part) for part in _parts_without_zero(*ask(e.args[1]))]
    return (min(p[0] for p in parts), max(p[1] for p in parts)) if parts else (0, 0)


def _abs(e: Expr, ask: _Ask) -> Bounds:
    lo, hi = ask(e.args[0])
    return (0 if lo <= 0 <= hi else min(abs(lo), abs(hi))), max(abs(lo), abs(hi))


def _bit_length(e: Expr, ask: _Ask) -> Bounds:
    lo, hi = _abs(e, ask)
    return lo.bit_length(), hi.bit_length()


BOUNDS: Final[Mapping[str, Callable[[Expr, _Ask], Bounds]]] = {
    "const": lambda e, ask: (e.data, e.data),
    "sum": _sum,
    "product": _product,
    "floordiv": _floordiv,
    "mod": _mod,
    "abs": _abs,
    "bit_length": _bit_length,
}
"""One row for each integer kind but ``int``, whose bounds the caller knows. Never too narrow; a divisor of 0
is left out."""


def bounds_of(expr: Expr, slot_bounds: Callable[[Expr], Bounds]) -> Bounds:
    """Smallest interval found that holds every value of *expr*.

    Args:
        expr: An integer expression.
        slot_bounds: The interval of an ``int`` node.
    """
    known: dict[Expr, Bounds] = {}

    def ask(e: Expr) -> Bounds:
        found = known.get(e)
        if found is None:
            found = known[e] = slot_bounds(e) if e.kind == "int" else BOUNDS[e.kind](e, ask)
        return found

    return ask(expr)
