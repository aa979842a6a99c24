"""Expressions as z3 terms: one row for each kind of node, for integers and for bit-vectors.

What differs between the two arithmetics is a number, a division and the length of a number in bits:
:class:`Integers` and :class:`Bits`. Everything else is written once, in :data:`ENCODE`. z3 is handed in;
nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tileops_rules.bounds import Bounds
from tileops_rules.expr import KINDS, Expr, Path, conjunction, path_of, walk
from tileops_rules.printing import path_text

from tileops_solver import division
from tileops_solver.codes import Codes
from tileops_solver.narrowing import Narrowed, SlotBounds
from tileops_solver.terms import Terms

__all__ = ["ENCODE", "Bits", "Cost", "Encoder", "Integers", "beyond_ranges", "bits_cost", "code_range"]

MOST_RESIDUES: Final = 128
"""Largest modulus whose products are split over residues: one case a residue and factor, 0.03 ms each."""


class Numbers(Protocol):
    """An arithmetic of z3."""

    def number(self, value: int) -> Any:
        """A constant."""

    def variable(self, name: str) -> Any:
        """An unknown."""

    def floordiv(self, node: Expr, left: Any, right: Any) -> Any:
        """``left // right`` as Python has it."""

    def mod(self, node: Expr, left: Any, right: Any) -> Any:
        """``left % right`` as Python has it."""


class Integers:
    """z3's unbounded integers."""

    def __init__(self, z3: Any, context: Any, bounds: Callable[[Expr], Bounds]) -> None:
        self._z3 = z3
        self._context = context
        self._bounds = bounds

    def number(self, value: int) -> Any:
        """A constant."""
        return self._z3.IntVal(value, self._context)

    def variable(self, name: str) -> Any:
        """An unknown."""
        return self._z3.Int(name, self._context)

    def floordiv(self, node: Expr, left: Any, right: Any) -> Any:
        """``left // right`` as Python has it."""
        return division.integers_floor(self._z3, left, right, self._bounds(node.args[1]))

    def mod(self, node: Expr, left: Any, right: Any) -> Any:
        """``left % right`` as Python has it."""
        return division.integers_mod(self._z3, left, right, self._bounds(node.args[1]))


class Bits:
    """z3's signed bit-vectors of one width, chosen so that nothing wraps."""

    def __init__(self, z3: Any, context: Any, bounds: Callable[[Expr], Bounds], width: int) -> None:
        self._z3 = z3
        self._context = context
        self._bounds = bounds
        self._width = width

    def number(self, value: int) -> Any:
        """A constant."""
        return self._z3.BitVecVal(value, self._width, self._context)

    def variable(self, name: str) -> Any:
        """An unknown."""
        return self._z3.BitVec(name, self._width, self._context)

    def floordiv(self, node: Expr, left: Any, right: Any) -> Any:
        """``left // right`` as Python has it."""
        return division.bits_floor(self._z3, left, right, *map(self._bounds, node.args))

    def mod(self, node: Expr, left: Any, right: Any) -> Any:
        """``left % right`` as Python has it."""
        return division.bits_mod(self._z3, left, right, *map(self._bounds, node.args))


class Encoder:
    """Encodes the expressions of one question, each once.

    Attributes:
        z3: The z3 module.
        numbers: The arithmetic.
        terms: Truths and comparisons in it.
        variables: The unknown of each slot that was mentioned so far.
    """

    def __init__(self, z3: Any, context: Any, known: Narrowed, codes: Mapping[Path, Codes], width: int | None) -> None:
        self.z3 = z3
        self.context = context
        self._known = known
        self._codes = codes
        self._bounds = SlotBounds(known)
        self._encoded: dict[Expr, Any] = {}
        self._numbers: dict[int, Any] = {}
        self.terms = Terms(z3, context, signed_bits=width is not None)
        self.numbers: Numbers = (
            Integers(z3, context, self._bounds) if width is None else Bits(z3, context, self._bounds, width)
        )
        self.splits_residues = width is None
        self.variables: dict[Path, Any] = {}

    def bounds(self, node: Expr) -> Bounds:
        """The interval of an integer node, from what the question says of single slots."""
        return self._bounds(node)

    def variable(self, path: Path) -> Any:
        """The unknown of a slot."""
        found = self.variables.get(path)
        if found is None:
            found = self.variables[path] = self.numbers.variable(path_text(path))
        return found

    def number(self, value: int) -> Any:
        """A constant, made once."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = self.numbers.number(value)
        return found

    def ranges(self, paths: Iterable[Path] | None = None) -> list[Any]:
        """What holds of every unknown: it lies in its slot's domain, as far as the question leaves it.

        Args:
            paths: Slots; all that the question reads where None.
        """
        made = []
        for path in self._codes if paths is None else paths:
            variable, terms = self.variable(path), self.terms
            low, high = map(self.number, code_range(path, self._codes[path], self._known))
            made += [terms.at_least(variable, low), terms.at_most(variable, high)]
        return made

    def holding(self, node: Expr) -> tuple[Any, frozenset[int], Codes]:
        """Of a question about one slot: its unknown, the codes that answer yes, and all its codes."""
        path = path_of(node)
        if path is None:
            raise KeyError(node.kind)
        codes = self._codes[path]
        return self.variable(path), codes.holding[node], codes

    def encode(self, expr: Expr) -> Any:
        """The term of *expr*."""
        for node in walk(expr):
            if node not in self._encoded:
                self._encoded[node] = self._encode_one(node)
        return self._encoded[expr]

    def _encode_one(self, node: Expr) -> Any:
        if KINDS[node.kind].sort == "int":
            low, high = self.bounds(node)
            if low == high:
                return self.number(low)
        return ENCODE[node.kind](self, node, [self._encoded[a] for a in node.args])

    def term(self, node: Expr) -> Any:
        """The term of a node that has been encoded."""
        return self._encoded[node]


def code_range(path: Path, codes: Codes, known: Narrowed) -> Bounds:
    """The numbers that the question leaves to a slot, as an interval."""
    if codes.values:
        left = known.codes[path]
        return min(left), max(left)
    return known.slot_limits(path)


def beyond_ranges(expr: Expr, codes: Mapping[Path, Codes], known: Narrowed) -> Expr:
    """*expr* without those of its parts that hold wherever every slot is in its range: most of a typical question."""
    parts = expr.args if expr.kind == "and" else (expr,)
    return conjunction(part for part in parts if not _in_range(part, codes, known))


def _in_range(part: Expr, codes: Mapping[Path, Codes], known: Narrowed) -> bool:
    atom, answer = (part.args[0], False) if part.kind == "not" else (part, True)
    of_slot = atom.kind in ("at_most", "equals") and atom.args[0].kind == "int"
    path = path_of(atom.args[0] if of_slot else atom)
    if path is None:
        return False
    low, high = code_range(path, codes[path], known)
    if not of_slot:
        yes = codes[path].holding[atom]
        return all((code in yes) is answer for code in range(low, high + 1))
    if atom.kind == "at_most":
        return bool(high <= atom.data if answer else low > atom.data)
    return bool(low == high == atom.data if answer else not low <= atom.data <= high)


def _sum(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
    total: Any = None
    for atom, coefficient in zip(args, node.data[1], strict=True):
        part = atom if coefficient == 1 else atom * coefficient
        total = part if total is None else total + part
    return total + node.data[0] if node.data[0] else total


def _product(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
    total = args[0]
    for factor in args[1:]:
        total = total * factor
    return total


def _mod(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
    left, right = node.args
    if encoder.splits_residues and right.kind == "const" and 1 < right.data <= MOST_RESIDUES:
        split = _split(encoder, left, right.data)
        if split is not None:
            return split % right.data
    return encoder.numbers.mod(node, args[0], args[1])


def _split(encoder: Encoder, left: Expr, modulus: int) -> Any:
    """*left* with each product replaced by its residue, or None where it has none."""
    parts = left.args if left.kind == "sum" else (left,)
    if not any(p.kind == "product" for p in parts):
        return None
    replaced = [
        division.residue_of_product(encoder.z3, [encoder.term(f) for f in p.args], modulus)
        if p.kind == "product"
        else encoder.term(p)
        for p in parts
    ]
    return _sum(encoder, left, replaced) if left.kind == "sum" else replaced[0]


def _abs(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
    low, high = encoder.bounds(node.args[0])
    if low >= 0:
        return args[0]
    return -args[0] if high <= 0 else encoder.z3.If(args[0] >= 0, args[0], -args[0])


def _bit_length(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
    """One case for each length that the bounds allow, the longest outermost."""
    size = _abs(encoder, node, args)
    shortest, longest = encoder.bounds(node)
    term = encoder.number(shortest)
    for length in range(shortest + 1, longest + 1):
        term = encoder.z3.If(size >= 1 << (length - 1), encoder.number(length), term)
    return term


def _one_slot(encoder: Encoder, node: Expr, args: list[Any]) -> Any:
    """A question about a slot that stands for classes of values: its code is one of some."""
    variable, yes, codes = encoder.holding(node)
    no = codes.hi + 1 - len(yes)
    if not yes or not no:
        return encoder.z3.BoolVal(bool(yes), encoder.context)
    if len(yes) <= no:
        return _is_one_of(encoder, variable, sorted(yes))
    others = [code for code in range(codes.hi + 1) if code not in yes]
    return encoder.terms.no(_is_one_of(encoder, variable, others))


def _is_one_of(encoder: Encoder, variable: Any, codes: list[int]) -> Any:
    each = [encoder.terms.equal(variable, encoder.number(code)) for code in codes]
    return each[0] if len(each) == 1 else encoder.terms.any_of(each)


ENCODE: Final[Mapping[str, Callable[[Encoder, Expr, list[Any]], Any]]] = {
    "const": lambda encoder, node, args: encoder.number(node.data),
    "int": lambda encoder, node, args: encoder.variable(node.data),
    "sum": _sum,
    "product": _product,
    "floordiv": lambda encoder, node, args: encoder.numbers.floordiv(node, args[0], args[1]),
    "mod": _mod,
    "abs": _abs,
    "bit_length": _bit_length,
    "truth": lambda encoder, node, args: encoder.z3.BoolVal(node.data, encoder.context),
    "at_most": lambda encoder, node, args: encoder.terms.at_most(args[0], encoder.number(node.data)),
    "equals": lambda encoder, node, args: encoder.terms.equal(args[0], encoder.number(node.data)),
    "among": _one_slot,
    "float_is": _one_slot,
    "str_is": _one_slot,
    "not": lambda encoder, node, args: encoder.terms.no(args[0]),
    "and": lambda encoder, node, args: encoder.terms.every(args),
    "or": lambda encoder, node, args: encoder.terms.any_of(args),
}
"""Kind of node to its term: ``(encoder, node, terms of its arguments)``."""


@dataclass(frozen=True)
class Cost:
    """What a question would take in bit-vectors.

    Attributes:
        width: Bits in which no number of it wraps.
        operations: Multiplications of unknowns, and divisions: circuits of ``width**2`` gates.
        additions: Additions that multiply an unknown by a constant: circuits of ``width`` gates.
    """

    width: int
    operations: int
    additions: int

    @property
    def gates(self) -> int:
        """Size of the circuits, in the unit of the engine's ceiling."""
        return self.operations * self.width**2 + self.additions * self.width


def bits_cost(expr: Expr, known: Narrowed, codes: Mapping[Path, Codes]) -> Cost:
    """The width that *expr* needs in bit-vectors, and how much arithmetic it is."""
    low, high = -1, 1
    operations = additions = 0
    bounds = SlotBounds(known)

    def hold(*values: int) -> None:
        nonlocal low, high
        low, high = min(low, *values), max(high, *values)

    for path, mine in codes.items():
        hold(*code_range(path, mine, known))
    for node in walk(expr):
        if node.kind in ("at_most", "equals"):
            hold(node.data)
        if KINDS[node.kind].sort != "int":
            continue
        hold(*bounds(node))
        if node.kind == "sum":
            hold(node.data[0], *_partial_sums(node, bounds))
            additions += sum(abs(c).bit_count() - 1 for c in node.data[1])
        elif node.kind == "product":
            hold(*_partial_products(node, bounds))
            operations += len(node.args) - 1
        elif node.kind in ("floordiv", "mod"):
            dividend, divisor = map(bounds, node.args)
            hold(*division.bits_floor_range(dividend, divisor))
            exact = divisor[0] == divisor[1] and division.shift_of(divisor[0]) is not None
            operations += 0 if exact else 2 if node.kind == "floordiv" else 1
        elif node.kind == "bit_length":
            hold(1 << bounds(node)[1])
    return Cost(max(low.bit_length(), high.bit_length()) + 1, operations, additions)


def _partial_sums(node: Expr, bounds: Callable[[Expr], Bounds]) -> list[int]:
    low = high = 0
    held = []
    for atom, c in zip(node.args, node.data[1], strict=True):
        ends = [c * end for end in bounds(atom)]
        low, high = low + min(ends), high + max(ends)
        held += [c, *ends, low, high]
    return held


def _partial_products(node: Expr, bounds: Callable[[Expr], Bounds]) -> list[int]:
    low, high = bounds(node.args[0])
    held = []
    for factor in node.args[1:]:
        corners = [a * b for a in (low, high) for b in bounds(factor)]
        low, high = min(corners), max(corners)
        held += [low, high]
    return held
