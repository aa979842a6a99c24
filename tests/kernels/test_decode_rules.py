from __future__ import annotations

import dataclasses
import itertools
import math
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tests.kernels.support import on_arch, serves
from tileops.kernels.attention.call_spec import AttentionCall, softmax_scale
from tileops.kernels.attention.gqa import decode_kernel
from tileops.kernels.attention.gqa.decode import (
    DIMS,
    MANY_KEYS,
    DecodeBuild,
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)
from tileops.kernels.attention.gqa.decode_cut import cut_tiles, runs_for, runs_of, tiles_of
from tileops.kernels.attention.gqa.decode_kernel import DecodeKernel, in_order
from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import (
    ALONE,
    CLUSTER_KEYS,
    CLUSTERED,
    ENOUGH_BYTES,
    DecodeShape,
    row_warps_for,
)

KEYS: dict[str, type[GQADecodeKernel]] = {
    "decode": GQADecodeKernel,
    "bs1": GQADecodeBs1Kernel,
    "long-context": GQADecodeLongContextKernel,
}
EVERY: dict[str, tuple[type[DecodeKernel], dict[str, object]]] = {
    **{name: (kernel, {}) for name, kernel in KEYS.items()},
    "window": (GQADecodeSlidingWindowKernel, {"window_size_left": 100}),
    "fp8": (GQAFp8DecodeKernel, {"is_fp8": True}),
    "fp8 window": (GQAFp8DecodeKernel, {"is_fp8": True, "window_size_left": 100}),
}
"""Each decode kernel, with what its calls have."""
DOCUMENTED = AttentionCall(batch=1, heads=32, heads_kv=4, dim=128, dtype=torch.float16)


def documented(**fields: object) -> AttentionCall:
    """The call of the contract document's example, with *fields* changed."""
    values = {name: getattr(DOCUMENTED, name) for name in ("batch", "heads", "heads_kv", "dim", "dtype")}
    return AttentionCall(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arch", "seqlen_kv", "serving"),
    [
        (90, 4096, {"decode", "bs1", "long-context"}),
        (90, 512, {"decode", "bs1"}),
        (80, 4096, {"decode", "long-context"}),
        (80, 512, {"decode"}),
    ],
)
def test_the_documents_table_of_archs_and_lengths_comes_out(arch: int, seqlen_kv: int, serving: set[str]) -> None:
    call = documented(seqlen_kv=seqlen_kv)
    assert {name for name, kernel in KEYS.items() if serves(kernel, call, arch)} == serving


def test_what_is_declared_of_each_kernel_is_what_the_document_declares() -> None:
    assert [kernel.general for kernel in KEYS.values()] == [True, False, False]
    assert [list(kernel.supported_archs) for kernel in KEYS.values()] == [[80, 89, 90], [90], [80, 89, 90]]
    assert GQADecodeLongContextKernel.preferred_over == frozenset({"gqa_dense_decode_bs1"})
    assert GQADecodeKernel.preferred_over == GQADecodeBs1Kernel.preferred_over == frozenset()


def in_the_documents_region(call: AttentionCall) -> bool:
    """The region of the long-context kernel, as the contract document writes it."""
    return (
        call.dense_decode_region
        and not call.fuse_rope
        and call.seqlen_kv >= 1024
        and call.batch == 1
        and call.heads == 32
        and call.heads_kv == 4
        and call.dim == 128
        and call.dtype == torch.float16
        and call.softcap == 0.0
    )


def test_long_context_serves_the_documents_region_and_nothing_else() -> None:
    choices: dict[str, list[object]] = {
        "batch": [1, 1, 1, 2],
        "heads": [32, 32, 32, 16, 64],
        "heads_kv": [4, 4, 4, 8],
        "dim": [128, 128, 128, 64, 100],
        "max_seqlen_q": [1, 1, 1, 2],
        "seqlen_kv": [0, 1, 1023, 1024, 1025, 4096, 1 << 20],
        "dtype": [torch.float16, torch.float16, torch.float16, torch.bfloat16, torch.float32],
        "is_causal": [False, True],
        "sm_scale": [None, 0.1, -2.0],
        "softcap": [0.0, 0.0, 0.0, 30.0],
        "window_size_left": [-1, -1, -1, 4],
        "window_size_right": [-1, 0],
        "is_fp8": [False, False, False, True],
    }
    draw = random.Random(0)
    served = 0
    for _ in range(20_000):
        call = AttentionCall(**{name: draw.choice(values) for name, values in choices.items()})  # type: ignore[arg-type]
        accepted = GQADecodeLongContextKernel.refusal(on_arch(call, draw.choice([80, 89, 90]))) is None
        assert accepted == in_the_documents_region(call), call
        served += accepted
    assert served > 100


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_seqlen_q": 2}, "max_seqlen_q 2"),
        ({"window_size_left": 7}, "window_size_left 7"),
        ({"is_fp8": True}, "is_fp8 True"),
        ({"dtype": torch.float32}, "dtype torch.float32"),
        ({"dim": 72}, "dim 72 is not a multiple of 16 from 16 to 256"),
    ],
)
@pytest.mark.parametrize("kernel", KEYS.values(), ids=KEYS)
def test_every_decode_kernel_refuses_with_the_value(
    kernel: type[GQADecodeKernel], fields: dict[str, object], said: str
) -> None:
    reason = kernel.refusal(on_arch(documented(**{"seqlen_kv": 4096, **fields}), 90))
    assert reason is not None
    if kernel is not GQADecodeLongContextKernel:  # its own borders are asked first
        assert said in reason


@pytest.mark.parametrize(("kernel", "said"), [(GQADecodeBs1Kernel, "batch 3 is not 1"), (GQADecodeKernel, None)])
def test_batches_are_for_the_general_kernel(kernel: type[GQADecodeKernel], said: str | None) -> None:
    assert kernel.refusal(on_arch(documented(batch=3, seqlen_kv=9), 90)) == said


@pytest.mark.parametrize("group", [1, 4, 5, 7, 8, 16, 64, 96])
def test_any_group_of_query_heads_is_served(group: int) -> None:
    assert serves(GQADecodeKernel, AttentionCall(heads=2 * group, heads_kv=2), 80)


def test_rotation_is_applied_by_the_general_kernel_and_that_of_windows_alone() -> None:
    rope = {"fuse_rope": True, "rotary_dim": 64, "seqlen_kv": 4096}
    assert serves(GQADecodeKernel, documented(**rope), 80)
    assert serves(GQADecodeSlidingWindowKernel, documented(**rope, window_size_left=5), 80)
    for kernel in (GQADecodeBs1Kernel, GQADecodeLongContextKernel):
        assert "fuse_rope" in str(kernel.refusal(on_arch(documented(**rope), 90)))


def test_clusters_are_for_fewer_keys_than_blocks_by_themselves_and_for_hopper() -> None:
    for keys, served in ((MANY_KEYS - 1, True), (MANY_KEYS, False)):
        assert serves(GQADecodeBs1Kernel, documented(seqlen_kv=keys), 90) == served
    for keys, clustered in ((CLUSTER_KEYS - 1, True), (CLUSTER_KEYS, False)):
        for arch in (80, 89, 90):
            shape = built(GQADecodeLongContextKernel, documented(seqlen_kv=keys), arch).layout.shape
            assert (shape.cluster > 1) == (clustered and arch == 90)


@pytest.mark.parametrize(("kernel", "fields"), EVERY.values(), ids=EVERY)
def test_no_keys_at_all_are_served(kernel: type[DecodeKernel], fields: dict[str, object]) -> None:
    if kernel is not GQADecodeLongContextKernel:
        assert serves(kernel, documented(seqlen_kv=0, **fields), 90)


def built(kernel: type[DecodeKernel], call: AttentionCall, arch: int = 90) -> DecodeBuild:
    """The build identity of *call*."""
    identity, _ = kernel.entry_for(on_arch(call, arch))
    assert isinstance(identity, DecodeBuild)
    return identity


@pytest.mark.parametrize(("kernel", "fields"), EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("dim", DIMS)
def test_whatever_is_served_fits_the_shared_memory_of_its_arch(
    kernel: type[DecodeKernel], fields: dict[str, object], dim: int
) -> None:
    for arch in kernel.supported_archs or ():
        for group in (1, 16, 17, 64, 96):
            call = on_arch(documented(heads=4 * group, dim=dim, seqlen_kv=2048, **fields), arch)
            assert kernel.block_smem_bytes(call) <= KNOWN_ARCHS[arch].smem_budget
            assert kernel.block_threads(call) <= 256
            if kernel is not GQADecodeLongContextKernel:
                assert serves(kernel, call, arch)


def test_a_device_without_room_for_the_smallest_block_is_refused_with_both_numbers() -> None:
    call = AttentionCall(dim=256, arch=89, smem_budget=34_000)
    needed = ALONE.smallest(1).smem_bytes(256)
    assert needed > 34_000
    assert GQADecodeKernel.refusal(call) == (
        f"dim 256 needs {needed} bytes of shared memory a block, and smem_budget is 34000"
    )


def test_the_constructor_refuses_what_the_rule_refuses() -> None:
    _, builder = GQADecodeKernel.entry_for(on_arch(documented(dim=72), 90))
    with pytest.raises(ValueError, match="dim 72 is not a multiple of 16"):
        builder()


@pytest.mark.parametrize(("kernel", "fields"), EVERY.values(), ids=EVERY)
def test_a_decode_loop_needs_a_few_builds(kernel: type[DecodeKernel], fields: dict[str, object]) -> None:
    lengths = [*range(1, 8193), *range(60_000, 140_000, 7)]
    identities = {built(kernel, documented(seqlen_kv=n, **fields)) for n in lengths}
    assert len(identities) == {GQADecodeBs1Kernel: 2, GQADecodeLongContextKernel: 2}.get(kernel, 1)


def test_a_sequence_of_few_keys_is_taken_by_clusters_and_one_of_more_by_blocks_by_themselves() -> None:
    for keys, cluster, warps in ((CLUSTER_KEYS - 1, 8, 4), (CLUSTER_KEYS, 1, 8), (MANY_KEYS - 1, 1, 8)):
        for kernel in (GQADecodeBs1Kernel, GQADecodeLongContextKernel):
            shape = built(kernel, documented(seqlen_kv=keys)).layout.shape
            assert (shape.cluster, shape.key_warps) == (cluster, warps)


def test_rings_are_no_deeper_than_helps_and_as_deep_as_fits_where_warps_share_keys() -> None:
    budget = KNOWN_ARCHS[90].smem_budget
    for dim, is_fp8 in itertools.product(DIMS, (False, True)):
        shape = ALONE.shape_for(dim, 1, budget, is_fp8)
        shallower = dataclasses.replace(shape, stages=shape.stages - 1)
        assert shape.stages == 2 or shallower.ring_bytes(dim, is_fp8) < ENOUGH_BYTES
        assert shape.ring_bytes(dim, is_fp8) >= ENOUGH_BYTES or shape.stages == max(ALONE.stages)
        for row_warps in (2, 4):
            shared = ALONE.shape_for(dim, row_warps, budget, is_fp8)
            deeper = dataclasses.replace(shared, stages=shared.stages + 1)
            assert shared.stages == max(ALONE.stages) or deeper.smem_bytes(dim, is_fp8) > budget


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_eight_keys_of_a_ring_lie_in_different_banks_side_by_side(dtype: str) -> None:
    for dim in DIMS:
        layout = DecodeLayout(4, 4, dim, dtype, "float16", DecodeShape(1, 1, 2))
        copies = range(0, dim, layout.wide)
        for row in range(16):
            assert sorted(layout.placed(row, column) for column in copies) == list(copies)
            assert layout.placed(row, layout.wide - 1) == layout.placed(row, 0) + layout.wide - 1
        for column in copies:
            banks = {(row * dim + layout.placed(row, column)) // layout.wide % 8 for row in range(8)}
            assert len(banks) == 8, (dim, column)
            assert [layout.placed(row + 8, column) for row in range(8)] == [
                layout.placed(row, column) for row in range(8)
            ]


@pytest.mark.parametrize("batches", [(1, 2, 59), (60, 64, 512)], ids=["cut", "whole"])
def test_one_build_serves_every_batch_and_causality(batches: tuple[int, ...]) -> None:
    """One where sequences are cut, and one where so many fill the device."""
    calls = [documented(batch=b, is_causal=c) for b, c in itertools.product(batches, [False, True])]
    assert len({built(GQADecodeKernel, call) for call in calls}) == 1


def test_the_default_scale_and_its_value_are_one_build() -> None:
    stated = documented(sm_scale=1.0 / math.sqrt(128))
    assert softmax_scale(128, None) == 1.0 / math.sqrt(128)
    assert built(GQADecodeKernel, stated) == built(GQADecodeKernel, documented())


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 64},
        {"heads_kv": 8},
        {"dim": 64},
        {"dtype": torch.bfloat16},
        {"sm_scale": 0.5},
        {"softcap": 20.0},
        {"fuse_rope": True, "rotary_dim": 64},
        {"fuse_rope": True, "rotary_dim": 64, "rope_interleaved": True},
        {"is_fp8": True},
    ],
)
def test_whatever_changes_the_build_changes_its_identity(fields: dict[str, object]) -> None:
    before = built(GQADecodeKernel, documented())
    assert before != built(GQADecodeKernel, documented(**fields))
    assert before != built(GQADecodeKernel, documented(), 80)
    plain = {
        name: value for name, value in fields.items() if name not in ("fuse_rope", "rotary_dim", "rope_interleaved")
    }
    if plain == fields:
        return
    assert built(GQADecodeKernel, documented(fuse_rope=True, rotary_dim=32)) != built(
        GQADecodeKernel, documented(**fields)
    )


SHAPES = [DecodeShape(8, 1, 3), DecodeShape(4, 1, 3, 8), DecodeShape(2, 4, 6), DecodeShape(1, 1, 2)]
SHAPES.append(DecodeShape(4, 1, 1, key_heads=2))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_runs_hold_each_tile_of_each_sequence_once_and_none_is_empty(shape: DecodeShape) -> None:
    layout = DecodeLayout(32, 4, 128, "float16", "float16", shape)
    draw = random.Random(0)
    for _ in range(1000):
        batch, runs = draw.randint(1, 70), draw.randint(1, 300)
        keys = draw.choice([1, 2, 63, 64, 65, 127, 128, 129, 1025, 4097, draw.randint(1, 9000)])
        tiles = tiles_of(batch, keys, shape)
        assert tiles == batch * math.ceil(keys / shape.tile_keys)
        cut = cut_tiles(tiles, layout, runs)
        assert 1 <= cut.runs <= runs
        assert cut.base >= 1
        assert 0 <= cut.rem < cut.runs
        assert cut.runs * cut.base + cut.rem == tiles
        assert cut.slots == 2 * cut.runs * layout.units
        assert cut.counters == cut.runs * layout.units * shape.cluster


def test_what_a_call_needs_beside_its_tensors_does_not_grow_with_sequences_or_keys() -> None:
    layout = DecodeLayout(32, 4, 128, "float16", "float16", DecodeShape(8, 1, 3))
    full = runs_for(layout.units, layout.shape, 132)
    sizes = itertools.product((1, 7, 64, 4096), (1, 1000, 100_000, 10_000_000))
    lines = [tiles_of(batch, keys, layout.shape) for batch, keys in sizes]
    cuts = [cut_tiles(tiles, layout, runs_of(tiles, layout.shape, full)) for tiles in lines]
    assert max(cut.slots for cut in cuts) == 2 * full * layout.units


@pytest.mark.parametrize("units", [1, 2, 4, 5, 8, 32, 96, 128, 132, 133, 264, 300, 1000])
def test_the_runs_of_a_long_sequence_leave_few_multiprocessors_idle(units: int) -> None:
    blocks = runs_for(units, DecodeShape(8, 1, 3), 132) * units
    rounds = math.ceil(blocks / 132)
    assert blocks / (rounds * 132) >= 0.75


def batch_of(sequences: int, heads: int = 32, heads_kv: int = 8, **fields: Any) -> AttentionCall:
    return on_arch(AttentionCall(batch=sequences, heads=heads, heads_kv=heads_kv, dim=128, **fields), 90)


def shape_built(kernel: Any, call: AttentionCall) -> DecodeShape:
    found: DecodeShape = kernel.entry_for(call)[0].layout.shape
    return found


@pytest.mark.parametrize(
    ("call", "key_heads"),
    [
        (batch_of(29), 1),
        (batch_of(30), 2),
        (batch_of(64), 2),
        (batch_of(59, heads_kv=4), 1),
        (batch_of(60, heads_kv=4), 2),
        (batch_of(600, heads=8, heads_kv=1), 1),
        (batch_of(1, heads=512, heads_kv=256), 1),
        (batch_of(2, heads=512, heads_kv=256), 2),
        (batch_of(64, heads=33, heads_kv=11), 1),
        (batch_of(64, heads=72), 1),
        (batch_of(64, fuse_rope=True, rotary_dim=32), 1),
    ],
    ids=[
        "cut",
        "nearly whole",
        "whole",
        "4 heads, cut",
        "4 heads",
        "one head",
        "one sequence",
        "two sequences",
        "11 heads",
        "groups of 9",
        "rotated",
    ],
)
def test_rings_have_two_heads_where_whole_sequences_fill_the_device(call: AttentionCall, key_heads: int) -> None:
    """What is stated of a block does not depend on it, and is no less."""
    single, made = GQADecodeKernel.shape_of(call), shape_built(GQADecodeKernel, call)
    assert made.key_heads == key_heads
    assert made.threads == single.threads == GQADecodeKernel.block_threads(call)
    assert made.smem_bytes(call.dim) <= single.smem_bytes(call.dim) == GQADecodeKernel.block_smem_bytes(call)
    layout = GQADecodeKernel.entry_for(call)[0].layout
    assert layout.units * layout.unit_rows >= call.heads
    if key_heads == 1:
        assert made == single


def test_float8_and_clusters_have_rings_of_one_head() -> None:
    assert shape_built(GQAFp8DecodeKernel, batch_of(64, is_fp8=True)).key_heads == 1
    few = batch_of(1, heads=512, heads_kv=256, seqlen_kv=100)
    assert shape_built(GQADecodeBs1Kernel, few).key_heads == 1
    assert shape_built(GQADecodeSlidingWindowKernel, batch_of(64, window_size_left=9)).key_heads == 2


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("arch", [80, 89, 90])
def test_rings_of_two_heads_are_as_deep_as_is_enough_and_no_deeper_than_those_of_one(dim: int, arch: int) -> None:
    call = on_arch(AttentionCall(batch=400, heads=16, heads_kv=8, dim=dim), arch)
    single, made = GQADecodeKernel.shape_of(call), shape_built(GQADecodeKernel, call)
    assert made.key_heads == 2
    assert 1 <= made.stages <= single.stages
    assert made.ring_bytes(dim, is_fp8=False) >= min(ENOUGH_BYTES, single.ring_bytes(dim, is_fp8=False))
    shallower = dataclasses.replace(made, stages=made.stages - 1)
    assert made.stages == 1 or shallower.ring_bytes(dim, is_fp8=False) < ENOUGH_BYTES
    assert made.smem_bytes(dim) <= single.smem_bytes(dim)


def test_runs_leave_sequences_whole_where_nearly_as_many_do() -> None:
    pair = DecodeShape(4, 1, 1, key_heads=2)
    found = {batch: runs_of(10_000, pair, 33, batch) for batch in (29, 30, 32, 33, 48, 64, 96)}
    assert found == {29: 33, 30: 30, 32: 32, 33: 33, 48: 33, 64: 32, 96: 32}
    assert runs_of(10_000, DecodeShape(8, 1, 2), 33, 32) == 33
    assert runs_of(100, pair, 33, 32) == 16


def test_query_heads_beyond_a_warp_are_shared_by_more_warps() -> None:
    found = {group: row_warps_for(4 * group, 4) for group in (1, 16, 17, 32, 33, 64, 96)}
    assert found == {1: 1, 16: 1, 17: 2, 32: 2, 33: 4, 64: 4, 96: 4}
    for group, row_warps in found.items():
        shape = CLUSTERED.shape_for(128, row_warps, KNOWN_ARCHS[90].smem_budget)
        assert shape.rows(group) * DecodeLayout(group, 1, 128, "float16", "float16", shape).units >= group


@pytest.mark.parametrize(
    ("made", "copied"),
    [
        (lambda: torch.zeros(2, 9, 3, 16), False),
        (lambda: torch.zeros(2, 20, 3, 16)[:, :9], False),
        (lambda: torch.zeros(2, 3, 9, 16).transpose(1, 2), False),
        (lambda: torch.zeros(2, 9, 6, 16)[:, :, ::2], False),
        (lambda: torch.zeros(2 * 9 * 3 * 16 + 1)[1:].view(2, 9, 3, 16), True),
        (lambda: torch.zeros(2, 9, 16, 3).transpose(2, 3), True),
        (lambda: torch.zeros(2, 9, 3, 17)[..., :16], True),
        (lambda: torch.zeros(1, 1, 1, 17)[..., :16], False),
    ],
    ids=["contiguous", "in a longer cache", "heads first", "every other head", "offset", "heads last", "padded", "one"],
)
def test_only_what_no_vector_can_be_read_from_is_copied(made: Callable[[], torch.Tensor], copied: bool) -> None:
    tensor = made()
    read = in_order(tensor)
    assert (read is not tensor) == copied
    assert torch.equal(read, tensor)
    assert read.data_ptr() % 16 == 0


def test_a_cut_is_remembered_and_no_more_than_so_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_kernel, "compile_program", lambda *_, **__: types.SimpleNamespace(launch=None))
    call = on_arch(AttentionCall(heads=32, heads_kv=4, dim=128, dtype=torch.float16, seqlen_kv=100_000), 90)
    kernel: Any = GQADecodeKernel.entry_for(call)[1]()
    layout, full = kernel.build.layout, kernel.full_runs
    for tiles in range(1, 2 * decode_kernel.MOST_CUTS):
        found = kernel.cut_of(1, tiles)
        assert found == cut_tiles(tiles, layout, runs_of(tiles, layout.shape, full))
        assert kernel.cut_of(1, tiles) is found
        assert 1 <= len(kernel.cuts) <= decode_kernel.MOST_CUTS


def test_results_are_contiguous_whatever_the_strides_of_axes_of_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    launched = types.SimpleNamespace(launch=lambda *arguments: given.append(arguments))
    monkeypatch.setattr(decode_kernel, "compile_program", lambda *_, **__: launched)
    call = on_arch(AttentionCall(heads=32, heads_kv=4, dim=128, dtype=torch.bfloat16, is_fp8=True, seqlen_kv=100), 90)
    kernel: Any = GQAFp8DecodeKernel.entry_for(call)[1]()
    monkeypatch.setattr(kernel, "room", lambda cut, device: (None, None, None))
    q = torch.zeros(1, 1, 32, 128).to(torch.float8_e4m3fn).as_strided((1, 1, 32, 128), (9, 7, 128, 1))
    k = torch.zeros(1, 100, 4, 128).to(torch.float8_e4m3fn)
    out = kernel.forward(q, k, k)
    assert (out.dtype, out.stride()) == (torch.bfloat16, (4096, 4096, 128, 1))
    assert any(each is out for each in given[0])
