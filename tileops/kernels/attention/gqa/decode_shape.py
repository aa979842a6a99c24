"""What a block of decode looks like, and what decode is built for: rules and interface read it here.

The times that the modules of decode name are of the forms in ``benchmarks/results`` (decode forms: H200, 2026-11-30,
torch 2.11, TileLang 0.1.15), but for those of two and four clusters, which a draft of the program took (decode drafts).
Keys had gaps of 16 bytes between them in rings then.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.attention.gqa.limits import DTYPES

__all__ = [
    "ALONE",
    "CLUSTERED",
    "CLUSTER_KEYS",
    "DIMS",
    "ENOUGH_BYTES",
    "FLOAT_PAD",
    "FP8_DECODE_ARCHS",
    "ROWS",
    "STEP",
    "DecodeShape",
    "Ladder",
    "decode_refusal",
    "head_bytes",
    "head_refusal",
    "one_sequence_ladder",
    "paired",
    "row_warps_for",
]

STEP: Final = 16
"""Keys that a warp takes at a time, and depth of one step of the matrix unit: head sizes are multiples of it."""
ROWS: Final = 16
"""Query heads that a warp takes: the rows of a product of the matrix unit."""
MAX_DIM: Final = 256
"""Largest head: its float32 results fill half of a thread's registers."""
DIMS: Final = range(STEP, MAX_DIM + 1, STEP)
"""The head sizes that kernels are built for."""
FP8_DECODE_ARCHS: Final = (89, 90)
"""The architectures that convert float8 numbers by themselves."""
SHARED_ALIGNMENT: Final = 128
"""Bytes by which TileLang aligns what shares memory."""
SMALL_BUFFERS: Final = 8
"""Shared buffers of a block beside the ring."""
FLOAT_BYTES: Final = 4
FLOAT_PAD: Final = 8
"""Floats between rows of results in shared memory, so that rows lie in different banks."""
ENOUGH_BYTES: Final = 64 * 2**10
"""Of the rings of a block, by themselves on a multiprocessor, from which deeper ones gain nothing.

On an H200 (2026-11-30, attention trials in ``benchmarks/results``; kernels alone, blocks of eight warps) rings of six,
four, three and two chunks, 216, 144, 108 and 72 KiB, took 28.7, 26.8, 26.3 and 25.5 us for 65,536 keys of float8, and
rings of four, three and two, 208, 156 and 104 KiB, 427, 425 and 391 us for 64 times 8,192 keys with heads of 96 in
float16. Heads of 64 (from 72 KiB on) and of 128 (from 136 on) took as long by two chunks as by more, within 1.1
percent. Smaller rings, other cards, and blocks whose warps share keys have not been compared: the last have the deepest
rings that fit."""


def head_bytes(dim: int, is_fp8: bool) -> int:
    """Bytes of a key or value of one head, which is also what lies between one and the next in a ring."""
    return dim if is_fp8 else 2 * dim


@dataclasses.dataclass(frozen=True)
class DecodeShape:
    """What a block looks like.

    Attributes:
        key_warps: Warps, or groups of those that share a ring, that take different keys of a head.
        row_warps: Warps that share keys, each with 16 query heads.
        stages: Chunks of 16 keys, and of values, in the ring of a warp.
        cluster: Blocks that take a run together, and add up through each other's shared memory.
        key_heads: Key heads of a ring, each of a warp of its own where there are two: what is read of a key is as
            much longer.
    """

    key_warps: int
    row_warps: int
    stages: int
    cluster: int = 1
    key_heads: int = 1

    @property
    def tile_keys(self) -> int:
        """Keys that the blocks of a run take at a time."""
        return STEP * self.key_warps * self.cluster

    @property
    def ring_warps(self) -> int:
        """Warps that share a ring."""
        return self.row_warps * self.key_heads

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.key_warps * self.ring_warps

    def rows(self, group: int) -> int:
        """Query heads of a block, where *group* of them share a key head: at most half as many of each of two."""
        return min(group, ROWS * self.row_warps // self.key_heads) * self.key_heads

    def ring_bytes(self, dim: int, is_fp8: bool) -> int:
        """Shared memory of the rings of a block."""
        return self._rings(self.stages, dim, is_fp8)

    def smem_bytes(self, dim: int, is_fp8: bool = False) -> int:
        """The most shared memory that a block takes: its rings, and what its warps and its cluster exchange.

        One with fewer query heads than rows takes less. Where warps meet, the rings hold what they have: as much as
        rings of one stage for each row warp, twice as much of float8, and pads.
        """
        rows = ROWS * self.row_warps
        stages = max(self.stages, self.row_warps * (2 if is_fp8 else 1))
        ring = self._rings(stages, dim, is_fp8)
        known = ((FLOAT_PAD + 2) * self.key_warps + 2) * rows * FLOAT_BYTES
        if self.cluster > 1:
            known += 2 * rows * dim * FLOAT_BYTES + 2 * self.cluster * rows * FLOAT_BYTES
        return ring + known + SMALL_BUFFERS * SHARED_ALIGNMENT

    def _rings(self, stages: int, dim: int, is_fp8: bool) -> int:
        return 2 * self.key_warps * stages * STEP * self.key_heads * head_bytes(dim, is_fp8)


@dataclasses.dataclass(frozen=True)
class Ladder:
    """Shapes from the preferred one down: the first whose need fits the device's shared memory is built.

    Attributes:
        warps: Warps of a block at most, first choice first.
        stages: Chunks in the ring of a warp, deepest first.
        cluster: Blocks of a cluster.
        enough: Bytes of all rings with which no deeper one is wanted, where warps share no keys; 0 for the deepest.
    """

    warps: tuple[int, ...]
    stages: tuple[int, ...]
    cluster: int = 1
    enough: int = 0

    def smallest(self, row_warps: int) -> DecodeShape:
        """The last resort: what a device has no room for is served by none."""
        return DecodeShape(max(1, self.warps[-1] // row_warps), row_warps, self.stages[-1], self.cluster)

    def shape_for(self, dim: int, row_warps: int, smem_budget: int, is_fp8: bool = False) -> DecodeShape:
        """The first shape for heads of *dim* elements that fits, or the smallest."""
        for warps in self.warps:
            if self.enough > 0 and row_warps == 1:
                for stages in self.stages[::-1]:
                    shape = DecodeShape(warps, row_warps, stages, self.cluster)
                    if shape.ring_bytes(dim, is_fp8) >= self.enough and shape.smem_bytes(dim, is_fp8) <= smem_budget:
                        return shape
            for stages in self.stages:
                shape = DecodeShape(max(1, warps // row_warps), row_warps, stages, self.cluster)
                if shape.smem_bytes(dim, is_fp8) <= smem_budget:
                    return shape
        return self.smallest(row_warps)


ALONE: Final = Ladder(warps=(8, 4, 2, 1), stages=(6, 5, 4, 3, 2), enough=ENOUGH_BYTES)
"""A block takes a run by itself. On an H200 (2026-11-30, 32 query heads on 4 and on 8 key heads of 128, float16), one
block of eight warps a multiprocessor was as fast as two blocks of four, or faster where runs are few, and leaves half
as many parts to add."""

CLUSTERED: Final = Ladder(warps=(4, 2, 1), stages=(3, 2), cluster=8)
"""Eight blocks take a run together. Clusters of blocks of eight warps were slower than these below
:data:`CLUSTER_KEYS` keys, and than blocks by themselves from there on, but for 32,768 keys."""

CLUSTER_KEYS: Final = 4096
"""Keys of one sequence from which blocks by themselves are faster than clusters.

On an H200 (2026-11-30, decode forms in ``benchmarks/results``; 32 query heads on 4 key heads of 128, float16) clusters
took 7.2, 7.8 and 9.3 us at 512, 1,024 and 2,048 keys and blocks by themselves 8.6, 8.9 and 9.5; at 4,096, 8,192 and
16,384 it was 11.3, 14.0 and 19.1 and 10.9, 13.0 and 16.9."""


def one_sequence_ladder(keys: int) -> Ladder:
    """The shapes of blocks for one sequence of *keys* keys, where there are clusters."""
    return CLUSTERED if keys < CLUSTER_KEYS else ALONE


def row_warps_for(heads: int, heads_kv: int) -> int:
    """Warps that share the keys of a ring: enough for the query heads of a key head, or for 64 of them."""
    return 1 if heads <= ROWS * heads_kv else 2 if heads <= 2 * ROWS * heads_kv else 4


PAIRED_SHARE: Final = 0.9
"""Of the multiprocessors that blocks of two key heads and a whole sequence are to fill, or else a ring has one head.

On an H200 (2026-12-01, attention trials in ``benchmarks/results``; 32 query heads on 8 key heads of 128, float16;
blocks of eight warps) 64 times 8,192 keys took 479.1 us with rings of two heads and one chunk, 480.1 and two chunks,
484.8 with one head and one chunk, 486.9 and two chunks; 32 times 4,096 124.9, 125.0, 125.9 and 126.7. Where rings of
two heads leave sequences cut it was 67.8, 67.9, 66.0 and 65.7 for 16 times 4,096. Heads of other sizes, and fewer keys,
have not been compared; a single sequence has one head to a ring."""


def paired(shape: DecodeShape, dim: int, batch: int, heads: int, heads_kv: int, sm_count: int) -> DecodeShape:
    """*shape* with half as many key warps and two key heads to a ring, where that is faster.

    Their query heads are at most as many as the rows of *shape*, so that the block takes no more shared memory.

    Args:
        shape: With one key head to a ring, of 16 bits.
        dim: Elements of a head.
        batch: Sequences.
        heads: Query heads.
        heads_kv: Key heads.
        sm_count: Multiprocessors.
    """
    halved = heads // heads_kv <= ROWS // 2 and heads_kv % 2 == 0
    filled = batch > 1 and batch * (heads_kv // 2) >= PAIRED_SHARE * sm_count
    if shape.cluster > 1 or shape.row_warps > 1 or shape.key_warps % 2 != 0 or not halved or not filled:
        return shape
    pair = dataclasses.replace(shape, key_warps=shape.key_warps // 2, key_heads=2, stages=1)
    while pair.stages < shape.stages and pair.ring_bytes(dim, is_fp8=False) < ENOUGH_BYTES:
        pair = dataclasses.replace(pair, stages=pair.stages + 1)
    return pair


def head_refusal(dim: int, dtype: torch.dtype) -> str | None:
    """Why no kernel is built for heads of *dim* elements and results of *dtype*, or ``None``."""
    if dtype not in DTYPES:
        return f"dtype {dtype} is not torch.float16 or torch.bfloat16"
    if not DIMS[0] <= dim <= MAX_DIM or dim % STEP != 0:
        return f"dim {dim} is not a multiple of {STEP} from {DIMS[0]} to {MAX_DIM}"
    return None


def decode_refusal(
    dim: int,
    dtype: torch.dtype,
    row_warps: int,
    smem_budget: int | None,
    is_fp8: bool = False,
    ladder: Ladder = ALONE,
) -> str | None:
    """Why no decode kernel is built for these, or ``None``.

    Args:
        dim: Elements of a head.
        dtype: Of the results.
        row_warps: See :func:`row_warps_for`.
        smem_budget: Bytes of shared memory that a block may take, where that is known.
        is_fp8: Whether inputs are float8.
        ladder: The shapes that there are.
    """
    reason = head_refusal(dim, dtype)
    if reason is not None:
        return reason
    needed = ladder.smallest(row_warps).smem_bytes(dim, is_fp8)
    if smem_budget is not None and needed > smem_budget:
        return f"dim {dim} needs {needed} bytes of shared memory a block, and smem_budget is {smem_budget}"
    return None
