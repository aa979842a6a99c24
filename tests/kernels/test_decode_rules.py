from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tests.kernels.support import on_arch, serves
from tileops.kernels.attention.call_spec import AttentionCall, softmax_scale
from tileops.kernels.attention.gqa.decode import (
    DIMS,
    DecodeBuild,
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
)

KEYS: dict[str, type[GQADecodeKernel]] = {
    "decode": GQADecodeKernel,
    "bs1": GQADecodeBs1Kernel,
    "long-context": GQADecodeLongContextKernel,
}
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
        "fuse_rope": [False, False, False, True],
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
        ({"fuse_rope": True}, "fuse_rope"),
        ({"dtype": torch.float32}, "dtype torch.float32"),
        ({"dim": 72}, "dim 72 is not a multiple of 16 from 16 to 256"),
        ({"seqlen_kv": 0}, "seqlen_kv 0 is less than 1"),
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


@pytest.mark.parametrize("kernel", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("dim", DIMS)
def test_whatever_is_served_fits_the_shared_memory_of_its_arch(kernel: type[GQADecodeKernel], dim: int) -> None:
    for arch in kernel.supported_archs:
        budget = KNOWN_ARCHS[arch].smem_budget
        tile = kernel.tile_for(dim, budget)
        assert tile.smem_bytes(dim) <= budget
        assert serves(GQADecodeKernel, documented(dim=dim), arch)


def test_a_device_without_room_for_the_smallest_tile_is_refused_with_both_numbers() -> None:
    call = AttentionCall(dim=256, arch=89, smem_budget=65536)
    assert GQADecodeKernel.refusal(call) == (
        "dim 256 needs 98304 bytes of shared memory a block, and smem_budget is 65536"
    )


def test_the_constructor_refuses_what_the_rule_refuses() -> None:
    call = on_arch(documented(dim=72), 90)
    identity, builder = GQADecodeKernel.entry_for(call)
    assert isinstance(identity, DecodeBuild)
    with pytest.raises(ValueError, match="dim 72 is not a multiple of 16"):
        builder()


@pytest.mark.parametrize("kernel", KEYS.values(), ids=KEYS)
def test_a_decode_loop_needs_one_build(kernel: type[GQADecodeKernel]) -> None:
    identities = {kernel.entry_for(on_arch(documented(seqlen_kv=n), 90))[0] for n in range(1, 8193)}
    assert len(identities) == 1


def test_one_build_serves_every_batch_and_causality() -> None:
    calls = [documented(batch=b, is_causal=c) for b, c in itertools.product([1, 2, 64], [False, True])]
    assert len({GQADecodeKernel.entry_for(on_arch(call, 90))[0] for call in calls}) == 1


def test_the_default_scale_and_its_value_are_one_build() -> None:
    stated = documented(sm_scale=1.0 / math.sqrt(128))
    assert softmax_scale(128, None) == 1.0 / math.sqrt(128)
    assert GQADecodeKernel.entry_for(on_arch(stated, 90))[0] == GQADecodeKernel.entry_for(on_arch(documented(), 90))[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 64},
        {"heads_kv": 8},
        {"dim": 64},
        {"dtype": torch.bfloat16},
        {"sm_scale": 0.5},
        {"softcap": 20.0},
    ],
)
def test_whatever_changes_the_build_changes_its_identity(fields: dict[str, object]) -> None:
    before, _ = GQADecodeKernel.entry_for(on_arch(documented(), 90))
    after, _ = GQADecodeKernel.entry_for(on_arch(documented(**fields), 90))
    assert before != after
    assert before != GQADecodeKernel.entry_for(on_arch(documented(), 80))[0]


@pytest.mark.parametrize("kernel", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_the_runs_of_a_sequence_hold_each_key_once_and_none_is_empty(kernel: type[GQADecodeKernel], batch: int) -> None:
    build, _ = kernel.entry_for(on_arch(documented(), 90))
    assert isinstance(build, DecodeBuild)
    for seqlen_kv in [*range(1, 700), 1023, 1024, 1025, 4097, 8192, 131_072, 1 << 30]:
        runs, run = kernel.split(build, batch, seqlen_kv)
        keys = run * build.tile.keys
        assert 1 <= runs <= kernel.max_runs
        assert (runs - 1) * keys < seqlen_kv <= runs * keys


@pytest.mark.parametrize("kernel", [GQADecodeBs1Kernel, GQADecodeLongContextKernel])
def test_the_kernels_for_one_sequence_cut_it_finer_than_the_general_one(kernel: type[GQADecodeKernel]) -> None:
    def runs(each: type[GQADecodeKernel], seqlen_kv: int) -> int:
        build, _ = each.entry_for(on_arch(documented(), 90))
        assert isinstance(build, DecodeBuild)
        return each.split(build, 1, seqlen_kv)[0]

    for seqlen_kv in (1024, 131_072):
        assert runs(kernel, seqlen_kv) > runs(GQADecodeKernel, seqlen_kv)
