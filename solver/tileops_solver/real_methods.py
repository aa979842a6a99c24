"""What the original methods of implementations make of a call, whatever was lifted from them."""

from __future__ import annotations

from typing import Any

from tileops_rules import Selector

__all__ = ["chosen_keys", "serving"]


def serving(selector: Selector, call: Any) -> tuple[int, list[str]]:
    """The bits of the implementations that can run a call and serve it, and those whose rule raises on it."""
    mask = 0
    raising = []
    for index, candidate in enumerate(selector.candidates):
        try:
            if candidate.cannot_run(call) is None and candidate.refusal(call) is None:
                mask |= 1 << index
        except Exception as error:  # noqa: BLE001 - a rule may raise anything; that it does is what is told
            raising.append(f"the rule of {candidate.key} raises {type(error).__name__}")
    return mask, raising


def chosen_keys(selector: Selector, call: Any) -> tuple[str, ...]:
    """Who is chosen for a call: one, none, or several where an order is missing; a rule that raises does not serve."""
    mask, _ = serving(selector, call)
    return tuple(selector.candidates[index].key for index in selector.undefeated(mask))
