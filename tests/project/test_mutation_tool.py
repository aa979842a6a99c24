"""The mutation tester, on a toy of which every fault is known: who is killed, who survives, and why."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / ".ci" / "mutation"

TOY = '''
"""Text that is left alone, 3 < 4."""

TABLE = {"one": 1, "two": 2}
SPARE = 7


def clamp(n: int, most: int = 10) -> int:
    if n > most:
        return most
    return n


def countdown(n: int) -> int:
    steps = 0
    while n > 0:
        n -= 1
        steps += 1
    return steps


def elsewhere() -> int:
    return 5


def unasked(flag: bool) -> str:
    return f"{flag and 3}" if flag else "no"
'''

TESTS = """
import subprocess
import sys

from toy import sums


def test_clamp():
    assert [sums.clamp(n) for n in (3, 10, 11)] == [3, 10, 10]


def test_table():
    assert sums.TABLE == {"one": 1, "two": 2}


def test_countdown():
    assert sums.countdown(3) == 3


def test_in_another_process():
    code = "from toy import sums; assert sums.elsewhere() == 5"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_that_measures_time():
    import time

    assert time.perf_counter() > 0
    assert sums.SPARE == 7


def test_that_fails():
    assert sums.countdown(0) == 1
"""

CONFIG = """
[packages]
toy = "library/toy"
[tests]
paths = ["tests"]
timed = ["perf_counter"]
[limits]
memory_gib = 4
grace_s = 0.3
"""

SURVIVORS = {
    "<module>: constant: 7 -> 8",  # only a test that measures time notices
    "<module>: constant: 7 -> 6",
    "clamp: boundary: n > most -> n >= most",  # equal: the same answer
    "unasked: branches: flag -> not flag",  # no test runs it
    "unasked: return: return f'{flag and 3}' if flag else 'no' -> return None",
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("coverage")
    root = tmp_path_factory.mktemp("toy")
    for name, text in {
        "library/toy/__init__.py": "",
        "library/toy/sums.py": TOY,
        "tests/test_sums.py": TESTS,
        "config.toml": CONFIG,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return root


@pytest.fixture(scope="module")
def mutate(fresh_python: Callable[..., Any], toy: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = fresh_python(
            str(TOOL), "--root", str(toy), "--config", str(toy / "config.toml"), *arguments, cwd=toy
        )
        return done

    return run


@pytest.fixture(scope="module")
def results(mutate: Callable[..., Any], toy: Path) -> list[dict[str, Any]]:
    done = mutate("run", "-j", "3", "--out", str(toy / "all.jsonl"))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (toy / "all.jsonl").read_text().splitlines()]


def short(key: str) -> str:
    return key.removeprefix("library/toy/sums.py::")


def test_every_fault_of_the_toy_ends_as_it_is_known_to(results: list[dict[str, Any]]) -> None:
    _, *found = results
    assert {short(each["key"]) for each in found if each["outcome"] == "survived"} == SURVIVORS
    how = {short(each["key"]): each["how"] for each in found}
    assert how["countdown: removed: n -= 1 -> (removed)"] == "time"
    assert how["unasked: branches: flag -> not flag"] == "no test"
    assert how["<module>: entry: 'one': 1 -> (dropped)"] == "test"
    by = {short(each["key"]): each["by"] for each in found}
    assert by["elsewhere: constant: 5 -> 6"].endswith("::test_in_another_process")
    assert by["clamp: constant: 10 -> 11"].endswith("::test_clamp")
    assert not any("3 < 4" in each["key"] or "flag and" in each["key"].split(" -> ")[-1] for each in found)


def test_tests_that_fail_or_measure_time_are_not_asked_and_are_said(results: list[dict[str, Any]]) -> None:
    left_out = {name.split("::")[1]: why for name, why in results[0]["left_out"].items()}
    assert left_out["test_that_measures_time"] == "measures time (perf_counter)"
    assert left_out["test_that_fails"].startswith("fails without any mutant")
    assert len(left_out) == 2


def test_shards_are_parts_of_the_whole_and_a_run_goes_on_where_it_ended(
    results: list[dict[str, Any]], mutate: Callable[..., Any], toy: Path
) -> None:
    part = toy / "part.jsonl"
    assert mutate("run", "-j", "3", "--shard", "2/5", "--out", str(part)).returncode == 0
    header, *found = part.read_text().splitlines()
    ended = {each["key"]: each["outcome"] for each in results[1:]}
    shares = {json.loads(line)["key"]: json.loads(line)["outcome"] for line in found}
    assert shares.items() <= ended.items()
    assert len(ended) // 5 <= len(shares) <= len(ended) // 5 + 1
    part.write_text("\n".join([header, *found[2:]]) + "\n")
    assert mutate("run", "--shard", "2/5", "--out", str(part)).returncode == 0
    assert sorted(json.loads(line)["key"] for line in part.read_text().splitlines()[1:]) == sorted(shares)


def test_a_survivor_without_a_reason_is_an_error(results: list[Any], mutate: Callable[..., Any], toy: Path) -> None:
    lacking = mutate("report", str(toy / "all.jsonl"), "--reasons", str(toy / "none.toml"))
    assert lacking.returncode == 1
    assert lacking.stderr.count("no reason:") == len(SURVIVORS)


def test_the_page_groups_survivors_by_their_reason(
    results: list[dict[str, Any]], mutate: Callable[..., Any], toy: Path
) -> None:
    (toy / "reasons.toml").write_text(
        """
        [[reason]]
        kind = "equivalent"
        why = "At the limit both give the limit."
        mutants = ["library/toy/sums.py::clamp: boundary: n > most -> n >= most"]

        [[reason]]
        kind = "open"
        why = "Nobody asks."
        mutants = ["library/toy/sums.py::unasked:*", "library/toy/sums.py::<module>:*"]
        """
    )
    done = mutate("report", str(toy / "all.jsonl"), "--reasons", str(toy / "reasons.toml"))
    assert done.returncode == 0, done.stderr
    killed = sum(each["outcome"] == "killed" for each in results[1:])
    assert f"**{killed} of {killed + len(SURVIVORS)} mutants killed" in done.stdout
    assert "### No test can: the program means the same (1)" in done.stdout
    assert "- At the limit both give the limit.\n  - `library/toy/sums.py::clamp: boundary" in done.stdout
    assert f"### A test is missing ({len(SURVIVORS) - 1})" in done.stdout


def test_a_sample_has_something_of_every_module_and_says_how_sure_it_is() -> None:
    code = """
    import sys
    sys.path.insert(0, sys.argv[1])
    from mutants import mutants_of
    from sampling import interval, sample, shard
    big = mutants_of("big.py", "x = [" + ", ".join(map(str, range(2, 502))) + "]")
    small = mutants_of("small.py", "y = 5 < z")
    assert len(big) == 1500 and len(small) == 4, (len(big), len(small))
    chosen = sample({"big.py": big, "small.py": small}, 150, 1)
    assert sum(each.module == "small.py" for each in chosen) == 1
    assert 145 <= sum(each.module == "big.py" for each in chosen) <= 155
    assert chosen == sample({"small.py": small, "big.py": big}, 150, 1)
    assert chosen != sample({"big.py": big, "small.py": small}, 150, 2)
    assert len({each.key for each in sample({"big.py": big, "small.py": small}, None, 1)}) == 1504
    parts = [shard(chosen, part, 4) for part in (1, 2, 3, 4)]
    assert sorted(each.key for part in parts for each in part) == sorted(each.key for each in chosen)
    share, low, high = interval([(1000, 100, 90), (10, 1, 0)])
    assert abs(share - 0.9 * 1000 / 1010) < 1e-9 and 0.8 < low < share < high < 0.96
    assert interval([(50, 50, 45)])[0] == 0.9 and interval([(50, 50, 45)])[2] - interval([(50, 50, 45)])[1] < 1e-9
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(TOOL)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
