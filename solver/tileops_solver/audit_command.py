"""The command ``audit``."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tileops_solver.allowing import allowances_in, with_allowed
from tileops_solver.auditing import audit
from tileops_solver.checks.catalogue import CHECKS, Selection
from tileops_solver.commanding import CLEAN, COULD_NOT_RUN, FOUND, format_option, guarded, look_here_too, progress_bar
from tileops_solver.findings import Report
from tileops_solver.proofs.shelf import Shelf
from tileops_solver.report.json import as_json
from tileops_solver.report.junit import as_junit
from tileops_solver.report.markdown import as_markdown
from tileops_solver.report.sarif import as_sarif
from tileops_solver.report.text import as_text
from tileops_solver.streams import standard_output_kept
from tileops_solver.targets import TargetError, named, op_classes, with_plugins

__all__ = ["audit_command"]

_CHECKS: Final = "\n".join(f"  {check.id:<14}{', '.join(check.kinds)}" for check in CHECKS)

_AUDIT: Final = f"""Ask every question about kernel selection; above all, is any call claimed twice without a winner?

TARGET is a module, walked with its sub-modules for classes that have kernel_types and interfaces, or
module:Class.

The last line of the text, `not proved: N`, counts undecided questions and rules that could not be
lifted: where N is not 0, no finding is no proof.

\b
Checks, with the kinds of finding they make (either may be selected or ignored):
{_CHECKS}

\b
Exit codes:
  0  clean: no errors and no warnings (with --strict: and everything proved)
  1  findings, stale entries of an allow file, with --strict something not proved, or with
     --frozen-proofs an answer that is not on file
  2  could not run: a target or file cannot be read, or z3 is missing
  3  solver, rules and original functions do not agree: an error in this tool
"""


def _names(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """``--select a,b --select c`` as three names."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


@click.command("audit", help=_AUDIT)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@format_option("text", "json", "sarif", "junit", "markdown")
@click.option("--strict", is_flag=True, help="Exit with 1 where anything is not proved.")
@click.option("--select", multiple=True, callback=_names, metavar="NAME,...", help="Ask only these.")
@click.option("--ignore", multiple=True, callback=_names, metavar="NAME,...", help="Leave these out.")
@click.option("--arch", "archs", multiple=True, type=int, help="Look at this arch alone; may be repeated.")
@click.option(
    "--allow",
    "allow_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Let the findings stand that this TOML file names, each with its reason.",
)
@click.option(
    "--beyond",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Show only what an earlier report (--format json) does not have.",
)
@click.option(
    "--independent-of",
    multiple=True,
    callback=_names,
    metavar="FIELD,...",
    help="Show that these fields change no choice.",
)
@click.option(
    "--changes-within",
    multiple=True,
    callback=_names,
    metavar="FIELD,...",
    help="List every value of these integer fields at which a choice changes.",
)
@click.option("--plugins", is_flag=True, help="Count in what installed plug-ins register for the ops.")
@click.option(
    "--write-proofs",
    is_flag=True,
    help="Ask everything anew and put the answers on file: proofs/<Op>.json beside each op's package.",
)
@click.option("--frozen-proofs", is_flag=True, help="Exit with 1 where an answer that could be on file is not.")
@click.pass_context
def audit_command(ctx: click.Context, /, **options: Any) -> None:
    """Ask every question about kernel selection."""
    given = _Options(**options)
    if given.write_proofs and given.frozen_proofs:
        raise click.UsageError("--write-proofs and --frozen-proofs exclude each other: leave out one of them")
    ctx.exit(guarded(lambda: _audit(given)))


@dataclass(frozen=True)
class _Options:
    """What the command line says, under the names of its options."""

    targets: tuple[str, ...]
    style: str
    strict: bool
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    archs: tuple[int, ...]
    allow_file: Path | None
    beyond: Path | None
    independent_of: tuple[str, ...]
    changes_within: tuple[str, ...]
    plugins: bool
    write_proofs: bool
    frozen_proofs: bool

    @property
    def that_ask(self) -> list[str]:
        """The options that decide what is asked, as they are written."""
        lists = {
            "--select": self.select,
            "--ignore": self.ignore,
            "--independent-of": self.independent_of,
            "--changes-within": self.changes_within,
        }
        given = [part for name, values in lists.items() if values for part in (name, ",".join(values))]
        given += [part for arch in self.archs for part in ("--arch", str(arch))]
        return given + ["--plugins"] * self.plugins


def _audit(options: _Options) -> int:
    look_here_too()
    asked = Selection(options.select, options.ignore)
    allowances = () if options.allow_file is None else allowances_in(options.allow_file)
    known = frozenset() if options.beyond is None else _ids_in(options.beyond)
    shelf = Shelf(read=not options.write_proofs, records=options.write_proofs or options.frozen_proofs)
    with standard_output_kept(), progress_bar() as progress:
        found = [named(target) for target in options.targets]
        views = [with_plugins(each) for each in found] if options.plugins else found
        uncounted = _uncounted(options, found, views)
        if uncounted is not None:
            click.echo(uncounted, err=True)
            if options.strict:
                return COULD_NOT_RUN
        report = audit(
            views,
            progress=progress,
            select=options.select,
            ignore=options.ignore,
            archs=options.archs or None,
            independent_of=options.independent_of,
            changes_within=options.changes_within,
            proofs=shelf,
        )
    if not report.interfaces:
        names = ", ".join(options.targets)
        click.echo(
            f"nothing to audit: no class with kernel_types and interfaces in {names}; kernels that it registers for "
            f"the ops of another package are audited with them: tileops audit --plugins {' '.join(options.targets)} "
            f"tileops.ops",
            err=True,
        )
        if options.strict:
            return COULD_NOT_RUN
    # An arch that was not looked at would make its entries look stale.
    report, stale = with_allowed(report, allowances, frozenset() if options.archs else asked.kinds)
    report = report.beyond(known)
    click.echo(_written(report, options.style, options.strict, asked), nl=False)
    for entry in stale:
        click.echo(f"stale: {options.allow_file}: {entry.id} is no finding any more: remove the entry", err=True)
    not_on_file = _kept(shelf, options)
    if report.totals.findings or stale or not_on_file:
        return FOUND
    return FOUND if options.strict and report.totals.not_proved else CLEAN


def _uncounted(options: _Options, found: list[Any], views: list[Any]) -> str | None:
    """What is to be said of modules that hold no op and count for nothing, where others hold some.

    Such a module is named for what it registers for the ops of others: these know that, where they are asked.
    """
    without = [name for name, each in zip(options.targets, found, strict=True) if not op_classes(each)]
    if not without or len(without) == len(found):
        return None
    names = ", ".join(without)
    if not options.plugins:
        return f"{names}: no op class, and what is registered for the ops of others is not counted: add --plugins"
    declared = [op for each in found for op in op_classes(each)]
    viewed = [op for each in views for op in each]
    if any(len(view.kernel_types) > len(op.kernel_types) for op, view in zip(declared, viewed, strict=True)):
        return None
    return (
        f"{names}: no op class, and nothing is registered for the ops that are audited: register kernels when the "
        f"module is imported, each under the name of one of {', '.join(sorted(op.__name__ for op in declared))}"
    )


def _kept(shelf: Shelf, options: _Options) -> bool:
    """Write the proofs, or say which are not on file; whether any is missing that should be."""
    if options.write_proofs:
        try:
            shelf.write()
        except OSError as error:
            raise TargetError(f"the proofs cannot be written: {error}") from error
        for path, file in shelf.files.items():
            click.echo(f"proofs: {path}: answers: {len(file.fresh)}", err=True)
    if not options.frozen_proofs:
        return False
    for path, labels in shelf.missing.items():
        file = shelf.files[path]
        what = f"not on file: {len(labels)}, as {labels[0]!r}"
        if file.other_version:
            what = f"its answers are of another version of the encoder or of z3 than {file.z3}"
        click.echo(f"proofs: {path}: {what}", err=True)
    if shelf.missing:
        command = shlex.join(["tileops", "audit", "--write-proofs", *options.that_ask, *options.targets])
        click.echo(f"proofs: put them on file with: {command}", err=True)
    return bool(shelf.missing)


def _written(report: Report, style: str, strict: bool, asked: Selection) -> str:
    if style == "junit":
        return as_junit(report, strict=strict, checks=asked.checks)
    return {"text": as_text, "json": as_json, "sarif": as_sarif, "markdown": as_markdown}[style](report)


def _ids_in(path: Path) -> frozenset[str]:
    """The ids of the findings of an earlier report.

    Raises:
        TargetError: the file is no report.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(finding["id"] for each in data["interfaces"] for finding in each["findings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TargetError(f"{path} is no report of `audit --format json`: {error}") from error
