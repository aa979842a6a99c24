"""What importing the solver loads, and where its names live."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tileops_solver

ROOT = Path(tileops_solver.__file__).parent


def modules() -> Iterator[str]:
    for info in pkgutil.walk_packages([str(ROOT)], "tileops_solver."):
        if not info.name.endswith("__main__"):
            yield info.name


def test_importing_the_package_loads_neither_z3_nor_networkx(fresh_python: Callable[..., Any]) -> None:
    heavy = ("z3", "networkx", "click", "rich", "torch", "tileops")
    done = fresh_python("-c", f"import sys, tileops_solver; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", tileops_solver.__all__)
def test_every_public_name_is_there_under_its_own_name(name: str) -> None:
    found = getattr(tileops_solver, name)
    assert found.__name__ == name
    assert name in dir(tileops_solver)


def test_no_module_bears_the_name_of_a_public_name() -> None:
    for name in modules():
        importlib.import_module(name)
    for name in tileops_solver.__all__:
        assert not isinstance(getattr(tileops_solver, name), type(pytest)), name
    assert not {name.rpartition(".")[2] for name in modules()} & set(tileops_solver.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'prove_everything'"):
        tileops_solver.prove_everything  # noqa: B018 - the look-up is the test


def calls(tree: ast.AST, method: str) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        for node in ast.walk(tree)
    )


def test_z3_is_imported_in_one_module_and_asked_in_one_place() -> None:
    importing, asking = [], []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if any(name.split(".")[0] == "z3" for name in names):
            importing.append(path.name)
        if any(
            isinstance(node, ast.Attribute) and node.attr == "check" and ast.unparse(node.value) == "self.solver"
            for node in ast.walk(tree)
        ):
            asking.append(path.name)
    assert importing == ["z3_backend.py"]
    assert asking == ["engine.py"]


def test_no_file_is_over_five_hundred_lines() -> None:
    assert {p.name: n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 500} == {}
