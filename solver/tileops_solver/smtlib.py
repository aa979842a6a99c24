"""Questions as SMT-LIB 2 text, for another solver to be asked the same."""

from __future__ import annotations

from tileops_rules.domain import Domain
from tileops_rules.expr import Expr

from tileops_solver import z3_backend
from tileops_solver.codes import codes_of
from tileops_solver.definite import definitely
from tileops_solver.encode import Encoder, bits_cost
from tileops_solver.narrowing import narrow

__all__ = ["as_smtlib"]


def as_smtlib(expr: Expr, domain: Domain, *, bits: bool = False) -> str | None:
    """A script that asks whether *expr* can hold, ending in ``(check-sat)``.

    It is what z3 is given: the ranges of the slots, then the question, over integers or over bit-vectors wide
    enough that nothing wraps. Slots with values that are no numbers stand for the numbers of their classes.

    Args:
        expr: The question.
        domain: Where its slots range.
        bits: Bit-vectors in place of integers.

    Returns:
        The script; None where intervals and sets of values answer the question already: it cannot hold.

    Raises:
        ImportError: z3, which writes the text, is not installed.
    """
    asked = definitely(expr, domain)
    codes = codes_of(asked, domain)
    known = narrow(asked, domain, codes)
    if known is None:
        return None
    z3 = z3_backend.load()
    context = z3.Context()
    encoder = Encoder(z3, context, known, codes, bits_cost(asked, known, codes).width if bits else None)
    solver = z3.Solver(ctx=context)
    solver.add(*encoder.ranges(), encoder.encode(asked))
    logic = "QF_BV" if bits else "QF_NIA"
    text: str = solver.to_smt2()
    return f"(set-logic {logic})\n{text}"
