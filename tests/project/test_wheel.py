from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TYPED = ["tileops/py.typed", "tileops_rules/py.typed", "tileops_solver/py.typed"]
GOOD = ["tileops/__init__.py", *TYPED, "tileops_proved-0.1.0.dist-info/licenses/LICENSE"]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheel_contents", ROOT / ".ci" / "wheel_contents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_right_contents_have_no_problem(check: ModuleType) -> None:
    assert check.wheel_problems(GOOD, {"tileops/__init__.py"}) == []


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ("rules/tileops_rules/__init__.py", "unexpected top-level name 'rules'"),
        ("solver/__init__.py", "unexpected top-level name 'solver'"),
        ("tests/test_it.py", "unexpected top-level name 'tests'"),
        ("tileops/tests/__init__.py", "a test in the wheel"),
        ("tileops/test_it.py", "a test in the wheel"),
        ("tileops/other.json", "neither a module nor py.typed nor a proof"),
        ("tileops/notes.md", "neither a module nor py.typed nor a proof"),
    ],
)
def test_what_does_not_belong_is_named(extra: str, problem: str, check: ModuleType) -> None:
    (found,) = check.wheel_problems([*GOOD, extra], set())
    assert problem in found
    assert extra in found


@pytest.mark.parametrize("missing", ["tileops/__init__.py", "tileops/proofs/CopyOp.json", *TYPED])
def test_what_is_missing_is_named(missing: str, check: ModuleType) -> None:
    names = [name for name in [*GOOD, "tileops/proofs/CopyOp.json"] if name != missing]
    (found,) = check.wheel_problems(names, {"tileops/__init__.py", "tileops/proofs/CopyOp.json"})
    assert f"missing from the wheel: {missing}" in found


def test_a_wheel_without_the_license_is_named(check: ModuleType) -> None:
    assert check.wheel_problems(GOOD[:-1], set()) == ["missing from the wheel: LICENSE"]


def test_the_wheel_of_this_tree_holds_the_three_packages_and_nothing_else(
    check: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("build") is None or shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("building the wheel needs git and the package build: pip install -e '.[dev]'")
    assert check.main() == 0, capsys.readouterr()
