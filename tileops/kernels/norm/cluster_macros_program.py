"""What the TileLang programs of channels in clusters share. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

Each block of a cluster has a share of one channel: bulk copies bring it, plane by plane, and from there it is looked at
and written, so that memory is read once however long the channel is.
"""

import tilelang.language as T

from tileops.kernels.norm.cluster_layout import VECTOR_BYTES, ClusterLayout
from tileops.kernels.norm.cut_layout import FACTS

__all__ = ["PASSES", "WARP", "await_piece", "bring", "meet_blocks", "meet_warps", "stand"]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_DISABLE_SAFE_MEMORY_ACCESS")
"""Barriers stand where they are needed, and so do conditions."""

WARP = 32


@T.macro
def bring(x, kept, filled, lane, first, mine, piece, channel, c, q, lay: ClusterLayout):
    """A warp asks for the share of its block: *mine* vectors of the channel from *first* on.

    Args:
        x: The input, as vectors.
        kept: Becomes the share.
        filled: A barrier for each piece of it, where each warp that asks arrives once.
        lane: Of this thread.
        first: First vector of the channel.
        mine: Vectors.
        piece: Vectors of a piece.
        channel: The channel.
        c: Channels.
        q: Vectors of a plane.
        lay: The layout.
    """
    ends = T.alloc_local((2,), "int32")
    planes = T.alloc_local((2,), "int32")
    span = T.alloc_local((2,), "int32")
    for j in T.serial(lay.chunks):
        ends[0] = first + T.min(mine, j * piece)
        ends[1] = first + T.min(mine, (j + 1) * piece)
        if ends[1] > ends[0]:
            if lane == 0:
                T.mbarrier_arrive_expect_tx(filled[j], (ends[1] - ends[0]) * VECTOR_BYTES)
            T.sync_warp()
            planes[0] = T.truncdiv(ends[0], q) + lane
            planes[1] = T.truncdiv(ends[1] - 1, q)
            while planes[0] <= planes[1]:
                span[0] = T.max(planes[0] * q, ends[0])
                span[1] = T.min((planes[0] + 1) * q, ends[1]) - span[0]
                T.call_extern(
                    "handle",
                    "tl::tma_load",
                    T.address_of(kept[span[0] - first, 0]),
                    T.address_of(x[(T.cast(planes[0], "int64") * c + channel) * q + (span[0] - planes[0] * q), 0]),
                    filled[j],
                    T.cast(span[1] * VECTOR_BYTES, "uint32"),
                )
                planes[0] += WARP


@T.macro
def await_piece(end, left, filled, j, mine, piece):
    """Wait for piece *j* of a share.

    Args:
        end: Becomes the vector of the share that the piece ends before.
        left: Becomes how many there are from that of this thread to the end.
        filled: As :func:`bring` has it.
        j: Which piece.
        mine: Vectors of the share.
        piece: Vectors of a piece.
    """
    end[0] = T.min(mine, (j + 1) * piece)
    left[0] = end[0] - T.min(mine, j * piece)
    if left[0] > 0:
        T.mbarrier_wait_parity(filled[j], 0)
    left[0] -= T.get_thread_binding()


@T.macro
def read_first(of, table, rows):
    """The first lanes of each warp get the *rows* of a table, the others zeros."""
    lane = T.get_thread_binding() % WARP
    for i in T.unroll(FACTS):
        of[i] = 0.0
    if lane < rows:
        for i in T.vectorized(FACTS):
            of[i] = table[lane, i]


@T.macro
def meet_warps(of, exchanged, warps):
    """The first lanes of each warp get what each of the *warps* knows, *of* its first lane; the others get zeros."""
    warp = T.get_thread_binding() // WARP
    if T.get_thread_binding() % WARP == 0:
        for i in T.vectorized(FACTS):
            exchanged[warp, i] = of[i]
    T.sync_threads()
    read_first(of, exchanged, warps)


@T.macro
def meet_blocks(of, own, pieces, rank, blocks):
    """The first lanes of each warp get what each of the *blocks* knows, *of* its first thread; the others get zeros.

    Each block has said that it is there, by ``T.cluster_arrive_relaxed()``.
    """
    if T.get_thread_binding() == 0:
        for i in T.vectorized(FACTS):
            own[0, i] = of[i]
    T.cluster_wait()  # until the blocks are there that are written to
    T.sync_threads()
    for to in T.unroll(blocks):
        T.copy_cluster(own, pieces[rank : rank + 1, 0:FACTS], dst_block=to)
    T.cluster_sync()
    read_first(of, pieces, blocks)


@T.macro
def stand(at, place, first, channel, c, q):
    """Stand at vector *first* of a channel: *at* becomes the vector of the plane, *place* that of the tensor."""
    at[1] = T.truncdiv(first, q)
    at[0] = first - at[1] * q
    place[0] = (T.cast(at[1], "int64") * c + channel) * q + at[0]
