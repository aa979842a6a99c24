"""How channels are cut over blocks, and that the order in which blocks come to the parts never has them all wait."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch

from tests.kernels.support import on_arch
from tileops.kernels.norm.batch_norm_bwd import BatchNormBwdSplitKernel
from tileops.kernels.norm.batch_norm_train import BatchNormFwdTrainSplitKernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.cut_layout import (
    CUT_THREADS,
    LAG_BYTES,
    MOST_PARTS,
    PART_BYTES,
    TASKS_PER_SM,
    cut_layout,
    cut_of,
)
from tileops.kernels.norm.instance_norm import InstanceNormFwdSplitKernel

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PLANES = [1, 2, 3, 4, 5, 8, 16, 49, 784, 12544, 90300, 90301, 2**20]
SHAPES = [(1, 1), (5, 1), (4, 128), (32, 64), (9000, 40), (2**20, 3)]


def drawn(ticket: int, tasks: int, cuts: int, lag: int) -> tuple[bool, int, int]:
    """What the program does for a ticket: whether it normalizes, which channels, which part."""
    over = ticket - lag
    if over >= 2 * (tasks - lag):
        results, number = True, over - (tasks - lag)
    elif over >= 0:
        results, number = over % 2 == 1, over // 2 + (lag if over % 2 == 0 else 0)
    else:
        results, number = False, ticket
    block, cut = divmod(number, cuts)
    return results, block, cuts - 1 - cut if results else cut


@pytest.mark.parametrize(("blocks", "cuts"), [(1, 1), (1, 7), (5, 1), (5, 4), (3, 9)])
def test_each_task_is_drawn_once_and_waits_only_for_lower_tickets(blocks: int, cuts: int) -> None:
    tasks = blocks * cuts
    for lag in range(cuts, tasks + 1):
        order = [drawn(ticket, tasks, cuts, lag) for ticket in range(2 * tasks)]
        assert sorted(order) == sorted(itertools.product([False, True], range(blocks), range(cuts)))
        counted = [0] * blocks
        for results, block, _ in order:
            assert not results or counted[block] == cuts
            counted[block] += not results


@pytest.mark.parametrize("tensors", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_cover_a_channel_none_is_empty_and_all_statistics_of_one_are_ahead(
    dtype: torch.dtype, tensors: int
) -> None:
    for spatial, (n, c), sm_count in itertools.product(PLANES, SHAPES, [1, 84, 132]):
        if n * c * spatial > 2**38:
            continue  # more than a GPU has room for
        lay = cut_layout(spatial, dtype, tensors)
        vectors = n * spatial // lay.vector
        cut = cut_of(lay, vectors, c, lay.vector * dtype.itemsize, sm_count, tensors)
        assert (cut.cuts - 1) * cut.reach < vectors <= cut.cuts * cut.reach
        assert cut.reach % lay.lanes == 0
        assert cut.reach < 2**31
        assert cut.blocks == -(-c // lay.groups)
        assert cut.cuts <= cut.lag <= cut.blocks * cut.cuts


@pytest.mark.parametrize(
    ("shape", "tensors", "cuts", "kib"),
    [
        ((32, 256, 56 * 56), 1, 4, 52),
        ((32, 64, 112 * 112), 1, 13, 64),
        ((8, 32, 512 * 512), 1, 64, 64),
        ((4, 128, 2**20), 1, 64, 128),
        ((32, 256, 56 * 56), 2, 7, 56),
        ((4, 128, 2**20), 2, 128, 128),
        ((5, 1, 2**29), 1, 792, 6620),
    ],
)
def test_float16_channels_are_cut_as_they_were_measured(
    shape: tuple[int, int, int], tensors: int, cuts: int, kib: int
) -> None:
    n, c, spatial = shape
    lay = cut_layout(spatial, torch.float16, tensors)
    cut = cut_of(lay, n * spatial // lay.vector, c, 16, 132, tensors)
    assert (cut.cuts, cut.reach * 16 * tensors // 1024) == (cuts, kib)
    assert cut.cuts * c >= 132 * TASKS_PER_SM or cut.reach == lay.lanes


def test_long_channels_have_parts_of_one_size_and_statistics_are_ahead_by_what_the_cache_holds() -> None:
    lay = cut_layout(2**18, torch.float16, 1)
    cut = cut_of(lay, 2**15, 512, 16, 132, 1)
    assert cut.reach * 16 == PART_BYTES
    assert cut.lag * PART_BYTES == LAG_BYTES
    assert cut_of(lay, 2**20, 512, 16, 132, 1).cuts == MOST_PARTS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spatial", PLANES)
def test_a_block_has_what_is_stated(spatial: int, dtype: torch.dtype) -> None:
    call = on_arch(BatchNormCall(4, 3, spatial, dtype=dtype), 90)
    for kernel, tensors, facts in (
        (BatchNormFwdTrainSplitKernel, 1, 4),
        (InstanceNormFwdSplitKernel, 1, 4),
        (BatchNormBwdSplitKernel, 2, 2),
    ):
        lay = cut_layout(spatial, dtype, tensors)
        assert lay.threads == kernel.block_threads(call) == CUT_THREADS
        assert kernel.block_smem_bytes(call) == 6 * 8 + lay.warps * lay.groups * facts * 4
        assert lay.lanes * lay.groups == CUT_THREADS
        assert spatial % lay.vector == 0
        assert lay.steps >= 4
        assert lay.vector * dtype.itemsize * lay.steps * tensors <= 128


@pytest.mark.compile
@pytest.mark.parametrize("kernel", [BatchNormFwdTrainSplitKernel, BatchNormBwdSplitKernel])
def test_what_blocks_tell_one_another_is_ordered_and_not_read_as_constant(kernel: Any) -> None:
    call = on_arch(BatchNormCall(3, 5, 90300, dtype=torch.float16), 90)
    built = kernel.entry_for(call)[1]()
    text = getattr(built, "compiled", getattr(built.launch, "compiled", None)).get_kernel_source()
    assert re.search(r"AtomicAddRet\(.*, 1, 4\)", text), "arriving acquires and releases"
    assert re.search(r"AtomicStore\(.*, 3\)", text), "publishing releases"
    assert re.search(r"AtomicLoad\(.*, 2\)", text), "waiting acquires"
    assert "AtomicAdd(" not in text, "its order is dropped"
    assert re.search(r"[(, ]float\* __restrict__ parts", text)
    assert re.search(r"[(, ]int\* __restrict__ counters", text)
