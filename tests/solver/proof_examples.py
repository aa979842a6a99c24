"""Rule sets whose answers are put on file, for the tests of that."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tileops_rules import Candidate, Range, Selector
from tileops_rules.expr import Expr, negation
from tileops_solver.engine import Outcome
from tileops_solver.proofs.store import ProofFile
from tileops_solver.subject import Subject


@dataclass(frozen=True)
class Call:
    a: Annotated[int, Range(-5, 60)] = 2
    b: int = 0
    kind: Literal["x", "y", "z"] = "y"
    ratio: float = 0.5
    name: str = "plain"
    shape: tuple[int, ...] = ()
    scale: float | None = None
    arch: int | None = None
    device: str = "cuda"


Atom = tuple[str, str, Any]
ATOMS: dict[str, tuple[tuple[str, ...], list[Any]]] = {
    "a": (("lt", "le", "gt", "ge", "eq", "ne"), [-3, 0, 1, 2, 7, 16, 59]),
    "b": (("lt", "ge", "eq", "ne"), [0, 1, 64, 1000]),
    "kind": (("eq", "ne"), ["x", "y", "z"]),
    "ratio": (("lt", "gt", "eq"), [0.0, 0.5, 1.0, math.inf]),
    "name": (("eq", "ne"), ["plain", "other"]),
    "arch": (("eq", "ne"), [80, 90, None]),
}


def rule_of(clauses: list[list[Atom]], modulus: int) -> Callable[[Any], str | None]:
    """A refusal that serves where in every clause some atom holds, and ``a`` is no multiple of *modulus*."""

    def refusal(call: Any) -> str | None:
        for clause in clauses:
            if not any(getattr(operator, comparison)(getattr(call, field), k) for field, comparison, k in clause):
                return "no"
        return "multiple" if modulus and (call.a + call.b) % modulus == 0 else None

    return refusal


def random_selector(draw: random.Random) -> Selector:
    def atom() -> Atom:
        field = draw.choice(list(ATOMS))
        return field, draw.choice(ATOMS[field][0]), draw.choice(ATOMS[field][1])

    candidates = [
        Candidate(
            f"impl_{i}",
            rule_of(
                [[atom() for _ in range(draw.randint(1, 2))] for _ in range(draw.randint(0, 3))], draw.choice([0, 2, 3])
            ),
            supported_archs=draw.choice([None, [80], [90], [80, 90]]),
            preferred_over=["impl_1"] if i == 0 and draw.random() < 0.3 else [],
            general=i == 3,
        )
        for i in range(4)
    ]
    return Selector(Call, candidates, interface="face")


def questions(subject: Subject) -> Iterable[tuple[list[Expr], tuple[str, ...]]]:
    every = list(subject.lifted)
    for first in every:
        yield [subject.chosen(first)], (first,)
        for second in every:
            if first < second:
                yield [subject.lifted[first], subject.lifted[second]], (first, second)
    yield [negation(subject.served)], tuple(every)


def answers(selector: Selector, file: ProofFile | None) -> tuple[list[tuple[Outcome, Any]], Subject]:
    subject = Subject(selector, proofs=file)
    found = [subject.find(parts, confirmed) for parts, confirmed in questions(subject)]
    return [(each.outcome, each.call) for each in found], subject


def written(tmp_path: Path, fill: Callable[[ProofFile], Any], name: str = "Op") -> Path:
    """A file with the answers that *fill* asks for."""
    path = tmp_path / f"{name}.json"
    file = ProofFile(str(path), name, read=False, records=True)
    fill(file)
    file.write()
    return path


class Face:
    request = Call


def kind_of(candidate: Candidate) -> type:
    members = {
        "refusal": classmethod(lambda cls, call: candidate.refusal(call)),
        "general": candidate.general,
        "preferred_over": candidate.preferred_over,
        "supported_archs": candidate.supported_archs,
    }
    return type(candidate.key, (Face,), members)


def order_of(preferred: list[str], limit: int = 60, general: bool = False, remainder: int = 0) -> Selector:
    """Three implementations that intervals do not tell apart."""
    return Selector(
        Call,
        [
            Candidate(
                "one",
                lambda call: "no" if call.a % 6 != remainder or call.a > limit else None,
                preferred_over=preferred,
            ),
            Candidate("two", lambda call: "no" if call.a % 3 != 1 else None, general=general),
            Candidate("three", lambda call: "no" if call.a % 9 != 8 else None),
        ],
        interface="face",
    )


SHOP = """
from dataclasses import dataclass

LIMIT = 10


@dataclass(frozen=True)
class ShopCall:
    n: int = 0
    m: int = 0

    def invalid(self):
        return "odd" if self.n % 2 else None


class ShopInterface:
    request = ShopCall


class Small(ShopInterface):
    @classmethod
    def refusal(cls, call):
        return None if call.n % 6 == 0 and call.m < LIMIT else "no"


class Large(ShopInterface):
    @classmethod
    def refusal(cls, call):
        return None if call.n % 3 == 1 and call.m < LIMIT else "no"


class ShopOp:
    kernel_types = {"small": Small, "large": Large}
    interfaces = {"shop": ShopInterface}
"""
