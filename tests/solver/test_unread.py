"""Fields that no rule and no build identity reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_rules import Candidate, Selector
from tileops_solver import audit
from tileops_solver.field_reads import fields_read
from tileops_solver.findings import Severity


@dataclass(frozen=True)
class Call:
    n: int = 1
    scale: float = 1.0
    causal: bool = False
    window: int = 0
    device: str = "cuda"
    arch: int = 90

    @property
    def wide(self) -> bool:
        return self.n > 64

    def invalid(self) -> str | None:
        return "window is negative" if self.window < 0 else None


class Face:
    request = Call


def op(refusal: Callable[[Any, Any], Any], entry_for: Callable[[Any, Any], Any] | None = None) -> type:
    members: dict[str, Any] = {"refusal": classmethod(refusal)}
    if entry_for is not None:
        members["entry_for"] = classmethod(entry_for)
    kernel = type("Only", (Face,), members)
    return type("UnreadOp", (), {"kernel_types": {"only": kernel}, "interfaces": {"face": Face}})


def unread(target: Any) -> list[str]:
    report = audit(target, select=["unread"])
    assert all(f.severity is Severity.NOTE and f.kind == "unread" for f in report.findings)
    assert report.totals.findings == 0
    return [f.subject for f in report.findings]


def by_property(cls: Any, call: Any) -> str | None:
    return None if call.wide else "narrow"


def test_a_field_that_only_invalid_reads_is_unread_and_device_facts_are_left_out() -> None:
    assert unread(op(by_property)) == ["scale", "causal", "window"]


def test_what_a_build_identity_reads_counts() -> None:
    assert unread(op(by_property, lambda cls, call: ((call.n, call.scale), None))) == ["causal", "window"]


def test_an_identity_that_is_the_whole_call_reads_every_field() -> None:
    assert unread(op(by_property, lambda cls, call: (call, lambda: cls(call)))) == []
    assert unread(op(by_property, lambda cls, call: (("v2", (call,)), None))) == []


def test_the_identity_is_asked_of_served_calls_only() -> None:
    def picky(cls: Any, call: Any) -> Any:
        if call.n <= 64:
            raise ValueError("never asked")
        return call.scale, None

    assert unread(op(by_property, picky)) == ["causal", "window"]


def test_an_identity_that_raises_on_a_served_call_is_undecided() -> None:
    def broken(cls: Any, call: Any) -> Any:
        raise LookupError("gone")

    report = audit(op(by_property, broken), select=["unread"])
    assert not report.findings
    assert "entry_for of only raised LookupError: gone" in report.interfaces[0].undecided[0].reason


def test_a_rule_that_was_not_lifted_is_undecided() -> None:
    report = audit(Selector(Call, [Candidate("a", lambda call: str(call.n)[0])]), select=["unread"])
    assert not report.findings
    assert report.interfaces[0].undecided


@pytest.mark.parametrize(
    ("function", "read"),
    [
        (lambda call: call.n, {"n"}),
        (lambda call: call.wide, {"n"}),
        (lambda call: call.invalid(), {"window"}),
        (lambda call: hash(call), {"n", "scale", "causal", "window", "device", "arch"}),
        (lambda call: getattr(call, "sca" + "le"), {"scale"}),
        (lambda call: None, set()),
    ],
)
def test_reads_are_seen_however_they_are_made(function: Callable[[Any], Any], read: set[str]) -> None:
    assert fields_read(function, Call()) == read


def test_the_recorded_call_passes_for_its_class() -> None:
    assert not fields_read(lambda call: isinstance(call, Call) and type(call).__name__ == "Call", Call())
