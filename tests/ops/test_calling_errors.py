"""Every row of the table of call-time errors."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import pytest
import torch
from tileops_rules import Range, RefusalError

from tileops.backend import OpNotAvailableError
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import DeviceFactsError
from tileops.kernels.kernel_base import Kernel


def test_a_device_type_without_any_key_is_said_to_be_unavailable(toys: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    for ask in (op.kernel_for, op.key_for):
        with pytest.raises(OpNotAvailableError, match="in-tree kernels do not run on cpu") as error:
            ask("toy", toys.Call(device=torch.device("cpu")))
        assert error.value.device == "cpu"
        assert error.value.devices == {"one": frozenset({"cuda"})}
        assert "tileops.reference.install()" in str(error.value)


def test_an_interface_without_implementations_is_unavailable_everywhere(toys: Any) -> None:
    op = toys.op({})()
    with pytest.raises(OpNotAvailableError, match="in-tree kernels do not run on cuda"):
        op.key_for("toy", toys.Call(arch=90))


def test_no_implementation_serves_lists_the_reason_of_each(toys: Any, two_devices: Any) -> None:
    kernels = {
        "narrow": toys.kernel("Narrow", serves=lambda c: c.n < 8),
        "wide": toys.kernel("Wide", serves=lambda c: c.n > 64),
        "hopper": toys.kernel("Hopper", serves=lambda c: c.n == 20, supported_archs=[90]),
        "foreign": toys.kernel("Foreign", devices=frozenset({"xpu"})),
    }
    op = toys.op(kernels)()
    call = toys.Call(n=20, device=two_devices[1])
    for ask in (op.kernel_for, op.key_for):
        with pytest.raises(ValueError, match="no implementation serves this call") as error:
            ask("toy", call)
        text = str(error.value)
        assert "Narrow does not serve n 20" in text
        assert "Wide does not serve n 20" in text
        for key in kernels:
            assert key in text
        assert "80" in text
        assert "xpu" in text
        assert {each.key for each in error.value.explanation.entries} == set(kernels)
    assert op.cache_info().calls == 0


def test_a_dispatch_that_no_proof_settled_is_ambiguous_at_the_call(
    toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEOPS_PROOF", "off")
    kernels = {
        "low": toys.kernel("Low", serves=lambda c: c.n < 10),
        "high": toys.kernel("High", serves=lambda c: c.n > 5),
    }
    op = toys.op(kernels)()
    assert op.key_for("toy", toys.Call(n=1, arch=90)) == "low"
    assert op.key_for("toy", toys.Call(n=10, arch=90)) == "high"
    for ask in (op.kernel_for, op.key_for):
        with pytest.raises(ValueError, match="dispatch is ambiguous") as error:
            ask("toy", toys.Call(n=7, device=two_devices[0]))
        assert set(error.value.keys) == {"low", "high"}


@dataclasses.dataclass(frozen=True)
class StrangerCall(CallSpec):
    n: int = 0


def test_a_call_of_another_type_is_named_with_the_right_one(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    heir = dataclasses.dataclass(frozen=True)(type("HeirCall", (toys.Call,), {}))
    for call in (StrangerCall(device=two_devices[0]), heir(device=two_devices[0]), None, 5, {}, [1]):
        for ask in (op.kernel_for, op.key_for, op.explain):
            with pytest.raises(TypeError, match="takes a ToyCall call spec"):
                ask("toy", call)


def test_a_mutable_value_is_named_with_its_field(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    with pytest.raises(TypeError, match="cannot key a dispatch cache: shape is \\[1, 2\\]") as error:
        op.kernel_for("toy", toys.Call(shape=[1, 2], device=two_devices[0]))
    assert (error.value.field, error.value.value) == ("shape", [1, 2])
    with pytest.raises(TypeError, match="cannot key a dispatch cache"):
        op.kernel_for("toy", toys.Call(shape=([1],), device=two_devices[0]))


@pytest.mark.parametrize("facts", [{"arch": 90}, {"sm_count": 132}, {"smem_budget": 1}, {"arch": 90, "sm_count": 1}])
def test_stated_facts_are_refused_on_a_miss_and_on_a_hit(toys: Any, two_devices: Any, facts: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    stating = toys.Call(n=3, device=two_devices[0], **facts)
    match = rf"this call spec states \[{', '.join(repr(name) for name in facts)}\]"
    with pytest.raises(TypeError, match=match):
        op.kernel_for("toy", stating)
    op.kernel_for("toy", toys.Call(n=3, device=two_devices[0]))
    with pytest.raises(TypeError, match=match) as error:
        op.kernel_for("toy", stating)
    assert error.value.facts == tuple(facts)
    with pytest.raises(TypeError, match=match):
        op.kernel_for("toy", stating, key="one")


def test_a_stated_arch_is_refused_without_a_device_too(toys: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    with pytest.raises(TypeError, match=r"this call spec states \['arch'\]"):
        op.kernel_for("toy", toys.Call(n=3, arch=90))


def test_an_invalid_call_is_refused_with_the_reason(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    for ask in (op.kernel_for, op.key_for):
        with pytest.raises(ValueError, match="is not a valid ToyCall: n and m are both 13"):
            ask("toy", toys.Call(n=13, m=13, device=two_devices[0]))


@dataclasses.dataclass(frozen=True)
class NarrowCall(CallSpec):
    n: Annotated[int, Range(1, 8)] = 1


def test_a_value_outside_a_declared_domain_is_refused_with_the_field(toys: Any, two_devices: Any) -> None:
    interface = type("NarrowFwdInterface", (toys.Interface,), {"request": NarrowCall})
    op = toys.op({"one": toys.kernel(bases=(Kernel, interface))}, {"narrow": interface})()
    assert op.key_for("narrow", NarrowCall(n=8, arch=90)) == "one"
    for ask in (op.kernel_for, op.key_for):
        with pytest.raises(ValueError, match="is outside the domain of n"):
            ask("narrow", NarrowCall(n=9, device=two_devices[0]))


def test_a_refusal_that_raises_is_named_with_its_exception(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel("One", serves=lambda c: 10 // c.n > 0), "two": toys.kernel("Two", general=True)})()
    assert op.key_for("toy", toys.Call(n=1, arch=90)) == "one"
    for ask in (op.kernel_for, op.key_for):
        with pytest.raises(RefusalError, match="refusal of one raised") as error:
            ask("toy", toys.Call(n=0, device=two_devices[0]))
        assert isinstance(error.value.__cause__, ZeroDivisionError)
        assert isinstance(error.value, RuntimeError)
        assert error.value.key == "one"


def test_an_identity_without_a_hash_is_named(toys: Any, two_devices: Any) -> None:
    entry_for = classmethod(lambda cls, call: ([call.n], lambda: cls(call)))
    op = toys.op({"one": toys.kernel(entry_for=entry_for)})()
    with pytest.raises(TypeError, match="build identity of one is not hashable") as error:
        op.kernel_for("toy", toys.Call(n=3, device=two_devices[0]))
    assert (error.value.key, error.value.identity) == ("one", [3])
    assert op.cache_info().entries == 0


@pytest.mark.parametrize("answer", [None, (1,), (1, 2), [1, list]])
def test_an_entry_that_is_no_pair_is_named(toys: Any, two_devices: Any, answer: Any) -> None:
    op = toys.op({"one": toys.kernel(entry_for=classmethod(lambda cls, call: answer))})()
    with pytest.raises(TypeError, match=r"entry_for .* of one returned"):
        op.kernel_for("toy", toys.Call(device=two_devices[0]))


def test_a_builder_that_builds_no_kernel_is_named_and_keeps_nothing(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel(entry_for=classmethod(lambda cls, call: (1, lambda: None)))})()
    for _ in range(2):
        with pytest.raises(TypeError, match=r"the builder .* of one returned None"):
            op.kernel_for("toy", toys.Call(device=two_devices[0]))
    assert (op.cache_info().entries, op.cache_info().calls) == (0, 0)


def test_a_call_that_runs_names_its_device(toys: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    with pytest.raises(TypeError, match="state a device"):
        op.kernel_for("toy", toys.Call(n=1))
    with pytest.raises(TypeError, match="device is 'cuda:0'"):
        op.kernel_for("toy", toys.Call(n=1, device="cuda:0"))


def test_a_device_that_is_not_here_says_how_to_ask_about_it(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    with pytest.raises(DeviceFactsError, match="cuda:7") as error:
        op.kernel_for("toy", toys.Call(device=torch.device("cuda", 7)))
    assert any("key_for" in note for note in error.value.__notes__)


def test_a_question_states_a_device_or_an_arch(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    for call in (toys.Call(), toys.Call(sm_count=132), toys.Call(device=torch.device("cuda", 7))):
        for ask in (op.key_for, op.explain):
            with pytest.raises(TypeError, match="state a device or an arch"):
                ask("toy", call)


def test_cuda_facts_stated_of_another_device_are_refused(toys: Any) -> None:
    op = toys.op({"one": toys.kernel(devices=frozenset({"cpu", "cuda"}))})()
    with pytest.raises(ValueError, match="only CUDA devices have them"):
        op.key_for("toy", toys.Call(arch=90, device=torch.device("cpu")))


def test_an_unknown_interface_lists_those_there_are(toys: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    for ask in (op.key_for, op.explain, op.kernel_for):
        with pytest.raises(ValueError, match=r"has no interface 'other'.*toy"):
            ask("other", toys.Call(arch=90))
        with pytest.raises(ValueError, match="has no interface"):
            ask([], toys.Call(arch=90))


class TestOneImplementationAskedFor:
    def test_it_is_built_even_where_another_is_chosen(self, toys: Any, two_devices: Any) -> None:
        one, two = toys.kernel("One"), toys.kernel("Two", general=True)
        op = toys.op({"one": one, "two": two})()
        call = toys.Call(device=two_devices[0])
        kernel = op.kernel_for("toy", call, key="two")
        assert type(kernel) is two
        assert type(op.kernel_for("toy", call)) is one
        assert op.kernel_for("toy", call, key="two") is kernel

    def test_it_raises_the_reason_where_it_refuses_and_never_falls_back(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel("One", serves=lambda c: c.n > 8), "two": toys.kernel("Two", general=True)})()
        with pytest.raises(ValueError, match="One does not serve n 3") as error:
            op.kernel_for("toy", toys.Call(n=3, device=two_devices[0]), key="one")
        assert error.value.key == "one"
        assert toys.built == []

    def test_it_raises_where_it_cannot_run_on_the_device(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel("One", supported_archs=[90]), "two": toys.kernel("Two", general=True)})()
        with pytest.raises(ValueError, match="cannot run"):
            op.kernel_for("toy", toys.Call(device=two_devices[1]), key="one")
        assert toys.built == []

    def test_an_unknown_key_lists_those_there_are(self, toys: Any, two_devices: Any) -> None:
        op = toys.op({"one": toys.kernel("One")})()
        with pytest.raises(ValueError, match=r"has no implementation 'two'.*one"):
            op.kernel_for("toy", toys.Call(device=two_devices[0]), key="two")
