"""Do the lifted rules give what the functions give that they were lifted from?"""

from __future__ import annotations

from typing import Any, Final

from tileops_rules import Rule, Selector

from tileops_solver.answer import InconsistencyError

__all__ = ["CALLS", "replay_rules"]

CALLS: Final = 2_000
"""Calls near the thresholds of each rule."""

_SEED: Final = 20240229
"""Another than at construction, so that these calls are other calls."""


def replay_rules(selector: Selector) -> None:
    """Put :data:`CALLS` calls through every rule of *selector* and through its original.

    Raises:
        InconsistencyError: they differ.
    """
    for key, error in selector.not_lifted.items():
        if error.call is not None:
            raise InconsistencyError(
                f"{selector.op or selector.spec.__name__}: the rule of {key} ({error.place}) {error.cause}",
                call=error.call,
                facts=(f"call: {error.call!r}",),
            )
    for key, rule in selector.rules.items():
        _replay(f"{selector.op or selector.spec.__name__}: the rule of {key}", rule)
    if selector.invalid is not None:
        _replay(f"the rule of {selector.spec.__name__}.invalid", selector.invalid)


def _replay(name: str, rule: Rule) -> None:
    call = rule.replay(CALLS, _SEED)
    if call is None:
        return
    raise InconsistencyError(
        f"{name} ({rule.place}) does not give what its function gives",
        call=call,
        facts=(f"call: {call!r}", f"function: {_said(rule.original, call)}", f"rule: {_said(rule, call)}"),
    )


def _said(function: Any, call: Any) -> str:
    try:
        return repr(function(call))
    except Exception as error:  # noqa: BLE001 - what it raised is what is shown
        return f"raised {type(error).__name__}: {error}"
