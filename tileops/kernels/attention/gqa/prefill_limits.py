"""What the grouped-query prefill kernels are built for, where their rules and their interface both read it."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.attention.gqa.limits import ARCHS, DTYPES, ITEM_BYTES
from tileops.kernels.tilelang_build import BARRIER_BYTES

__all__ = [
    "PREFILL_ARCHS",
    "PREFILL_DIMS",
    "RING_TILES",
    "SMALLEST_PREFILL_TILE",
    "MmaTile",
    "RingTile",
    "prefill_refusal",
]

PREFILL_ARCHS: Final = ARCHS
PREFILL_DIMS: Final = (64, 80, 96, 128, 192, 256)
"""The head sizes that kernels are built for, in order."""
ACCEPTED_DIMS: Final = ", ".join(map(str, PREFILL_DIMS))
RING_QUERIES: Final = 128
"""Queries of a tile of :class:`RingTile`: 64 for each of the two multiplying warpgroups."""


@dataclasses.dataclass(frozen=True)
class MmaTile:
    """What a block that multiplies by ``mma.sync`` holds in shared memory.

    Attributes:
        queries: Queries of a block; a warp has 16 of them.
        keys: Keys of a tile.
        stages: Tiles of keys, and of values, in the ring.
        widest: The largest head whose results a thread's registers hold.
    """

    queries: int
    keys: int
    stages: int
    widest: int

    @property
    def threads(self) -> int:
        """A warp for 16 queries."""
        return 2 * self.queries

    def smem_bytes(self, dim: int) -> int:
        """Shared memory of a block for heads of *dim* elements: queries, and rings of keys and values."""
        return (self.queries + 2 * self.stages * self.keys) * dim * ITEM_BYTES


@dataclasses.dataclass(frozen=True)
class RingTile:
    """What a block of three warpgroups holds in shared memory for one head size.

    Attributes:
        dim: Elements of a head.
        keys: Keys of a tile.
        stages: Tiles of keys, and of values, in the ring.
        own_out: Whether results have a tile of their own; else they take the place of the queries.
    """

    dim: int
    keys: int
    stages: int
    own_out: bool

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a block: queries, results, rings of keys and values, and barriers."""
        rows = RING_QUERIES * (2 if self.own_out else 1) + 2 * self.stages * self.keys
        return rows * self.dim * ITEM_BYTES + BARRIER_BYTES


RING_TILES: Final = (
    RingTile(64, 128, 4, own_out=True),
    RingTile(80, 128, 2, own_out=True),
    RingTile(96, 128, 2, own_out=True),
    RingTile(128, 128, 2, own_out=True),
    RingTile(192, 96, 2, own_out=False),
    RingTile(256, 80, 2, own_out=False),
)
SMALLEST_PREFILL_TILE: Final = MmaTile(64, 32, 2, 256)
"""The last resort: what a device has no room for is served by none."""


def prefill_refusal(dim: int, dtype: torch.dtype, needed: int = 0, smem_budget: int | None = None) -> str | None:
    """Why no kernel is built for these, or ``None``.

    Args:
        dim: Elements of a head.
        dtype: Of every tensor.
        needed: Bytes of shared memory that a block takes.
        smem_budget: Bytes that it may take, where that is known.
    """
    if dtype not in DTYPES:
        return f"dtype {dtype} is not torch.float16 or torch.bfloat16"
    if not PREFILL_DIMS[0] <= dim <= PREFILL_DIMS[-1]:
        return f"dim {dim} is not one of {ACCEPTED_DIMS}"
    if smem_budget is not None and needed > smem_budget:
        return f"dim {dim} needs {needed} bytes of shared memory a block, and smem_budget is {smem_budget}"
    if dim not in PREFILL_DIMS:
        return f"dim {dim} is not one of {ACCEPTED_DIMS}"
    return None
