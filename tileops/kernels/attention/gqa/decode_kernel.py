"""What the decode kernels share: one program, in one launch, for one query of each sequence over its keys.

They differ in the calls they serve, in what a block looks like, and in how finely they cut a sequence. How many keys
there are, and how many runs they are cut into, is a matter of the launch and never of the build.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

import torch

from tileops.kernels.attention.call_spec import AttentionCall, GQADenseFwdInterface, Rotation, Scales, softmax_scale
from tileops.kernels.attention.gqa.decode_cut import DecodeCut, cut_tiles, runs_for, runs_of, tiles_of
from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import (
    ALONE,
    DecodeShape,
    Ladder,
    decode_refusal,
    head_refusal,
    paired,
    row_warps_for,
)
from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.per_stream import of_stream
from tileops.kernels.tilelang_build import (
    ALIGNMENT_BYTES,
    aligned,
    compile_program,
    dtype_name,
    sm_count_of,
    smem_budget_of,
    stated_arch,
)

__all__ = ["DecodeBuild", "DecodeKernel", "in_order"]

PROGRAMS: Final = "tileops.kernels.attention.gqa.decode_program"
MOST_CUTS: Final = 256
"""Cuts that a kernel remembers: a sequence that grows by a key needs another one a tile later."""


@dataclasses.dataclass(frozen=True)
class DecodeBuild:
    """Everything that changes what a launch does: the build identity.

    Attributes:
        layout: Heads, dtypes, and what a block looks like.
        dtype: Of results.
        sm_scale: Factor of the scores, as a number.
        softcap: Bound of the scores, 0 for none.
        window_left: Keys before the last one that the query sees, or ``UNBOUNDED``.
        arch: Architecture to build for.
        sm_count: Multiprocessors that the runs are to fill.
    """

    layout: DecodeLayout
    dtype: torch.dtype
    sm_scale: float
    softcap: float
    window_left: int
    arch: int
    sm_count: int


def in_order(tensor: torch.Tensor) -> torch.Tensor:
    """*tensor* itself, where heads lie in whole vectors of 16 bytes, in any order; or else a contiguous copy.

    Args:
        tensor: ``(batch, seqlen, heads, dim)``, a *dim* of whole vectors.
    """
    if tensor.data_ptr() % ALIGNMENT_BYTES == 0:
        if tensor.is_contiguous():
            return tensor
        *steps, step = tensor.stride()
        item = tensor.element_size()
        sizes = tensor.shape
        if step == 1 and all(each * item % ALIGNMENT_BYTES == 0 or sizes[i] == 1 for i, each in enumerate(steps)):
            return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


class Room(NamedTuple):
    """What a launch needs beside its tensors.

    Attributes:
        parts: ``(slots, rows of a unit, dim)``, float32.
        stats: ``(slots * cluster, rows of a unit, 2)``, float32.
        counters: int32, zero before and after a launch.
    """

    parts: torch.Tensor
    stats: torch.Tensor
    counters: torch.Tensor


class DecodeKernel(Kernel, GQADenseFwdInterface):
    """Split decode for any batch, any number of keys and any group of query heads to a key head.

    A block multiplies the query heads of one key head, or of two, with one run of keys; the last block of a sequence
    that is cut adds its parts, in the same launch. The room for the parts is a few megabytes at most, whatever the
    number of sequences and keys; it is kept for each stream, as launches of a stream come one after another. A launch
    that is captured in a graph has its own.

    Args:
        build: What to build; see :meth:`entry_for`.

    Raises:
        ValueError: No kernel is built for the head size or dtype.
        KernelBuildError: TileLang or nvcc is missing.
    """

    def __init__(self, build: DecodeBuild) -> None:
        reason = head_refusal(build.layout.dim, build.dtype)
        if reason is not None:
            raise ValueError(reason)
        self.build = build
        self.full_runs = runs_for(build.layout.units, build.layout.shape, build.sm_count)
        self.attend = compile_program(
            PROGRAMS, "decode", build.arch, lay=build.layout, sm_scale=build.sm_scale, softcap=build.softcap
        )
        self.launch = self.attend.launch
        self.most = cut_tiles(self.full_runs, build.layout, self.full_runs)
        self.cuts: dict[tuple[int, int], DecodeCut] = {}
        self.rooms: dict[tuple[torch.device, int], Room] = {}

    @classmethod
    def ladder_of(cls, call: AttentionCall) -> Ladder:
        """The shapes that a block of the kernel for *call* may have: blocks by themselves, unless overridden."""
        return ALONE

    @classmethod
    def room_for(cls, call: AttentionCall) -> Ladder:
        """The shapes of which the smallest has to fit: those of :meth:`ladder_of`, unless other keys ask for more."""
        return cls.ladder_of(call)

    @classmethod
    def shape_of(cls, call: AttentionCall) -> DecodeShape:
        """What the block of *call* looks like."""
        row_warps = row_warps_for(call.heads, call.heads_kv)
        return cls.ladder_of(call).shape_for(call.dim, row_warps, smem_budget_of(call), call.is_fp8)

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse what is not decode, and head sizes, dtypes and devices that no block is made for."""
        if call.max_seqlen_q != 1:
            return f"max_seqlen_q {call.max_seqlen_q} is not 1: decode is one query of each sequence"
        row_warps = row_warps_for(call.heads, call.heads_kv)
        reason = decode_refusal(
            call.dim, call.dtype, row_warps, call.smem_budget, call.is_fp8, cls.room_for(call)
        )  # fmt: skip
        if reason is not None:
            return reason
        return super().refusal(call)

    @classmethod
    def block_smem_bytes(cls, call: AttentionCall) -> int:
        """What the block of *call* takes."""
        return cls.shape_of(call).smem_bytes(call.dim, call.is_fp8)

    @classmethod
    def block_threads(cls, call: AttentionCall) -> int:
        """As many as the block of *call* has."""
        return cls.shape_of(call).threads

    @classmethod
    def entry_for(cls, call: AttentionCall) -> Entry:
        """Heads, head size, dtype, scale, softcap, window and device facts are held; batch and keys are not.

        They may decide what a block looks like, which is held.
        """
        shape = cls.shape_of(call)
        if not call.is_fp8 and call.rotary_dim == 0:
            shape = paired(shape, call.dim, call.batch, call.heads, call.heads_kv, sm_count_of(call))
        layout = DecodeLayout(
            heads=call.heads,
            heads_kv=call.heads_kv,
            dim=call.dim,
            dtype="float8_e4m3fn" if call.is_fp8 else dtype_name(call.dtype),
            out_dtype=dtype_name(call.dtype),
            shape=shape,
            rotary_dim=call.rotary_dim,
            interleaved=call.rope_interleaved,
        )
        build = DecodeBuild(
            layout,
            dtype=call.dtype,
            sm_scale=softmax_scale(call.dim, call.sm_scale),
            softcap=call.softcap,
            window_left=call.window_size_left,
            arch=stated_arch(call),
            sm_count=sm_count_of(call),
        )
        return build, lambda: cls(build)

    def cut_of(self, batch: int, tiles: int) -> DecodeCut:
        """How the tiles of a call of *batch* sequences are cut; remembered."""
        cut = self.cuts.get((batch, tiles))
        if cut is None:
            if len(self.cuts) >= MOST_CUTS:
                self.cuts.clear()
            layout = self.build.layout
            runs = runs_of(tiles, layout.shape, self.full_runs, batch)
            cut = self.cuts[batch, tiles] = cut_tiles(tiles, layout, runs)
        return cut

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scales: Scales | None = None,
        rotation: Rotation | None = None,
    ) -> torch.Tensor:
        """Attend; see the interface."""
        keys, window = k.shape[1], self.build.window_left
        if keys == 0:
            return torch.zeros(q.shape, dtype=self.build.dtype, device=q.device)
        first = max(0, keys - 1 - window) if window >= 0 else 0
        batch = k.shape[0]
        cut = self.cut_of(batch, tiles_of(batch, keys - first, self.build.layout.shape))
        return self._attend(q, k, v, cut, first, scales, rotation)

    def attend_in_runs(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        runs: int,
        first: int = 0,
        scales: Scales | None = None,
        rotation: Rotation | None = None,
    ) -> torch.Tensor:
        """:meth:`forward` with the keys from *first* on cut into *runs* runs, or fewer, of one tile each.

        Args:
            q: As in the interface.
            k: As in the interface.
            v: As in the interface.
            runs: Runs, 1 or more.
            first: The first key that the query sees, below the number of keys.
            scales: As in the interface.
            rotation: As in the interface.
        """
        layout = self.build.layout
        tiles = tiles_of(k.shape[0], k.shape[1] - first, layout.shape)
        return self._attend(q, k, v, cut_tiles(tiles, layout, runs), first, scales, rotation)

    def _attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cut: DecodeCut,
        first: int,
        scales: Scales | None,
        rotation: Rotation | None,
    ) -> torch.Tensor:
        q = aligned(q.contiguous())
        # Like q, as that takes half as long as naming its sizes and device.
        out = torch.empty_like(q, dtype=self.build.dtype, memory_format=torch.contiguous_format)
        self.launch(
            q, in_order(k), in_order(v), *(scales or rotation or ()), *self.room(cut, q.device), out,
            first, cut.runs, cut.base, cut.rem,
        )  # fmt: skip
        return out

    def room(self, cut: DecodeCut, device: torch.device) -> Room:
        """Room for a launch on the current stream of *device*: what is kept for it, where that is enough."""
        if cut.slots > self.most.slots or torch.cuda.is_current_stream_capturing():
            return self._new_room(cut, device)
        return of_stream(self.rooms, device, lambda: self._new_room(self.most, device))

    def _new_room(self, cut: DecodeCut, device: torch.device) -> Room:
        rows, cluster = self.build.layout.unit_rows, self.build.layout.shape.cluster
        return Room(
            torch.empty((cut.slots, rows, self.build.layout.dim), dtype=torch.float32, device=device),
            torch.empty((cut.slots * cluster, rows, 2), dtype=torch.float32, device=device),
            torch.zeros(cut.counters, dtype=torch.int32, device=device),
        )
