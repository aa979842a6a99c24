"""How sets of neighbouring channels lie over the threads of a block, where planes begin at odd places."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.norm.channel_layout import LOAD_BYTES, WARP, groups_of, vector_of

__all__ = [
    "SetLayout",
    "set_layout",
    "set_smem_bytes",
    "set_threads",
    "streamed_set_layout",
    "streams_sets",
    "takes_sets",
]

SET_THREADS: Final = 512
"""Threads of a block that holds a set of channels: 128 samples of 2,048 channels of 7x7 take 25.2 us with 512, 26.4
with 384 or 256 (H200, float16, 2026-11-30)."""
SET_LOAD_BYTES: Final = 4
"""Widest load for which sets are taken: where a plane takes more, reading channels one by one wastes little."""
REGISTER_STEPS: Final = 4
"""Most vectors that a thread holds in registers, of all tensors together; more wait in shared memory."""
SET_AHEAD: Final = 4
"""Vectors of one tensor that a thread loads before it uses the first: from 2 to 7 make no difference."""
STREAMED_AHEAD: Final = {1: 8, 2: 4}
"""The same where nothing is held, by the number of tensors: a block then has a multiprocessor to itself, and 64 KiB
under way."""
STREAMED_SAMPLES: Final = 2**18
"""Most samples of streamed sets: sums of a thread in two levels have no more than some hundred terms each."""
SLOTS: Final = 2
"""Channels that a vector of a set has values of: planes are no shorter than a vector less one."""


@dataclasses.dataclass(frozen=True)
class SetLayout:
    """Which threads of a block share a set of channels.

    The planes of a set's channels follow one another in each sample, and begin and end with a whole vector together:
    a run of ``columns`` vectors. A thread has one column, and some of the samples, so that each element of its vectors
    belongs to the same channel all along.

    Attributes:
        vector: Values of one load.
        channels: Channels of a set: ``channels * spatial`` is a multiple of ``vector``.
        spatial: Values of a plane.
        rows: Threads that share a column.
        steps: Vectors that a thread holds at a time; 0 where a set is streamed.
        in_shared: Whether they wait in shared memory, else in registers.
        ahead: Vectors of one tensor that a thread loads before it uses the first.
        resident: Blocks that a multiprocessor is to hold at least.
    """

    vector: int
    channels: int
    spatial: int
    rows: int
    steps: int
    in_shared: bool
    ahead: int = SET_AHEAD
    resident: int = 1

    @property
    def columns(self) -> int:
        """Vectors of the planes of a set in one sample."""
        return self.channels * self.spatial // self.vector

    @property
    def threads(self) -> int:
        """Threads of a block: some of the last warp have no column."""
        return -(-self.columns * self.rows // WARP) * WARP

    @property
    def slots(self) -> int:
        """Most channels that a vector has values of."""
        return (self.vector - 2) // self.spatial + 2


def set_channels(spatial: int, dtype: torch.dtype) -> int:
    """Fewest channels whose planes begin and end with a whole vector together."""
    return LOAD_BYTES // dtype.itemsize // vector_of(spatial, dtype)


def set_columns(spatial: int, dtype: torch.dtype) -> int:
    """Vectors of the planes of a set in one sample."""
    return spatial // vector_of(spatial, dtype)


def set_rows(n: int, spatial: int, dtype: torch.dtype) -> int:
    """Threads that share a column."""
    return max(1, min(n, SET_THREADS // set_columns(spatial, dtype)))


def set_threads(n: int, spatial: int, dtype: torch.dtype) -> int:
    """Threads of a block that holds a set."""
    return -(-set_columns(spatial, dtype) * set_rows(n, spatial, dtype) // WARP) * WARP


def set_smem_bytes(n: int, spatial: int, dtype: torch.dtype, tensors: int) -> int:
    """Shared memory of a block that holds a set of each of so many *tensors*, and adds two sums of each channel.

    A block that streams sets holds none.
    """
    columns, rows = set_columns(spatial, dtype), set_rows(n, spatial, dtype)
    steps = -(-n // rows)
    waiting = tensors * steps * rows * columns * LOAD_BYTES if tensors * steps > REGISTER_STEPS else 0
    return waiting + 2 * (SLOTS * set_threads(n, spatial, dtype) + set_channels(spatial, dtype)) * 4


def has_sets(c: int, spatial: int, dtype: torch.dtype) -> bool:
    """Whether channels are read in sets.

    Planes have an odd number of values then, or nearly so, and are neither very short nor very long.
    """
    if vector_of(spatial, dtype) * dtype.itemsize > SET_LOAD_BYTES or groups_of(spatial, dtype) > 1:
        return False
    return c % set_channels(spatial, dtype) == 0 and set_columns(spatial, dtype) <= SET_THREADS


def takes_sets(n: int, c: int, spatial: int, dtype: torch.dtype, budget: int | None, tensors: int) -> bool:
    """Whether a block holds sets of channels of each of so many *tensors*, in a shared memory of *budget* bytes."""
    if budget is None or not has_sets(c, spatial, dtype):
        return False
    return set_smem_bytes(n, spatial, dtype, tensors) <= budget


def streams_sets(n: int, c: int, spatial: int, dtype: torch.dtype) -> bool:
    """Whether a block streams sets of channels, where it does not hold them."""
    return has_sets(c, spatial, dtype) and n <= STREAMED_SAMPLES


def set_layout(n: int, spatial: int, dtype: torch.dtype, tensors: int) -> SetLayout:
    """The layout in which a block holds sets of channels of each of so many *tensors*."""
    rows = set_rows(n, spatial, dtype)
    steps = -(-n // rows)
    in_shared = tensors * steps > REGISTER_STEPS
    # Two blocks share a multiprocessor where one tensor waits: registers are kept to what that allows.
    resident = 2 if in_shared and tensors == 1 else 1
    channels = set_channels(spatial, dtype)
    return SetLayout(LOAD_BYTES // dtype.itemsize, channels, spatial, rows, steps, in_shared, SET_AHEAD, resident)


def streamed_set_layout(n: int, spatial: int, dtype: torch.dtype, tensors: int) -> SetLayout:
    """The layout in which a block streams sets of channels of each of so many *tensors*."""
    rows, channels = set_rows(n, spatial, dtype), set_channels(spatial, dtype)
    return SetLayout(LOAD_BYTES // dtype.itemsize, channels, spatial, rows, 0, False, STREAMED_AHEAD[tensors])
