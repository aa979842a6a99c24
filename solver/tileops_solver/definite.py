"""Where a question has an answer at all: divisors are not 0, and the slots that it reads are there.

Python's answer to a question may depend on ``a // b`` where ``b`` is 0, or on ``shape[2]`` of a tuple of two;
then there is none. z3 would give such a term any value. :func:`definitely` turns a question into one that
holds exactly where the answer is yes: each question about numbers holds, and fails, only where it has an
answer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tileops_rules.domain import Domain
from tileops_rules.expr import (
    FALSE,
    KINDS,
    TRUE,
    Expr,
    Path,
    among,
    conjunction,
    disjunction,
    equals,
    negation,
    path_of,
    walk,
)
from tileops_rules.shapes import RecordShape, SequenceShape, Shape, TupleShape, UnionShape

__all__ = ["definitely"]


def definitely(expr: Expr, domain: Domain) -> Expr:
    """A question that holds exactly where *expr* has the answer yes.

    Args:
        expr: A question.
        domain: Where its slots range.

    Returns:
        *expr* itself where it always has an answer.
    """
    present = _presence(domain)
    if all(_own_need(node, present) is TRUE for node in walk(expr)):
        return expr
    needs: dict[Expr, Expr] = {}
    answers: dict[Expr, tuple[Expr, Expr]] = {}
    for node in walk(expr):
        if KINDS[node.kind].sort == "int":
            needs[node] = conjunction([_own_need(node, present), *(needs[a] for a in node.args)])
        elif node.kind == "not":
            answers[node] = answers[node.args[0]][::-1]
        elif node.kind in ("and", "or"):
            answers[node] = _joined(node, [answers[a] for a in node.args])
        else:
            need = conjunction([_own_need(node, present), *(needs[a] for a in node.args)])
            answers[node] = conjunction([need, node]), conjunction([need, negation(node)])
    return answers[expr][0]


def _joined(node: Expr, parts: list[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
    yes, no = zip(*parts, strict=True)
    if node.kind == "and":
        return conjunction(yes), disjunction(no)
    return disjunction(yes), conjunction(no)


def _own_need(node: Expr, present: dict[Path, Expr]) -> Expr:
    """What must hold for a node to have a value, besides what its arguments need."""
    if node.kind in ("floordiv", "mod"):
        divisor = node.args[1]
        return TRUE if divisor.kind == "const" and divisor.data else negation(equals(divisor, 0))
    path = path_of(node)
    return TRUE if path is None else present.get(path, TRUE)


@functools.lru_cache(maxsize=64)
def _presence(domain: Domain) -> dict[Path, Expr]:
    """For each slot that not every call has, when a call has it."""
    return {path: when for shape in domain.fields.values() for path, when in _when(shape, TRUE) if when is not TRUE}


def _when(shape: Shape, here: Expr) -> Iterator[tuple[Path, Expr]]:
    if isinstance(shape, SequenceShape):
        yield shape.length.path, here
        for index, item in enumerate(shape.items):
            longer = [length for length in shape.length.values if length > index]
            yield from _when(item, conjunction([here, among(shape.length.path, longer) if longer else FALSE]))
    elif isinstance(shape, UnionShape):
        yield shape.choice.path, here
        for name, option in shape.options.items():
            yield from _when(option, conjunction([here, among(shape.choice.path, [name])]))
    elif isinstance(shape, TupleShape | RecordShape):
        parts = shape.parts if isinstance(shape, TupleShape) else shape.parts.values()
        for part in parts:
            yield from _when(part, here)
    else:
        for slot in shape.slots():
            yield slot.path, here
