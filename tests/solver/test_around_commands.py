"""What stands around the commands: options as they are written, proofs that are kept, streams, z3 and its memory."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tileops_solver import InconsistencyError, TargetError, snapshot_commands, streams, z3_backend
from tileops_solver.allowing import AllowFileError
from tileops_solver.audit_command import _ids_in, _kept, _names, _Options
from tileops_solver.calls import ValueProblem
from tileops_solver.checks.catalogue import UnknownCheck
from tileops_solver.cli import main
from tileops_solver.commanding import guarded, look_here_too
from tileops_solver.explain_command import explain_command
from tileops_solver.proofs.shelf import Shelf
from tileops_solver.proofs.store import NONE, REPLAYED
from tileops_solver.snapshot_commands import diff_command, snapshot_command

from tests.solver.proof_examples import SHOP


def run(command: click.Command, *arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


# ------------------------------------------------------------------------------------------------------------- audit


def options(**changed: Any) -> _Options:
    plain: dict[str, Any] = dict.fromkeys(_Options.__dataclass_fields__, ())
    flags = dict.fromkeys(("strict", "plugins", "write_proofs", "frozen_proofs"), False)
    files = dict.fromkeys(("allow_file", "beyond"))
    return _Options(**{**plain, **flags, **files, "style": "text", "targets": ("pkg.ops",), **changed})


def test_the_options_that_ask_are_written_as_they_were() -> None:
    assert options().that_ask == []
    every = options(
        strict=True,
        select=("gap", "dead"),
        ignore=("fits",),
        archs=(80, 90),
        independent_of=("n", "m"),
        changes_within=("k",),
        plugins=True,
    )
    assert every.that_ask == [
        *("--select", "gap,dead", "--ignore", "fits", "--independent-of", "n,m", "--changes-within", "k"),
        *("--arch", "80", "--arch", "90", "--plugins"),
    ]


def test_names_are_separated_by_commas_or_by_stating_the_option_again() -> None:
    context, parameter = click.Context(main), click.Option(["--select"])
    assert _names(context, parameter, (" gap , dead", "fits,", "")) == ("gap", "dead", "fits")


def shelf(folder: Path) -> Shelf:
    made = Shelf(read=False, records=True, folder=str(folder))
    for name, count in (("Some", 2), ("None", 0)):
        file = made.file_of(type(name, (), {}))
        assert file is not None
        for number in range(count):
            file.keep(f"line {number}", NONE, None, str(number))
    return made


def test_what_was_written_is_counted_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _kept(shelf(tmp_path), options(write_proofs=True)) is False
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"proofs: {tmp_path}/Some.json: answers: 2\nproofs: {tmp_path}/None.json: answers: 0\n"
    assert (tmp_path / "Some.json").exists()


def test_what_is_not_on_file_is_said_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = options(frozen_proofs=True, select=("gap",), targets=("pkg.ops", "a b"))
    assert _kept(shelf(tmp_path), asked) is True
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"proofs: {tmp_path}/Some.json: not on file: 2, as 'line 0'\n"
        "proofs: put them on file with: tileops audit --write-proofs --select gap pkg.ops 'a b'\n"
    )
    assert _kept(shelf(tmp_path), options()) is False
    replayed = Shelf(read=False, records=True, folder=str(tmp_path))
    file = replayed.file_of(type("Some", (), {}))
    assert file is not None
    file.keep("replay", REPLAYED, None, "1")
    assert _kept(replayed, asked) is False
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "Some.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "3", '{"interfaces": 3}', '{"interfaces": [1]}', '{"interfaces": [{}]}', b"\xff", None),
        *('{"interfaces": [{"findings": [1]}]}', '{"interfaces": [{"findings": [{}]}]}'),
    ],
    ids=str,
)
def test_what_is_no_report_is_said_so(tmp_path: Path, text: str | bytes | None) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TargetError, match=r"report.json is no report of `audit --format json`: "):
        _ids_in(path)


def test_the_ids_of_a_report_are_those_of_all_its_findings(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"interfaces": [{"findings": [{"id": "a"}, {"id": "b"}]}, {"findings": [{"id": "c"}]}]}')
    assert _ids_in(path) == {"a", "b", "c"}


# ---------------------------------------------------------------------------------------------------------- guarding


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TargetError("no target"), 2, "error: no target\n"),
        (ValueProblem("no value"), 2, "error: no value\n"),
        (AllowFileError(Path("a.toml"), "no table"), 2, "error: a.toml: no table\n"),
        (
            UnknownCheck("x", ["b", "a"]),
            2,
            "error: 'x' is neither a check nor a kind of finding: there are a, b\n",
        ),
        (ImportError("no z3"), 2, "error: no z3\n"),
        (
            InconsistencyError("they differ", facts=("n=3",)),
            3,
            f"inconsistency: {InconsistencyError('they differ', facts=('n=3',))}\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_every_way_to_fail_has_its_exit_code_and_words(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    def fail() -> int:
        raise error

    assert guarded(fail) == code
    assert capsys.readouterr() == ("", said)


def test_what_was_not_foreseen_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise LookupError("unforeseen")

    assert guarded(fail) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith("LookupError: unforeseen\nerror: could not finish: LookupError: unforeseen\n")
    assert guarded(lambda: 7) == 7


def test_the_present_folder_is_looked_in_last_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    look_here_too()
    look_here_too()
    assert sys.path == ["/somewhere", ""]


# ---------------------------------------------------------------------------------- explaining, snapshots, differences


def test_an_explanation_as_json_is_indented_by_two(op_module: Callable[..., Path]) -> None:
    op_module(around_shop=SHOP)
    text = run(explain_command, "around_shop:ShopOp", "shop", "n=6", "--format", "json").stdout
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
    assert text.startswith('{\n  "op": "ShopOp",\n  "interface": "shop",\n')


def test_a_check_shows_forty_lines_and_the_commands_to_go_on_with(
    op_module: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op_module(around_shop=SHOP)
    kept = tmp_path / "kept.json"
    stale = run(snapshot_command, "around_shop", "--check", str(kept))
    assert (stale.exit_code, stale.stdout) == (1, "")
    *shown, say, refresh = stale.stderr.splitlines()
    assert say == f"{kept} is missing: see what changed with `tileops diff {kept} --target around_shop`, then run"
    assert refresh == f"  tileops snapshot around_shop -o {kept}"
    assert shown[:3] == [f"--- {kept}", "+++ the rules now", f"@@ -0,0 +1,{len(text_of().splitlines())} @@"]
    kept.write_text("{}\n")
    assert f"{kept} is out of date: see" in run(snapshot_command, "around_shop", "--check", str(kept)).stderr
    monkeypatch.setattr(snapshot_commands, "_OPS", "around_shop")
    usual = run(snapshot_command, "--check", str(kept)).stderr.splitlines()
    assert usual[-2].endswith(f"see what changed with `tileops diff {kept}`, then run")
    assert usual[-1] == f"  tileops snapshot -o {kept}"
    long = "\n".join(map(str, range(100)))
    kept.write_text(long)
    assert len(run(snapshot_command, "--check", str(kept)).stderr.splitlines()) == 40 + 2


def text_of() -> str:
    return str(run(snapshot_command, "around_shop").stdout)


def test_differences_are_written_and_decide_the_exit_code(op_module: Callable[..., Path], tmp_path: Path) -> None:
    op_module(around_shop=SHOP)
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(text_of())
    new.write_text(text_of().replace("n % 6 == 0", "n % 12 == 0"))
    assert new.read_text() != old.read_text()
    assert run(diff_command, str(old), str(old)).exit_code == 0
    assert run(diff_command, str(old), "--target", "around_shop").exit_code == 0
    found = run(diff_command, str(old), str(new), "--format", "json")
    assert found.exit_code == 1
    assert found.stdout == json.dumps(json.loads(found.stdout), indent=2) + "\n"
    assert run(diff_command, str(old), str(new), "--target", "around_shop").exit_code == 2


def test_a_difference_without_json_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        same = True

        def as_json(self) -> dict[str, float]:
            return {"n": float("nan")}

    monkeypatch.setattr(snapshot_commands, "differences", lambda *given: Odd())
    monkeypatch.setattr(snapshot_commands, "_read", lambda file: None)
    found = run(diff_command, "old", "new", "--format", "json")
    assert (found.exit_code, found.stdout) == (2, "")


@pytest.mark.parametrize("text", ["[]", b"\xff", None])
def test_a_snapshot_that_cannot_be_read_is_named(tmp_path: Path, text: str | bytes | None) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = run(diff_command, str(path), str(path))
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"error: {path}: ")


# ----------------------------------------------------------------------------------------------------------- streams


def test_only_the_streams_of_the_process_have_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err, (tmp_path / "x").open("w") as other:
        monkeypatch.setattr(sys, "__stdout__", out)
        monkeypatch.setattr(sys, "__stderr__", err)
        assert streams._descriptor_of(out) == out.fileno()
        assert streams._descriptor_of(err) == err.fileno()
        assert streams._descriptor_of(other) is None
        assert streams._descriptor_of(io.StringIO()) is None
    assert streams._descriptor_of(out) is None, "it is closed"
    buffer = io.StringIO()
    monkeypatch.setattr(sys, "__stdout__", buffer)
    assert streams._descriptor_of(buffer) is None


class Flushed:
    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self.error = error

    def flush(self) -> None:
        self.times += 1
        if self.error is not None:
            raise self.error


def test_all_streams_are_flushed_whatever_becomes_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Flushed(OSError("full")), Flushed(ValueError("closed")), Flushed(), Flushed()]
    with monkeypatch.context() as patch:
        for name, stream in zip(("stdout", "stderr", "__stdout__", "__stderr__"), made, strict=True):
            patch.setattr(sys, name, stream)
        streams._flush()
        patch.setattr(sys, "__stdout__", None)
        streams._flush()
    assert [stream.times for stream in made] == [2, 2, 1, 2]


def test_what_is_printed_inside_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with streams.standard_output_kept():
        click.echo("inside")
    click.echo("outside")
    assert capsys.readouterr() == ("outside\n", "inside\n")


# ---------------------------------------------------------------------------------------------------------------- z3


class Library:
    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def mallopt(self, number: int, size: int) -> None:
        self.told.append((number, size))


def test_freed_memory_is_kept_unless_a_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(z3_backend.ctypes, "CDLL", lambda name: library)
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    z3_backend._keep_memory.__wrapped__()
    assert library.told == [(-3, 32 << 20), (-1, 64 << 20)]
    library.told.clear()
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            z3_backend._keep_memory.__wrapped__()
    assert library.told == []


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_another_c_library_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail(name: Any) -> Any:
        raise error("none")

    monkeypatch.setattr(z3_backend.ctypes, "CDLL", fail)
    z3_backend._keep_memory.__wrapped__()


def test_memory_is_kept_once_z3_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(z3_backend, "_keep_memory", lambda: called.append(1))
    assert z3_backend.load().__name__ == "z3"
    assert called == [1]
    assert z3_backend.version() == z3_backend.load().get_version_string()
    called.clear()
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(ImportError) as caught:
        z3_backend.load()
    assert str(caught.value).startswith("proofs need z3 (")
    assert str(caught.value).endswith("): pip install z3-solver. Selecting and explaining work without it")
    assert called == []
