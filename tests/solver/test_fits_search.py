"""What every implementation of random rule sets needs of a block, against a run of its own methods on every call."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, OneOf, Range, Selector
from tileops_rules.archs import KNOWN_ARCHS, LEAST_SMEM_BYTES, MOST_THREADS
from tileops_solver.checks.asked import Result
from tileops_solver.checks.fits import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Placed, Plain, Whole, random_selector

ARCHS = (None, 80, 86, 90, 103)
Arch = Optional[Annotated[int, OneOf(*ARCHS[1:])]]
AMPERE = KNOWN_ARCHS[80].smem_budget
HOPPER = KNOWN_ARCHS[90].smem_budget


@dataclass(frozen=True)
class Listed:
    """A call that names no device, and states one of a few budgets or none."""

    a: Annotated[int, Range(0, 3)] = 1
    b: Annotated[int, Range(-1, 1)] = 0
    arch: Annotated[int, OneOf(*ARCHS[1:])] = 80
    smem_budget: Annotated[Optional[int], OneOf(None, 60_000, AMPERE, 10**6)] = None

    def invalid(self) -> str | None:
        return "never there" if self.arch == 86 and self.a == 3 else None


@dataclass(frozen=True)
class Low(Placed):
    """A call whose budget is about the least that a device has."""

    arch: Arch = None
    smem_budget: Annotated[int, Range(LEAST_SMEM_BYTES - 1, LEAST_SMEM_BYTES + 1)] = LEAST_SMEM_BYTES


@dataclass(frozen=True)
class High(Placed):
    """A call that states a budget on CUDA and only there, about what one arch has."""

    arch: Arch = None
    smem_budget: Optional[Annotated[int, Range(AMPERE - 1, AMPERE + 1)]] = None


BUDGETS: dict[type, tuple[int | None, ...]] = {
    Plain: (None,),
    Placed: (None,),
    Listed: (None, 60_000, AMPERE, 10**6),
    Low: (LEAST_SMEM_BYTES - 1, LEAST_SMEM_BYTES, LEAST_SMEM_BYTES + 1),
    High: (None, AMPERE - 1, AMPERE, AMPERE + 1),
}


def _as_devices_are(call: Any) -> bool:
    """Whether the facts of a CUDA device are stated exactly where there is one."""
    facts = (call.arch, call.smem_budget) if isinstance(call, High) else (call.arch,)
    return all((fact is not None) == (call.device == "cuda") for fact in facts)


class Budgeted(Whole):
    """Every call, with every budget that it may state."""

    def _every(self) -> list[Any]:
        spec = self.selector.spec
        if spec in (Plain, Placed):
            return super()._every()
        if spec is Listed:
            return list(itertools.starmap(Listed, itertools.product(range(4), (-1, 0, 1), ARCHS[1:], BUDGETS[Listed])))
        devices = sorted(self.selector.domain.device_types)
        every = itertools.starmap(spec, itertools.product(range(4), (-1, 0, 1), devices, ARCHS, BUDGETS[spec]))
        return [call for call in every if _as_devices_are(call)]

    def smallest(self, calls: Any) -> Any:
        """The call to show; of budgets the one that is usual, then the smallest one."""
        mine = list(calls)
        if not hasattr(mine[0], "smem_budget"):
            return super().smallest(mine)
        places = {
            call: (
                *(
                    (getattr(call, n) != d, getattr(call, n) < 0, abs(getattr(call, n)))
                    for n, d in (("a", 1), ("b", 0))
                ),
                getattr(call, "device", "cuda") != "cuda",
                ARCHS.index(call.arch),
                self._place(call),
            )
            for call in mine
        }
        return min(mine, key=places.__getitem__)

    def _place(self, call: Any) -> tuple[bool, int]:
        stated = call.smem_budget
        if self.selector.spec is Listed:
            return False, BUDGETS[Listed].index(stated)
        usual = KNOWN_ARCHS.get(call.arch or 0)
        first = LEAST_SMEM_BYTES if self.selector.spec is Low or usual is None else usual.smem_budget
        return stated != first, stated or 0


# ---------------------------------------------------------------------------------------------------- random needs

SMEM = {"factor": (0, 8_000, 16_384, 33_000, 58_000), "offset": (0, 1, -8_000, 48 * 1024, AMPERE, AMPERE + 1, HOPPER)}
THREADS = {"factor": (0, 1, 32, 256, 341), "offset": (0, 1, 128, 1023, 1024, 1025)}
PLAIN_CONDITIONS = ("call.a < {n}", "call.a == {n}", "call.b >= {bit}", "call.a % 2 == {bit}", "call.kind == 'x'")
CONDITIONS = (*PLAIN_CONDITIONS[:-1], "call.arch == 90", "call.arch in (80, 103)", "call.arch is not None")
ODD = ("None", "None", "'many'", "True", "64.0", "NEEDED[call.a]", "call.a // call.b")


def random_need(draw: random.Random, spec: type, scale: dict[str, tuple[int, ...]]) -> Any:
    """What a block takes, made from source: sums, and now and then no number or an exception."""
    conditions = PLAIN_CONDITIONS if spec is Plain else CONDITIONS
    if spec not in (Plain, Placed):
        conditions = (*conditions, "call.smem_budget is not None and call.smem_budget < {most}")

    def number() -> str:
        of_a, of_b, offset = draw.choice(scale["factor"]), draw.choice(scale["factor"]), draw.choice(scale["offset"])
        text = f"{of_a} * call.a + {draw.choice((0, of_b))} * call.b + {offset}"
        limit = draw.choice(scale["offset"])
        capped = "call.smem_budget or 0" if "smem_budget" in spec.__dataclass_fields__ else str(limit)
        return draw.choice((text, text, text, f"min({text}, {capped})", f"max({text}, {limit})"))

    lines = ["def need(cls, call):"]
    for _ in range(draw.choice((0, 0, 1, 2))):
        condition = draw.choice(conditions).format(n=draw.randint(0, 3), bit=draw.randint(0, 1), most=AMPERE)
        given = draw.choice(ODD) if draw.random() < 0.4 else number()
        lines += [f"    if {condition}:", f"        return {given}"]
    lines.append(f"    return {number()}")
    names: dict[str, Any] = {"__name__": "random_needs", "NEEDED": {1: 64, 2: 128}}
    exec("\n".join(lines), names)
    return classmethod(names["need"])


def rule_set(seed: int) -> tuple[Selector, list[int] | None]:
    """A random one whose implementations state needs, and the archs to look at: all, for two of three."""
    draw = random.Random(seed)
    spec = draw.choice((Plain, Placed, Listed, Low, High))
    made = random_selector(seed, Plain if spec is Plain else Placed, most=2)
    candidates = []
    for each in made.candidates:
        stated: dict[str, Any] = {}
        for name, scale in (("block_smem_bytes", SMEM), ("block_threads", THREADS)):
            if draw.random() < 0.8:
                stated[name] = random_need(draw, spec, scale)
        archs = each.supported_archs and [103 if arch == 75 else arch for arch in each.supported_archs]
        about = {"general": each.general, "preferred_over": each.preferred_over, "devices": each.devices}
        kind = type(each.key, (), stated)
        candidates.append(Candidate(each.key, each.refusal, supported_archs=archs, implementation=kind, **about))
    looked_at = [80, 90] if seed % 3 == 0 and spec is not Plain else None
    return Selector(spec, candidates, op="Op", interface="job"), looked_at


# --------------------------------------------------------------------------------------------------- all calls tried


def platform(call: Any) -> str:
    if not hasattr(call, "arch"):
        return ""
    return str(call.device) if call.arch is None else f"sm_{call.arch}"


def on_cuda(call: Any) -> bool:
    return bool(getattr(call, "device", "cuda") == "cuda")


def most_smem(call: Any) -> float | None:
    """What a block may have; None where nobody knows, no end where a number is stated that no device has."""
    facts = KNOWN_ARCHS.get(getattr(call, "arch", None) or 0)
    if facts is None:
        return None
    stated = getattr(call, "smem_budget", None)
    if stated is None:
        return facts.smem_budget
    if isinstance(call, Listed):
        return min(stated, facts.smem_budget)
    return stated if LEAST_SMEM_BYTES <= stated <= facts.smem_budget else math.inf


def most_threads(call: Any) -> float | None:
    return MOST_THREADS if on_cuda(call) else None


def taken(need: Callable[[Any], Any], call: Any) -> Any:
    try:
        return need(call)
    except Exception as error:  # noqa: BLE001 - it is what is said of the call
        return error


def fits(value: Any, least: int, most: float | None) -> bool:
    """Whether a number is stated, and is not more than there is; where none is known, any will do."""
    return type(value) is int and value >= least and (most is None or value <= most)


Said = dict[tuple[str, str, str], Any]


def expected(whole: Whole) -> tuple[Said, set[tuple[str, str]]]:
    """The smallest call of each finding, and who is undecided where."""
    needs = (
        ("block_smem_bytes", "shared memory", 0, most_smem),
        ("block_threads", "threads", 1, most_threads),
    )
    said: Said = {}
    open_points: set[tuple[str, str]] = set()
    for candidate, (member, what, least, most) in itertools.product(whole.selector.candidates, needs):
        need = getattr(candidate.implementation, member, None)
        if need is None:
            continue
        wrong: dict[str, list[Any]] = {}
        for call in whole.serves[candidate.key]:
            value, where = taken(need, call), platform(call)
            if value is None:
                said["unstated", candidate.key, what] = None
            elif not fits(value, least, most(call)):
                wrong.setdefault(" of ".join(part for part in (what, where) if part), []).append(call)
            if most(call) is None and on_cuda(call):
                open_points.add((candidate.key, where))
        said.update({("fits", candidate.key, label): whole.smallest(calls) for label, calls in wrong.items()})
    return said, open_points


def agrees(seed: int) -> Counter[str]:
    """Hold what is said against a search of all calls; gives how often each answer came."""
    selector, archs = rule_set(seed)
    whole = Budgeted(selector, archs)
    result: Result = CHECK.run(Subject(selector, archs=archs))
    said, open_points = expected(whole)
    found = {(each.kind, *each.keys, each.subject): each for each in result.findings}
    assert len(found) == len(result.findings)
    assert {name: each.witness for name, each in found.items()} == said
    assert {(*each.keys, each.subject) for each in result.undecided} == open_points
    assert all("no shared memory of a block is known for" in each.reason for each in result.undecided)
    for (kind, key, label), each in found.items():
        assert each.severity is (Severity.ERROR if kind == "fits" else Severity.NOTE)
        member, most = ("block_threads", most_threads) if "threads" in label else ("block_smem_bytes", most_smem)
        if kind == "fits":
            value = taken(getattr(selector.candidate(key).implementation, member), each.witness)
            there = most(each.witness)
            raised = f" raised {type(value).__name__}: {value} on {each.witness!r}, which it serves; "
            assert raised in each.message if isinstance(value, Exception) else each.facts["taken"] == value
            assert isinstance(value, Exception) or there in (None, math.inf) or each.facts["most"] == there
    kinds = {f"{kind} {label.split()[0]}" if kind == "fits" else kind for kind, _, label in found}
    return Counter([*(kinds or ["nothing"]), *(["undecided"] if open_points else [])])


def test_every_finding_and_every_absence_is_what_a_run_of_every_call_says() -> None:
    seen = sum((agrees(seed) for seed in range(40)), Counter())
    assert min(seen[name] for name in ("fits shared", "fits threads", "unstated", "undecided", "nothing")) >= 3


@pytest.mark.nightly
def test_so_it_is_for_2000_rule_sets() -> None:
    for seed in range(1000, 3000):
        agrees(seed)
