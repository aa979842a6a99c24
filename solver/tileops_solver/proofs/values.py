"""Slot values as they stand in a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops_rules.domain import Domain
from tileops_rules.expr import Path
from tileops_rules.fingerprint import NotSpelled, spelled
from tileops_rules.printing import path_text
from tileops_rules.shapes import Slot

__all__ = ["read_values", "written_values"]


def written_values(values: Mapping[Path, Any], domain: Domain) -> dict[str, Any] | None:
    """The values of some slots for a file, in the order of the domain; None where one has no exact spelling.

    Integers and texts stand as they are; a float as the text that gives it back, infinities and NaN too; one of
    finitely many values by its exact spelling.
    """
    try:
        return {path_text(path): _written(slot, values[path]) for path, slot in domain.slots.items() if path in values}
    except NotSpelled:
        return None


def _written(slot: Slot, value: Any) -> Any:
    if slot.sort == "finite":
        return spelled(value)
    return repr(value) if slot.sort == "float" else value


def read_values(held: Mapping[str, Any], domain: Domain) -> dict[Path, Any] | None:
    """The slot values that :func:`written_values` wrote; None where a slot or its value is unknown.

    An integer or a float may be outside its slot: a call that is built of them is looked at by itself.
    """
    slots = {path_text(path): slot for path, slot in domain.slots.items()}
    found: dict[Path, Any] = {}
    for name, written in held.items():
        slot = slots.get(name)
        if slot is None:
            return None
        try:
            found[slot.path] = _value(slot, written)
        except (NotSpelled, ValueError, TypeError):
            return None
    return found


def _value(slot: Slot, written: Any) -> Any:
    """The value of a slot.

    Raises:
        ValueError: *written* is none of its values.
        TypeError: *written* cannot be a float.
    """
    if slot.sort == "finite":
        for value in slot.values:
            if spelled(value) == written:
                return value
        raise ValueError(written)
    return float(written) if slot.sort == "float" else written
