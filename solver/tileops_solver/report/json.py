"""A report for programs: ``{"interfaces": [...], "totals": {...}}``.

Each interface has ``op``, ``interface``, ``implementations`` (keys), ``pairs`` (``ordered``, ``disjoint``,
``overlapping``, ``undecided``), ``not_lifted`` (``key``, ``place``, ``cause``), ``findings`` (``kind``,
``keys``, ``witness``, ``message``, ``places``) and ``assumed_domains`` (lines). ``totals`` has the sums. A
witness is an object with the call's fields; a value that JSON does not have is text: ``"torch.float16"``,
``"cuda"``, ``"inf"``.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from typing import Any

from tileops_solver.findings import Finding, InterfaceReport, Report

__all__ = ["as_data", "as_json", "plain"]


def as_json(report: Report) -> str:
    """The report as a JSON document."""
    return json.dumps(as_data(report), indent=2, allow_nan=False) + "\n"


def as_data(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    totals = {name: dict(value) if name in ("pairs", "answered") else value for name, value in report.totals.items()}
    return {"interfaces": [_interface(each) for each in report.interfaces], "totals": totals}


def _interface(each: InterfaceReport) -> dict[str, Any]:
    return {
        "op": each.op,
        "interface": each.interface,
        "implementations": list(each.implementations),
        "pairs": dict(each.pairs),
        "not_lifted": [{"key": rule.key, "place": rule.place, "cause": rule.cause} for rule in each.not_lifted],
        "findings": [_finding(finding) for finding in each.findings],
        "assumed_domains": list(each.assumed_domains),
        "undecided": [
            {"check": one.check, "keys": list(one.keys), "subject": one.subject, "reason": one.reason}
            for one in each.undecided
        ],
        "answered": dict(each.answered),
        "facts": list(each.facts),
        "allowed": [{"id": one.finding.id, "reason": one.reason} for one in each.allowed],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "kind": finding.kind,
        "keys": list(finding.keys),
        "witness": None if finding.witness is None else plain(finding.witness),
        "message": finding.message,
        "places": list(finding.places),
        "subject": finding.subject,
        "edit": finding.edit,
        "facts": {name: plain(value) for name, value in finding.facts.items()},
    }


def plain(value: Any) -> Any:
    """*value* as JSON has it: a dataclass as an object of its fields, what JSON lacks as text."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name, None)) for f in dataclasses.fields(value)}
    return str(value)
