"""Which mutants are asked about: all of them, a share of each module, a shard; and what a sample says of the whole."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from mutants import Mutant

__all__ = ["interval", "sample", "shard"]

LEAST = 1
"""Mutants that every module has in a sample, where it has as many."""


def sample(by_module: Mapping[str, Sequence[Mutant]], size: int | None, seed: int) -> list[Mutant]:
    """*size* mutants, of each module in proportion to how many it has, and at least one; all where it is None."""
    total = sum(map(len, by_module.values()))
    draw = random.Random(seed)
    chosen: list[Mutant] = []
    for module in sorted(by_module):
        mutants = by_module[module]
        count = len(mutants) if size is None else max(LEAST, round(size * len(mutants) / max(1, total)))
        chosen += draw.sample(list(mutants), min(count, len(mutants)))
    draw.shuffle(chosen)
    return chosen


def shard(mutants: Sequence[Mutant], number: int, of: int) -> list[Mutant]:
    """Part *number* (from 1) of *of* parts of about one size."""
    return list(mutants[number - 1 :: of])


def interval(strata: Sequence[tuple[int, int, int]]) -> tuple[float, float, float]:
    """The killed share of the whole, with the ends of its 95 % interval.

    Args:
        strata: Of each module how many mutants it has, how many of them were asked about, and how many were killed.

    Returns:
        The share, weighted by how many mutants each module has, and Wilson's interval around it for as many
        mutants as were asked about, narrowed for those of a finite whole.
    """
    strata = [each for each in strata if each[1]]
    whole = sum(has for has, _, _ in strata)
    asked = sum(count for _, count, _ in strata)
    if not asked:
        return 0.0, 0.0, 1.0
    share = sum(has / whole * killed / count for has, count, killed in strata)
    spread = 1.96 * math.sqrt(max(0.0, (whole - asked) / max(1, whole - 1)))
    middle = (share + spread**2 / (2 * asked)) / (1 + spread**2 / asked)
    half = spread * math.sqrt(share * (1 - share) / asked + spread**2 / (4 * asked**2)) / (1 + spread**2 / asked)
    return share, max(0.0, middle - half), min(1.0, middle + half)
