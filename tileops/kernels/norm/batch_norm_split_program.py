"""TileLang programs of channels that are cut over blocks. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

Channels are normalized by their own statistics in two launches: the statistics of the parts, then the rest. Every block
of the second merges what it needs of the first, which takes less time than a launch for it would.
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
    merge_one,
    start,
)

__all__ = ["merged_channels", "parts_of_channels"]

WARP = 32


def parts_of_channels(dtype: str, lay: ChannelLayout) -> Any:
    """The statistics of the parts of channels: the first half of channels that are cut over blocks.

    ``parts`` holds, for each channel, counts, means about the channel's first value, and squares of its parts.

    Args:
        dtype: Of the input.
        lay: The layout, of one stack.
    """
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups
    n64, c64, q64 = (T.dynamic(name, "int64") for name in "ncq")
    cuts = T.dynamic("cuts")

    @T.prim_func
    def channel_parts(x: T.Tensor((n64, c64, q64, vector), dtype), parts: T.Tensor((c64, 3, cuts), "float32")):
        with T.Kernel(T.ceildiv(c64, groups), cuts, threads=lay.threads) as (block, cut):
            n, c, q = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32")
            thread = T.get_thread_binding()
            group = thread % groups
            lane = thread // groups
            channel = block * groups + group
            inside = channel < c
            tiles = T.ceildiv(T.cast(n, "int64") * T.cast(q, "int64"), T.int64(lanes * steps))
            share = T.ceildiv(tiles, T.cast(cuts, "int64"))
            held = T.alloc_local((steps * vector,), dtype)
            valid = T.alloc_local((steps,), "int32")
            at = T.alloc_local((4,), "int32")
            origin = T.alloc_local((1,), "float32")
            of = T.alloc_local((3,), "float32")
            work = T.alloc_local((5,), "float32")
            if lay.warps > 1:
                exchanged = T.alloc_shared((1, lay.warps, groups, 3), "float32")
            if inside:
                origin[0] = T.cast(x[0, channel, 0, 0], "float32")
            of[COUNT] = 0.0
            of[MEAN] = 0.0
            of[SQUARES] = 0.0
            start(at, cut * share * (lanes * steps) + lane, lanes, q)
            for _ in T.serial(T.max(T.int64(0), T.min(share, tiles - cut * share))):
                for v in T.unroll(steps):
                    valid[v] = T.if_then_else(inside and at[0] < n, 1, 0)
                    load(held, v, x, at, channel, inside, n, vector)
                    advance(at, q)
                gather(of, origin, held, valid, work, lay)
            merge_lanes(of, work, groups)
            if lay.warps > 1:
                merge_block(of, exchanged, 0, thread // WARP, group, lay)
            if inside and lane == 0:
                for i in T.unroll(3):
                    parts[channel, i, cut] = of[i]

    return channel_parts


def merged_channels(
    dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, lay: ChannelLayout
) -> Any:
    """The second half of channels that are cut over blocks.

    Each block merges the parts of its channels, and normalizes its own part. Blocks begin with what the first half
    read last.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: What the spread is.
        lay: The layout, of one stack.
    """
    tracked = running_dtype is not None
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups
    n64, c64, q64, w64 = (T.dynamic(name, "int64") for name in "ncqw")
    cuts = T.dynamic("cuts")

    @T.macro
    def body(bx, by, parts, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum):
        n, c, q, w = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32"), T.cast(w64, "int32")
        thread = T.get_thread_binding()
        group = thread % groups
        lane = thread // groups
        cut = cuts - 1 - by
        channel = (T.ceildiv(c, groups) - 1 - bx) * groups + group
        inside = channel < c
        tiles = T.ceildiv(T.cast(n, "int64") * T.cast(q, "int64"), T.int64(lanes * steps))
        share = T.ceildiv(tiles, T.cast(cuts, "int64"))
        held = T.alloc_local((steps * vector,), dtype)
        places = T.alloc_local((2 * steps,), "int32")
        at = T.alloc_local((4,), "int32")
        origin = T.alloc_local((1,), "float32")
        of = T.alloc_local((3,), "float32")
        work = T.alloc_local((5,), "float32")
        scale = T.alloc_local((1,), "float32")
        shift = T.alloc_local((1,), "float32")
        if lay.warps > 1:
            exchanged = T.alloc_shared((1, lay.warps, groups, 3), "float32")
        of[COUNT] = 0.0
        of[MEAN] = 0.0
        of[SQUARES] = 0.0
        if inside:
            origin[0] = T.cast(x[0, channel, 0, 0], "float32")
            scale[0] = T.cast(weight[T.truncmod(channel, w)], "float32")
            shift[0] = T.cast(bias[T.truncmod(channel, w)], "float32")
            for i in T.serial(T.ceildiv(cuts, lanes)):
                if i * lanes + lane < cuts:
                    merge_one(
                        of,
                        parts[channel, COUNT, i * lanes + lane],
                        parts[channel, MEAN, i * lanes + lane],
                        parts[channel, SQUARES, i * lanes + lane],
                        work,
                    )
        merge_lanes(of, work, groups)
        if lay.warps > 1:
            merge_block(of, exchanged, 0, thread // WARP, group, lay)
        keep(
            of, origin, channel, inside and lane == 0 and cut == 0, running_mean, running_var, mean, spread, eps,
            momentum, tracked, unbiased,
        )  # fmt: skip
        scale[0] = scale[0] * of[SQUARES]
        start(at, cut * share * (lanes * steps) + lane, lanes, q)
        for _ in T.serial(T.max(T.int64(0), T.min(share, tiles - cut * share))):
            for v in T.unroll(steps):
                places[2 * v] = at[0]
                places[2 * v + 1] = at[1]
                load(held, v, x, at, channel, inside, n, vector)
                advance(at, q)
            for v in T.unroll(steps):
                if inside and places[2 * v] < n:
                    for k in T.vectorized(vector):
                        out[places[2 * v], channel, places[2 * v + 1], k] = (
                            T.cast(held[v * vector + k], "float32") - origin[0] - of[MEAN]
                        ) * scale[0] + shift[0]

    if running_dtype is None:

        @T.prim_func
        def merged_channel_parts(
            parts: T.Tensor((c64, 3, cuts), "float32"),
            x: T.Tensor((n64, c64, q64, vector), dtype),
            weight: T.Tensor((w64,), weight_dtype),
            bias: T.Tensor((w64,), weight_dtype),
            out: T.Tensor((n64, c64, q64, vector), dtype),
            mean: T.Tensor((c64,), "float32"),
            spread: T.Tensor((c64,), "float32"),
            eps: T.float32,
        ):
            with T.Kernel(T.ceildiv(c64, groups), cuts, threads=lay.threads) as (bx, by):
                body(bx, by, parts, x, weight, bias, mean, mean, out, mean, spread, eps, eps)

        return merged_channel_parts

    @T.prim_func
    def merged_and_tracked_channel_parts(
        parts: T.Tensor((c64, 3, cuts), "float32"),
        x: T.Tensor((n64, c64, q64, vector), dtype),
        weight: T.Tensor((w64,), weight_dtype),
        bias: T.Tensor((w64,), weight_dtype),
        running_mean: T.Tensor((c64,), running_dtype),
        running_var: T.Tensor((c64,), running_dtype),
        out: T.Tensor((n64, c64, q64, vector), dtype),
        mean: T.Tensor((c64,), "float32"),
        spread: T.Tensor((c64,), "float32"),
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(T.ceildiv(c64, groups), cuts, threads=lay.threads) as (bx, by):
            body(bx, by, parts, x, weight, bias, running_mean, running_var, out, mean, spread, eps, momentum)

    return merged_and_tracked_channel_parts
