"""The ``tileops`` command: a table of subcommands, each imported when it is run.

``tileops --help`` reads the table alone, so it needs neither torch nor z3 nor TileLang.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import click

import tileops

__all__ = ["COMMANDS", "Subcommand", "main"]


@dataclass(frozen=True)
class Subcommand:
    """Where a subcommand lives, and its line in ``tileops --help``.

    Attributes:
        target: ``module:attribute`` of a click command.
        summary: One line without a full stop.
    """

    target: str
    summary: str

    def load(self) -> click.Command:
        """Import the command.

        Raises:
            TypeError: The target is no click command.
        """
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is {command!r}, not a click command; correct tileops.cli.COMMANDS")
        return command


COMMANDS: dict[str, Subcommand] = {
    "audit": Subcommand(
        "tileops_solver.audit_command:audit_command", "Prove that no call is claimed twice without a winner"
    ),
    "cases": Subcommand("tileops_solver.region_commands:cases_command", "List the calls at the borders of regions"),
    "demo": Subcommand("tileops.demo:command", "Run LayerNorm and GQA decode on the best device here"),
    "diff": Subcommand("tileops_solver.snapshot_commands:diff_command", "Say which calls changed implementation"),
    "doctor": Subcommand("tileops.doctor:command", "Say what this machine has and lacks, and what can run on it"),
    "explain": Subcommand("tileops_solver.explain_command:explain_command", "Say which kernel a call gets, and why"),
    "plot": Subcommand("tileops_solver.plot_command:plot_command", "Draw which kernel is chosen over two fields"),
    "regions": Subcommand("tileops_solver.region_commands:regions_command", "Say who serves what, arch by arch"),
    "snapshot": Subcommand(
        "tileops_solver.snapshot_commands:snapshot_command", "Write the rules of all ops as one sorted text"
    ),
}


class _LazyGroup(click.Group):
    """A group whose subcommands are the rows of :data:`COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        try:
            return row.load()
        except ModuleNotFoundError as error:
            raise click.UsageError(
                f"{cmd_name} needs {error.name}, which is not installed; "
                "pip install it, or see what this machine lacks with: tileops doctor"
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tileops.__version__, prog_name="tileops")
def main() -> None:
    """Kernels whose choice is proved: audit it, ask why, run it."""
