"""Files of measured launches that are not ours, and folders in which none can stand."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.tuning_support import (
    CARD,
    VERSIONS,
    Bench,
    eight_resident_are_faster,
    forget,
    kernel,
    played,
    resident_of,
    tuned,
)
from tileops.kernels import tuning


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    with played(monkeypatch, tmp_path / "tuning") as bench:
        yield bench


# Files that are not ours


def changed(**fields: Any) -> bytes:
    content = {"format": 1, "card": CARD, "versions": VERSIONS, "entries": {}}
    return json.dumps({**content, **fields}).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not JSON"),
        (b'{"format": 1, "card": "Pla', "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b"[" * 200_000, ""),
        (b"[]", "its format is None, not 1"),
        (changed(format=2), "its format is 2, not 1"),
        (changed(card="Another card"), "its card is 'Another card', not 'Played Card 4000'"),
        (changed(versions={**VERSIONS, "tilelang": "0"}), "its versions is {.*'tilelang': '0'"),
        (changed(versions={}), "its versions is {}, not {.*"),
        (changed(entries=[]), "its entries are no table"),
        (changed(entries={str(i): {"launch": {}} for i in range(1025)}), "its entries are no table of 1024 at most"),
        (changed(entries={"key": {"us": 1.0}}), "its entry 'key' has no launch"),
        (changed(entries={"key": []}), "its entry 'key' has no launch"),
        (changed() + b" " * 2**22, "it is longer than 4194304 bytes"),
    ],
)
def test_a_corrupt_or_foreign_file_is_ignored_with_one_warning_and_replaced(
    bench: Bench, content: bytes, reason: str
) -> None:
    bench.folder.mkdir()
    bench.file.write_bytes(content)
    bench.times = eight_resident_are_faster
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built = kernel()
        kernel(2048)
        assert resident_of(built) == 6
        assert bench.file.read_bytes() == content, "it stays until something is measured"
        built.request_tune()
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert re.match(f"the tuning file {re.escape(str(bench.file))} is ignored: {reason}", str(warning.message))
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resident_of(kernel()) == 8


def test_a_file_that_cannot_be_read_is_ignored_with_one_warning(bench: Bench) -> None:
    bench.file.mkdir(parents=True)
    bench.times = eight_resident_are_faster
    with pytest.warns(RuntimeWarning, match=re.escape(str(bench.file))) as caught:
        built = tuned()
    assert len(caught) == 1
    assert resident_of(built) == 8
    assert resident_of(kernel()) == 8, "in this process"
    assert os.listdir(bench.folder) == [bench.file.name], "nothing is left beside it"


@pytest.mark.parametrize("change", [{"resident": 7}, {"spare": 1}, {"ahead": None}, {"resident": "6"}])
def test_a_launch_that_the_table_does_not_hold_is_ignored(bench: Bench, change: dict[str, Any]) -> None:
    bench.times = eight_resident_are_faster
    kernel().request_tune()
    content = bench.content()
    (entry,) = content["entries"].values()
    entry["launch"].update(change)
    bench.file.write_text(json.dumps(content))
    forget()
    built = kernel()
    assert built.layout == built.table[0]
    built.request_tune()
    assert resident_of(built) == 8
    assert len(bench.searches) == 2


# Folders


def test_off_reads_and_writes_nothing_and_still_tunes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.times = eight_resident_are_faster
    kernel().request_tune()
    written = bench.file.read_bytes()
    monkeypatch.setenv("TILEOPS_TUNING", "off")
    forget()
    built = kernel()
    assert resident_of(built) == 6
    built.request_tune()
    assert resident_of(built) == 8
    assert resident_of(kernel()) == 6, "nothing is kept for others"
    assert bench.file.read_bytes() == written
    assert os.listdir(bench.folder.parent) == [bench.folder.name]


def refuse_writing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir()

    def replace(*paths: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", replace)


def put_a_file_there(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.write_text("")


def forbid_writing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    folder.mkdir(mode=0o500)


@pytest.mark.parametrize("prevent", [refuse_writing, put_a_file_there, forbid_writing])
def test_where_nothing_can_be_written_the_process_is_tuned_and_told_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, prevent: Callable[[pytest.MonkeyPatch, Path], None]
) -> None:
    prevent(monkeypatch, bench.folder)
    bench.times = eight_resident_are_faster
    with pytest.warns(RuntimeWarning, match=re.escape(str(bench.file))) as caught:
        built = [tuned(3072), tuned(2048)]
    assert len(caught) == 1
    assert [resident_of(each) for each in built] == [8, 8]
    assert resident_of(kernel()) == 8
    assert resident_of(kernel(2048)) == 8
    if bench.folder.is_dir():
        assert os.listdir(bench.folder) == []


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"TILEOPS_TUNING": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"TILEOPS_TUNING": "off", "XDG_CACHE_HOME": "/c"}, None),
        ({"TILEOPS_TUNING": "", "XDG_CACHE_HOME": "/c"}, "/c/tileops/tuning"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/tileops/tuning"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/tileops/tuning"),
        ({"HOME": "/h"}, "/h/.cache/tileops/tuning"),
    ],
)
def test_the_folder_is_the_one_named_else_the_user_s_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str | None
) -> None:
    for name in ("TILEOPS_TUNING", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tuning.folder_here() == (None if folder is None else Path(folder))
