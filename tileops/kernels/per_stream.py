"""What the launches of a stream share, because they come one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import torch

__all__ = ["of_stream"]

T = TypeVar("T")

MOST_KEPT: Final = 256
"""Streams for which something is kept: torch has 32 of each priority, others may come and go."""


def _stream_from_torch(index: int) -> int:
    stream: int = torch.cuda.current_stream(index).cuda_stream
    return stream


_stream_now: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_from_torch)
"""The stream that is current on the device of an index: what ``torch.cuda.current_stream`` has, without an object."""


def of_stream(
    kept: dict[tuple[torch.device, int], T],
    device: torch.device,
    make: Callable[[], T],
    enough: Callable[[T], bool] | None = None,
) -> T:
    """What is *kept* for the current stream of *device*, made where there is none or where it is not *enough*.

    Not for a launch that is captured in a graph: that may run on another stream than the one it was captured on.

    Args:
        kept: By device and stream, of which the oldest goes when there are more than :data:`MOST_KEPT`; written.
        device: Where; a CUDA device with its index, as a tensor has it.
        make: Makes one.
        enough: Whether one will do, where not any does.
    """
    place = device, _stream_now(device.index)
    found = kept.get(place)
    if found is None or (enough is not None and not enough(found)):
        # What a stream still uses may go: its memory is given to nothing that runs before the launch has ended.
        while len(kept) >= MOST_KEPT:
            kept.pop(next(iter(kept)), None)
        found = kept[place] = make()
    return found
