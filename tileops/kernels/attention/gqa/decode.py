"""Grouped-query decode: one query of each sequence over all its keys.

All three implementations run the same two programs. They differ in the calls they serve, in their tiles and
in how finely they cut a sequence. Keys are cut into *runs* of whole tiles, so that a few long sequences still
fill the card; how many keys there are, and how many runs, is a matter of the launch and never of the build.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from tileops_rules.archs import KNOWN_ARCHS

from tileops.kernels.attention.call_spec import AttentionCall, GQADenseFwdInterface, softmax_scale
from tileops.kernels.attention.gqa.limits import (
    ARCHS,
    DIMS,
    DTYPES,
    MIN_KEYS,
    SMALLEST_TILE,
    DecodeTile,
    head_refusal,
    keys_refusal,
)
from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name, stated_arch

__all__ = [
    "DIMS",
    "DTYPES",
    "MIN_KEYS",
    "DecodeBuild",
    "DecodeTile",
    "GQADecodeBs1Kernel",
    "GQADecodeKernel",
    "GQADecodeLongContextKernel",
]

PROGRAMS = "tileops.kernels.attention.gqa.decode_program"

THREADS = 128
"""One warpgroup; each of its warps has 16 rows of a product."""
MERGE_WAYS = 8
MERGE_THREADS = 128
HOPPER = 90


@dataclasses.dataclass(frozen=True)
class DecodeBuild:
    """Everything that changes what is built: the build identity.

    Attributes:
        heads: Query heads.
        heads_kv: Key and value heads.
        dim: Elements of a head.
        dtype: Of every tensor.
        sm_scale: Factor of the scores, as a number.
        softcap: Bound of the scores, 0 for none.
        arch: Architecture to build for.
        sm_count: Multiprocessors that the runs are to fill.
        tile: Tile of a block.
    """

    heads: int
    heads_kv: int
    dim: int
    dtype: torch.dtype
    sm_scale: float
    softcap: float
    arch: int
    sm_count: int
    tile: DecodeTile


class GQADecodeKernel(Kernel, GQADenseFwdInterface):
    """Split decode for any batch, any number of keys and any group of query heads to a key head.

    A block multiplies the query heads of one key head, padded to 64 rows, with one run of its keys; a second
    launch merges the runs. A call takes two workspaces from PyTorch's caching allocator and gives them back:
    they are reused from call to call on a stream, and never grow beyond the largest call.

    Args:
        build: What to build; see :meth:`entry_for`.

    Raises:
        ValueError: No kernel is built for the head size or dtype.
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [*ARCHS]
    general: bool = True

    tiles: ClassVar[tuple[DecodeTile, ...]] = (DecodeTile(64, 64, 2), SMALLEST_TILE)
    """Tiles from the preferred one down; the first whose need fits the device's shared memory is built."""
    blocks_per_sm: ClassVar[int] = 2
    """Blocks that the runs of a call should make for each multiprocessor: what its memory holds at a time."""
    max_runs: ClassVar[int] = 128
    """The most runs of a sequence: each costs a row of the workspace and a step of the merge."""

    def __init__(self, build: DecodeBuild) -> None:
        reason = self.build_refusal(build.dim, build.dtype)
        if reason is not None:
            raise ValueError(reason)
        self.build = build
        common = {"heads": build.heads, "dim": build.dim, "dtype": dtype_name(build.dtype)}
        self.attend = compile_program(
            PROGRAMS,
            "attend_runs",
            build.arch,
            heads_kv=build.heads_kv,
            sm_scale=build.sm_scale,
            softcap=build.softcap,
            tile_heads=build.tile.heads,
            tile_keys=build.tile.keys,
            stages=build.tile.stages,
            threads=THREADS,
            async_proxy=build.arch >= HOPPER,
            **common,
        )
        self.merge = compile_program(
            PROGRAMS,
            "merge_runs",
            build.arch,
            max_runs=self.max_runs,
            ways=MERGE_WAYS,
            threads=MERGE_THREADS,
            **common,
        )

    @classmethod
    def build_refusal(cls, dim: int, dtype: torch.dtype) -> str | None:
        """Why no kernel is built for these, or ``None``; rule and constructor both ask here."""
        return head_refusal(dim, dtype)

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse what is not dense decode, and head sizes, dtypes and devices that no tile is made for."""
        if not call.dense_decode_region:
            return (
                f"not dense decode, which is one query a sequence (max_seqlen_q {call.max_seqlen_q}), "
                f"no left window (window_size_left {call.window_size_left}), no float8 (is_fp8 {call.is_fp8})"
            )
        if call.fuse_rope:
            return "fuse_rope: rotary embedding is not applied here; rotate queries and keys beforehand"
        reason = cls.build_refusal(call.dim, call.dtype)
        if reason is not None:
            return reason
        reason = keys_refusal(call.seqlen_kv)
        if reason is not None:
            return reason
        if call.smem_budget is not None and cls.block_smem_bytes(call) > call.smem_budget:
            return (
                f"dim {call.dim} needs {cls.block_smem_bytes(call)} bytes of shared memory a block, "
                f"and smem_budget is {call.smem_budget}"
            )
        return super().refusal(call)

    @classmethod
    def tile_for(cls, dim: int, smem_budget: int) -> DecodeTile:
        """The first of :attr:`tiles` that fits; the last, which the rule checks, where none before does."""
        for tile in cls.tiles:
            if tile.smem_bytes(dim) <= smem_budget:
                return tile
        return cls.tiles[-1]

    @classmethod
    def tile_of(cls, call: AttentionCall) -> DecodeTile:
        """The tile that *call* is built with: it fits the budget that the call states, or else that of its arch."""
        stated = call.smem_budget
        return cls.tile_for(call.dim, stated if stated is not None else KNOWN_ARCHS[stated_arch(call)].smem_budget)

    @classmethod
    def block_smem_bytes(cls, call: AttentionCall) -> int:
        """What the tile of *call* takes; the merge takes less."""
        return cls.tile_of(call).smem_bytes(call.dim)

    @classmethod
    def block_threads(cls, call: AttentionCall) -> int:
        """The same for every call."""
        return max(THREADS, MERGE_THREADS)

    @classmethod
    def entry_for(cls, call: AttentionCall) -> Entry:
        """Heads, head size, dtype, scale, softcap and device facts are built in; batch and keys are not."""
        arch = stated_arch(call)
        usual = KNOWN_ARCHS[arch]
        build = DecodeBuild(
            heads=call.heads,
            heads_kv=call.heads_kv,
            dim=call.dim,
            dtype=call.dtype,
            sm_scale=softmax_scale(call.dim, call.sm_scale),
            softcap=call.softcap,
            arch=arch,
            sm_count=call.sm_count if call.sm_count is not None else usual.sm_count,
            tile=cls.tile_of(call),
        )
        return build, lambda: cls(build)

    @classmethod
    def split(cls, build: DecodeBuild, batch: int, seqlen_kv: int) -> tuple[int, int]:
        """How a sequence of *seqlen_kv* keys is cut: the number of runs, and the tiles of a run.

        As many runs as make no more than :attr:`blocks_per_sm` blocks for each multiprocessor, none of them
        empty: a few blocks more than run at a time would leave most of the card idle for a second round.
        """
        tile = build.tile
        tiles = -(-seqlen_kv // tile.keys)
        group = build.heads // build.heads_kv
        blocks = batch * build.heads_kv * -(-group // tile.heads)
        wanted = max(1, build.sm_count * cls.blocks_per_sm // blocks)
        run = -(-tiles // min(wanted, tiles, cls.max_runs))
        return -(-tiles // run), run

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend; see the interface."""
        runs, run = self.split(self.build, k.shape[0], k.shape[1])
        return self.attend_in_runs(q, k, v, runs, run)

    def attend_in_runs(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, runs: int, run: int) -> torch.Tensor:
        """:meth:`forward` with the keys cut into *runs* of *run* tiles each, of which the last may be empty.

        Args:
            q: As in the interface.
            k: As in the interface.
            v: As in the interface.
            runs: Runs, 1 to :attr:`max_runs`; with *run* they cover all keys.
            run: Tiles a run, at least 1.
        """
        batch, _, heads, dim = q.shape
        queries = aligned(q).view(batch, heads, dim)
        sums = torch.empty((batch, heads, runs), dtype=torch.float32, device=q.device)
        parts = torch.empty((batch, heads, runs, dim), dtype=torch.float32, device=q.device)
        out = torch.empty((batch, 1, heads, dim), dtype=q.dtype, device=q.device)
        self.attend(queries, aligned(k), aligned(v), sums, parts, run)
        self.merge(sums, parts, out.view(batch, heads, dim))
        return out


class GQADecodeBs1Kernel(GQADecodeKernel):
    """Decode of a single sequence on Hopper: small tiles and three blocks an SM, to spread few keys widely.

    With 32 query heads on 4 key heads of 128, on an H200 (2026-11-29, whole call in a graph, L2 flushed): 11.2 µs
    at 512 keys and 12.2 µs at 1,024, where the general kernel's tiles took 11.7 and 13.0 µs.
    """

    supported_archs: list[int] = [90]
    general: bool = False

    tiles: ClassVar[tuple[DecodeTile, ...]] = (DecodeTile(64, 32, 3), SMALLEST_TILE)
    blocks_per_sm: ClassVar[int] = 3

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse batches of more than one sequence."""
        if call.batch != 1:
            return f"batch {call.batch} is not 1"
        return super().refusal(call)


class GQADecodeLongContextKernel(GQADecodeKernel):
    """Decode of a single long sequence, 32 query heads on 4 key heads: small tiles in a deeper ring.

    On an H200 (2026-11-29, whole call in a graph, L2 flushed): 11.9 µs at 1,024 keys and 23.5 µs at 16,384, where
    the general kernel's tiles took 13.0 and 24.1 µs; at 4,096 and 131,072 both took the same within 3 %. Twice as
    many runs as fill the card once cost 6 % at 131,072.
    """

    general: bool = False
    preferred_over = frozenset({"gqa_dense_decode_bs1"})

    tiles: ClassVar[tuple[DecodeTile, ...]] = (DecodeTile(64, 32, 3), SMALLEST_TILE)
    long_context: ClassVar[int] = 1024
    """Keys from which a sequence is long."""

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse shapes other than the one it is tuned for, and sequences that are not long."""
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
        return super().refusal(call)
