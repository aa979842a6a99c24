from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tileops.lint import interface_names
from tileops.lint.interface_names import UnreadableSource, check, main, suggest

ROOT = Path(__file__).resolve().parents[2]


def names(*texts: str) -> list[tuple[str, str | None]]:
    found = check([(f"file{index}.py", text) for index, text in enumerate(texts)])
    return [(finding.name, finding.suggestion) for finding in found]


@pytest.mark.parametrize(
    "source",
    [
        "class LayerNormFwdInterface(KernelInterface): ...",
        "class BatchNormTrainFwdInterface(kernel_base.KernelInterface): ...",
        "class GQADenseFP8BwdInterface(KernelInterface, Generic[T]): ...",
        "class _PrivateFwdInterface(KernelInterface): ...",
        "class KernelInterface(ABC): ...",
        "class GQADecodeKernel(Kernel, GQADenseFwdInterface): ...",
        "class GQADecodeKernel(GQADenseFwdInterface, base.Kernel): ...",
        "class GQADecodeLongContextKernel(GQADecodeKernel): ...",
        "class Base(Kernel): ...\nclass Fast(Base, GQADenseFwdInterface): ...",
        "class ForwardingFwdInterface(KernelInterface): ...",
        "class Unrelated(Op): ...",
    ],
)
def test_a_right_name_and_what_is_no_interface_pass(source: str) -> None:
    assert names(source) == []


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("BatchNormFwdTrainInterface", "BatchNormTrainFwdInterface"),
        ("LayerNormForwardInterface", "LayerNormFwdInterface"),
        ("LayerNormBackward", "LayerNormBwdInterface"),
        ("LayerNormFwd", "LayerNormFwdInterface"),
        ("FwdLayerNormInterface", "LayerNormFwdInterface"),
        ("LayerNormInterface", None),
        ("LayerNormFwdBwdInterface", None),
        ("FwdInterface", None),
        ("layer_norm_interface", None),
    ],
)
def test_a_wrong_name_is_found_with_the_right_one_where_it_follows(name: str, suggestion: str | None) -> None:
    assert names(f"class {name}(KernelInterface): ...") == [(name, suggestion)]
    assert suggest(name) == suggestion


def test_a_name_without_direction_is_offered_both() -> None:
    (finding,) = check([("a.py", "\nclass LayerNormInterface(KernelInterface): ...")])
    assert str(finding).startswith("a.py:2: kernel interface LayerNormInterface is misnamed")
    assert "LayerNormFwdInterface or LayerNormBwdInterface" in finding.message


def test_an_interface_is_followed_through_classes_aliases_and_files() -> None:
    base = "class NormFwdBase(KernelInterface): ..."
    user = "from base import NormFwdBase as B\nclass Wrong(B): ...\ndef f():\n    class Inner(Wrong): ..."
    assert [name for name, _ in names(base, user)] == ["NormFwdBase", "Wrong", "Inner"]
    assert names("from k import KernelInterface as KI\nclass Wrong(KI): ...") == [("Wrong", None)]
    assert names("import k\nclass Wrong(k.KernelInterface[int]): ...") == [("Wrong", None)]


def test_an_implementation_that_forgot_kernel_is_told_so() -> None:
    (finding,) = check([("a.py", "class FastKernel(LayerNormFwdInterface): ...")])
    assert "inherit Kernel too" in finding.message


def test_what_is_no_python_says_where() -> None:
    with pytest.raises(UnreadableSource, match=r"a\.py:2: cannot be parsed") as caught:
        check([("a.py", "x = 1\nclass :")])
    assert (caught.value.path, caught.value.line) == ("a.py", 2)


def test_the_command_walks_folders_and_exits_1_on_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    bad = tmp_path / "deep" / "bad.py"
    bad.write_text("class A(KernelInterface): ...\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"{bad}:1: kernel interface A is misnamed")
    bad.write_text("class AFwdInterface(KernelInterface): ...\n")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"class :", b"\xff\xfe\x00", None])
def test_the_command_exits_2_where_a_file_cannot_be_read(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_the_file_runs_by_itself_as_pre_commit_runs_it(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("class BatchNormFwdTrainInterface(KernelInterface): ...\n")
    script = Path(interface_names.__file__)
    command = [sys.executable, "-I", "-S", str(script), str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "name it BatchNormTrainFwdInterface" in done.stdout
    assert script.stat().st_mode & 0o100, "pre-commit runs it as a script"


def test_this_tree_has_no_misnamed_interface(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(ROOT / "tileops")]) == 0, capsys.readouterr().out
