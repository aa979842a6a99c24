"""Calls that an implementation serves and a base class's own refusal refuses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest
from tileops_rules import Candidate, Selector
from tileops_solver import Finding, InconsistencyError, audit
from tileops_solver.checks.dropped import CHECK
from tileops_solver.findings import Severity
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Plain, Whole


@dataclass(frozen=True)
class Call:
    n: int = 0
    m: int = 0
    arch: Optional[int] = 80


class Aligned:
    """A base class with a limit that reads a class attribute."""

    width = 8

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.n % cls.width == 0 else f"n {call.n} is no multiple of {cls.width}"


def selector(**kinds: type) -> Selector:
    made = [
        Candidate(key, kind.refusal, implementation=kind, supported_archs=getattr(kind, "supported_archs", None))  # type: ignore[attr-defined]
        for key, kind in kinds.items()
    ]
    return Selector(Call, made, op="Op", interface="job")


def found(**kinds: type) -> list[Finding]:
    result = CHECK.run(Subject(selector(**kinds)))
    assert result.undecided == ()
    return list(result.findings)


class Forgets(Aligned):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.m < 4 else "m is not below 4"


def test_an_override_that_forgets_super_is_found_with_the_call_and_the_reason() -> None:
    (finding,) = found(forgets=Forgets)
    assert (finding.kind, finding.keys, finding.severity) == ("dropped-limit", ("forgets",), Severity.ERROR)
    assert finding.witness == Call(n=1)
    assert finding.id == "Op.job:dropped-limit:forgets:Aligned"
    assert finding.facts["reason"] == "n 1 is no multiple of 8"
    assert "which its base class Aligned (test_dropped.py:" in finding.message
    assert "refuses: n 1 is no multiple of 8" in finding.message
    assert finding.edit == "return super().refusal(call) as the last line of Forgets.refusal"
    assert len(finding.places) == 2


class Remembers(Aligned):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return "m is not below 4" if call.m >= 4 else super().refusal(call)


class SaysItAgain(Aligned):
    """No ``super()``, and no limit dropped: the text of the override plays no part."""

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.n % 16 == 0 else "no multiple of 16"


class CallsAndDrops(Aligned):
    """``super()`` is called, and what it says is not heeded."""

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        said = super().refusal(call)
        return said if call.m else None


class Inherits(Aligned):
    width = 4


class Loosened(Aligned):
    """Its own width counts in the base class's rule too."""

    width = 2

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.n % 2 == 0 else "odd"


@pytest.mark.parametrize("kind", [Remembers, SaysItAgain, Inherits, Loosened])
def test_what_keeps_the_limit_is_no_finding(kind: type) -> None:
    assert found(kind=kind) == []


def test_it_is_the_call_that_counts_and_not_that_super_is_named() -> None:
    (finding,) = found(kind=CallsAndDrops)
    assert finding.witness == Call(n=1)


class Mixin:
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return "m is odd" if call.m % 2 else super().refusal(call)  # type: ignore[misc]


class Mixed(Mixin, Aligned):
    pass


class MixedAndForgets(Mixin, Aligned):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return Aligned.refusal.__func__(cls, call)  # type: ignore[attr-defined]


def test_a_mixin_in_front_keeps_what_stands_behind_it() -> None:
    assert found(mixed=Mixed) == []


def test_a_mixin_that_is_passed_over_is_found() -> None:
    (finding,) = found(mixed=MixedAndForgets)
    assert (finding.subject, finding.witness) == ("Mixin", Call(m=1))


class Drops(Aligned):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


class Below(Drops):
    """Inherits what dropped the limit."""


class BelowAll(Remembers):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


def test_every_base_class_is_asked_and_not_the_nearest_alone() -> None:
    assert [(f.keys[0], f.subject) for f in found(drops=Drops, below=Below)] == [
        ("below", "Aligned"),
        ("drops", "Aligned"),
    ]
    assert [(f.subject, f.witness) for f in found(all=BelowAll)] == [("Remembers", Call(m=4)), ("Aligned", Call(n=1))]


class Static:
    @staticmethod
    def refusal(call: Call) -> str | None:
        return None if call.n < 100 else "too many"


class BelowStatic(Static):
    @staticmethod
    def refusal(call: Call) -> str | None:
        return None if call.n < 200 else "too many"


class Plainly:
    def refusal(call: Call) -> str | None:  # type: ignore[misc] # noqa: N805 - reached by the class alone
        return None if call.n < 100 else "too many"


class BelowPlainly(Plainly):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


@pytest.mark.parametrize("kind", [BelowStatic, BelowPlainly])
def test_functions_that_are_no_classmethods_are_asked_too(kind: type) -> None:
    (finding,) = found(kind=kind)
    assert finding.witness == Call(n=100)


class Throws:
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        if call.n == 3:
            raise ValueError("three")
        return None


class BelowThrows(Throws):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


def test_a_base_class_that_throws_does_not_refuse() -> None:
    assert found(kind=BelowThrows) == []


class Hopper(Aligned):
    supported_archs = [90]

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


class OnHopperOnly:
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.arch == 90 else "not Hopper"


class HopperBelow(OnHopperOnly):
    supported_archs = [90]

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


def test_only_calls_that_it_can_run_count() -> None:
    assert found(below=HopperBelow) == []
    (finding,) = found(hopper=Hopper)
    assert finding.witness == Call(n=1, arch=90)


class ByTheClock:
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if len(range(call.n)) > 1 else "not now"


class BelowClock(ByTheClock):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


class ClockBelow(Aligned):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if len(range(call.n)) > 1 else "not now"


class NoFunction:
    refusal = 3


class BelowNoFunction(NoFunction):
    @classmethod
    def refusal(cls, call: Call) -> str | None:  # type: ignore[override]
        return None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BelowClock, "the refusal of its base class ByTheClock was not lifted"),
        (ClockBelow, "the rule of kind was not lifted"),
        (BelowNoFunction, "3 is no Python function"),
    ],
)
def test_what_is_not_lifted_is_undecided(kind: type, text: str) -> None:
    result = CHECK.run(Subject(selector(kind=kind)))
    assert result.findings == ()
    (point,) = result.undecided
    assert point.keys == ("kind",)
    assert text in point.reason


def test_a_base_class_that_refuses_nothing_needs_no_rule_of_the_other() -> None:
    class Nothing:
        @classmethod
        def refusal(cls, call: Call) -> str | None:
            return None

    class Clock(Nothing):
        @classmethod
        def refusal(cls, call: Call) -> str | None:
            return None if len(range(call.n)) > 1 else "not now"

    assert found(clock=Clock) == []


SWITCH = {"refuses": True}


class Switched:
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return "switched on" if SWITCH["refuses"] and call.n == 5 else None


class BelowSwitched(Switched):
    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None


def test_a_base_class_that_does_not_refuse_after_all_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(selector(below=BelowSwitched))
    witness = subject.find
    monkeypatch.setattr(subject, "find", lambda *args: (SWITCH.update(refuses=False), witness(*args))[1])
    with pytest.raises(InconsistencyError, match="the refusal of Switched is proved to refuse a call for below"):
        CHECK.run(subject)


# ------------------------------------------------------------------------------------------------ random hierarchies

_LIMITS = (
    "call.a < {n}",
    "call.a % 2 == {bit}",
    "call.b >= {bit}",
    "call.a > cls.least",
    "call.kind != 'x'",
    "call.kind in cls.kinds",
)


def hierarchy(seed: int) -> dict[str, type]:
    """A base class, a mixin, and classes below that keep, drop or repeat what those refuse."""
    draw = random.Random(seed)

    def body(keeps: str) -> str:
        limit = draw.choice(_LIMITS).format(n=draw.randint(1, 4), bit=draw.randint(0, 1))
        return (
            f"    @classmethod\n    def refusal(cls, call):\n        if not ({limit}):\n"
            f"            return f'not with {{call.a}}'\n        return {keeps}\n"
        )

    lines = ["class Base:", "    least = 0", "    kinds = ('x', 'y')", body("None")]
    lines += ["class Mixin:", body("super().refusal(call)")]
    names = ["Base"]
    for i in range(draw.randint(2, 4)):
        bases = draw.choice((["Mixin"], [])) if "Mixin" not in names[-1:] else []
        parent = draw.choice(names)
        lines.append(f"class K{i}({', '.join([*bases, parent])}):")
        lines.append(f"    least = {draw.randint(0, 2)}")
        if draw.random() < 0.8:
            lines.append(
                body(draw.choice(("super().refusal(call)", "None", "super().refusal(call) if call.b else None")))
            )
        names.append(f"K{i}")
    scope: dict[str, Any] = {"__name__": "random_hierarchy"}
    exec("\n".join(lines), scope)
    return {name.lower(): scope[name] for name in names[1:]}


def by_enumeration(whole: Whole) -> dict[tuple[str, str], Any]:
    facts = {}
    for key in whole.keys:
        kind: Any = whole.selector.candidate(key).implementation
        for base in kind.__mro__[1:]:
            if "refusal" in vars(base):
                bound = vars(base)["refusal"].__get__(None, kind)
                dropped = [call for call in whole.serves[key] if bound(call) is not None]
                if dropped:
                    facts[key, base.__name__] = whole.smallest(dropped)
    return facts


def random_kinds(seed: int) -> Selector:
    while True:
        try:
            kinds = hierarchy(seed)
        except TypeError:  # no order of the bases fits
            seed += 100_000
            continue
        made = [Candidate(key, kind.refusal, implementation=kind) for key, kind in kinds.items()]  # type: ignore[attr-defined]
        return Selector(Plain, made, op="Op", interface="job")


def agrees(seed: int) -> None:
    chosen = random_kinds(seed)
    result = CHECK.run(Subject(chosen))
    assert result.undecided == ()
    assert {(f.keys[0], f.subject): f.witness for f in result.findings} == by_enumeration(Whole(chosen)), seed


@pytest.mark.parametrize("seed", range(40))
def test_every_finding_and_every_absence_is_what_a_search_of_all_calls_says(seed: int) -> None:
    agrees(seed)


@pytest.mark.nightly
def test_so_it_is_for_many_hierarchies() -> None:
    for seed in range(2000, 4000):
        agrees(seed)


def test_the_hierarchies_drop_limits_and_keep_them() -> None:
    facts = [by_enumeration(Whole(random_kinds(seed))) for seed in range(40)]
    assert Counter(base for each in facts for _, base in each).keys() >= {"Base", "Mixin", "K0"}
    assert sum(not each for each in facts) >= 4


def test_an_audit_places_both_classes(op_module: Callable[..., Path]) -> None:
    op_module(
        dropped_ops="""
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class Call:
            n: int = 0

        class Face:
            request = Call

            @classmethod
            def refusal(cls, call):
                return "negative" if call.n < 0 else None

        class Limited(Face):
            @classmethod
            def refusal(cls, call):
                return "too many" if call.n > 9 else super().refusal(call)

        class Wide(Limited):
            @classmethod
            def refusal(cls, call):
                return "odd" if call.n % 2 else None

        class SomeOp:
            kernel_types = {"wide": Wide}
            interfaces = {"face": Face}
        """
    )
    import dropped_ops  # type: ignore[import-not-found]

    (finding,) = audit(dropped_ops.SomeOp, select=["dropped-limit"]).findings
    assert finding.places == ("dropped_ops.py:20", "dropped_ops.py:15")
    assert finding.witness == dropped_ops.Call(n=10)
