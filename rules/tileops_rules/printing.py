"""How expressions read: one row a node kind, in the spelling that a rule's author would use.

No two expressions over one domain read alike: :mod:`tileops_rules.parsing` reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tileops_rules.expr import Expr, Path

__all__ = ["PRINT", "path_text", "slot_text", "value_text"]

Say = Callable[["Expr"], str]
"""Gives the text of an argument: ``str``, or the name that stands for it."""


def slot_text(path: Path) -> str:
    """A slot as a reader would write it: ``shape[0]``, ``tile.rows``, ``device.type``.

    The alternative of a union to which it belongs is left out, since Python does not write it.
    """
    return path_text([step for step in path if not (isinstance(step, str) and step.startswith("<"))])


def path_text(path: Path | list[str | int]) -> str:
    """A slot under a text that no other slot has: as :func:`slot_text`, and ``x.<float>`` in a union."""
    text = str(path[0])
    for step in path[1:]:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


def value_text(value: object) -> str:
    """A constant as a reader would write it."""
    return str(value) if type(value).__module__ == "torch" else repr(value)


def _wrapped(e: Expr, say: Say) -> str:
    text = say(e)
    named = text.startswith("$") and text[1:].isalnum()
    compound = e.kind in ("sum", "product", "floordiv", "mod", "and", "or")
    return f"({text})" if compound and not named else text


def _print_sum(e: Expr, say: Say) -> str:
    c0, coefficients = e.data
    text = ""
    for atom, c in zip(e.args, coefficients, strict=True):
        body = _wrapped(atom, say) if abs(c) == 1 else f"{abs(c)}*{_wrapped(atom, say)}"
        text += (f" {'-' if c < 0 else '+'} " if text else ("-" if c < 0 else "")) + body
    return text + (f" {'-' if c0 < 0 else '+'} {abs(c0)}" if c0 else "")


def _print_among(e: Expr, say: Say, positive: bool = True) -> str:
    path, values = e.data
    name = path_text(path)
    if len(values) == 1:
        return f"{name} {'==' if positive else '!='} {value_text(values[0])}"
    return f"{name} {'in' if positive else 'not in'} ({', '.join(map(value_text, values))})"


def _print_str(e: Expr, say: Say, positive: bool = True) -> str:
    path, text = e.data
    return f"{path_text(path)} {'==' if positive else '!='} {str.__repr__(text)}"


def _print_not(e: Expr, say: Say) -> str:
    inner = e.args[0]
    if inner.kind == "at_most":
        return f"{say(inner.args[0])} >= {inner.data + 1}"
    if inner.kind == "equals":
        return f"{say(inner.args[0])} != {inner.data}"
    if inner.kind == "among":
        return _print_among(inner, say, positive=False)
    if inner.kind == "str_is":
        return _print_str(inner, say, positive=False)
    return f"~({say(inner)})"


def _print_float(e: Expr, say: Say) -> str:
    path, comparison, value = e.data
    return f"isnan({path_text(path)})" if comparison == "nan" else f"{path_text(path)} {comparison} {float(value)!r}"


PRINT: Final[Mapping[str, Callable[[Expr, Say], str]]] = {
    "const": lambda e, say: str(e.data),
    "int": lambda e, say: path_text(e.data),
    "sum": _print_sum,
    "product": lambda e, say: "*".join(_wrapped(a, say) for a in e.args),
    "floordiv": lambda e, say: f"{_wrapped(e.args[0], say)} // {_wrapped(e.args[1], say)}",
    "mod": lambda e, say: f"{_wrapped(e.args[0], say)} % {_wrapped(e.args[1], say)}",
    "abs": lambda e, say: f"abs({say(e.args[0])})",
    "bit_length": lambda e, say: f"{_wrapped(e.args[0], say)}.bit_length()",
    "truth": lambda e, say: str(e.data),
    "at_most": lambda e, say: f"{say(e.args[0])} <= {e.data}",
    "equals": lambda e, say: f"{say(e.args[0])} == {e.data}",
    "among": _print_among,
    "float_is": _print_float,
    "str_is": _print_str,
    "not": _print_not,
    "and": lambda e, say: " & ".join(_wrapped(a, say) for a in e.args),
    "or": lambda e, say: " | ".join(_wrapped(a, say) for a in e.args),
}
