"""What ``plot`` refuses, and that the commands about one op count in what plug-ins register where they are asked to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tileops_solver.cli import main

from tests.solver.proof_examples import SHOP

REGISTERED = """
class Registered(ShopInterface):
    @classmethod
    def refusal(cls, call):
        return None if call.n % 6 == 2 and call.m < LIMIT else "no"


class OpenOp(ShopOp):
    @classmethod
    def with_registered(cls):
        kernels = {**cls.kernel_types, "registered": Registered}
        return type("OpenOp", (cls,), {"kernel_types": kernels})
"""
AXES = ("--x", "n", "--y", "m")


@pytest.fixture
def shop(op_module: Callable[..., Path]) -> str:
    op_module(plugged_shop=SHOP + REGISTERED)
    return "plugged_shop:OpenOp"


@pytest.mark.parametrize("command", ["regions", "cases"])
def test_what_plug_ins_register_is_shown_where_it_is_asked_for(shop: str, command: str) -> None:
    shown = {flags: CliRunner().invoke(main, [command, shop, "shop", *flags]).output for flags in ((), ("--plugins",))}
    assert "registered" not in shown[()]
    assert "registered" in shown["--plugins",]


def test_a_picture_holds_what_plug_ins_register_where_it_is_asked_for(shop: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the notebooks extra")
    for flags, there in (((), False), (("--plugins",), True)):
        file = tmp_path / "picture.svg"
        ranges = ("--x-range", "0", "11", "--y-range", "0", "11")
        result = CliRunner().invoke(main, ["plot", shop, "shop", *AXES, *ranges, "-o", str(file), *flags])
        assert result.exit_code == 0, result.output
        assert ("<!-- registered -->" in file.read_text()) is there


def test_explain_imports_what_it_is_told_to_and_counts_in_what_that_registers(shop: str, op_module: Any) -> None:
    op_module(plugged_alone="import sys\nsys.modules['plugged_shop'].LOADED = True\n")
    call = ("explain", shop, "shop", "n=2", "m=0")
    assert "registered" not in CliRunner().invoke(main, call).output
    result = CliRunner().invoke(main, [*call, "--import", "plugged_alone"])
    assert (result.exit_code, "registered" in result.output) == (0, True), result.output
    assert sys.modules["plugged_shop"].LOADED  # type: ignore[attr-defined]
    result = CliRunner().invoke(main, [*call, "--import", "plugged_nowhere"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "plugged_nowhere cannot be imported" in result.stderr


@pytest.mark.parametrize(
    ("ops", "flags", "words"),
    [
        ("plugged_shop", (), "plugged_alone: no op class, and what is registered for the ops of others is not counted"),
        ("plugged_shop", ("--plugins",), None),
        ("plugged_closed", ("--plugins",), "plugged_alone: no op class, and nothing is registered for the ops that"),
    ],
)
def test_a_module_that_counts_for_nothing_fails_a_strict_audit(
    shop: str, op_module: Any, ops: str, flags: tuple[str, ...], words: str | None
) -> None:
    op_module(plugged_alone="VALUE = 1\n", plugged_closed=SHOP)
    audit = ("audit", "--select", "overlap", *flags)
    alone = CliRunner().invoke(main, [*audit, ops])
    both = CliRunner().invoke(main, [*audit, "plugged_alone", ops])
    strict = CliRunner().invoke(main, [*audit, "--strict", "plugged_alone", ops])
    assert both.exit_code == alone.exit_code
    if words is None:
        assert "plugged_alone" not in both.stderr + strict.stderr
        assert strict.exit_code == CliRunner().invoke(main, [*audit, "--strict", ops]).exit_code
    else:
        assert words in both.stderr
        assert words in strict.stderr
        assert strict.exit_code == 2


@pytest.mark.parametrize("text", ["n=4", "m=1"])
def test_an_axis_that_is_fixed_too_is_refused(shop: str, text: str) -> None:
    result = CliRunner().invoke(main, ["plot", shop, "shop", text, *AXES])
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {text} fixes an axis: leave it out, or name another field for the axis\n",
    )


@pytest.mark.parametrize("name", ["picture.unknown", "no/such/folder/picture.png"])
def test_a_file_that_cannot_be_written_is_named(shop: str, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the notebooks extra")
    file = tmp_path / name
    result = CliRunner().invoke(main, ["plot", shop, "shop", *AXES, "-o", str(file)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {file} cannot be written: ")
    assert "Traceback" not in result.stderr


def test_a_fixed_value_outside_the_domain_is_refused_with_the_domain(op_module: Callable[..., Path]) -> None:
    ranged = SHOP.replace("    m: int = 0\n", "    m: int = 0\n    side: Annotated[int, Range(0, 3)] = 0\n", 1)
    op_module(ranged_shop="from typing import Annotated\nfrom tileops_rules import Range\n" + ranged)
    result = CliRunner().invoke(main, ["plot", "ranged_shop:ShopOp", "shop", "side=7", *AXES])
    assert result.exit_code == 2
    assert "side" in result.stderr
    assert "0..3" in result.stderr
    assert "Traceback" not in result.stderr
