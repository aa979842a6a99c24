"""Rules and predicates: what lifting gives, and what every question is asked in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tileops_rules.compile import LARGEST_CODE, Writer, tree_paths, tree_size
from tileops_rules.domain import Domain
from tileops_rules.errors import NotLifted, OutsideDomain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, conjunction, disjunction, negation, paths_of
from tileops_rules.outcome import Raised, Returned, Template
from tileops_rules.replay import calls_near
from tileops_rules.shapes import FloatShape, Outside
from tileops_rules.tree import Leaf, Tree, condition, follow, follower, leaves

__all__ = ["Predicate", "Rule"]


class Predicate:
    """A question with a yes or no for every call of one class.

    Combine with ``&``, ``|`` and ``~``; call it on a concrete call; ``str`` reads as its author would write it.

    Attributes:
        domain: What the fields range over.
        expr: The expression.
    """

    __slots__ = ("domain", "expr")

    def __init__(self, domain: Domain, expr: Expr) -> None:
        self.domain = domain
        self.expr = expr

    @property
    def spec(self) -> type:
        """The class of the calls."""
        return self.domain.spec

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields it depends on, in order of first appearance."""
        return tuple(dict.fromkeys(str(path[0]) for path in paths_of(self.expr)))

    def _with(self, other: object, join: Callable[[list[Expr]], Expr]) -> Any:
        if not isinstance(other, Predicate):
            return NotImplemented
        if other.spec is not self.spec:
            raise TypeError(
                f"a predicate on {self.spec.__name__} and one on {other.spec.__name__} have no call in common: "
                f"combine predicates on one class"
            )
        wider = self.domain if len(self.domain.archs) >= len(other.domain.archs) else other.domain
        return Predicate(wider, join([self.expr, other.expr]))

    def __and__(self, other: object) -> Predicate:
        joined: Predicate = self._with(other, conjunction)
        return joined

    def __or__(self, other: object) -> Predicate:
        joined: Predicate = self._with(other, disjunction)
        return joined

    def __invert__(self) -> Predicate:
        return Predicate(self.domain, negation(self.expr))

    def __bool__(self) -> bool:
        raise TypeError(
            f"the predicate `{self}` has no truth value of its own: write & for `and`, | for `or`, ~ for `not`, "
            f"or call it on a call"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and other.expr is self.expr and other.spec is self.spec

    def __hash__(self) -> int:
        return hash((self.spec, self.expr))

    def __call__(self, call: Any) -> bool:
        """Whether it holds for *call*.

        Raises:
            TypeError: *call* is not of the class that the predicate speaks of.
            OutsideDomain: a field that it reads holds a value outside its domain, where it says nothing.
        """
        if not isinstance(call, self.spec):
            raise TypeError(f"this predicate speaks of {self.spec.__name__}, not of {type(call).__name__}")
        values: dict[Path, Any] = {}
        for name in self.fields:
            shape, value = self.domain.fields[name], getattr(call, name)
            try:
                shape.read(float(value) if isinstance(shape, FloatShape) and type(value) is int else value, values)
            except Outside as outside:
                raise OutsideDomain.of(outside.slot, outside.value) from None
        try:
            return bool(evaluate(self.expr, values))
        except ZeroDivisionError:
            absent = next((path for path in paths_of(self.expr) if path not in values), None)
            if absent is None:
                raise
            raise OutsideDomain.of(self.domain.slots[absent], None) from None

    def __str__(self) -> str:
        return str(self.expr)

    def __repr__(self) -> str:
        return f"Predicate({self.spec.__name__}: {self})"


class Rule:
    """A refusal, lifted: a decision tree over the fields of a call.

    Calling it on a call gives exactly what the original gives: None, or the reason with its places filled, or
    its exception.

    Attributes:
        original: The function it was lifted from.
        domain: What the fields range over.
        tree: The decision tree.
        paths: Number of paths that were explored.
        touched: Slots that some answer depended on, the domain's own answers included.
        reads: What the function read besides the call, by name; values are those at the time of lifting.
        file: Where the function stands.
        line: Its first line there.
    """

    def __init__(
        self,
        *,
        original: Callable[[Any], Any],
        domain: Domain,
        tree: Tree,
        paths: int,
        touched: frozenset[Path],
        reads: Mapping[str, Any],
        file: str,
        line: int,
    ) -> None:
        self.original = original
        self.domain = domain
        self.tree = tree
        self.paths = paths
        self.touched = touched
        self.reads = reads
        self.file = file
        self.line = line

    @property
    def spec(self) -> type:
        """The class of the calls."""
        return self.domain.spec

    @property
    def place(self) -> str:
        """``file:line`` of the function."""
        return f"{self.file}:{self.line}"

    @cached_property
    def serves(self) -> Predicate:
        """The calls for which it returns None."""
        return Predicate(self.domain, condition(self.tree, lambda outcome: outcome.serves))

    @cached_property
    def raises(self) -> Predicate:
        """The calls on which it raises."""
        return Predicate(self.domain, condition(self.tree, lambda outcome: isinstance(outcome, Raised)))

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Every reason it gives, with its places as ``{field}``."""
        found = (leaf.outcome for leaf in leaves(self.tree))
        return tuple(dict.fromkeys(str(o) for o in found if isinstance(o, Returned) and not o.serves))

    @cached_property
    def _compiled(self) -> Callable[[Any], Any]:
        if tree_size(self.tree) > LARGEST_CODE:
            return self._walk
        needed = self.touched
        linked = frozenset(paths_of(self.domain.links))
        assumes_links = bool(needed & linked)
        needed |= linked if assumes_links else frozenset()
        writer = Writer(self.domain.slots)
        original = writer.name(self.original)
        writer.line(0, "def rule(call):")
        for field, shape in self.domain.fields.items():
            if any(s.path in needed for s in shape.slots()):
                writer.load(1, f"call.{field}", shape, needed, f"return {original}(call)")
        if assumes_links:
            writer.line(1, f"if not {writer.code(self.domain.links)}: return {original}(call)")
        writer.tree(1, self.tree, lambda leaf: self._end(writer, leaf, original), f"return {original}(call)")
        return writer.function("rule")

    def _end(self, writer: Writer, leaf: Leaf, original: str) -> str:
        outcome = leaf.outcome
        if isinstance(outcome, Raised):
            return f"return {original}(call)"
        if not isinstance(outcome.value, Template) and not hasattr(outcome.value, "fill"):
            return f"return {writer.name(outcome.value)}"
        paths = tree_paths(leaf)
        values = ", ".join(f"{writer.name(p)}: {writer.variable(p)}" for p in paths)
        return f"return {writer.name(outcome)}.give(call, {{{values}}})"

    def _walk(self, call: Any) -> Any:
        try:
            values = self.domain.read(call)
        except Outside:
            return self.original(call)
        if not evaluate(self.domain.links, values):
            return self.original(call)
        outcome = follow(self.tree, values)
        return outcome.give(call, values) if isinstance(outcome, Returned) else self.original(call)

    def __call__(self, call: Any) -> Any:
        """What the original gives for *call*."""
        return self._compiled(call)

    def replay(self, count: int, seed: int = 0) -> Any | None:
        """Put concrete calls near the tree's thresholds through the original and the tree.

        Args:
            count: Number of calls.
            seed: Chooses them; the same seed, the same calls.

        Returns:
            A call on which the two differ in value, type or exception; None where there is none.
        """
        followed = follower(self.tree)
        for call, values in calls_near(self.tree, self.domain, count, seed):
            try:
                expected: Any = self.original(call)
                error: type[BaseException] | None = None
            except Exception as raised:  # noqa: BLE001 - it is compared with what the tree says
                expected, error = None, type(raised)
            outcome = followed(values)
            if outcome is None:
                continue
            if isinstance(outcome, Raised):
                if error is not outcome.type:
                    return call
            elif error is not None or not _same(outcome.give(call, values), expected):
                return call
        return None

    def replayed(self, count: int, seed: int = 0) -> Rule:
        """This rule, after a replay that found no difference.

        Raises:
            NotLifted: the original gives something else than the tree, with the call.
        """
        call = self.replay(count, seed)
        if call is not None:
            raise NotLifted(
                self.file,
                self.line,
                f"gives something else than its tree on {call!r}: "
                f"it is no function of the call alone, or it compares classes or fields by identity",
                call=call,
            )
        return self

    def __str__(self) -> str:
        return f"serves where {self.serves}"

    def __repr__(self) -> str:
        return f"<Rule of {getattr(self.original, '__qualname__', self.original)}, {self.paths} paths>"


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and (left == right or (left != left and right != right))
