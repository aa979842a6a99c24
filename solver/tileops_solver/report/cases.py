"""The boundary cases of an interface, written out: for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tileops_solver.cases import Border, Case, Cases
from tileops_solver.report.json import plain

__all__ = ["as_json", "as_text"]


def as_text(cases: Cases) -> str:
    """A line a case, platform by platform and region by region, at the first face where it stands."""
    name = f"{cases.op}.{cases.interface}" if cases.op else cases.spec
    stopped = "" if cases.complete else "; more were not looked for, the limit is reached"
    lines = [f"{name}: {len(cases.cases)} boundary cases ({cases.spec}){stopped}"]
    for (platform, key, region), group in groupby(cases.cases, key=_group):
        lines += ["", f"{platform or 'every device'}: {key}, {'what it is chosen for' if region else 'what it serves'}"]
        lines += _table([_row(case) for case in group])
    for line in cases.undecided:
        lines += ["", f"undecided: {line}"]
    return "\n".join(lines) + "\n"


def as_json(cases: Cases) -> str:
    """``op``, ``interface``, ``spec``, ``complete``, ``undecided``, and ``cases`` with every face where one stands."""
    data = {
        "op": cases.op,
        "interface": cases.interface,
        "spec": cases.spec,
        "complete": cases.complete,
        "undecided": list(cases.undecided),
        "cases": [_data(case) for case in cases.cases],
    }
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _group(case: Case) -> tuple[str, str, bool]:
    first = case.borders[0]
    return case.platform, first.key, first.region == "choice"


def _row(case: Case) -> list[str]:
    first = case.borders[0]
    notes = [case.note] if case.note else []
    notes += [f"{condition} changes too" for condition in first.also]
    return [first.face, first.where, first.at, f"-> {case.expected or 'none'}", "; ".join([case.shown, *notes])]


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _data(case: Case) -> dict[str, Any]:
    return {
        "id": str(case),
        "platform": case.platform,
        "expected": case.expected,
        "note": case.note,
        "call": plain(case.call),
        "borders": [_border(each) for each in case.borders],
    }


def _border(border: Border) -> dict[str, Any]:
    return {
        "key": border.key,
        "region": border.region,
        "face": border.face,
        "where": border.where,
        "at": border.at,
        "also": list(border.also),
    }
