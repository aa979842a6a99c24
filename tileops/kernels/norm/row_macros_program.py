"""Steps that the programs of rows share. Imports TileLang: loaded by builders only.

What is known of some elements of a row is three facts: a point near their mean, the rest of the mean, which one float32
beside the point holds, and the sum of squares about it. The mean of a warp is found in two looks: the first gives the
point, as well as sums round; the second the distances from it, which lose nothing where the mean is large beside the
deviation, their sum, which gives the rest, and their squares. Of 16-bit numbers the first value may be the point where
it turns out to be near enough to the mean, and the first look is spared. Facts are merged by counts, means
and squares (Chan, Golub and LeVeque, 1979) about one of the points. No variance is a difference of two sums much larger
than it, and one element far from the others costs these no digits.
"""

from typing import Any

import tilelang.language as T
from tvm import DataType

from tileops.kernels.norm.row_recipes import RowRecipe

__all__ = ["AFRESH", "FACTS", "MOST", "WARP", "WIDENING", "add_over", "entry", "look", "merge", "split_mean"]

WARP = 32
FACTS = {True: 3, False: 1}
"""Of a row that is centred: point, rest, squares; else squares alone."""
MOST = 3.4028234663852886e38
"""The largest float32."""
WIDENING = """#include <cuda_bf16.h>
static __device__ __forceinline__ float2 widened_pair(__nv_bfloat162 pair) {
  unsigned const bits = *reinterpret_cast<unsigned const*>(&pair);
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
#define __bfloat1622float2 widened_pair
"""
"""CUDA source by which two bfloat16 become float32 in two instructions; CUDA 13.0 takes three. A LayerNorm of rows of
256 elements has 256 instructions so, and 280 without."""
AFRESH = """#include <cstdint>
template <typename Word, int bytes>
static __device__ __forceinline__ void taken_anew(void* held, uint32_t zero) {
  #pragma unroll
  for (int i = 0; i < bytes / int(sizeof(Word)); ++i) reinterpret_cast<Word*>(held)[i] ^= Word(zero);
}
template <typename Word, int bytes>
static __device__ __forceinline__ void afresh(void* held, int at, float after) {
  uint32_t zero;
  asm volatile("clz.b32 %0, %1;" : "=r"(zero) : "r"(__float_as_uint(after)));
  zero >>= 6;
  taken_anew<Word, bytes>(static_cast<char*>(held) + at, zero);
}
"""
"""CUDA source of ``afresh``, which leaves values as they are, but no compiler knows: leading zeros of a word are 32 at
most. What was made of values before is not held beside them until it is needed again, and made of them again then. A
LayerNorm of rows of 65,536 elements of float16 that wait in the registers of 1,024 threads, looked at once, spills 172
bytes a thread without, and 16 with it (CUDA 13.0)."""
NEAR = 16.0
"""How many variances from the mean the square of a point's distance may be. The variance is then the difference of two
sums of which the larger is up to 17 times as much: four bits of 24 are lost, where a 16-bit result has 11 or fewer."""
SUMS = 4
"""Sums of a thread that do not wait for each other."""


@T.macro
def add_over(value, at, among):
    """Sum *value* over *among* lanes, a power of two, each of which gets it."""
    if among >= 32:
        value[at] += T.shfl_xor(value[at], 16)
    if among >= 16:
        value[at] += T.shfl_xor(value[at], 8)
    if among >= 8:
        value[at] += T.shfl_xor(value[at], 4)
    if among >= 4:
        value[at] += T.shfl_xor(value[at], 2)
    if among >= 2:
        value[at] += T.shfl_xor(value[at], 1)


@T.macro
def merge(centred, parts, a, b, among, lane, count, inverse, point, rest, square, r):
    """Merge the facts of *among* parts into those of each lane.

    A lane's part has *count* elements of the 1 / *inverse* that there are; *among* is a power of two.
    """
    if centred:
        point[r] = (parts[a, b, lane % among, 0] - parts[a, b, 0, 0] + parts[a, b, lane % among, 1]) * T.min(count, 1.0)
        square[r] = parts[a, b, lane % among, 2]
        rest[r] = point[r] * count
        add_over(rest, r, among)
        rest[r] = rest[r] * inverse
        point[r] -= rest[r]
        square[r] += point[r] * point[r] * count
        point[r] = parts[a, b, 0, 0]
    else:
        square[r] = parts[a, b, lane % among, 0]
    add_over(square, r, among)


@T.macro
def split_mean(point, rest, r):
    """Make the point of a row its mean, rounded, and the rest what that leaves, to the last digit (Knuth's sum)."""
    mean = T.alloc_local((1,), "float32")
    gained = T.alloc_local((1,), "float32")
    mean[0] = point[r] + rest[r]
    gained[0] = mean[0] - point[r]
    rest[r] = (point[r] - (mean[0] - gained[0])) + (rest[r] - gained[0])
    point[r] = mean[0]


@T.macro
def widen(values, at, vector, wide):
    """A vector of values, the first *at* a place, in float32."""
    for k in T.vectorized(vector):
        wide[k] = T.cast(values[at + k], "float32")


def total_of(sums: Any) -> Any:
    """What the :data:`SUMS` sums of a thread come to."""
    return (sums[0] + sums[1]) + (sums[2] + sums[3])


@T.macro
def take_mean(values, begin, step, steps, vector, span, column, left, width, inverse, point, r, wide, sums):
    """The mean of what *width* lanes hold, as well as sums round, into place *r* of *point*; see :func:`look`."""
    for k in T.unroll(SUMS):
        sums[k] = 0.0
    for v in T.unroll(steps):
        if column + v * span < left:
            widen(values, begin + v * step, vector, wide)
            for k in T.unroll(vector):
                sums[k % SUMS] += wide[k] * inverse  # a sum of shares has no more than a value
    point[r] = total_of(sums)
    add_over(point, r, width)


@T.macro
def take_distances(
    values, begin, step, steps, vector, span, column, left, width, inverse, point, rest, square, r, distances, keep,
    wide, sums, others,
):  # fmt: skip
    """What the point leaves of the mean, and the sum of squares about the point; see :func:`look`."""
    for k in T.unroll(SUMS):
        sums[k] = 0.0
        others[k] = 0.0
    for v in T.unroll(steps):
        if column + v * span < left:
            widen(values, begin + v * step, vector, wide)
            for k in T.unroll(vector):
                wide[k] -= point[r]
                others[k % SUMS] += wide[k]
                sums[k % SUMS] += wide[k] * wide[k]
            if keep:
                for k in T.unroll(vector):
                    distances[begin + v * step + k] = wide[k]
    square[r] = total_of(sums)
    add_over(square, r, width)
    rest[r] = total_of(others)
    add_over(rest, r, width)
    rest[r] = rest[r] * inverse


@T.macro
def look_again(values, begin, vector, again, fresh, after):
    """Have *values* read again; see :func:`look`. Those in registers not before *after* is known.

    They lie as a vector does: where that is a single value, at multiples of two bytes.
    """
    if again:
        T.sync_warp()
    elif fresh > 0:
        T.call_extern(
            "handle", f"afresh<{'uint16_t' if vector == 1 else 'uint32_t'}, {fresh}>", values.data,
            begin * (DataType(values.dtype).bits // 8), after,
        )  # fmt: skip


@T.macro
def look(
    centred, values, begin, step, steps, vector, span, column, left, width, count, inverse, point, rest, square, r,
    again, distances, keep, once, fresh,
):  # fmt: skip
    """The facts of what *width* lanes hold of a row, *count* elements, into place *r* of point, rest and squares.

    A lane's values wait in *values*, the first at *begin*, each next vector *step* further: *steps* vectors, *span*
    elements of the row apart, the first at *column* of the *left* that there are. Those in shared memory are looked at
    *again*, rather than held in registers as well; what is made of those in registers is made again where *fresh*, how
    many bytes a lane has, is not 0. *inverse* is 1 / *count*, or 1 where there are none. Where a row is centred and
    *keep*, the distances from the point stay in *distances*, where *values* has the values. Where it is centred and
    looked at *once*, the point is the first of the values, if that is near enough to their mean.
    """
    wide = T.alloc_local((vector,), "float32")
    sums = T.alloc_local((SUMS,), "float32")
    others = T.alloc_local((SUMS,), "float32")
    if centred:
        if once:
            point[r] = T.if_then_else(column < left, T.cast(values[begin], "float32"), 0.0)
            point[r] = T.shfl_sync(point[r], 0, width)
            if again:
                T.sync_warp()
        else:
            take_mean(values, begin, step, steps, vector, span, column, left, width, inverse, point, r, wide, sums)
            look_again(values, begin, vector, again, fresh, point[r])
        take_distances(
            values, begin, step, steps, vector, span, column, left, width, inverse, point, rest, square, r, distances,
            keep, wide, sums, others,
        )  # fmt: skip
        if once:
            far = T.alloc_var("int32")
            # Written so that what is no number is far.
            far = T.if_then_else(
                T.And(square[r] <= MOST, rest[r] * rest[r] * count * (NEAR + 1.0) <= square[r] * NEAR), 0, 1
            )
            if T.any_sync(far != 0):
                look_again(values, begin, vector, again, fresh, square[r])
                take_mean(values, begin, step, steps, vector, span, column, left, width, inverse, point, r, wide, sums)
                look_again(values, begin, vector, again, fresh, point[r])
                take_distances(
                    values, begin, step, steps, vector, span, column, left, width, inverse, point, rest, square, r,
                    distances, keep, wide, sums, others,
                )  # fmt: skip
        look_again(values, begin, vector, False, fresh, square[r])
        # Squares about the point, less those of the rest, which no infinity may be taken off.
        square[r] = T.max(square[r] - T.min(rest[r] * rest[r] * count, MOST), 0.0)
    else:
        if again:
            T.sync_warp()
        for k in T.unroll(SUMS):
            sums[k] = 0.0
        for v in T.unroll(steps):
            if column + v * span < left:
                for k in T.unroll(vector):
                    sums[k % SUMS] += T.cast(values[begin + v * step + k], "float32") * T.cast(
                        values[begin + v * step + k], "float32"
                    )
        square[r] = total_of(sums)
        add_over(square, r, width)


def entry(recipe: RowRecipe, n: int, dtype: str, launch: Any, body: Any, *, planes: bool = False) -> Any:
    """The program of *recipe*: its tensors in the order in which the interface has them, then its results.

    Args:
        recipe: What is computed.
        n: Elements of a row.
        dtype: Of every tensor.
        launch: From the number of rows to a ``T.Kernel``.
        body: A macro of block, input, residual, weight or scale, bias or shift, gate, result and sum.
        planes: Whether input and result have three axes, of which the first two are those of the rows: that saves the
            host two views a call. Of recipes of one input and one result.
    """
    m = T.dynamic("m", "int64")

    if planes:
        a, c = (T.dynamic(name, "int64") for name in ("a", "c"))
        if recipe.biased:

            @T.prim_func
            def layer_norm_planes(
                x: T.Tensor((a, c, n), dtype),
                weight: T.Tensor((n,), dtype),
                bias: T.Tensor((n,), dtype),
                out: T.Tensor((a, c, n), dtype),
            ):
                rows = T.reshape(x, (a * c, n))
                results = T.reshape(out, (a * c, n))
                with launch(a * c) as block:
                    body(a * c, block, rows, rows, weight, bias, rows, results, results)

            return layer_norm_planes

        @T.prim_func
        def rms_norm_planes(
            x: T.Tensor((a, c, n), dtype),
            weight: T.Tensor((n,), dtype),
            out: T.Tensor((a, c, n), dtype),
        ):
            rows = T.reshape(x, (a * c, n))
            results = T.reshape(out, (a * c, n))
            with launch(a * c) as block:
                body(a * c, block, rows, rows, weight, weight, rows, results, results)

        return rms_norm_planes

    if recipe.gated:

        @T.prim_func
        def gated_rows(
            x: T.Tensor((m, n), dtype),
            scale: T.Tensor((m, n), dtype),
            shift: T.Tensor((m, n), dtype),
            gate: T.Tensor((m, n), dtype),
            out: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, x, scale, shift, gate, out, out)

        return gated_rows

    if not recipe.shared:

        @T.prim_func
        def modulated_rows(
            x: T.Tensor((m, n), dtype),
            scale: T.Tensor((m, n), dtype),
            shift: T.Tensor((m, n), dtype),
            out: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, x, scale, shift, x, out, out)

        return modulated_rows

    if recipe.residual and recipe.biased:

        @T.prim_func
        def added_layer_norm_rows(
            x: T.Tensor((m, n), dtype),
            other: T.Tensor((m, n), dtype),
            weight: T.Tensor((n,), dtype),
            bias: T.Tensor((n,), dtype),
            out: T.Tensor((m, n), dtype),
            sums: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, other, weight, bias, x, out, sums)

        return added_layer_norm_rows

    if recipe.residual:

        @T.prim_func
        def added_rms_norm_rows(
            x: T.Tensor((m, n), dtype),
            other: T.Tensor((m, n), dtype),
            weight: T.Tensor((n,), dtype),
            out: T.Tensor((m, n), dtype),
            sums: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, other, weight, weight, x, out, sums)

        return added_rms_norm_rows

    if recipe.biased:

        @T.prim_func
        def layer_norm_rows(
            x: T.Tensor((m, n), dtype),
            weight: T.Tensor((n,), dtype),
            bias: T.Tensor((n,), dtype),
            out: T.Tensor((m, n), dtype),
        ):
            with launch(m) as block:
                body(m, block, x, x, weight, bias, x, out, out)

        return layer_norm_rows

    @T.prim_func
    def rms_norm_rows(
        x: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        out: T.Tensor((m, n), dtype),
    ):
        with launch(m) as block:
            body(m, block, x, x, weight, weight, x, out, out)

    return rms_norm_rows
