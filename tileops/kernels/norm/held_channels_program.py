"""TileLang programs of channels that threads hold between load and store. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

Small inputs are a matter of latency: everything that is loaded is asked for before anything is waited for, an
exchange between warps takes one barrier, and little is unrolled, as instructions come from memory too.

Statistics are taken in two looks at what is held. The first finds a mean about the channel's first value; the second
the sums of the distances from that mean and of their squares, so that what the first rounded off is put right.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.channel_program import ACROSS, begin, go_back, go_on, settle, sum_over

__all__ = ["PASSES", "held_channels", "held_gradients"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_DISABLE_SAFE_MEMORY_ACCESS")
"""Barriers stand where they are needed, and so do conditions."""

WARP = 32


def held_channels(
    dtype: str, weight_dtype: str, running_dtype: str | None, unbiased: bool, in_turn: bool, lay: ChannelLayout
) -> Any:
    """Channels that are normalized by their own statistics.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics; ``None`` where none are kept.
        unbiased: Whether the unbiased variance is returned in the place of ``1 / sqrt(var + eps)``.
        in_turn: Whether weight and bias are of fewer channels than the input, and taken in turn.
        lay: The layout; ``lanes * steps`` vectors are a channel or more.
    """
    tracked = running_dtype is not None
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups
    size, c64, w64 = (T.dynamic(name, "int64") for name in ("size", "c", "w"))

    @T.macro
    def body(
        block,
        x,
        weight,
        bias,
        running_mean,
        running_var,
        out,
        mean,
        spread,
        eps,
        momentum,
        inverse,
        correction,
        vectors,
        walk,
    ):
        c, w = T.cast(c64, "int32"), T.cast(w64, "int32")
        q = walk[0]
        thread = T.get_thread_binding()
        stack = thread // (groups * lanes)
        warp = thread % (groups * lanes) // WARP
        group = thread % groups
        lane = thread % (groups * lanes) // groups
        channel = (block * lay.stacks + stack) * groups + group
        inside = channel < c
        owner = inside and lane == 0
        held = T.alloc_local((steps * vector,), dtype)
        at = T.alloc_local((2,), "int32")
        place = T.alloc_local((2,), "int64")
        pivot = T.alloc_local((1,), "float32")
        sums = T.alloc_local((ACROSS,), "float32")
        was = T.alloc_local((2,), "float32")
        scale = T.alloc_local((1,), "float32")
        shift = T.alloc_local((1,), "float32")
        parts = T.alloc_shared((3, lay.stacks, groups, lay.warps), "float32") if lay.warps > 1 else sums
        begin(at, place, channel, lane, c, walk, lay)
        for v in T.unroll(steps):
            if inside and v * lanes + lane < vectors:
                for k in T.vectorized(vector):
                    held[v * vector + k] = x[place[0], k]
            go_on(at, place, walk, lay)
        if inside:
            pivot[0] = T.cast(x[T.cast(channel, "int64") * q, 0], "float32")
            turn = T.truncmod(T.cast(channel, "uint32"), T.cast(w, "uint32")) if in_turn else channel
            scale[0] = T.cast(weight[turn], "float32")
            shift[0] = T.cast(bias[turn], "float32")
        if tracked and owner:
            was[0] = T.cast(running_mean[channel], "float32")
            was[1] = T.cast(running_var[channel], "float32")
        for i in T.unroll(ACROSS):
            sums[i] = 0.0
        for v in T.unroll(steps):
            if inside and v * lanes + lane < vectors:
                for k in T.unroll(vector):
                    sums[(v * vector + k) % ACROSS] += T.cast(held[v * vector + k], "float32") - pivot[0]
        sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3])
        sum_over(sums, 1, parts, 0, stack, warp, group, lay)
        pivot[0] += sums[0] * inverse
        for i in T.unroll(ACROSS):
            sums[i] = 0.0
        for v in T.unroll(steps):
            if inside and v * lanes + lane < vectors:
                for k in T.unroll(vector):
                    distance = T.cast(held[v * vector + k], "float32") - pivot[0]
                    sums[(v * vector + k) % 2 * 2] += distance
                    sums[(v * vector + k) % 2 * 2 + 1] += distance * distance
        sums[0] += sums[2]
        sums[1] += sums[3]
        sum_over(sums, 2, parts, 1, stack, warp, group, lay)
        settle(
            pivot, sums, inverse, correction, scale, shift, was, owner, channel,
            (mean, spread, running_mean, running_var), eps, momentum, tracked, unbiased,
        )  # fmt: skip
        go_back(at, place)
        for v in T.unroll(steps):
            if inside and v * lanes + lane < vectors:
                for k in T.vectorized(vector):
                    out[place[0], k] = (T.cast(held[v * vector + k], "float32") - pivot[0]) * scale[0] + shift[0]
            go_on(at, place, walk, lay)

    if running_dtype is None:

        @T.prim_func
        def normalized_channels(
            x: T.Tensor((size, vector), dtype),
            weight: T.Tensor((w64,), weight_dtype),
            bias: T.Tensor((w64,), weight_dtype),
            out: T.Tensor((size, vector), dtype),
            mean: T.Tensor((c64,), "float32"),
            spread: T.Tensor((c64,), "float32"),
            eps: T.float32,
            inverse: T.float32,
            correction: T.float32,
            vectors: T.int32,
            q: T.int32,
            portion: T.int32,
            along: T.int32,
            step: T.int64,
            leap: T.int64,
        ):
            with T.Kernel(T.cast(T.ceildiv(c64, lay.channels), "int32"), threads=lay.threads) as block:
                body(
                    block,
                    x,
                    weight,
                    bias,
                    mean,
                    mean,
                    out,
                    mean,
                    spread,
                    eps,
                    eps,
                    inverse,
                    correction,
                    vectors,
                    (q, portion, along, step, leap),
                )

        return normalized_channels

    @T.prim_func
    def normalized_and_tracked_channels(
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
        inverse: T.float32,
        correction: T.float32,
        vectors: T.int32,
        q: T.int32,
        portion: T.int32,
        along: T.int32,
        step: T.int64,
        leap: T.int64,
    ):
        with T.Kernel(T.cast(T.ceildiv(c64, lay.channels), "int32"), threads=lay.threads) as block:
            body(
                block,
                x,
                weight,
                bias,
                running_mean,
                running_var,
                out,
                mean,
                spread,
                eps,
                momentum,
                inverse,
                correction,
                vectors,
                (q, portion, along, step, leap),
            )

    return normalized_and_tracked_channels


def held_gradients(dtype: str, weight_dtype: str, lay: ChannelLayout) -> Any:
    """The gradients of channels that were normalized by their own statistics.

    With ``normal = (x - mean) * rstd``, those of bias and weight are the sums of ``grad`` and of ``grad * normal``
    over a channel, and that of the input is ``weight * rstd * (grad - mean(grad) - normal * mean(grad * normal))``.

    Args:
        dtype: Of input and gradients.
        weight_dtype: Of weight, and of the gradients of weight and bias.
        lay: The layout; ``lanes * steps`` vectors are a channel or more.
    """
    vector, steps, lanes, groups = lay.vector, lay.steps, lay.lanes, lay.groups
    size, c64 = (T.dynamic(name, "int64") for name in ("size", "c"))

    @T.prim_func
    def channel_gradients(
        grad: T.Tensor((size, vector), dtype),
        x: T.Tensor((size, vector), dtype),
        weight: T.Tensor((c64,), weight_dtype),
        mean: T.Tensor((c64,), "float32"),
        rstd: T.Tensor((c64,), "float32"),
        out: T.Tensor((size, vector), dtype),
        grad_weight: T.Tensor((c64,), weight_dtype),
        grad_bias: T.Tensor((c64,), weight_dtype),
        inverse: T.float32,
        vectors: T.int32,
        q: T.int32,
        portion: T.int32,
        along: T.int32,
        step: T.int64,
        leap: T.int64,
    ):
        with T.Kernel(T.cast(T.ceildiv(c64, lay.channels), "int32"), threads=lay.threads) as block:
            c = T.cast(c64, "int32")
            walk = (q, portion, along, step, leap)
            thread = T.get_thread_binding()
            stack = thread // (groups * lanes)
            warp = thread % (groups * lanes) // WARP
            group = thread % groups
            lane = thread % (groups * lanes) // groups
            channel = (block * lay.stacks + stack) * groups + group
            inside = channel < c
            held = T.alloc_local((steps * vector,), dtype)
            grads = T.alloc_local((steps * vector,), dtype)
            at = T.alloc_local((2,), "int32")
            place = T.alloc_local((2,), "int64")
            of = T.alloc_local((3,), "float32")
            sums = T.alloc_local((ACROSS,), "float32")
            parts = T.alloc_shared((2, lay.stacks, groups, lay.warps), "float32") if lay.warps > 1 else sums
            begin(at, place, channel, lane, c, walk, lay)
            for v in T.unroll(steps):
                if inside and v * lanes + lane < vectors:
                    for k in T.vectorized(vector):
                        grads[v * vector + k] = grad[place[0], k]
                    for k in T.vectorized(vector):
                        held[v * vector + k] = x[place[0], k]
                go_on(at, place, walk, lay)
            if inside:
                of[0] = mean[channel]
                of[1] = rstd[channel]
                of[2] = T.cast(weight[channel], "float32")
            for i in T.unroll(ACROSS):
                sums[i] = 0.0
            for v in T.unroll(steps):
                if inside and v * lanes + lane < vectors:
                    for k in T.unroll(vector):
                        sums[(v * vector + k) % 2 * 2] += T.cast(grads[v * vector + k], "float32")
                        sums[(v * vector + k) % 2 * 2 + 1] += T.cast(grads[v * vector + k], "float32") * (
                            T.cast(held[v * vector + k], "float32") - of[0]
                        )
            sums[0] += sums[2]
            sums[1] = (sums[1] + sums[3]) * of[1]
            sum_over(sums, 2, parts, 0, stack, warp, group, lay)
            if inside and lane == 0:
                grad_bias[channel] = sums[0]
                grad_weight[channel] = sums[1]
            sums[0] = sums[0] * inverse
            of[2] = of[2] * of[1]
            sums[1] = sums[1] * inverse * of[1] * of[2]
            go_back(at, place)
            for v in T.unroll(steps):
                if inside and v * lanes + lane < vectors:
                    for k in T.vectorized(vector):
                        out[place[0], k] = (T.cast(grads[v * vector + k], "float32") - sums[0]) * of[2] - (
                            T.cast(held[v * vector + k], "float32") - of[0]
                        ) * sums[1]
                go_on(at, place, walk, lay)

    return channel_gradients
