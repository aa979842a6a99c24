"""``fields(spec)``: the fields of a call spec as expressions, to ask questions with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tileops_rules import expr as E
from tileops_rules.domain import Domain, domain_of
from tileops_rules.expr import Expr, Path, exact_key
from tileops_rules.integers import against_constant, against_float, ordered
from tileops_rules.printing import slot_text
from tileops_rules.rule import Predicate
from tileops_rules.shapes import (
    DeviceShape,
    FiniteShape,
    FloatShape,
    IntShape,
    NoneShape,
    RecordShape,
    SequenceShape,
    Shape,
    Slot,
    StrShape,
    TupleShape,
    UnionShape,
)

__all__ = ["fields"]


class _Asked:
    """Base of what ``fields(spec).name`` gives: comparisons with it are predicates."""

    def __init__(self, domain: Domain, name: str) -> None:
        self._domain = domain
        self._name = name

    def _predicate(self, expr: Expr) -> Predicate:
        return Predicate(self._domain, expr)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the field {self._name} has no truth value in a question: compare it, "
            f"and write & for `and`, | for `or`, ~ for `not`"
        )

    def __hash__(self) -> int:
        return id(self)

    def _no(self, other: object) -> TypeError:
        return TypeError(f"{self._name} cannot be compared with {other!r}: compare it with a constant of its own kind")

    def __repr__(self) -> str:
        return f"<field {self._name}>"


class _Int(_Asked):
    """An integer expression; where it divides, its questions hold only where no divisor is 0."""

    def __init__(self, domain: Domain, expr: Expr, divisors: tuple[Expr, ...] = ()) -> None:
        super().__init__(domain, str(expr))
        self._expr = expr
        self._divisors = divisors

    def _joined(self, other: Any, combine: Callable[[Expr, Expr], Expr], swap: bool, divides: bool = False) -> Any:
        if isinstance(other, _Int):
            right, more = other._expr, other._divisors
        elif isinstance(other, int):
            right, more = E.constant(int(other)), ()
        else:
            return NotImplemented
        left, right = (right, self._expr) if swap else (self._expr, right)
        divisors = tuple(dict.fromkeys(self._divisors + more))
        if divides:
            if right.kind == "const" and right.data == 0:
                raise ZeroDivisionError(f"{left} is divided by 0")
            if right.kind != "const":
                divisors = tuple(dict.fromkeys((*divisors, right)))
        return _Int(self._domain, combine(left, right), divisors)

    def __add__(self, other: Any) -> Any:
        return self._joined(other, E.add, False)

    def __radd__(self, other: Any) -> Any:
        return self._joined(other, E.add, True)

    def __sub__(self, other: Any) -> Any:
        return self._joined(other, E.subtract, False)

    def __rsub__(self, other: Any) -> Any:
        return self._joined(other, E.subtract, True)

    def __mul__(self, other: Any) -> Any:
        return self._joined(other, E.multiply, False)

    def __rmul__(self, other: Any) -> Any:
        return self._joined(other, E.multiply, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._joined(other, E.floordiv, False, divides=True)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._joined(other, E.floordiv, True, divides=True)

    def __mod__(self, other: Any) -> Any:
        return self._joined(other, E.mod, False, divides=True)

    def __rmod__(self, other: Any) -> Any:
        return self._joined(other, E.mod, True, divides=True)

    def __neg__(self) -> Any:
        return _Int(self._domain, E.scale(self._expr, -1), self._divisors)

    def __abs__(self) -> Any:
        return _Int(self._domain, E.absolute(self._expr), self._divisors)

    def bit_length(self) -> Any:
        """Number of bits of the absolute value."""
        return _Int(self._domain, E.bit_length(self._expr), self._divisors)

    def _compared(self, other: Any, operator: str) -> Any:
        if isinstance(other, _Int):
            question = ordered(self._expr, operator, other._expr)
            divisors = self._divisors + other._divisors
        elif isinstance(other, int):
            question, divisors = against_constant(self._expr, operator, int(other)), self._divisors
        elif isinstance(other, float):
            question, divisors = against_float(self._expr, operator, other), self._divisors
        else:
            raise self._no(other)
        return self._guarded(question, divisors)

    def _guarded(self, question: Expr, divisors: tuple[Expr, ...]) -> Predicate:
        return self._predicate(E.conjunction([*(E.negation(E.equals(d, 0)) for d in divisors), question]))

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "<")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "<=")

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, ">")

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, ">=")

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, "==")

    def __ne__(self, other: Any) -> Any:
        if isinstance(other, _Int):
            difference, divisors = E.subtract(self._expr, other._expr), self._divisors + other._divisors
        elif isinstance(other, int):
            difference, divisors = E.subtract(self._expr, E.constant(int(other))), self._divisors
        else:
            return ~self._compared(other, "==")
        return self._guarded(E.negation(E.equals(difference, 0)), divisors)

    __hash__ = _Asked.__hash__

    def isin(self, values: Any) -> Predicate:
        """It is one of *values*."""
        return self._guarded(E.disjunction(E.equals(self._expr, int(v)) for v in values), self._divisors)


class _Finite(_Asked):
    """A slot with finitely many values."""

    def __init__(self, domain: Domain, slot: Slot) -> None:
        super().__init__(domain, slot.name)
        self._slot = slot

    def isin(self, values: Any) -> Predicate:
        """It is one of *values*."""
        keys = {exact_key(v) for v in self._slot.values}
        return self._predicate(E.among(self._slot.path, [v for v in values if exact_key(v) in keys]))

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, _Asked):
            raise self._no(other)
        return self.isin([other])

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    __hash__ = _Asked.__hash__

    def _ordered(self, other: Any, keep: Callable[[Any, Any], bool]) -> Predicate:
        if isinstance(other, _Asked):
            raise self._no(other)
        return self._predicate(
            E.among(self._slot.path, [v for v in self._slot.values if v is not None and keep(v, other)])
        )

    def __lt__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: bool(a < b))

    def __le__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: bool(a <= b))

    def __gt__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: bool(a > b))

    def __ge__(self, other: Any) -> Any:
        return self._ordered(other, lambda a, b: bool(a >= b))


class _Float(_Asked):
    """A float slot; it compares with constants."""

    def __init__(self, domain: Domain, path: Path) -> None:
        super().__init__(domain, slot_text(path))
        self._path = path

    def _compared(self, other: Any, operator: str) -> Any:
        if (
            isinstance(other, _Asked)
            or not isinstance(other, int | float)
            or (other == other and float(other) != other)
        ):
            raise self._no(other)
        return self._predicate(E.float_is(self._path, operator, float(other)))

    def is_nan(self) -> Predicate:
        """It is not a number."""
        return self._predicate(E.float_is(self._path, "nan", 0.0))

    __lt__, __le__ = _Int.__lt__, _Int.__le__
    __gt__, __ge__ = _Int.__gt__, _Int.__ge__
    __eq__ = _Int.__eq__

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    __hash__ = _Asked.__hash__


class _Str(_Asked):
    """A string slot; it compares with constants."""

    def __init__(self, domain: Domain, path: Path) -> None:
        super().__init__(domain, slot_text(path))
        self._path = path

    def __eq__(self, other: Any) -> Any:
        if type(other) is not str:
            raise self._no(other)
        return self._predicate(E.str_is(self._path, other))

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    __hash__ = _Asked.__hash__

    def isin(self, values: Any) -> Predicate:
        """It is one of *values*."""
        return self._predicate(E.disjunction(E.str_is(self._path, v) for v in values))


class _Parts(_Asked):
    """A tuple or nested record: take its parts."""

    def __init__(self, domain: Domain, path: Path, parts: dict[Any, Shape], length: Slot | None) -> None:
        super().__init__(domain, slot_text(path))
        self._parts = parts
        self._length = length

    def __getitem__(self, index: int) -> Any:
        """The element at *index* (from 0)."""
        return asked_of(self._domain, self._parts[index])

    def __getattr__(self, name: str) -> Any:
        parts = self.__dict__.get("_parts", {})
        if name == "length" and self.__dict__.get("_length") is not None:
            return _Finite(self._domain, self.__dict__["_length"])
        if name in parts:
            return asked_of(self._domain, parts[name])
        raise AttributeError(f"{self._name} has no part {name!r}: it has {', '.join(map(str, parts))}")


class _Union(_Asked):
    """A field of several kinds: ``== None``, or a question about its other kind."""

    def __init__(self, domain: Domain, shape: UnionShape) -> None:
        super().__init__(domain, slot_text(shape.path))
        self._shape = shape
        self._others = [s for s in shape.options.values() if not isinstance(s, NoneShape)]

    def is_none(self) -> Predicate:
        """It is None."""
        return self._predicate(E.among(self._shape.choice.path, ["None"]))

    def _asked(self, other: Any, operator: str) -> Any:
        if other is None:
            return self.is_none()
        name = next((n for n, s in self._shape.options.items() if s.matches(other)), None)
        if name is None:
            if len(self._others) != 1:
                raise self._no(other)
            name = next(n for n, s in self._shape.options.items() if s is self._others[0])
        inner = asked_of(self._domain, self._shape.options[name])
        answer = getattr(
            inner, {"==": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[operator]
        )(other)
        return self._predicate(E.among(self._shape.choice.path, [name])) & answer

    def __eq__(self, other: Any) -> Any:
        return self._asked(other, "==")

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    def __lt__(self, other: Any) -> Any:
        return self._asked(other, "<")

    def __le__(self, other: Any) -> Any:
        return self._asked(other, "<=")

    def __gt__(self, other: Any) -> Any:
        return self._asked(other, ">")

    def __ge__(self, other: Any) -> Any:
        return self._asked(other, ">=")

    __hash__ = _Asked.__hash__


def asked_of(domain: Domain, shape: Shape) -> Any:
    """The expression object for a part of a call.

    Raises:
        TypeError: no question can speak of it.
    """
    if isinstance(shape, IntShape):
        return _Int(domain, E.integer(shape.path))
    if isinstance(shape, FiniteShape):
        return _Finite(domain, shape.slot)
    if isinstance(shape, FloatShape):
        return _Float(domain, shape.path)
    if isinstance(shape, StrShape):
        return _Str(domain, shape.path)
    if isinstance(shape, DeviceShape):
        return _Parts(domain, shape.path, {"type": FiniteShape(shape.slot.path, shape.slot)}, None)
    if isinstance(shape, TupleShape):
        return _Parts(domain, shape.path, dict(enumerate(shape.parts)), None)
    if isinstance(shape, SequenceShape):
        return _Parts(domain, shape.path, dict(enumerate(shape.items)), shape.length)
    if isinstance(shape, RecordShape):
        return _Parts(domain, shape.path, dict(shape.parts), None)
    if isinstance(shape, UnionShape):
        return _Union(domain, shape)
    raise TypeError(
        f"{slot_text(shape.path)} is {getattr(shape, 'why', 'of no known kind')}: no question can speak of it"
    )


class _Fields:
    def __init__(self, domain: Domain) -> None:
        self.__dict__["_domain"] = domain

    def __getattr__(self, name: str) -> Any:
        shape = self._domain.fields.get(name)
        if shape is None:
            raise AttributeError(
                f"{self._domain.spec.__name__} has no field {name!r}: it has {', '.join(self._domain.fields)}"
            )
        return asked_of(self._domain, shape)

    def __dir__(self) -> list[str]:
        return list(self._domain.fields)


def fields(spec: type, *, domain: Domain | None = None) -> Any:
    """The fields of *spec* as expression objects.

    ``c = fields(AttentionCall)`` and then ``(c.seqlen_kv >= 1024) & (c.heads % c.heads_kv == 0)`` is a
    :class:`Predicate`. Integers add, multiply, divide and compare; finite fields, strings and floats compare
    with constants (``isin`` takes several); ``c.shape[0]`` and ``c.shape.length`` speak of a tuple. A question
    that divides holds only where its divisor is not 0.

    Args:
        spec: A dataclass.
        domain: What the fields range over; read off *spec* where not given.

    Raises:
        TypeError: *spec* is no dataclass.
    """
    return _Fields(domain if domain is not None else domain_of(spec))
