"""What programs share whose blocks take tickets. Imports TileLang: loaded by builders only.

No ``from __future__ import annotations`` here: TileLang evaluates the annotations of a program.

Channels are cut into parts, and each part is a task twice: its statistics are taken, and later, when those of all parts
of its channel are known, it is normalized. A block draws a ticket when it starts, and the ticket says which task it
has. Tickets count the tasks in an order in which each waits only for some with lower tickets. Blocks with lower tickets
have started, and statistics wait for nothing: some block always goes on, however few the device runs at a time.

Statistics are *lag* tasks ahead of the rest, so that what is read for the second time is still in the L2 cache. The
parts of a channel come in turn for their statistics, and the other way round for the rest, so that the end of a channel
too long for the cache is found there.

``counters`` are zero when a launch begins, and zero when it ends: the first counts tickets. Each of the others belongs
to channels that are read together. It counts the parts whose statistics are written; one more when the block that
wrote the last of them has written what follows for the channel; then the blocks that took that. Additions return what
was there before, wanted or not: of others, TileLang 0.1.15 drops the order in which memory has to change.
"""

import tilelang.language as T

__all__ = [
    "BASE",
    "BLOCK",
    "CUT",
    "KIND",
    "LEFT",
    "PASSES",
    "PLACE",
    "STATISTICS",
    "TASK",
    "WARP",
    "arrive",
    "await_facts",
    "draw_task",
    "go_on",
    "leave",
    "publish",
    "stand",
]

PASSES = ("TL_DISABLE_THREAD_STORAGE_SYNC", "TL_DISABLE_SHARED_MEMORY_REUSE", "TL_DISABLE_SAFE_MEMORY_ACCESS")
"""Barriers are where they are written: one that TileLang adds where a single warp goes on would never be passed.
Accesses are guarded by hand, by what is left of a part."""

WARP = 32
TASK = 6
"""Values that say what is to be done."""
KIND, BLOCK, CUT, LEFT, PLACE, BASE = 0, 1, 2, 3, 4, 5
"""Where a task has its kind, its channels, its part, the vectors of the part, and where the first of them is: within
its plane, and over the whole tensor."""
STATISTICS, RESULTS = 0, 1
"""Kinds of tasks."""

TICKETS, ARRIVED = 0, 1
"""Where the counters have the tickets, and the first set of channels."""
HERE, STEP, NEXT_PLANE = 0, 1, 2
"""Where a position has the vector, how far a step goes, and how much further one goes that leaves the plane."""


@T.macro
def draw_task(task, counters, tasks, cuts, lag, reach, n, c, q, groups):
    """Thread 0 draws a ticket, and every thread gets the task in shared memory.

    Args:
        task: Becomes the task.
        counters: Of the launch.
        tasks: Tasks of one kind.
        cuts: Parts of a channel.
        lag: Statistics that are ahead: *cuts* at least, *tasks* at most.
        reach: Vectors of a part.
        n: Samples.
        c: Channels.
        q: Vectors of a plane.
        groups: Channels that are read together.
    """
    number = T.alloc_local((3,), "int32")
    first = T.alloc_local((2,), "int64")
    if T.get_thread_binding() == 0:
        number[0] = T.atomic_add(counters[TICKETS], 1, memory_order="relaxed", return_prev=True)
        if number[0] == 2 * tasks - 1:
            counters[TICKETS] = 0
        number[1] = number[0] - lag
        number[2] = STATISTICS
        if number[1] >= 2 * (tasks - lag):
            number[2] = RESULTS
            number[0] = number[1] - (tasks - lag)
        elif number[1] >= 0:
            number[2] = number[1] % 2
            number[0] = number[1] // 2 + T.if_then_else(number[1] % 2 == STATISTICS, lag, 0)
        number[1] = T.truncdiv(number[0], cuts)
        number[0] = number[0] - number[1] * cuts
        if number[2] == RESULTS:
            number[0] = cuts - 1 - number[0]
        first[0] = T.cast(reach, "int64") * T.cast(number[0], "int64")
        first[1] = T.truncdiv(first[0], T.cast(q, "int64"))
        task[KIND] = T.cast(number[2], "int64")
        task[BLOCK] = T.cast(number[1], "int64")
        task[CUT] = T.cast(number[0], "int64")
        task[LEFT] = T.min(T.cast(reach, "int64"), T.cast(n, "int64") * T.cast(q, "int64") - first[0])
        first[0] = first[0] - first[1] * T.cast(q, "int64")
        task[PLACE] = first[0]
        task[BASE] = first[0] + T.cast(q, "int64") * (
            first[1] * T.cast(c, "int64") + T.cast(number[1], "int64") * T.int64(groups)
        )
    T.sync_threads()


@T.macro
def stand(at, off, task, lane, group, lanes, c, q):
    """Stand at the first vector of a thread, to go on in steps of *lanes*.

    Args:
        at: Becomes the position within the plane.
        off: Becomes the position over the whole tensor.
        task: Of the block.
        lane: Of this thread, among those that share its channel.
        group: Its channel, among those that are read together.
        lanes: Threads that share a channel.
        c: Channels.
        q: Vectors of a plane.
    """
    off[NEXT_PLANE] = (T.cast(c, "int64") - T.int64(1)) * T.cast(q, "int64")
    off[HERE] = task[BASE] + T.cast(group, "int64") * T.cast(q, "int64") + T.cast(lane, "int64")
    off[STEP] = T.int64(lanes)
    at[HERE] = T.cast(task[PLACE], "int32") + lane
    at[STEP] = lanes
    if q > lanes:
        if at[HERE] >= q:
            at[HERE] -= q
            off[HERE] += off[NEXT_PLANE]
    else:
        off[HERE] += T.cast(T.truncdiv(at[HERE], q), "int64") * off[NEXT_PLANE]
        off[STEP] += T.cast(T.truncdiv(T.int32(lanes), q), "int64") * off[NEXT_PLANE]
        at[HERE] = T.truncmod(at[HERE], q)
        at[STEP] = T.truncmod(T.int32(lanes), q)


@T.macro
def go_on(at, off, q):
    """One step on."""
    at[HERE] += at[STEP]
    off[HERE] += off[STEP]
    if at[HERE] >= q:
        at[HERE] -= q
        off[HERE] += off[NEXT_PLANE]


@T.macro
def arrive(counters, block, before):
    """The first warp says that its part is written; ``before[0]`` becomes how many parts were before."""
    T.sync_warp()
    before[0] = 0
    if T.get_thread_binding() == 0:
        before[0] = T.atomic_add(counters[ARRIVED + block], 1, memory_order="acq_rel", return_prev=True)
    before[0] = T.shfl_sync(before[0], 0)
    T.sync_warp()


@T.macro
def publish(counters, block, cuts):
    """The first warp says that the facts of its channels are written."""
    T.sync_warp()
    if T.get_thread_binding() == 0:
        T.atomic_store(counters[ARRIVED + block], cuts + 1, memory_order="release")


@T.macro
def await_facts(counters, block, cuts):
    """Wait until the facts of the channels are written."""
    if T.get_thread_binding() == 0:
        while T.atomic_load(counters[ARRIVED + block], memory_order="acquire") <= cuts:
            T.evaluate(0)
    T.sync_threads()


@T.macro
def leave(counters, block, cuts):
    """Say that the facts were taken; the last to say so sets the counter back."""
    before = T.alloc_local((1,), "int32")
    if T.get_thread_binding() == 0:
        before[0] = T.atomic_add(counters[ARRIVED + block], 1, memory_order="relaxed", return_prev=True)
        if before[0] == 2 * cuts:
            counters[ARRIVED + block] = 0
