"""The tables of launches that are measured for row normalization: bounded, right, and within what kernels state."""

from __future__ import annotations

import itertools
import re
import types
from typing import Any

import pytest
import torch

from tests.kernels.row_support import DTYPES, EPS, MOST_VALUES, ROW_NORMS, WAYS, check, drawn, row_call
from tests.kernels.support import DEVICE
from tileops.kernels.device_facts import device_facts
from tileops.kernels.norm import rows as rows_module
from tileops.kernels.norm.row_launches import MOST_LAUNCHES, HeldLaunch, TiledLaunch, cut_launches, few_launches

LAID_OUT = [1, 2, 7, 8, 16, 17, 63, 64, 255, 256, 511, 512, 513, 1024, 1025, 2048, 2049, 3000, 4096, 4097, 8191, 8192]
LAID_OUT += [8193, 12289, 16383, 16384, 16385, 32767, 32768, 32769, 65535, 65536, 65537, 131072, 262143, 262144]
LAID_OUT += [262145, 2**28 - 1, 2**28]


def shared_bytes(launch: Any, recipe: Any, n: int, dtype: torch.dtype) -> int:
    """Shared memory of a block, buffer by buffer, as the programs ask for it."""
    facts = 3 if recipe.centred else 1
    if isinstance(launch, TiledLaunch):
        return launch.threads // 32 * (facts + recipe.centred) * 4
    span = launch.lanes * launch.vector
    steps = -(-n // (span * launch.blocks))
    warps = max(1, launch.lanes // 32)
    taken = 0
    if warps > 1:
        taken += launch.groups * launch.rows * warps * facts * 4
    if launch.blocks > 1:
        taken += launch.blocks * facts * 4 + 16
    return taken + (launch.rows * steps * span * dtype.itemsize if launch.in_shared else 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "way"), list(itertools.product(ROW_NORMS, WAYS)))
def test_a_table_is_bounded_begins_with_the_usual_launch_and_stays_in_what_is_stated_of_a_block(
    name: str, way: str, dtype: torch.dtype
) -> None:
    cls = ROW_NORMS[name].kernel(way)
    longest = 0
    for n in LAID_OUT:
        if cls.row_refusal(n, dtype) is not None:
            continue
        table = cls.launches_of(n, dtype)
        call = row_call(n, dtype, few_rows=way == "cut")
        assert table[0] == cls.launch_of(n, dtype)
        assert 1 <= len(table) <= MOST_LAUNCHES == 8
        assert len(set(table)) == len(table), "nothing is measured twice"
        longest = max(longest, len(table))
        stated, threads = cls.block_smem_bytes(call), cls.block_threads(call)
        assert shared_bytes(table[0], cls.recipe, n, dtype) == stated
        for launch in table:
            assert launch.vector == table[0].vector, "rows begin aligned at it"
            assert shared_bytes(launch, cls.recipe, n, dtype) <= stated, (n, launch)
            if isinstance(launch, TiledLaunch):
                assert launch.threads <= threads
                assert launch.threads % 32 == 0
                assert launch.steps * launch.vector <= 64
                continue
            assert isinstance(launch, HeldLaunch)
            assert launch.lanes * launch.groups <= threads
            assert launch.lanes & (launch.lanes - 1) == 0, "lanes exchange in a butterfly"
            assert launch.lanes * launch.groups % 32 == 0
            assert launch.resident >= 1
            assert launch.resident * launch.lanes * launch.groups <= (2048 if way == "cut" else 1536), (
                "a multiprocessor of every arch has as many threads"
            )
            assert launch.blocks in (1, 2, 4, 8), "a portable cluster"
            assert (launch.groups, launch.rows) == (1, 1) or not (launch.in_shared or launch.blocks > 1)
            assert (launch.blocks > 1) == (way == "cut"), "clusters came with SM90"
            steps = -(-n // (launch.lanes * launch.blocks * launch.vector))
            assert steps * launch.vector <= MOST_VALUES, "the bound on the error holds for each"
            assert not launch.once or (cls.recipe.centred and dtype.itemsize == 2), "float32 would lose digits"
            if launch.distances:
                assert cls.recipe.centred
                assert not launch.in_shared
                assert not launch.once
                assert launch.rows * steps * launch.vector <= 32, "each is a register"
            if not launch.in_shared:
                assert launch.rows * steps * launch.vector <= 64, "more values a thread spill"
            if launch == table[0] and launch.rows > 1 and way == "short":
                assert launch.rows * steps * launch.vector <= 32, "as many spill where eight blocks are resident"
    assert longest >= 5, "there is something to choose from"


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_of_few_rows_stays_in_what_is_stated_of_a_block(dtype: torch.dtype) -> None:
    for n, name in itertools.product(LAID_OUT, ROW_NORMS):
        cls, call = ROW_NORMS[name].kernel("held"), row_call(n, dtype, few_rows=True)
        if not 1024 < n <= 8192:
            continue
        usual, *others = few_launches(n, dtype, cls.recipe)
        assert usual.lanes == cls.block_threads(call)
        assert shared_bytes(usual, cls.recipe, n, dtype) == cls.block_smem_bytes(call)
        assert usual.ahead
        assert others
        for launch in (usual, *others):
            assert launch.lanes <= usual.lanes
            assert shared_bytes(launch, cls.recipe, n, dtype) <= cls.block_smem_bytes(call)
            steps = -(-n // (launch.lanes * launch.vector))
            assert steps * launch.vector <= 32
            assert (launch.groups, launch.rows, launch.blocks, launch.in_shared) == (1, 1, 1, False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_of_many_cut_rows_stays_in_what_is_stated_of_a_block(dtype: torch.dtype) -> None:
    for n, name in itertools.product(LAID_OUT, ROW_NORMS):
        cls, call = ROW_NORMS[name].kernel("cut"), row_call(n, dtype, few_rows=False)
        if cls.refusal(call) is not None:
            continue
        usual, *others = cut_launches(n, dtype, cls.recipe, many=True)
        assert usual.lanes == cls.block_threads(call)
        assert shared_bytes(usual, cls.recipe, n, dtype) == cls.block_smem_bytes(call) <= cls.most_smem_bytes()
        assert usual.resident * shared_bytes(usual, cls.recipe, n, dtype) <= 227 * 1024 or usual.blocks > 2
        for launch in (usual, *others):
            assert launch.blocks in (2, 4, 8)
            assert shared_bytes(launch, cls.recipe, n, dtype) <= cls.block_smem_bytes(call)
            assert -(-n // (launch.lanes * launch.blocks)) <= MOST_VALUES


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_of_rings_stays_in_what_is_stated_of_a_block(name: str, dtype: torch.dtype) -> None:
    cls = ROW_NORMS[name].ring()
    for n in (8, 512, 520, 768, 1000, 1024):
        call = row_call(n, dtype, few_rows=False)
        assert cls.refusal(call) is None
        usual, *others = cls.launches_of(n, dtype)
        assert others
        for launch in (usual, *others):
            taken = launch.stages * launch.warps * n * dtype.itemsize + 1024
            assert taken <= cls.block_smem_bytes(call) <= cls.most_smem_bytes()
            assert launch.warps * 32 == cls.block_threads(call)
            assert launch.vector * dtype.itemsize == 16
    for n in (513, 1025, 1032):
        assert cls.refusal(row_call(n, torch.float16, few_rows=False)) is not None
    assert cls.refusal(row_call(768, dtype, few_rows=True)) == "few_rows is True"


def test_few_rows_are_measured_on_few_rows_and_all_else_on_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "compile_program", lambda *_, **__: types.SimpleNamespace(launch=None))

    def measured(name: str, way: str, n: int, dtype: torch.dtype, *more: bool) -> int:
        rows: int = ROW_NORMS[name].kernel(way)(n, EPS, dtype, *more, arch=90)._rows_measured()
        return rows

    assert measured("layer_norm", "cut", 16384, torch.float16) == 16
    assert measured("layer_norm", "cut", 16385, torch.float16, True) == 2**25 // 16385
    assert measured("layer_norm", "held", 16384, torch.float16) == 2048
    assert measured("layer_norm", "held", 4096, torch.float16, True) == 16
    assert measured("layer_norm", "tiled", 2**28, torch.float32) == 1
    assert measured("rms_norm", "cut", 65536, torch.float32, True) == 256


@pytest.mark.parametrize("name", ROW_NORMS)
def test_the_scratch_tensors_are_those_of_the_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "compile_program", lambda *_, **__: types.SimpleNamespace(launch=None))
    monkeypatch.setattr(rows_module, "MEASURED_BYTES", 2 * 768 * 5)
    norm = ROW_NORMS[name]
    built = norm.kernel("held")(768, EPS, torch.float16, arch=90)
    state = torch.get_rng_state()
    scratch = built._scratch(torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state), "the random numbers of the caller stay as they were"
    expected = [(5, 768)] * norm.of_input + [(768,)] * norm.of_row + [(5, 768)] * (1 + norm.summed)
    assert [tuple(each.shape) for each in scratch] == expected
    assert {each.dtype for each in scratch} == {torch.float16}


EVERY_TABLE = [
    *(("layer_norm", way, n) for way, n in itertools.product(["short"], [257, 512])),
    *(("layer_norm", "held", n) for n in (769, 3000, 8192, 12289, 16384)),
    *(("layer_norm", "cut", n) for n in (12289, 16384, 65537)),
    ("layer_norm", "tiled", 3000),
    ("rms_norm", "held", 32768),
    ("rms_norm", "short", 256),
    ("fused_add_layer_norm", "held", 1024),
    ("fused_add_rms_norm", "held", 16384),
    ("ada_layer_norm", "short", 512),
    ("ada_layer_norm_zero", "held", 3000),
    ("ada_layer_norm_zero", "cut", 16384),
]


@pytest.mark.nightly
@pytest.mark.compile
@pytest.mark.parametrize(("name", "way", "n"), EVERY_TABLE)
def test_every_launch_of_a_table_compiles_and_takes_no_more_than_is_stated(name: str, way: str, n: int) -> None:
    cls = ROW_NORMS[name].kernel(way)
    call = row_call(n, torch.bfloat16, few_rows=way == "cut")
    arch = cls.supported_archs[EVERY_TABLE.index((name, way, n)) % len(cls.supported_archs)]
    built = cls(n, EPS, torch.bfloat16, arch=arch)
    for layout in built.table:
        program = built._compiled(layout)
        source = program.get_kernel_source()
        (threads,) = re.findall(r"__launch_bounds__\((\d+),", source)
        assert int(threads) <= cls.block_threads(call)
        taken = 0
        if "__shared__" in source:
            taken = int(re.findall(r"v_int64\) = \(\(int64_t\)(\d+)\);", program.get_host_source())[-1])
        assert taken == shared_bytes(layout, cls.recipe, n, torch.bfloat16) <= cls.block_smem_bytes(call), layout


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "way", "n"), EVERY_TABLE)
def test_every_launch_of_a_table_matches_float64(name: str, way: str, n: int) -> None:
    cls, arch = ROW_NORMS[name].kernel(way), device_facts(DEVICE).arch
    if arch not in cls.supported_archs:
        pytest.skip(f"{cls.__name__} does not run on sm_{arch}")
    dtype = torch.bfloat16 if n > 16384 else DTYPES[n % 3]
    built = cls(n, EPS, dtype, arch=arch)
    for layout in built.table:
        built._lay_out(layout)
        for rows in (1, 5, 131):
            norm, tensors = drawn(name, rows, n, dtype)
            check(norm, n, built(*tensors), tensors)
