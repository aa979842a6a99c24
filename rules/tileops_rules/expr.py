"""Expressions over the fields of a call: immutable, interned, in one normal form.

Two expressions are equal exactly when they are the same object. ``KINDS`` is the vocabulary; evaluator and
printer here, the bounds, the code generator and the solver's encoder all have one row for each of its keys, and a
test holds them to it.

Integers are kept as sums ``c0 + c1*atom1 + ...`` and every comparison as ``sum <= constant`` or ``sum == constant``
with coprime coefficients of which the first is positive, so that the same question asked in two ways is one node.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.printing import PRINT

__all__ = [
    "FALSE",
    "KINDS",
    "TRUE",
    "Expr",
    "Kind",
    "Path",
    "absolute",
    "add",
    "among",
    "at_most",
    "bit_length",
    "conjunction",
    "constant",
    "disjunction",
    "equals",
    "exact_key",
    "float_is",
    "floordiv",
    "integer",
    "linear",
    "mod",
    "multiply",
    "negation",
    "paths_of",
    "scale",
    "str_is",
    "subtract",
    "truth",
    "walk",
]

Path = tuple[str | int, ...]
"""Address of a primitive value inside a call: ``("n",)``, ``("shape", 0)``, ``("tile", "rows")``."""


@dataclass(frozen=True)
class Kind:
    """A row of the vocabulary: the sort of its value, and what it means."""

    sort: str
    meaning: str


KINDS: Final[Mapping[str, Kind]] = {
    # 1. integers
    "const": Kind("int", "data: the number"),
    "int": Kind("int", "data: path of an integer slot"),
    "sum": Kind("int", "data: (c0, (c1, ...)); c0 + c1*arg1 + ..."),
    "product": Kind("int", "arg1 * arg2 * ..., no factor a constant"),
    "floordiv": Kind("int", "arg1 // arg2, towards minus infinity; only asked where arg2 != 0"),
    "mod": Kind("int", "arg1 % arg2, sign of arg2; only asked where arg2 != 0"),
    "abs": Kind("int", "absolute value"),
    "bit_length": Kind("int", "number of bits of the absolute value"),
    # 2. questions about one slot or sum
    "truth": Kind("bool", "data: True or False"),
    "at_most": Kind("bool", "arg <= data"),
    "equals": Kind("bool", "arg == data"),
    "among": Kind("bool", "data: (path, values); a finite slot holds one of the values"),
    "float_is": Kind("bool", "data: (path, comparison, constant); comparison one of < <= == >= > nan"),
    "str_is": Kind("bool", "data: (path, text); a string slot holds the text"),
    # 3. connectives
    "not": Kind("bool", "negation"),
    "and": Kind("bool", "all arguments, left to right, stopping at the first false one"),
    "or": Kind("bool", "any argument, left to right, stopping at the first true one"),
}


class Expr:
    """A node. Make one through the functions of this module, never directly."""

    __slots__ = ("__weakref__", "_digest", "_paths", "_reader", "_text", "args", "data", "kind")

    kind: str
    args: tuple[Expr, ...]
    data: Any
    _text: str | None
    _paths: tuple[Path, ...] | None
    _reader: Any
    _digest: bytes | None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        if self._text is None:
            self._text = PRINT[self.kind](self, str)
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return _node, (self.kind, self.args, self.data)


class _Ref(weakref.ref[Expr]):
    """Remembers the key under which its node is interned."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Ref] = {}
_lock = threading.RLock()


def _forget(ref: weakref.ref[Expr]) -> None:
    if isinstance(ref, _Ref) and _table.get(ref.key) is ref:
        del _table[ref.key]


def exact_key(value: object) -> tuple[str, str, object]:
    """A key under which ``1``, ``True`` and ``1.0`` differ."""
    kind = type(value)
    return kind.__module__, kind.__qualname__, value


def _node(kind: str, args: tuple[Expr, ...], data: Any) -> Expr:
    if kind == "among":
        # Zeros of either sign are equal, print differently, and are two nodes.
        exact: Any = (data[0], tuple((exact_key(v), str(v) if type(v) is float else "") for v in data[1]))
    elif kind == "truth":
        exact = ("truth", data)
    else:
        exact = data
    key = (kind, args, exact)
    ref = _table.get(key)
    found = ref() if ref is not None else None
    if found is not None:
        return found
    with _lock:
        ref = _table.get(key)
        found = ref() if ref is not None else None
        if found is None:
            found = object.__new__(Expr)
            found.kind, found.args, found.data = kind, args, data
            found._text = found._digest = found._paths = found._reader = None
            made = _Ref(found, _forget)
            made.key = key
            _table[key] = made
        return found


# --------------------------------------------------------------------------------------------------------------
# Integers


def constant(value: int) -> Expr:
    """The number *value*."""
    return _node("const", (), int(value))


def integer(path: Path) -> Expr:
    """The integer slot at *path*."""
    return _node("int", (), path)


def linear(expr: Expr) -> tuple[int, dict[Expr, int]]:
    """*expr* as ``(c0, {atom: coefficient})``."""
    if expr.kind == "const":
        return expr.data, {}
    if expr.kind == "sum":
        c0, coefficients = expr.data
        return c0, dict(zip(expr.args, coefficients, strict=True))
    return 0, {expr: 1}


def _from_linear(c0: int, terms: Mapping[Expr, int]) -> Expr:
    kept = [(atom, c) for atom, c in terms.items() if c]
    if not kept:
        return constant(c0)
    if len(kept) == 1:
        if c0 == 0 and kept[0][1] == 1:
            return kept[0][0]
    else:
        kept.sort(key=lambda item: str(item[0]))
    return _node("sum", tuple(a for a, _ in kept), (c0, tuple(c for _, c in kept)))


def add(left: Expr, right: Expr) -> Expr:
    """``left + right``."""
    if right.kind == "const" and right.data == 0:
        return left
    c0, terms = linear(left)
    c1, more = linear(right)
    for atom, c in more.items():
        terms[atom] = terms.get(atom, 0) + c
    return _from_linear(c0 + c1, terms)


def scale(expr: Expr, factor: int) -> Expr:
    """``expr * factor``."""
    c0, terms = linear(expr)
    return _from_linear(c0 * factor, {atom: c * factor for atom, c in terms.items()})


def subtract(left: Expr, right: Expr) -> Expr:
    """``left - right``."""
    return add(left, scale(right, -1))


def multiply(left: Expr, right: Expr) -> Expr:
    """``left * right``; a sum is not multiplied out."""
    if left.kind == "const":
        return scale(right, left.data)
    if right.kind == "const":
        return scale(left, right.data)
    factor = 1
    factors: list[Expr] = []
    for part in (left, right):
        if part.kind == "sum" and len(part.args) == 1 and part.data[0] == 0:
            factor *= part.data[1][0]
            part = part.args[0]
        factors.extend(part.args if part.kind == "product" else (part,))
    factors.sort(key=str)
    return scale(_node("product", tuple(factors), None), factor)


def floordiv(left: Expr, right: Expr) -> Expr:
    """``left // right``; a constant *right* is not 0."""
    if right.kind != "const":
        return _node("floordiv", (left, right), None)
    divisor = right.data
    if divisor < 0:
        return floordiv(scale(left, -1), constant(-divisor))
    c0, terms = linear(left)
    outside = {atom: c // divisor for atom, c in terms.items() if c % divisor == 0}
    inside = {atom: c for atom, c in terms.items() if c % divisor}
    whole, rest = divmod(c0, divisor)
    if not inside:
        return _from_linear(whole, outside)
    quotient = _node("floordiv", (_from_linear(rest, inside), right), None)
    outside[quotient] = outside.get(quotient, 0) + 1
    return _from_linear(whole, outside)


def mod(left: Expr, right: Expr) -> Expr:
    """``left % right``; a constant *right* is not 0."""
    if right.kind != "const":
        return _node("mod", (left, right), None)
    divisor = right.data
    if divisor < 0:
        return scale(mod(scale(left, -1), constant(-divisor)), -1)
    c0, terms = linear(left)
    rest = _from_linear(c0 % divisor, {atom: c % divisor for atom, c in terms.items()})
    if rest.kind == "const":
        return constant(rest.data % divisor)
    return _node("mod", (rest, right), None)


def absolute(expr: Expr) -> Expr:
    """``abs(expr)``."""
    return constant(abs(expr.data)) if expr.kind == "const" else _node("abs", (expr,), None)


def bit_length(expr: Expr) -> Expr:
    """``expr.bit_length()``."""
    return constant(expr.data.bit_length()) if expr.kind == "const" else _node("bit_length", (expr,), None)


# --------------------------------------------------------------------------------------------------------------
# Questions


def truth(value: bool) -> Expr:
    """``True`` or ``False`` as an expression."""
    return _node("truth", (), bool(value))


TRUE: Final = truth(True)
FALSE: Final = truth(False)


_MOST_BITS: Final = 1024
"""Bit lengths above this stay as they are: their powers of two would not fit into memory, and no field is that
long."""


def _single(terms: Mapping[Expr, int]) -> Expr | None:
    return next(iter(terms)) if len(terms) == 1 else None


def at_most(expr: Expr, limit: int) -> Expr:
    """``expr <= limit``, in normal form."""
    if expr.kind == "int":
        return _node("at_most", (expr,), limit)
    c0, terms = linear(expr)
    limit -= c0
    if not terms:
        return truth(limit >= 0)
    divisor = math.gcd(*terms.values())
    if next(iter(terms.values())) < 0:
        flipped = _from_linear(0, {atom: -c // divisor for atom, c in terms.items()})
        return negation(at_most(flipped, -(limit // divisor) - 1))
    limit //= divisor
    atom = _single(terms)
    if atom is not None:
        if atom.kind == "floordiv" and atom.args[1].kind == "const":
            width = atom.args[1].data
            return at_most(atom.args[0], limit * width + width - 1)
        if atom.kind == "abs":
            return conjunction([at_most(atom.args[0], limit), at_least(atom.args[0], -limit)])
        if atom.kind == "bit_length" and limit <= _MOST_BITS:
            largest = (1 << limit) - 1 if limit >= 0 else -1
            return conjunction([at_most(atom.args[0], largest), at_least(atom.args[0], -largest)])
    return _node("at_most", (_from_linear(0, {a: c // divisor for a, c in terms.items()}),), limit)


def at_least(expr: Expr, limit: int) -> Expr:
    """``expr >= limit``."""
    return negation(at_most(expr, limit - 1))


def equals(expr: Expr, value: int) -> Expr:
    """``expr == value``, in normal form."""
    if expr.kind == "int":
        return _node("equals", (expr,), value)
    c0, terms = linear(expr)
    value -= c0
    if not terms:
        return truth(value == 0)
    divisor = math.gcd(*terms.values())
    if value % divisor:
        return FALSE
    if next(iter(terms.values())) < 0:
        divisor = -divisor
    value //= divisor
    atom = _single(terms)
    if atom is not None and atom.kind == "floordiv" and atom.args[1].kind == "const":
        width = atom.args[1].data
        low = value * width
        return conjunction([at_least(atom.args[0], low), at_most(atom.args[0], low + width - 1)])
    return _node("equals", (_from_linear(0, {a: c // divisor for a, c in terms.items()}),), value)


def among(path: Path, values: Iterable[object]) -> Expr:
    """The finite slot at *path* holds one of *values*."""
    unique = {exact_key(v): v for v in values}
    if not unique:
        return FALSE
    ordered = tuple(sorted(unique.values(), key=lambda v: (type(v).__name__, repr(v))))
    return _node("among", (), (path, ordered))


def float_is(path: Path, comparison: str, value: float) -> Expr:
    """The float slot at *path* compares so with *value*; ``"nan"`` asks whether it is NaN and ignores *value*."""
    if comparison == "nan":
        return _node("float_is", (), (path, "nan", 0.0))
    if math.isnan(value):
        return FALSE
    return _node("float_is", (), (path, comparison, value + 0.0))


def str_is(path: Path, text: str) -> Expr:
    """The string slot at *path* holds *text*."""
    return _node("str_is", (), (path, text))


def negation(expr: Expr) -> Expr:
    """``not expr``."""
    if expr.kind == "truth":
        return FALSE if expr.data else TRUE
    return expr.args[0] if expr.kind == "not" else _node("not", (expr,), None)


def _gather(kind: str, parts: Iterable[Expr], unit: Expr, zero: Expr) -> Expr:
    kept: dict[Expr, None] = {}
    for part in parts:
        for piece in part.args if part.kind == kind else (part,):
            if piece is zero or negation(piece) in kept:
                return zero
            if piece is not unit:
                kept[piece] = None
    if not kept:
        return unit
    return next(iter(kept)) if len(kept) == 1 else _node(kind, tuple(kept), None)


def conjunction(parts: Iterable[Expr]) -> Expr:
    """All of *parts*."""
    return _gather("and", parts, TRUE, FALSE)


def disjunction(parts: Iterable[Expr]) -> Expr:
    """Any of *parts*."""
    return _gather("or", parts, FALSE, TRUE)


# --------------------------------------------------------------------------------------------------------------
# Readers


def walk(expr: Expr) -> Iterable[Expr]:
    """Every node below *expr* once, arguments before the node that holds them."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, done = stack.pop()
        if node in seen:
            continue
        if done or not node.args:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend([(arg, False) for arg in reversed(node.args) if arg not in seen])


def path_of(node: Expr) -> Path | None:
    """The slot that a node reads itself, or None."""
    if node.kind == "int":
        path: Path = node.data
        return path
    if node.kind in ("among", "float_is", "str_is"):
        read: Path = node.data[0]
        return read
    return None


def paths_of(expr: Expr) -> tuple[Path, ...]:
    """The slots that *expr* reads, in order of first appearance."""
    if expr._paths is None:
        expr._paths = tuple(dict.fromkeys(p for node in walk(expr) if (p := path_of(node)) is not None))
    return expr._paths
