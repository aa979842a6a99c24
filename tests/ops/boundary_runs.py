"""Running a boundary call: its tensors, the kernel that is to serve it, and the comparison with float64.

Everything works on any device: on a CPU with the reference kernels in the place of the launch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tileops_solver.testing import Case

from tests.kernels import row_support
from tests.kernels.row_support import ROW_NORMS, RowNorm
from tests.kernels.support import FLOAT32_UNIT, rounding_unit
from tests.ops.boundary_channels import CHANNEL_RUNS
from tests.ops.boundary_parts import Runs, Tensors, within
from tileops.kernels.attention.call_spec import AttentionCall, Rotation, Scales
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.ops.op_base import Op
from tileops.reference.attention import gqa_dense, rotated

FEW_ROWS = 2**22
"""Elements from which one row is enough."""


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
    runs = RUNS[interface]
    tensors = runs.inputs(call)
    runs.check(call, kernel(*tensors), tensors)


# ------------------------------------------------------------------------------------------- calls that are too large


def bytes_of(interface: str, call: Any) -> int:
    """Device memory that :func:`run` takes for a call, a little more than less."""
    return RUNS[interface].bytes_of(call)


class NeedsMoreMemoryError(MemoryError):
    """A call does not fit, however small its other fields are.

    Attributes:
        needed: Bytes that it takes at least.
    """

    def __init__(self, case: Case, needed: int, budget: int) -> None:
        self.needed = needed
        super().__init__(f"{case}: {needed:,} bytes are needed and {budget:,} are there")


def fitting(
    interface: str, call: Any, case: Case, budget: int, keeps: Callable[[Any], bool], most: int | None = None
) -> Any:
    """*call*, or where it needs more than *budget* bytes, the same with smaller fields that are no face.

    Args:
        interface: Which is called.
        call: The call.
        case: Where it stands: fields that its faces name stay as they are.
        budget: Bytes that there are.
        keeps: Whether a smaller call still gets what the case is about.
        most: Bytes that it is to need where it can; *budget* where None is given.

    Raises:
        NeedsMoreMemoryError: it does not fit, however small those fields are.
    """
    named = set(re.findall(r"[a-z_]\w*", " ".join(f"{b.face} {b.at}" for b in case.borders)))
    wanted = budget if most is None else min(most, budget)
    for name in RUNS[interface].shrinking:
        while name not in named and bytes_of(interface, call) > wanted and getattr(call, name) > 1:
            smaller = dataclasses.replace(call, **{name: getattr(call, name) // 2})
            if not keeps(smaller):
                break
            call = smaller
    if bytes_of(interface, call) > budget:
        raise NeedsMoreMemoryError(case, bytes_of(interface, call), budget)
    return call


# --------------------------------------------------------------------------------------------------------------- rows


def rows_of(call: LayerNormCall) -> int:
    return 3 if call.n < FEW_ROWS else 1


def row_inputs(norm: RowNorm, call: LayerNormCall) -> Tensors:
    assert call.device is not None
    return norm.tensors(rows_of(call), call.n, call.dtype, call.device)


def row_check(norm: RowNorm, call: LayerNormCall, found: Any, tensors: Tensors) -> None:
    """Hold the results against float64, a chunk at a time; the bound is that of the kernels' own tests."""
    row_support.check(norm, call.n, found, tensors, call.eps)


def row_bytes(norm: RowNorm, call: LayerNormCall) -> int:
    held = call.n * (rows_of(call) * (norm.of_input + 1 + norm.summed) + norm.of_row) * call.dtype.itemsize
    return held + 14 * 8 * min(call.n * rows_of(call), row_support.CHUNK)


# ---------------------------------------------------------------------------------------------------------- attention


def attention_inputs(call: AttentionCall) -> tuple[Any, ...]:
    """Queries, keys, values, scales where they are float8, and angles where heads are rotated."""
    draw = torch.Generator(call.device).manual_seed(call.seqlen_kv + 13 * call.heads)

    def made(length: int, heads: int) -> torch.Tensor:
        shape = (call.batch, length, heads, call.dim)
        drawn = torch.empty(shape, dtype=call.dtype, device=call.device).normal_(generator=draw)
        return drawn.to(torch.float8_e4m3fn) if call.is_fp8 else drawn

    scales = rotation = None
    if call.is_fp8:
        heads = (call.heads, call.heads_kv, call.heads_kv)
        scales = Scales(*(torch.rand(call.batch, each, device=call.device, generator=draw) + 0.5 for each in heads))
    if call.fuse_rope:
        angles = torch.rand(call.seqlen_kv, call.rotary_dim // 2, device=call.device, generator=draw) * math.tau
        rotation = Rotation(angles.cos(), angles.sin())
    return (
        made(call.max_seqlen_q, call.heads),
        made(call.seqlen_kv, call.heads_kv),
        made(call.seqlen_kv, call.heads_kv),
        scales,
        rotation,
    )


def attention_check(call: AttentionCall, out: torch.Tensor, tensors: tuple[Any, ...]) -> None:
    """Hold the result against float64; the bound is that of the kernel's own tests.

    ``mass`` is the average of ``|v|`` under the weights: weights are rounded to the dtype before they meet the
    values, the result is rounded once more, and float32 scores move weights by their error, in numerator and
    denominator. Where heads are rotated, an element may be rounded to the neighbour of what float64 gives.
    """
    q, k, v, scales, rotation = tensors
    assert out.shape == q.shape
    assert out.dtype == call.dtype
    asked = {
        "is_causal": call.is_causal,
        "sm_scale": call.sm_scale,
        "softcap": call.softcap,
        "window_size_left": call.window_size_left,
        "window_size_right": call.window_size_right,
    }
    if rotation is not None:
        q = rotated(q, rotation, call.seqlen_kv - call.max_seqlen_q, interleaved=call.rope_interleaved)
        k = rotated(k, rotation, 0, interleaved=call.rope_interleaved)
    if scales is not None:
        q, k, v = (each.double() * of.double()[:, None, :, None] for each, of in zip((q, k, v), scales, strict=True))
    expected, mass = gqa_dense(q, k, v, **asked), gqa_dense(q, k, v.abs(), **asked)
    scale = call.dim**-0.5 if call.sm_scale is None else abs(call.sm_scale)
    # No score is larger than the product of the longest query and the longest key.
    lengths = [float(t.double().norm(dim=-1).max()) if t.numel() else 0.0 for t in (q, k)]
    largest = math.prod(lengths) * scale
    unit = rounding_unit(call.dtype)
    moved = 2 * 2 * math.sqrt(call.dim) * FLOAT32_UNIT * largest + (4 * unit * largest if call.fuse_rope else 0.0)
    if call.is_fp8 and call.max_seqlen_q > 1:
        # Weights are float8, and the tensor cores hold some 13 bits of a sum of products of float8.
        moved += rounding_unit(torch.float8_e4m3fn) + 2.0**-13 * (4 * largest + 2)
    held = max(unit, rounding_unit(torch.float16)) if call.is_fp8 else unit
    within(out.double(), expected, unit * expected.abs() + (held + moved + 16 * FLOAT32_UNIT) * mass, call)


def attention_bytes(call: AttentionCall) -> int:
    held = call.batch * call.dim * (2 * call.seqlen_kv * call.heads_kv + 2 * call.max_seqlen_q * call.heads)
    compared = call.batch * call.heads * call.seqlen_kv * (call.dim + 6 * call.max_seqlen_q)
    return held * (call.dtype.itemsize + 8) + compared * 8


def row_runs(norm: RowNorm) -> Runs:
    inputs, check, counted = (functools.partial(each, norm) for each in (row_inputs, row_check, row_bytes))
    return Runs(inputs, check, counted, ("n",))


RUNS: Mapping[str, Runs] = {
    "gqa_dense": Runs(
        attention_inputs,
        attention_check,
        attention_bytes,
        ("batch", "max_seqlen_q", "seqlen_kv", "heads", "heads_kv", "dim"),
    ),
    **{name: row_runs(norm) for name, norm in ROW_NORMS.items()},
    **CHANNEL_RUNS,
}
"""Keyed by interface: several share a type of call."""
