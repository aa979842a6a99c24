"""The call that is shown: the smallest one, always the same, and one that can be built."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import OneOf, Predicate, Range, fields
from tileops_rules import expr as ex
from tileops_rules.domain import Domain
from tileops_rules.expr import Expr
from tileops_solver import Answer, InconsistencyError, Verdict, find_call
from tileops_solver.engine import Outcome
from tileops_solver.witness import MOST_REJECTED, smallest_call

from tests.speed import cpu_seconds, holds_within

a, b, c = (ex.integer((name,)) for name in "abc")
sums = st.sampled_from(
    [
        a,
        b,
        c,
        ex.add(a, b),
        ex.subtract(ex.scale(a, 2), c),
        ex.multiply(a, b),
        ex.multiply(c, c),
        ex.mod(c, ex.constant(4)),
        ex.absolute(ex.subtract(a, c)),
    ]
)
atoms = st.one_of(
    st.builds(ex.at_most, sums, st.integers(-9, 12)),
    st.builds(ex.equals, sums, st.integers(-6, 9)),
    st.builds(lambda v: ex.among(("kind",), v), st.lists(st.sampled_from("xyz"), min_size=1)),
    st.builds(
        lambda op, v: ex.float_is(("ratio",), op, v),
        st.sampled_from(["<", "==", ">", "nan"]),
        st.sampled_from([0.0, 0.5, 2.0]),
    ),
    st.sampled_from(["plain", "fancy"]).map(lambda v: ex.str_is(("name",), v)),
).flatmap(lambda atom: st.sampled_from([atom, ex.negation(atom)]))
questions = st.lists(
    st.one_of(atoms, st.lists(atoms, min_size=2, max_size=3).map(ex.disjunction)), min_size=1, max_size=5
).map(ex.conjunction)


@settings(max_examples=150)
@given(question=questions)
def test_the_witness_is_the_smallest_of_all_solutions(
    question: Expr, small: Domain, exhaustive: Callable[..., Any]
) -> None:
    found = exhaustive(question, small)
    witness = smallest_call(question, small, lambda call: None)
    if found.smallest is None:
        assert witness.outcome is Outcome.IMPOSSIBLE
        return
    assert witness.outcome is Outcome.POSSIBLE
    expected = small.build({path: found.codes[path].value(code) for path, code in found.smallest.items()})
    assert repr(witness.call) == repr(expected)  # NaN is not equal to itself


@dataclass(frozen=True)
class Sizes:
    n: int = 7
    m: int = 0
    k: int = 0
    signed: int = -3
    away: Annotated[int, Range(10, 20)] = 12


F = fields(Sizes)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (F.n >= 5, Sizes()),
        (F.n <= 5, Sizes(n=0)),
        (F.n >= 1024, Sizes(n=1024)),
        ((F.n >= 1001) & (F.n % 16 == 0), Sizes(n=1008)),
        ((F.n > 8) & (F.n * F.m >= 1000) & (F.n * F.m <= 1010), Sizes(n=9, m=112)),
        (F.n * F.m * F.k == 1001, Sizes(n=7, m=1, k=143)),
        ((F.n > F.m) & (F.m > F.k) & (F.k > 0), Sizes(n=7, m=2, k=1)),
        (F.signed != -3, Sizes(signed=0)),
        (F.signed < -1, Sizes()),
        ((F.signed < 0) & (F.signed != -3), Sizes(signed=-1)),
        (F.away != 12, Sizes(away=10)),
        (F.n.bit_length() == 20, Sizes(n=2**19)),
        ((F.n > 3) & (F.n * F.n == F.m * F.m + 9) & (F.m > 0), Sizes(n=5, m=4)),
    ],
    ids=str,
)
def test_fields_stand_at_their_default_or_as_near_to_zero_as_can_be(predicate: Predicate, expected: Sizes) -> None:
    assert find_call(predicate) == Answer(Verdict.FOUND, expected)


def test_a_witness_over_many_fields_comes_in_a_fraction_of_a_second() -> None:
    predicate = (F.n % 128 == 0) & (F.m % 64 == 0) & (F.n * F.m > 10**6) & (F.k * 3 > F.n) & (F.n > 100) & (F.m > 100)
    assert find_call(predicate).call == Sizes(n=128, m=7872, k=43)
    holds_within(1.0, lambda: cpu_seconds(lambda: find_call(predicate)))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Tile:
    rows: int = 1
    kind: Literal["wide", "tall"] = "wide"


@dataclass(frozen=True)
class Rich:
    scale: float = 0.25
    text: str = "abc"
    flag: bool = False
    colour: Colour = Colour.RED
    limit: Optional[int] = None
    either: Union[int, str] = 0
    shape: tuple[int, ...] = ()
    pair: tuple[int, bool] = (3, False)
    tile: Tile = field(default_factory=Tile)
    bounded: Annotated[float, Range(0.5, 2.0)] = 1.0
    level: Annotated[int, OneOf(4, 8, 16)] = 8
    arch: Optional[int] = None
    sm_count: Optional[int] = None


R = fields(Rich)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (R.scale > 0.25, {"scale": 1.25}),
        (R.scale < 0.25, {"scale": 0.0}),
        ((R.scale > 0.25) & (R.scale < 0.75), {"scale": 0.5}),
        (R.scale > 1.7e308, {"scale": 1.7000000000000001e308}),
        (R.scale == math.inf, {"scale": math.inf}),
        ((R.scale != 0.25) & ~(R.scale < 0.25) & ~(R.scale > 0.25), {"scale": math.nan}),
        (R.bounded != 1.0, {"bounded": 0.5}),
        (R.text != "abc", {"text": ""}),
        ((R.text != "abc") & (R.text != ""), {"text": "other1"}),
        (R.text == "z", {"text": "z"}),
        (R.flag == True, {"flag": True}),  # noqa: E712 - a predicate
        (R.colour != Colour.RED, {"colour": Colour.BLUE}),
        (R.limit != None, {"limit": 0}),  # noqa: E711 - a predicate
        (R.limit >= 12, {"limit": 12}),
        (R.either == "x", {"either": "x"}),
        (R.shape.length == 3, {"shape": (0, 0, 0)}),
        ((R.shape.length == 2) & (R.shape[0] * R.shape[1] >= 35) & (R.shape[0] >= 2), {"shape": (2, 18)}),
        (R.shape[1] >= 5, {"shape": (0, 5)}),
        (~(R.shape[1] >= 5), {"shape": (0, 0)}),
        ((R.shape[0] == 7) | (R.text == "z"), {"shape": (7,)}),
        ((R.pair[0] != 3) & (R.pair[1] == True), {"pair": (0, True)}),  # noqa: E712 - a predicate
        ((R.tile.rows > 64) & (R.tile.kind == "tall"), {"tile": Tile(65, "tall")}),
        (R.level > 8, {"level": 16}),
        (R.level < 8, {"level": 4}),
        (R.arch >= 90, {"arch": 90}),
        ((R.arch == 80) & (R.sm_count >= 100), {"arch": 80, "sm_count": 108}),
        ((R.arch == 80) & (R.sm_count > 108), {"arch": 80, "sm_count": 109}),
    ],
    ids=str,
)
def test_every_kind_of_field_is_realised(predicate: Predicate, expected: dict[str, Any]) -> None:
    answer = find_call(predicate)
    assert repr(answer.call) == repr(Rich(**expected))


@pytest.mark.parametrize(
    "predicate",
    [
        (R.bounded > 2.0) | (R.bounded < 0.5) | R.bounded.is_nan(),
        (R.level > 8) & (R.level < 16),
        (R.limit >= 12) & (R.limit == None),  # noqa: E711 - a predicate
        (R.scale > math.inf) | (R.scale < -math.inf),
        (R.scale > 1.0) & (R.scale < math.nextafter(1.0, 2.0)),
        R.shape.length > 8,
        (R.shape[3] >= 0) & (R.shape.length == 3),
    ],
    ids=str,
)
def test_what_no_value_of_a_field_satisfies_is_refuted(predicate: Predicate) -> None:
    assert find_call(predicate).verdict is Verdict.NONE


def test_dtypes_and_devices_are_real_ones() -> None:
    torch = pytest.importorskip("torch")

    @dataclass(frozen=True)
    class Call:
        dtype: torch.dtype = torch.float16
        device: Optional[torch.device] = None
        arch: Optional[int] = None
        smem_budget: Optional[int] = None

    g = fields(Call)
    answer = find_call(g.dtype.isin([torch.bfloat16, torch.float32]) & (g.smem_budget > 1000))
    assert answer.call == Call(torch.bfloat16, torch.device("cuda"), 80, 163 * 1024)
    assert find_call(g.device.type.isin(["cpu"]) & (g.arch == None)).call == Call(  # noqa: E711 - a predicate
        torch.float16, torch.device("cpu")
    )
    assert find_call(g.device.type.isin(["cpu"]) & (g.arch == 90)).verdict is Verdict.NONE


@dataclass(frozen=True)
class Picky:
    """Its constructor cannot be lifted, and takes few calls."""

    first: int = 0
    n: int = 0
    m: int = 0

    def __post_init__(self) -> None:
        if len(range(self.n)) % 5 != 4:
            raise ValueError(f"n is {self.n}")


def test_a_call_that_the_spec_rejects_is_passed_over() -> None:
    g = fields(Picky)
    answer = find_call(g.m == 3)
    assert answer.verdict is Verdict.FOUND
    assert answer.call.m == 3
    assert answer.call.n % 5 == 4
    assert answer.call.first == 0


@dataclass(frozen=True)
class Impossible:
    n: int = 0
    m: int = 0

    def __post_init__(self) -> None:
        if len(range(self.n)) >= 0:
            raise ValueError("not today")


def test_a_spec_that_rejects_everything_leaves_the_question_undecided() -> None:
    answer = find_call(fields(Impossible).m == 3)
    assert answer.verdict is Verdict.UNDECIDED
    assert f"{MOST_REJECTED} calls" in answer.reason
    assert "not today" in answer.reason


@dataclass(frozen=True)
class Rounding:
    """Its constructor changes what it is given."""

    n: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", len(range(self.n)) // 8 * 8)


def test_a_spec_that_changes_its_values_is_not_taken_at_its_word() -> None:
    answer = find_call(fields(Rounding).n > 3)
    assert answer == Answer(Verdict.FOUND, Rounding(8))


def test_a_predicate_that_denies_its_own_witness_is_our_inconsistency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Predicate, "__call__", lambda self, call: False)
    with pytest.raises(InconsistencyError, match="does not satisfy its predicate") as caught:
        find_call(F.n >= 1024)
    assert caught.value.call == Sizes(n=1024)
