"""Who serves what, written out: for a terminal and a golden file, for Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tileops_solver.regions import NEVER, Line, Region, Regions
from tileops_solver.report.json import plain

__all__ = ["as_json", "as_markdown", "as_text", "clauses"]

_WIDEST: Final = 100
"""Characters of a formula that stays on one line."""


def as_text(regions: Regions) -> str:
    """A table of extents, and below it line by line the formulas, platforms that read alike together."""
    lines = [_title(regions), "", *_matrix(regions)]
    for line in regions.lines:
        lines += ["", _name(line, regions)]
        for platforms, region in line.together:
            lines += [f"  {each}" for each in _region(platforms, region)]
    return "\n".join(lines) + "\n"


def as_markdown(regions: Regions) -> str:
    """The same as Markdown."""
    head, *rows = _cells(regions)
    lines = [f"# {_title(regions)}", "", _bar(head), _bar(["---"] * len(head)), *map(_bar, rows)]
    for line in regions.lines:
        lines += ["", f"## {_name(line, regions)}"]
        for platforms, region in line.together:
            first, *more = _region(platforms, region)
            lines += ["", f"- {first}"]
            if more:
                lines += ["", "  ```text", *more, "  ```"]
    return "\n".join(lines) + "\n"


def as_json(regions: Regions) -> str:
    """``op``, ``interface``, ``spec``, ``general``, ``platforms`` and ``lines`` of one region a platform."""
    data = {
        "op": regions.op,
        "interface": regions.interface,
        "spec": regions.spec,
        "general": regions.general,
        "platforms": list(regions.platforms),
        "lines": [
            {
                "kind": line.kind,
                "name": line.name,
                "regions": {platform: _data(region) for platform, region in line.regions.items()},
            }
            for line in regions.lines
        ],
    }
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def clauses(formula: str) -> list[str]:
    """A formula taken apart at its outermost connective, each part but the first with the connective before it."""
    parts, depth, quote, start = [], 0, "", 0
    for i, character in enumerate(formula):
        if quote:
            quote = "" if character == quote and formula[i - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth == 0 and character in "&|" and formula[i - 1 : i + 2] == f" {character} ":
            parts.append(formula[start : i - 1])
            start = i
    return [*parts, formula[start:]]


def _title(regions: Regions) -> str:
    return f"{regions.title}: which implementation runs which calls ({regions.spec})"


def _name(line: Line, regions: Regions) -> str:
    return f"{line.name} (general)" if line.kind == "chosen" and line.name == regions.general else line.name


def _platform(name: str) -> str:
    return name or "every device"


def _cells(regions: Regions) -> list[list[str]]:
    """The table of extents, its head first."""
    rows = [[line.name, *(line.regions[name].extent for name in regions.platforms)] for line in regions.lines]
    return [["", *map(_platform, regions.platforms)], *rows]


def _matrix(regions: Regions) -> Iterator[str]:
    cells = _cells(regions)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _bar(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _region(platforms: Sequence[str], region: Region) -> Iterator[str]:
    """The lines of one region: its platforms, its formula, its smallest call."""
    names = ", ".join(map(_platform, platforms))
    if region.extent == NEVER:
        yield f"{names}: never"
        return
    yield names
    if region.undecided:
        yield f"  undecided: {region.undecided}"
    most = "at most " if region.undecided else ""
    if region.where == "True":
        yield f"  {most}all calls"
    elif len(region.where) <= _WIDEST:
        yield f"  {most}where {region.where}"
    else:
        first, *more = clauses(region.where)
        yield f"  {most}where {first}"
        yield from (f"    {clause}" for clause in more)
    if region.witness:
        yield f"  as in {region.witness}"
    yield from (f"  because {reason}" for reason in region.reasons)


def _data(region: Region) -> dict[str, Any]:
    return {
        "extent": region.extent,
        "where": region.where,
        "witness": None if region.call is None else plain(region.call),
        "reasons": list(region.reasons),
        "undecided": region.undecided,
    }
