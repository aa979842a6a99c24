"""Where a block of the decode kernels has queries, keys, values and results: plain arithmetic, without TileLang."""

from __future__ import annotations

import dataclasses
from typing import Final

from tileops.kernels.attention.gqa.decode_shape import ROWS, STEP, DecodeShape, pitch_of

__all__ = ["WARP", "DecodeLayout"]

WARP: Final = 32
FLOAT_PAD: Final = 8
"""Floats between rows of results in shared memory, so that rows lie in different banks."""


@dataclasses.dataclass(frozen=True)
class DecodeLayout:
    """What a program of decode is made for, but for the factors of its scores.

    A *unit* is the query heads that a block holds: at most ``16 * row_warps`` of one key head.

    Attributes:
        heads: Query heads.
        heads_kv: Key heads, a divisor of *heads*.
        dim: Elements of a head, a multiple of 16.
        dtype: Of queries, keys and values, as TileLang has it.
        out_dtype: Of results.
        shape: What a block looks like.
        rotary_dim: Elements of a head that are rotated, 0 for none.
        interleaved: Whether neighbours are rotated as a pair.
    """

    heads: int
    heads_kv: int
    dim: int
    dtype: str
    out_dtype: str
    shape: DecodeShape
    rotary_dim: int = 0
    interleaved: bool = False

    @property
    def is_fp8(self) -> bool:
        """Whether inputs are float8."""
        return self.dtype == "float8_e4m3fn"

    @property
    def held_dtype(self) -> str:
        """What products are taken of: float16 holds whatever float8 holds."""
        return "float16" if self.is_fp8 else self.dtype

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.heads_kv

    @property
    def unit_rows(self) -> int:
        """Query heads of a unit."""
        return self.shape.rows(self.group)

    @property
    def head_blocks(self) -> int:
        """Units of a key head."""
        return -(-self.group // self.unit_rows)

    @property
    def units(self) -> int:
        """Units of a sequence."""
        return self.heads_kv * self.head_blocks

    @property
    def halves(self) -> int:
        """Halves of a product's 16 rows that hold heads."""
        return 1 if self.unit_rows <= ROWS // 2 else 2

    @property
    def depth(self) -> int:
        """Steps of a product over a head."""
        return self.dim // STEP

    @property
    def lanes(self) -> int:
        """Threads that share a ring."""
        return WARP * self.shape.row_warps

    @property
    def wide(self) -> int:
        """Elements of a copy of 16 bytes."""
        return 16 if self.is_fp8 else 8

    @property
    def vectors(self) -> int:
        """Copies of a head."""
        return self.dim // self.wide

    @property
    def pitch(self) -> int:
        """Elements from one key to the next in a ring."""
        return pitch_of(self.dim, self.is_fp8) * self.wide // 16

    @property
    def value_slots(self) -> int:
        """Slots of the ring before those of the values; a slot has 16 keys or values."""
        return self.shape.key_warps * self.shape.stages

    @property
    def float_pitch(self) -> int:
        """Floats from one row of results to the next, where warps meet."""
        return self.dim + FLOAT_PAD

    @property
    def pool_rows(self) -> int:
        """Rows of the ring, which later holds what warps have, where that is more."""
        merged_bytes = self.shape.key_warps * self.unit_rows * self.float_pitch * 4
        return max(2 * self.value_slots * STEP, -(-merged_bytes // pitch_of(self.dim, self.is_fp8)))

    @property
    def pool_floats(self) -> int:
        """Floats that the ring has room for."""
        return self.pool_rows * pitch_of(self.dim, self.is_fp8) // 4

    @property
    def columns(self) -> int:
        """Vectors of four results of a head."""
        return self.dim // 4

    @property
    def share(self) -> int:
        """Vectors of four results that a block of a cluster adds up."""
        return -(-self.unit_rows * self.columns // self.shape.cluster)

    @property
    def half_rotated(self) -> int:
        """Pairs of a head that are rotated."""
        return self.rotary_dim // 2
