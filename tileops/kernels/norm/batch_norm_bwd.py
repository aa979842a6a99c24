"""The gradients of batch normalization by the statistics of the batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.call_spec import ARCHS, BatchNormBwdInterface, BatchNormCall
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_launches import HELD_PROGRAMS, SET_PROGRAMS, STREAMED_SET_PROGRAMS, walk_of
from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_regions import split_refusal
from tileops.kernels.norm.channel_tables import Table, held_table, only, streamed_table
from tileops.kernels.norm.channel_tuning import SAMPLES, TunedChannels, drawn, parameters
from tileops.kernels.norm.channel_ways import ClusterChannels, HeldChannels, StreamedChannels
from tileops.kernels.norm.cluster_launches import cluster_extents
from tileops.kernels.norm.cluster_layout import ClusterLayout
from tileops.kernels.norm.cut_launches import in_parts
from tileops.kernels.norm.cut_layout import CUT_THREADS, RESIDENT, cut_layout, cut_smem_bytes
from tileops.kernels.norm.set_layout import SetLayout
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name, stated_arch

__all__ = [
    "BatchNormBwdClusterKernel",
    "BatchNormBwdKernel",
    "BatchNormBwdSplitKernel",
    "BatchNormBwdWideKernel",
    "BatchNormGradients",
]

PROGRAMS: Final = "tileops.kernels.norm.batch_norm_bwd_program"
SPLIT_PROGRAMS: Final = "tileops.kernels.norm.batch_norm_bwd_split_program"
CLUSTER_PROGRAMS: Final = "tileops.kernels.norm.cluster_gradients_program"
SUMS: Final = 2
"""What warps exchange of a channel: the sums of gradients, and of gradients times normalized values."""


class BatchNormGradients(TunedChannels, ChannelKernel, BatchNormBwdInterface):
    """What the kernels have in common: limits, and one launch.

    Args:
        dtype: Of the input and its gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        layout: How channels usually lie over threads.
        arch: Architecture to build for.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [*ARCHS]
    program: str

    def __init__(self, dtype: torch.dtype, weight_dtype: torch.dtype, layout: Any, *own: Any, arch: int) -> None:
        self.arch = arch
        self.dtypes = dtype, weight_dtype
        self.begin_with(self.table_of(layout, dtype), (dtype, weight_dtype, layout, *own), arch)

    def lay_out(self, layout: Any) -> None:
        """Compile the program of *layout*."""
        self.compiled = self.compile(PROGRAMS, self.program, layout)
        self.layout = layout

    def compile(self, module: str, program: str, layout: Any, **more: Any) -> Any:
        """A program of *module* for these dtypes."""
        dtype, weight_dtype = map(dtype_name, self.dtypes)
        return compile_program(module, program, self.arch, dtype=dtype, weight_dtype=weight_dtype, lay=layout, **more)

    def scratch(self, extents: tuple[int, int, int], device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """Gradients, an input, weights and what training keeps of the channels."""
        (dtype, weight_dtype), c = self.dtypes, extents[1]
        rstd, mean = parameters(c, torch.float32, device)
        grad = drawn(extents, dtype, device)
        return grad, grad.clone(), parameters(c, weight_dtype, device)[0], mean, rstd

    @classmethod
    @abstractmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout | SetLayout | ClusterLayout:
        """How the channels of *call* lie over threads."""

    @classmethod
    def table_of(cls, layout: Any, dtype: torch.dtype) -> Table:
        """*layout*, and the others that compute the same."""
        return only(layout)

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


class FlatGradients(BatchNormGradients):
    """Kernels whose programs see tensors as vectors, one after the other."""

    def lay_out(self, layout: Any) -> None:
        """Compile the program of channels, or sets of them, that lie over threads or in a cluster."""
        module, program = HELD_PROGRAMS, "held_gradients"
        if isinstance(layout, ClusterLayout):
            module, program = CLUSTER_PROGRAMS, "clustered_gradients"
        elif isinstance(layout, SetLayout):
            module, program = SET_PROGRAMS, "held_sets_of_gradients"
            if layout.steps == 0:
                module, program = STREAMED_SET_PROGRAMS, "streamed_sets_of_gradients"
        self.compiled = self.compile(module, program, layout)
        self._flat = layout, self.compiled  # in one piece: other threads may be calling

    def forward(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the gradients; see the interface."""
        out = torch.empty_like(x)
        grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(weight)
        n, c = x.shape[:2]
        flat, compiled = self._flat
        vector, values = flat.vector, x.numel() // c
        extents: tuple[float, ...] = (n,)
        if isinstance(flat, ClusterLayout):
            extents = (1.0 / values, *cluster_extents(flat, n, c, values))
        elif isinstance(flat, ChannelLayout):
            extents = (1.0 / values, *walk_of(n, c, values // n // vector, flat.lanes))
        compiled(
            aligned(grad).view(-1, vector),
            aligned(x).view(-1, vector),
            weight,
            mean,
            rstd,
            out.view(-1, vector),
            grad_weight,
            grad_bias,
            *extents,
        )
        return out, grad_weight, grad_bias


class BatchNormBwdWideKernel(HeldChannels, FlatGradients):
    """A channel and its gradients in one block, or a set of neighbouring ones where planes begin at odd places."""

    preferred_over = frozenset({"bwd_cluster"})
    tensors = 2
    exchanged = SUMS

    @classmethod
    def table_of(cls, layout: Any, dtype: torch.dtype) -> Table:
        """Fewer threads for a channel."""
        return held_table(layout, dtype, SAMPLES, cls.tensors)


class BatchNormBwdClusterKernel(ClusterChannels, FlatGradients):
    """A channel and its gradients in the shared memory of a cluster of blocks, read once."""

    preferred_over = frozenset({"bwd_split"})
    tensors = 2

    @classmethod
    def table_of(cls, layout: Any, dtype: torch.dtype) -> Table:
        """Other steps, and more blocks to a cluster."""
        return held_table(layout, dtype, SAMPLES, cls.tensors)


class BatchNormBwdSplitKernel(BatchNormGradients):
    """Few long channels, cut over blocks: one launch, whose blocks come to each part twice.

    Args:
        dtype: Of the input and its gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        layout: How a block reads a part.
        sm_count: Multiprocessors.
        arch: Architecture to build for.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    def __init__(
        self, dtype: torch.dtype, weight_dtype: torch.dtype, layout: ChannelLayout, sm_count: int, *, arch: int
    ) -> None:
        self.sm_count = sm_count
        super().__init__(dtype, weight_dtype, layout, sm_count, arch=arch)

    def lay_out(self, layout: Any) -> None:
        """Compile the program of *layout*."""
        self.compiled = self.compile(SPLIT_PROGRAMS, "cut_gradients", layout, resident=RESIDENT[2])
        self.layout = layout

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short channels, and many."""
        return split_refusal(call.values, call.c, call.spatial, call.dtype)

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout:
        """Blocks of one size."""
        return cut_layout(call.spatial, call.dtype, 2)

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """As for all, and the number of multiprocessors, by which channels are cut."""
        identity = (call.dtype, call.weight_dtype, cls.layout_of(call), call.sm_count or 1)
        return identity, lambda: cls(*identity, arch=stated_arch(call))

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their sums."""
        return cut_smem_bytes(call.spatial, call.dtype, SUMS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return CUT_THREADS

    def launch(self, tensors: tuple[torch.Tensor, ...], results: tuple[torch.Tensor, ...]) -> None:
        """Launch what is compiled."""
        parts, counters, lag, reach = in_parts(tensors[0], self.layout, self.sm_count, 2)
        self.compiled(parts, counters, *tensors, *results, lag, reach)


class BatchNormBwdKernel(StreamedChannels, FlatGradients):
    """Channels of any length and number: a block streams each of them, or sets where planes begin at odd places."""

    general = True
    tensors = 2
    exchanged = SUMS
    program = "streamed_gradients"

    @classmethod
    def table_of(cls, layout: Any, dtype: torch.dtype) -> Table:
        """Other loads of a thread."""
        return streamed_table(layout, dtype, SAMPLES)

    def lay_out(self, layout: Any) -> None:
        """Compile the program of channels, or sets of them, that lie over threads."""
        self.in_sets = isinstance(layout, SetLayout)
        if isinstance(layout, SetLayout):
            super().lay_out(layout)
        else:
            BatchNormGradients.lay_out(self, layout)

    def forward(
        self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the gradients; see the interface."""
        if self.in_sets:
            return super().forward(grad, x, weight, mean, rstd)
        return BatchNormGradients.forward(self, grad, x, weight, mean, rstd)
