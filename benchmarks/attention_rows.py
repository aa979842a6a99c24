"""One row of an attention report: times of a call and of its peers, what they reach, and whether results agree."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import torch
from attention_case import AttentionCase, Ceilings
from attention_peers import peers_of
from timing import Timer, Work, captured, failure_of, host_us

from tileops.kernels.tilelang_build import dtype_name

SHORT_US: Final = 100.0
"""Floor from which on no host is late."""
LONG_US: Final = 1000.0
"""Device time from which what lies around kernels is no part of it that counts."""
LAUNCH: Final = "launch"
"""Where host times stand: the launch of our kernel alone, with its arguments made before."""
CLOSE: Final = {1: 0.1, 2: 0.02}
"""How far results may be apart, beside the largest of them, by the bytes of an input."""

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Runs:
    """What of a case runs.

    Attributes:
        works: By name a call.
        failed: By name why there is none.
        apart: By peer how far its result is from ours, beside the largest of ours.
        launch: Of decode, the launch of our kernel alone.
    """

    works: dict[str, Work]
    failed: dict[str, str]
    apart: dict[str, float]
    launch: Work | None = None

    @classmethod
    def of(cls, case: AttentionCase) -> Runs:
        """Each has run once: what is compiled at first use is compiled."""
        inputs = case.inputs()
        works: dict[str, Work] = {}
        failed: dict[str, str] = {}
        for name, work in {"ours": case.ours(inputs), **peers_of(case, inputs)}.items():
            reason = work if isinstance(work, str) else failure_of(work)
            if reason is not None:
                failed[name] = reason
            elif not isinstance(work, str):
                works[name] = work
        launch = case.launch(inputs) if case.kind == "decode" and "ours" in works else None
        return cls(works, failed, apart(works), launch)


def apart(works: dict[str, Work]) -> dict[str, float]:
    """How far each result is from ours, beside the largest of ours; nothing where there is none of ours."""
    if "ours" not in works:
        return {}
    ours = works["ours"]().float()
    most = ours.abs().max()
    return {name: float((work().float() - ours).abs().max() / most) for name, work in works.items() if name != "ours"}


def hosts_of(case: AttentionCase) -> dict[str, float]:
    """What hosts take of each call, and of our launch alone.

    Measured before any profile: the profiler stays in the way of launches after its first one.
    """
    runs = Runs.of(case)
    return host_us(runs.works if runs.launch is None else {**runs.works, LAUNCH: runs.launch})


def times_of(works: dict[str, Work], timer: Timer, hosts: dict[str, float] | None) -> dict[str, dict[str, float]]:
    """Device times of each, what *hosts* took, and what is short enough to be measured of kernels and graphs."""
    found = {"us": timer.in_turn(works)}
    if found["us"].get("ours", 0.0) < LONG_US:
        busy = {name: timer.busy(work) for name, work in works.items()}
        found["busy_us"] = {name: us for name, us in busy.items() if us is not None}
    if not hosts:
        return found
    found["host_us"] = hosts
    if hosts.get("ours", 0.0) > found["us"].get("ours", 0.0):
        graphs = {name: graph for name, work in works.items() if (graph := graph_of(work)) is not None}
        found["graph_us"] = timer.in_turn(graphs)
    return found


def graph_of(work: Work) -> Work | None:
    """*work* as a graph, or ``None`` where it cannot be captured."""
    made: list[Work] = []
    return made[0] if failure_of(lambda: made.append(captured(work))) is None else None


def ahead_of(us: dict[str, float]) -> float | None:
    """The best peer over ours."""
    peers = [each for name, each in us.items() if name != "ours"]
    return round(min(peers) / us["ours"], 3) if peers and "ours" in us else None


def measured(case: AttentionCase, timer: Timer, ceilings: Ceilings, hosts: dict[str, float] | None) -> Row:
    """One row; *hosts* as :func:`hosts_of` has them, where that was asked."""
    runs = Runs.of(case)
    return row_of(case, runs, times_of(runs.works, timer, hosts), ceilings)


def row_of(case: AttentionCase, runs: Runs, times: dict[str, dict[str, float]], ceilings: Ceilings) -> Row:
    """What was measured of *case*, and what it comes to."""
    us, floor = times["us"], ceilings.floor_us(case)
    host = times.get("host_us", {})
    row: Row = {"kind": case.kind, **dataclasses.asdict(case), "dtype": dtype_name(case.dtype)}
    row.update({figure: {name: round(each, 2) for name, each in values.items()} for figure, values in times.items()})
    row[case.rate] = {name: round(case.reached(each), 3) for name, each in us.items()}
    row.update(floor_us=round(floor, 2), ahead=ahead_of(us), graph_ahead=ahead_of(times.get("graph_us", {})))
    if "ours" in us:
        row["share"] = round(floor / us["ours"], 3)
        if case.bar is not None:
            reached = times.get("busy_us", {}).get("ours") if case.bar.figure == "busy_us" else case.reached(us["ours"])
            row["bar"]["kept"] = reached is not None and case.bar.kept(reached)
    if LAUNCH in host:
        row["host_over_launch_us"] = round(host["ours"] - host[LAUNCH], 1)
    row.update(apart={name: round(each, 5) for name, each in runs.apart.items()}, failed=runs.failed)
    return row


def wrong(row: Row) -> list[str]:
    """What must not be: that ours failed, or that a peer has another result."""
    most = CLOSE[getattr(torch, row["dtype"]).itemsize]
    said = [f"ours failed: {row['failed']['ours']}"] if "ours" in row["failed"] else []
    # Written so that NaN is wrong.
    return said + [f"{name} is {each} from ours" for name, each in row["apart"].items() if not each <= most]
