"""Grouped-query attention over contiguous keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NoReturn, TypeGuard

import torch

from tileops.kernels.attention.call_spec import (
    CALL_DTYPES,
    UNBOUNDED,
    AttentionCall,
    GQADenseFwdInterface,
    Rotation,
    Scales,
)
from tileops.kernels.attention.gqa.decode import (
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
    GQADecodeSlidingWindowKernel,
    GQAFp8DecodeKernel,
)
from tileops.kernels.attention.gqa.fp8_prefill import GQAFp8Kernel
from tileops.kernels.attention.gqa.limits import DTYPES
from tileops.kernels.attention.gqa.prefill import (
    GQAPrefillKernel,
    GQAPrefillMmaKernel,
    GQAPrefillSlidingWindowKernel,
)
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops.inputs import (
    InputError,
    integer,
    number,
    require_alike,
    require_float32,
    require_tensor,
    switch,
)
from tileops.ops.op_base import Op

__all__ = ["GQADenseFwdOp"]

SCALES: Final = ("q_scale", "k_scale", "v_scale")
_FLOAT8: Final = torch.float8_e4m3fn
_Tensor: Final = torch.Tensor


def _are_whole(
    given: tuple[torch.Tensor | None, ...], batch: int, heads: int, heads_kv: int, device: torch.device
) -> TypeGuard[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Whether the three scales are what a kernel reads, so that nothing else is to be asked of them.

    Asked in one line, as a call costs more than an answer.
    """
    q, k, v = given
    return (
        isinstance(q, _Tensor)
        and isinstance(k, _Tensor)
        and isinstance(v, _Tensor)
        and q.shape == (batch, heads)
        and k.shape == v.shape == (batch, heads_kv)
        and q.dtype is k.dtype is v.dtype is torch.float32
        and q.device == k.device == v.device == device
        and q.is_contiguous()
        and k.is_contiguous()
        and v.is_contiguous()
    )


class GQADenseFwdOp(Op):
    """``softmax(mask(softcap(q @ k.T * sm_scale))) @ v``, each group of query heads over one key head.

    Queries stand at the end of their sequences: of ``seq_q`` queries over ``seq_kv`` keys, query ``i`` has
    position ``seq_kv - seq_q + i``. Forward only: kernels record no gradient. What is built
    does not depend on lengths: a decode loop runs on a kernel or two.

    Args:
        is_causal: Whether a query sees only the keys at its own position and before.
        sm_scale: Factor of the scores; ``None`` for ``1 / sqrt(dim)``.
        softcap: Above 0, scores become ``softcap * tanh(scores / softcap)``.
        window_size_left: How many keys before its own position a query sees; -1 for all.
        window_size_right: How many keys after its own position a query sees; -1 for all.
        rotary_dim: Elements of a head, from the first on, that are rotated at their position before they are
            multiplied: an even number; 0 for none. Queries and keys are given as they were before rotation.
        rope_interleaved: Whether neighbours are rotated as a pair; else an element and the one ``rotary_dim / 2`` after
            it, as in NeoX.
        out_dtype: Of the result where queries, keys and values are ``float8_e4m3fn``.

    Raises:
        TypeError: a parameter is of another type.
        ValueError: a parameter is none that a call may have.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "gqa_dense": GQAPrefillKernel,
        "gqa_dense_mma": GQAPrefillMmaKernel,
        "gqa_dense_sliding_window": GQAPrefillSlidingWindowKernel,
        "gqa_dense_fp8": GQAFp8Kernel,
        "gqa_dense_decode": GQADecodeKernel,
        "gqa_dense_decode_bs1": GQADecodeBs1Kernel,
        "gqa_dense_decode_long_context": GQADecodeLongContextKernel,
        "gqa_dense_decode_sliding_window": GQADecodeSlidingWindowKernel,
        "gqa_dense_fp8_decode": GQAFp8DecodeKernel,
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
        rotary_dim: int = 0,
        rope_interleaved: bool = False,
        out_dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.is_causal = switch(self, "is_causal", is_causal)
        self.sm_scale = None if sm_scale is None else number(self, "sm_scale", sm_scale)
        self.softcap = number(self, "softcap", softcap)
        self.window_size_left = integer(self, "window_size_left", window_size_left)
        self.window_size_right = integer(self, "window_size_right", window_size_right)
        self.rotary_dim = integer(self, "rotary_dim", rotary_dim)
        self.rope_interleaved = switch(self, "rope_interleaved", rope_interleaved)
        self.out_dtype = out_dtype
        if out_dtype not in DTYPES:
            raise ValueError(f"GQADenseFwdOp: out_dtype {out_dtype} is not {' or '.join(map(str, DTYPES))}")
        if self.rotary_dim < 0 or self.rotary_dim % 2 != 0:
            raise ValueError(f"GQADenseFwdOp: rotary_dim {self.rotary_dim} is not an even number from 0 up")
        if self.rope_interleaved and self.rotary_dim == 0:
            raise ValueError("GQADenseFwdOp: rope_interleaved is set and rotary_dim is 0: nothing is rotated")
        reason = self._call(1, 1, 1, max(1, self.rotary_dim), 1, 1, torch.float16, None).invalid()
        if reason is not None:
            raise ValueError(f"GQADenseFwdOp: {reason}")

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        q_scale: torch.Tensor | None = None,
        k_scale: torch.Tensor | None = None,
        v_scale: torch.Tensor | None = None,
        cos: torch.Tensor | None = None,
        sin: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend; nothing is written in place, and keys and values in a longer cache are read where they lie.

        Args:
            q: ``(batch, seq_q, heads, dim)``, float32, float16, bfloat16 or float8_e4m3fn.
            k: ``(batch, seq_kv, heads_kv, dim)`` with the dtype and device of *q*; ``heads`` is a multiple of
                ``heads_kv``.
            v: Like *k*.
            q_scale: With float8, and only with it: what each head of *q* is multiplied with, ``(heads,)`` or ``(batch,
                heads)``, float32, positive.
            k_scale: The same of *k*, ``(heads_kv,)`` or ``(batch, heads_kv)``.
            v_scale: The same of *v*.
            cos: Where heads are rotated, and only there: ``(positions, rotary_dim / 2)``, float32, for as many
                positions as there are keys or more. Key ``j`` is rotated by row ``j``.
            sin: Like *cos*.

        Returns:
            A contiguous tensor with the shape and device of *q*, and its dtype; ``out_dtype`` where that is float8.
            Where *q* has no element it is empty, and no kernel is chosen.

        Raises:
            TypeError: an argument is no tensor.
            InputError: shapes, dtypes or devices do not go together.
            ValueError, OpNotAvailableError: as :meth:`~tileops.ops.op_base.Op.kernel_for`.
        """
        batch, seq_q, heads, dim, seq_kv, heads_kv, dtype, device = self._sizes(q, k, v)
        is_fp8 = dtype is _FLOAT8
        scales = rotation = None
        if is_fp8 or q_scale is not None or k_scale is not None or v_scale is not None:
            given = q_scale, k_scale, v_scale
            if is_fp8 and _are_whole(given, batch, heads, heads_kv, device):
                scales = Scales(*given)
            else:
                scales = self._scales(q, k, given)
        if self.rotary_dim or cos is not None or sin is not None:
            rotation = self._rotation(q, k, (cos, sin))
        if not (batch and seq_q and heads and dim):
            return self.empty_result(q)
        facts = batch, heads, heads_kv, dim, seq_q, dtype, device
        kernel = self.kernel_along(
            "gqa_dense",
            facts,
            seq_kv,
            lambda: self._call(batch, heads, heads_kv, dim, seq_q, seq_kv, self._result_dtype(dtype), device, is_fp8),
        )
        result: torch.Tensor = kernel(q, k, v, scales, rotation)
        return result

    def empty_result(self, q: torch.Tensor, *others: torch.Tensor | None, **named: torch.Tensor | None) -> torch.Tensor:
        """A contiguous tensor with the shape, dtype and device of the result, not filled."""
        return torch.empty(q.shape, dtype=self._result_dtype(q.dtype), device=q.device)

    def _result_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """What the result is where queries are *dtype*.

        Raises:
            InputError: queries cannot be.
        """
        if dtype is _FLOAT8:
            return self.out_dtype
        if dtype not in CALL_DTYPES:
            accepted = ", ".join(map(str, CALL_DTYPES))
            message = f"is {dtype}: convert q, k and v to one of {accepted}, or to {_FLOAT8} and pass their scales"
            raise InputError(self, "q", message, found=dtype)
        return dtype

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
        is_fp8: bool = False,
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
            fuse_rope=self.rotary_dim != 0,
            rotary_dim=self.rotary_dim,
            rope_interleaved=self.rope_interleaved,
            is_fp8=is_fp8,
            device=device,
        )

    def _scales(self, q: torch.Tensor, k: torch.Tensor, given: tuple[torch.Tensor | None, ...]) -> Scales | None:
        """The scales, one for each head of each sequence: views of those given where that can be."""
        batch = q.shape[0]
        held = []
        for name, scale, heads in zip(SCALES, given, (q.shape[2], k.shape[2], k.shape[2]), strict=True):
            if q.dtype != _FLOAT8:
                if scale is None:
                    continue
                message = f"is given and q is {q.dtype}: only torch.float8_e4m3fn has scales"
                raise InputError(self, name, message, found=q.dtype, expected=torch.float8_e4m3fn)
            if scale is None:
                message = f"is None and q is {q.dtype}: float8 needs {', '.join(SCALES[:-1])} and {SCALES[-1]}"
                raise InputError(self, name, message, expected=torch.float32)
            found = require_float32(self, name, scale, "q", q)
            if found.shape not in ((heads,), (batch, heads)):
                message = f"has shape {tuple(found.shape)}: pass ({heads},) or ({batch}, {heads})"
                raise InputError(self, name, message, found=tuple(found.shape), expected=(batch, heads))
            wide = found.expand(batch, heads)
            held.append(wide if wide.stride(1) == 1 else wide.contiguous())
        return Scales(*held) if held else None

    def _rotation(self, q: torch.Tensor, k: torch.Tensor, given: tuple[torch.Tensor | None, ...]) -> Rotation | None:
        """The angles of the rotation."""
        half = self.rotary_dim // 2
        held = []
        for name, table in zip(("cos", "sin"), given, strict=True):
            if half == 0:
                if table is None:
                    continue
                message = "is given and rotary_dim is 0: make the op with the rotary_dim of the heads"
                raise InputError(self, name, message, found=tuple(require_tensor(self, name, table).shape))
            if table is None:
                message = f"is None and rotary_dim is {self.rotary_dim}: a rotation needs cos and sin"
                raise InputError(self, name, message, expected=torch.float32)
            found = require_float32(self, name, table, "q", q)
            if found.dim() != 2 or found.shape[1] != half or found.shape[0] < k.shape[1]:
                message = f"has shape {tuple(found.shape)}: pass ({k.shape[1]} or more, {half})"
                raise InputError(self, name, message, found=tuple(found.shape), expected=(k.shape[1], half))
            held.append(found.contiguous())
        if held and held[0].shape != held[1].shape:
            message = f"has shape {tuple(held[1].shape)} and cos {tuple(held[0].shape)}: they have one shape"
            raise InputError(self, "sin", message, found=tuple(held[1].shape), expected=tuple(held[0].shape))
        return Rotation(*held) if held else None

    def _sizes(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[int, int, int, int, int, int, torch.dtype, torch.device]:
        """Batch, queries, heads, elements of a head, keys, their heads, dtype and device, of tensors that go together.

        What goes together is asked in one line, as a call costs more than an answer.

        Raises:
            TypeError, InputError: as :meth:`_refuse_tensors`.
        """
        if not (isinstance(q, _Tensor) and isinstance(k, _Tensor) and isinstance(v, _Tensor)):
            self._refuse_tensors(q, k, v)
        q_sizes, k_sizes, dtype, device = q.shape, k.shape, q.dtype, q.device
        if not (
            len(q_sizes) == len(k_sizes) == 4
            and v.shape == k_sizes
            and k.dtype is dtype
            and v.dtype is dtype
            and k.device == device
            and v.device == device
        ):
            self._refuse_tensors(q, k, v)
        batch, seq_q, heads, dim = q_sizes
        k_batch, seq_kv, heads_kv, k_dim = k_sizes
        if k_batch != batch or k_dim != dim or (heads and (not heads_kv or heads % heads_kv)):
            self._refuse_tensors(q, k, v)
        return batch, seq_q, heads, dim, seq_kv, heads_kv, dtype, device

    def _refuse_tensors(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> NoReturn:
        """Say what is wrong with tensors that do not go together."""
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
        message = (
            f"has shape {tuple(k.shape)} and q {tuple(q.shape)}, both (batch, seq, heads, dim): "
            f"{heads} heads of q are no multiple of {k.shape[2]} of k"
        )
        raise InputError(self, "k", message, found=k.shape[2])
