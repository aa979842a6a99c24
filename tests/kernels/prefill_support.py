"""What the tests of prefill share: draws, and the bound on an error against float64, on any device.

The bound on the error of one element, in terms of ``mass``, the average of ``|v|`` under the weights: weights are
rounded to the input's dtype before they meet the values (half a unit of it), the result is rounded once more, and
scores are float32 sums of ``dim`` products, whose error moves weights by as much, in numerator and denominator.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.kernels.support import DEVICE, FLOAT32_UNIT, rounding_unit
from tileops.kernels.attention.call_spec import AttentionCall

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


BUILT_IN: tuple[dict[str, Any], ...] = (
    {"heads": 64},
    {"heads_kv": 4},
    {"dim": 64},
    {"dtype": torch.bfloat16},
    {"sm_scale": 0.5},
    {"softcap": 20.0},
    {"is_causal": False},
    {"is_causal": False, "window_size_right": 4},
)
"""Fields of which each makes another build of prefill of 32 causal heads of 128, on 8, in float16."""


def prompt(**fields: Any) -> AttentionCall:
    """One sequence of as many causal queries as keys, 8 heads on 2 of 128, unless *fields* say otherwise."""
    usual: dict[str, Any] = {"heads": 8, "heads_kv": 2, "dim": 128, "is_causal": True, "max_seqlen_q": 300, **fields}
    return AttentionCall(**{"seqlen_kv": usual["max_seqlen_q"], **usual})


def tensors(call: AttentionCall, *, q_std: float = 1.0, k_std: float = 1.0, device: torch.device = DEVICE) -> Tensors:
    """Normal queries, keys and values; keys and values end in memory that is NaN."""
    draw = torch.Generator(device).manual_seed(call.seqlen_kv + 13 * call.heads)
    q = torch.randn(call.batch, call.max_seqlen_q, call.heads, call.dim, generator=draw, device=device) * q_std
    made = [q.to(call.dtype)]
    for std in (k_std, 1.0):
        shape = (call.batch, call.seqlen_kv, call.heads_kv, call.dim)
        size = math.prod(shape)
        storage = torch.full((size + 128 * call.heads_kv * call.dim,), float("nan"), dtype=call.dtype, device=device)
        storage[:size] = (torch.randn(size, generator=draw, device=device) * std).to(call.dtype)
        made.append(storage[:size].view(shape))
    return made[0], made[1], made[2]


def hidden(call: AttentionCall, device: torch.device) -> torch.Tensor:
    """Which keys each query does not see, ``(max_seqlen_q, seqlen_kv)``."""
    position = torch.arange(call.max_seqlen_q, device=device)[:, None] + call.seqlen_kv - call.max_seqlen_q
    key = torch.arange(call.seqlen_kv, device=device)[None, :]
    out = torch.zeros(call.max_seqlen_q, call.seqlen_kv, dtype=torch.bool, device=device)
    if call.is_causal:
        out |= key > position
    if call.window_size_left >= 0:
        out |= key < position - call.window_size_left
    if call.window_size_right >= 0:
        out |= key > position + call.window_size_right
    return out


def check(call: AttentionCall, out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Hold *out* against float64, one head of one sequence at a time."""
    scale = call.sm_scale if call.sm_scale is not None else call.dim**-0.5
    group = call.heads // call.heads_kv
    unit = rounding_unit(out.dtype)
    tiny = torch.finfo(out.dtype).smallest_normal
    unseen = hidden(call, q.device)
    assert (out.shape, out.dtype, out.is_contiguous()) == (q.shape, q.dtype, True)
    if call.seqlen_kv == 0:
        assert not out.any()
        return
    for b in range(call.batch):
        for h in range(call.heads):
            queries, keys, values = q[b, :, h].double(), k[b, :, h // group].double(), v[b, :, h // group].double()
            scores = queries @ keys.T * scale
            if call.softcap:
                scores = call.softcap * torch.tanh(scores / call.softcap)
            weights = torch.softmax(scores.masked_fill(unseen, -torch.inf), dim=-1).nan_to_num(nan=0.0)
            result, mass = weights @ values, weights @ values.abs()
            largest = (queries.abs() @ keys.abs().T).amax(dim=-1, keepdim=True) * abs(scale)
            moved = 2 * 2 * math.sqrt(call.dim) * FLOAT32_UNIT * largest
            allowed = unit * result.abs() + (unit + moved + 16 * FLOAT32_UNIT) * mass + tiny
            error = (out[b, :, h].double() - result).abs() / allowed
            assert not error.isnan().any(), (call, b, h)
            assert float(error.max()) <= 1.0, (call, b, h, float(error.max()))
            assert not out[b, :, h][unseen.all(dim=-1)].any(), "a query that sees no key gives zeros"
