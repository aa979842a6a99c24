"""Random rule sets over a domain that can be searched whole, and what a search of all calls says of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Optional

from tileops_rules import Candidate, Range, Selector


@dataclass(frozen=True)
class Plain:
    """A call without a device."""

    a: Annotated[int, Range(0, 4)] = 1
    b: Annotated[int, Range(-1, 2)] = 0
    kind: Literal["x", "y", "z"] = "y"

    def invalid(self) -> str | None:
        return "too much" if self.a + self.b == 6 else None


@dataclass(frozen=True)
class Placed:
    """A call on a device."""

    a: Annotated[int, Range(0, 3)] = 1
    b: Annotated[int, Range(-1, 1)] = 0
    device: Optional[str] = None
    arch: Optional[int] = None

    def invalid(self) -> str | None:
        return "never there" if self.arch == 86 and self.a == 3 else None


_CONDITIONS = (
    "call.a < {n}",
    "call.a == {n}",
    "call.a % 2 == {bit}",
    "call.b >= {bit}",
    "call.b != {bit}",
    "call.a > call.b + {bit}",
    "call.a * call.b <= {n}",
)
_OF = {
    Plain: ("call.kind == 'x'", "call.kind in ('y', 'z')", "call.kind != 'z'"),
    Placed: ("call.arch in (80, 90)", "call.arch != 89", "call.arch is not None and call.arch >= 90"),
}
_THROWS = (
    "raise KeyError('no entry')",
    "raise ValueError(f'b is {call.b}')",
    "return 'odd' if call.a // call.b else None",
)


def random_rule(draw: random.Random, spec: type, throws: float = 0.2) -> Callable[[Any], Any]:
    """A refusal of one to three clauses, made from source."""

    def condition() -> str:
        text = draw.choice(_CONDITIONS + _OF[spec]).format(n=draw.randint(0, 4), bit=draw.randint(0, 1))
        return f"not ({text})" if draw.random() < 0.3 else text

    lines = ["def refusal(call):"]
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3))):
        joined = f" {draw.choice(('and', 'or'))} ".join(condition() for _ in range(draw.choice((1, 1, 2))))
        lines += [f"    if {joined}:", "        return f'a is {call.a}'"]
    if draw.random() < throws:
        lines += [f"    if {condition()}:", f"        {draw.choice(_THROWS)}"]
    lines.append("    return None")
    return _made(lines)


def _made(lines: list[str]) -> Callable[[Any], Any]:
    names: dict[str, Any] = {"__name__": "random_rules"}
    exec("\n".join(lines), names)
    made: Callable[[Any], Any] = names["refusal"]
    return made


def random_selector(seed: int, spec: type | None = None, most: int = 6) -> Selector:
    """Up to *most* implementations: random rules, edges, archs and devices, one of them often general."""
    draw = random.Random(seed)
    spec = spec if spec is not None else draw.choice((Plain, Placed))
    keys = list("abcdefgh"[: draw.randint(2, most)])
    order = draw.sample(keys, len(keys))
    general = draw.choice(keys) if draw.random() < 0.5 else None
    rules = {key: random_rule(draw, spec) for key in keys}
    for key in keys[1:]:
        if draw.random() < 0.25:
            rules[key] = rules[keys[0]]
    density = draw.choice((0.2, 0.5, 0.8))
    made = []
    for key in keys:
        below = [k for k in order[order.index(key) + 1 :] if draw.random() < density]
        placed: dict[str, Any] = {}
        if spec is Placed:
            archs = draw.choice((None, None, [80], [80, 89], [80, 86, 89, 90], [90, 75], []))
            placed = {"supported_archs": archs, "devices": draw.choice(({"cuda"}, {"cuda"}, {"cuda", "cpu"}))}
        made.append(
            Candidate(
                key,
                rules[key],
                general=key == general,
                preferred_over=() if key == general else below,
                **placed,
            )
        )
    return Selector(spec, draw.sample(made, len(made)), op="Op", interface="job")


def random_shadow(seed: int) -> Selector:
    """An implementation that several others shadow together: a general one, or one below all in two ways."""
    draw = random.Random(seed)
    members = list("abcdefg"[: draw.randint(3, 7)])
    cells = [(a, kind) for a in range(5) for kind in "xyz"]
    mine = {key: set(draw.sample(cells, draw.randint(2, 9))) for key in members}
    for cell in cells:
        mine[draw.choice(members)].add(cell)
    general = draw.random() < 0.5
    between = () if general else ("m", "n")
    made = [Candidate(key, _serving(cells), preferred_over=between) for key, cells in mine.items()]
    made += [Candidate(key, _serving(set(draw.sample(cells, 2))), preferred_over={"v"}) for key in between]
    return Selector(Plain, [*made, Candidate("v", random_rule(draw, Plain), general=general)], op="Op", interface="job")


def _serving(cells: Iterable[tuple[int, str]]) -> Callable[[Any], Any]:
    tests = " or ".join(f"(call.a == {a} and call.kind == {kind!r})" for a, kind in sorted(cells))
    return _made(["def refusal(call):", f"    return None if {tests} else 'another'"])


class Whole:
    """A rule set, tried on every call of its domain."""

    def __init__(self, selector: Selector, archs: Iterable[int] | None = None) -> None:
        self.selector = selector
        self.keys = selector.keys
        self.written = {(c.key, below) for c in selector.candidates for below in c.preferred_over}
        self.general = next((c.key for c in selector.candidates if c.general), None)
        looked_at = None if archs is None or selector.spec is Plain else set(archs)
        self.everything = [call for call in self._every() if looked_at is None or call.arch in looked_at]
        self.calls = [call for call in self.everything if call.invalid() is None]

    def _every(self) -> list[Any]:
        slots = self.selector.domain.slots
        ranges = {
            path[0]: range(slot.lo, slot.hi + 1) if slot.sort == "int" else slot.values for path, slot in slots.items()
        }
        found = []
        for values in itertools.product(*ranges.values()):
            call = self.selector.spec(**dict(zip(ranges, values, strict=True)))
            if not hasattr(call, "device") or (call.device == "cuda") == (call.arch is not None):
                found.append(call)
        return found

    @cached_property
    def serves(self) -> Mapping[str, frozenset[Any]]:
        """For each implementation the valid calls that it can run and serves."""
        return {key: frozenset(call for call in self.calls if self._serves(key, call)) for key in self.keys}

    def _serves(self, key: str, call: Any) -> bool:
        candidate = self.selector.candidate(key)
        if candidate.cannot_run(call) is not None:
            return False
        try:
            return candidate.refusal(call) is None
        except Exception:  # noqa: BLE001 - a rule that raises does not serve
            return False

    def above(self, key: str, without: tuple[str, str] | None = None) -> set[str]:
        """Who wins over *key*, by the edges as written but one."""
        if key == self.general:
            return set(self.keys) - {key}
        found: set[str] = set()
        while True:
            more = {w for w, below in self.written - {without} if below == key or below in found} - found
            if not more:
                return found
            found |= more

    def chosen(self, call: Any) -> frozenset[str]:
        """Those that serve a call and over which no other that does is preferred."""
        serving = {key for key in self.keys if call in self.serves[key]}
        return frozenset(key for key in serving if not self.above(key) & serving)

    def smallest(self, calls: Iterable[Any]) -> Any:
        """The call of *calls* to show."""
        slots = self.selector.domain.slots

        def place(call: Any) -> list[tuple[bool, bool, int]]:
            places = []
            for path, slot in slots.items():
                value = getattr(call, path[0])
                if slot.sort == "int":
                    places.append((value != slot.default, value < 0, abs(value)))
                else:
                    places.append((False, False, slot.values.index(value)))
            return places

        return min(calls, key=place)
