"""The ways to normalize rows, one class each, whatever the normalization computes.

A kernel inherits one of them and an interface, and names its recipe.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import torch

from tileops.kernels.kernel_base import Entry, Kernel
from tileops.kernels.norm.call_spec import ARCHS, FEW_ROWS, LayerNormCall, row_refusal
from tileops.kernels.norm.row_launches import (
    BRIEF_ROW,
    CUT_LANES,
    CUT_ROW,
    HELD_ROW,
    REGISTER_ROW,
    RING_ROW,
    RING_STAGES,
    RING_WARPS,
    SHORT_ROW,
    WARP,
    WORTH_CUTTING,
    HeldLaunch,
    RingLaunch,
    TiledLaunch,
    cut_blocks,
    cut_launches,
    few_lanes,
    few_launches,
    held_lanes,
    held_launches,
    held_row,
    ring_launches,
    short_launches,
    short_threads,
    tiled_launches,
    vector_of,
)
from tileops.kernels.norm.row_recipes import RowRecipe
from tileops.kernels.tilelang_build import (
    ALIGNMENT_BYTES,
    BARRIER_BYTES,
    Program,
    compile_program,
    dtype_name,
    stated_arch,
)
from tileops.kernels.tuning import key_of, recorded, tune

__all__ = ["CutRows", "HeldRows", "RingRows", "RowKernel", "ShortRows", "TiledRows", "as_row", "as_rows"]

CENTRED_BYTES: Final = 12
"""Of what warps exchange of a row that is centred: a point near the mean, what that leaves of it, and squares."""
SQUARE_BYTES: Final = 4
"""Of what they exchange of one that is not: squares."""

OWN_BYTES: Final = 16
"""Of the facts of one block of a cluster, with what TileLang aligns them by."""

MEASURED_BYTES: Final = 64 * 2**20
"""Of the input that launches are measured on: 8,192 rows of 4,096 16-bit values."""


Launch: TypeAlias = HeldLaunch | RingLaunch | TiledLaunch


class RowKernel(Kernel):
    """A kernel that normalizes rows; one build serves any number of them.

    Args:
        n: Elements of a row.
        eps: Added to the variance, or to the mean square.
        dtype: Of every tensor.
        own: What tells this build from others of the same row; see :meth:`own_of`.
        arch: Architecture to build for.

    Attributes:
        recipe: What is computed.
        table: The ways in which rows may be laid out, the usual one first.
        launch_planes: What launches rows of two axes, from the first call with such rows on.
        layout: The one that is in use: as measured, where that is on file for this card or :meth:`request_tune` was
            called, else the usual one.

    Raises:
        ValueError: *n* is no length that the class takes.
        KernelBuildError: TileLang or nvcc is missing.
    """

    supported_archs: list[int] = [*ARCHS]
    recipe: ClassVar[RowRecipe]
    program: ClassVar[tuple[str, str]]

    def __init__(self, n: int, eps: float, dtype: torch.dtype, *own: Any, arch: int) -> None:
        reason = self.row_refusal(n, dtype)
        if reason is not None:
            raise ValueError(f"{type(self).__name__}: {reason}")
        self.n = n
        self.dtype = dtype
        self.own = own
        self.table = self._launches()
        self._compile = functools.partial(
            compile_program,
            *self.program,
            arch,
            n=n,
            eps=eps,
            dtype=dtype_name(dtype),
            recipe=self.recipe,
            **self._built_in(),
        )
        self._key = key_of(type(self), (n, eps, dtype, *own), arch)
        self._lay_out(recorded(self._key, self.table) or self.table[0])

    def request_tune(self) -> None:
        """Measure the launches of the table, or take the one on file; see :mod:`tileops.kernels.tuning`."""
        layout = tune(self._key, self.table, self._measurable)
        if layout is not None and layout != self.layout:
            self._lay_out(layout)

    def _launches(self) -> Sequence[Launch]:
        return self.launches_of(self.n, self.dtype)

    def _built_in(self) -> dict[str, Any]:
        """What the program takes beside row, epsilon, dtype, recipe and launch."""
        return {}

    def _rows_measured(self) -> int:
        return self.measured_rows(self.n, self.dtype)

    def _lay_out(self, layout: Launch) -> None:
        self.compiled = self._compiled(layout)
        self.layout = layout
        self.launch = self.compiled.launch
        self.launch_planes: Callable[..., Any] | None = None

    def _build_planes(self) -> Callable[..., Any] | None:
        """What launches rows of two axes without a view; ``None`` while a graph is captured, when nothing is built."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return None
        self.launch_planes = self._compile(**dataclasses.asdict(self.layout), planes=True).launch
        return self.launch_planes

    def _compiled(self, layout: Launch) -> Program:
        return self._compile(**dataclasses.asdict(layout))

    def _measurable(self, device: torch.device) -> Callable[[Launch], Callable[[], Any]]:
        """What compiles a launch and gives a call of it on scratch tensors, the same for all."""
        tensors = self._scratch(device)
        return lambda layout: functools.partial(self._compiled(layout).launch, *tensors)

    def _scratch(self, device: torch.device) -> list[torch.Tensor]:
        """Tensors for :attr:`launch`; no one else's random numbers are drawn."""
        draw = torch.Generator(device).manual_seed(0)
        shape = (self._rows_measured(), self.n)
        weights = 1 + self.recipe.biased if self.recipe.shared else 0
        shapes = [shape] * self.recipe.inputs + [(self.n,)] * weights
        read = [torch.empty(each, dtype=self.dtype, device=device).normal_(generator=draw) for each in shapes]
        return read + [torch.empty_like(read[0]) for _ in range(self.recipe.outputs)]

    @classmethod
    def measured_rows(cls, n: int, dtype: torch.dtype) -> int:
        """Rows of the input that launches are measured on."""
        return max(1, MEASURED_BYTES // (n * dtype.itemsize))

    @classmethod
    def launch_of(cls, n: int, dtype: torch.dtype) -> Launch:
        """How rows of *n* elements are laid out where nothing was measured."""
        return cls.launches_of(n, dtype)[0]

    @classmethod
    @abstractmethod
    def launches_of(cls, n: int, dtype: torch.dtype) -> Sequence[Launch]:
        """How rows of *n* elements may be laid out, the usual way first.

        All compute the same, and no block takes more than the class states of one.
        """

    @classmethod
    def row_refusal(cls, n: int, dtype: torch.dtype) -> str | None:
        """Why rows of *n* elements are refused, or ``None``; rule and constructor both ask here."""
        return row_refusal(n)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """Refuse rows of a length that the class does not take."""
        reason = cls.row_refusal(call.n, call.dtype)
        return reason if reason is not None else super().refusal(call)

    @classmethod
    def own_of(cls, call: LayerNormCall) -> tuple[Any, ...]:
        """What else is built in for *call*: nothing, where one build of a row serves all."""
        return ()

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> Entry:
        """Row length, epsilon and dtype are built in, and what a class has of its own; the number of rows is not."""
        identity = (call.n, call.eps, call.dtype, *cls.own_of(call))
        return identity, lambda: cls(*identity, arch=stated_arch(call))


def as_rows(tensor: torch.Tensor, n: int) -> torch.Tensor:
    """*tensor* as rows of *n* elements; a copy where it begins off a boundary."""
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        tensor = tensor.clone()
    return tensor if tensor.ndim == 2 and tensor.shape[1] == n else tensor.view(-1, n)


def as_row(tensor: torch.Tensor, n: int) -> torch.Tensor:
    """*tensor* as one row of *n* elements; a copy where it begins off a boundary."""
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        tensor = tensor.clone()
    return tensor if tensor.ndim == 1 else tensor.view(n)


class TiledRows(RowKernel):
    """Rows of any length, a block each, read twice: below all other ways."""

    general: bool = True
    program = ("tileops.kernels.norm.tiled_rows_program", "tiled_rows")

    @classmethod
    def launches_of(cls, n: int, dtype: torch.dtype) -> Sequence[TiledLaunch]:
        """As :func:`tiled_launches` has them."""
        return tiled_launches(n, dtype)

    @classmethod
    def block_smem_bytes(cls, call: LayerNormCall) -> int:
        """What its warps exchange, and how many values each has where the row is centred."""
        exchanged = exchanged_bytes(cls.recipe, TiledLaunch.threads // WARP)
        return exchanged + (TiledLaunch.threads // WARP * 4 if cls.recipe.centred else 0)

    @classmethod
    def block_threads(cls, call: LayerNormCall) -> int:
        """As :func:`tiled_launch` has them."""
        return TiledLaunch.threads


class HeldKernel(RowKernel):
    """Rows that are read once and held until they are written."""

    program = ("tileops.kernels.norm.held_rows_program", "held_rows")

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """Refuse devices where a block has less shared memory than the longest row takes: none that is built for."""
        most = cls.most_smem_bytes()
        if call.smem_budget is not None and call.smem_budget < most:
            return f"smem_budget {call.smem_budget} is less than the {most} bytes of the longest row"
        return super().refusal(call)

    @classmethod
    @abstractmethod
    def most_smem_bytes(cls) -> int:
        """No block takes more of shared memory, whatever the row and whether it is centred."""


class ShortRows(HeldKernel):
    """Rows of at most ``SHORT_ROW`` elements: a warp or less each."""

    @classmethod
    def row_refusal(cls, n: int, dtype: torch.dtype) -> str | None:
        """Refuse longer ones."""
        return f"n {n} is more than the {SHORT_ROW} of a warp" if n > SHORT_ROW else super().row_refusal(n, dtype)

    @classmethod
    def launches_of(cls, n: int, dtype: torch.dtype) -> Sequence[HeldLaunch]:
        """As :func:`short_launches` has them."""
        return short_launches(n, dtype, cls.recipe)

    @classmethod
    def most_smem_bytes(cls) -> int:
        """A warp exchanges through registers."""
        return 0

    @classmethod
    def block_smem_bytes(cls, call: LayerNormCall) -> int:
        """A warp exchanges through registers."""
        return 0

    @classmethod
    def block_threads(cls, call: LayerNormCall) -> int:
        """As :func:`short_launch` has them."""
        return short_threads(cls.recipe)


class RingRows(HeldKernel):
    """Many rows of at most ``RING_ROW`` elements: a warp each, which bulk copies bring through a ring.

    These came with SM90. What is built in beside the row is the number of multiprocessors.
    """

    supported_archs: list[int] = [90]
    program = ("tileops.kernels.norm.ring_rows_program", "ring_rows")

    def _built_in(self) -> dict[str, Any]:
        (sm_count,) = self.own
        return {"sm_count": sm_count}

    @classmethod
    def row_refusal(cls, n: int, dtype: torch.dtype) -> str | None:
        """Refuse longer ones, and those that do not all begin at 16 bytes."""
        if n > RING_ROW:
            return f"n {n} is more than the {RING_ROW} of a warp"
        vector = ALIGNMENT_BYTES // dtype.itemsize
        if n % vector != 0:
            return f"n {n} is not a multiple of {vector}: rows do not all begin at {ALIGNMENT_BYTES} bytes"
        return super().row_refusal(n, dtype)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """Refuse few rows: what comes next is nothing then."""
        return "few_rows is True" if call.few_rows else super().refusal(call)

    @classmethod
    def launches_of(cls, n: int, dtype: torch.dtype) -> Sequence[RingLaunch]:
        """As :func:`ring_launches` has them."""
        return ring_launches(n, dtype, cls.recipe)

    @classmethod
    def most_smem_bytes(cls) -> int:
        """The stages of the longest row of float32, and barriers."""
        return RING_STAGES * RING_WARPS * RING_ROW * 4 + BARRIER_BYTES

    @classmethod
    def block_smem_bytes(cls, call: LayerNormCall) -> int:
        """Its stages, and barriers."""
        return RING_STAGES * RING_WARPS * call.n * call.dtype.itemsize + BARRIER_BYTES

    @classmethod
    def block_threads(cls, call: LayerNormCall) -> int:
        """The same for all."""
        return RING_WARPS * WARP

    @classmethod
    def own_of(cls, call: LayerNormCall) -> tuple[Any, ...]:
        """The number of multiprocessors."""
        return (call.sm_count or 1,)


class HeldRows(HeldKernel):
    """Rows of at most :func:`held_row` elements: a block each, in registers or in shared memory.

    Few rows have a build of their own where that is worth it, with more threads each; it is right for any number.
    """

    @property
    def few_rows(self) -> bool:
        """Whether the build is for few rows."""
        return bool(self.own)

    def _launches(self) -> Sequence[Launch]:
        return few_launches(self.n, self.dtype, self.recipe) if self.few_rows else super()._launches()

    def _rows_measured(self) -> int:
        return FEW_ROWS if self.few_rows else super()._rows_measured()

    @classmethod
    def own_of(cls, call: LayerNormCall) -> tuple[Any, ...]:
        """That rows are few, where that is worth a build."""
        return (True,) if laid_out_as_few(call) else ()

    @classmethod
    def row_refusal(cls, n: int, dtype: torch.dtype) -> str | None:
        """Refuse longer ones."""
        longest = held_row(cls.recipe, dtype)
        return f"n {n} is more than the {longest} of a block" if n > longest else super().row_refusal(n, dtype)

    @classmethod
    def launches_of(cls, n: int, dtype: torch.dtype) -> Sequence[HeldLaunch]:
        """As :func:`held_launches` has them."""
        return held_launches(n, dtype, cls.recipe)

    @classmethod
    def most_smem_bytes(cls) -> int:
        """A row of float32 that waits, and what 8 warps exchange; where none waits, what 32 do."""
        if not cls.recipe.centred:
            return 32 * CENTRED_BYTES
        return HELD_ROW * 4 + 8 * CENTRED_BYTES

    @classmethod
    def block_smem_bytes(cls, call: LayerNormCall) -> int:
        """What its warps exchange, and the row where it waits there."""
        lanes = few_lanes(call.n) if laid_out_as_few(call) else held_lanes(call.n, cls.recipe)
        exchanged = exchanged_bytes(cls.recipe, lanes // WARP)
        if not cls.recipe.centred or call.n <= REGISTER_ROW:
            return exchanged
        return exchanged + waiting_bytes(call.n, lanes * vector_of(call.n, call.dtype), call.dtype)

    @classmethod
    def block_threads(cls, call: LayerNormCall) -> int:
        """As :func:`few_launch` or :func:`held_launch` has them."""
        return few_lanes(call.n) if laid_out_as_few(call) else held_lanes(call.n, cls.recipe)


class CutRows(HeldKernel):
    """Rows of at most ``CUT_ROW`` elements, each cut over the blocks of a cluster: long ones, or few of them.

    Many rows have a build of their own, cut into larger shares; it is right for any number. Clusters came with SM90.
    """

    supported_archs: list[int] = [90]

    @property
    def many_rows(self) -> bool:
        """Whether the build is for many rows."""
        return bool(self.own)

    def _launches(self) -> Sequence[Launch]:
        return cut_launches(self.n, self.dtype, self.recipe, many=self.many_rows)

    def _rows_measured(self) -> int:
        return super()._rows_measured() if self.many_rows else FEW_ROWS

    @classmethod
    def own_of(cls, call: LayerNormCall) -> tuple[Any, ...]:
        """That rows are many."""
        return () if call.few_rows else (True,)

    @classmethod
    def row_refusal(cls, n: int, dtype: torch.dtype) -> str | None:
        """Refuse longer ones, and those that are not worth it."""
        if n > CUT_ROW:
            return f"n {n} is more than the {CUT_ROW} of a cluster"
        if n <= WORTH_CUTTING:
            return f"n {n} is not more than {WORTH_CUTTING}"
        return super().row_refusal(n, dtype)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """Refuse many rows where one block holds each."""
        longest = held_row(cls.recipe, call.dtype)
        if not call.few_rows and call.n <= longest:
            return f"few_rows is False and n {call.n} is not more than the {longest} of a block"
        return super().refusal(call)

    @classmethod
    def launches_of(cls, n: int, dtype: torch.dtype) -> Sequence[HeldLaunch]:
        """As :func:`cut_launches` has them for few rows."""
        return cut_launches(n, dtype, cls.recipe, many=False)

    @classmethod
    def most_smem_bytes(cls) -> int:
        """An eighth of the longest row of float32, and what 8 warps and 8 blocks exchange."""
        return CUT_ROW * 4 // 8 + (CUT_LANES // WARP + 8) * CENTRED_BYTES + OWN_BYTES

    @classmethod
    def block_smem_bytes(cls, call: LayerNormCall) -> int:
        """What its warps exchange, what the blocks do, and its share of the row."""
        span = CUT_LANES * vector_of(call.n, call.dtype)
        blocks = cut_blocks(call.n, call.dtype, many=not call.few_rows)
        exchanged = exchanged_bytes(cls.recipe, CUT_LANES // WARP + blocks) + OWN_BYTES
        return exchanged + waiting_bytes(call.n, span * blocks, call.dtype) // blocks

    @classmethod
    def block_threads(cls, call: LayerNormCall) -> int:
        """As :func:`cut_launch` has them."""
        return CUT_LANES


def laid_out_as_few(call: LayerNormCall) -> bool:
    """Whether the rows of *call* are held as few are."""
    return call.few_rows and BRIEF_ROW < call.n <= REGISTER_ROW


def exchanged_bytes(recipe: RowRecipe, parts: int) -> int:
    """Shared memory in which *parts* of a row meet."""
    return parts * (CENTRED_BYTES if recipe.centred else SQUARE_BYTES)


def waiting_bytes(n: int, span: int, dtype: torch.dtype) -> int:
    """Shared memory of a row of *n* elements, of which *span* are loaded at a time."""
    return -(-n // span) * span * dtype.itemsize
