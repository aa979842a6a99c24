"""How channels lie in clusters of blocks: that they have room, that blocks are resident, and which are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.kernels.support import on_arch, serves
from tests.kernels.test_cluster_channels_gpu import FEW, INSTANCES, SHAPES, Extents, shape_of
from tests.kernels.test_compile import buffers, shared_bytes
from tileops.kernels.norm.batch_norm_train import BatchNormFwdTrainClusterKernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.cluster_launches import cluster_extents
from tileops.kernels.norm.instance_norm import InstanceNormFwdClusterKernel

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
DTYPES = [FULL, HALF, BRAIN]
KINDS: list[Any] = [BatchNormFwdTrainClusterKernel, InstanceNormFwdClusterKernel]
MULTIPROCESSOR_BYTES = 228 * 1024
"""Shared memory of a multiprocessor of SM90."""
RESERVED_BYTES = 1024
"""What the system takes of it for each block."""


@st.composite
def served(draw: st.DrawFn, kind: Any) -> BatchNormCall:
    """Calls that *kind* serves on SM90."""
    dtype = draw(st.sampled_from(DTYPES))
    vectors = draw(st.integers(32, 8 * 14336))
    n = draw(st.integers(1, 8 * 14336 // vectors if kind is BatchNormFwdTrainClusterKernel else 40))
    c = draw(st.integers(1, 70) | st.integers(1, 2**20))
    call: BatchNormCall = on_arch(BatchNormCall(n, c, vectors * 16 // dtype.itemsize, dtype=dtype), 90)
    assume(kind.refusal(call) is None)
    return call


def seen(kind: Any, call: BatchNormCall) -> tuple[int, int, int]:
    """What a launch sees: samples, channels, and values of a channel."""
    if kind is BatchNormFwdTrainClusterKernel:
        return call.n, call.c, call.values
    return 1, call.instances, call.spatial


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_cluster_has_room_for_every_channel_that_is_served_and_shares_cover_it(
    kind: Any, data: st.DataObject
) -> None:
    call = data.draw(served(kind))
    n, c, values = seen(kind, call)
    lay = kind.layout_of(call)
    total, share, q, *_ = cluster_extents(lay, n, c, values)
    assert lay.vector * call.dtype.itemsize == 16
    assert (total * lay.vector, q * lay.vector) == (values, call.spatial)
    assert lay.blocks in (1, 2, 4, 8)
    assert lay.blocks * lay.room >= total
    assert share <= lay.room, "of each block"
    assert share * lay.blocks >= total > share * (lay.blocks - 1), "and none has nothing"


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_so_many_blocks_are_resident_as_is_said_and_no_more_would_be(kind: Any, data: st.DataObject) -> None:
    call = data.draw(served(kind))
    lay, smem = kind.layout_of(call), kind.block_smem_bytes(call)
    assert lay.room * 16 < smem <= call.smem_budget
    assert lay.resident * (smem + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES
    assert (lay.resident + 1) * (smem + RESERVED_BYTES) > MULTIPROCESSOR_BYTES or lay.resident == 4
    assert kind.block_threads(call) == lay.lanes == 256


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_smaller_cluster_would_not_fill_the_device_or_have_two_blocks_resident(
    kind: Any, data: st.DataObject
) -> None:
    call = data.draw(served(kind))
    _, c, values = seen(kind, call)
    lay = kind.layout_of(call)
    two_resident = (MULTIPROCESSOR_BYTES // 2 - RESERVED_BYTES) // 16
    fewer = lay.blocks // 2
    assert fewer * c < 128 or values * call.dtype.itemsize > fewer * 16 * (two_resident - 128) or lay.blocks == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "c", "spatial", "dtype", "fragment"),
    [
        (1, 5, 8184, HALF, "a channel has 8184 values, fewer than 8192"),
        (1, 5, 8188, FULL, "a channel has 8188 values, fewer than 8192"),
        (1, 5, 90300, HALF, "not a multiple of 8"),
        (1, 5, 90302, FULL, "not a multiple of 4"),
        (1, 5, 917_512, BRAIN, "a channel has 917512 values, more than the 917504 of a cluster"),
        (1, 5, 458_756, FULL, "a channel has 458756 values, more than the 458752 of a cluster"),
        (1, 2**27 + 1, 8192, HALF, "134217729 channels are more than 134217728"),
    ],
)
def test_what_no_cluster_takes_is_refused_with_its_values(
    kind: Any, n: int, c: int, spatial: int, dtype: torch.dtype, fragment: str
) -> None:
    assert fragment in str(kind.refusal(on_arch(BatchNormCall(n, c, spatial, dtype=dtype), 90)))


@pytest.mark.parametrize(("dtype", "fewest"), [(HALF, 256), (BRAIN, 256), (FULL, 128)])
def test_planes_of_less_than_512_bytes_are_refused(dtype: torch.dtype, fewest: int) -> None:
    kind, whole = BatchNormFwdTrainClusterKernel, 16 // dtype.itemsize
    assert serves(kind, BatchNormCall(100, 5, fewest, dtype=dtype), 90)
    short = on_arch(BatchNormCall(100, 5, fewest - whole, dtype=dtype), 90)
    assert f"spatial {fewest - whole} is less than {fewest}" in str(kind.refusal(short))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_longest_channels_the_shortest_and_the_most_are_taken(kind: Any, dtype: torch.dtype) -> None:
    longest = 8 * 14336 * 16 // dtype.itemsize
    for c, spatial in ((5, longest), (5, 8192), (2**27, 8192)):
        assert kind.refusal(on_arch(BatchNormCall(1, c, spatial, dtype=dtype), 90)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_that_has_less_shared_memory_than_one_takes_is_refused(kind: Any) -> None:
    longest = on_arch(BatchNormCall(1, 5, 917_504, dtype=HALF), 90)
    needed = kind.block_smem_bytes(longest)
    assert needed <= longest.smem_budget
    for smem_budget, fits in ((needed, True), (needed - 1, False), (101_376, False)):
        reason = kind.refusal(BatchNormCall(1, 5, 917_504, dtype=HALF, arch=90, smem_budget=smem_budget))
        assert (reason is None) == fits
        assert fits or f"smem_budget {smem_budget} is less than" in str(reason)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch", [80, 86, 89, 90, 100, 120])
def test_clusters_are_of_sm90_however_much_shared_memory_another_has(kind: Any, arch: int) -> None:
    reason = kind.refusal(BatchNormCall(2, 64, 32768, dtype=HALF, arch=arch, smem_budget=2**20))
    assert (arch in kind.supported_archs and reason is None) == (arch == 90)


def test_the_shapes_run_on_a_gpu_are_laid_out_in_every_way() -> None:
    for kind, shapes in ((KINDS[0], SHAPES), (KINDS[1], INSTANCES)):
        for extents, laid_out in shapes.items():
            for dtype in (HALF, BRAIN, FULL) if extents in {**FEW, **INSTANCES} else (HALF,):
                call = on_arch(BatchNormCall(*shape_of(extents, dtype), dtype=dtype), 90)
                lay = kind.layout_of(call)
                assert kind.refusal(call) is None
                assert (lay.blocks, lay.resident) == laid_out, (extents, dtype)
    assert set(SHAPES.values()) == {(blocks, few) for blocks in (1, 2, 4, 8) for few in (4, 3, 2)} | {(8, 1)}
    assert {resident for _, resident in FEW.values()} == {1, 2, 3, 4}
    shares = {each: -(-each[0] * each[2] // blocks) for each, (blocks, _) in SHAPES.items()}
    partial = [each for each, share in shares.items() if each[0] * each[2] % share]
    assert any(SHAPES[each][0] == 8 for each in partial), "last blocks have less than the others"
    assert any(share % vectors for (_, _, vectors), share in shares.items() if share > vectors), "planes are cut"
    assert any(share // 4 > 32 * vectors for (_, _, vectors), share in shares.items()), "more planes than lanes"


# ---------------------------------------------------------------------------------------------------------- the program


def static_bytes(source: str) -> int:
    """Shared memory that a program has beside what is asked for at a launch, which begins where it is aligned to."""
    (alignment,) = {int(each) for each in re.findall(r"extern __shared__ __align__\((\d+)\)", source)}
    sizes = re.findall(r"^ *__shared__ __align__\(16\) uint64_t \w+\[(\d+)\];", source, re.M)
    assert len(sizes) == source.count(" __shared__ ") - 1 >= 1
    return -(-8 * sum(map(int, sizes)) // alignment) * alignment


@pytest.mark.compile
@pytest.mark.parametrize(
    ("extents", "dtype", "running"),
    [
        ((64, 128, 32), HALF, None),
        ((251, 130, 33), BRAIN, FULL),
        ((2, 70, 12345), FULL, None),
        ((2, 4, 56000), HALF, FULL),
    ],
)
def test_a_block_takes_what_is_stated_and_so_many_are_resident(
    extents: Extents, dtype: torch.dtype, running: torch.dtype | None
) -> None:
    kind = BatchNormFwdTrainClusterKernel
    call = on_arch(BatchNormCall(*shape_of(extents, dtype), dtype=dtype, running_dtype=running), 90)
    lay, compiled = kind.layout_of(call), kind.entry_for(call)[1]().launch.compiled
    source, asked = compiled.get_kernel_source(), shared_bytes(compiled)
    assert f"__launch_bounds__({lay.lanes}, {lay.resident})" in source
    assert asked <= kind.block_smem_bytes(call)
    facts = 4 * 4
    needed = {"kept": lay.room * 16, "exchanged": 8 * facts}
    if lay.blocks > 1:
        needed |= {"own": facts, "pieces": lay.blocks * facts}
    found = buffers(source, asked)
    assert found.keys() == needed.keys()
    assert all(found[each] >= needed[each] for each in needed), "nothing is written over"
    taken = asked + static_bytes(source)
    assert taken <= kind.block_smem_bytes(call), "barriers, and what lies between them and the rest, are stated too"
    assert lay.resident * (taken + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES


@pytest.mark.compile
def test_blocks_meet_before_they_write_to_one_another_and_after() -> None:
    for extents, blocks in (((64, 128, 32), 1), ((2, 4, 56000), 8)):
        call = on_arch(BatchNormCall(*shape_of(extents, HALF), dtype=HALF), 90)
        source = BatchNormFwdTrainClusterKernel.entry_for(call)[1]().launch.compiled.get_kernel_source()
        steps = [source.count(f"tl::cluster_{step}();") for step in ("arrive_relaxed", "wait", "sync")]
        assert steps == ([1, 1, 1] if blocks > 1 else [0, 0, 0])
        assert source.count("__syncthreads();") == (3 if blocks > 1 else 2), "none is added, and none taken away"
        assert source.count("tl::tma_load(") == 1
        assert "*(uint4*)(out + " in source, "results are written sixteen bytes at a time"
