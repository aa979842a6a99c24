"""Calls that nobody serves and nobody declared, platform by platform; and what is declared and served all the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from tileops_rules import Candidate, Range, Selector
from tileops_solver import Finding, InconsistencyError, audit
from tileops_solver.checks.asked import Result
from tileops_solver.checks.gap import CHECK, Refusal
from tileops_solver.findings import Severity
from tileops_solver.nearest import Change, nearest_served
from tileops_solver.subject import Subject

from tests.solver.rule_sets import Placed, Whole, random_rule, random_selector


def ask(selector: Selector, archs: list[int] | None = None) -> Result:
    return CHECK.run(Subject(selector, archs=archs))


def found(selector: Selector, archs: list[int] | None = None) -> dict[str, Finding]:
    """The findings by kind, or for gaps by platform."""
    result = ask(selector, archs)
    assert result.undecided == ()
    named = {each.subject if each.kind == "gap" else each.kind: each for each in result.findings}
    assert len(named) == len(result.findings)
    return named


# ------------------------------------------------------------------------------------------- held against all calls


def declaring(seed: int) -> Selector:
    """A random rule set; two of three interfaces declare something, which may raise."""
    draw = random.Random(seed)
    selector = random_selector(seed, most=3)
    unserved = random_rule(draw, selector.spec) if draw.random() < 0.7 else None
    return Selector(selector.spec, selector.candidates, op="Op", interface="job", unserved=unserved)


def declared(selector: Selector, call: Any) -> bool:
    try:
        return selector.unserved is not None and selector.unserved(call) is not None
    except Exception:  # noqa: BLE001 - one that raises declares nothing
        return False


def platform(call: Any) -> str:
    if not isinstance(call, Placed):
        return ""
    return f"sm_{call.arch}" if call.device == "cuda" else str(call.device)


def by_platform(calls: list[Any]) -> dict[str, list[Any]]:
    sorted_out: dict[str, list[Any]] = {}
    for call in calls:
        sorted_out.setdefault(platform(call), []).append(call)
    return sorted_out


def expected(selector: Selector, archs: list[int] | None = None) -> dict[str, Any]:
    """The smallest gap of each platform, and the smallest call that is declared and served."""
    whole = Whole(selector)
    calls = whole.calls if archs is None else [c for c in whole.calls if not hasattr(c, "arch") or c.arch in archs]
    served = frozenset().union(*whole.serves.values())
    gaps = by_platform([call for call in calls if call not in served and not declared(selector, call)])
    said = {name: whole.smallest(mine) for name, mine in gaps.items()}
    outdated = [call for call in calls if call in served and declared(selector, call)]
    return {**said, "served-gap": whole.smallest(outdated)} if outdated else said


def agrees(seed: int) -> None:
    selector = declaring(seed)
    archs = [80, 90] if seed % 3 == 0 else None
    assert {name: each.witness for name, each in found(selector, archs).items()} == expected(selector, archs)


@pytest.mark.parametrize("block", range(6))
def test_gaps_and_their_absence_are_those_of_all_calls(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        agrees(seed)


@pytest.mark.nightly
def test_gaps_and_their_absence_are_those_of_all_calls_of_2000_rule_sets() -> None:
    for seed in range(1_000, 3_000):
        agrees(seed)


def unliftable(refusal: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def unlifted(call: Any) -> Any:
        return refusal(call) if len(range(call.a)) >= 0 else None

    return unlifted


def unordered(candidate: Candidate, refusal: Callable[[Any], Any] | None = None) -> Candidate:
    """The candidate without preferences, and with another rule where one is given."""
    archs = candidate.supported_archs
    return Candidate(candidate.key, refusal or candidate.refusal, devices=candidate.devices, supported_archs=archs)


def test_what_does_not_hang_on_a_rule_that_was_not_lifted_is_decided_all_the_same() -> None:
    outcomes = set()
    for seed in range(20):
        selector = random_selector(seed, Placed, most=3)
        first, *others = [unordered(each) for each in selector.candidates]
        opaque = unordered(first, unliftable(first.refusal))
        result = ask(Selector(Placed, [opaque, *others], op="Op", interface="job"))
        whole = Whole(Selector(Placed, others or [opaque], op="Op", interface="job"))
        served = frozenset().union(*(whole.serves[each.key] for each in others))
        wide = Whole(selector)
        nobody = by_platform([call for call in wide.calls if call not in served])
        certain = by_platform([c for mine in nobody.values() for c in mine if opaque.cannot_run(c) is not None])
        assert {f.subject: f.witness for f in result.findings} == {n: wide.smallest(m) for n, m in certain.items()}
        assert {one.subject for one in result.undecided} == nobody.keys() - certain.keys()
        assert all(f"the rule of {opaque.key} was not lifted" in one.reason for one in result.undecided)
        outcomes |= {bool(result.findings), bool(result.undecided) and "undecided"}
    assert outcomes == {True, False, "undecided"}


# -------------------------------------------------------------------------------------------------- what a gap says


@dataclass(frozen=True)
class GemmCall:
    """A product of (m, k) and (k, n) matrices."""

    m: Annotated[int, Range(0, 2**20)] = 1
    n: Annotated[int, Range(0, 2**20)] = 1
    k: Annotated[int, Range(0, 2**20)] = 1
    dtype: Literal["float16", "bfloat16"] = "float16"
    trans_a: bool = False
    device: Optional[str] = None
    arch: Optional[int] = None


class GemmFace:
    request = GemmCall

    @classmethod
    def unserved(cls, call: GemmCall) -> str | None:
        return None if call.arch in (80, 90) else "only sm_80 and sm_90 are wanted"


class Gemv(GemmFace):
    """A product with a vector or two."""

    supported_archs = (80, 90)

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        if call.m > 2:
            return f"m {call.m} is more than 2"
        return "trans_a: a vector has no transpose" if call.trans_a else None


class Gemm(GemmFace):
    """The general one as it was: it left sm_90 to the other, all of it."""

    general = True
    supported_archs = (80, 90)

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        return "sm_90 has a kernel of its own" if call.arch == 90 else None


class GemmTma(GemmFace):
    """The one for sm_90: what its copies can address."""

    supported_archs = (90,)

    @classmethod
    def addressable(cls, call: GemmCall) -> bool:
        return call.k % 8 == 0

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        return None if cls.addressable(call) else f"k {call.k} is no multiple of 8"


class GemmMended(Gemm):
    """The complement, exactly."""

    @classmethod
    def refusal(cls, call: GemmCall) -> str | None:
        return "sm_90 has a kernel of its own" if call.arch == 90 and GemmTma.addressable(call) else None


def op_of(**kernels: type) -> Any:
    return type("GemmOp", (), {"kernel_types": kernels, "interfaces": {"gemm": GemmFace}})


GEMM = op_of(gemm=Gemm, gemm_tma=GemmTma, gemv=Gemv)


def test_the_difference_of_two_general_regions_is_a_gap_until_the_complement_is_restored() -> None:
    """As in tile-ai/TileOPs PR #2151."""
    (gap,) = audit(GEMM, select=["gap"]).findings
    assert (gap.kind, gap.subject, gap.severity, gap.keys) == ("gap", "sm_90", Severity.WARNING, ())
    assert gap.id == "GemmOp.gemm:gap:sm_90"
    assert gap.witness == GemmCall(trans_a=True, device="cuda", arch=90)
    assert gap.facts["refusals"] == (
        Refusal("gemm", "refuses", ("sm_90 has a kernel of its own",)),
        Refusal("gemm_tma", "refuses", ("k 1 is no multiple of 8",)),
        Refusal("gemv", "refuses", ("trans_a: a vector has no transpose",)),
    )
    for refusal in gap.facts["refusals"]:
        assert f"{refusal.key}: refuses: {refusal.reasons[0]}" in gap.message
    assert audit(op_of(gemm=GemmMended, gemm_tma=GemmTma, gemv=Gemv), select=["gap"]).findings == ()


def test_the_gap_of_matrices_is_found_where_there_is_no_other() -> None:
    class Wider(Gemv):
        @classmethod
        def refusal(cls, call: GemmCall) -> str | None:
            return f"m {call.m} is more than 2" if call.m > 2 else None

    gap = found(Selector.of(op_of(gemm=Gemm, gemm_tma=GemmTma, gemv=Wider), "gemm"))["sm_90"]
    assert gap.witness == GemmCall(m=3, device="cuda", arch=90)
    near = gap.facts["nearest"]
    assert (near.call, near.key) == (GemmCall(m=3, k=0, device="cuda", arch=90), "gemm_tma")
    assert near.changed == (Change("k", 1, 0),)
    assert "Nearest to it gemm_tma serves GemmCall(m=3, n=1, k=0," in gap.message
    assert "k 0 in place of 1" in gap.message


def test_a_gap_names_every_clause_that_refuses_it() -> None:
    gap = found(Selector.of(op_of(gemv=Gemv), "gemm"))["sm_90"]
    assert gap.witness == GemmCall(trans_a=True, device="cuda", arch=90)

    class Declared(GemmFace):
        @classmethod
        def unserved(cls, call: GemmCall) -> str | None:
            return "one at a time" if call.m <= 2 or not call.trans_a or call.arch != 90 else None

    class Both(Declared, Gemv):
        pass

    op = type("TwoOp", (), {"kernel_types": {"gemv": Both}, "interfaces": {"gemm": Declared}})
    gap = found(Selector.of(op, "gemm"))["sm_90"]
    assert gap.witness == GemmCall(m=3, trans_a=True, device="cuda", arch=90)
    assert "gemv: refuses: m 3 is more than 2; trans_a: a vector has no transpose" in gap.message


def test_the_edit_names_the_interface_and_its_place() -> None:
    (gap,) = audit(GEMM, select=["gap"]).findings
    assert gap.places == (f"test_gap.py:{_line('class GemmFace')}",)
    assert gap.edit == (
        f"serve it, or give the reason why nobody does in unserved of GemmFace (test_gap.py:{_line('class GemmFace')})"
    )
    assert gap.message.startswith("GemmOp.gemm: no implementation serves GemmCall(")
    assert gap.message.endswith(f"Serve it, {gap.edit.removeprefix('serve it, ')}.")


def _line(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.startswith(text))


def test_an_interface_without_the_method_and_a_selector_by_hand_are_named_too() -> None:
    class Bare:
        request = GemmCall

    class Only(Bare):
        @classmethod
        def refusal(cls, call: GemmCall) -> str | None:
            return None if call.m else "m is 0"

    op = type("BareOp", (), {"kernel_types": {"only": Only}, "interfaces": {"gemm": Bare}})
    gap = found(Selector.of(op, "gemm"))["sm_80"]
    assert gap.edit.endswith(f"in unserved of Bare ({gap.places[0]})")
    by_hand = found(Selector(GemmCall, [Candidate("only", Only.refusal)]))["sm_80"]
    assert by_hand.edit.endswith("in unserved of the Selector")
    assert by_hand.places == (f"test_gap.py:{_line('class GemmCall') - 1}",)
    assert by_hand.witness == gap.witness == GemmCall(m=0, device="cuda", arch=80)


def test_an_arch_that_no_implementation_lists_is_a_gap_that_says_so() -> None:
    kinds = {"gemm_tma": GemmTma, "gemv": Gemv}
    gaps = found(Selector.of(op_of(**kinds), "gemm"))
    assert gaps.keys() == {"sm_80", "sm_90"}
    plain = Selector(GemmCall, Selector.of(op_of(**kinds), "gemm").candidates)
    gaps = found(plain)
    assert gaps.keys() == {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
    for arch in (86, 89, 100, 120):
        message = gaps[f"sm_{arch}"].message
        assert f"arch={arch}), for none lists sm_{arch}: gemm_tma: cannot run: supports sm_90, not sm_{arch}" in message
        assert gaps[f"sm_{arch}"].facts["nearest"].changed[0].field == "arch"
    assert "for none lists" not in gaps["sm_80"].message
    assert " on sm_80: " in gaps["sm_80"].message


def test_a_device_type_is_asked_about_apart() -> None:
    def host(call: GemmCall) -> str | None:
        return None if call.m < 5 else f"m {call.m} is not below 5"

    gaps = found(Selector(GemmCall, [Candidate("gpu", lambda call: None), Candidate("host", host, devices={"cpu"})]))
    assert gaps.keys() == {"cpu"}
    assert gaps["cpu"].witness == GemmCall(m=5, device="cpu")
    assert gaps["cpu"].facts["nearest"].call == GemmCall(m=4, device="cpu")
    assert "gpu: cannot run: runs on cuda, not on cpu" in gaps["cpu"].message


def test_empty_and_odd_sizes_are_in_the_domains() -> None:
    def filled(call: GemmCall) -> str | None:
        return None if call.m and call.n and call.k else "a size is 0"

    assert found(Selector(GemmCall, [Candidate("a", filled)]))["sm_90"].witness == GemmCall(k=0, device="cuda", arch=90)

    def even(call: GemmCall) -> str | None:
        return "k is odd" if call.k % 2 else None

    assert found(Selector(GemmCall, [Candidate("a", even)]))["sm_90"].witness == GemmCall(device="cuda", arch=90)


def test_only_the_archs_that_are_asked_about_are_looked_at() -> None:
    assert [f.subject for f in audit(GEMM, select=["gap"], archs=[80, 90]).findings] == ["sm_90"]
    assert audit(GEMM, select=["gap"], archs=[80]).findings == ()


def test_where_nothing_is_served_at_all_that_is_said() -> None:
    gaps = found(Selector(GemmCall, [Candidate("never", lambda call: "no")]), archs=[80])
    assert "No call at all is served." in gaps["sm_80"].message
    assert "nearest" not in gaps["sm_80"].facts


# ----------------------------------------------------------------------------------------------- group sizes, report 7


@dataclass(frozen=True)
class DecodeCall:
    heads: Annotated[int, Range(0, 4096)] = 1
    heads_kv: Annotated[int, Range(0, 4096)] = 1

    def invalid(self) -> str | None:
        if self.heads < 1 or self.heads_kv < 1 or self.heads % self.heads_kv != 0:
            return "the heads of keys do not divide the heads of queries"
        return None


GROUPS = (1, 2, 3, 4, 8)


def grouped(call: DecodeCall) -> str | None:
    for group in GROUPS:
        if call.heads == group * call.heads_kv:
            return None
    return f"a group of {call.heads // call.heads_kv} is none of {GROUPS}"


def test_group_sizes_outside_a_fixed_list_are_a_gap_and_a_general_one_closes_it() -> None:
    """As in flashinfer-ai/flashinfer #996."""
    listed = Candidate("decode", grouped, preferred_over={"any_group"})
    gap = found(Selector(DecodeCall, [Candidate("decode", grouped)]))[""]
    assert gap.witness == DecodeCall(heads=5)
    assert "decode: refuses: a group of 5 is none of (1, 2, 3, 4, 8)" in gap.message
    assert gap.facts["nearest"].call == DecodeCall(heads=5, heads_kv=5)
    assert found(Selector(DecodeCall, [listed, Candidate("any_group", lambda call: None)])) == {}
    near = nearest_served(Selector(DecodeCall, [Candidate("decode", grouped)]), DecodeCall(40, 8))
    assert near.call == DecodeCall(40, 10)


# ------------------------------------------------------------------------------------------------------ declarations


def test_what_is_declared_is_no_gap_and_one_that_is_served_is_a_finding() -> None:
    def unserved(call: DecodeCall) -> str | None:
        if call.heads not in [group * call.heads_kv for group in GROUPS]:
            return f"groups of {call.heads // call.heads_kv} are not wanted"
        return "eight is too many" if call.heads == 8 * call.heads_kv else None

    keys = [Candidate("decode", grouped), Candidate("other", lambda call: None if call.heads == 8 else "not 8 heads")]
    findings = found(Selector(DecodeCall, keys, op="Op", interface="job", unserved=unserved))
    assert findings.keys() == {"served-gap"}
    outdated = findings["served-gap"]
    assert outdated.keys == ("decode", "other")
    assert outdated.id == "Op.job:served-gap:decode+other"
    assert (outdated.witness, outdated.severity) == (DecodeCall(8), Severity.WARNING)
    assert outdated.facts["reason"] == "eight is too many"
    assert (
        "DecodeCall(heads=8, heads_kv=1) is declared to be served by nobody ('eight is too many')" in outdated.message
    )
    assert "and decode, other serve it" in outdated.message
    assert len(outdated.places) == 2
    assert "take such calls out of unserved of the Selector" in outdated.edit


def test_a_declaration_that_raises_declares_nothing() -> None:
    def unserved(call: DecodeCall) -> str | None:
        if call.heads == 7:
            raise ValueError("seven")
        return None if grouped(call) is None else "another group"

    gaps = found(Selector(DecodeCall, [Candidate("decode", grouped)], unserved=unserved))
    assert {name: each.witness for name, each in gaps.items()} == {"": DecodeCall(7)}


def strange(call: DecodeCall) -> str | None:
    return "never" if len(range(call.heads)) > 3 else None


def test_a_declaration_that_is_not_lifted_leaves_gaps_undecided() -> None:
    result = ask(Selector(DecodeCall, [Candidate("decode", grouped)], unserved=strange))
    assert result.findings == ()
    assert [one.subject for one in result.undecided] == ["", "declared unserved"]
    for one in result.undecided:
        assert one.check == "gap"
        assert one.reason.startswith("unserved was not lifted: ")
        assert "heads" in one.reason
    everything = ask(Selector(DecodeCall, [Candidate("all", lambda call: None)], unserved=strange))
    assert [one.subject for one in everything.undecided] == ["declared unserved"], "no gap, whatever is declared"


def test_whether_a_rule_that_is_not_lifted_serves_what_is_declared_is_undecided() -> None:
    def unserved(call: GemmCall) -> str | None:
        return "sm_80 is not wanted" if call.arch == 80 else None

    here = Candidate("strange", lambda call: None if len(range(call.m)) else "m is 0", supported_archs=[80])
    rest = Candidate("rest", lambda call: None, supported_archs=[86, 89, 90, 100, 120])
    result = ask(Selector(GemmCall, [here, rest], unserved=unserved))
    assert [(one.subject, one.keys) for one in result.undecided] == [("declared unserved", ("strange",))]
    elsewhere = Candidate("strange", here.refusal, supported_archs=[90])
    assert ask(Selector(GemmCall, [elsewhere, rest], unserved=unserved)) == Result()


def test_a_question_beyond_the_limits_is_undecided() -> None:
    @dataclass(frozen=True)
    class Wide:
        n: int = 0
        m: int = 0
        k: int = 0
        l: int = 0  # noqa: E741 - a size

    def rule(call: Wide) -> str | None:
        return "odd" if call.n * call.m * call.k * call.l % 1024 == 3 and call.n % 2 == 0 and call.m > 1 else None

    result = ask(Selector(Wide, [Candidate("wide", rule)]))
    assert result.findings == ()
    (one,) = result.undecided
    assert "more than 128" in one.reason


SWITCH: dict[str, str | None] = {"says": None}


def test_a_declaration_is_replayed_as_rules_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SWITCH, "says", "not wanted")
    selector = Selector(DecodeCall, [Candidate("a", lambda call: "no")], unserved=lambda call: SWITCH["says"])
    assert audit(selector, select=["gap"]).findings == ()
    monkeypatch.setitem(SWITCH, "says", None)
    with pytest.raises(InconsistencyError, match="the rule of unserved"):
        audit(selector, select=["overlap"])


@pytest.mark.parametrize("first", [None, "not wanted"])
def test_a_declaration_that_says_otherwise_when_it_is_run_is_our_inconsistency(
    first: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SWITCH, "says", first)
    serving = None if first else "no"
    selector = Selector(DecodeCall, [Candidate("a", lambda call: serving)], unserved=lambda call: SWITCH["says"])
    assert selector.declared_unserved is not None
    monkeypatch.setitem(SWITCH, "says", None if first else "not wanted")
    with pytest.raises(InconsistencyError, match="unserved is proved to give") as caught:
        ask(selector)
    assert caught.value.call == DecodeCall()


def test_a_gap_that_the_real_method_serves_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SWITCH, "says", "no")
    selector = Selector(DecodeCall, [Candidate("a", lambda call: SWITCH["says"])])
    assert selector.rules
    monkeypatch.setitem(SWITCH, "says", None)
    with pytest.raises(InconsistencyError, match="a is proved not to serve"):
        ask(selector)
