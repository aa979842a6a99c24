"""Rectangles of one choice over two fields, against the original functions at every point."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from click.testing import CliRunner
from tileops_rules import Candidate, Range, Selector
from tileops_solver.calls import ValueProblem
from tileops_solver.coverage_map import INVALID, MIXED, NOBODY, UNSERVED, CoverageMap
from tileops_solver.plot_command import plot_command


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(-3, 60)] = 1
    m: Annotated[int, Range(0, 40)] = 1
    mode: Literal["x", "y", "z"] = "x"
    scale: float = 1.0
    window: int | None = None

    def invalid(self) -> str | None:
        return "m is 7" if self.m == 7 else None


RULES: dict[str, Callable[[Any], bool]] = {
    "threshold": lambda c: c.n <= 17,
    "above": lambda c: c.m >= 9,
    "product": lambda c: c.n * c.m >= 100,
    "diagonal": lambda c: 2 * c.n - 3 * c.m <= 4,
    "remainder": lambda c: c.n % 8 == 0,
    "quotient": lambda c: c.n // 5 >= c.m // 7,
    "equal": lambda c: c.n == 12,
    "mode": lambda c: c.mode == "x" or c.n > 30,
    "other": lambda c: c.scale <= 1.0 and c.window is None,
    "bits": lambda c: c.n.bit_length() < 5,
}


def refusing(*names: str) -> Callable[[Any], str | None]:
    rules = [RULES[name] for name in names]

    def refusal(call: Any) -> str | None:
        for rule in rules:
            if not rule(call):
                return "no"
        return None

    return refusal


def unserved(call: Any) -> str | None:
    return "n is small" if call.n < 0 else None


def expected(selector: Selector, call: Any) -> str:
    """By the original functions alone."""
    if call.invalid() is not None:
        return INVALID
    serving = [c.key for c in selector.candidates if c.refusal(call) is None]
    beaten = {k for key in serving for k in selector.wins_over[key]}
    if not serving:
        return UNSERVED if selector.unserved and selector.unserved(call) else NOBODY
    return " or ".join(key for key in serving if key not in beaten)


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(RULES, 2)))
def test_every_point_of_a_rectangle_has_its_choice(first: str, second: str) -> None:
    selector = Selector(
        Call,
        [
            Candidate("one", refusing(first), preferred_over=frozenset({"two"}) if first < second else frozenset()),
            Candidate("two", refusing(second)),
            Candidate("both", refusing("above", "threshold"), general=True),
        ],
        unserved=unserved,
    )
    base = Call(n=5, m=3)
    for x, y in (("n", "m"), ("m", "n"), ("mode", "n"), ("n", "mode")):
        coverage = CoverageMap(selector, x, y, base)
        seen: dict[tuple[int, int], str] = {}
        for cell in coverage.cells:
            for point in itertools.product(range(cell.x[0], cell.x[1] + 1), range(cell.y[0], cell.y[1] + 1)):
                assert point not in seen, "rectangles do not meet"
                seen[point] = cell.choice
        assert len(seen) == (coverage.x.hi - coverage.x.lo + 1) * (coverage.y.hi - coverage.y.lo + 1)
        assert MIXED not in seen.values()
        for (i, j), choice in list(seen.items())[::7]:
            values = {x: coverage.x.values[i] if coverage.x.values else i}
            values[y] = coverage.y.values[j] if coverage.y.values else j
            assert choice == expected(selector, replace(base, **values))


def test_borders_stand_exactly_at_the_thresholds() -> None:
    selector = Selector(Call, [Candidate("one", refusing("threshold", "above"))])
    coverage = CoverageMap(selector, "n", "m", Call())
    assert coverage.borders(coverage.x) == (18,)
    assert coverage.borders(coverage.y) == (7, 8, 9), "m 7 is no valid call"
    assert coverage.fixed == {}
    assert set(coverage.choices) == {"one", NOBODY, INVALID}


def test_the_fields_that_a_rule_reads_are_named_with_what_they_are_fixed_to() -> None:
    selector = Selector(Call, [Candidate("one", refusing("other", "threshold", "mode"))])
    coverage = CoverageMap(selector, "n", "m", Call(mode="z", scale=0.5))
    assert coverage.fixed == {"mode": "z", "scale": 0.5, "window": None}


def test_what_is_finer_than_the_picture_is_mixed_and_never_guessed() -> None:
    @dataclass(frozen=True)
    class Wide:
        n: int = 1
        m: int = 1

    selector = Selector(Wide, [Candidate("even", lambda c: None if c.n % 2 == 0 else "odd")])
    coverage = CoverageMap(selector, "n", "m", Wide(), x_range=(0, 10**6), y_range=(0, 3))
    assert MIXED in coverage.choices
    for cell in coverage.cells:
        if cell.choice != MIXED:
            assert cell.x[0] == cell.x[1], "a rectangle of one parity is one value wide"
            assert cell.choice == ("even" if cell.x[0] % 2 == 0 else NOBODY)


def test_an_axis_of_archs_takes_what_their_devices_usually_have() -> None:
    @dataclass(frozen=True)
    class DeviceCall:
        smem_budget: int
        stages: Annotated[int, Range(0, 9)] = 1
        arch: int = 90

    refusal = lambda c: None if c.stages * 32 * 1024 <= c.smem_budget else "does not fit"  # noqa: E731
    selector = Selector(DeviceCall, [Candidate("tiled", refusal)])
    coverage = CoverageMap(selector, "arch", "stages", DeviceCall(0))
    fits = {
        coverage.x.values[i]: max(c.y[1] for c in coverage.cells if c.choice == "tiled" and c.x[0] <= i <= c.x[1])
        for i in range(len(coverage.x.values))
    }
    assert fits == {80: 5, 86: 3, 89: 3, 90: 7, 100: 7, 120: 3}
    assert coverage.usual == ("smem_budget",)
    assert coverage.fixed == {}


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ("n", "n", "both axes are n"),
        ("n", "scale", "scale is no axis: name an integer or a field of few values, as n, m, mode"),
        ("gone", "n", "gone is no axis"),
    ],
)
def test_what_is_no_axis_is_refused_with_those_that_are(x: str, y: str, said: str) -> None:
    with pytest.raises(ValueProblem, match=said):
        CoverageMap(Selector(Call, [Candidate("one", refusing("threshold"))]), x, y, Call())


def test_an_empty_range_and_an_unlifted_rule_are_refused() -> None:
    selector = Selector(Call, [Candidate("one", refusing("threshold"))])
    with pytest.raises(ValueProblem, match="the range of n from 61 to 60 is empty"):
        CoverageMap(selector, "n", "m", Call(), x_range=(61, 99))
    with pytest.raises(ValueProblem, match="was not lifted"):
        CoverageMap(Selector(Call, [Candidate("odd", lambda c: str(c.n)[0])]), "n", "m", Call())


OPS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Call:
    n: int = 1
    m: int = 1

class Face:
    request = Call

class Small(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.n <= 64 and call.m >= 2 else "no"

class PlotOp:
    kernel_types = {"small": Small}
    interfaces = {"face": Face}
"""


def test_the_command_writes_the_picture_and_says_where(op_module: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the notebooks extra")
    op_module(plot_ops=OPS)
    output = tmp_path / "map.svg"
    arguments = ["plot_ops:PlotOp", "face", "--x", "n", "--y", "m", "-o", str(output)]
    result = CliRunner().invoke(plot_command, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == str(output)
    assert output.read_text().startswith("<?xml")
    refused = CliRunner().invoke(plot_command, [*arguments[:3], "gone", *arguments[4:]])
    assert refused.exit_code == 2
    assert "gone is no axis" in refused.stderr
