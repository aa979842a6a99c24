"""Running a boundary call: its tensors, the kernel that is to serve it, and the comparison with float64.

Everything works on any device: on a CPU with the reference kernels in the place of the launch.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tileops_solver.testing import Case

from tests.kernels.support import FLOAT32_UNIT, rounding_unit
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.ops.op_base import Op
from tileops.reference.attention import gqa_dense

CHUNK = 2**26
"""Elements of a row that are held in float64 at a time: 0.5 GiB."""
FEW_ROWS = 2**22
"""Elements from which one row is enough."""

Tensors = tuple[torch.Tensor, ...]


def on_device(call: Any, device: torch.device) -> Any:
    """*call* as it is run: on *device*, whose facts it does not state."""
    return dataclasses.replace(call, device=device, arch=None, sm_count=None, smem_budget=None)


def serving_keys(op: Op, interface: str, call: Any) -> tuple[str, ...]:
    """The implementations that serve *call* where it is."""
    return tuple(e.key for e in op.explain(interface, call).entries if e.status in ("chosen", "loses"))


def run(op: Op, interface: str, key: str, call: Any) -> None:
    """Build, run and check one implementation on one call.

    Raises:
        Exception: whatever building or launching raises.
        AssertionError: the result is not that of float64.
    """
    kernel = op.kernel_for(interface, call, key=key)
    tensors = INPUTS[type(call)](call)
    CHECKS[type(call)](call, kernel(*tensors), tensors)


# ------------------------------------------------------------------------------------------- calls that are too large


def bytes_of(call: Any) -> int:
    """Device memory that :func:`run` takes for a call, a little more than less."""
    return BYTES[type(call)](call)


def fitting(call: Any, case: Case, budget: int, keeps: Callable[[Any], bool]) -> Any:
    """*call*, or where it needs more than *budget* bytes, the same with smaller fields that are no face.

    Args:
        call: The call.
        case: Where it stands: fields that its faces name stay as they are.
        budget: Bytes.
        keeps: Whether a smaller call still gets what the case is about.

    Raises:
        MemoryError: it does not fit, however small those fields are.
    """
    named = set(re.findall(r"[a-z_]\w*", " ".join(f"{b.face} {b.at}" for b in case.borders)))
    for name in SHRINKING[type(call)]:
        while name not in named and bytes_of(call) > budget and getattr(call, name) > 1:
            smaller = dataclasses.replace(call, **{name: getattr(call, name) // 2})
            if not keeps(smaller):
                break
            call = smaller
    if bytes_of(call) > budget:
        raise MemoryError(f"{case}: {bytes_of(call):,} bytes are needed and {budget:,} are there")
    return call


# --------------------------------------------------------------------------------------------------------- layer norm


def layer_norm_inputs(call: LayerNormCall) -> Tensors:
    draw = torch.Generator(call.device).manual_seed(call.n % 1_000_003)
    rows = 3 if call.n < FEW_ROWS else 1

    def made(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=call.dtype, device=call.device).normal_(generator=draw)

    return made(rows, call.n), made(call.n), made(call.n)


def layer_norm_check(call: LayerNormCall, out: torch.Tensor, tensors: Tensors) -> None:
    """Hold each row against float64, a chunk at a time; the bound is that of the kernel's own tests.

    Rounding the result costs half a unit in the last place; the rest is float32 arithmetic on numbers no larger
    than the widest normalized distance of the row.
    """
    x, weight, bias = tensors
    assert out.shape == x.shape
    assert out.dtype == call.dtype
    for row, found in zip(x, out, strict=True):
        row_check(call, row, found, weight, bias)


def row_check(call: LayerNormCall, row: torch.Tensor, found: torch.Tensor, *affine: torch.Tensor) -> None:
    mean = total(row, lambda part: part.sum()) / max(call.n, 1)
    variance = total(row, lambda part: (part - mean).square().sum()) / max(call.n, 1)
    deviation = math.sqrt(variance + call.eps)
    widest = max((float((part - mean).abs().max()) for (part,) in chunks(row)), default=0.0) / deviation
    for part, got, scale, shift in chunks(row, found, *affine):
        expected = (part - mean) / deviation * scale + shift
        allowed = rounding_unit(call.dtype) * expected.abs()
        allowed += 32 * FLOAT32_UNIT * (widest * scale.abs() + shift.abs())
        within(got, expected, allowed, call)


def chunks(*rows: torch.Tensor) -> Iterator[Sequence[torch.Tensor]]:
    for start in range(0, rows[0].numel(), CHUNK):
        yield [row[start : start + CHUNK].double() for row in rows]


def total(row: torch.Tensor, part_of: Callable[[torch.Tensor], torch.Tensor]) -> float:
    return math.fsum(float(part_of(part)) for (part,) in chunks(row))


def layer_norm_bytes(call: LayerNormCall) -> int:
    rows = 3 if call.n < FEW_ROWS else 1
    return call.n * (2 * rows + 2) * call.dtype.itemsize + 10 * 8 * min(call.n, CHUNK)


# ---------------------------------------------------------------------------------------------------------- attention


def attention_inputs(call: AttentionCall) -> Tensors:
    draw = torch.Generator(call.device).manual_seed(call.seqlen_kv + 13 * call.heads)

    def made(length: int, heads: int) -> torch.Tensor:
        shape = (call.batch, length, heads, call.dim)
        return torch.empty(shape, dtype=call.dtype, device=call.device).normal_(generator=draw)

    return (
        made(call.max_seqlen_q, call.heads),
        made(call.seqlen_kv, call.heads_kv),
        made(call.seqlen_kv, call.heads_kv),
    )


def attention_check(call: AttentionCall, out: torch.Tensor, tensors: Tensors) -> None:
    """Hold the result against float64; the bound is that of the kernel's own tests.

    ``mass`` is the average of ``|v|`` under the weights: weights are rounded to the dtype before they meet the
    values, the result is rounded once more, and float32 scores move weights by their error, in numerator and
    denominator.
    """
    q, k, v = tensors
    assert out.shape == q.shape
    assert out.dtype == call.dtype
    asked = {
        "is_causal": call.is_causal,
        "sm_scale": call.sm_scale,
        "softcap": call.softcap,
        "window_size_left": call.window_size_left,
        "window_size_right": call.window_size_right,
    }
    expected, mass = gqa_dense(q, k, v, **asked), gqa_dense(q, k, v.abs(), **asked)
    scale = call.dim**-0.5 if call.sm_scale is None else abs(call.sm_scale)
    # No score is larger than the product of the longest query and the longest key.
    lengths = [float(t.double().norm(dim=-1).max()) if t.numel() else 0.0 for t in (q, k)]
    largest = math.prod(lengths) * scale
    moved = 2 * 2 * math.sqrt(call.dim) * FLOAT32_UNIT * largest
    unit = rounding_unit(call.dtype)
    within(out.double(), expected, unit * expected.abs() + (unit + moved + 16 * FLOAT32_UNIT) * mass, call)


def attention_bytes(call: AttentionCall) -> int:
    held = call.batch * call.dim * (2 * call.seqlen_kv * call.heads_kv + 2 * call.max_seqlen_q * call.heads)
    compared = call.batch * call.heads * call.seqlen_kv * (call.dim + 6 * call.max_seqlen_q)
    return held * (call.dtype.itemsize + 8) + compared * 8


def within(found: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor, call: Any) -> None:
    error = (found - expected).abs() / (allowed + torch.finfo(call.dtype).smallest_normal)
    assert not error.isnan().any(), call
    assert not error.numel() or float(error.max()) <= 1.0, (call, float(error.max()))


INPUTS: Mapping[type, Callable[[Any], Tensors]] = {AttentionCall: attention_inputs, LayerNormCall: layer_norm_inputs}
CHECKS: Mapping[type, Callable[[Any, torch.Tensor, Tensors], None]] = {
    AttentionCall: attention_check,
    LayerNormCall: layer_norm_check,
}
BYTES: Mapping[type, Callable[[Any], int]] = {AttentionCall: attention_bytes, LayerNormCall: layer_norm_bytes}
SHRINKING: Mapping[type, tuple[str, ...]] = {
    AttentionCall: ("batch", "max_seqlen_q", "seqlen_kv", "heads", "heads_kv", "dim"),
    LayerNormCall: ("n",),
}
"""Fields that take memory, those that matter least first."""
