"""How the channels of ``(n, c, *spatial)`` tensors are laid over the threads of blocks."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

__all__ = [
    "MANY_CHANNELS",
    "SPLIT_THREADS",
    "STREAM_THREADS",
    "ChannelLayout",
    "cuts_of",
    "groups_of",
    "held_lanes",
    "held_layout",
    "held_stacks",
    "most_held",
    "streamed_layout",
    "vector_of",
]

WARP: Final = 32
LOAD_BYTES: Final = 16
"""The widest load of one thread."""
SECTOR_BYTES: Final = 32
"""What memory moves at least: channels with fewer contiguous bytes share a warp."""
CHUNK_VALUES: Final = 32
"""Values of a chunk: a thread that streams a channel holds this many at a time, and merges their statistics once."""
HELD_THREADS: Final = 512
"""Most threads of a block that holds channels."""
HELD_VALUES: Final = 32
"""Most values that a thread of the largest block holds: with more it spills."""
NARROW_HELD: Final = 512
"""Most values of a held channel where several are read together: 32 lanes have 16, one to a load."""
MANY_CHANNELS: Final = 512
"""Channels from which blocks are narrow: several channels at a time keep a multiprocessor busier than many threads."""
WANTED_VALUES: Final = {False: 16, True: 64}
"""Values that a thread holds of a channel where blocks are large enough, by whether there are many channels."""
BLOCK_THREADS: Final = 128
"""Threads that a block has at least: several channels share a block where one takes fewer."""
STREAM_THREADS: Final = 256
"""Threads of a block that streams whole channels."""
SPLIT_THREADS: Final = 256
"""Threads of a block that streams a part of a channel."""
BLOCKS_PER_SM: Final = 16
"""Blocks for each multiprocessor that channels are cut into: several rounds, of which the last is short."""


@dataclasses.dataclass(frozen=True)
class ChannelLayout:
    """Which threads of a block share a channel.

    Neighbouring threads have neighbouring channels of a *group* where a channel has few contiguous values, and
    neighbouring vectors of one channel otherwise.

    Attributes:
        vector: Values of one load: a power of two that divides ``spatial``.
        groups: Neighbouring channels that a warp reads together: a power of two up to 32.
        lanes: Threads that share a channel; ``groups * lanes`` is a multiple of 32.
        stacks: Sets of ``groups * lanes`` threads in a block.
        steps: Vectors that a thread holds at a time.
    """

    vector: int
    groups: int
    lanes: int
    stacks: int
    steps: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.groups * self.lanes * self.stacks

    @property
    def warps(self) -> int:
        """Warps that share a channel."""
        return self.groups * self.lanes // WARP

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.groups * self.stacks

    @property
    def shared_bytes(self) -> int:
        """Shared memory in which the warps of a channel exchange three float32 values."""
        return self.stacks * self.warps * self.groups * 3 * 4 if self.warps > 1 else 0


def vector_of(spatial: int, dtype: torch.dtype) -> int:
    """Values of one load: the largest power of two that divides *spatial* and takes 16 bytes at most."""
    vector = 1
    while spatial % (2 * vector) == 0 and 2 * vector * dtype.itemsize <= LOAD_BYTES:
        vector *= 2
    return vector


def groups_of(spatial: int, dtype: torch.dtype) -> int:
    """Neighbouring channels that a warp reads together: as many as one sector of memory holds of one sample."""
    for groups in (16, 8, 4, 2):
        if groups * spatial * dtype.itemsize <= SECTOR_BYTES:
            return groups
    return 1


def held_lanes(values: int, groups: int, *, many: bool) -> int:
    """Threads that hold a channel of *values* values, where *groups* channels are read together."""
    lanes = WARP
    while lanes * WANTED_VALUES[many] < values and groups * lanes < HELD_THREADS:
        lanes *= 2
    return lanes


def held_stacks(groups: int, lanes: int) -> int:
    """Sets of ``groups * lanes`` threads in a block that holds channels."""
    return max(1, BLOCK_THREADS // (groups * lanes))


def most_held(spatial: int, dtype: torch.dtype) -> int:
    """Most values of a channel that a block holds in registers."""
    narrow = groups_of(spatial, dtype) > 1
    return NARROW_HELD if narrow else HELD_THREADS * HELD_VALUES


def held_layout(values: int, spatial: int, dtype: torch.dtype, *, many: bool) -> ChannelLayout:
    """The layout in which a block holds channels of *values* values in registers.

    Args:
        values: Values of a channel; at most :func:`most_held`.
        spatial: Values of a plane.
        dtype: Of the input.
        many: Whether there are :data:`MANY_CHANNELS` or more.
    """
    vector, groups = vector_of(spatial, dtype), groups_of(spatial, dtype)
    lanes = held_lanes(values, groups, many=many)
    return ChannelLayout(vector, groups, lanes, held_stacks(groups, lanes), -(-(values // vector) // lanes))


def streamed_layout(spatial: int, dtype: torch.dtype, threads: int) -> ChannelLayout:
    """The layout in which a block of *threads* threads streams channels of any length."""
    vector, groups = vector_of(spatial, dtype), groups_of(spatial, dtype)
    steps = max(4, min(16, CHUNK_VALUES // vector))
    return ChannelLayout(vector, groups, threads // groups, 1, steps)


def cuts_of(layout: ChannelLayout, values: int, channels: int, sm_count: int) -> int:
    """Parts that each channel is cut into, so that every multiprocessor gets about :data:`BLOCKS_PER_SM` of them."""
    tiles = -(-(values // layout.vector) // (layout.lanes * layout.steps))
    wanted = -(-sm_count * BLOCKS_PER_SM // -(-channels // layout.groups))
    return max(1, min(tiles, wanted))
