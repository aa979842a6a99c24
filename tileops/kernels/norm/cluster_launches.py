"""How channels that lie in the shared memory of clusters are launched."""

from __future__ import annotations

from typing import Final

from tileops.kernels.norm.channel_launches import ChannelFacts, OneLaunch, walk_of
from tileops.kernels.norm.cluster_layout import ClusterLayout

__all__ = ["ClusterLaunch", "cluster_extents"]

PROGRAMS: Final = "tileops.kernels.norm.cluster_channels_program"


def cluster_extents(layout: ClusterLayout, n: int, c: int, values: int) -> tuple[int, ...]:
    """What a program takes of the extents of *n* samples of *c* channels of *values* values.

    Returns:
        Vectors of a channel; those of a block; vectors of a plane, and the way through them, see
        :func:`~tileops.kernels.norm.channel_launches.walk_of`.
    """
    total, q, _, along, step, leap = walk_of(n, c, values // n // layout.vector, layout.lanes)
    return total, -(-total // layout.blocks), q, along, step, leap


class ClusterLaunch(OneLaunch):
    """One launch, in which each channel is read into the shared memory of a cluster, and written from there.

    Args:
        facts: What is built in.
        layout: How a channel lies in a cluster.
    """

    def __init__(self, facts: ChannelFacts, layout: ClusterLayout) -> None:
        self.vector = layout.vector
        self.layout = layout
        self.scalars = facts.scalars
        self.lanes = layout.lanes
        self.compiled = facts.compiled("clustered_channels", PROGRAMS, lay=layout)

    def extents(self, n: int, c: int, values: int, lanes: int) -> tuple[float, ...]:
        """Vectors of a channel, those of a block, and the way through them."""
        return cluster_extents(self.layout, n, c, values)
