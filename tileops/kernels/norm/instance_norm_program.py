"""The TileLang program that follows the statistics of instances. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.
"""

from typing import Any

import tilelang.language as T

__all__ = ["tracked_instances"]


def tracked_instances(running_dtype: str, threads: int) -> Any:
    """Move the running statistics of each channel towards the average of what its instances have.

    Args:
        running_dtype: Of the running statistics.
        threads: Threads of a block; one a channel.
    """
    n, c = T.dynamic("n", "int64"), T.dynamic("c", "int64")

    @T.prim_func
    def instance_averages(
        mean: T.Tensor((n, c), "float32"),
        variance: T.Tensor((n, c), "float32"),
        running_mean: T.Tensor((c,), running_dtype),
        running_var: T.Tensor((c,), running_dtype),
        momentum: T.float32,
    ):
        with T.Kernel(T.ceildiv(c, threads), threads=threads) as block:
            channel = block * threads + T.get_thread_binding()
            sums = T.alloc_local((2,), "float32")
            if channel < c:
                sums[0] = 0.0
                sums[1] = 0.0
                for i in T.serial(n):
                    sums[0] += mean[i, channel]
                    sums[1] += variance[i, channel]
                running_mean[channel] = (T.float32(1.0) - momentum) * T.cast(
                    running_mean[channel], "float32"
                ) + momentum * (sums[0] / T.cast(n, "float32"))
                running_var[channel] = (T.float32(1.0) - momentum) * T.cast(
                    running_var[channel], "float32"
                ) + momentum * (sums[1] / T.cast(n, "float32"))

    return instance_averages
