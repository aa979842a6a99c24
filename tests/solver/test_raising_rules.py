"""Where the rule of one implementation raises, a call raises, whoever else serves it: every command says so."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import pytest
from tileops_rules import Candidate, NoImplementation, Range, RefusalError, Selector
from tileops_rules.evaluating import evaluate
from tileops_rules.parsing import parse
from tileops_solver.coverage_map import NOBODY, RAISES, CoverageMap
from tileops_solver.regions import regions_of
from tileops_solver.report.regions import as_text
from tileops_solver.subject import Subject


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 10)] = 1
    m: Annotated[int, Range(0, 10)] = 1


CALLS = [Call(n, m) for n, m in product(range(11), repeat=2)]


def divided(call: Any) -> str | None:
    return None if call.n > 5 and call.n // call.m > 1 else "few"


def small(call: Any) -> str | None:
    return None if call.n <= 8 else "many"


def selector() -> Selector:
    return Selector(Call, [Candidate("divided", divided, preferred_over=["small"]), Candidate("small", small)])


def at_run_time(call: Call) -> str:
    """What a call gets: a key, ``gap`` or ``raises``."""
    try:
        return str(selector().select(call))
    except NoImplementation:
        return "gap"
    except RefusalError:
        return "raises"


def test_a_region_is_where_a_call_gets_the_implementation_and_those_that_raise_have_a_line() -> None:
    shown = regions_of(Subject(selector()))
    lines = {line.name: next(iter(line.regions.values())) for line in shown.lines}
    assert set(lines) == {"divided", "small", "gap", "raises"}
    for call in CALLS:
        values = {("n",): call.n, ("m",): call.m}

        def holds(text: str, values: Any = values) -> bool:
            try:
                return bool(evaluate(parse(text, selector().domain), values))
            except ZeroDivisionError:
                return False

        inside = [name for name, region in lines.items() if region.where and holds(region.where)]
        assert inside == [at_run_time(call)], call
    assert "raises" in as_text(shown)


def test_a_picture_has_them_apart() -> None:
    drawn = CoverageMap(selector(), "n", "m", Call(), x_range=(0, 10), y_range=(0, 10))
    found = {
        (n, m): c.choice for c in drawn.cells for n in range(c.x[0], c.x[1] + 1) for m in range(c.y[0], c.y[1] + 1)
    }
    named = {"gap": NOBODY, "raises": RAISES}
    assert {(c.n, c.m): named.get(at_run_time(c), at_run_time(c)) for c in CALLS} == found


@pytest.mark.parametrize("call", [Call(6, 0), Call(10, 0), Call(6, 1), Call(3, 0), Call(10, 10)])
def test_an_explanation_has_the_winner_of_the_run(call: Call) -> None:
    told = selector().explain(call)
    ran = at_run_time(call)
    assert told.winner == (None if ran in ("gap", "raises") else ran)
    if call == Call(6, 0):
        assert [str(entry) for entry in told.entries] == [
            "divided: raises: ZeroDivisionError: integer division or modulo by zero",
            "small: serves in vain: the rule of divided raises, and so does the call",
        ]
