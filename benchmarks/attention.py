"""Device time of grouped-query prefill beside every peer on the same inputs, L2 cold, and the TFLOP/s reached.

    python benchmarks/attention.py --write     # also benchmarks/results/attention-<card>-<date>.json
    python benchmarks/attention.py --warm      # only compile what is measured

Needs a GPU. Peers: scaled_dot_product_attention of torch through cuDNN and through flash, and flashinfer where it is
installed. Times are medians between two events around one call; the L2 cache is flushed before each by filling 512 MiB.
Under long products a card runs at its power limit, where what ran before sets the clock: peers are timed in rounds, in
an order that is drawn anew for each. A product counts two operations for each pair of a query and a key that it sees.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tileops.kernels.attention.call_spec import AttentionCall
from tileops.ops import GQADenseFwdOp

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = ("torch", "tilelang", "flashinfer-python")
CUDA = torch.device("cuda", 0)
FLUSHED_BYTES = 512 * 2**20
ROUNDS, EACH = 7, 3
PAUSE_S = 0.03
"""Before each turn, so that the card is not hotter for the last peer than for the first."""

Work = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A prefill that is measured.

    Attributes:
        batch: Sequences.
        length: Queries and keys of each.
        heads: Query heads.
        heads_kv: Key and value heads.
        dim: Elements of a head.
        dtype: Of every tensor.
        is_causal: Whether a query sees no key after its own position.
        window: Keys before its position that a query sees, -1 for all.
    """

    batch: int
    length: int
    heads: int
    heads_kv: int
    dim: int = 128
    dtype: torch.dtype = torch.bfloat16
    is_causal: bool = True
    window: int = -1

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head of one sequence."""
        if not self.is_causal:
            return self.length**2
        seen = self.length if self.window < 0 else min(self.window + 1, self.length)
        return seen * (seen + 1) // 2 + (self.length - seen) * seen

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products."""
        return 4 * self.batch * self.heads * self.dim * self.pairs


PROMPTS = (
    *(Prompt(1, length, 64, 8) for length in (2048, 4096, 8192, 16384, 32768)),
    *(Prompt(1, length, 32, 8) for length in (2048, 4096, 8192, 16384, 32768)),
    Prompt(2, 8192, 32, 8),
    Prompt(1, 8192, 64, 8, is_causal=False),
    *(Prompt(1, 8192, 32, 8, dim=dim) for dim in (64, 80, 96, 192, 256)),
    Prompt(1, 16384, 64, 8, window=1024),
    Prompt(1, 16384, 64, 8, window=4096),
)


def torch_work(backend: SDPBackend, prompt: Prompt, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Work:
    """Attention of torch through one of its backends."""
    heads_first = [each.transpose(1, 2) for each in (q, k, v)]

    def work() -> torch.Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(*heads_first, is_causal=prompt.is_causal, enable_gqa=True)

    return work


def works_of(prompt: Prompt) -> dict[str, Work]:
    """By name, what is timed; peers take no part where they have no window or no place for a batch."""
    draw = torch.Generator(CUDA).manual_seed(0)

    def drawn(heads: int) -> torch.Tensor:
        shape = (prompt.batch, prompt.length, heads, prompt.dim)
        return torch.randn(shape, generator=draw, device=CUDA, dtype=prompt.dtype)

    q, k, v = drawn(prompt.heads), drawn(prompt.heads_kv), drawn(prompt.heads_kv)
    op = GQADenseFwdOp(is_causal=prompt.is_causal, window_size_left=prompt.window)
    works: dict[str, Work] = {"ours": lambda: op(q, k, v)}
    if prompt.window < 0:
        works["cudnn"] = torch_work(SDPBackend.CUDNN_ATTENTION, prompt, q, k, v)
        works["flash"] = torch_work(SDPBackend.FLASH_ATTENTION, prompt, q, k, v)
    try:
        import flashinfer
    except ImportError:
        return works  # not installed: its column stays empty
    if prompt.batch == 1:
        works["flashinfer"] = lambda: flashinfer.single_prefill_with_kv_cache(
            q[0], k[0], v[0], causal=prompt.is_causal, kv_layout="NHD", window_left=prompt.window
        )
    return works


def medians(works: dict[str, Work], flushed: torch.Tensor) -> tuple[dict[str, float], dict[str, str]]:
    """Median microseconds of each, and of the peers that fail the reason."""
    failed: dict[str, str] = {}
    for name, work in works.items():
        try:
            work()
            torch.cuda.synchronize()
        except (
            RuntimeError,
            ValueError,
            OSError,
        ) as error:  # a peer that takes no such shape
            if name == "ours":
                raise
            failed[name] = str(error).partition("\n")[0]
    times: dict[str, list[float]] = {name: [] for name in works if name not in failed}
    order = random.Random(0)
    for _ in range(ROUNDS):
        for name in order.sample(list(times), len(times)):
            time.sleep(PAUSE_S)
            pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(EACH)]
            for start, end in pairs:
                flushed.zero_()
                start.record()
                works[name]()
                end.record()
            torch.cuda.synchronize()
            times[name] += [start.elapsed_time(end) * 1e3 for start, end in pairs]
    return {name: statistics.median(each) for name, each in times.items()}, failed


def measured(prompt: Prompt, flushed: torch.Tensor) -> dict[str, Any]:
    """One row: times, TFLOP/s, and the best peer's time over ours."""
    us, failed = medians(works_of(prompt), flushed)
    peers = [each for name, each in us.items() if name != "ours"]
    row: dict[str, Any] = {**dataclasses.asdict(prompt), "dtype": str(prompt.dtype).removeprefix("torch.")}
    row["us"] = {name: round(each, 2) for name, each in us.items()}
    row["tflops"] = {name: round(prompt.operations / each / 1e6, 1) for name, each in us.items()}
    row["ahead"] = round(min(peers) / us["ours"], 3) if peers else None
    if failed:
        row["failed"] = failed
    return row


def warm() -> None:
    """Build what is measured, one kernel for each identity."""
    for prompt in PROMPTS:
        op = GQADenseFwdOp(is_causal=prompt.is_causal, window_size_left=prompt.window)
        sizes = (prompt.batch, prompt.heads, prompt.heads_kv, prompt.dim, prompt.length, prompt.length, prompt.dtype)
        mask = {"is_causal": prompt.is_causal, "window_size_left": prompt.window}
        op.kernel_for("gqa_dense", AttentionCall(*sizes, **mask, device=CUDA))


def as_table(rows: list[dict[str, Any]]) -> Table:
    """TFLOP/s of each, a row a prompt."""
    names = ("ours", "cudnn", "flash", "flashinfer")
    table = Table("batch", "length", "heads", "dim", "causal", "window", *names, "ahead", title="TFLOP/s")
    for row in rows:
        shape = [row["batch"], row["length"], f"{row['heads']}/{row['heads_kv']}", row["dim"], row["is_causal"]]
        reached = [row["tflops"].get(name, "–") for name in names]
        table.add_row(*map(str, [*shape, row["window"], *reached, row["ahead"] or "–"]))
    return table


def version(name: str) -> str | None:
    """Of a distribution, ``None`` where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Measure, show a table, and with ``--write`` keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--into", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.warm:
        warm()
        return
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=CUDA)
    card = torch.cuda.get_device_name(CUDA)
    report = {
        "date": datetime.date.today().isoformat(),
        "card": card,
        "cuda": torch.version.cuda,
        "versions": {name: version(name) for name in NAMES},
        "repeats": ROUNDS * EACH,
        "rows": [measured(prompt, flushed) for prompt in PROMPTS],
    }
    console = Console(width=140)
    console.print(as_table(report["rows"]))
    if given.write:
        given.into.mkdir(parents=True, exist_ok=True)
        path = given.into / f"attention-{card.lower().replace(' ', '-')}-{report['date']}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
