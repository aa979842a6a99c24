"""Expressions with other numbers in place of their slots: the same questions about another call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tileops_rules import expr as E
from tileops_rules.expr import Expr, Path, path_of, walk

__all__ = ["REBUILD", "renamed", "with_numbers"]


def with_numbers(expr: Expr, numbers: Mapping[Path, Expr]) -> Expr:
    """*expr* with *numbers* in place of integer slots.

    Args:
        expr: An expression.
        numbers: For a slot, what stands there instead; no constant, which might become a divisor of 0.
    """
    return _rebuilt(expr, lambda node: numbers.get(node.data, node) if node.kind == "int" else node)


def renamed(expr: Expr, paths: Mapping[Path, Path]) -> Expr:
    """*expr* about other slots of the same kind."""

    def leaf(node: Expr) -> Expr:
        path = path_of(node)
        return node if path is None or path not in paths else _LEAVES[node.kind](node, paths[path])

    return _rebuilt(expr, leaf)


def _rebuilt(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    made: dict[Expr, Expr] = {}
    for node in walk(expr):
        args = [made[a] for a in node.args]
        unchanged = all(new is old for new, old in zip(args, node.args, strict=True))
        made[node] = (leaf(node) if not args else node) if unchanged else REBUILD[node.kind](node, args)
    return made[expr]


def _sum(node: Expr, args: Sequence[Expr]) -> Expr:
    total = E.constant(node.data[0])
    for atom, coefficient in zip(args, node.data[1], strict=True):
        total = E.add(total, E.scale(atom, coefficient))
    return total


def _product(node: Expr, args: Sequence[Expr]) -> Expr:
    total = args[0]
    for factor in args[1:]:
        total = E.multiply(total, factor)
    return total


REBUILD: Final[Mapping[str, Callable[[Expr, Sequence[Expr]], Expr]]] = {
    "sum": _sum,
    "product": _product,
    "floordiv": lambda node, args: E.floordiv(args[0], args[1]),
    "mod": lambda node, args: E.mod(args[0], args[1]),
    "abs": lambda node, args: E.absolute(args[0]),
    "bit_length": lambda node, args: E.bit_length(args[0]),
    "at_most": lambda node, args: E.at_most(args[0], node.data),
    "equals": lambda node, args: E.equals(args[0], node.data),
    "not": lambda node, args: E.negation(args[0]),
    "and": lambda node, args: E.conjunction(args),
    "or": lambda node, args: E.disjunction(args),
}
"""One row for each kind that has arguments: the node again, of other arguments."""

_LEAVES: Final[Mapping[str, Callable[[Expr, Path], Expr]]] = {
    "int": lambda node, path: E.integer(path),
    "among": lambda node, path: E.among(path, node.data[1]),
    "float_is": lambda node, path: E.float_is(path, node.data[1], node.data[2]),
    "str_is": lambda node, path: E.str_is(path, node.data[1]),
}
"""One row for each kind that reads a slot itself."""
