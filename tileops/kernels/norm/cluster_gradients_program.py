"""The gradients of channels that lie in the shared memory of clusters. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

How a channel and its gradients get there, and how blocks tell one another what they found: see
``cluster_macros_program.py``. What the sums are, and what follows from them, stands in ``batch_norm_bwd_program.py``.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.batch_norm_bwd_split_program import AWAY, CENTER, GRADS, PRODUCTS, SCALE, SLOPE, add_chunk
from tileops.kernels.norm.channel_program import go_on, sum_lanes
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
from tileops.kernels.tilelang_build import BULK_COPIES

__all__ = ["PASSES", "clustered_gradients"]


@T.macro
def unite(sums):
    """Add both *sums* over the lanes of a warp; each gets them."""
    sum_lanes(sums, GRADS, 1)
    sum_lanes(sums, PRODUCTS, 1)


@T.macro
def conclude(sums, facts, inverse, owner, channel, grad_weight, grad_bias):
    """From both *sums* over a channel to the *facts* by which ``(grad - away) * scale - (x - center) * slope`` follows.

    Args:
        sums: Of gradients, and of gradients times distances from the mean; becomes work space.
        facts: The mean at CENTER, ``1 / sqrt(var + eps)`` at SLOPE, the weight at SCALE.
        inverse: One over the number of values.
        owner: Whether this thread writes the gradients of weight and bias down.
        channel: Where it writes.
        grad_weight: The gradient of weight.
        grad_bias: The gradient of bias.
    """
    sums[PRODUCTS] = sums[PRODUCTS] * facts[SLOPE]
    if owner:
        grad_weight[channel] = sums[PRODUCTS]
        grad_bias[channel] = sums[GRADS]
    facts[SCALE] = facts[SCALE] * facts[SLOPE]
    facts[SLOPE] = facts[SCALE] * facts[SLOPE] * (sums[PRODUCTS] * inverse)
    facts[AWAY] = sums[GRADS] * inverse


def clustered_gradients(dtype: str, weight_dtype: str, lay: ClusterLayout) -> Any:
    """The gradients of channels that were normalized by their own statistics.

    Args:
        dtype: Of input and gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        lay: The layout; ``blocks * room`` vectors are a channel or more.
    """
    vector, steps, threads, blocks = lay.vector, lay.steps, lay.lanes, lay.blocks
    size, c64 = (T.dynamic(name, "int64") for name in ("size", "c"))
    cluster = {"cluster_dims": blocks} if blocks > 1 else {}

    @T.macro
    def take(grads, held, kept_grads, kept, v, left, end):
        """Take the vectors in place *v* of this thread, where there are any: *left* before *end*."""
        if v * threads < left[0]:
            for k in T.vectorized(vector):
                grads[v * vector + k] = kept_grads[end - left[0] + v * threads, k]
            for k in T.vectorized(vector):
                held[v * vector + k] = kept[end - left[0] + v * threads, k]

    @T.prim_func
    def clustered_channel_gradients(
        grad: T.Tensor((size, vector), dtype),
        x: T.Tensor((size, vector), dtype),
        weight: T.Tensor((c64,), weight_dtype),
        mean: T.Tensor((c64,), "float32"),
        rstd: T.Tensor((c64,), "float32"),
        out: T.Tensor((size, vector), dtype),
        grad_weight: T.Tensor((c64,), weight_dtype),
        grad_bias: T.Tensor((c64,), weight_dtype),
        inverse: T.float32,
        total: T.int32,
        share: T.int32,
        q: T.int32,
        along: T.int32,
        step: T.int64,
        leap: T.int64,
    ):
        with T.Kernel(T.cast(c64, "int32") * blocks, threads=threads, **cluster) as block:
            T.import_source(BULK_COPIES)
            T.annotate_min_blocks_per_sm(lay.resident)
            c, walk = T.cast(c64, "int32"), (q, 0, along, step, leap)
            thread = T.get_thread_binding()
            rank = block % blocks
            channel = block // blocks
            first = rank * share
            mine = T.max(0, T.min(share, total - first))
            piece = T.truncdiv(mine + (lay.chunks - 1), lay.chunks)
            kept_grads = T.alloc_shared((lay.room, vector), dtype)
            kept = T.alloc_shared((lay.room, vector), dtype)
            filled = T.alloc_barrier([2] * lay.chunks)
            exchanged = T.alloc_shared((threads // WARP, FACTS), "float32")
            if blocks > 1:
                own = T.alloc_shared((1, FACTS), "float32")
                pieces = T.alloc_shared((blocks, FACTS), "float32")
            held = T.alloc_local((steps * vector,), dtype)
            grads = T.alloc_local((steps * vector,), dtype)
            offs = T.alloc_local((steps,), "int64")
            at = T.alloc_local((2,), "int32")
            place = T.alloc_local((1,), "int64")
            end = T.alloc_local((1,), "int32")
            left = T.alloc_local((1,), "int32")
            sums = T.alloc_local((4,), "float32")
            work = T.alloc_local((4,), "float32")
            facts = T.alloc_local((4,), "float32")
            if blocks > 1:
                T.cluster_arrive_relaxed()
            if thread < WARP:
                bring(grad, kept_grads, filled, thread, first, mine, piece, channel, c, q, lay)
            elif thread < 2 * WARP:
                bring(x, kept, filled, thread - WARP, first, mine, piece, channel, c, q, lay)
            facts[CENTER] = mean[channel]
            facts[SLOPE] = rstd[channel]
            facts[SCALE] = T.cast(weight[channel], "float32")
            for i in T.unroll(4):
                sums[i] = 0.0
            for j in T.serial(lay.chunks):
                await_piece(end, left, filled, j, mine, piece)
                while left[0] > 0:
                    for v in T.unroll(steps):
                        take(grads, held, kept_grads, kept, v, left, end[0])
                    add_chunk(sums, grads, held, left, facts[CENTER], work, lay)
                    left[0] -= steps * threads
            unite(sums)
            meet_warps(sums, exchanged, threads // WARP)
            unite(sums)
            if blocks > 1:
                meet_blocks(sums, own, pieces, rank, blocks)
                unite(sums)
            conclude(sums, facts, inverse, thread == 0 and rank == 0, channel, grad_weight, grad_bias)
            left[0] = mine - thread
            stand(at, place, first + thread, channel, c, q)
            while left[0] > 0:
                for v in T.unroll(steps):
                    offs[v] = place[0]
                    take(grads, held, kept_grads, kept, v, left, mine)
                    go_on(at, place, walk, lay)
                for v in T.unroll(steps):
                    if v * threads < left[0]:
                        for k in T.vectorized(vector):
                            away = T.cast(grads[v * vector + k], "float32") - facts[AWAY]
                            distance = T.cast(held[v * vector + k], "float32") - facts[CENTER]
                            out[offs[v], k] = away * facts[SCALE] - distance * facts[SLOPE]
                left[0] -= steps * threads

    return clustered_channel_gradients
