"""What an explanation says beyond the winner: every reason, near misses, and the fall to the general one."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, Explanation, InvalidCall, OneOf, Range, Selector
from tileops_rules import expr as E
from tileops_rules.explaining import Entry, _all_reasons, _branches, _reason_from
from tileops_rules.outcome import Fill, Raised, Returned, Template
from tileops_rules.tree import Ask, Leaf, Pick


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


N, M = E.integer(("n",)), E.integer(("m",))
SERVES = Leaf(Returned(None, "serves"))
RATIO = Leaf(Returned(Template(("n over m is ", Fill("ratio", "n / m", (N, M)))), "ratio"))
RAISES = Leaf(Raised(ValueError, "no"))
KINDS = Pick(("kind",), (((1, 2), SERVES), ((True,), RATIO)))


class TestTheReasonsOfATree:
    def test_a_branch_is_the_call_s_own_where_its_answer_leads_there(self) -> None:
        divides = Ask(E.equals(E.mod(N, M), 0), SERVES, RATIO)
        assert _branches(divides, {("n",): 6, ("m",): 3}) == [(SERVES, True), (RATIO, False)]
        assert _branches(divides, {("n",): 6, ("m",): 4}) == [(SERVES, False), (RATIO, True)]
        for values in ({("n",): 6, ("m",): 0}, {("n",): 6}):
            assert _branches(divides, values) == [(SERVES, False), (RATIO, False)]
        for kind, own in ((1, (True, False)), (2, (True, False)), (True, (False, True)), (1.0, (False, False))):
            assert _branches(KINDS, {("kind",): kind}) == [(SERVES, own[0]), (RATIO, own[1])]
        assert _branches(KINDS, {}) == [(SERVES, False), (RATIO, False)]
        assert _branches(SERVES, {}) == []

    def test_a_reason_is_filled_from_the_call_where_it_can_be(self) -> None:
        template = "n over m is {n / m}"
        assert _reason_from(RATIO, None, {("n",): 3, ("m",): 2}) == ("n over m is 1.5", template)
        assert _reason_from(RATIO, None, {("n",): 3, ("m",): 0}) == (template, template)
        assert _reason_from(RAISES, None, {}) == ("ValueError: no", "ValueError: no")
        tall = Leaf(Returned(Template(("of ", Fill("object", "tile.rows", (), ("tile", "rows")))), "tall"))
        assert _reason_from(tall, Call(), {}) == ("of {tile.rows}", "of {tile.rows}")

    def test_a_reason_is_found_by_the_call_s_own_answers_and_else_by_the_first_branch(self) -> None:
        tree = Ask(E.equals(N, 1), RAISES, Pick(("kind",), (((1,), RATIO), ((2,), RAISES))))
        for values, expected in (
            ({("n",): 1}, "ValueError: no"),
            ({("n",): 3, ("m",): 2, ("kind",): 1}, "n over m is 1.5"),
            ({("n",): 3, ("m",): 2, ("kind",): 2}, "ValueError: no"),
            ({("n",): 3, ("m",): 2}, "n over m is 1.5"),
        ):
            assert _reason_from(tree, None, values)[0] == expected

    def test_the_way_to_a_serving_end_that_goes_against_the_fewest_answers_tells_the_reasons(self) -> None:
        one, two = (Leaf(Returned(text, text)) for text in ("one", "two"))
        tree = Ask(E.at_most(N, 5), Ask(E.at_most(M, 5), SERVES, two), one)
        for n, m, expected in ((1, 1, []), (9, 1, ["one"]), (1, 9, ["two"]), (9, 9, ["one", "two"])):
            assert _all_reasons(tree, None, {("n",): n, ("m",): m}) == {each: each for each in expected}
        assert _all_reasons(Ask(E.at_most(N, 5), one, two), None, {("n",): 1}) == {}
        shorter = Ask(E.at_most(N, 5), Ask(E.at_most(M, 5), SERVES, two), Ask(E.equals(M, 9), one, SERVES))
        assert _all_reasons(shorter, None, {("n",): 9, ("m",): 9}) == {"one": "one"}
        shared = Ask(E.at_most(M, 5), SERVES, two)
        twice = Ask(E.at_most(N, 5), shared, Ask(E.at_most(N, 7), shared, one))
        assert _all_reasons(twice, None, {("n",): 9, ("m",): 9}) == {"one": "one", "two": "two"}
        undefined = Ask(E.equals(E.mod(N, M), 0), one, Ask(E.at_most(N, 5), SERVES, two))
        assert _all_reasons(undefined, None, {("n",): 9, ("m",): 0}) == {"one": "one", "two": "two"}
        assert _all_reasons(undefined, None, {("n",): 1, ("m",): 0}) == {"one": "one"}


def test_an_entry_reads_so() -> None:
    shown = {
        "a: serves, and is chosen": Entry("a", "chosen"),
        "a (general): serves, and is chosen": Entry("a", "chosen", general=True),
        "a: serves but loses to b": Entry("a", "loses", loses_to="b"),
        "a: serves, and ties with b": Entry("a", "ties", loses_to="b"),
        "a: refuses: x; y": Entry("a", "refuses", ("x", "y")),
        "a: raises: ValueError: x": Entry("a", "raises", ("ValueError: x",)),
        "a: cannot run: no cuda": Entry("a", "cannot run", ("no cuda",)),
    }
    assert {str(entry): entry for entry in shown.values()} == shown
    assert str(Explanation(None, ())) == "winner: none"
    assert Entry("a", "loses", ("x",), "b", True).as_json() == {
        "key": "a",
        "status": "loses",
        "reasons": ["x"],
        "loses_to": "b",
        "general": True,
    }


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
