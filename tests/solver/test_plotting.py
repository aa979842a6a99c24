"""What a picture of coverage shows, read back from the figure: rectangles, ticks, labels, legend and title."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_solver import plotting
from tileops_solver.coverage_map import INVALID, MIXED, NOBODY, UNSERVED, Axis, CoverageMap


@pytest.fixture
def matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the notebooks extra")


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 4000)] = 1
    m: Annotated[int, Range(0, 40)] = 1
    mode: Literal["x", "y"] = "x"
    scale: float = 1.0

    def invalid(self) -> str | None:
        return "n is 3" if self.n == 3 else None


def small(call: Call) -> str | None:
    return None if call.n <= 17 and call.mode == "x" and call.scale <= 2.0 else "no"


def wide(call: Call) -> str | None:
    return None if call.n <= 17 and call.m >= 10 else "no"


def coverage(x: str = "n", y: str = "m", **more: Any) -> CoverageMap:
    made = Selector(
        Call,
        [Candidate("small", small), Candidate("wide", wide)],
        op="PlotOp",
        interface="face",
        unserved=lambda c: "n is large" if c.n >= 25 else None,
    )
    return CoverageMap(made, x, y, Call(), **{"x_range": (0, 29), "y_range": (0, 19), **more})


def colour(value: Any) -> str:
    return str(importlib.import_module("matplotlib.colors").to_hex(value))


BLUE, RED, GREY = "#4477aa", "#ee6677", "#bbbbbb"


def test_each_rectangle_stands_where_its_calls_are_and_looks_like_its_choice(matplotlib: None) -> None:
    shown = coverage()
    (axes,) = plotting.drawn(shown).axes
    looks = {
        "small": (BLUE, None, BLUE, 0.4),
        "small or wide": (BLUE, "//", GREY, 0.0),
        NOBODY: ("#ffffff", "xx", GREY, 0.0),
        UNSERVED: ("#dddddd", None, "#dddddd", 0.4),
        INVALID: ("#ffffff", "//", GREY, 0.0),
    }
    expected = [
        (c.x[0] - 0.5, c.y[0] - 0.5, c.x[1] - c.x[0] + 1, c.y[1] - c.y[0] + 1, *looks[c.choice]) for c in shown.cells
    ]
    found = [
        (
            *patch.get_xy(),
            patch.get_width(),
            patch.get_height(),
            colour(patch.get_facecolor()),
            patch.get_hatch(),
            colour(patch.get_edgecolor()),
            patch.get_linewidth(),
        )
        for patch in axes.patches
    ]
    assert found == expected
    assert {cell.choice for cell in shown.cells} == set(looks)
    assert sum(width * height for _, _, width, height, *_ in found) == 30 * 20


def test_axes_begin_and_end_with_the_picture_and_have_their_ticks_at_the_borders(matplotlib: None) -> None:
    figure = plotting.drawn(coverage())
    (axes,) = figure.axes
    assert tuple(figure.get_size_inches()) == (9, 5.5)
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 29.5), (-0.5, 19.5))
    assert list(axes.get_xticks()) == [0, 3, 18, 25, 29], "3 is no valid call, from 18 nobody serves"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3", "18", "25", "29"]
    assert list(axes.get_yticks()) == [0, 10, 19]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "10", "19"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("n", "m")
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {45}
    assert {label.get_rotation() for label in axes.get_yticklabels()} == {0}


def test_a_long_axis_is_logarithmic_and_says_so(matplotlib: None) -> None:
    shown = coverage("m", "n", x_range=(0, 9), y_range=(0, 4000))
    (axes,) = plotting.drawn(shown).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("m", "n (logarithmic)")
    assert axes.get_ylim() == pytest.approx((-math.log2(1.5), math.log2(4001.5)))
    ticks = dict(zip((t.get_text() for t in axes.get_yticklabels()), axes.get_yticks(), strict=True))
    assert set(ticks) == {"0", "3", "18", "4000"}, "4 and 25 stand too near to 3 and 18"
    for text, at in ticks.items():
        below, above = (shown.y.edge(int(text) + step) for step in (0, 1))
        assert at == pytest.approx((below + above) / 2)
    for patch, cell in zip(axes.patches, shown.cells, strict=True):
        assert patch.get_y() == pytest.approx(shown.y.edge(cell.y[0]))
        assert patch.get_y() + patch.get_height() == pytest.approx(shown.y.edge(cell.y[1] + 1))


def test_an_axis_of_few_values_has_a_tick_for_each(matplotlib: None) -> None:
    (axes,) = plotting.drawn(coverage("mode", "n", x_range=None, y_range=(0, 29))).axes
    assert list(axes.get_xticks()) == [0, 1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["'x'", "'y'"]
    assert axes.get_xlim() == (-0.5, 1.5)
    assert axes.get_xlabel() == "mode"


def test_the_legend_names_each_choice_beside_the_picture(matplotlib: None) -> None:
    (axes,) = plotting.drawn(coverage()).axes
    legend = axes.get_legend()
    named = {
        text.get_text(): (colour(patch.get_facecolor()), patch.get_hatch(), colour(patch.get_edgecolor()))
        for text, patch in zip(legend.get_texts(), legend.get_patches(), strict=True)
    }
    assert named == {
        "small": (BLUE, None, "#666666"),
        "small or wide": (BLUE, "//", "#666666"),
        NOBODY: ("#ffffff", "xx", "#666666"),
        UNSERVED: ("#dddddd", None, "#666666"),
        INVALID: ("#ffffff", "//", "#666666"),
    }
    assert list(named) == list(coverage().choices)
    anchor = axes.transAxes.inverted().transform_bbox(legend.get_bbox_to_anchor())
    assert (anchor.x0, anchor.y0) == pytest.approx((1.01, 1))
    assert legend.borderaxespad == 0


def test_the_title_says_what_is_drawn_and_what_is_fixed(matplotlib: None) -> None:
    (axes,) = plotting.drawn(coverage()).axes
    assert axes.get_title(loc="left") == "PlotOp.face\nfixed: mode='x', scale=1.0"
    assert axes.get_title(loc="center") == ""


def titled(fixed: dict[str, Any], usual: Sequence[str] = (), op: str | None = None) -> str:
    selector = SimpleNamespace(op=op, interface="face", spec=Call)
    shown: Any = SimpleNamespace(selector=selector, fixed=fixed, usual=usual)
    return plotting._title(shown)


def test_a_title_without_an_op_names_the_spec_and_breaks_before_it_is_too_long() -> None:
    class Half:
        def __repr__(self) -> str:
            return "torch.float16"

    assert titled({}) == "Call\nfixed: nothing that a rule reads"
    assert titled({"m": 3}, ["smem_budget"], "Op") == "Op.face\nfixed: m=3, smem_budget as usual for the arch"
    assert titled({"dtype": Half()}) == "Call\nfixed: dtype=float16"
    lines = titled({f"field{i}": i for i in range(20)}).split("\n")
    assert len(lines) > 3
    assert max(map(len, lines)) <= 84 < len(lines[1]) + len(" field99=99,")


def looks(choices: Sequence[str], keys: Sequence[str]) -> dict[str, tuple[str, str]]:
    shown: Any = SimpleNamespace(choices=choices, selector=SimpleNamespace(keys=tuple(keys)))
    return plotting._looks(shown)


def test_every_choice_looks_different_and_an_implementation_like_itself_everywhere() -> None:
    keys = [f"k{i}" for i in range(10)]
    others = (NOBODY, UNSERVED, INVALID, MIXED)
    made = looks([*keys, "k1 or k0", "k9 or k2", *others], keys)
    assert [made[key] for key in keys] == [
        ("#4477aa", ""),
        ("#ee6677", ""),
        ("#228833", ""),
        ("#ccbb44", ""),
        ("#66ccee", ""),
        ("#aa3377", ""),
        ("#994455", ""),
        ("#004488", ""),
        ("#4477aa", ".."),
        ("#ee6677", ".."),
    ]
    assert [made["k1 or k0"], made["k9 or k2"]] == [("#ee6677", "//"), ("#ee6677", "//")]
    assert [made[other] for other in others] == [
        ("#ffffff", "xx"),
        ("#dddddd", ""),
        ("#ffffff", "//"),
        ("#888888", "||"),
    ]
    assert looks(["k3", NOBODY], keys) == {"k3": ("#ccbb44", ""), NOBODY: ("#ffffff", "xx")}


@pytest.mark.parametrize(
    ("ends", "log", "borders", "ticks"),
    [
        ((0, 99), False, [], [0, 99]),
        ((0, 99), False, [50, 20], [0, 20, 50, 99]),
        ((0, 99), False, [50, 54, 55, 59], [0, 50, 55, 99]),  # 4 of 100 are too near, 5 are not
        ((0, 99), False, [4, 96], [4, 96]),
        ((0, 99), False, [5, 94], [0, 5, 94, 99]),
        ((0, 98), False, [4, 94], [0, 4, 94, 98]),  # 4 of 99 are not too near
        ((7, 7), False, [], [7]),
        ((0, 119), False, list(range(0, 120, 10)), [*range(0, 120, 10), 119]),
        ((0, 119), False, list(range(0, 120, 9)), [0, 11, 22, 33, 44, 55, 66, 77, 88, 99, 110, 119]),
        ((5, 29), False, list(range(5, 30)), list(range(5, 30, 2))),
        ((5, 19), False, list(range(5, 20)), list(range(5, 20))),
        ((0, 4095), True, list(range(13)), [2**i for i in range(12)] + [0, 4095]),
        ((30, 1000), True, list(range(30, 50)), [32, 64, 128, 256, 512, 1000]),
        ((0, 4096), True, list(range(13)), [2**i for i in range(13)] + [0]),
        ((0, 4095), True, [1024, 1100, 2048], [0, 1024, 2048, 4095]),
    ],
)
def test_ticks_are_borders_that_can_be_read_beside_each_other_and_the_ends(
    ends: tuple[int, int], log: bool, borders: list[int], ticks: list[int]
) -> None:
    """With more than twelve borders, round numbers or powers of two stand there instead."""
    assert plotting._ticks(Axis("n", ("n",), (), *ends, log), borders) == sorted(ticks)


def test_a_share_between_two_values_has_a_sign() -> None:
    axis = Axis("n", ("n",), (), 0, 99)
    assert plotting._between(axis, 30, 10) == 0.2
    assert plotting._between(axis, 10, 30) == -0.2


def test_without_matplotlib_it_is_said_what_to_install_and_what_says_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(plotting, "import_module", gone)
    with pytest.raises(ImportError) as raised:
        plotting.drawn(coverage())
    assert str(raised.value) == (
        "a picture needs matplotlib (No module named 'matplotlib.figure'): pip install 'tileops-proved[notebooks]'; "
        "`tileops regions` says the same in words"
    )
