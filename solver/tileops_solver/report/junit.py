"""A report for test dashboards: JUnit XML, one suite an interface, one case a check.

A finding that fails an audit is a failure of its check's case, a question that was not decided an error with
``strict`` and skipped without; notes and findings that are let stand are output.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from tileops_solver.checks.asked import Check
from tileops_solver.checks.catalogue import ALWAYS, CHECKS
from tileops_solver.findings import InterfaceReport, Report

__all__ = ["as_junit"]

_TABLE = "table"
"""The case of what keeps an op from being constructed at all."""


def as_junit(report: Report, *, strict: bool = False, checks: Sequence[Check] = CHECKS) -> str:
    """The report as a JUnit document.

    Args:
        report: What was found.
        strict: Whether what is not proved fails.
        checks: The checks that were asked.
    """
    root = ET.Element("testsuites", name="tileops audit")
    for each in report.interfaces:
        root.append(_suite(each, strict, checks))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(each: InterfaceReport, strict: bool, checks: Sequence[Check]) -> ET.Element:
    name = f"{each.op}.{each.interface}" if each.op else each.interface
    suite = ET.Element("testsuite", name=name)
    kinds = {_TABLE: set(ALWAYS), **{check.id: set(check.kinds) for check in checks}}
    for case_name, mine in kinds.items():
        case = ET.SubElement(suite, "testcase", classname=name, name=case_name)
        failures = [f for f in each.findings if f.kind in mine and f.fails]
        for finding in failures:
            failure = ET.SubElement(case, "failure", type=finding.kind, message=_plain(finding.message))
            failure.text = _plain("\n".join([finding.id, *finding.places, finding.edit]))
        said = [f"note: {f.message}" for f in each.findings if f.kind in mine and not f.fails]
        said += [f"allowed: {a.finding.id}: {a.reason}" for a in each.allowed if a.finding.kind in mine]
        if said:
            ET.SubElement(case, "system-out").text = _plain("\n".join(said))
        open_points = [
            f"{' and '.join(u.keys)} {u.subject}: {u.reason}" for u in each.undecided if u.check == case_name
        ]
        if case_name == _TABLE:
            open_points += [f"{r.key} at {r.place} was not lifted: {r.cause}" for r in each.not_lifted]
        if open_points and not failures:
            ET.SubElement(case, "error" if strict else "skipped", message=_plain("; ".join(open_points)))
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in suite)))
    suite.set("tests", str(len(suite)))
    return suite


def _plain(text: str) -> str:
    """*text* without the control characters that XML has no way to write."""
    return "".join(c if c in "\t\n\r" or ord(c) >= 32 else "�" for c in text)
