"""The harness of the boundary calls on a GPU, with the CPU reference in the place of the launch."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from tileops_rules import Selector, fields
from tileops_solver.testing import Border, Case, boundary_calls

import tileops.reference
from tests.ops import boundary_runs, test_boundary_gpu
from tests.ops.boundary_runs import CHECKS, INPUTS, bytes_of, fitting, on_device, run, serving_keys
from tests.ops.test_boundary_gpu import OPS
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.reference.norm import layer_norm

CPU = torch.device("cpu")
LARGEST = 2**28
"""Bytes that a call may take here."""
REFERENCE = {"gqa_dense": "reference_gqa_dense", "layer_norm": "reference_layer_norm"}


@functools.cache
def accepted(interface: str) -> tuple[Case, ...]:
    return tuple(case for case in boundary_calls(OPS[interface], interface, archs=[90]) if case.expected is not None)


@pytest.mark.parametrize(("interface", "too_large"), [("gqa_dense", 0), ("layer_norm", 2)])
def test_every_accepted_call_of_sm90_is_made_run_and_compared_by_the_reference(interface: str, too_large: int) -> None:
    tileops.reference.install()
    op = OPS[interface]()
    left_out = 0
    for case in accepted(interface):
        call = on_device(case.call, CPU)
        if bytes_of(call) > LARGEST:
            left_out += 1
            continue
        assert serving_keys(op, interface, call) == (REFERENCE[interface],)
        run(op, interface, REFERENCE[interface], call)
    assert left_out == too_large, "rows of 2**28 elements and of one less"
    assert len(accepted(interface)) > left_out


@pytest.mark.parametrize("interface", OPS)
def test_every_boundary_call_of_a_cpu_runs_too(interface: str) -> None:
    tileops.reference.install()
    op = OPS[interface]()
    selector = Selector.of(op, interface)
    here = fields(selector.spec, domain=selector.domain).device.type == "cpu"
    mine = [case for case in boundary_calls(op, interface, within=here) if case.expected is not None]
    assert {case.platform for case in mine} == {"cpu"}
    for case in mine:
        run(op, interface, REFERENCE[interface], on_device(case.call, CPU))


def test_chunks_of_a_row_give_what_the_reference_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary_runs, "CHUNK", 1000)
    call = LayerNormCall(n=4321, dtype=torch.float32, device=CPU)
    x, weight, bias = INPUTS[LayerNormCall](call)
    out = layer_norm(x, weight, bias, call.n, call.eps).to(call.dtype)
    CHECKS[LayerNormCall](call, out, (x, weight, bias))


CALLS = [
    LayerNormCall(n=1000, dtype=torch.float16, device=CPU),
    AttentionCall(1, 8, 2, 64, 1, 300, torch.float16, device=CPU),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
@pytest.mark.parametrize("fault", ["shift", "one element", "nan", "zeros", "dtype", "shape"])
def test_a_wrong_result_is_seen(call: Any, fault: str) -> None:
    tileops.reference.install()
    interface = "gqa_dense" if isinstance(call, AttentionCall) else "layer_norm"
    kernel = OPS[interface]().kernel_for(interface, call)
    tensors = INPUTS[type(call)](call)
    out = kernel(*tensors)
    CHECKS[type(call)](call, out, tensors)
    scale = float(out.abs().max())
    wrong = out.clone()
    if fault == "one element":
        wrong.view(-1)[-1] += 0.05 * scale
    wrong = {
        "shift": out + 0.01 * scale,
        "one element": wrong,
        "nan": out * torch.nan,
        "zeros": torch.zeros_like(out),
        "dtype": out.float(),
        "shape": out.reshape(-1),
    }[fault]
    with pytest.raises(AssertionError):
        CHECKS[type(call)](call, wrong, tensors)


def case_at(call: Any, at: str) -> Case:
    return Case(call, "any", "sm_90", (Border("any", "claims", f"{at} >= 1", "inside", f"{at}=1"),))


def test_a_call_that_is_too_large_is_made_smaller_in_fields_that_are_no_face() -> None:
    call = AttentionCall(64, 32, 4, 128, 1, 4096, torch.float16, device=CPU)
    budget = bytes_of(dataclasses.replace(call, batch=8, seqlen_kv=4096))
    assert fitting(call, case_at(call, "seqlen_kv"), 10 * bytes_of(call), lambda _: True) is call
    assert fitting(call, case_at(call, "seqlen_kv"), budget, lambda _: True) == dataclasses.replace(call, batch=8)
    assert fitting(call, case_at(call, "batch"), budget, lambda _: True).batch == 64
    odd = fitting(call, case_at(call, "seqlen_kv"), budget, lambda smaller: smaller.batch >= 32)
    assert (odd.batch, odd.seqlen_kv) == (32, 4096)
    assert bytes_of(odd) <= budget


def test_a_call_that_cannot_be_made_smaller_is_an_error_and_not_left_out() -> None:
    call = LayerNormCall(n=2**30, device=CPU)
    with pytest.raises(MemoryError, match=r"sm_90-n=1-inside-any: .* bytes are needed"):
        fitting(call, case_at(call, "n"), 2**30, lambda _: True)


class TestThePlayedCard:
    """The test that runs on a GPU, on a card that is played: all of it but building and launching."""

    @pytest.fixture(autouse=True)
    def sm90(self, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 139 * 2**30
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (self.free, self.free))

    @pytest.mark.parametrize("interface", OPS)
    def test_the_chosen_keys_are_asked_of_the_device(self, interface: str) -> None:
        test_boundary_gpu.test_the_chosen_key_on_this_card_is_the_expected_one(interface)

    @pytest.mark.parametrize(("interface", "key"), test_boundary_gpu.KEYS)
    def test_every_call_that_an_implementation_accepts_is_run(
        self, monkeypatch: pytest.MonkeyPatch, interface: str, key: str
    ) -> None:
        ran: list[Any] = []
        monkeypatch.setattr(test_boundary_gpu, "run", lambda op, interface, key, call: ran.append(call))
        test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right(interface, key)
        kernel = OPS[interface].kernel_types[key]
        assert all(kernel.refusal(OPS[interface].resolve(call)) is None for call in ran)
        usual = {
            case.call
            for case in accepted(interface)
            if kernel.refusal(case.call) is None and case.call.smem_budget == 232448
        }
        assert {dataclasses.replace(call, device=torch.device("cuda")) for call in ran} == usual
        if key == "layer_norm":
            assert [call.n for call in ran] == [1, 2, 2**28, 2**28 - 1]

    def test_a_call_that_fails_is_named_with_the_others_that_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(op: Any, interface: str, key: str, call: Any) -> None:
            if call.n > 2:
                raise RuntimeError(f"cannot launch rows of {call.n}")

        monkeypatch.setattr(test_boundary_gpu, "run", run)
        with pytest.raises(AssertionError, match="2 of 4 accepted calls fail") as failed:
            test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right("layer_norm", "layer_norm")
        assert "sm_90-n=268435456-on-layer_norm: " in str(failed.value)
        assert "cannot launch rows of 268435455" in str(failed.value)

    def test_a_card_without_the_memory_fails_and_leaves_nothing_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(test_boundary_gpu, "run", lambda *arguments: None)
        self.free = 4 * 2**30
        with pytest.raises(AssertionError, match="2 of 4 accepted calls fail") as failed:
            test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right("layer_norm", "layer_norm")
        assert "bytes are needed and 3,221,225,472 are there" in str(failed.value)
