"""What a block of prefill does on Hopper, whatever it multiplies. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

A block has three warpgroups with roles of their own. The last one brings queries, keys and values by TMA; the
first two multiply, 64 queries each, and meet the copies at barriers only. Blocks stay: each takes one tile of
queries after another, longest first, and goes through its keys from the last to the first. The products with the
values of a trip are taken along with those of the next trip's keys.
"""

import dataclasses
from typing import Any

import tilelang.language as T

from tileops.kernels.attention.gqa.prefill_macros_program import (
    LOWEST,
    Held,
    bend,
    held_of,
    multiply_keys,
    placed,
    release,
    release_everywhere,
    shared_barrier,
    weigh,
    weigh_first,
)
from tileops.kernels.attention.gqa.prefill_shape_program import (
    CONSUMER_THREADS,
    CONSUMER_WARPS,
    QUERIES,
    WARP,
    WARPGROUP,
    Launch,
    PrefillShape,
    Products,
    QueryTile,
)
from tileops.kernels.attention.gqa.score_macros_program import ScoreScale, times

__all__ = ["BLOCK_THREADS", "attend_block", "ring_of"]

BLOCK_THREADS = CONSUMER_THREADS + WARPGROUP
PRODUCER_REGISTERS = 24
CONSUMER_REGISTERS = 240
MULTIPLY_TURNS = 8
"""First of the two named barriers at which the multiplying warpgroups pass the tensor cores to each other."""
SMALLEST_SCALE = 2.0**-126
"""What the scale of scores is at least: minus infinity, which is a score that is hidden, times zero would be NaN."""


@dataclasses.dataclass(frozen=True)
class Ring:
    """Tiles in shared memory, and barriers at which a tile has come (full) or has been read (free).

    Attributes:
        q_tile: ``(QUERIES, depth)``.
        k_ring: ``(stages, tile_keys, depth)``.
        v_ring: ``(stages, *values_tile)``.
        q_full: One barrier, at which the warp that brings arrives.
        q_free: One barrier, at which the multiplying warps arrive.
        k_full: A barrier for each stage.
        k_free: The same; the multiplying warps of every block of the cluster arrive.
        v_full: Like *k_full*.
        v_free: Like *k_free*.
    """

    q_tile: Any
    k_ring: Any
    v_ring: Any
    q_full: Any
    q_free: Any
    k_full: Any
    k_free: Any
    v_full: Any
    v_free: Any


@T.macro
def ring_of(shape: PrefillShape, products: Products):
    """A block's :class:`Ring`."""
    q_tile = T.alloc_shared((QUERIES, products.depth), products.dtype)
    k_ring = T.alloc_shared((products.stages, shape.tile_keys, products.depth), products.dtype)
    v_ring = T.alloc_shared((products.stages, *products.values_tile), products.dtype)
    q_full = T.alloc_barrier(1)
    q_free = T.alloc_barrier(CONSUMER_WARPS)
    k_full = T.alloc_barrier([1] * products.stages)
    k_free = shared_barrier([CONSUMER_WARPS * shape.cluster] * products.stages, shape.cluster)
    v_full = T.alloc_barrier([1] * products.stages)
    v_free = shared_barrier([CONSUMER_WARPS * shape.cluster] * products.stages, shape.cluster)
    return Ring(q_tile, k_ring, v_ring, q_full, q_free, k_full, k_free, v_full, v_free)


@T.macro
def bring(region, tile, full, free, slot, phase, tx, sharing):
    """Copy a region to a tile of shared memory as soon as that is free, and say so when it has come."""
    T.mbarrier_wait_parity(free[slot], phase ^ 1)
    T.tma_copy(region, tile, barrier=full[slot], leader_scope_threads=WARP, **sharing)
    release(full, slot, tx)


@T.macro
def bring_tile(
    tile: QueryTile, trip: T.Ref, tx, ring: Ring, launch: Launch, shape: PrefillShape, products: Products
):  # fmt: skip
    """Bring a tile of queries and, one trip after the other, all keys and values that it is multiplied with."""
    bring(
        launch.q[tile.sequence, tile.begin : tile.begin + QUERIES, tile.head, 0 : products.depth],
        ring.q_tile, ring.q_full, ring.q_free, 0, tile.round & 1, tx, {},
    )  # fmt: skip
    for step in T.serial(tile.high - tile.low):
        at = (tile.high - 1 - step) * shape.tile_keys
        slot = trip % products.stages
        phase = trip // products.stages & 1
        bring(
            launch.k[tile.sequence, at : at + shape.tile_keys, tile.head // shape.group, 0 : products.depth],
            ring.k_ring[slot, :, :], ring.k_full, ring.k_free, slot, phase, tx, shape.sharing,
        )  # fmt: skip
        bring(
            products.values_at(launch.v, tile.sequence, tile.head // shape.group, at),
            ring.v_ring[slot, :, :], ring.v_full, ring.v_free, slot, phase, tx, shape.sharing,
        )  # fmt: skip
        trip += 1


@T.macro
def wait_turn(warpgroup, ping_pong):
    """Wait until the other warpgroup has issued its products."""
    if ping_pong:
        if warpgroup == 0:
            T.sync_threads(MULTIPLY_TURNS, CONSUMER_THREADS)
        else:
            T.sync_threads(MULTIPLY_TURNS + 1, CONSUMER_THREADS)


@T.macro
def pass_turn(warpgroup, ping_pong):
    """Let the other warpgroup issue its products."""
    if ping_pong:
        T.named_barrier_arrive(MULTIPLY_TURNS + 1 - warpgroup, CONSUMER_THREADS)


def exponent_scale(score: ScoreScale, factor: Any) -> Any:
    """What scores are multiplied by where their exponential is taken."""
    return score.scale if factor is None else T.max(times(score.scale, factor), SMALLEST_SCALE)


@T.macro
def attend_trip(
    at, masked, trip: T.Ref, tile: QueryTile, tx, held: Held, factor, scale, results, ring: Ring, launch: Launch,
    shape: PrefillShape, products: Products,
):  # fmt: skip
    """Multiply the keys from *at* on, and add the values of the trip before."""
    score = products.score
    trip += 1
    slot = trip % products.stages
    T.mbarrier_wait_parity(ring.k_full[slot], trip // products.stages & 1)
    wait_turn(tx // WARPGROUP, products.ping_pong)
    multiply_keys(held.queries, ring.k_ring, held.scores, slot)
    if products.weights_first:
        products.settle(held, results)
    before_slot = (trip - 1) % products.stages
    T.mbarrier_wait_parity(ring.v_full[before_slot], (trip - 1) // products.stages & 1)
    products.multiply_values(held, ring.v_ring, before_slot)
    pass_turn(tx // WARPGROUP, products.ping_pong)
    T.wait_wgmma(1)
    T.warpgroup_fence_operand(held.scores, num_regs=shape.tile_keys // 2)
    release_everywhere(ring.k_free, slot, tx, shape.cluster)
    bend(
        held.scores, at, launch.row_of(tile.begin), masked, launch.seqlen_kv,
        launch.window_left, launch.window_right, shape, score, factor,
    )  # fmt: skip
    weigh(held, shape.tile_keys, score.folded, scale, products.weight)
    T.warpgroup_fence_operand(held.scores, num_regs=shape.tile_keys // 2)
    if products.weights_first:
        weigh_first(held)
    T.wait_wgmma(0)
    T.warpgroup_fence_operand(held.acc, num_regs=products.dim // 2)
    release_everywhere(ring.v_free, before_slot, tx, shape.cluster)
    products.pack(held)
    if not products.weights_first:
        products.settle(held, results)


@T.macro
def attend_tile(
    tile: QueryTile, trip: T.Ref, tx, held: Held, results, ring: Ring, launch: Launch, shape: PrefillShape,
    products: Products,
):  # fmt: skip
    """Attend a tile of queries to the keys it sees."""
    score = products.score
    factor = products.factor_of(launch.scales, tile.sequence, tile.head)
    scale = exponent_scale(score, factor)
    products.clear(held, results)
    T.clear(held.sums)
    T.fill(held.base, LOWEST)
    T.mbarrier_wait_parity(ring.q_full, tile.round & 1)
    if products.held_queries:
        T.copy(ring.q_tile, held.queries)
        release(ring.q_free, 0, tx)
    T.mbarrier_wait_parity(ring.k_full[trip % products.stages], trip // products.stages & 1)
    multiply_keys(held.queries, ring.k_ring, held.scores, trip % products.stages)
    T.wait_wgmma(0)
    T.warpgroup_fence_operand(held.scores, num_regs=shape.tile_keys // 2)
    release_everywhere(ring.k_free, trip % products.stages, tx, shape.cluster)
    bend(
        held.scores, (tile.high - 1) * shape.tile_keys, launch.row_of(tile.begin), True, launch.seqlen_kv,
        launch.window_left, launch.window_right, shape, score, factor,
    )  # fmt: skip
    weigh(held, shape.tile_keys, score.folded, scale, products.weight)
    products.pack(held)

    for masked, first, count in (
        (True, tile.high - 2, tile.high - 1 - tile.clear_high),
        (False, tile.clear_high - 1, tile.clear_high - tile.clear_low),
        (True, tile.clear_low - 1, tile.clear_low - tile.low),
    )[0 if shape.bounded_right else 1 : 3 if shape.bounded_left else 2]:
        if products.gathered_trips:
            for part in T.serial(T.ceildiv(count, products.gathered_trips)):
                for step in T.serial(T.min(products.gathered_trips, count - part * products.gathered_trips)):
                    attend_trip(
                        (first - part * products.gathered_trips - step) * shape.tile_keys, masked, trip, tile, tx, held,
                        factor, scale, results, ring, launch, shape, products,
                    )  # fmt: skip
                products.gather(held, results)
        else:
            for step in T.serial(count):
                attend_trip(
                    (first - step) * shape.tile_keys, masked, trip, tile, tx, held, factor, scale, results, ring,
                    launch, shape, products,
                )  # fmt: skip

    if not products.lent_queries and not products.held_queries:
        release(ring.q_free, 0, tx)
    if products.weights_first:
        products.settle(held, results)
    T.mbarrier_wait_parity(ring.v_full[trip % products.stages], trip // products.stages & 1)
    products.multiply_values(held, ring.v_ring, trip % products.stages)
    T.wait_wgmma(0)
    T.warpgroup_fence_operand(held.acc, num_regs=products.dim // 2)
    release_everywhere(ring.v_free, trip % products.stages, tx, shape.cluster)
    trip += 1
    products.finish(held, results, tile, launch)
    if products.lent_queries:
        release(ring.q_free, 0, tx)


@T.macro
def attend_block(
    ring: Ring, results, block, launch: Launch, shape: PrefillShape, products: Products
):  # fmt: skip
    """All that a block does: bring its tiles and attend them. *results* goes to the macros of *products*."""
    tx = T.get_thread_binding()
    blocks = T.alloc_var("int32")
    tiles = T.alloc_var("int32")
    rounds = T.alloc_var("int32")
    rows = T.alloc_var("int32")
    section = T.alloc_var("int32")
    tile = T.alloc_var("int32")
    begin = T.alloc_var("int32")
    head = T.alloc_var("int32")
    sequence = T.alloc_var("int32")
    low = T.alloc_var("int32")
    high = T.alloc_var("int32")
    clear_low = T.alloc_var("int32")
    clear_high = T.alloc_var("int32")
    trip = T.alloc_var("int32")
    rows = T.ceildiv(launch.seqlen_q, QUERIES)
    section = shape.section_of(launch.seqlen_kv, launch.batch)
    tiles = rows * (shape.heads // shape.cluster) * launch.batch
    blocks = T.min(tiles, shape.sm_count // shape.cluster)
    rounds = (tiles + blocks - 1) // blocks
    trip = 0

    with T.ws(2):
        T.dec_max_nreg(PRODUCER_REGISTERS)
        if tx < CONSUMER_THREADS + WARP:
            for r in T.serial(rounds):
                tile = shape.tile_of(r, blocks, block)
                if tile < tiles:
                    begin, head, sequence = placed(tile, rows, section, launch.batch, block, shape)
                    high = shape.high_of(launch.row_of(begin), launch.seqlen_kv, launch.window_right)
                    low = shape.low_of(launch.row_of(begin), high, launch.window_left)
                    bring_tile(
                        QueryTile(r, begin, head, sequence, low, high), trip, tx, ring, launch, shape, products
                    )  # fmt: skip

    with T.ws(0, 1):
        T.inc_max_nreg(CONSUMER_REGISTERS)
        held = held_of(ring.q_tile, shape.tile_keys, products)
        if products.ping_pong and tx // WARPGROUP == 1:
            pass_turn(1, products.ping_pong)

        for r in T.serial(rounds):
            tile = shape.tile_of(r, blocks, block)
            if tile < tiles:
                begin, head, sequence = placed(tile, rows, section, launch.batch, block, shape)
                high = shape.high_of(launch.row_of(begin), launch.seqlen_kv, launch.window_right)
                low = shape.low_of(launch.row_of(begin), high, launch.window_left)
                clear_high = shape.clear_high_of(launch.row_of(begin), low, high, launch.seqlen_kv, launch.window_right)
                clear_low = shape.clear_low_of(launch.row_of(begin), low, clear_high, launch.window_left)
                attend_tile(
                    QueryTile(r, begin, head, sequence, low, high, clear_low, clear_high), trip, tx, held, results,
                    ring, launch, shape, products,
                )  # fmt: skip
        if products.stored_by_tma:
            T.tma_store_wait(0)  # the shared tile outlives its last store

    if shape.cluster > 1:
        T.cluster_sync()  # no block leaves while another may still arrive at its barriers
