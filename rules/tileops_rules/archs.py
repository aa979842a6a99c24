"""The GPU architectures that questions range over: the one table of what is known of each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KNOWN_ARCHS", "LEAST_SMEM_BYTES", "MOST_THREADS", "ArchFacts"]

MOST_THREADS = 1024
"""Threads of a block at most, on every known arch (CUDA C++ programming guide, same table as below)."""
LEAST_SMEM_BYTES = 48 * 1024
"""Shared memory, in bytes, that a block may have on every known arch without opting in (same table)."""


@dataclass(frozen=True)
class ArchFacts:
    """What a call on an architecture is assumed to have where no device states it.

    Attributes:
        smem_budget: Shared memory that one block can opt in to, in bytes.
        sm_count: Number of streaming multiprocessors of the usual card.
        name: That card.
    """

    smem_budget: int
    sm_count: int
    name: str


# Opt-in shared memory a block: CUDA C++ programming guide, table "technical specifications per compute capability".
KNOWN_ARCHS: dict[int, ArchFacts] = {
    80: ArchFacts(163 * 1024, 108, "A100"),
    86: ArchFacts(99 * 1024, 84, "A40"),
    89: ArchFacts(99 * 1024, 142, "L40S"),
    90: ArchFacts(227 * 1024, 132, "H100 SXM"),
    100: ArchFacts(227 * 1024, 148, "B200"),
    120: ArchFacts(99 * 1024, 170, "RTX 5090"),
}
