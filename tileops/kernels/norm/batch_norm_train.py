"""Batch normalization by the statistics of the batch."""

from __future__ import annotations

import functools

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.call_spec import BatchNormCall, BatchNormTrainFwdInterface
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_launches import ChannelFacts, OneLaunch, SetLaunch
from tileops.kernels.norm.channel_layout import MANY_CHANNELS, OWN_THREADS, ChannelLayout, own_layout
from tileops.kernels.norm.channel_regions import own_smem_bytes, split_refusal, whole_refusal
from tileops.kernels.norm.channel_tables import held_table, only, streamed_table
from tileops.kernels.norm.channel_tuning import SAMPLES, Laid, LaunchedChannels
from tileops.kernels.norm.channel_ways import ClusterChannels, HeldChannels, StreamedChannels
from tileops.kernels.norm.cluster_launches import ClusterLaunch
from tileops.kernels.norm.cut_launches import CutLaunch
from tileops.kernels.norm.cut_layout import CUT_THREADS, FACTS, cut_layout, cut_resident, cut_smem_bytes
from tileops.kernels.norm.set_layout import SetLayout
from tileops.kernels.tilelang_build import stated_arch

__all__ = [
    "BatchNormFwdTrainClusterKernel",
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


def launch_of(facts: ChannelFacts, layout: ChannelLayout | SetLayout, *, held: bool) -> OneLaunch:
    """What runs in *layout*: a block that holds its channels or streams them, or has a set."""
    return SetLaunch(facts, layout) if isinstance(layout, SetLayout) else OneLaunch(facts, layout, held=held)


class BatchNormTraining(LaunchedChannels, ChannelKernel, BatchNormTrainFwdInterface):
    """What the kernels have in common: limits, and how they are called."""

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how channels lie over threads, and the plane of a set; other extents are not."""
        laid = cls.laid_for(call)
        return laid.identity, lambda: cls(laid)

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
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Few threads that hold a channel."""
        facts = facts_of(call)
        layout = own_layout(call.values, call.spatial, call.dtype, many=call.c >= MANY_CHANNELS)
        return Laid((facts, layout), functools.partial(OneLaunch, facts, held=True), functools.partial(only, layout))


class BatchNormFwdTrainWideKernel(HeldChannels, BatchNormTraining):
    """A channel in one block's registers, or a set of neighbouring ones where planes begin at odd places."""

    preferred_over = frozenset({"fwd_train_cluster"})
    tensors = 1
    exchanged = STATISTICS

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Blocks that hold channels, or sets of them."""
        identity = facts, layout = facts_of(call), cls.layout_of(call)
        launched = functools.partial(launch_of, facts, held=True)
        return Laid(identity, launched, functools.partial(held_table, layout, facts.dtype, SAMPLES))


class BatchNormFwdTrainClusterKernel(ClusterChannels, BatchNormTraining):
    """A channel in the shared memory of a cluster of blocks, which is read once."""

    preferred_over = frozenset({"fwd_train_split"})

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Clusters that hold channels."""
        identity = facts, layout = facts_of(call), cls.layout_of(call)
        return Laid(
            identity,
            functools.partial(ClusterLaunch, facts),
            functools.partial(held_table, layout, facts.dtype, SAMPLES),
        )


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
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Blocks that stream parts of channels."""
        facts, sm_count = facts_of(call), call.sm_count or 1
        layout, resident = cut_layout(call.spatial, call.dtype, 1), cut_resident(call.values, call.dtype)
        return Laid(
            (facts, layout, sm_count, resident),
            functools.partial(CutLaunch, facts, sm_count=sm_count, resident=resident),
            functools.partial(only, layout),
        )


class BatchNormFwdTrainKernel(StreamedChannels, BatchNormTraining):
    """Channels of any length and number: a block streams each of them, or sets where planes begin at odd places."""

    general = True
    tensors = 1
    exchanged = STATISTICS

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Blocks that stream channels, or sets of them."""
        identity = facts, layout = facts_of(call), cls.layout_of(call)
        launched = functools.partial(launch_of, facts, held=False)
        return Laid(identity, launched, functools.partial(streamed_table, layout, facts.dtype, SAMPLES))
