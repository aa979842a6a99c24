"""The command ``plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tileops_solver.calls import ValueProblem, asked_call
from tileops_solver.commanding import CLEAN, OPS_MODULE, PLUGINS, guarded, look_here_too
from tileops_solver.coverage_map import CoverageMap
from tileops_solver.plotting import drawn
from tileops_solver.streams import standard_output_kept
from tileops_solver.targets import op_named, selector_of

__all__ = ["plot_command"]

_PLOT: Final = """Draw which implementation is chosen over two fields.

OP is the name of an op class, or module:Class. The two fields are integers or have few values; every other
field stands at its default or where FIELD=VALUE puts it, and the title says where. Edges are those of the
rules. State arch=90 to ask about a CUDA device of that arch, whatever this machine has.

\b
Exit codes:
  0  drawn; the last line is the name of the file
  2  could not run: unknown op, interface or field, a value that is not accepted, no matplotlib, or a file that
     cannot be written
"""


@click.command("plot", help=_PLOT)
@click.argument("op", metavar="OP")
@click.argument("interface")
@click.argument("values", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option("--x", "x", required=True, metavar="FIELD", help="The horizontal axis.")
@click.option("--y", "y", required=True, metavar="FIELD", help="The vertical axis.")
@click.option("--x-range", nargs=2, type=int, metavar="LO HI", help="Where it begins and ends.")
@click.option("--y-range", nargs=2, type=int, metavar="LO HI", help="Where it begins and ends.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default=Path("coverage.png"),
    show_default=True,
    help="The picture; its ending says the format (png, svg, pdf).",
)
@OPS_MODULE
@PLUGINS
@click.pass_context
def plot_command(
    ctx: click.Context,
    op: str,
    interface: str,
    values: tuple[str, ...],
    x: str,
    y: str,
    x_range: tuple[int, int] | None,
    y_range: tuple[int, int] | None,
    output: Path,
    ops_module: str,
    plugins: bool,
) -> None:
    """Draw which implementation is chosen over two fields."""

    def work() -> int:
        look_here_too()
        with standard_output_kept():
            kind = op_named(op, ops_module, plugins=plugins)
            selector = selector_of(kind, interface)
            _refuse_fixed_axes(values, x, y)
            call = asked_call(kind, selector, values)
            picture = drawn(CoverageMap(selector, x, y, call, x_range=x_range, y_range=y_range))
            try:
                picture.savefig(output, dpi=150)
            except (OSError, ValueError) as error:  # the latter where the ending is that of no format
                raise ValueProblem(f"{output} cannot be written: {error}") from error
        click.echo(str(output))
        return CLEAN

    ctx.exit(guarded(work))


def _refuse_fixed_axes(values: tuple[str, ...], x: str, y: str) -> None:
    for text in values:
        if text.partition("=")[0] in (x, y):
            raise ValueProblem(f"{text} fixes an axis: leave it out, or name another field for the axis")
