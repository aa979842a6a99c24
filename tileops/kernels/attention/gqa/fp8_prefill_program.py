"""TileLang program of grouped-query prefill of float8 on Hopper. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.

What a block does: see ``prefill_loops_program.py``. What differs from 16-bit numbers:

- Products of float8 go over dim in steps of 32: heads are filled up with zeros, which is what a copy gives for what
  lies past the end of a tensor.
- The matrix unit reads float8 along the sum: values come as ``turn_values`` lays them out, and weights go from the
  registers that hold scores to those of the next product without leaving their thread.
- A tensor core holds some 13 bits of a sum. Results are gathered in float32 every few trips, in shared memory, each
  thread its own; without that, averages of many keys come out too small.
- Each thread stores the results it holds.
"""

import dataclasses
from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.prefill_loops_program import BLOCK_THREADS, attend_block, ring_of
from tileops.kernels.attention.gqa.prefill_macros_program import LOWEST, PASSES, Held, divide, rescale
from tileops.kernels.attention.gqa.prefill_shape_program import (
    CONSUMER_THREADS,
    QUERIES,
    WARP,
    Launch,
    PrefillShape,
    Products,
    QueryTile,
    WeightRange,
)
from tileops.kernels.attention.gqa.score_macros_program import ScoreScale

__all__ = ["PASSES", "attend_tiles"]

FLOAT8 = "float8_e4m3fn"
WEIGHTS = WeightRange(8, growth=2)
"""Float8 (e4m3) ends at 448 and is fully precise down to ``2**-6``, so that weights down to ``2**-12`` of the largest
are rounded by half a unit in the last place."""


ADD_TO = """
__device__ __forceinline__ void add_to(const float *sum, float shrink, float x) {
  *const_cast<float *>(sum) = *sum * shrink + x;
}
"""
"""How gathered results are written. TileLang 0.1.15 is told that they are read: before a product that may read what a
thread has written to shared memory it has that thread wait for the write, and no product reads these."""


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Sums of results in float32.

    Attributes:
        sums: In shared memory, where :func:`attend_tiles` places them.
        base: What was taken from their scores, ``(QUERIES,)``.
        shrink: What they are multiplied with, ``(QUERIES,)``.
    """

    sums: Any
    base: Any
    shrink: Any


def add_to(place: Any, shrink: Any, x: Any) -> Any:
    """Multiply a float in shared memory with *shrink*, and add *x*."""
    return T.evaluate(T.call_extern("handle", "add_to", place, shrink, x))


def attend_tiles(
    heads: int,
    heads_kv: int,
    dim: int,
    depth: int,
    dtype: str,
    sm_scale: float,
    softcap: float,
    is_causal: bool,
    bounded_left: bool,
    bounded_right: bool,
    tile_keys: int,
    stages: int,
    gather: int,
    ping_pong: bool,
    held_queries: bool,
    cluster: int,
    run_keys: int,
    sm_count: int,
) -> Any:
    """Attend tiles of 128 queries of one head to the keys that any of them sees.

    Args:
        heads: Query heads.
        heads_kv: Key heads, a divisor of *heads*.
        dim: Elements of a head.
        depth: Elements of a query or key in shared memory: *dim* and zeros, up to a multiple of 32.
        dtype: Of the results.
        sm_scale: Factor of the scores.
        softcap: Bound of the scores, 0 for none.
        is_causal: Whether a query sees no key after its own position.
        bounded_left: Whether ``window_left`` says how many keys before its position a query sees, not all.
        bounded_right: Whether ``window_right`` says how many keys after its position it sees, not all. Where
            *is_causal* none is seen, whatever it says.
        tile_keys: Keys a trip, a multiple of 32.
        stages: Tiles of keys, and of values, in the ring.
        gather: Trips, a power of 2, after which results are gathered in float32; 0 for never.
        ping_pong: Whether the two warpgroups take turns at the tensor cores.
        held_queries: Whether queries are multiplied from registers, not from shared memory.
        cluster: Blocks that share keys and values: 1, or 2 where a key head has an even number of query heads.
        run_keys: Keys by whose multiple the keys of turned values are filled up.
        sm_count: Multiprocessors; the most blocks of a launch.

    Returns:
        A program of ``(q, k, turned, q_scale, k_scale, v_scale, out, window_left, window_right)``: values as
        ``turn_values`` lays them out, scales of any strides, windows at most the sequences' lengths.
    """
    batch = T.dynamic("batch")
    seqlen_q = T.dynamic("seqlen_q")
    seqlen_kv = T.dynamic("seqlen_kv")
    padded_kv = T.dynamic("runs_kv") * run_keys
    q_strides = (T.dynamic("q_batch_stride"), T.dynamic("q_head_stride"))
    k_strides = (T.dynamic("k_batch_stride"), T.dynamic("k_head_stride"))
    v_strides = (T.dynamic("v_batch_stride"), T.dynamic("v_head_stride"))
    bounded_right = bounded_right or is_causal
    shape = PrefillShape(heads, heads_kv, dim, tile_keys, bounded_left, bounded_right, cluster, sm_count)
    group = shape.group

    def values_at(turned: Any, sequence: Any, head_kv: Any, at: Any) -> Any:
        return turned[sequence, head_kv, :, at : at + tile_keys]

    def factor_of(scales: Any, sequence: Any, head: Any) -> Any:
        q_scale, k_scale, _ = scales
        return q_scale[sequence, head] * k_scale[sequence, head // group]

    @T.macro
    def pack(held: Held):
        """Each thread keeps its weights: keys trade places within every 16, as they do in turned values."""
        for i, j in T.Parallel(QUERIES, tile_keys):
            held.weights[i, j // 16 * 16 + j % 8 // 2 * 4 + j % 16 // 8 * 2 + j % 2] = T.cast(held.scores[i, j], FLOAT8)

    @T.macro
    def multiply_values(held: Held, v_ring, slot):
        T.wgmma_gemm(held.weights, v_ring[slot, :, :], held.acc, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    def place(i, d):
        """Where the thread that holds element *d* of the result of query *i* keeps what it has gathered of it."""
        return d // 8 * 2 + i % 16 // 8, i // 16 * WARP + i % 8 * 4 + d % 8 // 2, d % 2

    # Loops over gathered results name the results too: so each thread keeps to the places of those it holds.
    @T.macro
    def clear(held: Held, gathered: Gathered):
        T.clear(held.acc)
        if gather:
            T.fill(gathered.base, LOWEST)
            for i, d in T.Parallel(QUERIES, dim):
                gathered.sums[place(i, d)] = held.acc[i, d]

    @T.macro
    def settle(held: Held, gathered: Gathered):
        rescale(held.acc, held.shrink, dim)

    @T.macro
    def gather_results(held: Held, gathered: Gathered):
        """Move results to the sums; both then have the base that results had before this trip."""
        for i in T.Parallel(QUERIES):
            gathered.shrink[i] = T.exp2(gathered.base[i] - held.before[i])
            gathered.base[i] = held.before[i]
        for i, d in T.Parallel(QUERIES, dim):
            add_to(T.access_ptr(gathered.sums[place(i, d)], "r", 1), gathered.shrink[i], held.acc[i, d])
            held.acc[i, d] = 0.0

    @T.macro
    def finish(held: Held, gathered: Gathered, tile: QueryTile, launch: Launch):
        if gather:
            for i in T.Parallel(QUERIES):
                gathered.shrink[i] = T.exp2(gathered.base[i] - held.base[i])
            for i, d in T.Parallel(QUERIES, dim):
                held.acc[i, d] = held.acc[i, d] + gathered.sums[place(i, d)] * gathered.shrink[i]
        divide(held, dim, launch.scales[2][tile.sequence, tile.head // group])
        T.copy(held.acc, launch.out[tile.sequence, tile.begin : tile.begin + QUERIES, tile.head, :])

    products = Products(
        dtype=FLOAT8,
        dim=dim,
        depth=depth,
        values_tile=(dim, tile_keys),
        stages=stages,
        score=ScoreScale(sm_scale, softcap),
        weight=WEIGHTS,
        held_queries=held_queries,
        lent_queries=False,
        stored_by_tma=False,
        ping_pong=ping_pong,
        weights_first=True,
        gathered_trips=gather,
        values_at=values_at,
        factor_of=factor_of,
        clear=clear,
        pack=pack,
        multiply_values=multiply_values,
        settle=settle,
        gather=gather_results,
        finish=finish,
    )

    @T.prim_func
    def gqa_fp8_prefill_attend(
        q: T.Tensor((batch, seqlen_q, heads, dim), FLOAT8),
        k: T.Tensor((batch, seqlen_kv, heads_kv, dim), FLOAT8),
        turned: T.Tensor((batch, heads_kv, dim, padded_kv), FLOAT8),
        q_scale: T.StridedTensor((batch, heads), q_strides, "float32"),
        k_scale: T.StridedTensor((batch, heads_kv), k_strides, "float32"),
        v_scale: T.StridedTensor((batch, heads_kv), v_strides, "float32"),
        out: T.Tensor((batch, seqlen_q, heads, dim), dtype),
        window_left: T.int32,
        window_right: T.int32,
    ):
        with T.Kernel(shape.grid(seqlen_q, batch), threads=BLOCK_THREADS, **shape.placement) as block:
            T.import_source(ADD_TO)
            ring = ring_of(shape, products)
            gathered = None
            if gather:
                gathered = Gathered(
                    T.alloc_shared((dim // 4, CONSUMER_THREADS, 2), "float32"),
                    T.alloc_fragment((QUERIES,), "float32"),
                    T.alloc_fragment((QUERIES,), "float32"),
                )
            scales = (q_scale, k_scale, v_scale)
            launch = Launch(q, k, turned, out, scales, window_left, 0 if is_causal else window_right)
            attend_block(ring, gathered, block, launch, shape, products)

    return gqa_fp8_prefill_attend
