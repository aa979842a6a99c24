"""What each op chooses at every border of every region, held against the limits written out as plain numbers.

The calls come from the rules (``tileops_solver.testing``); what they are to get is stated here once more, by hand,
so that a rule that is changed by mistake does not change its own test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tileops_rules import Selector
from tileops_solver.regions import regions_of
from tileops_solver.report.regions import as_text
from tileops_solver.subject import Subject
from tileops_solver.testing import Case, boundary_calls

import tileops.ops
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeLongContextKernel
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.norm.layer_norm import LayerNormKernel
from tileops.ops.op_base import Op

GOLDEN = Path(__file__).parent / "golden"

DECODE, BS1, LONG = "gqa_dense_decode", "gqa_dense_decode_bs1", "gqa_dense_decode_long_context"
LONG_CONTEXT = {"batch": 1, "heads": 32, "heads_kv": 4, "dim": 128, "dtype": torch.float16, "softcap": 0.0}


def gqa_choice(call: AttentionCall) -> str | None:
    """The contract: decode on SM80, SM89 and SM90, for one sequence on SM90 bs1, from 1,024 keys long-context."""
    decode = (
        call.arch in (80, 89, 90)
        and call.max_seqlen_q == 1
        and call.window_size_left == -1
        and not call.is_fp8
        and not call.fuse_rope
        and call.dtype in (torch.float16, torch.bfloat16)
        and call.dim in (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
        and call.seqlen_kv > 0
        # 64 rows of queries, and two stages of 32 keys and 32 values, of two bytes an element
        and 2 * (64 + 2 * (32 + 32)) * call.dim <= (call.smem_budget or 0)
    )
    if not decode:
        return None
    if call.seqlen_kv > 1023 and all(getattr(call, name) == value for name, value in LONG_CONTEXT.items()):
        return LONG
    return BS1 if call.arch == 90 and call.batch == 1 else DECODE


def layer_norm_choice(call: LayerNormCall) -> str | None:
    """The contract: every row from 1 element to 2**28, on the four archs that are listed."""
    return "layer_norm" if call.arch in (80, 86, 89, 90) and 1 <= call.n <= 268_435_456 else None


BY_HAND: dict[tuple[str, str], Callable[[Any], str | None]] = {
    ("GQADenseFwdOp", "gqa_dense"): gqa_choice,
    ("LayerNormFwdOp", "layer_norm"): layer_norm_choice,
}
FACES = {
    ("GQADenseFwdOp", "gqa_dense"): [
        "arch == 90",
        "arch in (80, 89, 90)",
        "max_seqlen_q == 1",
        "window_size_left == -1",
        "is_fp8 == False",
        "fuse_rope == False",
        "dtype in (torch.bfloat16, torch.float16)",
        "dim >= 16",
        "dim <= 256",
        "dim % 16 == 0",
        "seqlen_kv >= 1",
        "384*dim - smem_budget <= 0",
        "batch == 1",
        "batch != 1",
        "seqlen_kv >= 1024",
        "seqlen_kv <= 1023",
        "heads == 32",
        "heads != 32",
        "heads_kv == 4",
        "heads_kv != 4",
        "dim == 128",
        "dim != 128",
        "dtype == torch.float16",
        "dtype != torch.float16",
        "softcap == 0.0",
        "softcap != 0.0",
    ],
    ("LayerNormFwdOp", "layer_norm"): ["arch in (80, 86, 89, 90)", "n >= 1", "n <= 268435456"],
}
"""The conditions at which the cases stand, so that none is lost without being seen."""

INTERFACES = [
    (op, interface)
    for name in tileops.ops.__all__
    if isinstance(op := getattr(tileops.ops, name), type) and issubclass(op, Op) and op is not Op
    for interface in op.interfaces
]
each_interface = pytest.mark.parametrize(
    ("op", "interface"), INTERFACES, ids=lambda each: getattr(each, "__name__", each)
)


@functools.cache
def cases(op: type[Op], interface: str) -> list[Case]:
    """Asked for when the first test runs: a mistake in a rule then fails these tests and not the collection of all."""
    return boundary_calls(op, interface)


def chosen(op: Op, interface: str, call: Any) -> str | None:
    try:
        return op.key_for(interface, call)
    except ValueError as error:
        if "no implementation serves this call" not in str(error):
            raise
        return None


@each_interface
@pytest.mark.parametrize("platform", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_boundary_call_gets_what_the_rules_say_and_what_the_contract_says(
    op: type[Op], interface: str, platform: str
) -> None:
    by_hand = BY_HAND[op.__name__, interface]
    mine = [case for case in cases(op, interface) if case.platform == platform]
    found = {str(case): chosen(op(), interface, case.call) for case in mine}
    assert found == {str(case): case.expected for case in mine}
    assert found == {str(case): by_hand(case.call) for case in mine}
    assert found, "each platform has cases"


@each_interface
def test_the_cases_stand_at_the_conditions_of_the_contract(op: type[Op], interface: str) -> None:
    faces = {border.face for case in cases(op, interface) for border in case.borders}
    assert faces == set(FACES[op.__name__, interface])
    for face in faces:
        sides = {b.where != "outside" for case in cases(op, interface) for b in case.borders if b.face == face}
        assert sides == {True, False}, face


def test_the_tables_here_are_those_of_the_ops() -> None:
    names = {(op.__name__, interface) for op, interface in INTERFACES}
    assert names == set(BY_HAND) == set(FACES)


@pytest.mark.parametrize(("length", "at"), [(1025, 1024), (1023, 1023)])
def test_a_threshold_that_is_off_by_one_is_seen(monkeypatch: pytest.MonkeyPatch, length: int, at: int) -> None:
    monkeypatch.setattr(GQADecodeLongContextKernel, "long_context", length)
    op = tileops.ops.GQADenseFwdOp
    wrong = [c.call for c in boundary_calls(op, "gqa_dense", archs=[80]) if c.expected != gqa_choice(c.call)]
    assert wrong
    assert {call.seqlen_kv for call in wrong} == {at}


def test_an_arch_that_is_swapped_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerNormKernel, "supported_archs", [80, 86, 90, 100])
    found = boundary_calls(tileops.ops.LayerNormFwdOp, "layer_norm")
    wrong = {case.platform for case in found if case.expected != layer_norm_choice(case.call)}
    assert wrong == {"sm_89", "sm_100"}


@each_interface
def test_who_serves_what_is_as_it_was_reviewed(op: type[Op], interface: str) -> None:
    """A change of a rule shows here, arch by arch, as a change of this file."""
    path = GOLDEN / f"regions-{op.__name__}-{interface}.txt"
    command = f"tileops regions {op.__name__} {interface} > tests/ops/golden/{path.name}"
    text = as_text(regions_of(Subject(Selector.of(op, interface))))
    kept = path.read_text() if path.exists() else ""
    assert text.splitlines() == kept.splitlines(), f"if this is meant, rewrite the file and review it: {command}"


def test_no_golden_file_is_left_of_an_op_that_is_gone() -> None:
    wanted = {f"regions-{op.__name__}-{interface}.txt" for op, interface in INTERFACES}
    assert {path.name for path in GOLDEN.iterdir()} == wanted
