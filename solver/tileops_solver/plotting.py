"""Coverage as a picture: which implementation is chosen over two fields, with exact edges.

matplotlib is imported here alone, when something is drawn; it comes with ``pip install tileops-proved[notebooks]``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from tileops_rules.printing import value_text

from tileops_solver.coverage_map import INVALID, MIXED, NOBODY, RAISES, UNSERVED, Axis, Cell, CoverageMap

__all__ = ["draw", "drawn"]

_COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#994455", "#004488")
"""Paul Tol's bright scheme, which people who see fewer colours can tell apart, and two more."""

_OTHERS: Final = {
    NOBODY: ("#ffffff", "xx"),
    UNSERVED: ("#dddddd", ""),
    RAISES: ("#f4c7c3", "//"),
    INVALID: ("#ffffff", "//"),
    MIXED: ("#888888", "||"),
}
"""Fill and hatching of what is no implementation."""

_MOST_TICKS: Final = 12


def drawn(coverage: CoverageMap) -> Any:
    """A new matplotlib figure of *coverage*.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure = _matplotlib("figure").Figure(figsize=(9, 5.5), layout="constrained")
    draw(coverage, figure.subplots())
    return figure


def draw(coverage: CoverageMap, axes: Any) -> None:
    """Draw *coverage* into matplotlib axes; the title says which fields are fixed, and to what.

    Raises:
        ImportError: matplotlib is not installed.
    """
    patches = _matplotlib("patches")
    looks = _looks(coverage)
    for cell in coverage.cells:
        axes.add_patch(_rectangle(patches, coverage, cell, looks[cell.choice]))
    for axis, side in ((coverage.x, axes.xaxis), (coverage.y, axes.yaxis)):
        _scale(axes, axis, side, coverage.borders(axis))
    handles = [
        patches.Patch(facecolor=fill, hatch=hatch or None, edgecolor="#666666", label=choice)
        for choice, (fill, hatch) in looks.items()
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize="small")
    axes.set_title(_title(coverage), fontsize="medium", loc="left")


def _matplotlib(part: str) -> Any:
    try:
        return import_module(f"matplotlib.{part}")
    except ImportError as error:
        raise ImportError(
            f"a picture needs matplotlib ({error}): pip install 'tileops-proved[notebooks]'; "
            f"`tileops regions` says the same in words"
        ) from error


def _looks(coverage: CoverageMap) -> dict[str, tuple[str, str]]:
    """Fill and hatching of each choice; an implementation has its colour in every picture of its interface."""
    looks = {}
    for choice in coverage.choices:
        if choice in _OTHERS:
            looks[choice] = _OTHERS[choice]
        else:
            first, *tied = choice.split(" or ")
            number = coverage.selector.keys.index(first)
            looks[choice] = (_COLOURS[number % len(_COLOURS)], "//" if tied else "" if number < len(_COLOURS) else "..")
    return looks


def _rectangle(patches: Any, coverage: CoverageMap, cell: Cell, look: tuple[str, str]) -> Any:
    left, right = coverage.x.edge(cell.x[0]), coverage.x.edge(cell.x[1] + 1)
    bottom, top = coverage.y.edge(cell.y[0]), coverage.y.edge(cell.y[1] + 1)
    fill, hatch = look
    return patches.Rectangle(
        (left, bottom),
        right - left,
        top - bottom,
        facecolor=fill,
        hatch=hatch or None,
        edgecolor="#bbbbbb" if hatch else fill,
        linewidth=0.0 if hatch else 0.4,
    )


def _scale(axes: Any, axis: Axis, side: Any, borders: Sequence[int]) -> None:
    limits = (axis.edge(axis.lo), axis.edge(axis.hi + 1))
    (axes.set_xlim if side is axes.xaxis else axes.set_ylim)(*limits)
    ticks = _ticks(axis, borders)
    if axis.values:
        side.set_ticks(range(len(axis.values)), [value_text(v).removeprefix("torch.") for v in axis.values])
    else:
        middles = [(axis.edge(v) + axis.edge(v + 1)) / 2 for v in ticks]
        side.set_ticks(middles, [str(v) for v in ticks])
    if side is axes.xaxis:
        side.set_tick_params(rotation=45)
    side.set_label_text(f"{axis.field} (logarithmic)" if axis.log else axis.field)


def _ticks(axis: Axis, borders: Sequence[int]) -> list[int]:
    """The borders that can be read beside each other and the ends; round numbers where borders are many."""
    wanted = borders
    if len(borders) > _MOST_TICKS:
        powers = [2**i for i in range(axis.hi.bit_length()) if axis.lo <= 2**i <= axis.hi]
        step = (axis.hi - axis.lo) // (_MOST_TICKS - 2)
        wanted = powers if axis.log else range(axis.lo, axis.hi + 1, step)
    kept: list[int] = []
    for value in (*wanted, axis.lo, axis.hi):
        if all(abs(_between(axis, value, other)) > 1 / 25 for other in kept):
            kept.append(value)
    return sorted(kept)


def _between(axis: Axis, one: int, other: int) -> float:
    """The share of the axis from one value to another."""
    return (axis.edge(one) - axis.edge(other)) / axis.length


def _title(coverage: CoverageMap) -> str:
    selector = coverage.selector
    name = f"{selector.op}.{selector.interface}" if selector.op else selector.spec.__name__
    fixed = [f"{field}={_value(value)}" for field, value in coverage.fixed.items()]
    fixed += [f"{field} as usual for the arch" for field in coverage.usual]
    return "\n".join([name, *textwrap.wrap(f"fixed: {', '.join(fixed) or 'nothing that a rule reads'}", 84)])


def _value(value: object) -> str:
    return value_text(value).removeprefix("torch.")
