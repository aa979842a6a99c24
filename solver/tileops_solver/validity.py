"""Which calls there are at all: what limits every question, and every call that is found."""

from __future__ import annotations

import functools
from typing import Any

from tileops_rules import Candidate, Selector
from tileops_rules.domain import Domain

from tileops_solver.answer import InconsistencyError

__all__ = ["rejection", "selector_of_all"]


@functools.lru_cache(maxsize=64)
def selector_of_all(domain: Domain) -> Selector:
    """A selector over *domain* whose one candidate serves everything: it knows which calls are valid."""
    archs = domain.archs if "arch" in domain.fields else None
    everything = Candidate("everything", _serves, devices=domain.device_types, supported_archs=archs)
    return Selector(domain.spec, [everything])


def _serves(call: Any) -> None:
    return None


def rejection(selector: Selector, call: Any) -> str | None:
    """Why *call* cannot be, by its class's own ``invalid``; None where it can.

    Raises:
        InconsistencyError: ``invalid`` was lifted, lets the call pass, and gives a reason when it is run.
    """
    invalid = getattr(selector.spec, "invalid", None)
    if invalid is None:
        return None
    try:
        reason = invalid(call)
    except Exception as error:  # noqa: BLE001 - it is the user's code, and an unlifted one may raise anything
        reason = f"{selector.spec.__name__}.invalid raised {type(error).__name__}: {error}"
    if reason is None:
        return None
    if selector.invalid is not None:
        raise InconsistencyError(
            f"{selector.spec.__name__}.invalid rejects a call that its lifted form lets pass",
            call=call,
            facts=(f"call: {call!r}", f"it says: {reason}"),
        )
    return str(reason)
