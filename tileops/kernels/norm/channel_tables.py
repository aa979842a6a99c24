"""The layouts that are tried where a kernel of channels is tuned, and the input that they are measured on.

Each table begins with the usual layout. The others compute the same in no more threads and shared memory of a block,
and serve every input that the usual one serves: a kernel that changes to one of them needs no other region. The input
follows from the usual layout, as what is built does: about as many bytes as rows are measured on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

import torch

from tileops.kernels.norm.channel_layout import WARP, ChannelLayout
from tileops.kernels.norm.cluster_layout import MOST_BLOCKS, ClusterLayout
from tileops.kernels.norm.infer_layout import EACH, ONE, SOME, TWO, Columns, Planes

__all__ = ["Table", "held_table", "infer_table", "only", "streamed_table"]

HELD_VALUES: Final = 64
"""Most values of all tensors that a thread is tried with: a block of few threads has 255 registers for each."""
STREAMED_STEPS: Final = (4, 8, 16)
"""Loads of a thread that streams; as many more are under way."""
INFER_STEPS: Final = (1, 2, 4, 8, 16)
"""Vectors of a thread, or samples of one."""
CLUSTER_STEPS: Final = (2, 4, 8)
"""Vectors that a thread of a cluster holds at a time."""

MEASURED_BYTES: Final = 64 * 2**20
"""Of the input that layouts are measured on."""
COLUMN_PLANES: Final = {ONE: 64, TWO: 49, EACH: 1, SOME: 3}
"""Values of its planes, by which channels a vector has values of."""
INFER_CHANNELS: Final = 1024
"""Its channels, where statistics are given."""
STREAMED_VECTORS: Final = 32768
"""Vectors of a channel that is streamed."""


@dataclasses.dataclass(frozen=True)
class Table:
    """The layouts of a build.

    Attributes:
        layouts: The usual one first.
        extents: Samples, channels and values of a plane of the input that they are measured on.
    """

    layouts: tuple[Any, ...]
    extents: tuple[int, int, int]


def only(layout: Any) -> Table:
    """The table of a layout that is the only one: nothing is measured."""
    return Table((layout,), (0, 0, 0))


def infer_table(layout: Planes | Columns, dtype: torch.dtype) -> Table:
    """Where statistics are given: other vectors of a thread in a plane, or more samples of one in a column.

    Fewer samples would take more blocks, which the axis of a grid may not have.
    """
    if isinstance(layout, Planes):
        fewest, spatial = 1, 4 * layout.vector * layout.threads
    else:
        fewest, spatial = layout.steps, COLUMN_PLANES[layout.kind]
    samples = max(1, MEASURED_BYTES // (INFER_CHANNELS * spatial * dtype.itemsize))
    layouts = _with(layout, "steps", (steps for steps in INFER_STEPS if steps >= fewest))
    return Table(layouts, (samples, INFER_CHANNELS, spatial))


def held_table(layout: Any, dtype: torch.dtype, samples: int, tensors: int = 1) -> Table:
    """Where blocks hold channels: half of the warps, a quarter of them, with more values each.

    Sets of channels and channels of a few threads have no other layout. Clusters may hold other numbers of vectors at a
    time, or be of twice as many blocks.

    Args:
        layout: The usual one.
        dtype: Of the input.
        samples: Over how many samples the values of a channel lie, where its planes are not narrow.
        tensors: Inputs that are held.
    """
    if isinstance(layout, ClusterLayout):
        wider = dataclasses.replace(layout, blocks=2 * layout.blocks)
        layouts = (*_with(layout, "steps", CLUSTER_STEPS), *([wider] if wider.blocks <= MOST_BLOCKS else []))
        return Table(layouts, _extents(layout, layout.blocks * layout.room, dtype, samples))
    if not isinstance(layout, ChannelLayout):
        return only(layout)
    table = [layout]
    fewest = max(1, WARP // layout.groups)
    for parts in (2, 4):
        lanes = -(-layout.lanes // (parts * fewest)) * fewest
        steps = -(-layout.lanes * layout.steps // lanes)
        if lanes < table[-1].lanes and steps * layout.vector * tensors <= HELD_VALUES:
            table.append(dataclasses.replace(layout, lanes=lanes, steps=steps))
    return Table(tuple(table), _extents(layout, layout.lanes * layout.steps, dtype, samples))


def streamed_table(layout: Any, dtype: torch.dtype, samples: int) -> Table:
    """Where blocks stream channels: fewer loads of a thread, or more; sets of channels have no other layout.

    Args:
        layout: The usual one.
        dtype: Of the input.
        samples: Over how many samples the values of a channel lie, where its planes are not narrow.
    """
    if not isinstance(layout, ChannelLayout):
        return only(layout)
    return Table(_with(layout, "steps", STREAMED_STEPS), _extents(layout, STREAMED_VECTORS, dtype, samples))


def _extents(layout: Any, vectors: int, dtype: torch.dtype, samples: int) -> tuple[int, int, int]:
    """An input of channels of *vectors* vectors, or a few less; planes that are read together have one vector each."""
    n = vectors if samples > 1 and layout.groups > 1 else min(samples, vectors)
    spatial = vectors // n * layout.vector
    return n, max(1, MEASURED_BYTES // (n * spatial * dtype.itemsize)), spatial


def _with(layout: Any, field: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """*layout*, and what it is with other *values* of a field."""
    usual = getattr(layout, field)
    return (layout, *(dataclasses.replace(layout, **{field: value}) for value in values if value != usual))
