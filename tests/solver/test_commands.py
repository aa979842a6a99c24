"""The commands that there are, what each of them takes, and what their results say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import tileops_solver
from click.testing import CliRunner
from tileops_rules import Candidate, Selector
from tileops_rules.expr import KINDS
from tileops_solver import codes, commanding, encode, engine, snapshot_commands, snapshot_data
from tileops_solver.answer import Answer, Verdict
from tileops_solver.cli import main
from tileops_solver.diffing.changes import Change
from tileops_solver.explaining import Explained
from tileops_solver.proofs.store import ANSWERS, ProofFile

# Of each command its arguments, its flags, and what its other options are where they are not stated.
TAKEN: dict[str, tuple[list[str], list[str], dict[str, Any]]] = {
    "explain": (
        ["op", "interface", "values"],
        ["plugins"],
        {"style": "text", "ops_module": "tileops.ops", "imported": ()},
    ),
    "regions": (["op", "interface"], ["plugins"], {"style": "text", "archs": (), "ops_module": "tileops.ops"}),
    "cases": (
        ["op", "interface"],
        ["plugins"],
        {"style": "text", "archs": (), "most": 2000, "ops_module": "tileops.ops"},
    ),
    "audit": (
        ["targets"],
        ["frozen_proofs", "plugins", "strict", "write_proofs"],
        {
            "style": "text",
            **dict.fromkeys(("select", "ignore", "archs", "independent_of", "changes_within"), ()),
            **dict.fromkeys(("allow_file", "beyond")),
        },
    ),
    "diff": (["old", "new"], [], {"style": "text", "targets": ()}),
    "snapshot": (["targets"], [], {"output": None, "check": None}),
}

# How many values each argument takes, any number being -1, and whether it has to be there.
ARGUMENTS = {
    "audit": {"targets": (-1, True)},
    "cases": {"op": (1, True), "interface": (1, True)},
    "diff": {"old": (1, True), "new": (1, False)},
    "explain": {"op": (1, True), "interface": (1, True), "values": (-1, False)},
    "plot": {"op": (1, True), "interface": (1, True), "values": (-1, False)},
    "regions": {"op": (1, True), "interface": (1, True)},
    "snapshot": {"targets": (-1, False)},
}


def test_every_command_is_there() -> None:
    assert set(main.commands) == {"audit", "cases", "diff", "explain", "plot", "regions", "snapshot"}
    for command in main.commands.values():
        assert command.help
        assert "\n\n\n" not in command.help


def options_of(name: str) -> dict[str, click.Option]:
    return {each.name or "": each for each in main.commands[name].params if isinstance(each, click.Option)}


@pytest.mark.parametrize("name", TAKEN)
def test_a_command_takes_what_is_written_of_it(name: str) -> None:
    arguments, flags, others = TAKEN[name]
    params = main.commands[name].params
    assert [each.name for each in params if isinstance(each, click.Argument)] == arguments
    found = options_of(name)
    assert sorted(option for option, each in found.items() if each.is_flag) == flags
    stated = main.commands[name].make_context(name, ["Op", "face"]).params
    assert {option: value for option, value in stated.items() if option not in (*arguments, *flags)} == others


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_arguments_of_a_command_are_these(name: str) -> None:
    params = [each for each in main.commands[name].params if isinstance(each, click.Argument)]
    assert {each.name: (each.nargs, each.required) for each in params} == ARGUMENTS[name]


def test_options_of_an_audit_may_be_repeated_and_lists_have_commas() -> None:
    stated = ["--select", "gap,dead", "--select", "fits", "--ignore", " gap ", "--arch", "80", "--arch", "90"]
    stated += ["--independent-of", "n", "--changes-within", "n,m", "--allow", "a.toml", "--beyond", "b.json"]
    found = main.commands["audit"].make_context("audit", ["one", "two", *stated, "--strict", "--plugins"]).params
    assert found == {
        "targets": ("one", "two"),
        "style": "text",
        "strict": True,
        "select": ("gap", "dead", "fits"),
        "ignore": ("gap",),
        "archs": (80, 90),
        "allow_file": Path("a.toml"),
        "beyond": Path("b.json"),
        "independent_of": ("n",),
        "changes_within": ("n", "m"),
        "plugins": True,
        "write_proofs": False,
        "frozen_proofs": False,
    }
    assert main.commands["diff"].make_context("diff", ["a", "--target", "x", "--target", "y"]).params["targets"] == (
        "x",
        "y",
    )
    assert main.commands["snapshot"].make_context("snapshot", ["-o", "x"]).params["output"] == "x"


def test_no_file_of_a_command_is_a_folder() -> None:
    paths = [each for command in main.commands.values() for each in command.params if isinstance(each.type, click.Path)]
    assert len(paths) >= 6
    assert [each.name for each in paths if each.type.dir_okay] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_given_by_a_letter_too(option: str) -> None:
    result = CliRunner().invoke(main, [option])
    assert (result.exit_code, result.output.startswith("Usage: ")) == (0, True)
    assert all(f"\n  {name} " in result.output for name in main.commands)


def test_exit_codes_and_limits_are_those_that_help_states() -> None:
    codes = [commanding.CLEAN, commanding.FOUND, commanding.COULD_NOT_RUN, commanding.INCONSISTENT]
    assert codes == [0, 1, 2, 3]
    assert commanding.INTERRUPTED == 130
    assert snapshot_commands._SHOWN == 40
    assert [engine.WIDEST, engine.MOST_GATES, engine.QUESTION_WORK] == [128, 131_072, 12_000_000]


def test_every_public_name_of_the_solver_is_there() -> None:
    assert {name: getattr(tileops_solver, name).__name__ for name in tileops_solver.__all__} == {
        name: name for name in tileops_solver._HOMES
    }


def test_every_kind_of_shape_node_and_slot_has_its_row() -> None:
    assert set(encode.ENCODE) == set(KINDS)
    assert set(codes._ROWS) == {"int", "finite", "float", "str"}
    assert len(snapshot_data._WRITE) == len(snapshot_data._READ) == 11


def test_a_plot_needs_two_axes_and_takes_a_range_for_each() -> None:
    found = options_of("plot")
    assert all(found[axis].required for axis in "xy")
    assert [found[each].nargs for each in ("x_range", "y_range")] == [2, 2]
    assert not any(found[each].required for each in ("x_range", "y_range", "output"))


@pytest.mark.parametrize("most", [0, -1])
def test_a_limit_of_cases_is_at_least_one(most: int) -> None:
    kind = options_of("cases")["most"].type
    assert kind.convert(1, None, None) == 1
    with pytest.raises(click.BadParameter):
        kind.convert(most, None, None)


@dataclass(frozen=True)
class Call:
    n: int = 1


def explained(nearest: Answer | None) -> Explained:
    selector = Selector(Call, [Candidate("one", lambda call: None if call.n > 5 else "small")])
    return Explained("Op", "face", Call(), selector.explain(Call()), nearest)


def test_an_explanation_ends_in_the_nearest_call_that_is_served() -> None:
    head = "Op.face: Call(n=1)\nwinner: none\n  one: refuses: small"
    assert str(explained(None)) == head
    assert str(explained(Answer(Verdict.FOUND, Call(6)))) == f"{head}\nnearest served call: Call(n=6)"
    none = explained(Answer(Verdict.NONE, reason="proved"))
    assert str(none) == f"{head}\nnearest served call: {Verdict.NONE.value} (proved)"
    assert none.as_json()["nearest"] is None
    assert explained(Answer(Verdict.FOUND, Call(6))).as_json()["nearest"] == {"n": 6}
    assert explained(None).as_json()["nearest"] is None
    assert {name: explained(None).as_json()[name] for name in ("op", "interface", "call", "winner")} == {
        "op": "Op",
        "interface": "face",
        "call": {"n": 1},
        "winner": None,
    }


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("newly dead", "a", None), "newly dead: a"),
        (Change("added", None, "b"), "added: b"),
        (Change("invalid", None, None), "invalid"),
        (Change("widened", "a", "b", "n <= 3", Call()), "widened: b\n    where n <= 3\n    as in Call(n=1)"),
    ],
)
def test_a_change_names_who_it_is_about(change: Change, text: str) -> None:
    assert str(change) == text


def test_of_one_answer_the_first_label_in_order_is_kept() -> None:
    file = ProofFile("nowhere.json", "Op", read=False, records=True)
    for label in ("m", "z", "a", "k"):
        file.keep(label, ANSWERS[0], None, "key")
    file.keep("b", ANSWERS[0], None, None)
    assert [(line[0], line[3]) for line in file.fresh.values()] == [("a", "key")]
    silent = ProofFile("nowhere.json", "Op", read=False)
    silent.keep("a", ANSWERS[0], None, "key")
    assert silent.fresh == {}
