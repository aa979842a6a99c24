"""The same questions to a second solver: cvc5 reads what z3 is given, and no answer differs."""

from __future__ import annotations

import pytest
from tileops_rules import lift
from tileops_rules.domain import Domain
from tileops_rules.errors import NotLifted
from tileops_rules.expr import FALSE, Expr, at_most, conjunction, constant, equals, integer, mod, multiply, negation
from tileops_solver.engine import Outcome, Question
from tileops_solver.smtlib import as_smtlib

from tests.rules.programs import Program, function_of, spec_of

WORK = 50_000
"""cvc5's resource units a question: seconds at most."""


def asked_of_cvc5(script: str) -> str:
    cvc5 = pytest.importorskip("cvc5", reason="cvc5 comes with the dev extra")
    solver = cvc5.Solver()
    solver.setOption("rlimit", str(WORK))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "question")
    symbols = parser.getSymbolManager()
    said = ""
    while True:
        command = parser.nextCommand()
        if command.isNull():
            return said.strip()
        said += str(command.invoke(solver, symbols) or "")


def asked_of_z3(expr: Expr, domain: Domain) -> Outcome:
    with Question(expr, domain) as question:
        return question.check().outcome


def agree(expr: Expr, domain: Domain) -> bool | None:
    """Whether both say the same; None where one of them does not decide."""
    expected = asked_of_z3(expr, domain)
    script = as_smtlib(expr, domain)
    if script is None:
        return expected is Outcome.IMPOSSIBLE
    said = asked_of_cvc5(script)
    if said not in ("sat", "unsat"):
        bits = as_smtlib(expr, domain, bits=True)
        assert bits is not None
        said = asked_of_cvc5(bits)
    if expected is Outcome.UNKNOWN or said not in ("sat", "unsat"):
        return None
    return (said == "sat") == (expected is Outcome.POSSIBLE)


def test_a_question_is_written_with_its_ranges_and_asked(small: Domain) -> None:
    a, b = integer(("a",)), integer(("b",))
    script = as_smtlib(conjunction([at_most(multiply(a, b), -7), equals(mod(a, constant(3)), 2)]), small)
    assert script is not None
    assert script.startswith("(set-logic QF_NIA)")
    assert script.rstrip().endswith("(check-sat)")
    for part in ("(declare-fun a () Int)", "(declare-fun b () Int)"):
        assert part in script
    assert "BitVec" in str(as_smtlib(at_most(multiply(a, b), -7), small, bits=True))


def test_what_intervals_refute_is_not_written(small: Domain) -> None:
    assert as_smtlib(FALSE, small) is None
    assert as_smtlib(at_most(integer(("a",)), -6), small) is None


@pytest.mark.nightly
def test_cvc5_and_z3_agree_on_random_rules_and_pairs_of_them() -> None:
    """Does a rule serve, refuse, raise; and, of two rules over one class, do both serve, or only one of them."""
    decided = undecided = 0
    for seed in range(1_000):
        program = Program(seed)
        spec = spec_of(program.names)
        try:
            one = lift(function_of(program.source), spec, budget=1_000)
            other = lift(function_of(program.body()), spec, budget=1_000)
        except NotLifted:
            continue
        first, second = one.serves.expr, other.serves.expr
        pairs = [conjunction([first, second]), conjunction([first, negation(second)])]
        for question in (first, negation(first), one.raises.expr, *pairs):
            same = agree(question, one.domain)
            assert same is not False, f"seed {seed}: {question}"
            decided += same is not None
            undecided += same is None
    assert decided > 2_000
    assert undecided < decided / 10
