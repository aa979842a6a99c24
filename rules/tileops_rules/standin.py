"""What every stand-in for a field's value shares: it refuses aloud, and it formats as a place in a template."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NoReturn, Protocol

from tileops_rules.expr import Expr
from tileops_rules.outcome import MARK_START, Fill
from tileops_rules.shapes import IntShape, RecordShape, Slot

__all__ = ["FLOAT_ARITHMETIC", "TABLE_LIMIT", "Asks", "Mark", "StandIn", "refuse_all", "shown", "type_error"]

TABLE_LIMIT: Final = 64
"""Most values over which a subscript forks."""


class Asks(Protocol):
    """What stand-ins need of the explorer."""

    def decide(self, question: Expr) -> bool:
        """The answer on this path."""

    def ask(self, make: Any, *args: Any) -> bool:
        """The answer to the question ``make(*args)``."""

    def combined(self, combine: Any, left: Expr, right: Expr | int, swap: bool) -> Any:
        """The stand-in, or the number, of ``combine(left, right)``, the other way round where *swap* says so."""

    def unwatched(self, make: Any, *args: Any) -> Any:
        """``make(*args)``, this package's own work."""

    def pick(self, slot: Slot) -> Any:
        """The value of a finite slot on this path."""

    def remaining(self, expr: Expr) -> list[int] | None:
        """The few values an expression may still have, or None where they are many."""

    def refuse(self, cause: str) -> NoReturn:
        """Give the rule up at the place in it that is running."""

    def give_up(self, file: str, line: int, cause: str) -> NoReturn:
        """Give the rule up at a place that is not running."""

    def mark(self, fill: Fill) -> Any:
        """A text that stands for a place in a reason."""

    def integer(self, shape: IntShape) -> Any:
        """The stand-in of an integer slot."""

    def record(self, shape: RecordShape) -> Any:
        """The stand-in of a nested call spec."""


class StandIn:
    """Base of every stand-in."""

    __slots__ = ("_asks",)
    _asks: Asks
    _sample: Any = 0
    """A value of the type stood for: what Python refuses to format, it refuses for this one."""

    def _fill(self, conversion: str, spec: str) -> Fill:
        raise TypeError(type(self))

    def _name(self) -> str:
        return self._fill("", "").text

    def _mark(self, conversion: str, spec: str = "") -> str:
        text: str = self._asks.mark(self._fill(conversion, spec))
        return text

    def __format__(self, spec: str) -> str:
        if type(spec) is str and MARK_START in spec:
            self._asks.refuse(f"{self._name()} is formatted with a width or precision that is itself a field")
        format(self._sample, spec)
        return str.__str__(self._mark("", spec))

    def __str__(self) -> str:
        return self._mark("s")

    def __repr__(self) -> str:
        return self._mark("r")

    def __hash__(self) -> int:
        self._asks.refuse(
            f"{self._name()} is hashed, by a set or dict that is not one of at most {TABLE_LIMIT} constants "
            f"reached as a literal, global, closure variable or class attribute"
        )


def shown(value: Any) -> str:
    """A value in a message: of a stand-in its name, since making its text would be watched as the rule's own doing."""
    return value._name() if issubclass(type(value), StandIn) else str(value)


class Mark(str):
    """The text of a field: it can be put into a reason and formatted, but not looked at."""

    asks: Asks
    fill: Fill

    def __format__(self, spec: str) -> str:
        return str.__str__(self.asks.mark(dataclasses.replace(self.fill, spec=spec))) if spec else str.__str__(self)

    def __look(self, *_args: object) -> NoReturn:
        self.asks.refuse(f"the text of {self.fill.text} is looked at: compare the field itself")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __len__ = __getitem__ = __iter__ = __contains__ = __look

    def __hash__(self) -> int:
        self.__look()


def _refusal(operation: str) -> Any:
    def refuse(self: StandIn, *_args: Any, **_more: Any) -> NoReturn:
        self._asks.refuse(f"{self._name()} is passed to {operation}, which has no symbolic answer")

    return refuse


def refuse_all(cls: type, names: dict[str, str]) -> None:
    """Make a stand-in class refuse each operation of *names* (method to how it reads)."""
    for name, operation in names.items():
        setattr(cls, name, _refusal(operation))


def type_error(operator: str, left: str, right: Any) -> TypeError:
    """What Python raises where two kinds of value have no order."""
    return TypeError(f"'{operator}' not supported between instances of '{left}' and '{_class_of(right).__name__}'")


def _class_of(value: Any) -> type:
    found: type = value.__class__
    return found


FLOAT_ARITHMETIC: Final = {
    f"__{r}{name}__": text
    for name, text in {
        "add": "+",
        "sub": "-",
        "mul": "*",
        "truediv": "/",
        "floordiv": "//",
        "mod": "%",
        "pow": "**",
        "divmod": "divmod()",
    }.items()
    for r in ("", "r")
} | {
    "__neg__": "-",
    "__pos__": "+",
    "__abs__": "abs()",
    "__int__": "int()",
    "__float__": "float() or math",
    "__round__": "round()",
    "__trunc__": "math.trunc()",
    "__floor__": "math.floor()",
    "__ceil__": "math.ceil()",
}
