"""Ops: what a user calls. An op describes a call, asks which kernel serves it, and runs that kernel."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

import torch
from tileops_rules import Explanation

from tileops.backend.registry import known_op
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops import compiling, general
from tileops.ops.dispatch import CacheInfo, Dispatcher, Span, explain, key_for
from tileops.ops.errors import NotProvedError, StatedFacts, UnorderedOverlapError
from tileops.ops.nearest import nearest
from tileops.ops.resolving import resolve, stated_facts
from tileops.ops.selection import Selection, registered_view, selection_of

if TYPE_CHECKING:
    from tileops_solver import Answer

__all__ = ["CacheInfo", "NotProvedError", "Op", "UnorderedOverlapError"]

C = TypeVar("C", bound=CallSpec)

_OWN: Final = frozenset({"_calls", "_dispatcher", "_identity", "_spans", "kernel_types"})
"""What this class keeps on an object; every other attribute is a parameter of the op."""

_is_compiling: Final = torch.compiler.is_compiling


class Op:
    """An operator with one or more kernel interfaces and the kernels that implement them.

    A subclass declares its kernels and interfaces and writes ``forward``, which builds a call spec and runs
    ``self.kernel_for("name", call)(...)``. It builds no kernel itself and keeps none.

    Constructing an op checks every class it has, those that backends registered included, and proves that no
    two of them claim one call without a declared winner. What was proved is kept with the op class; it is
    proved anew where a kernel, a preference or a rule has changed. ``TILEOPS_PROOF``, read at construction,
    says what happens where a proof is not possible: ``warn`` (the default) warns once and leaves it to the
    check at call time, ``strict`` raises, ``off`` proves nothing. ``TILEOPS_GENERAL``, read there too, is what
    :attr:`when_general` begins with.

    An op may be called in a function that ``torch.compile`` compiles, where it defines :meth:`empty_result`.

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
    _spans: dict[tuple[str, Hashable], tuple[Span, ...]]
    _identity: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known_op(cls.__name__)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check and prove here, so that no subclass's ``__init__`` can leave it out."""
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__} takes no arguments")
        self = super().__new__(cls)
        selection = selection_of(cls)
        self._dispatch_with(Dispatcher(selection, general.mode()))
        if len(selection.kernel_types) > len(cls.kernel_types):
            self.__dict__["kernel_types"] = selection.kernel_types
        self._identify()
        compiling.enrol(self)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._dispatcher.forget_spans()
        self._identify()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._dispatcher.forget_spans()
        self._identify()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: everything but the built kernels and what backends had registered."""
        return {"when_general": self.when_general, **self._parameters()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def _dispatch_with(self, dispatcher: Dispatcher) -> None:
        self.__dict__.update(_dispatcher=dispatcher, _calls=dispatcher.calls, _spans=dispatcher.spans)

    def _parameters(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def _identify(self) -> None:
        """Write down what compiled graphs call this op; see :mod:`tileops.ops.compiling`."""
        dispatcher = self._dispatcher
        modes = [] if dispatcher.when_general == "allow" else [f"when_general {dispatcher.when_general}"]
        if dispatcher.tuned:
            modes.append("tuned")
        number = dispatcher.selection.number
        self.__dict__["_identity"] = compiling.identity_of(type(self), number, self._parameters(), modes)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the op; a subclass says how."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward: build its call spec and run kernel_for")

    def empty_result(self, *args: Any, **kwargs: Any) -> Any:
        """What :meth:`forward` would return for these arguments, with nothing computed; a subclass says how.

        A subclass that defines it runs under ``torch.compile`` as one node of the graph. It takes what
        ``forward`` takes and returns a tensor, or a tuple of two or more, whose shapes, strides, dtypes and
        devices are those of ``forward``'s results. ``forward`` returns new tensors then, and writes none that it
        is given. An op without it is traced through, which works where it only calls other ops.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what its results look like: empty_result does")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run :meth:`forward`; under ``torch.compile``, put it in the graph.

        Raises:
            TypeError: an argument is neither a tensor nor None, under ``torch.compile``.
        """
        if _is_compiling() and type(self).empty_result is not Op.empty_result:
            return compiling.run(self, self._identity, args, kwargs)
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
            FellToGeneral: *call* falls to the general implementation, and :attr:`when_general` is ``error``.
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
            self._dispatcher.hits += 1
            return kernel
        raise StatedFacts(stated_facts(call), call)

    def kernel_along(self, interface: str, facts: Hashable, extent: int, call_of: Callable[[], CallSpec]) -> Kernel:
        """As :meth:`kernel_for`, for calls of which little but the interface's extent changes from one to the next.

        A call whose extent lies between two borders of the rules where one was before is found without asking any rule,
        and without a call spec.

        Args:
            interface: Name of one of the op's interfaces; it names an ``extent``.
            facts: What tells calls apart, but for the extent and the parameters of the op.
            extent: The value of that field.
            call_of: Makes the call spec; asked where nothing is remembered.

        Raises:
            Exception: as :meth:`kernel_for`.
        """
        for first, last, kernel in self._spans.get((interface, facts), ()):
            if first <= extent <= last:
                self._dispatcher.hits += 1
                return kernel
        forgotten = self._dispatcher.forgotten
        call = call_of()
        kernel = self.kernel_for(interface, call)
        self._dispatcher.span(interface, facts, call, kernel, forgotten)
        return kernel

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

    def nearest(self, interface: str, call: CallSpec) -> Answer:
        """The call nearest to *call* that is served: the fewest and smallest changes; takes what :meth:`key_for` takes.

        The solver looks for it, which may take seconds.

        Returns:
            An answer with one of three verdicts: found, with the ``call``; none, proved; or undecided. The last two
            have a ``reason``.

        Raises:
            TypeError: *call* is of another type, or states neither an arch nor a device that is here.
            ImportError: the solver is not installed.
        """
        choice = self._dispatcher.selection.choice(interface)
        choice.check(call)
        return nearest(choice.selector, call)

    @classmethod
    def with_registered(cls) -> type[Any]:
        """This class as an audit reads it, with the kernels that backends have registered by now.

        Loads plug-ins. Nothing is proved or taken out: an audit of the result tells what is wrong with it.

        Returns:
            A class of the same name with ``kernel_types``, ``interfaces`` and ``resolve``; it cannot run.

        Raises:
            KeysReused: a backend took a key of the tree.
        """
        return registered_view(cls)

    @staticmethod
    def resolve(call: C) -> C:
        """*call* with every device fact stated, as rules see it; see :meth:`key_for` for what it takes."""
        return resolve(call)

    @property
    def when_general(self) -> general.Mode:
        """What happens where a call falls to the general implementation although specialised ones can run.

        ``allow`` (nothing), ``warn`` (a :class:`~tileops.ops.general.FellToGeneralWarning`, once for each set of
        reasons) or ``error`` (a :class:`~tileops.ops.general.FellToGeneral`). Setting it empties the op's caches.
        """
        return self._dispatcher.when_general

    @when_general.setter
    def when_general(self, value: general.Mode) -> None:
        # Not changed in place: compiled graphs of ops with the mode before may share the caches.
        mode = general.named(f"{type(self).__name__}.when_general", value)
        self._dispatch_with(self._dispatcher.anew(mode))

    def request_tune(self) -> None:
        """Put the op in tuned mode: each kernel, built already or later, gets its ``request_tune()`` once."""
        try:
            self._dispatcher.request_tune()
        finally:
            self._identify()

    def cache_info(self) -> CacheInfo:
        """How many calls and kernels are held, and how many were hit, missed, built and dropped.

        Calls from compiled graphs are counted by the op that was traced first of those that are alike.
        """
        return self._dispatcher.info()
