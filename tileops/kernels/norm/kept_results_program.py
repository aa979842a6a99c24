"""Stores whose lines are among the last to leave the L2 cache. Imports TileLang: loaded by builders only.

What a kernel reads and what it writes pass through the cache alike, and a line of a result that leaves it is written
to memory while the kernel still runs. Where results leave last, more of them are in the cache when it ends: less was
written on its time, and what comes next, which reads them, finds more of them there. Lines are like any others again
once they are read in the usual way. CUDA's ``createpolicy`` and ``cache_hint`` came with SM80.

On an H200 (2026-12-01, row trials in ``benchmarks/results``) a copy of 64 MiB took 31.9 us so and 33.3 else, one of 32
MiB the same either way. The sum of rows of those 64 MiB took 22.1 us right after it, 22.9 else; another copy that began
with a cold cache the same. What lives in the cache and is not told so pays: eight copies of 20 MiB each, right after,
took 95.8 us in all, and 83.8 else.
"""

from typing import Any

import tilelang.language as T
from tvm import DataType

__all__ = ["KEEPING", "store"]

KEEPING = """#include <cstdint>
template <bool keeps, int bytes>
static __device__ __forceinline__ void store_result(void* to, void const* from) {
  if constexpr (keeps && bytes == 16) {
    uint64_t last_to_leave;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last_to_leave));
    uint4 const v = *reinterpret_cast<uint4 const*>(from);
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                 :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(last_to_leave) : "memory");
  } else if constexpr (bytes == 16) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4 const*>(from);
  } else if constexpr (bytes == 8) {
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<uint2 const*>(from);
  } else if constexpr (bytes == 4) {
    *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<uint32_t const*>(from);
  } else {
    static_assert(bytes == 2);
    *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<uint16_t const*>(from);
  }
}
"""
"""CUDA source of ``store_result``: stores of less than 16 bytes, which are those of rows that begin at odd places, are
the usual ones."""


def store(place: Any, results: Any, vector: int, dtype: str, *, keeps: bool) -> Any:
    """A store of the *vector* elements of the local *results*, to *place* in global memory and the next."""
    size = vector * DataType(dtype).bits // 8
    return T.call_extern("handle", f"store_result<{str(keeps).lower()}, {size}>", T.address_of(place), results.data)
