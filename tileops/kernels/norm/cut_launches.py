"""How channels that are cut over blocks are launched: the parts, and the counters by which blocks come to them."""

from __future__ import annotations

from typing import Final

import torch

from tileops.kernels.launch_counters import counters_for
from tileops.kernels.norm.channel_launches import ChannelFacts, OneLaunch
from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.cut_layout import FACTS, cut_of

__all__ = ["CutLaunch", "in_parts"]

PROGRAMS: Final = "tileops.kernels.norm.batch_norm_split_program"


def in_parts(
    x: torch.Tensor, layout: ChannelLayout, sm_count: int, tensors: int
) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """What a launch needs to come to the parts of the channels of *x*, of the shape ``(n, c, q, vector)``.

    Args:
        x: One of the inputs.
        layout: How a block reads it.
        sm_count: Multiprocessors.
        tensors: Inputs that are read.

    Returns:
        Room for what is known of the parts; counters; how many tasks statistics are ahead; and vectors of a part.
    """
    n, c, q, vector = x.shape
    cut = cut_of(layout, n * q, c, vector * x.element_size(), sm_count, tensors)
    parts = torch.empty((cut.blocks, cut.cuts + 1, layout.groups, FACTS), dtype=torch.float32, device=x.device)
    return parts, counters_for(x.device, cut.blocks + 1), cut.lag, cut.reach


class CutLaunch(OneLaunch):
    """One launch whose blocks come to the parts of channels twice: for their statistics, and to normalize them.

    Args:
        facts: What is built in.
        layout: How a block reads a part.
        sm_count: Multiprocessors.
        resident: Blocks that one of them is to have at a time.
    """

    def __init__(self, facts: ChannelFacts, layout: ChannelLayout, sm_count: int, resident: int) -> None:
        self.layout = layout
        self.lanes = None
        self.sm_count = sm_count
        self.vector = layout.vector
        self.scalars = facts.scalars
        self.compiled = facts.compiled("cut_channels", PROGRAMS, lay=layout, resident=resident)

    def launch(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        mean: torch.Tensor,
        spread: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running: tuple[torch.Tensor, ...],
    ) -> None:
        """Launch it on tensors of the shape ``(n, c, q, vector)``."""
        parts, counters, lag, reach = in_parts(x, self.layout, self.sm_count, 1)
        self.compiled(
            parts, counters, x, weight, bias, *running, out, mean, spread, *self.scalars, lag, reach
        )  # fmt: skip
