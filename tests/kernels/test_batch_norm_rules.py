"""How channels are laid over threads, and that what is stated of a block is what the layout has."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.kernels.support import on_arch, serves
from tileops.kernels.norm.batch_norm_train import (
    BatchNormFwdTrainKernel,
    BatchNormFwdTrainSplitKernel,
    BatchNormFwdTrainWideKernel,
)
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    SPLIT_THREADS,
    STREAM_THREADS,
    cuts_of,
    held_layout,
    most_held,
    streamed_layout,
    vector_of,
)

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
        assert 128 <= lay.threads <= 512
        assert lay.steps * lay.vector <= 64 + lay.vector, "more values a thread spill"
        call = on_arch(BatchNormCall(samples, MANY_CHANNELS if many else 1, spatial, dtype=dtype), 90)
        assert BatchNormFwdTrainWideKernel.block_threads(call) == lay.threads
        assert BatchNormFwdTrainWideKernel.block_smem_bytes(call) == lay.shared_bytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spatial", PLANES)
def test_blocks_that_stream_have_what_is_stated(spatial: int, dtype: torch.dtype) -> None:
    call = on_arch(BatchNormCall(4, 4, spatial, dtype=dtype), 90)
    for kernel, threads in ((BatchNormFwdTrainKernel, STREAM_THREADS), (BatchNormFwdTrainSplitKernel, SPLIT_THREADS)):
        lay = streamed_layout(spatial, dtype, threads)
        assert (kernel.block_threads(call), kernel.block_smem_bytes(call)) == (lay.threads, lay.shared_bytes)
        assert lay.lanes * lay.groups == threads
        assert spatial % lay.vector == 0


def test_channels_are_cut_so_that_every_multiprocessor_has_blocks_and_none_is_without_values() -> None:
    lay = streamed_layout(2**20, torch.float16, SPLIT_THREADS)
    assert cuts_of(lay, 4 * 2**20, 128, 132) * 128 >= 132 * 16
    assert cuts_of(lay, 8192, 1, 132) == 1, "there is one round of values"
    assert cuts_of(lay, 2**34, 1, 132) == 132 * 16


@pytest.mark.parametrize("arch", [100, 120])
def test_archs_that_are_not_listed_are_not_run_on(arch: int) -> None:
    assert not serves(BatchNormFwdTrainKernel, BatchNormCall(4, 4, 4), arch)


def test_a_parameter_dtype_that_is_neither_float32_nor_the_inputs_is_invalid() -> None:
    half, brain = torch.float16, torch.bfloat16
    assert BatchNormCall(1, 1, 1, dtype=half, weight_dtype=half, running_dtype=torch.float32).invalid() is None
    assert "weight_dtype" in str(BatchNormCall(1, 1, 1, dtype=half, weight_dtype=brain).invalid())
    assert "running_dtype" in str(BatchNormCall(1, 1, 1, dtype=half, running_dtype=brain).invalid())
    assert "negative" in str(BatchNormCall(-1, 1, 1).invalid())
