"""What attention programs do to scores. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

Softmax is held in base 2: scores are multiplied by ``log2(e)``, so that ``exp2`` serves throughout.
"""

import dataclasses
import math
from typing import Any

import tilelang.language as T

__all__ = ["LOG2_E", "WEIGHT_BITS", "ScoreScale", "hide", "scale_scores", "times"]

LOG2_E = math.log2(math.e)

WEIGHT_BITS = 15
"""The largest weight of a row is ``2**15``. Float16 ends at 65504 and is fully precise down to ``2**-14``, so
that weights down to ``2**-29`` of the largest are rounded by half a unit in the last place."""


@dataclasses.dataclass(frozen=True)
class ScoreScale:
    """How scores are scaled.

    Attributes:
        sm_scale: Factor of the scores.
        softcap: Bound of the scores, 0 for none.
    """

    sm_scale: float
    softcap: float

    @property
    def capped(self) -> bool:
        """Whether scores have a bound."""
        return self.softcap > 0.0

    @property
    def folded(self) -> bool:
        """Whether scores are scaled where the exponential is taken, and not before: that keeps their order."""
        return not self.capped and self.sm_scale > 0.0

    @property
    def scale(self) -> float:
        """What scores are multiplied by, in base 2."""
        return self.sm_scale * LOG2_E

    @property
    def cap(self) -> float:
        """The bound, in base 2."""
        return self.softcap * LOG2_E

    @property
    def tanh_scale(self) -> float:
        """What scores are multiplied by for the exponential that the bound takes."""
        return 2.0 * self.sm_scale * LOG2_E / self.softcap if self.capped else 0.0


def hidden(
    key: Any,
    position: Any,
    seqlen_kv: Any,
    window_left: Any,
    window_right: Any,
    bounded_left: bool,
    bounded_right: bool,
) -> Any:
    """Whether the query at *position* does not see *key*."""
    hides = key >= seqlen_kv
    if bounded_right:
        hides = T.Or(hides, key > position + window_right)
    if bounded_left:
        hides = T.Or(hides, key < position - window_left)
    return hides


def times(constant: float, factor: Any) -> Any:
    """*constant* times *factor*, which a launch gives, or alone where that is ``None``."""
    return constant if factor is None else factor * constant


@T.macro
def scale_scores(scores, queries, keys, score: ScoreScale, factor=None):
    """Scale so many *queries* times *keys* scores, and by *factor*, where scales are not folded into the exponent."""
    if not score.folded:
        for i, j in T.Parallel(queries, keys):
            if score.capped:
                scores[i, j] = score.cap - 2.0 * score.cap / (
                    T.exp2(scores[i, j] * times(score.tanh_scale, factor)) + 1.0
                )
            else:
                scores[i, j] = scores[i, j] * times(score.scale, factor)


@T.macro
def hide(
    scores, queries, keys, at, row, seqlen_kv, window_left, window_right, bounded_left, bounded_right
):  # fmt: skip
    """Hide the keys, the first at *at*, that a query does not see, the first at *row*."""
    for i, j in T.Parallel(queries, keys):
        scores[i, j] = T.if_then_else(
            hidden(at + j, row + i, seqlen_kv, window_left, window_right, bounded_left, bounded_right),
            -T.infinity("float32"),
            scores[i, j],
        )
