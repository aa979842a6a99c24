"""The command ``explain``."""

from __future__ import annotations

import json
from typing import Final

import click

from tileops_solver.commanding import CLEAN, OPS_MODULE, PLUGINS, format_option, guarded, look_here_too
from tileops_solver.explaining import explain_call
from tileops_solver.streams import standard_output_kept
from tileops_solver.targets import named, op_named

__all__ = ["explain_command"]

_EXPLAIN: Final = """Say which implementation a call gets, and what every other one said.

OP is the name of an op class, or module:Class. A FIELD is one of its call spec's; those that are not
stated stand at their default. Values are Python literals, dtypes by name (float16), devices as torch
writes them (cuda:0, cpu). State arch=90 to ask about a CUDA device of that arch, whatever this machine
has. Where no implementation serves the call, the nearest one that is served is shown too.

\b
Exit codes:
  0  explained
  2  could not run: unknown op, interface or field, or a value that is not accepted
"""


@click.command("explain", help=_EXPLAIN)
@click.argument("op", metavar="OP")
@click.argument("interface")
@click.argument("values", metavar="[FIELD=VALUE]...", nargs=-1)
@format_option("text", "json")
@OPS_MODULE
@PLUGINS
@click.option(
    "--import",
    "imported",
    multiple=True,
    metavar="MODULE",
    help="Import it first, and count in what it registers; may be repeated.",
)
@click.pass_context
def explain_command(
    ctx: click.Context,
    /,
    op: str,
    interface: str,
    values: tuple[str, ...],
    style: str,
    ops_module: str,
    plugins: bool,
    imported: tuple[str, ...],
) -> None:
    """Say which implementation a call gets, and what every other one said."""

    def explain() -> int:
        look_here_too()
        with standard_output_kept():
            for module in imported:
                named(module)
            explained = explain_call(op_named(op, ops_module), interface, values, plugins=plugins or bool(imported))
        click.echo(json.dumps(explained.as_json(), indent=2) if style == "json" else str(explained))
        return CLEAN

    ctx.exit(guarded(explain))
