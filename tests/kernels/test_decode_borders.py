"""Which form one decoded sequence takes is what was measured to be fastest: the table is kept with the benchmarks."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.support import on_arch
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeBs1Kernel, GQADecodeKernel
from tileops.kernels.attention.gqa.decode_cut import cut_tiles, runs_for, runs_of, tiles_of
from tileops.kernels.attention.gqa.decode_kernel import DecodeBuild, DecodeKernel
from tileops.kernels.attention.gqa.decode_shape import CLUSTER_KEYS
from tileops.ops import GQADenseFwdOp

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
NOISE = 1.03
"""Two forms whose times differ by less than this are equally fast."""


@functools.cache
def table() -> dict[str, Any]:
    """The newest table of measured forms."""
    found: dict[str, Any] = json.loads(max(RESULTS.glob("decode-forms-nvidia-h200-*.json")).read_text())
    return found


def call_of(keys: int, **fields: Any) -> AttentionCall:
    """The call that a row of the table is about, on the card that it was measured on."""
    measured = table()
    dtype = getattr(torch, measured["dtype"])
    sizes = {name: measured[name] for name in ("batch", "heads", "heads_kv", "dim")}
    call: AttentionCall = on_arch(AttentionCall(**{**sizes, "dtype": dtype, "seqlen_kv": keys, **fields}), 90)
    return call


def form_of(build: DecodeBuild, keys: int) -> str | None:
    """The column of the table with the blocks and runs that *build* makes of *keys* keys; None where there is none."""
    shape = build.layout.shape
    full = runs_for(build.layout.units, shape, build.sm_count)
    tiles = tiles_of(1, keys, shape)
    runs = cut_tiles(tiles, build.layout, runs_of(tiles, shape, full)).runs
    for name, notes in table()["form_notes"].items():
        same = all(notes.get(field, 1) == getattr(shape, field) for field in ("key_warps", "stages", "cluster"))
        fits = min(notes["runs"], -(-keys // shape.tile_keys))
        if same and fits == runs and not notes.keys() & {"head_warps", "l2_bytes"}:
            return str(name)
    return None


ROWS = [(row["keys"], row["us"]) for row in table()["rows"]]


@pytest.mark.parametrize(("keys", "us"), ROWS, ids=[str(keys) for keys, _ in ROWS])
def test_the_chosen_kernel_takes_a_form_that_nothing_measured_beats(keys: int, us: dict[str, float]) -> None:
    call, op = call_of(keys), GQADenseFwdOp()
    kernel: Any = op.kernel_types[op.key_for("gqa_dense", call)]
    build, _ = kernel.entry_for(call)
    form = form_of(build, keys)
    assert form is not None, build
    assert us[form] <= NOISE * min(us.values()), (form, us)


def time_of(kernel: type[DecodeKernel], keys: int, us: dict[str, float]) -> float:
    """The time of the blocks and runs that *kernel* would make, whether it serves so many keys or not."""
    build: Any = kernel.entry_for(call_of(keys))[0]
    return us[str(form_of(build, keys))]


def test_clusters_end_where_blocks_by_themselves_are_as_fast() -> None:
    keys_of, clusters = [keys for keys, _ in ROWS], call_of(CLUSTER_KEYS - 1)
    build: Any = GQADecodeBs1Kernel.entry_for(clusters)[0]
    clustered = [us[str(form_of(build, keys))] for keys, us in ROWS]
    alone = [time_of(GQADecodeKernel, keys, us) for keys, us in ROWS]
    ends = [keys for keys, one, other in zip(keys_of, alone, clustered, strict=True) if one <= other]
    assert ends == [keys for keys in keys_of if keys >= CLUSTER_KEYS]
