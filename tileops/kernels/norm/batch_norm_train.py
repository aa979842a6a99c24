"""Batch normalization by the statistics of the batch."""

from __future__ import annotations

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.call_spec import BatchNormCall, BatchNormTrainFwdInterface
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_launches import ChannelFacts, OneLaunch, SetLaunch
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    OWN_THREADS,
    STREAM_THREADS,
    held_layout,
    own_layout,
    streamed_layout,
)
from tileops.kernels.norm.channel_regions import (
    held_refusal,
    held_smem_bytes,
    held_threads,
    own_smem_bytes,
    split_refusal,
    streamed_smem_bytes,
    whole_refusal,
)
from tileops.kernels.norm.cut_launches import CutLaunch
from tileops.kernels.norm.cut_layout import CUT_THREADS, FACTS, cut_layout, cut_smem_bytes
from tileops.kernels.norm.set_layout import (
    set_layout,
    set_smem_bytes,
    set_threads,
    streamed_set_layout,
    streams_sets,
    takes_sets,
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
"""What warps exchange of a channel: the sum of its values, then of the distances from the mean, and their squares."""


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
        in_turn=False,
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
    """A channel of a few values, in the registers of one thread or of a few."""

    preferred_over = frozenset({"fwd_train_wide"})

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse channels of more values than that."""
        return whole_refusal(call.values)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where the threads of a channel are of several warps, these exchange sums."""
        return own_smem_bytes(call.values, call.c, call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return OWN_THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a channel lies over threads; extents are not."""
        layout = own_layout(call.values, call.spatial, call.dtype, many=call.c >= MANY_CHANNELS)
        identity = (facts_of(call), layout)
        return identity, lambda: cls(OneLaunch(*identity, held=True))


class BatchNormFwdTrainWideKernel(BatchNormTraining):
    """A channel in one block's registers, or a set of neighbouring ones where planes begin at odd places."""

    preferred_over = frozenset({"fwd_train_split"})

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse channels of more values than a block holds."""
        return held_refusal(call.values, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where a channel spans more than a warp, its warps exchange sums; sets of many values wait there too."""
        if takes_sets(call.n, call.c, call.spatial, call.dtype, call.smem_budget, 1):
            return set_smem_bytes(call.n, call.spatial, call.dtype, 1)
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_smem_bytes(call.n, call.spatial, call.dtype, 0)
        return held_smem_bytes(call.values, call.c, call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """As many as hold a channel, or a set of them."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_threads(call.n, call.spatial, call.dtype)
        return held_threads(call.values, call.c, call.spatial, call.dtype)

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how channels lie over threads, and the plane of a set; other extents are not."""
        facts = facts_of(call)
        if takes_sets(call.n, call.c, call.spatial, call.dtype, call.smem_budget, 1):
            sets = set_layout(call.n, call.spatial, call.dtype, 1)
            return (facts, sets), lambda: cls(SetLaunch(facts, sets))
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            streamed = streamed_set_layout(call.n, call.spatial, call.dtype, 1)
            return (facts, streamed), lambda: cls(SetLaunch(facts, streamed))
        layout = held_layout(call.values, call.spatial, call.dtype, many=call.c >= MANY_CHANNELS)
        return (facts, layout), lambda: cls(OneLaunch(facts, layout, held=True))


class BatchNormFwdTrainSplitKernel(BatchNormTraining):
    """Few long channels, cut over blocks: one launch, whose blocks come to each part twice."""

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short channels, and many."""
        return split_refusal(call.values, call.c, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        return cut_smem_bytes(call.spatial, call.dtype, FACTS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return CUT_THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a plane is read; extents are not."""
        layout = cut_layout(call.spatial, call.dtype, 1)
        identity = (facts_of(call), layout, call.sm_count or 1)
        return identity, lambda: cls(CutLaunch(*identity))


class BatchNormFwdTrainKernel(BatchNormTraining):
    """Channels of any length and number: a block streams each of them, or sets where planes begin at odd places."""

    general = True

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse nothing more."""
        return None

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_smem_bytes(call.n, call.spatial, call.dtype, 0)
        return streamed_smem_bytes(call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all that are not of sets."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_threads(call.n, call.spatial, call.dtype)
        return STREAM_THREADS

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how a plane is read, and the plane of a set; other extents are not."""
        facts = facts_of(call)
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            sets = streamed_set_layout(call.n, call.spatial, call.dtype, 1)
            return (facts, sets), lambda: cls(SetLaunch(facts, sets))
        layout = streamed_layout(call.spatial, call.dtype, STREAM_THREADS)
        return (facts, layout), lambda: cls(OneLaunch(facts, layout, held=False))
