"""Kernels and the interfaces they implement.

A *kernel interface* says what a kernel is called with and what it must do; a *kernel* is one way to do it,
with a statement of the calls it serves. Which of an op's kernels runs is decided from these statements
alone: never by order, never by numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import torch

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import is_current, running_on

__all__ = ["Entry", "Kernel", "KernelInterface"]


class KernelInterface(ABC):
    """What every implementation of one job is called with and guarantees.

    A subclass names its call spec type in ``request`` and declares an abstract ``forward`` whose docstring
    is the whole contract: shape, dtype, layout and device of each tensor, what is written in place, what is
    returned. Other methods that an op calls on a kernel are abstract methods of the interface too; values
    on which all implementations must agree are its plain classmethods.
    """

    request: ClassVar[type[CallSpec]]
    extent: ClassVar[str | None] = None
    """The integer field of the call spec, if any, that a launch reads off its tensors: where no rule of the interface
    answers differently, two values with one build identity have none but that between them, so that a new value there
    costs no look-up of rules either."""

    @classmethod
    def unserved(cls, call: Any) -> str | None:
        """Why no implementation is meant to serve *call*, or ``None``.

        It decides nothing: an audit reports a call that nobody serves and that is not declared here, and one
        that is declared here and served.
        """
        return None


class Kernel(ABC):
    """One implementation: a class that inherits this one and a :class:`KernelInterface`.

    Attributes:
        devices: Device types it runs on.
        supported_archs: CUDA architectures it runs on; ``None`` for all.
        general: Whether it stands below every other implementation of its interface.
        preferred_over: Keys of the implementations it wins over where both serve a call; transitive.
        launch_device: Set on a built kernel by the op that built it; :meth:`__call__` runs with it current.

    The members are class attributes, inherited like any other. The constructor is the implementation's own
    affair: nothing here needs ``Kernel.__init__`` to have run.
    """

    devices: frozenset[str] = frozenset({"cuda"})
    supported_archs: Sequence[int] | None = None
    general: bool = False
    preferred_over: frozenset[str] = frozenset()

    launch_device: torch.device | None = None

    @classmethod
    def refusal(cls, call: Any) -> str | None:
        """``None`` where this implementation serves *call*, else the reason.

        It is a function of *call* alone and speaks of its own calls only. An override ends in
        ``super().refusal(call)``, so that what a base class refuses stays refused.
        """
        return None

    @classmethod
    def entry_for(cls, call: Any) -> Entry:
        """The build identity of *call* and the builder of its kernel.

        The identity is hashable and holds everything that changes what is built; the builder runs once for
        each identity and device. *call* states the facts of its device.
        """
        return call, lambda: cls(call)  # type: ignore[call-arg]

    @classmethod
    def block_smem_bytes(cls, call: Any) -> int | None:
        """Shared memory, in bytes, that a block of the kernel for *call* takes; ``None`` where nothing is stated.

        Like :meth:`refusal` a function of the call alone, and what the kernel is built with: an audit proves that
        every call that is served fits the shared memory of its arch.
        """
        return None

    @classmethod
    def block_threads(cls, call: Any) -> int | None:
        """Threads of a block of the kernel for *call*; ``None`` where nothing is stated. Proved like the above."""
        return None

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel; the arguments and results are those of the interface's ``forward``."""

    def request_tune(self) -> None:
        """Choose launch parameters by measuring; called on a built kernel, with its device current."""
        return None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run :meth:`forward` with :attr:`launch_device` current."""
        device = self.launch_device
        if device is None or is_current(device):
            return self.forward(*args, **kwargs)
        with running_on(device):
            return self.forward(*args, **kwargs)


Entry = tuple[Hashable, Callable[[], Kernel]]
"""What :meth:`Kernel.entry_for` answers: a build identity and the builder."""
