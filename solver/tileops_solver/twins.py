"""Pairs of calls that differ in one field: a domain in which a call has that field twice.

The second reading stands under the field's name with a prime, in a slot of its own for each of the field's, so
that a question about two calls is asked like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tileops_rules.domain import Domain
from tileops_rules.expr import Expr, Path
from tileops_rules.shapes import Shape, Slot
from tileops_rules.substituting import renamed

__all__ = ["Pair", "TwinDomain"]


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two calls that differ in one field at most."""

    one: Any
    other: Any


class TwinDomain(Domain):
    """The pairs of calls of a domain that agree in every field but one.

    Attributes:
        plain: The domain.
        field: The field.
    """

    def __init__(self, plain: Domain, field: str) -> None:
        """No annotation is read again: fields and slots are those of *plain*, and copies of *field*'s."""
        self.plain = plain
        self.field = field
        self.spec = plain.spec
        self.device_types, self.archs = plain.device_types, plain.archs
        self._primed = f"{field}'"
        shape = plain.fields[field]
        self.fields = {**plain.fields, self._primed: self._moved(shape)}
        self._paths = {slot.path: self._path(slot.path) for slot in shape.slots()}
        self.slots = {**plain.slots, **{self._paths[s.path]: self._moved(s) for s in shape.slots()}}
        self.links = plain.links

    def other(self, expr: Expr) -> Expr:
        """The question *expr* of a call, asked of the second one."""
        return renamed(expr, self._paths)

    def build(self, values: Mapping[Path, Any]) -> Any:
        """The pair with these slot values; what the second reading leaves out is as in the first."""
        one = {path: value for path, value in values.items() if path[0] != self._primed}
        second = {path: values[twin] for path, twin in self._paths.items() if twin in values}
        return Pair(self.plain.build(one), self.plain.build({**one, **second}))

    def read(self, call: Any) -> dict[Path, Any]:
        """The slot values of a pair."""
        values = self.plain.read(call.one)
        second = self.plain.read(call.other)
        return {**values, **{twin: second[path] for path, twin in self._paths.items() if path in second}}

    def _path(self, path: Path) -> Path:
        return (self._primed, *path[1:])

    def _moved(self, part: Any) -> Any:
        """A copy of a shape or slot that stands under the primed name."""
        if isinstance(part, Shape | Slot):
            moved = {f.name: self._moved(getattr(part, f.name)) for f in dataclasses.fields(part) if f.name != "path"}
            return dataclasses.replace(part, path=self._path(part.path), **moved)
        if isinstance(part, Mapping):
            return {name: self._moved(each) for name, each in part.items()}
        if isinstance(part, tuple) and any(isinstance(each, Shape) for each in part):
            return tuple(self._moved(each) for each in part)
        return part
