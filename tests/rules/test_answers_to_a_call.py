"""What a selector says of one call: winners, ties, losers, reasons, errors, and the same as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tileops_rules import (
    AmbiguousDispatch,
    Candidate,
    InvalidCall,
    NoImplementation,
    NotLifted,
    OneOf,
    OutsideDomain,
    Range,
    RefusalError,
    Selector,
    SelectorError,
)
from tileops_rules.shapes import DeviceName

CUDA = DeviceName("cuda")


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: Annotated[int, Range(0, 64)] = 4
    dtype: Annotated[str, OneOf("f16", "f32")] = "f16"
    device: Any = CUDA
    arch: int | None = 80

    def invalid(self) -> str | None:
        return "n is odd and large" if self.n % 2 and self.n > 1000 else None


def short(call: Call) -> str | None:
    return None if call.n <= 100 else f"n {call.n} is above 100"


def half(call: Call) -> str | None:
    if call.dtype != "f16":
        return f"dtype {call.dtype}"
    return None if call.m <= 8 else f"m {call.m} is above 8"


def both(call: Call) -> str | None:
    if call.n > 50:
        return f"n {call.n} is above 50"
    return None if call.dtype == "f16" else f"dtype {call.dtype}"


def anything(call: Call) -> str | None:
    return None


def picky(call: Call) -> str | None:
    if call.n == 13:
        raise LookupError("thirteen")
    return "never"


CANDIDATES = [
    Candidate("short", short, preferred_over={"half"}),
    Candidate("half", half),
    Candidate("both", both, preferred_over={"short"}),
    Candidate("new_card", anything, supported_archs=[100, 90, 90], preferred_over={"both"}),
    Candidate("on_cpu", anything, devices={"cpu"}),
    Candidate("rest", anything, general=True),
]
SELECTOR = Selector(Call, CANDIDATES, op="Op", interface="face")


@pytest.mark.parametrize(
    ("call", "winner", "lines"),
    [
        (
            Call(n=2),
            "both",
            [
                "both: serves, and is chosen",
                "half: serves but loses to both",
                "new_card: cannot run: supports sm_90, sm_100, not sm_80",
                "on_cpu: cannot run: runs on cpu, not on cuda",
                "rest (general): serves but loses to both",
                "short: serves but loses to both",
            ],
        ),
        (
            Call(n=60, m=9),
            "short",
            [
                "both: refuses: n 60 is above 50",
                "half: refuses: m 9 is above 8",
                "new_card: cannot run: supports sm_90, sm_100, not sm_80",
                "on_cpu: cannot run: runs on cpu, not on cuda",
                "rest (general): serves but loses to short",
                "short: serves, and is chosen",
            ],
        ),
        (
            Call(n=200, m=9, dtype="f32"),
            "rest",
            [
                "both: refuses: n 200 is above 50; dtype f32",
                "half: refuses: dtype f32; m 9 is above 8",
                "new_card: cannot run: supports sm_90, sm_100, not sm_80",
                "on_cpu: cannot run: runs on cpu, not on cuda",
                "rest (general): serves, and is chosen",
                "short: refuses: n 200 is above 100",
            ],
        ),
        (
            Call(n=200, dtype="f32", arch=90),
            "new_card",
            [
                "both: refuses: n 200 is above 50; dtype f32",
                "half: refuses: dtype f32",
                "new_card: serves, and is chosen",
                "on_cpu: cannot run: runs on cpu, not on cuda",
                "rest (general): serves but loses to new_card",
                "short: refuses: n 200 is above 100",
            ],
        ),
        (
            Call(device=DeviceName("cpu"), arch=None),
            "on_cpu",
            [
                *(f"{key}: cannot run: runs on cuda, not on cpu" for key in ("both", "half", "new_card")),
                "on_cpu: serves, and is chosen",
                "rest (general): cannot run: runs on cuda, not on cpu",
                "short: cannot run: runs on cuda, not on cpu",
            ],
        ),
    ],
)
def test_an_explanation_says_of_everyone_what_is_so(call: Call, winner: str, lines: list[str]) -> None:
    told = SELECTOR.explain(call)
    text = str(told).splitlines()
    assert text[: len(lines) + 1] == [f"winner: {winner}", *(f"  {line}" for line in lines)]
    assert SELECTOR.select(call) == winner == told.winner
    assert SELECTOR.mask(call) == SELECTOR.plain_mask(call)
    serving = {entry.key for entry in told.entries if entry.status in ("chosen", "loses")}
    assert {SELECTOR.keys[i] for i in range(6) if SELECTOR.mask(call) >> i & 1} == serving
    for entry in told.entries:
        alone = SELECTOR.said(entry.key, call)
        assert alone.reasons == entry.reasons
        assert alone.status == (entry.status if entry.status not in ("chosen", "loses") else "serves")


def test_a_call_that_fell_to_the_general_one_says_who_was_a_reason_away() -> None:
    told = SELECTOR.explain(Call(n=200, m=9, dtype="f32"))
    assert told.fell_to_general
    assert [entry.key for entry in told.near_misses] == ["short"]
    assert str(told).endswith("fell to the general implementation; one reason away: short")
    assert not SELECTOR.explain(Call(n=2)).fell_to_general
    nobody = Selector(Call, [Candidate("on_cpu", anything, devices={"cpu"}), CANDIDATES[-1]]).explain(Call())
    assert nobody.winner == "rest"
    assert not nobody.fell_to_general
    assert nobody.near_misses == ()


def test_a_reason_that_several_conditions_share_is_said_once_and_hides_no_other() -> None:
    def refusal(call: Call) -> str | None:
        if call.n > 100 or call.m > 8:
            return "size"
        if call.arch == 80 or call.n == 50:
            return "card"
        return None if call.dtype == "f16" else "dtype"

    selector = Selector(Call, [Candidate("a", refusal), Candidate("b", anything, general=True)])
    for call, reasons in (
        (Call(n=200, m=9, dtype="f32"), ("size", "card", "dtype")),
        (Call(n=200, m=9, dtype="f32", arch=90), ("size", "dtype")),
        (Call(n=50, dtype="f32", arch=90), ("card", "dtype")),
        (Call(n=200, arch=90), ("size",)),
    ):
        assert selector.said("a", call).reasons == reasons
        assert (selector.said("a", call).near, len(selector.said("a", call).templates)) == (
            len(reasons) == 1,
            len(reasons),
        )


def test_an_explanation_as_plain_values_has_exactly_its_fields() -> None:
    told = SELECTOR.explain(Call(n=60, m=9)).as_json()
    assert list(told) == ["winner", "entries", "fell_to_general", "near_misses"]
    assert (told["winner"], told["fell_to_general"], told["near_misses"]) == ("short", False, ["both", "half"])
    assert told["entries"][0] == {
        "key": "both",
        "status": "refuses",
        "reasons": ["n 60 is above 50"],
        "loses_to": None,
        "general": False,
    }
    assert told["entries"][4] == {
        "key": "rest",
        "status": "loses",
        "reasons": [],
        "loses_to": "short",
        "general": True,
    }


def test_ties_are_said_and_refused() -> None:
    three = [Candidate("a", anything), Candidate("b", anything), Candidate("c", anything, preferred_over={"d"})]
    selector = Selector(Call, [*three, Candidate("d", anything)])
    told = selector.explain(Call())
    assert told.winner is None
    assert [(entry.key, entry.status, entry.loses_to) for entry in told.entries] == [
        ("a", "ties", "b"),
        ("b", "ties", "a"),
        ("c", "ties", "a"),
        ("d", "loses", "c"),
    ]
    assert str(told).splitlines()[:2] == ["winner: none", "  a: serves, and ties with b"]
    with pytest.raises(AmbiguousDispatch) as caught:
        selector.select(Call())
    assert caught.value.keys == ("a", "b", "c")
    assert caught.value.call == Call()
    assert "a, b, c all serve Call(" in str(caught.value)
    assert "write preferred_over = frozenset({'b'}) in a, or the other way round" in str(caught.value)
    assert (selector.winner(0b1000), selector.winner(0b1100), selector.winner(0b0011), selector.winner(0)) == (
        3,
        2,
        -2,
        -1,
    )
    assert selector.undefeated(0b1111) == (0, 1, 2)


def test_errors_carry_the_call_and_what_was_said() -> None:
    selector = Selector(
        Call, [Candidate("short", short), Candidate("picky", picky)], unserved=lambda call: f"n {call.n}"
    )
    with pytest.raises(NoImplementation) as nobody:
        selector.select(Call(n=200))
    assert nobody.value.call == Call(n=200)
    assert nobody.value.declared == "n 200"
    assert [entry.key for entry in nobody.value.explanation.entries] == ["picky", "short"]
    assert str(nobody.value).startswith(f"no implementation serves this call: {Call(n=200)!r}\nwinner: none\n")
    assert str(nobody.value).endswith("\ndeclared unserved: n 200")
    with pytest.raises(RefusalError, match="refusal of picky raised LookupError: thirteen on Call") as refused:
        selector.select(Call(n=13))
    assert (refused.value.key, refused.value.call) == ("picky", Call(n=13))
    assert isinstance(refused.value.__cause__, LookupError)
    assert selector.explain(Call(n=13)).entries[0].reasons == ("LookupError: thirteen",)
    assert selector.explain(Call(n=13)).entries[0].status == "raises"
    with pytest.raises(InvalidCall, match="is not a valid Call: n is odd and large") as invalid:
        selector.select(Call(n=1001))
    assert (invalid.value.call, invalid.value.reason) == (Call(n=1001), "n is odd and large")
    with pytest.raises(OutsideDomain) as outside:
        selector.select(Call(m=65))
    assert (outside.value.field, outside.value.value, outside.value.domain) == ("m", 65, "int in 0..64")
    assert str(outside.value) == (
        "65 is outside the domain of m, which is declared int in 0..64: "
        "pass a value inside it, or widen the declaration"
    )
    for ask in (selector.explain, lambda call: selector.said("short", call)):
        with pytest.raises(OutsideDomain):
            ask(Call(m=65))
        with pytest.raises(InvalidCall):
            ask(Call(n=1001))
        with pytest.raises(TypeError, match="takes a Call call spec, not a str"):
            ask("call")
    with pytest.raises(KeyError, match="no implementation has the key 'x': there are picky, short"):
        selector.candidate("x")


def test_a_selector_says_what_it_is() -> None:
    assert repr(SELECTOR) == "<Selector of Op: both, half, new_card, on_cpu, rest, short>"
    assert repr(Selector(Call, [Candidate("short", short)])) == "<Selector of Call: short>"
    assert SELECTOR.place("short") == f"{__file__}:{short.__code__.co_firstlineno}"
    assert SELECTOR.wins_over["new_card"] == {"both", "short", "half", "rest"}
    assert SELECTOR.wins_over["rest"] == frozenset()
    assert SELECTOR.candidate("new_card").supported_archs == (90, 100)
    assert str(SELECTOR.available("new_card")) == (
        "device.type == 'cuda' & (device.type != 'cuda' | arch in (100, 90))"
    )
    assert str(SELECTOR.available("on_cpu")) == "device.type == 'cpu'"
    assert str(SELECTOR.claims("short")) == "device.type == 'cuda' & n <= 100"
    unlifted = Selector(Call, [Candidate("unlifted", lambda call: None if str(call.n).endswith("4") else "no")])
    assert unlifted.claims("unlifted") is None
    assert unlifted.available("unlifted").expr is not None
    assert [unlifted.mask(Call(n=n)) for n in (3, 4)] == [0, 1]


def test_what_limits_every_call_is_part_of_what_is_valid() -> None:
    assert SELECTOR.valid(Call(n=1000))
    assert not SELECTOR.valid(Call(n=1001))
    assert not SELECTOR.valid(Call(arch=None))
    assert SELECTOR.invalid is not None
    assert SELECTOR.invalid_not_lifted is None
    assert SELECTOR.validity_not_lifted == {}
    assert (SELECTOR.declared_unserved, SELECTOR.unserved_not_lifted) == (None, None)
    declared = Selector(Call, CANDIDATES, unserved=lambda call: "odd" if call.n % 2 else None)
    assert declared.declared_unserved is not None
    assert str(declared.declared_unserved.serves) == "n % 2 == 0"
    unlifted = Selector(Call, CANDIDATES, unserved=lambda call: "odd" if str(call.n) == "1" else None)
    assert isinstance(unlifted.unserved_not_lifted, NotLifted)
    assert unlifted.declared_unserved is None


class Face:
    request = Call


class Other:
    request = Call


class First(Face):
    preferred_over = frozenset({"second", "other"})

    @classmethod
    def refusal(cls, call: Call) -> str | None:
        return None if call.n > 5 else "small"


class Second(Face):
    general = True
    devices = frozenset({"cuda", "cpu"})
    supported_archs = (90,)


class Elsewhere(Other):
    pass


class Both(Face, Other):
    preferred_over = frozenset({"elsewhere", "nobody"})


def op_of(**kinds: type) -> Any:
    return type("Op", (), {"kernel_types": kinds, "interfaces": {"face": Face, "other": Other}})


def test_a_selector_of_an_op_reads_its_classes() -> None:
    selector = Selector.of(op_of(first=type("F", (First,), {"preferred_over": {"second"}}), second=Second), "face")
    assert (selector.op, selector.interface, selector.keys) == ("Op", "face", ("first", "second"))
    assert selector.select(Call(n=6, arch=90)) == "first"
    assert selector.select(Call(n=5, arch=90)) == "second"
    assert selector.candidate("second").general
    assert selector.candidate("second").devices == {"cuda", "cpu"}
    assert selector.candidate("first").supported_archs is None
    assert Selector.of(op_of(first=Second, elsewhere=Elsewhere), "other").keys == ("elsewhere",)
    with pytest.raises(KeyError, match="Op has no interface 'none': it has face, other"):
        Selector.of(op_of(second=Second), "none")


def test_a_preference_for_a_key_of_another_interface_of_its_own_counts_there_only() -> None:
    kinds = {"both": type("B", (Both,), {"preferred_over": {"elsewhere"}}), "second": Second, "elsewhere": Elsewhere}
    assert Selector.of(op_of(**kinds), "face").wins_over["both"] == {"second"}
    assert Selector.of(op_of(**kinds), "other").wins_over["both"] == {"elsewhere"}
    for wrong, kind in (({"elsewhere", "nobody"}, Both), ({"elsewhere"}, Face)):
        broken = {**kinds, "both": type("B", (kind,), {"preferred_over": frozenset(wrong)})}
        with pytest.raises(SelectorError, match="which is no sibling"):
            Selector.of(op_of(**broken), "face")
