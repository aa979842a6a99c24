"""z3 terms made without z3's own looks at the sorts of what they are made of.

The operators of z3's Python classes convert and compare the sorts of their operands at each step, which took four
fifths of the time in which a question was encoded. What an encoder combines is of the right sort already, so these
make the same terms by the functions beneath.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Terms"]


class Terms:
    """Truths and comparisons of one context.

    Args:
        z3: The z3 module.
        context: Of every term.
        signed_bits: Whether numbers are signed bit-vectors; integers otherwise.
    """

    def __init__(self, z3: Any, context: Any, *, signed_bits: bool) -> None:
        core = z3.z3core
        self._context = context
        self._ref = context.ref()
        self._truth = z3.BoolRef
        self._ast = z3.Ast
        self._false = z3.BoolVal(False, context)
        self._and, self._or, self._not, self._equal = core.Z3_mk_and, core.Z3_mk_or, core.Z3_mk_not, core.Z3_mk_eq
        self._at_most = core.Z3_mk_bvsle if signed_bits else core.Z3_mk_le
        self._at_least = core.Z3_mk_bvsge if signed_bits else core.Z3_mk_ge

    def every(self, truths: Sequence[Any]) -> Any:
        """All of some truths, one or more."""
        return self._joined(self._and, truths)

    def any_of(self, truths: Sequence[Any]) -> Any:
        """One of some truths at least; that is false where there are none."""
        return self._joined(self._or, truths) if truths else self._false

    def no(self, truth: Any) -> Any:
        """The opposite of a truth."""
        return self._truth(self._not(self._ref, truth.ast), self._context)

    def equal(self, left: Any, right: Any) -> Any:
        """Whether two numbers are the same."""
        return self._truth(self._equal(self._ref, left.ast, right.ast), self._context)

    def at_most(self, left: Any, right: Any) -> Any:
        """``left <= right`` of numbers."""
        return self._truth(self._at_most(self._ref, left.ast, right.ast), self._context)

    def at_least(self, left: Any, right: Any) -> Any:
        """``left >= right`` of numbers."""
        return self._truth(self._at_least(self._ref, left.ast, right.ast), self._context)

    def _joined(self, make: Any, truths: Sequence[Any]) -> Any:
        count = len(truths)
        asts = (self._ast * count)(*[truth.ast for truth in truths])
        return self._truth(make(self._ref, count, asts), self._context)
