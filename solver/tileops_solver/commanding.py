"""What the commands have in common: exit codes, errors on standard error, a progress bar."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from tileops_solver.allowing import AllowFileError
from tileops_solver.answer import InconsistencyError
from tileops_solver.calls import ValueProblem
from tileops_solver.checks.catalogue import UnknownCheck
from tileops_solver.targets import TargetError

__all__ = [
    "CLEAN",
    "COULD_NOT_RUN",
    "FOUND",
    "INCONSISTENT",
    "INTERRUPTED",
    "OPS_MODULE",
    "PLUGINS",
    "format_option",
    "guarded",
    "look_here_too",
    "progress_bar",
]

CLEAN: Final = 0
FOUND: Final = 1
COULD_NOT_RUN: Final = 2
INCONSISTENT: Final = 3
INTERRUPTED: Final = 130


def format_option(*styles: str) -> Callable[[Any], Any]:
    """The option ``--format``, whose value a command gets as ``style``; the first of *styles* is the default."""
    return click.option(
        "--format",
        "style",
        type=click.Choice(styles),
        default=styles[0],
        show_default=True,
        help="How to write the result.",
    )


OPS_MODULE: Final = click.option(
    "--ops-module",
    default="tileops.ops",
    show_default=True,
    help="Where an OP without a module is looked up.",
)
"""The option ``--ops-module`` of the commands about one op."""

PLUGINS: Final = click.option("--plugins", is_flag=True, help="Count in what installed plug-ins register for the op.")
"""The option ``--plugins`` of the commands about one op."""


def guarded(work: Callable[[], int]) -> int:
    """Run a command and give its exit code; every way to fail has its own."""
    try:
        return work()
    except (TargetError, ValueProblem, AllowFileError, UnknownCheck, ImportError) as error:
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


def look_here_too() -> None:
    """An installed script does not look for modules in the current folder; ``python -m`` does."""
    if "" not in sys.path:
        sys.path.append("")


@contextmanager
def progress_bar() -> Iterator[Any]:
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
