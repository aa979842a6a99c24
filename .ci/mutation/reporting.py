"""What the results say: one line for the terminal, one page for the documentation."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sampling import interval

NO_ANSWER_CHANGES = {"equivalent", "speed"}

__all__ = ["Found", "Reasons", "page", "read", "summary"]

KINDS = {
    "equivalent": "No test can: the program means the same",
    "drawn": "Only which calls are drawn changes, not what is said of them",
    "text": "Only the wording of a text, or its layout, changes",
    "speed": "Only time or memory changes",
    "guard": "A second guard behind one that already holds",
    "environment": "Needs a machine, a version or a race that the tests do not have",
    "open": "A test is missing",
}


@dataclass
class Found:
    """The results of one run, whole or in shards.

    Attributes:
        header: Of the run.
        results: One for each mutant that was asked about.
    """

    header: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)

    def of(self, outcome: str) -> list[dict[str, Any]]:
        """Those that ended so."""
        return [each for each in self.results if each["outcome"] == outcome]

    def strata(self) -> dict[str, tuple[int, int, int]]:
        """By module: mutants it has, those asked about, those killed. What compiles the same is no mutant."""
        asked = Counter(each["module"] for each in self.results if each["outcome"] != "same")
        same = Counter(each["module"] for each in self.results if each["outcome"] == "same")
        killed = Counter(each["module"] for each in self.of("killed"))
        return {m: (has - same[m], asked[m], killed[m]) for m, has in self.header["mutants"].items()}


@dataclass
class Reasons:
    """Why mutants survive: by the name of a mutant, or the start of several names, which ends in ``*``."""

    by_name: dict[str, tuple[str, str]]

    @classmethod
    def read(cls, path: Path) -> Reasons:
        """Read them from a file."""
        told = tomllib.loads(path.read_text()).get("reason", []) if path.exists() else []
        unknown = {each["kind"] for each in told} - KINDS.keys()
        if unknown:
            raise ValueError(f"{path} has kinds {sorted(unknown)}; there are {', '.join(KINDS)}")
        return cls({name: (each["kind"], each["why"]) for each in told for name in each["mutants"]})

    def of(self, key: str) -> tuple[str, str] | None:
        """Kind and reason, or None."""
        if key in self.by_name:
            return self.by_name[key]
        starts = [name for name in self.by_name if name.endswith("*") and key.startswith(name[:-1])]
        return self.by_name[max(starts, key=len)] if starts else None


def read(files: Iterable[Path]) -> Found:
    """Read the files of one run; a mutant that is in several is counted once."""
    found, by_key = Found(), {}
    for path in files:
        first, *rest = map(json.loads, path.read_text().splitlines())
        if not found.header:
            found.header = first
        elif found.header["state"] != first["state"]:
            raise ValueError(f"{path} is of other sources, tests or Python than the files before it")
        by_key.update({each["key"]: each for each in rest})
    found.results = sorted(by_key.values(), key=lambda each: (each["module"], each["line"], each["key"]))
    return found


def summary(found: Found) -> str:
    """One line."""
    killed, survived = len(found.of("killed")), len(found.of("survived"))
    share, low, high = interval(list(found.strata().values()))
    seconds = [each["seconds"] for each in found.results if each["seconds"]]
    mean = sum(seconds) / len(seconds) if seconds else 0.0
    return (
        f"{killed} of {killed + survived} mutants killed, {share:.1%} of the whole "
        f"(95 %: {low:.1%} to {high:.1%}); {mean:.1f} s a mutant"
    )


def page(found: Found, reasons: Reasons, note: str = "") -> tuple[str, list[str]]:
    """The page, with *note* among what is told of the run, and the survivors that have no reason."""
    header = found.header
    same = [each for each in found.of("survived") if (reasons.of(each["key"]) or ("",))[0] in NO_ANSWER_CHANGES]
    strata = found.strata()
    whole, asked, killed = (sum(column) for column in zip(*strata.values(), strict=True))
    share, low, high = interval(list(strata.values()))
    seconds = sorted(each["seconds"] for each in found.results if each["seconds"])
    lines = [
        "# Mutation testing of `rules` and `solver`",
        "",
        "<!-- Written by `python .ci/mutation report`; the reasons are in `.ci/mutation/reasons.toml`. -->",
        "",
        "A small fault is put into one module, and the tests of `tests/rules` and `tests/solver` that run the changed",
        "line are asked. A fault that none of them notices is a survivor. `python .ci/mutation run --help` says how.",
        "",
        f"**{killed} of {asked} mutants killed: {share:.1%}**"
        + (f" of the whole (95 % interval {low:.1%} to {high:.1%})." if asked < whole else "."),
        f"Of the {asked - killed} survivors {len(same)} change no answer, for the reasons below; without them "
        f"{killed / max(1, asked - len(same)):.1%} are killed.",
        "",
        *_told(header, asked, whole, seconds),
        *([f"- {note}"] if note else []),
        "",
        "## By module",
        "",
        "| module | mutants | asked | killed | survived |",
        "|---|--:|--:|--:|--:|",
        *(f"| `{m}` | {has} | {n} | {k} | {n - k} |" for m, (has, n, k) in strata.items() if n),
        f"| all | {whole} | {asked} | {killed} | {asked - killed} |",
        "",
        "## By fault",
        "",
        "| fault | asked | killed |",
        "|---|--:|--:|",
        *_by_operator(found),
        "",
        "## Survivors",
        "",
    ]
    missing = []
    grouped: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for each in found.of("survived"):
        kind, why = reasons.of(each["key"]) or ("open", "Not looked at yet.")
        if reasons.of(each["key"]) is None:
            missing.append(each["key"])
        grouped.setdefault(kind, {}).setdefault(why, []).append(each)
    for kind, title in KINDS.items():
        if kind not in grouped:
            continue
        count = sum(map(len, grouped[kind].values()))
        lines += [f"### {title} ({count})", ""]
        for why, members in grouped[kind].items():
            lines += [f"- {why}", *(f"  - `{_name(each)}`" for each in members)]
        lines.append("")
    return "\n".join(lines).rstrip(), missing


def _told(header: dict[str, Any], asked: int, whole: int, seconds: Sequence[float]) -> list[str]:
    size = header["sample"]
    which = (
        f"Asked: a sample of {asked} of {whole} mutants, seed {header['seed']}, of each module in proportion to its "
        "mutants and at least one."
        if size is not None or asked < whole
        else f"Asked: all {whole} mutants."
    )
    middle = seconds[len(seconds) // 2] if seconds else 0.0
    left_out = Counter(why.split(":")[0].split(" (")[0] for why in header["left_out"].values())
    told = "; ".join(f"{count} because it {why}" for why, count in left_out.items()) or "none"
    return [
        f"- {which}",
        f"- By {header['tests']} tests on Python {header['python']}, hypothesis without chance. Not asked: {told}.",
        f"- One mutant is given at most {header['most_s']:.0f} s of tests, the fastest first; the median took "
        f"{middle:.1f} s, the mean {sum(seconds) / max(1, len(seconds)):.1f} s.",
        "- Left alone: texts and docstrings, type hints, `__all__`, `__slots__`, sizes of caches, `strict` of `zip`, "
        "and the limits of effort that `.ci/mutation/config.toml` names. "
        "Faults that compile to the same code are not counted. All others are, those that change nothing as well.",
    ]


def _by_operator(found: Found) -> list[str]:
    asked = Counter(each["operator"] for each in found.results if each["outcome"] != "same")
    killed = Counter(each["operator"] for each in found.of("killed"))
    return [f"| {operator} | {count} | {killed[operator]} |" for operator, count in sorted(asked.items())]


def _name(each: dict[str, Any]) -> str:
    text = str(each["key"]).replace("`", "'")
    return f"{text} (line {each['line']})"
