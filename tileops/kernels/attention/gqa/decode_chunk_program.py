"""What a warp of decode does with 16 keys. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import ROWS, STEP

__all__ = ["THROUGH_L2", "fetch", "meet", "rotate_keys", "score", "take_queries", "take_scales", "weigh"]

THROUGH_L2 = """
__device__ __forceinline__ void load_16_through_l2(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::
    "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
}
"""
"""A ``cp.async`` of 16 bytes that has the L2 cache fetch 128 at once: TileLang 0.1.15 has no such argument. On an H200
(2026-11-30), 64 sequences of 8,192 keys took 488.6 us with it and 492.4 without."""

ABBREVIATIONS = {"float16": "fp16", "bfloat16": "bf16"}


@T.macro
def meet(ring_warp, lay: DecodeLayout):
    """The warps that share a ring."""
    if lay.shape.ring_warps == 1:
        T.sync_warp()
    else:
        T.sync_threads(8 + ring_warp, lay.lanes)


def ring_at(ring: Any, slot: Any, row: Any, column: Any, access: str, lay: DecodeLayout) -> Any:
    """The 16 bytes from *column* on of the key in *row* of a slot, where they lie."""
    return T.access_ptr(ring[slot * STEP + row, lay.placed(row, column)], access, lay.wide)


def load(to: Any, source: Any) -> Any:
    """16 bytes from global to shared memory."""
    return T.evaluate(T.call_extern("handle", "load_16_through_l2", to, source))


@T.macro
def fetch(source, ring, sequence, key, head_kv, slot, lane, seqlen_kv, lay: DecodeLayout):
    """A chunk of 16 keys from *key* on into the rows of *slot*; for those past the end, the last one.

    Of each of the heads from *head_kv* on that a ring has, those of the next one into the next slot: neighbouring
    threads read neighbouring heads of a key.
    """
    heads = lay.shape.key_heads
    near = T.alloc_var("int32")
    for i in T.unroll(-(-STEP * heads * lay.vectors // lay.lanes)):
        at = i * lay.lanes + lane
        if STEP * heads * lay.vectors % lay.lanes == 0 or at < STEP * heads * lay.vectors:
            row = at // lay.vectors // heads
            head = at // lay.vectors % heads
            near = T.min(key + row, seqlen_kv - 1)
            load(
                ring_at(ring, slot + head, row, at % lay.vectors * lay.wide, "w", lay),
                T.access_ptr(source[sequence, near, head_kv + head, at % lay.vectors * lay.wide], "r", lay.wide),
            )


def within(column: Any, lay: DecodeLayout) -> Any:
    """*column* of a pair of steps; where a head has an odd number of them, the last one stands for the one after it."""
    return column if lay.depth % 2 == 0 else T.min(column, lay.dim - STEP)


@T.macro
def score(queries, ring, scores, fragment, packed, slot, lane, lay: DecodeLayout):
    """Scores of 16 rows and 16 keys."""
    kind = ABBREVIATIONS[lay.held_dtype]
    if lay.is_fp8:
        for pair in T.unroll(-(-lay.depth // 2)):
            T.ptx_ldmatrix(
                T.bool(False),
                4,
                ring_at(
                    ring, slot, lane // 16 * 8 + lane % 8, within(pair * 2 * STEP + lane % 16 // 8 * 16, lay), "r", lay
                ),
                T.access_ptr(packed[0], "w", 16),
            )
            for i in T.unroll(8):
                for j in T.vectorized(2):
                    fragment[i * 2 + j] = T.cast(packed[i * 2 + j], "float16")
            for part in T.unroll(2):
                if pair * 2 + part < lay.depth:
                    for n in T.unroll(2):
                        T.ptx_mma(
                            "float32", "m16n8k16", "row", "col", kind, kind, "fp32",
                            queries.data, (pair * 2 + part) * 8, fragment.data, n * 8 + part * 4,
                            scores.data, n * 4, T.bool(False),
                        )  # fmt: skip
    else:
        for step in T.unroll(lay.depth):
            T.ptx_ldmatrix(
                T.bool(False),
                4,
                ring_at(ring, slot, lane // 16 * 8 + lane % 8, step * STEP + lane % 16 // 8 * 8, "r", lay),
                T.access_ptr(fragment[0], "w", 8),
            )
            for n in T.unroll(2):
                T.ptx_mma(
                    "float32", "m16n8k16", "row", "col", kind, kind, "fp32",
                    queries.data, step * 8, fragment.data, n * 4, scores.data, n * 4, T.bool(False),
                )  # fmt: skip


@T.macro
def weigh(weights, ring, held, fragment, packed, swapped, slot, lane, lay: DecodeLayout):
    """Add the weighted values of 16 keys."""
    kind = ABBREVIATIONS[lay.held_dtype]
    if lay.is_fp8:
        for pair in T.unroll(-(-lay.depth // 2)):
            T.ptx_ldmatrix(
                T.bool(True),
                4,
                ring_at(ring, slot, lane % 16, within(pair * 2 * STEP + lane // 16 * 16, lay), "r", lay),
                T.access_ptr(packed[0], "w", 16),
            )
            # A register holds two values of each of two keys; a product takes two keys of each value.
            for part in T.unroll(2):
                for parity in T.unroll(2):
                    for i in T.unroll(2):
                        swapped[0] = packed[part * 8 + i * 4 + parity]
                        swapped[1] = packed[part * 8 + i * 4 + parity + 2]
                        for j in T.vectorized(2):
                            fragment[parity * 4 + i * 2 + j] = T.cast(swapped[j], "float16")
                    if pair * 2 + part < lay.depth:
                        T.ptx_mma(
                            "float32", "m16n8k16", "row", "col", kind, kind, "fp32",
                            weights.data, 0, fragment.data, parity * 4,
                            held.data, (pair * 2 + part) * 8 + parity * 4, T.bool(False),
                        )  # fmt: skip
    else:
        for step in T.unroll(lay.depth):
            T.ptx_ldmatrix(
                T.bool(True),
                4,
                ring_at(ring, slot, lane % 16, step * STEP + lane // 16 * 8, "r", lay),
                T.access_ptr(fragment[0], "w", 8),
            )
            for n in T.unroll(2):
                T.ptx_mma(
                    "float32", "m16n8k16", "row", "col", kind, kind, "fp32",
                    weights.data, 0, fragment.data, n * 4, held.data, step * 8 + n * 4, T.bool(False),
                )  # fmt: skip


def pair_of(column: Any, lay: DecodeLayout) -> Any:
    """The pair that the element at *column* of a head belongs to."""
    return column // 2 if lay.interleaved else column % lay.half_rotated


def partner_of(column: Any, lay: DecodeLayout) -> Any:
    """The other element of its pair."""
    if lay.interleaved:
        return column + 1 - column % 2 * 2
    return T.if_then_else(column < lay.half_rotated, column + lay.half_rotated, column - lay.half_rotated)


def comes_first(column: Any, lay: DecodeLayout) -> Any:
    """Whether it is the first element of its pair."""
    return column % 2 == 0 if lay.interleaved else column < lay.half_rotated


@T.macro
def take_queries(q, rotation, queries, sequence, head, rows, own_row, lane, seqlen_kv, lay: DecodeLayout):
    """The queries of 16 rows as a product takes them, zeros where there is none; rotated at the last key's position.

    Of float8, a step takes the elements of a head in the order in which keys are converted.
    """
    partner = T.alloc_var("int32")
    pair = T.alloc_var("int32")
    turned = T.alloc_var("float32")
    for i in T.unroll(lay.depth * 4):
        at_column = i // 4 * STEP + (i % 4 // 2 * 2 + lane % 4 * 4 if lay.is_fp8 else i % 4 // 2 * 8 + lane % 4 * 2)
        for j in T.vectorized(2):
            queries[i * 2 + j] = T.cast(0, lay.held_dtype)
        if i % 2 < lay.halves:  # noqa: SIM102 - the first is decided while the program is made
            if own_row + i % 2 * 8 < rows:
                for j in T.vectorized(2):
                    queries[i * 2 + j] = T.cast(
                        q[sequence, 0, head + own_row + i % 2 * 8, at_column + j], lay.held_dtype
                    )
                if lay.rotary_dim > 0:
                    for j in T.unroll(2):
                        if at_column + j < lay.rotary_dim:
                            partner = partner_of(at_column + j, lay)
                            pair = pair_of(at_column + j, lay)
                            turned = T.cast(q[sequence, 0, head + own_row + i % 2 * 8, partner], "float32")
                            turned = turned * rotation[1][seqlen_kv - 1, pair]
                            turned = T.if_then_else(comes_first(at_column + j, lay), -turned, turned)
                            queries[i * 2 + j] = T.cast(
                                T.cast(queries[i * 2 + j], "float32") * rotation[0][seqlen_kv - 1, pair] + turned,
                                lay.held_dtype,
                            )


@T.macro
def rotate_keys(ring, rotation, key, slot, lane, seqlen_kv, lay: DecodeLayout):
    """Rotate the 16 keys from *key* on where they lie, each at its position; each pair by one thread."""
    row = T.alloc_var("int32")
    pair = T.alloc_var("int32")
    near = T.alloc_var("int32")
    first = T.alloc_var("int32")
    second = T.alloc_var("int32")
    a = T.alloc_var("float32")
    b = T.alloc_var("float32")
    cos = T.alloc_var("float32")
    sin = T.alloc_var("float32")
    for turn in T.serial(-(-STEP * lay.half_rotated // lay.lanes)):
        if turn * lay.lanes + lane < STEP * lay.half_rotated:
            row = (turn * lay.lanes + lane) // lay.half_rotated
            pair = (turn * lay.lanes + lane) % lay.half_rotated
            near = T.min(key + row, seqlen_kv - 1)
            first = pair * 2 if lay.interleaved else pair
            second = pair * 2 + 1 if lay.interleaved else pair + lay.half_rotated
            first = lay.placed(row, first)
            second = lay.placed(row, second)
            a = T.cast(ring[slot * STEP + row, first], "float32")
            b = T.cast(ring[slot * STEP + row, second], "float32")
            cos = rotation[0][near, pair]
            sin = rotation[1][near, pair]
            ring[slot * STEP + row, first] = T.cast(a * cos - b * sin, lay.dtype)
            ring[slot * STEP + row, second] = T.cast(b * cos + a * sin, lay.dtype)


@T.macro
def take_scales(scales, scale, value_scale, sequence, head, head_kv, rows, row_warp, lane, scale_in, lay: DecodeLayout):
    """What a thread multiplies its scores with, and its results: of float8, the scales of its heads as well."""
    if lay.is_fp8:
        value_scale[0] = scales[2][sequence, head_kv]
        for half in T.unroll(lay.halves):
            row = T.min(row_warp * ROWS + half * 8 + lane // 4, rows - 1)
            scale[half] = scale_in * scales[0][sequence, head + row] * scales[1][sequence, head_kv]
    else:
        value_scale[0] = 1.0
        for half in T.unroll(lay.halves):
            scale[half] = scale_in
