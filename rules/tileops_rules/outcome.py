"""What a rule does on a path: the value it returns, with the reason's template, or that it raises."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, exact_key

__all__ = ["MARK_END", "MARK_START", "Fill", "Outcome", "Returned", "Template", "Unrepeatable", "raised", "returned"]


@dataclass(frozen=True)
class Fill:
    """A place in a reason that is filled from the call.

    Attributes:
        source: ``expr`` (an integer expression), ``ratio`` (``args[0] / args[1]``), ``object`` (what stands at
            ``path``).
        text: How a reader would write it.
        conversion: ``r``, ``s`` or empty, as in a format string.
        spec: The format specification.
    """

    source: str
    text: str
    args: tuple[Expr, ...] = ()
    path: Path = ()
    conversion: str = ""
    spec: str = ""

    def __str__(self) -> str:
        conversion = f"!{self.conversion}" if self.conversion else ""
        return f"{{{self.text}{conversion}{':' + self.spec if self.spec else ''}}}"

    def value(self, call: Any, values: Mapping[Path, Any]) -> Any:
        """What is formatted there for *call*."""
        if self.source == "object":
            found = call
            for step in self.path:
                if isinstance(step, str) and step.startswith("<"):
                    continue
                found = found[step] if isinstance(step, int) else getattr(found, step)
            return found
        numbers = [evaluate(a, values) for a in self.args]
        return numbers[0] if self.source == "expr" else numbers[0] / numbers[1]

    def fill(self, call: Any, values: Mapping[Path, Any]) -> str:
        """The text that stands there for *call*."""
        value = self.value(call, values)
        if self.conversion == "r":
            value = repr(value)
        elif self.conversion == "s":
            value = str(value)
        return format(value, self.spec)


@dataclass(frozen=True)
class Template:
    """A text with places to fill."""

    parts: tuple[str | Fill, ...]

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def fill(self, call: Any, values: Mapping[Path, Any]) -> str:
        """The text for *call*, whose slots hold *values*."""
        return "".join(p if isinstance(p, str) else p.fill(call, values) for p in self.parts)


@dataclass(frozen=True)
class Returned:
    """A path ends in ``return value``.

    The value is a constant, a :class:`Template` or a :class:`Fill` to take as it is.
    """

    value: Any
    key: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Returned) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def serves(self) -> bool:
        """The rule serves the call."""
        return self.value is None

    def give(self, call: Any, values: Mapping[Path, Any]) -> Any:
        """What the rule returns for *call*."""
        if isinstance(self.value, Template):
            return self.value.fill(call, values)
        return self.value.value(call, values) if isinstance(self.value, Fill) else self.value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Raised:
    """A path ends in an exception of the rule's own."""

    type: type[BaseException]
    message: str

    serves = False

    def __str__(self) -> str:
        return f"{self.type.__name__}: {self.message}"


Outcome = Returned | Raised

_PLAIN: Final = (str, int, float, bool, bytes, type(None), enum.Enum)


MARK_START: Final = "\ue000"
MARK_END: Final = "\ue001"
"""Characters of the private use area around the number of a place, while a text is being made on a path."""


class Unrepeatable(Exception):
    """A returned value that is made afresh on each call and so cannot stand for the next one."""


def returned(value: Any, template: Callable[[str], Any]) -> Returned:
    """The outcome of ``return value``.

    Args:
        value: What the rule returned.
        template: Turns a text into a :class:`Template` where it holds marks, else returns it.

    Raises:
        Unrepeatable: the value is neither plain nor a tuple of plain values.
    """
    if isinstance(value, Fill):
        return Returned(value, ("fill", value))
    if type(value) is str:
        made = template(value)
        return Returned(made, ("text", made))
    if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value)):
        return Returned(value, exact_key(repr(value) if isinstance(value, float) else value))
    raise Unrepeatable(type(value).__name__)


def raised(error: BaseException, text: str) -> Raised:
    """The outcome of an exception, with its text."""
    return Raised(type(error), text)
