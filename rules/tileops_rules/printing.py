"""How expressions read: one row a node kind, in the spelling that a rule's author would use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tileops_rules.expr import Expr, Path

__all__ = ["PRINT", "slot_text", "value_text"]


def slot_text(path: Path) -> str:
    """A slot as a reader would write it: ``shape[0]``, ``tile.rows``, ``device.type``.

    A step in angle brackets names an alternative of a union, which Python does not write.
    """
    text = str(path[0])
    for step in path[1:]:
        if isinstance(step, str) and step.startswith("<"):
            continue
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


def _print_sum(e: Expr) -> str:
    c0, coefficients = e.data
    text = ""
    for atom, c in zip(e.args, coefficients, strict=True):
        body = _wrapped(atom) if abs(c) == 1 else f"{abs(c)}*{_wrapped(atom)}"
        text += (f" {'-' if c < 0 else '+'} " if text else ("-" if c < 0 else "")) + body
    return text + (f" {'-' if c0 < 0 else '+'} {abs(c0)}" if c0 else "")


def _wrapped(e: Expr) -> str:
    return f"({e})" if e.kind in ("sum", "product", "floordiv", "mod", "and", "or") else str(e)


def value_text(value: object) -> str:
    """A constant as a reader would write it."""
    return str(value) if type(value).__module__ == "torch" else repr(value)


def _print_among(e: Expr, positive: bool = True) -> str:
    path, values = e.data
    name = slot_text(path)
    if len(values) == 1:
        return f"{name} {'==' if positive else '!='} {value_text(values[0])}"
    return f"{name} {'in' if positive else 'not in'} ({', '.join(map(value_text, values))})"


def _print_not(e: Expr) -> str:
    inner = e.args[0]
    if inner.kind == "at_most":
        return f"{inner.args[0]} >= {inner.data + 1}"
    if inner.kind == "equals":
        return f"{inner.args[0]} != {inner.data}"
    if inner.kind == "among":
        return _print_among(inner, positive=False)
    if inner.kind == "str_is":
        return f"{slot_text(inner.data[0])} != {inner.data[1]!r}"
    return f"~({inner})"


def _print_float(e: Expr) -> str:
    path, comparison, value = e.data
    return f"isnan({slot_text(path)})" if comparison == "nan" else f"{slot_text(path)} {comparison} {value!r}"


PRINT: Final[Mapping[str, Callable[[Expr], str]]] = {
    "const": lambda e: str(e.data),
    "int": lambda e: slot_text(e.data),
    "sum": _print_sum,
    "product": lambda e: "*".join(_wrapped(a) for a in e.args),
    "floordiv": lambda e: f"{_wrapped(e.args[0])} // {_wrapped(e.args[1])}",
    "mod": lambda e: f"{_wrapped(e.args[0])} % {_wrapped(e.args[1])}",
    "abs": lambda e: f"abs({e.args[0]})",
    "bit_length": lambda e: f"{_wrapped(e.args[0])}.bit_length()",
    "truth": lambda e: str(e.data),
    "at_most": lambda e: f"{e.args[0]} <= {e.data}",
    "equals": lambda e: f"{e.args[0]} == {e.data}",
    "among": _print_among,
    "float_is": _print_float,
    "str_is": lambda e: f"{slot_text(e.data[0])} == {e.data[1]!r}",
    "not": _print_not,
    "and": lambda e: " & ".join(_wrapped(a) for a in e.args),
    "or": lambda e: " | ".join(_wrapped(a) for a in e.args),
}
