"""TileLang programs that normalize channels by their own statistics. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

They share one signature: input, weight and bias (of ``w`` channels, taken in turn where the input has more of them),
running statistics where they are kept, output, mean and ``spread``. The spread is ``1 / sqrt(var + eps)``, or the
unbiased variance where ``unbiased`` is asked for.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_program import (
    ACROSS,
    advance,
    load,
    meet,
    put_back,
    settle,
    start,
    take,
)

__all__ = ["PASSES", "streamed_channels"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_DISABLE_SAFE_MEMORY_ACCESS")
"""Barriers stand where they are needed, and so do conditions."""

WARP = 32


def _signature(
    body: Any, dtype: str, weight_dtype: str, running_dtype: str | None, vector: int, grid: Any, threads: int
) -> Any:
    """The program that runs *body* in each block, with or without running statistics."""
    n, c, q, w = (T.dynamic(name, "int64") for name in "ncqw")

    if running_dtype is None:

        @T.prim_func
        def normalized_channels(
            x: T.Tensor((n, c, q, vector), dtype),
            weight: T.Tensor((w,), weight_dtype),
            bias: T.Tensor((w,), weight_dtype),
            out: T.Tensor((n, c, q, vector), dtype),
            mean: T.Tensor((c,), "float32"),
            spread: T.Tensor((c,), "float32"),
            eps: T.float32,
            inverse: T.float32,
            correction: T.float32,
        ):
            with T.Kernel(grid(c), threads=threads) as block:
                body(block, x, weight, bias, mean, mean, out, mean, spread, eps, eps, inverse, correction, n, c, q, w)

        return normalized_channels

    @T.prim_func
    def normalized_and_tracked_channels(
        x: T.Tensor((n, c, q, vector), dtype),
        weight: T.Tensor((w,), weight_dtype),
        bias: T.Tensor((w,), weight_dtype),
        running_mean: T.Tensor((c,), running_dtype),
        running_var: T.Tensor((c,), running_dtype),
        out: T.Tensor((n, c, q, vector), dtype),
        mean: T.Tensor((c,), "float32"),
        spread: T.Tensor((c,), "float32"),
        eps: T.float32,
        momentum: T.float32,
        inverse: T.float32,
        correction: T.float32,
    ):
        with T.Kernel(grid(c), threads=threads) as block:
            body(
                block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, inverse,
                correction, n, c, q, w,
            )  # fmt: skip

    return normalized_and_tracked_channels


def streamed_channels(
    dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: ChannelLayout
) -> Any:
    """Channels of any length: a block reads its channels twice, the second time from the end.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout, of one stack.
    """
    tracked = running_dtype is not None
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups

    @T.macro
    def body(
        block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, inverse, correction,
        n64, c64, q64, w64,
    ):  # fmt: skip
        n, c, q, w = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32"), T.cast(w64, "int32")
        thread = T.get_thread_binding()
        group = thread % groups
        lane = thread // groups
        channel = block * groups + group
        inside = channel < c
        tiles = T.ceildiv(T.cast(n, "int64") * T.cast(q, "int64"), T.int64(lanes * steps))
        held = T.alloc_local((steps * vector,), dtype)
        there = T.alloc_local((1,), "int32")
        places = T.alloc_local((2 * steps,), "int32")
        at = T.alloc_local((4,), "int32")
        origin = T.alloc_local((1,), "float32")
        pivot = T.alloc_local((1,), "float32")
        of = T.alloc_local((3,), "float32")
        work = T.alloc_local((6,), "float32")
        sums = T.alloc_local((ACROSS,), "float32")
        was = T.alloc_local((2,), "float32")
        scale = T.alloc_local((1,), "float32")
        shift = T.alloc_local((1,), "float32")
        parts = T.alloc_shared((3, 1, groups, lay.warps), "float32") if lay.warps > 1 else sums
        if inside:
            origin[0] = T.cast(x[0, channel, 0, 0], "float32")
            scale[0] = T.cast(weight[T.truncmod(channel, w)], "float32")
            shift[0] = T.cast(bias[T.truncmod(channel, w)], "float32")
        if tracked and inside and lane == 0:
            was[0] = T.cast(running_mean[channel], "float32")
            was[1] = T.cast(running_var[channel], "float32")
        pivot[0] = origin[0]
        for i in T.unroll(3):
            of[i] = 0.0
        start(at, T.cast(lane, "int64"), lanes, q)
        for _ in T.serial(tiles):
            there[0] = 0
            for v in T.unroll(steps):
                there[0] += T.if_then_else(inside and at[0] < n, 1, 0)
                load(held, v, x, at, channel, inside, n, vector)
                advance(at, q)
            take(of, pivot, held, there[0], work, lay)
        meet(of, pivot, origin, sums, inverse, parts, 0, thread // WARP, group, lay)
        settle(
            pivot, sums, inverse, correction, scale, shift, was, inside and lane == 0, channel,
            (mean, spread, running_mean, running_var), eps, momentum, tracked, unbiased,
        )  # fmt: skip
        for _ in T.serial(tiles):
            for v in T.unroll(steps):
                put_back(at, q)
                places[2 * v] = at[0]
                places[2 * v + 1] = at[1]
                load(held, v, x, at, channel, inside, n, vector)
            for v in T.unroll(steps):
                if inside and places[2 * v] < n:
                    for k in T.vectorized(vector):
                        out[places[2 * v], channel, places[2 * v + 1], k] = (
                            T.cast(held[v * vector + k], "float32") - pivot[0]
                        ) * scale[0] + shift[0]

    def grid(c: Any) -> Any:
        return T.ceildiv(c, groups)

    return _signature(body, dtype, weight_dtype, running_dtype, vector, grid, lay.threads)
