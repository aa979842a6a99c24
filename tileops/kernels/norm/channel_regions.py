"""Which channels each way of taking their statistics is for. Each threshold stands here once."""

from __future__ import annotations

from typing import Final

import torch

from tileops.kernels.norm.channel_layout import (
    MANY_CHANNELS,
    NARROW_GROUPS,
    OWN_THREADS,
    STREAM_THREADS,
    WARP,
    groups_of,
    held_groups,
    held_lanes,
    held_stacks,
    most_held,
    vector_of,
)

__all__ = [
    "SPLIT_CHANNELS",
    "SPLIT_VALUES",
    "WHOLE_VALUES",
    "held_refusal",
    "held_smem_bytes",
    "held_threads",
    "own_smem_bytes",
    "split_refusal",
    "streamed_smem_bytes",
    "whole_refusal",
]

WHOLE_VALUES: Final = 32
"""Most values of a channel that one thread holds: one load each, all under way at once."""
SPLIT_VALUES: Final = 8192
"""Fewest values of a channel that is cut: fewer are soon read by one block, which then need not wait for others."""
SPLIT_CHANNELS: Final = 512
"""Most sets of channels read together that are cut: more fill the multiprocessors, a block to each."""


def whole_refusal(values: int) -> str | None:
    """Why no thread holds a channel of *values* values, or ``None``."""
    return (
        None if values <= WHOLE_VALUES else f"a channel has {values} values, more than the {WHOLE_VALUES} of a thread"
    )


def held_refusal(values: int, spatial: int, dtype: torch.dtype, tensors: int = 1) -> str | None:
    """Why no block holds a channel of *values* values in each of so many *tensors*, or ``None``."""
    most = most_held(spatial, dtype) // tensors
    return None if values <= most else f"a channel has {values} values, more than the {most} of a block"


def split_refusal(values: int, channels: int, spatial: int, dtype: torch.dtype) -> str | None:
    """Why channels of *values* values are not cut over blocks, or ``None``."""
    if values < SPLIT_VALUES:
        return f"a channel has {values} values, fewer than {SPLIT_VALUES}"
    most = SPLIT_CHANNELS * groups_of(spatial, dtype)
    return None if channels <= most else f"{channels} channels are more than {most}"


def held_threads(values: int, channels: int, spatial: int, dtype: torch.dtype) -> int:
    """Threads of a block that holds channels."""
    many = channels >= MANY_CHANNELS
    groups = held_groups(spatial, dtype, many=many)
    lanes = held_lanes(values, spatial, dtype, many=many)
    return groups * lanes * held_stacks(groups, lanes)


def held_smem_bytes(values: int, channels: int, spatial: int, dtype: torch.dtype, facts: int) -> int:
    """Shared memory in which the warps that hold a channel exchange so many float32 *facts*."""
    many = channels >= MANY_CHANNELS
    groups = held_groups(spatial, dtype, many=many)
    lanes = held_lanes(values, spatial, dtype, many=many)
    warps = groups * lanes // WARP
    return held_stacks(groups, lanes) * warps * groups * facts * 4 if warps > 1 else 0


def own_smem_bytes(values: int, channels: int, spatial: int, dtype: torch.dtype, facts: int) -> int:
    """Shared memory in which the warps of channels of a few values exchange so many float32 *facts*.

    Where there are few channels, and more than 8 vectors in one, four of them span as many warps as there are.
    """
    spread = channels < MANY_CHANNELS and values // vector_of(spatial, dtype) > WARP // NARROW_GROUPS
    return OWN_THREADS // WARP * NARROW_GROUPS * facts * 4 if spread else 0


def streamed_smem_bytes(spatial: int, dtype: torch.dtype, facts: int) -> int:
    """Shared memory in which the warps of a block that streams exchange so many float32 *facts*."""
    return STREAM_THREADS // WARP * groups_of(spatial, dtype) * facts * 4
