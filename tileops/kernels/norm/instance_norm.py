"""Instance normalization: each channel of each sample is a channel of its own, which batch normalization serves.

The channels of all samples are seen as those of one sample; weight and bias are taken in turn. What running statistics
follow, the unbiased variances of the instances, is returned in the place of what a gradient would need.
"""

from __future__ import annotations

from abc import abstractmethod
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
from tileops.kernels.norm.channel_launches import ChannelFacts, CutLaunch, OneLaunch
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
)
from tileops.kernels.norm.limits import instance_refusal
from tileops.kernels.tilelang_build import compile_program, dtype_name, stated_arch

__all__ = [
    "InstanceNormFwdInferKernel",
    "InstanceNormFwdKernel",
    "InstanceNormFwdSplitKernel",
    "InstanceNormFwdWideKernel",
    "InstanceNormalizing",
]

PROGRAMS: Final = "tileops.kernels.norm.instance_norm_program"
STATISTICS: Final = 3
"""What warps exchange of an instance: count, mean, squared distances."""
TRACKING_THREADS: Final = 128
"""Threads of a block that moves running statistics, one a channel."""


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


class InstanceNormalizing(ChannelKernel, InstanceNormTrainFwdInterface, InstanceNormFwdInterface):
    """What the kernels have in common: limits, and how they are called, with running statistics and without.

    Args:
        launch: What runs.
        running_dtype: Of the running statistics; None where there are none.
        momentum: Share of the new statistics in them.
        arch: Architecture to build for.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    def __init__(self, launch: OneLaunch, running_dtype: torch.dtype | None, momentum: float, *, arch: int) -> None:
        self.launch = launch
        self.momentum = momentum
        self.track = None
        if running_dtype is not None:
            self.track = compile_program(
                PROGRAMS,
                "tracked_instances",
                arch,
                running_dtype=dtype_name(running_dtype),
                threads=TRACKING_THREADS,
            )

    @classmethod
    def extent_refusal(cls, call: BatchNormCall) -> str | None:
        """Those of instances."""
        return instance_refusal(call)

    @classmethod
    @abstractmethod
    def launch_for(cls, call: BatchNormCall) -> Entry:
        """The identity of the launch for *call*, and what makes it."""

    @classmethod
    def entry_for(cls, call: BatchNormCall) -> Entry:
        """What is built in is how an instance lies over threads, and what follows it; extents are not."""
        identity, launch = cls.launch_for(call)
        running_dtype, arch = call.running_dtype, stated_arch(call)
        momentum = 0.0 if running_dtype is None else call.momentum
        return (identity, running_dtype, momentum), lambda: cls(launch(), running_dtype, momentum, arch=arch)

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
        if self.track is not None and running_mean is not None:
            self.track(mean.view(n, c), variance.view(n, c), running_mean, running_var, self.momentum)
        return out


class InstanceNormFwdWideKernel(InstanceNormalizing):
    """An instance in one block's registers."""

    preferred_over = frozenset({"instance_norm_split"})

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse planes of more values than a block holds."""
        return held_refusal(call.spatial, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where an instance spans more than a warp, its warps exchange their statistics."""
        return held_smem_bytes(call.spatial, call.instances, call.spatial, call.dtype, STATISTICS)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """As many as hold an instance, and 128 at least."""
        return held_threads(call.spatial, call.instances, call.spatial, call.dtype)

    @classmethod
    def launch_for(cls, call: BatchNormCall) -> Entry:
        """Blocks that hold instances."""
        layout = held_layout(call.spatial, call.spatial, call.dtype, many=call.instances >= MANY_CHANNELS)
        identity = (facts_of(call), layout)
        return identity, lambda: OneLaunch(*identity, held=True)


class InstanceNormFwdSplitKernel(InstanceNormalizing):
    """Few long instances, cut over blocks: two launches."""

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short instances, and many."""
        return split_refusal(call.spatial, call.instances, call.spatial, call.dtype)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange their statistics."""
        return streamed_smem_bytes(call.spatial, call.dtype, STATISTICS, cut=True)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return max(SPLIT_THREADS, TRACKING_THREADS)

    @classmethod
    def launch_for(cls, call: BatchNormCall) -> Entry:
        """Blocks that stream parts of instances."""
        layout = streamed_layout(call.spatial, call.dtype, SPLIT_THREADS)
        identity = (facts_of(call), layout, call.sm_count or 1)
        return identity, lambda: CutLaunch(*identity)


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
        return streamed_smem_bytes(call.spatial, call.dtype, STATISTICS, cut=False)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return max(STREAM_THREADS, TRACKING_THREADS)

    @classmethod
    def launch_for(cls, call: BatchNormCall) -> Entry:
        """Blocks that stream instances."""
        identity = (facts_of(call), streamed_layout(call.spatial, call.dtype, STREAM_THREADS))
        return identity, lambda: OneLaunch(*identity, held=False)


class InstanceNormFwdInferKernel(BatchNormFwdInferKernel, InstanceNormInferFwdInterface):
    """By running statistics, instance and batch normalization are one."""
