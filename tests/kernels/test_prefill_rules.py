"""Which calls the prefill kernels serve and what they are built from. No GPU and no TileLang is needed."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tests.kernels.prefill_support import BUILT_IN
from tests.kernels.support import on_arch, serves
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa import prefill
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.attention.gqa.prefill import (
    GQAPrefillKernel,
    GQAPrefillMmaKernel,
    GQAPrefillSlidingWindowKernel,
    PrefillKernel,
    RingPrefillBuild,
)
from tileops.kernels.attention.gqa.prefill_limits import PREFILL_DIMS, SMALLEST_PREFILL_TILE
from tileops.ops import GQADenseFwdOp

KEYS: dict[str, type[PrefillKernel]] = {
    "gqa_dense": GQAPrefillKernel,
    "gqa_dense_mma": GQAPrefillMmaKernel,
    "gqa_dense_sliding_window": GQAPrefillSlidingWindowKernel,
}
each_kernel = pytest.mark.parametrize("kernel", KEYS.values(), ids=KEYS)


def prompt(**fields: Any) -> AttentionCall:
    """Two sequences of 300 causal queries, 32 heads on 8, unless *fields* say otherwise."""
    usual = {"batch": 2, "heads": 32, "heads_kv": 8, "dim": 128, "max_seqlen_q": 300, "seqlen_kv": 300}
    return AttentionCall(**{**usual, "is_causal": True, **fields})


def fitting(kernel: type[PrefillKernel], **fields: Any) -> AttentionCall:
    """A call of :func:`prompt` in the region of *kernel*."""
    return prompt(**{"window_size_left": 64 if kernel is GQAPrefillSlidingWindowKernel else -1, **fields})


def identity(kernel: type[PrefillKernel], call: AttentionCall, arch: int = 90) -> Any:
    return kernel.entry_for(on_arch(call, arch))[0]


@pytest.mark.parametrize(
    ("fields", "arch", "serving", "chosen"),
    [
        ({}, 90, {"gqa_dense", "gqa_dense_mma"}, "gqa_dense"),
        ({}, 89, {"gqa_dense_mma"}, "gqa_dense_mma"),
        ({}, 80, {"gqa_dense_mma"}, "gqa_dense_mma"),
        ({"window_size_left": 0}, 90, {"gqa_dense_mma", "gqa_dense_sliding_window"}, "gqa_dense_sliding_window"),
        ({"window_size_left": 0}, 80, {"gqa_dense_mma"}, "gqa_dense_mma"),
        (
            {"window_size_left": 9, "max_seqlen_q": 1},
            90,
            {"gqa_dense_mma", "gqa_dense_sliding_window"},
            "gqa_dense_decode_sliding_window",
        ),
        ({"window_size_right": 5, "is_causal": False}, 90, {"gqa_dense", "gqa_dense_mma"}, "gqa_dense"),
        ({"max_seqlen_q": 1}, 90, set(), "gqa_dense_decode"),
        ({"max_seqlen_q": 2, "seqlen_kv": 0}, 90, {"gqa_dense", "gqa_dense_mma"}, "gqa_dense"),
    ],
)
def test_the_region_decides(fields: Any, arch: int, serving: set[str], chosen: str) -> None:
    call = prompt(**fields)
    assert {name for name, kernel in KEYS.items() if serves(kernel, call, arch)} == serving
    assert GQADenseFwdOp().key_for("gqa_dense", on_arch(call, arch)) == chosen


@each_kernel
def test_no_call_is_served_in_decode_and_prefill_both(kernel: type[PrefillKernel]) -> None:
    draw = random.Random(0)
    served = 0
    for _ in range(4000):
        call = prompt(
            max_seqlen_q=draw.choice([1, 2, 300]),
            seqlen_kv=draw.choice([0, 1, 300]),
            window_size_left=draw.choice([-1, 0, 70]),
            window_size_right=draw.choice([-1, 0, 70]),
            is_causal=draw.random() < 0.5,
            dim=draw.choice([16, 64, 112, 128]),
            is_fp8=draw.random() < 0.1,
        )
        mine = serves(kernel, call, 90)
        served += mine
        assert not (mine and serves(GQADecodeKernel, call, 90)), call
    assert served > 100


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"is_fp8": True}, "is_fp8: float8 is not multiplied here"),
        ({"fuse_rope": True}, "fuse_rope: rotary embedding is not applied here"),
        ({"dtype": torch.float32}, "dtype torch.float32 is not torch.float16 or torch.bfloat16"),
        *(({"dim": dim}, f"dim {dim} is not one of 64, 80, 96, 128, 192, 256") for dim in (63, 65, 112, 160, 257, 512)),
    ],
)
@each_kernel
def test_every_kernel_refuses_with_the_value_and_what_is_accepted(
    kernel: type[PrefillKernel], fields: Any, said: str
) -> None:
    assert said in str(kernel.refusal(on_arch(fitting(kernel, **fields), 90)))


@pytest.mark.parametrize("group", [1, 2, 5, 6, 7, 8, 16, 64, 71])
@pytest.mark.parametrize("arch", [80, 89, 90])
def test_any_group_of_query_heads_is_served(group: int, arch: int) -> None:
    for dim in PREFILL_DIMS:
        for window in (-1, 7):
            call = prompt(heads=3 * group, heads_kv=3, dim=dim, window_size_left=window)
            assert any(serves(kernel, call, arch) for kernel in KEYS.values())


@each_kernel
@pytest.mark.parametrize("dim", PREFILL_DIMS)
def test_whatever_is_served_fits_the_shared_memory_of_its_arch(kernel: type[PrefillKernel], dim: int) -> None:
    for arch in kernel.supported_archs or ():
        call = on_arch(fitting(kernel, dim=dim), arch)
        assert kernel.refusal(call) is None
        needed = kernel.block_smem_bytes(call)
        assert needed is not None
        assert needed <= KNOWN_ARCHS[arch].smem_budget


@pytest.mark.parametrize("dim", PREFILL_DIMS)
def test_a_smaller_budget_gets_a_smaller_tile_and_then_none(dim: int) -> None:
    least = SMALLEST_PREFILL_TILE.smem_bytes(dim)
    tight = AttentionCall(dim=dim, max_seqlen_q=2, arch=80, sm_count=108, smem_budget=least)
    assert GQAPrefillMmaKernel.refusal(tight) is None
    assert GQAPrefillMmaKernel.tile_of(tight) == SMALLEST_PREFILL_TILE
    short = AttentionCall(dim=dim, max_seqlen_q=2, arch=80, sm_count=108, smem_budget=least - 1)
    assert f"needs {least} bytes of shared memory" in str(GQAPrefillMmaKernel.refusal(short))
    wide = GQAPrefillMmaKernel.tile_of(on_arch(prompt(dim=dim), 80))
    assert wide.queries == (128 if dim <= 128 else 64), "float32 results of a wide head fill the registers"


def test_on_hopper_without_its_shared_memory_the_other_program_runs() -> None:
    call = prompt(arch=90, sm_count=132, smem_budget=100_000)
    assert "needs 197632 bytes of shared memory" in str(GQAPrefillKernel.refusal(call))
    assert GQADenseFwdOp().key_for("gqa_dense", call) == "gqa_dense_mma"


@each_kernel
def test_a_new_length_or_batch_costs_no_build(kernel: type[PrefillKernel]) -> None:
    calls = [
        fitting(kernel, batch=batch, max_seqlen_q=queries, seqlen_kv=keys)
        for batch, queries, keys in itertools.product([1, 3], range(2, 60), [*range(1, 60), 8191])
    ]
    assert len({identity(kernel, call) for call in calls}) == 1


def test_of_long_sequences_there_is_one_build_more() -> None:
    held = [identity(GQAPrefillKernel, prompt(seqlen_kv=keys)).held_queries for keys in (1, 8191, 8192, 1 << 29)]
    assert held == [False, False, True, True]
    for fields in ({"dim": 64}, {"softcap": 5.0}, {"heads": 40}):
        assert not identity(GQAPrefillKernel, prompt(seqlen_kv=1 << 20, **fields)).held_queries
    assert not identity(GQAPrefillSlidingWindowKernel, prompt(seqlen_kv=1 << 20, window_size_left=9)).held_queries


@pytest.mark.parametrize("fields", BUILT_IN, ids=str)
@each_kernel
def test_whatever_changes_the_build_changes_its_identity(kernel: type[PrefillKernel], fields: Any) -> None:
    before = identity(kernel, fitting(kernel))
    assert before != identity(kernel, fitting(kernel, **fields))
    if kernel is GQAPrefillMmaKernel:
        assert before != identity(kernel, fitting(kernel), 80)


def test_the_default_scale_and_its_value_and_a_window_that_causality_hides_are_one_build() -> None:
    for fields in ({"sm_scale": 1.0 / math.sqrt(128)}, {"window_size_right": 7}):
        assert identity(GQAPrefillKernel, prompt(**fields)) == identity(GQAPrefillKernel, prompt())


def test_kernels_of_other_windows_share_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def compiled(*place: Any, **parameters: Any) -> None:
        asked.append((place, tuple(sorted(parameters.items()))))

    monkeypatch.setattr(prefill, "compile_program", compiled)
    for kernel in (GQAPrefillSlidingWindowKernel, GQAPrefillMmaKernel):
        asked.clear()
        for left, right in ((5, 3), (700, 0)):
            call = prompt(is_causal=False, window_size_left=left, window_size_right=right)
            kernel.entry_for(on_arch(call, 90))[1]()
        assert len(asked) == 2
        assert len(set(asked)) == 1


def test_two_blocks_share_keys_where_the_group_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(prefill, "compile_program", lambda *_, cluster, **__: asked.append(cluster))
    for group in range(1, 9):
        GQAPrefillKernel.entry_for(on_arch(prompt(heads=2 * group, heads_kv=2), 90))[1]()
    assert asked == [1, 2] * 4


def test_windows_go_to_the_launch_and_no_further_than_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[tuple[Any, ...]] = []
    monkeypatch.setattr(prefill, "compile_program", lambda *_, **__: lambda *arguments: launches.append(arguments))
    call = prompt(is_causal=False, window_size_left=2**40, window_size_right=2)
    kernel = GQAPrefillMmaKernel.entry_for(on_arch(call, 80))[1]()
    q, k = torch.zeros(1, 5, 32, 128), torch.zeros(1, 9, 8, 128)
    out = kernel(q, k, k)
    (launched,) = launches
    assert launched[3] is out
    assert launched[4:] == (9, 2)
    assert out.shape == q.shape
    assert torch.equal(kernel(q, k[:, :0], k[:, :0]), torch.zeros_like(q)), "no key, no launch"
    assert len(launches) == 1


@each_kernel
def test_the_constructor_refuses_what_the_rule_refuses(kernel: type[PrefillKernel]) -> None:
    build, builder = kernel.entry_for(on_arch(fitting(kernel, dim=72), 90))
    assert isinstance(build, RingPrefillBuild) == (kernel is not GQAPrefillMmaKernel)
    with pytest.raises(ValueError, match="dim 72 is not one of 64, 80, 96, 128, 192, 256"):
        builder()
