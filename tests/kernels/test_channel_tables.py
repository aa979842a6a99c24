"""The layouts that are tried where a kernel of channels is tuned, and that the fastest is taken."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.support import on_arch
from tests.kernels.test_batch_norm_compile import programs
from tests.kernels.test_compile import shared_bytes
from tests.kernels.tuned_channels import TUNED
from tests.kernels.tuning_support import card, forget
from tileops.kernels.norm import batch_norm_bwd, batch_norm_infer, channel_launches, instance_launches
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.batch_norm_train import (
    BatchNormFwdTrainWideKernel,
)
from tileops.kernels.norm.channel_layout import held_layout, most_held, streamed_layout
from tileops.kernels.norm.channel_tables import Table, held_table, infer_table, streamed_table
from tileops.kernels.norm.channel_tuning import SAMPLES, TunedChannels
from tileops.kernels.norm.cluster_layout import MOST_BLOCKS, cluster_layout, cluster_refusal
from tileops.kernels.norm.infer_layout import SHORT_AXIS, Columns, infer_layout, kind_of

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
DTYPES = st.sampled_from([HALF, BRAIN, FULL])
SAMPLED = st.sampled_from([1, SAMPLES])
each_tuned = pytest.mark.parametrize("kind", TUNED, ids=lambda kind: kind.__name__)


# The tables


def layouts_of(table: Table, usual: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """The layouts of a table, which begins with the usual one and is bounded, as is what they are measured on."""
    layouts = table.layouts
    assert layouts[0] == usual
    assert 1 <= len(layouts) <= 8
    assert len(set(layouts)) == len(layouts)
    n, c, spatial = table.extents
    if len(layouts) > 1:
        assert 2**25 <= n * c * spatial * dtype.itemsize <= 2**26
        assert spatial % usual.vector == 0 or isinstance(usual, Columns)
    return layouts


@given(st.integers(1, 70_000), st.integers(1, 70_000), st.integers(1, 5000), DTYPES)
def test_given_statistics_take_no_more_blocks_than_an_axis_has(
    n: int, c: int, spatial: int, dtype: torch.dtype
) -> None:
    usual = infer_layout(n, c, spatial, dtype)
    table = infer_table(usual, dtype)
    _, channels, plane = table.extents
    assert channels * plane % usual.vector == 0
    if isinstance(usual, Columns):
        assert kind_of(plane, usual.vector) == usual.kind
    else:
        assert plane % usual.vector == 0
    for layout in layouts_of(table, usual, dtype):
        assert dataclasses.replace(layout, steps=usual.steps) == usual
        if isinstance(layout, Columns) and not layout.counted:
            assert -(-n // (layout.threads // layout.lanes * layout.steps)) <= SHORT_AXIS


@given(st.integers(1, 5000), st.integers(1, 16384), DTYPES, st.booleans(), st.integers(1, 2), SAMPLED)
def test_blocks_of_fewer_threads_hold_as_many_values(
    n: int, spatial: int, dtype: torch.dtype, many: bool, tensors: int, samples: int
) -> None:
    values = min(n, max(1, most_held(spatial, dtype) // tensors // spatial)) * spatial
    if values > most_held(spatial, dtype) // tensors:
        return
    usual = held_layout(values, spatial, dtype, many=many)
    table = held_table(usual, dtype, samples, tensors)
    measured = table.extents[0] * table.extents[2]
    for layout in layouts_of(table, usual, dtype):
        assert layout.lanes * layout.steps * layout.vector >= max(values, measured)
        assert layout.threads <= usual.threads
        assert layout.threads % 32 == 0
        assert (layout.groups * layout.lanes) % 32 == 0
        assert layout.shared_bytes <= usual.shared_bytes
        assert (layout.vector, layout.groups, layout.stacks) == (usual.vector, usual.groups, usual.stacks)


def test_a_channel_of_many_warps_is_tried_in_fewer() -> None:
    usual = held_layout(3136, 3136, HALF, many=False)
    assert [(each.lanes, each.steps) for each in held_table(usual, HALF, 32).layouts] == [(224, 2), (128, 4), (64, 7)]


@given(st.integers(1, 400), st.integers(1, 100), st.sampled_from([256, 784, 1024, 65536]), st.integers(1, 2), SAMPLED)
def test_clusters_of_another_layout_have_room_for_a_channel(
    n: int, c: int, spatial: int, tensors: int, samples: int
) -> None:
    if cluster_refusal(n * spatial, c, spatial, HALF, tensors) is not None:
        return
    usual = cluster_layout(n * spatial, c, HALF, tensors)
    table = held_table(usual, HALF, samples, tensors)
    measured = table.extents[0] * table.extents[2]
    assert cluster_refusal(measured, table.extents[1], table.extents[2], HALF, tensors) is None
    for layout in layouts_of(table, usual, HALF):
        assert layout.blocks * layout.room * layout.vector >= max(n * spatial, measured)
        assert layout.blocks in (usual.blocks, 2 * usual.blocks)
        assert layout.blocks <= MOST_BLOCKS
        assert (layout.room, layout.lanes, layout.resident) == (usual.room, usual.lanes, usual.resident)


@given(st.integers(1, 5000), DTYPES, SAMPLED)
def test_streams_differ_in_the_loads_of_a_thread(spatial: int, dtype: torch.dtype, samples: int) -> None:
    usual = streamed_layout(spatial, dtype, 256)
    layouts = layouts_of(streamed_table(usual, dtype, samples), usual, dtype)
    assert {dataclasses.replace(layout, steps=0) for layout in layouts} == {dataclasses.replace(usual, steps=0)}


@each_tuned
def test_the_kernel_serves_the_call_that_stands_for_it(kind: Any) -> None:
    assert kind.refusal(on_arch(TUNED[kind], 90)) is None


# The choice


@dataclasses.dataclass
class Bench:
    """A card on which nothing is compiled.

    Attributes:
        folder: Of the files.
        searches: The layouts that each search timed.
        fastest: The place in the table that is the fastest.
    """

    folder: Path
    searches: list[list[Any]] = dataclasses.field(default_factory=list)
    fastest: int = 1


def compile_by(monkeypatch: pytest.MonkeyPatch, compile_program: Any) -> None:
    """Let kernels of channels compile their programs by *compile_program*."""
    for module in (batch_norm_bwd, batch_norm_infer, channel_launches, instance_launches):
        monkeypatch.setattr(module, "compile_program", compile_program)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)

    def compile_program(module: str, name: str, arch: int, **parameters: Any) -> Any:
        def launch(*tensors: Any) -> None:
            assert all(each.numel() for each in tensors if isinstance(each, torch.Tensor))

        launch.lay = parameters["lay"]  # type: ignore[attr-defined]
        return launch

    def timed(works: Any) -> list[float]:
        bench.searches.append([work.func.__self__.laid for work in works])
        return [9.0 if place == bench.fastest else 10.0 for place, _ in enumerate(works)]

    compile_by(monkeypatch, compile_program)
    with card(monkeypatch, bench.folder, timed):
        yield bench


def compiled_in(kernel: Any) -> Any:
    return (kernel.compiled if hasattr(kernel, "compiled") else kernel.launch.compiled).lay


@each_tuned
def test_the_fastest_layout_is_taken_and_another_process_starts_with_it(bench: Bench, kind: Any) -> None:
    call = on_arch(TUNED[kind], 90)
    kernel = kind.entry_for(call)[1]()
    usual, *others = kernel.table.layouts
    assert others
    assert compiled_in(kernel) == kernel.laid == usual
    kernel.request_tune()
    assert bench.searches == [[usual, *others]], "each is measured"
    assert compiled_in(kernel) == kernel.laid == others[0]
    forget()
    again = kind.entry_for(call)[1]()
    assert compiled_in(again) == again.laid == others[0]
    again.request_tune()
    assert len(bench.searches) == 1, "it is on file"


@each_tuned
def test_the_usual_layout_stays_where_none_is_faster(bench: Bench, kind: Any) -> None:
    bench.fastest = 0
    kernel = kind.entry_for(on_arch(TUNED[kind], 90))[1]()
    before = kernel.__dict__.copy()
    kernel.request_tune()
    assert kernel.__dict__ == before
    assert len(bench.searches) == 1


@each_tuned
def test_what_is_found_is_for_a_build_and_other_extents_of_it_start_with_it(bench: Bench, kind: Any) -> None:
    call = TUNED[kind]
    kernel = kind.entry_for(on_arch(call, 90))[1]()
    kernel.request_tune()
    forget()
    identity, build = kind.entry_for(on_arch(dataclasses.replace(call, c=2 * call.c), 90))
    assert identity == kind.entry_for(on_arch(call, 90))[0], "one build serves both"
    assert build().laid == kernel.laid
    assert (
        kind.entry_for(on_arch(dataclasses.replace(call, eps=0.5), 90))[1]().laid
        == kernel.table.layouts[kind.__name__.startswith("BatchNormBwd")]
    ), "another build, but where it takes no epsilon"


@each_tuned
def test_a_call_during_a_change_runs_one_layout_or_the_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Also where what is to run does not compile."""
    kernel = kind.entry_for(on_arch(TUNED[kind], 90))[1]()
    tensors = kernel.scratch((2, 16, TUNED[kind].spatial), torch.device("cpu"))
    launches: list[Any] = []

    def launched() -> Any:
        kernel.forward(*tensors)
        return launches.pop()

    def compile_program(module: str, name: str, arch: int, **parameters: Any) -> Any:
        if parameters["lay"] == last:
            assert launched() == before, "while the other is compiled"
            raise RuntimeError("ptxas: too many registers")
        return lambda *arguments: launches.append(
            (parameters["lay"], [each for each in arguments if not isinstance(each, torch.Tensor)])
        )

    compile_by(monkeypatch, compile_program)
    first, *_, last = kernel.table.layouts
    kernel.change_to(first)
    before = launched()
    with pytest.raises(RuntimeError, match="too many registers"):
        kernel.change_to(last)
    assert launched() == before
    assert kernel.laid == first


def test_every_tuned_kernel_with_a_choice_is_here() -> None:
    import tileops.ops

    kinds = {
        kind
        for name in tileops.ops.__all__
        for kind in getattr(getattr(tileops.ops, name), "kernel_types", {}).values()
        if issubclass(kind, TunedChannels)
    }
    alone = {kind for kind in kinds if re.search("Whole|Split", kind.__name__)}
    assert kinds - alone == set(TUNED)


# What is compiled


DAILY = (BatchNormFwdTrainWideKernel, BatchNormFwdInferKernel)


@pytest.mark.compile
@pytest.mark.parametrize(
    "kind",
    [kind if kind in DAILY else pytest.param(kind, marks=pytest.mark.nightly) for kind in TUNED],
    ids=lambda kind: kind.__name__,
)
def test_each_layout_compiles_in_what_is_stated_of_a_block(kind: Any) -> None:
    call = on_arch(TUNED[kind], 90)
    kernel = kind.entry_for(call)[1]()
    for layout in kernel.table.layouts[1:]:
        kernel.change_to(layout)
        for program in programs(kernel):
            source = program.get_kernel_source()
            threads = [int(each) for each in re.findall(r"__launch_bounds__\((\d+),", source)]
            assert max(threads) <= kind.block_threads(call)
            taken = shared_bytes(program) if "extern __shared__" in source else 0
            assert taken <= kind.block_smem_bytes(call)
