"""The harness of the boundary calls on a GPU, with the CPU reference in the place of the launch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tileops_rules import Selector, fields
from tileops_solver.testing import Border, Case, boundary_calls

import tileops.reference
from tests.kernels import row_support
from tests.kernels.row_support import ROW_NORMS, listed
from tests.ops import test_boundary_gpu
from tests.ops.boundary_channels import CHANNEL_RUNS
from tests.ops.boundary_runs import RUNS, bytes_of, fitting, on_device, run, serving_keys
from tests.ops.test_boundary_gpu import OPS as EVERY_OP
from tests.ops.test_boundary_gpu import accepted_on
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import MANY_KEYS
from tileops.kernels.device_facts import DeviceFacts
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.norm.row_launches import CUT_ROW, SHORT_ROW

OPS = {name: op for name, op in EVERY_OP.items() if name not in CHANNEL_RUNS}
CPU = torch.device("cpu")
SM90 = DeviceFacts(90, 132, 232448)
LARGEST = 2**28
"""Bytes that a call may take here."""
REFERENCE = {interface: f"reference_{interface}" for interface in OPS}

AT_LENGTH = [
    pytest.param(name, marks=[] if name in ("gqa_dense", "layer_norm") else pytest.mark.nightly) for name in OPS
]
"""The ops whose boundary calls are all looked for; those of the other row normalizations are much the same."""


def accepted(interface: str) -> tuple[Case, ...]:
    """The boundary calls of the card that is played below."""
    return accepted_on(interface, SM90)


def row_call(n: int, dtype: torch.dtype = torch.float16) -> LayerNormCall:
    return LayerNormCall(n=n, dtype=dtype, device=CPU)


@pytest.mark.parametrize("interface", AT_LENGTH)
def test_every_accepted_call_of_sm90_is_made_run_and_compared_by_the_reference(interface: str) -> None:
    tileops.reference.install()
    op = OPS[interface]()
    left_out = []
    for case in accepted(interface):
        call = on_device(case.call, CPU)
        if bytes_of(interface, call) > LARGEST:
            left_out.append(call)
            continue
        assert serving_keys(op, interface, call) == (REFERENCE[interface],)
        run(op, interface, REFERENCE[interface], call)
    if interface == "gqa_dense":
        assert {call.seqlen_kv for call in left_out} <= {MANY_KEYS, MANY_KEYS - 1}
    else:
        assert {call.n for call in left_out} == {2**28, 2**28 - 1}
    assert len(accepted(interface)) > len(left_out)


@pytest.mark.parametrize("interface", AT_LENGTH)
def test_every_boundary_call_of_a_cpu_runs_too(interface: str) -> None:
    tileops.reference.install()
    op = OPS[interface]()
    selector = Selector.of(op, interface)
    here = fields(selector.spec, domain=selector.domain).device.type == "cpu"
    mine = [case for case in boundary_calls(op, interface, within=here) if case.expected is not None]
    assert {case.platform for case in mine} == {"cpu"}
    for case in mine:
        run(op, interface, REFERENCE[interface], on_device(case.call, CPU))


@pytest.mark.parametrize("dtype", row_support.DTYPES)
@pytest.mark.parametrize("interface", ROW_NORMS)
def test_chunks_of_rows_give_what_the_reference_gives(
    monkeypatch: pytest.MonkeyPatch, interface: str, dtype: torch.dtype
) -> None:
    tileops.reference.install()
    for chunk in (1000, 3 * 4321, 2**20):
        monkeypatch.setattr(row_support, "CHUNK", chunk)
        run(OPS[interface](), interface, REFERENCE[interface], row_call(4321, dtype))


def test_rows_of_no_element_are_run_and_have_none() -> None:
    for interface in ROW_NORMS:
        tensors = RUNS[interface].inputs(row_call(0))
        RUNS[interface].check(row_call(0), tensors[:2] if ROW_NORMS[interface].summed else tensors[0], tensors)


CALLS = {"gqa_dense": AttentionCall(1, 8, 2, 64, 1, 300, torch.float16, device=CPU)}
CALLS |= {interface: row_call(1000) for interface in ROW_NORMS}
FAULTS = ("shift", "one element", "nan", "zeros", "dtype", "shape", "other tensors")
OF_SUMS = ("a sum of other bits", "one result")
FAULTY = [(interface, fault) for interface in OPS for fault in FAULTS]
FAULTY += [(interface, fault) for interface, norm in ROW_NORMS.items() if norm.summed for fault in OF_SUMS]


@pytest.mark.parametrize(("interface", "fault"), FAULTY)
def test_a_wrong_result_is_seen(interface: str, fault: str) -> None:
    tileops.reference.install()
    call, runs = CALLS[interface], RUNS[interface]
    kernel = OPS[interface]().kernel_for(interface, call)
    tensors = runs.inputs(call)
    found = kernel(*tensors)
    runs.check(call, found, tensors)
    out, *sums = listed(found)
    scale = float(out.abs().max())
    one = out.clone()
    one.view(-1)[-1] += 0.05 * scale
    wrong = {
        "shift": out + 0.01 * scale,
        "one element": one,
        "nan": out * torch.nan,
        "zeros": torch.zeros_like(out),
        "dtype": out.float(),
        "shape": out.reshape(-1),
    }
    if fault in wrong:
        changed = [wrong[fault], *sums]
    elif fault == "a sum of other bits":
        changed = [out, *(each * (1 + torch.finfo(each.dtype).eps) for each in sums)]
    elif fault == "one result":
        changed = [out, *sums[:-1]]
    else:  # as of a kernel that takes its last tensor for another one
        last = max(i for i, each in enumerate(tensors) if each is not None)
        others = [each.flip(-1) if i == last else each for i, each in enumerate(tensors)]
        changed = [*listed(kernel(*others)), *sums][: 1 + len(sums)]
    with pytest.raises(AssertionError):
        runs.check(call, changed[0] if len(changed) == 1 else tuple(changed), tensors)


def case_at(call: Any, at: str) -> Case:
    return Case(call, "any", "sm_90", (Border("any", "claims", f"{at} >= 1", "inside", f"{at}=1"),))


def test_a_call_that_is_too_large_is_made_smaller_in_fields_that_are_no_face() -> None:
    call = AttentionCall(64, 32, 4, 128, 1, 4096, torch.float16, device=CPU)
    budget = bytes_of("gqa_dense", dataclasses.replace(call, batch=8, seqlen_kv=4096))
    assert (
        fitting("gqa_dense", call, case_at(call, "seqlen_kv"), 10 * bytes_of("gqa_dense", call), lambda _: True) is call
    )
    at_length, at_batch = case_at(call, "seqlen_kv"), case_at(call, "batch")
    assert fitting("gqa_dense", call, at_length, 10 * bytes_of("gqa_dense", call), lambda _: True) is call
    assert fitting("gqa_dense", call, at_length, budget, lambda _: True) == dataclasses.replace(call, batch=8)
    assert fitting("gqa_dense", call, at_batch, budget, lambda _: True).batch == 64
    odd = fitting("gqa_dense", call, at_length, budget, lambda smaller: smaller.batch >= 32)
    assert (odd.batch, odd.seqlen_kv) == (32, 4096)
    assert bytes_of("gqa_dense", odd) <= budget


def test_a_call_that_cannot_be_made_smaller_is_an_error_and_not_left_out() -> None:
    call = LayerNormCall(n=2**30, device=CPU)
    with pytest.raises(MemoryError, match=r"sm_90-n=1-inside-any: .* bytes are needed"):
        fitting("layer_norm", call, case_at(call, "n"), 2**30, lambda _: True)


class TestThePlayedCard:
    """The test that runs on a GPU, on a card that is played: all of it but building and launching."""

    @pytest.fixture(autouse=True)
    def sm90(self, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 139 * 2**30
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (self.free, self.free))

    @pytest.mark.parametrize("interface", AT_LENGTH)
    def test_the_chosen_keys_are_asked_of_the_device(self, interface: str) -> None:
        test_boundary_gpu.test_the_chosen_key_on_this_card_is_the_expected_one(interface)

    @pytest.mark.parametrize("interface", AT_LENGTH)
    def test_every_call_that_an_implementation_accepts_is_run(
        self, monkeypatch: pytest.MonkeyPatch, interface: str
    ) -> None:
        for key, kernel in OPS[interface].kernel_types.items():
            ran: list[Any] = []
            monkeypatch.setattr(test_boundary_gpu, "run", lambda op, interface, key, call, ran=ran: ran.append(call))
            test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right(interface, key)
            assert all(kernel.refusal(OPS[interface].resolve(call)) is None for call in ran)
            mine = {case.call for case in accepted(interface) if kernel.refusal(case.call) is None}
            assert {dataclasses.replace(call, device=torch.device("cuda")) for call in ran} == mine
            if key == "layer_norm":
                assert {1, 2, SHORT_ROW, CUT_ROW, CUT_ROW + 1, 2**28, 2**28 - 1} <= {call.n for call in ran}

    def test_a_call_that_fails_is_named_with_the_others_that_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(op: Any, interface: str, key: str, call: Any) -> None:
            if call.n > 2**27:
                raise RuntimeError(f"cannot launch rows of {call.n}")

        monkeypatch.setattr(test_boundary_gpu, "run", run)
        with pytest.raises(AssertionError, match=r"2 of \d+ accepted calls fail") as failed:
            test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right("layer_norm", "layer_norm")
        assert "sm_90-n=268435456-on-layer_norm: " in str(failed.value)
        assert "cannot launch rows of 268435455" in str(failed.value)

    def test_a_card_without_the_memory_fails_and_leaves_nothing_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(test_boundary_gpu, "run", lambda *arguments: None)
        self.free = 4 * 2**30
        with pytest.raises(AssertionError, match=r"2 of \d+ accepted calls fail") as failed:
            test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right("layer_norm", "layer_norm")
        assert "bytes are needed and 3,221,225,472 are there" in str(failed.value)
