"""Rules as Python functions: the run-time reading of the same trees that are proved.

A generated function loads the slots it needs once, makes sure that each is inside its domain, and then asks the
tree's questions as plain comparisons. It never decides a call outside the domain: it hands such a call to the
original methods.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from tileops_rules.expr import Expr, Path, exact_key, paths_of, walk
from tileops_rules.outcome import Fill, Returned, Template
from tileops_rules.shapes import (
    DeviceShape,
    FiniteShape,
    FloatShape,
    IntShape,
    NoneShape,
    Outside,
    RecordShape,
    Shape,
    Slot,
    StrShape,
    UnionShape,
    device_type,
)
from tileops_rules.tree import Ask, Leaf, Pick, Tree, below, walk_tree

__all__ = ["CODE", "LARGEST_CODE", "Writer", "fills", "tree_paths", "tree_size"]

LARGEST_CODE: Final = 4_000
"""Nodes above which a tree is walked instead of compiled: Python takes seconds to compile more."""

_ONE_SLOT: Final = (IntShape, FiniteShape, FloatShape, StrShape)


def tree_paths(tree: Tree) -> tuple[Path, ...]:
    """The slots that a tree's questions and reasons read."""
    found: dict[Path, None] = {}
    for node in walk_tree(tree):
        if isinstance(node, Ask):
            found.update(dict.fromkeys(paths_of(node.question)))
        elif isinstance(node, Pick):
            found[node.path] = None
        elif isinstance(node.outcome, Returned):
            for fill in fills(node.outcome.value):
                for argument in fill.args:
                    found.update(dict.fromkeys(paths_of(argument)))
    return tuple(found)


def _sizes(tree: Tree) -> dict[int, int]:
    """For each node, by its ``id``, the number of nodes from it on when shared branches are written out."""
    sizes: dict[int, int] = {}
    for node in walk_tree(tree):
        sizes[id(node)] = 1 + sum(sizes[id(branch)] for branch in below(node))
    return sizes


def tree_size(tree: Tree) -> int:
    """Number of nodes when shared branches are written out."""
    return _sizes(tree)[id(tree)]


def fills(value: Any) -> tuple[Fill, ...]:
    """The places to fill of a returned value."""
    if isinstance(value, Template):
        return tuple(p for p in value.parts if isinstance(p, Fill))
    return (value,) if isinstance(value, Fill) else ()


class Writer:
    """Writes one Python function; constants get names in its namespace."""

    def __init__(self, slots: Mapping[Path, Slot]) -> None:
        self._slots = slots
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {"_device_type": device_type, "_Outside": Outside}
        self._variables: dict[Path, str] = {}
        self._named: dict[int, str] = {}

    def name(self, value: Any, stem: str = "k") -> str:
        """A name for a constant."""
        found = self._named.get(id(value))
        if found is None:
            found = self._named[id(value)] = f"_{stem}{len(self.namespace)}"
            self.namespace[found] = value
        return found

    def line(self, depth: int, text: str) -> None:
        """A line of code at an indentation."""
        self.lines.append("    " * depth + text)

    def variable(self, path: Path) -> str:
        """The local variable that holds a slot."""
        return self._variables.setdefault(path, f"v{len(self._variables)}")

    def function(self, name: str) -> Callable[..., Any]:
        """The function *name* of what was written."""
        exec(compile("\n".join(self.lines), f"<rules compiled: {name}>", "exec"), self.namespace)
        made: Callable[..., Any] = self.namespace[name]
        return made

    # ---------------------------------------------------------------------------------------------- loading the slots

    def load(self, depth: int, source: str, shape: Shape, needed: frozenset[Path], outside: str) -> None:
        """Load the needed slots of the value that *source* names, and check those and the declared ones.

        Args:
            depth: Indentation.
            source: A Python expression for the value.
            shape: What it is made of.
            needed: Paths that the function reads.
            outside: Statement for a value outside its domain, with ``{slot}`` and ``{value}`` to fill.
        """
        if not any(s.path in needed or s.declared for s in shape.slots()):
            return
        if isinstance(shape, _ONE_SLOT):
            self._load_slot(depth, source, shape.slot, outside)
        elif isinstance(shape, DeviceShape):
            self._load_slot(depth, f"_device_type({source})", shape.slot, outside)
        elif isinstance(shape, RecordShape):
            record = self.variable((*shape.path, "<record>"))
            self.line(depth, f"{record} = {source}")
            wrong = outside.format(slot=self.name(Slot(shape.path, "finite")), value=record)
            self.line(depth, f"if type({record}) is not {self.name(shape.cls)}: {wrong}")
            for field, part in shape.parts.items():
                self.load(depth, f"{record}.{field}", part, needed, outside)
        elif isinstance(shape, UnionShape) and self._is_optional(shape):
            self._load_optional(depth, source, shape, outside)
        else:
            self._load_any(depth, source, shape, needed, outside)

    def _load_slot(self, depth: int, source: str, slot: Slot, outside: str) -> None:
        variable = self.variable(slot.path)
        self.line(depth, f"{variable} = {source}")
        self._check(depth, variable, slot, outside)

    def _check(self, depth: int, variable: str, slot: Slot, outside: str) -> None:
        wrong = outside.format(slot=self.name(slot), value=variable)
        not_inside = self._not_inside(variable, slot)
        if slot.sort == "finite" and not _told_by_identity(slot):
            self.line(depth, f"try: _x = {not_inside}")
            self.line(depth, "except TypeError: _x = True")  # it cannot be hashed, which every value of the slot can
            not_inside = "_x"
        self.line(depth, f"if {not_inside}: {wrong}")

    def _not_inside(self, variable: str, slot: Slot) -> str:
        if slot.sort == "int":
            return f"type({variable}) is not int or not {slot.lo} <= {variable} <= {slot.hi}"
        if slot.sort == "str":
            return f"type({variable}) is not str"
        if slot.sort == "float":
            wrong = f"type({variable}) is not float"
            if slot.lo is not None:
                wrong += f" or not {variable} >= {self.name(slot.lo)}"
            if slot.hi is not None:
                wrong += f" or not {variable} <= {self.name(slot.hi)}"
            return wrong
        if _told_by_identity(slot):
            return " and ".join(f"{variable} is not {self.name(v)}" for v in slot.values)
        if all(_by_identity(v) for v in slot.values):
            return f"{variable} not in {self.name(frozenset(slot.values))}"
        keys = frozenset((type(v), v) for v in slot.values)
        return f"(type({variable}), {variable}) not in {self.name(keys)}"

    @staticmethod
    def _is_optional(shape: UnionShape) -> bool:
        others = [s for s in shape.options.values() if not isinstance(s, NoneShape)]
        return len(others) == 1 and len(shape.options) == 2 and isinstance(others[0], _ONE_SLOT)

    def _load_optional(self, depth: int, source: str, shape: UnionShape, outside: str) -> None:
        name, inner = next((n, s) for n, s in shape.options.items() if not isinstance(s, NoneShape))
        choice = self.variable(shape.choice.path)
        for slot in inner.slots():
            variable = self.variable(slot.path)
            self.line(depth, f"{variable} = {source}")
            self.line(depth, f"if {variable} is None: {choice} = 'None'")
            self.line(depth, "else:")
            self.line(depth + 1, f"{choice} = {name!r}")
            self._check(depth + 1, variable, slot, outside)

    def _load_any(self, depth: int, source: str, shape: Shape, needed: frozenset[Path], outside: str) -> None:
        self.line(depth, "_d = {}")
        self.line(depth, f"try: {self.name(shape)}.read({source}, _d)")
        self.line(depth, "except _Outside as _o:")
        self.line(depth + 1, "_w = _o")
        self.line(depth + 1, outside.format(slot="_w.slot", value="_w.value"))
        for slot in shape.slots():
            if slot.path in needed:
                self.line(depth, f"{self.variable(slot.path)} = _d.get({self.name(slot.path)})")

    # ------------------------------------------------------------------------------------------------------ the tree

    def tree(self, depth: int, tree: Tree, end: Callable[[Leaf], str], lost: str) -> None:
        """Write a tree whose ends return.

        Args:
            depth: Indentation.
            tree: The tree.
            end: The statement at an end.
            lost: The statement where a slot holds what its path leaves out.
        """
        self._tree(depth, tree, end, lost, _sizes(tree))

    def _tree(self, depth: int, tree: Tree, end: Callable[[Leaf], str], lost: str, sizes: dict[int, int]) -> None:
        while not isinstance(tree, Leaf):
            if isinstance(tree, Ask):
                inner, outer, text = tree.yes, tree.no, self.code(tree.question)
                if sizes[id(inner)] > sizes[id(outer)]:
                    inner, outer, text = outer, inner, f"not {text}"
                self._branch(depth, text, inner, end, lost, sizes)
                tree = outer
                continue
            for values, branch in tree.branches:
                self._branch(depth, self._among(tree.path, values), branch, end, lost, sizes)
            self.line(depth, lost)
            return
        self.line(depth, end(tree))

    def _branch(
        self, depth: int, text: str, inner: Tree, end: Callable[[Leaf], str], lost: str, sizes: dict[int, int]
    ) -> None:
        if isinstance(inner, Leaf):
            self.line(depth, f"if {text}: {end(inner)}")
        else:
            self.line(depth, f"if {text}:")
            self._tree(depth + 1, inner, end, lost, sizes)

    # -------------------------------------------------------------------------------------------------- expressions

    def code(self, expr: Expr) -> str:
        """A Python expression with the value of *expr*."""
        done: dict[Expr, str] = {}
        for node in walk(expr):
            done[node] = CODE[node.kind](self, node, [done[a] for a in node.args])
        return done[expr]

    def _among(self, path: Path, values: tuple[Any, ...]) -> str:
        variable = self.variable(path)
        kinds = {type(v) for v in self._slots[path].values}
        if bool in kinds and kinds & {int, float}:
            keys = frozenset(exact_key(v) for v in values)
            return f"({self.name(exact_key)}({variable}) in {self.name(keys)})"
        if len(values) == 1:
            comparison = "is" if _by_identity(values[0]) else "=="
            return f"({variable} {comparison} {self.name(values[0])})"
        return f"({variable} in {self.name(frozenset(values))})"


def _told_by_identity(slot: Slot) -> bool:
    """Whether a finite slot's few values are each compared by identity; else they are looked up by their hash."""
    return len(slot.values) <= 3 and all(_by_identity(v) for v in slot.values)


def _by_identity(value: Any) -> bool:
    """Whether equality with *value* is identity, and no value of another type equals it."""
    if value is None or type(value) is bool:
        return True
    kind = type(value)
    return (isinstance(value, enum.Enum) and not isinstance(value, int | str | float)) or (
        kind.__module__ == "torch" and kind.__name__ == "dtype"
    )


def _sum(w: Writer, e: Expr, args: list[str]) -> str:
    c0, coefficients = e.data
    terms = [a if c == 1 else f"{c}*{a}" for a, c in zip(args, coefficients, strict=True)]
    return f"({' + '.join([*terms, str(c0)] if c0 else terms)})"


def _float_is(w: Writer, e: Expr, args: list[str]) -> str:
    path, comparison, value = e.data
    variable = w.variable(path)
    return f"({variable} != {variable})" if comparison == "nan" else f"({variable} {comparison} {w.name(value)})"


CODE: Final[Mapping[str, Callable[[Writer, Expr, list[str]], str]]] = {
    "const": lambda w, e, a: f"({e.data})",
    "int": lambda w, e, a: w.variable(e.data),
    "sum": _sum,
    "product": lambda w, e, a: f"({'*'.join(a)})",
    "floordiv": lambda w, e, a: f"({a[0]} // {a[1]})",
    "mod": lambda w, e, a: f"({a[0]} % {a[1]})",
    "abs": lambda w, e, a: f"abs({a[0]})",
    "bit_length": lambda w, e, a: f"{a[0]}.bit_length()",
    "truth": lambda w, e, a: str(e.data),
    "at_most": lambda w, e, a: f"({a[0]} <= {e.data})",
    "equals": lambda w, e, a: f"({a[0]} == {e.data})",
    "among": lambda w, e, a: w._among(*e.data),
    "float_is": _float_is,
    "str_is": lambda w, e, a: f"({w.variable(e.data[0])} == {w.name(e.data[1])})",
    "not": lambda w, e, a: f"(not {a[0]})",
    "and": lambda w, e, a: f"({' and '.join(a)})",
    "or": lambda w, e, a: f"({' or '.join(a)})",
}
"""One row a node kind: how it is written in Python, given how its arguments are."""
