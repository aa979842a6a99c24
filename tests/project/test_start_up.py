"""What ``import tileops`` and ``tileops --help`` may cost."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

import tileops
from tests.speed import holds_within
from tileops.cli import COMMANDS, Subcommand, main

HEAVY = ["torch", "z3", "tilelang", "networkx", "rich", "numpy"]
BUDGET_SECONDS = 0.3

STARTS = {
    "import tileops": "import tileops",
    "tileops --help": "from tileops.cli import main; main(['--help'], standalone_mode=False)",
    "python -m tileops --help": (
        "import runpy; sys.argv = ['tileops', '--help']\n"
        "try: runpy.run_module('tileops', run_name='__main__')\n"
        "except SystemExit: pass"
    ),
}
REPORT = f"\nimport json; sys.stderr.write(json.dumps([name for name in {HEAVY} if name in sys.modules]))"

FreshPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_a_start_loads_nothing_heavy(code: str, fresh_python: FreshPython) -> None:
    done = fresh_python("-c", f"import sys\n{code}{REPORT}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr) == []


@pytest.mark.parametrize("arguments", [("-c", "import tileops"), ("-m", "tileops", "--help")])
def test_a_start_takes_at_most_the_budget(arguments: tuple[str, ...], fresh_python: FreshPython) -> None:
    def seconds() -> float:
        start = time.perf_counter()
        assert fresh_python(*arguments).returncode == 0
        return time.perf_counter() - start

    holds_within(BUDGET_SECONDS, seconds)


def test_help_lists_every_subcommand_with_its_line() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert set(COMMANDS) == {"audit", "cases", "demo", "diff", "doctor", "explain", "plot", "regions", "snapshot"}
    for name, row in COMMANDS.items():
        assert f"{name} " in result.output
        assert row.summary in result.output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_subcommand_loads_and_has_help_of_its_own(name: str) -> None:
    pytest.importorskip("torch")
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"{name} [OPTIONS]" in result.output


def test_version_is_the_package_s_one() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"tileops, version {tileops.__version__}\n"


def test_an_unknown_subcommand_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["audti"])
    assert result.exit_code == 2
    assert "No such command 'audti'" in result.output


def test_a_subcommand_whose_dependency_is_missing_says_so_and_exits_2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMMANDS, "audit", Subcommand("no_such_package.cli:audit", "Gone"))
    result = CliRunner().invoke(main, ["audit"])
    assert result.exit_code == 2
    assert "needs no_such_package, which is not installed" in result.output
    assert "tileops doctor" in result.output


def test_a_row_that_names_no_command_says_what_to_correct() -> None:
    with pytest.raises(TypeError, match="not a click command; correct tileops"):
        Subcommand("json:dumps", "Wrong").load()
    assert isinstance(Subcommand("tileops.cli:main", "Right").load(), click.Command)
