"""The search of a table of launches, and a second process that starts tuned."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.row_support import EPS, ROW_NORMS, row_call
from tests.kernels.support import on_arch
from tests.kernels.tuning_support import (
    CARD,
    PLAYED,
    VERSIONS,
    Bench,
    eight_resident_are_faster,
    forget,
    kernel,
    played,
    resident_of,
)
from tileops.kernels import tuning
from tileops.kernels.device_facts import DeviceFacts, faked
from tileops.kernels.norm import rows as rows_module
from tileops.kernels.norm.layer_norm import LayerNormHeldRowsKernel
from tileops.ops import LayerNormFwdOp

FreshPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    with played(monkeypatch, tmp_path / "tuning") as bench:
        yield bench


# The choice


@pytest.mark.parametrize(
    ("times", "place"),
    [
        ([10.0], 0),
        ([10.0, 9.0], 1),
        ([10.0, 9.8], 0),
        ([10.0, 9.79], 1),
        ([10.0, 9.7, 9.6, 9.65], 2),
        ([10.0, 10.5, 9.81], 0),
        ([10.0, 9.0, 9.0], 1),
    ],
)
def test_the_fastest_is_taken_where_it_saves_more_than_two_percent(times: list[float], place: int) -> None:
    assert tuning.fastest(times) == place


def test_programs_take_turns_behind_a_flush_and_their_medians_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = [0.0], []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = clock[0]

        def elapsed_time(self, end: Any) -> float:
            assert done[-1] == "wait", "nothing is read before it is there"
            return float(end.at - self.at)

    def work(name: str, milliseconds: list[float]) -> Callable[[], None]:
        turns = itertools.cycle(milliseconds)

        def run() -> None:
            done.append(name)
            clock[0] += next(turns)

        return run

    def flush() -> None:
        done.append("flush")
        clock[0] += 100.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    waited = types.SimpleNamespace(synchronize=lambda: done.append("wait"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: waited)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: types.SimpleNamespace(zero_=flush))
    found = tuning.timed([work("a", [0.25, 0.5, 0.75]), work("b", [0.125, 0.125, 640.0])])
    assert found == [500.0, 125.0]
    turn = ["flush", "a", "flush", "b"]
    assert done == [*turn * 3, "wait", *turn * tuning.FEWEST_ROUNDS, "wait"], "a long round is not repeated often"
    done.clear()
    assert tuning.timed([work("a", [0.25])]) == [250.0]
    assert done == [*["flush", "a"] * 3, "wait", *["flush", "a"] * tuning.MOST_ROUNDS, "wait"]


def test_tuning_installs_the_fastest_launch_and_writes_it_down(bench: Bench) -> None:
    built = kernel()
    assert resident_of(built) == 6, "nothing is on file"
    assert not bench.folder.exists(), "asking writes nothing"
    bench.times = eight_resident_are_faster
    built.request_tune()
    assert resident_of(built) == 8
    assert bench.searches == [len(built.table)]
    assert built.layout in built.table
    assert bench.content() == {
        "format": 1,
        "card": CARD,
        "versions": VERSIONS,
        "entries": {
            "tileops.kernels.norm.layer_norm.LayerNormHeldRowsKernel(3072, 1e-05, torch.bfloat16) sm_90": {
                "launch": dataclasses.asdict(built.layout),
                "us": 9.0,
                "usual_us": 10.0,
            }
        },
    }
    assert os.listdir(bench.folder) == [bench.file.name], "nothing is left beside it"


def test_the_usual_launch_is_written_down_too_where_nothing_saves_enough(bench: Bench) -> None:
    bench.times = lambda parameters: 9.9 if parameters["ahead"] else 10.0
    built = kernel()
    built.request_tune()
    assert built.layout == built.table[0]
    (entry,) = bench.entries().values()
    assert (entry["us"], entry["usual_us"]) == (10.0, 10.0)


def test_what_is_on_file_is_not_measured_again(bench: Bench) -> None:
    early = kernel()
    bench.times = eight_resident_are_faster
    kernel().request_tune()
    early.request_tune()
    assert resident_of(early) == 8, "of another op, built before"
    late = kernel()
    assert resident_of(late) == 8, "built after"
    late.request_tune()
    forget()
    kernel().request_tune()
    assert len(bench.searches) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: LayerNormHeldRowsKernel(3072, 1e-6, torch.bfloat16, arch=90),
        lambda: LayerNormHeldRowsKernel(3072, EPS, torch.float16, arch=90),
        lambda: LayerNormHeldRowsKernel(2048, EPS, torch.bfloat16, arch=90),
        lambda: LayerNormHeldRowsKernel(3072, EPS, torch.bfloat16, arch=80),
        lambda: ROW_NORMS["fused_add_layer_norm"].kernel("held")(3072, EPS, torch.bfloat16, arch=90),
    ],
)
def test_each_build_identity_arch_and_class_is_tuned_by_itself(bench: Bench, other: Callable[[], Any]) -> None:
    bench.times = eight_resident_are_faster
    kernel().request_tune()
    built = other()
    assert resident_of(built) == 6
    built.request_tune()
    assert resident_of(built) == 8
    assert len(bench.searches) == len(bench.entries()) == 2


def test_another_card_has_a_file_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.times = eight_resident_are_faster
    kernel().request_tune()
    monkeypatch.setattr(tuning, "card_here", lambda: tuning.Card("Another (R) Card", torch.device("cpu")))
    built = kernel()
    assert resident_of(built) == 6
    built.request_tune()
    assert sorted(os.listdir(bench.folder)) == ["another-r-card.json", bench.file.name]


def test_a_table_of_one_is_not_measured(bench: Bench) -> None:
    built = ROW_NORMS["rms_norm"].kernel("held")(65536, EPS, torch.float16, arch=90)
    assert len(built.table) == 1
    built.request_tune()
    assert bench.searches == []
    assert not bench.folder.exists()


def test_without_a_card_nothing_is_measured_or_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "card_here", lambda: None)
    built = kernel()
    built.request_tune()
    assert built.layout == built.table[0]
    assert (bench.searches, bench.folder.exists()) == ([], False)


def test_an_op_in_tuned_mode_searches_once_for_each_kernel_before_it_first_runs(bench: Bench) -> None:
    bench.times = eight_resident_are_faster
    card = torch.device("cuda", 0)
    with faked({card: DeviceFacts(arch=90, sm_count=132, smem_budget=232448)}):
        early, late, plain = (LayerNormFwdOp() for _ in range(3))
        call = row_call(3072, torch.bfloat16, few_rows=False)
        call = dataclasses.replace(call, device=card)
        built = early.kernel_for("layer_norm", call)
        assert resident_of(built) == 6
        early.request_tune()
        early.request_tune()
        assert resident_of(built) == 8
        late.request_tune()
        assert resident_of(late.kernel_for("layer_norm", dataclasses.replace(call, n=2048))) == 8
        assert resident_of(plain.kernel_for("layer_norm", call)) == 8, "an op that never asks starts tuned"
        assert {op.key_for("layer_norm", call) for op in (early, late, plain)} == {"layer_norm_held_rows"}
    assert len(bench.searches) == 2


# What neither a choice nor a call may depend on


def test_neither_selection_nor_a_call_asks_what_is_on_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    built = kernel(512)
    for module, name in itertools.product((rows_module, tuning), ("recorded", "tune", "store_of", "card_here")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("asked"), raising=False)
    call = on_arch(row_call(512, torch.bfloat16), 90)
    assert LayerNormHeldRowsKernel.refusal(call) is None
    LayerNormHeldRowsKernel.entry_for(call)
    row = torch.ones(512, dtype=torch.bfloat16)
    built(row.expand(3, 512).contiguous(), row, row)


def test_the_file_is_read_once_in_a_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    original = Path.open

    def opened(self: Path, *arguments: Any, **named: Any) -> Any:
        read.append(self)
        return original(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", opened)
    for n in (513, 1024, 2048, 3072):
        kernel(n)
    assert read == [bench.file]


# A second process


def test_a_second_process_starts_tuned_and_measures_nothing(bench: Bench, fresh_python: FreshPython) -> None:
    script = PLAYED + (
        "tuning.timed = None\n"
        "kernel = LayerNormHeldRowsKernel(3072, 1e-5, torch.bfloat16, arch=90)\n"
        "started = kernel.launch.parameters['resident']\n"
        "kernel.request_tune()\n"
        "print(started, kernel.launch.parameters['resident'])\n"
    )
    bench.times = eight_resident_are_faster
    kernel().request_tune()
    second = fresh_python("-W", "error", "-c", script, env={"TILEOPS_TUNING": str(bench.folder)})
    assert (second.returncode, second.stdout) == (0, "8 8\n"), second.stderr


def test_processes_that_write_at_once_lose_nothing(bench: Bench) -> None:
    script = PLAYED + (
        "store = tuning.store_of(tuning.card_here())\n"
        "sys.stdin.read()\n"
        "for i in range(50): store.record(f'{sys.argv[1]} {i}', {'resident': i}, 1.0, 2.0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TILEOPS_TUNING": str(bench.folder)}
    command = [sys.executable, "-W", "error", "-c", script]
    started = [
        subprocess.Popen([*command, name], env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]
    for each in started:
        each.stdin.close()  # type: ignore[union-attr]
    for each in started:
        assert each.wait(120) == 0, each.stderr.read().decode()  # type: ignore[union-attr]
        each.stderr.close()  # type: ignore[union-attr]
    assert set(bench.entries()) == {f"{name} {i}" for name in ("one", "two") for i in range(50)}
    assert os.listdir(bench.folder) == [bench.file.name]


def test_threads_that_write_at_once_lose_nothing(bench: Bench) -> None:
    stores = [tuning.Store(bench.file, CARD, VERSIONS) for _ in range(2)]

    def write(i: int) -> None:
        stores[i % 2].record(f"key {i}", {"resident": i}, 1.0, 2.0)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert set(bench.entries()) == {f"key {i}" for i in range(16)}


def test_the_entries_are_bounded_and_the_oldest_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MOST_ENTRIES", 3)
    store = tuning.Store(bench.file, CARD, VERSIONS)
    for name in ("a", "b", "c", "a", "d"):
        store.record(name, {}, 1.0, 2.0)
    assert list(bench.entries()) == ["c", "a", "d"]
    assert store.launch("b") is None
    assert store.launch("d") == {}


# What fails


def test_a_candidate_that_does_not_compile_is_left_out_with_a_warning(bench: Bench) -> None:
    bench.times = eight_resident_are_faster
    bench.broken = lambda parameters: bool(parameters["ahead"])
    built = kernel()
    with pytest.warns(RuntimeWarning, match=r"is tuned without HeldLaunch\(.*ahead=True.*too many registers") as caught:
        built.request_tune()
    assert len(caught) == 1
    assert bench.searches == [len(built.table) - 1]
    assert resident_of(built) == 8


def test_where_the_usual_launch_does_not_run_nothing_changes(bench: Bench) -> None:
    built = kernel()
    bench.broken = lambda parameters: parameters["resident"] == 6
    with pytest.warns(RuntimeWarning, match="is not tuned: ptxas: too many registers"):
        built.request_tune()
    assert resident_of(built) == 6
    assert not bench.folder.exists()


@pytest.mark.parametrize("error", [RuntimeError("illegal memory access"), torch.OutOfMemoryError("no memory")])
def test_where_the_clock_fails_nothing_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def timed(works: Any) -> list[float]:
        raise error

    monkeypatch.setattr(tuning, "timed", timed)
    built = kernel()
    with pytest.warns(RuntimeWarning, match=f"{re.escape('LayerNormHeldRowsKernel(3072')}.* is not tuned: {error}"):
        built.request_tune()
    assert resident_of(built) == 6
    assert not bench.folder.exists()


def test_nothing_is_measured_while_a_graph_is_captured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "card_here", lambda: tuning.Card(CARD, torch.device("cuda", 0)))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    built = kernel()
    with pytest.warns(RuntimeWarning, match="is not tuned: the current stream is being captured"):
        built.request_tune()
    assert len(bench.compiled) == 1
    assert resident_of(built) == 6


# On a GPU

TUNED_OP = """
import dataclasses, json, sys, warnings
import torch
from tileops.kernels import tuning
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.ops import LayerNormFwdOp

warnings.filterwarnings("error", message=".*(tuning file|tuned)")
device = torch.device("cuda", 0)
x = torch.randn(64, 3072, device=device, dtype=torch.float16)
op = LayerNormFwdOp(3072)
if sys.argv[1] == "tune":
    op.request_tune()
else:
    tuning.timed = None  # nothing may be measured
result = op(x)
kernel = op.kernel_for("layer_norm", LayerNormCall(3072, 1e-5, torch.float16, device=device))
started = dataclasses.asdict(kernel.layout)
op.request_tune()
expected = torch.nn.functional.layer_norm(x.double(), (3072,))
found = {
    "error": (op(x).double() - expected).abs().max().item() + (result.double() - expected).abs().max().item(),
    "started": started,
    "layout": dataclasses.asdict(kernel.layout),
    "table": [dataclasses.asdict(each) for each in kernel.table],
}
sys.stdout.write("\\n" + json.dumps(found))
"""


@pytest.mark.gpu
def test_an_op_measures_on_the_gpu_and_one_of_a_second_process_starts_tuned(
    tmp_path: Path, fresh_python: FreshPython
) -> None:
    def run(mode: str) -> Any:
        done = fresh_python("-c", TUNED_OP, mode, env={"TILEOPS_TUNING": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["error"] < 0.01
        return found

    first = run("tune")
    (file,) = tmp_path.iterdir()
    content = json.loads(file.read_text())
    assert content["card"] == torch.cuda.get_device_name(0)
    ((key, entry),) = content["entries"].items()
    assert "LayerNormHeldRowsKernel(3072, 1e-05, torch.float16)" in key
    assert entry["launch"] == first["layout"]
    # 64 MiB are read and 64 MiB written: no card takes less than a microsecond or as much as ten milliseconds.
    assert 1.0 < entry["us"] <= entry["usual_us"] < 10_000.0
    second = run("start")
    assert second["started"] == second["layout"] == first["layout"]
    other = next(each for each in first["table"] if each not in (first["layout"], first["table"][0]))
    entry["launch"] = other
    file.write_text(json.dumps(content))
    third = run("start")
    assert third["started"] == third["layout"] == other


# What a table may hold


@dataclasses.dataclass(frozen=True)
class Odd:
    value: Any


@pytest.mark.parametrize("value", [torch.float16, (1, 2), [3], {"a": 1}], ids=str)
def test_a_table_of_what_cannot_be_written_down_is_refused_before_anything_is_measured(
    bench: Bench, value: Any
) -> None:
    table = (Odd(1), Odd(value))
    for asked in (lambda: tuning.recorded("key", table), lambda: tuning.tune("key", table, lambda device: print)):
        with pytest.raises(
            TypeError, match=r"the table of key holds Odd\(.*, whose value is a \w+: a launch holds numbers"
        ):
            asked()
    with pytest.raises(TypeError, match="the table of key holds 7, which is no dataclass object"):
        tuning.recorded("key", (7, 8))
    assert bench.searches == []
    bench.times = eight_resident_are_faster
    built = kernel()
    built.request_tune()
    assert resident_of(built) == 8, "others are tuned as before"


@pytest.mark.parametrize("error", [AssertionError, KeyError, ZeroDivisionError, ImportError])
def test_whatever_a_launch_raises_leaves_it_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def work_of(launch: Odd) -> Callable[[], None]:
        if launch.value == 2:
            raise error("the tile does not fit")
        return functools.partial(print, end="")

    monkeypatch.setattr(tuning, "timed", lambda works: [10.0 - place for place, _ in enumerate(works)])
    with pytest.warns(RuntimeWarning, match="the tile does not fit"):
        assert tuning.tune("key", (Odd(1), Odd(2), Odd(3)), lambda device: work_of) == Odd(3)


def test_the_example_of_the_page_is_tuned_and_found_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
    module = types.ModuleType("page_of_tuning")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    exec(compile(page.split("```python\n")[-1].split("```")[0], "page", "exec", dont_inherit=True), names)
    monkeypatch.setattr(tuning, "timed", lambda works: [[10.0, 9.0][place] for place, work in enumerate(works)])
    call = on_arch(row_call(64, torch.float32), 90)
    kind = names["TunedLayerNormKernel"]
    built = kind.entry_for(call)[1]()
    assert built.launch == kind.table[0]
    built.request_tune()
    assert built.launch == kind.table[1]
    forget()
    assert kind.entry_for(call)[1]().launch == kind.table[1]
    x, weight, bias = torch.randn(3, 64), torch.rand(64), torch.rand(64)
    assert torch.equal(built(x, weight, bias), torch.nn.functional.layer_norm(x, (64,), weight, bias))
