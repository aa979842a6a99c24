"""Ops: what a user calls. An op describes a call, asks which kernel serves it, and runs that kernel."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from tileops_rules import Explanation

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops.dispatch import CacheInfo, Dispatcher, explain, key_for
from tileops.ops.errors import NotProvedError, StatedFacts, UnorderedOverlapError
from tileops.ops.resolving import resolve, stated_facts
from tileops.ops.selection import Selection, selection_of

__all__ = ["CacheInfo", "NotProvedError", "Op", "UnorderedOverlapError"]

C = TypeVar("C", bound=CallSpec)


class Op:
    """An operator with one or more kernel interfaces and the kernels that implement them.

    A subclass declares its kernels and interfaces and writes ``forward``, which builds a call spec and runs
    ``self.kernel_for("name", call)(...)``. It builds no kernel itself and keeps none.

    Constructing an op checks every class it has, those that backends registered included, and proves that no
    two of them claim one call without a declared winner. What was proved is kept with the op class; it is
    proved anew where a kernel, a preference or a rule has changed. ``TILEOPS_PROOF``, read at construction,
    says what happens where a proof is not possible: ``warn`` (the default) warns once and leaves it to the
    check at call time, ``strict`` raises, ``off`` proves nothing.

    Attributes:
        kernel_types: Key (snake_case) to implementation. On an object it holds what backends registered too.
        interfaces: Name to kernel interface. A kernel belongs to every interface that it inherits.

    Raises:
        TypeError: a class is not what the contract asks for.
        ValueError: keys, preferences or overlaps are wrong, or ``TILEOPS_PROOF`` is no mode.
        UnorderedOverlapError: two implementations serve one call and neither is preferred.
        NotProvedError: something is not proved, and ``TILEOPS_PROOF`` is ``strict``.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = types.MappingProxyType({})
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = types.MappingProxyType({})
    _selections: ClassVar[Mapping[Any, Selection]] = types.MappingProxyType({})

    _dispatcher: Dispatcher
    _calls: dict[tuple[str, CallSpec], Kernel]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check and prove here, so that no subclass's ``__init__`` can leave it out."""
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__} takes no arguments")
        self = super().__new__(cls)
        selection = selection_of(cls)
        self._dispatcher = Dispatcher(selection)
        self._calls = self._dispatcher.calls
        if len(selection.kernel_types) > len(cls.kernel_types):
            self.__dict__["kernel_types"] = selection.kernel_types
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: everything but the built kernels and what backends had registered."""
        own = ("_dispatcher", "_calls", "kernel_types")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the op; a subclass says how."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward: build its call spec and run kernel_for")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run :meth:`forward`."""
        return self.forward(*args, **kwargs)

    def kernel_for(self, interface: str, call: CallSpec, *, key: str | None = None) -> Kernel:
        """The built kernel that runs *call*; the same object for the same build identity and device.

        Args:
            interface: Name of one of the op's interfaces.
            call: A call spec of the interface's type. Its device is stated, facts of the device are not.
            key: Take this implementation and no other, for tests and measurements.

        Raises:
            TypeError: *call* is of another type, has an unhashable value, names no device or states facts of
                it; or an ``entry_for`` is not what the contract asks for.
            ValueError: no implementation serves *call* or several do, *call* is invalid or outside its
                declared domain, or the implementation that was asked for refuses it.
            OpNotAvailableError: no implementation runs on the device's type.
            RefusalError: a refusal raised.
        """
        if key is not None:
            return self._dispatcher.pinned(interface, call, key)
        try:
            kernel = self._calls.get((interface, call))
        except TypeError as error:
            unhashable = self._dispatcher.unhashable(interface, call)
            raise unhashable or error from error
        if kernel is None:
            return self._dispatcher.miss(interface, call)
        if call.arch is None and call.sm_count is None and call.smem_budget is None:
            return kernel
        raise StatedFacts(stated_facts(call), call)

    def key_for(self, interface: str, call: CallSpec) -> str:
        """The key that would run *call*, on any machine; nothing is built or remembered.

        Args:
            interface: Name of one of the op's interfaces.
            call: A call spec; a device that is here, or any ``arch`` and further facts of a CUDA device.

        Raises:
            TypeError: *call* is of another type, or states neither an arch nor a device that is here.
            ValueError: no implementation serves *call* or several do, or it is invalid or outside its domain.
            OpNotAvailableError: no implementation runs on the device's type.
            RefusalError: a refusal raised.
        """
        return key_for(self._dispatcher.selection.choice(interface), call)

    def explain(self, interface: str, call: CallSpec) -> Explanation:
        """What every implementation says of *call*, and which is chosen; takes what :meth:`key_for` takes.

        Raises:
            TypeError: *call* is of another type, or states neither an arch nor a device that is here.
            ValueError: *call* is invalid or outside its declared domain.
        """
        return explain(self._dispatcher.selection.choice(interface), call)

    @staticmethod
    def resolve(call: C) -> C:
        """*call* with every device fact stated, as rules see it; see :meth:`key_for` for what it takes."""
        return resolve(call)

    def request_tune(self) -> None:
        """Put the op in tuned mode: each kernel, built already or later, gets its ``request_tune()`` once."""
        self._dispatcher.request_tune()

    def cache_info(self) -> CacheInfo:
        """How many calls and kernels are held, and how many were missed, built and dropped."""
        return self._dispatcher.info()
