"""An interface of any size, made up: what the audit's bounds are held against.

    python benchmarks/generated_interface.py --implementations 1000 --fields 40 > generated.py

The implementations stand in groups. Two of different groups differ in an enum or in an interval of a size, so that
reading their rules is enough to tell them apart. Those of one group ask for the same enums and intervals, and are
told apart by alignment, by the ratio of two sizes or by a product: most such pairs need the solver. The share of
pairs that do is given, and the size of the groups follows. Every tenth group has a further member that serves part
of what the others do and is preferred over them; one general implementation stands below all.

Everything is written as source text and then executed: each rule is a function of its own, as in a real package.
The same arguments give the same text.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["FEWEST_FIELDS", "Size", "generated_module", "generated_op", "source"]

_HEAD: Final = '''"""A generated interface: {size}."""

import enum
from dataclasses import dataclass
from typing import Annotated, Literal, Optional

from tileops_rules import Range


class Mask(enum.Enum):
    NONE = "none"
    CAUSAL = "causal"
    WINDOW = "window"
    PREFIX = "prefix"


DTYPES = {dtypes}
BYTES = {{"float32": 4, "float16": 2, "bfloat16": 2, "e4m3": 1, "int8": 1}}


@dataclass(frozen=True)
class GeneratedCall:
{fields}

    def invalid(self):
        if self.batch < 1 or self.heads < 1 or self.heads_kv < 1:
            return f"batch {{self.batch}}, heads {{self.heads}} and heads_kv {{self.heads_kv}} are not all positive"
        if self.heads % self.heads_kv != 0:
            return f"heads {{self.heads}} is not a multiple of heads_kv {{self.heads_kv}}"
        if self.dim < 1 or self.dim_v < 1:
            return f"dim {{self.dim}} and dim_v {{self.dim_v}} are not both positive"
        return None


class GeneratedInterface:
    request = GeneratedCall

    @classmethod
    def unserved(cls, call):
        return "this variant is reserved" if call.variant == "reserved" else None

    @classmethod
    def refusal(cls, call):
        return "this variant is reserved" if call.variant == "reserved" else None
'''

_DTYPES: Final = ("float16", "bfloat16", "float32", "e4m3", "int8")
_LAYOUTS: Final = ("nhd", "hnd", "packed")
_MASKS: Final = ("NONE", "CAUSAL", "WINDOW", "PREFIX")
_QUANTS: Final = ("off", "per_tensor", "per_head")
_ARCHS: Final = ("[80]", "[86, 89]", "[90]", "[80, 86, 89]", "None", "None")
_FIRST_BAND: Final = 128
_WIDEST_BAND: Final = 2**20

_NEEDED: Final = (
    "device: str = 'cuda'",
    "arch: Optional[int] = None",
    "sm_count: Optional[int] = None",
    "smem_budget: Optional[int] = None",
    f"dtype: Literal{list(_DTYPES)} = 'float16'",
    f"layout: Literal{list(_LAYOUTS)} = 'nhd'",
    "mask: Mask = Mask.NONE",
    f"quant: Literal{list(_QUANTS)} = 'off'",
    "variant: str = 'plain'",
    "batch: int = 1",
    "heads: int = 1",
    "heads_kv: int = 1",
    "dim: Annotated[int, Range(0, 1024)] = 64",
    "dim_v: Annotated[int, Range(0, 1024)] = 64",
    "rows: int = 1",
    "cols: int = 1",
    "groups: Annotated[int, Range(1, 65536)] = 1",
    "seqlen_kv: int = 1",
    "is_training: bool = False",
    "fuse_rope: bool = False",
)
_FURTHER: Final = (
    "rope: Literal['neox', 'interleaved', 'partial'] = 'neox'",
    "activation: Literal['none', 'relu', 'gelu', 'silu', 'tanh'] = 'none'",
    "acc_dtype: Literal['float32', 'float16'] = 'float32'",
    "norm: Literal['none', 'layer', 'rms'] = 'none'",
    "has_bias: bool = False",
    "has_residual: bool = False",
    "is_paged: bool = False",
    "is_varlen: bool = False",
    "return_lse: bool = False",
    "deterministic: bool = False",
    "page_size: int = 16",
    "seqlen_q: int = 1",
    "window_left: int = -1",
    "window_right: int = -1",
    "tile: tuple[int, int] = (64, 64)",
    "shape: tuple[int, ...] = ()",
    "softcap: float = 0.0",
    "scale: Optional[float] = None",
    "momentum: float = 0.1",
    "splits: int = 1",
)
FEWEST_FIELDS: Final = len(_NEEDED)


@dataclass(frozen=True)
class Size:
    """How large a generated interface is.

    Attributes:
        implementations: How many it has, the general one included.
        fields: Fields of its call, at least :data:`FEWEST_FIELDS`.
        share: The share of pairs that the solver is needed for, about.
        seed: Chooses the details.
    """

    implementations: int = 1000
    fields: int = 40
    share: float = 0.005
    seed: int = 0

    @property
    def group(self) -> int:
        """Members of a group: of g, the pairs that are no neighbours need the solver."""
        wanted = self.share * self.implementations
        return next(g for g in itertools.count(1) if (g - 1) * (g - 2) / g >= wanted)


def generated_op(size: Size) -> Any:
    """The op class of a generated interface; its one interface is called ``face``.

    Raises:
        ValueError: fewer fields than the rules read.
    """
    return generated_module(size).GeneratedOp


def generated_module(size: Size) -> Any:
    """A generated interface as a module of its own.

    Raises:
        ValueError: fewer fields than the rules read.
    """
    module = types.ModuleType(f"generated_{size.implementations}_{size.fields}_{size.seed}")
    exec(compile(source(size), f"<{module.__name__}>", "exec", dont_inherit=True), vars(module))
    return module


def source(size: Size) -> str:
    """The module's text.

    Raises:
        ValueError: fewer fields than the rules read.
    """
    if size.fields < FEWEST_FIELDS:
        raise ValueError(f"{size.fields} fields are fewer than the {FEWEST_FIELDS} that the rules read")
    draw = random.Random(size.seed)
    written: dict[str, str] = {}
    for number, cell in enumerate(_cells(size)):
        group = _group(number, cell, size, draw)
        if len(written) + len(group) >= size.implementations:
            group = dict(itertools.islice(group.items(), size.implementations - 1 - len(written)))
        written |= group
        if len(written) == size.implementations - 1:
            break
    written["general"] = _general()
    head = _HEAD.format(size=size, dtypes=_DTYPES, fields="\n".join(f"    {line}" for line in _fields(size.fields)))
    table = "\n".join(f'        "{key}": {_name(key)},' for key in written)
    table = f'    interfaces = {{"face": GeneratedInterface}}\n    kernel_types = {{\n{table}\n    }}\n'
    return f"{head}{''.join(written.values())}\n\nclass GeneratedOp:\n{table}"


def _fields(count: int) -> list[str]:
    more = (f"option_{i}: bool = False" if i % 2 else f"extra_{i}: int = 0" for i in itertools.count())
    return list(itertools.islice(itertools.chain(_NEEDED, _FURTHER, more), count))


@dataclass(frozen=True)
class _Cell:
    """What all members of a group ask for."""

    dtype: str
    layout: str
    mask: str
    quant: str
    low: int
    high: int

    @property
    def clauses(self) -> list[str]:
        return [
            f'if call.dtype != "{self.dtype}":\n    return f"dtype {{call.dtype}} is not {self.dtype}"',
            f'if call.layout != "{self.layout}" or call.quant != "{self.quant}":\n'
            f'    return f"layout {{call.layout}} with quant {{call.quant}}"',
            f'if call.mask is not Mask.{self.mask}:\n    return f"mask {{call.mask}} is not {self.mask}"',
            f"if not {self.low} <= call.seqlen_kv < {self.high}:\n"
            f'    return f"seqlen_kv {{call.seqlen_kv}} is outside {self.low} to {self.high - 1}"',
        ]


def _cells(size: Size) -> Iterator[_Cell]:
    """Different cells without end: bands of lengths, and all enums for each band."""
    kinds = len(_DTYPES) * len(_LAYOUTS) * len(_MASKS) * len(_QUANTS)
    bands = max(6, -(-size.implementations // (size.group * kinds)) + 1)
    step = max(_FIRST_BAND, _WIDEST_BAND // bands // 8 * 8)
    ends = [0, *(_FIRST_BAND + step * i for i in itertools.islice(itertools.count(), bands))]
    order = random.Random(size.seed + 1)
    cells = [
        _Cell(*kind, low, high)
        for low, high in itertools.pairwise(ends)
        for kind in itertools.product(_DTYPES, _LAYOUTS, _MASKS, _QUANTS)
    ]
    order.shuffle(cells)
    return iter(cells)


def _aligned(j: int) -> list[str]:
    width = 8 << j
    return [
        f'if call.cols % {width}:\n    return f"cols {{call.cols}} is not a multiple of {width}"',
        f"if call.cols % {2 * width} == 0:\n"
        f'    return f"cols {{call.cols}} is a multiple of {2 * width}, which wider loads serve"',
    ]


def _ratio(j: int) -> list[str]:
    return [
        f'if call.cols < {4**j} * call.rows:\n    return f"{{call.cols}} columns are few for {{call.rows}} rows"',
        f"if call.cols >= {4 ** (j + 1)} * call.rows:\n"
        f'    return f"{{call.cols}} columns are many for {{call.rows}} rows"',
    ]


def _volume(j: int) -> list[str]:
    return [
        f"if call.batch * call.heads < {4**j} * call.groups:\n"
        f'    return f"{{call.batch * call.heads}} heads leave {{call.groups}} groups idle"',
        f"if call.batch * call.heads >= {4 ** (j + 1)} * call.groups:\n"
        f'    return f"{{call.batch}} sequences of {{call.heads}} heads are too many"',
    ]


_KINDS: Final = (_aligned, _ratio, _volume)


def _further_clauses(fields: Collection[str], draw: random.Random) -> list[str]:
    """None to two clauses about other fields, which overlap in every way."""
    limit, head, page = draw.choice((16384, 32768, 49152, 98304)), draw.choice((8, 16, 32)), draw.choice((8, 16, 64))
    every = {
        "dim dim_v": f"if call.dim * call.dim_v * BYTES[call.dtype] > {limit}:\n"
        f'    return f"a tile of {{call.dim}} by {{call.dim_v}} exceeds {limit} bytes"',
        "dim": f'if call.dim % {head} != 0:\n    return f"dim {{call.dim}} is not a multiple of {head}"',
        "is_training": 'if call.is_training:\n    return "keeps nothing for the backward pass"',
        "fuse_rope rope": 'if call.fuse_rope and call.rope != "neox":\n    return f"rotates no {call.rope} heads"',
        "activation": 'if call.activation in ("gelu", "tanh"):\n    return f"has no {call.activation}"',
        "return_lse acc_dtype": 'if call.return_lse and call.acc_dtype != "float32":\n'
        '    return f"sums in {call.acc_dtype}"',
        "norm has_residual": 'if call.has_residual and call.norm == "none":\n    return "adds nothing without a norm"',
        "has_bias": 'if call.has_bias:\n    return "adds no bias"',
        "is_paged page_size": f"if call.is_paged and call.page_size % {page} != 0:\n"
        f'    return f"pages of {{call.page_size}} are not multiples of {page}"',
        "is_varlen seqlen_q": 'if call.is_varlen and call.seqlen_q > call.seqlen_kv:\n    return "queries lack keys"',
        "deterministic splits": 'if call.deterministic and call.splits > 1:\n    return f"adds {call.splits} parts"',
        "window_left window_right": "if call.window_left >= 0 and call.window_right > call.window_left:\n"
        '    return f"window of {call.window_left} and {call.window_right}"',
        "tile": 'if call.tile[0] * call.tile[1] > 8192:\n    return f"tile {call.tile[0]} by {call.tile[1]} is large"',
        "shape": 'if len(call.shape) > 4:\n    return f"takes no rank {len(call.shape)}"',
        "softcap": 'if call.softcap != 0.0:\n    return f"softcap {call.softcap} is not 0"',
        "scale": "if call.scale is not None and not 0.0 < call.scale <= 1.0:\n"
        '    return f"scale {call.scale} is not between 0 and 1"',
        "momentum": "if not 0.0 <= call.momentum <= 1.0:\n"
        '    return f"momentum {call.momentum} is not between 0 and 1"',
    }
    return draw.sample([text for read, text in every.items() if set(read.split()) <= set(fields)], draw.randint(0, 2))


def _group(number: int, cell: _Cell, size: Size, draw: random.Random) -> dict[str, str]:
    fields = [line.partition(":")[0] for line in _fields(size.fields)]
    kind = _KINDS[number % len(_KINDS)]
    archs = draw.choice(_ARCHS)
    made: dict[str, str] = {}
    for j in range(size.group):
        own = kind(j)
        clauses = [*cell.clauses, *own, *_further_clauses(fields, draw)]
        made[f"g{number}_m{j}"] = _implementation(f"g{number}_m{j}", clauses, archs)
    if number % 10 == 0:
        key = f"g{number}_single_head"
        one = 'if call.heads_kv != 1:\n    return f"serves one key head, not {call.heads_kv}"'
        made[key] = _implementation(key, [*cell.clauses, one], archs, tuple(made))
    return made


def _implementation(key: str, clauses: list[str], archs: str, over: tuple[str, ...] = ()) -> str:
    lines = [line for clause in clauses for line in clause.split("\n")]
    body = "\n".join(f"        {line}" for line in lines)
    members = f"    supported_archs = {archs}\n" if archs != "None" else ""
    if over:
        members += f"    preferred_over = frozenset({{{', '.join(repr(key) for key in over)}}})\n"
    return (
        f"\n\nclass {_name(key)}(GeneratedInterface):\n{members}{chr(10) if members else ''}"
        f"    @classmethod\n    def refusal(cls, call):\n{body}\n        return super().refusal(call)\n"
    )


def _general() -> str:
    return (
        f"\n\nclass {_name('general')}(GeneratedInterface):\n"
        f'    general = True\n    devices = frozenset({{"cuda", "cpu"}})\n'
    )


def _name(key: str) -> str:
    return "".join(part.capitalize() for part in key.split("_"))


def main() -> None:
    """Write the text to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--implementations", type=int, default=Size.implementations)
    parser.add_argument("--fields", type=int, default=Size.fields)
    parser.add_argument("--share", type=float, default=Size.share)
    parser.add_argument("--seed", type=int, default=Size.seed)
    chosen = parser.parse_args()
    sys.stdout.write(source(Size(chosen.implementations, chosen.fields, chosen.share, chosen.seed)))


if __name__ == "__main__":
    main()
