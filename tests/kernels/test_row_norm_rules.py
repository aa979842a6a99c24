"""What each way to hold a row serves and takes, for every op that normalizes rows."""

from __future__ import annotations

import dataclasses
import itertools
import types
from typing import Any

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tests.kernels.row_support import DTYPES, EPS, MOST_VALUES, ROW_NORMS, WAYS, row_call
from tests.kernels.support import on_arch, serves
from tileops.kernels.norm import rows as rows_module
from tileops.kernels.norm.row_launches import (
    CUT_ROW,
    HELD_ROW,
    SHORT_ROW,
    WIDE_ROW,
    WORTH_CUTTING,
    HeldLaunch,
    TiledLaunch,
)
from tileops.kernels.norm.rows import CutRows, HeldRows, RingRows, ShortRows, TiledRows

MOST = 2**28
KERNELS = list(itertools.product(ROW_NORMS, WAYS))
LIMITS = (1, SHORT_ROW, WORTH_CUTTING, HELD_ROW, WIDE_ROW, CUT_ROW, MOST)
LENGTHS = sorted({n + step for n in LIMITS for step in (-1, 0, 1)})
LAID_OUT = [*range(1, 1030), 4095, 4096, 4097, 8192, 8193, 12289, 16383, 16384, 16385, 65535, 65536, 65537, 262143]
LAID_OUT += [262144, 262145, MOST - 1, MOST]


def of_a_block(name: str, dtype: torch.dtype) -> int:
    """The longest row that a block holds: RMS normalization of nothing else has room for more values of 16 bits."""
    return WIDE_ROW if name == "rms_norm" and dtype is not torch.float32 else HELD_ROW


def is_to_serve(name: str, way: str, arch: int, n: int, dtype: torch.dtype, *, few_rows: bool) -> bool:
    """The regions, in words of their own; the limits are those of ``row_launches``."""
    if arch not in (80, 86, 89, 90):
        return False
    if way == "tiled":
        return 1 <= n <= MOST
    if way == "short":
        return 1 <= n <= SHORT_ROW
    block = of_a_block(name, dtype)
    if way == "held":
        return 1 <= n <= block
    return arch == 90 and WORTH_CUTTING < n <= CUT_ROW and (few_rows or n > block)


@pytest.mark.parametrize("few_rows", [False, True])
@pytest.mark.parametrize(("name", "way"), KERNELS)
def test_a_kernel_serves_its_region_up_to_the_limits_on_every_arch(name: str, way: str, few_rows: bool) -> None:
    kernel = ROW_NORMS[name].kernel(way)
    for arch, n, dtype in itertools.product(KNOWN_ARCHS, LENGTHS, DTYPES):
        found = serves(kernel, row_call(n, dtype, few_rows=few_rows), arch)
        assert found == is_to_serve(name, way, arch, n, dtype, few_rows=few_rows), (arch, n, dtype)


@pytest.mark.parametrize(
    ("way", "n", "few_rows", "reason"),
    [
        ("tiled", 0, False, "n 0 is not from 1 to 268435456"),
        ("tiled", MOST + 1, False, "n 268435457 is not from 1 to 268435456"),
        ("short", 0, False, "n 0 is not from 1 to 268435456"),
        ("short", SHORT_ROW + 1, False, f"n {SHORT_ROW + 1} is more than the {SHORT_ROW} of a warp"),
        ("held", HELD_ROW + 1, False, f"n {HELD_ROW + 1} is more than the {HELD_ROW} of a block"),
        ("cut", CUT_ROW + 1, True, f"n {CUT_ROW + 1} is more than the {CUT_ROW} of a cluster"),
        ("cut", WORTH_CUTTING, True, f"n {WORTH_CUTTING} is not more than {WORTH_CUTTING}"),
        (
            "cut",
            HELD_ROW,
            False,
            f"few_rows is False and n {HELD_ROW} is not more than the {HELD_ROW} of a block",
        ),
    ],
)
def test_a_refused_row_is_named_with_the_limit(way: str, n: int, few_rows: bool, reason: str) -> None:
    for norm in ROW_NORMS.values():
        assert norm.kernel(way).refusal(on_arch(row_call(n, torch.float32, few_rows=few_rows), 90)) == reason


@pytest.mark.parametrize(("name", "way"), KERNELS)
def test_no_kernel_serves_a_call_whose_device_has_less_shared_memory_than_it_takes(name: str, way: str) -> None:
    kernel = ROW_NORMS[name].kernel(way)
    for n, dtype, budget in itertools.product(LENGTHS, DTYPES, (0, 31, 95, 4096, 49152, 65536, 101376, 131072)):
        call = dataclasses.replace(on_arch(row_call(n, dtype), 90), smem_budget=budget)
        if not kernel.general and kernel.refusal(call) is None:
            assert kernel.block_smem_bytes(call) <= budget


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of the compiler, which is left out."""
    asked: list[dict[str, Any]] = []

    def compile_program(module: str, name: str, arch: int, **parameters: Any) -> Any:
        asked.append({"module": module, "name": name, "arch": arch, **parameters})
        return types.SimpleNamespace(launch=None)

    monkeypatch.setattr(rows_module, "compile_program", compile_program)
    return asked


@pytest.mark.parametrize(("name", "way"), KERNELS)
def test_the_constructor_refuses_what_the_rule_refuses_for_any_number_of_rows(
    compiled: list[dict[str, Any]], name: str, way: str
) -> None:
    kernel = ROW_NORMS[name].kernel(way)
    for n in LENGTHS:
        compiled.clear()
        if is_to_serve(name, way, 90, n, torch.float16, few_rows=True):
            kernel(n, EPS, torch.float16, arch=90)
            assert len(compiled) == 1
        else:
            with pytest.raises(ValueError, match=f"^{kernel.__name__}: n {n} is "):
                kernel(n, EPS, torch.float16, arch=90)
            assert not compiled, "nothing is compiled for it"


@pytest.mark.parametrize(("name", "way"), KERNELS)
def test_the_build_identity_is_row_length_epsilon_and_dtype_and_builds_with_them(
    compiled: list[dict[str, Any]], name: str, way: str
) -> None:
    kernel = ROW_NORMS[name].kernel(way)
    n = 12288 if way == "cut" else 256
    call = on_arch(row_call(n, torch.bfloat16, 1e-6), 90)
    identity, builder = kernel.entry_for(call)
    assert identity == (n, 1e-6, torch.bfloat16)
    many = kernel.entry_for(dataclasses.replace(call, few_rows=False))[0]
    assert many == ((*identity, True) if way == "cut" else identity)
    builder()
    (asked,) = compiled
    program = "tiled_rows" if way == "tiled" else "held_rows"
    assert asked["module"] == f"tileops.kernels.norm.{program}_program"
    assert asked["name"] == program
    known = {"arch": 90, "n": n, "eps": 1e-6, "dtype": "bfloat16", "recipe": kernel.recipe}
    assert {key: asked[key] for key in known} == known
    launch = {key: asked[key] for key in asked if key not in (*known, "module", "name")}
    assert launch == dataclasses.asdict(kernel.launch_of(n, torch.bfloat16))


@pytest.mark.parametrize(
    ("n", "few_rows", "threads"),
    [
        (1024, True, 128),
        (1025, True, 128),
        (2048, True, 128),
        (2049, True, 256),
        (4096, True, 256),
        (3072, False, 128),
        (4097, True, 512),
        (8192, True, 512),
        (8192, False, 256),
        (8193, True, 256),
    ],
)
def test_few_rows_of_a_middle_length_have_more_threads_and_a_build_of_their_own(
    compiled: list[dict[str, Any]], n: int, few_rows: bool, threads: int
) -> None:
    own = few_rows and 1024 < n <= 8192
    for name, norm in ROW_NORMS.items():
        kernel = norm.kernel("held")
        call = on_arch(row_call(n, torch.float16, few_rows=few_rows), 80)
        lanes = threads // 2 if name == "fused_add_rms_norm" and n <= 1024 else threads
        assert kernel.block_threads(call) == lanes
        if n <= 8192:
            assert kernel.block_smem_bytes(call) == lanes // 32 * (12 if norm.centred else 4)
        identity, builder = kernel.entry_for(call)
        assert identity == (n, EPS, torch.float16, *([True] if own else []))
        made = builder()
        assert made.few_rows == own
        assert made.layout.lanes == lanes
        assert (made._rows_measured() == 16) == own
        assert ("True" in str(made._key)) == own


def test_an_op_has_a_recipe_of_its_own_and_of_its_tensors() -> None:
    recipes = [norm.kernel("tiled").recipe for norm in ROW_NORMS.values()]
    assert len(set(recipes)) == len(ROW_NORMS)
    for norm in ROW_NORMS.values():
        for recipe in (norm.kernel(way).recipe for way in WAYS):
            assert recipe == norm.kernel("tiled").recipe
            assert (recipe.inputs, recipe.outputs) == (norm.of_input, 1 + norm.summed)
            assert recipe.centred == norm.centred
            assert recipe.shared == bool(norm.of_row)


@pytest.mark.parametrize("name", ROW_NORMS)
def test_an_op_has_the_four_ways_and_short_and_cut_rows_win_over_held_ones(name: str) -> None:
    norm = ROW_NORMS[name]
    ringed = name in ("layer_norm", "rms_norm")
    rings = [norm.ring()] if ringed else []
    assert set(norm.module.__all__) == {kind.__name__ for kind in (*map(norm.kernel, WAYS), *rings)}
    for kernel in rings:
        assert issubclass(kernel, RingRows)
        assert kernel.preferred_over == {f"{name}_held_rows"}
    for way, base in {"tiled": TiledRows, "short": ShortRows, "held": HeldRows, "cut": CutRows}.items():
        kernel = norm.kernel(way)
        assert issubclass(kernel, base)
        assert kernel.general == (way == "tiled")
        below = {"short": "ring" if ringed else "held", "cut": "held"}
        assert kernel.preferred_over == ({f"{name}_{below[way]}_rows"} if way in below else set())


@pytest.mark.parametrize(
    ("way", "n", "dtype", "centred", "not_centred", "threads"),
    [
        ("tiled", 65537, torch.float32, 8 * 4 * 4, 8 * 4, 256),
        ("short", 256, torch.float32, 0, 0, 128),
        ("short", 1, torch.float16, 0, 0, 128),
        ("held", 1024, torch.float32, 4 * 3 * 4, 4 * 4, 128),
        ("held", 769, torch.bfloat16, 4 * 3 * 4, 4 * 4, 128),
        ("held", 3072, torch.float16, 4 * 3 * 4, 4 * 4, 128),
        ("held", 4097, torch.float16, 8 * 3 * 4, 8 * 4, 256),
        ("held", 8192, torch.float32, 8 * 3 * 4, 8 * 4, 256),
        ("held", 8193, torch.float16, 8 * 3 * 4 + 33 * 256 * 2, 8 * 4, 256),
        ("held", 16384, torch.float32, 8 * 3 * 4 + 16384 * 4, 8 * 4, 256),
        ("cut", 12289, torch.bfloat16, (8 + 4) * 3 * 4 + 16 + 13 * 256 * 2, (8 + 4) * 4 + 16 + 13 * 256 * 2, 256),
        ("cut", 65536, torch.float32, (8 + 4) * 3 * 4 + 16 + 16384 * 4, (8 + 4) * 4 + 16 + 16384 * 4, 256),
        ("cut", 65537, torch.float32, (8 + 8) * 3 * 4 + 16 + 33 * 256 * 4, (8 + 8) * 4 + 16 + 33 * 256 * 4, 256),
        ("cut", 262144, torch.float32, (8 + 8) * 3 * 4 + 16 + 32768 * 4, (8 + 8) * 4 + 16 + 32768 * 4, 256),
    ],
)
def test_shared_memory_and_threads_are_those_counted_by_hand(
    way: str, n: int, dtype: torch.dtype, centred: int, not_centred: int, threads: int
) -> None:
    for name, norm in ROW_NORMS.items():
        call = row_call(n, dtype, few_rows=way == "cut")
        # Of these, blocks have half as many threads.
        halves = 2 if (way, name) == ("short", "layer_norm") else 1
        halves = 2 if (way, name) == ("held", "fused_add_rms_norm") and n <= 1024 else halves
        smem = centred if norm.centred else not_centred
        assert norm.kernel(way).block_smem_bytes(call) == (smem // halves if way == "held" else smem)
        assert norm.kernel(way).block_threads(call) == threads // halves


def test_a_wide_row_takes_what_its_32_warps_exchange() -> None:
    kernel = ROW_NORMS["rms_norm"].kernel("held")
    for n in (65536, 65535):
        call = row_call(n, torch.bfloat16)
        assert (kernel.block_smem_bytes(call), kernel.block_threads(call)) == (32 * 4, 1024)


@pytest.mark.parametrize(("name", "way"), KERNELS)
def test_what_is_served_fits_the_shared_memory_and_threads_of_its_arch(name: str, way: str) -> None:
    kernel = ROW_NORMS[name].kernel(way)
    for arch, n, dtype in itertools.product(kernel.supported_archs, LENGTHS, DTYPES):
        call = row_call(n, dtype)
        if serves(kernel, call, arch):
            assert 0 <= kernel.block_smem_bytes(call) <= KNOWN_ARCHS[arch].smem_budget
            assert kernel.block_threads(call) <= 1024


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "way"), [(name, way) for name, way in KERNELS if name in ("layer_norm", "rms_norm")])
def test_a_launch_covers_the_row_in_aligned_loads_and_few_values_a_thread(
    name: str, way: str, dtype: torch.dtype
) -> None:
    kernel = ROW_NORMS[name].kernel(way)
    for n in LAID_OUT:
        if kernel.row_refusal(n, dtype) is not None:
            continue
        launch = kernel.launch_of(n, dtype)
        threads = kernel.block_threads(row_call(n, dtype, few_rows=way == "cut"))
        assert n % launch.vector == 0, "every row begins aligned"
        assert launch.vector * dtype.itemsize in (2, 4, 8, 16)
        if isinstance(launch, TiledLaunch):
            assert launch.threads == threads
            assert launch.steps * launch.vector <= MOST_VALUES
            continue
        assert isinstance(launch, HeldLaunch)
        assert launch.lanes * launch.groups == threads
        assert launch.lanes & (launch.lanes - 1) == 0, "lanes exchange in a butterfly"
        assert launch.blocks in (1, 2, 4, 8), "a portable cluster"
        assert (launch.groups, launch.rows) == (1, 1) or not (launch.in_shared or launch.blocks > 1)
        steps = -(-n // (launch.lanes * launch.blocks * launch.vector))
        assert steps * launch.vector <= (MOST_VALUES if launch.in_shared else 64), "more values a thread spill"


@pytest.mark.parametrize(("name", "threads"), [("layer_norm", 256), ("fused_add_layer_norm", 128), ("rms_norm", 128)])
def test_a_centred_row_that_is_read_alone_has_more_threads_from_3073_elements(name: str, threads: int) -> None:
    kernel = ROW_NORMS[name].kernel("held")
    assert kernel.block_threads(row_call(3072, torch.bfloat16, few_rows=False)) == 128
    assert kernel.block_threads(row_call(3080, torch.bfloat16, few_rows=False)) == threads
    assert kernel.block_threads(row_call(4096, torch.bfloat16, few_rows=False)) == threads
