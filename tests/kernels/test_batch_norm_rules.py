"""How channels are laid over threads, and that what is stated of a block is what the layout has."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.kernels.support import on_arch, serves
from tileops.kernels.norm.batch_norm_bwd import BatchNormBwdWideKernel
from tileops.kernels.norm.batch_norm_train import (
    BatchNormFwdTrainKernel,
    BatchNormFwdTrainWholeKernel,
    BatchNormFwdTrainWideKernel,
)
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.channel_launches import walk_of
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    STREAM_THREADS,
    held_layout,
    most_held,
    own_layout,
    streamed_layout,
    vector_of,
)
from tileops.kernels.norm.channel_regions import WHOLE_VALUES
from tileops.kernels.norm.set_layout import SLOTS, set_layout, streamed_set_layout, streams_sets, takes_sets

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PLANES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 49, 64, 784, 12544, 90300]


@pytest.mark.parametrize(
    ("spatial", "dtype", "vector"),
    [(64, torch.float16, 8), (64, torch.float32, 4), (4, torch.float16, 4), (6, torch.float32, 2), (49, DTYPES[2], 1)],
)
def test_a_load_is_the_widest_that_divides_a_plane(spatial: int, dtype: torch.dtype, vector: int) -> None:
    assert vector_of(spatial, dtype) == vector


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("many", [False, True])
def test_threads_that_hold_channels_hold_all_of_them_and_few_values_each(dtype: torch.dtype, many: bool) -> None:
    for spatial, samples in itertools.product(PLANES, [1, 2, 3, 17, 64, 256, 512, 5000]):
        values = spatial * samples
        if values > most_held(spatial, dtype):
            continue
        lay = held_layout(values, spatial, dtype, many=many)
        assert lay.lanes * lay.steps * lay.vector >= values
        assert lay.groups * lay.lanes % 32 == 0
        assert 64 <= lay.threads <= 512
        assert lay.steps * lay.vector <= 64 + lay.vector, "more values a thread spill"
        call = on_arch(BatchNormCall(samples, MANY_CHANNELS + 1 if many else 1, spatial, dtype=dtype), 90)
        assert BatchNormFwdTrainWideKernel.block_threads(call) == lay.threads
        assert BatchNormFwdTrainWideKernel.block_smem_bytes(call) == lay.shared_bytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("many", [False, True])
def test_channels_of_few_values_are_held_whole(dtype: torch.dtype, many: bool) -> None:
    for spatial, samples in itertools.product(range(1, 33), repeat=2):
        values = spatial * samples
        if values > WHOLE_VALUES:
            continue
        lay = own_layout(values, spatial, dtype, many=many)
        assert lay.lanes * lay.steps * lay.vector >= values
        assert (lay.threads, lay.groups * lay.lanes % 32) == (128, 0)
        call = on_arch(BatchNormCall(samples, MANY_CHANNELS if many else 1, spatial, dtype=dtype), 90)
        assert BatchNormFwdTrainWholeKernel.block_threads(call) == lay.threads
        assert BatchNormFwdTrainWholeKernel.block_smem_bytes(call) == lay.shared_bytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tensors", [1, 2])
def test_sets_of_channels_are_whole_vectors_and_held_by_the_threads_stated(dtype: torch.dtype, tensors: int) -> None:
    kernel = BatchNormFwdTrainWideKernel if tensors == 1 else BatchNormBwdWideKernel
    taken = 0
    for spatial, n, c in itertools.product([*PLANES, 25, 81, 289, 441, 1001], [1, 2, 10, 127, 128, 160], [7, 8, 24]):
        call = on_arch(BatchNormCall(n, c, spatial, dtype=dtype), 90)
        if not takes_sets(n, c, spatial, dtype, call.smem_budget, tensors):
            continue
        taken += 1
        lay = set_layout(n, spatial, dtype, tensors)
        assert lay.channels * spatial == lay.columns * lay.vector
        assert c % lay.channels == 0
        assert lay.rows * lay.steps >= n > lay.rows * (lay.steps - 1)
        assert lay.rows * lay.columns <= lay.threads <= 512
        assert lay.slots == SLOTS
        first = [j * lay.vector // spatial for j in range(lay.columns)]
        last = [((j + 1) * lay.vector - 1) // spatial for j in range(lay.columns)]
        assert max(end - begin for begin, end in zip(first, last, strict=True)) < lay.slots
        assert kernel.block_threads(call) == lay.threads
        assert kernel.block_smem_bytes(call) <= call.smem_budget
    assert taken > 10


def test_planes_of_whole_vectors_and_channels_that_fill_no_set_are_held_one_by_one() -> None:
    budget = on_arch(BatchNormCall(1, 1, 1), 90).smem_budget
    half = torch.float16
    assert takes_sets(128, 2048, 49, half, budget, 1)
    assert takes_sets(128, 2048, 49, half, budget, 2)
    assert not takes_sets(128, 2048, 48, half, budget, 1)
    assert not takes_sets(128, 2047, 49, half, budget, 1)
    assert not takes_sets(1280, 2048, 49, half, budget, 1)
    assert not takes_sets(128, 2048, 49, half, on_arch(BatchNormCall(1, 1, 1), 89).smem_budget, 1)
    assert not takes_sets(128, 2048, 49, half, None, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [BatchNormFwdTrainWideKernel, BatchNormFwdTrainKernel, BatchNormBwdWideKernel])
def test_sets_that_no_block_holds_are_streamed_by_the_threads_stated(kernel: Any, dtype: torch.dtype) -> None:
    tensors = 2 if kernel is BatchNormBwdWideKernel else 1
    for arch, n, spatial in itertools.product([80, 89, 90], [1, 100, 5000], [9, 49, 441]):
        call = on_arch(BatchNormCall(n, 24, spatial, dtype=dtype), arch)
        assert streams_sets(n, 24, spatial, dtype)
        if kernel is not BatchNormFwdTrainKernel and takes_sets(n, 24, spatial, dtype, call.smem_budget, tensors):
            continue
        lay = streamed_set_layout(n, spatial, dtype, tensors)
        assert (lay.steps, kernel.block_threads(call)) == (0, lay.threads)
        assert kernel.block_smem_bytes(call) == 4 * 2 * (lay.slots * lay.threads + lay.channels)


@pytest.mark.parametrize(("n", "c", "q", "lanes"), [(3, 5, 7, 32), (4, 2, 98, 64), (300, 9, 1, 32), (2, 3, 512, 512)])
def test_a_walk_in_steps_of_lanes_comes_by_every_vector_of_a_channel(n: int, c: int, q: int, lanes: int) -> None:
    vectors, _, share, along, step, leap = walk_of(n, c, q, lanes)
    for channel in range(c):
        found = []
        for lane in range(lanes):
            sample = lane * share >> 20
            at, place = lane - sample * q, (sample * c + channel) * q + lane - sample * q
            for _ in range(lane, vectors, lanes):
                found.append(place)
                at, place = at + along, place + step
                if at >= q:
                    at, place = at - q, place + leap
        assert sorted(found) == [(b * c + channel) * q + j for b in range(n) for j in range(q)]


def test_a_lane_is_divided_by_any_plane() -> None:
    for q in [*range(1, 1100), 2**20 - 1, 2**20, 2**30]:
        share = walk_of(1, 1, q, 32)[2]
        assert all(lane * share >> 20 == lane // q for lane in range(1024))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spatial", PLANES)
def test_blocks_that_stream_have_what_is_stated(spatial: int, dtype: torch.dtype) -> None:
    call = on_arch(BatchNormCall(4, 3, spatial, dtype=dtype), 90)
    kernel, lay = BatchNormFwdTrainKernel, streamed_layout(spatial, dtype, STREAM_THREADS)
    assert (kernel.block_threads(call), kernel.block_smem_bytes(call)) == (lay.threads, lay.shared_bytes)
    assert lay.lanes * lay.groups == STREAM_THREADS
    assert spatial % lay.vector == 0


@pytest.mark.parametrize("arch", [100, 120])
def test_archs_that_are_not_listed_are_not_run_on(arch: int) -> None:
    assert not serves(BatchNormFwdTrainKernel, BatchNormCall(4, 4, 4), arch)


def test_a_parameter_dtype_that_is_neither_float32_nor_the_inputs_is_invalid() -> None:
    half, brain = torch.float16, torch.bfloat16
    assert BatchNormCall(1, 1, 1, dtype=half, weight_dtype=half, running_dtype=torch.float32).invalid() is None
    assert "weight_dtype" in str(BatchNormCall(1, 1, 1, dtype=half, weight_dtype=brain).invalid())
    assert "running_dtype" in str(BatchNormCall(1, 1, 1, dtype=half, running_dtype=brain).invalid())
    assert "negative" in str(BatchNormCall(-1, 1, 1).invalid())
