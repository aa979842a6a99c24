"""How the audit grows: time and memory against the number of implementations and of pairs that need the solver.

    python benchmarks/scale.py            # prints a table; exit code 1 where a bound is broken
    python benchmarks/scale.py --quick    # small interfaces only
    python benchmarks/scale.py --write    # also benchmarks/results/scale.json and scale.png (needs matplotlib)

Each measurement is an audit of a generated interface, with every check, in a process of its own: one without
proofs on file and, with the proofs that this one left, the quickest of three more. An audit runs in one thread, so
that its processor time is what it takes on a machine with a core to spare; the time by the clock stands beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = Path(__file__).resolve().parent / "results"
if not __package__:  # run as a script
    sys.path[:0] = [str(ROOT), str(ROOT / "rules"), str(ROOT / "solver")]

from benchmarks.generated_interface import Size, generated_op  # noqa: E402 - found by the lines above

FIELDS: Final = 40
LARGEST: Final = 1000
SHARE: Final = 0.005
"""The share of pairs that need the solver at which the bounds are held."""

AUDIT_S: Final = 60.0
ON_FILE_S: Final = 2.0
PEAK_MIB: Final = 1024.0
WORST_FIT: Final = 0.15
"""How far a measurement at the largest size may be from the fitted line, as a share of the line's value."""

REPEATS: Final = 3
"""Audits with proofs on file, of which the quickest counts: whatever else the machine does makes them slower."""

SIZES: Final = (50, 100, 200, 500, LARGEST)
SHARES: Final = (0.001, 0.0025, SHARE, 0.0075, 0.01)


@dataclasses.dataclass(frozen=True)
class Row:
    """One audit.

    Attributes:
        implementations: Of the interface.
        fields: Of its call.
        pairs: Pairs of non-general implementations.
        solver: Questions that the solver answered.
        cheap: Questions that intervals and sets of values answered.
        on_file: Questions that a proof on file answered.
        cpu_s: Processor time of the audit, imports and generating the interface apart.
        wall_s: The same by the clock.
        peak_mib: Most memory that the process held.
        findings: Findings and undecided questions: none, or something is wrong with the interface.
    """

    implementations: int
    fields: int
    pairs: int
    solver: int
    cheap: int
    on_file: int
    cpu_s: float
    wall_s: float
    peak_mib: float
    findings: int


def audited(size: Size, proofs: str, *, record: bool) -> Row:
    """Audit a generated interface in this process.

    Args:
        size: Of the interface.
        proofs: Folder of the proofs on file.
        record: Write them; otherwise look them up.
    """
    from tileops_solver import audit
    from tileops_solver.proofs.shelf import Shelf

    op = generated_op(size)
    shelf = Shelf(read=not record, records=record, folder=proofs)
    wall, cpu = time.perf_counter(), time.process_time()
    report = audit(op, proofs=shelf)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if record:
        shelf.write()
    totals = report.totals
    return Row(
        implementations=totals.implementations,
        fields=size.fields,
        pairs=sum(totals.pairs.values()),
        **totals.answered,
        cpu_s=round(cpu, 3),
        wall_s=round(wall, 3),
        peak_mib=round(peak_mib(), 1),
        findings=totals.findings + totals.not_proved,
    )


def peak_mib() -> float:
    """Most memory that this process held; what it inherited from its parent is not counted where Linux tells."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(size: Size) -> tuple[Row, Row]:
    """An audit without proofs on file, and the quickest of some with them, each in a process of its own."""
    with tempfile.TemporaryDirectory() as proofs:
        without = _alone(size, proofs, "--record")
        return without, min((_alone(size, proofs) for _ in range(REPEATS)), key=lambda row: row.cpu_s)


def _alone(size: Size, proofs: str, *more: str) -> Row:
    command = [sys.executable, __file__, "--audit", json.dumps(dataclasses.asdict(size)), "--proofs", proofs, *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Row(**json.loads(done.stdout))


# ------------------------------------------------------------------------------------------------------------ bounds


@dataclasses.dataclass(frozen=True)
class Bound:
    """Something that must hold, and what was seen."""

    name: str
    value: float
    most: float
    unit: str

    @property
    def kept(self) -> bool:
        return self.value <= self.most

    def __str__(self) -> str:
        return f"{self.name:<66} {self.value:>9.3f} <= {self.most:g} {self.unit:<4} {'' if self.kept else 'BROKEN'}"


@dataclasses.dataclass(frozen=True)
class Line:
    """Seconds against pairs that need the solver, by least squares."""

    start_s: float
    pair_s: float

    @classmethod
    def through(cls, rows: Sequence[Row]) -> Line:
        count = len(rows)
        mean_x, mean_y = sum(row.solver for row in rows) / count, sum(row.cpu_s for row in rows) / count
        above = sum((row.solver - mean_x) * (row.cpu_s - mean_y) for row in rows)
        slope = above / sum((row.solver - mean_x) ** 2 for row in rows)
        return cls(mean_y - slope * mean_x, slope)

    def at(self, solver: float) -> float:
        return self.start_s + self.pair_s * solver


def bounds(without: Sequence[Row], with_proofs: Sequence[Row]) -> Iterator[Bound]:
    """What the issue asks for, at the largest size."""
    held = [(a, b) for a, b in zip(without, with_proofs, strict=True) if a.implementations == LARGEST]
    asked = [(a, b) for a, b in held if a.solver <= 1.2 * SHARE * a.pairs]
    if not asked:
        return
    at = f"{LARGEST} implementations, {FIELDS} fields, {max(a.solver for a, _ in asked)} solver pairs"
    yield Bound(f"audit, {at}", max(a.cpu_s for a, _ in asked), AUDIT_S, "s")
    yield Bound(f"audit with proofs on file, {at}", max(b.cpu_s for _, b in asked), ON_FILE_S, "s")
    yield Bound("most memory of any audit", max(row.peak_mib for pair in held for row in pair), PEAK_MIB, "MiB")
    yield Bound("findings and undecided questions of any audit", max(a.findings for a, _ in held), 0, "")
    line = Line.through([a for a, _ in held])
    worst = max(abs(a.cpu_s / line.at(a.solver) - 1) for a, _ in held)
    yield Bound("distance of a measurement from the fitted line, as a share of it", worst, WORST_FIT, "")


# ------------------------------------------------------------------------------------------------------------ output


def table(without: Sequence[Row], with_proofs: Sequence[Row]) -> Iterator[str]:
    yield "  impl.    pairs    cheap  solver    cpu s  clock s    MiB  on file, cpu s"
    for a, b in zip(without, with_proofs, strict=True):
        yield (
            f"{a.implementations:>6} {a.pairs:>8} {a.cheap:>8} {a.solver:>7} {a.cpu_s:>8.2f} {a.wall_s:>8.2f} "
            f"{a.peak_mib:>6.0f} {b.cpu_s:>15.2f}"
        )


def environment() -> dict[str, Any]:
    """The machine and the versions."""
    cpu = platform.processor() or platform.machine()
    names = Path("/proc/cpuinfo")
    if names.exists():
        cpu = next((line.split(":")[1].strip() for line in names.read_text().splitlines() if "model name" in line), cpu)
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": f"{cpu}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "z3": importlib.metadata.version("z3-solver"),
        "load": round(os.getloadavg()[0], 1),
    }


def plot(without: Sequence[Row], with_proofs: Sequence[Row], where: dict[str, Any], path: Path) -> None:
    """Processor time against pairs that need the solver, on linear axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5.2), layout="constrained")
    largest = sorted((row for row in without if row.implementations == LARGEST), key=lambda row: row.solver)
    smaller = [row for row in without if row.implementations != LARGEST]
    line = Line.through(largest)
    ends = [0, largest[-1].solver]
    axes.plot(
        ends,
        [line.at(end) for end in ends],
        color="0.6",
        label=f"fitted: {line.start_s:.1f} s + {line.pair_s * 1e3:.1f} ms a pair",
    )
    axes.scatter([r.solver for r in largest], [r.cpu_s for r in largest], label=f"{LARGEST} implementations")
    axes.scatter([r.solver for r in smaller], [r.cpu_s for r in smaller], marker="s", label="fewer implementations")
    for row in smaller[-2:]:
        axes.annotate(f"{row.implementations}", (row.solver, row.cpu_s), xytext=(5, 5), textcoords="offset points")
    on_file = [row.cpu_s for row in with_proofs if row.implementations == LARGEST]
    solver = [row.solver for row in without if row.implementations == LARGEST]
    axes.scatter(solver, on_file, marker="x", label=f"{LARGEST} implementations, proofs on file")
    axes.axhline(AUDIT_S, color="tab:red", linewidth=0.8, linestyle="--")
    axes.annotate(
        f"bound: {AUDIT_S:g} s",
        (largest[-1].solver, AUDIT_S),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        color="tab:red",
    )
    axes.set_xlabel("pairs of implementations that need the solver")
    axes.set_ylabel("processor time of the audit, s")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.1 * max(AUDIT_S, *(row.cpu_s for row in without)))
    axes.set_title(
        f"Audit of a generated interface, every check, {FIELDS} fields\n"
        f"{where['cpu']}, Python {where['python']}, z3 {where['z3']}, {where['date']}",
        fontsize=10,
    )
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.9))
    figure.savefig(path, dpi=110)


def main() -> int:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small interfaces only")
    parser.add_argument("--write", action="store_true", help="write the results and the plot")
    parser.add_argument("--audit", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--proofs", help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.audit is not None:
        print(json.dumps(dataclasses.asdict(audited(Size(**chosen.audit), chosen.proofs, record=chosen.record))))
        return 0
    sizes = [Size(count, FIELDS, SHARE) for count in SIZES if count <= 200 or not chosen.quick]
    if not chosen.quick:
        sizes += [Size(LARGEST, FIELDS, share) for share in SHARES if share != SHARE]
    without, with_proofs = [], []
    for size in sizes:
        plain, quick = measured(size)
        without.append(plain)
        with_proofs.append(quick)
    where = environment()
    found = list(bounds(without, with_proofs))
    print(", ".join(f"{name} {value}" for name, value in where.items()))
    print("\n".join(table(without, with_proofs)))
    print("\n".join(map(str, found)))
    if chosen.write:
        held = [row for row in without if row.implementations == LARGEST]
        data = {
            "where": where,
            "without_proofs": [dataclasses.asdict(row) for row in without],
            "with_proofs": [dataclasses.asdict(row) for row in with_proofs],
            "fit_at_the_largest": dataclasses.asdict(Line.through(held)) if len(held) > 1 else None,
            "bounds": [{**dataclasses.asdict(bound), "kept": bound.kept} for bound in found],
        }
        (RESULTS / "scale.json").write_text(json.dumps(data, indent=1) + "\n")
        plot(without, with_proofs, where, RESULTS / "scale.png")
    return 0 if all(bound.kept for bound in found) else 1


if __name__ == "__main__":
    sys.exit(main())
