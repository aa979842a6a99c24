"""Predicates as lines of text in linear size; :func:`~tileops_rules.parsing.parse_lines` reads them back.

``str(expr)`` writes a part that is used twice twice: a chain of n choices on shared parts reads 2**n times as long as
it is. So a predicate whose text is longer than :data:`LONGEST_TEXT` is written with its shared parts under names,
``$5f21c09b = heads % heads_kv == 0``. A name is made of the text that it stands for, so that it is the same in every
process, and stays where something else changes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Final

from tileops_rules.expr import Expr, conjunction, disjunction, negation, path_of, paths_of, walk
from tileops_rules.printing import PRINT

__all__ = ["LONGEST_TEXT", "canonical", "text_lengths", "written"]

LONGEST_TEXT: Final = 4_000
"""Characters up to which a predicate is written without names: two screens, which a reader still takes in. Rules as
people write them stay below; what is longer is so because of parts that are used many times."""

_DEEPEST: Final = 40
"""Levels of a text without names: printing takes five of Python's 1,000 frames for each."""

_SHORTEST: Final = 20
"""Characters of a part that a name would not shorten."""


def written(expr: Expr) -> tuple[str, ...]:
    """The clauses of a predicate, a line each; in a long one, after the lines ``$name = part`` that they use.

    Args:
        expr: A question; ``True`` has no clause.
    """
    clauses = expr.args if expr.kind == "and" else (expr,)
    if expr.kind == "truth" and expr.data:
        return ()
    if text_lengths(expr)[expr] <= LONGEST_TEXT and _depths(expr)[expr] <= _DEEPEST:
        return tuple(map(str, clauses))
    return _with_names(expr, clauses)


def _with_names(expr: Expr, clauses: tuple[Expr, ...]) -> tuple[str, ...]:
    uses = Counter(arg for node in walk(expr) for arg in node.args)
    texts: dict[Expr, str] = {}
    depths: dict[Expr, int] = {}
    names: dict[str, str] = {}
    lines: list[str] = []
    for node in walk(expr):
        if node is expr and node.kind == "and":
            continue  # its arguments are the clauses
        text = PRINT[node.kind](node, texts.__getitem__)
        depths[node] = 1 + max((depths[arg] for arg in node.args), default=0)
        shared = uses[node] > 1 and len(text) >= _SHORTEST
        if node.args and (shared or depths[node] > _DEEPEST):
            name = _name(text, names)
            lines.append(f"{name} = {text}")
            text, depths[node] = name, 0
        texts[node] = text
    return (*lines, *(texts[clause] for clause in clauses))


def _name(text: str, names: dict[str, str]) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return next(name for length in range(8, 65) if names.setdefault(name := f"${digest[:length]}", text) == text)


def text_lengths(expr: Expr) -> Mapping[Expr, int]:
    """For each node below *expr*, about how many characters ``str`` makes of it, without making them."""
    lengths: dict[Expr, int] = {}
    for node in walk(expr):
        own = len(PRINT[node.kind](node, lambda arg: "")) + 3 * len(node.args)
        inner = node.args[0] if node.kind == "not" else node
        looked_through = inner.args if inner.kind in ("at_most", "equals") else node.args
        lengths[node] = own + sum(lengths[arg] for arg in looked_through)
    return lengths


def _depths(expr: Expr) -> Mapping[Expr, int]:
    depths: dict[Expr, int] = {}
    for node in walk(expr):
        depths[node] = 1 + max((depths[arg] for arg in node.args), default=0)
    return depths


def canonical(expr: Expr) -> Expr:
    """*expr* with the arguments of every ``&`` and ``|`` in the order of their texts.

    It holds on the same calls: the order of questions is not part of what they mean. Questions that may have no answer,
    because they divide by a field or ask about an alternative of one, come after the others and keep their order: so
    whatever is read from left to right is read with the same guards before it.
    """
    lengths = text_lengths(expr)
    partial = _partial(expr)
    made: dict[Expr, Expr] = {}
    keys: dict[Expr, tuple[bool, str]] = {}
    for node in walk(expr):
        parts = [made[arg] for arg in node.args]
        if node.kind in ("and", "or"):
            parts.sort(key=keys.__getitem__)
            new = conjunction(parts) if node.kind == "and" else disjunction(parts)
        else:
            new = negation(parts[0]) if node.kind == "not" else node
        made[node] = new
        if node in partial:
            keys[new] = True, ""
        else:
            text = PRINT[new.kind](new, lambda arg: keys[arg][1])
            long = lengths[node] > LONGEST_TEXT
            keys[new] = False, _LAST + hashlib.sha256(text.encode()).hexdigest() if long else text
    return made[expr]


_LAST: Final = chr(0x10FFFF)
"""Sorts parts that are too long to be compared as text behind the others."""


def _partial(expr: Expr) -> frozenset[Expr]:
    """The nodes below *expr* that may have no value: they divide by a field, or read a slot that a call may lack."""
    choices = [path for path in paths_of(expr) if path[-1] in ("type", "len")]
    found: set[Expr] = set()
    for node in walk(expr):
        path = path_of(node) or ()
        divides = node.kind in ("floordiv", "mod") and node.args[1].kind != "const"
        chosen = any(path != choice and path[: len(choice) - 1] == choice[:-1] for choice in choices)
        if divides or chosen or any(arg in found for arg in node.args):
            found.add(node)
    return frozenset(found)
