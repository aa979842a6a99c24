from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LIBRARY = {"tileops": ".", "tileops_rules": "rules", "tileops_solver": "solver"}
LONGER: dict[str, str] = {}
"""Files over 500 lines, each with the reason why it is one."""
FOLDERS = {"tileops", "rules", "solver", "tests", "notebooks", "benchmarks", "docs"}


def listed() -> list[str]:
    """Return the files that git tracks or would take."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def library() -> list[Path]:
    return [path for package, where in LIBRARY.items() for path in sorted((ROOT / where / package).rglob("*.py"))]


def test_the_folders_at_the_root_are_those_of_the_design() -> None:
    folders = {name.partition("/")[0] for name in listed() if "/" in name and not name.startswith(".")}
    assert folders <= FOLDERS
    assert {"tileops", "rules", "solver", "tests"} <= folders


def test_one_distribution_takes_its_three_packages_from_the_fixed_tree() -> None:
    assert PROJECT["project"]["name"] == "tileops-proved"
    find = PROJECT["tool"]["setuptools"]["packages"]["find"]
    assert find == {"where": [".", "rules", "solver"], "include": ["tileops*"]}
    for package, where in LIBRARY.items():
        assert (ROOT / where / package / "__init__.py").is_file()
        assert (ROOT / where / package / "py.typed").is_file()


def test_the_dependencies_are_the_six_and_all_are_pinned() -> None:
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    needed = [re.split(r"[<>=]", each)[0] for each in PROJECT["project"]["dependencies"]]
    assert sorted(needed) == ["click", "networkx", "rich", "tilelang", "torch", "z3-solver"]
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"dev", "notebooks"}
    for each in [*needed, *(re.split(r"[<>=]", name)[0] for extra in extras.values() for name in extra)]:
        assert each in pinned, f"{each} is not in constraints.txt"


def test_every_constraint_is_exact() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    for exact in ("torch==2.13.0", "tilelang==0.1.15", "z3-solver==4.15.4"):
        assert exact in lines


def test_pre_commit_runs_the_lint_here_and_offers_it_to_others() -> None:
    for name in (".pre-commit-config.yaml", ".pre-commit-hooks.yaml"):
        text = (ROOT / name).read_text()
        assert "id: interface-names-lint" in text
        entry = re.search(r"entry: (\S+)", text)
        assert entry is not None
        assert (ROOT / entry.group(1)).stat().st_mode & 0o100, f"{name} runs {entry.group(1)}"
    assert PROJECT["project"]["scripts"]["interface-names-lint"] == "tileops.lint.interface_names:main"


def test_the_library_neither_prints_nor_asserts() -> None:
    found = []
    for path in library():
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Assert) or (isinstance(called, ast.Name) and called.id == "print"):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    # Spelt in pieces, so that this file does not find itself.
    pattern = re.compile("/" + "(work|farm|root|home/[a-z]+)" + "/")
    found = []
    for name in listed():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}:{n}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    assert found == []


def test_no_python_file_is_longer_than_500_lines_without_a_reason() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in listed() if name.endswith(".py")}
    long = {name: lines for name, lines in lengths.items() if lines > 500}
    assert {name: lines for name, lines in long.items() if name not in LONGER} == {}
    assert set(LONGER) <= set(long), "a reason for a file that is not that long any more"


def test_no_module_bears_the_name_of_a_public_function_of_its_package() -> None:
    """Under lazy exports, ``from package import name`` must be the function and never the module."""
    clashes = []
    for path in library():
        if path.name != "__init__.py":
            continue
        modules = {each.stem for each in path.parent.glob("*.py")} | {
            each.parent.name for each in path.parent.glob("*/__init__.py")
        }
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
            ):
                exported = {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
                clashes += [f"{path.relative_to(ROOT)}: {name}" for name in exported & modules]
    assert clashes == []
