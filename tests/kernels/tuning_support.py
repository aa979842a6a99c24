"""A card that is played on the CPU, for tests of tuning: nothing is compiled, and times are what a test says."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.row_support import EPS
from tileops.kernels import tuning
from tileops.kernels.norm import rows as rows_module
from tileops.kernels.norm.layer_norm import LayerNormHeldRowsKernel

CARD = "Played Card 4000"
VERSIONS = {"tileops": "1", "tilelang": "2", "cuda": "3", "driver": "4"}

PLAYED = """
import sys, types
import torch
from tileops.kernels import tuning
from tileops.kernels.norm import rows
from tileops.kernels.norm.layer_norm import LayerNormHeldRowsKernel

def compiled(module, name, arch, **parameters):
    def launch(*tensors): pass
    launch.parameters = parameters
    return types.SimpleNamespace(launch=launch)

rows.compile_program = compiled
rows.MEASURED_BYTES = 4096
tuning.card_here = lambda: tuning.Card("Played Card 4000", torch.device("cpu"))
tuning.versions_here = lambda: {"tileops": "1", "tilelang": "2", "cuda": "3", "driver": "4"}
"""
"""A process of its own with a card on which nothing is compiled."""


@dataclasses.dataclass
class Bench:
    """A card that is played on the CPU.

    Attributes:
        folder: Of the files.
        times: From the parameters of a program to its microseconds.
        broken: Whether a program with these parameters does not compile.
        compiled: The parameters of what was compiled, in order.
        searches: How many programs each search timed.
    """

    folder: Path
    times: Callable[[dict[str, Any]], float] = lambda parameters: 10.0
    broken: Callable[[dict[str, Any]], bool] = lambda parameters: False
    compiled: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    searches: list[int] = dataclasses.field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "played-card-4000.json"

    def content(self) -> Any:
        return json.loads(self.file.read_text())

    def entries(self) -> Any:
        return self.content()["entries"]


def forget() -> None:
    """What a new process begins with."""
    tuning._stores.clear()
    tuning.folder_here.cache_clear()


@contextlib.contextmanager
def card(monkeypatch: pytest.MonkeyPatch, folder: Path, timed: Callable[[Any], list[float]]) -> Iterator[None]:
    """While it lasts, there is a card whose files stand in *folder*, and works take what *timed* says."""
    monkeypatch.setattr(tuning, "timed", timed)
    monkeypatch.setattr(tuning, "card_here", lambda: tuning.Card(CARD, torch.device("cpu")))
    monkeypatch.setattr(tuning, "versions_here", lambda: VERSIONS)
    monkeypatch.setenv("TILEOPS_TUNING", str(folder))
    forget()
    yield
    forget()


@contextlib.contextmanager
def played(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Bench]:
    """A card of its own for one test, whose files stand in *folder*."""
    bench = Bench(folder)

    def compile_program(module: str, name: str, arch: int, **parameters: Any) -> Any:
        bench.compiled.append(parameters)
        if bench.broken(parameters):
            raise RuntimeError("ptxas: too many registers")

        def launch(*tensors: torch.Tensor) -> None:
            for each in tensors:
                assert each.numel()

        launch.parameters = parameters  # type: ignore[attr-defined]
        return types.SimpleNamespace(launch=launch)

    def timed(works: Any) -> list[float]:
        bench.searches.append(len(works))
        return [bench.times(work.func.parameters) for work in works]

    monkeypatch.setattr(rows_module, "compile_program", compile_program)
    monkeypatch.setattr(rows_module, "MEASURED_BYTES", 4096)
    with card(monkeypatch, bench.folder, timed):
        yield bench


def kernel(n: int = 3072, dtype: torch.dtype = torch.bfloat16) -> Any:
    return LayerNormHeldRowsKernel(n, EPS, dtype, arch=90)


def tuned(n: int = 3072) -> Any:
    built = kernel(n)
    built.request_tune()
    return built


def resident_of(kernel: Any) -> int:
    found: int = kernel.launch.parameters["resident"]
    assert kernel.layout.resident == found
    return found


def eight_resident_are_faster(parameters: dict[str, Any]) -> float:
    return 9.0 if parameters["resident"] == 8 else 10.0
