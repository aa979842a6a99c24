"""What an op remembers of its calls: which kernel serves a call, and what was built.

Three bounded caches belong to each op object:

* *calls*, from ``(interface, call)`` to the built kernel, at most :data:`MOST_CALLS`. When it is full the
  oldest quarter goes.
* *spans*, from ``(interface, facts)``, where *facts* are whatever an op tells its calls apart by but for the
  interface's extent, to the ranges of that field in which calls were seen, each with its kernel. At most
  :data:`MOST_CALLS`; they go whenever calls go.
* *entries*, from ``(class, device, build identity)`` to the built kernel, at most :data:`MOST_ENTRIES`. Every
  :data:`RENEWAL` builds the calls are forgotten, so that the next call of a kernel that is in use brings its
  entry back to the front; when the entries are full the :data:`RENEWAL` longest out of use go.

A hit takes no lock and reads one dict. A build holds the lock of its entry alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any, Final

import torch
from tileops_rules import Explanation

from tileops.backend.errors import OpNotAvailableError
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import DeviceFactsError, device_facts, running_on
from tileops.kernels.kernel_base import Kernel
from tileops.ops import general
from tileops.ops.errors import (
    BadEntry,
    DeviceNotStated,
    ImplementationRefuses,
    StatedFacts,
    UnhashableCall,
    UnhashableIdentity,
)
from tileops.ops.resolving import indexed, resolve, stated_facts, with_facts
from tileops.ops.selection import Choice, Selection

__all__ = ["MOST_CALLS", "MOST_ENTRIES", "RENEWAL", "CacheInfo", "Dispatcher", "Span"]

MOST_CALLS: Final = 4096
"""Calls remembered by one op object."""
MOST_ENTRIES: Final = 512
"""Built kernels held by one op object."""
RENEWAL: Final = 128
"""Builds after which the calls are forgotten, and how many entries go when they are full."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """The state of an op's caches.

    Attributes:
        hits: Calls that were remembered.
        misses: Calls that were not.
        builds: Kernels built.
        evictions: Kernels dropped because the entries were full.
        calls: Calls remembered now.
        entries: Kernels held now.
    """

    hits: int
    misses: int
    builds: int
    evictions: int
    calls: int
    entries: int
    most_calls: int = MOST_CALLS
    most_entries: int = MOST_ENTRIES


MOST_SPANS = 32
"""Spans of one extent that are looked through, the first ones found; other calls are found as without an extent."""
Span = tuple[int, int, Kernel]
"""The first and the last value of an extent, and the kernel of calls that have one from there to there."""


class _Entry:
    """A place for one built kernel.

    ``lock`` is held while it is built or tuned; ``used`` is the number of the miss that last led to it.
    """

    __slots__ = ("dropped", "kernel", "lock", "tuned", "used")

    def __init__(self, used: int) -> None:
        self.used = used
        self.lock = threading.RLock()
        self.kernel: Kernel | None = None
        self.tuned = False
        self.dropped = False


class Dispatcher:
    """The caches of one op object, and the way of a call that is not in them.

    Attributes:
        calls: ``(interface, call)`` to kernel; read without a lock by the op.
        spans: ``(interface, facts)`` to ranges of the extent, both ends included, with their kernels; read so too.
        forgotten: How often these were forgotten.
        hits: How many calls were found there; counted by the op, without a lock.
        selection: What decides.
        tuned: Whether kernels are asked to tune before they first run.
        when_general: What happens where a call falls to the general implementation.
    """

    def __init__(self, selection: Selection, when_general: general.Mode = "allow") -> None:
        self.selection = selection
        self.hits = 0
        self.tuned = False
        self.when_general: Final[general.Mode] = when_general
        self.calls: dict[tuple[str, CallSpec], Kernel] = {}
        self.spans: dict[tuple[str, Hashable], tuple[Span, ...]] = {}
        self.forgotten = 0
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()
        self._misses = self._builds = self._evictions = 0

    def miss(self, interface: str, call: CallSpec) -> Kernel:
        """The kernel of a call that is not remembered; it is remembered then.

        Raises:
            TypeError: *call* is not one that can run; see the error table of the design.
            ValueError: no implementation serves it, or several do.
            OpNotAvailableError: no implementation runs on its type of device.
            FellToGeneral: it falls to the general implementation, and that is not to be.
        """
        choice = self.selection.choice(interface)
        asked = call
        device, resolved = self._here(choice, call)
        if device is not call.device:  # "cuda" means the current device, and that is not to be remembered
            asked = dataclasses.replace(call, device=device)
            known = self.calls.get((interface, asked))
            if known is not None:
                return known
        index = choice.decide(resolved)
        if index == choice.general and self.when_general != "allow":
            general.fallen(choice.op, interface, choice.selector, resolved, self.when_general)
        entry, kernel = self._entry(choice, index, device, resolved)
        with self._lock:
            self._misses += 1
            if not entry.dropped:
                if len(self.calls) >= MOST_CALLS:
                    for each in list(itertools.islice(self.calls, MOST_CALLS // 4)):
                        del self.calls[each]
                self.calls[interface, asked] = kernel
        return kernel

    def span(self, interface: str, facts: Hashable, call: CallSpec, kernel: Kernel, forgotten: int) -> None:
        """Remember *kernel*, which is that of *call*, for all calls of *facts* as far as its extent may move.

        It may where no rule answers differently and the build identity is that of *call* at both ends: an interface
        that names an extent promises that it is the same between them.

        Args:
            interface: Of the call.
            facts: What tells it apart from others, but for the extent.
            call: A call that a kernel was found for.
            kernel: That kernel.
            forgotten: What :attr:`forgotten` was before *call* was made. Where that has changed, nothing is remembered:
                the op may have been another one, or the kernel been dropped.
        """
        if len(self.spans.get((interface, facts), ())) >= MOST_SPANS:
            return
        choice = self.selection.choice(interface)
        device, resolved = self._here(choice, call)
        between = None if choice.extent is None or device is not call.device else choice.extent.around(resolved)
        if between is None:
            return
        span = (*self._of_one_build(choice, resolved, between), kernel)
        with self._lock:
            if forgotten == self.forgotten:
                if len(self.spans) >= MOST_CALLS:
                    self.spans.clear()
                self.spans[interface, facts] = (*self.spans.get((interface, facts), ()), span)

    def forget_spans(self) -> None:
        """Forget the spans, as where a parameter of the op that is in no facts has changed."""
        with self._lock:
            self._spans_gone()

    @staticmethod
    def _of_one_build(choice: Choice, resolved: CallSpec, between: tuple[int, int]) -> tuple[int, int]:
        """The part of a range of the extent around *resolved* whose ends have its build identity."""
        kind = choice.classes[choice.decide(resolved)]
        identity = kind.entry_for(resolved)[0]
        field = str(choice.extent_field)
        here: int = getattr(resolved, field)

        def is_same(extent: int) -> bool:
            moved: dict[str, Any] = {field: extent}
            try:
                return bool(kind.entry_for(dataclasses.replace(resolved, **moved))[0] == identity)
            except (ArithmeticError, LookupError, TypeError, ValueError):  # of a call that nobody asked for
                return False

        def last(end: int) -> int:
            """The last extent from here to *end* that is built as here, or one before it."""
            if is_same(end):
                return end
            same, other = here, end
            while abs(other - same) > 1:
                middle = (same + other) // 2
                same, other = (middle, other) if is_same(middle) else (same, middle)
            return same

        low, high = between
        return last(low), last(high)

    def pinned(self, interface: str, call: CallSpec, key: str) -> Kernel:
        """The kernel of one implementation, whatever others say; the call is not remembered.

        Raises:
            ImplementationRefuses: it cannot run on the call's device, or refuses the call.
        """
        choice = self.selection.choice(interface)
        index = choice.index(key)
        device, resolved = self._here(choice, call)
        status, reasons = choice.said(index, resolved)
        if status is not None:
            raise ImplementationRefuses(choice.op, interface, key, resolved, status, reasons)
        return self._entry(choice, index, device, resolved)[1]

    def request_tune(self) -> None:
        """Tune each kernel once: those that are built now, and those built later before they first run."""
        with self._lock:
            self.tuned = True
            present = list(self._entries.values())
        for entry in present:
            with entry.lock:
                if entry.kernel is not None and not entry.dropped:
                    self._tune(entry, entry.kernel)

    def anew(self, when_general: general.Mode) -> Dispatcher:
        """Empty caches for the same op, tuned where these are."""
        other = Dispatcher(self.selection, when_general)
        other.tuned = self.tuned
        return other

    def info(self) -> CacheInfo:
        """The numbers of the caches."""
        with self._lock:
            held = len(self.calls), len(self._entries)
            return CacheInfo(self.hits, self._misses, self._builds, self._evictions, *held)

    def unhashable(self, interface: str, call: Any) -> Exception | None:
        """The error for a call that has no hash; None where it has one."""
        self.selection.choice(interface).check(call)
        for field in dataclasses.fields(call):
            value = getattr(call, field.name)
            if not _hashable(value):
                return UnhashableCall(call, field.name, value)
        return None

    def _here(self, choice: Choice, call: CallSpec) -> tuple[torch.device, CallSpec]:
        """The device of *call*, with an index, and *call* with its facts."""
        choice.check(call)
        if call.arch is not None or call.sm_count is not None or call.smem_budget is not None:
            raise StatedFacts(stated_facts(call), call)
        device = call.device
        if not isinstance(device, torch.device):
            raise DeviceNotStated(call, f"device is {device!r}", "state a device that is here, as x.device")
        if device.type not in choice.device_types:
            raise OpNotAvailableError(choice.op, choice.interface, device.type, choice.devices)
        try:
            if device.index is None:
                device = indexed(device)
            facts = device_facts(device)
        except DeviceFactsError as error:
            error.add_note("a kernel runs on a device that is here; key_for and explain answer for any other")
            raise
        return device, with_facts(call, device, facts)

    def _entry(self, choice: Choice, index: int, device: torch.device, resolved: CallSpec) -> tuple[_Entry, Kernel]:
        """The entry of a call that an implementation serves, built where it is not."""
        kind = choice.classes[index]
        answer = kind.entry_for(resolved)
        if type(answer) is not tuple or len(answer) != 2 or not callable(answer[1]):
            raise BadEntry(choice.keys[index], answer, "entry_for (which returns a pair of build identity and builder)")
        place = (kind, device, answer[0])
        try:
            entry = self._entries.get(place)
        except TypeError as error:
            if _hashable(place):
                raise
            raise UnhashableIdentity(choice.keys[index], answer[0]) from error
        if entry is not None and (kernel := entry.kernel) is not None:
            entry.used = self._misses
            return entry, kernel
        return self._built(choice.keys[index], place, answer[1], device)

    def _built(
        self, key: str, place: Hashable, builder: Callable[[], Any], device: torch.device
    ) -> tuple[_Entry, Kernel]:
        while True:
            with self._lock:
                entry = self._entries.get(place)
                if entry is None:
                    entry = self._entries[place] = _Entry(self._misses)
            with entry.lock:
                if entry.kernel is not None:
                    return entry, entry.kernel
                if entry.dropped:  # its build failed in another thread; try in an entry of our own
                    continue
                try:
                    return entry, self._build(key, entry, builder, device)
                except BaseException:
                    entry.dropped = True
                    with self._lock:
                        if self._entries.get(place) is entry:
                            del self._entries[place]
                    raise

    def _build(self, key: str, entry: _Entry, builder: Callable[[], Any], device: torch.device) -> Kernel:
        with running_on(device):
            kernel = builder()
        if not isinstance(kernel, Kernel):
            raise BadEntry(key, kernel, "the builder (which returns a Kernel)")
        if kernel.launch_device not in (None, device):
            raise BadEntry(key, kernel, f"the builder for {device} (which builds anew for each device)")
        object.__setattr__(kernel, "launch_device", device)
        if self.tuned:
            self._tune(entry, kernel)
        with self._lock:
            entry.kernel = kernel
            self._builds += 1
            if self._builds % RENEWAL == 0:
                self.calls.clear()
                self._spans_gone()
            if len(self._entries) > MOST_ENTRIES:
                self._evict()
        return kernel

    def _tune(self, entry: _Entry, kernel: Kernel) -> None:
        if not entry.tuned:
            with running_on(kernel.launch_device):
                kernel.request_tune()
            entry.tuned = True

    def _spans_gone(self) -> None:
        """Forget them, and keep what another thread is about to remember from coming in."""
        self.forgotten += 1
        self.spans.clear()

    def _evict(self) -> None:
        """Drop the entries that are longest out of use, with every call that leads to them."""
        built = [(entry.used, place) for place, entry in self._entries.items() if entry.kernel is not None]
        built.sort(key=lambda each: each[0])
        gone = set()
        for _, place in built[:RENEWAL]:
            entry = self._entries.pop(place)
            entry.dropped = True
            gone.add(id(entry.kernel))
        for asked in [asked for asked, kernel in self.calls.items() if id(kernel) in gone]:
            del self.calls[asked]
        self._spans_gone()
        self._evictions += len(gone)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def key_for(choice: Choice, call: CallSpec) -> str:
    """Which key would run *call*, for any stated device, on any machine; remembers nothing.

    Raises:
        DeviceNotStated: it says neither device nor arch.
        ValueError: no implementation serves it, or several do.
        OpNotAvailableError: no implementation runs on its type of device.
    """
    choice.check(call)
    resolved = resolve(call)
    if resolved.device is not None and resolved.device.type not in choice.device_types:
        raise OpNotAvailableError(choice.op, choice.interface, resolved.device.type, choice.devices)
    return choice.keys[choice.decide(resolved)]


def explain(choice: Choice, call: CallSpec) -> Explanation:
    """What every implementation says of *call*, for any stated device, on any machine."""
    choice.check(call)
    return choice.selector.explain(resolve(call))
