"""Random call specs and random rule bodies: the raw material of the lifting laws."""

from __future__ import annotations

import enum
import linecache
import math
import random
from dataclasses import field, make_dataclass
from typing import Annotated, Any, Literal, Optional

from tileops_rules import OneOf, Range


class Mode(enum.Enum):
    """An enum field's values."""

    FAST = 1
    SAFE = 2


FIELDS: dict[str, tuple[Any, Any, list[Any]]] = {
    # name: (annotation, default, values to try)
    "n": (int, 1, [0, 1, 2, 7, 8, 9, 63, 64, 65, 100, 4096, 2**40, 2**41, -3, True]),
    "m": (Annotated[int, Range(1, 64)], 4, [1, 2, 4, 5, 8, 63, 64]),
    "k": (Annotated[int, Range(-20, 20)], 0, [-20, -7, -1, 0, 1, 3, 8, 20]),
    "flag": (bool, False, [False, True]),
    "mode": (Mode, Mode.SAFE, list(Mode)),
    "layout": (Literal["nhd", "hnd", 3], "nhd", ["nhd", "hnd", 3]),
    "kind": (Annotated[str, OneOf("f16", "bf16", "f32")], "f16", ["f16", "bf16", "f32"]),
    "name": (str, "plain", ["plain", "", "x", "y", "zzz"]),
    "eps": (float, 1e-5, [0.0, -0.0, 1e-5, 0.5, 1.0, -2.0, math.inf, -math.inf, math.nan, 1, 0]),
    "window": (Optional[int], None, [None, 0, 1, 8, 64, 128, 4096]),
    "scale": (Optional[float], None, [None, 0.0, 0.25, 1.0, math.nan]),
    "shape": (tuple[int, ...], (), [(), (1,), (2, 3), (8, 16, 4), (1, 2, 3, 4), (64, 64, 1, 1, 1)]),
    "pair": (tuple[int, int], (1, 2), [(0, 0), (1, 2), (8, 8), (3, 100)]),
}

TABLE = {1: "one", 4: "four", 8: "eight"}
NAMES = frozenset({"x", "y"})
LAUNCHES = ((32, 1), (64, 2), (128, 4), (256, 8))


COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")

QUESTIONS = {
    "flag": ("call.flag", "not call.flag", "call.flag is True"),
    "mode": ("call.mode is Mode.FAST", "call.mode in (Mode.SAFE,)", "call.mode.value > 1"),
    "layout": ("call.layout == 'nhd'", "call.layout in ('hnd', 3)", "call.layout == 3"),
    "kind": ("call.kind == 'f16'", "call.kind in {'f16', 'bf16'}", "call.kind.startswith('b')"),
    "name": ("call.name == 'x'", "call.name in NAMES", "call.name != ''", "bool(call.name)"),
    "eps": tuple(f"call.eps {c} {v}" for c in COMPARISONS for v in ("0", "1e-5", "0.5", "1")),
    "window": ("call.window is None", "call.window is not None and call.window < 64"),
    "scale": ("call.scale is None", "bool(call.scale)", "call.scale and call.scale <= 0.25"),
    "shape": ("call.shape == (2, 3)", "bool(call.shape) and call.shape[-1] % 2 == 0", "8 in call.shape"),
    "pair": ("call.pair == (1, 2)", "call.pair[0] < call.pair[1]", "(8, 8) == call.pair"),
    "n": ("call.n in TABLE and TABLE[call.n] != 'four'", "0 <= call.n < 4 and 'abcd'[call.n] == 'c'"),
}


class Program:
    """Writes one random rule over some of the fields."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names = self.draw.sample(sorted(FIELDS), self.draw.randint(1, 5))
        self.source = self.body()
        self.calls = [{name: self.draw.choice(FIELDS[name][2]) for name in self.names} for _ in range(12)]

    def number(self, depth: int = 2) -> str:
        """An expression with an integer value."""
        draw = self.draw
        if depth == 0 or draw.random() < 0.35:
            leaves = [str(draw.randint(-3, 70))]
            leaves += [f"call.{name}" for name in self.names if name in ("n", "m", "k")] * 3
            leaves += ["call.pair[0]", "call.pair[1]"] if "pair" in self.names else []
            leaves += ["len(call.shape)", "sum(call.shape[1:])"] if "shape" in self.names else []
            return draw.choice(leaves)
        inner = self.number(depth - 1)
        constant = draw.choice([1, 2, 3, 7, 8, 16, 64, -2, -5])
        return draw.choice(
            [
                lambda: f"({inner} {draw.choice('+-*')} {self.number(depth - 1)})",
                lambda: f"({inner} {draw.choice(['//', '%'])} {constant})",
                lambda: f"({inner} {draw.choice(['//', '%'])} {self.number(depth - 1)})",
                lambda: f"-(-{inner} // {abs(constant)})",
                lambda: f"({inner} & {draw.choice([1, 3, 7, 15])})",
                lambda: f"({inner} >> {draw.randint(0, 4)})",
                lambda: f"abs({inner})",
                lambda: f"({inner}).bit_length()",
                lambda: f"{draw.choice(['min', 'max'])}({inner}, {self.number(depth - 1)})",
            ]
        )()

    def question(self, depth: int = 2) -> str:
        """An expression with a truth value."""
        draw = self.draw
        if depth and draw.random() < 0.35:
            left, right = self.question(depth - 1), self.question(depth - 1)
            return draw.choice([f"({left} and {right})", f"({left} or {right})", f"(not {left})"])
        own = [q for name in self.names for q in QUESTIONS.get(name, ())]
        if own and draw.random() < 0.5:
            return f"({draw.choice(own)})"
        number, comparison = self.number(), draw.choice(COMPARISONS)
        return draw.choice(
            [
                f"({number} {comparison} {self.number()})",
                f"({number} {draw.choice(['in', 'not in'])} {{1, 8, 64}})",
                f"({self.number()} <= {number} {comparison} {self.number()})",
                f"({number} / {draw.randint(1, 9)} {comparison} {draw.choice(['0.3', '2', '1.5'])})",
                f"any({number} <= t for t, _ in LAUNCHES)",
                f"bool({number})",
            ]
        )

    def body(self) -> str:
        """The source of ``def refusal(call)``."""
        draw = self.draw
        lines: list[str] = []
        for i in range(draw.randint(1, 5)):
            kind = draw.choice(["if", "if", "if", "local", "loop", "raise", "nested"])
            reason = draw.choice([f"'r{i}'", f"f'r{i} {{{self.number()}}}'", f"f'{{call.{self.names[0]}!r:>4}}'"])
            if kind == "if":
                lines.append(f"    if {self.question()}: return {reason}")
            elif kind == "local":
                lines.append(f"    v{i} = {self.number()}")
                lines.append(f"    if v{i} > {self.number()}: return f'v {{v{i}}}'")
            elif kind == "loop":
                lines.append("    for threads, per in LAUNCHES:")
                lines.append(f"        if {self.number()} <= threads * per:")
                lines.append(f"            if per > 2: return {reason}")
                lines.append("            break")
            elif kind == "raise":
                lines.append(f"    if {self.question()}: raise ValueError({reason})")
            else:
                lines.append(f"    if {self.question()}:")
                lines.append(f"        if {self.question()}: return {reason}")
                lines.append("        return None")
        lines.append(f"    return {draw.choice(['None', 'chr(65)', repr('last')])}")
        return "def refusal(call):\n" + "\n".join(lines) + "\n"


def spec_of(names: list[str]) -> type:
    """A frozen dataclass with these fields."""
    return make_dataclass(
        "Call", [(name, FIELDS[name][0], field(default=FIELDS[name][1])) for name in names], frozen=True
    )


def function_of(source: str) -> Any:
    """The function that *source* defines, with lines for tracebacks."""
    names: dict[str, Any] = {
        "__name__": __name__,
        "Mode": Mode,
        "TABLE": TABLE,
        "NAMES": NAMES,
        "LAUNCHES": LAUNCHES,
    }
    file = f"<rule {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["refusal"]
