"""How given statistics and small instances lie over threads: nothing is left out, and blocks are as stated."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.kernels.support import on_arch
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.infer_layout import EACH, ONE, SHORT_AXIS, SOME, TWO, Columns, Planes, infer_layout
from tileops.kernels.norm.instance_layout import (
    MOST_PARTS,
    SMALL_VALUES,
    TRACKED_SAMPLES,
    TrackLayout,
    run_layout,
    takes_runs,
    track_layout,
)
from tileops.kernels.norm.instance_norm import InstanceNormFwdWideKernel

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PLANES = [1, 2, 3, 4, 6, 7, 8, 9, 16, 17, 49, 64, 196, 784, 900, 1023, 1024, 1025, 12_544, 90_301, 2**20]
CHANNELS = [1, 2, 3, 5, 8, 64, 70, 129, 2048, 70_000]
SAMPLES = [1, 2, 3, 9, 128, 4096, 70_000, 2**23]


def inferred() -> list[tuple[int, int, int, Planes | Columns]]:
    extents = [each for each in itertools.product(SAMPLES, CHANNELS, PLANES) if each[0] * each[1] * each[2] < 2**36]
    return [(n, c, spatial, infer_layout(n, c, spatial, torch.float16)) for n, c, spatial in extents]


def test_a_vector_has_the_channels_that_its_kind_says() -> None:
    for _, _, spatial, layout in inferred():
        if not isinstance(layout, Columns):
            continue
        if spatial > 100:
            assert layout.kind == (ONE if spatial % layout.vector == 0 else TWO)
            continue
        starts = range(0, spatial * layout.vector, layout.vector)
        most = max(len({(at + place) // spatial for place in range(layout.vector)}) for at in starts)
        assert (layout.kind == ONE) == (most == 1)
        assert (layout.kind == EACH) == (spatial == 1 and layout.vector > 1)
        assert most <= 2 or layout.kind in (SOME, EACH)


def test_every_row_is_of_whole_vectors_and_every_block_of_a_grid_can_be_launched() -> None:
    for n, c, spatial, layout in inferred():
        assert c * spatial % layout.vector == 0
        if isinstance(layout, Planes):
            assert spatial % layout.vector == 0
            chunks = -(-(spatial // layout.vector) // (layout.threads * layout.steps))
            grid = (chunks * c * n,) if layout.counted else (chunks, c, n)
        else:
            assert layout.threads % layout.lanes == 0
            chunks = -(-(c * spatial // layout.vector) // layout.lanes)
            shares = -(-n // (layout.threads // layout.lanes * layout.steps))
            grid = (chunks * shares,) if layout.counted else (chunks, shares)
            assert layout.wide == (c * spatial > 2**30)
        assert grid[0] < 2**31
        assert all(axis <= SHORT_AXIS for axis in grid[1:])


def test_few_threads_have_nothing_to_do() -> None:
    for n, c, spatial, layout in inferred():
        vectors = n * c * spatial // layout.vector
        if vectors < 2**20:
            continue
        if isinstance(layout, Planes):
            taken = -(-(spatial // layout.vector) // (layout.threads * layout.steps)) * layout.steps * layout.threads
            assert spatial // layout.vector * 2 >= taken
        else:
            row = c * spatial // layout.vector
            assert row * 2 >= -(-row // layout.lanes) * layout.lanes


def test_batches_of_any_size_find_a_layout_of_a_few() -> None:
    for c, spatial in ((64, 1), (2048, 49), (256, 784), (64, 12_544)):
        assert len({infer_layout(n, c, spatial, torch.float16) for n in range(1, 5000)}) <= 4


def test_each_benchmarked_shape_is_laid_out_as_it_was_fastest() -> None:
    def of(*extents: int) -> Planes | Columns:
        return infer_layout(*extents, torch.float16)

    assert of(128, 2048, 49) == Columns(8, TWO, 128, 8, 128, wide=False, counted=False)
    assert of(32, 64, 1) == Columns(4, EACH, 16, 1, 128, wide=False, counted=False)
    assert of(4, 128, 1024) == Planes(8, 1, 128, counted=False)
    assert of(32, 256, 3136) == of(4, 128, 2**20) == Planes(8, 2, 128, counted=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_of_inference_is_as_stated(dtype: torch.dtype) -> None:
    for n, c, spatial in itertools.product([1, 128], [3, 64], PLANES):
        call = on_arch(BatchNormCall(n, c, spatial, dtype=dtype, running_dtype=dtype), 90)
        assert BatchNormFwdInferKernel.block_threads(call) == infer_layout(n, c, spatial, dtype).threads
        assert BatchNormFwdInferKernel.block_smem_bytes(call) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("instances", [1, 100, 2048, 2**20])
def test_the_lanes_of_a_small_instance_have_all_of_it_and_only_the_last_step_is_short(
    instances: int, dtype: torch.dtype
) -> None:
    for spatial in range(1, SMALL_VALUES + 1):
        lay = run_layout(instances, spatial, dtype)
        pieces = spatial // lay.vector if lay.whole else spatial
        assert lay.vector * dtype.itemsize == 16
        assert lay.whole == (spatial % lay.vector == 0)
        assert lay.lanes * (lay.steps - 1) < pieces <= lay.lanes * lay.steps
        assert lay.lanes * lay.instances == lay.threads
        assert lay.threads <= 256
        if not lay.whole:
            assert lay.instances % lay.vector == 0, "each run begins with a whole load"
            assert lay.threads * lay.steps >= lay.instances * spatial
            assert lay.shared_bytes <= 48 * 1024
        assert lay.steps * (lay.vector if lay.whole else 1) <= 41


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("running_dtype", [None, torch.float32])
def test_a_block_of_small_instances_is_as_stated(dtype: torch.dtype, running_dtype: torch.dtype | None) -> None:
    for (n, c), spatial in itertools.product([(1, 3), (64, 64)], range(1, SMALL_VALUES + 1)):
        if takes_runs(n * c, spatial, dtype):
            call = on_arch(BatchNormCall(n, c, spatial, dtype=dtype, running_dtype=running_dtype), 80)
            lay = run_layout(n * c, spatial, dtype)
            stated = InstanceNormFwdWideKernel.block_threads(call), InstanceNormFwdWideKernel.block_smem_bytes(call)
            assert stated == (lay.threads, lay.shared_bytes)


def test_small_instances_are_those_that_no_load_divides_and_many_others() -> None:
    half = torch.float16
    assert takes_runs(1, 49, half)
    assert takes_runs(2048, 64, half)
    assert not takes_runs(2047, 64, half)
    assert not takes_runs(2**20, SMALL_VALUES + 1, half)


def test_every_sample_is_averaged_once_by_warps_that_have_about_as_many_each() -> None:
    assert track_layout(1024, 1) == TrackLayout(groups=1, cut=False)
    assert track_layout(1025, 3) == TrackLayout(groups=2, cut=True)
    assert track_layout(2**20, 100) == TrackLayout(groups=8, cut=True)
    for n in (1025, 5000, 2**20, 2**30):
        parts = TrackLayout.parts_of(n)
        assert 2 <= parts <= MOST_PARTS
        assert parts * TRACKED_SAMPLES >= n or parts == MOST_PARTS
