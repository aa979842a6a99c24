"""Batch normalization by running statistics."""

from __future__ import annotations

from typing import Final

import torch

from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.norm.call_spec import ARCHS, BatchNormCall, BatchNormInferFwdInterface
from tileops.kernels.norm.channel_layout import vector_of
from tileops.kernels.norm.limits import running_refusal
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name, stated_arch

__all__ = ["BatchNormFwdInferKernel"]

PROGRAMS: Final = "tileops.kernels.norm.batch_norm_infer_program"
THREADS: Final = 256
"""Threads of a block."""
STEPS: Final = 4
"""Vectors that a thread has under way."""


class BatchNormFwdInferKernel(Kernel, BatchNormInferFwdInterface):
    """One pass over the input; one build serves inputs of any size.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics.
        vector: Values of one load: a divisor of a plane.
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
        vector: int,
        eps: float,
        *,
        arch: int,
    ) -> None:
        self.vector = vector
        self.eps = eps
        self.compiled = compile_program(
            PROGRAMS,
            "scaled_planes",
            arch,
            dtype=dtype_name(dtype),
            weight_dtype=dtype_name(weight_dtype),
            running_dtype=dtype_name(running_dtype),
            vector=vector,
            steps=STEPS,
            threads=THREADS,
        )

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
        """What is built in is how a plane is read; extents are not."""
        vector = vector_of(call.spatial, call.dtype)
        identity = (call.dtype, call.weight_dtype, call.running_dtype, vector, call.eps)
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
        planes, vector = x.shape[0] * x.shape[1], self.vector
        whole = aligned(x).view(planes, -1, vector)
        self.compiled(whole, weight, bias, running_mean, running_var, out.view(planes, -1, vector), self.eps)
        return out
