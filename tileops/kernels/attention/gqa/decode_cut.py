"""How the keys of a decode call are cut over blocks: plain arithmetic, in one place.

The tiles of keys of all sequences make one line, which is cut into runs that differ by one tile at most; each run is
taken for all units of a sequence at the same time, by a block or a cluster of blocks each. Nothing of this is built in:
a length costs no build.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import DecodeShape

__all__ = ["DecodeCut", "cut_tiles", "runs_for", "runs_of", "tiles_of"]

MOST_ROUNDS: Final = 4
WORTH_A_ROUND: Final = 0.04
"""How much more of the card another round must fill."""

FEWEST_TILES: Final = 8
"""Tiles a run, below which half as many runs are faster: on an H200 (2026-11-30, 32 query heads on 4 key heads of 128,
eight key warps), 16 runs took 10.9, 13.0, 16.9 and 25.7 us at 4,096, 8,192, 16,384 and 32,768 keys and 33 runs 11.9,
15.3, 18.7 and 26.0; at 65,536 it was 42.1 and 41.3."""

FEWEST_CLUSTER_TILES: Final = 3
"""The same of clusters: on that card one run of eight blocks of four warps took 9.3 and 12.0 us at 2,048 and 4,096
keys, two runs 9.9 and 11.3."""


WHOLE_SHARE: Final = 0.9
"""Of the runs that fill the device, what is left at least: on an H200 (2026-12-01, attention trials) 64 times 8,192
keys took 479.1 us in 32 runs, of two sequences each, and 482.2 in 33, 32 times 4,096 124.9 and 128.0."""


class DecodeCut(NamedTuple):
    """One launch: run ``r`` takes *base* tiles, one more where ``r < rem``, for each unit of a sequence.

    Attributes:
        runs: Runs.
        base: Tiles that every run has.
        rem: Runs that have one more.
        slots: Parts that there is room for: two for each run and unit.
        counters: Counters that the launch needs.
    """

    runs: int
    base: int
    rem: int
    slots: int
    counters: int


def runs_for(units: int, shape: DecodeShape, sm_count: int) -> int:
    """Runs that fill *sm_count* multiprocessors, in up to four rounds where one would leave many of them idle.

    Clusters are to fill half of them: on an H200 (2026-11-30, 32 query heads on 4 key heads of 128) two runs took 14.9,
    21.6, 33.1 and 51.2 us at 8,192, 16,384, 32,768 and 65,536 keys, and four runs 15.4, 22.1, 34.4 and 53.7.
    """
    blocks = sm_count if shape.cluster == 1 else sm_count // 2
    room = max(1, blocks // shape.cluster)
    best = max(1, room // units)
    filled = best * units / (-(-best * units // room) * room)
    for rounds in range(2, MOST_ROUNDS + 1):
        runs = max(1, rounds * room // units)
        now = runs * units / (-(-runs * units // room) * room)
        if now > filled + WORTH_A_ROUND:
            best, filled = runs, now
    return best


def tiles_of(batch: int, keys: int, shape: DecodeShape) -> int:
    """Tiles of *keys* keys of each of *batch* sequences: no tile holds keys of two."""
    return batch * -(-keys // shape.tile_keys)


def runs_of(tiles: int, shape: DecodeShape, full: int, batch: int = 1) -> int:
    """Runs of a call, where *full* of them fill the device: as many, or half where runs would be short.

    Blocks of two key heads take fewer where that leaves all of *batch* sequences whole, see :data:`WHOLE_SHARE`.
    """
    fewest = FEWEST_TILES if shape.cluster == 1 else FEWEST_CLUSTER_TILES
    if tiles < fewest * full:
        return max(1, full // 2)
    if shape.key_heads > 1:
        return next((runs for runs in range(full, int(WHOLE_SHARE * full), -1) if batch % runs == 0), full)
    return full


def cut_tiles(tiles: int, layout: DecodeLayout, runs: int) -> DecodeCut:
    """Cut *tiles* tiles, 1 or more, into at most *runs* runs, each of a tile or more."""
    runs = min(runs, tiles)
    blocks = runs * layout.units
    return DecodeCut(runs, tiles // runs, tiles % runs, 2 * blocks, blocks * layout.shape.cluster)
