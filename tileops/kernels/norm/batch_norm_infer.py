"""Batch normalization by running statistics."""

from __future__ import annotations

from typing import Any, Final

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.call_spec import ARCHS, BatchNormCall, BatchNormInferFwdInterface
from tileops.kernels.norm.channel_tables import infer_table
from tileops.kernels.norm.channel_tuning import TunedChannels, drawn, parameters, statistics
from tileops.kernels.norm.infer_layout import EACH, ONE, THREADS, Columns, Planes, infer_layout
from tileops.kernels.norm.limits import running_refusal
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name, stated_arch

__all__ = ["BatchNormFwdInferKernel"]

PROGRAMS: Final = "tileops.kernels.norm.batch_norm_infer_program"


class BatchNormFwdInferKernel(TunedChannels, BatchNormInferFwdInterface):
    """One pass over the input; a build serves inputs of any size that are laid over threads alike.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics.
        layout: How values usually lie over threads.
        eps: Added to the variance.
        arch: Architecture to build for.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [*ARCHS]

    def __init__(
        self,
        dtype: torch.dtype,
        weight_dtype: torch.dtype,
        running_dtype: torch.dtype,
        layout: Planes | Columns,
        eps: float,
        *,
        arch: int,
    ) -> None:
        self.eps = eps
        self.arch = arch
        self.dtypes = dtype, weight_dtype, running_dtype
        self.begin_with(infer_table(layout, dtype), (dtype, weight_dtype, running_dtype, layout, eps), arch)

    def lay_out(self, layout: Planes | Columns) -> None:
        """Compile the program of *layout*."""
        program = "scaled_planes" if isinstance(layout, Planes) else "scaled_columns"
        dtype, weight_dtype, running_dtype = map(dtype_name, self.dtypes)
        self.compiled = compile_program(
            PROGRAMS,
            program,
            self.arch,
            dtype=dtype,
            weight_dtype=weight_dtype,
            running_dtype=running_dtype,
            lay=layout,
        )
        self.layout = layout

    def scratch(self, extents: tuple[int, int, int], device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """An input, weights and biases, and running statistics."""
        dtype, weight_dtype, running_dtype = self.dtypes
        given = *parameters(extents[1], weight_dtype, device), *statistics(extents[1], running_dtype, device)
        return (drawn(extents, dtype, device), *given)

    @classmethod
    def refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse extents that are not counted, and calls without running statistics."""
        reason = running_refusal(call)
        return reason if reason is not None else super().refusal(call)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Threads exchange nothing."""
        return 0

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how values lie over threads; extents are not."""
        layout = infer_layout(call.n, call.c, call.spatial, call.dtype)
        running_dtype: Any = call.running_dtype  # None is refused
        identity = (call.dtype, call.weight_dtype, running_dtype, layout, call.eps)
        return identity, lambda: cls(*identity, arch=stated_arch(call))

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
    ) -> torch.Tensor:
        """Normalize; see the interface."""
        out = torch.empty_like(x)
        layout, whole, given = self.layout, aligned(x), (weight, bias, running_mean, running_var)
        if isinstance(layout, Planes):
            shape = (*x.shape[:2], -1, layout.vector)
            self.compiled(whole.view(shape), *given, out.view(shape), self.eps)
            return out
        plane = x.numel() // (x.shape[0] * x.shape[1])
        if layout.kind == ONE:
            plane //= layout.vector
        elif layout.kind == EACH:
            given = tuple(map(aligned, given))
        shape = (x.shape[0], -1, layout.vector)
        self.compiled(whole.view(shape), *given, out.view(shape), self.eps, plane)
        return out
