"""What an explanation says beyond the winner: every reason, near misses, and the fall to the general one."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, Explanation, InvalidCall, OneOf, Range, Selector
from tileops_rules.explaining import Entry


class Card:
    """A stand-in for a torch device."""

    def __init__(self, type: str) -> None:
        self.type = type


CUDA, CPU = Card("cuda"), Card("cpu")


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 12)] = 4
    m: Annotated[int, Range(0, 12)] = 4
    dtype: Annotated[str, OneOf("f16", "f32")] = "f16"
    device: Any = CUDA
    arch: Optional[int] = 90

    def invalid(self) -> str | None:
        return "n is 11" if self.n == 11 else None


def square(call: Call) -> str | None:
    if call.n > 6:
        return f"n {call.n} is above 6"
    if call.m > 6:
        return f"m {call.m} is above 6"
    return None if call.dtype == "f16" else f"dtype {call.dtype} is not f16"


def by_text(call: Call) -> str | None:
    """Not lifted: it looks at the digits of a number."""
    return None if str(call.n).endswith("1") else f"n {call.n} does not end in 1"


def everything(call: Call) -> str | None:
    return None


GENERAL = Candidate("rest", everything, general=True, devices={"cuda", "cpu"})
SQUARE = Candidate("square", square, supported_archs=[90])


def selector(*candidates: Candidate) -> Selector:
    return Selector(Call, candidates)


def failing(call: Call) -> list[str]:
    """The clauses of ``square`` that a call breaks, by hand."""
    clauses = {"n": call.n > 6, "m": call.m > 6, "dtype": call.dtype != "f16"}
    return [name for name, broken in clauses.items() if broken]


def test_near_misses_are_those_that_refuse_for_exactly_one_reason() -> None:
    chooses = selector(SQUARE, GENERAL)
    for n, m, dtype in itertools.product(range(11), range(13), ("f16", "f32")):
        call = Call(n, m, dtype)
        explained = chooses.explain(call)
        broken = failing(call)
        assert explained.fell_to_general == bool(broken)
        assert [entry.key for entry in explained.near_misses] == (["square"] if len(broken) == 1 else [])
        entry = next(each for each in explained.entries if each.key == "square")
        assert [reason.split()[0] for reason in entry.reasons] == broken


def test_templates_are_the_reasons_without_the_values() -> None:
    first, second = (selector(SQUARE, GENERAL).explain(Call(n, 9)).entries[1] for n in (7, 8))
    assert first.reasons == ("n 7 is above 6", "m 9 is above 6")
    assert first.templates == second.templates == ("n {n} is above 6", "m {m} is above 6")
    assert first.reasons != second.reasons


def test_a_specialised_one_that_cannot_run_there_was_not_missed() -> None:
    for call in (Call(arch=80), Call(device=CPU, arch=None)):
        explained = selector(SQUARE, GENERAL).explain(call)
        assert explained.winner == "rest"
        assert not explained.fell_to_general
        assert explained.near_misses == ()


def test_where_nobody_serves_there_are_near_misses_and_no_fall() -> None:
    explained = selector(SQUARE).explain(Call(7))
    assert (explained.winner, explained.fell_to_general) == (None, False)
    assert [entry.key for entry in explained.near_misses] == ["square"]


def test_a_rule_that_was_not_lifted_or_never_serves_is_no_near_miss() -> None:
    never = Candidate("never", lambda call: f"never, with n {call.n}")
    chooses = selector(Candidate("by_text", by_text), never, GENERAL)
    assert list(chooses.not_lifted) == ["by_text"]
    explained = chooses.explain(Call(2))
    assert [entry.reasons for entry in explained.entries[:2]] == [("n 2 does not end in 1",), ("never, with n 2",)]
    assert explained.fell_to_general
    assert explained.near_misses == ()


def test_it_is_printed_below_the_entries_and_in_json() -> None:
    chooses = selector(SQUARE, Candidate("tall", lambda call: None if call.n > 9 else "n is 9 or less"), GENERAL)
    explained = chooses.explain(Call(7, 9))
    assert str(explained) == (
        "winner: rest\n"
        "  rest (general): serves, and is chosen\n"
        "  square: refuses: n 7 is above 6; m 9 is above 6\n"
        "  tall: refuses: n is 9 or less\n"
        "fell to the general implementation; one reason away: tall"
    )
    assert explained.as_json()["fell_to_general"] is True
    assert explained.as_json()["near_misses"] == ["tall"]
    assert json.loads(json.dumps(explained.as_json())) == explained.as_json()
    assert "one reason away: none" in str(selector(SQUARE, GENERAL).explain(Call(7, 9)))
    assert "fell" not in str(chooses.explain(Call(10)))


def test_the_same_call_is_explained_alike_whatever_the_order() -> None:
    others = [Candidate(f"at_{n}", lambda call, n=n: None if call.n == n else f"n is not {n}") for n in (1, 2)]
    texts = set()
    for order in itertools.permutations([SQUARE, GENERAL, *others]):
        explained = selector(*order).explain(Call(7))
        texts.add((str(explained), json.dumps(explained.as_json())))
    assert len(texts) == 1


def test_an_explanation_made_by_hand_has_no_near_misses_without_templates() -> None:
    entries = (Entry("a", "refuses", ("x",)), Entry("b", "chosen", general=True))
    assert Explanation("b", entries).fell_to_general
    assert Explanation("b", entries).near_misses == ()


class TestOneAsked:
    def test_it_says_what_it_says_among_all(self) -> None:
        chooses = selector(SQUARE, Candidate("by_text", by_text), GENERAL)
        for n, arch in itertools.product((1, 7), (80, 90)):
            call = Call(n, arch=arch)
            for entry in chooses.explain(call).entries:
                alone = chooses.said(entry.key, call)
                assert alone.reasons == entry.reasons
                served = entry.status in ("chosen", "loses", "ties")
                assert alone.status == ("serves" if served else entry.status)

    def test_no_other_is_asked(self) -> None:
        asked: list[str] = []

        def noting(name: str) -> Candidate:
            def refusal(call: Call) -> str | None:
                asked.append(name)
                return None

            return Candidate(name, refusal)

        chooses = selector(noting("one"), noting("two"))
        assert list(chooses.not_lifted) == ["one", "two"]
        asked.clear()
        assert chooses.said("one", Call()).status == "serves"
        assert asked == ["one"]

    def test_a_call_that_cannot_be_is_refused(self) -> None:
        with pytest.raises(InvalidCall, match="n is 11"):
            selector(SQUARE).said("square", Call(11))
        with pytest.raises(KeyError, match="no implementation has the key 'other'"):
            selector(SQUARE).said("other", Call())


@pytest.mark.parametrize("member", ["preferred_over", "devices"])
def test_a_plain_string_is_not_read_as_its_letters(member: str) -> None:
    from tileops_rules import SelectorError

    given: dict[str, Any] = {member: "cuda"}
    text = rf'one: {member} is \'cuda\', a plain string: write {member} = frozenset\(\{{"cuda"\}}\)'
    with pytest.raises(SelectorError, match=text) as caught:
        Candidate("one", everything, **given)
    assert caught.value.keys == ("one",)
    face = type("Face", (), {"request": Call})
    base = type("Base", (face,), {"refusal": staticmethod(everything), **given})
    heir = type("Heir", (base,), {})
    op = type("SomeOp", (), {"kernel_types": {"one": heir}, "interfaces": {"face": face}})
    with pytest.raises(SelectorError, match=r"is written in its base class Base"):
        Selector.of(op, "face")
