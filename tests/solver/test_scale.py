"""Large interfaces: who answers how many questions, and that what is asked grows with what needs asking."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from tileops_rules import Selector
from tileops_solver import Finding, Report, audit, z3_backend
from tileops_solver.report.text import as_text
from tileops_solver.subject import Subject

from benchmarks import scale
from benchmarks.generated_interface import FEWEST_FIELDS, Size, generated_op, source
from tests.speed import LIFTING_SLOWER, holds_within

MEMBERS = 5
"""Members of a group in the small interface; of these, the pairs that are no neighbours need the solver."""


def small(implementations: int) -> Size:
    size = Size(implementations, 40, (MEMBERS - 1) * (MEMBERS - 2) / MEMBERS / implementations)
    assert size.group == MEMBERS
    return size


@pytest.fixture(scope="module")
def report() -> Report:
    return audit(generated_op(small(60)), select=["overlap"])


def test_a_generated_interface_is_clean_under_every_check() -> None:
    found = audit(generated_op(Size(24, FEWEST_FIELDS, 0.05)))
    failing = [finding for finding in found.findings if finding.fails]
    assert failing == []
    assert found.totals.not_proved == 0
    assert found.totals.not_lifted == 0


def test_the_cheap_test_answers_first_and_says_how_much(report: Report) -> None:
    (each,) = report.interfaces
    pairs, answered = each.pairs, each.answered
    asked = pairs.disjoint + pairs.overlapping + pairs.undecided
    assert asked + pairs.ordered == 59 * 58 // 2
    assert (pairs.overlapping, pairs.undecided) == (0, 0)
    assert answered.cheap + answered.solver == asked
    assert answered.cheap >= 0.95 * asked
    assert f"{asked} questions: {answered.cheap} by intervals and sets, {answered.solver} by the solver" in as_text(
        report
    )


def test_the_solver_is_asked_about_as_many_pairs_as_were_made_for_it(report: Report) -> None:
    """Of five members of a group, six pairs are no neighbours; the last group is cut short."""
    groups = 59 // MEMBERS
    assert (groups - 1) * 6 <= report.totals.answered.solver <= (groups + 1) * 6


def test_twice_the_implementations_are_four_times_the_pairs_and_twice_the_questions(report: Report) -> None:
    half = audit(generated_op(small(30)), select=["overlap"])
    assert sum(report.totals.pairs.values()) > 4 * sum(half.totals.pairs.values())
    assert 1.6 <= report.totals.answered.solver / half.totals.answered.solver <= 2.4


def test_what_may_meet_is_little_more_than_a_group() -> None:
    selector = Selector.of(generated_op(small(60)), "face")
    subject = Subject(selector)
    for key in selector.keys:
        partners = set(subject.may_meet(key)) - {"general"}
        assert key == "general" or all(partner.split("_")[0] == key.split("_")[0] for partner in partners)
    assert subject.may_meet("general") == tuple(key for key in selector.keys if key != "general")


def test_an_overlap_in_a_large_interface_is_found() -> None:
    op = generated_op(small(60))
    kinds = {key: kind for key, kind in op.kernel_types.items() if key.startswith("g1_")}
    first, second = sorted(kinds)[:2]
    widened = type("Widened", (kinds[second],), {"refusal": classmethod(lambda cls, call: kinds[first].refusal(call))})
    changed = type("ChangedOp", (), {"interfaces": op.interfaces, "kernel_types": {**op.kernel_types, second: widened}})
    found: list[Finding] = [f for f in audit(changed, select=["overlap"]).findings if f.kind == "overlap"]
    assert (first, second) in [f.keys for f in found]
    assert all(second in f.keys for f in found)


def test_the_same_size_gives_the_same_interface_and_another_seed_another() -> None:
    assert source(Size(20)) == source(Size(20))
    assert source(Size(20)) != source(Size(20, seed=1))
    assert len(generated_op(Size(17)).kernel_types) == 17
    assert generated_op(Size(8, 25)).interfaces["face"].request.__dataclass_fields__.keys() >= {"arch", "dtype"}
    assert len(generated_op(Size(8, 25)).interfaces["face"].request.__dataclass_fields__) == 25
    with pytest.raises(ValueError, match="are fewer than"):
        source(Size(8, FEWEST_FIELDS - 1))


def test_a_question_lets_go_of_its_solver_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context is 10 MB: a thousand of them that wait for the collector do not fit."""
    z3 = z3_backend.load()
    made: list[weakref.ref[Any]] = []

    class Context(z3.Context):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            made.append(weakref.ref(self))

    monkeypatch.setattr(z3, "Context", Context)
    selector = Selector.of(generated_op(small(30)), "face")
    subject = Subject(selector)
    keys = [key for key in selector.keys if key.startswith("g1_m")]
    gc.collect()
    gc.disable()
    try:
        for key in keys:
            subject.find([subject.lifted[key]], [key])
            subject.find([subject.lifted[keys[0]], subject.lifted[key]])
        left = [ref for ref in made if ref() is not None]
    finally:
        gc.enable()
    assert len(made) > len(keys)
    assert left == []


def test_a_line_is_fitted_by_least_squares_and_a_broken_bound_is_told() -> None:
    def row(solver: int, cpu_s: float) -> scale.Row:
        return scale.Row(scale.LARGEST, 40, 498_501, solver, 0, 0, cpu_s, cpu_s, 100.0, 0)

    line = scale.Line.through([row(0, 10.0), row(1000, 15.0), row(2000, 20.0)])
    assert (line.start_s, line.pair_s) == (pytest.approx(10.0), pytest.approx(0.005))
    rows = [row(500, 12.5), row(2000, 20.0)]
    assert all(bound.kept for bound in scale.bounds(rows, [row(0, 1.0), row(0, 1.5)]))
    for without, with_proofs in (
        ([row(500, 12.5), row(2000, 61.0)], [row(0, 1.0)] * 2),
        (rows, [row(0, 1.0), row(0, 2.5)]),
    ):
        assert not all(bound.kept for bound in scale.bounds(without, with_proofs))
    assert list(scale.bounds([], [])) == []


@pytest.mark.nightly
def test_a_thousand_implementations_are_audited_within_the_bounds() -> None:
    size = Size(scale.LARGEST, scale.FIELDS, scale.SHARE)
    without, with_proofs = scale.measured(size)
    assert without.findings == with_proofs.findings == 0
    assert without.solver >= 0.9 * scale.SHARE * without.pairs
    assert without.cheap >= 0.99 * without.pairs
    assert with_proofs.solver == 0
    holds_within(scale.AUDIT_S, lambda: scale.measured(size)[0].cpu_s)
    assert max(without.peak_mib, with_proofs.peak_mib) <= scale.PEAK_MIB
    holds_within(scale.ON_FILE_S * LIFTING_SLOWER, lambda: scale.measured(size)[1].cpu_s)


@pytest.mark.nightly
def test_the_benchmark_of_small_interfaces_runs() -> None:
    script = Path(scale.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script), "--quick"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 5
