"""Layer normalization of trailing rows of any length."""

from __future__ import annotations

import dataclasses

import torch

from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.norm.call_spec import (
    ARCHS,
    MAX_ROW,
    MIN_ROW,
    LayerNormCall,
    LayerNormFwdInterface,
    row_refusal,
)
from tileops.kernels.tilelang_build import aligned, compile_program, stated_arch

__all__ = ["MAX_ROW", "MIN_ROW", "LaunchShape", "LayerNormKernel", "launch_shape", "threads_of"]

PROGRAMS = "tileops.kernels.norm.layer_norm_program"

REGISTER_ROW = 16384
"""Longest row that a block of 256 threads holds in registers: 64 float32 values a thread."""
LONG_ROW_TILE = 4096
"""Columns of a tile of a longer row: three float32 values are kept for each, 48 registers a thread."""
NARROW_ROW = 4096
"""Longest row that 128 threads hold in 32 registers each."""

REDUCTION_BYTES = 4
"""Shared memory that a reduction over more than a warp takes for each thread: one float32 (TileLang's workspace)."""


@dataclasses.dataclass(frozen=True)
class LaunchShape:
    """How the rows of one length are laid over blocks.

    Attributes:
        rows: Rows a block.
        tile: Columns that a block holds at a time, a power of two.
        threads: Threads a block.
    """

    rows: int
    tile: int
    threads: int


def launch_shape(n: int) -> LaunchShape:
    """The launch shape of rows of *n* elements.

    Short rows share a block of 128 threads, about 1,024 elements in all; from there on a block has one row.
    """
    if n > REGISTER_ROW:
        return LaunchShape(rows=1, tile=LONG_ROW_TILE, threads=threads_of(n))
    tile = max(8, 1 << (n - 1).bit_length())
    return LaunchShape(rows=max(1, 1024 // tile), tile=tile, threads=threads_of(n))


def threads_of(n: int) -> int:
    """Threads of a block for rows of *n* elements."""
    return 128 if n <= NARROW_ROW else 256


class LayerNormKernel(Kernel, LayerNormFwdInterface):
    """One pass over rows that fit in registers, two over longer ones; the number of rows is free.

    Statistics are float32, taken about an element of the row: a mean of 1e4 with a deviation of 1e-2 keeps
    its digits. One build serves any number of rows.

    Args:
        n: Elements of a row.
        eps: Added to the variance.
        dtype: Of every tensor.
        arch: Architecture to build for.

    Raises:
        ValueError: *n* is outside ``MIN_ROW`` to ``MAX_ROW``.
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [*ARCHS]

    def __init__(self, n: int, eps: float, dtype: torch.dtype, *, arch: int) -> None:
        reason = self.row_refusal(n)
        if reason is not None:
            raise ValueError(reason)
        self.n = n
        shape = launch_shape(n)
        rows = {} if n > shape.tile else {"rows": shape.rows}
        self.compiled = compile_program(
            PROGRAMS,
            "rows_in_registers" if rows else "rows_in_tiles",
            arch,
            n=n,
            eps=eps,
            dtype=str(dtype).removeprefix("torch."),
            tile=shape.tile,
            threads=shape.threads,
            **rows,
        )

    @classmethod
    def row_refusal(cls, n: int) -> str | None:
        """Why rows of *n* elements are refused, or ``None``; rule and constructor both ask here."""
        return row_refusal(n)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """Refuse rows of no elements, or of more than are counted."""
        reason = cls.row_refusal(call.n)
        return reason if reason is not None else super().refusal(call)

    @classmethod
    def block_smem_bytes(cls, call: LayerNormCall) -> int:
        """Rows stay in registers; where they span more than a warp, their sums meet in shared memory."""
        return threads_of(call.n) * REDUCTION_BYTES

    @classmethod
    def block_threads(cls, call: LayerNormCall) -> int:
        """As :func:`launch_shape` has them."""
        return threads_of(call.n)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> Entry:
        """Row length, epsilon and dtype are built in; the number of rows is not."""
        identity = (call.n, call.eps, call.dtype)
        return identity, lambda: cls(*identity, arch=stated_arch(call))

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of *x*; see the interface."""
        out = torch.empty_like(x)
        if x.numel():
            n = self.n
            self.compiled(aligned(x).view(-1, n), aligned(weight).view(n), aligned(bias).view(n), out.view(-1, n))
        return out
