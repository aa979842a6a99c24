"""The parts of proofs on file one by one: labels, keys, values, the way to a line and back, the shelf, z3's version."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tileops_rules import Candidate, Range, Selector, fields, lift
from tileops_rules import expr as ex
from tileops_rules.domain import domain_of
from tileops_rules.expr import FALSE, TRUE, Expr, conjunction, disjunction, negation
from tileops_solver.answer import Answer, InconsistencyError, Verdict
from tileops_solver.engine import Outcome
from tileops_solver.proofs import keys, z3_version
from tileops_solver.proofs.labels import label_of
from tileops_solver.proofs.memory import Memory
from tileops_solver.proofs.replays import Replays
from tileops_solver.proofs.shelf import Shelf
from tileops_solver.proofs.store import FOUND, NONE, REPLAYED, ProofFile
from tileops_solver.proofs.values import read_values, written_values
from tileops_solver.witness import Witness

from tests.solver.proof_examples import Call as Shared

Z3 = metadata.version("z3-solver")


@dataclass(frozen=True)
class Call:
    a: Annotated[int, Range(0, 60)] = 2
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    kind: Literal["x", "y"] = "x"
    ratio: float = 0.5


DOMAIN = domain_of(Call)
C = fields(Call)


def accepts(call: Any) -> str | None:
    return None


def confirms(call: Any) -> None:
    return None


# ----------------------------------------------------------------------------------------------------------- labels

ONE, TWO = (C.a <= 3).expr, (C.b <= 3).expr
MANY = [(C.e <= n).expr for n in range(8)]
NAMES: dict[Expr, str] = {
    **{each: f"n{n}" for n, each in enumerate(MANY)},
    ONE: "one",
    TWO: "two",
    (C.c > 3).expr: "none",
}


def at(*names: str) -> Expr:
    """A question that has no name and reads these fields."""
    total = ex.constant(0)
    for name in names:
        total = ex.add(total, ex.integer((name,)))
    return ex.at_most(total, 5)


@pytest.mark.parametrize(
    ("parts", "label"),
    [
        ([], "about: any call"),
        ([TRUE], "about: any call"),
        ([ONE], "about: one"),
        ([ONE, TRUE, TWO], "about: one & two"),
        ([TWO, ONE], "about: two & one"),
        ([negation(ONE)], "about: not one"),
        ([(C.c <= 3).expr], "about: not none"),
        ([disjunction([ONE, TWO])], "about: (one | two)"),
        ([conjunction([ONE, TWO])], "about: (one & two)"),
        ([disjunction([ONE, negation(TWO)])], "about: (one | not two)"),
        ([conjunction([ONE, negation(TWO)]), TWO], "about: (one & not two) & two"),
        ([disjunction([ONE, (C.d == 5).expr])], "about: some a, d"),
        ([disjunction([ONE, negation((C.d == 5).expr)])], "about: (one | some d)"),
        ([at("d", "b")], "about: some b, d"),
        ([at("g", "f", "e", "d", "c", "b")], "about: some b, c, d, e, f, g"),
        ([at("g", "f", "e", "d", "c", "b", "a")], "about: some a, b, c, d, e, f, 1 more"),
        (MANY[:6], "about: " + " & ".join(f"n{n}" for n in range(6))),
        (MANY, "about: " + " & ".join(f"n{n}" for n in range(6)) + " & 2 more"),
        ([disjunction(MANY)], "about: (n0 | n1 | n2 | n3 | n4 | n5 | 2 more)"),
    ],
)
def test_a_label_says_what_was_asked(parts: list[Expr], label: str) -> None:
    assert label_of("about", parts, NAMES, DOMAIN) == label


# ------------------------------------------------------------------------------------------------------------- keys


def test_the_key_of_the_nearest_call_is_that_of_the_call_the_question_and_the_domain() -> None:
    versions = keys.versions_digest("4.15.4.0")
    parts = [(C.a % 3 == 1).expr, (C.kind != "x").expr]

    def key(call: Any = Call(a=7), parts: Any = parts, versions: bytes = versions, spec: type = Call) -> str | None:
        return keys.near_key(versions, domain_of(spec), parts, call)

    other = type("Call", (Call,), {})
    ranged = dataclass(frozen=True)(
        type("Call", (Call,), {"__annotations__": {"b": Annotated[int, Range(0, 5)]}, "b": 0})
    )
    found = [
        key(),
        key(Call(a=8)),
        key(Call(a=7, b=1)),
        key(Call(a=7, ratio=math.nan)),
        key(parts=parts[::-1]),
        key(parts=parts[:1]),
        key(versions=keys.versions_digest("4.15.5.0")),
        key(ranged(a=7), spec=ranged),
    ]
    assert len(set(found)) == len(found)
    assert all(isinstance(each, str) and len(each) == 64 for each in found)
    assert key() == key()
    assert key(other(a=7)) == key(), "a call is its values"
    assert key(Call(a=61)) is None, "it is outside the domain"
    pinned = keys.near_key(versions, domain_of(Shared), [(fields(Shared).a % 3 == 1).expr], Shared(a=7))
    assert pinned is not None
    assert pinned.startswith("1c115dde9a779b9d"), "on every machine and version of Python"


# ----------------------------------------------------------------------------------------------------------- values


def test_values_are_written_by_slot_and_read_back() -> None:
    values = {("a",): 7, ("kind",): "y", ("ratio",): -math.inf}
    held = written_values(values, DOMAIN)
    assert held == {"a": 7, "kind": "str 'y'", "ratio": "-inf"}
    assert list(held) == ["a", "kind", "ratio"]
    assert read_values(held, DOMAIN) == values
    assert read_values({}, DOMAIN) == {}


@pytest.mark.parametrize(
    "held",
    [{"z": 1}, {"kind": "y"}, {"kind": 3}, {"kind": None}, {"ratio": "much"}, {"ratio": None}, {"ratio": [1.0]}],
    ids=str,
)
def test_values_of_no_slot_are_none(held: dict[str, Any]) -> None:
    assert read_values({"a": 7, **held}, DOMAIN) is None


# ----------------------------------------------------------------------------------------------------------- memory


class Shelved(ProofFile):
    """A file whose lines are what was kept."""

    def __init__(self) -> None:
        super().__init__("nowhere/Op.json", "Op", read=False, records=True)
        self._lines = self.fresh


def selector(*rules: Callable[[Any], Any], spec: type = Call) -> Selector:
    rules = rules or (lambda call: None if call.a > 3 else "no",)
    return Selector(spec, [Candidate(f"k{n}", rule) for n, rule in enumerate(rules)], interface="face")


def memory(made: Selector | None = None) -> tuple[Memory, Shelved]:
    file = Shelved()
    return Memory(file, made or selector()), file


PARTS = [(C.a > 3).expr]
FOUND_WITNESS = Witness(Outcome.POSSIBLE, Call(a=4), values={("a",): 4})


def test_an_answer_that_was_kept_is_recalled() -> None:
    kept, file = memory()
    assert kept.records
    assert kept.recall(DOMAIN, PARTS, accepts, confirms) is None
    kept.keep("label", DOMAIN, PARTS, FOUND_WITNESS)
    assert [line[:3] for line in file.fresh.values()] == [("label", FOUND, {"a": 4})]
    assert kept.recall(DOMAIN, PARTS, accepts, confirms) == Witness(Outcome.POSSIBLE, Call(a=4))
    kept.keep("a label", DOMAIN, PARTS, Witness(Outcome.IMPOSSIBLE))
    assert [line[:3] for line in file.fresh.values()] == [("a label", NONE, None)]
    assert kept.recall(DOMAIN, PARTS, accepts, confirms) == Witness(
        Outcome.IMPOSSIBLE, reason="proved before, and on file"
    )


def test_what_is_no_answer_is_not_kept() -> None:
    kept, file = memory()
    kept.keep("label", DOMAIN, [*PARTS, FALSE], Witness(Outcome.IMPOSSIBLE))
    kept.keep("label", DOMAIN, PARTS, Witness(Outcome.UNKNOWN, reason="too hard"))
    kept.keep("label", DOMAIN, PARTS, Witness(Outcome.POSSIBLE, Call(a=4)))
    assert file.fresh == {}
    assert kept.recall(DOMAIN, [*PARTS, FALSE], accepts, confirms) is None


def test_a_replay_is_no_answer_to_a_question() -> None:
    kept, file = memory()
    file.keep("label", REPLAYED, None, keys.question_key(file.versions, DOMAIN, PARTS))
    assert kept.recall(DOMAIN, PARTS, accepts, confirms) is None


def raising(error: Exception) -> Callable[[Any], Any]:
    def confirm(call: Any) -> Any:
        raise error

    return confirm


@pytest.mark.parametrize(
    ("values", "asked", "confirmed"),
    [
        ({("a",): 3}, accepts, confirms),
        ({("a",): 61}, accepts, confirms),
        ({("a",): 4}, lambda call: "refused" if call == Call(a=4) else None, confirms),
        ({("a",): 4}, accepts, raising(InconsistencyError("they differ"))),
        ({("a",): 4}, accepts, raising(ZeroDivisionError("a // 0"))),
    ],
)
def test_a_call_that_does_not_hold_is_as_if_it_were_not_on_file(
    values: dict[Any, Any], asked: Callable[[Any], str | None], confirmed: Callable[[Any], None]
) -> None:
    kept, _ = memory()
    kept.keep("label", DOMAIN, PARTS, Witness(Outcome.POSSIBLE, Call(), values=values))
    assert kept.recall(DOMAIN, PARTS, asked, confirmed) is None


def test_another_error_of_ours_passes_through() -> None:
    kept, _ = memory()
    kept.keep("label", DOMAIN, PARTS, FOUND_WITNESS)
    with pytest.raises(KeyError):
        kept.recall(DOMAIN, PARTS, accepts, raising(KeyError("unforeseen")))


SERVED = (C.a > 3).expr


def test_the_nearest_call_that_was_kept_is_recalled() -> None:
    kept, file = memory()
    assert kept.recall_near(Call(b=1), SERVED, accepts) is None
    kept.keep_near("label", Call(b=1), SERVED, Answer(Verdict.UNDECIDED, reason="too hard"))
    assert file.fresh == {}
    kept.keep_near("label", Call(b=1), SERVED, Answer(Verdict.FOUND, Call(a=4, b=1)))
    ((label, answer, values, _),) = file.fresh.values()
    assert (label, answer) == ("label", FOUND)
    assert values == {
        "a": 4,
        "b": 1,
        **dict.fromkeys("cdefg", 0),
        "kind": "str 'x'",
        "ratio": "0.5",
    }
    assert kept.recall_near(Call(b=1), SERVED, accepts) == Answer(Verdict.FOUND, Call(a=4, b=1))
    assert kept.recall_near(Call(b=2), SERVED, accepts) is None
    assert kept.recall_near(Call(b=1), (C.a > 4).expr, accepts) is None
    assert kept.recall_near(Call(b=1), SERVED, lambda call: "refused") is None
    kept.keep_near("a label", Call(b=1), SERVED, Answer(Verdict.NONE))
    assert kept.recall_near(Call(b=1), SERVED, accepts) == Answer(Verdict.NONE, reason="proved before, and on file")


@dataclass(frozen=True)
class Checked(Call):
    def __post_init__(self) -> None:
        return None


@dataclass(frozen=True)
class Odd(Call):
    def invalid(self) -> str | None:
        return "odd" if hash(self.a) % 2 else None  # of a hash, nothing is lifted


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (selector(), True),
        (selector(lambda call: None if len(range(call.a)) else "no"), False),
        (selector(lambda call: None, lambda call: None if len(range(call.a)) else "no"), False),
        (selector(spec=Checked), False),
        (selector(spec=Odd), False),
    ],
)
def test_the_nearest_call_is_kept_where_all_that_decides_is_lifted(made: Selector, kept: bool) -> None:
    shelved, file = memory(made)
    shelved.keep_near("label", made.spec(b=1), SERVED, Answer(Verdict.NONE))
    assert bool(file.fresh) is kept
    assert (shelved.recall_near(made.spec(b=1), SERVED, accepts) is not None) is kept


def test_an_order_is_kept_under_its_number_of_implementations() -> None:
    kept, file = memory(selector(lambda call: None if call.a > 3 else "no", lambda call: None if call.a < 3 else "no"))
    assert not kept.recall_order()
    kept.keep_order()
    assert [line[:3] for line in file.fresh.values()] == [("face order: no two of 2 serve one call", NONE, None)]
    assert kept.recall_order()


# ---------------------------------------------------------------------------------------------------------- replays


def test_a_replay_that_has_no_key_is_made_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = lift(lambda call: None if call.a > 3 else "no", Call)
    file = Shelved()
    replays = Replays(file, "face", Call)
    assert not replays.known(rule, 10, 1)
    replays.keep("low", rule, 10, 1)
    assert [line[:3] for line in file.fresh.values()] == [("face replay: low", REPLAYED, None)]
    assert replays.known(rule, 10, 1)
    assert not replays.known(rule, 11, 1)
    assert not replays.known(rule, 10, 2)
    assert not Replays(None, "face", Call).known(rule, 10, 1)
    Replays(None, "face", Call).keep("low", rule, 10, 1)

    def deep(tree: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr("tileops_solver.proofs.replays.tree_digest", deep)
    other = Replays(file, "face", Call)
    file.fresh.clear()
    other.keep("low", rule, 10, 1)
    assert not other.known(rule, 10, 1)
    assert file.fresh == {}


# ------------------------------------------------------------------------------------------------------------ shelf


def test_what_is_missing_is_listed_by_file_and_sorted_without_replays(tmp_path: Path) -> None:
    shelf = Shelf(read=False, records=True, folder=str(tmp_path))
    later, sooner, empty = (shelf.file_of(type(name, (), {})) for name in ("Later", "Alpha", "Empty"))
    assert later is not None
    assert sooner is not None
    assert empty is not None
    later.keep("z", NONE, None, "1")
    later.keep("b", FOUND, {}, "2")
    later.keep("a", REPLAYED, None, "3")
    sooner.keep("c", NONE, None, "1")
    empty.keep("a", REPLAYED, None, "3")
    paths = [str(tmp_path / f"{name}.json") for name in ("Alpha", "Later", "Empty")]
    assert list(shelf.missing.items()) == [(paths[0], ("c",)), (paths[1], ("b", "z"))]
    assert shelf.write() == tuple(sorted(paths))
    assert shelf.write() == ()
    assert shelf.file_of(type("Later", (), {})()) is later
    assert Shelf().file_of(type("Op", (), {"__module__": "no_such_module"})) is None


def test_a_shelf_looks_up_and_remembers_nothing_unless_it_is_told_to(tmp_path: Path) -> None:
    op = type("Op", (), {})
    assert not Shelf(folder=str(tmp_path)).file_of(op)
    recording = Shelf(records=True, folder=str(tmp_path)).file_of(op)
    assert recording is not None
    assert recording.records
    with pytest.raises(ValueError, match="opened to look answers up"):
        recording.write()


# ---------------------------------------------------------------------------------------------------- version of z3


def test_where_no_folder_tells_the_version_the_metadata_do_and_then_z3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    def no_spec(name: str) -> None:
        raise ValueError(f"{name}.__spec__ is None")

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(z3_version.z3_backend, "version", lambda: "of z3")
    monkeypatch.setattr(z3_version.metadata, "version", lambda name: f"of {name}")
    monkeypatch.setattr(z3_version.util, "find_spec", lambda name: name)
    assert z3_version.installed() == "of z3-solver"
    monkeypatch.setattr(z3_version.metadata, "version", missing)
    assert z3_version.installed() == "of z3"
    monkeypatch.setattr(z3_version.metadata, "version", lambda name: f"of {name}")
    monkeypatch.setattr(z3_version.util, "find_spec", no_spec)
    assert z3_version.installed() == "of z3"
    monkeypatch.setattr(z3_version.util, "find_spec", lambda name: None)
    assert z3_version.installed() is None


def test_the_folder_beside_z3_tells_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "z3").mkdir()
    (tmp_path / "z3" / "__init__.py").touch()
    (tmp_path / "z3_solver-4.1.0.dist-info").mkdir()
    (tmp_path / "other-4.0.0.dist-info").mkdir()
    (tmp_path / "z3_solver-4.0.0.data").mkdir()
    monkeypatch.setattr(z3_version, "_otherwise", lambda: "otherwise")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nothing"), str(tmp_path)])
    assert z3_version.installed() == z3_version.installed("4.2.0") == "4.1.0"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [""])
    assert z3_version.installed() == "4.1.0"
    (tmp_path / "z3_solver-4.2.0.dist-info").mkdir()
    assert z3_version.installed() == "otherwise", "two folders tell nothing"
    assert z3_version.installed("4.2.0") == "4.2.0"
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nothing")])
    assert z3_version.installed("4.2.0") == "otherwise"
