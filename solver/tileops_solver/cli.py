"""The commands: ``audit`` and ``explain``.

``python -m tileops_solver`` has both; the ``tileops`` command takes them from here. They need neither torch
nor tileops, except that ``explain`` looks a bare op name up in the module that its option names.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from tileops_solver.streams import standard_output_kept

__all__ = ["audit_command", "explain_command", "main"]

CLEAN: Final = 0
FOUND: Final = 1
COULD_NOT_RUN: Final = 2
INCONSISTENT: Final = 3
INTERRUPTED: Final = 130

_FORMAT = click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to write the result.",
)


_AUDIT: Final = """Prove that no call is claimed by two implementations without a declared winner.

TARGET is a module, walked with its sub-modules for classes that have kernel_types and interfaces, or
module:Class.

The last line of the text, `not proved: N`, counts undecided pairs and rules that could not be lifted:
where N is not 0, no finding is no proof.

\b
Exit codes:
  0  no findings (with --strict: and everything proved)
  1  findings
  2  could not run: a target cannot be read, or z3 is missing
  3  solver, rules and original functions do not agree: an error in this tool
"""

_EXPLAIN: Final = """Say which implementation a call gets, and what every other one said.

OP is the name of an op class, or module:Class. A FIELD is one of its call spec's; those that are not
stated stand at their default. Values are Python literals, dtypes by name (float16), devices as torch
writes them (cuda:0, cpu). State arch=90 to ask about a CUDA device of that arch, whatever this machine
has.

\b
Exit codes:
  0  explained
  2  could not run: unknown op, interface or field, or a value that is not accepted
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Prove that kernel selection rules do not clash, and explain what they choose."""


@main.command("audit", help=_AUDIT)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@_FORMAT
@click.option("--strict", is_flag=True, help="Exit with 1 where anything is not proved.")
@click.pass_context
def audit_command(ctx: click.Context, targets: tuple[str, ...], style: str, strict: bool) -> None:
    """Prove that no call is claimed by two implementations without a declared winner."""
    ctx.exit(_guarded(lambda: _audit(targets, style, strict)))


@main.command("explain", help=_EXPLAIN)
@click.argument("op", metavar="OP")
@click.argument("interface")
@click.argument("values", metavar="[FIELD=VALUE]...", nargs=-1)
@_FORMAT
@click.option(
    "--ops-module",
    default="tileops.ops",
    show_default=True,
    help="Where an OP without a module is looked up.",
)
@click.pass_context
def explain_command(
    ctx: click.Context, op: str, interface: str, values: tuple[str, ...], style: str, ops_module: str
) -> None:
    """Say which implementation a call gets, and what every other one said."""
    ctx.exit(_guarded(lambda: _explain(op, interface, values, style, ops_module)))


def _guarded(work: Callable[[], int]) -> int:
    """Run a command; every way to fail has its own exit code."""
    from tileops_solver.answer import InconsistencyError
    from tileops_solver.calls import ValueProblem
    from tileops_solver.targets import TargetError

    try:
        return work()
    except (TargetError, ValueProblem) as error:
        click.echo(f"error: {error}", err=True)
    except ImportError as error:
        click.echo(f"error: {error}", err=True)
    except InconsistencyError as error:
        click.echo(f"inconsistency: {error}", err=True)
        return INCONSISTENT
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - an uncaught one would exit with 1, which means findings
        click.echo(traceback.format_exc(), err=True, nl=False)
        click.echo(f"error: could not finish: {type(error).__name__}: {error}", err=True)
    return COULD_NOT_RUN


def _audit(targets: tuple[str, ...], style: str, strict: bool) -> int:
    from tileops_solver.auditing import audit
    from tileops_solver.report.json import as_json
    from tileops_solver.report.text import as_text
    from tileops_solver.targets import named

    _look_here_too()
    with standard_output_kept(), _progress_bar() as progress:
        report = audit([named(target) for target in targets], progress=progress)
    if not report.interfaces:
        click.echo(f"nothing to audit: no class with kernel_types and interfaces in {', '.join(targets)}", err=True)
    click.echo(as_json(report) if style == "json" else as_text(report), nl=False)
    if report.totals.findings:
        return FOUND
    return FOUND if strict and report.totals.not_proved else CLEAN


def _explain(op: str, interface: str, values: tuple[str, ...], style: str, ops_module: str) -> int:
    from tileops_solver.explaining import explain_call

    _look_here_too()
    with standard_output_kept():
        explained = explain_call(op if ":" in op else f"{ops_module}:{op}", interface, values)
    click.echo(json.dumps(explained.as_json(), indent=2) if style == "json" else str(explained))
    return CLEAN


def _look_here_too() -> None:
    """An installed script does not look for modules in the current folder; ``python -m`` does."""
    if "" not in sys.path:
        sys.path.append("")


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """A progress callback that draws a bar on standard error where that is a terminal, else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("audit", total=None)

        def step(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield step
