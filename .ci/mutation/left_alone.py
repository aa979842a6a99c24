"""What is not mutated, and why: texts, types, and what only a speed or a size depends on."""

from __future__ import annotations

import ast
from collections.abc import Container

NOT_LOOKED_INTO = {"__all__", "__slots__"}
"""Names that the module system or the interpreter reads; a wrong one changes no answer."""

TYPING = {"TypeVar", "ParamSpec", "NewType", "cast", "Literal", "Annotated"}
CACHES = {"lru_cache", "cache"}
NO_ANSWER = {"slots", "maxsize", "strict"}
"""Keywords on which memory or speed depend, or, as ``strict`` of ``zip``, whether a mistake of ours is noticed."""


def is_left_alone(parent: ast.AST, field: str, child: ast.AST) -> bool:
    """Whether *child*, at *field* of *parent*, is not to be changed and not to be looked into."""
    if field in ("annotation", "returns", "type_params", "type_comment", "target", "targets", "names"):
        return True
    if isinstance(child, ast.JoinedStr):
        return True
    if isinstance(child, ast.Constant) and isinstance(child.value, str | bytes | type(None) | type(...)):
        return True
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True
    if isinstance(child, ast.Assign | ast.AnnAssign):
        return is_assigned_to(child, NOT_LOOKED_INTO) or _is_type(child.value)
    if isinstance(child, ast.If):
        return _called(child.test) == "TYPE_CHECKING" or _is_main(child.test)
    if isinstance(child, ast.FunctionDef):
        return any(_called(each) == "overload" for each in child.decorator_list)
    if isinstance(child, ast.Call):
        return _called(child.func) in (TYPING | CACHES)
    if isinstance(child, ast.keyword):
        return child.arg in NO_ANSWER
    return isinstance(child, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal)


def holds_text(node: ast.BinOp) -> bool:
    """Whether ``+`` joins or ``%`` formats a text that is written there."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _called(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_assigned_to(node: ast.stmt, names: Container[str]) -> bool:
    """Whether a statement gives a value to one of *names*."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(each, ast.Name) and each.id in names for each in targets)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and _called(test.left) == "__name__"


def _is_type(value: ast.expr | None) -> bool:
    """Whether an assigned value is an alias of types: ``tuple[int, int]``, ``A | None``."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.value, ast.Name) and value.value.id in ALIASED
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return all(_is_type(side) or _names_a_type(side) for side in (value.left, value.right))
    return False


def _names_a_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name) and (node.id in ALIASED or node.id[:1].isupper())


ALIASED = {"Callable", "Iterable", "Mapping", "Sequence", "bool", "dict", "float", "int", "list", "str", "tuple"}
