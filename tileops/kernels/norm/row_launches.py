"""How rows are laid over threads and blocks, and the limits of each way to hold them.

The limits here are the regions of the kernels: rules, builders and documentation read them from this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import torch

from tileops.kernels.norm.row_recipes import RowRecipe

__all__ = [
    "BRIEF_ROW",
    "CUT_LANES",
    "CUT_ROW",
    "HELD_ROW",
    "MOST_LAUNCHES",
    "REGISTER_ROW",
    "RING_ROW",
    "RING_STAGES",
    "RING_WARPS",
    "SHORT_ROW",
    "WARP",
    "WIDE_ROW",
    "WORTH_CUTTING",
    "HeldLaunch",
    "RingLaunch",
    "TiledLaunch",
    "cut_blocks",
    "cut_launch",
    "cut_launches",
    "few_lanes",
    "few_launch",
    "few_launches",
    "held_lanes",
    "held_launch",
    "held_launches",
    "held_row",
    "ring_launch",
    "ring_launches",
    "short_launch",
    "short_launches",
    "short_threads",
    "tiled_launch",
    "tiled_launches",
    "vector_of",
]

VECTOR_BYTES: Final = 16
"""The widest load of a thread."""
WARP: Final = 32
SHORT_THREADS: Final = 128
"""Threads of a block of short rows, but for those of LayerNorm; see :func:`short_launch`."""

SHORT_VALUES: Final = 8
"""Values of a short row in a thread of a full warp, up to which registers leave room for more beside them: CUDA 13.0
spills 84 bytes a thread of RMSNorm with 512 elements of 16 bits, four rows at a time, and 136 of AdaLN-Zero."""
CUT_LANES: Final = 256
"""Threads of each block of a cluster."""

SHORT_ROW: Final = 512
"""Longest row of a warp or less. At 8192 x 1024 in bfloat16 a warp a row took 14.8 us for LayerNorm and 13.9 for
RMSNorm, 128 threads 14.6 and 13.0 (H200, 2026-11-30)."""
RING_ROW: Final = 1024
"""Longest row of a warp that rows come to through a ring, where a thread has 32 values of 16 bits, and weights beside
them. At 8192 x 1024 in bfloat16 LayerNorm took 14.1 us so and 15.1 a block to a row, RMSNorm 13.4 and 14.5; at 65536 x
256 LayerNorm took 22.9 and 22.2 as short rows are held (H200, 2026-11-30)."""
RING_WARPS: Final = 4
"""Warps of a block, each with a row. With 8 in half as many blocks LayerNorm took the same (H200, 2026-11-30)."""
RING_STAGES: Final = 3
"""Rows of a warp that are under way or being read: 8192 x 1024 in bfloat16 took 14.1 us with 3, 14.2 with 4 and 14.3
with 2 (H200, 2026-11-30)."""
BRIEF_ROW: Final = 1024
"""Longest row of which 128 threads hold 8 values each, so that 12 such blocks fit, and weights beside them. At 8192 x
1024 in bfloat16 LayerNorm took 14.6 us with 12 blocks and the weights loaded ahead, 14.8 or more with 8 to 16 blocks
and the weights loaded last; RMSNorm 12.9 with 12 blocks and 13.0 with 8 (H200, 2026-11-30)."""
NARROW_ROW: Final = 4096
"""Longest row of 128 threads: 32 values each. At 2048 x 4096 in bfloat16 add + LayerNorm took 21.9 us with 128 threads
a row and 23.2 with 256 (H200, 2026-11-30)."""
NARROW_CENTRED_ROW: Final = 3072
"""The same where a row is centred and nothing else is read of its size: 24 values each. In bfloat16 LayerNorm took
39.0 us at 8192 x 4096 and 14.9 at 2048 x 4096 with 256 threads, six blocks of them resident, 39.3 and 15.2 with 128
(H200, 2026-11-30). Longer rows up to :data:`NARROW_ROW` whose weights are shared are looked at twice: add + LayerNorm
took 18.1 us at 2048 x 4096 in float16 and 18.8 looked at once, at 8192 x 3000 48.5 and 48.0, at 8192 x 1024 18.9 and
18.2 (H200, 2026-12-01, row trials in ``benchmarks/results``)."""
REGISTER_ROW: Final = 8192
"""Longest row that waits in the registers of 256 threads; a longer one waits in shared memory. At 2048 x 16384 in
bfloat16 LayerNorm took 41.1 us in shared memory and 42.0 or more in registers (H200, 2026-11-30)."""
HELD_ROW: Final = 16384
"""Longest row that one block holds: 64 KiB of float32, which every architecture has."""
WIDE_ROW: Final = 65536
"""Longest row of 16-bit values that 1,024 threads hold in registers, where they hold nothing else and look at it once
before the last time, as RMSNorm does. At 1024 x 65536 it took 73.0 us so in float16, and in bfloat16 with an earlier
program, 81.1 in a cluster of four; where values spill it takes 94 to 150 (H200, 2026-11-30)."""
CUT_ROW: Final = 262144
"""Longest row that eight blocks, the most of a portable cluster, hold: 128 KiB of float32 each."""
SHARE_BYTES: Final = 64 * 2**10
"""Of a row that each of two blocks holds, so that a multiprocessor has room for three."""
WORTH_CUTTING: Final = 8192
"""Rows longer than this are cut over blocks where there are few of them. At 1 x 16384 in bfloat16 RMSNorm took 4.96 us
in four blocks and 5.31 in one, LayerNorm 5.63 and 6.11 (H200, 2026-11-30)."""

FEW_VALUES: Final = 16
"""Values of a thread where rows are few, and longer than :data:`BRIEF_ROW` but not than :data:`REGISTER_ROW`. At
1 x 4096 and 1 x 8192 in bfloat16 LayerNorm took 4.8 and 5.1 us so, 5.2 and 5.6 as many rows are laid out; RMSNorm 4.5
and 4.6 us, and 4.6 and 5.0 (H200, 2026-11-30; a copy takes 4.2)."""

MOST_LAUNCHES: Final = 8
"""Launches of a table, each of which takes seconds to compile when it is measured."""
REGISTER_VALUES: Final = 64
"""Most values of a row that a thread holds in registers; with more they spill."""
AHEAD_VALUES: Final = 32
"""Most of them where the weights wait beside them, or distances."""


@dataclasses.dataclass(frozen=True)
class HeldLaunch:
    """How rows that are held from load to store are laid out.

    Attributes:
        vector: Elements of one load.
        lanes: Threads of a block that share a row.
        groups: Groups of such threads in a block.
        rows: Rows that a group has at a time.
        blocks: Blocks of a cluster that share a row.
        resident: Blocks that a multiprocessor is to hold; on SM86, which holds 16 at most, more say nothing.
        ahead: Weights are loaded before the statistics are known.
        in_shared: A row waits in shared memory and not in registers.
        distances: Of a centred row, distances from a point near the mean wait in registers too.
        once: A centred row of 16 bits is looked at once before the last time.
        keeps: Results are among the last to leave the L2 cache.
    """

    vector: int
    lanes: int
    groups: int = 1
    rows: int = 1
    blocks: int = 1
    resident: int = 1
    ahead: bool = False
    in_shared: bool = False
    distances: bool = False
    once: bool = False
    keeps: bool = False


@dataclasses.dataclass(frozen=True)
class RingLaunch:
    """How rows that come through a ring are laid out.

    Attributes:
        vector: Elements of one load.
        warps: Warps of a block, each with a row.
        stages: Rows of a warp that are under way or being read.
        resident: Blocks that a multiprocessor is to hold.
        distances: Of a centred row, distances from a point near the mean wait in registers too.
    """

    vector: int
    warps: int = RING_WARPS
    stages: int = RING_STAGES
    resident: int = 4
    distances: bool = False


@dataclasses.dataclass(frozen=True)
class TiledLaunch:
    """How rows that are read twice are laid out.

    Attributes:
        vector: Elements of one load.
        threads: Threads of a block, which has one row.
        steps: Vectors that a thread has of a tile.
    """

    vector: int
    threads: int = 256
    steps: int = 4


def vector_of(n: int, dtype: torch.dtype) -> int:
    """Elements of the widest load at which every row of *n* elements begins aligned."""
    widest = VECTOR_BYTES // dtype.itemsize
    if n % widest == 0:
        return widest
    if n % (widest // 2) == 0:
        return widest // 2
    if widest == 8 and n % 2 == 0:
        return 2
    return 1


def short_lanes(n: int, span: int) -> int:
    """Threads of a short row, each of which has *span* values, as long as a warp is not full."""
    if n <= span:
        return 1
    if n <= 2 * span:
        return 2
    if n <= 4 * span:
        return 4
    if n <= 8 * span:
        return 8
    if n <= 16 * span:
        return 16
    return WARP


def short_threads(recipe: RowRecipe) -> int:
    """Threads of a block of short rows."""
    return SHORT_THREADS // 2 if recipe.centred and recipe.inputs == 1 else SHORT_THREADS


def keeps(n: int, recipe: RowRecipe) -> bool:
    """Whether results of rows of *n* elements are to be the last to leave the L2 cache.

    RMSNorm took 62.7 us at 8192 x 8192 in float16 where they are and 65.1 else, add + LayerNorm 127.3 and 131.4;
    LayerNorm 63.6 and 65.2, in another run 64.1 and 64.7, but 8192 x 3000 27.2 and 26.8. AdaLN-Zero, which reads four
    times as much as it writes, took 158.2 and 156.1 (H200, 2026-12-01, row trials in ``benchmarks/results``).
    """
    return recipe.shared and (recipe.residual or not recipe.centred or n > NARROW_ROW)


def looked_at_once(dtype: torch.dtype, recipe: RowRecipe) -> bool:
    """Whether rows that wait may be looked at once: of float32 too many digits would be lost."""
    return recipe.centred and dtype.itemsize == 2


def short_launch(n: int, dtype: torch.dtype, recipe: RowRecipe) -> HeldLaunch:
    """Rows of at most :data:`SHORT_ROW` elements: a warp or less each, several to a block.

    At 65536 x 256 LayerNorm took 18.4 and 18.7 us in float16 and bfloat16 with blocks of 64 threads, 24 of them, and
    18.7 and 18.9 with ten blocks of 128; RMSNorm 17.8 and 17.8 with four rows at a time and results that leave the
    cache last, 18.0 and 18.1 with two and usual ones; AdaLN 32.0 and 32.0 with scale and shift loaded ahead and eight
    blocks, 32.4 and 32.5 with them loaded last and ten; AdaLN-Zero 40.0 and 40.1 with one vector a thread, all loaded
    ahead, 40.3 and 40.4 with two, loaded last (H200, 2026-12-01, row trials in ``benchmarks/results``). Where a thread
    has more than :data:`SHORT_VALUES`, four rows of RMSNorm and all that AdaLN-Zero reads spill: two rows then, and
    loads when they are used.
    """
    vector, threads = vector_of(n, dtype), short_threads(recipe)
    brief = vector * -(-n // (vector * WARP)) <= SHORT_VALUES
    rows, resident, vectors = 1, 12, 1
    if not recipe.centred and not recipe.residual:
        rows, resident = (4, 8) if brief else (2, 10)
    elif threads < SHORT_THREADS:
        vectors, resident = 2, 24 if dtype.itemsize == 2 else 20
    elif not recipe.residual and not (recipe.gated and brief):
        vectors, resident = 2, 10 if recipe.gated else 8
    lanes = short_lanes(n, vectors * vector)
    return HeldLaunch(
        vector,
        lanes,
        groups=threads // lanes,
        rows=rows,
        resident=resident,
        ahead=recipe.centred and not recipe.residual and (brief or not recipe.gated),
        distances=recipe.centred and recipe.shared,
        keeps=keeps(n, recipe),
    )


def held_row(recipe: RowRecipe, dtype: torch.dtype) -> int:
    """Elements of the longest row that one block holds."""
    return WIDE_ROW if recipe.inputs == 1 and not recipe.centred and dtype.itemsize == 2 else HELD_ROW


def held_lanes(n: int, recipe: RowRecipe) -> int:
    """Threads of a row of *n* elements that one block holds."""
    if n <= BRIEF_ROW and recipe.residual and not recipe.centred:
        return 64
    if n <= (NARROW_CENTRED_ROW if recipe.centred and recipe.inputs == 1 else NARROW_ROW):
        return 128
    return 256 if n <= HELD_ROW else 1024


def few_lanes(n: int) -> int:
    """Threads of a row of *n* elements, at most :data:`REGISTER_ROW`, of few."""
    if n <= 128 * FEW_VALUES:
        return 128
    return 256 if n <= 256 * FEW_VALUES else 512


def few_launch(n: int, dtype: torch.dtype, recipe: RowRecipe) -> HeldLaunch:
    """Rows of at most :data:`REGISTER_ROW` elements, few of them: everything is loaded at once.

    At 1 x 4096 in float16 LayerNorm took 4.0 to 4.2 us looked at once and 4.4 else, add + LayerNorm 4.4 and 4.6 (H200,
    2026-12-01, row trials in ``benchmarks/results``).
    """
    return HeldLaunch(vector_of(n, dtype), few_lanes(n), ahead=True, once=looked_at_once(dtype, recipe))


def held_launch(n: int, dtype: torch.dtype, recipe: RowRecipe) -> HeldLaunch:
    """Rows of at most :func:`held_row` elements: a block each.

    Rows that are not centred need no second look at their values before the last, and stay in registers. At 8192 x 1024
    in bfloat16 add + LayerNorm took 18.7 us with eight resident blocks and 19.6 with six, in float16 AdaLN 18.5 and
    19.3; at 2048 x 16384 RMSNorm took 33.4 with three and 34.5 with two (H200, 2026-11-30). At 8192 x 1024 add +
    RMSNorm took 17.9 and 17.8 us in float16 and bfloat16 with 16 blocks of 64 threads, 18.1 and 18.0 with eight of 128
    (H200, 2026-12-01; both are row trials in ``benchmarks/results``).
    """
    lanes = held_lanes(n, recipe)
    resident = {64: 16, 128: 6, 256: 4, 1024: 1}[lanes]
    if lanes == 256 and n <= NARROW_ROW:
        resident = 6
    brief = n <= BRIEF_ROW and recipe.inputs == 1
    if lanes == 128 and n <= BRIEF_ROW:
        resident = 12 if brief else 8
    if lanes == 256 and n > REGISTER_ROW:
        resident = 3 if recipe.centred or recipe.inputs == 1 else 2
    once = looked_at_once(dtype, recipe) and not (recipe.shared and NARROW_CENTRED_ROW < n <= NARROW_ROW)
    return HeldLaunch(
        vector_of(n, dtype),
        lanes,
        resident=resident,
        ahead=brief,
        in_shared=recipe.centred and n > REGISTER_ROW,
        distances=recipe.centred and recipe.shared and n <= NARROW_ROW and not once,
        once=once,
        keeps=keeps(n, recipe),
    )


def cut_blocks(n: int, dtype: torch.dtype, *, many: bool) -> int:
    """Blocks of the cluster that holds a row of *n* elements of *dtype*.

    At 1024 x 65536 in float16 LayerNorm took 76.7 us with two blocks of which three are resident, and 87.7 with four
    (H200, 2026-11-30, row trials in ``benchmarks/results``).

    Args:
        n: Elements of a row.
        dtype: Of the row.
        many: Whether there are many rows: else a row is to be done soon, and not to leave room for others.
    """
    if many and n * dtype.itemsize <= 2 * SHARE_BYTES:
        return 2
    return 4 if n <= 65536 else 8


def cut_launch(n: int, dtype: torch.dtype, recipe: RowRecipe, *, many: bool) -> HeldLaunch:
    """Rows of at most :data:`CUT_ROW` elements: each cut over the blocks of a cluster."""
    blocks = cut_blocks(n, dtype, many=many)
    return HeldLaunch(
        vector_of(n, dtype),
        CUT_LANES,
        blocks=blocks,
        resident=3 if blocks == 2 else 4,
        in_shared=True,
        once=looked_at_once(dtype, recipe),
        keeps=keeps(n, recipe),
    )


def ring_launch(n: int, dtype: torch.dtype, recipe: RowRecipe) -> RingLaunch:
    """Rows of at most :data:`RING_ROW` elements: a warp each, of as many blocks as run at a time."""
    return RingLaunch(vector_of(n, dtype), distances=recipe.centred)


def tiled_launch(n: int, dtype: torch.dtype) -> TiledLaunch:
    """Rows of any length: a block each, a tile at a time."""
    return TiledLaunch(vector_of(n, dtype))


def short_launches(n: int, dtype: torch.dtype, recipe: RowRecipe) -> tuple[HeldLaunch, ...]:
    """What is measured for rows of at most :data:`SHORT_ROW` elements, the usual launch first."""
    usual = short_launch(n, dtype, recipe)
    lanes, threads = usual.lanes, usual.lanes * usual.groups

    def spread(lanes: int) -> HeldLaunch:
        return dataclasses.replace(usual, lanes=lanes, groups=threads // lanes)

    return _table(
        usual,
        [
            dataclasses.replace(usual, ahead=not usual.ahead),
            dataclasses.replace(usual, rows=2 if usual.rows != 2 else 1),
            *(dataclasses.replace(usual, resident=each * SHORT_THREADS // threads) for each in (6, 8, 10)),
            spread(max(lanes // 2, 1)),
            spread(min(lanes * 2, WARP)),
        ],
        n,
    )


def held_launches(n: int, dtype: torch.dtype, recipe: RowRecipe) -> tuple[HeldLaunch, ...]:
    """What is measured for rows of at most :func:`held_row` elements, the usual launch first.

    No other has more threads or more shared memory: both are stated for the usual one.
    """
    usual = held_launch(n, dtype, recipe)
    lanes, resident = usual.lanes, usual.resident
    found = [dataclasses.replace(usual, ahead=not usual.ahead)]
    if lanes <= 128:
        found += [dataclasses.replace(usual, resident=each * 128 // lanes) for each in (4, 6, 8, 12)]
        found.append(dataclasses.replace(usual, lanes=lanes // 2, resident=12 * 64 // (lanes // 2)))
        if n <= BRIEF_ROW:
            found.append(dataclasses.replace(usual, lanes=WARP, groups=lanes // WARP, resident=8 * 128 // lanes))
    elif lanes == 256:
        found += [
            dataclasses.replace(usual, resident=each) for each in range(resident - 2, resident + 3) if 1 < each <= 6
        ]
        found.append(dataclasses.replace(usual, lanes=128, resident=min(2 * resident, 6)))
        if usual.in_shared:
            found.append(dataclasses.replace(usual, in_shared=False, resident=2))
    else:
        found.append(dataclasses.replace(usual, lanes=512))
    return _table(usual, found, n)


def few_launches(n: int, dtype: torch.dtype, recipe: RowRecipe) -> tuple[HeldLaunch, ...]:
    """What is measured for few rows of at most :data:`REGISTER_ROW` elements, the usual launch first."""
    usual = few_launch(n, dtype, recipe)
    narrower = dataclasses.replace(usual, lanes=usual.lanes // 2)
    return _table(usual, [dataclasses.replace(usual, ahead=False), narrower], n)


def cut_launches(n: int, dtype: torch.dtype, recipe: RowRecipe, *, many: bool) -> tuple[HeldLaunch, ...]:
    """What is measured for rows of at most :data:`CUT_ROW` elements, the usual launch first.

    A share of more than one step shrinks by one at least where there are twice as many blocks, and with it the shared
    memory of a block.
    """
    usual = cut_launch(n, dtype, recipe, many=many)
    found = [dataclasses.replace(usual, ahead=True), *(dataclasses.replace(usual, resident=each) for each in (1, 2, 3))]
    if usual.blocks < 8 and n > usual.blocks * usual.lanes * usual.vector:
        wider = dataclasses.replace(usual, blocks=2 * usual.blocks)
        found += [wider, dataclasses.replace(wider, ahead=True)]
    return _table(usual, found, n)


def ring_launches(n: int, dtype: torch.dtype, recipe: RowRecipe) -> tuple[RingLaunch, ...]:
    """What is measured for rows of at most :data:`RING_ROW` elements, the usual launch first; none has more stages."""
    usual = ring_launch(n, dtype, recipe)
    found = [dataclasses.replace(usual, stages=2), *(dataclasses.replace(usual, resident=each) for each in (3, 5))]
    return (usual, *found)


def tiled_launches(n: int, dtype: torch.dtype) -> tuple[TiledLaunch, ...]:
    """What is measured for rows of any length, the usual launch first."""
    usual = tiled_launch(n, dtype)
    found = [dataclasses.replace(usual, steps=each) for each in (1, 2, 8)]
    found += [dataclasses.replace(usual, threads=128, steps=each) for each in (4, 8)]
    return (usual, *found)


def _table(usual: HeldLaunch, others: Sequence[HeldLaunch], n: int) -> tuple[HeldLaunch, ...]:
    """*usual* and those of *others* that differ from it and hold no more than registers do."""
    table = [usual]
    for each in others:
        most = AHEAD_VALUES if each.ahead or each.distances else REGISTER_VALUES
        values = each.rows * each.vector * -(-n // (each.lanes * each.blocks * each.vector))
        if each not in table and (values <= most or (each.in_shared and not each.ahead)):
            table.append(each)
    return tuple(table)
