"""Why a call gets the implementation it gets, for a call that is written as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tileops_rules import Explanation

from tileops_solver.answer import Answer, Verdict
from tileops_solver.calls import ValueProblem, asked_call
from tileops_solver.nearest import nearest_served
from tileops_solver.report.json import plain
from tileops_solver.targets import selector_of, with_plugins

__all__ = ["Explained", "explain_call"]


@dataclass(frozen=True)
class Explained:
    """An explanation with what was asked.

    Attributes:
        op: Name of the op.
        interface: The interface.
        call: The call as it was asked about.
        explanation: The winner, and what every implementation said.
        nearest: Where nobody serves the call: the nearest call that is served, or that there is none, or why
            neither is known.
        declared: Where nobody serves the call: why the interface says that nobody is meant to, or None.
    """

    op: str
    interface: str
    call: Any
    explanation: Explanation
    nearest: Answer | None = None
    declared: str | None = None

    def __str__(self) -> str:
        text = f"{self.op}.{self.interface}: {self.call!r}\n{self.explanation}"
        if self.declared is not None:
            text += f"\ndeclared unserved: {self.declared}"
        if self.nearest is None:
            return text
        if self.nearest.verdict is Verdict.FOUND:
            return f"{text}\nnearest served call: {self.nearest.call!r}"
        return f"{text}\nnearest served call: {self.nearest.verdict.value} ({self.nearest.reason})"

    def as_json(self) -> dict[str, Any]:
        """The same as plain values: ``op``, ``interface``, ``call``, ``winner`` and ``entries``."""
        return {
            "op": self.op,
            "interface": self.interface,
            "call": plain(self.call),
            **self.explanation.as_json(),
            "nearest": None if self.nearest is None else plain(self.nearest.call),
            "declared": self.declared,
        }


def explain_call(op: Any, interface: str, texts: Iterable[str], *, plugins: bool = False) -> Explained:
    """Explain a call.

    Args:
        op: An op class.
        interface: One of its interfaces.
        texts: ``field=value`` each.
        plugins: Whether what plug-ins register for the op is counted in.

    Raises:
        TargetError: the op has no such interface.
        ValueProblem: a field or value is not accepted, or the call cannot be.
    """
    if plugins:
        (op,) = with_plugins(op)
    selector = selector_of(op, interface)
    call = asked_call(op, selector, texts)
    try:
        explanation = selector.explain(call)
    except (TypeError, ValueError) as error:
        raise ValueProblem(str(error)) from error
    nobody = all(entry.status not in ("chosen", "ties") for entry in explanation.entries)
    nearest = nearest_served(selector, call) if nobody else None
    declared = selector.unserved(call) if nobody and selector.unserved is not None else None
    return Explained(op.__name__, interface, call, explanation, nearest, declared)
