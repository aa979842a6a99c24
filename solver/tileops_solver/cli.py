"""The commands of the proofs, each in a module of its own; ``python -m tileops_solver`` has them all.

The ``tileops`` command takes them from there. They need neither torch nor tileops, except that a bare op name is
looked up in the module that an option names.
"""

from __future__ import annotations

import click

from tileops_solver.audit_command import audit_command
from tileops_solver.explain_command import explain_command
from tileops_solver.plot_command import plot_command
from tileops_solver.region_commands import cases_command, regions_command
from tileops_solver.snapshot_commands import diff_command, snapshot_command

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Prove that kernel selection rules do not clash, and explain what they choose."""


for command in (
    audit_command,
    cases_command,
    diff_command,
    explain_command,
    plot_command,
    regions_command,
    snapshot_command,
):
    main.add_command(command)
