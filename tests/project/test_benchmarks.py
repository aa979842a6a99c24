"""The scripts that measure on a GPU: what they would measure, and what they say of times that are made up here."""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = ["attention", "attention_page", "borders", "decode_borders", "kernels", "norm", "norm_page"]


@pytest.fixture(scope="module", autouse=True)
def beside() -> Iterator[None]:
    """Scripts import what stands beside them; what they imported is forgotten again."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


def script(name: str) -> Any:
    return importlib.import_module(name)


def case(**fields: Any) -> Any:
    usual: dict[str, Any] = {"batch": 1, "queries": 1, "keys": 4096, "heads": 32, "heads_kv": 4, **fields}
    return script("attention_case").AttentionCase(**usual)


def row(measured: Any, us: dict[str, float], failed: dict[str, str] | None = None, **more: Any) -> Any:
    """The row of a case whose times are made up, on a card that copies 4 TB/s and multiplies 800 TFLOP/s.

    Kernels run for two microseconds less than a call takes, unless *more* says otherwise.
    """
    more.setdefault("busy_us", {name: each - 2.0 for name, each in us.items()})
    ceilings = script("attention_case").Ceilings(4e6, {torch.float16: 8e8, torch.bfloat16: 8e8})
    rows = script("attention_rows")
    runs = rows.Runs({}, failed or {}, {name: 0.001 for name in us if name != "ours"})
    return rows.row_of(measured, runs, {"us": us, **more}, ceilings)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_tells_its_options_without_a_gpu(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as left:
        script(name).main()
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert "report" in said if name.endswith("_page") else "--write" in said and "--into" in said


@pytest.mark.parametrize("queries", [1, 7, 40])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("window", [-1, 0, 5, 100])
def test_pairs_are_those_that_a_mask_leaves(queries: int, is_causal: bool, window: int) -> None:
    position = torch.arange(queries)[:, None] + 40 - queries
    key = torch.arange(40)[None, :]
    seen = torch.ones(queries, 40, dtype=torch.bool)
    if is_causal:
        seen &= key <= position
    if window >= 0:
        seen &= key >= position - window
    assert case(queries=queries, keys=40, is_causal=is_causal, window=window).pairs == int(seen.sum())


def test_every_case_is_in_one_group_and_every_bar_is_of_a_figure_that_its_row_has() -> None:
    attention = script("attention")
    cases = attention.PREFILL + attention.DECODE
    assert sorted(repr(each) for group in attention.groups(cases) for each in group) == sorted(map(repr, cases))
    assert len(set(cases)) == len(cases)
    assert all(each.bar is None or each.bar.figure in ("busy_us", each.rate) for each in cases)
    assert all(each.kv_bytes <= 40e9 for each in attention.DECODE)
    assert max(each.batch * each.keys for each in attention.DECODE) == 64 * 32_768


def test_a_row_says_what_its_times_come_to() -> None:
    attention_case = script("attention_case")
    read = case(batch=64, keys=8192, heads_kv=8, bar=attention_case.Bar("tb_per_s", 4.45))
    found = row(read, {"ours": 500.0, "cudnn": 490.0, "flash": 700.0})
    moved = 2 * 64 * 8192 * 8 * 128 * 2
    assert found["tb_per_s"]["ours"] == pytest.approx(moved / 500e-6 / 1e12, abs=1e-3)
    assert found["floor_us"] == pytest.approx((moved + 2 * 64 * 32 * 128 * 2) / 4e6, abs=0.01)
    assert found["share"] == pytest.approx(found["floor_us"] / 500, abs=1e-3)
    assert found["ahead"] == 0.98
    assert found["bar"] == {"figure": "tb_per_s", "value": 4.45, "kept": False}
    assert row(read, {"ours": 480.0})["bar"]["kept"]
    assert row(read, {"ours": 480.0})["ahead"] is None
    multiplied = case(queries=4096, heads=64, heads_kv=8, dtype=torch.bfloat16, is_causal=True)
    found = row(multiplied, {"ours": 200.0})
    operations = 4 * 64 * 128 * 4096 * 4097 // 2
    assert found["tflops"]["ours"] == pytest.approx(operations / 200e-6 / 1e12, abs=1e-3)
    assert found["floor_us"] == pytest.approx(operations / 800e12 * 1e6, abs=0.01)
    fast = case(bar=attention_case.Bar("busy_us", 9.6))
    assert row(fast, {"ours": 11.6})["bar"]["kept"]
    assert not row(fast, {"ours": 9.5}, busy_us={"ours": 9.61})["bar"]["kept"]
    assert not row(fast, {"ours": 9.5}, busy_us={})["bar"]["kept"], "what was not seen is not kept"
    hosts = {"ours": 15.0, "launch": 6.5, "cudnn": 11.0}
    assert row(fast, {"ours": 10.0}, host_us=hosts)["host_over_launch_us"] == 8.5
    assert "host_over_launch_us" not in row(fast, {"ours": 10.0}, host_us={"ours": 15.0})


@pytest.mark.parametrize(
    ("seen", "busy"),
    [([[6.0, 3.0], [5.0, 3.0], [9.0, 3.0]], 9.0), ([[61.0, 10.0]] * 3, 71.0), ([[6.0], [6.0, 1.0], [6.0]], None)],
)
def test_kernels_are_busy_for_what_the_profiler_saw_of_a_call(
    seen: list[list[float]], busy: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = script("timing")
    calls = iter(seen)

    class Profile:
        def __init__(self, **_: Any) -> None:
            self.us = next(calls)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def events(self) -> list[Any]:
            device = timing.DeviceType.CUDA
            spans = [types.SimpleNamespace(elapsed_us=lambda us=us: us) for us in self.us]
            return [types.SimpleNamespace(device_type=device, time_range=span) for span in spans]

    monkeypatch.setattr(timing, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timer = object.__new__(timing.Timer)
    monkeypatch.setattr(timing.Timer, "_empty_cache", lambda self: None)
    assert timer.busy(lambda: None, repeats=3) == busy


def test_a_host_is_as_fast_as_in_its_quietest_round(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = script("timing")
    clock, ran = [0.0], {"busy": 0, "steady": 0}
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def work(name: str, us: Callable[[int], float]) -> Callable[[], None]:
        def run() -> None:
            clock[0] += us(ran[name] // timing.HOST_CALLS) * 1e-6
            ran[name] += 1

        return run

    works = {
        "busy": work("busy", lambda turn: 9.0 if turn == 3 else 40.0 + turn),
        "steady": work("steady", lambda _: 7.0),
    }
    assert timing.host_us(works) == pytest.approx({"busy": 9.0, "steady": 7.0})
    assert ran["busy"] == ran["steady"] == timing.HOST_ROUNDS * timing.HOST_CALLS


def test_a_row_in_which_ours_failed_or_a_peer_differs_is_wrong() -> None:
    wrong = script("attention_rows").wrong
    found = row(case(), {"ours": 10.0, "cudnn": 12.0}, {"flash": "takes no such shape"})
    assert wrong(found) == []
    for apart in (0.03, float("nan")):
        assert wrong({**found, "apart": {"cudnn": apart}}) == [f"cudnn is {apart} from ours"]
    assert wrong(row(case(), {"cudnn": 12.0}, {"ours": "no nvcc"})) == ["ours failed: no nvcc"]


def test_a_page_has_a_line_for_each_row_and_says_why_a_figure_is_missing() -> None:
    bar = script("attention_case").Bar("busy_us", 7.5)
    graphs = {"host_us": {"ours": 15.0, "launch": 6.0}, "graph_us": {"ours": 9.5, "cudnn": 9.0}}
    rows = [
        row(case(bar=bar), {"ours": 10.0, "cudnn": 12.5}, {"flash": "takes no such shape"}, **graphs),
        row(case(keys=512), {"cudnn": 7.25}, {"ours": "no nvcc"}),
        row(case(queries=2048, keys=2048), {"ours": 400.0}),
    ]
    head = {"card": "a card", "date": "today", "versions": {"torch": "2"}, "repeats": 21, "empty_kernel_us": 3.1}
    rates = {"copy_tb_per_s": 4.2, "product_tflops": {"bfloat16": 700.0}}
    page = script("attention_page").page(json.loads(json.dumps({**head, **rates, "rows": rows})))
    lines = page.splitlines()
    timed = "10.0 | 12.5 | – | – | 8.0 | 10.5 | – | –"
    assert f"| 1 | 4096 | 32/4 | float16 | {timed} | 0.839 | 0.21 | 1.25 | ≤ 7.5 busy µs, missed |" in lines
    assert "| 1 | 512 | 32/4 | float16 | error | 7.25 | – | – | error | 5.25 | – | – | error | – | – | – |" in lines
    assert "| 1 | 4096 | 32/4 | float16 | 15.0 | – | – | – | 9.5 | 9.0 | – | – | 9.0 | 0.947 |" in lines
    assert "- flash: takes no such shape" in lines
    assert "- ours: no nvcc" in lines
    assert sum(line.startswith("| 1 |") for line in lines) == len(rows) + 1


def test_the_kept_forms_of_decode_are_those_that_the_script_measures() -> None:
    decode_borders = script("decode_borders")
    kept = json.loads((FOLDER / "results" / "decode-forms-nvidia-h200-2026-11-30.json").read_text())
    for name, note in decode_borders.notes().items():
        then = {"row_warps": 1, "key_heads": 1, **kept["form_notes"][name]}
        assert {field: then[field] for field in note} == note
    assert [each["keys"] for each in kept["rows"]] == [each.keys for each in decode_borders.CASES]
    for each in kept["rows"]:
        assert decode_borders.FORMS.keys() <= each["us"].keys() <= kept["form_notes"].keys()
