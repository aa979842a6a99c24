"""What a device says about itself, read once for each device, and which device is current.

Nothing here runs on a cache hit except :func:`is_current`. Tests replace the reader with
:func:`faked`, so that two cards of different architecture can be played in one process without a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import torch

__all__ = [
    "DeviceFacts",
    "DeviceFactsError",
    "device_facts",
    "faked",
    "is_current",
    "running_on",
    "set_reader",
]


@dataclasses.dataclass(frozen=True)
class DeviceFacts:
    """The facts that rules and builders read of a device.

    Attributes:
        arch: Compute capability as an integer (``90`` for 9.0).
        sm_count: Multiprocessors.
        smem_budget: Shared memory one block may use (opted in), in bytes.

    All three are ``None`` for a device that is no CUDA device.
    """

    arch: int | None = None
    sm_count: int | None = None
    smem_budget: int | None = None


class DeviceFactsError(RuntimeError):
    """The facts of a CUDA device cannot be read on this machine.

    Attributes:
        device: The device asked about; None where it is the current one.
    """

    def __init__(self, device: torch.device | None, cause: str) -> None:
        self.device = device
        super().__init__(f"the facts of {device} cannot be read here: {cause}; state an arch instead")


Reader = Callable[[torch.device], DeviceFacts]


def _read_from_torch(device: torch.device) -> DeviceFacts:
    try:
        properties = torch.cuda.get_device_properties(device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise DeviceFactsError(device, str(error).strip().splitlines()[0]) from error
    return DeviceFacts(
        arch=properties.major * 10 + properties.minor,
        sm_count=properties.multi_processor_count,
        smem_budget=properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]
    )


class _Faked(threading.local):
    """The device that is current on this thread while the reader is faked."""

    index: int = 0


_NO_FACTS = DeviceFacts()
_lock = threading.Lock()
_reader: Reader = _read_from_torch
_cache: dict[torch.device, DeviceFacts] = {}
_faked = _Faked()

_index_from_torch: Final[Callable[[], int]] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
"""What ``torch.cuda.current_device`` ends in, where torch is built with CUDA: it asks no more whether CUDA is up."""
_index_now: Callable[[], int] = _index_from_torch
"""The index of the CUDA device that is current: as torch tells, or as played."""
_wanted: dict[torch.device | None, int | None] = {}
"""The index that must be current for each device, None where any may be; kept, as ``device.type`` makes a text anew."""


def device_facts(device: torch.device) -> DeviceFacts:
    """The facts of *device*, read at most once for each device.

    A CUDA device without an index means the current one.

    Raises:
        DeviceFactsError: A CUDA device that this machine does not have.
    """
    if device.type != "cuda":
        return _NO_FACTS
    facts = _cache.get(device) if device.index is not None else None
    if facts is not None:
        return facts
    if device.index is None:
        return device_facts(torch.device("cuda", _current_index(device)))
    facts = _reader(device)
    with _lock:
        return _cache.setdefault(device, facts)


def set_reader(reader: Reader | None) -> None:
    """Read devices with *reader* from now on (``None``: as torch tells) and forget what was read."""
    global _index_now, _reader
    with _lock:
        _reader = _read_from_torch if reader is None else reader
        _index_now = _index_from_torch if reader is None else _faked_index
        _cache.clear()


@contextlib.contextmanager
def faked(facts: Mapping[torch.device, DeviceFacts]) -> Iterator[None]:
    """Play the given CUDA devices for the time of the block; any other one cannot be read.

    No CUDA call is made in the block: :func:`running_on` keeps the current device in a variable of the
    thread, where :func:`is_current` finds it.
    """
    table = dict(facts)

    def read(device: torch.device) -> DeviceFacts:
        try:
            return table[device]
        except KeyError:
            raise DeviceFactsError(device, f"only {sorted(map(str, table))} are played") from None

    before = _reader
    set_reader(read)
    try:
        yield
    finally:
        set_reader(None if before is _read_from_torch else before)


def _faked_index() -> int:
    return _faked.index


def _current_index(device: torch.device) -> int:
    try:
        return _index_now()
    except (RuntimeError, AssertionError) as error:
        raise _unread(device, error) from error


def _unread(device: torch.device | None, error: Exception) -> DeviceFactsError:
    return DeviceFactsError(device, str(error).strip().splitlines()[0])


def is_current(device: torch.device | None) -> bool:
    """Whether work can be issued for *device* without changing the current device.

    True of ``None``, of devices that have no notion of a current one, and of a CUDA device without index.
    """
    try:
        wanted = _wanted[device]
    except KeyError:
        wanted = _wanted[device] = None if device is None or device.type != "cuda" else device.index
    if wanted is None:
        return True
    try:
        return wanted == _index_now()
    except (RuntimeError, AssertionError) as error:
        raise _unread(device, error) from error


@contextlib.contextmanager
def running_on(device: torch.device | None) -> Iterator[None]:
    """Make *device* current for the time of the block; nothing is done where it is current already."""
    if device is None or is_current(device):
        yield
    elif _reader is not _read_from_torch:
        before, _faked.index = _faked.index, device.index
        try:
            yield
        finally:
            _faked.index = before
    else:
        with torch.cuda.device(device):
            yield
