"""The small faults that a module can be given, one at a time, in an order that depends on its text alone."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from left_alone import holds_text, is_assigned_to, is_left_alone

BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITE = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        module: File, relative to the root.
        index: Place among the mutants of the module.
        operator: What kind of fault.
        line: First line of what is changed.
        end: Its last line.
        statement: First and last line of the statement that holds it (of a compound one, its head).
        function: Qualified name of the function or class around it; ``""`` at module level.
        before: What stood there.
        after: What stands there now.
        serial: Number among the mutants of the module that read alike.
    """

    module: str
    index: int
    operator: str
    line: int
    end: int
    statement: tuple[int, int]
    function: str
    before: str
    after: str
    serial: int = 0

    @property
    def key(self) -> str:
        """A name that stays the same where lines above it come and go."""
        again = f" #{self.serial}" if self.serial else ""
        return f"{self.module}::{self.function or '<module>'}: {self.operator}: {self.before} -> {self.after}{again}"


@dataclass
class _Change:
    operator: str
    node: ast.AST
    after: str
    act: Callable[[], None]
    before: str | None = None


@dataclass
class _Found:
    change: _Change
    function: str
    statement: tuple[int, int]


def mutants_of(module: str, source: str, apart: Container[str] = ()) -> list[Mutant]:
    """Every mutant of a module but for what is assigned to the names *apart*."""
    made: list[Mutant] = []
    alike: dict[tuple[str, ...], int] = {}
    for index, found in enumerate(_find(ast.parse(source), apart)):
        change = found.change
        before = short(change.before if change.before is not None else ast.unparse(change.node))
        after = short(change.after)
        name = (found.function, change.operator, before, after)
        serial = alike[name] = alike.get(name, -1) + 1
        line, end = change.node.lineno, change.node.end_lineno or change.node.lineno
        made.append(
            Mutant(module, index, change.operator, line, end, found.statement, found.function, before, after, serial)
        )
    return made


def compiled(source: str, path: str, index: int | None, apart: Container[str] = ()) -> CodeType:
    """The module with mutant *index*, as :func:`mutants_of` counts them, or unchanged where it is None."""
    tree = ast.parse(source)
    if index is not None:
        next(itertools.islice(_find(tree, apart), index, None)).change.act()
        ast.fix_missing_locations(tree)
    return compile(tree, path, "exec", dont_inherit=True)


def short(text: str) -> str:
    """*text* on one line, with its middle left out where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= 90 else f"{line[:55]} ... {line[-30:]}"


def _find(tree: ast.Module, apart: Container[str]) -> Iterator[_Found]:
    yield from _walk(tree, (), (1, 1), apart)


def _walk(node: ast.AST, names: tuple[str, ...], statement: tuple[int, int], apart: Container[str]) -> Iterator[_Found]:
    for field, old in ast.iter_fields(node):
        many = isinstance(old, list)
        for place, child in enumerate(list(old) if many else [old]):
            if not isinstance(child, ast.AST) or is_left_alone(node, field, child):
                continue
            if isinstance(child, ast.stmt) and is_assigned_to(child, apart):
                continue
            slot = _Slot(node, field, place if many else None)
            inside = names
            within = statement
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = (*names, child.name)
            if isinstance(child, ast.stmt):
                body = getattr(child, "body", None)
                within = (child.lineno, body[0].lineno if body else child.end_lineno or child.lineno)
            for change in _changes(child, slot):
                yield _Found(change, ".".join(names), within)
            yield from _walk(child, inside, within, apart)


@dataclass
class _Slot:
    """Where a node hangs."""

    parent: ast.AST
    field: str
    place: int | None

    def put(self, new: ast.AST) -> None:
        if self.place is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.place] = new


def _changes(node: ast.AST, slot: _Slot) -> Iterator[_Change]:
    if isinstance(node, ast.expr):
        yield from _of_expression(node, slot)
        if slot.field == "test" or (slot.field == "ifs" and isinstance(slot.parent, ast.comprehension)):
            yield from _of_condition(node, slot)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node, slot)
    elif isinstance(node, ast.match_case) and node.guard is not None:
        yield from _of_condition(node.guard, _Slot(node, "guard", None))


def _replacing(operator: str, node: ast.AST, slot: _Slot, new: ast.AST, after: str | None = None) -> _Change:
    ast.copy_location(new, node)
    return _Change(operator, node, ast.unparse(new) if after is None else after, lambda: slot.put(new))


def _of_expression(node: ast.expr, slot: _Slot) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        for place, comparison in enumerate(node.ops):
            for operator, table in (("boundary", BOUNDARY), ("comparison", OPPOSITE)):
                if (other := table.get(type(comparison))) is not None:
                    ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                    yield _replacing(operator, node, slot, ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BinOp):
        if (arithmetic := ARITHMETIC.get(type(node.op))) is not None and not holds_text(node):
            yield _replacing("arithmetic", node, slot, ast.BinOp(node.left, arithmetic(), node.right))
    elif isinstance(node, ast.BoolOp):
        connective = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _replacing("and/or", node, slot, ast.BoolOp(connective, node.values))
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.op, ast.UAdd):
            yield _replacing("not" if isinstance(node.op, ast.Not) else "sign", node, slot, node.operand)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node, slot)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            other_name = ast.copy_location(ast.Name(CALLS[node.func.id], ast.Load()), node.func)
            yield _replacing("call", node, slot, ast.Call(other_name, node.args, node.keywords))
    elif isinstance(node, ast.Dict):
        for place, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            entry = f"**{ast.unparse(value)}" if key is None else f"{ast.unparse(key)}: {ast.unparse(value)}"
            yield _dropped_pair(node, place, entry)
    elif isinstance(node, ast.Set | ast.Tuple | ast.List) and _is_table(node, slot):
        for place, element in enumerate(node.elts):
            yield _dropped(element, node.elts, place)


def _of_constant(node: ast.Constant, slot: _Slot) -> Iterator[_Change]:
    value = node.value
    if isinstance(value, bool):
        yield _replacing("constant", node, slot, ast.Constant(not value))
    elif isinstance(value, int | float):
        # Of one element, the last is the first: an index of 0 only goes up.
        first = value == 0 and isinstance(slot.parent, ast.Subscript)
        for other in (value + 1,) if first else (value + 1, value - 1):
            yield _replacing("constant", node, slot, ast.Constant(other))


def _is_table(node: ast.Set | ast.Tuple | ast.List, slot: _Slot) -> bool:
    """Whether the elements are entries of something that is looked into, not the parts of a value."""
    if not isinstance(node, ast.Set) and (not isinstance(node.ctx, ast.Load) or len(node.elts) < 2):
        return False
    parent = slot.parent
    if not isinstance(node, ast.Tuple):
        return True
    looked_into = isinstance(parent, ast.Compare) and isinstance(parent.ops[-1], ast.In | ast.NotIn)
    checked = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in CHECKS
    return looked_into or checked or isinstance(parent, ast.ExceptHandler | ast.For)


CHECKS = frozenset({"isinstance", "issubclass", "frozenset", "set"})


def _dropped(element: ast.AST, elements: list[Any], place: int) -> _Change:
    def act() -> None:
        del elements[place]

    return _Change("entry", element, "(dropped)", act)


def _dropped_pair(node: ast.Dict, place: int, entry: str) -> _Change:
    def act() -> None:
        del node.keys[place]
        del node.values[place]

    return _Change("entry", node.values[place], "(dropped)", act, before=entry)


def _of_condition(node: ast.expr, slot: _Slot) -> Iterator[_Change]:
    """The opposite of a condition, which swaps two branches; a single comparison has its own opposite."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return
    yield _replacing("branches", node, slot, ast.UnaryOp(ast.Not(), copy.copy(node)))


def _of_statement(node: ast.stmt, slot: _Slot) -> Iterator[_Change]:
    removed = ast.Pass()
    if isinstance(node, ast.Break):
        yield _replacing("break/continue", node, slot, ast.Continue())
    elif isinstance(node, ast.Continue):
        yield _replacing("break/continue", node, slot, ast.Break())
        yield _replacing("removed", node, slot, removed, "(removed)")
    elif isinstance(node, ast.Return):
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield _replacing("return", node, slot, ast.Return(ast.Constant(None)))
    elif isinstance(node, ast.Raise | ast.AugAssign | ast.Expr | ast.Delete | ast.Assert) or (
        isinstance(node, ast.Assign) and all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets)
    ):
        yield _replacing("removed", node, slot, removed, "(removed)")
