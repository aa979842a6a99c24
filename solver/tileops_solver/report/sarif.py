"""A report for code scanning: SARIF 2.1.0, one rule a kind of finding, one result a finding.

Undecided questions and rules that were not lifted are results of kind ``open``. A finding that is let stand is a
suppressed result with its justification. Fingerprints are the ids of findings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tileops_solver.checks.catalogue import CHECKS
from tileops_solver.findings import Finding, InterfaceReport, Report
from tileops_solver.report.json import plain

__all__ = ["as_sarif"]

_LEVELS: Final = {"error": "error", "warning": "warning", "note": "note"}
_TABLE: Final = "Is the table of implementations such that an op can be constructed with it?"


def as_sarif(report: Report) -> str:
    """The report as a SARIF document."""
    results = [result for each in report.interfaces for result in _results(each)]
    asks = {kind: check.asks for check in CHECKS for kind in check.kinds}
    rules = [
        {"id": kind, "shortDescription": {"text": asks.get(kind, _TABLE if kind != "undecided" else "Not proved.")}}
        for kind in sorted({result["ruleId"] for result in results} | set(asks))
    ]
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "tileops-audit", "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _results(each: InterfaceReport) -> Iterator[dict[str, Any]]:
    for finding in each.findings:
        yield _result(finding)
    for allowed in each.allowed:
        yield {
            **_result(allowed.finding),
            "suppressions": [{"kind": "external", "justification": allowed.reason}],
        }
    for rule in each.not_lifted:
        text = f"{each.op}.{each.interface}: the rule of {rule.key} was not lifted: {rule.cause}"
        yield {**_open(text), "locations": [_location(rule.place)]}
    for point in each.undecided:
        about = " and ".join((*point.keys, *filter(None, [point.subject])))
        yield _open(f"{each.op}.{each.interface}: {point.check} of {about} is not decided: {point.reason}")


def _open(text: str) -> dict[str, Any]:
    return {"ruleId": "undecided", "kind": "open", "level": "none", "message": {"text": text}}


def _result(finding: Finding) -> dict[str, Any]:
    first, *more = finding.places or ("",)
    return {
        "ruleId": finding.kind,
        "level": _LEVELS[finding.severity.value],
        "message": {"text": finding.message},
        "locations": [_location(first)] if first else [],
        "relatedLocations": [_location(place) for place in more],
        "partialFingerprints": {"findingId/v1": finding.id},
        "properties": {
            "keys": list(finding.keys),
            "subject": finding.subject,
            "edit": finding.edit,
            "witness": None if finding.witness is None else plain(finding.witness),
            "facts": {name: plain(value) for name, value in finding.facts.items()},
        },
    }


def _location(place: str) -> dict[str, Any]:
    """``file:line`` as a location; a place without a file (``<unknown>:0``) points at line 1."""
    file, _, line = place.rpartition(":")
    number = int(line) if line.isdigit() else 0
    return {"physicalLocation": {"artifactLocation": {"uri": file or place}, "region": {"startLine": max(1, number)}}}
