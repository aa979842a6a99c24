"""Ones and zeros for a weight or bias that is left out, made once for each length, dtype and device."""

from __future__ import annotations

import threading
from typing import Final

import torch

__all__ = ["MOST_FILLED", "filled"]

MOST_FILLED: Final = 32
"""Tensors that are kept; the oldest goes when another is made."""

_lock = threading.Lock()
_tensors: dict[tuple[float, int, torch.dtype, torch.device], torch.Tensor] = {}


def filled(value: float, n: int, like: torch.Tensor) -> torch.Tensor:
    """*n* elements of *value* in the dtype and on the device of *like*; not to be written to."""
    key = (value, n, like.dtype, like.device)
    found = _tensors.get(key)
    if found is not None:
        return found
    with torch.inference_mode(False):
        made = torch.full((n,), value, dtype=like.dtype, device=like.device)
    if like.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            return made  # its memory belongs to the graph
        torch.cuda.current_stream(like.device).synchronize()  # another stream may be the next to read it
    with _lock:
        while len(_tensors) >= MOST_FILLED:
            del _tensors[next(iter(_tensors))]
        return _tensors.setdefault(key, made)
