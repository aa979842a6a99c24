"""Why a call gets the implementation it gets, for a call that is written as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tileops_rules import Explanation, Selector

from tileops_solver.calls import ValueProblem, call_from, completed
from tileops_solver.targets import TargetError, named

__all__ = ["Explained", "explain_call"]


@dataclass(frozen=True)
class Explained:
    """An explanation with what was asked.

    Attributes:
        op: Name of the op.
        interface: The interface.
        call: The call as it was asked about.
        explanation: The winner, and what every implementation said.
    """

    op: str
    interface: str
    call: Any
    explanation: Explanation

    def __str__(self) -> str:
        return f"{self.op}.{self.interface}: {self.call!r}\n{self.explanation}"

    def as_json(self) -> dict[str, Any]:
        """The same as plain values: ``op``, ``interface``, ``call``, ``winner`` and ``entries``."""
        from tileops_solver.report.json import plain

        return {
            "op": self.op,
            "interface": self.interface,
            "call": plain(self.call),
            **self.explanation.as_json(),
        }


def explain_call(target: str, interface: str, texts: Iterable[str]) -> Explained:
    """Explain a call.

    Args:
        target: ``module:Class`` of an op class.
        interface: One of its interfaces.
        texts: ``field=value`` each.

    Raises:
        TargetError: there is no such op or interface.
        ValueProblem: a field or value is not accepted, or the call cannot be.
    """
    op = named(target)
    if interface not in op.interfaces:
        raise TargetError(f"{op.__name__} has no interface {interface!r}: it has {', '.join(sorted(op.interfaces))}")
    try:
        selector = Selector.of(op, interface)
    except (TypeError, ValueError) as error:
        raise TargetError(f"nothing can be chosen: {error}") from error
    call = call_from(selector.domain, texts)
    try:
        if getattr(op, "resolve", None) is None:
            call = completed(selector, call)
        call = selector.resolved(call)
        explanation = selector.explain(call)
    except (TypeError, ValueError) as error:
        raise ValueProblem(str(error)) from error
    return Explained(op.__name__, interface, call, explanation)
