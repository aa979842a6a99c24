"""What float8 prefill is built for, where its rule and its interface both read it."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.attention.gqa.limits import DTYPES, HOPPER
from tileops.kernels.tilelang_build import BARRIER_BYTES

__all__ = ["FP8_PREFILL_ARCH", "FP8_PREFILL_DIMS", "FP8_TILES", "Fp8Tile", "fp8_prefill_refusal"]

FP8_PREFILL_ARCH: Final = HOPPER
"""The only architecture that multiplies float8 in products of warpgroups."""
FP8_QUERIES: Final = 128
"""Queries of a tile: 64 for each of the two multiplying warpgroups."""
FP8_STEP: Final = 32
"""Depth of one step of a product of float8: heads are filled up with zeros to a multiple of it."""
FLOAT_BYTES: Final = 4


@dataclasses.dataclass(frozen=True)
class Fp8Tile:
    """What a block of three warpgroups holds in shared memory for one head size.

    Attributes:
        dim: Elements of a head.
        keys: Keys of a tile, a multiple of 32.
        stages: Tiles of keys, and of values, in the ring.
        gather: Tiles after which results are gathered in float32: those of 512 keys or fewer. 0 for never, which leaves
            averages of many keys too small.
    """

    dim: int
    keys: int
    stages: int
    gather: int

    @property
    def depth(self) -> int:
        """Elements of a query or key in shared memory, zeros at the end included."""
        return -(-self.dim // FP8_STEP) * FP8_STEP

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a block: queries, rings of keys and values, gathered results, and barriers."""
        ring = self.stages * self.keys * (self.depth + self.dim)
        gathered = FP8_QUERIES * self.dim * FLOAT_BYTES if self.gather else 0
        return FP8_QUERIES * self.depth + ring + gathered + BARRIER_BYTES


FP8_TILES: Final = (
    Fp8Tile(64, 224, 4, 2),
    Fp8Tile(80, 224, 2, 2),
    Fp8Tile(96, 224, 2, 2),
    Fp8Tile(128, 192, 2, 2),
    Fp8Tile(192, 128, 2, 4),
    Fp8Tile(256, 64, 2, 8),
)
"""A tile for each head size: what a block's shared memory and a thread's registers hold.

On an H200 (2026-11-30, torch 2.11, TileLang 0.1.15; causal, 64 query heads on 8 key heads of 128), gathered every
fourth tile, tiles of 192 keys reached 709 TFLOP/s at 4,096 tokens and 900 at 16,384, tiles of 224 keys 662 and 886.
Gathered every second one, as is done here, 224 keys reached 648 and 847. Other head sizes have not been compared."""
FP8_PREFILL_DIMS: Final = tuple(tile.dim for tile in FP8_TILES)
"""The head sizes that the kernel is built for, in order."""
ACCEPTED_DIMS: Final = ", ".join(map(str, FP8_PREFILL_DIMS))


def fp8_prefill_refusal(arch: int | None, dim: int, dtype: torch.dtype, smem_budget: int | None = None) -> str | None:
    """Why float8 prefill is not built for these, or ``None``.

    Args:
        arch: Architecture, where that is known.
        dim: Elements of a head.
        dtype: Of the results.
        smem_budget: Bytes of shared memory that a block may take, where that is known.
    """
    if arch is not None and arch != FP8_PREFILL_ARCH:
        return f"is_fp8: float8 prefill is built for sm_{FP8_PREFILL_ARCH}, not for sm_{arch}"
    if dtype not in DTYPES:
        return f"dtype {dtype} is not torch.float16 or torch.bfloat16"
    for tile in FP8_TILES:
        if dim == tile.dim:
            needed = tile.smem_bytes
            if smem_budget is not None and needed > smem_budget:
                return f"dim {dim} needs {needed} bytes of shared memory a block, and smem_budget is {smem_budget}"
            return None
    return f"dim {dim} is not one of {ACCEPTED_DIMS}"
