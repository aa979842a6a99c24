"""Which extents no kernel normalizes by channels. Interfaces declare them unserved, and kernels refuse by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tileops.kernels.norm.call_spec import BatchNormCall

__all__ = [
    "MOST_EXTENT",
    "channel_refusal",
    "instance_refusal",
    "running_refusal",
]

MOST_EXTENT: Final = 2**30
"""Most samples, channels or values of a plane: a step over the sum of two extents is counted in 32 bits, and the values
of a channel in 64."""


def channel_refusal(call: BatchNormCall) -> str | None:
    """Why channels of these extents are normalized by no kernel, or ``None``."""
    for name, extent in (("n", call.n), ("c", call.c), ("spatial", call.spatial)):
        if not 1 <= extent <= MOST_EXTENT:
            return f"{name} {extent} is not from 1 to {MOST_EXTENT}"
    return None


def running_refusal(call: BatchNormCall) -> str | None:
    """Why no kernel normalizes such channels by running statistics, or ``None``."""
    if call.running_dtype is None:
        return "running_dtype is None: there are no running statistics"
    return channel_refusal(call)


def instance_refusal(call: BatchNormCall) -> str | None:
    """Why no kernel takes the statistics of such instances, or ``None``: those of all samples are counted together."""
    reason = channel_refusal(call)
    if reason is None and call.instances > MOST_EXTENT:
        reason = f"n {call.n} times c {call.c} is more than {MOST_EXTENT}"
    return reason
