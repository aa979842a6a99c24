"""Proofs on file: looked up under the exact question, run again where a call was found, and never a wrong answer."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tileops_rules
import tileops_solver
from tileops_rules import Candidate, Range, Selector, archs, fields
from tileops_rules.domain import Domain, domain_of
from tileops_rules.expr import Expr
from tileops_solver import audit
from tileops_solver import subject as subjects
from tileops_solver.checks import overlap as overlap_check
from tileops_solver.checks.overlap import prove_pairs
from tileops_solver.engine import Outcome
from tileops_solver.proofs import keys, z3_version
from tileops_solver.proofs.shelf import Shelf
from tileops_solver.proofs.store import FOUND, NONE, ProofFile
from tileops_solver.proofs.values import read_values, written_values
from tileops_solver.subject import Subject
from tileops_solver.witness import Witness

from tests.solver.proof_examples import (
    SHOP,
    Call,
    Face,
    answers,
    kind_of,
    order_of,
    random_selector,
    written,
)

# ---------------------------------------------------------------------------------------------------- same answers


@pytest.mark.parametrize("rule_sets", [20, pytest.param(500, marks=pytest.mark.nightly)])
def test_random_rule_sets_have_the_same_answers_with_and_without_a_file(tmp_path: Path, rule_sets: int) -> None:
    draw = random.Random(rule_sets)
    found = recalled = 0
    for number in range(rule_sets):
        selector = random_selector(draw)
        plain, _ = answers(selector, None)
        path = written(tmp_path, functools.partial(answers, selector), f"Op{number}")
        again, subject = answers(selector, ProofFile(str(path), "Op"))
        assert repr(again) == repr(plain)
        assert subject.answered.solver == 0
        recalled += subject.answered.on_file
        found += sum(outcome is Outcome.POSSIBLE for outcome, _ in plain)
    assert found > 2 * rule_sets
    assert recalled > 8 * rule_sets


def test_an_audit_says_the_same_with_everything_on_file(tmp_path: Path) -> None:
    draw = random.Random(5)
    for _ in range(2):
        selector = random_selector(draw)
        kinds = {each.key: kind_of(each) for each in selector.candidates}
        op = type("RandomOp", (), {"kernel_types": kinds, "interfaces": {"face": Face}})
        refreshing = Shelf(read=False, records=True, folder=str(tmp_path))
        plain = audit(op, proofs=refreshing)
        refreshing.write()
        frozen = Shelf(records=True, folder=str(tmp_path))
        again = audit(op, proofs=frozen)
        assert without_answered(again) == without_answered(plain)
        assert again.totals.answered.solver == 0
        assert dict(frozen.missing) == {}
        for path in refreshing.files:
            Path(path).unlink()


def without_answered(report: Any) -> str:
    return repr([dataclasses.replace(each, answered=tileops_solver.findings.Answered()) for each in report.interfaces])


# ------------------------------------------------------------------------------------------------------- exact keys


def served(limit: int = 10, *, base: int = 2, order: str = "xyz", spec: type | None = None) -> Selector:
    """Two disjoint implementations; what can be changed about them is an argument."""
    spec = spec or call_class(base=base, order=order)
    return Selector(
        spec,
        [
            Candidate("low", lambda call: "no" if call.a >= limit else None),
            Candidate("high", lambda call: "no" if call.a < limit or call.kind == "x" else None),
        ],
        interface="face",
    )


def call_class(
    *, base: int = 2, order: str = "xyz", most: int = 60, reverse: bool = False, invalid: Any = None, name: str = "Spec"
) -> type:
    rows: list[Any] = [
        ("a", Annotated[int, Range(0, most)], dataclasses.field(default=base)),
        ("kind", Literal[tuple(order)], dataclasses.field(default=order[0])),
        ("arch", int | None, dataclasses.field(default=None)),
        ("unread", int, dataclasses.field(default=0)),
    ]
    namespace = {} if invalid is None else {"invalid": invalid}
    return dataclasses.make_dataclass(name, rows[::-1] if reverse else rows, frozen=True, namespace=namespace)


def poisoned(path: Path) -> None:
    """Say of every question on file that there is no such call."""
    held = json.loads(path.read_text())
    held["answers"] = [[label, NONE, None, key] for label, _, _, key in held["answers"]]
    path.write_text(json.dumps(held))


def any_low(selector: Selector, path: Path) -> Outcome:
    subject = Subject(selector, proofs=ProofFile(str(path), "Op"))
    return subject.find([subject.lifted["low"]], ("low",)).outcome


CHANGED: dict[str, Callable[[], Selector]] = {
    "a threshold": lambda: served(11),
    "the range of a field": lambda: served(spec=call_class(most=61)),
    "a default": lambda: served(spec=call_class(base=3)),
    "the name of the class": lambda: served(spec=call_class(name="Other")),
    "what is valid": lambda: served(spec=call_class(invalid=lambda self: "odd" if self.a % 2 else None)),
}


@pytest.fixture
def poison(tmp_path: Path) -> Path:
    """A file that says wrongly that nobody serves a call with a below 10."""

    def fill(file: ProofFile) -> None:
        subject = Subject(served(), proofs=file)
        subject.find([subject.lifted["low"]], ("low",))

    path = written(tmp_path, fill)
    poisoned(path)
    return path


def test_a_line_is_believed_under_its_exact_key(poison: Path) -> None:
    assert any_low(served(), poison) is Outcome.IMPOSSIBLE


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_line_is_not_believed_where_anything_was_changed(poison: Path, change: Callable[[], Selector]) -> None:
    assert any_low(change(), poison) is Outcome.POSSIBLE


def test_a_line_is_not_believed_for_another_table_of_archs(poison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(archs.KNOWN_ARCHS, 90, archs.ArchFacts(1, 132, "H100 SXM"))
    assert any_low(served(), poison) is Outcome.POSSIBLE


def test_a_line_is_not_believed_for_another_encoder(poison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "ENCODER", keys.ENCODER + 1)
    assert any_low(served(), poison) is Outcome.POSSIBLE
    head = json.loads(poison.read_text())
    poison.write_text(json.dumps({**head, "encoder": keys.ENCODER}))
    assert any_low(served(), poison) is Outcome.POSSIBLE, "the number is in each key, and not in the head alone"


def test_a_line_is_not_believed_for_another_z3(poison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(z3_version, "installed", lambda likely="": "4.99.0.0")
    assert any_low(served(), poison) is Outcome.POSSIBLE
    head = json.loads(poison.read_text())
    poison.write_text(json.dumps({**head, "z3": "4.99.0.0"}))
    assert any_low(served(), poison) is Outcome.POSSIBLE, "the version is in each key, and not in the head alone"


def test_without_a_z3_the_version_on_file_counts(poison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(z3_version, "installed", lambda likely="": None)
    assert any_low(served(), poison) is Outcome.IMPOSSIBLE


def test_the_order_of_values_and_of_fields_is_part_of_the_key(tmp_path: Path) -> None:
    def key(spec: type, question: Callable[[Any], Any]) -> str | None:
        domain = domain_of(spec)
        return keys.question_key(b"", domain, [question(fields(spec)).expr])

    def asks(c: Any) -> Any:
        return (c.kind != "x") & (c.a > 3)

    found = {
        key(call_class(), asks),
        key(call_class(order="yxz"), asks),
        key(call_class(order="xzy"), asks),
        key(call_class(reverse=True), asks),
        key(call_class(base=4), asks),
    }
    assert len(found) == 5


def test_a_field_that_a_question_does_not_read_takes_no_part(tmp_path: Path) -> None:
    def spec(default: int) -> type:
        rows: list[Any] = [("a", int, dataclasses.field(default=1)), ("rest", int, dataclasses.field(default=default))]
        return dataclasses.make_dataclass("Two", rows, frozen=True)

    def ask(kind: type, file: ProofFile | None) -> Witness:
        c = fields(kind)
        return Subject(Selector(kind, [Candidate("all", lambda call: None)]), proofs=file).find([(c.a > 5).expr])

    path = written(tmp_path, lambda file: ask(spec(0), file))
    other = spec(7)
    again = ask(other, ProofFile(str(path), "Op"))
    assert again.call == ask(other, None).call == other(6, 7)


def test_a_key_is_the_same_on_every_machine_and_version_of_python() -> None:
    domain = domain_of(Call)
    c = fields(Call)
    asked = [(c.a % 3 == 1).expr, (c.kind != "x").expr, (c.ratio < 0.5).expr, (c.arch == 90).expr, (c.name == "p").expr]
    assert keys.question_key(keys.versions_digest("4.15.4.0"), domain, asked)[:16] == "30935e0aa495ca0f"  # type: ignore[index]
    assert keys.order_key(keys.versions_digest("4.15.4.0"), order_of([]))[:16] == "f9cf40f9cac83d8e"  # type: ignore[index]


def test_two_questions_of_the_same_parts_in_other_rows_differ() -> None:
    c, domain = fields(Call), domain_of(Call)
    one, two = (c.a > 3).expr, (c.b > 3).expr
    rows: list[list[Expr]] = [[one, two], [two, one], [one], [two], [one, one], []]
    assert len({keys.question_key(b"", domain, row) for row in rows}) == len(rows)


# ------------------------------------------------------------------------------------------------------- the order


def test_the_order_is_on_file_where_all_unordered_pairs_are_disjoint(tmp_path: Path) -> None:
    path = written(tmp_path, lambda file: prove_pairs(order_of([]), proofs=file))
    file = ProofFile(str(path), "Op")
    assert file.proves_order(order_of([]))
    assert not file.proves_order(order_of(["two"]))
    assert not file.proves_order(order_of([], limit=40))
    assert not file.proves_order(order_of([], general=True))
    assert not ProofFile(str(tmp_path / "None.json"), "Op").proves_order(order_of([]))
    plain, known = prove_pairs(order_of([])), prove_pairs(order_of([]), proofs=file)
    assert known.pairs == plain.pairs == tileops_solver.findings.Pairs(0, 3)


def test_the_pairs_of_an_order_on_file_are_counted_as_they_are(tmp_path: Path) -> None:
    selector = order_of(["two"])
    path = written(tmp_path, lambda file: prove_pairs(selector, proofs=file))
    steps: list[int] = []
    known = prove_pairs(selector, lambda: steps.append(1), proofs=ProofFile(str(path), "Op"))
    assert known.pairs == prove_pairs(selector).pairs
    assert (known.pairs.ordered, known.pairs.disjoint, len(steps)) == (1, 2, 3)


def test_an_order_with_an_overlap_is_not_on_file(tmp_path: Path) -> None:
    overlapping = order_of([], remainder=1)
    path = written(tmp_path, lambda file: prove_pairs(overlapping, proofs=file))
    assert not ProofFile(str(path), "Op").proves_order(overlapping)
    assert [line[0] for line in json.loads(path.read_text())["answers"]] == [
        "face: one & three",
        "face: one & two",
        "face: three & two",
    ]


def test_an_order_on_some_archs_is_not_taken_for_one_on_all(tmp_path: Path) -> None:
    overlapping = Selector(
        Call,
        [
            Candidate("one", lambda call: "no" if call.a % 6 and call.arch == 90 else None),
            Candidate("two", lambda call: "no" if call.a % 3 != 1 and call.arch == 90 else None),
        ],
    )

    def fill(file: ProofFile) -> None:
        assert overlap_check.CHECK.run(Subject(overlapping, archs=[90], proofs=file)).findings == ()

    path = written(tmp_path, fill)
    file = ProofFile(str(path), "Op")
    assert not file.proves_order(overlapping)
    assert len(prove_pairs(overlapping, proofs=file).findings) == 1


def test_an_order_with_a_rule_that_was_not_lifted_is_not_on_file(tmp_path: Path) -> None:
    def random_rule(call: Any) -> str | None:
        return "no" if random.random() < 0.5 else None

    selector = Selector(Call, [Candidate("one", random_rule), Candidate("two", lambda call: None)])
    path = written(tmp_path, lambda file: prove_pairs(selector, proofs=file))
    assert keys.order_key(b"", selector) is None
    assert not ProofFile(str(path), "Op").proves_order(selector)
    assert len(prove_pairs(selector, proofs=ProofFile(str(path), "Op")).undecided) == 1


# -------------------------------------------------------------------------------------------------- calls, run again


@pytest.fixture
def found(tmp_path: Path) -> tuple[Selector, Path]:
    selector = Selector(
        Call,
        [
            Candidate("low", lambda call: "no" if call.a >= 10 or call.kind == "y" or call.ratio < 1.0 else None),
            Candidate("high", lambda call: "no" if call.a < 7 else None),
        ],
        interface="face",
    )
    return selector, written(tmp_path, lambda file: prove_pairs(selector, proofs=file))


def overlap(selector: Selector, path: Path) -> tuple[Any, Any]:
    subject = Subject(selector, proofs=ProofFile(str(path), "Op"))
    witness = subject.find([subject.lifted["high"], subject.lifted["low"]], ("high", "low"))
    return witness.call, subject.answered


def test_a_found_call_is_on_file_as_slot_values(found: tuple[Selector, Path]) -> None:
    selector, path = found
    (line,) = json.loads(path.read_text())["answers"]
    assert line[:3] == [
        "face: high & low",
        FOUND,
        {"a": 7, "kind": "str 'x'", "ratio": "1.0", "arch": "int 80", "device.type": "str 'cuda'"},
    ]
    call, answered = overlap(selector, path)
    assert call == Call(a=7, kind="x", ratio=1.0, arch=80)
    assert (answered.on_file, answered.solver, answered.cheap) == (1, 0, 0)


@pytest.mark.parametrize(
    "values",
    [
        {"a": 6},
        {"a": 10},
        {"a": 61},
        {"a": True},
        {"a": 7.0},
        {"a": "7"},
        {"a": None},
        {"kind": "str 'y'"},
        {"kind": "x"},
        {"ratio": "0.5"},
        {"ratio": "one"},
        {"no_such": 1},
        {"device.type": "str 'cpu'"},
    ],
    ids=str,
)
def test_a_found_call_that_does_not_hold_is_not_believed(found: tuple[Selector, Path], values: dict[str, Any]) -> None:
    selector, path = found
    held = json.loads(path.read_text())
    held["answers"][0][2] |= values
    path.write_text(json.dumps(held))
    call, answered = overlap(selector, path)
    assert call == Call(a=7, kind="x", ratio=1.0, arch=80)
    assert answered.on_file == 0


def test_a_found_call_is_run_through_the_real_methods_again(found: tuple[Selector, Path]) -> None:
    selector, path = found
    object.__setattr__(selector.candidate("low"), "refusal", lambda call: "changed behind the rule's back")
    with pytest.raises(tileops_solver.InconsistencyError):
        overlap(selector, path)


def test_a_found_call_that_its_class_does_not_accept_any_more_is_asked_again(tmp_path: Path) -> None:
    refused: list[int] = []

    def check(self: Any) -> None:
        if self.a in refused:
            raise ValueError(f"a {self.a}")

    spec = dataclasses.make_dataclass(
        "Checked", [("a", int, dataclasses.field(default=0))], frozen=True, namespace={"__post_init__": check}
    )
    selector = Selector(spec, [Candidate("some", lambda call: "no" if call.a < 5 else None)])

    def ask(file: ProofFile) -> Any:
        subject = Subject(selector, proofs=file)
        return subject.find([subject.lifted["some"]], ("some",)).call

    path = written(tmp_path, ask)
    assert ask(ProofFile(str(path), "Op")) == spec(5)
    refused.append(5)
    assert ask(ProofFile(str(path), "Op")).a > 5
    again = ProofFile(str(path), "Op", read=False, records=True)
    ask(again)
    assert again.fresh == {}, "which calls a class rejects is no part of the question"


def test_a_found_call_that_is_not_valid_any_more_is_asked_again(tmp_path: Path) -> None:
    refused: list[int] = []

    def invalid(self: Any) -> str | None:
        return "refused" if hash(self.a) in refused else None  # of a hash, nothing is lifted

    spec = dataclasses.make_dataclass(
        "Asked", [("a", int, dataclasses.field(default=0))], frozen=True, namespace={"invalid": invalid}
    )
    selector = Selector(spec, [Candidate("some", lambda call: "no" if call.a < 5 else None)])

    def ask(file: ProofFile) -> Any:
        subject = Subject(selector, proofs=file)
        return subject.find([subject.lifted["some"]], ("some",)).call

    path = written(tmp_path, ask)
    assert ask(ProofFile(str(path), "Op")) == spec(5)
    refused.append(5)
    assert ask(ProofFile(str(path), "Op")).a > 5


SLOTS: list[tuple[Any, Any, list[Any]]] = [
    (int, 0, [0, 1, 2**40]),
    (float, 0.0, [0.0, -0.0, 1e-300, 0.1, math.inf, -math.inf, math.nan]),
    (str, "", ["", "a b", "\n", "ü"]),
    (bool, False, [True, False]),
    (Literal[1, "1", None], 1, [1, "1", None]),
    (float | None, None, [None, 1.5]),
    (tuple[int, ...], (), [(), (1, 2)]),
]


@pytest.mark.parametrize(("hint", "default", "values"), SLOTS, ids=lambda each: str(each))
def test_slot_values_come_back_from_a_file_exactly(hint: Any, default: Any, values: list[Any]) -> None:
    spec = dataclasses.make_dataclass("One", [("n", hint, dataclasses.field(default=default))], frozen=True)
    domain: Domain = domain_of(spec)
    for value in values:
        slots = domain.read(spec(value))
        text = json.dumps(written_values(slots, domain))
        back = read_values(json.loads(text), domain)
        assert back is not None
        assert sorted(map(repr, back.items())) == sorted(map(repr, slots.items()))
        assert repr(domain.build(back)) == repr(spec(value))


# --------------------------------------------------------------------------------------------------- what is not kept


def test_what_was_not_decided_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "smallest_call", lambda *_: Witness(Outcome.UNKNOWN, reason="too hard"))
    file = ProofFile(str(tmp_path / "Op.json"), "Op", read=False, records=True)
    proof = prove_pairs(order_of([]), proofs=file)
    assert len(proof.undecided) == 3
    assert file.fresh == {}
    assert not file.write()
    assert not (tmp_path / "Op.json").exists()


class Opaque:
    """Two of these are never known to be one."""


def test_a_question_about_values_without_spelling_is_asked_each_time(tmp_path: Path) -> None:
    one, two = Opaque(), Opaque()
    spec = dataclasses.make_dataclass(
        "Odd", [("n", Annotated[Any, tileops_rules.OneOf(one, two)], dataclasses.field(default=one))], frozen=True
    )
    selector = Selector(spec, [Candidate("some", lambda call: "no" if call.n is one else None)])
    file = ProofFile(str(tmp_path / "Op.json"), "Op", read=False, records=True)
    subject = Subject(selector, proofs=file)
    assert subject.find([subject.lifted["some"]]).call.n is two
    assert file.fresh == {}


def test_a_replay_is_on_file_until_the_code_changes(
    op_module: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[str] = []
    plain = tileops_rules.Rule.replay

    def counted(rule: Any, count: int, seed: int = 0) -> Any:
        if count >= 2_000:
            replayed.append(rule.original.__qualname__)
        return plain(rule, count, seed)

    monkeypatch.setattr(tileops_rules.Rule, "replay", counted)
    source = SHOP.replace("LIMIT = 10", "LIMIT = 20")
    op_module(replayed_shop=source)
    module = importlib.import_module("replayed_shop")
    refreshing = Shelf(read=False, records=True, folder=str(tmp_path))
    audit(module, proofs=refreshing)
    refreshing.write()
    assert sorted(replayed) == ["Large.refusal", "ShopCall.invalid", "Small.refusal"]
    replayed.clear()
    audit(module, proofs=Shelf(folder=str(tmp_path)))
    assert replayed == []
    module.LIMIT = 21
    audit(module, proofs=Shelf(folder=str(tmp_path)))
    assert sorted(replayed) == ["Large.refusal", "Small.refusal"]
