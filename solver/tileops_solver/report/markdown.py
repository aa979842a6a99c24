"""A report for a review's comment: a table of interfaces, then what was found, then what was not proved."""

from __future__ import annotations

from collections.abc import Iterator

from tileops_solver.findings import InterfaceReport, Report
from tileops_solver.report.text import closing_lines, count

__all__ = ["as_markdown"]


def as_markdown(report: Report) -> str:
    """The report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "# Audit"
    yield ""
    yield "| interface | implementations | pairs | findings | not proved |"
    yield "|---|---|---|---|---|"
    for each in report.interfaces:
        pairs = ", ".join(f"{number} {state}" for state, number in each.pairs.items() if number) or "none"
        failing = sum(finding.fails for finding in each.findings)
        open_points = len(each.undecided) + len(each.not_lifted)
        yield f"| `{_name(each)}` | {len(each.implementations)} | {pairs} | {failing} | {open_points} |"
    for each in report.interfaces:
        yield from _details(each)
    yield ""
    yield "; ".join(closing_lines(report))


def _name(each: InterfaceReport) -> str:
    return f"{each.op}.{each.interface}" if each.op else each.interface


def _details(each: InterfaceReport) -> Iterator[str]:
    open_points = [
        *(f"- `{rule.key}` at `{rule.place}` was not lifted: {_text(rule.cause)}" for rule in each.not_lifted),
        *(
            f"- {point.check}: {' and '.join(f'`{key}`' for key in point.keys)} {point.subject}: {_text(point.reason)}"
            for point in each.undecided
        ),
    ]
    if not (each.findings or each.allowed or each.facts or open_points):
        return
    yield ""
    yield f"## `{_name(each)}`"
    if each.findings:
        yield ""
    for finding in each.findings:
        yield f"- **{finding.severity.value} {finding.kind}** {_text(finding.message)}"
        if finding.witness is not None:
            yield f"  - call: `{finding.witness!r}`"
        if finding.edit:
            yield f"  - edit: {_text(finding.edit)}"
        if finding.places:
            yield f"  - at {', '.join(f'`{place}`' for place in finding.places)}"
        yield f"  - id: `{finding.id}`"
    if each.allowed:
        yield ""
        yield f"{count(len(each.allowed), 'finding')} let stand:"
        yield ""
        for allowed in each.allowed:
            yield f"- `{allowed.finding.id}`: {_text(allowed.reason)}"
    if open_points:
        yield ""
        yield "Not proved:"
        yield ""
        yield from open_points
    if each.facts:
        yield ""
        yield from (f"- {_text(fact)}" for fact in each.facts)


def _text(text: str) -> str:
    """*text* on one line, with what Markdown reads as markup left as it is written."""
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in "*_`<>|[]" else c for c in flat)
