"""The commands ``snapshot`` and ``diff``: the rules as a text to keep, and what changed since."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from tileops_solver.commanding import CLEAN, FOUND, format_option, guarded, look_here_too
from tileops_solver.diffing.comparing import differences
from tileops_solver.snapshot import SnapshotError, live_selectors, read_snapshot, take_snapshot
from tileops_solver.streams import standard_output_kept
from tileops_solver.targets import named

__all__ = ["diff_command", "snapshot_command"]

_OPS: Final = "tileops.ops"
_SHOWN: Final = 40
"""Lines of what differs that ``--check`` shows."""

_SNAPSHOT: Final = """Write the rules of all ops as one sorted text.

TARGET is a module, walked with its sub-modules for classes that have kernel_types and interfaces, or
module:Class; tileops.ops where none is given. The text holds the ranges of fields, which calls are valid, and
for each implementation what it serves, a clause a line, and nothing of where the code stands. Keep it in the
repository: `tileops diff FILE` says which calls changed implementation since.

\b
Exit codes:
  0  written; with --check: FILE is up to date
  1  with --check: FILE is out of date
  2  could not run: a target or FILE cannot be read
"""

_DIFF: Final = """Say which calls changed implementation.

OLD and NEW are snapshots; without NEW, the rules of the current tree are compared, and each call that is shown
is put to the real methods. Each change is a kind, a formula for the calls concerned among the valid ones, and
the smallest of them:

\b
  widened, narrowed   an implementation serves more, or fewer, calls
  moved               calls for which another implementation is chosen
  newly served        calls that nobody served
  newly unserved      calls that nobody serves now
  newly dead          an implementation that some call chose and none does now
  added, removed, renamed
                      implementations and interfaces; renamed where the calls are the same
  newly raising, no longer raising
                      calls on which a rule raises, and so the call
  newly tied, no longer tied, declared unserved, no longer declared unserved

A refactor that changes no choice shows as nothing. What was not decided, or was not lifted on one side, is said
and counts as a change.

\b
Exit codes:
  0  every call gets the implementation that it got
  1  changes, or something was not decided
  2  could not run: a snapshot or a target cannot be read, or z3 is missing
  3  solver, rules and original functions do not agree: an error in this tool
"""


@click.command("snapshot", help=_SNAPSHOT)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE.")
@click.option(
    "--check",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write nothing; exit with 1 where FILE is out of date.",
)
@click.pass_context
def snapshot_command(ctx: click.Context, targets: tuple[str, ...], output: str | None, check: str | None) -> None:
    """Write the rules of all ops as one sorted text."""
    if output is not None and check is not None:
        raise click.UsageError("--check writes nothing: give it or -o, not both")
    ctx.exit(guarded(lambda: _snapshot(targets or (_OPS,), output, check)))


@click.command("diff", help=_DIFF)
@click.argument("old", type=click.Path(dir_okay=False))
@click.argument("new", type=click.Path(dir_okay=False), required=False)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help=f"Module or module:Class to compare where NEW is not given; repeatable.  [default: {_OPS}]",
)
@format_option("text", "json")
@click.pass_context
def diff_command(ctx: click.Context, old: str, new: str | None, targets: tuple[str, ...], style: str) -> None:
    """Say which calls changed implementation."""
    if new is not None and targets:
        raise click.UsageError("NEW is a snapshot, --target the current tree: give one of them")
    ctx.exit(guarded(lambda: _diff(old, new, targets or (_OPS,), style)))


def _snapshot(targets: tuple[str, ...], output: str | None, check: str | None) -> int:
    with standard_output_kept():
        text = take_snapshot(_live(targets)).text
    if check is not None:
        return _checked(text, Path(check), targets)
    if output is None:
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="utf-8")
    return CLEAN


def _checked(text: str, file: Path, targets: tuple[str, ...]) -> int:
    kept = _text_of(file) if file.exists() else ""
    if kept == text:
        return CLEAN
    stated = [] if targets == (_OPS,) else list(targets)
    refresh = shlex.join(["tileops", "snapshot", *stated, "-o", str(file)])
    differing = difflib.unified_diff(kept.splitlines(), text.splitlines(), str(file), "the rules now", lineterm="", n=1)
    for line in islice(differing, _SHOWN):
        click.echo(line, err=True)
    say = "is out of date" if file.exists() else "is missing"
    compare = shlex.join(["tileops", "diff", str(file), *(part for name in stated for part in ("--target", name))])
    click.echo(f"{file} {say}: see what changed with `{compare}`, then run\n  {refresh}", err=True)
    return FOUND


def _diff(old: str, new: str | None, targets: tuple[str, ...], style: str) -> int:
    before = _read(Path(old))
    with standard_output_kept():
        if new is None:
            live = _live(targets)
            found = differences(before, take_snapshot(live), live)
        else:
            found = differences(before, _read(Path(new)))
    click.echo(json.dumps(found.as_json(), indent=2, allow_nan=False) if style == "json" else str(found))
    return CLEAN if found.same else FOUND


def _live(targets: tuple[str, ...]) -> Mapping[tuple[str, str], Any]:
    look_here_too()
    return live_selectors([named(target) for target in targets])


def _read(file: Path) -> Any:
    try:
        return read_snapshot(_text_of(file))
    except SnapshotError as error:
        raise SnapshotError(f"{file}: {error}") from error


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{file} cannot be read: {error}") from error
