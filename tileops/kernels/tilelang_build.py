"""The one way kernels of this package reach TileLang.

Selecting a kernel and asking why it refuses must work without TileLang and cost nothing of its import, so no
kernel module imports it. TileLang programs live in sibling modules named ``*_program.py``, which a builder
loads by name through :func:`load_program` when the first kernel is built.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from collections.abc import Callable, Hashable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tileops_rules.archs import KNOWN_ARCHS

from tileops.kernels.call_spec import CallSpec

__all__ = [
    "BARRIER_BYTES",
    "BULK_COPIES",
    "TARGET_NAMES",
    "KernelBuildError",
    "Program",
    "aligned",
    "compile_program",
    "dtype_name",
    "load_program",
    "nvcc_path",
    "sm_count_of",
    "smem_budget_of",
    "stated_arch",
    "target_for",
]

TARGET_NAMES: dict[int, str] = {
    80: "sm_80",
    86: "sm_86",
    89: "sm_89",
    90: "sm_90a",  # plain sm_90 has no WGMMA: nvcc refuses the source as soon as one is generated
    100: "sm_100a",
    120: "sm_120a",
}
"""What nvcc calls each architecture that kernels are built for."""

MOST_PROGRAMS = 256
"""Compiled programs that are kept for kernels to share."""

ALIGNMENT_BYTES = 16
"""Where a tensor must start for the widest loads that TileLang generates."""

BARRIER_BYTES = 1024
"""Shared memory of a block that awaits copies, beside what its launch asks for: barriers stand before that, and it
begins at a multiple of as many bytes."""

BULK_COPIES = "#include <tl_templates/cuda/copy_sm90.h>\n"
"""CUDA source of ``tl::tma_load``: TileLang includes it by itself only for copies that it writes."""


class KernelBuildError(RuntimeError):
    """A kernel cannot be built on this machine.

    Attributes:
        missing: What is missing: ``"tilelang"``, ``"nvcc"`` or ``"target"``.
    """

    def __init__(self, missing: str, message: str) -> None:
        self.missing = missing
        super().__init__(message)


class Program:
    """A compiled program. Calling it launches it on torch's current stream of the device of its tensors.

    A launch goes to the entry of the compiled library. That checks number, shapes, strides, dtypes and devices of
    what it is given; tvm_ffi, which hands it the tensors, takes the stream that torch has current for the first one
    that is not on the CPU. TileLang's own way there (0.1.15) checks the number of arguments once more, looks for
    outputs to allocate, and prepares Ascend devices, which takes longer than the entry and changes nothing here.

    Attributes:
        compiled: TileLang's kernel.
        launch: What a call runs; a kernel that holds it saves one Python call a launch.
    """

    __slots__ = ("compiled", "launch")

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.launch: Callable[..., Any] = _entry_of(compiled)

    def __call__(self, *tensors: Any) -> None:
        """Launch with the program's arguments, outputs among them."""
        self.launch(*tensors)

    def get_kernel_source(self) -> str:
        """The CUDA source."""
        source: str = self.compiled.get_kernel_source()
        return source

    def get_host_source(self) -> str:
        """The source of the entry: what it checks, and what it launches with."""
        source: str = self.compiled.get_host_source()
        return source


def _entry_of(compiled: Any) -> Callable[..., Any]:
    """The entry of the compiled library; *compiled* itself where TileLang allocates outputs or runs by other means."""
    adapter = compiled.adapter
    linked = getattr(adapter, "get_exportable_executable", None)
    if linked is None or adapter.result_idx:
        whole: Callable[..., Any] = compiled
        return whole
    library = linked()
    if hasattr(type(library), "jit"):  # not yet a library: compiled in this process, not read from TileLang's cache
        library = library.jit()
    entry: Callable[..., Any] = library.main
    return entry


def target_for(arch: int) -> dict[str, str]:
    """The TileLang target of an architecture, stated in full so that nothing is asked of the current device.

    Raises:
        KernelBuildError: *arch* is none that kernels are built for.
    """
    try:
        name = TARGET_NAMES[arch]
    except KeyError:
        known = ", ".join(map(str, TARGET_NAMES))
        raise KernelBuildError("target", f"no kernel is built for arch {arch}; known are {known}") from None
    return {"kind": "cuda", "arch": name}


def stated_arch(call: CallSpec) -> int:
    """The arch of a call that ``entry_for`` is given.

    Raises:
        TypeError: *call* does not state it.
    """
    if call.arch is None:
        raise TypeError(f"{call!r} states no arch: entry_for takes a call whose device facts are filled in")
    return call.arch


def smem_budget_of(call: CallSpec) -> int:
    """The shared memory, in bytes, that *call* states for a block, or else that of its arch."""
    return call.smem_budget if call.smem_budget is not None else KNOWN_ARCHS[stated_arch(call)].smem_budget


def sm_count_of(call: CallSpec) -> int:
    """The multiprocessors that *call* states, or else those of the usual card of its arch."""
    return call.sm_count if call.sm_count is not None else KNOWN_ARCHS[stated_arch(call)].sm_count


def nvcc_path() -> str | None:
    """Where nvcc is, or ``None``: ``CUDA_HOME``, ``CUDA_PATH``, the search path, then ``/usr/local/cuda``."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home and (Path(home) / "bin" / "nvcc").exists():
            return str(Path(home) / "bin" / "nvcc")
    found = shutil.which("nvcc")
    if found is None and Path("/usr/local/cuda/bin/nvcc").exists():
        found = "/usr/local/cuda/bin/nvcc"
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """What TileLang calls *dtype*."""
    return str(dtype).removeprefix("torch.")


def load_program(module: str) -> ModuleType:
    """Import a ``*_program`` module, and TileLang with it.

    Raises:
        KernelBuildError: TileLang is not installed, or does not load.
    """
    try:
        importlib.import_module("tilelang")
    except (ImportError, OSError) as error:
        raise KernelBuildError(
            "tilelang",
            f"building a kernel needs TileLang, which does not import here ({error}): "
            f"pip install tilelang; without a GPU, tileops.reference.install() serves CPU tensors",
        ) from error
    return importlib.import_module(module)


@functools.lru_cache(maxsize=MOST_PROGRAMS)
def compile_program(module: str, name: str, arch: int, **parameters: Hashable) -> Program:
    """Compile the program that ``module.name(**parameters)`` makes, for *arch*.

    Kernels that differ in their launches alone share what is compiled; the last :data:`MOST_PROGRAMS` stay.

    Warp specialization stays off: a specialized pipeline that happens to run a single trip never ends, and
    the trip counts of these programs are run-time values from 1 up.

    Args:
        module: A ``*_program`` module. What its ``PASSES``, if it has any, name of ``tilelang.PassConfigKey`` is
            switched on.
        name: A function of it that returns a ``prim_func`` which takes its outputs as arguments.
        arch: Architecture as an integer.
        **parameters: What the program is made from.

    Returns:
        The compiled program, callable with its arguments on the current stream.

    Raises:
        KernelBuildError: TileLang or nvcc is missing, or *arch* has no target.
    """
    target = target_for(arch)
    if nvcc_path() is None:
        raise KernelBuildError(
            "nvcc",
            f"building a kernel for {target['arch']} needs nvcc, which is neither on the search path nor "
            f"under CUDA_HOME: install the CUDA toolkit, or set CUDA_HOME to where it is",
        )
    programs = load_program(module)
    program = getattr(programs, name)(**parameters)
    tilelang = importlib.import_module("tilelang")
    passes = ("TL_DISABLE_WARP_SPECIALIZED", *getattr(programs, "PASSES", ()))
    return Program(
        tilelang.compile(
            program,
            target=target,
            pass_configs={getattr(tilelang.PassConfigKey, each): True for each in passes},
        )
    )


def aligned(tensor: Any) -> Any:
    """*tensor* itself, or a copy where it starts off a 16-byte boundary, as a view into storage may."""
    return tensor if tensor.data_ptr() % ALIGNMENT_BYTES == 0 else tensor.clone()
