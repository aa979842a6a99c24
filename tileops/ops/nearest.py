"""The nearest call that is served, for a call that is not: asked of the solver, on request only.

The solver is imported by name when it is first asked, for the time it takes; it knows nothing of this package.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from tileops_rules import NoImplementation, Selector

from tileops.kernels.call_spec import DEVICE_FACTS, CallSpec
from tileops.ops.resolving import resolve

if TYPE_CHECKING:
    from tileops_solver import Answer

__all__ = ["NotServed", "nearest"]


class NotServed(NoImplementation):
    """No implementation of an op's interface serves a call.

    Attributes:
        op: Name of the op class.
        interface: The interface.
        call: The call, with the facts of its device.
        explanation: What every implementation said, with every reason that applies.
        declared: Why the interface says that nobody is meant to serve it, or None where it does not.
    """

    def __init__(self, error: NoImplementation, op: str, interface: str, selector: Selector) -> None:
        super().__init__(error.call, error.explanation, error.declared)
        self.op = op
        self.interface = interface
        self._selector = selector
        self.args = (
            f"{op}.{interface}: {self.args[0]}\n"
            f"for the nearest call that is served ask op.nearest({interface!r}, call), or nearest() of this error",
        )

    def nearest(self) -> Answer:
        """The nearest call that is served; see :meth:`~tileops.ops.op_base.Op.nearest`."""
        return nearest(self._selector, self.call)


def nearest(selector: Selector, call: Any) -> Answer:
    """The nearest call to *call* that an implementation serves on its device.

    Raises:
        ImportError: the solver is not installed.
    """
    resolved = resolve(call)
    answer: Answer = importlib.import_module("tileops_solver").nearest_served(selector, resolved)
    return answer if answer.call is None else dataclasses.replace(answer, call=_stated_as(call, resolved, answer.call))


def _stated_as(call: CallSpec, resolved: CallSpec, found: CallSpec) -> CallSpec:
    """*found* without the device and its facts where *call* does not state them and they are the same."""
    left_out = [
        name
        for name in ("device", *DEVICE_FACTS)
        if getattr(call, name) is None and getattr(found, name) == getattr(resolved, name)
    ]
    return dataclasses.replace(found, **dict.fromkeys(left_out)) if left_out else found
