"""Which questions an audit asks, what weighs how much, which can be left out, and the numbers of a report."""

from __future__ import annotations

import itertools
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from tileops_solver.checks import dropped, fits, raises
from tileops_solver.checks.asked import Result
from tileops_solver.checks.catalogue import CHECKS, Selection, UnknownCheck
from tileops_solver.checks.edges import _WHY
from tileops_solver.findings import (
    Allowed,
    Answered,
    Finding,
    InterfaceReport,
    Pairs,
    Report,
    Severity,
    Undecided,
    Unlifted,
)

# Of each check, in the order in which they are asked: the weight of each kind, and whether it speaks of all archs.
TABLE: dict[str, tuple[dict[str, str], bool]] = {
    "overlap": ({"overlap": "error"}, False),
    "gap": ({"gap": "warning", "served-gap": "warning"}, False),
    "dead": ({"dead": "warning", "empty": "warning", "killed": "warning"}, False),
    "edges": ({"edge-general": "note", "edge-implied": "warning", "edge-disjoint": "warning"}, True),
    "raises": ({"raises": "error"}, False),
    "fits": ({"fits": "error", "unstated": "note"}, False),
    "dropped-limit": ({"dropped-limit": "error"}, False),
    "equal": ({"equal": "warning"}, True),
    "independence": ({"independence": "error"}, False),
    "unread": ({"unread": "note"}, True),
}
ALWAYS = {"cycle", "preference", "general", "key", "contract"}
KINDS = {kind: check for check, (kinds, _) in TABLE.items() for kind in kinds}


def test_the_catalogue_is_this_table() -> None:
    told = {check.id: ({kind: s.value for kind, s in check.kinds.items()}, check.whole) for check in CHECKS}
    assert told == TABLE
    assert list(told) == list(TABLE)
    assert all(check.asks.endswith("?") for check in CHECKS)
    assert set(_WHY) == set(TABLE["edges"][0])


def test_limits_that_a_check_states_are_these() -> None:
    assert fits.REPLAYS == 256
    assert raises._LONGEST_CONDITION == 100
    assert frozenset({"super", "locals", "vars", "eval", "exec", "sys", "inspect"}) == dropped._REACHES_LOCALS


def finding(kind: str = "gap", severity: Severity = Severity.WARNING, **about: Any) -> Finding:
    return Finding(kind, about.pop("keys", ("a",)), None, "said", ("f.py:1",), severity=severity, **about)


@pytest.mark.parametrize("whole", [True, False])
def test_a_kind_is_kept_by_its_name_or_its_checks_and_dropped_by_either(whole: bool) -> None:
    names = [*TABLE, *(kind for kind in KINDS if kind not in TABLE)]
    choices = [(), *((name,) for name in names), ("edges", "gap"), ("edge-implied", "dead")]
    for select, ignore in itertools.product(choices, choices):
        chosen = Selection(select, ignore, whole=whole)
        kept = {
            kind
            for kind, check in KINDS.items()
            if (not select or kind in select or check in select)
            and not (kind in ignore or check in ignore)
            and (whole or not TABLE[check][1])
        }
        assert chosen.kinds == kept | ALWAYS
        asked = {KINDS[kind] for kind in kept}
        assert [check.id for check in chosen.checks] == [check for check in TABLE if check in asked]
        assert {kind for kind in KINDS if chosen.keeps(finding(kind))} == kept


def test_what_says_why_nothing_can_be_asked_and_what_nobody_knows_is_always_kept() -> None:
    nothing = Selection(["overlap"], ["overlap"])
    assert nothing.checks == ()
    assert nothing.kinds == ALWAYS
    assert all(nothing.keeps(finding(kind)) for kind in [*ALWAYS, "a kind of a plug-in"])


@pytest.mark.parametrize("given", [{"select": ["gaps"]}, {"ignore": ["gap", "gaps"]}])
def test_a_name_that_is_none_is_refused_with_those_that_there_are(given: dict[str, list[str]]) -> None:
    with pytest.raises(UnknownCheck) as caught:
        Selection(**given)
    assert caught.value.name == "gaps"
    assert caught.value.known == tuple(sorted({*TABLE, *KINDS}))
    assert str(caught.value) == (
        f"'gaps' is neither a check nor a kind of finding: there are {', '.join(caught.value.known)}"
    )


def test_a_result_sorts_what_was_said_by_its_kind() -> None:
    one, two, open_point = finding("gap"), finding("dead"), Undecided(("a",), "why")
    result = Result.of(iter([one, "a line", open_point, two]))
    assert (result.findings, result.undecided, result.facts) == ((one, two), (open_point,), ("a line",))
    assert result.pairs is None
    assert Result() == Result((), (), (), None)


# --------------------------------------------------------------------------------------------- findings and numbers


@pytest.mark.parametrize(
    ("about", "name"),
    [
        ({"op": "Op", "interface": "job", "keys": ("a", "b"), "subject": "sm_90"}, "Op.job:gap:a+b:sm_90"),
        ({"op": "Op", "interface": "job", "keys": ("a",)}, "Op.job:gap:a"),
        ({"op": "Op", "interface": "job", "keys": ()}, "Op.job:gap"),
        ({"interface": "job", "keys": (), "subject": "n"}, "job:gap:n"),
        ({"keys": ("a",)}, "gap:a"),
    ],
)
def test_an_id_names_interface_kind_keys_and_subject_as_far_as_there_are(about: dict[str, Any], name: str) -> None:
    assert finding(**about).id == name


def test_errors_and_warnings_fail_an_audit_and_notes_do_not() -> None:
    assert {severity.value: finding(severity=severity).fails for severity in Severity} == {
        "error": True,
        "warning": True,
        "note": False,
    }
    assert Finding("gap", (), None, "", ()).severity is Severity.ERROR
    assert Undecided((), "").check == "overlap"


def test_numbers_are_mappings_of_plain_numbers() -> None:
    assert dict(Answered()) == {"cheap": 0, "on_file": 0, "solver": 0}
    assert dict(Pairs()) == {"ordered": 0, "disjoint": 0, "overlapping": 0, "undecided": 0}
    pairs = Pairs(1, 2, 3, 4)
    assert pairs == {"ordered": 1, "disjoint": 2, "overlapping": 3, "undecided": 4}
    assert (len(pairs), pairs["disjoint"], "disjoint" in pairs, "items" in pairs) == (4, 2, True, False)
    with pytest.raises(KeyError, match="items"):
        pairs["items"]
    with pytest.raises(FrozenInstanceError):
        pairs.ordered = 2  # type: ignore[misc]
    for numbers in (Answered(), pairs, Report(()).totals):
        assert numbers == dict(numbers), "a mapping is equal to any other of the same numbers"
        with pytest.raises(TypeError):
            hash(numbers)


def interface(name: str, *findings: Finding, **about: Any) -> InterfaceReport:
    given: dict[str, Any] = {"implementations": ("a", "b"), "pairs": Pairs(1, 2, 3, 4), "not_lifted": ()}
    given |= {"assumed_domains": ("n is any int",), **about}
    return InterfaceReport("Op", name, findings=findings, **given)


def test_totals_are_sums_over_the_interfaces() -> None:
    error, note = finding("fits", Severity.ERROR), finding("unread", Severity.NOTE, interface="one")
    unlifted = (Unlifted("a", "f.py:1", "why"), Unlifted("b", "f.py:2", "why"))
    one = interface(
        "one", error, finding(), note, not_lifted=unlifted, undecided=(Undecided((), ""),), answered=Answered(1, 2, 3)
    )
    two = interface(
        "two", implementations=("c",), answered=Answered(10, 20, 30), allowed=(Allowed(finding(), "it may"),)
    )
    report = Report((one, two))
    assert report.findings == (error, finding(), note)
    assert dict(report.totals) == {
        "interfaces": 2,
        "implementations": 3,
        "pairs": {"ordered": 2, "disjoint": 4, "overlapping": 6, "undecided": 8},
        "ordered": 2,
        "disjoint": 4,
        "overlapping": 6,
        "undecided": 8,
        "not_lifted": 2,
        "findings": 2,
        "notes": 1,
        "allowed": 1,
        "assumed_domains": 2,
        "not_proved": 3,
        "answered": {"cheap": 11, "on_file": 22, "solver": 33},
    }
    beyond = report.beyond({note.id})
    assert beyond.findings == (error, finding())
    assert [each.interface for each in beyond.interfaces] == ["one", "two"]
    assert beyond.interfaces[0].undecided == one.undecided
    assert interface("three").answered == {"cheap": 0, "on_file": 0, "solver": 0}


# ------------------------------------------------------------------------------ whether a method looks at its class


class Methods:
    limit = 8

    def plain(self, call: Any) -> Any:
        return None if call.n < 8 else "too many"

    def unnamed() -> None:  # type: ignore[misc]
        return None

    def by_name(self, call: Any) -> Any:
        return call.n < self.limit

    def by_super(self, call: Any) -> Any:
        return super().refusal(call)  # type: ignore[misc]

    def by_locals(self, call: Any) -> Any:
        return locals()

    def by_vars(self, call: Any) -> Any:
        return vars()

    def by_eval(self, call: Any) -> Any:
        return eval("self.limit")

    def by_exec(self, call: Any) -> Any:
        exec("self.limit")

    def by_sys(self, call: Any) -> Any:
        return sys._getframe().f_locals  # type: ignore[name-defined]  # noqa: F821

    def by_inspect(self, call: Any) -> Any:
        return inspect.currentframe()  # type: ignore[name-defined]  # noqa: F821

    def from_inside(self, call: Any) -> Any:
        return [one for one in range(3) if (lambda: self.limit)()]

    def by_two_names(self, call: Any) -> Any:
        call, other = self, call
        return call, other

    def dropped(self, call: Any) -> Any:
        del self


def test_a_method_looks_at_its_class_by_name_from_inside_or_by_way_of_its_frame() -> None:
    methods = {name: each for name, each in vars(Methods).items() if callable(each)}
    blind = {name for name, each in methods.items() if not dropped._looks_at_its_class(each)}
    assert blind == {"plain"}


@pytest.mark.parametrize(
    ("kind", "name"), [(KeyError, "KeyError"), (UnknownCheck, "tileops_solver.checks.catalogue.UnknownCheck")]
)
def test_an_exception_is_named_with_its_module_where_it_is_none_of_pythons(kind: type, name: str) -> None:
    assert raises._named(kind) == name


@pytest.mark.parametrize(("length", "shown"), [(99, True), (100, True), (101, False)])
def test_a_condition_of_up_to_100_characters_is_written_out_in_an_edit(length: int, shown: bool) -> None:
    class Text:
        def __str__(self) -> str:
            return "x" * length

    when = "x" * length if shown else "it would throw"
    assert raises._edit(Text(), "return a reason") == f"test for it first, and return a reason where {when}"  # type: ignore[arg-type]
