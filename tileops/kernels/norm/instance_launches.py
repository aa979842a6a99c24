"""How small instances are normalized on a device, and how running statistics follow instances."""

from __future__ import annotations

from typing import Final

import torch

from tileops.kernels.norm.channel_launches import ChannelFacts
from tileops.kernels.norm.instance_layout import RunLayout, TrackLayout
from tileops.kernels.tilelang_build import aligned, compile_program, dtype_name

__all__ = ["SmallLaunch", "Tracking"]

PROGRAMS: Final = "tileops.kernels.norm.instance_norm_program"
NOTHING: Final = torch.empty(0)
"""Statistics that nobody asked for."""


class SmallLaunch:
    """One launch, in which an instance has a few threads of a warp.

    Args:
        facts: What is built in.
        layout: How instances lie over threads.
    """

    def __init__(self, facts: ChannelFacts, layout: RunLayout) -> None:
        self.layout = layout
        self.eps = facts.eps
        self.kept = facts.unbiased
        self.compiled = compile_program(
            PROGRAMS,
            "vectors_of_instances" if layout.whole else "runs_of_instances",
            facts.arch,
            dtype=dtype_name(facts.dtype),
            weight_dtype=dtype_name(facts.weight_dtype),
            kept=self.kept,
            lay=layout,
        )

    def __call__(
        self, x: torch.Tensor, n: int, c: int, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalize *n* samples of *c* instances.

        Returns:
            The result, shaped like *x*; means; and unbiased variances. These are empty where nothing follows them.
        """
        out = torch.empty_like(x)
        count = n * c
        shape = (count, -1, self.layout.vector) if self.layout.whole else (-1,)
        whole, spatial = aligned(x).view(shape), x.numel() // count
        if not self.kept:
            self.compiled(whole, weight, bias, out.view(shape), self.eps, spatial)
            return out, NOTHING, NOTHING
        mean, variance = torch.empty((2, count), dtype=torch.float32, device=x.device).unbind()
        self.compiled(whole, weight, bias, out.view(shape), mean, variance, self.eps, spatial)
        return out, mean, variance


class Tracking:
    """What moves running statistics: one launch, or two where there are many samples.

    Args:
        running_dtype: Of the running statistics.
        layout: How channels and samples lie over threads.
        momentum: Share of the new statistics.
        arch: Architecture to build for.
    """

    def __init__(self, running_dtype: torch.dtype, layout: TrackLayout, momentum: float, *, arch: int) -> None:
        self.layout = layout
        self.momentum = momentum
        self.parts = compile_program(PROGRAMS, "summed_instances", arch, lay=layout) if layout.cut else None
        self.compiled = compile_program(
            PROGRAMS,
            "averaged_instances",
            arch,
            dtype="float64" if layout.cut else "float32",
            running_dtype=dtype_name(running_dtype),
            lay=layout,
        )

    def __call__(
        self,
        mean: torch.Tensor,
        variance: torch.Tensor,
        n: int,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
    ) -> None:
        """Move *running_mean* and *running_var*, of the channels of *n* samples, in place."""
        means, variances = mean.view(n, -1), variance.view(n, -1)
        if self.parts is not None:
            shape = (2, self.layout.parts_of(n), means.shape[1])
            sums = torch.empty(shape, dtype=torch.float64, device=mean.device).unbind()
            self.parts(means, variances, *sums)
            means, variances = sums
        self.compiled(means, variances, running_mean, running_var, n, self.momentum)
