from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tileops.kernels import device_facts as reading
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import (
    DeviceFacts,
    DeviceFactsError,
    device_facts,
    faked,
    is_current,
    running_on,
    set_reader,
)
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.call_spec import LayerNormCall, LayerNormFwdInterface

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)
CARDS = {FIRST: DeviceFacts(90, 132, 232448), SECOND: DeviceFacts(80, 108, 166912)}


class Doubling(Kernel, KernelInterface):
    """Returns twice its argument and notes which of the played devices was current."""

    request = CallSpec

    def __init__(self, call: CallSpec | None = None) -> None:
        self.call = call

    def forward(self, x: int, *, extra: int = 0) -> tuple[int, bool]:
        return 2 * x + extra, is_current(SECOND)


def test_a_kernel_that_declares_nothing_serves_every_call_on_every_cuda_device() -> None:
    assert Doubling.devices == frozenset({"cuda"})
    assert Doubling.supported_archs is None
    assert Doubling.refusal(CallSpec()) is None
    assert Doubling.general is False
    assert Doubling.preferred_over == frozenset()


def test_by_default_a_call_is_its_own_build_identity() -> None:
    call = CallSpec(arch=90)
    identity, builder = Doubling.entry_for(call)
    assert identity is call
    built = builder()
    assert isinstance(built, Doubling)
    assert built.call is call
    assert built.request_tune() is None


def test_a_kernel_without_every_method_of_its_interface_cannot_be_made() -> None:
    class Forgetful(Kernel, LayerNormFwdInterface):
        pass

    assert LayerNormFwdInterface.request is LayerNormCall
    with pytest.raises(TypeError, match="forward"):
        Forgetful()  # type: ignore[abstract]


def test_calling_a_kernel_runs_forward_with_its_device_current() -> None:
    with faked(CARDS):
        kernel = Doubling.__new__(Doubling)  # no __init__ has run
        assert kernel(4, extra=1) == (9, False)
        kernel.launch_device = SECOND
        assert kernel(4) == (8, True)
        assert is_current(FIRST), "the device before is restored"


def test_the_current_device_is_restored_after_an_error() -> None:
    class Failing(Doubling):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise ZeroDivisionError

    with faked(CARDS):
        kernel = Failing()
        kernel.launch_device = SECOND
        with pytest.raises(ZeroDivisionError):
            kernel(1)
        assert is_current(FIRST)


def test_a_kernel_of_the_cpu_needs_no_cuda_to_run() -> None:
    kernel = Doubling()
    kernel.launch_device = torch.device("cpu")
    assert kernel.forward.__self__ is kernel
    assert is_current(kernel.launch_device)
    assert is_current(None)
    assert is_current(torch.device("cuda"))
    assert is_current(torch.device("cpu", 1))


def test_after_the_block_torch_is_asked_again_which_device_is_current() -> None:
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "_index_from_torch", lambda: 1)
            with faked(CARDS):
                assert is_current(FIRST)
            assert is_current(SECOND)
            assert not is_current(FIRST)
    finally:
        set_reader(None)


def test_where_torch_cannot_say_which_device_is_current_the_device_asked_about_is_named() -> None:
    def absent() -> int:
        raise AssertionError("Torch not compiled with CUDA enabled")

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "_index_from_torch", absent)
            set_reader(None)
            with pytest.raises(DeviceFactsError, match="cuda:1 cannot be read here: Torch not compiled") as caught:
                is_current(SECOND)
            assert caught.value.device == SECOND
            assert is_current(torch.device("cpu", 1)), "nothing is asked for a CPU"
    finally:
        set_reader(None)


def test_two_cards_are_played_in_one_process() -> None:
    with faked(CARDS):
        assert device_facts(FIRST).arch == 90
        assert device_facts(SECOND) == DeviceFacts(80, 108, 166912)
        assert device_facts(torch.device("cuda")).arch == 90
        with running_on(SECOND):
            assert device_facts(torch.device("cuda")).arch == 80
        with pytest.raises(DeviceFactsError, match="cuda:7 cannot be read here") as caught:
            device_facts(torch.device("cuda", 7))
        assert caught.value.device == torch.device("cuda", 7)


def test_a_device_is_read_once() -> None:
    asked: list[torch.device] = []

    def read(device: torch.device) -> DeviceFacts:
        asked.append(device)
        return CARDS[device]

    try:
        set_reader(read)
        assert device_facts(FIRST) is device_facts(FIRST)
        device_facts(SECOND)
        assert asked == [FIRST, SECOND]
        set_reader(read)
        device_facts(FIRST)
        assert asked == [FIRST, SECOND, FIRST], "a new reader forgets what the old one read"
    finally:
        set_reader(None)


def test_played_cards_are_gone_after_the_block() -> None:
    absent = torch.device("cuda", 63)
    with faked({absent: DeviceFacts(90, 1, 1)}):
        assert device_facts(absent).arch == 90
    with pytest.raises(DeviceFactsError, match="state an arch instead"):
        device_facts(absent)


def test_a_cpu_has_no_facts() -> None:
    assert dataclasses.astuple(device_facts(torch.device("cpu"))) == (None, None, None)


@pytest.mark.gpu
def test_the_facts_of_a_real_card_are_what_torch_says() -> None:
    facts = device_facts(torch.device("cuda", 0))
    major, minor = torch.cuda.get_device_capability(0)
    assert facts.arch == 10 * major + minor
    assert facts.sm_count == torch.cuda.get_device_properties(0).multi_processor_count
    assert facts.smem_budget is not None
    assert facts.smem_budget >= 48 * 1024
    assert is_current(torch.device("cuda", torch.cuda.current_device()))
