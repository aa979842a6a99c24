"""An attention call that is measured: what it is, what it costs at least, the tensors it takes, and our side of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple

import torch
from timing import CUDA, Timer, Work

from tileops.kernels.attention.call_spec import AttentionCall
from tileops.ops import GQADenseFwdOp

FP8: Final = torch.float8_e4m3fn
OUT_OF_FP8: Final = torch.bfloat16
"""What results have where inputs are float8."""
PRODUCT: Final = 8192
"""Rows, columns and depth of the product whose rate is the card's."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """What must be reached.

    Attributes:
        figure: ``"busy_us"``, of which less is better, or ``"tflops"`` or ``"tb_per_s"``, of which more is.
        value: The last one that is good enough.
    """

    figure: str
    value: float

    def kept(self, reached: float) -> bool:
        """Whether *reached* is good enough."""
        return reached <= self.value if self.figure == "busy_us" else reached >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.figure == 'busy_us' else '≥'} {self.value:g}"


class Inputs(NamedTuple):
    """Queries ``(batch, queries, heads, dim)``, keys and values ``(batch, keys, heads_kv, dim)``, scales of float8."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scales: tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """A call that is measured; its queries stand at the end of its keys.

    Attributes:
        batch: Sequences.
        queries: Of each sequence.
        keys: Of each sequence.
        heads: Query heads.
        heads_kv: Key and value heads.
        dim: Elements of a head.
        dtype: Of queries, keys and values.
        is_causal: Whether a query sees no key after its own position.
        window: Keys before its position that a query sees, -1 for all.
        bar: What must be reached, where something is asked for.
    """

    batch: int
    queries: int
    keys: int
    heads: int
    heads_kv: int
    dim: int = 128
    dtype: torch.dtype = torch.float16
    is_causal: bool = False
    window: int = -1
    bar: Bar | None = None

    @property
    def kind(self) -> str:
        """Whether it is a prompt or a step of decoding."""
        return "decode" if self.queries == 1 else "prefill"

    @property
    def rate(self) -> str:
        """The figure that tells how well the card is used."""
        return "tb_per_s" if self.kind == "decode" else "tflops"

    def reached(self, us: float) -> float:
        """That figure, where a call takes *us* microseconds: TB/s of keys and values, or TFLOP/s."""
        return (self.kv_bytes if self.kind == "decode" else self.operations) / us / 1e6

    @property
    def is_fp8(self) -> bool:
        """Whether inputs are float8 with a scale for each head."""
        return self.dtype == FP8

    @property
    def out_dtype(self) -> torch.dtype:
        """Of the result."""
        return OUT_OF_FP8 if self.is_fp8 else self.dtype

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head of one sequence."""
        found = 0
        for position in range(self.keys - self.queries, self.keys):
            first = max(0, position - self.window) if self.window >= 0 else 0
            found += (position if self.is_causal else self.keys - 1) - first + 1
        return found

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products."""
        return 4 * self.batch * self.heads * self.dim * self.pairs

    @property
    def kv_bytes(self) -> int:
        """Bytes of all keys and values."""
        return 2 * self.batch * self.keys * self.heads_kv * self.dim * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """The least that is read and written."""
        each = self.dtype.itemsize + self.out_dtype.itemsize
        return self.kv_bytes + self.batch * self.queries * self.heads * self.dim * each

    def inputs(self) -> Inputs:
        """Normal queries, keys and values, the same for each run; scales of one."""
        draw = torch.Generator(CUDA).manual_seed(0)

        def drawn(length: int, heads: int) -> torch.Tensor:
            shape = (self.batch, length, heads, self.dim)
            return torch.randn(shape, generator=draw, device=CUDA, dtype=self.out_dtype).to(self.dtype)

        scales: tuple[torch.Tensor, ...] = ()
        if self.is_fp8:
            counts = (self.heads, self.heads_kv, self.heads_kv)
            scales = tuple(torch.ones(self.batch, each, device=CUDA) for each in counts)
        keys, values = drawn(self.keys, self.heads_kv), drawn(self.keys, self.heads_kv)
        return Inputs(drawn(self.queries, self.heads), keys, values, scales)

    def op(self) -> GQADenseFwdOp:
        """The op that attends so."""
        of_fp8: dict[str, Any] = {"out_dtype": self.out_dtype} if self.is_fp8 else {}
        return GQADenseFwdOp(is_causal=self.is_causal, window_size_left=self.window, **of_fp8)

    def ours(self, inputs: Inputs) -> Work:
        """One whole call of the op."""
        op, (q, k, v, scales) = self.op(), inputs
        return lambda: op(q, k, v, *scales)

    def launch(self, inputs: Inputs) -> Work:
        """The launch of our decode kernel alone, with its arguments made before."""
        kernel: Any = self.op().kernel_for("gqa_dense", self.call())
        launch, given = kernel.launch, []
        kernel.launch = lambda *arguments: given.append(arguments)
        try:
            kernel(*inputs[:3], inputs.scales or None)
        finally:
            kernel.launch = launch
        (arguments,) = given
        return lambda: launch(*arguments)

    def call(self) -> AttentionCall:
        """What the op asks its kernels."""
        return AttentionCall(
            batch=self.batch,
            heads=self.heads,
            heads_kv=self.heads_kv,
            dim=self.dim,
            max_seqlen_q=self.queries,
            seqlen_kv=self.keys,
            dtype=self.out_dtype,
            is_causal=self.is_causal,
            window_size_left=self.window,
            is_fp8=self.is_fp8,
            device=CUDA,
        )


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """What this card reaches: the floor under the time of a case.

    Attributes:
        copy: Bytes that a device copy reads and writes in a microsecond.
        products: By dtype, operations of a large product in a microsecond.
    """

    copy: float
    products: dict[torch.dtype, float]

    @classmethod
    def measured(cls, timer: Timer) -> Ceilings:
        """A copy, and products of bfloat16 and of float8 through cuBLAS."""
        draw = torch.Generator(CUDA).manual_seed(0)
        a, b = (torch.randn(PRODUCT, PRODUCT, generator=draw, device=CUDA).bfloat16() for _ in range(2))
        a8, b8, one = a.to(FP8), b.to(FP8), torch.ones((), device=CUDA)
        us = {
            torch.bfloat16: timer(lambda: a @ b.T),
            FP8: timer(lambda: torch._scaled_mm(a8, b8.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)),
        }
        rates = {dtype: 2 * PRODUCT**3 / each for dtype, each in us.items()}
        return cls(timer.bandwidth(), {**rates, torch.float16: rates[torch.bfloat16]})

    def floor_us(self, case: AttentionCase) -> float:
        """Microseconds that the bytes of *case* take, or its operations where they take longer."""
        return max(case.bytes / self.copy, case.operations / self.products[case.dtype])
