"""Which calls the float8 kernel serves and what it is built from. No GPU and no TileLang is needed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tests.kernels.prefill_support import BUILT_IN
from tests.kernels.support import on_arch, serves
from tileops.kernels.attention.call_spec import AttentionCall, GQADenseFwdInterface, Scales
from tileops.kernels.attention.gqa import fp8_prefill
from tileops.kernels.attention.gqa.fp8_prefill import RUN_KEYS, Fp8Build, GQAFp8Kernel
from tileops.kernels.attention.gqa.fp8_prefill_limits import (
    FP8_PREFILL_ARCH,
    FP8_PREFILL_DIMS,
    FP8_TILES,
    fp8_prefill_refusal,
)

REGISTERS = 240
"""Of a thread of a multiplying warpgroup."""
OTHER_REGISTERS = 30
"""What it needs beside scores, weights and results."""


def prompt(**fields: Any) -> AttentionCall:
    """Two float8 sequences of 300 causal queries, 32 heads on 8, unless *fields* say otherwise."""
    usual = {"batch": 2, "heads": 32, "heads_kv": 8, "dim": 128, "max_seqlen_q": 300, "seqlen_kv": 300}
    return AttentionCall(**{**usual, "is_causal": True, "is_fp8": True, **fields})


def identity(call: AttentionCall) -> Any:
    return GQAFp8Kernel.entry_for(on_arch(call, 90))[0]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_seqlen_q": 1},
        {"max_seqlen_q": 1, "window_size_left": 9},
        {"seqlen_kv": 0},
        {"seqlen_kv": 1},
        {"window_size_left": 0},
        {"window_size_left": 70, "window_size_right": 5, "is_causal": False},
        {"softcap": 20.0},
        {"sm_scale": -1.0},
        {"dtype": torch.bfloat16},
        {"heads": 7, "heads_kv": 7},
        {"heads": 71, "heads_kv": 1},
    ],
    ids=str,
)
def test_every_float8_call_of_a_known_head_size_is_served_on_hopper_and_nowhere_else(fields: Any) -> None:
    for dim in FP8_PREFILL_DIMS:
        assert [arch for arch in KNOWN_ARCHS if serves(GQAFp8Kernel, prompt(dim=dim, **fields), arch)] == [90]
        assert GQADenseFwdInterface.unserved(on_arch(prompt(dim=dim, **fields), 90)) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"is_fp8": False}, "is_fp8 is not set"),
        ({"fuse_rope": True, "rotary_dim": 64}, "fuse_rope: rotary embedding is not applied here"),
        ({"dtype": torch.float32}, "dtype torch.float32 is not torch.float16 or torch.bfloat16"),
        *(({"dim": dim}, f"dim {dim} is not one of 64, 80, 96, 128, 192, 256") for dim in (16, 63, 65, 112, 160, 512)),
    ],
    ids=str,
)
def test_the_rule_refuses_with_the_value_and_what_is_accepted(fields: Any, said: str) -> None:
    assert said in str(GQAFp8Kernel.refusal(on_arch(prompt(**fields), 90)))


def test_rule_interface_and_constructor_say_the_same() -> None:
    for fields in ({"dim": 72}, {"dtype": torch.float32}):
        call = on_arch(prompt(**fields), 90)
        reason = fp8_prefill_refusal(90, call.dim, call.dtype)
        assert reason is not None
        assert GQAFp8Kernel.refusal(call) == reason
        assert GQADenseFwdInterface.unserved(call) == reason
        with pytest.raises(ValueError, match=reason):
            GQAFp8Kernel.entry_for(call)[1]()
    other = on_arch(prompt(), 89)
    said = "float8 prefill is built for sm_90, not for sm_89"
    assert said in str(GQAFp8Kernel.refusal(other))
    assert said in str(GQADenseFwdInterface.unserved(other))
    with pytest.raises(ValueError, match=said):
        GQAFp8Kernel.entry_for(other)[1]()


@pytest.mark.parametrize("tile", FP8_TILES, ids=lambda tile: f"dim{tile.dim}")
def test_a_tile_fits_shared_memory_and_registers(tile: Any) -> None:
    call = prompt(dim=tile.dim)
    budget = KNOWN_ARCHS[FP8_PREFILL_ARCH].smem_budget
    assert GQAFp8Kernel.tile_of(call) is tile
    assert GQAFp8Kernel.block_smem_bytes(call) == tile.smem_bytes <= budget
    for smem_budget, fits in ((tile.smem_bytes, True), (tile.smem_bytes - 1, False)):
        tight = dataclasses.replace(call, arch=90, sm_count=132, smem_budget=smem_budget)
        reason = GQAFp8Kernel.refusal(tight)
        assert (reason is None) == fits
        assert fits or f"needs {tile.smem_bytes} bytes of shared memory" in str(reason)
    held = tile.keys // 2 + tile.keys // 8 + tile.dim // 2  # float32 scores, float8 weights, float32 results
    assert held + OTHER_REGISTERS <= REGISTERS
    assert tile.depth % 32 == tile.keys % 32 == 0
    assert 0 <= tile.depth - tile.dim < 32
    assert tile.keys * tile.gather <= 512, "a tensor core holds some 13 bits of a sum"
    assert tile.gather.bit_count() == 1
    for buffer in (128 * tile.depth, tile.keys * tile.depth * tile.stages, tile.keys * tile.dim * tile.stages):
        assert buffer % 1024 == 0, "swizzled tiles begin at a multiple of 1,024 bytes"


def test_shared_memory_is_counted_with_zeros_gathered_results_and_barriers() -> None:
    tile = FP8_TILES[1]
    assert (tile.dim, tile.depth, tile.keys, tile.stages) == (80, 96, 224, 2)
    queries, ring, gathered = 128 * 96, 2 * 224 * (96 + 80), 128 * 80 * 4
    assert tile.smem_bytes == queries + ring + gathered + 1024
    assert dataclasses.replace(tile, gather=0).smem_bytes == tile.smem_bytes - gathered


def test_a_new_length_or_batch_costs_no_build() -> None:
    calls = [
        prompt(batch=batch, max_seqlen_q=queries, seqlen_kv=keys)
        for batch, queries, keys in itertools.product([1, 3], range(1, 60), [*range(60), 8192, 1 << 29])
    ]
    assert len({identity(call) for call in calls}) == 1


@pytest.mark.parametrize("fields", [*BUILT_IN, {"window_size_left": 4}, {"sm_count": 114}], ids=str)
def test_whatever_changes_the_build_changes_its_identity(fields: Any) -> None:
    other = {**dataclasses.asdict(on_arch(prompt(), 90)), **fields}
    assert identity(prompt()) != GQAFp8Kernel.entry_for(AttentionCall(**other))[0]


def test_the_default_scale_and_its_value_and_a_window_that_causality_hides_are_one_build() -> None:
    for fields in ({"sm_scale": 1.0 / math.sqrt(128)}, {"window_size_right": 7}):
        assert identity(prompt(**fields)) == identity(prompt())


def test_no_blocks_share_keys_and_warpgroups_take_turns() -> None:
    builds = [identity(prompt(heads=2 * group, heads_kv=2)) for group in range(1, 9)]
    assert {(build.cluster, build.ping_pong) for build in builds} == {(1, True)}


Made = tuple[str, tuple[tuple[str, Any], ...]]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Made], list[tuple[Any, ...]]]:
    """What is compiled, and with what it is launched, the name of the program first."""
    made: list[Made] = []
    launches: list[tuple[Any, ...]] = []

    def compiled(_: str, name: str, __: int, **parameters: Any) -> Any:
        made.append((name, tuple(sorted(parameters.items()))))
        return lambda *arguments: launches.append((name, *arguments))

    monkeypatch.setattr(fp8_prefill, "compile_program", compiled)
    return made, launches


def test_kernels_of_other_windows_share_what_is_compiled(programs: Any) -> None:
    made, _ = programs
    for left, right in ((5, 3), (700, 0)):
        call = prompt(is_causal=False, window_size_left=left, window_size_right=right)
        GQAFp8Kernel.entry_for(on_arch(call, 90))[1]()
    assert sorted(name for name, _ in set(made)) == ["attend_tiles", "turn_values"]


def tensors(batch: int, queries: int, keys: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Scales]:
    float8 = torch.float8_e4m3fn
    q = torch.zeros(batch, queries, 32, 128, dtype=float8)
    k, v = (torch.zeros(batch, keys, 8, 128, dtype=float8) for _ in range(2))
    every = torch.ones(1, 1)
    return q, k, v, Scales(every.expand(batch, 32), every.expand(batch, 8), every.expand(batch, 8))


def test_windows_go_to_the_launch_and_no_further_than_the_sequence(programs: Any) -> None:
    _, launches = programs
    call = prompt(dtype=torch.bfloat16, is_causal=False, window_size_left=2**40, window_size_right=2)
    kernel = GQAFp8Kernel.entry_for(on_arch(call, 90))[1]()
    q, k, v, scales = tensors(1, 5, 130)
    out = kernel(q, k, v, scales)
    turn, attend = launches
    assert [turn[0], attend[0]] == ["turn_values", "attend_tiles"]
    assert turn[1].data_ptr() == v.data_ptr()
    assert turn[2].data_ptr() == attend[3].data_ptr()
    assert attend[3].shape == (1, 8, 128, 2 * RUN_KEYS)
    assert attend[4:7] == tuple(scales), "scales are read where they are"
    assert attend[7] is out
    assert attend[8:] == (130, 2)
    assert (out.shape, out.dtype, out.is_contiguous()) == (q.shape, torch.bfloat16, True)


def test_without_keys_results_are_zeros_and_nothing_is_launched(programs: Any) -> None:
    _, launches = programs
    kernel = GQAFp8Kernel.entry_for(on_arch(prompt(dtype=torch.bfloat16), 90))[1]()
    q, k, v, scales = tensors(2, 3, 0)
    out = kernel(q, k, v, scales)
    assert torch.equal(out, torch.zeros(q.shape, dtype=torch.bfloat16))
    assert not launches


def test_only_what_is_not_contiguous_or_aligned_is_copied(programs: Any) -> None:
    _, launches = programs
    kernel = GQAFp8Kernel.entry_for(on_arch(prompt(), 90))[1]()
    q, k, v, scales = tensors(2, 3, 40)
    wide = torch.zeros(2, 40, 8, 256, dtype=torch.uint8).view(k.dtype)
    moved = torch.zeros(v.numel() + 1, dtype=torch.uint8)[1:].view(v.dtype).view(v.shape)
    kernel(q, wide[..., :128], moved, scales)
    turn, attend = launches
    assert attend[1].data_ptr() == q.data_ptr()
    assert attend[2].is_contiguous()
    assert turn[1].data_ptr() % 16 == 0


def test_float8_without_scales_is_refused_by_name(programs: Any) -> None:
    kernel = GQAFp8Kernel.entry_for(on_arch(prompt(), 90))[1]()
    assert isinstance(kernel.build, Fp8Build)
    q, k, v, _ = tensors(1, 2, 2)
    with pytest.raises(ValueError, match="scales is None"):
        kernel(q, k, v)
