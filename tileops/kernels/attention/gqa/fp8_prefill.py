"""Grouped-query attention of float8 queries, keys and values on Hopper, of one query or many."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.attention.call_spec import AttentionCall, GQADenseFwdInterface, Rotation, Scales
from tileops.kernels.attention.gqa.fp8_prefill_limits import (
    FP8_PREFILL_ARCH,
    FP8_TILES,
    Fp8Tile,
    fp8_prefill_refusal,
)
from tileops.kernels.attention.gqa.prefill import (
    OneTileAHead,
    RingPrefillBuild,
    ring_facts,
    shared_parameters,
)
from tileops.kernels.kernel_base import Entry
from tileops.kernels.tilelang_build import aligned, compile_program

__all__ = ["Fp8Build", "GQAFp8Kernel"]

PROGRAMS: Final = "tileops.kernels.attention.gqa.fp8_prefill_program"
VALUE_PROGRAMS: Final = "tileops.kernels.attention.gqa.fp8_values_program"

RUN_KEYS: Final = 128
"""Keys by whose multiple turned values are filled up."""


@dataclasses.dataclass(frozen=True)
class Fp8Build(RingPrefillBuild):
    """The identity of a build for float8; *dtype* is that of the results, *tile* an :class:`Fp8Tile`.

    Attributes:
        ping_pong: Whether the two multiplying warpgroups take turns at the tensor cores.
    """

    tile: Fp8Tile
    ping_pong: bool


class GQAFp8Kernel(OneTileAHead, GQADenseFwdInterface):
    """Float8 attention on Hopper: blocks that stay, one an SM: a warpgroup brings tiles and two multiply.

    A first launch lays values out with the keys of an element side by side, in a workspace of PyTorch's caching
    allocator as large as the values. Scores, softmax and sums of weights are float32; weights are rounded to float8,
    with the largest of a row at ``2**6`` to ``2**8``, before they meet the values.

    A product of Hopper's tensor cores adds 32 products of float8 to a running sum and keeps some 13 bits below the
    largest of them. A score may so be off by ``2**-13`` times the sum of the absolute values of its products, more or
    less, times its scale: large scores that nearly cancel move the weights. Results are gathered in float32 from sums
    of no more than 512 keys, and are off by as many times ``2**-13``, at the very most, of the average of ``|v|``.

    Args:
        build: What to build; see :meth:`entry_for`.

    Raises:
        ValueError: No kernel is built for the arch, head size or dtype.
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [FP8_PREFILL_ARCH]
    tiles = FP8_TILES

    def __init__(self, build: Fp8Build) -> None:
        reason = fp8_prefill_refusal(build.arch, build.dim, build.dtype)
        if reason is not None:
            raise ValueError(reason)
        self.build = build
        self.attend = compile_program(
            PROGRAMS,
            "attend_tiles",
            build.arch,
            depth=build.tile.depth,
            gather=build.tile.gather,
            ping_pong=build.ping_pong,
            held_queries=build.held_queries,
            cluster=build.cluster,
            run_keys=RUN_KEYS,
            sm_count=max(build.sm_count, build.cluster),
            **shared_parameters(build),
        )
        self.turn = compile_program(
            VALUE_PROGRAMS, "turn_values", build.arch, heads_kv=build.heads_kv, dim=build.dim, run_keys=RUN_KEYS
        )

    @classmethod
    def refusal(cls, call: AttentionCall) -> str | None:
        """Refuse what is not float8, and head sizes, dtypes and devices that no tile is made for."""
        if not call.is_fp8:
            return "is_fp8 is not set: only float8 queries, keys and values are taken here"
        if call.fuse_rope:
            return "fuse_rope: rotary embedding is not applied here; rotate queries and keys beforehand"
        reason = fp8_prefill_refusal(call.arch, call.dim, call.dtype, call.smem_budget)
        if reason is not None:
            return reason
        return super().refusal(call)

    @classmethod
    def entry_for(cls, call: AttentionCall) -> Entry:
        """Heads, head size, dtype, scale, softcap, mask and SM count are held; batch and lengths are not.

        Blocks share no keys: on an H200 (2026-11-30) tiles of 224 keys reached 886 TFLOP/s at 16,384 tokens so, and 842
        where two blocks shared each.
        """
        build = Fp8Build(**ring_facts(call, cls.tile_of(call)), cluster=1, held_queries=False, ping_pong=True)
        return build, lambda: cls(build)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scales: Scales | None = None,
        rotation: Rotation | None = None,
    ) -> torch.Tensor:
        """Attend; see the interface. Queries, keys and values that are not contiguous are copied first.

        Raises:
            ValueError: *scales* is ``None``.
        """
        if scales is None:
            raise ValueError(
                "scales is None: float8 queries, keys and values are multiplied with the scales of their heads"
            )
        batch, seqlen_kv, heads_kv, dim = v.shape
        if seqlen_kv == 0:
            return torch.zeros(q.shape, dtype=self.build.dtype, device=q.device)
        out = torch.empty(q.shape, dtype=self.build.dtype, device=q.device)
        padded = -(-seqlen_kv // RUN_KEYS) * RUN_KEYS
        turned = torch.empty((batch, heads_kv, dim, padded), dtype=v.dtype, device=v.device)
        self.turn(aligned(v.contiguous()).view(torch.uint8), turned.view(torch.uint8))
        windows = self.build.windows_within(q.shape[1], seqlen_kv)
        self.attend(aligned(q.contiguous()), aligned(k.contiguous()), turned, *scales, out, *windows)
        return out
