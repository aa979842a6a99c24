"""Call specs and interfaces of the attention kernels."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Annotated

import torch
from tileops_rules import OneOf

from tileops.kernels.attention.gqa.limits import ARCHS, SMALLEST_TILE, head_refusal, keys_refusal
from tileops.kernels.attention.gqa.prefill_limits import SMALLEST_PREFILL_TILE, prefill_refusal
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import KernelInterface

__all__ = ["FACTOR_RANGE", "UNBOUNDED", "AttentionCall", "GQADenseFwdInterface", "softmax_scale"]

UNBOUNDED = -1
"""The window size that leaves its side open."""

FACTOR_RANGE = 2.0**40
"""Scales stay below this, softcaps between it and its inverse: float32 holds scores and their quotients."""


@dataclasses.dataclass(frozen=True)
class AttentionCall(CallSpec):
    """The facts by which an attention kernel is chosen and built.

    Attributes:
        batch: Sequences.
        heads: Query heads.
        heads_kv: Key and value heads; query head ``h`` reads head ``h // (heads // heads_kv)``.
        dim: Elements of one head, the same for queries, keys and values.
        max_seqlen_q: Queries of a sequence. They stand at its end: query ``i`` has position
            ``seqlen_kv - max_seqlen_q + i``.
        seqlen_kv: Keys of a sequence.
        dtype: Of queries, keys, values and output.
        is_causal: Whether a query sees only the keys at its own position and before.
        sm_scale: Factor of the scores; ``None`` for ``1 / sqrt(dim)``.
        softcap: Where above 0, scores become ``softcap * tanh(scores / softcap)`` before any mask.
        window_size_left: How many keys before its own position a query sees; ``UNBOUNDED`` for all.
        window_size_right: How many keys after its own position a query sees; ``UNBOUNDED`` for all.
        fuse_rope: Whether rotary embedding is applied to queries and keys inside the kernel.
        is_fp8: Whether queries, keys and values are float8 with scales.
    """

    batch: int = 1
    heads: int = 1
    heads_kv: int = 1
    dim: int = 64
    max_seqlen_q: int = 1
    seqlen_kv: int = 1
    dtype: Annotated[torch.dtype, OneOf(torch.float32, torch.float16, torch.bfloat16)] = torch.float16
    is_causal: bool = False
    sm_scale: float | None = None
    softcap: float = 0.0
    window_size_left: int = UNBOUNDED
    window_size_right: int = UNBOUNDED
    fuse_rope: bool = False
    is_fp8: bool = False

    def invalid(self) -> str | None:
        """What no op asks for. A call without keys is a call; one without results never reaches a kernel."""
        if self.batch < 1:
            return f"batch {self.batch} is not positive"
        if self.heads < 1:
            return f"heads {self.heads} is not positive"
        if self.heads_kv < 1:
            return f"heads_kv {self.heads_kv} is not positive"
        if self.heads % self.heads_kv != 0:
            return f"heads {self.heads} is not a multiple of heads_kv {self.heads_kv}"
        if self.dim < 1:
            return f"dim {self.dim} is not positive"
        if self.max_seqlen_q < 1:
            return f"max_seqlen_q {self.max_seqlen_q} is not positive"
        if self.seqlen_kv < 0:
            return f"seqlen_kv {self.seqlen_kv} is negative"
        if self.softcap != 0.0 and not 1.0 / FACTOR_RANGE < self.softcap < FACTOR_RANGE:
            low, high = f"{1.0 / FACTOR_RANGE:g}", f"{FACTOR_RANGE:g}"
            return f"softcap {self.softcap} is not 0 (off) or between {low} and {high}"
        if self.sm_scale is not None and not -FACTOR_RANGE < self.sm_scale < FACTOR_RANGE:
            return f"sm_scale {self.sm_scale} is not within {FACTOR_RANGE:g} of 0"
        if self.window_size_left < UNBOUNDED:
            return f"window_size_left {self.window_size_left} is neither a size nor {UNBOUNDED} (unbounded)"
        if self.window_size_right < UNBOUNDED:
            return f"window_size_right {self.window_size_right} is neither a size nor {UNBOUNDED} (unbounded)"
        return None

    @property
    def dense_decode_region(self) -> bool:
        """One query for each sequence, every key seen, 16-bit or wider numbers.

        The only query stands at the last key, so neither causality nor a right window hides anything.
        """
        return self.max_seqlen_q == 1 and self.window_size_left == UNBOUNDED and not self.is_fp8

    @property
    def prefill_region(self) -> bool:
        """Several queries for each sequence, or one that does not see every key; 16-bit or wider numbers."""
        return (self.max_seqlen_q != 1 or self.window_size_left != UNBOUNDED) and not self.is_fp8


def softmax_scale(dim: int, sm_scale: float | None) -> float:
    """The factor of the scores that ``AttentionCall.sm_scale`` means for heads of *dim* elements."""
    return 1.0 / math.sqrt(dim) if sm_scale is None else sm_scale


class GQADenseFwdInterface(KernelInterface):
    """Grouped-query attention of queries at the end of their sequences over contiguous keys and values."""

    request = AttentionCall

    @classmethod
    def unserved(cls, call: AttentionCall) -> str | None:
        """What takes other tensors than these; on CUDA devices what neither decode nor prefill is built for."""
        if call.fuse_rope:
            return "rotary embedding is not applied inside a kernel: rotate queries and keys beforehand"
        if call.is_fp8:
            return "float8 tensors need scales, which this interface does not take"
        if call.arch is None:
            return None
        if call.arch not in ARCHS:
            return f"nothing is built for sm_{call.arch}, only for sm_{', sm_'.join(map(str, ARCHS))}"
        if call.prefill_region:
            needed = SMALLEST_PREFILL_TILE.smem_bytes(call.dim)
            return prefill_refusal(call.dim, call.dtype, needed, call.smem_budget)
        reason = head_refusal(call.dim, call.dtype) or keys_refusal(call.seqlen_kv)
        if reason is not None:
            return reason
        needed = SMALLEST_TILE.smem_bytes(call.dim)
        if call.smem_budget is not None and needed > call.smem_budget:
            return f"dim {call.dim} needs {needed} bytes of shared memory a block, the device has {call.smem_budget}"
        return None

    @abstractmethod
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend: ``softmax(mask(softcap(q @ k.T * sm_scale))) @ v`` for each query head.

        Query head ``h`` reads key and value head ``h // (heads // heads_kv)``. Query ``i`` stands at position
        ``seqlen_kv - max_seqlen_q + i``: causality and windows count from there, so that for one query
        causality hides nothing. ``softcap`` above 0 turns scores into ``softcap * tanh(scores / softcap)``.
        Scores and sums are held in float32 or wider. A query that sees no key gives zeros. A NaN in a query
        or in a key or value it sees gives NaN in the results it takes part in, and may where the value is one
        that is hidden; what infinities give is undefined. Every tensor is contiguous on ``call.device``; nothing is
        written in place.

        Args:
            q: ``(batch, max_seqlen_q, heads, dim)`` in ``call.dtype``.
            k: ``(batch, seqlen_kv, heads_kv, dim)`` in ``call.dtype``.
            v: ``(batch, seqlen_kv, heads_kv, dim)`` in ``call.dtype``.

        Returns:
            A new tensor ``(batch, max_seqlen_q, heads, dim)`` in ``call.dtype``.
        """
