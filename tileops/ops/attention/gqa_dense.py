"""Grouped-query attention over contiguous keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.kernels.attention.call_spec import UNBOUNDED, AttentionCall, GQADenseFwdInterface
from tileops.kernels.attention.gqa.decode import (
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
)
from tileops.kernels.attention.gqa.prefill import (
    GQAPrefillKernel,
    GQAPrefillMmaKernel,
    GQAPrefillSlidingWindowKernel,
)
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops.inputs import InputError, require_alike, require_tensor
from tileops.ops.op_base import Op

__all__ = ["GQADenseFwdOp"]


class GQADenseFwdOp(Op):
    """``softmax(mask(softcap(q @ k.T * sm_scale))) @ v``, each group of query heads over one key head.

    Queries stand at the end of their sequences: of ``seq_q`` queries over ``seq_kv`` keys, query ``i`` has
    position ``seq_kv - seq_q + i``. Forward only: kernels record no gradient.

    Args:
        is_causal: Whether a query sees only the keys at its own position and before.
        sm_scale: Factor of the scores; ``None`` for ``1 / sqrt(dim)``.
        softcap: Above 0, scores become ``softcap * tanh(scores / softcap)``.
        window_size_left: How many keys before its own position a query sees; -1 for all.
        window_size_right: How many keys after its own position a query sees; -1 for all.

    Raises:
        ValueError: a parameter is none that a call may have.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "gqa_dense": GQAPrefillKernel,
        "gqa_dense_mma": GQAPrefillMmaKernel,
        "gqa_dense_sliding_window": GQAPrefillSlidingWindowKernel,
        "gqa_dense_decode": GQADecodeKernel,
        "gqa_dense_decode_bs1": GQADecodeBs1Kernel,
        "gqa_dense_decode_long_context": GQADecodeLongContextKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"gqa_dense": GQADenseFwdInterface}

    def __init__(
        self,
        *,
        is_causal: bool = False,
        sm_scale: float | None = None,
        softcap: float = 0.0,
        window_size_left: int = UNBOUNDED,
        window_size_right: int = UNBOUNDED,
    ) -> None:
        self.is_causal = bool(is_causal)
        self.sm_scale = None if sm_scale is None else float(sm_scale)
        self.softcap = float(softcap)
        self.window_size_left = window_size_left
        self.window_size_right = window_size_right
        reason = self._call(1, 1, 1, 1, 1, 1, torch.float16, None).invalid()
        if reason is not None:
            raise ValueError(f"GQADenseFwdOp: {reason}")

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend; nothing is written in place.

        Args:
            q: ``(batch, seq_q, heads, dim)``, float32, float16 or bfloat16.
            k: ``(batch, seq_kv, heads_kv, dim)`` with the dtype and device of *q*; ``heads`` is a multiple of
                ``heads_kv``.
            v: Like *k*.

        Returns:
            A contiguous tensor with the shape, dtype and device of *q*. Where *q* has no element it is empty,
            and no kernel is chosen.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        self._check(q, k, v)
        if q.numel() == 0:
            return self.empty_result(q, k, v)
        batch, seq_q, heads, dim = q.shape
        call = self._call(batch, heads, k.shape[2], dim, seq_q, k.shape[1], q.dtype, q.device)
        kernel = self.kernel_for("gqa_dense", call)
        result: torch.Tensor = kernel(q.contiguous(), k.contiguous(), v.contiguous())
        return result

    def empty_result(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """A contiguous tensor with the shape, dtype and device of *q*, not filled."""
        return torch.empty(q.shape, dtype=q.dtype, device=q.device)

    def _call(
        self,
        batch: int,
        heads: int,
        heads_kv: int,
        dim: int,
        seq_q: int,
        seq_kv: int,
        dtype: torch.dtype,
        device: torch.device | None,
    ) -> AttentionCall:
        return AttentionCall(
            batch=batch,
            heads=heads,
            heads_kv=heads_kv,
            dim=dim,
            max_seqlen_q=seq_q,
            seqlen_kv=seq_kv,
            dtype=dtype,
            is_causal=self.is_causal,
            sm_scale=self.sm_scale,
            softcap=self.softcap,
            window_size_left=self.window_size_left,
            window_size_right=self.window_size_right,
            device=device,
        )

    def _check(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            require_tensor(self, name, tensor)
            require_alike(self, name, tensor, "q", q)
            if tensor.dim() != 4:
                message = f"has shape {tuple(tensor.shape)}: pass (batch, seq, heads, dim)"
                raise InputError(self, name, message, found=tuple(tensor.shape))
        if v.shape != k.shape:
            message = f"has shape {tuple(v.shape)} and k {tuple(k.shape)}: keys and values have one shape"
            raise InputError(self, "v", message, found=tuple(v.shape), expected=tuple(k.shape))
        batch, _, heads, dim = q.shape
        if k.shape[0] != batch or k.shape[3] != dim:
            message = (
                f"has shape {tuple(k.shape)} and q {tuple(q.shape)}, both (batch, seq, heads, dim): "
                f"they differ in batch or dim"
            )
            raise InputError(self, "k", message, found=tuple(k.shape), expected=(batch, k.shape[1], k.shape[2], dim))
        heads_kv = k.shape[2]
        if heads != 0 and (heads_kv == 0 or heads % heads_kv != 0):
            message = f"has {heads_kv} heads and q {heads}: the heads of q are a multiple of those of k"
            raise InputError(self, "k", message, found=heads_kv)
