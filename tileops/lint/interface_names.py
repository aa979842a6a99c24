#!/usr/bin/env python3
"""``interface-names-lint``: kernel interfaces are named ``{Name}{Fwd|Bwd}Interface``.

Words for a variant stand before the direction: ``BatchNormTrainFwdInterface``, never
``BatchNormFwdTrainInterface``. The check reads source text alone and needs only the standard library, so
that pre-commit can run this file as it is, without an environment.

A class is a kernel interface when one of its bases is named ``...Interface``, directly or through classes
in the files that are checked, and no base is a ``...Kernel``: what inherits both is an implementation.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SUFFIX = "Interface"
_DIRECTIONS = {"Fwd": "Fwd", "Forward": "Fwd", "Bwd": "Bwd", "Backward": "Bwd"}
_DIRECTION = re.compile(r"(Forward|Backward|Fwd|Bwd)(?![a-z])")
_RIGHT = re.compile(r"_*[A-Z][A-Za-z0-9]*(Fwd|Bwd)Interface")


@dataclass(frozen=True)
class Finding:
    """One class whose name breaks the rule.

    Attributes:
        path: The file, as it was given.
        line: Line of the ``class`` statement, from 1.
        name: The class's name.
        suggestion: The name to write instead, or ``None`` where the source does not say the direction.
        message: What is wrong and what to do, without the place.
    """

    path: str
    line: int
    name: str
    suggestion: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class UnreadableSource(ValueError):
    """A file that is no Python source; ``path`` and ``line`` say where."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: cannot be parsed: {reason}")
        self.path = path
        self.line = line


@dataclass(frozen=True)
class _Module:
    """What one file says about classes: their bases by name, import aliases resolved."""

    path: str
    classes: tuple[tuple[ast.ClassDef, tuple[str, ...]], ...]
    bases_of: dict[str, tuple[str, ...]] = field(default_factory=dict)


def check(sources: Iterable[tuple[str, str | bytes]]) -> list[Finding]:
    """Return the findings in *sources*, pairs of a path and its text, in the order given.

    A base that comes from another of the files is followed there by its name.

    Raises:
        UnreadableSource: A text is no Python source.
    """
    modules = [_read(path, text) for path, text in sources]
    everywhere: dict[str, tuple[str, ...]] = {}
    for module in modules:
        everywhere.update(module.bases_of)
    findings: list[Finding] = []
    for module in modules:
        known = {**everywhere, **module.bases_of}
        for node, bases in module.classes:
            ancestors = set(_ancestors(bases, known))
            if any(name.endswith("Kernel") for name in ancestors):
                continue
            if any(name.endswith(_SUFFIX) for name in ancestors):
                finding = _judge(module.path, node)
                if finding is not None:
                    findings.append(finding)
    return findings


def suggest(name: str) -> str | None:
    """Return the right name nearest to *name*, or ``None`` where it has no one direction or no other word.

    >>> suggest("BatchNormFwdTrainInterface")
    'BatchNormTrainFwdInterface'
    >>> suggest("LayerNormForward")
    'LayerNormFwdInterface'
    """
    stem = name.removesuffix(_SUFFIX)
    found = list(_DIRECTION.finditer(stem))
    if len(found) != 1:
        return None
    rest = stem[: found[0].start()] + stem[found[0].end() :]
    right = f"{rest}{_DIRECTIONS[found[0].group(1)]}{_SUFFIX}"
    return right if _RIGHT.fullmatch(right) else None


def _read(path: str, text: str | bytes) -> _Module:
    try:
        tree = ast.parse(text, filename=path)
    except (SyntaxError, ValueError) as error:
        raise UnreadableSource(path, getattr(error, "lineno", None) or 1, str(error)) from error
    aliases: dict[str, str] = {}
    classes: list[ast.ClassDef] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            aliases.update({each.asname: each.name for each in node.names if each.asname})
        elif isinstance(node, ast.ClassDef):
            classes.append(node)
    classes.sort(key=lambda node: node.lineno)
    read = tuple((node, tuple(_base_names(node, aliases))) for node in classes)
    return _Module(path, read, {node.name: bases for node, bases in read})


def _base_names(node: ast.ClassDef, aliases: dict[str, str]) -> Iterator[str]:
    for base in node.bases:
        while isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Attribute):
            yield base.attr
        elif isinstance(base, ast.Name):
            yield aliases.get(base.id, base.id)


def _ancestors(bases: Iterable[str], known: dict[str, tuple[str, ...]]) -> Iterator[str]:
    seen: set[str] = set()
    waiting = list(bases)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield name
            waiting.extend(known.get(name, ()))


def _judge(path: str, node: ast.ClassDef) -> Finding | None:
    name = node.name
    stem = name.removesuffix(_SUFFIX)
    directions = [match.group(1) for match in _DIRECTION.finditer(stem)]
    if _RIGHT.fullmatch(name) and len(directions) == 1:
        return None
    suggestion = suggest(name)
    if suggestion is not None:
        advice = f"name it {suggestion}: variant words, then Fwd or Bwd, then Interface"
    elif len(directions) > 1:
        advice = f"it names {len(directions)} directions ({', '.join(directions)}); keep one, before Interface"
    elif directions:
        right = f"LayerNorm{_DIRECTIONS[directions[0]]}{_SUFFIX}"
        advice = f"say what it computes before the direction, as in {right}"
    else:
        advice = f"say its direction: {stem}Fwd{_SUFFIX} or {stem}Bwd{_SUFFIX}"
    if name.endswith("Kernel"):
        advice += ", or inherit Kernel too if it is an implementation"
    return Finding(path, node.lineno, name, suggestion, f"kernel interface {name} is misnamed: {advice}")


def _files(targets: Sequence[str]) -> Iterator[Path]:
    for target in targets:
        path = Path(target)
        if path.is_dir():
            yield from sorted(path.rglob("*.py"))
        else:
            yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files and folders named in *arguments* and write one line a finding to standard output.

    Returns:
        0 without findings, 1 with, 2 where a file cannot be read (said on standard error).
    """
    parser = argparse.ArgumentParser(
        prog="interface-names-lint",
        description="Check that kernel interfaces are named {Name}{Fwd|Bwd}Interface.",
        epilog="Exit codes: 0 clean, 1 findings, 2 a file could not be read.",
    )
    parser.add_argument("targets", nargs="+", metavar="PATH", help="a Python file, or a folder to walk")
    targets: list[str] = parser.parse_args(arguments).targets
    try:
        findings = check([(str(path), path.read_bytes()) for path in _files(targets)])
    except (OSError, UnreadableSource) as error:
        sys.stderr.write(f"interface-names-lint: {error}\n")
        return 2
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
