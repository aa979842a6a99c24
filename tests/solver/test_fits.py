"""Shared memory and threads of a block: proved to fit for every served call, or refuted with one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import OneOf, Range
from tileops_rules.archs import KNOWN_ARCHS, LEAST_SMEM_BYTES, MOST_THREADS
from tileops_solver import audit
from tileops_solver.findings import Finding, Report, Severity

TILE_BYTES = 32 * 1024
NEEDED = {1: 128, 2: 256}


@dataclass(frozen=True)
class TileCall:
    stages: Annotated[int, Range(0, 9)] = 1
    lanes: Annotated[int, Range(1, 40)] = 4
    device: str = "cuda"
    arch: int = 90


@dataclass(frozen=True)
class BudgetCall:
    stages: Annotated[int, Range(0, 9)] = 1
    arch: Annotated[int, OneOf(80, 89, 90)] = 90
    smem_budget: int | None = None


class TileInterface:
    request: type = TileCall


def op(body: Any, request: type = TileCall, **members: Any) -> type:
    face = type("Face", (TileInterface,), {"request": request})
    kernel = type("Tiled", (face,), {**members, **{name: classmethod(f) for name, f in body.items()}})
    return type("TileOp", (), {"kernel_types": {"tiled": kernel}, "interfaces": {"tile": face}})


def fits(target: Any) -> Report:
    return audit(target, select=["fits"])


def findings(target: Any) -> tuple[Finding, ...]:
    return fits(target).findings


def test_a_hopper_sized_tile_is_found_on_the_archs_with_less_shared_memory() -> None:
    found = findings(op({"block_smem_bytes": lambda cls, call: 6 * TILE_BYTES}, supported_archs=[80, 89, 90]))
    assert [(f.kind, f.severity, f.subject) for f in found] == [
        ("fits", Severity.ERROR, "shared memory of sm_80"),
        ("fits", Severity.ERROR, "shared memory of sm_89"),
    ]
    assert found[1].witness == TileCall(arch=89)
    assert found[1].facts == {"taken": 6 * TILE_BYTES, "most": 99 * 1024}


def test_the_smallest_number_of_stages_that_does_not_fit_is_the_witness() -> None:
    found = findings(op({"block_smem_bytes": lambda cls, call: call.stages * TILE_BYTES}, supported_archs=[80, 90]))
    assert [(f.witness.arch, f.witness.stages) for f in found] == [(80, 6), (90, 8)]


def test_a_rule_that_reads_the_same_statement_is_proved() -> None:
    def smem(cls: Any, call: Any) -> int:
        return call.stages * TILE_BYTES

    def refusal(cls: Any, call: Any) -> str | None:
        budget = KNOWN_ARCHS[call.arch].smem_budget
        return None if cls.block_smem_bytes(call) <= budget else "does not fit"

    def off_by_one_stage(cls: Any, call: Any) -> str | None:
        budget = KNOWN_ARCHS[call.arch].smem_budget
        return None if cls.block_smem_bytes(call) <= budget + TILE_BYTES else "does not fit"

    assert findings(op({"block_smem_bytes": smem, "refusal": refusal}, supported_archs=[80, 86, 89, 90])) == ()
    assert findings(op({"block_smem_bytes": smem, "refusal": off_by_one_stage}, supported_archs=[80, 86, 89, 90]))


@pytest.mark.parametrize("warps", [32, 33])
def test_a_block_has_at_most_1024_threads(warps: int) -> None:
    found = findings(op({"block_threads": lambda cls, call: 32 * min(call.lanes, warps)}, supported_archs=[90]))
    assert [f.witness.lanes for f in found] == ([] if warps == 32 else [33])
    assert MOST_THREADS == 1024


def test_a_block_without_threads_and_a_need_that_raises_are_found() -> None:
    none = findings(op({"block_threads": lambda cls, call: 128 * call.stages}, supported_archs=[90]))
    assert [(f.witness.stages, f.facts["taken"]) for f in none] == [(0, 0)]

    def picky(cls: Any, call: Any) -> int:
        return NEEDED[call.stages]

    raised = findings(op({"block_threads": picky}, supported_archs=[90]))
    assert [f.kind for f in raised] == ["fits"]
    assert "raised KeyError" in raised[0].message


def test_a_stated_budget_below_the_arch_counts_and_one_above_does_not() -> None:
    def by_budget(cls: Any, call: Any) -> int:
        budget = call.smem_budget if call.smem_budget is not None else KNOWN_ARCHS[call.arch].smem_budget
        return 3 * TILE_BYTES if budget >= 3 * TILE_BYTES else TILE_BYTES

    def deaf(cls: Any, call: Any) -> int:
        return 3 * TILE_BYTES

    assert findings(op({"block_smem_bytes": by_budget}, BudgetCall)) == ()
    found = findings(op({"block_smem_bytes": deaf}, BudgetCall))
    assert {f.subject for f in found} == {f"shared memory of sm_{arch}" for arch in (80, 89, 90)}
    assert all(LEAST_SMEM_BYTES <= f.witness.smem_budget < 3 * TILE_BYTES for f in found)


def test_what_is_not_stated_is_a_note_and_what_is_not_lifted_is_undecided() -> None:
    silent = fits(op({"block_smem_bytes": lambda cls, call: None if call.stages else 0}, supported_archs=[90]))
    assert [(f.kind, f.severity, f.witness) for f in silent.findings] == [("unstated", Severity.NOTE, None)]
    assert silent.totals.findings == 0
    assert silent.totals.notes == 1

    unlifted = fits(op({"block_threads": lambda cls, call: int(f"{call.lanes:d}")}, supported_archs=[90]))
    assert unlifted.findings == ()
    assert [(u.check, u.keys, u.subject) for u in unlifted.interfaces[0].undecided] == [("fits", ("tiled",), "threads")]
    assert unlifted.totals.not_proved == 1


def test_shared_memory_of_an_arch_that_no_table_knows_is_undecided() -> None:
    report = fits(op({"block_smem_bytes": lambda cls, call: 1}, supported_archs=[103]))
    assert report.findings == ()
    assert "no shared memory of a block is known for sm_103" in report.interfaces[0].undecided[0].reason


def test_every_finding_and_every_absence_is_what_enumeration_says() -> None:
    """All calls of a small domain, for needs and limits that cross in many ways."""

    @dataclass(frozen=True)
    class Small:
        a: Annotated[int, Range(-2, 6)] = 1
        mode: Literal["x", "y"] = "x"
        arch: Annotated[int, OneOf(80, 89, 90)] = 90

    for factor, offset, limit, modulus in itertools.product((9_000, 29_000, 58_000), (0, 30_000), (2, 4, 6), (1, 2)):

        def smem(cls: Any, call: Any, f: int = factor, o: int = offset, m: int = modulus) -> int:
            return f * call.a + (o if call.mode == "y" else 0) if call.a % m == 0 else 100

        def refusal(cls: Any, call: Any, most: int = limit) -> str | None:
            return None if 0 <= call.a <= most else "no"

        found = {f.witness.arch for f in findings(op({"block_smem_bytes": smem, "refusal": refusal}, Small))}
        expected = {
            arch
            for a, mode, arch in itertools.product(range(-2, 7), "xy", (80, 89, 90))
            if 0 <= a <= limit and smem(None, Small(a, mode, arch)) > KNOWN_ARCHS[arch].smem_budget  # type: ignore[arg-type]
        }
        assert found == expected
