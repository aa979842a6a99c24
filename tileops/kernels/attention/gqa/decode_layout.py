"""Where a block of the decode kernels has queries, keys, values and results: plain arithmetic, without TileLang."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final

from tileops.kernels.attention.gqa.decode_shape import FLOAT_PAD, ROWS, STEP, DecodeShape, head_bytes

__all__ = ["WARP", "DecodeLayout"]

WARP: Final = 32
BANKED_VECTORS: Final = 8
"""Copies of 16 bytes that the banks of shared memory hold side by side."""


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
        return -(-self.group * self.shape.key_heads // self.unit_rows)

    @property
    def units(self) -> int:
        """Units of a sequence."""
        return self.heads_kv // self.shape.key_heads * self.head_blocks

    @property
    def halves(self) -> int:
        """Halves of a product's 16 rows that hold heads."""
        return 1 if self.unit_rows // self.shape.key_heads <= ROWS // 2 else 2

    @property
    def depth(self) -> int:
        """Steps of a product over a head."""
        return self.dim // STEP

    def first_row(self, warp: Any, lane: Any) -> Any:
        """First query head of the unit of a thread, the *lane* of this *warp* of those that share a ring."""
        return warp * (ROWS if self.shape.key_heads == 1 else self.group) + lane // 4

    def ends_at(self, warp: Any, rows: Any) -> Any:
        """Where the query heads of this *warp* end, of a unit of *rows*."""
        return rows if self.shape.key_heads == 1 else (warp + 1) * self.group

    @property
    def lanes(self) -> int:
        """Threads that share a ring."""
        return WARP * self.shape.ring_warps

    @property
    def wide(self) -> int:
        """Elements of a copy of 16 bytes."""
        return 16 if self.is_fp8 else 8

    @property
    def vectors(self) -> int:
        """Copies of a head."""
        return self.dim // self.wide

    def placed(self, row: Any, column: Any) -> Any:
        """Column of a ring where the element at *column* of the key in *row* lies.

        Copies trade places within a row, so that the same one of eight rows lies in as many banks. Rows with gaps
        between them do so too, but copies to a row that does not begin at a multiple of 128 bytes took longer: on an
        H200 (2026-11-30), a kernel that only reads 64 sequences of 8,192 keys for 8 heads of 128 in float16, in the
        pattern of this one, took 470 to 480 us where rows lie side by side, and 502 to 540 with gaps of 16 bytes.
        """
        places = math.gcd(self.vectors, BANKED_VECTORS)
        if places == 1:
            return column
        return ((column // self.wide) ^ (row * places // BANKED_VECTORS % places)) * self.wide + column % self.wide

    @property
    def value_slots(self) -> int:
        """Slots of the ring before those of the values; a slot has 16 keys or values of one head."""
        return self.shape.key_warps * self.shape.stages * self.shape.key_heads

    @property
    def float_pitch(self) -> int:
        """Floats from one row of results to the next, where warps meet."""
        return self.dim + FLOAT_PAD

    @property
    def pool_rows(self) -> int:
        """Rows of the ring, which later holds what warps have, where that is more."""
        merged_bytes = self.shape.key_warps * self.unit_rows * self.float_pitch * 4
        return max(2 * self.value_slots * STEP, -(-merged_bytes // head_bytes(self.dim, self.is_fp8)))

    @property
    def pool_floats(self) -> int:
        """Floats that the ring has room for."""
        return self.pool_rows * head_bytes(self.dim, self.is_fp8) // 4

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
