"""A report for people: what was found first, what was not proved last."""

from __future__ import annotations

from collections.abc import Iterator

from tileops_solver.findings import InterfaceReport, Pairs, Report

__all__ = ["as_text", "closing_lines", "count"]


def as_text(report: Report) -> str:
    """The report as lines of text; the last one is ``not proved: N``."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    for each in report.interfaces:
        yield from _interface(each)
        yield ""
    yield from closing_lines(report)


def closing_lines(report: Report) -> Iterator[str]:
    """The sums over all interfaces; the last line is ``not proved: N``."""
    totals = report.totals
    yield (
        f"{count(totals.interfaces, 'interface')}, {count(totals.implementations, 'implementation')}, "
        f"{count(sum(totals.pairs.values()), 'pair')}: {_pairs(totals.pairs)}"
    )
    asked = sum(totals.answered.values())
    if asked:
        shares = {"by intervals and sets": totals.answered.cheap, "by proofs on file": totals.answered.on_file}
        shares["by the solver"] = totals.answered.solver
        yield f"{count(asked, 'question')}: {', '.join(f'{n} {how}' for how, n in shares.items() if n)}"
    yield f"findings: {totals.findings}"
    if totals.notes:
        yield f"notes: {totals.notes}"
    if totals.allowed:
        yield f"allowed: {totals.allowed}"
    yield f"not proved: {totals.not_proved}"


def _interface(each: InterfaceReport) -> Iterator[str]:
    yield f"{each.op}.{each.interface}: {count(len(each.implementations), 'implementation')}"
    yield f"  implementations: {', '.join(each.implementations) or 'none'}"
    yield f"  pairs: {_pairs(each.pairs)}"
    for finding in each.findings:
        yield f"  {finding.severity.value} {finding.kind}: {finding.message}"
        yield f"    id: {finding.id}"
    for rule in each.not_lifted:
        yield f"  not lifted: {rule.key} at {rule.place}: {rule.cause}"
    for pair in each.undecided:
        yield f"  undecided: {pair.check}: {' and '.join((*pair.keys, *filter(None, [pair.subject])))}: {pair.reason}"
    for allowed in each.allowed:
        yield f"  allowed: {allowed.finding.id}: {allowed.reason}"
    for fact in each.facts:
        yield f"  {fact}"
    if each.assumed_domains:
        yield "  assumed, not declared:"
        for line in each.assumed_domains:
            yield f"    {line}"


def _pairs(pairs: Pairs) -> str:
    return ", ".join(f"{number} {state}" for state, number in pairs.items())


def count(number: int, noun: str) -> str:
    """``1 pair``, ``2 pairs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
