"""Steps of decoding that are measured: one query a sequence, in keys and values read a second."""

from __future__ import annotations

from typing import Any, Final

from attention_case import FP8, AttentionCase, Bar

MOST_KV_BYTES: Final = 40e9
"""Of keys and values in a batch: more is not measured."""
KIB: Final = 1024
ONE: Final = {4 * KIB: 9.6, 32 * KIB: 28.0, 128 * KIB: 70.0, 256 * KIB: 130.0}
"""Microseconds of kernels by keys, of one sequence of 32 query heads on 4 in float16."""
ONE_FP8: Final = {256 * KIB: 85.0}
"""The same in float8."""
BATCHED: Final = {(64, 8 * KIB): 4.45}
"""TB/s by sequences and keys, of 32 query heads on 8 in float16."""


def step(batch: int, keys: int, heads: int, heads_kv: int, bar: Bar | None = None, **more: Any) -> AttentionCase:
    """One query of each of *batch* sequences."""
    return AttentionCase(batch, 1, keys, heads, heads_kv, bar=bar, **more)


def single(keys: int, bars: dict[int, float] = ONE, **more: Any) -> AttentionCase:
    """One sequence of 32 query heads on 4."""
    return step(1, keys, 32, 4, Bar("busy_us", bars[keys]) if keys in bars else None, **more)


def batched(batch: int, keys: int) -> AttentionCase:
    """Several sequences of 32 query heads on 8."""
    rate = BATCHED.get((batch, keys))
    return step(batch, keys, 32, 8, None if rate is None else Bar("tb_per_s", rate))


SWEEP: Final = tuple(batched(batch, keys * KIB) for batch in (8, 16, 32, 64) for keys in (4, 8, 16, 32))
DECODE: Final = (
    *(single(512 << i) for i in range(10)),
    *(each for each in SWEEP if each.kv_bytes <= MOST_KV_BYTES),
    step(16, 4 * KIB, 64, 8),
    *(single(keys * KIB, ONE_FP8, dtype=FP8) for keys in (4, 16, 64, 256)),
)
