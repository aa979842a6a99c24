"""The commands as a user meets them: exit codes, pure output, clear errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tileops_solver import InconsistencyError
from tileops_solver.audit_command import audit_command
from tileops_solver.cli import main
from tileops_solver.commanding import progress_bar
from tileops_solver.explain_command import explain_command

SPEC = """
from dataclasses import dataclass
from typing import Literal, Optional

@dataclass(frozen=True)
class Call:
    n: int = 1
    dtype: Literal["f16", "f32"] = "f16"
    scale: float = 1.0
    name: str = ""
    shape: tuple[int, ...] = ()
    limit: Optional[int] = None
    device: Optional[str] = None
    arch: Optional[int] = None
    sm_count: Optional[int] = None

    def invalid(self):
        return "n is negative" if self.n < 0 else None

class Face:
    request = Call

class Small(Face):
    @classmethod
    def refusal(cls, call):
        if call.dtype != "f16":
            return f"dtype {call.dtype} is not f16"
        return None if call.n < 64 else f"n {call.n} is not below 64"

class Large(Face):
    supported_archs = [90]
    @classmethod
    def refusal(cls, call):
        return None if call.n >= 64 else f"n {call.n} is below 64"

class Rest(Face):
    general = True

class CleanOp:
    kernel_types = {"small": Small, "large": Large, "rest": Rest}
    interfaces = {"face": Face}
"""
CLASH = """
class ClashingOp:
    kernel_types = {"large": Large, "every": type("Every", (Face,), {})}
    interfaces = {"face": Face}
"""
STRANGE = """
class Strange(Face):
    @classmethod
    def refusal(cls, call):
        return None if len(range(call.n)) else "nothing"

class StrangeOp:
    kernel_types = {"large": Large, "strange": Strange}
    interfaces = {"face": Face}
"""
NOISE = """
import atexit, ctypes, os, sys
print("python")
sys.__stdout__.write("dunder\\n")
os.write(1, b"descriptor\\n")
ctypes.CDLL(None).printf(b"from C\\n")
atexit.register(print, "at exit")
KEPT = sys.stdout
"""


@pytest.fixture
def ops(op_module: Callable[..., Path]) -> Path:
    return op_module(
        cli_clean=SPEC,
        cli_clash="from cli_clean import *" + CLASH,
        cli_strange="from cli_clean import Face, Large" + STRANGE,
        cli_empty="x = 1",
        cli_broken="raise RuntimeError('broken on purpose')",
        cli_exits="raise SystemExit(0)",
        cli_noisy=NOISE + "from cli_clean import *" + CLASH,
    )


def run(command: click.Command, *arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["cli_clean"], 0),
        (["cli_clean:CleanOp", "--strict"], 0),
        (["cli_clash"], 1),
        (["cli_clash:ClashingOp"], 1),
        (["cli_clean", "cli_clash"], 1),
        (["cli_strange"], 0),
        (["cli_strange", "--strict"], 1),
        (["cli_empty"], 0),
        (["cli_broken"], 2),
        (["cli_exits"], 2),
        (["no_such_module"], 2),
        (["cli_clean:NoSuchOp"], 2),
        (["cli_clean:Call"], 2),
        (["cli_clean", "--format", "xml"], 2),
        ([], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_exit_code_says_how_an_audit_ended(ops: Path, arguments: list[str], code: int) -> None:
    assert run(audit_command, *arguments).exit_code == code


def test_an_inconsistency_of_ours_has_its_own_exit_code(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(*given: Any) -> None:
        raise InconsistencyError("rule and function differ", facts=("call: Call(n=3)",))

    monkeypatch.setattr("tileops_solver.auditing.replay_rules", differ)
    result = run(audit_command, "cli_clean")
    assert result.exit_code == 3
    assert "call: Call(n=3)" in result.stderr
    assert result.stdout == ""


def test_a_crash_of_ours_is_not_taken_for_a_finding(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*given: Any) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("tileops_solver.auditing.replay_rules", crash)
    result = run(audit_command, "cli_clean")
    assert result.exit_code == 2
    assert "RuntimeError: unforeseen" in result.stderr


def test_an_interrupt_is_no_finding(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tileops_solver.auditing.replay_rules", interrupt)
    assert run(audit_command, "cli_clean").exit_code == 130


def test_the_last_line_says_what_is_not_proved(ops: Path) -> None:
    assert run(audit_command, "cli_clean").stdout.splitlines()[-1] == "not proved: 0"
    assert run(audit_command, "cli_strange", "--select", "overlap").stdout.splitlines()[-1] == "not proved: 2"


def test_nothing_to_audit_is_said(ops: Path) -> None:
    result = run(audit_command, "cli_empty")
    assert "nothing to audit" in result.stderr
    assert result.stdout.splitlines()[-1] == "not proved: 0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such_module"], "no_such_module cannot be imported"),
        (["cli_broken"], "RuntimeError: broken on purpose"),
        (
            ["cli_clean:NoSuchOp"],
            "no op class, which has kernel_types and interfaces: cli_clean has nothing of that name",
        ),
    ],
)
def test_what_could_not_run_is_said(ops: Path, arguments: list[str], words: str) -> None:
    result = run(audit_command, *arguments)
    assert words in result.stderr
    assert result.stdout == ""


def in_a_process(folder: Path, fresh_python: Callable[..., Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = fresh_python("-m", "tileops_solver", *arguments, cwd=str(folder))
    return done


def test_standard_output_holds_json_alone_whatever_the_module_prints(
    ops: Path, fresh_python: Callable[..., Any]
) -> None:
    done = in_a_process(ops, fresh_python, "audit", "cli_noisy", "--format", "json")
    assert done.returncode == 1, done.stderr
    assert {each["op"] for each in json.loads(done.stdout)["interfaces"]} == {"CleanOp", "ClashingOp"}
    for noise in ("python", "dunder", "descriptor", "from C", "at exit"):
        assert noise in done.stderr


def test_explain_keeps_standard_output_clean_too(ops: Path, fresh_python: Callable[..., Any]) -> None:
    done = in_a_process(ops, fresh_python, "explain", "cli_noisy:CleanOp", "face", "arch=90", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["winner"] == "small"


def test_the_folder_one_is_in_is_looked_in(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [path for path in sys.path if path != str(ops)]
    monkeypatch.setattr(sys, "path", kept)
    monkeypatch.chdir(ops)
    assert run(audit_command, "cli_clean").exit_code == 0


def test_a_bar_is_drawn_only_where_the_terminal_is_one(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "audit" not in run(audit_command, "cli_clean").stderr

    class Terminal:
        encoding = "utf-8"

        def __init__(self) -> None:
            self.text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            return None

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar() as step:
        step(1, 2, "CleanOp.face")
    assert "CleanOp.face" in terminal.text


def test_help_states_the_exit_codes() -> None:
    result = run(main, "audit", "--help")
    assert result.exit_code == 0
    assert "3  solver, rules and original functions do not agree" in result.stdout
    assert "explain" in run(main, "--help").stdout


# ------------------------------------------------------------------------------------------------------------ explain


def explained(*values: str) -> dict[str, Any]:
    result = run(explain_command, "cli_clean:CleanOp", "face", *values, "--format", "json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_an_explanation_says_what_every_implementation_said(ops: Path) -> None:
    result = run(explain_command, "cli_clean:CleanOp", "face", "n=100", "dtype=f32", "arch=80")
    assert result.exit_code == 0
    head, winner, *entries = result.stdout.splitlines()
    assert head.startswith("CleanOp.face: Call(n=100, dtype='f32'")
    assert winner == "winner: rest"
    assert "large: cannot run: supports sm_90, not sm_80" in entries[0]
    assert "rest (general): serves, and is chosen" in entries[1]
    assert "dtype f32 is not f16" in entries[2]
    assert "n 100 is not below 64" in entries[2]


def test_an_explanation_as_json(ops: Path) -> None:
    data = explained("n=100", "arch=90")
    assert list(data) == [
        "op",
        "interface",
        "call",
        "winner",
        "entries",
        "fell_to_general",
        "near_misses",
        "nearest",
        "declared",
    ]
    assert data["winner"] == "large"
    assert [entry["status"] for entry in data["entries"]] == ["chosen", "loses", "refuses"]
    assert data["entries"][1]["loses_to"] == "large"


def test_a_call_that_states_an_arch_is_on_a_cuda_device_of_that_arch(ops: Path) -> None:
    call = explained("arch=90")["call"]
    assert (call["device"], call["arch"], call["sm_count"]) == ("cuda", 90, 132)
    assert explained("arch=90", "sm_count=7")["call"]["sm_count"] == 7
    assert explained("arch=75")["call"]["arch"] == 75


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("dtype=f32", "dtype", "f32"),
        ("dtype='f32'", "dtype", "f32"),
        ("scale=2", "scale", 2.0),
        ("scale=-inf", "scale", "-inf"),
        ("name=plain", "name", "plain"),
        ("name='quoted text'", "name", "quoted text"),
        ("name=7", "name", "7"),
        ("shape=(4, 8)", "shape", [4, 8]),
        ("shape=[4]", "shape", [4]),
        ("limit=None", "limit", None),
        ("limit=12", "limit", 12),
        ("n = 3", "n", 3),
        ("n=0x10", "n", 16),
    ],
)
def test_values_are_read_as_their_field_has_them(ops: Path, text: str, field: str, value: Any) -> None:
    assert explained("arch=90", text)["call"][field] == value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cli_clean:CleanOp", "face", "m=3"], "Call has no field m; the fields are\n  n: int in 0..1099511627776"),
        (["cli_clean:CleanOp", "face", "n"], "'n' is not field=value"),
        (["cli_clean:CleanOp", "face", "n=1", "n=2"], "n is stated twice"),
        (["cli_clean:CleanOp", "face", "n=x"], "n=x cannot be read"),
        (["cli_clean:CleanOp", "face", "n=True"], "n=True cannot be read"),
        (["cli_clean:CleanOp", "face", "n=1.5"], "n=1.5 cannot be read"),
        (["cli_clean:CleanOp", "face", "n.part=1"], "n has no parts"),
        (["cli_clean:CleanOp", "face", "dtype=f64"], "is outside the domain of dtype, which is one of 'f16', 'f32'"),
        (["cli_clean:CleanOp", "face", "scale=much"], "scale=much cannot be read: write a number"),
        (["cli_clean:CleanOp", "face", "shape=4"], "shape=4 cannot be read: write a tuple"),
        (["cli_clean:CleanOp", "face", "n=-1"], "is not a valid Call: n is negative"),
        (["cli_clean:CleanOp", "other"], "CleanOp has no interface 'other': it has face"),
        (["cli_clean:Nothing", "face"], "is no op class"),
        (["Nothing", "face", "--ops-module", "cli_clean"], "cli_clean:Nothing is no op class"),
    ],
)
def test_what_cannot_be_explained_is_said(ops: Path, arguments: list[str], words: str) -> None:
    result = run(explain_command, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_a_bare_op_name_is_looked_up_in_the_ops_module(ops: Path) -> None:
    result = run(explain_command, "CleanOp", "face", "arch=90", "--ops-module", "cli_clean")
    assert result.exit_code == 0
    assert "winner: small" in result.stdout


def test_parts_of_a_nested_spec_are_stated_by_name(op_module: Callable[..., Path]) -> None:
    op_module(
        cli_nested="""
        from dataclasses import dataclass, field
        import enum
        class Mode(enum.Enum):
            FAST = 1
            SAFE = 2
        @dataclass(frozen=True)
        class Tile:
            rows: int = 1
            mode: Mode = Mode.FAST
        @dataclass(frozen=True)
        class Call:
            n: int
            tile: Tile = field(default_factory=Tile)
        class Face:
            request = Call
        class Only(Face):
            @classmethod
            def refusal(cls, call):
                return None if call.tile.rows > 3 and call.tile.mode is Mode.SAFE else "no"
        class NestedOp:
            kernel_types = {"only": Only}
            interfaces = {"face": Face}
        """
    )
    asked = ("cli_nested:NestedOp", "face", "n=1", "tile.rows=4", "tile.mode=SAFE")
    assert "winner: only" in run(explain_command, *asked).stdout
    for arguments, words in [
        (("n=1", "tile.height=4"), "Tile has no field height: it has rows, mode"),
        (("tile.rows=4",), "Call cannot be built from what is stated"),
        (("n=1", "tile=3", "tile.rows=4"), "stated as a whole"),
        (("n=1", "tile=3"), "cannot be read"),
    ]:
        result = run(explain_command, "cli_nested:NestedOp", "face", *arguments)
        assert result.exit_code == 2
        assert words in result.stderr


def test_an_op_that_resolves_calls_does_so(op_module: Callable[..., Path]) -> None:
    op_module(
        cli_resolving=SPEC
        + """
from dataclasses import replace
class ResolvingOp(CleanOp):
    @staticmethod
    def resolve(call):
        if call.arch is None:
            raise TypeError("state a device or an arch")
        return replace(call, device="cuda", sm_count=1)
"""
    )
    result = run(explain_command, "cli_resolving:ResolvingOp", "face", "arch=90", "--format", "json")
    assert json.loads(result.stdout)["call"]["sm_count"] == 1
    result = run(explain_command, "cli_resolving:ResolvingOp", "face")
    assert result.exit_code == 2
    assert "state a device or an arch" in result.stderr


def test_dtypes_and_devices_are_read_as_torch_writes_them(op_module: Callable[..., Path]) -> None:
    torch = pytest.importorskip("torch")
    op_module(
        cli_torch="""
        import torch
        from dataclasses import dataclass
        from typing import Annotated, Optional
        from tileops_rules import OneOf
        @dataclass(frozen=True)
        class Call:
            dtype: Annotated[torch.dtype, OneOf(torch.float16, torch.bfloat16)] = torch.float16
            device: Optional[torch.device] = None
            arch: Optional[int] = None
        class Face:
            request = Call
        class Only(Face):
            devices = frozenset({"cpu", "cuda"})
        class TorchOp:
            kernel_types = {"only": Only}
            interfaces = {"face": Face}
        """
    )

    def call(*values: str) -> Any:
        result = run(explain_command, "cli_torch:TorchOp", "face", *values, "--format", "json")
        return json.loads(result.stdout)["call"] if result.exit_code == 0 else result.stderr

    assert call("dtype=bfloat16", "device=cpu")["dtype"] == str(torch.bfloat16)
    assert call("dtype=torch.bfloat16", "device=cuda:1", "arch=90")["device"] == "cuda:1"
    assert call("device='cpu'")["device"] == "cpu"
    assert "outside the domain of dtype" in call("dtype=float64", "device=cpu")
    assert "device=toaster is no device" in call("device=toaster")
