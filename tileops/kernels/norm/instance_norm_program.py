"""TileLang programs of instances alone: small ones, and what follows their statistics. Loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program, and names
that only a string holds are not in its closure.
"""

from typing import Any

import tilelang.language as T

from tileops.kernels.norm.instance_layout import RunLayout, TrackLayout

__all__ = ["PASSES", "averaged_instances", "runs_of_instances", "summed_instances", "vectors_of_instances"]

PASSES = ("TL_DISABLE_SAFE_MEMORY_ACCESS", "TL_DISABLE_THREAD_STORAGE_SYNC")
"""What stands beside each access is the check that it needs, and each barrier where one is."""
WARP = 32
LARGEST = 3.4028234663852886e38
"""The largest float32: what compares so is a number. A comparison with itself would be taken for true."""
CHAINS = 4
"""Sums that a lane forms beside each other: an addition waits four cycles for the one before it."""


@T.macro
def over_lanes(value, i, first, last):
    """Add ``value[i]`` over the lanes that differ in the bits from *first* to below *last*; each gets the sum."""
    if first <= 1 and last > 1:
        value[i] += T.shfl_xor(value[i], 1)
    if first <= 2 and last > 2:
        value[i] += T.shfl_xor(value[i], 2)
    if first <= 4 and last > 4:
        value[i] += T.shfl_xor(value[i], 4)
    if first <= 8 and last > 8:
        value[i] += T.shfl_xor(value[i], 8)
    if first <= 16 and last > 16:
        value[i] += T.shfl_xor(value[i], 16)


@T.macro
def measured(value, of, lane, lanes, steps, width, most, spatial, eps):
    """Take the statistics of an instance of which each lane has *steps* times *width* values, the last perhaps none.

    The mean is formed about the first value, then rounded. The distances from that are summed too, so that what the
    rounding took away, and what a first value far from all others did, is put back.

    Args:
        value: What a lane has; its distances from the rounded mean after this.
        of: Weight and bias; then the factor in the place of the weight, the squared distances from the mean in place 2,
            the rounded mean in place 3, and what it lacks in place 4.
        lane: Of the instance.
        lanes: How many there are.
        steps: How often all lanes take *width* neighbouring values each.
        width: Ditto.
        most: Of how many such widths an instance is.
        spatial: Of how many values.
        eps: Added to the variance.
    """
    sums = T.alloc_local((2 * CHAINS,), "float32")
    of[3] = T.shfl_sync(value[0], 0, lanes)
    for i in T.unroll(CHAINS):
        sums[i] = 0.0
    for s in T.unroll(steps):
        if s < steps - 1 or lane + s * lanes < most:
            for k in T.unroll(width):
                sums[(s * width + k) % CHAINS] += value[s * width + k] - of[3]
    of[2] = sums[0]
    for i in T.unroll(CHAINS - 1):
        of[2] += sums[i + 1]
    over_lanes(of, 2, 1, lanes)
    of[3] += of[2] / T.cast(spatial, "float32")
    for i in T.unroll(2 * CHAINS):
        sums[i] = 0.0
    for s in T.unroll(steps):
        if s < steps - 1 or lane + s * lanes < most:
            for k in T.unroll(width):
                value[s * width + k] -= of[3]
                sums[(s * width + k) % CHAINS] += value[s * width + k]
                sums[CHAINS + (s * width + k) % CHAINS] += value[s * width + k] * value[s * width + k]
    of[4] = sums[0]
    of[2] = sums[CHAINS]
    for i in T.unroll(CHAINS - 1):
        of[4] += sums[i + 1]
        of[2] += sums[CHAINS + i + 1]
    over_lanes(of, 4, 1, lanes)
    over_lanes(of, 2, 1, lanes)
    of[5] = of[4] / T.cast(spatial, "float32")
    of[2] -= of[4] * of[5]
    of[4] = of[5]
    of[2] = T.if_then_else(of[2] < T.float32(0.0), T.float32(0.0), of[2])
    of[5] = of[2] / T.cast(spatial, "float32") + eps
    of[0] *= T.if_then_else(of[5] == T.float32(0.0), T.float32(0.0), T.rsqrt(of[5]))


@T.macro
def write_down(of, mean, variance, instance, owner, spatial):
    """Write mean and unbiased variance of *instance*; where the mean is no number, what it lacks is none either."""
    if owner:
        mean[instance] = T.if_then_else(T.abs(of[4]) <= LARGEST, of[3] + of[4], of[3])
        variance[instance] = of[2] / (T.cast(spatial, "float32") - T.float32(1.0))


def _signature(body: Any, dtype: str, weight_dtype: str, kept: bool, shape: Any, grid: Any, threads: int) -> Any:
    """The program that runs *body* in each block, with or without statistics that are kept."""
    w64, count = T.dynamic("w", "int64"), T.dynamic("count", "int64")

    if not kept:

        @T.prim_func
        def normalized_instances(
            x: T.Tensor(shape, dtype),
            weight: T.Tensor((w64,), weight_dtype),
            bias: T.Tensor((w64,), weight_dtype),
            out: T.Tensor(shape, dtype),
            eps: T.float32,
            spatial: T.int32,
        ):
            with T.Kernel(grid(spatial), threads=threads) as block:
                body(block, x, weight, bias, out, weight, weight, eps, spatial, w64)

        return normalized_instances

    @T.prim_func
    def normalized_and_measured_instances(
        x: T.Tensor(shape, dtype),
        weight: T.Tensor((w64,), weight_dtype),
        bias: T.Tensor((w64,), weight_dtype),
        out: T.Tensor(shape, dtype),
        mean: T.Tensor((count,), "float32"),
        variance: T.Tensor((count,), "float32"),
        eps: T.float32,
        spatial: T.int32,
    ):
        with T.Kernel(grid(spatial), threads=threads) as block:
            body(block, x, weight, bias, out, mean, variance, eps, spatial, w64)

    return normalized_and_measured_instances


def vectors_of_instances(dtype: str, weight_dtype: str, kept: bool, lay: RunLayout) -> Any:
    """Small instances of whole vectors, which the lanes of each hold in registers.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias, taken in turn.
        kept: Whether means and unbiased variances are written.
        lay: The layout; a step is a vector of each lane.
    """
    count, q64 = T.dynamic("count", "int64"), T.dynamic("q", "int64")
    lanes, steps, vector = lay.lanes, lay.steps, lay.vector

    @T.macro
    def body(block, x, weight, bias, out, mean, variance, eps, spatial, w64):
        q = T.cast(q64, "int32")
        thread = T.get_thread_binding()
        lane = thread % lanes
        held = T.alloc_local((steps * vector,), dtype)
        value = T.alloc_local((steps * vector,), "float32")
        at = T.alloc_local((2,), "int32")
        of = T.alloc_local((6,), "float32")
        at[0] = T.cast(block, "int32") * lay.instances + thread // lanes
        at[1] = T.truncmod(at[0], T.cast(w64, "int32"))
        for s in T.unroll(steps):
            if T.cast(at[0], "int64") < count and (s < steps - 1 or lane + s * lanes < q):
                for k in T.vectorized(vector):
                    held[s * vector + k] = x[T.cast(at[0], "int64"), lane + s * lanes, k]
        of[0] = T.cast(weight[at[1]], "float32")
        of[1] = T.cast(bias[at[1]], "float32")
        for i in T.unroll(steps * vector):
            value[i] = T.cast(held[i], "float32")
        measured(value, of, lane, lanes, steps, vector, q, spatial, eps)
        if kept:
            write_down(
                of, mean, variance, T.cast(at[0], "int64"), lane == 0 and T.cast(at[0], "int64") < count, spatial
            )
        for s in T.unroll(steps):
            if T.cast(at[0], "int64") < count and (s < steps - 1 or lane + s * lanes < q):
                for k in T.vectorized(vector):
                    out[T.cast(at[0], "int64"), lane + s * lanes, k] = (value[s * vector + k] - of[4]) * of[0] + of[1]

    def grid(_: Any) -> Any:
        return T.ceildiv(count, T.int64(lay.instances))

    return _signature(body, dtype, weight_dtype, kept, (count, q64, vector), grid, lay.threads)


def runs_of_instances(dtype: str, weight_dtype: str, kept: bool, lay: RunLayout) -> Any:
    """Small instances: a block takes a run of neighbours through shared memory, in loads that know no instance.

    Only the last run is short, and may end inside a load.

    Args:
        dtype: Of input and output.
        weight_dtype: Of weight and bias, taken in turn.
        kept: Whether means and unbiased variances are written.
        lay: The layout; a step is a value of each lane.
    """
    total = T.dynamic("total", "int64")
    lanes, steps, vector, instances, threads = lay.lanes, lay.steps, lay.vector, lay.instances, lay.threads
    loads = -(-steps // vector)

    @T.macro
    def body(block, x, weight, bias, out, mean, variance, eps, spatial, w64):
        thread = T.get_thread_binding()
        instance = thread // lanes
        lane = thread % lanes
        run = T.alloc_shared((threads * steps,), dtype)
        held = T.alloc_local((loads * vector,), dtype)
        value = T.alloc_local((steps,), "float32")
        left = T.alloc_local((4,), "int32")
        at = T.alloc_local((2,), "int64")
        of = T.alloc_local((6,), "float32")
        at[0] = T.cast(block, "int64") * T.cast(spatial * (instances // vector), "int64")
        left[0] = T.cast(T.min(total - at[0] * vector, T.cast(spatial * instances, "int64")), "int32")
        left[1] = T.truncdiv(left[0], vector)
        left[2] = left[0] - left[1] * vector
        for v in T.unroll(loads):
            if thread + v * threads < left[1]:
                for k in T.vectorized(vector):
                    held[v * vector + k] = x[(at[0] + (thread + v * threads)) * vector + k]
        left[3] = T.truncmod(T.cast(block, "int32") * instances + instance, T.cast(w64, "int32"))
        of[0] = T.cast(weight[left[3]], "float32")
        of[1] = T.cast(bias[left[3]], "float32")
        for v in T.unroll(loads):
            if thread + v * threads < left[1]:
                for k in T.vectorized(vector):
                    run[(thread + v * threads) * vector + k] = held[v * vector + k]
        if thread < left[2]:
            at[1] = (at[0] + left[1]) * vector + thread
            held[0] = x[at[1]]
            run[left[1] * vector + thread] = held[0]
        T.sync_threads()
        left[3] = instance * spatial + lane
        for s in T.unroll(steps):
            if s < steps - 1 or lane + s * lanes < spatial:
                value[s] = T.cast(run[left[3] + s * lanes], "float32")
        measured(value, of, lane, lanes, steps, 1, spatial, spatial, eps)
        if kept:
            write_down(
                of, mean, variance, T.cast(block, "int64") * instances + instance,
                lane == 0 and instance * spatial < left[0], spatial,
            )  # fmt: skip
        for s in T.unroll(steps):
            if s < steps - 1 or lane + s * lanes < spatial:
                run[left[3] + s * lanes] = T.cast((value[s] - of[4]) * of[0] + of[1], dtype)
        T.sync_threads()
        for v in T.unroll(loads):
            if thread + v * threads < left[1]:
                for k in T.vectorized(vector):
                    held[v * vector + k] = run[(thread + v * threads) * vector + k]
                for k in T.vectorized(vector):
                    out[(at[0] + (thread + v * threads)) * vector + k] = held[v * vector + k]
        if thread < left[2]:
            at[1] = (at[0] + left[1]) * vector + thread
            held[0] = run[left[1] * vector + thread]
            out[at[1]] = held[0]

    def grid(spatial: Any) -> Any:
        return T.ceildiv(total, T.cast(spatial * instances, "int64"))

    return _signature(body, dtype, weight_dtype, kept, (total,), grid, threads)


@T.macro
def sums_of(sums, mean, variance, at, step, n, inside, groups, ahead):
    """Sum both over the samples from ``at[0]`` in steps of *step*, then over the lanes of a warp that share a channel.

    ``at[1]`` is the channel.
    """
    sums[0] = 0.0
    sums[1] = 0.0
    if inside:
        for _ in T.serial(T.truncdiv(n + step * ahead - 1, step * ahead)):
            for _ in T.unroll(ahead):
                if at[0] < n:
                    sums[0] += T.cast(mean[at[0], at[1]], "float64")
                    sums[1] += T.cast(variance[at[0], at[1]], "float64")
                at[0] += step
    over_lanes(sums, 0, groups, WARP)
    over_lanes(sums, 1, groups, WARP)


def summed_instances(lay: TrackLayout) -> Any:
    """Sum what the instances of each channel have over parts of the samples.

    Args:
        lay: The layout.
    """
    n, c, parts = (T.dynamic(name, "int64") for name in ("n", "c", "parts"))
    groups, threads = lay.groups, lay.threads
    channels = groups * (threads // WARP)

    @T.prim_func
    def parts_of_instances(
        mean: T.Tensor((n, c), "float32"),
        variance: T.Tensor((n, c), "float32"),
        mean_sums: T.Tensor((parts, c), "float64"),
        variance_sums: T.Tensor((parts, c), "float64"),
    ):
        with T.Kernel(T.ceildiv(c, T.int64(channels)) * parts, threads=threads) as block:
            thread = T.get_thread_binding()
            sums = T.alloc_local((2,), "float64")
            at = T.alloc_local((3,), "int64")
            lane = thread % WARP // groups
            at[1] = T.truncdiv(block, parts)
            at[2] = block - at[1] * parts
            at[0] = at[2] * (WARP // groups) + lane
            at[1] = at[1] * channels + (thread // WARP * groups + thread % groups)
            sums_of(sums, mean, variance, at, parts * (WARP // groups), n, at[1] < c, groups, lay.ahead)
            if at[1] < c and lane == 0:
                mean_sums[at[2], at[1]] = sums[0]
                variance_sums[at[2], at[1]] = sums[1]

    return parts_of_instances


def averaged_instances(dtype: str, running_dtype: str, lay: TrackLayout) -> Any:
    """Move the running statistics of each channel towards the average of what its instances have.

    Args:
        dtype: Of what is averaged: float32 where that are statistics, float64 where it is sums of them.
        running_dtype: Of the running statistics.
        lay: The layout.
    """
    n, c = T.dynamic("n", "int64"), T.dynamic("c", "int64")
    groups, threads = lay.groups, lay.threads
    channels = groups * (threads // WARP)

    @T.prim_func
    def instance_averages(
        mean: T.Tensor((n, c), dtype),
        variance: T.Tensor((n, c), dtype),
        running_mean: T.Tensor((c,), running_dtype),
        running_var: T.Tensor((c,), running_dtype),
        samples: T.int32,
        momentum: T.float32,
    ):
        with T.Kernel(T.ceildiv(c, T.int64(channels)), threads=threads) as block:
            thread = T.get_thread_binding()
            sums = T.alloc_local((2,), "float64")
            at = T.alloc_local((2,), "int64")
            lane = thread % WARP // groups
            at[0] = T.cast(lane, "int64")
            at[1] = T.cast(block, "int64") * channels + (thread // WARP * groups + thread % groups)
            sums_of(sums, mean, variance, at, T.int64(WARP // groups), n, at[1] < c, groups, lay.ahead)
            if at[1] < c and lane == 0:
                running_mean[at[1]] = (T.float32(1.0) - momentum) * T.cast(
                    running_mean[at[1]], "float32"
                ) + momentum * T.cast(sums[0] / T.cast(samples, "float64"), "float32")
                running_var[at[1]] = (T.float32(1.0) - momentum) * T.cast(
                    running_var[at[1]], "float32"
                ) + momentum * T.cast(sums[1] / T.cast(samples, "float64"), "float32")

    return instance_averages
