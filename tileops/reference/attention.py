"""Reference grouped-query attention."""

from __future__ import annotations

import torch

from tileops.kernels.attention.call_spec import (
    UNBOUNDED,
    AttentionCall,
    GQADenseFwdInterface,
    Rotation,
    Scales,
    softmax_scale,
)
from tileops.kernels.kernel_base import Entry, Kernel

__all__ = ["GQADenseReferenceKernel", "gqa_dense", "rotated", "visible_keys"]


def visible_keys(
    seqlen_q: int,
    seqlen_kv: int,
    *,
    is_causal: bool = False,
    window_size_left: int = UNBOUNDED,
    window_size_right: int = UNBOUNDED,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Which keys each query sees; queries stand at the end of the sequence.

    Args:
        seqlen_q: Queries; query ``i`` has position ``seqlen_kv - seqlen_q + i``.
        seqlen_kv: Keys; key ``j`` has position ``j``.
        is_causal: Whether keys after a query's position are hidden.
        window_size_left: Keys seen before the position, or ``UNBOUNDED``.
        window_size_right: Keys seen after the position, or ``UNBOUNDED``.
        device: Where to make the mask.

    Returns:
        A bool tensor ``(seqlen_q, seqlen_kv)``.
    """
    position = torch.arange(seqlen_kv - seqlen_q, seqlen_kv, device=device)[:, None]
    key = torch.arange(seqlen_kv, device=device)[None, :]
    seen = torch.ones((seqlen_q, seqlen_kv), dtype=torch.bool, device=device)
    if is_causal:
        seen &= key <= position
    if window_size_left != UNBOUNDED:
        seen &= key >= position - min(window_size_left, seqlen_kv)
    if window_size_right != UNBOUNDED:
        seen &= key <= position + min(window_size_right, seqlen_q)
    return seen


def rotated(x: torch.Tensor, rotation: Rotation, first_position: int, *, interleaved: bool) -> torch.Tensor:
    """*x* with the first elements of its heads rotated in pairs, in float64, rounded to its dtype.

    Args:
        x: ``(batch, seqlen, heads, dim)``, any dtype.
        rotation: Cosines and sines of as many pairs as are rotated, for each position.
        first_position: Of the first element of a sequence.
        interleaved: Whether neighbours are a pair, as in the call spec.
    """
    half = rotation.cos.shape[1]
    positions = slice(first_position, first_position + x.shape[1])
    cos, sin = (table[positions].double()[:, None, :] for table in rotation)
    turned = x.double().clone()
    head = turned[..., : 2 * half]
    a, b = (head[..., 0::2], head[..., 1::2]) if interleaved else (head[..., :half], head[..., half:])
    new_a, new_b = a * cos - b * sin, b * cos + a * sin
    a.copy_(new_a)
    b.copy_(new_b)
    return turned.to(x.dtype)


def gqa_dense(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    is_causal: bool = False,
    sm_scale: float | None = None,
    softcap: float = 0.0,
    window_size_left: int = UNBOUNDED,
    window_size_right: int = UNBOUNDED,
) -> torch.Tensor:
    """Grouped-query attention, computed and returned in float64.

    Args:
        q: ``(batch, seqlen_q, heads, dim)``, any dtype and device.
        k: ``(batch, seqlen_kv, heads_kv, dim)``.
        v: ``(batch, seqlen_kv, heads_kv, dim)``.
        is_causal: Whether keys after a query's position are hidden.
        sm_scale: Factor of the scores; ``None`` for ``1 / sqrt(dim)``.
        softcap: Where above 0, scores become ``softcap * tanh(scores / softcap)``.
        window_size_left: Keys seen before a query's position, or ``UNBOUNDED``.
        window_size_right: Keys seen after a query's position, or ``UNBOUNDED``.

    Returns:
        A float64 tensor ``(batch, seqlen_q, heads, dim)``; zeros for a query that sees no key.
    """
    batch, seqlen_q, heads, dim = q.shape
    seqlen_kv, heads_kv = k.shape[1], k.shape[2]
    group = heads // heads_kv
    # (batch, heads_kv, group, seqlen, dim): a key head is multiplied with its group without being copied.
    queries = q.double().reshape(batch, seqlen_q, heads_kv, group, dim).permute(0, 2, 3, 1, 4)
    keys = k.double().permute(0, 2, 1, 3)[:, :, None]
    values = v.double().permute(0, 2, 1, 3)[:, :, None]
    scores = queries @ keys.transpose(-1, -2) * softmax_scale(dim, sm_scale)
    if softcap > 0.0:
        scores = softcap * torch.tanh(scores / softcap)
    seen = visible_keys(
        seqlen_q,
        seqlen_kv,
        is_causal=is_causal,
        window_size_left=window_size_left,
        window_size_right=window_size_right,
        device=q.device,
    )
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    weights = weights.masked_fill(~seen, 0.0)  # no NaN from a row that sees nothing, no value of a hidden key
    attended = weights @ values
    return attended.permute(0, 3, 1, 2, 4).reshape(batch, seqlen_q, heads, dim)


class GQADenseReferenceKernel(Kernel, GQADenseFwdInterface):
    """Attention in float64, rounded once at the end: any number of queries, any window, rotation and float8 too.

    Args:
        is_causal: As in the call spec.
        sm_scale: As in the call spec.
        softcap: As in the call spec.
        window_size_left: As in the call spec.
        window_size_right: As in the call spec.
        interleaved: Whether neighbours are rotated as a pair.
        dtype: Of the result.
    """

    devices: frozenset[str] = frozenset({"cpu"})

    def __init__(
        self,
        is_causal: bool,
        sm_scale: float | None,
        softcap: float,
        window_size_left: int,
        window_size_right: int,
        interleaved: bool,
        dtype: torch.dtype,
    ) -> None:
        self.is_causal = is_causal
        self.sm_scale = sm_scale
        self.softcap = softcap
        self.window_size_left = window_size_left
        self.window_size_right = window_size_right
        self.interleaved = interleaved
        self.dtype = dtype

    @classmethod
    def entry_for(cls, call: AttentionCall) -> Entry:
        """What changes meaning is held; shapes are read off the tensors."""
        identity = (
            call.is_causal,
            call.sm_scale,
            call.softcap,
            call.window_size_left,
            call.window_size_right,
            call.rope_interleaved,
            call.dtype,
        )
        return identity, lambda: cls(*identity)

    @torch.no_grad()
    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scales: Scales | None = None,
        rotation: Rotation | None = None,
    ) -> torch.Tensor:
        """Attend; see the interface."""
        if rotation is not None:
            q = rotated(q, rotation, k.shape[1] - q.shape[1], interleaved=self.interleaved)
            k = rotated(k, rotation, 0, interleaved=self.interleaved)
        if scales is not None:
            q, k, v = (
                each.double() * scale.double()[:, None, :, None] for each, scale in zip((q, k, v), scales, strict=True)
            )
        return (
            gqa_dense(
                q,
                k,
                v,
                is_causal=self.is_causal,
                sm_scale=self.sm_scale,
                softcap=self.softcap,
                window_size_left=self.window_size_left,
                window_size_right=self.window_size_right,
            )
            .to(self.dtype)
            .contiguous()
        )
