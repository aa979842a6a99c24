"""TileLang programs of the gradient of batch normalization in training. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

With ``normal = (x - mean) * rstd``, the gradients of bias and weight are the sums of ``grad`` and of ``grad * normal``
over a channel, and that of the input is ``weight * rstd * (grad - mean(grad) - normal * mean(grad * normal))``.
Threads add chunk by chunk, and keep what each addition rounds off (Kahan).
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_program import advance, load, put_back, start, sum_lanes

__all__ = ["streamed_gradients"]

WARP = 32
GRADS, PRODUCTS = 0, 1
"""Which sum is which."""


@T.macro
def facts(of, channel, inside, mean, rstd, weight):
    """Load what is known of the channel: mean, ``1 / sqrt(var + eps)``, weight."""
    of[0] = 0.0
    of[1] = 0.0
    of[2] = 0.0
    if inside:
        of[0] = mean[channel]
        of[1] = rstd[channel]
        of[2] = T.cast(weight[channel], "float32")


@T.macro
def add_chunk(sums, grads, held, valid, of, work, lay: ChannelLayout):
    """Add the chunk that is held to both *sums*; places 2 and 3 of them are what was rounded off."""
    work[0] = 0.0
    work[1] = 0.0
    for v in T.unroll(lay.steps):
        if valid[v] != 0:
            for k in T.unroll(lay.vector):
                work[0] += T.cast(grads[v * lay.vector + k], "float32")
                work[1] += T.cast(grads[v * lay.vector + k], "float32") * (
                    (T.cast(held[v * lay.vector + k], "float32") - of[0]) * of[1]
                )
    for i in T.unroll(2):
        work[2] = work[i] - sums[2 + i]
        work[3] = sums[i] + work[2]
        sums[2 + i] = (work[3] - sums[i]) - work[2]
        sums[i] = work[3]


@T.macro
def add_block(sums, exchanged, stack, warp, group, lay: ChannelLayout):
    """Add both *sums* over the threads that share a channel; each gets the result."""
    sum_lanes(sums, 0, lay.groups)
    sum_lanes(sums, 1, lay.groups)
    if lay.warps > 1:
        if T.get_thread_binding() % WARP < lay.groups:
            exchanged[stack, warp, group, 0] = sums[0]
            exchanged[stack, warp, group, 1] = sums[1]
        T.sync_threads()
        sums[0] = 0.0
        sums[1] = 0.0
        for i in T.unroll(lay.warps):
            sums[0] += exchanged[stack, i, group, 0]
            sums[1] += exchanged[stack, i, group, 1]


@T.macro
def close(sums, owner, channel, grad_weight, grad_bias, values):
    """The *owner* of the channel writes both sums down; then they become means."""
    if owner:
        grad_weight[channel] = sums[PRODUCTS]
        grad_bias[channel] = sums[GRADS]
    sums[0] = sums[0] / values
    sums[1] = sums[1] / values


@T.macro
def put(out, sample, channel, place, grads, held, v, of, sums, vector):
    """Write the gradient of the vector in place *v*."""
    for k in T.vectorized(vector):
        normal = (T.cast(held[v * vector + k], "float32") - of[0]) * of[1]
        out[sample, channel, place, k] = (
            of[2] * of[1] * (T.cast(grads[v * vector + k], "float32") - sums[GRADS] - normal * sums[PRODUCTS])
        )


def _signature(body: Any, dtype: str, weight_dtype: str, lay: ChannelLayout) -> Any:
    n, c, q = (T.dynamic(name, "int64") for name in "ncq")
    vector = lay.vector

    @T.prim_func
    def channel_gradients(
        grad: T.Tensor((n, c, q, vector), dtype),
        x: T.Tensor((n, c, q, vector), dtype),
        weight: T.Tensor((c,), weight_dtype),
        mean: T.Tensor((c,), "float32"),
        rstd: T.Tensor((c,), "float32"),
        out: T.Tensor((n, c, q, vector), dtype),
        grad_weight: T.Tensor((c,), weight_dtype),
        grad_bias: T.Tensor((c,), weight_dtype),
    ):
        with T.Kernel(T.ceildiv(c, lay.channels), threads=lay.threads) as block:
            body(block, grad, x, weight, mean, rstd, out, grad_weight, grad_bias, n, c, q)

    return channel_gradients


def streamed_gradients(dtype: str, weight_dtype: str, lay: ChannelLayout) -> Any:
    """Channels of any length: a block reads its channels twice, the second time from the end.

    Args:
        dtype: Of input and gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        lay: The layout, of one stack.
    """
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups

    @T.macro
    def body(block, grad, x, weight, mean, rstd, out, grad_weight, grad_bias, n64, c64, q64):
        n, c, q = T.cast(n64, "int32"), T.cast(c64, "int32"), T.cast(q64, "int32")
        thread = T.get_thread_binding()
        group = thread % groups
        lane = thread // groups
        channel = block * groups + group
        inside = channel < c
        tiles = T.ceildiv(n64 * q64, T.int64(lanes * steps))
        held = T.alloc_local((steps * vector,), dtype)
        grads = T.alloc_local((steps * vector,), dtype)
        valid = T.alloc_local((steps,), "int32")
        places = T.alloc_local((2 * steps,), "int32")
        at = T.alloc_local((4,), "int32")
        of = T.alloc_local((3,), "float32")
        sums = T.alloc_local((4,), "float32")
        work = T.alloc_local((4,), "float32")
        if lay.warps > 1:
            exchanged = T.alloc_shared((1, lay.warps, groups, 2), "float32")
        facts(of, channel, inside, mean, rstd, weight)
        for i in T.unroll(4):
            sums[i] = 0.0
        start(at, T.cast(lane, "int64"), lanes, q)
        for _ in T.serial(tiles):
            for v in T.unroll(steps):
                valid[v] = T.if_then_else(inside and at[0] < n, 1, 0)
                load(grads, v, grad, at, channel, inside, n, vector)
                load(held, v, x, at, channel, inside, n, vector)
                advance(at, q)
            add_chunk(sums, grads, held, valid, of, work, lay)
        add_block(sums, exchanged if lay.warps > 1 else sums, 0, thread // WARP, group, lay)
        close(sums, inside and lane == 0, channel, grad_weight, grad_bias, T.cast(n64 * q64 * vector, "float32"))
        for _ in T.serial(tiles):
            for v in T.unroll(steps):
                put_back(at, q)
                places[2 * v] = at[0]
                places[2 * v + 1] = at[1]
                load(grads, v, grad, at, channel, inside, n, vector)
                load(held, v, x, at, channel, inside, n, vector)
            for v in T.unroll(steps):
                if inside and places[2 * v] < n:
                    put(out, places[2 * v], channel, places[2 * v + 1], grads, held, v, of, sums, vector)

    return _signature(body, dtype, weight_dtype, lay)
