"""Stand-ins for integers and for the true quotient of two of them."""

from __future__ import annotations

import dis
import math
import sys
from fractions import Fraction
from typing import Any, Final

from tileops_rules import expr as E
from tileops_rules.expr import Expr
from tileops_rules.outcome import Fill
from tileops_rules.printing import slot_text
from tileops_rules.standin import FLOAT_ARITHMETIC, TABLE_LIMIT, Asks, StandIn, refuse_all, shown, type_error

__all__ = ["IntSymbol", "RatioSymbol"]

_LARGEST_POWER: Final = 8


def _expr_of(value: Any) -> Expr | None:
    if type(value) is IntSymbol:
        return value._expr
    return E.constant(int(value)) if isinstance(value, int) else None


class IntSymbol(StandIn):
    """An integer known by its expression."""

    __slots__ = ("_expr",)
    _expr: Expr

    def __init__(self, asks: Asks, expr: Expr) -> None:
        self._asks = asks
        self._expr = expr

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def _fill(self, conversion: str, spec: str) -> Fill:
        if self._expr.kind == "int":
            return Fill("expr", slot_text(self._expr.data), (self._expr,), (), conversion, spec)
        return Fill("expr", str(self._expr), (self._expr,), (), conversion, spec)

    def _binary(self, other: Any, combine: Any, *, swap: bool = False) -> Any:
        if type(other) is int:
            return self._asks.combined(combine, self._expr, other, swap)
        right = _expr_of(other)
        if right is None:
            if isinstance(other, float):
                self._asks.refuse(
                    f"{self._name()} is mixed with the float {other!r}: floats have no symbolic arithmetic"
                )
            return NotImplemented
        return self._asks.combined(combine, self._expr, right, swap)

    def __add__(self, other: Any) -> Any:
        return self._binary(other, E.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._binary(other, E.subtract)

    def __rsub__(self, other: Any) -> Any:
        return self._binary(other, E.subtract, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary(other, E.multiply)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._asks.combined(E.subtract, self._expr, 0, True)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return self._asks.combined(E.subtract, self._expr, -1, True)

    def __abs__(self) -> Any:
        return self if self._asks.ask(against_constant, self._expr, ">=", 0) else -self

    def __floordiv__(self, other: Any) -> Any:
        return self._division(other, E.floordiv, "integer division or modulo by zero", swap=False)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._division(other, E.floordiv, "integer division or modulo by zero", swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._division(other, E.mod, "integer modulo by zero", swap=False)

    def __rmod__(self, other: Any) -> Any:
        return self._division(other, E.mod, "integer modulo by zero", swap=True)

    def _division(self, other: Any, combine: Any, name: str, *, swap: bool) -> Any:
        right = other if type(other) is int else _expr_of(other)
        if right is None:
            return self._binary(other, combine)
        divisor = self._expr if swap else right
        if divisor == 0 if isinstance(divisor, int) else self._asks.ask(E.equals, divisor, 0):
            raise ZeroDivisionError(name)
        return self._asks.combined(combine, self._expr, right, swap)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self._ratio(other, swap=False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._ratio(other, swap=True)

    def _ratio(self, other: Any, *, swap: bool) -> Any:
        right = _expr_of(other)
        if right is None:
            return self._binary(other, None)
        left, right = (right, self._expr) if swap else (self._expr, right)
        if self._asks.decide(E.equals(right, 0)):
            raise ZeroDivisionError("division by zero")
        shown = (left, right)
        if not self._asks.decide(E.negation(E.at_most(right, 0))):
            left, right = E.scale(left, -1), E.scale(right, -1)
        return RatioSymbol(self._asks, left, right, shown)

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        if type(exponent) is not int or modulus is not None or not 0 <= exponent <= _LARGEST_POWER:
            self._asks.refuse(
                f"{self._name()} is raised to {shown(exponent)}: only constant powers 0 to {_LARGEST_POWER} lift"
            )
        power: Any = 1
        for _ in range(exponent):
            power = power * self
        return power

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << self._shift(other))

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << self._shift(other))

    def _shift(self, by: Any) -> int:
        if isinstance(by, IntSymbol) or not isinstance(by, int):
            self._asks.refuse(f"{self._name()} is shifted by {shown(by)}: only constant shifts lift")
        return int(by)

    def __and__(self, other: Any) -> Any:
        if isinstance(other, int) and not isinstance(other, StandIn) and other >= 0 and other & (other + 1) == 0:
            return self % (other + 1)
        return self._asks.refuse(f"{self._name()} & {shown(other)}: only a mask of a power of two minus one lifts")

    __rand__ = __and__

    def bit_length(self) -> Any:
        return self._asks.combined(_bit_length, self._expr, 0, False)

    def conjugate(self) -> Any:
        return self

    def is_integer(self) -> bool:
        return True

    real = numerator = property(lambda self: self)
    imag = property(lambda self: 0)
    denominator = property(lambda self: 1)

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None else self._asks.refuse(f"{self._name()} is rounded to {digits} digits")

    # comparisons

    def _compare(self, other: Any, operator: str) -> Any:
        if type(other) is int:
            return self._asks.ask(against_constant, self._expr, operator, other)
        right = _expr_of(other)
        if right is not None:
            return self._asks.ask(ordered, self._expr, operator, right)
        if isinstance(other, float) and not isinstance(other, StandIn):
            return self._asks.ask(against_float, self._expr, operator, other)
        if isinstance(other, StandIn):
            return self._asks.refuse(f"{self._name()} is compared with {other._name()}, a field of another kind")
        if operator == "==":
            return NotImplemented
        raise type_error(operator, "int", other)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, ">")

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, ">=")

    def __eq__(self, other: Any) -> Any:
        return self._compare(other, "==")

    def __ne__(self, other: Any) -> Any:
        equal = self._compare(other, "==")
        return equal if equal is NotImplemented else not equal

    def __bool__(self) -> bool:
        return not self._asks.ask(E.equals, self._expr, 0)

    def __index__(self) -> int:
        values = self._asks.remaining(self._expr) if _is_subscript(sys._getframe(1)) else None
        if values is None:
            self._asks.refuse(
                f"{self._name()} is needed as a number (by range(), an index or a conversion) and may still have "
                f"more than {TABLE_LIMIT} values here"
                if _is_subscript(sys._getframe(1))
                else f"{self._name()} is needed as a number (by range(), math or a conversion)"
            )
        for value in values:
            if self._asks.decide(E.equals(self._expr, value)):
                return value
        return self._asks.refuse(f"{self._name()} has no value left on this path")

    __hash__ = StandIn.__hash__

    def __getattr__(self, name: str) -> Any:
        if hasattr(int, name):
            return self._asks.refuse(f"{self._name()}.{name} has no symbolic answer")
        raise AttributeError(f"'int' object has no attribute {name!r}")


refuse_all(
    IntSymbol,
    {
        "__int__": "int()",
        "__float__": "float() or math",
        "__complex__": "complex()",
        "__trunc__": "math.trunc()",
        "__floor__": "math.floor()",
        "__ceil__": "math.ceil()",
        "__or__": "|",
        "__ror__": "|",
        "__xor__": "^",
        "__rxor__": "^",
        "__rpow__": "**",
        "__rlshift__": "<<",
        "__rrshift__": ">>",
    },
)

_subscripts: dict[tuple[Any, int], bool] = {}


def _is_subscript(frame: Any) -> bool:
    """Whether the instruction that a frame is at takes an element of a container."""
    key = (frame.f_code, frame.f_lasti)
    found = _subscripts.get(key)
    if found is None:
        code = frame.f_code.co_code
        found = dis.opname[code[frame.f_lasti]] in ("BINARY_SUBSCR", "BINARY_OP")
        _subscripts[key] = found
    return found


def _bit_length(expr: Expr, _unused: Expr) -> Expr:
    return E.bit_length(expr)


def against_constant(expr: Expr, operator: str, value: int) -> Expr:
    """An integer expression against a constant."""
    if operator == "==":
        return E.equals(expr, value)
    if operator == "<=":
        return E.at_most(expr, value)
    if operator == "<":
        return E.at_most(expr, value - 1)
    return E.negation(E.at_most(expr, value - 1 if operator == ">=" else value))


def ordered(left: Expr, operator: str, right: Expr) -> Expr:
    """One integer expression against another."""
    return against_constant(E.subtract(left, right), operator, 0)


def against_float(expr: Expr, operator: str, value: float) -> Expr:
    """An integer against a float constant, as Python compares them: exactly."""
    if math.isnan(value):
        return E.FALSE
    if math.isinf(value):
        return E.truth(operator in (("<", "<=") if value > 0 else (">", ">=")))
    if operator == "==":
        return E.equals(expr, int(value)) if value.is_integer() else E.FALSE
    if operator in ("<=", ">"):
        below = E.at_most(expr, math.floor(value))
        return below if operator == "<=" else E.negation(below)
    below = E.at_most(expr, math.ceil(value) - 1)
    return below if operator == "<" else E.negation(below)


class RatioSymbol(StandIn):
    """``a / b`` of two integers, ``b`` positive; it compares with constants and does nothing else.

    Python rounds the true quotient to the nearest float, ties to even, so ``a / b <= c`` holds exactly where
    the quotient lies on the lower side of the midpoint between ``c`` and the next float.
    """

    __slots__ = ("_left", "_right", "_shown")
    _sample = 0.0

    def __init__(self, asks: Asks, left: Expr, right: Expr, shown: tuple[Expr, Expr]) -> None:
        self._asks = asks
        self._left = left
        self._right = right
        self._shown = shown

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def _fill(self, conversion: str, spec: str) -> Fill:
        left, right = self._shown
        return Fill("ratio", f"({left}) / ({right})", self._shown, (), conversion, spec)

    def _at_most(self, limit: float) -> Expr:
        if math.isinf(limit):
            return E.truth(limit > 0)
        above = math.nextafter(limit, math.inf)
        if math.isinf(above):
            return E.TRUE
        middle = (Fraction(limit) + Fraction(above)) / 2
        even = _even_mantissa(limit)
        difference = E.subtract(E.scale(self._left, middle.denominator), E.scale(self._right, middle.numerator))
        return E.at_most(difference, 0 if even else -1)

    def _compare(self, other: Any, operator: str) -> Any:
        if isinstance(other, StandIn) or not isinstance(other, int | float):
            if operator == "==" and not isinstance(other, StandIn):
                return NotImplemented
            self._asks.refuse(
                f"{self._name()} is compared with {shown(other)}: a true division compares with constants only"
            )
        if other != other:
            return False
        try:
            limit = float(other)
        except OverflowError:
            limit = math.inf if other > 0 else -math.inf
        below = math.nextafter(limit, -math.inf) if limit > other else limit
        under = math.nextafter(limit, -math.inf) if limit >= other else limit
        at_most, less = self._at_most(below), self._at_most(under)
        question = {
            "<=": at_most,
            "<": less,
            ">": E.negation(at_most),
            ">=": E.negation(less),
            "==": E.conjunction([at_most, E.negation(less)]) if limit == other else E.FALSE,
        }[operator]
        return self._asks.decide(question)

    __lt__, __le__ = IntSymbol.__lt__, IntSymbol.__le__
    __gt__, __ge__ = IntSymbol.__gt__, IntSymbol.__ge__
    __eq__, __ne__ = IntSymbol.__eq__, IntSymbol.__ne__
    __hash__ = StandIn.__hash__

    def __bool__(self) -> bool:
        return not self._compare(0, "==")

    def __getattr__(self, name: str) -> Any:
        if hasattr(float, name):
            return self._asks.refuse(f"({self._name()}).{name} has no symbolic answer")
        raise AttributeError(f"'float' object has no attribute {name!r}")


def _even_mantissa(value: float) -> bool:
    ulp = math.ulp(value)
    return int(Fraction(value) / Fraction(ulp)) % 2 == 0


refuse_all(RatioSymbol, FLOAT_ARITHMETIC)
