"""A report for people: what was found first, what was not proved last."""

from __future__ import annotations

from collections.abc import Iterator

from tileops_solver.findings import InterfaceReport, Pairs, Report

__all__ = ["as_text"]


def as_text(report: Report) -> str:
    """The report as lines of text; the last one is ``not proved: N``."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    for each in report.interfaces:
        yield from _interface(each)
        yield ""
    totals = report.totals
    yield (
        f"{_count(totals.interfaces, 'interface')}, {_count(totals.implementations, 'implementation')}, "
        f"{_count(sum(totals.pairs.values()), 'pair')}: {_pairs(totals.pairs)}"
    )
    yield f"findings: {totals.findings}"
    if totals.notes:
        yield f"notes: {totals.notes}"
    yield f"not proved: {totals.not_proved}"


def _interface(each: InterfaceReport) -> Iterator[str]:
    yield f"{each.op}.{each.interface}: {_count(len(each.implementations), 'implementation')}"
    yield f"  implementations: {', '.join(each.implementations) or 'none'}"
    yield f"  pairs: {_pairs(each.pairs)}"
    for finding in each.findings:
        yield f"  {finding.severity.value} {finding.kind}: {finding.message}"
    for rule in each.not_lifted:
        yield f"  not lifted: {rule.key} at {rule.place}: {rule.cause}"
    for pair in each.undecided:
        yield f"  undecided: {pair.check}: {' and '.join((*pair.keys, *filter(None, [pair.subject])))}: {pair.reason}"
    if each.assumed_domains:
        yield "  assumed, not declared:"
        for line in each.assumed_domains:
            yield f"    {line}"


def _pairs(pairs: Pairs) -> str:
    return ", ".join(f"{number} {state}" for state, number in pairs.items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
