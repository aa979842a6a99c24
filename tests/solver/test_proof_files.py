"""The files of proofs: their format, what is made of broken ones, and the options of the audit."""

from __future__ import annotations

import copy
import importlib
import json
import random
import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tileops_rules import lift
from tileops_rules.domain import domain_of
from tileops_solver.audit_command import audit_command
from tileops_solver.checks.overlap import prove_pairs
from tileops_solver.proofs import keys, z3_version
from tileops_solver.proofs.replays import Replays
from tileops_solver.proofs.store import ProofFile, path_for

from tests.solver.proof_examples import SHOP, Call, answers, order_of, random_selector, written

Z3 = metadata.version("z3-solver")


BROKEN = {
    "no json": "{",
    "another shape": "[1, 2]",
    "foreign": '{"name": "package", "version": 3}',
    "newer": '{"format": 2, "op": "Op", "encoder": 1, "z3": "4", "answers": []}',
    "no list": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": {}}',
    "a line too short": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": [["a", "none", null]]}',
    "no answer": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": [["a", "undecided", null, "k"]]}',
    "found nothing": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": [["a", "found", null, "k"]]}',
    "nothing with values": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": [["a", "none", {}, "k"]]}',
    "an unhashable answer": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": [["a", [], null, "k"]]}',
    "twice": '{"format": 1, "op": "Op", "encoder": 1, "z3": "4", "answers": [["a", "none", null, "k"],'
    ' ["b", "none", null, "k"]]}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_none_of_ours_is_ignored_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Op.json"
    path.write_text(text)
    with pytest.warns(RuntimeWarning, match="Op.json") as caught:
        file = ProofFile(str(path), "Op")
    assert len(caught) == 1
    assert "--write-proofs" in str(caught[0].message)
    assert prove_pairs(order_of([]), proofs=file).pairs.disjoint == 3


def test_a_file_that_cannot_be_read_is_ignored_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "Folder.json").mkdir()
    (tmp_path / "Bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("Folder", "Bytes"):
        with pytest.warns(RuntimeWarning, match=f"{name}.json"):
            ProofFile(str(tmp_path / f"{name}.json"), name)


@pytest.mark.parametrize("changed", [{"encoder": 0}, {"z3": "4.0.0.0"}])
def test_a_file_of_another_version_is_left_alone_in_silence(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = written(tmp_path, lambda file: prove_pairs(order_of([]), proofs=file))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = ProofFile(str(path), "Op")
    assert file.other_version
    assert prove_pairs(order_of([]), proofs=file).pairs.disjoint == 3


def test_a_file_is_sorted_and_has_one_line_for_each_answer(tmp_path: Path) -> None:
    path = written(tmp_path, lambda file: answers(random_selector(random.Random(1)), file))
    lines = path.read_text().splitlines()
    assert lines[:6] == [
        "{",
        ' "format": 1,',
        ' "op": "Op",',
        f' "encoder": {keys.ENCODER},',
        f' "z3": "{Z3}",',
        ' "answers": [',
    ]
    assert lines[-2:] == [" ]", "}"]
    rows = [json.loads(line.rstrip(",")) for line in lines[6:-2]]
    assert rows == json.loads(path.read_text())["answers"]
    assert rows == sorted(rows, key=lambda row: (row[0], row[3]))
    assert len({row[3] for row in rows}) == len(rows) > 5
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_same_answers_make_the_same_file_in_any_order(tmp_path: Path) -> None:
    first = written(tmp_path, lambda file: [ask(file) for ask in asking(1)], "First").read_text()
    second = written(tmp_path, lambda file: [ask(file) for ask in reversed(asking(1))], "Second").read_text()
    assert first.replace('"First"', '"Second"') == second


def asking(seed: int) -> list[Callable[[ProofFile], Any]]:
    draw = random.Random(seed)
    selectors = [random_selector(draw) for _ in range(3)]
    return [lambda file, each=each: answers(each, file) for each in selectors]  # type: ignore[misc]


def test_stale_lines_disappear_and_an_empty_file_does_too(tmp_path: Path) -> None:
    path = written(tmp_path, lambda file: prove_pairs(order_of([]), proofs=file))
    before = {row[3] for row in json.loads(path.read_text())["answers"]}
    written(tmp_path, lambda file: prove_pairs(order_of([], limit=40), proofs=file))
    after = {row[3] for row in json.loads(path.read_text())["answers"]}
    assert len(before) == len(after) == 4
    assert len(before & after) == 1, "the pair that was not changed keeps its line"
    again = ProofFile(str(path), "Op", read=False, records=True)
    assert again.write()
    assert not path.exists()
    assert not again.write()


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    path = written(tmp_path, lambda file: prove_pairs(order_of([]), proofs=file))
    again = ProofFile(str(path), "Op", read=False, records=True)
    prove_pairs(order_of([]), proofs=again)
    before = path.stat()
    assert not again.write()
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_file_that_was_looked_up_is_never_written(tmp_path: Path) -> None:
    path = written(tmp_path, lambda file: prove_pairs(order_of([]), proofs=file))
    before = path.read_text()
    file = ProofFile(str(path), "Op", records=True)
    with pytest.raises(ValueError, match="opened to look answers up"):
        file.write()
    assert path.read_text() == before


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, lambda file: prove_pairs(order_of([]), proofs=file))
    before = path.read_text()
    file = ProofFile(str(path), "Op", read=False, records=True)
    prove_pairs(order_of([], limit=40), proofs=file)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        file.write()
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["Op.json"]


def test_a_file_stands_beside_the_top_level_package_or_module(op_module: Callable[..., Path]) -> None:
    folder = op_module({"shop_package.deep.ops": "", "shop_module": ""})
    importlib.import_module("shop_package.deep.ops")
    importlib.import_module("shop_module")
    assert path_for("shop_package.deep.ops", "Op") == str(folder / "shop_package" / "proofs" / "Op.json")
    assert path_for("shop_module", "Op") == str(folder / "proofs" / "Op.json")
    assert path_for("no_such_module.ops", "Op") is None
    assert path_for("builtins", "Op") is None
    assert path_for("shop_module", "../Op") is None


# ------------------------------------------------------------------------------------------------------------ replays


def test_a_replay_is_known_by_its_rule_its_calls_and_what_they_are_drawn_from(tmp_path: Path) -> None:
    def refusal(call: Any) -> str | None:
        return "no" if call.a > 3 else None

    rule = lift(refusal, Call)

    def fill(file: ProofFile) -> None:
        Replays(file, "face", Call).keep("rule", rule, 10, 1)

    known = Replays(ProofFile(str(written(tmp_path, fill)), "Op"), "face", Call).known
    wider = lift(refusal, Call, domain=domain_of(Call, frozenset({"cuda", "cpu", "mps"})))
    # The lifter is no part of the key: what it makes of a function is.
    otherwise = copy.copy(rule)
    otherwise.tree = lift(lambda call: "no" if call.a > 4 else None, Call).tree
    assert known(rule, 10, 1)
    assert known(lift(refusal, Call), 10, 1)
    assert not known(rule, 11, 1)
    assert not known(rule, 10, 2)
    assert not known(wider, 10, 1)
    assert not known(otherwise, 10, 1)
    assert not known(lift(lambda call: "no" if call.a > 3 else None, Call), 10, 1)


# ---------------------------------------------------------------------------------------------------- version of z3


def test_the_version_of_z3_is_that_of_its_distribution() -> None:
    assert z3_version.installed() == z3_version.installed("1.0") == z3_version.installed(Z3) == Z3


def test_the_first_z3_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "z3").mkdir()
    (tmp_path / "z3" / "__init__.py").touch()
    (tmp_path / "z3_solver-4.1.2.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert z3_version.installed(Z3) == z3_version.installed() == "4.1.2.0"


def test_no_z3_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(z3_version.util, "find_spec", lambda name: None)
    assert z3_version.installed(Z3) is None


def test_the_version_is_found_without_importing_z3(fresh_python: Callable[..., Any]) -> None:
    code = "import sys\nfrom tileops_solver.proofs.z3_version import installed\nprint(installed(), 'z3' in sys.modules)"
    assert fresh_python("-c", code).stdout == f"{Z3} False\n"


# -------------------------------------------------------------------------------------------------------- the command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(audit_command, list(arguments))


def test_a_frozen_audit_fails_until_the_proofs_are_written(op_module: Callable[..., Path]) -> None:
    folder = op_module({"frozen_shop.ops": SHOP})
    only = ("frozen_shop.ops", "--select", "overlap")
    path = folder / "frozen_shop" / "proofs" / "ShopOp.json"
    frozen = run(*only, "--frozen-proofs")
    assert frozen.exit_code == 1
    assert str(path) in frozen.stderr
    assert "not on file: 2, as 'shop order: no two of 2 serve one call'" in frozen.stderr
    assert "tileops audit --write-proofs --select overlap frozen_shop.ops" in frozen.stderr
    assert not path.exists(), "nothing is written but on request"
    assert run(*only).exit_code == 0
    assert not path.exists()
    assert run(*only, "--write-proofs").exit_code == 0
    assert path.exists()
    before = path.read_text()
    assert run(*only, "--frozen-proofs").exit_code == 0
    changed = SHOP.replace("call.n % 3 == 1", "call.n % 3 == 2")
    assert changed != SHOP
    del sys.modules["frozen_shop.ops"]
    op_module({"frozen_shop.ops": changed})
    again = run(*only, "--frozen-proofs")
    assert (again.exit_code, path.read_text()) == (1, before)


def test_a_frozen_audit_says_where_the_file_is_of_another_version(
    op_module: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    op_module({"version_shop.ops": SHOP})
    only = ("version_shop.ops", "--select", "overlap")
    run(*only, "--write-proofs")
    monkeypatch.setattr(z3_version, "installed", lambda likely="": "4.99.0.0")
    frozen = run(*only, "--frozen-proofs")
    assert frozen.exit_code == 1
    assert "another version of the encoder or of z3 than 4.99.0.0" in frozen.stderr


def test_a_folder_that_cannot_be_written_to_is_said(
    op_module: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    op_module({"closed_shop.ops": SHOP})

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError("no right to write here")

    monkeypatch.setattr("os.makedirs", fail)
    result = run("closed_shop.ops", "--select", "overlap", "--write-proofs")
    assert result.exit_code == 2
    assert "the proofs cannot be written: no right to write here" in result.stderr
    assert "Traceback" not in result.stderr


def test_writing_and_holding_exclude_each_other() -> None:
    result = run("any_module", "--write-proofs", "--frozen-proofs")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


def test_an_audit_with_everything_on_file_needs_no_z3(
    fresh_python: Callable[..., Any], op_module: Callable[..., Path]
) -> None:
    folder = op_module({"whole_shop.ops": SHOP})
    command = ("-m", "tileops_solver", "audit", "whole_shop.ops")
    first = fresh_python(*command, "--write-proofs", cwd=folder)
    code = (
        "import sys\nfrom tileops_solver import audit\nimport whole_shop.ops\n"
        "report = audit(whole_shop.ops)\n"
        "answered = report.totals.answered\n"
        "print('z3' in sys.modules, answered.solver, answered.on_file >= 3, report.totals.findings)"
    )
    done = fresh_python("-c", code, cwd=folder)
    assert first.returncode == 1, first.stderr
    assert done.stdout == "False 0 True 1\n", "one gap, with the nearest served call: " + done.stdout + done.stderr
