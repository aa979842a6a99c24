"""One report with something of everything, in every format, to the letter."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tileops_solver.findings import (
    Allowed,
    Answered,
    Finding,
    InterfaceReport,
    Pairs,
    Report,
    Severity,
    Undecided,
    Unlifted,
)
from tileops_solver.report.json import as_data, as_json, plain
from tileops_solver.report.junit import as_junit
from tileops_solver.report.markdown import as_markdown
from tileops_solver.report.sarif import as_sarif
from tileops_solver.report.text import as_text, count


class Mode(enum.Enum):
    FAST = 1


@dataclass(frozen=True)
class Call:
    n: int = 3
    eps: float = math.inf
    mode: Mode = Mode.FAST
    shape: tuple[int, ...] = (1, 2)


def finding(kind: str, severity: Severity, **more: Any) -> Finding:
    told: dict[str, Any] = {"keys": ("a", "b"), "witness": Call(), "message": f"{kind}: *both* serve", **more}
    return Finding(
        kind,
        told.pop("keys"),
        told.pop("witness"),
        told.pop("message"),
        told.pop("places", ()),
        severity=severity,
        **told,
    )


CLASH = finding(
    "overlap",
    Severity.ERROR,
    op="Op",
    interface="face",
    places=("op.py:3", "op.py:9"),
    edit="write `preferred_over`",
    facts={"third": "c", "calls": [Call(n=4)]},
)
GAP = finding("gap", Severity.WARNING, op="Op", interface="face", keys=(), subject="sm_90", places=("op.py:1",))
IDLE = finding("unread", Severity.NOTE, op="Op", interface="face", witness=None)
STANDING = finding("dead", Severity.WARNING, op="Op", interface="face", keys=("c",))

REPORT = Report(
    (
        InterfaceReport(
            op="Op",
            interface="face",
            implementations=("a", "b", "c"),
            pairs=Pairs(1, 0, 1, 1),
            not_lifted=(Unlifted("c", "op.py:20", "reads\nthe clock"),),
            findings=(CLASH, GAP, IDLE),
            assumed_domains=("n: int in 0..9", "eps: any float"),
            undecided=(Undecided(("a", "c"), "too wide"), Undecided(("b",), "no answer", "fits", "sm_80")),
            answered=Answered(3, 0, 2),
            facts=("within n: 3 | 4",),
            allowed=(Allowed(STANDING, "kept for one card"),),
        ),
        InterfaceReport("", "other", ("only",), Pairs(), (), (), ()),
    )
)

TEXT = """\
Op.face: 3 implementations
  implementations: a, b, c
  pairs: 1 ordered, 0 disjoint, 1 overlapping, 1 undecided
  error overlap: overlap: *both* serve
    id: Op.face:overlap:a+b
  warning gap: gap: *both* serve
    id: Op.face:gap:sm_90
  note unread: unread: *both* serve
    id: Op.face:unread:a+b
  not lifted: c at op.py:20: reads
the clock
  undecided: overlap: a and c: too wide
  undecided: fits: b and sm_80: no answer
  allowed: Op.face:dead:c: kept for one card
  within n: 3 | 4
  assumed, not declared:
    n: int in 0..9
    eps: any float

.other: 1 implementation
  implementations: only
  pairs: 0 ordered, 0 disjoint, 0 overlapping, 0 undecided

2 interfaces, 4 implementations, 3 pairs: 1 ordered, 0 disjoint, 1 overlapping, 1 undecided
5 questions: 3 by intervals and sets, 2 by the solver
findings: 2
notes: 1
allowed: 1
not proved: 3
"""

MARKDOWN = """\
# Audit

| interface | implementations | pairs | findings | not proved |
|---|---|---|---|---|
| `Op.face` | 3 | 1 ordered, 1 overlapping, 1 undecided | 2 | 3 |
| `other` | 1 | none | 0 | 0 |

## `Op.face`

- **error overlap** overlap: \\*both\\* serve
  - call: `Call(n=3, eps=inf, mode=<Mode.FAST: 1>, shape=(1, 2))`
  - edit: write \\`preferred\\_over\\`
  - at `op.py:3`, `op.py:9`
  - id: `Op.face:overlap:a+b`
- **warning gap** gap: \\*both\\* serve
  - call: `Call(n=3, eps=inf, mode=<Mode.FAST: 1>, shape=(1, 2))`
  - at `op.py:1`
  - id: `Op.face:gap:sm_90`
- **note unread** unread: \\*both\\* serve
  - id: `Op.face:unread:a+b`

1 finding let stand:

- `Op.face:dead:c`: kept for one card

Not proved:

- `c` at `op.py:20` was not lifted: reads the clock
- overlap: `a` and `c` : too wide
- fits: `b` sm_80: no answer

- within n: 3 \\| 4

2 interfaces, 4 implementations, 3 pairs: 1 ordered, 0 disjoint, 1 overlapping, 1 undecided; 5 questions: 3 by \
intervals and sets, 2 by the solver; findings: 2; notes: 1; allowed: 1; not proved: 3
"""


def test_the_text_is_this() -> None:
    assert as_text(REPORT) == TEXT
    assert as_text(Report(())).splitlines()[0].startswith("0 interfaces, 0 implementations, 0 pairs: 0 ordered")
    assert "question" not in as_text(Report(()))
    assert (count(0, "pair"), count(1, "pair"), count(2, "pair")) == ("0 pairs", "1 pair", "2 pairs")


def test_the_markdown_is_this() -> None:
    assert as_markdown(REPORT) == MARKDOWN
    assert "## " not in as_markdown(Report(REPORT.interfaces[1:]))


CALL = {"n": 3, "eps": "inf", "mode": "Mode.FAST", "shape": [1, 2]}


def test_the_json_is_this() -> None:
    data = as_data(REPORT)
    assert json.loads(as_json(REPORT)) == data
    assert as_json(REPORT).endswith("}\n")
    face, other = data["interfaces"]
    assert face["findings"][0] == {
        "id": "Op.face:overlap:a+b",
        "severity": "error",
        "kind": "overlap",
        "keys": ["a", "b"],
        "witness": CALL,
        "message": "overlap: *both* serve",
        "places": ["op.py:3", "op.py:9"],
        "subject": "",
        "edit": "write `preferred_over`",
        "facts": {"third": "c", "calls": [{**CALL, "n": 4}]},
    }
    assert face["findings"][2]["witness"] is None
    assert {name: value for name, value in face.items() if name != "findings"} == {
        "op": "Op",
        "interface": "face",
        "implementations": ["a", "b", "c"],
        "pairs": {"ordered": 1, "disjoint": 0, "overlapping": 1, "undecided": 1},
        "not_lifted": [{"key": "c", "place": "op.py:20", "cause": "reads\nthe clock"}],
        "assumed_domains": ["n: int in 0..9", "eps: any float"],
        "undecided": [
            {"check": "overlap", "keys": ["a", "c"], "subject": "", "reason": "too wide"},
            {"check": "fits", "keys": ["b"], "subject": "sm_80", "reason": "no answer"},
        ],
        "answered": {"cheap": 3, "on_file": 0, "solver": 2},
        "allowed": [{"id": "Op.face:dead:c", "reason": "kept for one card"}],
        "facts": ["within n: 3 | 4"],
    }
    assert other["findings"] == []
    assert data["totals"] == {
        "interfaces": 2,
        "implementations": 4,
        "pairs": {"ordered": 1, "disjoint": 0, "overlapping": 1, "undecided": 1},
        "ordered": 1,
        "disjoint": 0,
        "overlapping": 1,
        "undecided": 1,
        "not_lifted": 1,
        "findings": 2,
        "notes": 1,
        "allowed": 1,
        "assumed_domains": 2,
        "not_proved": 3,
        "answered": {"cheap": 3, "on_file": 0, "solver": 2},
    }


def test_values_become_what_json_has() -> None:
    values = [None, True, 3, "x", 0.5, -math.inf, math.nan, Mode.FAST, (1, [2]), Call, b"x"]
    assert [plain(value) for value in values] == [
        *(None, True, 3, "x", 0.5, "-inf", "nan", "Mode.FAST", [1, [2]], str(Call), "b'x'"),
    ]
    assert plain(Call()) == CALL


@pytest.mark.parametrize("strict", [False, True])
def test_the_junit_counts_and_says_the_same(strict: bool) -> None:
    root = ET.fromstring(as_junit(REPORT, strict=strict))
    assert root.get("name") == "tileops audit"
    face, other = root
    assert (face.get("name"), other.get("name")) == ("Op.face", "other")
    cases = {case.get("name"): case for case in face}
    assert all(case.get("classname") == "Op.face" for case in face)
    (clash,) = cases["overlap"].findall("failure")
    assert (clash.get("type"), clash.get("message")) == ("overlap", "overlap: *both* serve")
    assert clash.text == "Op.face:overlap:a+b\nop.py:3\nop.py:9\nwrite `preferred_over`"
    open_points = "error" if strict else "skipped"
    assert cases["overlap"].find(open_points) is None, "a failure says enough"
    fits = cases["fits"].find(open_points)
    assert fits is not None
    assert fits.get("message") == "b sm_80: no answer"
    table = cases["table"].find(open_points)
    assert table is not None
    assert table.get("message") == "c at op.py:20 was not lifted: reads\nthe clock"
    out = "".join(case.findtext("system-out") or "" for case in face)
    assert "note: unread: *both* serve" in out
    assert "allowed: Op.face:dead:c: kept for one card" in out
    counted = {name: int(face.get(name, "")) for name in ("tests", "failures", "errors", "skipped")}
    assert counted == {
        "tests": len(face),
        "failures": 2,
        "errors": 2 if strict else 0,
        "skipped": 0 if strict else 2,
    }
    assert int(root.get("tests", "")) == len(face) + len(other)
    assert [int(root.get(name, "")) for name in ("failures", "errors", "skipped")] == list(counted.values())[1:]


def test_the_sarif_says_the_same() -> None:
    document = json.loads(as_sarif(REPORT))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    assert run["tool"]["driver"]["name"] == "tileops-audit"
    clash, gap, idle, standing, unlifted, wide, fits = run["results"]
    assert clash == {
        "ruleId": "overlap",
        "level": "error",
        "message": {"text": "overlap: *both* serve"},
        "locations": [location("op.py", 3)],
        "relatedLocations": [location("op.py", 9)],
        "partialFingerprints": {"findingId/v1": "Op.face:overlap:a+b"},
        "properties": {
            "keys": ["a", "b"],
            "subject": "",
            "edit": "write `preferred_over`",
            "witness": CALL,
            "facts": {"third": "c", "calls": [{**CALL, "n": 4}]},
        },
    }
    assert (gap["level"], gap["properties"]["subject"]) == ("warning", "sm_90")
    assert (idle["level"], idle["locations"], idle["properties"]["witness"]) == ("note", [], None)
    assert standing["suppressions"] == [{"kind": "external", "justification": "kept for one card"}]
    assert unlifted["message"]["text"] == "Op.face: the rule of c was not lifted: reads\nthe clock"
    assert unlifted["locations"] == [location("op.py", 20)]
    assert wide["message"]["text"] == "Op.face: overlap of a and c is not decided: too wide"
    assert fits["message"]["text"] == "Op.face: fits of b and sm_80 is not decided: no answer"
    for each in (unlifted, wide, fits):
        assert (each["ruleId"], each["kind"], each["level"]) == ("undecided", "open", "none")
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted(rules)
    assert {"overlap", "gap", "unread", "dead", "undecided"} <= set(rules)
    nowhere = Report((InterfaceReport("Op", "f", (), Pairs(), (Unlifted("c", "<unknown>:0", "x"),), (), ()),))
    (result,) = json.loads(as_sarif(nowhere))["runs"][0]["results"]
    assert result["locations"] == [location("<unknown>", 1)]


def location(file: str, line: int) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": line}}}


def test_findings_know_their_id_and_whether_they_fail() -> None:
    assert [each.id for each in (CLASH, GAP, IDLE, STANDING)] == [
        "Op.face:overlap:a+b",
        "Op.face:gap:sm_90",
        "Op.face:unread:a+b",
        "Op.face:dead:c",
    ]
    assert [each.fails for each in (CLASH, GAP, IDLE)] == [True, True, False]
    assert Finding("gap", (), None, "x", (), interface="face").id == "face:gap"
    assert REPORT.findings == (CLASH, GAP, IDLE)
    assert REPORT.beyond({"Op.face:gap:sm_90"}).findings == (CLASH, IDLE)
    pairs = REPORT.interfaces[0].pairs
    assert (pairs["ordered"], len(pairs), dict(pairs)["undecided"]) == (1, 4, 1)
    with pytest.raises(KeyError):
        pairs["fails"]
