"""What every check is given: which calls there are, who answered, what is looked up, and pairs of calls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, OneOf, Predicate, Range, Selector
from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import domain_of
from tileops_rules.expr import TRUE, Expr, at_most, equals, integer, negation
from tileops_solver import audit
from tileops_solver.answer import Answer, InconsistencyError, Verdict
from tileops_solver.engine import Outcome
from tileops_solver.findings import Severity, Undecided
from tileops_solver.proofs.store import ProofFile
from tileops_solver.subject import Subject, platforms_of


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 100)] = 1
    m: Annotated[int, Range(0, 100)] = 0


@dataclass(frozen=True)
class Placed:
    n: Annotated[int, Range(0, 9)] = 1
    device: Optional[str] = None
    arch: Optional[int] = None


@dataclass(frozen=True)
class Facts:
    n: Annotated[int, Range(0, 9)] = 1
    arch: Annotated[int, OneOf(80, 90)] = 80
    smem_budget: int = 0
    sm_count: Optional[int] = None


N = integer(("n",))


def small(call: Any) -> str | None:
    return None if call.n <= 4 else "n is above 4"


def even(call: Any) -> str | None:
    return None if call.n % 2 == 0 else "odd"


def everything(call: Any) -> None:
    return None


def by_the_clock(call: Any) -> str | None:
    return None if len(range(call.n)) > 1 else "not now"


def selector(*candidates: Candidate, spec: type = Call, **about: Any) -> Selector:
    return Selector(spec, candidates, **{"op": "Op", "interface": "job", **about})


# ------------------------------------------------------------------------------------------------ which calls there are


def test_platforms_are_the_archs_and_other_devices_that_calls_can_state() -> None:
    @dataclass(frozen=True)
    class OnlyArch:
        arch: int = 80

    @dataclass(frozen=True)
    class OnlyDevice:
        device: Optional[str] = None

    def named(spec: type, **about: Any) -> list[tuple[str, int | None]]:
        made = selector(Candidate("a", everything, **about), spec=spec)
        return [(each.name, each.arch) for each in platforms_of(made.domain)]

    assert named(Call) == [("", None)]
    assert platforms_of(domain_of(Call))[0].calls is TRUE
    archs = [(f"sm_{arch}", arch) for arch in sorted(KNOWN_ARCHS)]
    assert named(OnlyArch) == archs
    assert named(OnlyArch, supported_archs=[75]) == [("sm_75", 75), *archs]
    assert named(OnlyDevice, devices={"cpu", "cuda"}) == [("cuda", None), ("cpu", None)]
    assert named(Placed, devices={"cpu", "cuda"}) == [*archs, ("cpu", None)]
    assert named(Placed) == archs


def test_every_call_is_on_the_platform_that_it_states_and_on_no_other() -> None:
    made = selector(Candidate("a", everything, devices={"cpu", "cuda"}), spec=Placed)
    calls = {Placed(device="cpu"): "cpu"} | {Placed(device="cuda", arch=arch): f"sm_{arch}" for arch in KNOWN_ARCHS}
    for call, name in calls.items():
        on = [p.name for p in platforms_of(made.domain) if Predicate(made.domain, p.calls)(call)]
        assert on == [name]


def test_where_archs_are_given_only_those_and_other_devices_are_looked_at() -> None:
    made = selector(Candidate("a", everything, devices={"cpu", "cuda"}), spec=Placed)
    subject = Subject(made, archs=[90])
    assert [each.name for each in subject.platforms] == ["sm_90", "cpu"]
    holds = Predicate(made.domain, subject.valid)
    assert [holds(Placed(device="cuda", arch=arch)) for arch in (80, 90)] == [False, True]
    assert Subject(made).valid is made.valid.expr
    assert Subject(selector(Candidate("a", everything)), archs=[90]).valid is TRUE
    assert len(Subject(made).platforms) == 1 + len(KNOWN_ARCHS)


def declaring(arch: Any) -> Selector:
    """A spec that declares its archs, and a rule that serves the known ones."""
    made = {"n": int, "arch": arch}
    spec = dataclass(frozen=True)(type("Declared", (), {"__annotations__": made, "n": 0, "arch": 90}))
    return Selector(spec, [Candidate("known", lambda call: None if call.arch in KNOWN_ARCHS else "unknown")])


@pytest.mark.parametrize(
    ("arch", "added"),
    [
        (Annotated[int, OneOf(90, 103)], {103}),
        (Annotated[Optional[int], OneOf(None, 90, 103)], {103}),
        (Annotated[int, Range(90, 93)], {91, 92, 93}),
        (Optional[Annotated[int, Range(90, 93)]], {91, 92, 93}),
    ],
)
def test_an_arch_that_only_the_spec_declares_is_looked_at_too(arch: Any, added: set[int]) -> None:
    selector = declaring(arch)
    assert {each.arch for each in platforms_of(selector.domain)} == KNOWN_ARCHS.keys() | added
    assert [each.witness.arch for each in audit(selector, select=["gap"]).findings] == sorted(added)
    (gap,) = audit(selector, select=["gap"], archs=[max(added)]).findings
    assert gap.witness == selector.spec(arch=max(added))


@pytest.mark.parametrize(("last", "added"), [(127, set(range(128))), (128, set())])
def test_of_a_wide_range_of_archs_those_that_somebody_names_are_looked_at(last: int, added: set[int]) -> None:
    selector = declaring(Annotated[int, Range(0, last)])
    assert {each.arch for each in platforms_of(selector.domain)} == KNOWN_ARCHS.keys() | added


def test_what_a_subject_is_asked_for_is_kept() -> None:
    one, two = selector(Candidate("a", small)), selector(Candidate("a", small), interface="two")
    subject = Subject(one, independent_of=["n"], changes_within=["m"], siblings=(two, one))
    assert (subject.independent_of, subject.changes_within, subject.siblings) == (("n",), ("m",), (two, one))
    assert subject.archs is None
    assert Subject(one).siblings == (one,)
    assert Subject(one).independent_of == Subject(one).changes_within == ()
    assert (subject.name, Subject(selector(op="")).name) == ("Op.job", "Call")
    Subject(one).step()


def test_beside_is_another_interface_with_the_same_archs_file_and_asking_check(tmp_path: Path) -> None:
    one, two = (selector(Candidate("a", small), spec=Placed, interface=name) for name in ("one", "two"))
    file = ProofFile(str(tmp_path / "Op.json"), "Op", read=False, records=True)
    subject = Subject(one, siblings=(one, two), archs=[90], proofs=file)
    subject.asking = "edges"
    other = subject.beside(two)
    assert (other.selector, other.siblings, other.archs, other.asking) == (two, (one, two), frozenset({90}), "edges")
    other.find([at_most(N, 3)])
    assert [line[0] for line in file.fresh.values()] == ["two edges: some n"]


def test_who_serves_what_is_read_off_the_rules() -> None:
    made = selector(
        Candidate("a", small, preferred_over={"b"}),
        Candidate("b", even),
        Candidate("clock", by_the_clock, preferred_over={"a"}),
        Candidate("rest", everything, general=True),
    )
    subject = Subject(made)
    assert set(subject.lifted) == {"a", "b", "rest"}
    assert subject.unlifted == ("clock",)
    assert subject.better("b") == ("a", "clock")
    assert (subject.better("clock"), subject.better("a")) == ((), ("clock",))
    assert subject.better("rest") == ("a", "b", "clock")
    chosen = {key: Predicate(made.domain, subject.chosen(key)) for key in subject.lifted}
    for n in range(9):
        call = Call(n=n)
        assert chosen["a"](call) is (n <= 4)
        assert chosen["b"](call) is (n > 4 and n % 2 == 0)
        assert chosen["rest"](call) is (n > 4 and n % 2 == 1)
    assert subject.served is TRUE
    assert subject.causes(["a", "clock"]).startswith("the rule of clock was not lifted: ")
    assert subject.causes(["a"]) == ""


# ------------------------------------------------------------------------------------------------------- who answered


def counted(subject: Subject) -> tuple[int, int, int]:
    answered = subject.answered
    return answered.cheap, answered.on_file, answered.solver


def test_answers_are_counted_by_who_gave_them() -> None:
    subject = Subject(selector(Candidate("a", small)))
    assert counted(subject) == (0, 0, 0)
    subject.settled_cheaply()
    assert counted(subject) == (1, 0, 0)
    subject.settled_cheaply(3)
    assert counted(subject) == (4, 0, 0)
    contradiction = subject.find([at_most(N, 3), negation(at_most(N, 3))])
    assert counted(subject) == (5, 0, 0)
    assert contradiction.cheap
    assert contradiction.outcome is Outcome.IMPOSSIBLE
    assert contradiction.reason == "two parts of the question contradict each other"
    assert subject.find([at_most(N, 3), negation(at_most(N, 4))]).outcome is Outcome.IMPOSSIBLE
    assert counted(subject) == (6, 0, 0), "intervals alone"
    assert subject.find([equals(N, 3)]).call == Call(n=3)
    assert counted(subject) == (6, 0, 1)
    assert not subject.order_on_file()
    assert counted(subject) == (6, 0, 1)


def test_what_is_on_file_is_looked_up_and_counted_so(tmp_path: Path) -> None:
    path = str(tmp_path / "Op.json")
    made = selector(Candidate("a", small))
    writing = ProofFile(path, "Op", read=False, records=True)
    asked: list[Call] = []

    def nearest(call: Call) -> Answer:
        asked.append(call)
        return Answer(Verdict.FOUND, Call(n=4))

    first = Subject(made, proofs=writing)
    first.asking = "gap"
    first.find([equals(N, 3)])
    assert first.near(Call(n=7), nearest).call == Call(n=4)
    first.keep_order()
    assert counted(first) == (0, 0, 1)
    labels = {line[0] for line in writing.fresh.values()}
    assert {"job gap: nearest to n=7, m=0", "job gap: some n"} < labels
    assert len(labels) == 3
    writing.write()

    again = Subject(made, proofs=ProofFile(path, "Op"))
    assert again.find([equals(N, 3)]).call == Call(n=3)
    assert counted(again) == (0, 1, 0)
    assert again.near(Call(n=7), nearest).call == Call(n=4)
    assert counted(again) == (0, 2, 0)
    assert again.order_on_file()
    assert counted(again) == (0, 3, 0)
    assert asked == [Call(n=7)], "asked once, and looked up after"
    assert again.near(Call(n=8), nearest).call == Call(n=4)
    assert asked == [Call(n=7), Call(n=8)]
    assert counted(again) == (0, 3, 0)


def test_of_some_archs_no_order_is_remembered(tmp_path: Path) -> None:
    file = ProofFile(str(tmp_path / "Op.json"), "Op", read=False, records=True)
    Subject(selector(Candidate("a", small), spec=Placed), archs=[90], proofs=file).keep_order()
    assert not file.fresh
    Subject(selector(Candidate("a", small), spec=Placed), proofs=file).keep_order()
    assert len(file.fresh) == 1


def test_a_nearest_call_from_the_file_is_run_through_the_real_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "Op.json")
    switch = {"on": True}

    def switched(call: Any) -> str | None:
        return None if call.n <= 4 and switch["on"] else "no"

    made = selector(Candidate("a", switched))
    assert made.rules
    writing = ProofFile(path, "Op", read=False, records=True)
    Subject(made, proofs=writing).near(Call(n=7), lambda call: Answer(Verdict.FOUND, Call(n=4)))
    writing.write()
    monkeypatch.setitem(switch, "on", False)
    with pytest.raises(InconsistencyError, match="a is proved to serve a call that it does not serve") as caught:
        Subject(made, proofs=ProofFile(path, "Op")).near(Call(n=7), lambda call: Answer(Verdict.NONE))
    assert caught.value.call == Call(n=4)
    assert caught.value.facts == ("call: Call(n=4, m=0)", "it says: 'no'", f"rule: {Subject(made).lifted['a']}")
    monkeypatch.setitem(switch, "on", True)
    off = selector(Candidate("a", lambda call: "no" if switch["on"] else None))
    assert off.rules
    monkeypatch.setitem(switch, "on", False)
    with pytest.raises(InconsistencyError, match="a is proved not to serve a call that it serves when it is run"):
        Subject(off).confirm(Call(), ["a", "no such key"])


def test_the_labels_on_file_name_claims_platforms_and_choices(tmp_path: Path) -> None:
    def unserved(call: Any) -> str | None:
        return "nobody has eight" if call.n == 8 else None

    file = ProofFile(str(tmp_path / "Op.json"), "Op", read=False, records=True)
    made = selector(
        Candidate("a", small, preferred_over={"b"}, supported_archs=[90]),
        Candidate("b", even),
        spec=Facts,
        unserved=unserved,
    )
    subject = Subject(made, proofs=file)
    subject.asking = "gap"
    declared = made.declared_unserved
    assert declared is not None
    platform = next(p for p in subject.platforms if p.name == "sm_80")
    asked: dict[str, list[Expr]] = {
        "a": [subject.lifted["a"]],
        "b": [subject.lifted["b"]],
        "b chosen": [subject.chosen("b")],
        "not served": [negation(subject.served)],
        "undeclared": [declared.serves.expr],
        "not undeclared & b": [negation(declared.serves.expr), subject.lifted["b"]],
        "sm_80 & some n": [platform.calls, at_most(N, 3)],
        "where a can run": [subject.available("a")],
        "any call": [],
    }
    for label, parts in asked.items():
        file.fresh.clear()
        subject.find(parts)
        assert [line[0] for line in file.fresh.values()] == [f"job gap: {label}"]


def test_a_declaration_that_raises_on_some_calls_is_named_too(tmp_path: Path) -> None:
    def unserved(call: Any) -> str | None:
        if call.n == 9:
            raise ValueError("nine")
        return "nobody has eight" if call.n == 8 else None

    file = ProofFile(str(tmp_path / "Op.json"), "Op", read=False, records=True)
    made = selector(Candidate("a", small), unserved=unserved)
    declared = made.declared_unserved
    assert declared is not None
    Subject(made, proofs=file).find([negation((declared.serves | declared.raises).expr)])
    assert [line[0] for line in file.fresh.values()] == ["job: not undeclared"]


def test_findings_and_open_questions_are_made_with_the_interfaces_name() -> None:
    subject = Subject(selector(Candidate("a", small)))
    line = small.__code__.co_firstlineno
    finding = subject.finding("gap", Severity.NOTE, ["a"], "is wrong", witness=Call(), subject="n", edit="it")
    assert finding.message == "Op.job: is wrong"
    assert (finding.kind, finding.severity, finding.keys) == ("gap", Severity.NOTE, ("a",))
    assert (finding.op, finding.interface, finding.witness) == ("Op", "job", Call())
    assert finding.places == (f"test_subject.py:{line}",)
    assert (finding.subject, finding.edit, finding.facts) == ("n", "it", {})
    bare = subject.finding("gap", Severity.NOTE, ["a"], "x", places=["f.py:1"], facts={"k": 1})
    assert (bare.places, bare.facts, bare.subject, bare.edit, bare.witness) == (("f.py:1",), {"k": 1}, "", "", None)
    assert subject.undecided("gap", ["a"], "why", "n") == Undecided(("a",), "why", "gap", "n")
    assert subject.undecided("gap", [], "why").subject == ""
