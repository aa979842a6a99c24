"""The value of an expression on given slot values, by Python's own arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tileops_rules.closures import reader
from tileops_rules.expr import Expr, Path, exact_key, walk

__all__ = ["EVALUATE", "evaluate", "float_holds"]

Values = Mapping[Path, Any]


def float_holds(value: float, comparison: str, limit: float) -> bool:
    """Python's answer to a ``float_is`` question about *value*."""
    if comparison == "nan":
        return value != value
    return {
        "<": value < limit,
        "<=": value <= limit,
        "==": value == limit,
        ">=": value >= limit,
        ">": value > limit,
    }[comparison]


def _among(e: Expr, args: Sequence[Any], values: Values) -> bool:
    value = exact_key(values[e.data[0]])
    return any(exact_key(option) == value for option in e.data[1])


def _sum(e: Expr, args: Sequence[Any], values: Values) -> int:
    total: int = e.data[0] + sum(c * a for a, c in zip(args, e.data[1], strict=True))
    return total


EVALUATE: Final[Mapping[str, Callable[[Expr, Sequence[Any], Values], Any]]] = {
    "const": lambda e, args, values: e.data,
    "int": lambda e, args, values: values[e.data],
    "sum": _sum,
    "product": lambda e, args, values: math.prod(args),
    "floordiv": lambda e, args, values: args[0] // args[1],
    "mod": lambda e, args, values: args[0] % args[1],
    "abs": lambda e, args, values: abs(args[0]),
    "bit_length": lambda e, args, values: args[0].bit_length(),
    "truth": lambda e, args, values: e.data,
    "at_most": lambda e, args, values: args[0] <= e.data,
    "equals": lambda e, args, values: args[0] == e.data,
    "among": _among,
    "float_is": lambda e, args, values: float_holds(values[e.data[0]], e.data[1], e.data[2]),
    "str_is": lambda e, args, values: values[e.data[0]] == e.data[1],
    "not": lambda e, args, values: not args[0],
    "and": lambda e, args, values: all(args),
    "or": lambda e, args, values: any(args),
}


@functools.lru_cache(4096)
def _order(expr: Expr) -> tuple[Expr, ...]:
    return tuple(walk(expr))


_UNDEFINED: Final = object()


def _partly(node: Expr, args: Sequence[Any]) -> Any:
    """A node some of whose arguments are undefined: decided only where the others settle it."""
    if node.kind == "and" and any(a is False for a in args):
        return False
    if node.kind == "or" and any(a is True for a in args):
        return True
    return _UNDEFINED


def evaluate(expr: Expr, values: Values) -> Any:
    """The value of *expr* where the slots hold *values*.

    Works without recursion, each shared node once. A division by zero, or a slot that the call does not have,
    counts only where the answer depends on it.

    Raises:
        ZeroDivisionError: the answer depends on a division by zero or on a missing slot.
    """
    read = reader(expr)
    if read is not None:
        try:
            return read(values)
        except (ZeroDivisionError, KeyError):
            pass  # Some part is undefined: whether the answer depends on it, the long way tells.
    return _evaluated(expr, values)


def _evaluated(expr: Expr, values: Values) -> Any:
    done: dict[Expr, Any] = {}
    for node in _order(expr):
        args = [done[a] for a in node.args]
        if any(a is _UNDEFINED for a in args):
            done[node] = _partly(node, args)
            continue
        try:
            done[node] = EVALUATE[node.kind](node, args, values)
        except (ZeroDivisionError, KeyError):
            done[node] = _UNDEFINED
    if done[expr] is _UNDEFINED:
        raise ZeroDivisionError(f"{expr} is undefined here")
    return done[expr]
