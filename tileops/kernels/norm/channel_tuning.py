"""Kernels of channels that may be laid out in several ways."""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import torch

from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.channel_launches import ChannelFacts
from tileops.kernels.norm.channel_tables import Table
from tileops.kernels.tuning import key_of, recorded, tune

__all__ = ["SAMPLES", "Laid", "LaunchedChannels", "TunedChannels", "drawn", "parameters", "statistics"]

SAMPLES: Final = 32
"""Samples over which the values of a channel lie, in the input that layouts are measured on."""


class TunedChannels(Kernel):
    """A kernel that takes another layout of its table where that was measured to be faster.

    Attributes:
        key: What its entry on file is found by.
        table: Its layouts.
        laid: The one that is in use.
    """

    key: str
    table: Table
    laid: Any

    def begin_with(self, table: Table, identity: Hashable, arch: int) -> None:
        """Take the layout that is on file for a build of this *identity*, or else the usual one."""
        self.table = table
        self.key = key_of(type(self), identity, arch)
        self.change_to(recorded(self.key, table.layouts) or table.layouts[0])

    def change_to(self, layout: Any) -> None:
        """Run in *layout* from now on."""
        self.lay_out(layout)
        self.laid = layout

    @abstractmethod
    def lay_out(self, layout: Any) -> None:
        """Build what runs in *layout*, and then put it in the place of what ran: other threads may be calling."""

    @abstractmethod
    def scratch(self, extents: tuple[int, int, int], device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """Arguments of a call of these *extents*, in which anything may be written."""

    def request_tune(self) -> None:
        """Measure the layouts of the table, or take the one on file; see :mod:`tileops.kernels.tuning`."""
        layout = tune(self.key, self.table.layouts, self._works)
        if layout is not None and layout != self.laid:
            self.change_to(layout)

    def _works(self, device: torch.device) -> Callable[[Any], Callable[[], Any]]:
        tensors = self.scratch(self.table.extents, device)

        def work(layout: Any) -> Callable[[], Any]:
            other = copy.copy(self)
            other.change_to(layout)
            return functools.partial(other.forward, *tensors)

        return work


class Laid(NamedTuple):
    """How the channels of a call are launched.

    Attributes:
        identity: All that is built in: facts first.
        launched: What makes a launch of a layout.
        table: What makes the table of layouts, where a kernel is built.
    """

    identity: tuple[ChannelFacts, Any, *tuple[Any, ...]]
    launched: Callable[[Any], Any]
    table: Callable[[], Table]


class LaunchedChannels(TunedChannels):
    """A kernel with one launch that normalizes channels by their own statistics.

    Args:
        laid: How channels are launched.

    Attributes:
        facts: What is built in.
        launch: What runs.

    Raises:
        KernelBuildError: TileLang or nvcc is missing.
    """

    def __init__(self, laid: Laid) -> None:
        self.facts = laid.identity[0]
        self._launched = laid.launched
        self.begin_with(laid.table(), laid.identity, self.facts.arch)

    @classmethod
    @abstractmethod
    def laid_for(cls, call: BatchNormCall) -> Laid:
        """How the channels of *call* are launched."""

    def lay_out(self, layout: Any) -> None:
        """Make the launch of *layout*."""
        self.launch = self._launched(layout)

    def scratch(self, extents: tuple[int, int, int], device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """An input, weights and biases, and running statistics where the launch moves these."""
        facts, c = self.facts, extents[1]
        given = parameters(c, facts.weight_dtype, device)
        return (drawn(extents, facts.dtype, device), *given, *statistics(c, facts.running_dtype, device))


def drawn(extents: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Values of the standard normal distribution; nobody else's random numbers are drawn."""
    draw = torch.Generator(device).manual_seed(0)
    return torch.empty(extents, dtype=dtype, device=device).normal_(generator=draw)


def parameters(c: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and biases of *c* channels."""
    return torch.ones(c, dtype=dtype, device=device), torch.zeros(c, dtype=dtype, device=device)


def statistics(
    c: int, dtype: torch.dtype | None, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Running means and variances of *c* channels; None where there are none."""
    if dtype is None:
        return None, None
    return torch.zeros(c, dtype=dtype, device=device), torch.ones(c, dtype=dtype, device=device)
