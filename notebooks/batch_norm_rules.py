"""The rules of batch norm training as functions over a dataclass, for the notebooks.

The contract names four implementations of ``batch_norm_fwd_train``: a channel in the registers of a thread, in
those of a block, few long channels cut over blocks, and a general one. Their kernels are not in this tree yet;
their regions can be looked at, proved and compared all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tileops_rules import Candidate, Range, Selector

THREAD_CHANNEL = 64
"""Elements of a channel that one thread holds as float32 in registers."""
BLOCK_CHANNEL = 16_384
"""Elements of a channel that the 256 threads of a block hold, 64 float32 values each."""
FEW_CHANNELS = 64
"""Fewer channels than this leave most of a card idle where a block takes a whole channel."""
SMALLEST_SPLIT = 65_536
"""Elements of a channel from which it is worth a second launch to add up its parts."""


@dataclass(frozen=True)
class BatchNormCall:
    """``(n, c, *spatial)`` of one batch; ``spatial`` is the product of the trailing axes."""

    n: Annotated[int, Range(1, 2**20)] = 1
    c: Annotated[int, Range(1, 2**20)] = 1
    spatial: Annotated[int, Range(1, 2**24)] = 1
    dtype: Literal["float32", "float16", "bfloat16"] = "float16"


def whole(call: BatchNormCall) -> str | None:
    """A channel in the registers of a thread: short channels of vectors."""
    if call.n * call.spatial > THREAD_CHANNEL:
        return f"a channel has {call.n * call.spatial} elements, more than {THREAD_CHANNEL}"
    return None


def every(call: BatchNormCall) -> None:
    """The general implementation serves everything."""


def selector(*, block_channel: int = BLOCK_CHANNEL, few_channels: int = FEW_CHANNELS, ordered: bool = True) -> Selector:
    """The four implementations of ``batch_norm_fwd_train``.

    Args:
        block_channel: The limit of ``fwd_train_wide``, in elements of a channel.
        few_channels: The limit of ``fwd_train_split``, in channels.
        ordered: Whether ``fwd_train_whole`` declares that it is preferred over ``fwd_train_wide``.
    """

    def wide(call: BatchNormCall) -> str | None:
        """A channel in the registers of a block."""
        if call.n * call.spatial > block_channel:
            return f"a channel has {call.n * call.spatial} elements, more than {block_channel}"
        return None

    def split(call: BatchNormCall) -> str | None:
        """Few long channels, each cut over several blocks."""
        if call.c >= few_channels:
            return f"{call.c} channels fill the card without a split"
        if call.n * call.spatial < SMALLEST_SPLIT:
            return f"a channel has {call.n * call.spatial} elements, fewer than {SMALLEST_SPLIT}"
        return None

    preferred = frozenset({"fwd_train_wide"}) if ordered else frozenset()
    return Selector(
        BatchNormCall,
        [
            Candidate("fwd_train_whole", whole, preferred_over=preferred),
            Candidate("fwd_train_wide", wide),
            Candidate("fwd_train_split", split),
            Candidate("fwd_train_kernel", every, general=True),
        ],
        op="BatchNormFwdOp",
        interface="batch_norm_fwd_train",
    )
