"""Boxes say of two claims that they have no call in common only where that is so, and where narrowing says it too."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Predicate, Range, fields
from tileops_rules.domain import domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import FALSE, TRUE, conjunction
from tileops_solver.boxes import Boxes
from tileops_solver.codes import codes_of
from tileops_solver.narrowing import narrow


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(-2, 6)] = 1
    m: Annotated[int, Range(0, 5)] = 1
    dtype: Literal["f16", "bf16", "f32"] = "f16"
    flag: bool = False
    window: Optional[Annotated[int, Range(0, 2)]] = None


c = fields(Call)
DOMAIN = domain_of(Call)
VALUES = [
    DOMAIN.read(Call(*values))
    for values in itertools.product(range(-2, 7), range(6), ("f16", "bf16", "f32"), (False, True), (None, 0, 1, 2))
]
"""Every call there is, as slot values."""


def random_claim(draw: random.Random, depth: int = 2) -> Predicate:
    kind = draw.randrange(10)
    if depth and kind < 5:
        parts = [random_claim(draw, depth - 1) for _ in range(draw.randint(2, 3))]
        joined = parts[0]
        for part in parts[1:]:
            joined = joined & part if draw.random() < 0.7 else joined | part
        return joined if draw.random() < 0.8 else ~joined
    field = draw.choice([c.n, c.m, c.n + c.m, c.n - 2 * c.m, c.n * c.m, c.n % 3])
    limit = draw.randint(-3, 8)
    return draw.choice(
        [
            lambda: field <= limit,
            lambda: field >= limit,
            lambda: field == limit,
            lambda: c.dtype.isin(draw.sample(["f16", "bf16", "f32"], 2)),
            lambda: c.dtype == "f16",
            lambda: c.flag == draw.choice([True, False]),
            lambda: c.window == None,  # noqa: E711 - a question, not a test
            lambda: c.window >= 1,
        ]
    )()


def served_by(claim: Predicate) -> frozenset[int]:
    """The calls for which a claim holds; without an answer it claims nothing."""
    found = set()
    for i, values in enumerate(VALUES):
        try:
            if evaluate(claim.expr, values):
                found.add(i)
        except ZeroDivisionError:
            continue
    return frozenset(found)


def apart_by_narrowing(*claims: Predicate) -> bool:
    both = conjunction(claim.expr for claim in claims)
    return narrow(both, DOMAIN, codes_of(both, DOMAIN)) is None


@pytest.mark.parametrize("seed", range(15))
def test_what_boxes_hold_apart_is_apart_by_brute_force_and_by_narrowing(seed: int) -> None:
    draw = random.Random(seed)
    valid = draw.choice([Predicate(DOMAIN, TRUE), c.m >= 1, c.n + c.m >= 0])
    claims = {f"k{i}": random_claim(draw) for i in range(12)}
    served = {key: served_by(valid & claim) for key, claim in claims.items()}
    boxes = Boxes(DOMAIN, valid.expr, {key: claim.expr for key, claim in claims.items()})
    for one, other in itertools.combinations(claims, 2):
        if not boxes.meet(one, other):
            assert not served[one] & served[other], (one, other, str(claims[one]), str(claims[other]))
            assert apart_by_narrowing(valid, claims[one], claims[other]), (str(claims[one]), str(claims[other]))


def test_boxes_hold_most_of_what_is_apart_by_an_enum_or_an_interval() -> None:
    draw = random.Random(7)
    claims = {}
    for i in range(60):
        low = draw.randint(-2, 6)
        claims[f"k{i:02}"] = (
            (c.n >= low)
            & (c.n <= draw.randint(low, 6))
            & c.dtype.isin(draw.sample(["f16", "bf16", "f32"], draw.randint(1, 2)))
            & (c.flag == draw.choice([True, False]))
            & (c.window == draw.choice([None, 1]))
        )
    served = {key: served_by(claim) for key, claim in claims.items()}
    boxes = Boxes(DOMAIN, TRUE, {key: claim.expr for key, claim in claims.items()})
    for key in claims:
        meeting = tuple(other for other in claims if other != key and served[key] & served[other])
        assert boxes.may_meet(key) == meeting


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (c.n <= 3, c.n >= 4, False),
        (c.n <= 3, c.n >= 3, True),
        (c.n <= 3, c.m >= 4, True),
        (c.n == 3, c.n == 3, True),
        (c.n + c.m <= 3, c.m + c.n > 3, False),
        (c.n * c.m <= 3, (c.n >= 2) & (c.m >= 2), True),
        (c.dtype == "f16", c.dtype.isin(["bf16", "f32"]), False),
        (c.dtype == "f16", ~(c.dtype == "f16"), False),
        (c.dtype == "f16", c.flag == True, True),  # noqa: E712 - a question
        (c.window == None, c.window >= 0, False),  # noqa: E711 - a question
        ((c.n <= 0) | (c.n >= 5), c.n == 3, True),
        ((c.n <= 0) | (c.n == 1), c.n == 3, False),
    ],
)
def test_two_boxes_meet_where_every_interval_and_every_set_does(one: Any, other: Any, meet: bool) -> None:
    boxes = Boxes(DOMAIN, TRUE, {"one": one.expr, "other": other.expr})
    assert boxes.meet("one", "other") is boxes.meet("other", "one") is meet
    assert boxes.may_meet("one") == (("other",) if meet else ())


def test_what_claims_nothing_meets_nobody() -> None:
    claims = {"all": TRUE, "never": FALSE, "empty": conjunction([(c.n <= 1).expr, (c.n >= 2).expr])}
    boxes = Boxes(DOMAIN, TRUE, claims)
    assert boxes.may_meet("all") == boxes.may_meet("never") == boxes.may_meet("empty") == ()
    assert boxes.meet("all", "all")
    assert not boxes.meet("empty", "empty")


def test_what_makes_a_call_valid_limits_every_box() -> None:
    boxes = Boxes(DOMAIN, (c.n <= 2).expr, {"low": (c.n <= 3).expr, "high": (c.n >= 3).expr})
    assert not boxes.meet("low", "high")
    assert Boxes(DOMAIN, FALSE, {"low": TRUE, "high": TRUE}).may_meet("low") == ()
