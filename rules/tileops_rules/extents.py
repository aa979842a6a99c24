"""How far one integer field of a call may move before any rule can answer differently, read off the lifted rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, integer, linear, paths_of, walk
from tileops_rules.shapes import Outside

if TYPE_CHECKING:
    from tileops_rules.selector import Selector

__all__ = ["Extent", "extent_of", "is_integer"]


class Extent:
    """Where the answers of a selector's rules can change along one field, the others staying as they are.

    Attributes:
        field: The field.
    """

    def __init__(self, selector: Selector, field: str, questions: Iterable[Expr]) -> None:
        self.field = field
        self._path: Path = (field,)
        self._domain = selector.domain
        self._questions = tuple(questions)

    def around(self, call: Any) -> tuple[int, int] | None:
        """The widest range of the field's values, both ends included, that holds that of *call* and no border.

        For every call with a value in it, and all else as in *call*, each implementation serves, refuses or raises as
        it does for *call*.

        Args:
            call: A call whose device facts are filled in.

        Returns:
            The range, or None where a value of *call* is outside the domain, or the field holds no integer.
        """
        try:
            values = self._domain.read(call)
        except Outside:
            return None
        value: int | None = values.get(self._path)
        if value is None:
            return None
        slot = self._domain.slots[self._path]
        low, high = slot.lo, slot.hi
        for question in self._questions:
            for last in self._last_before_border(question, values):
                if last < value:
                    low = max(low, last + 1)
                else:
                    high = min(high, last)
        return low, high

    def _last_before_border(self, question: Expr, values: dict[Path, Any]) -> Iterator[int]:
        """Values after each of which the answer may be another.

        There is none where the rest of the sum is undefined, as where it divides by another field that is 0: it is so
        for every value of this one, and no rule's answer depends on it.
        """
        c0, terms = linear(question.args[0])
        slope = terms.pop(integer(self._path))
        try:
            limit = question.data - c0 - sum(c * evaluate(atom, values) for atom, c in terms.items())
        except ZeroDivisionError:
            return
        if question.kind == "at_most":
            # slope * value <= limit
            yield limit // slope if slope > 0 else -(limit // -slope) - 1
        elif limit % slope == 0:
            yield from (limit // slope - 1, limit // slope)


def is_integer(selector: Selector, field: str) -> bool:
    """Whether *field* of the selector's calls may hold integers."""
    slot = selector.domain.slots.get((field,))
    return slot is not None and slot.sort == "int"


def extent_of(selector: Selector, field: str) -> Extent | None:
    """What is known of *field*, an integer field of the selector's calls.

    Returns:
        None where nothing is: a rule was not lifted, or asks of the field something else than how a sum with it
        compares with a number.
    """
    path: Path = (field,)
    if not is_integer(selector, field) or selector.not_lifted or selector.validity_not_lifted:
        return None
    asked = [selector.valid.expr]
    for key in selector.keys:
        asked += [each.expr for each in (selector.claims(key), selector.raising(key)) if each is not None]
    questions: dict[Expr, None] = {}
    for expr in asked:
        for node in walk(expr):
            if node.kind == "int" or path not in paths_of(node) or node.kind in ("not", "and", "or"):
                continue
            if node.kind in ("at_most", "equals"):
                _, terms = linear(node.args[0])
                if integer(path) not in terms:
                    return None
                questions[node] = None
            elif node.kind != "sum":
                return None
    return Extent(selector, field, questions)
