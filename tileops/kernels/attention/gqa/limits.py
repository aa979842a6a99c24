"""What all grouped-query kernels are built for, where their rules and their interface both read it."""

from __future__ import annotations

from typing import Final

import torch

__all__ = ["ARCHS", "DTYPES", "HOPPER", "ITEM_BYTES"]

ARCHS: Final = (80, 89, 90)
"""The architectures that kernels are built for."""
HOPPER: Final = 90
"""The one with clusters, bulk copies and products of warpgroups."""

DTYPES: Final = (torch.float16, torch.bfloat16)
"""What the matrix unit multiplies with float32 sums; and what results have where inputs are float8."""
ITEM_BYTES: Final = 2
