"""What happens where a call falls to the general implementation while specialised ones refuse it.

A general implementation is a safety net and may be slow, so that a call which falls to it by one clause is
worth knowing of. ``TILEOPS_GENERAL``, read when an op is constructed, says what to do; ``op.when_general``
changes it for one op. It is looked at on a miss only, and only where a specialised implementation can run on
the call's device.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Hashable
from typing import Any, Final, Literal

from tileops_rules import Explanation, Selector

from tileops.backend.places import outside_stacklevel

__all__ = ["MODES", "MOST_TOLD", "VARIABLE", "FellToGeneral", "FellToGeneralWarning", "Mode", "fallen", "mode", "named"]

Mode = Literal["allow", "warn", "error"]

VARIABLE: Final = "TILEOPS_GENERAL"
"""The environment variable that is read at every construction."""
MODES: Final[tuple[Mode, ...]] = ("allow", "warn", "error")
MOST_TOLD: Final = 256
"""Sets of reasons that are remembered as told; beyond them the oldest is forgotten, and may be told again."""

_NUMBER: Final = re.compile(r"\d+")

_lock = threading.Lock()
_told: dict[Hashable, None] = {}


class FellToGeneral(ValueError):
    """A call fell to the general implementation, and the op's ``when_general`` is ``error``.

    Attributes:
        op: Name of the op class.
        interface: The interface.
        call: The call, with the facts of its device.
        explanation: What every implementation said.
    """

    def __init__(self, op: str, interface: str, call: object, explanation: Explanation) -> None:
        super().__init__(_text(op, interface, call, explanation))
        self.op = op
        self.interface = interface
        self.call = call
        self.explanation = explanation


class FellToGeneralWarning(RuntimeWarning):
    """A call fell to the general implementation, and the op's ``when_general`` is ``warn``."""


def mode() -> Mode:
    """What the environment says.

    Raises:
        ValueError: the variable holds something else than one of the three modes.
    """
    return named(VARIABLE, os.environ.get(VARIABLE) or "allow")


def named(where: str, value: object) -> Mode:
    """*value*, which stands in *where*, as a mode.

    Raises:
        ValueError: it is none.
    """
    for each in MODES:
        if value == each:
            return each
    raise ValueError(
        f"{where} is {value!r}: set it to allow (the default; calls may fall to the general implementation), "
        f"warn (a warning, once for each set of reasons) or error"
    )


def fallen(op: str, interface: str, selector: Selector, resolved: Any, how: Mode) -> None:
    """Warn or raise about *resolved*, for which the general implementation was chosen.

    Nothing is said where no specialised implementation can run on the call's device.

    Raises:
        FellToGeneral: *how* is ``error``.
    """
    explanation = selector.explain(resolved)
    if not explanation.fell_to_general:
        return
    if how == "error":
        raise FellToGeneral(op, interface, resolved, explanation)
    if _is_news((op, interface, _reasons(explanation))):
        text = _text(op, interface, resolved, explanation)
        warnings.warn(text, FellToGeneralWarning, stacklevel=outside_stacklevel())


def _reasons(explanation: Explanation) -> Hashable:
    """The reasons without the values of the call: templates, or else texts without their numbers."""
    return tuple(
        (entry.key, entry.templates or tuple(_NUMBER.sub("#", reason) for reason in entry.reasons))
        for entry in explanation.entries
        if entry.status == "refuses"
    )


def _is_news(reasons: Hashable) -> bool:
    with _lock:
        if reasons in _told:
            return False
        while len(_told) >= MOST_TOLD:
            del _told[next(iter(_told))]
        _told[reasons] = None
        return True


def _text(op: str, interface: str, call: object, explanation: Explanation) -> str:
    refusing = "".join(f"\n  {entry}" for entry in explanation.entries if entry.status == "refuses")
    return (
        f"{op}.{interface}: {call!r} fell to the general implementation {explanation.winner}:{refusing}\n"
        f"change the call, add an implementation for it, or accept it with {VARIABLE}=allow or "
        f'op.when_general = "allow"'
    )
