"""How few long channels are cut into parts, and in which order blocks come to them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

import torch

from tileops.kernels.norm.channel_layout import WARP, ChannelLayout, groups_of, vector_of

__all__ = ["CUT_THREADS", "FACTS", "RESIDENT", "Cut", "cut_layout", "cut_of", "cut_resident", "cut_smem_bytes"]

# The figures: one NVIDIA H200, 2026-11-30, float16, cold L2, in us.

CUT_THREADS: Final = 256
"""Threads of a block that has a part of a channel. With 512, of half the loads each, it takes 1 to 6 % more, with 128
of as many loads 3 to 14 %."""
HELD_BYTES: Final = 128
"""What a thread loads at a time, of all tensors: 32 samples of 256 channels of 56x56 take 45.8 with 128 bytes, 46.6
with 64, 48.3 with 32; their gradient 61.6 with 128, 65.8 with 64."""
MOST_STEPS: Final = 16
"""Most loads of a thread at a time, of all tensors: with more narrow ones, positions take the registers."""
RESIDENT: Final = {1: 3, 2: 4}
"""Blocks that registers leave room for, by tensors that are read: of gradients, 61.6 with 4 and 62.9 with 3."""
LONG_RESIDENT: Final = 4
"""The same of one tensor whose channels are as long as statistics are ahead, :data:`LAG_BYTES`: 128 channels of 8 MiB
take 738.6 with 4 and 745.2 with 3, but 32 channels of 4 MiB 104.8 and 103.8, and 512 instances of 2 MiB 732.3 and 715.1
(2026-12-01)."""
PART_BYTES: Final = 64 * 2**10
"""What a part has of all tensors: 95.5 for 256 instances of 512x512 with 64 KiB, 99.6 with 32 KiB."""
MOST_PARTS: Final = 64
"""Most parts of a channel for each tensor that is read, where there are channels enough: one block merges them. 128
channels of 8 MiB take 737 in parts of 128 KiB, 794 in parts of 64 KiB."""
TASKS_PER_SM: Final = 6
"""Parts for each multiprocessor at least, while they are longer than one load of each thread: twice what it runs."""
LAG_BYTES: Final = 8 * 2**20
"""How far statistics are ahead of what is normalized, so that they are known by then: 512 instances of 2 MiB take 688
at 8 MiB, 710 at 4, and 739 at 16, where less of what is read again is still in the cache (60 MB, in two halves)."""
FACTS: Final = 4
"""Values that are kept of a part of a channel, and then of the channel."""
TASK_BYTES: Final = 48
"""Shared memory that says what a block has to do: six integers of 64 bits."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """How channels are cut.

    Attributes:
        reach: Vectors of a part; the last may have fewer, and has one at least.
        cuts: Parts of a channel.
        blocks: Sets of channels that are read together.
        lag: Parts whose statistics are ahead of what is normalized: all parts of a channel at least.
    """

    reach: int
    cuts: int
    blocks: int
    lag: int


def cut_layout(spatial: int, dtype: torch.dtype, tensors: int) -> ChannelLayout:
    """The layout in which a block reads a part of a channel in each of so many *tensors*."""
    vector, groups = vector_of(spatial, dtype), groups_of(spatial, dtype)
    steps = min(HELD_BYTES // (vector * dtype.itemsize), MOST_STEPS) // tensors
    return ChannelLayout(vector, groups, CUT_THREADS // groups, 1, steps)


def cut_smem_bytes(spatial: int, dtype: torch.dtype, facts: int) -> int:
    """Shared memory of a block: its task, and so many float32 *facts* that each warp knows of each of its channels."""
    return TASK_BYTES + CUT_THREADS // WARP * groups_of(spatial, dtype) * facts * 4


def cut_resident(values: int, dtype: torch.dtype) -> int:
    """Blocks that a multiprocessor has at a time, where channels of *values* values of one tensor are cut."""
    return LONG_RESIDENT if values * dtype.itemsize >= LAG_BYTES else RESIDENT[1]


@functools.lru_cache(maxsize=1024)
def cut_of(layout: ChannelLayout, vectors: int, channels: int, vector_bytes: int, sm_count: int, tensors: int) -> Cut:
    """How *channels* channels of *vectors* vectors are cut.

    Args:
        layout: How a block reads them.
        vectors: Of each channel.
        channels: How many.
        vector_bytes: Bytes of a vector.
        sm_count: Multiprocessors.
        tensors: Tensors that are read.
    """
    blocks = -(-channels // layout.groups)
    vector_bytes *= layout.groups * tensors
    wanted = min(-(-vectors * vector_bytes // PART_BYTES), MOST_PARTS * tensors)
    wanted = max(wanted, -(-sm_count * TASKS_PER_SM // blocks))
    reach = -(-vectors // (wanted * layout.lanes)) * layout.lanes
    cuts = -(-vectors // reach)
    lag = min(blocks * cuts, max(cuts, LAG_BYTES // (reach * vector_bytes)))
    return Cut(reach, cuts, blocks, lag)
