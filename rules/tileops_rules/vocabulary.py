"""What the slots of a domain and their values are called in texts, and the error for a text that means nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from tileops_rules.errors import RuleError
from tileops_rules.expr import Path
from tileops_rules.printing import path_text, value_text
from tileops_rules.shapes import Slot

__all__ = ["WORD", "HasSlots", "ParseError", "Vocabulary"]

WORD: Final = re.compile(r"[^\W\d]\w*")
"""A name as Python has them."""


class HasSlots(Protocol):
    """What a text speaks of: a :class:`~tileops_rules.domain.Domain`, or anything with its slots."""

    @property
    def slots(self) -> Mapping[Path, Slot]:
        """Path to slot."""


class ParseError(RuleError, ValueError):
    """A text is no expression over its domain.

    Attributes:
        text: The text.
        position: Where in it, counted from 0.
        problem: What is wrong there.
    """

    def __init__(self, text: str, position: int, problem: str) -> None:
        near = text[max(0, position - 30) : position + 30]
        super().__init__(f"{near!r} cannot be read, at character {position} of {len(text)}: {problem}")
        self.text = text
        self.position = position
        self.problem = problem


class Vocabulary:
    """What slots and values are called in the texts over one domain."""

    def __init__(self, domain: HasSlots) -> None:
        self._slots: dict[str, list[tuple[str, Slot]]] = {}
        self._values: dict[Path, list[tuple[str, Any]]] = {}
        taken: dict[str, Path] = {}
        for path, slot in domain.slots.items():
            text = path_text(path)
            if text in taken:
                raise ParseError(text, 0, f"two slots read {text}: {taken[text]!r} and {path!r}")
            taken[text] = path
            self._slots.setdefault(str(path[0]), []).append((text, slot))
        for named in self._slots.values():
            named.sort(key=lambda each: -len(each[0]))

    def slot(self, text: str, at: int) -> tuple[str, Slot] | None:
        """The slot whose name stands at a place: the longest such name."""
        word = WORD.match(text, at)
        for name, slot in self._slots.get(word[0], ()) if word else ():
            end = at + len(name)
            if text.startswith(name, at) and not text[end : end + 1].isidentifier() and text[end : end + 1] != "(":
                return name, slot
        return None

    def value(self, slot: Slot, text: str, at: int) -> tuple[str, Any] | None:
        """The value of a finite slot that stands at a place: the one with the longest text."""
        values = self._values.get(slot.path)
        if values is None:
            values = [(value_text(value), value) for value in slot.values]
            if len({each for each, _ in values}) < len(values):
                raise ParseError(text, at, f"two values of {slot.name} read alike: {slot}")
            values.sort(key=lambda each: -len(each[0]))
            self._values[slot.path] = values
        return next(((name, value) for name, value in values if name and text.startswith(name, at)), None)
