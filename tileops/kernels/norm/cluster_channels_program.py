"""Channels that lie in the shared memory of clusters. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

How a channel gets there, and how blocks tell one another what they found: see ``cluster_macros_program.py``. What is
known of a share: see ``part_statistics_program.py``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_program import go_on
from tileops.kernels.norm.cluster_layout import ClusterLayout
from tileops.kernels.norm.cluster_macros_program import (
    PASSES,
    WARP,
    await_piece,
    bring,
    meet_blocks,
    meet_warps,
    stand,
)
from tileops.kernels.norm.cut_layout import FACTS
from tileops.kernels.norm.part_statistics_program import CENTER, SCALE, SHIFT, conclude, look, unite
from tileops.kernels.tilelang_build import BULK_COPIES

__all__ = ["PASSES", "clustered_channels"]


def clustered_channels(
    dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: ClusterLayout
) -> Any:
    """Channels that are normalized by their own statistics; weight and bias are taken in turn.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout; ``blocks * room`` vectors are a channel or more.
    """
    tracked = running_dtype is not None
    vector, steps, threads, blocks = lay.vector, lay.steps, lay.lanes, lay.blocks
    warps = threads // WARP
    size, c64, w64 = (T.dynamic(name, "int64") for name in ("size", "c", "w"))
    cluster = {"cluster_dims": blocks} if blocks > 1 else {}

    @T.macro
    def body(
        block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, total, share, walk
    ):  # fmt: skip
        T.import_source(BULK_COPIES)
        T.annotate_min_blocks_per_sm(lay.resident)
        c, q = T.cast(c64, "int32"), walk[0]
        thread = T.get_thread_binding()
        rank = block % blocks
        channel = block // blocks
        owner = thread == 0 and rank == 0
        first = rank * share
        mine = T.max(0, T.min(share, total - first))
        piece = T.truncdiv(mine + (lay.chunks - 1), lay.chunks)
        kept = T.alloc_shared((lay.room, vector), dtype)
        filled = T.alloc_barrier([1] * lay.chunks)
        exchanged = T.alloc_shared((warps, FACTS), "float32")
        if blocks > 1:
            own = T.alloc_shared((1, FACTS), "float32")
            pieces = T.alloc_shared((blocks, FACTS), "float32")
        held = T.alloc_local((steps * vector,), dtype)
        offs = T.alloc_local((steps,), "int64")
        at = T.alloc_local((2,), "int32")
        place = T.alloc_local((1,), "int64")
        end = T.alloc_local((1,), "int32")
        left = T.alloc_local((1,), "int32")
        of = T.alloc_local((4,), "float32")
        sums = T.alloc_local((4,), "float32")
        work = T.alloc_local((5,), "float32")
        facts = T.alloc_local((4,), "float32")
        if blocks > 1:
            T.cluster_arrive_relaxed()
        if thread < WARP:
            bring(x, kept, filled, thread, first, mine, piece, channel, c, q, lay)
        facts[SCALE] = T.cast(weight[T.truncmod(T.cast(channel, "int64"), w64)], "float32")
        facts[SHIFT] = T.cast(bias[T.truncmod(T.cast(channel, "int64"), w64)], "float32")
        if tracked and owner:
            facts[2] = T.cast(running_mean[channel], "float32")
            facts[3] = T.cast(running_var[channel], "float32")
        for i in T.unroll(FACTS):
            of[i] = 0.0
        for j in T.serial(lay.chunks):
            await_piece(end, left, filled, j, mine, piece)
            while left[0] > 0:
                for v in T.unroll(steps):
                    if v * threads < left[0]:
                        for k in T.vectorized(vector):
                            held[v * vector + k] = kept[end[0] - left[0] + v * threads, k]
                look(of, held, left, sums, work, lay)
                left[0] -= steps * threads
        unite(of, work, 1)
        meet_warps(of, exchanged, warps)
        unite(of, work, 1)
        if blocks > 1:
            meet_blocks(of, own, pieces, rank, blocks)
            unite(of, work, 1)
        conclude(
            of, facts, work, owner, channel, (mean, spread, running_mean, running_var), eps, momentum, tracked, unbiased
        )  # fmt: skip
        left[0] = mine - thread
        stand(at, place, first + thread, channel, c, q)
        while left[0] > 0:
            for v in T.unroll(steps):
                offs[v] = place[0]
                if v * threads < left[0]:
                    for k in T.vectorized(vector):
                        held[v * vector + k] = kept[mine - left[0] + v * threads, k]
                go_on(at, place, walk, lay)
            for v in T.unroll(steps):
                if v * threads < left[0]:
                    for k in T.vectorized(vector):
                        out[offs[v], k] = (T.cast(held[v * vector + k], "float32") - facts[CENTER]) * facts[
                            SCALE
                        ] + facts[SHIFT]
            left[0] -= steps * threads

    if running_dtype is None:

        @T.prim_func
        def clustered(
            x: T.Tensor((size, vector), dtype),
            weight: T.Tensor((w64,), weight_dtype),
            bias: T.Tensor((w64,), weight_dtype),
            out: T.Tensor((size, vector), dtype),
            mean: T.Tensor((c64,), "float32"),
            spread: T.Tensor((c64,), "float32"),
            eps: T.float32,
            total: T.int32,
            share: T.int32,
            q: T.int32,
            along: T.int32,
            step: T.int64,
            leap: T.int64,
        ):
            with T.Kernel(T.cast(c64, "int32") * blocks, threads=threads, **cluster) as block:
                body(
                    block, x, weight, bias, mean, mean, out, mean, spread, eps, eps, total, share,
                    (q, 0, along, step, leap),
                )  # fmt: skip

        return clustered

    @T.prim_func
    def clustered_and_tracked(
        x: T.Tensor((size, vector), dtype),
        weight: T.Tensor((w64,), weight_dtype),
        bias: T.Tensor((w64,), weight_dtype),
        running_mean: T.Tensor((c64,), running_dtype),
        running_var: T.Tensor((c64,), running_dtype),
        out: T.Tensor((size, vector), dtype),
        mean: T.Tensor((c64,), "float32"),
        spread: T.Tensor((c64,), "float32"),
        eps: T.float32,
        momentum: T.float32,
        total: T.int32,
        share: T.int32,
        q: T.int32,
        along: T.int32,
        step: T.int64,
        leap: T.int64,
    ):
        with T.Kernel(T.cast(c64, "int32") * blocks, threads=threads, **cluster) as block:
            body(
                block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, total, share,
                (q, 0, along, step, leap),
            )  # fmt: skip

    return clustered_and_tracked
