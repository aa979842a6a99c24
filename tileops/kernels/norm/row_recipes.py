"""What each normalization of rows computes: the facts in which their programs differ."""

from __future__ import annotations

import dataclasses
from typing import Final

__all__ = [
    "ADA_LAYER_NORM",
    "ADA_LAYER_NORM_ZERO",
    "FUSED_ADD_LAYER_NORM",
    "FUSED_ADD_RMS_NORM",
    "LAYER_NORM",
    "RMS_NORM",
    "RowRecipe",
]


@dataclasses.dataclass(frozen=True)
class RowRecipe:
    """One normalization of rows.

    Attributes:
        centred: The mean is taken off first; else the root of the mean square is all that is divided by.
        biased: Something is added after scaling.
        shared: Scale and shift are one row of weights for all rows, and the scale multiplies; else each row has its
            own, and what multiplies is 1 plus the scale.
        residual: A second input is added first, and the sum, rounded to the dtype, is a second result.
        gated: The result is multiplied by a gate, one for each element.
    """

    centred: bool
    biased: bool
    shared: bool = True
    residual: bool = False
    gated: bool = False

    @property
    def inputs(self) -> int:
        """Tensors of the size of the input that are read."""
        return 1 + self.residual + (0 if self.shared else 2) + self.gated

    @property
    def outputs(self) -> int:
        """Tensors of the size of the input that are written."""
        return 1 + self.residual


LAYER_NORM: Final = RowRecipe(centred=True, biased=True)
RMS_NORM: Final = RowRecipe(centred=False, biased=False)
FUSED_ADD_LAYER_NORM: Final = RowRecipe(centred=True, biased=True, residual=True)
FUSED_ADD_RMS_NORM: Final = RowRecipe(centred=False, biased=False, residual=True)
ADA_LAYER_NORM: Final = RowRecipe(centred=True, biased=True, shared=False)
ADA_LAYER_NORM_ZERO: Final = RowRecipe(centred=True, biased=True, shared=False, gated=True)
