"""How the values of ``(n, c, *spatial)`` tensors are laid over threads where statistics are given.

A sample is a row of ``c * spatial`` values, which vectors of one load fill, whatever planes they touch. A thread stays
in one vector of the row and takes several samples (:class:`Columns`); where planes are long, a block stays in one of
them instead (:class:`Planes`), and reads memory in the order in which it lies.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from tileops.kernels.norm.channel_layout import vector_of

__all__ = ["EACH", "ONE", "SOME", "THREADS", "TWO", "Columns", "Planes", "infer_layout"]

ONE: Final = "one"
"""A vector is of one channel."""
TWO: Final = "two"
"""A vector has the end of a channel in it, at most."""
EACH: Final = "each"
"""Each value of a vector has a channel of its own."""
SOME: Final = "some"
"""A vector has several channels."""

THREADS: Final = 128
"""Threads of a block: 8 x 32 planes of 512x512 take 68.1 us with 128, 68.8 with 256 (H200, float16, 2026-11-30)."""
PLANE_VECTORS: Final = THREADS
"""Vectors of a plane from which blocks stay in one, so that each thread has one: 256 x 512 planes of 28x28, of 98
vectors, take 102.4 us in columns, 107.3 in planes; a copy 101.4 (there and then, as all below)."""
PLANE_STEPS: Final = 2
"""Vectors that a thread has of a plane: 32 x 256 planes of 56x56 take 29.4 us with 2, 29.8 with 1, 30.1 with 4."""
FEW_VECTORS: Final = 2**18
"""Most vectors of an input of which each thread takes one: an H200 holds about as many threads at once."""
FEW_PARAMETERS: Final = 4
"""Most samples of a thread that looks up the parameters of few channels, or loads them in one piece: 131,072 samples of
512 channels take 68.8 us with 4, 70.1 with 8."""
MANY_PARAMETERS: Final = 8
"""Most samples of another: 128 samples of 2,048 planes of 7x7 take 17.4 us with 8, 17.9 with 4, a copy 17.4."""
EACH_VALUES: Final = 4
"""Most values of a load where each is of another channel: four parameters are a load of each kind. 131,072 samples of
512 channels take 68.8 us with 4, 70.3 with 8."""
NARROW_ROW: Final = 2**30
"""Most values of a row that are counted in 32 bits."""
SHORT_AXIS: Final = 65_535
"""Most blocks along any axis of a grid but the first."""


@dataclasses.dataclass(frozen=True)
class Planes:
    """Blocks that stay in one plane.

    Attributes:
        vector: Values of one load.
        steps: Vectors of a thread.
        threads: Threads of a block.
        counted: Whether blocks are counted along one axis, for extents that are too long for others.
    """

    vector: int
    steps: int
    threads: int
    counted: bool


@dataclasses.dataclass(frozen=True)
class Columns:
    """Threads that stay in one vector of the rows.

    Attributes:
        vector: Values of one load.
        kind: Which channels a vector has: :data:`ONE`, :data:`TWO`, :data:`EACH` or :data:`SOME`.
        lanes: Neighbouring vectors of a block.
        steps: Samples of a thread.
        threads: Threads of a block: the lanes, so many times, each for other samples.
        wide: Whether the values of a row are counted in 64 bits.
        counted: Whether blocks are counted along one axis, for extents that are too long for others.
    """

    vector: int
    kind: str
    lanes: int
    steps: int
    threads: int
    wide: bool
    counted: bool


def infer_layout(n: int, c: int, spatial: int, dtype: torch.dtype) -> Planes | Columns:
    """How *n* samples of *c* planes of *spatial* values are laid over threads.

    Extents go in by what they decide, so that inputs of other sizes mostly find a layout that is built.
    """
    vector = vector_of(c * spatial, dtype)
    if spatial == 1:
        vector = min(vector, EACH_VALUES)
    places = spatial // vector
    few = n * c * spatial <= FEW_VECTORS * vector
    if spatial % vector == 0 and places >= PLANE_VECTORS:
        steps = 1 if few or places <= THREADS else PLANE_STEPS
        return Planes(vector, steps, THREADS, counted=max(n, c) > SHORT_AXIS)
    kind = kind_of(spatial, vector)
    lanes = row_lanes(c * spatial // vector)
    stacks = THREADS // lanes
    most = FEW_PARAMETERS if kind in (ONE, EACH) else MANY_PARAMETERS
    steps = 1
    while not few and steps < most and steps * stacks < n:
        steps *= 2
    return Columns(
        vector,
        kind,
        lanes,
        steps,
        THREADS,
        wide=c * spatial > NARROW_ROW,
        counted=-(-n // (steps * stacks)) > SHORT_AXIS,
    )


def kind_of(spatial: int, vector: int) -> str:
    """Which channels a vector of *vector* values has."""
    if spatial % vector == 0:
        return ONE
    if spatial == 1:
        return EACH
    return TWO if spatial >= vector else SOME


def row_lanes(vectors: int) -> int:
    """Neighbouring vectors of a row that a block takes at a time: as many as leave an eighth of them idle at most."""
    for lanes in (THREADS, THREADS // 2):
        if -(-vectors // lanes) * lanes * 7 <= vectors * 8:
            return lanes
    lanes = THREADS // 4
    while lanes // 2 >= vectors:
        lanes //= 2
    return lanes
