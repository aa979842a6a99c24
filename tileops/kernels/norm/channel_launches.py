"""How channels are normalized on a device: what is compiled, and how it is launched.

Each launch sees ``x`` of shape ``(n, c, *spatial)`` as ``(n, c, q, vector)`` and takes the same arguments. Instances
are channels of one sample: ``(1, n * c, q, vector)``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import torch

from tileops.kernels.norm.channel_layout import ChannelLayout, cuts_of, vector_of
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name

__all__ = ["OWN_THREADS", "ChannelFacts", "CutLaunch", "OneLaunch", "OwnLaunch"]

TRAIN_PROGRAMS: Final = "tileops.kernels.norm.batch_norm_train_program"
SPLIT_PROGRAMS: Final = "tileops.kernels.norm.batch_norm_split_program"

OWN_THREADS: Final = 32
"""Threads of a block in which each has a channel of its own: few, so that small inputs reach many blocks."""


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
    """

    dtype: torch.dtype
    weight_dtype: torch.dtype
    running_dtype: torch.dtype | None
    unbiased: bool
    eps: float
    momentum: float
    arch: int

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

    def __init__(self, facts: ChannelFacts, layout: ChannelLayout, *, held: bool) -> None:
        self.vector = layout.vector
        self.scalars = facts.scalars
        self.compiled = facts.compiled("held_channels" if held else "streamed_channels", lay=layout)

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
        self.launch(
            aligned(x).view(n, c, -1, self.vector),
            out.view(n, c, -1, self.vector),
            mean,
            spread,
            weight,
            bias,
            running,
        )
        return out, mean, spread

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
        """Launch what is compiled."""
        self.compiled(x, weight, bias, *running, out, mean, spread, *self.scalars)


class OwnLaunch(OneLaunch):
    """One launch: each thread holds a channel of *samples* times *spatial* values."""

    def __init__(self, facts: ChannelFacts, samples: int, spatial: int) -> None:
        self.vector = vector_of(spatial, facts.dtype)
        self.scalars = facts.scalars
        self.compiled = facts.compiled(
            "own_channels", samples=samples, spatial=spatial, vector=self.vector, threads=OWN_THREADS
        )


class CutLaunch(OneLaunch):
    """Two launches: blocks take the statistics of parts of channels, then merge them and normalize their parts."""

    def __init__(self, facts: ChannelFacts, layout: ChannelLayout, sm_count: int) -> None:
        self.layout = layout
        self.sm_count = sm_count
        self.vector = self.layout.vector
        self.scalars = facts.scalars
        self.parts = compile_program(
            SPLIT_PROGRAMS, "parts_of_channels", facts.arch, dtype=dtype_name(facts.dtype), lay=self.layout
        )
        self.compiled = facts.compiled("merged_channels", SPLIT_PROGRAMS, lay=self.layout)

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
        """Launch both halves."""
        n, c, q, vector = x.shape
        cuts = cuts_of(self.layout, n * q * vector, c, self.sm_count)
        parts = torch.empty((c, 3, cuts), dtype=torch.float32, device=x.device)
        self.parts(x, parts)
        self.compiled(parts, x, weight, bias, *running, out, mean, spread, *self.scalars)
