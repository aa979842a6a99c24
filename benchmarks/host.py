"""Host time of one layer_norm call on a small input, whole and piece by piece, beside torch's, in microseconds.

    python benchmarks/host.py

On a GPU the launches are real. Without one the compiled program is replaced by a function that does nothing, and the
kernel is said to run on the CPU: what remains is the Python of a call, and torch's allocation and views.
Times are the least means of many short rounds, the pieces in turn: what is above that is the machine's other work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import timeit
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch

from tileops.ops import LayerNormFwdOp

ROUNDS, CALLS = 60, 200
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if ON_GPU else torch.device("cpu")


def least_us(pieces: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Least mean time of each piece on the host; the device catches up between rounds."""
    least = dict.fromkeys(pieces, float("inf"))
    for _ in range(ROUNDS):
        for name, work in pieces.items():
            if ON_GPU:
                torch.cuda.synchronize()
            least[name] = min(least[name], timeit.timeit(work, number=CALLS) / CALLS * 1e6)
    return least


def on_cpu(kind: type[Any]) -> type[Any]:
    """The kernel, said to run on the CPU, built as for an H200."""

    def entry_for(cls: Any, call: Any) -> Any:
        return super(played, cls).entry_for(dataclasses.replace(call, arch=90, sm_count=132, smem_budget=232448))

    members = {"devices": frozenset({"cpu"}), "supported_archs": None, "entry_for": classmethod(entry_for)}
    played: type[Any] = type(kind.__name__, (kind,), members)
    return played


class NoLaunch:
    """Stands for a compiled program."""

    def __init__(self) -> None:
        self.launch = lambda *tensors: None

    def __call__(self, *tensors: Any) -> None:
        self.launch(*tensors)


@contextlib.contextmanager
def measured_op() -> Iterator[Any]:
    """The op whose calls are measured."""
    if ON_GPU:
        yield LayerNormFwdOp()
        return
    kinds = {key: on_cpu(kind) for key, kind in LayerNormFwdOp.kernel_types.items()}
    modules = {base.__module__ for kind in kinds.values() for base in kind.__mro__}
    with contextlib.ExitStack() as stack:
        for module in map(sys.modules.get, modules):
            if hasattr(module, "compile_program"):
                stack.enter_context(mock.patch.object(module, "compile_program", return_value=NoLaunch()))
        yield type("LayerNormFwdOp", (LayerNormFwdOp,), {"kernel_types": kinds})()


def main() -> None:
    """Measure and print."""
    n = 4096
    x = torch.randn(1, n, device=DEVICE, dtype=torch.bfloat16)
    w, b = torch.randn(2, n, device=DEVICE, dtype=torch.bfloat16)
    with measured_op() as op:
        op(x, w, b)
        ((_, call),) = op._calls
        facts = {field.name: getattr(call, field.name) for field in dataclasses.fields(call) if field.compare}
        made = functools.partial(type(call), **facts)
        kernel = op.kernel_for("layer_norm", call)
        program = next(value for value in vars(kernel).values() if hasattr(value, "launch"))
        out = torch.empty_like(x)
        pieces: dict[str, Callable[[], Any]] = {
            "torch layer_norm": lambda: torch.nn.functional.layer_norm(x, (n,), w, b),
            "op(x, w, b)": lambda: op(x, w, b),
            "op.forward": lambda: op.forward(x, w, b),
            "make the call": made,
            "kernel_for(call)": lambda: op.kernel_for("layer_norm", call),
            "kernel_for(a new equal call)": lambda: op.kernel_for("layer_norm", made()),
            "kernel(x, w, b)": lambda: kernel(x, w, b),
            "kernel.forward": lambda: kernel.forward(x, w, b),
            "launch": lambda: program.launch(x, w, b, out),
            "empty_like": lambda: torch.empty_like(x),
            "view": lambda: x.view(-1, n),
            "data_ptr": x.data_ptr,
        }
        if ON_GPU:
            pieces["launch through TileLang"] = lambda: program.compiled(x, w, b, out)
        print("launches are real" if ON_GPU else "launches do nothing: no GPU here")
        for name, us in least_us(pieces).items():
            print(f"{us:8.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
