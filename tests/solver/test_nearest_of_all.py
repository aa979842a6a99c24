"""The nearest served call against that of all calls of a small domain."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_solver import Verdict, nearest_served


@dataclass(frozen=True)
class Call:
    """A call spec whose every call can be tried, with a field of each kind that counts in its own way."""

    arch: Optional[int] = None
    n: Annotated[int, Range(-2, 5)] = 1
    limit: Optional[Annotated[int, Range(0, 2)]] = None
    pair: tuple[bool, Literal["a", "b"]] = (False, "a")
    level: Annotated[int, OneOf(4, 2, 8)] = 4
    sizes: tuple[Literal[1, 2], ...] = ()
    device: Optional[str] = None

    def invalid(self) -> str | None:
        if len(self.sizes) > 2:
            return "more than two sizes"
        return "never there" if self.n == 5 and self.level == 2 else None


ARCHS = (80, 86, 89, 90, 100, 120)


def every_call() -> list[Call]:
    places = [("cpu", None), *(("cuda", arch) for arch in ARCHS)]
    sizes = [tuple(row) for length in range(3) for row in itertools.product((1, 2), repeat=length)]
    pairs = list(itertools.product((False, True), "ab"))
    made = itertools.product(places, range(-2, 6), (None, 0, 1, 2), pairs, (4, 2, 8), sizes)
    calls = (Call(arch, n, limit, pair, level, row, device) for (device, arch), n, limit, pair, level, row in made)
    return [call for call in calls if call.invalid() is None]


EVERY = every_call()

_CONDITIONS = (
    "call.n < {n}",
    "call.n % 3 == {bit}",
    "call.n * call.level == {n}",
    "call.limit is None",
    "call.limit is not None and call.limit <= {bit}",
    "call.limit == {n}",
    "call.pair[0]",
    "call.pair[1] == 'b' and call.n > {bit}",
    "call.level == {level}",
    "call.level > call.n",
    "len(call.sizes) == {bit}",
    "len(call.sizes) > {bit} and call.sizes[0] == 2",
    "len(call.sizes) == 2 and call.sizes[1] == 1",
    "call.arch in (80, 90)",
    "call.arch is not None and call.arch > 89",
    "call.arch == 120",
)


def narrow_rule(draw: random.Random) -> Callable[[Any], Any]:
    """A refusal of several clauses, so that few calls are served."""
    lines = ["def refusal(call):"]
    for _ in range(draw.randint(1, 4)):
        text = draw.choice(_CONDITIONS).format(n=draw.randint(-2, 8), bit=draw.randint(0, 1), level=draw.choice((2, 4)))
        lines += [f"    if {'not ' if draw.random() < 0.5 else ''}({text}):", "        return 'no'"]
    names: dict[str, Any] = {"__name__": "narrow_rules"}
    exec("\n".join([*lines, "    return None"]), names)
    made: Callable[[Any], Any] = names["refusal"]
    return made


def narrow_selector(seed: int) -> Selector:
    draw = random.Random(seed)
    made = []
    for key in "ab"[: draw.randint(1, 2)]:
        archs = draw.choice((None, [80], [89, 90], [86, 100]))
        devices = draw.choice(({"cuda"}, {"cuda", "cpu"}))
        made.append(Candidate(key, narrow_rule(draw), supported_archs=archs, devices=devices))
    return Selector(Call, [*made, Candidate("host", lambda call: "never", devices={"cpu"})])


def serves(selector: Selector, call: Call) -> bool:
    return any(each.cannot_run(call) is None and each.refusal(call) is None for each in selector.candidates)


def apart(value: int, home: int) -> int:
    """1 above is nearer than 1 below, which is nearer than 2 above."""
    return 2 * abs(value - home) - (value > home)


def distance(call: Call, other: Call) -> tuple[int, list[int]]:
    """How many fields differ, and by how much, field by field: what the module says, written out."""
    changed = [(call.device, call.arch) != (other.device, other.arch), call.n != other.n]
    steps: list[int] = []
    if call.arch == other.arch:
        steps.append(0)
    elif other.arch is None:
        steps.append(10_000)
    else:  # from no arch, the first; else the nearest
        steps.append(1 + ARCHS.index(other.arch) if call.arch is None else apart(other.arch, call.arch))
    steps.append(apart(other.n, call.n))
    if call.limit is None or other.limit is None:
        changed.append(call.limit != other.limit)
        steps += [call.limit != other.limit, 0 if other.limit is None else other.limit]
    else:
        changed.append(call.limit != other.limit)
        steps += [0, apart(other.limit, call.limit)]
    for mine, yours in zip(call.pair, other.pair, strict=True):
        changed.append(mine != yours)
        steps.append(mine != yours)
    changed.append(call.level != other.level)
    steps.append(apart(other.level, call.level))
    changed.append(len(call.sizes) != len(other.sizes))
    steps.append(apart(len(other.sizes), len(call.sizes)))
    for at, size in enumerate(other.sizes):
        if at < len(call.sizes):
            changed.append(size != call.sizes[at])
            steps.append(apart(size, call.sizes[at]))
        else:
            steps.append(size)
    steps.append(call.device != other.device)
    return sum(changed), steps


def nearest_of_all(selector: Selector, call: Call) -> Call | None:
    served = [other for other in EVERY if serves(selector, other)]
    here = [other for other in served if (other.device, other.arch) == (call.device, call.arch)]
    return min(here or served, key=lambda other: distance(call, other), default=None)


def agrees(seed: int, calls: int) -> set[int | None]:
    selector = narrow_selector(seed)
    draw = random.Random(seed)
    changes: set[int | None] = set()
    if selector.not_lifted:  # more paths than are explored
        return changes
    for call in draw.sample(EVERY, calls):
        answer = nearest_served(selector, call)
        expected = nearest_of_all(selector, call)
        assert answer.call == expected, (call, answer, expected)
        assert answer.verdict is (Verdict.NONE if expected is None else Verdict.FOUND)
        changes.add(None if expected is None else distance(call, expected)[0])
    return changes


@pytest.mark.parametrize("block", range(4))
def test_the_nearest_call_is_that_of_all_calls(block: int) -> None:
    changes: set[int | None] = set()
    for seed in range(block * 15, block * 15 + 15):
        changes |= agrees(seed, calls=2)
    assert {0, 1, 2, 3} <= changes


@pytest.mark.nightly
def test_the_nearest_call_is_that_of_all_calls_of_2000_rule_sets() -> None:
    for seed in range(1_000, 3_000):
        agrees(seed, calls=3)
