"""What the kernel tests share: building a kernel from a call without an op, and bounds on rounding."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Hashable, Iterator
from typing import Any

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tileops.kernels import tilelang_build
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


@contextlib.contextmanager
def generated_for(arch: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it lasts, what TileLang writes for an older *arch* is turned into code of this GPU by nvcc."""
    here = device_facts(DEVICE).arch
    if here is None or here <= arch:
        pytest.skip(f"arch {here} is not newer than {arch}: its own kernels are what the other tests run")
    target = {"kind": "cuda", "arch": f"sm_{arch}", "code": [f"sm_{here}"]}
    monkeypatch.setattr(tilelang_build, "target_for", lambda _: target)
    tilelang_build.compile_program.cache_clear()
    try:
        yield
    finally:
        tilelang_build.compile_program.cache_clear()


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
