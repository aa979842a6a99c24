"""The notebooks run from a clean start, and show what they showed when they were committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PICTURES = {"coverage_regions.ipynb": 6, "change_of_rule.ipynb": 2}


def texts(outputs: list[Any]) -> list[str]:
    """What a cell printed, in one piece however it arrived, and what it gave, pictures left out."""
    printed = ["".join(o["text"]) for o in outputs if o["output_type"] == "stream" and o["name"] == "stdout"]
    given = [o["data"] for o in outputs if "data" in o and "image/png" not in o["data"]]
    return ["".join(printed), *("".join(data.get("text/plain", "")) for data in given)]


def pictures(cells: list[Any]) -> int:
    return sum("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", []))


def test_the_two_notebooks_are_here() -> None:
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == set(PICTURES)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_notebook_shows_what_is_committed(name: str) -> None:
    nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the notebooks extra is not installed")
    committed = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    for before, now in zip(committed["cells"], notebook.cells, strict=True):
        assert texts(now.get("outputs", [])) == texts(before.get("outputs", [])), "".join(before["source"])
    assert pictures(notebook.cells) == pictures(committed["cells"]) == PICTURES[name]


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_committed_notebook_names_no_machine(name: str) -> None:
    text = (NOTEBOOKS / name).read_text(encoding="utf-8")
    for folder in ("home", "root", "tmp", "work"):
        assert f'"/{folder}/' not in text
        assert f" /{folder}/" not in text
    assert "Traceback" not in text
