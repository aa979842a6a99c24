"""A call of which nothing is known but its class: what a rule is handed while it is lifted."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from tileops_rules.expr import Path
from tileops_rules.outcome import Fill
from tileops_rules.shapes import Shape
from tileops_rules.standin import Asks
from tileops_rules.views import Views

__all__ = ["ExploresCalls", "GivenUp", "SymbolicCall"]


class ExploresCalls(Asks, Protocol):
    """What a symbolic call needs of the explorer."""

    views: Views

    def symbol(self, shape: Shape) -> Any:
        """The stand-in of a field."""


class GivenUp(BaseException):
    """Ends a path that cannot be lifted; a rule's ``except Exception`` does not catch it."""


class SymbolicCall:
    """A call of which nothing is known but its class."""

    __slots__ = ("__explorer", "__fields", "__spec")

    def __init__(self, explorer: ExploresCalls, spec: type, fields: dict[str, Shape]) -> None:
        set_slot = object.__setattr__
        set_slot(self, "_SymbolicCall__explorer", explorer)
        set_slot(self, "_SymbolicCall__spec", spec)
        set_slot(self, "_SymbolicCall__fields", fields)

    @staticmethod
    def __views__(call: SymbolicCall) -> tuple[Views, type]:
        """The views and the class of a symbolic call, for ``super()`` in its properties."""
        return call.__explorer.views, call.__spec

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        spec: type = self.__spec
        return spec

    def __getattr__(self, name: str) -> Any:
        if name in self.__fields:
            return self.__explorer.symbol(self.__fields[name])
        if name == "__dict__" or name in getattr(self.__spec, "__dataclass_fields__", {}):
            self.__explorer.refuse(f"{self.__spec.__name__}.{name} is read, which is not a field that __init__ takes")
        return self.__explorer.views.attribute(self.__spec.__mro__, name, self, self.__spec)

    def __refuse(self, operation: str) -> NoReturn:
        explorer: ExploresCalls = self.__explorer
        explorer.refuse(f"the whole call is passed to {operation}: ask for its fields instead")

    def __bool__(self) -> bool:
        for name in ("__bool__", "__len__"):
            if getattr(self.__spec, name, None) is not None:
                return bool(self.__getattr__(name)())
        return True

    def __len__(self) -> int:
        length: int = self.__getattr__("__len__")()
        return length

    def __eq__(self, other: object) -> bool:
        self.__refuse("==")

    def __ne__(self, other: object) -> bool:
        self.__refuse("!=")

    def __hash__(self) -> int:
        self.__refuse("hash()")

    def __setattr__(self, name: str, value: Any) -> None:
        self.__refuse(f"a store to {name}")

    def __delattr__(self, name: str) -> None:
        self.__refuse(f"a deletion of {name}")

    def __format__(self, spec: str) -> str:
        text: str = self.__explorer.mark(Fill("object", "call", (), self.__at(), "", spec))
        return str.__str__(text)

    def __str__(self) -> str:
        text: str = self.__explorer.mark(Fill("object", "call", (), self.__at(), "s"))
        return text

    def __repr__(self) -> str:
        text: str = self.__explorer.mark(Fill("object", "call", (), self.__at(), "r"))
        return text

    def __at(self) -> Path:
        first = next(iter(self.__fields.values()), None)
        return () if first is None else first.path[:-1]


class _Refused:
    """Answers ``hasattr(type(call), '__dataclass_fields__')`` aloud, which ``dataclasses.replace`` asks."""

    def __get__(self, call: Any, owner: Any = None) -> NoReturn:
        if call is not None:
            call._SymbolicCall__refuse("dataclasses (replace, asdict or fields)")
        raise GivenUp


SymbolicCall.__dataclass_fields__ = _Refused()  # type: ignore[attr-defined]
