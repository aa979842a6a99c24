"""Mutation testing of ``rules`` and ``solver``: small faults, one at a time, that some test must notice.

    python .ci/mutation run --sample 200 --seed 1 -j 2
    python .ci/mutation run --shard 1/4 -j 16 --out build/mutation/1.jsonl
    python .ci/mutation report build/mutation/*.jsonl > docs/mutation.md

Needs the packages of the ``dev`` extra and no network. Nothing is written into the sources: a changed module exists in
the memory of one forked child.
"""

from __future__ import annotations

import fnmatch
import gc
import hashlib
import json
import platform
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import reporting
from covering import TestMap, record
from mutants import Mutant, mutants_of
from project import Project
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from running import Runner, warm_up
from sampling import sample, shard

HERE = Path(__file__).parent


@click.group(help=__doc__.splitlines()[0] if __doc__ else None)
@click.option("--root", type=click.Path(path_type=Path), default=HERE.parents[1], help="Folder of the project.")
@click.option("--config", type=click.Path(path_type=Path), default=HERE / "config.toml", help="Its configuration.")
@click.pass_context
def main(context: click.Context, root: Path, config: Path) -> None:
    """Mutation testing."""
    context.obj = Project.read(root, config)


@main.command()
@click.option("--sample", "size", type=int, help="Ask about this many mutants, of each module its share; else all.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which sample.")
@click.option("--module", "patterns", multiple=True, help="Only files whose path fits this pattern; repeatable.")
@click.option("--shard", "part", default="1/1", show_default=True, help="Part i of n of the mutants, as i/n.")
@click.option("-j", "--jobs", type=int, default=2, show_default=True, help="Mutants at a time.")
@click.option("--most", type=float, default=60, show_default=True, help="Seconds of tests for one mutant.")
@click.option("--minutes", type=float, help="Stop after this long; the same command then goes on.")
@click.option("--survivors", type=click.Path(path_type=Path, exists=True), help="Only those that survived in FILE.")
@click.option("--scratch", type=click.Path(path_type=Path), default=Path("build/mutation"), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Results; SCRATCH/results.jsonl.")
@click.pass_obj
def run(project: Project, **told: Any) -> None:
    """Ask the tests about mutants, and add the results to a file."""
    scratch = (project.root / told["scratch"]).resolve()
    out = told["out"] or scratch / "results.jsonl"
    console = Console(stderr=True)
    for stop in (signal.SIGTERM, signal.SIGINT):  # ignored where a shell started this in the background
        signal.signal(stop, signal.default_int_handler)
    for left in scratch.glob("mutated-*"):
        left.unlink()
    warm_up()
    gc.freeze()
    with bar(console) as progress:
        tests = test_map(project, scratch, told["jobs"], progress, console)
        runner = Runner(project, scratch, tests, told["most"])
        by_module = {
            module: mutants_of(module, runner.source(module), project.effort)
            for module in project.modules()
            if not told["patterns"] or any(fnmatch.fnmatch(module, pattern) for pattern in told["patterns"])
        }
        number, of = map(int, told["part"].split("/"))
        wanted = shard(sample(by_module, told["size"], told["seed"]), number, of)
        if told["survivors"]:
            alive = {each["key"] for each in reporting.read([told["survivors"]]).of("survived")}
            wanted = [mutant for mutants in by_module.values() for mutant in mutants if mutant.key in alive]
        header = {
            "state": hashlib.sha256(json.dumps(tests.state).encode()).hexdigest()[:16],
            "python": platform.python_version(),
            "sample": told["size"],
            "seed": told["seed"],
            "most_s": told["most"],
            "mutants": {module: len(mutants) for module, mutants in by_module.items() if mutants},
            "tests": len(tests.seconds),
            "left_out": tests.left_out,
        }
        done = begin(out, header)
        ask(runner, [mutant for mutant in wanted if mutant.key not in done], out, progress, told)
    console.print(reporting.summary(reporting.read([out])))


def begin(out: Path, header: dict[str, Any]) -> set[str]:
    """Start the file of results, or go on with the one that the same run left; gives the mutants it has."""
    if out.exists():
        first, *rest = out.read_text().splitlines()
        if json.loads(first) == header:
            return {json.loads(line)["key"] for line in rest}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(header) + "\n")
    return set()


def ask(runner: Runner, wanted: list[Mutant], out: Path, progress: Progress, told: dict[str, Any]) -> None:
    """Ask about each mutant, writing every result as it comes."""
    task = progress.add_task("mutants", total=len(wanted))
    deadline = time.monotonic() + told["minutes"] * 60 if told["minutes"] else float("inf")
    killed = count = 0

    def in_time() -> Iterator[Mutant]:
        for mutant in wanted:
            if time.monotonic() > deadline:
                return
            yield mutant

    with out.open("a") as file:
        for result in runner.run(in_time(), told["jobs"], progress.refresh_now):
            file.write(json.dumps(result.told()) + "\n")
            file.flush()
            count += 1
            killed += result.outcome == "killed"
            progress.update(task, advance=1, description=f"mutants, {killed} of {count} killed")


class Bar(Progress):
    """A bar without a thread of its own: this process forks."""

    _last = 0.0

    def refresh_now(self) -> None:
        """Draw it, at most four times a second."""
        if time.monotonic() - self._last > 0.25:
            self._last = time.monotonic()
            self.refresh()


@contextmanager
def bar(console: Console) -> Iterator[Bar]:
    """Show progress, where standard error is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as progress:
        yield progress


def test_map(project: Project, scratch: Path, jobs: int, progress: Bar, console: Console) -> TestMap:
    """The map of tests, recorded anew where sources or tests have changed, and tried without any mutant."""
    path = scratch / "map.json"
    kept = TestMap.read(path) if path.exists() else None
    if kept is not None and kept.state == project.state():
        return kept
    task = progress.add_task("tests recorded", total=None)

    def show(count: int, of: int) -> None:
        progress.update(task, completed=count, total=of)
        progress.refresh_now()

    fresh = record(project, scratch, jobs, kept, show)
    for test in Runner(project, scratch, fresh, float("inf")).unmutated():
        fresh.leave_out(test, "fails without any mutant, after others")
    fresh.write(path)
    for test, why in fresh.left_out.items():
        console.print(f"not asked: {test}: {why.splitlines()[0]}", highlight=False, markup=False, soft_wrap=True)
    return fresh


@main.command("list")
@click.option("--module", "patterns", multiple=True, help="Only files whose path fits this pattern; repeatable.")
@click.pass_obj
def list_mutants(project: Project, patterns: tuple[str, ...]) -> None:
    """Write every mutant, one a line."""
    for module in project.modules():
        if not patterns or any(fnmatch.fnmatch(module, pattern) for pattern in patterns):
            for mutant in mutants_of(module, (project.root / module).read_text(), project.effort):
                click.echo(f"{mutant.line}\t{mutant.key}")


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--reasons", type=click.Path(path_type=Path), default=HERE / "reasons.toml", help="Why survivors do.")
@click.option("--note", default="", help="A further line about the run.")
def report(files: tuple[Path, ...], reasons: Path, note: str) -> None:
    """Write what FILES hold as a page in Markdown; fails where a survivor has no reason."""
    found = reporting.read(files)
    page, missing = reporting.page(found, reporting.Reasons.read(reasons), note)
    click.echo(page)
    for key in missing:
        click.echo(f"no reason: {key}", err=True)
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
