"""Prompts that are measured: many queries of a sequence at once, in operations a second."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import torch
from attention_case import FP8, AttentionCase, Bar

LENGTHS: Final = (2048, 4096, 8192, 16384, 32768)
BARS: Final = {
    (1, 4096, 64, torch.bfloat16): 657.0,
    (1, 16384, 64, torch.bfloat16): 648.0,
    (2, 8192, 32, torch.bfloat16): 635.0,
    (1, 16384, 64, FP8): 1000.0,
    (1, 32768, 64, FP8): 1000.0,
}
"""TFLOP/s by batch, length, query heads and dtype, of causal prompts with 8 key heads of 128."""


def prompt(batch: int, length: int, heads: int, **more: Any) -> AttentionCase:
    """A causal prompt in bfloat16, unless *more* says otherwise."""
    plain = AttentionCase(batch, length, length, heads, 8, **{"dtype": torch.bfloat16, "is_causal": True, **more})
    usual = plain.is_causal and plain.window < 0 and plain.dim == 128
    bar = BARS.get((batch, length, heads, plain.dtype)) if usual else None
    return dataclasses.replace(plain, bar=None if bar is None else Bar("tflops", bar))


PREFILL: Final = (
    *(prompt(1, length, 64) for length in LENGTHS),
    *(prompt(1, length, 32) for length in LENGTHS),
    prompt(2, 8192, 32),
    prompt(1, 8192, 64, is_causal=False),
    *(prompt(1, 8192, 32, dim=dim) for dim in (64, 80, 96, 192, 256)),
    *(prompt(1, 16384, 64, window=window) for window in (1024, 4096)),
    *(prompt(1, length, 64, dtype=FP8) for length in LENGTHS),
)
