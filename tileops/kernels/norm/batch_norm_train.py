"""Batch normalization by the statistics of the batch."""

from __future__ import annotations

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.call_spec import BatchNormCall, BatchNormTrainFwdInterface
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_launches import OWN_THREADS, ChannelFacts, CutLaunch, OneLaunch, OwnLaunch
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    SPLIT_THREADS,
    STREAM_THREADS,
    held_layout,
    streamed_layout,
)
from tileops.kernels.norm.channel_regions import (
    held_refusal,
    held_smem_bytes,
    held_threads,
    split_refusal,
    streamed_smem_bytes,
    whole_refusal,
)
from tileops.kernels.tilelang_build import stated_arch

__all__ = [
    "BatchNormFwdTrainKernel",
    "BatchNormFwdTrainSplitKernel",
    "BatchNormFwdTrainWholeKernel",
    "BatchNormFwdTrainWideKernel",
    "BatchNormTraining",
]

STATISTICS = 3
"""What warps exchange of a channel: count, mean, squared distances."""


def facts_of(call: BatchNormCall) -> ChannelFacts:
    """What is built in for *call*."""
    return ChannelFacts(
        dtype=call.dtype,
        weight_dtype=call.weight_dtype,
        running_dtype=call.running_dtype,
        unbiased=False,
        eps=call.eps,
        momentum=0.0 if call.running_dtype is None else call.momentum,
        arch=stated_arch(call),
    )


class BatchNormTraining(ChannelKernel, BatchNormTrainFwdInterface):
    """What the kernels have in common: limits, and how they are called.

    Args:
        launch: What runs.
    """

    def __init__(self, launch: OneLaunch) -> None:
        self.launch = launch

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalize; see the interface."""
        n, c = x.shape[:2]
        if running_mean is None or running_var is None:
            return self.launch(x, n, c, weight, bias)
        return self.launch(x, n, c, weight, bias, running_mean, running_var)


class BatchNormFwdTrainWholeKernel(BatchNormTraining):
    """A channel in one thread's registers."""

    preferred_over = frozenset({"fwd_train_wide"})

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse channels of more values than a thread holds."""
        return whole_refusal(call.values)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Threads exchange nothing."""
        return 0

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return OWN_THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """Samples and plane are built in; the number of channels is not."""
        identity = (facts_of(call), call.n, call.spatial)
        return identity, lambda: cls(OwnLaunch(*identity))


class BatchNormFwdTrainWideKernel(BatchNormTraining):
    """A channel in one block's registers."""

    preferred_over = frozenset({"fwd_train_split"})

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse channels of more values than a block holds."""
        return held_refusal(call.values, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where a channel spans more than a warp, its warps exchange their statistics."""
        return held_smem_bytes(call.values, call.c, call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """As many as hold a channel, and 128 at least."""
        return held_threads(call.values, call.c, call.spatial, call.dtype)

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a channel lies over threads; extents are not."""
        layout = held_layout(call.values, call.spatial, call.dtype, many=call.c >= MANY_CHANNELS)
        identity = (facts_of(call), layout)
        return identity, lambda: cls(OneLaunch(*identity, held=True))


class BatchNormFwdTrainSplitKernel(BatchNormTraining):
    """Few long channels, cut over blocks: two launches."""

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short channels, and many."""
        return split_refusal(call.values, call.c, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        return streamed_smem_bytes(call.spatial, call.dtype, STATISTICS, cut=True)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return SPLIT_THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a plane is read; extents are not."""
        layout = streamed_layout(call.spatial, call.dtype, SPLIT_THREADS)
        identity = (facts_of(call), layout, call.sm_count or 1)
        return identity, lambda: cls(CutLaunch(*identity))


class BatchNormFwdTrainKernel(BatchNormTraining):
    """Channels of any length and number: a block streams each of them."""

    general = True

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse nothing more."""
        return None

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        return streamed_smem_bytes(call.spatial, call.dtype, STATISTICS, cut=False)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return STREAM_THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a plane is read; extents are not."""
        identity = (facts_of(call), streamed_layout(call.spatial, call.dtype, STREAM_THREADS))
        return identity, lambda: cls(OneLaunch(*identity, held=False))
