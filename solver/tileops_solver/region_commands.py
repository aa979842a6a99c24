"""The commands ``regions`` and ``cases``: who serves what, and the calls at the borders."""

from __future__ import annotations

from typing import Final

import click

from tileops_solver.bordering import MOST_CASES, cases_of
from tileops_solver.commanding import CLEAN, OPS_MODULE, PLUGINS, format_option, guarded, look_here_too
from tileops_solver.regions import regions_of
from tileops_solver.report import cases, regions
from tileops_solver.streams import standard_output_kept
from tileops_solver.subject import Subject
from tileops_solver.targets import op_named, selector_of

__all__ = ["cases_command", "regions_command"]

_REGIONS: Final = """Say who serves what, arch by arch.

For each implementation, and each arch or other device, the calls for which it is chosen: a formula that holds for
them among the valid calls, and the smallest one, or never. Then what the interface declares that nobody serves,
and the gap: the calls that nobody serves and that are not declared. The same rules give the same text: keep it in a
file, and a test that compares shows every change of a rule for review.

OP is the name of an op class, or module:Class.
"""

_CASES: Final = """List the calls at the borders of every region.

For each implementation, and each arch or other device: for each condition that bounds what it serves, or what it
is chosen for, the calls just inside, on and just outside, with the implementation that gets them. The same as
tileops_solver.testing.boundary_calls for tests.

OP is the name of an op class, or module:Class.
"""

_EXIT_CODES: Final = """
\b
Exit codes:
  0  written
  2  could not run: unknown op or interface, or z3 is missing
  3  solver, rules and original functions do not agree: an error in this tool
"""

_ARCH = click.option(
    "--arch", "archs", type=int, multiple=True, metavar="N", help="Only CUDA devices of this arch, as 90; repeatable."
)


@click.command("regions", help=_REGIONS + _EXIT_CODES)
@click.argument("op", metavar="OP")
@click.argument("interface")
@format_option("text", "json", "markdown")
@_ARCH
@OPS_MODULE
@PLUGINS
@click.pass_context
def regions_command(
    ctx: click.Context, op: str, interface: str, style: str, archs: tuple[int, ...], ops_module: str, plugins: bool
) -> None:
    """Say who serves what, arch by arch."""
    ctx.exit(guarded(lambda: _regions(style, _subject(op, interface, archs, ops_module, plugins))))


@click.command("cases", help=_CASES + _EXIT_CODES)
@click.argument("op", metavar="OP")
@click.argument("interface")
@format_option("text", "json")
@_ARCH
@click.option(
    "--most", type=click.IntRange(1), default=MOST_CASES, show_default=True, help="Stop after this many cases."
)
@OPS_MODULE
@PLUGINS
@click.pass_context
def cases_command(
    ctx: click.Context,
    op: str,
    interface: str,
    style: str,
    archs: tuple[int, ...],
    most: int,
    ops_module: str,
    plugins: bool,
) -> None:
    """List the calls at the borders of every region."""
    ctx.exit(guarded(lambda: _cases(style, most, _subject(op, interface, archs, ops_module, plugins))))


def _regions(style: str, subject: Subject) -> int:
    with standard_output_kept():
        found = regions_of(subject)
    write = {"text": regions.as_text, "json": regions.as_json, "markdown": regions.as_markdown}[style]
    click.echo(write(found), nl=False)
    return CLEAN


def _cases(style: str, most: int, subject: Subject) -> int:
    with standard_output_kept():
        found = cases_of(subject, most=most)
    click.echo(cases.as_json(found) if style == "json" else cases.as_text(found), nl=False)
    return CLEAN


def _subject(op: str, interface: str, archs: tuple[int, ...], ops_module: str, plugins: bool) -> Subject:
    look_here_too()
    with standard_output_kept():
        selector = selector_of(op_named(op, ops_module, plugins=plugins), interface)
    return Subject(selector, archs=archs or None)
