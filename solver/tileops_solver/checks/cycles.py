"""Are any implementations preferred over each other in a circle? And the other errors of such a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops_solver.findings import Finding
from tileops_solver.order import cycles, preference_graph
from tileops_solver.places import class_place

__all__ = ["table_findings"]


def table_findings(op: str, interface: str, classes: Mapping[str, Any], error: Exception) -> tuple[Finding, ...]:
    """Why no selector can be made of an interface.

    Args:
        op: Name of the op.
        interface: Name of the interface.
        classes: Its implementations by key.
        error: What making the selector raised.

    Returns:
        A finding for each circle of preferences, or one with the error's own message.
    """
    preferred = {key: frozenset(getattr(kind, "preferred_over", ())) & classes.keys() for key, kind in classes.items()}
    circles = cycles(preference_graph(preferred))
    if circles:
        return tuple(_circle(op, interface, keys, classes) for keys in circles)
    keys = tuple(key for key in getattr(error, "keys", ()) if key in classes)
    places = tuple(_place(classes[key]) for key in keys)
    return (Finding(getattr(error, "kind", "contract"), keys, None, str(error), places, op, interface),)


def _circle(op: str, interface: str, keys: tuple[str, ...], classes: Mapping[str, Any]) -> Finding:
    places = tuple(_place(classes[key]) for key in keys)
    shown = "; ".join(f"{key} at {place}" for key, place in zip(keys, places, strict=True))
    message = (
        f"{op}.{interface}: preferences form a cycle through {', '.join(keys)}: "
        f"remove one of their preferred_over entries ({shown})"
    )
    return Finding("cycle", keys, None, message, places, op, interface)


def _place(kind: Any) -> str:
    code = getattr(getattr(getattr(kind, "refusal", None), "__func__", None), "__code__", None)
    return class_place(kind, f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "<unknown>:0")
