"""Candidates put into a selector by hand: what is chosen, what is said, and what cannot stand together."""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import (
    AmbiguousDispatch,
    Candidate,
    InvalidCall,
    NoImplementation,
    OneOf,
    OutsideDomain,
    Range,
    RefusalError,
    Selector,
    SelectorError,
)


class Card:
    """A stand-in for a torch device."""

    def __init__(self, type: str) -> None:
        self.type = type


CUDA = Card("cuda")


@dataclass(frozen=True)
class Call:
    n: int = 4
    m: Annotated[int, Range(1, 64)] = 4
    dtype: Annotated[str, OneOf("f16", "f32")] = "f16"
    device: Any = CUDA
    arch: Optional[int] = 90

    def invalid(self) -> str | None:
        return "n is a multiple of m" if self.n % self.m else None


def short(call: Call) -> str | None:
    return None if call.n <= 1024 else f"n {call.n} is above 1024"


def long(call: Call) -> str | None:
    if call.n < 512:
        return f"n {call.n} is below 512"
    return None if call.dtype == "f16" else f"dtype {call.dtype} is not f16"


def never(call: Call) -> str | None:
    return "never"


def everything(call: Call) -> str | None:
    return None


CANDIDATES = (
    Candidate("short", short),
    Candidate("long", long, preferred_over={"short"}, supported_archs=[90]),
    Candidate("rest", everything, general=True, devices={"cuda", "cpu"}),
    Candidate("idle", never),
)


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (Call(n=4), "short"),
        (Call(n=512), "long"),
        (Call(n=512, arch=80), "short"),
        (Call(n=512, dtype="f32"), "short"),
        (Call(n=2048), "long"),
        (Call(n=2048, dtype="f32"), "rest"),
        (Call(n=4, device=Card("cpu"), arch=None), "rest"),
        (Call(n=2**41), "long"),
        (Call(n=4, device=Card("mps"), arch=None), None),
        (Call(n=512, arch=103), "short"),
    ],
)
def test_the_preferred_of_those_that_serve_is_selected(call: Call, key: str | None) -> None:
    selector = Selector(Call, CANDIDATES)
    if key is None:
        with pytest.raises(NoImplementation, match="no implementation serves this call"):
            selector.select(call)
    else:
        assert selector.select(call) == key
        assert selector.explain(call).winner == key
        assert selector.mask(call) == selector.plain_mask(call)


def test_a_candidate_that_lists_no_arch_is_never_chosen_on_cuda() -> None:
    chosen = Selector(Call, [Candidate("nowhere", lambda call: None, supported_archs=[]), Candidate("short", short)])
    assert chosen.mask(Call()) == 2
    assert chosen.select(Call()) == "short"


def test_the_order_of_candidates_decides_nothing() -> None:
    draw = random.Random(0)
    calls = [
        Call(n=draw.choice([4, 500, 512, 600, 1024, 1028, 9000]) // 4 * 4, arch=draw.choice([80, 90]), dtype=dtype)
        for dtype in ("f16", "f32")
        for _ in range(20)
    ]
    selectors = [Selector(Call, order) for order in itertools.permutations(CANDIDATES)]
    chosen = {tuple(selector.select(call) for call in calls) for selector in selectors}
    assert len(chosen) == 1


def test_the_compiled_mask_equals_the_original_methods() -> None:
    selector = Selector(Call, CANDIDATES)
    for n, m, arch, dtype in itertools.product(range(0, 2100, 4), (1, 2, 4), (80, 90, 103), ("f16", "f32")):
        call = Call(n=n, m=m, arch=arch, dtype=dtype)
        assert selector.mask(call) == selector.plain_mask(call)


def test_an_explanation_gives_every_reason_that_applies_and_who_wins() -> None:
    selector = Selector(Call, CANDIDATES)
    said = {entry.key: entry for entry in selector.explain(Call(n=4, dtype="f32")).entries}
    assert said["long"].status == "refuses"
    assert said["long"].reasons == ("n 4 is below 512", "dtype f32 is not f16")
    assert said["short"].status == "chosen"
    assert (said["rest"].status, said["rest"].loses_to) == ("loses", "short")
    on_80 = {entry.key: entry for entry in selector.explain(Call(n=4, arch=80)).entries}
    assert on_80["long"].status == "cannot run"
    assert "sm_80" in on_80["long"].reasons[0]
    assert str(selector.explain(Call(n=600))) == (
        "winner: long\n"
        "  idle: refuses: never\n"
        "  long: serves, and is chosen\n"
        "  rest (general): serves but loses to long\n"
        "  short: serves but loses to long"
    )


def test_preferences_are_transitive() -> None:
    chain = [
        Candidate("a", everything, preferred_over={"b"}),
        Candidate("b", everything, preferred_over={"c"}),
        Candidate("c", everything),
    ]
    selector = Selector(Call, chain)
    assert selector.wins_over["a"] == {"b", "c"}
    assert selector.select(Call()) == "a"


def test_an_undeclared_overlap_is_an_error_at_the_call() -> None:
    selector = Selector(Call, [Candidate("a", everything), Candidate("b", short)])
    with pytest.raises(AmbiguousDispatch, match="dispatch is ambiguous") as caught:
        selector.select(Call())
    assert caught.value.keys == ("a", "b")
    assert [e.status for e in selector.explain(Call()).entries] == ["ties", "ties"]


def test_a_declared_domain_is_enforced_and_an_assumed_one_is_not() -> None:
    selector = Selector(Call, CANDIDATES)
    with pytest.raises(OutsideDomain, match="is outside the domain of m") as caught:
        selector.select(Call(n=0, m=65))
    assert (caught.value.field, caught.value.value) == ("m", 65)
    with pytest.raises(OutsideDomain, match="is outside the domain of dtype"):
        selector.select(Call(n=2**41, dtype="f64"))
    assert selector.select(Call(n=2**50)) == "long"


def test_an_invalid_call_is_refused_with_its_reason() -> None:
    with pytest.raises(InvalidCall, match="is not a valid Call: n is a multiple of m"):
        Selector(Call, CANDIDATES).select(Call(n=5))


def test_a_refusal_that_raises_is_named_and_chained() -> None:
    def broken(call: Call) -> str | None:
        if call.n == 8:
            raise KeyError("eight")
        return None

    selector = Selector(Call, [Candidate("broken", broken)])
    assert selector.select(Call(n=4)) == "broken"
    with pytest.raises(RefusalError, match="refusal of broken raised") as caught:
        selector.select(Call(n=8))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_rule_that_is_not_lifted_still_selects() -> None:
    def by_text(call: Call) -> str | None:
        return None if str(call.n).endswith("4") else "not a four"

    selector = Selector(Call, [Candidate("by_text", by_text), Candidate("rest", everything, general=True)])
    assert list(selector.not_lifted) == ["by_text"]
    assert [selector.select(Call(n=n)) for n in (4, 8)] == ["by_text", "rest"]


@pytest.mark.parametrize(
    ("candidates", "text", "kind"),
    [
        ([Candidate("Bad", never)], "is not snake_case", "key"),
        ([Candidate("a", never), Candidate("a", short)], "stands twice", "key"),
        (
            [Candidate("a", never, general=True), Candidate("b", never, general=True)],
            "more than one general",
            "general",
        ),
        ([Candidate("a", never, preferred_over={"a"})], "prefers itself", "preference"),
        ([Candidate("a", never, preferred_over={"z"})], "prefers z, which is no sibling", "preference"),
        (
            [Candidate("a", never, general=True, preferred_over={"b"}), Candidate("b", never)],
            "the general implementation prefers",
            "preference",
        ),
        (
            [Candidate("a", never, preferred_over={"b"}), Candidate("b", never, preferred_over={"a"})],
            "preferences form a cycle through a, b",
            "cycle",
        ),
    ],
)
def test_candidates_that_cannot_stand_together_are_refused(candidates: list[Candidate], text: str, kind: str) -> None:
    with pytest.raises(SelectorError, match=text) as caught:
        Selector(Call, candidates)
    assert caught.value.kind == kind
    assert isinstance(caught.value, ValueError)


def test_an_error_names_the_base_class_in_which_the_value_was_written() -> None:
    class Base:
        general = True

    class One(Base):
        pass

    with pytest.raises(SelectorError, match="written in its base class Base"):
        Selector(
            Call,
            [Candidate("a", never, general=True, implementation=One), Candidate("b", never, general=True)],
        )


def test_preferring_the_general_one_is_only_needless() -> None:
    selector = Selector(Call, [Candidate("a", everything, preferred_over={"g"}), Candidate("g", never, general=True)])
    assert selector.select(Call()) == "a"


def test_a_call_of_another_class_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a Call"):
        Selector(Call, CANDIDATES).select(object())


def test_threads_may_ask_a_new_selector_at_once() -> None:
    selector = Selector(Call, CANDIDATES)
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(selector.select(Call(n=512)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["long"] * 8


def test_a_call_whose_device_facts_contradict_its_device_goes_to_the_original() -> None:
    def modern(call: Call) -> str | None:
        return None if call.arch is not None and call.arch >= 90 else f"arch {call.arch}"

    rule = Selector(Call, [Candidate("modern", modern)]).rules["modern"]
    assert rule.replay(500) is None
    for call in (Call(), Call(arch=80), Call(arch=None), Call(device=Card("cpu"), arch=None), Call(device=Card("cpu"))):
        assert rule(call) == modern(call)
