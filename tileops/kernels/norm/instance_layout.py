"""How small instances lie over threads, and how those that running statistics follow do."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.norm.channel_layout import LOAD_BYTES, MANY_CHANNELS, WARP

__all__ = [
    "TRACKING_THREADS",
    "RunLayout",
    "TrackLayout",
    "run_lanes",
    "run_layout",
    "run_smem_bytes",
    "run_threads",
    "takes_runs",
    "track_layout",
]

SMALL_VALUES: Final = 1024
"""Most values of an instance that lanes of one warp hold: 32 each."""
SMALL_THREADS: Final = 128
"""Threads of a block that takes small instances: 128 x 2,048 instances of 7x7 take 18.3 us with 64 or 128 threads, 19.8
with 256, where a copy takes 17.4 (H200, float16, 2026-11-30)."""
WHOLE_VALUES: Final = 32
"""Most values that a lane holds of an instance of whole vectors: 784 values take 18.0 us in 32 lanes, 18.2 in 16; 256
take 17.7 in 8, 18.0 in 16 (there and then; copies of as much take 17.3)."""
SHORT_VECTORS: Final = 8
"""Most vectors of an instance of which a lane holds two at most: of 4 vectors 17.8 us in 2 lanes, 24.5 in one; of 8
vectors 18.1 in 4 lanes, 19.5 in 2. Otherwise neighbouring lanes are too far apart."""
SHORT_LANES: Final = 4
"""Fewest lanes of a longer one, for the same reason."""
ODD_VALUES: Final = 41
"""Most values that a lane holds of another instance: 81 take 18.6 us in 2 lanes, 20.2 in 4; 49 take 18.3 in 2, 21.2 in
4, 25.6 in 8; 625 take 19.8 in 16, 20.0 in 32. More lanes shuffle more for the same values."""
FEW_ODD_VALUES: Final = 8
"""Most where there are few instances: what counts is how soon a block is done."""
TRACKING_THREADS: Final = 128
"""Threads of a block that moves running statistics: no more than any launch before it has."""
TRACKED_TOGETHER: Final = 8
"""Neighbouring channels of a warp that moves running statistics: 32 bytes of each sample."""
TRACKED_AHEAD: Final = 8
"""Samples that a thread which moves running statistics has under way."""
TRACKED_SAMPLES: Final = 1024
"""Most samples that one warp sums; more are summed in parts of so many first."""
MOST_PARTS: Final = 1024
"""Most parts: what is left to sum then is as much as a part."""


@dataclasses.dataclass(frozen=True)
class RunLayout:
    """Which threads of a block share an instance.

    Attributes:
        vector: Values of one load of 16 bytes.
        lanes: Threads of an instance: a power of two up to 32.
        steps: How often the lanes take their next: vectors where instances are of whole ones, else single values.
        whole: Whether instances are of whole vectors.
    """

    vector: int
    lanes: int
    steps: int
    whole: bool

    @property
    def threads(self) -> int:
        """Threads of a block: where instances are not of whole vectors, those of a block are."""
        return SMALL_THREADS if self.whole else max(SMALL_THREADS, self.lanes * self.vector)

    @property
    def instances(self) -> int:
        """Instances of a block, neighbours."""
        return self.threads // self.lanes

    @property
    def shared_bytes(self) -> int:
        """Shared memory: the values of a block, where they are taken one by one."""
        return 0 if self.whole else self.threads * self.steps * (LOAD_BYTES // self.vector)


@dataclasses.dataclass(frozen=True)
class TrackLayout:
    """How channels and samples lie over the warps that move running statistics.

    Attributes:
        groups: Neighbouring channels of a warp: a power of two up to 8.
        cut: Whether samples are summed in parts first.
    """

    groups: int
    cut: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return TRACKING_THREADS

    @property
    def ahead(self) -> int:
        """Samples that a thread has under way."""
        return TRACKED_AHEAD

    @staticmethod
    def parts_of(n: int) -> int:
        """Parts that *n* samples are summed in."""
        return min(MOST_PARTS, -(-n // TRACKED_SAMPLES))


def takes_runs(instances: int, spatial: int, dtype: torch.dtype) -> bool:
    """Whether instances of *spatial* values have lanes of one warp each.

    Few instances of whole vectors are done sooner where more threads have one.
    """
    if spatial > SMALL_VALUES:
        return False
    return instances >= MANY_CHANNELS or spatial % (LOAD_BYTES // dtype.itemsize) != 0


def run_lanes(instances: int, spatial: int, dtype: torch.dtype) -> int:
    """Threads of an instance."""
    vector = LOAD_BYTES // dtype.itemsize
    if spatial % vector == 0:
        most = 2 * vector if spatial <= SHORT_VECTORS * vector else min(WHOLE_VALUES, spatial // SHORT_LANES)
    else:
        most = ODD_VALUES if instances >= MANY_CHANNELS else FEW_ODD_VALUES
    for lanes in (1, 2, 4, 8, 16):
        if lanes * most >= spatial:
            return lanes
    return WARP


def run_layout(instances: int, spatial: int, dtype: torch.dtype) -> RunLayout:
    """The layout in which lanes of a warp take instances of *spatial* values; at most :data:`SMALL_VALUES`."""
    vector, lanes = LOAD_BYTES // dtype.itemsize, run_lanes(instances, spatial, dtype)
    whole = spatial % vector == 0
    return RunLayout(vector, lanes, -(-(spatial // vector if whole else spatial) // lanes), whole)


def run_threads(instances: int, spatial: int, dtype: torch.dtype) -> int:
    """Threads of a block of small instances."""
    vector = LOAD_BYTES // dtype.itemsize
    if spatial % vector == 0:
        return SMALL_THREADS
    return max(SMALL_THREADS, run_lanes(instances, spatial, dtype) * vector)


def run_smem_bytes(instances: int, spatial: int, dtype: torch.dtype) -> int:
    """Shared memory through which the values of a block go, where instances are not of whole vectors."""
    if spatial % (LOAD_BYTES // dtype.itemsize) == 0:
        return 0
    lanes = run_lanes(instances, spatial, dtype)
    return run_threads(instances, spatial, dtype) * -(-spatial // lanes) * dtype.itemsize


def track_layout(n: int, c: int) -> TrackLayout:
    """The layout in which the statistics of *n* samples of *c* channels are averaged."""
    groups = 1
    while 2 * groups <= min(c, TRACKED_TOGETHER):
        groups *= 2
    return TrackLayout(groups, cut=n > TRACKED_SAMPLES)
