"""An audit as SARIF, JUnit and Markdown; what is let stand, what is stale, what an earlier report had."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from tileops_solver import audit
from tileops_solver.allowing import AllowFileError, allowances_in
from tileops_solver.audit_command import audit_command
from tileops_solver.checks.catalogue import CHECKS, Selection, UnknownCheck
from tileops_solver.report.junit import as_junit
from tileops_solver.report.markdown import as_markdown
from tileops_solver.report.sarif import as_sarif
from tileops_solver.report.text import as_text

OPS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Call:
    n: int = 1

class Face:
    request = Call

class Small(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.n <= 64 else f"n {call.n} is above <64>"

class Even(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.n % 2 == 0 else f"n {call.n} is odd"

class Strange(Face):
    @classmethod
    def refusal(cls, call):
        return None if len(str(call.n)) > 3 else "short"

class ClashOp:
    kernel_types = {"small": Small, "even": Even}
    interfaces = {"face": Face}

class StrangeOp:
    kernel_types = {"small": Small, "strange": Strange}
    interfaces = {"face": Face}
"""


@pytest.fixture
def ops(op_module: Callable[..., Path]) -> Path:
    return op_module(format_ops=OPS)


@pytest.fixture
def report(ops: Path) -> Any:
    import format_ops

    return audit(format_ops)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit_command, ["format_ops", *arguments])


def allow_file(folder: Path, *entries: tuple[str, str]) -> str:
    path = folder / "allow.toml"
    path.write_text("\n".join(f'[[allow]]\nid = "{id}"\nreason = "{reason}"' for id, reason in entries))
    return str(path)


def test_sarif_has_a_rule_for_each_kind_and_a_result_for_each_finding(report: Any) -> None:
    document = json.loads(as_sarif(report))
    assert (document["version"], len(document["runs"])) == ("2.1.0", 1)
    run = document["runs"][0]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {kind for check in CHECKS for kind in check.kinds} <= rules
    found = [r for r in run["results"] if "partialFingerprints" in r]
    assert {r["partialFingerprints"]["findingId/v1"] for r in found} == {f.id for f in report.findings}
    clash = next(r for r in found if r["ruleId"] == "overlap")
    assert clash["level"] == "error"
    place = clash["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "format_ops.py"
    assert OPS.splitlines()[place["region"]["startLine"] - 1].startswith("class Even")
    assert clash["properties"]["witness"] == {"n": 0}
    opened = [r for r in run["results"] if r.get("kind") == "open"]
    assert len(opened) == report.totals.not_proved > 0
    assert all(r["ruleId"] in rules | {"undecided"} for r in run["results"])


def test_junit_counts_what_failed_and_strict_turns_open_questions_into_errors(report: Any) -> None:
    for strict in (False, True):
        root = ET.fromstring(as_junit(report, strict=strict))
        assert root.tag == "testsuites"
        for suite in root:
            assert int(suite.get("tests", "")) == len(suite) == len(CHECKS) + 1
            assert int(suite.get("failures", "")) == len(suite.findall("testcase[failure]"))
            assert int(suite.get("errors", "")) == len(suite.findall("testcase[error]"))
        names = {(c.get("classname"), c.get("name")) for c in root.iter("testcase") if c.find("failure") is not None}
        assert ("ClashOp.face", "overlap") in names
        assert ("StrangeOp.face", "overlap") not in names
        open_points = root.findall(f".//testcase/{'error' if strict else 'skipped'}")
        assert open_points
        assert not root.findall(f".//testcase/{'skipped' if strict else 'error'}")


def test_control_characters_do_not_break_the_xml(report: Any) -> None:
    import dataclasses

    interface = report.interfaces[0]
    odd = dataclasses.replace(interface.findings[0], message="a\x00b\x1b <&> \ud7ff")
    broken = dataclasses.replace(report, interfaces=(dataclasses.replace(interface, findings=(odd,)),))
    failure = ET.fromstring(as_junit(broken)).find(".//failure")
    assert failure is not None
    assert failure.get("message") == "a\ufffdb\ufffd <&> \ud7ff"


def test_markdown_shows_each_finding_with_call_edit_and_id(report: Any) -> None:
    text = as_markdown(report)
    assert "| `ClashOp.face` | 2 | 1 overlapping |" in text
    for finding in report.findings:
        assert f"- id: `{finding.id}`" in text
        if finding.witness is not None:
            assert f"- call: `{finding.witness!r}`" in text
    assert text.rstrip().endswith(f"not proved: {report.totals.not_proved}")
    assert not re.search(r"(?<!\\)<64>", text), "markup in a reason stays text"


def test_every_format_is_the_same_in_a_second_run(ops: Path) -> None:
    for style in ("text", "json", "sarif", "junit", "markdown"):
        first, second = run("--format", style), run("--format", style)
        assert first.exit_code == second.exit_code == 1
        assert first.stdout == second.stdout != ""


def test_select_and_ignore_take_checks_and_kinds(ops: Path, report: Any) -> None:
    def kinds(*arguments: str) -> set[str]:
        data = json.loads(run("--format", "json", *arguments).stdout)
        return {finding["kind"] for each in data["interfaces"] for finding in each["findings"]}

    every = {finding.kind for finding in report.findings}
    assert {"overlap", "gap"} <= every
    assert kinds("--select", "overlap") == {"overlap"}
    assert kinds("--select", "overlap,gap") == {"overlap", "gap"}
    assert kinds("--ignore", "overlap") == every - {"overlap"}
    assert kinds("--select", "overlap", "--ignore", "overlap") == set()
    wrong = run("--select", "overlaps")
    assert wrong.exit_code == 2
    assert "'overlaps' is neither a check nor a kind of finding" in wrong.stderr
    with pytest.raises(UnknownCheck):
        Selection(ignore=["nothing"])


def test_what_is_allowed_does_not_fail_and_is_still_shown(ops: Path, report: Any, tmp_path: Path) -> None:
    path = allow_file(tmp_path, *((f.id, "known & meant") for f in report.findings if f.fails))
    result = run("--allow", path)
    assert result.exit_code == 0, result.output
    assert "known & meant" in result.stdout
    assert "findings: 0" in result.stdout
    assert run("--allow", path, "--strict").exit_code == 1, "what is not proved cannot be allowed away"
    sarif = json.loads(run("--allow", path, "--format", "sarif").stdout)
    suppressed = [r for r in sarif["runs"][0]["results"] if "suppressions" in r]
    assert {r["suppressions"][0]["justification"] for r in suppressed} == {"known & meant"}


def test_a_stale_entry_fails_and_is_named(ops: Path, report: Any, tmp_path: Path) -> None:
    entries = [(f.id, "known") for f in report.findings if f.fails]
    path = allow_file(tmp_path, *entries, ("ClashOp.face:overlap:even+gone", "was true once"))
    result = run("--allow", path)
    assert result.exit_code == 1
    assert "ClashOp.face:overlap:even+gone is no finding any more: remove the entry" in result.stderr


def test_an_entry_that_was_not_asked_about_is_not_stale(ops: Path, tmp_path: Path) -> None:
    path = allow_file(
        tmp_path,
        ("OtherOp.face:overlap:a+b", "another target"),
        ("ClashOp.face:gap:sm_90", "another check"),
        ("ClashOp.face:overlap:even+small", "known"),
    )
    assert run("--allow", path, "--select", "overlap").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[allow]]\nid = 'x'", "entry 1"),
        ("[[allow]]\nid = 'x'\nreason = ' '", "entry 1"),
        ("[[allow]]\nid = 'x'\nreason = 'y'\nuntil = 'z'", "entry 1"),
        ("allowed = 1", "has allowed: write"),
        ("allow = 1", "allow as a value"),
        ("[[allow]]\nid = 'x'\nreason = 'y'\n[[allow]]\nid = 'x'\nreason = 'y'", "allows x twice"),
        ("[[allow", "is no TOML"),
    ],
)
def test_an_allow_file_that_cannot_be_read_says_where(ops: Path, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "allow.toml"
    path.write_text(text)
    with pytest.raises(AllowFileError, match=re.escape(said)) as caught:
        allowances_in(path)
    assert caught.value.path == path
    result = run("--allow", str(path))
    assert result.exit_code == 2
    assert said in result.stderr
    assert run("--allow", str(tmp_path / "none.toml")).exit_code == 2


def test_beyond_shows_only_what_an_earlier_report_does_not_have(ops: Path, report: Any, tmp_path: Path) -> None:
    base = tmp_path / "base.json"
    base.write_text(run("--format", "json").stdout)
    nothing = run("--beyond", str(base))
    assert nothing.exit_code == 0
    assert "findings: 0" in nothing.stdout
    data = json.loads(base.read_text())
    for each in data["interfaces"]:
        each["findings"] = [f for f in each["findings"] if f["kind"] != "overlap"]
    base.write_text(json.dumps(data))
    added = run("--beyond", str(base), "--format", "json")
    assert added.exit_code == 1
    found = [f["id"] for each in json.loads(added.stdout)["interfaces"] for f in each["findings"]]
    assert found == [f.id for f in report.findings if f.kind == "overlap"]
    base.write_text("[]")
    assert run("--beyond", str(base)).exit_code == 2


def test_the_text_says_who_answered(report: Any) -> None:
    answered = report.totals.answered
    assert sum(answered.values()) > 0
    assert f"{answered.cheap} by intervals and sets" in as_text(report)
    assert f"{answered.solver} by the solver" in as_text(report)
