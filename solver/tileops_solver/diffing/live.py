"""The real methods behind one side of a comparison: every call that is shown is put to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops_rules import InvalidCall, OutsideDomain, Selector
from tileops_rules.dispatching import check_valid, enforce_declared
from tileops_rules.domain import Outside
from tileops_rules.expr import Path, exact_key
from tileops_rules.printing import value_text

from tileops_solver.diffing.choices import NOBODY, TIE
from tileops_solver.real_methods import chosen_keys

__all__ = ["CannotBuild", "chosen_by_methods", "real_call"]


class CannotBuild(Exception):
    """The class of the calls rejects a call, for a reason that no rule knows."""


def real_call(selector: Selector, values: Mapping[Path, Any]) -> Any:
    """The call of *selector*'s own class that recorded *values* stand for.

    Raises:
        CannotBuild: the class rejects or changes them.
    """
    known: dict[Path, Any] = {}
    for path, slot in selector.domain.slots.items():
        if path in values:
            text = value_text(values[path])
            found = [v for v in slot.values if value_text(v) == text] if slot.sort == "finite" else [values[path]]
            if not found:
                raise CannotBuild(f"{slot.name} is never {text}")
            known[path] = found[0]
    name = selector.spec.__name__
    try:
        call = selector.domain.build(known)
        held = selector.domain.read(call)
    except Outside as outside:
        raise CannotBuild(f"{name} holds {outside.value!r} in {outside.slot.name}") from outside
    except Exception as error:
        raise CannotBuild(f"{name} raised {type(error).__name__}: {error}") from error
    if any(path in held and not _same(held[path], value) for path, value in known.items()):
        raise CannotBuild(f"{name} changed the values it was given")
    return call


def _same(left: Any, right: Any) -> bool:
    return exact_key(left) == exact_key(right) or bool(left != left and right != right)


def chosen_by_methods(selector: Selector, call: Any) -> str:
    """The key that wins among those whose methods serve *call*, or what there is in place of one."""
    try:
        enforce_declared(selector.domain, call)
        check_valid(selector.spec, call)
    except (OutsideDomain, InvalidCall):
        return NOBODY
    keys = chosen_keys(selector, call)
    return TIE if len(keys) > 1 else keys[0] if keys else NOBODY
