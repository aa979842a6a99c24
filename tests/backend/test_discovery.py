"""Where plug-ins are looked for."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from tileops.backend import plugins


@pytest.mark.parametrize(
    ("where", "text", "found"),
    [
        ("a-1.0.dist-info", "[console_scripts]\nx = y:z\n\n[ tileops.backends ]\nb = c:d\n", True),
        ("a.egg-info", "[tileops.backends]\nb = c:d\n", True),
        ("a-1.0-py3.11.egg/EGG-INFO", "[tileops.backends]\nb = c:d\n", True),
        ("a-1.0.dist-info", "[tileops.others]\nb = c:d\n", False),
        ("a-1.0.dist-info", None, False),
        ("a", "[tileops.backends]\nb = c:d\n", False),
    ],
)
def test_the_list_of_entry_points_is_made_where_a_distribution_mentions_the_group(
    where: str, text: str | None, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / where).mkdir(parents=True)
    if text is not None:
        (tmp_path / where / "entry_points.txt").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if not hasattr(each, "find_distributions")])
    assert plugins._mentioned() is found
    listed = {point.name for point in importlib.metadata.entry_points(group="tileops.backends")}
    assert plugins._discover() == [] or found, listed


def test_distributions_from_elsewhere_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "archive.zip").write_bytes(b"")
    assert not plugins._mentioned()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "archive.zip")])
    assert plugins._mentioned(), "an archive may hold some"

    class Finder:
        find_distributions = None

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [Finder()])
    assert plugins._mentioned(), "so may another finder"
