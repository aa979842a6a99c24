"""What the grouped-query decode kernels are built for, where their rules and their interface both read it."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

__all__ = ["ARCHS", "DIMS", "DTYPES", "MIN_KEYS", "SMALLEST_TILE", "DecodeTile", "head_refusal", "keys_refusal"]

ARCHS: Final = (80, 89, 90)
"""The architectures that kernels are built for."""

DIM_STEP: Final = 16
"""Depth of one step of the matrix unit: head sizes are multiples of it."""
MIN_DIM: Final = 16
MAX_DIM: Final = 256
"""Largest head: its float32 results fill half of a thread's registers."""
DIMS: Final = range(MIN_DIM, MAX_DIM + 1, DIM_STEP)
"""The head sizes that kernels are built for."""
DTYPES: Final = (torch.float16, torch.bfloat16)
"""What the matrix unit multiplies with float32 sums."""
ITEM_BYTES: Final = 2
MIN_KEYS: Final = 1
"""The softmax over no key is undefined."""


@dataclasses.dataclass(frozen=True)
class DecodeTile:
    """What a block holds in shared memory.

    Attributes:
        heads: Query heads of a block, padded to the 64 rows of a warpgroup's product.
        keys: Keys of a tile.
        stages: Tiles of keys, and of values, in the ring.
    """

    heads: int
    keys: int
    stages: int

    def smem_bytes(self, dim: int) -> int:
        """Shared memory of a block for heads of *dim* elements: queries, and rings of keys and values."""
        return (self.heads + 2 * self.stages * self.keys) * dim * ITEM_BYTES


SMALLEST_TILE: Final = DecodeTile(64, 32, 2)
"""The last resort of every kernel: what a device has no room for is served by none."""


def head_refusal(dim: int, dtype: torch.dtype) -> str | None:
    """Why no kernel is built for heads of *dim* elements of *dtype*, or ``None``."""
    if dtype not in DTYPES:
        return f"dtype {dtype} is not torch.float16 or torch.bfloat16"
    if not MIN_DIM <= dim <= MAX_DIM or dim % DIM_STEP != 0:
        return f"dim {dim} is not a multiple of {DIM_STEP} from {MIN_DIM} to {MAX_DIM}"
    return None


def keys_refusal(seqlen_kv: int) -> str | None:
    """Why sequences of *seqlen_kv* keys are refused, or ``None``."""
    return f"seqlen_kv {seqlen_kv} is less than {MIN_KEYS}" if seqlen_kv < MIN_KEYS else None
