"""Call specs and interfaces of the attention kernels."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Annotated, NamedTuple

import torch
from tileops_rules import OneOf

from tileops.kernels.attention.gqa.decode_shape import FP8_DECODE_ARCHS, decode_refusal, row_warps_for
from tileops.kernels.attention.gqa.fp8_prefill_limits import fp8_prefill_refusal
from tileops.kernels.attention.gqa.limits import ARCHS
from tileops.kernels.attention.gqa.prefill_limits import SMALLEST_PREFILL_TILE, prefill_refusal
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import KernelInterface

__all__ = [
    "CALL_DTYPES",
    "FACTOR_RANGE",
    "UNBOUNDED",
    "AttentionCall",
    "GQADenseFwdInterface",
    "Rotation",
    "Scales",
    "softmax_scale",
]

UNBOUNDED = -1
"""The window size that leaves its side open."""

CALL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""What results may be, and queries, keys and values too where they are not float8."""

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
        dtype: Of the result; of queries, keys and values too where they are not float8.
        is_causal: Whether a query sees only the keys at its own position and before.
        sm_scale: Factor of the scores; ``None`` for ``1 / sqrt(dim)``.
        softcap: Where above 0, scores become ``softcap * tanh(scores / softcap)`` before any mask.
        window_size_left: How many keys before its own position a query sees; ``UNBOUNDED`` for all.
        window_size_right: How many keys after its own position a query sees; ``UNBOUNDED`` for all.
        fuse_rope: Whether rotary embedding is applied to queries and keys inside the kernel.
        rotary_dim: How many elements of a head, from the first on, are rotated; 0 where ``fuse_rope`` is not set.
        rope_interleaved: Whether neighbours are rotated as a pair, ``(0, 1), (2, 3), …``; otherwise an element and
            the one ``rotary_dim / 2`` after it, as in NeoX.
        is_fp8: Whether queries, keys and values are ``float8_e4m3fn`` with a scale for each head.
    """

    batch: int = 1
    heads: int = 1
    heads_kv: int = 1
    dim: int = 64
    max_seqlen_q: int = 1
    seqlen_kv: int = 1
    dtype: Annotated[torch.dtype, OneOf(*CALL_DTYPES)] = torch.float16
    is_causal: bool = False
    sm_scale: float | None = None
    softcap: float = 0.0
    window_size_left: int = UNBOUNDED
    window_size_right: int = UNBOUNDED
    fuse_rope: bool = False
    rotary_dim: int = 0
    rope_interleaved: bool = False
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
        if self.fuse_rope:
            if not 2 <= self.rotary_dim <= self.dim or self.rotary_dim % 2 != 0:
                return f"rotary_dim {self.rotary_dim} is not an even number from 2 to dim {self.dim}"
            if self.is_fp8:
                return "fuse_rope and is_fp8: a rotated float8 number is no float8 number"
            if self.max_seqlen_q > self.seqlen_kv:
                return f"max_seqlen_q {self.max_seqlen_q} is more than seqlen_kv {self.seqlen_kv}: positions begin at 0"
        elif self.rotary_dim != 0:
            return f"rotary_dim {self.rotary_dim} is not 0, and fuse_rope is not set"
        elif self.rope_interleaved:
            return "rope_interleaved is set, and fuse_rope is not"
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


class Scales(NamedTuple):
    """What float8 numbers stand for: each times the scale of its head; float32, positive, any stride of batch.

    Attributes:
        q: ``(batch, heads)``.
        k: ``(batch, heads_kv)``.
        v: ``(batch, heads_kv)``.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


class Rotation(NamedTuple):
    """By what a pair of elements is rotated at each position; float32, contiguous.

    Attributes:
        cos: ``(positions, rotary_dim / 2)``, at least as many positions as there are keys.
        sin: Like *cos*.
    """

    cos: torch.Tensor
    sin: torch.Tensor


class GQADenseFwdInterface(KernelInterface):
    """Grouped-query attention of queries at the end of their sequences over keys and values that lie in order."""

    request = AttentionCall
    extent = "seqlen_kv"

    @classmethod
    def unserved(cls, call: AttentionCall) -> str | None:
        """On CUDA devices what neither decode nor prefill is built for."""
        if call.arch is None:
            return None
        if call.arch not in ARCHS:
            return f"nothing is built for sm_{call.arch}, only for sm_{', sm_'.join(map(str, ARCHS))}"
        if call.fuse_rope and call.max_seqlen_q != 1:
            return (
                f"fuse_rope and max_seqlen_q {call.max_seqlen_q}: rotary embedding is applied inside decode of one "
                f"query alone; rotate queries and keys beforehand"
            )
        if call.is_fp8 and call.arch not in FP8_DECODE_ARCHS:
            return f"is_fp8: float8 is not multiplied on sm_{call.arch}"
        if call.max_seqlen_q == 1:
            row_warps = row_warps_for(call.heads, call.heads_kv)
            return decode_refusal(call.dim, call.dtype, row_warps, call.smem_budget, call.is_fp8)
        if call.is_fp8:
            return fp8_prefill_refusal(call.arch, call.dim, call.dtype, call.smem_budget)
        needed = SMALLEST_PREFILL_TILE.smem_bytes(call.dim)
        return prefill_refusal(call.dim, call.dtype, needed, call.smem_budget)

    @abstractmethod
    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scales: Scales | None = None,
        rotation: Rotation | None = None,
    ) -> torch.Tensor:
        """Attend: ``softmax(mask(softcap(q @ k.T * sm_scale))) @ v`` for each query head.

        Query head ``h`` reads key and value head ``h // (heads // heads_kv)``. Query ``i`` stands at position
        ``seqlen_kv - max_seqlen_q + i``: causality and windows count from there, so that for one query
        causality hides nothing. ``softcap`` above 0 turns scores into ``softcap * tanh(scores / softcap)``.
        Scores and sums are held in float32 or wider, but that the tensor cores of sm_90 hold some 13 bits of a sum of
        products of float8. A query that sees no key gives zeros. A NaN in a query or in a key or value it sees gives
        NaN in the results it takes part in, and may where the value is one that is hidden; what infinities give is
        undefined. Every tensor is on ``call.device``, of any strides; nothing is written in place.

        Args:
            q: ``(batch, max_seqlen_q, heads, dim)`` in ``call.dtype``, or ``float8_e4m3fn`` where ``call.is_fp8``.
            k: ``(batch, seqlen_kv, heads_kv, dim)`` in the dtype of *q*.
            v: ``(batch, seqlen_kv, heads_kv, dim)`` in the dtype of *q*.
            scales: Where ``call.is_fp8``, and only there: what *q*, *k* and *v* are multiplied with.
            rotation: Where ``call.fuse_rope``, and only there: the first ``rotary_dim`` elements of each query and key
                head are rotated at its position, key ``j`` at position ``j``: elements ``(a, b)`` of a pair become
                ``(a cos - b sin, b cos + a sin)``, rounded to ``call.dtype``.

        Returns:
            A new contiguous tensor ``(batch, max_seqlen_q, heads, dim)`` in ``call.dtype``.
        """
