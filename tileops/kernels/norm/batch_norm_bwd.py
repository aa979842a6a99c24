"""The gradients of batch normalization by the statistics of the batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.call_spec import ARCHS, BatchNormBwdInterface, BatchNormCall
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    SPLIT_THREADS,
    STREAM_THREADS,
    ChannelLayout,
    cuts_of,
    held_layout,
    streamed_layout,
)
from tileops.kernels.norm.channel_regions import (
    held_refusal,
    held_smem_bytes,
    held_threads,
    split_refusal,
    streamed_smem_bytes,
)
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name, stated_arch

__all__ = ["BatchNormBwdKernel", "BatchNormBwdSplitKernel", "BatchNormBwdWideKernel", "BatchNormGradients"]

PROGRAMS: Final = "tileops.kernels.norm.batch_norm_bwd_program"
SUMS: Final = 2
"""What warps exchange of a channel: the sums of gradients, and of gradients times normalized values."""


class BatchNormGradients(ChannelKernel, BatchNormBwdInterface):
    """What the kernels have in common: limits, and one launch.

    Args:
        dtype: Of the input and its gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        layout: How channels lie over threads.
        arch: Architecture to build for.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [*ARCHS]
    program: str

    def __init__(self, dtype: torch.dtype, weight_dtype: torch.dtype, layout: ChannelLayout, *, arch: int) -> None:
        self.layout = layout
        self.facts = {"dtype": dtype_name(dtype), "weight_dtype": dtype_name(weight_dtype), "lay": layout}
        self.compiled = compile_program(PROGRAMS, self.program, arch, **self.facts)

    @classmethod
    @abstractmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout:
        """How the channels of *call* lie over threads."""

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a channel lies over threads; extents and epsilon are not."""
        identity = (call.dtype, call.weight_dtype, cls.layout_of(call))
        return identity, lambda: cls(*identity, arch=stated_arch(call))

    def forward(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the gradients; see the interface."""
        out = torch.empty_like(x)
        grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(weight)
        n, c = x.shape[:2]
        shape = (n, c, -1, self.layout.vector)
        tensors = (aligned(grad).view(shape), aligned(x).view(shape), weight, mean, rstd)
        self.launch(tensors, (out.view(shape), grad_weight, grad_bias))
        return out, grad_weight, grad_bias

    def launch(self, tensors: tuple[torch.Tensor, ...], results: tuple[torch.Tensor, ...]) -> None:
        """Launch what is compiled."""
        self.compiled(*tensors, *results)


class BatchNormBwdWideKernel(BatchNormGradients):
    """A channel and its gradients in one block's registers."""

    preferred_over = frozenset({"bwd_split"})
    program = "held_gradients"

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse channels of which a block does not hold values and gradients."""
        return held_refusal(call.values, call.spatial, call.dtype, tensors=2)

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout:
        """As many threads as hold a channel."""
        return held_layout(call.values, call.spatial, call.dtype, many=call.c >= MANY_CHANNELS)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where a channel spans more than a warp, its warps exchange their sums."""
        return held_smem_bytes(call.values, call.c, call.spatial, call.dtype, SUMS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """As many as hold a channel, and 128 at least."""
        return held_threads(call.values, call.c, call.spatial, call.dtype)


class BatchNormBwdSplitKernel(BatchNormGradients):
    """Few long channels, cut over blocks: two launches."""

    program = "merged_gradients"

    def __init__(
        self, dtype: torch.dtype, weight_dtype: torch.dtype, layout: ChannelLayout, sm_count: int, *, arch: int
    ) -> None:
        super().__init__(dtype, weight_dtype, layout, arch=arch)
        self.sm_count = sm_count
        self.parts = compile_program(PROGRAMS, "parts_of_gradients", arch, **self.facts)

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short channels, and many."""
        return split_refusal(call.values, call.c, call.spatial, call.dtype)

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout:
        """Blocks of one size."""
        return streamed_layout(call.spatial, call.dtype, SPLIT_THREADS)

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """As for all, and the number of multiprocessors, by which channels are cut."""
        identity = (call.dtype, call.weight_dtype, cls.layout_of(call), call.sm_count or 1)
        return identity, lambda: cls(*identity, arch=stated_arch(call))

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their sums."""
        return streamed_smem_bytes(call.spatial, call.dtype, SUMS, cut=True)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return SPLIT_THREADS

    def launch(self, tensors: tuple[torch.Tensor, ...], results: tuple[torch.Tensor, ...]) -> None:
        """Launch both halves."""
        n, c, q, vector = tensors[0].shape
        cuts = cuts_of(self.layout, n * q * vector, c, self.sm_count)
        parts = torch.empty((c, SUMS, cuts), dtype=torch.float32, device=tensors[0].device)
        self.parts(*tensors, parts)
        self.compiled(parts, *tensors, *results)


class BatchNormBwdKernel(BatchNormGradients):
    """Channels of any length and number: a block streams each of them."""

    general = True
    program = "streamed_gradients"

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse nothing more."""
        return None

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout:
        """Blocks of one size."""
        return streamed_layout(call.spatial, call.dtype, STREAM_THREADS)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their sums."""
        return streamed_smem_bytes(call.spatial, call.dtype, SUMS, cut=False)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return STREAM_THREADS
