"""Toy interfaces, kernels and ops, and two played CUDA devices, for the tests of ops."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from tileops.backend import plugins, registry
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import DeviceFacts, faked
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops.op_base import Op

SM90 = torch.device("cuda", 0)
SM80 = torch.device("cuda", 1)


@dataclasses.dataclass(frozen=True)
class ToyCall(CallSpec):
    n: int = 0
    m: int = 0
    shape: tuple[int, ...] = ()

    def invalid(self) -> str | None:
        return "n and m are both 13" if self.n == 13 and self.m == 13 else None


class ToyFwdInterface(KernelInterface):
    """Doubles *x*."""

    request = ToyCall

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Return ``2 * x``."""


class OtherFwdInterface(KernelInterface):
    """Triples *x*."""

    request = ToyCall

    @abstractmethod
    def forward(self, x: Any, scale: float) -> Any:
        """Return ``3 * x * scale``."""


class Toys:
    """What a test builds its ops from.

    Attributes:
        built: The calls for which a toy kernel was built, in order.
        tuned: The kernels that were asked to tune, in order.
    """

    Call = ToyCall
    Interface = ToyFwdInterface
    OtherInterface = OtherFwdInterface
    sm90 = SM90
    sm80 = SM80

    def __init__(self) -> None:
        self.built: list[Any] = []
        self.tuned: list[Kernel] = []

    def kernel(
        self,
        name: str = "ToyKernel",
        *,
        serves: Callable[[Any], bool] | None = None,
        bases: tuple[type, ...] = (Kernel, ToyFwdInterface),
        **members: Any,
    ) -> type[Kernel]:
        toys = self

        def __init__(self: Any, call: Any) -> None:  # noqa: N807
            self.call = call
            toys.built.append(call)

        def forward(self: Any, x: Any) -> Any:
            return 2 * x

        def request_tune(self: Any) -> None:
            toys.tuned.append(self)

        @classmethod  # type: ignore[misc]
        def refusal(cls: Any, call: Any) -> str | None:
            return None if serves(call) else f"{name} does not serve n {call.n}"  # type: ignore[misc]

        body: dict[str, Any] = {"__init__": __init__, "forward": forward, "request_tune": request_tune}
        if serves is not None:
            body["refusal"] = refusal
        kernel: type[Kernel] = type(name, bases, {"__module__": __name__, **body, **members})
        return kernel

    def op(
        self,
        kernels: Mapping[str, Any],
        interfaces: Mapping[str, Any] | None = None,
        name: str = "ToyFwdOp",
        base: type[Op] = Op,
    ) -> type[Op]:
        if interfaces is None:
            interfaces = {"toy": ToyFwdInterface}
        return type(name, (base,), {"__module__": __name__, "kernel_types": kernels, "interfaces": interfaces})


@pytest.fixture
def toys() -> Toys:
    return Toys()


@pytest.fixture(autouse=True)
def no_backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with nothing registered and no plug-in installed, and leave what was there before."""
    state = plugins._State()
    state.done = True
    monkeypatch.setattr(plugins, "_state", state)
    with registry.sandbox(empty=True):
        yield


@pytest.fixture
def two_devices() -> Iterator[tuple[torch.device, torch.device]]:
    """``cuda:0`` of SM90 and ``cuda:1`` of SM80, played."""
    facts = {SM90: DeviceFacts(90, 132, 232448), SM80: DeviceFacts(80, 108, 166912)}
    with faked(facts):
        yield SM90, SM80
