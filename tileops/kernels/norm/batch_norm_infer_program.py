"""The TileLang program that normalizes channels by given statistics. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.
"""

from typing import Any

import tilelang.language as T

__all__ = ["scaled_planes"]

MOST_BLOCKS = 2**30
"""Blocks of a launch; beyond, each takes more than one tile."""


def scaled_planes(dtype: str, weight_dtype: str, running_dtype: str, vector: int, steps: int, threads: int) -> Any:
    """``(x - running_mean) / sqrt(running_var + eps) * weight + bias`` in one pass.

    The input is one run of vectors, whatever its axes; a thread keeps the channel in which it stands beside the plane,
    so that planes of any size fill the blocks.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the statistics.
        vector: Values of one load.
        steps: Vectors that a thread holds at a time.
        threads: Threads of a block.
    """
    planes, c64, q64 = (T.dynamic(name, "int64") for name in ("planes", "c", "q"))
    tile = threads * steps

    @T.macro
    def advance(plane, at, c, q):
        """One step on: *at* has place and channel, then how many planes, places and channels a step goes."""
        plane[0] += T.cast(at[2], "int64")
        at[0] += at[3]
        at[1] += at[4]
        if at[0] >= q:
            at[0] -= q
            at[1] += 1
            plane[0] += T.int64(1)
        if at[1] >= c:
            at[1] -= c

    @T.prim_func
    def normalized_planes(
        x: T.Tensor((planes, q64, vector), dtype),
        weight: T.Tensor((c64,), weight_dtype),
        bias: T.Tensor((c64,), weight_dtype),
        running_mean: T.Tensor((c64,), running_dtype),
        running_var: T.Tensor((c64,), running_dtype),
        out: T.Tensor((planes, q64, vector), dtype),
        eps: T.float32,
    ):
        with T.Kernel(T.min(T.ceildiv(planes * q64, tile), MOST_BLOCKS), threads=threads) as block:
            c, q = T.cast(c64, "int32"), T.cast(q64, "int32")
            thread = T.get_thread_binding()
            tiles = T.ceildiv(planes * q64, T.int64(tile))
            share = T.ceildiv(tiles, T.int64(MOST_BLOCKS))
            first = T.cast(block, "int64") * share * tile + thread
            held = T.alloc_local((steps * vector,), dtype)
            plane = T.alloc_local((1,), "int64")
            planes_of = T.alloc_local((steps,), "int64")
            places = T.alloc_local((steps,), "int32")
            at = T.alloc_local((5,), "int32")
            mean = T.alloc_local((steps,), "float32")
            scale = T.alloc_local((steps,), "float32")
            shift = T.alloc_local((steps,), "float32")
            plane[0] = T.truncdiv(first, q64)
            at[0] = T.cast(T.truncmod(first, q64), "int32")
            at[1] = T.cast(T.truncmod(plane[0], c64), "int32")
            at[2] = T.truncdiv(T.int32(threads), q)
            at[3] = T.truncmod(T.int32(threads), q)
            at[4] = T.truncmod(at[2], c)
            for _ in T.serial(share):
                for v in T.unroll(steps):
                    planes_of[v] = plane[0]
                    places[v] = at[0]
                    if plane[0] < planes:
                        for k in T.vectorized(vector):
                            held[v * vector + k] = x[plane[0], at[0], k]
                        mean[v] = T.cast(running_mean[at[1]], "float32")
                        scale[v] = T.cast(running_var[at[1]], "float32")
                        shift[v] = T.cast(weight[at[1]], "float32")
                        scale[v] = T.rsqrt(scale[v] + eps) * shift[v]
                        shift[v] = T.cast(bias[at[1]], "float32")
                    advance(plane, at, c, q)
                for v in T.unroll(steps):
                    if planes_of[v] < planes:
                        for k in T.vectorized(vector):
                            out[planes_of[v], places[v], k] = (
                                T.cast(held[v * vector + k], "float32") - mean[v]
                            ) * scale[v] + shift[v]

    return normalized_planes
