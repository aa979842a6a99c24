"""Many calls of one class, fast: all but a few fields as in one of some calls that were built before."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Path, paths_of
from tileops_rules.pools import Pools
from tileops_rules.shapes import OneSlot, RecordShape, Shape, nearest_inside

__all__ = ["CallMaker", "consistent", "keeps_its_values"]

Made = tuple[Any, Mapping[Path, Any]]


class CallMaker:
    """Builds calls that differ in the slots of *read* from one of some base calls.

    Args:
        domain: The class and what its slots range over.
        read: The slots that are given with each call.
        seed: Chooses the values of the others.
        bases: How many base calls there are.
    """

    def __init__(self, domain: Domain, read: Sequence[Path], seed: int, bases: int) -> None:
        self._domain = domain
        self._bases = _base_values(domain, seed, bases)
        names = dict.fromkeys(str(path[0]) for path in read)
        moving = {name: domain.fields[name] for name in names}
        self._single = [(name, shape.path) for name, shape in moving.items() if isinstance(shape, OneSlot)]
        self._composite = [(name, shape) for name, shape in moving.items() if not isinstance(shape, OneSlot)]
        self.call: Callable[[int, Mapping[Path, Any]], Made | None] = self._built
        """``call(base, values)``: the call and its slot values, or None where the class does not take them."""
        if keeps_its_values(domain):
            self._held = [vars(call) for call in _base_calls(domain, seed, bases)]
            self.call = self._copied

    def _built(self, base: int, values: Mapping[Path, Any]) -> Made | None:
        """By the class itself, whose values are read back: it may reject or change what it is given."""
        try:
            call = self._domain.build({**self._bases[base], **values})
            return call, self._domain.read(call)
        except Exception:  # noqa: BLE001 - such a call is no witness of anything
            return None

    def _copied(self, base: int, values: Mapping[Path, Any]) -> Made | None:
        call = object.__new__(self._domain.spec)
        held = call.__dict__
        held.update(self._held[base])
        for name, path in self._single:
            held[name] = values[path]
        if self._composite:
            every = {**self._bases[base], **values}
            for name, shape in self._composite:
                held[name] = shape.build(every)
        return call, values


@functools.lru_cache(64)
def keeps_its_values(domain: Domain) -> bool:
    """Whether calls hold exactly what they are given: the class adds nothing to what ``@dataclass`` wrote."""
    return all(map(_is_plain, [domain.spec, *_records(domain.fields.values())]))


def _records(shapes: Any) -> list[type]:
    found: list[type] = []
    for shape in shapes:
        inner = _inner(shape)
        found += [*([shape.cls] if isinstance(shape, RecordShape) else []), *_records(inner)]
    return found


def _inner(shape: Shape) -> list[Shape]:
    parts: list[Shape] = []
    for name in ("parts", "items", "options"):
        held = getattr(shape, name, ())
        parts += held.values() if isinstance(held, Mapping) else held
    return parts


def _is_plain(spec: Any) -> bool:
    written = getattr(spec.__init__, "__code__", None)
    names = {field.name for field in dataclasses.fields(spec)}
    return (
        written is not None
        and "__dataclass_builtins_object__" in written.co_freevars
        and all(field.init for field in dataclasses.fields(spec))
        and not hasattr(spec, "__post_init__")
        and spec.__new__ is object.__new__
        and spec.__getattribute__ is object.__getattribute__
        and not any(hasattr(type(inspect.getattr_static(spec, name, None)), "__get__") for name in names)
        and not any(vars(owner).get("__slots__") for owner in spec.__mro__)
    )


@functools.lru_cache(64)
def _base_values(domain: Domain, seed: int, count: int) -> tuple[dict[Path, Any], ...]:
    """Sets of values for all slots: half of them at their defaults, what the domain links in agreement."""
    draw = random.Random(seed)
    pools = Pools(domain, ())
    linked = paths_of(domain.links)
    made = []
    for _ in range(count):
        values = {
            path: nearest_inside(slot) if draw.random() < 0.5 else draw.choice(pools[path].values)
            for path, slot in domain.slots.items()
        }
        if linked:
            values.update(zip(linked, draw.choice(consistent(domain, linked, ())), strict=True))
        made.append(values)
    return tuple(made)


@functools.lru_cache(64)
def _base_calls(domain: Domain, seed: int, count: int) -> tuple[Any, ...]:
    return tuple(domain.build(values) for values in _base_values(domain, seed, count))


@functools.lru_cache(1024)
def consistent(
    domain: Domain, linked: tuple[Path, ...], wanted: tuple[tuple[Path, tuple[Any, ...]], ...]
) -> tuple[tuple[Any, ...], ...]:
    """All values of the slots that the domain ties together, in agreement; of *wanted* ones only those."""
    only = dict(wanted)
    options = itertools.product(*(only.get(path, domain.slots[path].values) for path in linked))
    return tuple(row for row in options if evaluate(domain.links, dict(zip(linked, row, strict=True))))
