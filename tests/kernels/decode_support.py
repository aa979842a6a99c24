"""What the tests of decode share: draws, and the bound on an error against float64, on any device.

The bound on the error of one element, in terms of ``mass``, the average of ``|v|`` under the weights: weights
are rounded to the input's dtype (float16 where that is float8) before they meet the values (half a unit of it), the
result is rounded once more, and scores are float32 sums of ``dim`` products, whose error moves weights by as much, in
numerator and denominator. Where heads are rotated, the float32 rotation may round an element to the neighbour of what
float64 gives: half a unit more of queries and of keys.
"""

from __future__ import annotations

import math

import torch

from tests.kernels.support import DEVICE, FLOAT32_UNIT, rounding_unit
from tileops.kernels.attention.call_spec import AttentionCall, Rotation, Scales
from tileops.reference.attention import rotated

FP8 = torch.float8_e4m3fn

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def tensors(call: AttentionCall, *, q_std: float = 1.0, device: torch.device = DEVICE) -> Tensors:
    """Normal queries, keys and values; keys and values end in memory that is NaN."""
    draw = torch.Generator(device).manual_seed(call.seqlen_kv + 13 * call.heads)
    dtype = FP8 if call.is_fp8 else call.dtype
    q = torch.randn(call.batch, 1, call.heads, call.dim, generator=draw, device=device) * q_std
    made = [q.to(dtype)]
    for _ in range(2):
        shape = (call.batch, call.seqlen_kv, call.heads_kv, call.dim)
        size = math.prod(shape)
        storage = torch.full((size + 128 * call.heads_kv * call.dim,), float("nan"), device=device)
        storage[:size] = torch.randn(size, generator=draw, device=device)
        made.append(storage.to(dtype)[:size].view(shape))
    return made[0], made[1], made[2]


def more_of(call: AttentionCall, device: torch.device = DEVICE) -> tuple[Scales | None, Rotation | None]:
    """Scales that differ by head and sequence, and angles, where *call* has them."""
    draw = torch.Generator(device).manual_seed(7)
    scales = rotation = None
    if call.is_fp8:
        heads = (call.heads, call.heads_kv, call.heads_kv)
        scales = Scales(*(torch.rand(call.batch, each, generator=draw, device=device) + 0.5 for each in heads))
    if call.fuse_rope:
        shape = (call.seqlen_kv + 3, call.rotary_dim // 2)
        angles = torch.rand(shape, generator=draw, device=device, dtype=torch.float64) * math.tau
        rotation = Rotation(angles.cos().float(), angles.sin().float())
    return scales, rotation


def expected(
    call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the largest error that a kernel may make in each element."""
    scale = call.sm_scale if call.sm_scale is not None else call.dim**-0.5
    group = call.heads // call.heads_kv
    scales, rotation = more_of(call, q.device)
    if rotation is not None:
        q = rotated(q, rotation, call.seqlen_kv - 1, interleaved=call.rope_interleaved)
        k = rotated(k, rotation, 0, interleaved=call.rope_interleaved)
    q, k, v = q.double(), k.double(), v.double()
    if scales is not None:
        q, k, v = (each * of.double()[:, None, :, None] for each, of in zip((q, k, v), scales, strict=True))
    first = 0 if call.window_size_left < 0 else max(0, call.seqlen_kv - 1 - call.window_size_left)
    queries = q.view(call.batch, call.heads_kv, group, call.dim)
    keys, values = k[:, first:], v[:, first:]
    scores = torch.einsum("bhgd,bnhd->bhgn", queries, keys) * scale
    if call.softcap:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    weights = torch.softmax(scores, dim=-1)
    result = torch.einsum("bhgn,bnhd->bhgd", weights, values)
    mass = torch.einsum("bhgn,bnhd->bhgd", weights, values.abs())
    largest = torch.einsum("bhgd,bnhd->bhgn", queries.abs(), keys.abs()).amax(dim=-1, keepdim=True) * abs(scale)
    scores_error = 2 * math.sqrt(call.dim) * FLOAT32_UNIT * largest
    unit = rounding_unit(call.dtype)
    held_unit = rounding_unit(torch.float16 if call.is_fp8 else call.dtype)
    if call.fuse_rope:
        scores_error = scores_error + 2 * unit * largest
    allowed = unit * result.abs() + (held_unit + 2 * scores_error + 16 * FLOAT32_UNIT) * mass
    shape = (call.batch, 1, call.heads, call.dim)
    return result.view(shape), allowed.view(shape)


def check(call: AttentionCall, out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    result, allowed = expected(call, q, k, v)
    assert out.shape == q.shape
    assert out.dtype == call.dtype
    assert out.is_contiguous()
    error = (out.double() - result).abs() / (allowed + torch.finfo(out.dtype).smallest_normal)
    assert not error.isnan().any()
    assert error.max().item() <= 1.0, call
