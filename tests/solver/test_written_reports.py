"""Reports as they stand in a file, to the letter: JUnit, SARIF's rules, boundary cases and regions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_solver.cases import Border, Case, Cases
from tileops_solver.checks.catalogue import CHECKS
from tileops_solver.findings import Finding, InterfaceReport, Pairs, Report, Undecided
from tileops_solver.regions import Line, Region, Regions
from tileops_solver.report import cases as case_report
from tileops_solver.report import regions as region_report
from tileops_solver.report.json import as_data, as_json
from tileops_solver.report.junit import as_junit
from tileops_solver.report.sarif import as_sarif

from tests.solver.test_reports import REPORT


@dataclass(frozen=True)
class Call:
    n: int = 3


def check(name: str) -> Any:
    return next(each for each in CHECKS if each.id == name)


JUNIT = """\
<?xml version='1.0' encoding='utf-8'?>
<testsuites name="tileops audit" tests="6" failures="1" errors="0" skipped="2">
  <testsuite name="Op.face" failures="1" errors="0" skipped="2" tests="3">
    <testcase classname="Op.face" name="table">
      <skipped message="c at op.py:20 was not lifted: reads&#10;the clock" />
    </testcase>
    <testcase classname="Op.face" name="overlap">
      <failure type="overlap" message="overlap: *both* serve">Op.face:overlap:a+b
op.py:3
op.py:9
write `preferred_over`</failure>
    </testcase>
    <testcase classname="Op.face" name="fits">
      <skipped message="b sm_80: no answer" />
    </testcase>
  </testsuite>
  <testsuite name="other" failures="0" errors="0" skipped="0" tests="3">
    <testcase classname="other" name="table" />
    <testcase classname="other" name="overlap" />
    <testcase classname="other" name="fits" />
  </testsuite>
</testsuites>
"""


def test_the_junit_is_this() -> None:
    assert as_junit(REPORT, checks=[check("overlap"), check("fits")]) == JUNIT
    strict = JUNIT.replace("<skipped", "<error").replace('errors="0" skipped="2"', 'errors="2" skipped="0"')
    assert as_junit(REPORT, checks=[check("overlap"), check("fits")], strict=True) == strict


def test_notes_and_what_is_let_stand_are_output_of_their_own_check() -> None:
    text = as_junit(REPORT, checks=[check("unread"), check("dead"), check("fits")])
    assert [line.strip() for line in text.splitlines() if "system-out" in line] == [
        "<system-out>note: unread: *both* serve</system-out>",
        "<system-out>allowed: Op.face:dead:c: kept for one card</system-out>",
    ]


def test_text_that_xml_cannot_write_is_replaced() -> None:
    odd = Report((InterfaceReport("", "f", (), Pairs(), (), (), (), (Undecided(("a",), "x\x00\x1f\x20\ty\n"),)),))
    (line,) = (line for line in as_junit(odd, checks=[check("overlap")]).splitlines() if "skipped message" in line)
    assert line.strip() == '<skipped message="a : x\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} &#09;y&#10;" />'


def test_a_json_report_is_indented_by_two() -> None:
    assert as_json(REPORT) == json.dumps(as_data(REPORT), indent=2) + "\n"
    assert as_json(REPORT).startswith('{\n  "interfaces": [\n    {\n      "op": "Op",\n')


def test_every_rule_of_a_sarif_report_says_what_it_asks() -> None:
    text = as_sarif(REPORT)
    document = json.loads(text)
    assert text == json.dumps(document, indent=2) + "\n"
    assert list(document) == ["$schema", "version", "runs"]
    assert document["$schema"] == "https://json.schemastore.org/sarif-2.1.0.json"
    (run,) = document["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = {rule["id"]: rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]}
    asked = {kind: each.asks for each in CHECKS for kind in each.kinds}
    assert rules == {**asked, "undecided": "Not proved."}
    unnamed = Finding("table-kind", (), None, "x", ())
    table = Report((InterfaceReport("Op", "f", (), Pairs(), (), (unnamed,), ()),))
    rules = {
        rule["id"]: rule["shortDescription"]
        for rule in json.loads(as_sarif(table))["runs"][0]["tool"]["driver"]["rules"]
    }
    assert rules["table-kind"] == {
        "text": "Is the table of implementations such that an op can be constructed with it?"
    }
    assert set(rules) == {*asked, "table-kind"}


# ------------------------------------------------------------------------------------------------------------- cases


def case(n: int, where: str, expected: str | None = "a", region: str = "claims", **more: Any) -> Case:
    also = more.pop("also", ())
    border = Border("a", region, "n <= 3", where, f"n={n}", also)
    told = {"platform": "", "shown": f"Call(n={n})", **more}
    return Case(Call(n), expected, borders=(border,), **told)


CASES = Cases(
    "Op",
    "face",
    "Call",
    (
        case(3, "on"),
        case(14, "outside", None, note="a, b tie", also=("n < 9", "n % 2 == 0")),
        case(2, "inside", region="choice"),
        case(2, "inside", region="choice", platform="sm_90", number=2),
    ),
    ("a on sm_90: too wide", "b: no answer"),
    complete=False,
)


def test_cases_as_text_are_this() -> None:
    assert case_report.as_text(CASES) == (
        "Op.face: 4 boundary cases (Call); more were not looked for, the limit is reached\n"
        "\n"
        "every device: a, what it serves\n"
        "  n <= 3  on       n=3   -> a     Call(n=3)\n"
        "  n <= 3  outside  n=14  -> none  Call(n=14); a, b tie; n < 9 changes too; n % 2 == 0 changes too\n"
        "\n"
        "every device: a, what it is chosen for\n"
        "  n <= 3  inside  n=2  -> a  Call(n=2)\n"
        "\n"
        "sm_90: a, what it is chosen for\n"
        "  n <= 3  inside  n=2  -> a  Call(n=2)\n"
        "\n"
        "undecided: a on sm_90: too wide\n"
        "\n"
        "undecided: b: no answer\n"
    )
    assert case_report.as_text(Cases("", "face", "Call", ())) == "Call: 0 boundary cases (Call)\n"


def test_cases_as_json_are_this() -> None:
    text = case_report.as_json(CASES)
    data = json.loads(text)
    assert text == json.dumps(data, indent=2) + "\n"
    cases = data.pop("cases")
    assert data == {
        "op": "Op",
        "interface": "face",
        "spec": "Call",
        "complete": False,
        "undecided": ["a on sm_90: too wide", "b: no answer"],
    }
    assert [each["id"] for each in cases] == [
        *("n=3-on-a", "n=14-outside-a", "n=2-inside-choice-a", "sm_90-n=2-inside-choice-a-2"),
    ]
    border = {"key": "a", "region": "claims", "face": "n <= 3", "where": "outside", "at": "n=14"}
    assert cases[1] == {
        "id": "n=14-outside-a",
        "platform": "",
        "expected": None,
        "note": "a, b tie",
        "call": {"n": 14},
        "borders": [{**border, "also": ["n < 9", "n % 2 == 0"]}],
    }


# ----------------------------------------------------------------------------------------------------------- regions

LONG = " & ".join(f"n % {number} == 0" for number in range(10, 20))
SOME = Region("some", "n <= 3", Call(3), "Call(n=3)")
PART = Region("undecided", LONG, None, "", (), "too wide")
REGIONS = Regions(
    "Op",
    "face",
    "Call",
    "b",
    ("", "sm_90"),
    (
        Line("chosen", "a", {"": SOME, "sm_90": SOME}),
        Line("chosen", "b", {"": Region("all", "True", Call(1), "Call()"), "sm_90": Region("never")}),
        Line("gap", "nobody", {"": PART, "sm_90": Region("some", "n > 9", None, "", ("no card", "no time"))}),
    ),
)
FIRST, *REST = LONG.split(" & ")


def test_regions_as_text_are_this() -> None:
    assert region_report.as_text(REGIONS) == (
        "Op.face: which implementation runs which calls (Call)\n"
        "\n"
        "        every device  sm_90\n"
        "a       some          some\n"
        "b       all           never\n"
        "nobody  undecided     some\n"
        "\n"
        "a\n"
        "  every device, sm_90\n"
        "    where n <= 3\n"
        "    as in Call(n=3)\n"
        "\n"
        "b (general)\n"
        "  every device\n"
        "    all calls\n"
        "    as in Call()\n"
        "  sm_90: never\n"
        "\n"
        "nobody\n"
        "  every device\n"
        "    undecided: too wide\n"
        f"    at most where {FIRST}\n" + "".join(f"      & {clause}\n" for clause in REST) + "  sm_90\n"
        "    where n > 9\n"
        "    because no card\n"
        "    because no time\n"
    )


def test_regions_as_markdown_are_this() -> None:
    clauses = "".join(f"    & {clause}\n" for clause in REST)
    assert region_report.as_markdown(REGIONS) == (
        "# Op.face: which implementation runs which calls (Call)\n"
        "\n"
        "|  | every device | sm_90 |\n"
        "| --- | --- | --- |\n"
        "| a | some | some |\n"
        "| b | all | never |\n"
        "| nobody | undecided | some |\n"
        "\n## a\n\n- every device, sm_90\n\n  ```text\n  where n <= 3\n  as in Call(n=3)\n  ```\n"
        "\n## b (general)\n\n- every device\n\n  ```text\n  all calls\n  as in Call()\n  ```\n\n- sm_90: never\n"
        f"\n## nobody\n\n- every device\n\n  ```text\n  undecided: too wide\n  at most where {FIRST}\n{clauses}  ```\n"
        "\n- sm_90\n\n  ```text\n  where n > 9\n  because no card\n  because no time\n  ```\n"
    )


def test_regions_as_json_are_this() -> None:
    text = region_report.as_json(REGIONS)
    some = {"extent": "some", "where": "n <= 3", "witness": {"n": 3}, "reasons": [], "undecided": ""}
    data = {
        "op": "Op",
        "interface": "face",
        "spec": "Call",
        "general": "b",
        "platforms": ["", "sm_90"],
        "lines": [
            {"kind": "chosen", "name": "a", "regions": {"": some, "sm_90": some}},
            {
                "kind": "chosen",
                "name": "b",
                "regions": {
                    "": {"extent": "all", "where": "True", "witness": {"n": 1}, "reasons": [], "undecided": ""},
                    "sm_90": {"extent": "never", "where": "", "witness": None, "reasons": [], "undecided": ""},
                },
            },
            {
                "kind": "gap",
                "name": "nobody",
                "regions": {
                    "": {"extent": "undecided", "where": LONG, "witness": None, "reasons": [], "undecided": "too wide"},
                    "sm_90": {**some, "where": "n > 9", "witness": None, "reasons": ["no card", "no time"]},
                },
            },
        ],
    }
    assert text == json.dumps(data, indent=2) + "\n"


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        ("n <= 3", ["n <= 3"]),
        ("a & b", ["a", "& b"]),
        ("a & b & c", ["a", "& b", "& c"]),
        ("(a & b) | c", ["(a & b)", "| c"]),
        ("[a | b] & {c | d}", ["[a | b]", "& {c | d}"]),
        ("k == 'x & y' & z", ["k == 'x & y'", "& z"]),
        ('k == "x \' & y" & z', ['k == "x \' & y"', "& z"]),
        (r"k == 'it\'s & y' & z", [r"k == 'it\'s & y'", "& z"]),
        ("a&b", ["a&b"]),
    ],
)
def test_a_formula_is_taken_apart_at_its_outermost_connective(formula: str, parts: list[str]) -> None:
    assert region_report.clauses(formula) == parts
