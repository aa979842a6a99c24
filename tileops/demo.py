"""``python -m tileops.demo``: run LayerNorm and GQA decode on the best device here and check the results.

Each result is compared with the same mathematics written out in float64 below, which shares no code with the
kernels or the CPU reference. Where there is no GPU that the kernels support, the reference is installed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import click
import torch

import tileops.reference
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.device_facts import device_facts
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.tilelang_build import nvcc_path
from tileops.ops import GQADenseFwdOp, LayerNormFwdOp

__all__ = ["Case", "Outcome", "cases", "choose_device", "command", "measure"]

KV_LENGTHS = (1, 512, 4096)
"""One key, and one length on each side of the border between two decode kernels."""

_ROWS, _COLUMNS = 2048, 4096
_HEADS, _HEADS_KV, _DIM = 32, 4, 128
_DTYPE = torch.float16
_REPEATS = 5


@dataclass(frozen=True)
class Case:
    """One call of one op.

    Attributes:
        title: The op and its shape.
        key: The implementation that the op chooses for it here.
        key_on_sm90: The one it chooses on an SM90 card.
        run: Makes the call.
        expected: Computes the same in float64, on CPU.
    """

    title: str
    key: str
    key_on_sm90: str
    run: Callable[[], torch.Tensor]
    expected: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Outcome:
    """What a call gave.

    Attributes:
        error: Largest absolute difference from the float64 result.
        allowed: The largest that passes: two units of rounding at the largest expected value.
        first_seconds: Time of the first call, which builds the kernel.
        seconds: Median time of the calls after it.
    """

    error: float
    allowed: float
    first_seconds: float
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the result is within what rounding allows; false for a NaN."""
        return self.error <= self.allowed


def choose_device() -> tuple[torch.device, str]:
    """Return the best device and why it is: a GPU for which both ops have kernels, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), "there is no CUDA device; the torch reference runs instead of the kernels"
    device = torch.device("cuda", torch.cuda.current_device())
    name, arch = torch.cuda.get_device_name(device), device_facts(device).arch
    for op in (LayerNormFwdOp, GQADenseFwdOp):
        kernels = op.kernel_types.values()
        if not any(kernel.supported_archs is None or arch in kernel.supported_archs for kernel in kernels):
            return torch.device("cpu"), f"no kernel of {op.__name__} supports the {name} (SM{arch})"
    if nvcc_path() is None:
        return torch.device("cpu"), f"nvcc, which builds kernels for the {name}, is not on this machine"
    return device, f"{name} (SM{arch})"


def cases(device: torch.device) -> Iterator[Case]:
    """Yield the demo's calls on *device*, the same numbers each time."""
    random = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random).to(_DTYPE)

    norm = LayerNormFwdOp()
    x, weight, bias = tensor(_ROWS, _COLUMNS), tensor(_COLUMNS), tensor(_COLUMNS)
    yield Case(
        f"LayerNorm {_ROWS} x {_COLUMNS}",
        norm.key_for("layer_norm", LayerNormCall(n=_COLUMNS, dtype=_DTYPE, device=device)),
        norm.key_for("layer_norm", LayerNormCall(n=_COLUMNS, dtype=_DTYPE, arch=90)),
        partial(norm, x.to(device), weight.to(device), bias.to(device)),
        partial(layer_norm_float64, x, weight, bias, eps=norm.eps),
    )
    decode = GQADenseFwdOp(is_causal=True)
    for length in KV_LENGTHS:
        q = tensor(1, 1, _HEADS, _DIM)
        k, v = tensor(1, length, _HEADS_KV, _DIM), tensor(1, length, _HEADS_KV, _DIM)
        yield Case(
            f"GQA decode, {length} keys",
            decode.key_for("gqa_dense", _decode_call(length, device=device)),
            decode.key_for("gqa_dense", _decode_call(length, arch=90)),
            partial(decode, q.to(device), k.to(device), v.to(device)),
            partial(attention_float64, q, k, v),
        )


def _decode_call(length: int, *, device: torch.device | None = None, arch: int | None = None) -> AttentionCall:
    return AttentionCall(
        batch=1,
        heads=_HEADS,
        heads_kv=_HEADS_KV,
        dim=_DIM,
        max_seqlen_q=1,
        seqlen_kv=length,
        dtype=_DTYPE,
        is_causal=True,
        device=device,
        arch=arch,
    )


def layer_norm_float64(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalize the rows of *x* in float64."""
    rows = x.double()
    centred = rows - rows.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight.double() + bias.double()


def attention_float64(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend with one query a sequence, ``(batch, 1, heads, dim)``, in float64."""
    batch, _, heads, dim = q.shape
    grouped = q.double().reshape(batch, k.shape[2], heads // k.shape[2], dim)
    scores = torch.einsum("bgrd,bsgd->bgrs", grouped, k.double()) / math.sqrt(dim)
    return torch.einsum("bgrs,bsgd->bgrd", scores.softmax(dim=-1), v.double()).reshape(batch, 1, heads, dim)


def measure(case: Case, device: torch.device) -> Outcome:
    """Make the call of *case*, compare it with float64 and time it."""

    def timed() -> tuple[torch.Tensor, float]:
        start = time.perf_counter()
        result = case.run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return result, time.perf_counter() - start

    result, first = timed()
    later = sorted(timed()[1] for _ in range(_REPEATS))
    expected = case.expected()
    error = (result.cpu().double() - expected).abs().max().item()
    allowed = 2 * torch.finfo(_DTYPE).eps * expected.abs().max().item()
    return Outcome(error, allowed, first, later[_REPEATS // 2])


@click.command("demo")
@click.pass_context
def command(context: click.Context) -> None:
    """Run LayerNorm and GQA decode on the best device here and compare with float64.

    Exit codes: 0 every result is right, 1 one is not.
    """
    device, why = choose_device()
    click.echo(f"device: {device} - {why}")
    if device.type == "cpu":
        tileops.reference.install()
    wrong = 0
    for case in cases(device):
        outcome = measure(case, device)
        wrong += not outcome.right
        times = f"{outcome.first_seconds * 1e3:.1f} ms, then {outcome.seconds * 1e3:.3f} ms"
        click.echo(f"{case.title:<22} {case.key} ({times})")
        if case.key_on_sm90 != case.key:
            click.echo(f"{'':<22} on SM90 it would be {case.key_on_sm90}")
        verdict = "right" if outcome.right else "WRONG"
        click.echo(f"{'':<22} {verdict}: error {outcome.error:.1e}, rounding allows {outcome.allowed:.1e}")
    click.echo("all results agree with float64" if not wrong else f"{wrong} results are wrong")
    context.exit(1 if wrong else 0)


if __name__ == "__main__":
    command(prog_name="python -m tileops.demo")
