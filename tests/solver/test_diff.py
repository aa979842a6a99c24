"""What a comparison of two rule sets says: of thresholds, renames, gaps, changed fields, and of what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from click.testing import CliRunner
from tileops_rules import Candidate, Range, Selector
from tileops_solver import InconsistencyError
from tileops_solver.diffing import one_interface
from tileops_solver.diffing.changes import KINDS, Differences
from tileops_solver.diffing.choices import NOBODY
from tileops_solver.diffing.comparing import differences
from tileops_solver.engine import Outcome
from tileops_solver.snapshot import Snapshot, read_snapshot, take_snapshot
from tileops_solver.snapshot_commands import diff_command
from tileops_solver.witness import Witness


def snapshot(*selectors: Selector) -> Snapshot:
    """As another process reads it."""
    return read_snapshot(take_snapshot({(s.op, s.interface): s for s in selectors}).text)


def compared(old: Selector, new: Selector) -> Differences:
    return differences(snapshot(old), snapshot(new), {(new.op, new.interface): new})


@dataclass(frozen=True)
class Call:
    n: Annotated[int, Range(0, 100)] = 1
    m: Annotated[int, Range(0, 100)] = 1
    kind: Literal["x", "y"] = "x"


def selector(spec: type = Call, name: tuple[str, str] = ("Op", "job"), **rules: Any) -> Selector:
    """Key to a refusal, or to one and the candidate's other members."""
    each = {key: rule if isinstance(rule, tuple) else (rule, {}) for key, rule in rules.items()}
    made = [Candidate(key, refusal, **about) for key, (refusal, about) in each.items()]
    return Selector(spec, made, op=name[0], interface=name[1])


def told(found: Differences) -> list[tuple[str, str | None, str | None, str]]:
    return [(each.kind, each.old, each.new, each.region) for each in found.changes]


def narrow(call: Any) -> str | None:
    return None if call.n <= 8 and call.kind == "x" else "wide"


def every(call: Any) -> None:
    return None


GENERAL = (every, {"general": True})


def test_a_threshold_that_moved_by_one_shows_as_that_one_value() -> None:
    def wider(call: Any) -> str | None:
        return None if call.n <= 9 and call.kind == "x" else "wide"

    found = compared(selector(narrow=narrow, rest=GENERAL), selector(narrow=wider, rest=GENERAL))
    assert told(found) == [
        ("widened", "narrow", "narrow", "kind == 'x' & n == 9"),
        ("moved", "rest", "narrow", "kind == 'x' & n == 9"),
    ]
    assert [each.witness for each in found.changes] == [Call(n=9), Call(n=9)]
    assert str(found) == (
        "Op.job\n"
        "  widened: narrow\n    where kind == 'x' & n == 9\n    as in Call(n=9, m=1, kind='x')\n"
        "  moved: rest -> narrow\n    where kind == 'x' & n == 9\n    as in Call(n=9, m=1, kind='x')\n"
        "\n"
        "interfaces: 1, changed: 1\nchanges: 2\nundecided: 0"
    )
    data = json.loads(json.dumps(found.as_json()))
    assert data["totals"] == {"interfaces": 1, "changes": 2, "undecided": 0}
    assert data["interfaces"][0]["changes"][1] == {
        "kind": "moved",
        "old": "rest",
        "new": "narrow",
        "region": "kind == 'x' & n == 9",
        "witness": {"call": "Call(n=9, m=1, kind='x')", "fields": {"n": 9, "m": 1, "kind": "x"}},
    }


def test_a_refactor_shows_as_nothing() -> None:
    number = Annotated[int, Range(0, 100)]
    reordered = make_dataclass("Call", [("kind", Literal["y", "x"], "x"), ("m", number, 1), ("n", number, 1)])

    def rewritten(call: Any) -> str | None:
        for kind in ("y", "z"):
            if call.kind == kind:
                return "other kind"
        if not 2 * call.n - 17 < 0:
            return f"n {call.n} is too much"
        return None

    old, new = selector(narrow=narrow, rest=GENERAL), selector(reordered, rest=GENERAL, narrow=rewritten)
    found = compared(old, new)
    assert told(found) == []
    assert found.same
    assert str(found) == "interfaces: 1, changed: 0\nchanges: 0\nundecided: 0"


def test_what_is_served_and_dead_now_is_said() -> None:
    def short(call: Any) -> str | None:
        return None if call.n <= 3 else "long"

    def shorter(call: Any) -> str | None:
        return None if call.n <= 2 else "long"

    old = selector(short=short, shorter=shorter)
    old = selector(short=short, shorter=(shorter, {"preferred_over": ["short"]}))
    new = selector(short=(short, {"preferred_over": ["shorter"]}), shorter=shorter)
    assert told(compared(old, new)) == [
        ("moved", "shorter", "short", "n <= 2"),
        ("newly dead", "shorter", "shorter", "n <= 2"),
    ]
    gap = told(compared(selector(short=short), selector(short=shorter)))
    assert gap == [("narrowed", "short", "short", "n == 3"), ("newly unserved", "short", NOBODY, "n == 3")]
    back = told(compared(selector(short=shorter), selector(short=short)))
    assert back == [("widened", "short", "short", "n == 3"), ("newly served", NOBODY, "short", "n == 3")]


def test_an_implementation_that_is_new_gone_or_renamed_is_said_so() -> None:
    old = selector(narrow=narrow, rest=GENERAL)
    renamed = compared(old, selector(slim=narrow, rest=GENERAL))
    assert told(renamed) == [("renamed", "narrow", "slim", "")]
    gone = compared(old, selector(rest=GENERAL))
    assert told(gone) == [
        ("removed", "narrow", None, "kind == 'x' & n <= 8"),
        ("moved", "narrow", "rest", "kind == 'x' & n <= 8"),
    ]
    come = compared(selector(rest=GENERAL), old)
    assert [each[:3] for each in told(come)] == [("added", None, "narrow"), ("moved", "rest", "narrow")]


def test_an_interface_that_is_new_gone_or_renamed_is_said_so() -> None:
    one, other = selector(narrow=narrow), selector(name=("Other", "job"), narrow=narrow)
    wide = selector(name=("Wide", "job"), narrow=every)
    assert told(differences(snapshot(one), snapshot(other))) == [("renamed interface", "Op.job", "Other.job", "")]
    assert told(differences(snapshot(one), snapshot(wide))) == [
        ("removed interface", "Op.job", None, ""),
        ("added interface", None, "Wide.job", ""),
    ]
    both = differences(snapshot(one), snapshot(one, wide))
    assert told(both) == [("added interface", None, "Wide.job", "")]
    assert [each.op for each in both.interfaces] == ["Op", "Wide"]


def spec(**hints: Any) -> type:
    return make_dataclass("Call", [(name, hint, default) for name, (hint, default) in hints.items()], frozen=True)


@pytest.mark.parametrize(
    ("old", "new", "region"),
    [
        ((Annotated[int, Range(0, 9)], 1), (Annotated[int, Range(0, 12)], 1), "f >= 10"),
        ((Literal["a", "b"], "a"), (Literal["a", "b", "c"], "a"), "f == 'c'"),
        ((Annotated[int, Range(0, 9)], 1), (Optional[Annotated[int, Range(0, 9)]], 1), "f.type == 'None'"),
        ((Annotated[float, Range(0.0, 1.0)], 0.5), (Annotated[float, Range(0.0, 2.0)], 0.5), "~(f <= 1.0)"),
        ((tuple[int, int], (1, 1)), (tuple[int, int], (1, 1)), None),
        (
            (tuple[Annotated[int, Range(0, 3)], ...], ()),
            (tuple[Annotated[int, Range(0, 3)], ...], (1,) * 9),
            "f.len == 9",
        ),
        ((Union[int, str], 0), (Union[int, str, float], 0), "f.type == 'float'"),
    ],
)
def test_calls_that_only_one_side_has_are_newly_served(old: Any, new: Any, region: str | None) -> None:
    before, now = selector(spec(f=old), rest=GENERAL), selector(spec(f=new), rest=GENERAL)
    there = [each for each in told(compared(before, now)) if each[0] == "newly served"]
    assert there == ([] if region is None else [("newly served", NOBODY, "rest", region)])
    back = [each for each in told(compared(now, before)) if each[0] == "newly unserved"]
    assert back == ([] if region is None else [("newly unserved", "rest", NOBODY, region)])


def test_a_field_of_one_side_changes_nothing_on_the_other() -> None:
    plain, more = spec(n=(Annotated[int, Range(0, 9)], 1)), spec(n=(Annotated[int, Range(0, 9)], 1), rope=(bool, False))

    def short(call: Any) -> str | None:
        return None if call.n <= 3 else "long"

    def unroped(call: Any) -> str | None:
        return "rope" if call.rope else short(call)

    same = compared(selector(plain, short=short), selector(more, short=short))
    assert same.same
    assert same.interfaces[0].notes == ("rope is a new field: the rules of before do not depend on it",)
    assert told(compared(selector(plain, short=short), selector(more, short=unroped))) == [
        ("narrowed", "short", "short", "n <= 3 & rope == True"),
        ("newly unserved", "short", NOBODY, "n <= 3 & rope == True"),
    ]
    gone = compared(selector(more, short=unroped), selector(plain, short=short))
    assert gone.interfaces[0].notes == ("rope is no field any more: the rules of now do not depend on it",)


def test_a_field_of_another_kind_is_not_compared_where_the_old_rules_read_it() -> None:
    def short(call: Any) -> str | None:
        return None if call.f in (1, 2) else "other"

    old, new = spec(f=(Literal[1, 2, 3], 1)), spec(f=(Annotated[int, Range(0, 9)], 1))
    found = compared(selector(old, short=short), selector(new, short=short))
    assert not found.same
    assert found.undecided == 1
    assert "f is of another kind than before" in str(found)
    # Rules that do not read it served calls that cannot be now: never taken for no change.
    unread = compared(selector(old, rest=GENERAL), selector(new, rest=GENERAL))
    assert not unread.same
    assert "whether calls that could hold another value there are served as they were is not known" in str(unread)


def test_declared_gaps_are_compared_too() -> None:
    def declared(most: int) -> Selector:
        def unserved(call: Any) -> str | None:
            return "too long" if call.n > most else None

        return Selector(Call, [Candidate("narrow", narrow)], op="Op", interface="job", unserved=unserved)

    assert told(compared(declared(50), declared(49))) == [("declared unserved", None, None, "n == 50")]
    assert told(compared(declared(49), declared(50))) == [("no longer declared unserved", None, None, "n == 50")]


# ----------------------------------------------------------------------------------- what is not known is no change


def strange(call: Any) -> str | None:
    return None if len(range(call.n)) else "nothing"


def test_a_rule_that_was_not_lifted_is_never_taken_for_unchanged() -> None:
    def wider(call: Any) -> str | None:
        return None if call.n <= 9 and call.kind == "x" else "wide"

    above = {"preferred_over": ["odd"]}
    old = selector(narrow=(narrow, above), odd=strange, rest=GENERAL)
    same = compared(old, old)
    assert told(same) == []
    assert not same.same
    assert same.undecided == 2
    assert "undecided: what odd serves: its rule was not lifted before" in str(same)
    changed = compared(old, selector(narrow=(wider, above), odd=strange, rest=GENERAL))
    assert told(changed) == [("widened", "narrow", "narrow", "kind == 'x' & n == 9")], "who had n == 9 is not known"
    gone = compared(old, selector(odd=strange, rest=GENERAL))
    assert [each[0] for each in told(gone)] == ["removed"], "who has them now is not known"


def test_a_question_that_is_not_decided_is_said_and_is_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(call: Any) -> str | None:
        return None if call.n <= 7 and call.kind == "x" else "wide"

    monkeypatch.setattr(one_interface, "smallest_call", lambda *_: Witness(Outcome.UNKNOWN, reason="on purpose"))
    found = differences(snapshot(selector(narrow=narrow)), snapshot(selector(narrow=other)))
    assert told(found) == []
    assert not found.same
    assert found.interfaces[0].undecided == (
        "widened: narrow: on purpose",
        "narrowed: narrow: on purpose",
        "whether all calls of narrow stay with it: on purpose",
        "whether all calls of (nobody) stay with it: on purpose",
    )


def test_methods_that_choose_otherwise_than_the_recorded_rules_are_an_error_of_ours() -> None:
    def wider(call: Any) -> str | None:
        return None if call.n <= 9 and call.kind == "x" else "wide"

    old, new = selector(narrow=narrow, rest=GENERAL), selector(narrow=wider, rest=GENERAL)
    lying = selector(narrow=narrow, rest=GENERAL)
    with pytest.raises(InconsistencyError, match="methods: rest"):
        differences(snapshot(old), snapshot(new), {("Op", "job"): lying})


def test_a_call_that_its_class_rejects_is_not_shown() -> None:
    @dataclass(frozen=True)
    class Picky:
        n: int = 1

        def __post_init__(self) -> None:
            if len(range(self.n)) % 2 == 0:
                raise ValueError("even")

    Picky.__annotations__["n"] = Annotated[int, Range(0, 9)]
    old = selector(Picky, short=lambda call: None if call.n <= 3 else "long")
    new = selector(Picky, short=lambda call: None if call.n <= 5 else "long")
    found = compared(old, new)
    assert {each.witness for each in found.changes} == {Picky(n=5)}, "4 is in the region, and cannot be built"
    assert "__post_init__ was not lifted" in str(found)
    assert not found.same


def test_of_many_implementations_only_those_near_the_changed_one_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = spec(n=(Annotated[int, Range(0, 10_000)], 1))

    def band(low: int, high: int) -> Callable[[Any], Any]:
        return lambda call: None if low <= call.n <= high else "elsewhere"

    rules: dict[str, Any] = {f"k{i}": band(10 * i, 10 * i + 9) for i in range(60)}
    rules["rest"] = GENERAL
    old = selector(wide, **rules)
    rules["k7"], rules["k8"] = band(70, 80), band(82, 89)
    asked: list[int] = []
    real = one_interface.smallest_call
    monkeypatch.setattr(one_interface, "smallest_call", lambda *given: (asked.append(1), real(*given))[1])
    assert told(compared(old, selector(wide, **rules))) == [
        ("widened", "k7", "k7", "n == 80"),
        ("narrowed", "k8", "k8", "80 <= n <= 81"),
        ("moved", "k8", "k7", "n == 80"),
        ("moved", "k8", "rest", "n == 81"),
    ]
    assert len(asked) < 20


# ------------------------------------------------------------------------------------------------------ the command

OPS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Call:
    n: int = 1

class Face:
    request = Call

class Short(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.n <= LIMIT else "long"

class ShortOp:
    kernel_types = {"short": Short}
    interfaces = {"face": Face}
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(diff_command, list(arguments), catch_exceptions=False)


def test_the_command_says_by_its_exit_code_how_it_ended(
    op_module: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    op_module(diff_old=OPS.replace("LIMIT", "8"), diff_new=OPS.replace("LIMIT", "9"), diff_none="x = 1")
    files = {}
    for name in ("diff_old", "diff_new"):
        files[name] = str(tmp_path / f"{name}.json")
        taken = take_snapshot({("ShortOp", "face"): Selector.of(importlib.import_module(name).ShortOp, "face")})
        Path(files[name]).write_text(taken.text)
    assert run(files["diff_old"], "--target", "diff_old").exit_code == 0
    changed = run(files["diff_old"], "--target", "diff_new")
    assert changed.exit_code == 1
    assert "newly served: (nobody) -> short\n    where n == 9\n    as in Call(n=9)" in changed.output
    as_json = run(files["diff_old"], files["diff_new"], "--format", "json")
    assert as_json.exit_code == 1
    assert [each["kind"] for each in json.loads(as_json.output)["interfaces"][0]["changes"]] == [
        "widened",
        "newly served",
    ]
    assert run(files["diff_old"], "--target", "diff_none").exit_code == 1, "the interface is gone"
    assert run(str(tmp_path / "missing.json"), files["diff_new"]).exit_code == 2
    (tmp_path / "other.json").write_text("{}")
    assert run(str(tmp_path / "other.json"), files["diff_new"]).exit_code == 2
    assert run(files["diff_old"], "--target", "no_such_module").exit_code == 2
    assert run(files["diff_old"], files["diff_new"], "--target", "diff_new").exit_code == 2

    def differ(*given: Any) -> str:
        return "another"

    monkeypatch.setattr(one_interface, "chosen_by_methods", differ)
    assert run(files["diff_old"], "--target", "diff_new").exit_code == 3


def test_every_kind_of_change_has_a_place_in_the_order_and_in_the_help() -> None:
    text = " ".join((diff_command.help or "").split())
    assert [kind for kind in KINDS if kind.split(" interface")[0] not in text] == []
