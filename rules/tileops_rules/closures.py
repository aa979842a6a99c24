"""Expressions as nested Python functions of slot values: what is evaluated often is put together once.

They give what :mod:`tileops_rules.evaluating` defines wherever that needs no part that is undefined; where one
is, they raise, and the caller goes the long way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tileops_rules.expr import Expr, Path, exact_key, walk

__all__ = ["CLOSURES", "Reader", "reader"]

Values = Mapping[Path, Any]
Reader = Callable[[Values], Any]

_DEEPEST: Final = 40
_MOST_SHARED: Final = 4
"""How many times more nodes there may be when shared ones are counted at each place: each is read at each place."""


def reader(expr: Expr) -> Reader | None:
    """The function that reads *expr* off slot values; made once, and kept with the expression.

    None where it would be nested too deeply, or read shared parts too often. It raises ZeroDivisionError where it
    meets a division by zero, and KeyError where a slot is missing, unless parts to the left settle the answer.
    """
    if expr._reader is None:
        expr._reader = _made(expr) or False
    found: Reader | None = expr._reader or None
    return found


def _made(expr: Expr) -> Reader | None:
    made: dict[Expr, Reader] = {}
    sizes: dict[Expr, int] = {}
    depths: dict[Expr, int] = {}
    for node in walk(expr):
        sizes[node] = 1 + sum(sizes[arg] for arg in node.args)
        depths[node] = 1 + max((depths[arg] for arg in node.args), default=0)
        if depths[node] > _DEEPEST:
            return None
        made[node] = node._reader or CLOSURES[node.kind](node, [made[arg] for arg in node.args])
    return made[expr] if sizes[expr] <= _MOST_SHARED * len(made) + 16 else None


def _constant(node: Expr, args: Sequence[Reader]) -> Reader:
    value = node.data
    return lambda values: value


def _int(node: Expr, args: Sequence[Reader]) -> Reader:
    path = node.data
    return lambda values: values[path]


def _sum(node: Expr, args: Sequence[Reader]) -> Reader:
    c0, coefficients = node.data
    if len(args) == 1:
        only, c = args[0], coefficients[0]
        return lambda values: c0 + c * only(values)
    if len(args) == 2:
        left, right = args
        c1, c2 = coefficients
        return lambda values: c0 + c1 * left(values) + c2 * right(values)
    terms = tuple(zip(coefficients, args, strict=True))
    return lambda values: c0 + sum(c * read(values) for c, read in terms)


def _product(node: Expr, args: Sequence[Reader]) -> Reader:
    if len(args) == 2:
        left, right = args
        return lambda values: left(values) * right(values)
    factors = tuple(args)
    return lambda values: math.prod(read(values) for read in factors)


def _two(operation: Callable[[Any, Any], Any]) -> Callable[[Expr, Sequence[Reader]], Reader]:
    def close(node: Expr, args: Sequence[Reader]) -> Reader:
        left, right = args
        if node.args[1].kind == "const":
            divisor = node.args[1].data
            return lambda values: operation(left(values), divisor)
        return lambda values: operation(left(values), right(values))

    return close


def _of(operation: Callable[[Any], Any]) -> Callable[[Expr, Sequence[Reader]], Reader]:
    def close(node: Expr, args: Sequence[Reader]) -> Reader:
        (only,) = args
        return lambda values: operation(only(values))

    return close


def _at_most(node: Expr, args: Sequence[Reader]) -> Reader:
    limit = node.data
    if node.args[0].kind == "int":
        path = node.args[0].data
        return lambda values: values[path] <= limit
    (only,) = args
    return lambda values: only(values) <= limit


def _equals(node: Expr, args: Sequence[Reader]) -> Reader:
    value = node.data
    if node.args[0].kind == "int":
        path = node.args[0].data
        return lambda values: values[path] == value
    (only,) = args
    return lambda values: only(values) == value


def _among(node: Expr, args: Sequence[Reader]) -> Reader:
    path, options = node.data
    kinds = {type(option) for option in options}
    if len(kinds) == 1:
        (kind,) = kinds
        plain = frozenset(options)
        return lambda values: type(values[path]) is kind and values[path] in plain
    keys = frozenset(map(exact_key, options))
    return lambda values: exact_key(values[path]) in keys


_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
    "nan": lambda value, _limit: bool(value != value),
}


def _float_is(node: Expr, args: Sequence[Reader]) -> Reader:
    path, comparison, limit = node.data
    compare = _COMPARE[comparison]
    return lambda values: compare(values[path], limit)


def _str_is(node: Expr, args: Sequence[Reader]) -> Reader:
    path, text = node.data
    return lambda values: values[path] == text


def _and(node: Expr, args: Sequence[Reader]) -> Reader:
    parts = tuple(args)

    def read(values: Values) -> bool:
        for part in parts:  # noqa: SIM110 - all() of a generator takes twice as long
            if not part(values):
                return False
        return True

    return read


def _or(node: Expr, args: Sequence[Reader]) -> Reader:
    parts = tuple(args)

    def read(values: Values) -> bool:
        for part in parts:  # noqa: SIM110 - as above
            if part(values):
                return True
        return False

    return read


CLOSURES: Final[Mapping[str, Callable[[Expr, Sequence[Reader]], Reader]]] = {
    "const": _constant,
    "int": _int,
    "sum": _sum,
    "product": _product,
    "floordiv": _two(operator.floordiv),
    "mod": _two(operator.mod),
    "abs": _of(abs),
    "bit_length": _of(int.bit_length),
    "truth": _constant,
    "at_most": _at_most,
    "equals": _equals,
    "among": _among,
    "float_is": _float_is,
    "str_is": _str_is,
    "not": _of(operator.not_),
    "and": _and,
    "or": _or,
}
"""Kind of node to what puts its function together: ``(node, functions of its arguments)``."""
