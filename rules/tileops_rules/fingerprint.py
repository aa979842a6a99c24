"""Digests of what questions are made of: the same in every process, on every machine and Python version.

Two expressions have one digest exactly when they are one expression, and two fields when they range over the same
values in the same order. What cannot be spelled exactly has no digest (:class:`NotSpelled`): an object whose text
might leave out what makes it differ from another one is never compared by that text.
"""

from __future__ import annotations

import enum
import hashlib
import weakref
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Final, cast

from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import Domain
from tileops_rules.expr import Expr, paths_of
from tileops_rules.outcome import Fill, Outcome, Raised, Template
from tileops_rules.shapes import (
    DeviceShape,
    FiniteShape,
    FloatShape,
    IntShape,
    OpaqueShape,
    RecordShape,
    SequenceShape,
    Shape,
    Slot,
    StrShape,
    TupleShape,
    UnionShape,
)
from tileops_rules.tree import Ask, Leaf, Tree, walk_tree

__all__ = [
    "NotSpelled",
    "archs_digest",
    "digest",
    "expr_digest",
    "field_digest",
    "fields_read",
    "spelled",
    "tree_digest",
    "type_name",
]


class NotSpelled(Exception):
    """A value has no exact spelling.

    Attributes:
        value: The value.
    """

    def __init__(self, value: object) -> None:
        super().__init__(f"a {type_name(type(value))} has no exact spelling")
        self.value = value


def type_name(kind: type) -> str:
    """``module.qualname`` of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def spelled(value: Any) -> str:
    """The exact text of a plain value: its type and all that makes it differ from another one.

    Plain are None, bools, ints, floats, complex numbers, strings, bytes, members of enums, classes, dtypes of torch,
    and tuples, lists, sets, dicts and frozen dataclasses of these.

    Raises:
        NotSpelled: *value* is, or holds, something else.
    """
    kind = type(value)
    spell = _PLAIN.get(kind)
    if spell is not None:
        return f"{kind.__name__} {spell(value)}"
    if isinstance(value, enum.Enum):
        return f"member {type_name(kind)} {value._name_!r} {spelled(value._value_)}"
    if isinstance(value, type):
        return f"class {type_name(value)}"
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return f"dtype {value}"
    if is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen:  # noqa: B009 - not known to type checkers
        return f"{type_name(kind)}({', '.join(f'{f.name}={spelled(getattr(value, f.name))}' for f in fields(kind))})"
    raise NotSpelled(value)


def _row(values: Iterable[Any]) -> str:
    return f"({', '.join(map(spelled, values))})"


def _sorted_row(values: Iterable[Any]) -> str:
    return f"({', '.join(sorted(map(spelled, values)))})"


_PLAIN: Final[dict[type, Any]] = {
    **dict.fromkeys((type(None), type(...), bool, float, complex, str, bytes), repr),
    # Python writes no decimal digits of very large numbers.
    int: lambda value: repr(value) if -(2**64) < value < 2**64 else hex(value),
    **dict.fromkeys((tuple, list), _row),
    **dict.fromkeys((set, frozenset), _sorted_row),
    dict: lambda value: f"({', '.join(f'{spelled(k)}: {spelled(v)}' for k, v in value.items())})",
}


def digest(*parts: bytes | str) -> bytes:
    """SHA-256 of *parts*, each with its length before it, so that no two rows of parts read alike."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(b"%d:" % len(data))
        found.update(data)
    return found.digest()


_reads: weakref.WeakKeyDictionary[Expr, frozenset[str]] = weakref.WeakKeyDictionary()
_fields: weakref.WeakKeyDictionary[Domain, dict[str, bytes]] = weakref.WeakKeyDictionary()


def expr_digest(expr: Expr) -> bytes:
    """The digest of an expression; a node that expressions share is looked at once.

    Raises:
        NotSpelled: it holds a constant that has no exact spelling.
    """
    if expr._digest is None:
        stack = [expr]
        while stack:
            node = stack[-1]
            waiting = [arg for arg in node.args if arg._digest is None]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            node._digest = _node_digest(node)
    return cast("bytes", expr._digest)


def _node_digest(node: Expr) -> bytes:
    data = b"" if node.data is None else spelled(node.data).encode("utf-8", "surrogatepass")
    args = b"".join([cast("bytes", arg._digest) for arg in node.args])
    return hashlib.sha256(b"%s %d:%s %s" % (node.kind.encode(), len(data), data, args)).digest()


def fields_read(expr: Expr) -> frozenset[str]:
    """Names of the fields that *expr* reads."""
    found = _reads.get(expr)
    if found is None:
        found = _reads[expr] = frozenset(str(path[0]) for path in paths_of(expr))
    return found


# --------------------------------------------------------------------------------------------------------------
# Domains


def field_digest(domain: Domain, field: str) -> bytes:
    """The digest of what a field ranges over: every slot with its values in order and its default.

    Whether a domain was declared or assumed makes no difference to a question.

    Raises:
        NotSpelled: a value or default has no exact spelling.
    """
    mine = _fields.setdefault(domain, {})
    if field not in mine:
        mine[field] = _shape_digest(domain.fields[field])
    return mine[field]


def _slot_text(slot: Slot) -> str:
    return spelled((slot.path, slot.sort, slot.lo, slot.hi, slot.values, slot.default))


def _shape_digest(shape: Shape) -> bytes:
    head = f"{type(shape).__name__} {spelled(shape.path)}"
    if isinstance(shape, IntShape | FloatShape | StrShape | FiniteShape | DeviceShape):
        return digest(head, _slot_text(shape.slot))
    if isinstance(shape, TupleShape):
        return digest(head, *map(_shape_digest, shape.parts))
    if isinstance(shape, SequenceShape):
        return digest(head, _slot_text(shape.length), *map(_shape_digest, shape.items))
    if isinstance(shape, RecordShape):
        return digest(head, type_name(shape.cls), *_named(shape.parts.items()))
    if isinstance(shape, UnionShape):
        return digest(head, _slot_text(shape.choice), *_named(shape.options.items()))
    return digest(head, shape.why if isinstance(shape, OpaqueShape) else "")


def _named(parts: Iterable[tuple[str, Shape]]) -> Iterable[bytes]:
    return (digest(name, _shape_digest(part)) for name, part in parts)


def archs_digest() -> bytes:
    """The digest of what is known of each arch, on which the facts in a call that is shown depend."""
    return digest(*(spelled((arch, KNOWN_ARCHS[arch])) for arch in sorted(KNOWN_ARCHS)))


# --------------------------------------------------------------------------------------------------------------
# Decision trees


def tree_digest(tree: Tree) -> bytes:
    """The digest of a decision tree, its reasons and exceptions included.

    Raises:
        NotSpelled: it holds a value that has no exact spelling.
    """
    numbers: dict[int, int] = {}
    said: list[str] = []
    for node in walk_tree(tree):
        numbers[id(node)] = len(said)
        if isinstance(node, Leaf):
            said.append(_outcome_text(node.outcome))
        elif isinstance(node, Ask):
            question = expr_digest(node.question).hex()
            said.append(f"ask {question} {numbers[id(node.yes)]} {numbers[id(node.no)]}")
        else:
            branches = [(spelled(values), numbers[id(branch)]) for values, branch in node.branches]
            said.append(f"pick {spelled(node.path)} {branches}")
    return digest(*said)


def _outcome_text(outcome: Outcome) -> str:
    if isinstance(outcome, Raised):
        return f"raises {type_name(outcome.type)} {outcome.message!r}"
    value = outcome.value
    if isinstance(value, Template):
        return f"text {[_part_text(part) for part in value.parts]}"
    return f"returns {_part_text(value)}"


def _part_text(part: Any) -> str:
    if isinstance(part, Fill):
        args = [expr_digest(each).hex() for each in part.args]
        return f"fill {(part.source, part.text, spelled(part.path), part.conversion, part.spec, args)}"
    return f"plain {spelled(part)}"
