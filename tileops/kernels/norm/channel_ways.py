"""The ways of a block with whole channels or sets of them, whatever is computed: limits, layouts, and what it takes."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.channel_kernel import ChannelKernel
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    STREAM_THREADS,
    ChannelLayout,
    held_layout,
    streamed_layout,
)
from tileops.kernels.norm.channel_regions import held_refusal, held_smem_bytes, held_threads, streamed_smem_bytes
from tileops.kernels.norm.cluster_layout import (
    CLUSTER_THREADS,
    MOST_SMEM_BYTES,
    ClusterLayout,
    cluster_layout,
    cluster_refusal,
    cluster_smem_bytes,
)
from tileops.kernels.norm.set_layout import (
    SetLayout,
    set_layout,
    set_smem_bytes,
    set_threads,
    streamed_set_layout,
    streams_sets,
    takes_sets,
)

__all__ = ["ClusterChannels", "HeldChannels", "StreamedChannels"]


class HeldChannels(ChannelKernel):
    """A channel in one block's registers, or a set of neighbouring ones where planes begin at odd places.

    Attributes:
        tensors: Inputs that are held.
        exchanged: Values that the warps of a channel exchange.
    """

    tensors: ClassVar[int]
    exchanged: ClassVar[int]

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse channels of more values than a block holds of each tensor."""
        return held_refusal(call.values, call.spatial, call.dtype, cls.tensors)

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout | SetLayout:
        """As many threads as hold a channel, or a set of them."""
        if takes_sets(call.n, call.c, call.spatial, call.dtype, call.smem_budget, cls.tensors):
            return set_layout(call.n, call.spatial, call.dtype, cls.tensors)
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return streamed_set_layout(call.n, call.spatial, call.dtype, cls.tensors)
        return held_layout(call.values, call.spatial, call.dtype, many=call.c >= MANY_CHANNELS)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Where a channel spans more than a warp, its warps exchange sums; sets of many values wait there too."""
        if takes_sets(call.n, call.c, call.spatial, call.dtype, call.smem_budget, cls.tensors):
            return set_smem_bytes(call.n, call.spatial, call.dtype, cls.tensors)
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_smem_bytes(call.n, call.spatial, call.dtype, 0)
        return held_smem_bytes(call.values, call.c, call.spatial, call.dtype, cls.exchanged)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """As many as hold a channel, or a set of them."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_threads(call.n, call.spatial, call.dtype)
        return held_threads(call.values, call.c, call.spatial, call.dtype)


class ClusterChannels(ChannelKernel):
    """A channel in the shared memory of a cluster of blocks, which is read once.

    Clusters, and the bulk copies by which it gets there, came with SM90.

    Attributes:
        tensors: Inputs that are kept.
    """

    supported_archs: list[int] = [90]
    tensors: ClassVar[int] = 1

    @classmethod
    def channel_values(cls, call: BatchNormCall) -> int:
        """Values of what is normalized as one channel: those of all samples."""
        return call.values

    @classmethod
    def channel_count(cls, call: BatchNormCall) -> int:
        """How many such channels there are: those of a sample."""
        return call.c

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse short channels, those that no cluster has room for, and planes that bulk copies do not take.

        Devices where a block has less shared memory than any takes are refused: there is none with clusters.
        """
        if call.smem_budget is not None and call.smem_budget < MOST_SMEM_BYTES:
            return f"smem_budget {call.smem_budget} is less than {MOST_SMEM_BYTES}"
        values, channels = cls.channel_values(call), cls.channel_count(call)
        return cluster_refusal(values, channels, call.spatial, call.dtype, cls.tensors)

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ClusterLayout:
        """As few blocks as fill the device and have room."""
        return cluster_layout(cls.channel_values(call), cls.channel_count(call), call.dtype, cls.tensors)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Room for its share of a channel, and what warps and blocks exchange."""
        return cluster_smem_bytes(cls.channel_values(call), cls.channel_count(call), call.dtype, cls.tensors)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all."""
        return CLUSTER_THREADS


class StreamedChannels(ChannelKernel):
    """Channels of any length and number: a block streams each of them, or sets where planes begin at odd places.

    Attributes:
        tensors: Inputs that are streamed.
        exchanged: Values that the warps of a channel exchange.
    """

    tensors: ClassVar[int]
    exchanged: ClassVar[int]

    @classmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse nothing more."""
        return None

    @classmethod
    def layout_of(cls, call: BatchNormCall) -> ChannelLayout | SetLayout:
        """Blocks of one size, or as many threads as share a set."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return streamed_set_layout(call.n, call.spatial, call.dtype, cls.tensors)
        return streamed_layout(call.spatial, call.dtype, STREAM_THREADS)

    @classmethod
    def block_smem_bytes(cls, call: BatchNormCall) -> int:
        """Warps exchange what they know of a channel."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_smem_bytes(call.n, call.spatial, call.dtype, 0)
        return streamed_smem_bytes(call.spatial, call.dtype, cls.exchanged)

    @classmethod
    def block_threads(cls, call: BatchNormCall) -> int:
        """The same for all that are not of sets."""
        if streams_sets(call.n, call.c, call.spatial, call.dtype):
            return set_threads(call.n, call.spatial, call.dtype)
        return STREAM_THREADS
