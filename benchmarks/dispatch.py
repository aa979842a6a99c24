"""What choosing a kernel costs: times, as ratios to a plain dict look-up in the same run, and their bounds.

    python benchmarks/dispatch.py            # prints a table; exit code 1 where a bound is broken
    python benchmarks/dispatch.py --quick    # fewer repetitions and lengths
    python benchmarks/dispatch.py --write    # also benchmarks/results/dispatch-<date>.json

Needs no GPU: the devices are played and the kernels' constructors do nothing. Times are the smallest of
several repetitions, since everything that disturbs a measurement makes it longer.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import timeit
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.device_facts import DeviceFacts, faked
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops import GQADenseFwdOp
from tileops.ops.op_base import Op

DEVICE = torch.device("cuda", 0)
FACTS = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
RESULTS = Path(__file__).resolve().parent / "results"

HIT_US = 1.5
BUILD_RATIO = 1.2
MISS_US = 8.0
FIRST_CONSTRUCTION_MS = 150.0
BESIDES_LIFTING_MS = 2.0
NEXT_CONSTRUCTION_US = 50.0
GROWTH_MIB = 2.0
"""What the allocator may keep: a thousandth of what the calls would take if each were held."""

LENGTHS, QUICK_LENGTHS = 1_000_000, 100_000


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement, in *unit*; ``bound`` is the most it may be."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    lookups: float | None = None

    @property
    def kept(self) -> bool:
        return self.bound is None or self.value <= self.bound

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"<= {self.bound:.3g} {self.unit}"
        ratio = "" if self.lookups is None else f"{self.lookups:.0f} x look-up"
        broken = "" if self.kept else "BROKEN"
        return f"{self.name:<58} {self.value:>10.3f} {self.unit:<4} {ratio:>16}  {bound:<14} {broken}"


@dataclasses.dataclass(frozen=True)
class TwentyFieldCall(CallSpec):
    batch: int = 1
    heads: int = 1
    heads_kv: int = 1
    dim: int = 64
    max_seqlen_q: int = 1
    seqlen_kv: int = 1
    dtype: torch.dtype = torch.float16
    is_causal: bool = False
    sm_scale: float | None = None
    softcap: float = 0.0
    window_size_left: int = -1
    window_size_right: int = -1
    fuse_rope: bool = False
    is_fp8: bool = False
    page: int = 0
    pages: int = 0

    @property
    def region(self) -> bool:
        return self.max_seqlen_q == 1 and self.window_size_left == -1 and not self.is_fp8


def plain_twin(spec: type) -> type:
    """A plain frozen dataclass with the fields of *spec*."""
    fields = [
        (
            f.name,
            f.type,
            dataclasses.field(default=f.default, kw_only=f.kw_only, compare=f.compare),
        )
        for f in dataclasses.fields(spec)
    ]
    return dataclasses.make_dataclass(f"Plain{spec.__name__}", fields, frozen=True)


class TwentyFieldFwdInterface(KernelInterface):
    request = TwentyFieldCall

    @abstractmethod
    def forward(self, x: Any) -> Any: ...


class _General(Kernel, TwentyFieldFwdInterface):
    general = True

    def __init__(self, *identity: Any) -> None:
        self.identity = identity

    @classmethod
    def refusal(cls, call: TwentyFieldCall) -> str | None:
        if not call.region:
            return "not decode"
        if call.fuse_rope:
            return "fuse_rope"
        if call.dim % 16 != 0 or call.dim > 256:
            return f"dim {call.dim} is not a multiple of 16 up to 256"
        return super().refusal(call)

    @classmethod
    def entry_for(cls, call: TwentyFieldCall) -> Any:
        identity = (call.heads, call.heads_kv, call.dim, call.dtype, call.sm_scale, call.softcap, call.arch)
        return identity, lambda: cls(*identity)

    def forward(self, x: Any) -> Any:
        return x


def _band(low: int, high: int) -> type[Kernel]:
    class Band(_General):
        general = False

        @classmethod
        def refusal(cls, call: TwentyFieldCall) -> str | None:
            served = low <= call.seqlen_kv < high and call.heads == 32 and call.heads_kv == 4 and call.softcap == 0.0
            return super().refusal(call) if served else f"seqlen_kv {call.seqlen_kv} is not from {low} to {high}"

    return Band


class SevenFwdOp(Op):
    kernel_types = {
        "all": _General,
        "to_64": _band(0, 64),
        "to_512": _band(64, 512),
        "to_4096": _band(512, 4096),
        "to_32768": _band(4096, 32768),
        "to_262144": _band(32768, 262144),
        "beyond": _band(262144, 2**40),
    }
    interfaces = {"twenty": TwentyFieldFwdInterface}


def best(function: Callable[[], Any], number: int, repeat: int = 7) -> float:
    """Microseconds of one call of *function*."""
    return min(timeit.repeat(function, number=number, repeat=repeat)) / number * 1e6


def best_statement(statement: str, names: dict[str, Any], number: int) -> float:
    """Microseconds of one statement, without the call that :func:`best` includes."""
    return min(timeit.repeat(statement, globals=names, number=number, repeat=7)) / number * 1e6


@contextlib.contextmanager
def played() -> Iterator[None]:
    with faked({DEVICE: FACTS}), mock.patch.object(GQADecodeKernel, "__init__", return_value=None):
        yield


def decode(length: int) -> AttentionCall:
    return AttentionCall(
        batch=1,
        heads=32,
        heads_kv=4,
        dim=128,
        max_seqlen_q=1,
        seqlen_kv=length,
        dtype=torch.float16,
        is_causal=True,
        device=DEVICE,
    )


def twenty(spec: type, length: int) -> Any:
    return spec(heads=32, heads_kv=4, dim=128, seqlen_kv=length, device=DEVICE)


def calls(quick: bool) -> list[Row]:
    number = 20_000 if quick else 100_000
    lookup = best_statement("table['gqa_dense']", {"table": {"gqa_dense": 1}}, number)
    rows = [Row("plain dict look-up", lookup, "us", lookups=1.0)]

    def row(name: str, value: float, bound: float | None = None) -> float:
        rows.append(Row(name, value, "us", bound, value / lookup))
        return value

    gqa = GQADenseFwdOp()
    gqa.kernel_for("gqa_dense", decode(4096))
    names = {"ask": gqa.kernel_for, "call": decode(4096)}
    row("hit, GQADenseFwdOp, an equal call", best_statement("ask('gqa_dense', call)", names, number), HIT_US)

    seven, plain = SevenFwdOp(), plain_twin(TwentyFieldCall)
    seven.kernel_for("twenty", twenty(TwentyFieldCall, 4096))
    names = {"ask": seven.kernel_for, "call": twenty(TwentyFieldCall, 4096)}
    hit = row("hit, 20 fields, an equal call", best_statement("ask('twenty', call)", names, number), HIT_US)
    names |= {"Spec": TwentyFieldCall, "Plain": plain, "device": DEVICE}
    arguments = "(heads=32, heads_kv=4, dim=128, seqlen_kv=4096, device=device)"
    built = row("building the plain frozen dataclass, 20 fields", best_statement(f"Plain{arguments}", names, number))
    row(
        "building the call spec, 20 fields, and a hit",
        best_statement(f"ask('twenty', Spec{arguments})", names, number),
        BUILD_RATIO * built + hit,
    )
    row("miss, entry built, 7 implementations", misses(seven, 3 if quick else 7), MISS_US)
    row(
        "construction, GQADenseFwdOp, after the first",
        best(GQADenseFwdOp, number // 20),
        NEXT_CONSTRUCTION_US,
    )
    return rows


def misses(op: Op, repeat: int, count: int = 5_000) -> float:
    """Microseconds of a call that was not made before and finds its kernel built."""
    for length in (1, 64, 512, 4096, 32768, 262144):
        op.kernel_for("twenty", twenty(TwentyFieldCall, length))
    found = []
    before = op.cache_info()
    for i in range(repeat):
        new = [twenty(TwentyFieldCall, length) for length in range(1000 + i * count, 1000 + (i + 1) * count)]
        ask = op.kernel_for
        start = timeit.default_timer()
        for call in new:
            ask("twenty", call)
        found.append((timeit.default_timer() - start) / count * 1e6)
    after = op.cache_info()
    if after.misses - before.misses < repeat * count - 1 or after.builds != before.builds:
        raise RuntimeError(f"these were not misses that find their entry built: {before} {after}")
    return min(found)


FIRST = """
import gc, json, sys, time
import tileops.ops
from tileops_rules import Rule, selector
from tileops.backend import plugins

spent = {}

def timed(owner, name):
    plain = getattr(owner, name)
    def measured(*args, **more):
        start = time.perf_counter()
        try:
            return plain(*args, **more)
        finally:
            spent[name] = spent.get(name, 0.0) + (time.perf_counter() - start) * 1e3
    setattr(owner, name, measured)

timed(selector, "domain_of")
timed(selector, "lift")
timed(Rule, "replayed")
timed(plugins, "ensure_loaded")
gc.collect()  # one over all that importing torch made is due, 45 to 70 ms, and would fall somewhere in what is timed
start = time.perf_counter()
tileops.ops.GQADenseFwdOp()
total = (time.perf_counter() - start) * 1e3
heavy = sorted({"z3", "networkx"} & set(sys.modules))
found = {"total": total, "plugins": spent.pop("ensure_loaded"), "lifting": sum(spent.values()), "heavy": heavy}
json.dump(found, sys.stdout)
"""


def first_construction(quick: bool) -> list[Row]:
    """Milliseconds in a new process, beyond importing the ops; the proofs are on file."""
    root = Path(__file__).resolve().parents[1]
    folders = [str(root), str(root / "rules"), str(root / "solver"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    environment.pop("TILEOPS_PROOF", None)
    command = [sys.executable, "-c", FIRST]
    found = [
        json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(1 if quick else 5)
    ]
    if any(each["heavy"] for each in found):
        raise RuntimeError(f"construction imported {found[0]['heavy']}: refresh the proofs on file")
    besides = min(each["total"] - each["lifting"] for each in found)
    return [
        Row(
            "construction, GQADenseFwdOp, first in a process",
            min(each["total"] for each in found),
            "ms",
            FIRST_CONSTRUCTION_MS,
        ),
        Row("of that, lifting its rules: domains, predicates, replays", min(each["lifting"] for each in found), "ms"),
        Row("of that, all the rest: proofs on file are looked up", besides, "ms", BESIDES_LIFTING_MS),
        Row("of the rest, looking for plug-ins, once a process", min(each["plugins"] for each in found), "ms"),
    ]


def memory(quick: bool) -> Row:
    """Growth of the process from a tenth of the lengths, when every cache is full, to all of them."""
    op = GQADenseFwdOp()
    total = QUICK_LENGTHS if quick else LENGTHS

    def resident() -> float:
        gc.collect()
        status = Path("/proc/self/statm")
        if status.exists():
            return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    for length in range(1, total // 10):
        op.kernel_for("gqa_dense", decode(length))
    before = resident()
    for length in range(total // 10, total + 1):
        op.kernel_for("gqa_dense", decode(length))
    grown = resident() - before
    info = op.cache_info()
    if info.calls > info.most_calls or info.entries > 8:
        raise RuntimeError(f"the caches hold more than they should: {info}")
    return Row(f"memory growth over {total:,} KV lengths, {info.builds} builds", max(grown, 0.0), "MiB", GROWTH_MIB)


def machine() -> dict[str, str]:
    names = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "z3-solver", "networkx")},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def write(rows: Sequence[Row]) -> Path:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"dispatch-{today}.json"
    content = {
        "date": today,
        "machine": machine(),
        "rows": [{**dataclasses.asdict(row), "kept": row.kept} for row in rows],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and lengths")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/dispatch-<date>.json")
    options = parser.parse_args(arguments)
    rows = first_construction(options.quick)
    with played():
        rows += calls(options.quick)
        rows.append(memory(options.quick))
    for name, value in machine().items():
        print(f"{name}: {value}")
    for row in rows:
        print(row)
    if options.write:
        print(f"written: {write(rows)}")
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
