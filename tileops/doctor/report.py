"""``tileops doctor``."""

from __future__ import annotations

import json

import click

from tileops.doctor.diagnosis import Diagnosis, Status

__all__ = ["command", "render"]

_STYLES = {Status.OK: "green", Status.MISSING: "yellow", Status.BROKEN: "bold red"}


def render(diagnosis: Diagnosis, width: int | None = None) -> str:
    """Return *diagnosis* as text for a terminal, *width* columns wide (the terminal's by default)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width, highlight=False)
    machine = Table("", "status", "found", title="This machine", title_justify="left")
    for probe in diagnosis.probes:
        found = Text(probe.found)
        if probe.advice:
            found.append(f"\n→ {probe.advice}", style="italic")
        machine.add_row(probe.name, Text(probe.status.value, style=_STYLES[probe.status]), found)
    table = Table(title="Implementations", title_justify="left")
    for heading in ("op", "interface", "key", "runs here"):
        table.add_column(heading, overflow="fold")
    for each in diagnosis.implementations:
        verdict = Text("yes: " if each.runs else "no: ", style="green" if each.runs else "yellow")
        table.add_row(each.op, each.interface, each.key, verdict.append(each.reason, style="default"))
    with console.capture() as captured:
        console.print(machine)
        console.print(table)
    return captured.get()


@click.command("doctor")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", help="Text by default.")
@click.pass_context
def command(context: click.Context, style: str) -> None:
    """Say what this machine has and lacks, and which implementations can run on it.

    Exit codes: 0 nothing is broken (something may be missing), 1 something is broken.
    """
    from tileops.doctor.examination import examine

    diagnosis = examine()
    if style == "json":
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        click.echo(render(diagnosis), nl=False)
        broken, running = len(diagnosis.broken), sum(each.runs for each in diagnosis.implementations)
        click.echo(f"{running} of {len(diagnosis.implementations)} implementations can run here; broken: {broken}")
    context.exit(1 if diagnosis.broken else 0)
