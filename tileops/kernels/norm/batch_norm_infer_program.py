"""TileLang programs that normalize channels by given statistics. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

Blocks have a bounded share, all of which a thread has under way at once, so that a launch is as many short blocks as
it takes. What a thread needs of its channels is asked for beside its first values: each access that waits for another
costs a small launch a seventh of its time. No extent is built in.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.infer_layout import EACH, ONE, TWO, Columns, Planes

__all__ = ["PASSES", "scaled_columns", "scaled_planes"]

PASSES = ("TL_DISABLE_SAFE_MEMORY_ACCESS",)
"""What stands beside each access is the check that it needs."""
WIDEST = 16
"""Bytes of the widest load."""


def scaled_planes(dtype: str, weight_dtype: str, running_dtype: str, lay: Planes) -> Any:
    """``(x - running_mean) / sqrt(running_var + eps) * weight + bias``, where a block stays in one plane.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the statistics.
        lay: The layout.
    """
    n64, c64, q64 = (T.dynamic(name, "int64") for name in ("n", "c", "q"))
    vector, steps, threads = lay.vector, lay.steps, lay.threads
    chunks = T.ceildiv(q64, T.int64(threads * steps))
    grid = (chunks * c64 * n64,) if lay.counted else (chunks, c64, n64)

    @T.prim_func
    def normalized_planes(
        x: T.Tensor((n64, c64, q64, vector), dtype),
        weight: T.Tensor((c64,), weight_dtype),
        bias: T.Tensor((c64,), weight_dtype),
        running_mean: T.Tensor((c64,), running_dtype),
        running_var: T.Tensor((c64,), running_dtype),
        out: T.Tensor((n64, c64, q64, vector), dtype),
        eps: T.float32,
    ):
        with T.Kernel(*grid, threads=threads) as block:
            c, q = T.cast(c64, "int32"), T.cast(q64, "int32")
            held = T.alloc_local((steps * vector,), dtype)
            sample = T.alloc_local((1,), "int32")
            channel = T.alloc_local((1,), "int32")
            place = T.alloc_local((1,), "int32")
            of = T.alloc_local((3,), "float32")
            if lay.counted:
                channel[0] = T.truncdiv(T.cast(block, "int32"), T.cast(chunks, "int32"))
                place[0] = T.cast(block, "int32") - channel[0] * T.cast(chunks, "int32")
                sample[0] = T.truncdiv(channel[0], c)
                channel[0] -= sample[0] * c
            else:
                place[0] = T.cast(block[0], "int32")
                channel[0] = T.cast(block[1], "int32")
                sample[0] = T.cast(block[2], "int32")
            place[0] = place[0] * (threads * steps) + T.get_thread_binding()
            for v in T.unroll(steps):
                if place[0] + v * threads < q:
                    for k in T.vectorized(vector):
                        held[v * vector + k] = x[T.cast(sample[0], "int64"), channel[0], place[0] + v * threads, k]
            of[0] = T.cast(running_mean[channel[0]], "float32")
            of[1] = T.rsqrt(T.cast(running_var[channel[0]], "float32") + eps) * T.cast(weight[channel[0]], "float32")
            of[2] = T.cast(bias[channel[0]], "float32")
            for v in T.unroll(steps):
                if place[0] + v * threads < q:
                    for k in T.vectorized(vector):
                        out[T.cast(sample[0], "int64"), channel[0], place[0] + v * threads, k] = (
                            T.cast(held[v * vector + k], "float32") - of[0]
                        ) * of[1] + of[2]

    return normalized_planes


def scaled_columns(dtype: str, weight_dtype: str, running_dtype: str, lay: Columns) -> Any:
    """The same, where a thread stays in one vector of the rows that samples are, and walks over samples.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the statistics.
        lay: The layout.
    """
    n64, m64, c64 = (T.dynamic(name, "int64") for name in ("n", "m", "c"))
    vector, lanes, steps, threads = lay.vector, lay.lanes, lay.steps, lay.threads
    index = "int64" if lay.wide else "int32"
    stacks = threads // lanes
    kept = 1 if lay.kind == ONE else vector
    weight_pack = min(vector, WIDEST // T.dtype(weight_dtype).itemsize)
    running_pack = min(vector, WIDEST // T.dtype(running_dtype).itemsize)
    chunks, shares = T.ceildiv(m64, T.int64(lanes)), T.ceildiv(n64, T.int64(stacks * steps))
    grid = (chunks * shares,) if lay.counted else (chunks, shares)

    @T.macro
    def given(into, place, weight, bias, running_mean, running_var, channel, eps):
        """What channel *channel* has, into place *place*."""
        into[0, place] = T.cast(running_mean[channel], "float32")
        into[1, place] = T.rsqrt(T.cast(running_var[channel], "float32") + eps) * T.cast(weight[channel], "float32")
        into[2, place] = T.cast(bias[channel], "float32")

    @T.macro
    def unpacked(into, weight, bias, running_mean, running_var, first, eps):
        """What the channels from *first* on have."""
        packed = T.alloc_local((2, vector), weight_dtype)
        moved = T.alloc_local((2, vector), running_dtype)
        for p in T.unroll(vector // running_pack):
            for k in T.vectorized(running_pack):
                moved[0, p * running_pack + k] = running_mean[first + p * running_pack + k]
            for k in T.vectorized(running_pack):
                moved[1, p * running_pack + k] = running_var[first + p * running_pack + k]
        for p in T.unroll(vector // weight_pack):
            for k in T.vectorized(weight_pack):
                packed[0, p * weight_pack + k] = weight[first + p * weight_pack + k]
            for k in T.vectorized(weight_pack):
                packed[1, p * weight_pack + k] = bias[first + p * weight_pack + k]
        for k in T.unroll(vector):
            into[0, k] = T.cast(moved[0, k], "float32")
            into[1, k] = T.rsqrt(T.cast(moved[1, k], "float32") + eps) * T.cast(packed[0, k], "float32")
            into[2, k] = T.cast(packed[1, k], "float32")

    @T.prim_func
    def normalized_columns(
        x: T.Tensor((n64, m64, vector), dtype),
        weight: T.Tensor((c64,), weight_dtype),
        bias: T.Tensor((c64,), weight_dtype),
        running_mean: T.Tensor((c64,), running_dtype),
        running_var: T.Tensor((c64,), running_dtype),
        out: T.Tensor((n64, m64, vector), dtype),
        eps: T.float32,
        plane: T.int32,
    ):
        with T.Kernel(*grid, threads=threads) as block:
            n, m, c = T.cast(n64, "int32"), T.cast(m64, index), T.cast(c64, "int32")
            size = T.cast(plane, index)
            thread = T.get_thread_binding()
            held = T.alloc_local((steps * vector,), dtype)
            column = T.alloc_local((1,), index)
            sample = T.alloc_local((1,), "int32")
            channel = T.alloc_local((2,), "int32")
            border = T.alloc_local((1,), "int32")
            of = T.alloc_local((3, kept), "float32")
            if lay.counted:
                sample[0] = T.truncdiv(T.cast(block, "int32"), T.cast(chunks, "int32"))
                column[0] = T.cast(T.cast(block, "int32") - sample[0] * T.cast(chunks, "int32"), index)
            else:
                column[0] = T.cast(block[0], index)
                sample[0] = T.cast(block[1], "int32")
            column[0] = column[0] * lanes + thread % lanes
            sample[0] = sample[0] * (stacks * steps) + thread // lanes
            if column[0] < m:
                for v in T.unroll(steps):
                    if sample[0] + v * stacks < n:
                        for k in T.vectorized(vector):
                            held[v * vector + k] = x[T.cast(sample[0] + v * stacks, "int64"), column[0], k]
                if lay.kind == ONE:
                    channel[0] = T.cast(T.truncdiv(column[0], size), "int32")
                    given(of, 0, weight, bias, running_mean, running_var, channel[0], eps)
                elif lay.kind == EACH:
                    unpacked(of, weight, bias, running_mean, running_var, column[0] * vector, eps)
                elif lay.kind == TWO:
                    pair = T.alloc_local((3, 2), "float32")
                    channel[0] = T.cast(T.truncdiv(column[0] * vector, size), "int32")
                    channel[1] = T.min(channel[0] + 1, c - 1)
                    border[0] = T.cast(T.cast(channel[0] + 1, index) * size - column[0] * vector, "int32")
                    given(pair, 0, weight, bias, running_mean, running_var, channel[0], eps)
                    given(pair, 1, weight, bias, running_mean, running_var, channel[1], eps)
                    for k in T.unroll(vector):
                        for i in T.unroll(3):
                            of[i, k] = T.if_then_else(k < border[0], pair[i, 0], pair[i, 1])
                else:
                    for k in T.unroll(vector):
                        channel[0] = T.cast(T.truncdiv(column[0] * vector + k, size), "int32")
                        given(of, k, weight, bias, running_mean, running_var, channel[0], eps)
                for v in T.unroll(steps):
                    if sample[0] + v * stacks < n:
                        for k in T.vectorized(vector):
                            out[T.cast(sample[0] + v * stacks, "int64"), column[0], k] = (
                                T.cast(held[v * vector + k], "float32") - of[0, 0 if kept == 1 else k]
                            ) * of[1, 0 if kept == 1 else k] + of[2, 0 if kept == 1 else k]

    return normalized_columns
