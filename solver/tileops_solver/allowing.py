"""Findings that are let stand: a file that names each with the reason, and what is stale in it.

The file is TOML, an entry a finding::

    [[allow]]
    id = "GemmFwdOp.gemm:gap:sm_80"
    reason = "ported next quarter; callers fall back to torch"

An entry that matches no finding is stale: what it let stand is gone, and the next one of that id would pass
unseen.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops_solver.findings import Allowed, Finding, Report

__all__ = ["AllowFileError", "Allowance", "allowances_in", "with_allowed"]


class AllowFileError(Exception):
    """A file of allowances cannot be read.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path


@dataclass(frozen=True)
class Allowance:
    """An entry: the finding of that id may stand, for that reason."""

    id: str
    reason: str


def allowances_in(path: Path) -> tuple[Allowance, ...]:
    """The entries of a file.

    Raises:
        AllowFileError: it cannot be read, or an entry has no id or no reason, or stands twice.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AllowFileError(path, f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AllowFileError(path, f"is no TOML: {error}") from error
    entries = data.pop("allow", [])
    if data or not isinstance(entries, list):
        raise AllowFileError(path, f"has {', '.join(sorted(data)) or 'allow as a value'}: write [[allow]] entries only")
    found = tuple(_entry(path, number, entry) for number, entry in enumerate(entries, 1))
    ids = [each.id for each in found]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        raise AllowFileError(path, f"allows {', '.join(twice)} twice: keep one entry each")
    return found


def _entry(path: Path, number: int, entry: Any) -> Allowance:
    fields = entry if isinstance(entry, dict) else {}
    texts = {name: value for name in ("id", "reason") if isinstance(value := fields.get(name), str) and value.strip()}
    if set(texts) != {"id", "reason"} or set(fields) != {"id", "reason"}:
        raise AllowFileError(
            path, f'entry {number} is {entry!r}: write id = "..." and reason = "...", both with a text'
        )
    return Allowance(texts["id"], texts["reason"])


def with_allowed(
    report: Report, allowances: Iterable[Allowance], kinds: Collection[str]
) -> tuple[Report, tuple[Allowance, ...]]:
    """*report* with the allowed findings set aside, and the entries that are stale.

    Args:
        report: What was found.
        allowances: What is let stand.
        kinds: The kinds of finding that were looked for; an entry of another kind, or of an interface that the
            report does not have, is not stale.
    """
    by_id = {each.id: each for each in allowances}
    used: set[str] = set()

    def allowed(finding: Finding) -> bool:
        if finding.id in by_id:
            used.add(finding.id)
        return finding.id in by_id

    interfaces = []
    for each in report.interfaces:
        aside = tuple(Allowed(f, by_id[f.id].reason) for f in each.findings if allowed(f))
        kept = tuple(f for f in each.findings if f.id not in by_id)
        interfaces.append(dataclasses.replace(each, findings=kept, allowed=aside))
    known = {f"{each.op}.{each.interface}" if each.op else each.interface for each in report.interfaces}
    stale = [each for id, each in by_id.items() if id not in used and _asked(id, known, kinds)]
    return Report(tuple(interfaces)), tuple(stale)


def _asked(id: str, interfaces: Collection[str], kinds: Collection[str]) -> bool:
    """Whether the finding of that id would have been found."""
    interface, _, rest = id.partition(":")
    return interface in interfaces and rest.partition(":")[0] in kinds
