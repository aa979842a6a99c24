"""How the channels of ``(n, c, *spatial)`` tensors are laid over the threads of blocks."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

__all__ = [
    "MANY_CHANNELS",
    "OWN_THREADS",
    "STREAM_THREADS",
    "ChannelLayout",
    "groups_of",
    "held_groups",
    "held_lanes",
    "held_layout",
    "held_stacks",
    "most_held",
    "own_layout",
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
MANY_CHANNELS: Final = 2048
"""Channels from which threads hold many values, and neighbouring channels share a sector of memory: below, what counts
is how soon a block is done. Instances of 784 values: of 1,024, 64 threads that hold 16 each take 5.6 us, 32 that hold
32 take 6.1; of 8,192 instances of 3,136 values, 64 threads take 30.2 us, 224 threads 37.2 (H200, 2026-11-30)."""
WANTED_VALUES: Final = {False: 16, True: 64}
"""Values that a thread holds of a channel where blocks are large enough, by whether there are many channels."""
NARROW_GROUPS: Final = 4
"""Most narrow channels that are read together where there are few: a sector is read by several blocks then, which
costs less than that few blocks run. 256 samples of 512 channels: 5.95 us with 4, 7.71 with the 16 of a sector (H200,
2026-11-30)."""
NARROW_VALUES: Final = 8
"""Values that a thread holds of such a channel, each a load of its own."""
OWN_THREADS: Final = 128
"""Threads of a block whose channels have few values: 32 samples of 64 channels take 4.45 us in blocks of 4 channels of
32 threads, 5.06 in blocks of one, 5.47 with 8 values a thread (H200, 2026-11-30)."""
STREAM_THREADS: Final = 256
"""Threads of a block that streams whole channels."""


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


def held_groups(spatial: int, dtype: torch.dtype, *, many: bool) -> int:
    """Neighbouring channels that are read together where blocks hold them."""
    groups = groups_of(spatial, dtype)
    return groups if many else min(groups, NARROW_GROUPS)


def held_lanes(values: int, spatial: int, dtype: torch.dtype, *, many: bool) -> int:
    """Threads that hold a channel of *values* values."""
    groups = held_groups(spatial, dtype, many=many)
    if groups > 1:
        lanes = WARP
        while lanes * NARROW_VALUES < values and groups * lanes < HELD_THREADS:
            lanes *= 2
        return lanes
    vector = vector_of(spatial, dtype)
    steps = WANTED_VALUES[many] // vector
    return min(HELD_THREADS, -(-(values // vector) // (steps * WARP)) * WARP)


def held_stacks(groups: int, lanes: int) -> int:
    """Sets of ``groups * lanes`` threads in a block that holds channels: no block is a single warp."""
    return 2 if groups * lanes == WARP else 1


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
    vector, groups = vector_of(spatial, dtype), held_groups(spatial, dtype, many=many)
    lanes = held_lanes(values, spatial, dtype, many=many)
    return ChannelLayout(vector, groups, lanes, held_stacks(groups, lanes), -(-(values // vector) // lanes))


def own_layout(values: int, spatial: int, dtype: torch.dtype, *, many: bool) -> ChannelLayout:
    """The layout in which a few threads hold a whole channel of up to 32 values.

    Where there are *many*, two threads have a channel and as many neighbours share a warp; else each thread has one
    vector.
    """
    vector = vector_of(spatial, dtype)
    vectors = values // vector
    lanes = 2 if many else 1
    while not many and lanes < vectors:
        lanes *= 2
    groups = max(WARP // lanes, NARROW_GROUPS)
    return ChannelLayout(vector, groups, lanes, OWN_THREADS // (groups * lanes), -(-vectors // lanes))


def streamed_layout(spatial: int, dtype: torch.dtype, threads: int) -> ChannelLayout:
    """The layout in which a block of *threads* threads streams channels of any length."""
    vector, groups = vector_of(spatial, dtype), groups_of(spatial, dtype)
    steps = max(4, min(16, CHUNK_VALUES // vector))
    return ChannelLayout(vector, groups, threads // groups, 1, steps)
