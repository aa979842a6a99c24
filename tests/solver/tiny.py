"""A domain of which every call can be tried, and random rule sets over it."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tileops_rules import Candidate, Range, Selector


@dataclass(frozen=True)
class Tiny:
    """A call spec whose every call can be tried."""

    a: Annotated[int, Range(-1, 5)] = 1
    b: Annotated[int, Range(0, 5)] = 1
    kind: Literal["x", "y", "z"] = "x"
    ratio: float = 1.0
    name: str = ""
    limit: Annotated[int, Range(0, 2)] | None = None

    def invalid(self) -> str | None:
        return "a and b are both 5" if self.a == 5 and self.b == 5 else None


RATIOS = [0.5, 2.0]
PLACES = [
    *(near for x in RATIOS for near in (math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf))),
    1.0,
    math.inf,
    -math.inf,
    math.nan,
]
ATOMS = [
    *("call.a >= 2", "call.a < 4", "call.a != 3", "call.a == 5", "call.b <= 3", "call.b > 1", "call.b == 2"),
    *("call.a % 3 == 1", "call.b % 2 == 0", "call.a + call.b <= 6", "2 * call.a - call.b > 1", "call.a * call.b < 9"),
    *("call.kind in ('x', 'y')", "call.kind != 'z'", "call.kind == 'y'", "call.ratio < 2.0", "call.ratio == 0.5"),
    *("not call.ratio >= 2.0", "call.ratio > 0.5", "call.name == 'q'", "call.name != 'r'", "call.limit is None"),
    *("call.limit is not None and call.limit >= 2", "call.b != 0 and call.a // call.b == 1"),
]


def rule(text: str) -> Callable[[Any], str | None]:
    found: dict[str, Any] = {}
    exec(f"def refusal(call):\n    return None if {text} else 'no'", {}, found)
    made: Callable[[Any], str | None] = found["refusal"]
    return made


def random_selector(seed: int) -> Selector:
    """Two or three implementations in an order, each a conjunction of conditions of which one may be a choice."""
    draw = random.Random(seed)
    keys = ["first", "second", "third"][: draw.choice([2, 3])]
    candidates = []
    for place, key in enumerate(keys):
        parts = draw.sample(ATOMS, draw.randint(1, 3))
        if draw.random() < 0.5:
            parts.append(f"({draw.choice(ATOMS)} or {draw.choice(ATOMS)})")
        text = " and ".join(f"({part})" for part in parts)
        candidates.append(
            Candidate(key, rule(text), general=key == "third", preferred_over=keys[1:2] if place == 0 else ())
        )
    return Selector(Tiny, candidates)


def every_call() -> list[Tiny]:
    numbers = itertools.product(range(-1, 6), range(6), "xyz", PLACES, ["", "q", "r"], [None, 0, 1, 2])
    return [call for values in numbers if (call := Tiny(*values)).invalid() is None]


EVERY = every_call()
READ = [Selector(Tiny, []).domain.read(call) for call in EVERY]


def serves(selector: Selector, key: str, call: Any) -> bool:
    return selector.candidate(key).refusal(call) is None


def chosen(selector: Selector, call: Any) -> str | None:
    """The choice, written down once more: a winner beats those it is preferred over and the general one."""
    mine = [c for c in selector.candidates if serves(selector, c.key, call)]
    left = [c.key for c in mine if not any(c.key in w.preferred_over or (c.general and not w.general) for w in mine)]
    return left[0] if len(left) == 1 else None
