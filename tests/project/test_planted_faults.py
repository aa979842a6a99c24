"""Faults planted in a copy of the real ops: each is found, by the check that is there for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the real ops need torch")

ROOT = Path(__file__).resolve().parents[2]
DECODE = "tileops/kernels/attention/gqa/decode.py"
DECODE_SHAPE = "tileops/kernels/attention/gqa/decode_shape.py"
NORM = "tileops/kernels/norm/layer_norm.py"
MODULES = {
    DECODE: "tileops.ops.attention.gqa_dense",
    DECODE_SHAPE: "tileops.ops.attention.gqa_dense",
    NORM: "tileops.ops.norm.layer_norm",
}
"""The op that a fault of a file is looked for in."""
TILED = '    """Layer normalization of rows of any length."""\n'
OVERRIDDEN = f"""{TILED}
    @classmethod
    def row_refusal(cls, n, dtype):
        return {{}}
"""


@dataclass(frozen=True)
class Fault:
    """An edit of one file, and what has to be said of it.

    Attributes:
        file: Where.
        old: The text that is replaced; it stands there.
        new: What is written instead.
        kinds: Kinds of finding that an audit has to make.
        keys: Keys that one of them has to name.
        subjects: Subjects that they have to have, among others.
    """

    file: str
    old: str
    new: str
    kinds: frozenset[str]
    keys: tuple[str, ...] = ()
    subjects: frozenset[str] = frozenset()


FOUND_BY_AUDIT = {
    "an edge is dropped": Fault(
        DECODE,
        '    preferred_over = frozenset({"gqa_dense_decode_bs1"})\n',
        "",
        frozenset({"overlap"}),
        ("gqa_dense_decode_bs1", "gqa_dense_decode_long_context"),
    ),
    "an edge is turned round": Fault(
        DECODE,
        '    general: bool = False\n    preferred_over = frozenset({"gqa_dense_decode_bs1"})\n',
        "    general: bool = False\n",
        frozenset({"overlap"}),
    ),
    "an arch is swapped": Fault(
        DECODE,
        "supported_archs: list[int] = [*ARCHS]\n    general: bool = True",
        "supported_archs: list[int] = [80, 86, 90]\n    general: bool = True",
        frozenset({"gap", "served-gap"}),
        subjects=frozenset({"sm_89"}),
    ),
    "super is forgotten": Fault(
        DECODE,
        '            return f"batch {call.batch} is not 1"\n        return super().refusal(call)\n',
        '            return f"batch {call.batch} is not 1"\n        return None\n',
        frozenset({"dropped-limit"}),
        ("gqa_dense_decode_bs1",),
    ),
    "a Hopper tile goes to every arch": Fault(
        DECODE_SHAPE,
        "ALONE: Final = Ladder(warps=(8, 4, 2, 1), stages=(6, 5, 4, 3, 2), enough=ENOUGH_BYTES)",
        "ALONE: Final = Ladder(warps=(8,), stages=(3,))",
        frozenset({"served-gap"}),
    ),
    "a budget is not looked at": Fault(
        DECODE_SHAPE,
        "if smem_budget is not None and needed > smem_budget:",
        "if needed < 0:",
        frozenset({"fits"}),
    ),
    "a rule throws": Fault(
        NORM,
        TILED,
        OVERRIDDEN.format("super().row_refusal(n // (n - 7), dtype)"),
        frozenset({"raises"}),
        ("layer_norm",),
    ),
    "rows are cut where they are not preferred": Fault(
        NORM,
        '    """Layer normalization of long rows, or of few."""\n\n'
        '    preferred_over = frozenset({"layer_norm_held_rows"})\n',
        '    """Layer normalization of long rows, or of few."""\n',
        frozenset({"overlap"}),
        ("layer_norm_cut_rows", "layer_norm_held_rows"),
    ),
}


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of the copy in which a fault is planted."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tileops", tmp_path / "tileops", ignore=ignore)
    folders = [str(tmp_path), str(ROOT / "rules"), str(ROOT / "solver")]

    def run(fault: Fault, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / fault.file
        text = path.read_text(encoding="utf-8")
        assert fault.old in text, "the text that the fault replaces has changed: write the fault anew"
        path.write_text(text.replace(fault.old, fault.new, 1), encoding="utf-8")
        command = [sys.executable, "-m", "tileops_solver", *arguments]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.mark.parametrize("name", FOUND_BY_AUDIT)
def test_an_audit_finds_it(name: str, planted: Callable[..., Any]) -> None:
    fault = FOUND_BY_AUDIT[name]
    done = planted(fault, "audit", "--format", "json", MODULES[fault.file])
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    findings = [finding for each in report["interfaces"] for finding in each["findings"]]
    assert fault.kinds <= {finding["kind"] for finding in findings}
    assert fault.subjects <= {finding["subject"] for finding in findings}
    if fault.keys:
        assert any(set(fault.keys) <= set(f["keys"]) and f["kind"] in fault.kinds for f in findings)


def test_a_rule_that_reads_the_device_fails_a_strict_audit_with_its_place(planted: Callable[..., Any]) -> None:
    reads = "None if torch.cuda.is_available() else super().row_refusal(n, dtype)"
    fault = Fault(NORM, TILED, OVERRIDDEN.format(reads), frozenset())
    done = planted(fault, "audit", "--strict", "--format", "json", MODULES[fault.file])
    assert done.returncode == 1, done.stderr
    (unlifted,) = [rule for each in json.loads(done.stdout)["interfaces"] for rule in each["not_lifted"]]
    assert unlifted["key"] == "layer_norm"
    assert unlifted["place"].startswith("tileops/kernels/norm/layer_norm.py:")
    assert "torch.cuda" in unlifted["cause"]
