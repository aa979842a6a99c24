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
    COUNT,
    MEAN,
    SQUARES,
    advance,
    gather,
    keep,
    load,
    merge_block,
    merge_lanes,
    put_back,
    start,
    sum_lanes,
)

__all__ = ["held_channels", "own_channels", "streamed_channels"]

WARP = 32


@T.macro
def put(out, held, v, at, channel, inside, n, vector, of, origin, scale, shift):
    """Write the normalized vector in place *v* to *at*, where there is one."""
    if inside and at[0] < n:
        for k in T.vectorized(vector):
            out[at[0], channel, at[1], k] = (T.cast(held[v * vector + k], "float32") - origin[0] - of[MEAN]) * scale[
                0
            ] + shift[0]


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
        ):
            with T.Kernel(grid(c), threads=threads) as block:
                body(block, x, weight, bias, mean, mean, out, mean, spread, eps, eps, n, c, q, w)

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
    ):
        with T.Kernel(grid(c), threads=threads) as block:
            body(block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, n, c, q, w)

    return normalized_and_tracked_channels


def own_channels(
    dtype: str,
    weight_dtype: str,
    running_dtype: str | None,
    unbiased: bool,
    samples: int,
    spatial: int,
    vector: int,
    threads: int,
) -> Any:
    """Channels of a few values, each in the registers of one thread.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        samples: Size of the first axis.
        spatial: Values of a plane.
        vector: Values of one load.
        threads: Threads of a block.
    """
    places = spatial // vector
    values = samples * spatial
    tracked = running_dtype is not None

    @T.macro
    def body(block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, n64, c64, q64, w64):
        c, w = T.cast(c64, "int32"), T.cast(w64, "int32")
        channel = block * threads + T.get_thread_binding()
        held = T.alloc_local((values,), dtype)
        origin = T.alloc_local((1,), "float32")
        of = T.alloc_local((3,), "float32")
        scale = T.alloc_local((1,), "float32")
        shift = T.alloc_local((1,), "float32")
        if channel < c:
            for b in T.unroll(samples):
                for s in T.unroll(places):
                    for k in T.vectorized(vector):
                        held[(b * places + s) * vector + k] = x[b, channel, s, k]
            scale[0] = T.cast(weight[T.truncmod(channel, w)], "float32")
            shift[0] = T.cast(bias[T.truncmod(channel, w)], "float32")
            origin[0] = T.cast(held[0], "float32")
            of[COUNT] = T.float32(values)
            of[MEAN] = 0.0
            of[SQUARES] = 0.0
            for i in T.unroll(values):
                of[MEAN] += T.cast(held[i], "float32") - origin[0]
            of[MEAN] = of[MEAN] / T.float32(values)
            for i in T.unroll(values):
                of[SQUARES] += (T.cast(held[i], "float32") - origin[0] - of[MEAN]) * (
                    T.cast(held[i], "float32") - origin[0] - of[MEAN]
                )
            keep(of, origin, channel, True, running_mean, running_var, mean, spread, eps, momentum, tracked, unbiased)
            scale[0] = scale[0] * of[SQUARES]
            for b in T.unroll(samples):
                for s in T.unroll(places):
                    for k in T.vectorized(vector):
                        out[b, channel, s, k] = (
                            T.cast(held[(b * places + s) * vector + k], "float32") - origin[0] - of[MEAN]
                        ) * scale[0] + shift[0]

    def grid(c: Any) -> Any:
        return T.ceildiv(c, threads)

    return _signature(body, dtype, weight_dtype, running_dtype, vector, grid, threads)


def held_channels(dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: ChannelLayout) -> Any:
    """Channels that the threads of a block hold in registers between load and store.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout; ``lanes * steps`` vectors are a channel or more.
    """
    tracked = running_dtype is not None
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups

    @T.macro
    def body(block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, n64, c64, q64, w64):
        n, c, q, w = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32"), T.cast(w64, "int32")
        thread = T.get_thread_binding()
        stack = thread // (groups * lanes)
        warp = thread % (groups * lanes) // WARP
        group = thread % groups
        lane = thread % (groups * lanes) // groups
        channel = (block * lay.stacks + stack) * groups + group
        inside = channel < c
        held = T.alloc_local((steps * vector,), dtype)
        at = T.alloc_local((4,), "int32")
        origin = T.alloc_local((1,), "float32")
        of = T.alloc_local((3,), "float32")
        work = T.alloc_local((2,), "float32")
        scale = T.alloc_local((1,), "float32")
        shift = T.alloc_local((1,), "float32")
        if lay.warps > 1:
            parts = T.alloc_shared((lay.stacks, lay.warps, groups, 3), "float32")
        start(at, T.cast(lane, "int64"), lanes, q)
        for v in T.unroll(steps):
            load(held, v, x, at, channel, inside, n, vector)
            advance(at, q)
        if inside:
            origin[0] = T.cast(x[0, channel, 0, 0], "float32")
            scale[0] = T.cast(weight[T.truncmod(channel, w)], "float32")
            shift[0] = T.cast(bias[T.truncmod(channel, w)], "float32")

        start(at, T.cast(lane, "int64"), lanes, q)
        of[COUNT] = 0.0
        of[MEAN] = 0.0
        of[SQUARES] = 0.0
        for v in T.unroll(steps):
            if inside and at[0] < n:
                of[COUNT] += T.float32(vector)
                for k in T.unroll(vector):
                    of[MEAN] += T.cast(held[v * vector + k], "float32") - origin[0]
            advance(at, q)
        work[0] = of[COUNT]
        sum_lanes(of, COUNT, groups)
        sum_lanes(of, MEAN, groups)
        of[MEAN] = of[MEAN] / T.max(of[COUNT], T.float32(1.0))
        work[1] = work[0]
        for v in T.unroll(steps):
            if work[1] > T.float32(0.0):
                work[1] -= T.float32(vector)
                for k in T.unroll(vector):
                    of[SQUARES] += (T.cast(held[v * vector + k], "float32") - origin[0] - of[MEAN]) * (
                        T.cast(held[v * vector + k], "float32") - origin[0] - of[MEAN]
                    )
        sum_lanes(of, SQUARES, groups)
        if lay.warps > 1:
            merge_block(of, parts, stack, warp, group, lay)
        keep(
            of, origin, channel, inside and lane == 0, running_mean, running_var, mean, spread, eps, momentum,
            tracked, unbiased,
        )  # fmt: skip
        scale[0] = scale[0] * of[SQUARES]
        start(at, T.cast(lane, "int64"), lanes, q)
        for v in T.unroll(steps):
            put(out, held, v, at, channel, inside, n, vector, of, origin, scale, shift)
            advance(at, q)

    def grid(c: Any) -> Any:
        return T.ceildiv(c, lay.channels)

    return _signature(body, dtype, weight_dtype, running_dtype, vector, grid, lay.threads)


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
    def body(block, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum, n64, c64, q64, w64):
        n, c, q, w = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32"), T.cast(w64, "int32")
        thread = T.get_thread_binding()
        group = thread % groups
        lane = thread // groups
        channel = block * groups + group
        inside = channel < c
        tiles = T.ceildiv(T.cast(n, "int64") * T.cast(q, "int64"), T.int64(lanes * steps))
        held = T.alloc_local((steps * vector,), dtype)
        valid = T.alloc_local((steps,), "int32")
        places = T.alloc_local((2 * steps,), "int32")
        at = T.alloc_local((4,), "int32")
        origin = T.alloc_local((1,), "float32")
        of = T.alloc_local((3,), "float32")
        work = T.alloc_local((5,), "float32")
        scale = T.alloc_local((1,), "float32")
        shift = T.alloc_local((1,), "float32")
        if lay.warps > 1:
            parts = T.alloc_shared((1, lay.warps, groups, 3), "float32")
        if inside:
            origin[0] = T.cast(x[0, channel, 0, 0], "float32")
            scale[0] = T.cast(weight[T.truncmod(channel, w)], "float32")
            shift[0] = T.cast(bias[T.truncmod(channel, w)], "float32")
        of[COUNT] = 0.0
        of[MEAN] = 0.0
        of[SQUARES] = 0.0
        start(at, T.cast(lane, "int64"), lanes, q)
        for _ in T.serial(tiles):
            for v in T.unroll(steps):
                valid[v] = T.if_then_else(inside and at[0] < n, 1, 0)
                load(held, v, x, at, channel, inside, n, vector)
                advance(at, q)
            gather(of, origin, held, valid, work, lay)
        merge_lanes(of, work, groups)
        if lay.warps > 1:
            merge_block(of, parts, 0, thread // WARP, group, lay)
        keep(
            of, origin, channel, inside and lane == 0, running_mean, running_var, mean, spread, eps, momentum,
            tracked, unbiased,
        )  # fmt: skip
        scale[0] = scale[0] * of[SQUARES]
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
                            T.cast(held[v * vector + k], "float32") - origin[0] - of[MEAN]
                        ) * scale[0] + shift[0]

    def grid(c: Any) -> Any:
        return T.ceildiv(c, groups)

    return _signature(body, dtype, weight_dtype, running_dtype, vector, grid, lay.threads)
