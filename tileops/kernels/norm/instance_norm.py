"""Instance normalization: each channel of each sample is a channel of its own, which batch normalization serves.

The channels of all samples are seen as those of one sample; weight and bias are taken in turn. What running statistics
follow, the unbiased variances of the instances, is returned in the place of what a gradient would need.
"""

from __future__ import annotations

import functools
from typing import Final

import torch

from tileops.kernels.kernel_base import Entry
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.call_spec import (
    BatchNormCall,
    InstanceNormFwdInterface,
    InstanceNormInferFwdInterface,
    InstanceNormTrainFwdInterface,
)
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_launches import ChannelFacts, OneLaunch
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
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
)
from tileops.kernels.norm.channel_tables import held_table, only, streamed_table
from tileops.kernels.norm.channel_tuning import Laid, LaunchedChannels
from tileops.kernels.norm.channel_ways import ClusterChannels
from tileops.kernels.norm.cluster_launches import ClusterLaunch
from tileops.kernels.norm.cut_launches import CutLaunch
from tileops.kernels.norm.cut_layout import CUT_THREADS, FACTS, cut_layout, cut_resident, cut_smem_bytes
from tileops.kernels.norm.instance_launches import SmallLaunch, Tracking
from tileops.kernels.norm.instance_layout import (
    TRACKING_THREADS,
    run_layout,
    run_smem_bytes,
    run_threads,
    takes_runs,
    track_layout,
)
from tileops.kernels.norm.limits import instance_refusal
from tileops.kernels.tilelang_build import stated_arch

__all__ = [
    "InstanceNormFwdClusterKernel",
    "InstanceNormFwdInferKernel",
    "InstanceNormFwdKernel",
    "InstanceNormFwdSplitKernel",
    "InstanceNormFwdWideKernel",
    "InstanceNormalizing",
]

STATISTICS: Final = 3
"""What warps exchange of an instance: count, mean, squared distances."""


def facts_of(call: BatchNormCall) -> ChannelFacts:
    """What is built in for *call*: running statistics are moved by a launch of their own."""
    return ChannelFacts(
        dtype=call.dtype,
        weight_dtype=call.weight_dtype,
        running_dtype=None,
        unbiased=call.running_dtype is not None,
        eps=call.eps,
        momentum=0.0,
        arch=stated_arch(call),
    )


class InstanceNormalizing(LaunchedChannels, ChannelKernel, InstanceNormTrainFwdInterface, InstanceNormFwdInterface):
    """What the kernels have in common: limits, and how they are called, with running statistics and without.

    Args:
        laid: How instances are launched.
        track: What moves running statistics; None where there are none.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    def __init__(self, laid: Laid, track: Tracking | None) -> None:
        super().__init__(laid)
        self.track = track

    @classmethod
    def extent_refusal(cls, call: BatchNormCall) -> str | None:
        """Those of instances."""
        return instance_refusal(call)

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how an instance lies over threads, and what follows it; extents are not."""
        laid = cls.laid_for(call)
        if call.running_dtype is None:
            return laid.identity, lambda: cls(laid, None)
        tracked = (call.running_dtype, track_layout(call.n, call.c), call.momentum)
        return (laid.identity, tracked), lambda: cls(laid, Tracking(*tracked, arch=stated_arch(call)))

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running_mean: torch.Tensor | None = None,
        running_var: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalize; see the interfaces."""
        n, c = x.shape[:2]
        out, mean, variance = self.launch(x, 1, n * c, weight, bias)
        if self.track is not None and running_mean is not None and running_var is not None:
            self.track(mean, variance, n, running_mean, running_var)
        return out


class InstanceNormFwdWideKernel(InstanceNormalizing):
    """An instance in one block's registers, or in those of a few lanes where it is small."""

    preferred_over = frozenset({"instance_norm_cluster"})

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse planes of more values than a block holds."""
        return held_refusal(call.spatial, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where an instance spans more than a warp, its warps exchange their statistics; odd small ones lie there."""
        if takes_runs(call.instances, call.spatial, call.dtype):
            return run_smem_bytes(call.instances, call.spatial, call.dtype)
        return held_smem_bytes(call.spatial, call.instances, call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """As many as hold an instance, or a run of small ones; what moves running statistics takes no more."""
        if takes_runs(call.instances, call.spatial, call.dtype):
            return run_threads(call.instances, call.spatial, call.dtype)
        threads = held_threads(call.spatial, call.instances, call.spatial, call.dtype)
        return threads if call.running_dtype is None else max(threads, TRACKING_THREADS)

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Blocks that hold instances."""
        facts = facts_of(call)
        if takes_runs(call.instances, call.spatial, call.dtype):
            runs = run_layout(call.instances, call.spatial, call.dtype)
            return Laid((facts, runs), functools.partial(SmallLaunch, facts), functools.partial(only, runs))
        layout = held_layout(call.spatial, call.spatial, call.dtype, many=call.instances >= MANY_CHANNELS)
        return Laid(
            (facts, layout),
            functools.partial(OneLaunch, facts, held=True),
            functools.partial(held_table, layout, call.dtype, 1),
        )


class InstanceNormFwdClusterKernel(ClusterChannels, InstanceNormalizing):
    """An instance in the shared memory of a cluster of blocks, which is read once."""

    preferred_over = frozenset({"instance_norm_split"})

    @classmethod
    def channel_values(cls, call: BatchNormCall) -> int:
        """Those of a plane."""
        return call.spatial

    @classmethod
    def channel_count(cls, call: BatchNormCall) -> int:
        """The channels of all samples."""
        return call.instances

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """What moves running statistics may take more."""
        return max(super().block_threads(call), TRACKING_THREADS)

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Clusters that hold instances."""
        identity = facts, layout = facts_of(call), cls.layout_of(call)
        return Laid(
            identity, functools.partial(ClusterLaunch, facts), functools.partial(held_table, layout, call.dtype, 1)
        )


class InstanceNormFwdSplitKernel(InstanceNormalizing):
    """Few long instances, cut over blocks: one launch, whose blocks come to each part twice."""

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short instances, and many."""
        return split_refusal(call.spatial, call.instances, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        return cut_smem_bytes(call.spatial, call.dtype, FACTS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return max(CUT_THREADS, TRACKING_THREADS)

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Blocks that stream parts of instances."""
        layout, resident = cut_layout(call.spatial, call.dtype, 1), cut_resident(call.spatial, call.dtype)
        identity = facts, _, sm_count, _ = (facts_of(call), layout, call.sm_count or 1, resident)
        return Laid(
            identity,
            functools.partial(CutLaunch, facts, sm_count=sm_count, resident=resident),
            functools.partial(only, layout),
        )


class InstanceNormFwdKernel(InstanceNormalizing):
    """Instances of any length and number: a block streams each of them."""

    general = True

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse nothing more."""
        return None

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        return streamed_smem_bytes(call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return max(STREAM_THREADS, TRACKING_THREADS)

    @classmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """Blocks that stream instances."""
        identity = facts, layout = (facts_of(call), streamed_layout(call.spatial, call.dtype, STREAM_THREADS))
        return Laid(
            identity,
            functools.partial(OneLaunch, facts, held=False),
            functools.partial(streamed_table, layout, call.dtype, 1),
        )


class InstanceNormFwdInferKernel(BatchNormFwdInferKernel, InstanceNormInferFwdInterface):
    """By running statistics, instance and batch normalization are one."""
