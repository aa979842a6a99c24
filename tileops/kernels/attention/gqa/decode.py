"""Grouped-query decode: one query of each sequence over all its keys, or over those of a window.

What the kernels have in common is in :mod:`~tileops.kernels.attention.gqa.decode_kernel`; here is which calls each
serves, and what its blocks look like.
"""

from __future__ import annotations

from typing import ClassVar, Final

import torch

from tileops.kernels.attention.call_spec import UNBOUNDED, AttentionCall
from tileops.kernels.attention.gqa.decode_kernel import DecodeBuild, DecodeKernel
from tileops.kernels.attention.gqa.decode_shape import (
    ALONE,
    CLUSTERED,
    DIMS,
    FP8_DECODE_ARCHS,
    Ladder,
    one_sequence_ladder,
)
from tileops.kernels.attention.gqa.limits import ARCHS, DTYPES, HOPPER

__all__ = [
    "DIMS",
    "DTYPES",
    "MANY_KEYS",
    "DecodeBuild",
    "GQADecodeBs1Kernel",
    "GQADecodeKernel",
    "GQADecodeLongContextKernel",
    "GQADecodeSlidingWindowKernel",
    "GQAFp8DecodeKernel",
]

MANY_KEYS: Final = 65_536
"""Keys of one sequence from which the kernel of batches serves it: under another name, in the same shape, as clusters
end at :data:`~tileops.kernels.attention.gqa.decode_shape.CLUSTER_KEYS`, where blocks by themselves become faster."""


class GQADecodeKernel(DecodeKernel):
    """Decode of any batch over all keys: a block by itself takes a run."""

    supported_archs: list[int] = [*ARCHS]
    general: bool = True

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse what is not dense decode."""
        if not call.dense_decode_region:
            return (
                f"not dense decode, which is one query a sequence (max_seqlen_q {call.max_seqlen_q}), "
                f"no left window (window_size_left {call.window_size_left}), no float8 (is_fp8 {call.is_fp8})"
            )
        return super().refusal(call)


class GQADecodeBs1Kernel(GQADecodeKernel):
    """Decode of a single sequence on Hopper, until it is long: eight blocks of a cluster take a run of few keys."""

    supported_archs: list[int] = [HOPPER]
    general: bool = False

    @classmethod
    def ladder_of(cls, call: AttentionCall) -> Ladder:
        """Clusters while they are faster."""
        return one_sequence_ladder(call.seqlen_kv)

    @classmethod
    def room_for(cls, call: AttentionCall) -> Ladder:
        """That of a cluster, however many keys there are."""
        return CLUSTERED

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse batches of more than one sequence, many keys, and rotation."""
        if call.seqlen_kv >= MANY_KEYS:
            return f"seqlen_kv {call.seqlen_kv} is not less than {MANY_KEYS}"
        if call.fuse_rope:
            return "fuse_rope: rotary embedding is not applied here"
        if call.batch != 1:
            return f"batch {call.batch} is not 1"
        return super().refusal(call)


class GQADecodeLongContextKernel(GQADecodeKernel):
    """Decode of a single long sequence, 32 query heads on 4 key heads: in clusters on Hopper while they are faster."""

    general: bool = False
    preferred_over = frozenset({"gqa_dense_decode_bs1"})

    long_context: ClassVar[int] = 1024
    """Keys from which a sequence is long."""

    @classmethod
    def ladder_of(cls, call: AttentionCall) -> Ladder:
        """Clusters where there are some and while they are faster."""
        return one_sequence_ladder(call.seqlen_kv) if call.arch == HOPPER else ALONE

    @classmethod
    def room_for(cls, call: AttentionCall) -> Ladder:
        """That of a cluster where there are some, however many keys there are."""
        return CLUSTERED if call.arch == HOPPER else ALONE

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse shapes other than the one it is tuned for, sequences that are not long, and rotation."""
        if call.seqlen_kv < cls.long_context:
            return f"seqlen_kv {call.seqlen_kv} is less than {cls.long_context}"
        if call.batch != 1:
            return f"batch {call.batch} is not 1"
        if call.heads != 32:
            return f"heads {call.heads} is not 32"
        if call.heads_kv != 4:
            return f"heads_kv {call.heads_kv} is not 4"
        if call.dim != 128:
            return f"dim {call.dim} is not 128"
        if call.dtype != torch.float16:
            return f"dtype {call.dtype} is not torch.float16"
        if call.softcap != 0.0:
            return f"softcap {call.softcap} is not 0 (off)"
        if call.fuse_rope:
            return "fuse_rope: rotary embedding is not applied here"
        return super().refusal(call)


class GQADecodeSlidingWindowKernel(DecodeKernel):
    """Decode of any batch over the keys of a left window: those before it are never read."""

    supported_archs: list[int] = [*ARCHS]
    preferred_over = frozenset({"gqa_dense_sliding_window"})

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse calls without a left window, and float8."""
        if call.window_size_left == UNBOUNDED:
            return f"window_size_left {call.window_size_left}: there is no left window"
        if call.is_fp8:
            return "is_fp8: float8 is not multiplied here"
        return super().refusal(call)


class GQAFp8DecodeKernel(DecodeKernel):
    """Decode of float8, over all keys or those of a left window.

    Products are of float16, which holds whatever float8 holds, with sums in float32: exact but for the rounding of
    weights and sums. Keys and values are converted as they are multiplied.
    """

    supported_archs: list[int] = [*FP8_DECODE_ARCHS]
    preferred_over = frozenset({"gqa_dense_fp8"})

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse numbers other than float8."""
        if not call.is_fp8:
            return "is_fp8 is not set: only float8 is multiplied here"
        return super().refusal(call)
