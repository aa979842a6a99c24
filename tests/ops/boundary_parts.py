"""What the runs of boundary calls have in common, whatever is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Runs:
    """How the calls of an interface are run.

    Attributes:
        inputs: The arguments of a call: tensors, and None where an interface takes it.
        check: Compares what was found for a call and its arguments.
        bytes_of: Device memory that this takes.
        shrinking: Fields that take memory, those that matter least first.
    """

    inputs: Callable[[Any], tuple[Any, ...]]
    check: Callable[[Any, Any, tuple[Any, ...]], None]
    bytes_of: Callable[[Any], int]
    shrinking: tuple[str, ...]


def within(
    found: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor, call: Any, dtype: torch.dtype | None = None
) -> None:
    """Hold *found* within *allowed* of *expected*, and the least normal number of *dtype*: that of the call."""
    error = (found - expected).abs() / (allowed + torch.finfo(dtype or call.dtype).smallest_normal)
    assert not error.isnan().any(), call
    assert not error.numel() or float(error.max()) <= 1.0, (call, float(error.max()))
