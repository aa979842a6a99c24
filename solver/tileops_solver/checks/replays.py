"""Do the lifted rules give what the functions give that they were lifted from?"""

from __future__ import annotations

from typing import Any, Final

from tileops_rules import Rule, Selector

from tileops_solver.answer import InconsistencyError
from tileops_solver.proofs.replays import Replays

__all__ = ["CALLS", "replay_rules"]

CALLS: Final = 2_000
"""Calls near the thresholds of each rule."""

_SEED: Final = 20240229
"""Another than at construction, so that these calls are other calls."""


def replay_rules(selector: Selector, replays: Replays) -> None:
    """Put :data:`CALLS` calls through every rule of *selector* and through its original.

    Args:
        selector: The rules.
        replays: Those that are on file; of these nothing is put through again.

    Raises:
        InconsistencyError: they differ.
    """
    selector.agreed = lambda rule: replays.known(rule, CALLS, _SEED)
    failed = dict(selector.not_lifted)
    if selector.unserved_not_lifted is not None:
        failed["unserved"] = selector.unserved_not_lifted
    for key, error in failed.items():
        if error.call is not None:
            raise InconsistencyError(
                f"{selector.op or selector.spec.__name__}: the rule of {key} ({error.place}) {error.cause}",
                call=error.call,
                facts=(f"call: {error.call!r}",),
            )
    for key, rule in selector.rules.items():
        _replay(selector.op or selector.spec.__name__, key, rule, replays)
    if selector.declared_unserved is not None:
        _replay(selector.op or selector.spec.__name__, "unserved", selector.declared_unserved, replays)
    if selector.invalid is not None:
        _replay(selector.spec.__name__, "invalid", selector.invalid, replays)


def _replay(of: str, name: str, rule: Rule, replays: Replays) -> None:
    if replays.known(rule, CALLS, _SEED):
        return
    call = rule.replay(CALLS, _SEED)
    if call is None:
        replays.keep(name, rule, CALLS, _SEED)
        return
    raise InconsistencyError(
        f"{of}: the rule of {name} ({rule.place}) does not give what its function gives",
        call=call,
        facts=(f"call: {call!r}", f"function: {_said(rule.original, call)}", f"rule: {_said(rule, call)}"),
    )


def _said(function: Any, call: Any) -> str:
    try:
        return repr(function(call))
    except Exception as error:  # noqa: BLE001 - what it raised is what is shown
        return f"raised {type(error).__name__}: {error}"
