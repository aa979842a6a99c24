"""Grouped-query prefill: many queries of each sequence, or one that sees the keys of a window alone.

Two programs. One multiplies by ``mma.sync`` and runs wherever there is one; the other is Hopper's, with a warpgroup
that brings tiles and two that multiply. Numbers of sequences, queries and keys and the sizes of windows are a matter
of the launch and never of the build.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar

import torch

from tileops.kernels.attention.call_spec import (
    UNBOUNDED,
    AttentionCall,
    GQADenseFwdInterface,
    Rotation,
    Scales,
    softmax_scale,
)
from tileops.kernels.attention.gqa.fp8_prefill_limits import Fp8Tile
from tileops.kernels.attention.gqa.limits import HOPPER
from tileops.kernels.attention.gqa.prefill_limits import (
    PREFILL_ARCHS,
    RING_TILES,
    SMALLEST_PREFILL_TILE,
    MmaTile,
    RingTile,
    prefill_refusal,
)
from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.tilelang_build import (
    Program,
    aligned,
    compile_program,
    dtype_name,
    sm_count_of,
    smem_budget_of,
    stated_arch,
)

__all__ = [
    "GQAPrefillKernel",
    "GQAPrefillMmaKernel",
    "GQAPrefillSlidingWindowKernel",
    "OneTileAHead",
    "PrefillBuild",
    "PrefillKernel",
    "RingPrefillBuild",
    "RingPrefillKernel",
]

MMA_PROGRAMS = "tileops.kernels.attention.gqa.prefill_mma_program"
RING_PROGRAMS = "tileops.kernels.attention.gqa.prefill_program"

Tile = MmaTile | RingTile | Fp8Tile
"""What a block of any of them holds."""

RING_THREADS = 384
"""Three warpgroups: two multiply, one brings."""


@dataclasses.dataclass(frozen=True)
class PrefillBuild:
    """Everything that changes what a launch does: the build identity.

    Windows are held by the kernel and handed to each launch, so that kernels that differ in them share a program.

    Attributes:
        heads: Query heads.
        heads_kv: Key and value heads.
        dim: Elements of a head.
        dtype: Of every tensor.
        sm_scale: Factor of the scores, as a number.
        softcap: Bound of the scores, 0 for none.
        is_causal: Whether a query sees no key after its own position.
        window_left: Keys before its position that a query sees, or ``UNBOUNDED``.
        window_right: Keys after its position that a query sees, or ``UNBOUNDED``, as where *is_causal* decides.
        arch: Architecture to build for.
        tile: What a block holds.
    """

    heads: int
    heads_kv: int
    dim: int
    dtype: torch.dtype
    sm_scale: float
    softcap: float
    is_causal: bool
    window_left: int
    window_right: int
    arch: int
    tile: Tile

    def windows_within(self, seqlen_q: int, seqlen_kv: int) -> tuple[int, int]:
        """The windows of a launch, left and right.

        None reaches further than the sequence, so that sums of positions and windows stay within 32 bits: the keys and
        values of 2**30 positions are 256 GiB, which no card of these archs has.
        """
        return min(self.window_left, seqlen_kv), min(self.window_right, seqlen_q)


@dataclasses.dataclass(frozen=True)
class RingPrefillBuild(PrefillBuild):
    """The identity of a build for Hopper.

    Attributes:
        sm_count: Multiprocessors, each of which has one block that stays.
        cluster: Blocks that share keys and values: 1, or 2 where a key head has an even number of query heads.
        held_queries: Whether queries are multiplied from registers.
    """

    sm_count: int
    cluster: int
    held_queries: bool


def shared_facts(call: AttentionCall, tile: Tile) -> dict[str, Any]:
    """The fields of :class:`PrefillBuild` for *call*."""
    return {
        "heads": call.heads,
        "heads_kv": call.heads_kv,
        "dim": call.dim,
        "dtype": call.dtype,
        "sm_scale": softmax_scale(call.dim, call.sm_scale),
        "softcap": call.softcap,
        "is_causal": call.is_causal,
        "window_left": call.window_size_left,
        "window_right": UNBOUNDED if call.is_causal else call.window_size_right,
        "arch": stated_arch(call),
        "tile": tile,
    }


def ring_facts(call: AttentionCall, tile: Tile) -> dict[str, Any]:
    """The fields of :class:`RingPrefillBuild` for *call*, but for its cluster and whether queries are held."""
    return {**shared_facts(call, tile), "sm_count": sm_count_of(call)}


def shared_parameters(build: PrefillBuild) -> dict[str, Any]:
    """What all programs are made from."""
    return {
        "heads": build.heads,
        "heads_kv": build.heads_kv,
        "dim": build.dim,
        "dtype": dtype_name(build.dtype),
        "sm_scale": build.sm_scale,
        "softcap": build.softcap,
        "is_causal": build.is_causal,
        "bounded_left": build.window_left != UNBOUNDED,
        "bounded_right": build.window_right != UNBOUNDED,
        "tile_keys": build.tile.keys,
        "stages": build.tile.stages,
    }


class PrefillKernel(Kernel, GQADenseFwdInterface):
    """What the prefill kernels share: the region, the call of the program.

    Args:
        build: What to build; see :meth:`entry_for`.

    Raises:
        ValueError: No kernel is built for the head size or dtype.
        KernelBuildError: TileLang or nvcc is missing.
    """

    def __init__(self, build: PrefillBuild) -> None:
        reason = prefill_refusal(build.dim, build.dtype)
        if reason is not None:
            raise ValueError(reason)
        self.build = build
        self.attend = self.compiled(build)

    @classmethod
    @abstractmethod
    def compiled(cls, build: Any) -> Program:
        """The program of *build*."""

    @classmethod
    @abstractmethod
    def least_smem_bytes(cls, call: AttentionCall) -> int:
        """What a block takes with the smallest tile there is for the head size of *call*."""

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse decode of whole sequences, and head sizes, dtypes and devices that no tile is made for."""
        if call.is_fp8:
            return "is_fp8: float8 is not multiplied here"
        if not call.prefill_region:
            return f"max_seqlen_q {call.max_seqlen_q} and no left window: one query that sees every key is decode"
        if call.fuse_rope:
            return "fuse_rope: rotary embedding is not applied here; rotate queries and keys beforehand"
        reason = prefill_refusal(call.dim, call.dtype, cls.least_smem_bytes(call), call.smem_budget)
        if reason is not None:
            return reason
        return super().refusal(call)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scales: Scales | None = None,
        rotation: Rotation | None = None,
    ) -> torch.Tensor:
        """Attend; see the interface. Tensors that are not contiguous are copied."""
        seqlen_q, seqlen_kv = q.shape[1], k.shape[1]
        if seqlen_kv == 0:
            return torch.zeros(q.shape, dtype=q.dtype, device=q.device)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        queries, keys, values = (aligned(each.contiguous()) for each in (q, k, v))
        self.attend(queries, keys, values, out, *self.build.windows_within(seqlen_q, seqlen_kv))
        return out


class GQAPrefillMmaKernel(PrefillKernel):
    """Prefill by ``mma.sync``, a block for each tile of queries: any window, wherever there is a matrix unit."""

    supported_archs: list[int] = [*PREFILL_ARCHS]

    tiles: ClassVar[tuple[MmaTile, ...]] = (MmaTile(128, 64, 2, 128), SMALLEST_PREFILL_TILE)
    """Tiles from the preferred one down; the first that the head and the device's shared memory fit is built."""

    @classmethod
    def compiled(cls, build: Any) -> Program:
        """The program of *build*."""
        return compile_program(
            MMA_PROGRAMS,
            "attend_tiles",
            build.arch,
            tile_queries=build.tile.queries,
            threads=build.tile.threads,
            **shared_parameters(build),
        )

    @classmethod
    def tile_for(cls, dim: int, smem_budget: int) -> MmaTile:
        """The first of :attr:`tiles` that fits; the last, which the rule checks, where none before does."""
        for tile in cls.tiles:
            if dim <= tile.widest and tile.smem_bytes(dim) <= smem_budget:
                return tile
        return cls.tiles[-1]

    @classmethod
    def tile_of(cls, call: AttentionCall) -> MmaTile:
        """The tile that *call* is built with: it fits the budget that the call states, or else that of its arch."""
        return cls.tile_for(call.dim, smem_budget_of(call))

    @classmethod
    def least_smem_bytes(cls, call: AttentionCall) -> int:
        """What the last of :attr:`tiles` takes."""
        return cls.tiles[-1].smem_bytes(call.dim)

    @classmethod
    def block_smem_bytes(cls, call: AttentionCall) -> int:
        """What the tile of *call* takes."""
        return cls.tile_of(call).smem_bytes(call.dim)

    @classmethod
    def block_threads(cls, call: AttentionCall) -> int:
        """As many as the tile of *call* has."""
        return cls.tile_of(call).threads

    @classmethod
    def entry_for(cls, call: AttentionCall) -> Entry:
        """Heads, head size, dtype, scale, softcap and mask are held; batch and lengths are not."""
        build = PrefillBuild(**shared_facts(call, cls.tile_of(call)))
        return build, lambda: cls(build)


class OneTileAHead(Kernel):
    """Kernels of three warpgroups, with one tile for each head size: what shared memory and registers hold."""

    tiles: ClassVar[tuple[RingTile, ...] | tuple[Fp8Tile, ...]]

    @classmethod
    def tile_of(cls, call: AttentionCall) -> Any:
        """The tile of the head size, or the last one for a size that is refused."""
        for tile in cls.tiles:
            if call.dim == tile.dim:
                return tile
        return cls.tiles[-1]

    @classmethod
    def block_smem_bytes(cls, call: AttentionCall) -> int:
        """What the tile of *call* takes, barriers included, which is the most of all launches."""
        smem_bytes: int = cls.tile_of(call).smem_bytes
        return smem_bytes

    @classmethod
    def block_threads(cls, call: AttentionCall) -> int:
        """The same for every call."""
        return RING_THREADS


class RingPrefillKernel(OneTileAHead, PrefillKernel):
    """Prefill on Hopper: blocks that stay, one an SM, each a warpgroup that brings tiles and two that multiply.

    Where a key head has an even number of query heads, two blocks share each tile of keys and values.
    """

    supported_archs: list[int] = [HOPPER]
    preferred_over: frozenset[str] = frozenset({"gqa_dense_mma"})

    tiles = RING_TILES

    @classmethod
    def compiled(cls, build: Any) -> Program:
        """The program of *build*."""
        return compile_program(
            RING_PROGRAMS,
            "attend_tiles",
            build.arch,
            own_out=build.tile.own_out,
            held_queries=build.held_queries,
            cluster=build.cluster,
            sm_count=max(build.sm_count, build.cluster),
            **shared_parameters(build),
        )

    @classmethod
    def least_smem_bytes(cls, call: AttentionCall) -> int:
        """What the only tile of the head size takes."""
        return cls.block_smem_bytes(call)

    @classmethod
    def shared_by(cls, call: AttentionCall) -> int:
        """Blocks that share the keys and values of *call*."""
        return 2 if call.heads // call.heads_kv % 2 == 0 else 1

    @classmethod
    def holds_queries(cls, call: AttentionCall) -> bool:
        """Whether the queries of *call* are multiplied from registers."""
        return False

    @classmethod
    def entry_for(cls, call: AttentionCall) -> Entry:
        """What :class:`GQAPrefillMmaKernel` holds, and how the card is filled."""
        build = RingPrefillBuild(
            **ring_facts(call, cls.tile_of(call)), cluster=cls.shared_by(call), held_queries=cls.holds_queries(call)
        )
        return build, lambda: cls(build)


class GQAPrefillKernel(RingPrefillKernel):
    """Prefill over all keys, or all up to a query's position.

    A draft of the program (``benchmarks/results``, drafts of prefill: H200, 2026-11-30, torch 2.11, TileLang 0.1.15;
    bfloat16, causal, 64 query heads on 8 key heads of 128, L2 flushed), queries in shared memory and in registers:
    663 and 650 TFLOP/s at 4,096 tokens, 707 and 714 at 8,192, 729 and 745 at 16,384.
    """

    long_sequence: ClassVar[int] = 8192
    """Keys from which queries are held in registers, so that each product reads half as much shared memory."""

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse left windows."""
        if call.window_size_left != UNBOUNDED:
            return f"window_size_left {call.window_size_left} is not {UNBOUNDED} (unbounded)"
        return super().refusal(call)

    @classmethod
    def holds_queries(cls, call: AttentionCall) -> bool:
        """Where the head is 128, the sequence long and two blocks share its keys, as measured."""
        return (
            call.dim == 128 and call.seqlen_kv >= cls.long_sequence and cls.shared_by(call) == 2 and call.softcap == 0.0
        )


class GQAPrefillSlidingWindowKernel(RingPrefillKernel):
    """Prefill over the keys of a window: tiles of keys that no query of a tile sees are never brought."""

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse calls without a left window."""
        if call.window_size_left == UNBOUNDED:
            return f"window_size_left {call.window_size_left}: there is no left window"
        return super().refusal(call)
