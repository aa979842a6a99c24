"""What the kernels that normalize channels by their own statistics refuse, whatever they compute."""

from __future__ import annotations

from abc import abstractmethod

from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm.call_spec import ARCHS, BatchNormCall
from tileops.kernels.norm.limits import channel_refusal

__all__ = ["ChannelKernel"]


class ChannelKernel(Kernel):
    """A kernel for channels of some region, within the extents that are counted."""

    supported_archs: list[int] = [*ARCHS]

    @classmethod
    def extent_refusal(cls, call: BatchNormCall) -> str | None:
        """Why no class takes extents like those of *call*, or ``None``."""
        return channel_refusal(call)

    @classmethod
    @abstractmethod
    def region_refusal(cls, call: BatchNormCall) -> str | None:
        """Why the class does not take channels like those of *call*, or ``None``."""

    @classmethod
    def refusal(cls, call: BatchNormCall) -> str | None:
        """Refuse extents that are not counted, then those that the class does not take."""
        reason = cls.extent_refusal(call)
        if reason is None:
            reason = cls.region_refusal(call)
        return reason if reason is not None else super().refusal(call)
