"""Who serves what, against every call of a small domain, and how it reads."""

from __future__ import annotations

import importlib
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tileops_rules import Candidate, Selector
from tileops_solver.cli import main
from tileops_solver.regions import regions_of
from tileops_solver.report.regions import as_json, as_markdown, as_text, clauses
from tileops_solver.subject import Subject
from tileops_solver.testing import boundary_calls

from tests.solver.tiny import ATOMS, EVERY, Tiny, chosen, random_selector, rule


class Undefined:
    """What has no value: no comparison with it holds."""

    def _never(self, other: object) -> bool:
        return False

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _never  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Number(int):
    """An integer with whose quotient by 0 no comparison holds."""

    def __floordiv__(self, other: int) -> Any:
        return int(self) // other if other else Undefined()

    def __rfloordiv__(self, other: int) -> Any:
        return other // int(self) if self else Undefined()


def _staying(operation: str) -> Callable[..., Number]:
    return lambda self, *others: Number(getattr(int(self), operation)(*others))


for _name in ("__add__", "__sub__", "__mul__", "__radd__", "__rsub__", "__rmul__", "__neg__"):
    setattr(Number, _name, _staying(_name))


class Absent(Undefined):
    type = "None"


class Present(int):
    type = "int"


def as_read(call: Tiny) -> dict[str, Any]:
    return {
        "a": Number(call.a),
        "b": Number(call.b),
        "kind": call.kind,
        "ratio": call.ratio,
        "name": call.name,
        "limit": Absent() if call.limit is None else Present(call.limit),
        "isnan": math.isnan,
    }


READ_AS = [as_read(call) for call in EVERY]


def holding(formula: str) -> list[Tiny]:
    """The calls for which a formula holds as it reads, in plain Python."""
    plain = formula.replace(" & ", " and ").replace(" | ", " or ").replace("~(", "not (")
    code = compile(plain, "formula", "eval")
    return [call for call, names in zip(EVERY, READ_AS, strict=True) if eval(code, {}, names)]


def random_regions(seed: int) -> tuple[Selector, Callable[[Any], Any]]:
    """A random rule set, which declares some calls unserved in every other case."""
    selector = random_selector(seed)
    if seed % 2:
        return selector, lambda call: None
    draw = random.Random(seed)
    unserved = rule(f"not (({draw.choice(ATOMS)}) and ({draw.choice(ATOMS)}))")
    return Selector(Tiny, selector.candidates, unserved=unserved), unserved


def lines_of(selector: Selector, unserved: Callable[[Any], Any], call: Tiny) -> list[str]:
    """The lines of the table that a call belongs to; a tie counts for both."""
    key = chosen(selector, call)
    if key is not None:
        return [key]
    serving = [c.key for c in selector.candidates if c.refusal(call) is None]
    return serving or ["gap" if unserved(call) is None else "declared unserved"]


def check_set(seed: int) -> None:
    selector, unserved = random_regions(seed)
    lines = {line.name: line.regions[""] for line in regions_of(Subject(selector)).lines}
    wanted: dict[str, list[Tiny]] = {name: [] for name in lines}
    for call in EVERY:
        for name in lines_of(selector, unserved, call):
            wanted[name].append(call)
    for name, region in lines.items():
        expected = wanted[name]
        share = "never" if not expected else "all" if len(expected) == len(EVERY) else "some"
        assert (region.extent, region.undecided) == (share, ""), (seed, name)
        if expected:
            assert name in lines_of(selector, unserved, region.call), (seed, name)
            assert holding(region.where) == expected, (seed, name, region.where)
            assert region.reasons == (("no",) if name == "declared unserved" else ())
        else:
            assert (region.where, region.call, region.witness) == ("", None, "")


@pytest.mark.parametrize("seed", range(8))
def test_each_formula_holds_for_exactly_the_calls_of_its_region(seed: int) -> None:
    check_set(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8, 200))
def test_each_formula_holds_for_exactly_the_calls_of_its_region_in_many_more_rule_sets(seed: int) -> None:
    check_set(seed)


SOURCE = """
from dataclasses import dataclass
from typing import Optional

@dataclass(frozen=True)
class Call:
    n: int = 1
    kind: str = "plain"
    device: Optional[str] = None
    arch: Optional[int] = None
    sm_count: Optional[int] = None

class Face:
    request = Call
    @classmethod
    def unserved(cls, call):
        return f"nothing is built for sm_{call.arch}" if call.arch in (100, 120) else None

class Short(Face):
    supported_archs = [80, 90]
    preferred_over = frozenset({"even"})
    @classmethod
    def refusal(cls, call):
        return None if call.n < 64 else f"n {call.n} is not below 64"

class Even(Face):
    supported_archs = [80, 86, 89, 90]
    @classmethod
    def refusal(cls, call):
        return None if call.n % 2 == 0 and call.kind != "odd & out" else "no"

class Hopper(Face):
    supported_archs = [90]
    general = True

class RegionOp:
    kernel_types = {"short": Short, "even": Even, "hopper": Hopper}
    interfaces = {"face": Face}
"""
STRANGE = """
from regions_example import Even, Face, Short

class Strange(Face):
    general = True
    @classmethod
    def refusal(cls, call):
        return None if len(range(call.n)) else "nothing"

class Stranger(Strange):
    general = False
    preferred_over = frozenset({"even"})

class Shy(Face):
    @classmethod
    def unserved(cls, call):
        return "odd" if len(range(call.n)) else None

class ShyStrangerOp:
    kernel_types = {"even": type("ShyEven", (Even, Shy), {}), "stranger": type("ShyStranger", (Stranger, Shy), {})}
    interfaces = {"face": Shy}

class StrangeOp:
    kernel_types = {"even": Even, "short": Short, "strange": Strange}
    interfaces = {"face": Face}

class StrangerOp:
    kernel_types = {"even": Even, "stranger": Stranger}
    interfaces = {"face": Face}

class ShyOp:
    kernel_types = {"even": type("ShyEven", (Even, Shy), {})}
    interfaces = {"face": Shy}
"""

TEXT = """\
RegionOp.face: which implementation runs which calls (Call)

                   sm_80  sm_86  sm_89  sm_90  sm_100  sm_120
even               some   some   some   some   never   never
hopper             never  never  never  some   never   never
short              some   never  never  some   never   never
declared unserved  never  never  never  never  all     all
gap                some   some   some   never  never   never

even
  sm_80, sm_90
    where n >= 64 & n % 2 == 0 & kind != 'odd & out'
    as in Call(n=64)
  sm_86, sm_89
    where n % 2 == 0 & kind != 'odd & out'
    as in Call(n=0)
  sm_100, sm_120: never

hopper (general)
  sm_80, sm_86, sm_89, sm_100, sm_120: never
  sm_90
    where n >= 64 & (n % 2 != 0 | kind == 'odd & out')
    as in Call(n=64, kind='odd & out')

short
  sm_80, sm_90
    where n <= 63
    as in Call()
  sm_86, sm_89, sm_100, sm_120: never

declared unserved
  sm_80, sm_86, sm_89, sm_90: never
  sm_100
    all calls
    as in Call()
    because nothing is built for sm_100
  sm_120
    all calls
    as in Call()
    because nothing is built for sm_120

gap
  sm_80
    where n >= 64 & (n % 2 != 0 | kind == 'odd & out')
    as in Call(n=64, kind='odd & out')
  sm_86, sm_89
    where n % 2 != 0 | kind == 'odd & out'
    as in Call()
  sm_90, sm_100, sm_120: never
"""


@pytest.fixture
def example(op_module: Callable[..., Path]) -> Path:
    return op_module(regions_example=SOURCE, regions_strange=STRANGE)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_the_table_reads_arch_by_arch_and_what_is_alike_stands_together(example: Path) -> None:
    result = run("regions", "regions_example:RegionOp", "face")
    assert (result.exit_code, result.stdout) == (0, TEXT)
    assert run("regions", "RegionOp", "face", "--ops-module", "regions_example").stdout == TEXT


def test_an_arch_may_be_asked_for_alone(example: Path) -> None:
    text = run("regions", "regions_example:RegionOp", "face", "--arch", "90").stdout
    assert text.splitlines()[2] == "                   sm_90"
    assert "sm_80" not in text
    assert "  sm_90: never\n" in text


def test_markdown_has_the_same_table_and_formulas(example: Path) -> None:
    text = run("regions", "regions_example:RegionOp", "face", "--arch=86", "--arch=90", "--format=markdown").stdout
    assert "| hopper | never | some |\n" in text
    assert "## hopper (general)\n\n- sm_86: never\n\n- sm_90\n\n  ```text\n" in text
    assert "  where n >= 64 & n % 2 == 0 & kind != 'odd & out'\n" in text
    assert "\n\n\n" not in text


def test_json_has_every_region_with_its_whole_call(example: Path) -> None:
    command = ["regions", "regions_example:RegionOp", "face", "--format", "json", "--arch=86", "--arch=90"]
    data = json.loads(run(*command).stdout)
    assert (data["op"], data["interface"], data["spec"], data["general"]) == ("RegionOp", "face", "Call", "hopper")
    assert data["platforms"] == ["sm_86", "sm_90"]
    lines = {line["name"]: line for line in data["lines"]}
    assert [(line["kind"], line["name"]) for line in data["lines"]] == [
        ("chosen", "even"),
        ("chosen", "hopper"),
        ("chosen", "short"),
        ("declared", "declared unserved"),
        ("gap", "gap"),
    ]
    assert lines["short"]["regions"]["sm_86"]["extent"] == "never"
    region = lines["even"]["regions"]["sm_90"]
    assert region["extent"] == "some"
    assert region["witness"] == {"n": 64, "kind": "plain", "device": "cuda", "arch": 90, "sm_count": 132}


@pytest.mark.parametrize(
    ("op", "undecided"),
    [
        (
            "StrangeOp",
            {"strange": {80, 86, 90, 100}, "even": set(), "short": set(), "gap": {80, 86, 90}},
        ),
        ("StrangerOp", {"even": {80, 86, 90}, "stranger": {80, 86, 90, 100}, "gap": {80, 86, 90}}),
        ("ShyOp", {"even": set(), "gap": {80, 86, 90, 100}}),
    ],
)
def test_what_depends_on_a_rule_that_was_not_lifted_is_undecided_with_the_cause(
    example: Path, op: str, undecided: dict[str, set[int]]
) -> None:
    module = importlib.import_module("regions_strange")
    found = regions_of(Subject(Selector.of(getattr(module, op), "face"), archs=[80, 86, 90, 100]))
    for line in found.lines:
        assert {name for name, region in line.regions.items() if region.extent == "undecided"} == {
            f"sm_{arch}" for arch in undecided.get(line.name, {100} if op != "ShyOp" else set())
        }
        for region in line.regions.values():
            assert ("was not lifted" in region.undecided) is (region.extent == "undecided")
            assert region.extent != "undecided" or region.call is None
    assert "    undecided: " in as_text(found)
    assert "    at most where n % 2 != 0 | kind == 'odd & out'\n" in as_text(found)


def test_every_rule_on_which_a_line_depends_is_named_where_it_was_not_lifted(example: Path) -> None:
    op = importlib.import_module("regions_strange").ShyStrangerOp
    found = regions_of(Subject(Selector.of(op, "face"), archs=[90]))
    gap = found.lines[-1].regions["sm_90"]
    assert [part.partition(" was not lifted")[0] for part in gap.undecided.split("; ")] == [
        "the rule of stranger",
        "`unserved`",
    ]


@pytest.mark.parametrize("command", ["regions", "cases"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["regions_example:RegionOp", "front"], "RegionOp has no interface 'front': it has face"),
        (["regions_example:Other", "face"], "regions_example:Other is no op class"),
        (["nowhere:Op", "face"], "nowhere cannot be imported"),
    ],
)
def test_what_cannot_be_run_exits_with_2_and_says_why(
    example: Path, command: str, arguments: list[str], said: str
) -> None:
    result = run(command, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_the_cases_command_writes_what_boundary_calls_gives(example: Path) -> None:
    data = json.loads(run("cases", "regions_example:RegionOp", "face", "--arch", "90", "--format", "json").stdout)
    found = boundary_calls(importlib.import_module("regions_example").RegionOp, "face", archs=[90])
    assert [case["id"] for case in data["cases"]] == [str(case) for case in found]
    text = run("cases", "regions_example:RegionOp", "face", "--most", "2")
    assert text.exit_code == 0
    assert text.stdout.endswith("\n")
    assert not text.stdout.endswith("\n\n")
    assert text.stdout.startswith("RegionOp.face: 2 boundary cases (Call); more were not looked for")


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        ("n >= 64", ["n >= 64"]),
        ("n >= 64 & m == 1", ["n >= 64", "& m == 1"]),
        ("a | (b & c) | d", ["a", "| (b & c)", "| d"]),
        ("kind != 'a & b' & n == 1", ["kind != 'a & b'", "& n == 1"]),
        ("kind != 'it\\'s & so' & n == 1", ["kind != 'it\\'s & so'", "& n == 1"]),
        ('kind in ("x | y", "(") | n == 1', ['kind in ("x | y", "(")', "| n == 1"]),
    ],
)
def test_a_formula_is_taken_apart_at_its_outermost_connective(formula: str, parts: list[str]) -> None:
    assert clauses(formula) == parts


def test_a_spec_without_device_and_arch_has_one_column() -> None:
    @dataclass(frozen=True)
    class Plain:
        n: int = 1

    candidates = [Candidate("only", lambda call: None if call.n < 9 else "no")]
    text = as_text(regions_of(Subject(Selector(Plain, candidates))))
    assert text.splitlines()[2:5] == ["      every device", "only  some", "gap   some"]
    assert "  every device\n    where n <= 8\n    as in Plain()\n" in text
    for write in (as_markdown, as_json):
        assert "every device" in write(regions_of(Subject(Selector(Plain, candidates)))) or write is as_json


def test_reasons_are_those_given_for_some_call_that_nobody_serves() -> None:
    @dataclass(frozen=True)
    class Plain:
        n: int = 1
        m: int = 1

    def unserved(call: Plain) -> str | None:
        if call.n >= 100:
            return "n is large"
        if call.m == 0:
            return "m is 0"
        return "m is odd" if call.m % 2 == 1 and call.n > 5 else None

    candidates = [Candidate("only", lambda call: None if call.m % 2 == 1 and call.n <= 99 else "no")]
    lines = regions_of(Subject(Selector(Plain, candidates, unserved=unserved))).lines
    (declared,) = (line for line in lines if line.kind == "declared")
    (region,) = declared.regions.values()
    assert region.reasons == ("m is 0", "n is large")
