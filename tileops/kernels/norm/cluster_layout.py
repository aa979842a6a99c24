"""How a channel lies in the shared memory of a cluster of blocks, and which channels do."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.norm.cut_layout import FACTS
from tileops.kernels.norm.limits import MOST_EXTENT
from tileops.kernels.tilelang_build import BARRIER_BYTES

__all__ = [
    "CLUSTER_THREADS",
    "MOST_SMEM_BYTES",
    "ClusterLayout",
    "cluster_blocks",
    "cluster_layout",
    "cluster_refusal",
    "cluster_resident",
    "cluster_smem_bytes",
]

# The figures: one NVIDIA H200, 2026-11-30, float16, cold L2, in us.

VECTOR_BYTES: Final = 16
"""What a thread loads at a time, and what copies into shared memory are multiples of."""
CLUSTER_THREADS: Final = 256
"""Threads of a block. 32 samples of 64 channels of 112x112 take 40.7 with 256, 41.2 with 512, 46.2 with 128; instances
of 512x512 take 85 with 256, 88 with 128, 103 with 512."""
STEPS: Final = 4
"""Vectors that a thread holds at a time."""
CHUNKS: Final = 4
"""Pieces in which a block awaits its share, so that the first are looked at while the others come: 41.3 with 4, 43.0
with 8."""
MOST_BLOCKS: Final = 8
"""Blocks of the largest cluster that every device with clusters has."""
CLUSTER_BLOCKS: Final = (1, 2, 4)
"""Blocks of a smaller cluster."""
FEWEST_BLOCKS: Final = 128
"""Blocks that there are at least, as far as clusters go: about one to a multiprocessor. 32 samples of 64 channels of
56x56 take 15.1 in clusters of two blocks, 16.7 in single ones."""
ROOM: Final = {1: 14336, 2: 7136, 3: 4704, 4: 3488}
"""Vectors of a block where so many are resident in the 228 KiB of a multiprocessor, with all that each takes beside.
32 samples of 64 channels of 112x112 take 40.7 in eight blocks, two resident, and 43.8 in four, one resident."""
WANTED: Final = {1: 2, 2: 3}
"""Blocks of which a multiprocessor is to have room for so many at least, by tensors that are kept, as far as clusters
go. Gradients of 32 samples of 256 channels of 56x56 take 58.5 in eight blocks, four resident, and 65.3 in four, two
resident; those of 512 channels of 28x28 33.3 in two blocks, four resident, and 35.5 in single ones, two resident; but
those of 4 samples of 256 channels of 64x64 12.4 in single ones, three resident, and 16.2 in two, four resident."""
FEWEST_VALUES: Final = 8192
"""Fewest values of a channel that is kept so."""
FEWEST_PLANE_BYTES: Final = 512
"""Fewest contiguous bytes of a channel: each plane is a copy of its own, which one thread asks for."""
MOST_CHANNELS: Final = MOST_EXTENT // MOST_BLOCKS
"""A grid has less than two to the 31st blocks."""
EXCHANGED_BYTES: Final = (CLUSTER_THREADS // 32 + 1 + MOST_BLOCKS) * FACTS * 4 + BARRIER_BYTES
"""Shared memory of a block beside its share: what warps and blocks exchange, and barriers."""
MOST_SMEM_BYTES: Final = ROOM[1] * VECTOR_BYTES + EXCHANGED_BYTES
"""Shared memory of a block of which one is resident."""


@dataclasses.dataclass(frozen=True)
class ClusterLayout:
    """How a channel lies in a cluster.

    Attributes:
        vector: Values of one load, 16 bytes.
        blocks: Blocks of the cluster.
        room: Vectors of each tensor that fit in a block.
        resident: Blocks that a multiprocessor is to hold.
        lanes: Threads of a block.
        steps: Vectors that a thread holds at a time.
        chunks: Pieces in which a block awaits its share.
        groups: Channels that are read together: one.
    """

    vector: int
    blocks: int
    room: int
    resident: int
    lanes: int = CLUSTER_THREADS
    steps: int = STEPS
    chunks: int = CHUNKS
    groups: int = 1


def vectors_of(values: int, dtype: torch.dtype) -> int:
    """Vectors of a channel of *values* values."""
    return values * dtype.itemsize // VECTOR_BYTES


def cluster_blocks(values: int, channels: int, dtype: torch.dtype, tensors: int = 1) -> int:
    """Blocks that share a channel: enough that as many as wanted are resident, and one for each multiprocessor.

    Args:
        values: Values of a channel.
        channels: How many there are.
        dtype: Of each tensor.
        tensors: Tensors that are kept.
    """
    for blocks in CLUSTER_BLOCKS:
        if channels * blocks >= FEWEST_BLOCKS and vectors_of(values, dtype) * tensors <= blocks * ROOM[WANTED[tensors]]:
            return blocks
    return MOST_BLOCKS


def cluster_resident(values: int, channels: int, dtype: torch.dtype, tensors: int = 1) -> int:
    """Blocks that a multiprocessor has room for."""
    blocks = cluster_blocks(values, channels, dtype, tensors)
    for resident in (4, 3, 2):
        if vectors_of(values, dtype) * tensors <= blocks * ROOM[resident]:
            return resident
    return 1


def cluster_layout(values: int, channels: int, dtype: torch.dtype, tensors: int = 1) -> ClusterLayout:
    """The layout of channels of *values* values in so many *tensors*."""
    resident = cluster_resident(values, channels, dtype, tensors)
    vector, blocks = VECTOR_BYTES // dtype.itemsize, cluster_blocks(values, channels, dtype, tensors)
    return ClusterLayout(vector, blocks, ROOM[resident] // tensors, resident)


def cluster_smem_bytes(values: int, channels: int, dtype: torch.dtype, tensors: int = 1) -> int:
    """Shared memory of a block: its room, what warps and blocks exchange, and barriers."""
    return ROOM[cluster_resident(values, channels, dtype, tensors)] * VECTOR_BYTES + EXCHANGED_BYTES


def cluster_refusal(values: int, channels: int, spatial: int, dtype: torch.dtype, tensors: int = 1) -> str | None:
    """Why no cluster keeps channels of *values* values in planes of *spatial* in so many *tensors*, or ``None``."""
    if values < FEWEST_VALUES:
        return f"a channel has {values} values, fewer than {FEWEST_VALUES}"
    vector = VECTOR_BYTES // dtype.itemsize
    if spatial % vector != 0:
        return f"spatial {spatial} is not a multiple of {vector}: planes do not begin at multiples of 16 bytes"
    fewest = FEWEST_PLANE_BYTES // dtype.itemsize
    if spatial < fewest:
        return f"spatial {spatial} is less than {fewest}"
    most = MOST_BLOCKS * ROOM[1] // tensors * vector
    if values > most:
        return f"a channel has {values} values, more than the {most} of a cluster"
    return None if channels <= MOST_CHANNELS else f"{channels} channels are more than {MOST_CHANNELS}"
