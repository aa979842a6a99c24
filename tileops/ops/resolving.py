"""From a call as it is written to the call that rules, ``entry_for`` and builders see: with device facts."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TypeVar

import torch
from tileops_rules.archs import KNOWN_ARCHS

from tileops.kernels.call_spec import DEVICE_FACTS, CallSpec
from tileops.kernels.device_facts import DeviceFacts, DeviceFactsError, device_facts, is_current
from tileops.ops.errors import DeviceNotStated

__all__ = ["indexed", "resolve", "stated_facts", "with_facts"]

C = TypeVar("C", bound=CallSpec)

_ASK = "state a device or an arch"


def stated_facts(call: CallSpec) -> tuple[str, ...]:
    """The device facts that *call* states."""
    return tuple(name for name in DEVICE_FACTS if getattr(call, name) is not None)


def indexed(device: torch.device) -> torch.device:
    """*device*, or the current device of its type where it is a CUDA device without an index.

    Raises:
        DeviceFactsError: no CUDA device is here.
    """
    if device.type != "cuda" or device.index is not None:
        return device
    return next(each for index in itertools.count() if is_current(each := torch.device("cuda", index)))


def with_facts(call: C, device: torch.device, facts: DeviceFacts) -> C:
    """A copy of *call* on *device* that states the facts of it.

    No constructor runs: a fact takes no part in what the call is, and ``__post_init__`` has seen the rest.
    """
    copy: C = object.__new__(type(call))
    own = call.__dict__
    if len(own) == len(call.__dataclass_fields__):
        state = copy.__dict__
        state.update(own)
        state["device"] = device
        state["arch"] = facts.arch
        state["sm_count"] = facts.sm_count
        state["smem_budget"] = facts.smem_budget
        return copy
    # Fields in slots, or cached properties, which may have been computed without the facts.
    for field in dataclasses.fields(call):
        object.__setattr__(copy, field.name, getattr(call, field.name))
    object.__setattr__(copy, "device", device)
    for name in DEVICE_FACTS:
        object.__setattr__(copy, name, getattr(facts, name))
    return copy


def resolve(call: C) -> C:
    """*call* as a question on any machine: facts that it does not state come from its device or its arch.

    A call that states ``arch`` and no device is one on a CUDA device of that arch. Where a CUDA arch is
    stated, facts that are not come from the table of known archs; else they are read from the device.

    Raises:
        DeviceNotStated: neither device nor arch is stated, or the CUDA device cannot be read here.
        ValueError: facts of CUDA devices are stated of another device.
    """
    device = call.device
    if device is None and call.arch is None:
        raise DeviceNotStated(call, "nothing says what it would run on", _ASK)
    if device is None:
        device = torch.device("cuda")
    if not isinstance(device, torch.device):
        raise DeviceNotStated(call, f"device is {device!r}", f"write torch.device({device!r})")
    stated = stated_facts(call)
    if device.type != "cuda":
        if stated:
            raise ValueError(f"{call!r} states {list(stated)} of {device}: only CUDA devices have them; leave them out")
        return with_facts(call, device, device_facts(device))
    if call.arch is not None:
        usual = KNOWN_ARCHS.get(call.arch)
        facts = DeviceFacts(call.arch, usual.sm_count, usual.smem_budget) if usual else DeviceFacts(call.arch)
    else:
        try:
            facts = device_facts(device)
        except DeviceFactsError as error:
            raise DeviceNotStated(call, str(error).partition(";")[0], _ASK) from error
    return with_facts(call, device, _overridden(facts, call, stated))


def _overridden(facts: DeviceFacts, call: CallSpec, stated: tuple[str, ...]) -> DeviceFacts:
    return dataclasses.replace(facts, **{name: getattr(call, name) for name in stated}) if stated else facts
