"""Helpers for the solver's tests: a domain that can be searched whole, and op modules written to disk."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Range
from tileops_rules.domain import Domain, domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr
from tileops_solver.codes import Codes, codes_of


@dataclass(frozen=True)
class Small:
    """A call spec whose every call can be tried."""

    a: Annotated[int, Range(-5, 6)] = 2
    b: Annotated[int, Range(-3, 4)] = 0
    c: Annotated[int, Range(0, 9)] = 1
    kind: Literal["x", "y", "z"] = "y"
    ratio: float = 0.5
    name: str = "plain"


@pytest.fixture(scope="session")
def small() -> Domain:
    return domain_of(Small)


def order_of(codes: Codes, code: int) -> tuple[bool, bool, int]:
    """The place of a code in the order of the witnesses: preferred, then 0, 1, 2, ..., then -1, -2, ..."""
    return code != codes.preferred, code < 0, abs(code)


@dataclass(frozen=True)
class Exhaustive:
    """Every assignment of the slots that a question reads, tried by Python."""

    codes: dict[Any, Codes]
    solutions: list[dict[Any, int]]

    @property
    def smallest(self) -> dict[Any, int] | None:
        def key(found: dict[Any, int]) -> list[tuple[bool, bool, int]]:
            return [order_of(self.codes[path], code) for path, code in found.items()]

        return min(self.solutions, key=key, default=None)


@pytest.fixture(scope="session")
def exhaustive() -> Callable[[Expr, Domain], Exhaustive]:
    def search(expr: Expr, domain: Domain) -> Exhaustive:
        codes = codes_of(expr, domain)
        found = []
        for choice in itertools.product(*(range(c.lo, c.hi + 1) for c in codes.values())):
            numbers = dict(zip(codes, choice, strict=True))
            try:
                holds = evaluate(expr, {path: codes[path].value(n) for path, n in numbers.items()})
            except ZeroDivisionError:
                holds = False
            if holds:
                found.append(numbers)
        return Exhaustive(codes, found)

    return search


@pytest.fixture
def op_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Write modules, by dotted name or as arguments, that can be imported; gives the folder they are in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written: list[str] = []

    def write(by_name: dict[str, str] | None = None, /, **files: str) -> Path:
        for name, source in {**(by_name or {}), **files}.items():
            parts = name.split(".")
            for depth in range(1, len(parts)):
                folder = tmp_path.joinpath(*parts[:depth])
                folder.mkdir(exist_ok=True)
                (folder / "__init__.py").touch()
            tmp_path.joinpath(*parts).with_suffix(".py").write_text(textwrap.dedent(source))
            written.append(parts[0])
        return tmp_path

    yield write
    for loaded in list(sys.modules):
        if loaded.split(".")[0] in written:
            del sys.modules[loaded]
