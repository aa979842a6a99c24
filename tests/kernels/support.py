"""What the kernel tests share: building a kernel from a call without an op, and bounds on rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import torch
from tileops_rules.archs import KNOWN_ARCHS

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import device_facts
from tileops.kernels.kernel_base import Kernel

DEVICE = torch.device("cuda", 0)
FLOAT32_UNIT = 2.0**-24

_built: dict[tuple[type[Kernel], Hashable], Kernel] = {}


def rounding_unit(dtype: torch.dtype) -> float:
    """Largest relative error of rounding a real number to *dtype* once."""
    return torch.finfo(dtype).eps / 2


def on_arch(call: CallSpec, arch: int) -> Any:
    """*call* as rules and builders see it on the usual card of *arch*."""
    usual = KNOWN_ARCHS[arch]
    return dataclasses.replace(call, arch=arch, sm_count=usual.sm_count, smem_budget=usual.smem_budget)


def on_this_gpu(call: CallSpec) -> Any:
    """*call* as rules and builders see it on the GPU of this machine."""
    return dataclasses.replace(call, device=DEVICE, **dataclasses.asdict(device_facts(DEVICE)))


def build(kernel: type[Kernel], call: CallSpec) -> Any:
    """The kernel that serves *call* on this GPU, built once for each identity, as an op would."""
    resolved = on_this_gpu(call)
    reason = kernel.refusal(resolved)
    assert reason is None, reason
    identity, builder = kernel.entry_for(resolved)
    if (kernel, identity) not in _built:
        _built[kernel, identity] = builder()
    return _built[kernel, identity]


def serves(kernel: type[Kernel], call: CallSpec, arch: int) -> bool:
    """Whether *kernel* runs on *arch* and serves *call* there."""
    archs = kernel.supported_archs
    return (archs is None or arch in archs) and kernel.refusal(on_arch(call, arch)) is None
