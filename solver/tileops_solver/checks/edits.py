"""The lines that settle a finding, as one would write them."""

from __future__ import annotations

from collections.abc import Iterable

from tileops_rules import Selector

__all__ = ["class_name", "listed", "preference", "stated_preferences"]


def stated_preferences(selector: Selector, key: str) -> frozenset[str]:
    """The keys that an implementation's class prefers itself over, those of other interfaces included."""
    candidate = selector.candidate(key)
    return frozenset(getattr(candidate.implementation, "preferred_over", candidate.preferred_over))


def preference(keys: Iterable[str]) -> str:
    """The line that makes a class preferred over *keys* and over nothing else."""
    shown = ", ".join(f'"{key}"' for key in sorted(keys))
    return f"preferred_over = frozenset({{{shown}}})" if shown else "preferred_over = frozenset()"


def class_name(selector: Selector, key: str) -> str:
    """The class of an implementation as one would look for it; the key where there is none."""
    kind = selector.candidate(key).implementation
    return key if kind is None else kind.__name__


def listed(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
