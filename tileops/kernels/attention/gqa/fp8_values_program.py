"""TileLang program that lays values out for float8 prefill. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.
"""

from typing import Any

import tilelang.language as T

__all__ = ["turn_values"]

TILE_KEYS = 64
"""Keys a block."""
RUN = 16
"""Keys that trade places with each other, and bytes of a store."""


def turn_values(heads_kv: int, dim: int, run_keys: int) -> Any:
    """Lay values out as the matrix unit reads float8: the keys of one element of a head side by side.

    Every 16 keys stand in the order in which a thread holds their weights: key ``8 * a + 2 * t + b`` at place
    ``4 * t + 2 * a + b``. Places past the last key get zeros.

    Args:
        heads_kv: Key heads.
        dim: Elements of a head, one for each thread.
        run_keys: Keys by whose multiple the keys are filled up, itself a multiple of 64.

    Returns:
        A program of ``(v, turned)``, the bytes of ``(batch, seqlen_kv, heads_kv, dim)`` and of
        ``(batch, heads_kv, dim, padded)``.
    """
    batch = T.dynamic("batch")
    seqlen_kv = T.dynamic("seqlen_kv")
    padded_kv = T.dynamic("runs_kv") * run_keys
    dtype = "uint8"

    @T.prim_func
    def gqa_turn_values(
        v: T.Tensor((batch, seqlen_kv, heads_kv, dim), dtype),
        turned: T.Tensor((batch, heads_kv, dim, padded_kv), dtype),
    ):
        with T.Kernel(padded_kv // TILE_KEYS * heads_kv * batch, threads=dim) as block:
            tile = T.alloc_shared((TILE_KEYS, dim), dtype)
            column = T.alloc_local((TILE_KEYS,), dtype)
            d = T.get_thread_binding()
            at = block % (padded_kv // TILE_KEYS) * TILE_KEYS
            head = block // (padded_kv // TILE_KEYS) % heads_kv
            sequence = block // (padded_kv // TILE_KEYS) // heads_kv
            for n, e in T.Parallel(TILE_KEYS, dim):
                tile[n, e] = T.if_then_else(at + n < seqlen_kv, v[sequence, at + n, head, e], T.cast(0, dtype))
            T.sync_threads()
            for c in T.unroll(TILE_KEYS // RUN):
                for t in T.unroll(4):
                    for a in T.unroll(2):
                        for b in T.unroll(2):
                            column[RUN * c + 4 * t + 2 * a + b] = tile[RUN * c + 8 * a + 2 * t + b, d]
            for c in T.unroll(TILE_KEYS // RUN):
                for n in T.vectorized(RUN):
                    turned[sequence, head, d, at + c * RUN + n] = column[c * RUN + n]

    return gqa_turn_values
