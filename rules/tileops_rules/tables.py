"""Sets, dicts and lists that a rule reaches: looked up by equality instead of by hash, and never changed."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Final, NoReturn, Protocol

from tileops_rules.integers import IntSymbol
from tileops_rules.standin import TABLE_LIMIT, Asks, shown
from tileops_rules.symbols import StrSymbol, symbols_in

__all__ = ["DictView", "ListView", "SetView", "ViewsInside"]


class ViewsInside(Protocol):
    """What a table's view needs of the views it belongs to."""

    asks: Asks

    def inner(self, real: Any) -> Any:
        """The view of a value found inside another."""


class _Table:
    """Shared by the views of sets and dicts: look-ups by equality instead of by hash."""

    def __init__(self, views: ViewsInside, real: Any) -> None:
        self._views = views
        self._real = real

    def _holds(self, wanted: Any) -> bool:
        if not any(True for _ in symbols_in(wanted)):
            return wanted in self._real
        if len(self._real) > TABLE_LIMIT:
            self._views.asks.refuse(
                f"{shown(wanted)} is looked for among {len(self._real)} constants, "
                f"more than the {TABLE_LIMIT} that lift"
            )
        return any(wanted == element for element in _ordered(self._real))

    def __contains__(self, wanted: Any) -> bool:
        return self._holds(wanted)

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[Any] = iter(self._real)
        return found

    def __len__(self) -> int:
        return len(self._real)

    def __bool__(self) -> bool:
        return bool(self._real)

    def __eq__(self, other: object) -> bool:
        return bool(self._real == (other._real if isinstance(other, _Table) else other))

    def __hash__(self) -> int:
        return hash(self._real)

    def __repr__(self) -> str:
        return repr(self._real)

    def __getattr__(self, name: str) -> Any:
        if name in _MUTATORS:
            self._refuse_change(name)
        found = getattr(self._real, name)
        if not callable(found):
            return found
        return lambda *args: self._views.inner(found(*(getattr(a, "_real", a) for a in args)))

    def _refuse_change(self, operation: str) -> NoReturn:
        asks: Asks = self._views.asks
        asks.refuse(f"{self._real!r} is changed, by {operation}: a rule is a function of the call alone")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse_change("item assignment")

    def __delitem__(self, key: Any) -> None:
        self._refuse_change("item deletion")

    def __reversed__(self) -> Iterator[Any]:
        found: Iterator[Any] = reversed(self._real)
        return found


_MUTATORS: Final = (
    frozenset(
        name
        for kind in (list, set, dict)
        for name in vars(kind)
        if name not in vars(tuple) and name not in vars(frozenset) and not name.startswith("__")
    )
    - {"get", "items", "keys", "values", "fromkeys"}
) | {"__ior__", "__iand__", "__isub__", "__ixor__", "__iadd__", "__imul__"}
"""Methods of lists, sets and dicts that change them."""


def _operator(name: str) -> Any:
    def operate(self: _Table, other: Any) -> Any:
        method = getattr(self._real, name, None)
        found = NotImplemented if method is None else method(getattr(other, "_real", other))
        return found if found is NotImplemented or isinstance(found, bool) else self._views.inner(found)

    return operate


for _name in ["or", "and", "sub", "xor", "ror", "rand", "rsub", "rxor", "lt", "le", "gt", "ge"]:
    setattr(_Table, f"__{_name}__", _operator(f"__{_name}__"))


def _in_place(name: str) -> Any:
    def refuse(self: _Table, _other: Any) -> NoReturn:
        self._refuse_change(name)

    return refuse


for _name in ["ior", "iand", "isub", "ixor"]:
    setattr(_Table, f"__{_name}__", _in_place(f"__{_name}__"))


class ListView(list[Any]):
    """A list that the rule reaches; it cannot be changed."""

    asks: Asks


def _refuses(name: str) -> Any:
    def refuse(self: ListView, *_args: Any, **_more: Any) -> NoReturn:
        self.asks.refuse(f"the list {list(self)!r} is changed, by {name}: a rule is a function of the call alone")

    return refuse


for _name in [*sorted(_MUTATORS), "__setitem__", "__delitem__"]:
    if hasattr(list, _name):
        setattr(ListView, _name, _refuses(_name))


def _ordered(elements: Any) -> list[Any]:
    """Elements in an order that does not depend on hash seeds."""
    found = list(elements)
    return (
        found
        if isinstance(elements, dict | types.MappingProxyType)
        else sorted(found, key=lambda e: (type(e).__name__, repr(e)))
    )


class SetView(_Table):
    """A set or frozenset."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)


class DictView(_Table):
    """A dict or a read-only view of one."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def __getitem__(self, key: Any) -> Any:
        return self._views.inner(self._real[self._pinned(key)])

    def get(self, key: Any, default: Any = None) -> Any:
        return self._views.inner(self._real.get(self._pinned(key), default))

    def values(self) -> list[Any]:
        return [self._views.inner(value) for value in self._real.values()]

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, self._views.inner(value)) for key, value in self._real.items()]

    def _pinned(self, key: Any) -> Any:
        """*key* with its stand-ins forked over the few values that they may still have."""
        if type(key) is tuple:
            return tuple(self._pinned(k) for k in key)
        if type(key) is IntSymbol:
            values = self._views.asks.remaining(key._expr)
            if values is None:
                self._views.asks.refuse(
                    f"{shown(key)} is the key of a dict and may still have more than {TABLE_LIMIT} values here: "
                    f"ask `in` first, or compare it with the keys"
                )
            return next(v for v in values if key == v)
        if type(key) is StrSymbol:
            return next((k for k in _ordered(self._real) if type(k) is str and key == k), _Absent(key))
        return key


class _Absent:
    """A key that equals none of a dict's."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return repr(self._shown)
