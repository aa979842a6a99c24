"""How channels are normalized on a device: what is compiled, and how it is launched.

Each launch sees ``x`` of shape ``(n, c, *spatial)`` as ``(n, c, q, vector)`` and takes the same arguments. Instances
are channels of one sample: ``(1, n * c, q, vector)``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Final

import torch

from tileops.kernels.norm.channel_layout import ChannelLayout
from tileops.kernels.norm.set_layout import SetLayout
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name

__all__ = [
    "HELD_PROGRAMS",
    "SET_PROGRAMS",
    "STREAMED_SET_PROGRAMS",
    "ChannelFacts",
    "OneLaunch",
    "SetLaunch",
    "share_of",
    "walk_of",
]

TRAIN_PROGRAMS: Final = "tileops.kernels.norm.batch_norm_train_program"
HELD_PROGRAMS: Final = "tileops.kernels.norm.held_channels_program"
SET_PROGRAMS: Final = "tileops.kernels.norm.batch_norm_sets_program"
STREAMED_SET_PROGRAMS: Final = "tileops.kernels.norm.streamed_sets_program"


def share_of(values: int) -> tuple[float, float]:
    """One over *values*, and one over one less: programs multiply, which takes fewer instructions."""
    return 1.0 / values, 1.0 / (values - 1) if values > 1 else math.inf


@functools.lru_cache(maxsize=1024)
def walk_of(n: int, c: int, q: int, lanes: int) -> tuple[int, int, int, int, int, int]:
    """What a program that holds channels of *n* samples of *q* vectors in steps of *lanes* must not divide for.

    Returns:
        Vectors of a channel; *q*; what a lane is multiplied by to be divided by *q* in 20 bits more, which is exact
        below 1,024; how far a step goes in the plane; how far in the tensor; and how much further where it leaves the
        plane.
    """
    samples, along = divmod(lanes, q)
    return n * q, q, 2**20 // q + 1, along, samples * c * q + along, (c - 1) * q


@dataclasses.dataclass(frozen=True)
class ChannelFacts:
    """What is built into a launch that normalizes channels by their own statistics.

    Attributes:
        dtype: Of input and output.
        weight_dtype: Of weight and bias.
        running_dtype: Of the running statistics that are moved; None where none are.
        unbiased: Whether the unbiased variance is returned in the place of ``1 / sqrt(var + eps)``.
        eps: Added to the variance.
        momentum: Share of the new statistics.
        arch: Architecture to build for.
        in_turn: Whether weight and bias may be of fewer channels than the input, and are taken in turn.
    """

    dtype: torch.dtype
    weight_dtype: torch.dtype
    running_dtype: torch.dtype | None
    unbiased: bool
    eps: float
    momentum: float
    arch: int
    in_turn: bool = True

    @property
    def scalars(self) -> tuple[float, ...]:
        """What a launch takes after its tensors."""
        return (self.eps,) if self.running_dtype is None else (self.eps, self.momentum)

    def compiled(self, name: str, module: str = TRAIN_PROGRAMS, **layout: Any) -> Any:
        """The program *name* with these facts."""
        running = None if self.running_dtype is None else dtype_name(self.running_dtype)
        return compile_program(
            module,
            name,
            self.arch,
            dtype=dtype_name(self.dtype),
            weight_dtype=dtype_name(self.weight_dtype),
            running_dtype=running,
            unbiased=self.unbiased,
            **layout,
        )


class OneLaunch:
    """One launch: blocks hold their channels, or stream them.

    Args:
        facts: What is built in.
        layout: How channels lie over threads.
        held: Whether blocks hold their channels.
    """

    lanes: int | None = None

    def __init__(self, facts: ChannelFacts, layout: ChannelLayout, *, held: bool) -> None:
        self.vector = layout.vector
        self.scalars = facts.scalars
        self.lanes = layout.lanes if held else None
        if held:
            self.compiled = facts.compiled("held_channels", HELD_PROGRAMS, lay=layout, in_turn=facts.in_turn)
        else:
            self.compiled = facts.compiled("streamed_channels", lay=layout)

    def __call__(
        self, x: torch.Tensor, n: int, c: int, weight: torch.Tensor, bias: torch.Tensor, *running: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalize *n* samples of *c* channels.

        Returns:
            The result, shaped like *x*; means; and ``1 / sqrt(var + eps)``, or unbiased variances.
        """
        out = torch.empty_like(x)
        mean = torch.empty(c, dtype=torch.float32, device=x.device)
        spread = torch.empty(c, dtype=torch.float32, device=x.device)
        self.normalize(aligned(x), n, c, out, mean, spread, weight, bias, running)
        return out, mean, spread

    def normalize(
        self,
        x: torch.Tensor,
        n: int,
        c: int,
        out: torch.Tensor,
        mean: torch.Tensor,
        spread: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        running: tuple[torch.Tensor, ...],
    ) -> None:
        """Normalize *n* samples of *c* channels into *out*, *mean* and *spread*."""
        if self.lanes is None:
            shape = (n, c, -1, self.vector)
            self.launch(x.view(shape), out.view(shape), mean, spread, weight, bias, running)
            return
        vectors = x.view(-1, self.vector), out.view(-1, self.vector)
        extents = self.extents(n, c, x.numel() // c, self.lanes)
        self.compiled(vectors[0], weight, bias, *running, vectors[1], mean, spread, *self.scalars, *extents)

    def extents(self, n: int, c: int, values: int, lanes: int) -> tuple[float, ...]:
        """What a program that sees vectors takes of the extents: channels of *values* values, *lanes* threads each."""
        return *share_of(values), *walk_of(n, c, values // n // self.vector, lanes)

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
        """Launch a program that streams, on tensors of the shape ``(n, c, q, vector)``."""
        self.compiled(x, weight, bias, *running, out, mean, spread, *self.scalars, *share_of(x.numel() // x.shape[1]))


class SetLaunch(OneLaunch):
    """One launch, in which a block holds a set of neighbouring channels, or streams it.

    Args:
        facts: What is built in.
        layout: How channels lie over threads.
    """

    def __init__(self, facts: ChannelFacts, layout: SetLayout) -> None:
        self.vector = layout.vector
        self.scalars = facts.scalars
        self.lanes = layout.rows
        if layout.steps > 0:
            self.compiled = facts.compiled("held_sets", SET_PROGRAMS, lay=layout)
        else:
            self.compiled = facts.compiled("streamed_sets", STREAMED_SET_PROGRAMS, lay=layout)

    def extents(self, n: int, c: int, values: int, lanes: int) -> tuple[float, ...]:
        """The number of samples: how many values a plane has is built in."""
        return (n,)
