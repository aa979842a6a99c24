"""The harness of the boundary calls of channels, with the CPU reference in the place of the launch."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch

import tileops.reference
from tests.ops import boundary_channels, test_boundary_gpu
from tests.ops.boundary_channels import CHANNEL_RUNS, blocks, cuts, moments, running
from tests.ops.boundary_runs import NeedsMoreMemoryError, bytes_of, fitting, on_device, run, serving_keys
from tests.ops.test_boundary_gpu import KEYS, MOST, OPS, accepted_on
from tileops.kernels.device_facts import DeviceFacts
from tileops.kernels.norm.call_spec import BatchNormCall

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
SM90 = DeviceFacts(90, 132, 232448)
LARGEST = 2**27
"""Bytes that a call may take here."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
QUICK = ("batch_norm_fwd_infer", "instance_norm_fwd_infer")
"""The interfaces whose boundary calls are found in a second: there is one kernel."""
AT_LENGTH = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.nightly) for name in CHANNEL_RUNS]
SHAPES = [(1, 1, 1), (2, 3, 5), (7, 1, 1), (1, 5, 9), (6, 4, 1), (1, 1, 40), (3, 2, 16)]
BY_RUNNING = ("batch_norm_fwd_infer", "instance_norm_fwd_infer")


def reference(interface: str) -> str:
    return f"reference_{interface.replace('_fwd', '')}"


def calls_of(interface: str) -> list[BatchNormCall]:
    """Small calls of every dtype of input, parameters and running statistics."""
    tileops.reference.install()
    found = []
    for shape, dtype, half in itertools.product(SHAPES, DTYPES, (False, True)):
        parameters = dtype if half else torch.float32
        for tracked in (None, parameters) if interface not in BY_RUNNING else (parameters,):
            call = BatchNormCall(
                *shape, dtype=dtype, momentum=0.3, weight_dtype=parameters, running_dtype=tracked, device=CPU
            )
            found.append(call)
    return found


@pytest.mark.parametrize("interface", AT_LENGTH)
def test_every_accepted_call_of_sm90_that_fits_here_is_made_run_and_compared_by_the_reference(interface: str) -> None:
    tileops.reference.install()
    op, ran = OPS[interface](), 0
    for case in accepted_on(interface, SM90):
        call = on_device(case.call, CPU)
        if bytes_of(interface, call) <= LARGEST:
            assert serving_keys(op, interface, call) == (reference(interface),)
            run(op, interface, reference(interface), call)
            ran += 1
    assert ran >= 6


@pytest.mark.parametrize("chunk", [1, 7, 30, 2**26])
@pytest.mark.parametrize("interface", CHANNEL_RUNS)
def test_blocks_and_parts_of_any_size_give_what_the_reference_gives(
    monkeypatch: pytest.MonkeyPatch, interface: str, chunk: int
) -> None:
    monkeypatch.setattr(boundary_channels, "CHUNK", chunk)
    for call in calls_of(interface):
        run(OPS[interface](), interface, reference(interface), call)


@pytest.mark.parametrize("chunk", [1, 7, 30, 2**26])
@pytest.mark.parametrize("instances", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_value_is_in_one_part_of_one_block_and_moments_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], instances: bool, chunk: int
) -> None:
    monkeypatch.setattr(boundary_channels, "CHUNK", chunk)
    x, seen = torch.randn(shape, dtype=torch.float64), torch.zeros(shape)
    axes = (2,) if instances else (0, 2)
    for of in blocks(BatchNormCall(*shape, device=CPU), instances=instances):
        for cut in cuts(x[of]):
            seen[of][cut] += 1
            assert x[of][cut].numel() <= chunk
        got = moments(x[of], axes)
        variance, mean = torch.var_mean(x[of], axes, correction=0, keepdim=True)
        torch.testing.assert_close((got.mean, got.variance), (mean, variance))
        torch.testing.assert_close(got.widest, (x[of] - mean).abs().amax(axes, keepdim=True))
        unbiased = torch.var(x[of], axes, correction=1, keepdim=True) if got.values > 1 else variance * math.nan
        torch.testing.assert_close(got.unbiased, unbiased, equal_nan=True)
    assert (seen == 1).all()


def wrong(result: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a faulty kernel might have written."""
    scale = float(result.abs().max())
    one = result.clone()
    one.view(-1)[-1] += 0.05 * scale
    return {
        "all": result + 0.01 * scale,
        "one": one,
        "nan": result * torch.nan,
        "zeros": torch.zeros_like(result),
        "sign": -result,
    }


FAULTY = ("all", "one", "nan", "zeros", "sign")
RESULTS = {"batch_norm_fwd_train": 3, "batch_norm_bwd": 3}


def run_of(interface: str, call: BatchNormCall) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
    """Results and arguments after the reference ran."""
    tileops.reference.install()
    tensors = CHANNEL_RUNS[interface].inputs(call)
    found = OPS[interface]().kernel_for(interface, call, key=reference(interface))(*tensors)
    return list(found) if isinstance(found, tuple) else [found], tensors


def check(interface: str, call: BatchNormCall, found: list[torch.Tensor], tensors: tuple[Any, ...]) -> None:
    CHANNEL_RUNS[interface].check(call, found[0] if len(found) == 1 else tuple(found), tensors)


def call_for(interface: str, dtype: torch.dtype = torch.float16) -> BatchNormCall:
    tracked = None if interface in ("batch_norm_bwd", "instance_norm_fwd") else torch.float32
    return BatchNormCall(6, 5, 33, dtype=dtype, momentum=0.3, running_dtype=tracked, device=CPU)


@pytest.mark.parametrize("fault", FAULTY)
@pytest.mark.parametrize(
    ("interface", "place"), [(name, i) for name in CHANNEL_RUNS for i in range(RESULTS.get(name, 1))]
)
def test_a_wrong_result_is_seen(interface: str, place: int, fault: str) -> None:
    call = call_for(interface)
    found, tensors = run_of(interface, call)
    check(interface, call, found, tensors)
    found[place] = wrong(found[place])[fault]
    with pytest.raises(AssertionError):
        check(interface, call, found, tensors)


@pytest.mark.parametrize("interface", CHANNEL_RUNS)
def test_a_result_of_another_dtype_or_shape_is_seen(interface: str) -> None:
    call = call_for(interface)
    found, tensors = run_of(interface, call)
    for changed in (found[0].float(), found[0].reshape(-1)):
        with pytest.raises(AssertionError):
            check(interface, call, [changed, *found[1:]], tensors)


@pytest.mark.parametrize("place", [-2, -1])
@pytest.mark.parametrize("interface", [name for name in CHANNEL_RUNS if call_for(name).running_dtype is not None])
def test_running_statistics_that_are_not_what_they_should_be_are_seen(interface: str, place: int) -> None:
    call = call_for(interface)
    for fault in ("as before", *FAULTY):
        found, tensors = run_of(interface, call)
        check(interface, call, found, tensors)
        before = running(call)[place]
        assert before is not None
        if fault == "as before" and interface in BY_RUNNING:
            continue
        tensors[place].copy_(before if fault == "as before" else wrong(tensors[place])[fault])
        with pytest.raises(AssertionError):
            check(interface, call, found, tensors)


@pytest.mark.parametrize("interface", ["batch_norm_fwd_train", "instance_norm_fwd_train"])
def test_the_variance_that_one_value_leaves_is_nan_and_a_number_in_its_place_is_seen(interface: str) -> None:
    call = dataclasses.replace(call_for(interface), n=1, spatial=1)
    found, tensors = run_of(interface, call)
    assert tensors[-1].isnan().all()
    check(interface, call, found, tensors)
    tensors[-1].fill_(1.0)
    with pytest.raises(AssertionError):
        check(interface, call, found, tensors)


@pytest.mark.parametrize("interface", AT_LENGTH)
def test_every_call_that_an_implementation_accepts_fits_a_played_card(
    monkeypatch: pytest.MonkeyPatch, two_devices: Any, interface: str
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (139 * 2**30,) * 2)
    for key in (key for name, key in KEYS if name == interface):
        ran: list[Any] = []
        monkeypatch.setattr(test_boundary_gpu, "run", lambda op, interface, key, call, ran=ran: ran.append(call))
        test_boundary_gpu.test_every_accepted_boundary_call_runs_and_is_right(interface, key)
        assert all(OPS[interface].kernel_types[key].refusal(OPS[interface].resolve(call)) is None for call in ran)
        for call in ran:
            assert bytes_of(interface, call) <= MOST or max(call.n, call.c, call.spatial) > 2**26, (
                "its face is as large"
            )
        assert len(set(ran)) == len(ran) >= 6, "none is run twice"


def test_a_call_of_too_many_values_keeps_what_its_case_is_about(two_devices: Any) -> None:
    (case,) = (
        case
        for case in accepted_on("batch_norm_fwd_infer", SM90)
        if case.call.c == 2**30 and "on" in str(case).split("-")
    )
    call = on_device(dataclasses.replace(case.call, n=64, spatial=512), CUDA)
    smaller = fitting("batch_norm_fwd_infer", call, case, 2**36, lambda _: True)
    assert smaller.c == 2**30
    assert 2**35 < bytes_of("batch_norm_fwd_infer", smaller) <= 2**36, "no smaller than it must be"
    least = fitting("batch_norm_fwd_infer", call, case, 2**36, lambda _: True, MOST)
    assert (least.n, least.c, least.spatial) == (1, 2**30, 1), "as near to what is wanted as it can be"
    with pytest.raises(NeedsMoreMemoryError, match="bytes are needed") as refused:
        fitting("batch_norm_fwd_infer", call, case, 2**34, lambda _: True)
    assert refused.value.needed == bytes_of("batch_norm_fwd_infer", least)
