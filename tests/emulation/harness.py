"""Runs the CUDA source that TileLang generates on the CPU, so that kernels are held against float64 without a GPU.

The source is compiled as C++ against ``emulator.h``. Every thread is a fibre; one runs at a time, until it must wait
for others: that is the moment at which memory is exchanged. What may happen in any order happens in the order that a
:class:`Schedule` names. Beyond what it computes, a launch fails where

- threads wait for each other forever, lanes of a warp meet in different instructions, or a cluster barrier is misused;
- an asynchronous copy is read before it was waited for and its thread has met the reader, or writes where somebody
  still reads: from when it is asked for until then, its target is NaN;
- shared memory is read before it is written, or written outside of what the launch asks for: it is NaN at first;
- tensors are written outside of their elements. Floating tensors that a kernel may write hold NaN when it begins.

It does not see what caches, weak memory order, races between two barriers other than in the orders tried, registers,
alignment of plain accesses, or the rounding of the device's ``exp2`` and tensor cores do.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import dataclasses
import functools
import importlib
import os
import random
import re
import shutil
import subprocess
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, Final

import torch

from tests.kernels.support import on_arch
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel
from tileops.kernels.tilelang_build import dtype_name, load_program, target_for

__all__ = ["SCHEDULES", "EmulatedProgram", "EmulationError", "Emulator", "Schedule"]

HERE: Final = Path(__file__).parent
SOURCES: Final = (HERE / "emulator.cpp", HERE / "instructions.cpp")
MARGIN: Final = 4096
POISON: Final = 0xFF
FLAGS: Final = ("-std=c++17", "-fno-strict-aliasing", "-fPIC", "-shared", "-w", "-U_FORTIFY_SOURCE")
UNWRITTEN: Final = "-ftrivial-auto-var-init=pattern"
"""Registers that nothing was written to hold a NaN, or a very large number."""

COPY: Final = re.compile(
    r'asm volatile\("cp\.async\.cg\.shared\.global(?:\.L2::128B)? \[%0\], \[%1\], (\d+);" ::\s*'
    r'"r"\(\(unsigned\)__cvta_generic_to_shared\((\w+)\)\), "l"\((\w+)\)\);'
)
SHARED: Final = re.compile(r"extern __shared__ __align__\(\d+\) uchar (\w+)\[\];")
DECLARATION: Final = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\);')


class EmulationError(RuntimeError):
    """A launch did what no launch may do."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """In which order things happen that may happen in any.

    Attributes:
        backward: Whether clusters begin, and blocks, warps and lanes take turns, from the last one on.
        seed: Of the order in which clusters begin and of the turns that threads miss; 0 for the order of their numbers.
        resident: Clusters that run at the same time, taking turns.
    """

    backward: bool = False
    seed: int = 0
    resident: int = 1

    def order(self, clusters: int) -> list[int]:
        """The numbers of *clusters* clusters as they begin."""
        numbers = list(range(clusters))
        if self.seed:
            random.Random(self.seed).shuffle(numbers)
        return numbers[::-1] if self.backward else numbers


SCHEDULES: Final = {
    "from the last": Schedule(backward=True),
    "shuffled, four at a time": Schedule(seed=1, resident=4),
}
"""Orders beside that of numbers, one cluster after another."""


class Launch(ctypes.Structure):
    """As ``emulator.cpp`` has it."""

    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("cluster", ctypes.c_int),
        ("shared_bytes", ctypes.c_int),
        ("order", ctypes.POINTER(ctypes.c_int)),
        ("resident", ctypes.c_int),
        ("backward", ctypes.c_int),
        ("seed", ctypes.c_uint),
    ]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its name, its C type, and whether it is a tensor that the kernel may write."""

    name: str
    kind: str

    @property
    def is_tensor(self) -> bool:
        """Whether it is a pointer."""
        return self.kind.endswith("*")

    @property
    def is_written(self) -> bool:
        """Whether the kernel may write it."""
        return self.is_tensor and not self.kind.startswith("const ")


def translated(source: str) -> tuple[str, list[Parameter]]:
    """C++ that ``g++`` compiles, with an entry ``run_kernel(void **)``, and the kernel's parameters."""
    text = re.sub(r"^#include <.*$", "", source, flags=re.MULTILINE)
    text = COPY.sub(r"emulator::copy(\2, \3, \1);", text)
    text = SHARED.sub(r"uchar *\1 = emulator::current->shared;", text)
    for foreign in ("asm volatile", "__shared__"):
        if foreign in text:
            raise EmulationError(f"the source has {foreign!r} in a form that is not translated")
    found = DECLARATION.search(text)
    if found is None:
        raise EmulationError("the source declares no kernel")
    parameters = []
    for each in found[2].split(","):
        kind, _, name = each.replace("__restrict__", "").strip().rpartition(" ")
        parameters.append(Parameter(name, kind.strip()))
    given = ", ".join(f"*static_cast<{each.kind}*>(given[{i}])" for i, each in enumerate(parameters))
    entry = f'extern "C" void run_kernel(void **given) {{ {found[1]}({given}); }}\n'
    return f'#include "emulator.h"\n{text}\n{entry}', parameters


class Guarded:
    """A contiguous copy of a tensor, with NaN on both sides; where it holds nothing yet, in between as well."""

    def __init__(self, tensor: torch.Tensor, parameter: Parameter) -> None:
        self.tensor = tensor
        self.name = parameter.name
        self.written = parameter.is_written
        self.storage = torch.full((tensor.nbytes + 2 * MARGIN,), POISON, dtype=torch.uint8)
        self.inside = self.storage[MARGIN : MARGIN + tensor.nbytes]
        if not self.written or not tensor.dtype.is_floating_point:
            self.inside.copy_(tensor.reshape(-1).view(torch.uint8))

    def give_back(self) -> None:
        """Check the margins and copy what was written."""
        if self.written:
            for margin in (self.storage[:MARGIN], self.storage[MARGIN + self.tensor.nbytes :]):
                if not bool((margin == POISON).all()):
                    raise EmulationError(f"{self.name} is written outside of its elements")
            self.tensor.reshape(-1).view(torch.uint8).copy_(self.inside)


class EmulatedProgram:
    """What stands in for a compiled program: ``launch`` takes the same arguments, of tensors on the CPU.

    Attributes:
        source: The CUDA source.
        given: Arguments, extents and strides of the last launch, by name.
    """

    def __init__(self, emulator: Emulator, program: Any, lowered: Any) -> None:
        self.emulator = emulator
        self.source: str = lowered.kernel_source
        (device,) = lowered.device_mod.functions.values()
        self.extents = dict(device.attrs["thread_extent"].items())
        if any(int(n) != 1 for name, n in self.extents.items() if not name.endswith(".x")):
            raise EmulationError(f"blocks or grids of more than one dimension are not emulated: {self.extents}")
        self.cluster = int(device.attrs["cluster_dims"][0]) if "cluster_dims" in device.attrs else 1
        self.shared_bytes = int(device.attrs["dyn_shared_memory_buf"]) if "dyn_shared_memory_buf" in device.attrs else 0
        self.bound = [program.buffer_map.get(each, each) for each in program.params]
        self.given: dict[str, Any] = {}
        text, self.parameters = translated(self.source)
        self.kernel = emulator.built(text)

    def altered(self, source: str) -> EmulatedProgram:
        """The same program with other CUDA source."""
        other = copy.copy(self)
        other.source = source
        other.kernel = self.emulator.built(translated(source)[0])
        return other

    def __call__(self, *arguments: Any) -> None:
        """See :meth:`launch`."""
        self.launch(*arguments)

    def get_kernel_source(self) -> str:
        """The CUDA source."""
        return self.source

    def values_of(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Arguments, and the extents and strides of tensors, by name.

        Raises:
            EmulationError: A tensor has not the extents and strides that the program states.
        """
        values: dict[str, Any] = {}
        if len(arguments) != len(self.bound):
            raise EmulationError(f"{len(arguments)} arguments where the program takes {len(self.bound)}")
        for bound, argument in zip(self.bound, arguments, strict=True):
            values[bound.name] = argument
            if not hasattr(bound, "shape"):
                continue
            if str(bound.dtype) != dtype_name(argument.dtype) or len(bound.shape) != argument.dim():
                raise EmulationError(f"{bound.name} is {argument.dtype} of {tuple(argument.shape)}")
            for stated, n in zip(bound.shape, argument.shape, strict=True):
                if (values.setdefault(stated.name, n) if hasattr(stated, "name") else int(stated)) != n:
                    raise EmulationError(f"{bound.name} is {tuple(argument.shape)}, and the program says {bound.shape}")
            placed = zip(bound.strides or argument.stride(), argument.stride(), strict=True)
            named = {each.name: n for each, n in placed if hasattr(each, "name")}
            if not named and not argument.is_contiguous():
                raise EmulationError(f"{bound.name} has strides {argument.stride()}")
            values.update(named)
        return values

    def launch(self, *arguments: Any) -> None:
        """Run a launch in the emulator's schedule.

        Raises:
            EmulationError: See the module.
        """
        values = self.given = self.values_of(arguments)
        cells: list[Any] = []
        guarded = []
        for each in self.parameters:
            value = values[each.name]
            if not each.is_tensor:
                cells.append((ctypes.c_int64 if "64" in each.kind else ctypes.c_int)(value))
            elif value.is_contiguous():
                guarded.append(Guarded(value, each))
                cells.append(ctypes.c_void_p(guarded[-1].inside.data_ptr()))
            elif each.is_written:
                raise EmulationError(f"{each.name} is written and has strides {value.stride()}")
            else:
                cells.append(ctypes.c_void_p(value.data_ptr()))
        given = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(each) for each in cells))
        grid = number_of(self.extents["blockIdx.x"], values)
        order = self.emulator.schedule.order(grid // self.cluster)
        self.emulator.run(
            Launch(
                kernel=self.kernel,
                arguments=ctypes.addressof(given),
                grid=grid,
                threads=int(self.extents["threadIdx.x"]),
                cluster=self.cluster,
                shared_bytes=self.shared_bytes,
                order=(ctypes.c_int * len(order))(*order),
            )
        )
        for tensor in guarded:
            tensor.give_back()


@functools.cache
def analyzer() -> Any:
    """TVM's arithmetic: one, as it takes milliseconds to make."""
    return importlib.import_module("tilelang").tvm.arith.Analyzer()


def number_of(expression: Any, values: dict[str, Any]) -> int:
    """What TVM's *expression* of named integers is."""
    tvm = importlib.import_module("tilelang").tvm
    known: dict[Any, Any] = {}

    def visit(node: Any) -> None:
        if isinstance(node, tvm.tirx.Var):
            known[node] = tvm.tirx.const(values[node.name], node.dtype)

    if isinstance(expression, int):
        return expression
    tvm.tirx.stmt_functor.post_order_visit(expression, visit)
    return int(analyzer().simplify(tvm.tirx.stmt_functor.substitute(expression, known)))


class Emulator:
    """Compiles programs for the CPU, and runs them.

    Args:
        folder: Where to build.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schedule = Schedule()
        self.compile_program = functools.cache(self._compile_program)
        self.kernels: dict[tuple[type[Kernel], Hashable], Any] = {}
        self.libraries: list[ctypes.CDLL] = []
        library = self._library("emulator", SOURCES, "-O2", mode=ctypes.RTLD_GLOBAL)
        self._run = library.emulator_run
        self._run.restype = ctypes.c_char_p

    @staticmethod
    def missing() -> str | None:
        """Why nothing can be emulated here, or ``None``."""
        if shutil.which("g++") is None:
            return "there is no g++, so generated kernels do not run on the CPU"
        probe = ["g++", UNWRITTEN, "-E", "-x", "c++", os.devnull]
        if subprocess.run(probe, capture_output=True, check=False).returncode:
            return f"g++ has no {UNWRITTEN}, as from 12 on: generated kernels do not run on the CPU"
        return None

    def _library(
        self, name: str, sources: tuple[Path, ...], *options: str, mode: int = ctypes.RTLD_LOCAL
    ) -> ctypes.CDLL:
        target = self.folder / f"{name}.so"
        command = ["g++", *FLAGS, *options, f"-I{HERE}", "-o", str(target), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EmulationError(f"g++ does not compile {name}:\n{done.stderr[:4000]}")
        self.libraries.append(ctypes.CDLL(str(target), mode=mode))
        return self.libraries[-1]

    def built(self, text: str) -> int:
        """The address of ``run_kernel`` of a translated source."""
        name = f"kernel_{len(self.libraries)}"
        source = self.folder / f"{name}.cpp"
        source.write_text(text)
        library = self._library(name, (source,), "-O1", UNWRITTEN)
        address = ctypes.cast(library.run_kernel, ctypes.c_void_p).value
        if address is None:
            raise EmulationError(f"{source} has no run_kernel")
        return address

    def _compile_program(self, module: str, name: str, arch: int, **parameters: Hashable) -> EmulatedProgram:
        """In the place of :func:`tileops.kernels.tilelang_build.compile_program`; it needs no nvcc."""
        programs = load_program(module)
        program = getattr(programs, name)(**parameters)
        tilelang = importlib.import_module("tilelang")
        passes = ("TL_DISABLE_WARP_SPECIALIZED", *getattr(programs, "PASSES", ()))
        configs = {getattr(tilelang.PassConfigKey, each).value: True for each in passes}
        target = tilelang.tvm.target.Target(target_for(arch))
        with tilelang.tvm.transform.PassContext(opt_level=3, config=configs), target:
            lowered = tilelang.lower(program, target=target, enable_host_codegen=False, enable_device_compile=False)
        return EmulatedProgram(self, program, lowered)

    def run(self, launch: Launch) -> None:
        """Run *launch* in the order of the schedule.

        Raises:
            EmulationError: See the module.
        """
        launch.resident = self.schedule.resident
        launch.backward = self.schedule.backward
        launch.seed = self.schedule.seed
        wrong = self._run(ctypes.byref(launch))
        if wrong is not None:
            raise EmulationError(wrong.decode())

    @contextlib.contextmanager
    def scheduled(self, schedule: Schedule) -> Iterator[None]:
        """Run what follows in *schedule*."""
        before, self.schedule = self.schedule, schedule
        try:
            yield
        finally:
            self.schedule = before

    def build(self, kernel: type[Kernel], call: CallSpec, arch: int = 90) -> Any:
        """The kernel for *call* on the usual card of *arch*, as ``tests.kernels.support.build`` gives it."""
        resolved = on_arch(call, arch)
        reason = kernel.refusal(resolved)
        if reason is not None:
            raise EmulationError(f"{kernel.__name__} refuses the call: {reason}")
        identity, builder = kernel.entry_for(resolved)
        if (kernel, identity) not in self.kernels:
            self.kernels[kernel, identity] = builder()
        return self.kernels[kernel, identity]
