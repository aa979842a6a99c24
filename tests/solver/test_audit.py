"""``audit``: what it takes, what it counts, and the report."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tileops_rules import Candidate, Rule, Selector
from tileops_solver import InconsistencyError, Report, TargetError, audit
from tileops_solver.checks.replays import CALLS
from tileops_solver.report.json import as_data, as_json
from tileops_solver.report.text import as_text

SPEC = """
from dataclasses import dataclass
from typing import Annotated
from tileops_rules import Range

@dataclass(frozen=True)
class Call:
    n: int = 1
    m: Annotated[int, Range(0, 100)] = 1
    dtype: str = "f16"

class Face:
    request = Call

class Small(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.n < 64 else f"n {call.n} is not below 64"

class Large(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.n >= 64 else f"n {call.n} is below 64"

class Half(Face):
    @classmethod
    def refusal(cls, call):
        return None if call.dtype == "f16" else f"{call.dtype} is not f16"

class Rest(Face):
    general = True

class Strange(Face):
    @classmethod
    def refusal(cls, call):
        return None if len(range(call.n)) else "nothing"
"""
CLEAN = (
    SPEC
    + """
class CleanOp:
    kernel_types = {"small": Small, "large": Large, "rest": Rest}
    interfaces = {"face": Face}
"""
)
CLASHING = (
    SPEC
    + """
class ClashingOp:
    kernel_types = {"large": Large, "half": Half, "rest": Rest, "small": Small}
    interfaces = {"face": Face}
"""
)
UNPROVED = (
    SPEC
    + """
class UnprovedOp:
    kernel_types = {"small": Small, "large": Large, "strange": Strange}
    interfaces = {"face": Face}
"""
)


@pytest.fixture
def module(op_module: Callable[..., Path]) -> Callable[..., Any]:
    def make(source: str, name: str = "audited_ops") -> Any:
        op_module(**{name: source})
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return make


def overlaps(target: Any) -> Report:
    """An audit that asks the first question alone; what is tested here is what stands around the questions."""
    return audit(target, select=["overlap"])


def only(report: Report) -> Any:
    (each,) = report.interfaces
    return each


def test_a_clean_op_is_proved(module: Callable[..., Any]) -> None:
    each = only(overlaps(module(CLEAN).CleanOp))
    assert (each.op, each.interface) == ("CleanOp", "face")
    assert each.implementations == ("large", "rest", "small")
    assert each.pairs == {"ordered": 0, "disjoint": 1, "overlapping": 0, "undecided": 0}
    assert each.findings == ()
    assert each.not_lifted == ()


def test_assumed_domains_are_listed_and_declared_ones_are_not(module: Callable[..., Any]) -> None:
    each = only(overlaps(module(CLEAN).CleanOp))
    assert [line.split(":")[0] for line in each.assumed_domains] == ["n", "dtype"]


def test_findings_are_flat_and_carry_the_call(module: Callable[..., Any]) -> None:
    ops = module(CLASHING)
    report = overlaps(ops)
    assert [f.keys for f in report.findings] == [("half", "large"), ("half", "small")]
    assert [f.witness for f in report.findings] == [ops.Call(n=64), ops.Call(n=1)]
    assert report.totals.overlapping == report.totals["overlapping"] == report.totals.pairs.overlapping == 2
    assert report.totals.disjoint == 1
    assert report.findings[0].places[0].startswith("audited_ops.py:")


def test_a_rule_that_is_not_lifted_is_listed_and_counted(module: Callable[..., Any]) -> None:
    report = overlaps(module(UNPROVED))
    each = only(report)
    (rule,) = each.not_lifted
    assert rule.key == "strange"
    assert rule.place.startswith("audited_ops.py:")
    assert "n" in rule.cause
    assert each.pairs == {"ordered": 0, "disjoint": 1, "overlapping": 0, "undecided": 2}
    assert report.totals.not_proved == 3
    assert as_text(report).splitlines()[-1] == "not proved: 3"


def test_an_invalid_that_is_not_lifted_counts_as_not_proved() -> None:
    @dataclass(frozen=True)
    class Opaque:
        n: int = 0

        def invalid(self) -> str | None:
            return None if len(range(self.n)) else "nothing"

    def refusal(call: Any) -> None:
        return None

    report = overlaps(Selector(Opaque, [Candidate("a", refusal)], op="Op", interface="i"))
    assert [rule.key for rule in only(report).not_lifted] == ["Opaque.invalid"]
    assert report.totals.not_proved == 1


@dataclass(frozen=True)
class Number:
    n: int = 0


def test_a_selector_by_hand_is_audited() -> None:
    def low(call: Number) -> str | None:
        return None if call.n < 9 else "high"

    def high(call: Number) -> str | None:
        return None if call.n > 7 else "low"

    chosen = Selector(Number, [Candidate("low", low), Candidate("high", high)])
    assert only(overlaps(chosen)).findings[0].witness == Number(8)


def test_a_module_is_walked_with_its_sub_modules(op_module: Callable[..., Path]) -> None:
    op_module(
        {
            "tree.one": CLEAN,
            "tree.deep.two": CLASHING,
            "tree.deep.three": "from tree.one import CleanOp as Again\nfrom tree.deep.two import ClashingOp",
            "tree.deep.empty": "class EmptyOp:\n    kernel_types = {}\n    interfaces = {}\n",
            "tree.deep.__main__": "raise SystemExit('a main module was run')",
        }
    )
    report = audit(importlib.import_module("tree"))
    assert [each.op for each in report.interfaces] == ["ClashingOp", "CleanOp"]
    line = 1 + CLASHING.splitlines().index("class Half(Face):")
    assert report.findings[0].places[0] == f"tree/deep/two.py:{line}"


def test_an_op_object_is_audited_with_the_kernels_that_it_has(module: Callable[..., Any]) -> None:
    ops = module(CLEAN)
    op = ops.CleanOp()
    op.kernel_types = {**op.kernel_types, "half": ops.Half}
    report = overlaps(op)
    assert only(report).op == "CleanOp"
    assert [f.keys for f in report.findings] == [("half", "large"), ("half", "small")]


def test_a_class_without_source_is_placed_where_its_refusal_stands(module: Callable[..., Any]) -> None:
    ops = module(SPEC + TABLES % '"a": Small, "made": variant(Half)')
    (found,) = overlaps(ops).findings
    assert found.keys == ("a", "made")
    assert found.places[1] == "audited_ops.py:26"


def test_several_targets_are_one_report_and_each_class_is_in_it_once(module: Callable[..., Any]) -> None:
    ops = module(CLEAN)
    assert [each.op for each in audit([ops, ops.CleanOp]).interfaces] == ["CleanOp"]


@pytest.mark.parametrize("target", [3, "tileops.ops", object, SimpleNamespace(kernel_types={})])
def test_what_cannot_be_audited_is_refused(target: Any) -> None:
    with pytest.raises(TargetError):
        audit(target)


def test_a_sub_module_that_does_not_import_is_an_error_with_its_name(op_module: Callable[..., Path]) -> None:
    op_module({"broken_tree.one": CLEAN, "broken_tree.two": "import no_such_module_anywhere"})
    with pytest.raises(TargetError, match=r"broken_tree\.two cannot be imported: ModuleNotFoundError"):
        audit(importlib.import_module("broken_tree"))


TABLES = """
def variant(base, **members):
    return type(base.__name__ + "Variant", (base,), members)

class OneOp:
    kernel_types = {%s}
    interfaces = {"face": Face}
"""


@pytest.mark.parametrize(
    ("table", "kind", "keys", "text"),
    [
        (
            '"a": variant(Small, preferred_over={"b"}), "b": variant(Half, preferred_over={"a"})',
            "cycle",
            ("a", "b"),
            "preferences form a cycle through a, b",
        ),
        ('"a": Rest, "b": variant(Rest)', "general", ("a", "b"), "has more than one general implementation"),
        ('"Bad": Small', "key", ("Bad",), "is not snake_case"),
        ('"a": variant(Small, preferred_over=frozenset({"a"}))', "preference", ("a",), "prefers itself"),
        (
            '"a": variant(Small, preferred_over=frozenset({"z"}))',
            "preference",
            ("a",),
            "prefers z, which is no sibling",
        ),
    ],
)
def test_a_table_that_no_op_could_have_is_a_finding(
    module: Callable[..., Any], table: str, kind: str, keys: tuple[str, ...], text: str
) -> None:
    ops = module(
        SPEC + TABLES % table + "class ZOp:\n    kernel_types = {'s': Small}\n    interfaces = {'face': Face}\n"
    )
    report = overlaps(ops)
    assert [each.op for each in report.interfaces] == ["OneOp", "ZOp"]
    (found,) = report.findings
    assert (found.kind, found.keys, found.witness) == (kind, keys, None)
    assert text in found.message
    assert len(found.places) == len(keys)
    assert report.interfaces[0].pairs.undecided == (1 if kind == "cycle" else 0)


def test_two_circles_are_two_findings(module: Callable[..., Any]) -> None:
    def prefers(key: str, other: str) -> str:
        return f'"{key}": variant(Small, preferred_over=frozenset({{"{other}"}}))'

    table = ", ".join(prefers(*pair) for pair in ["ab", "ba", "cd", "dc"])
    assert [f.keys for f in overlaps(module(SPEC + TABLES % table)).findings] == [("a", "b"), ("c", "d")]


def test_every_rule_is_replayed_on_two_thousand_calls(
    module: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: dict[str, int] = {}
    replay = Rule.replay

    def counting(self: Rule, count: int, seed: int = 0) -> Any:
        name = self.original.__qualname__
        counted[name] = max(counted.get(name, 0), count)
        return replay(self, count, seed)

    monkeypatch.setattr(Rule, "replay", counting)
    audit(module(CLEAN))
    assert CALLS >= 2000
    assert {name: n for name, n in counted.items() if "Small" in name or "Large" in name} == {
        "Small.refusal": CALLS,
        "Large.refusal": CALLS,
    }


LIMIT = {"most": 64}


def test_a_rule_that_differs_from_its_function_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(call: Number) -> str | None:
        return None if call.n < LIMIT["most"] else "large"

    chosen = Selector(Number, [Candidate("a", refusal)], op="Op")
    assert chosen.rules
    monkeypatch.setitem(LIMIT, "most", 1)
    with pytest.raises(InconsistencyError, match="the rule of a") as caught:
        audit(chosen)
    assert isinstance(caught.value.call, Number)


def test_progress_counts_up_to_its_total(module: Callable[..., Any]) -> None:
    told: list[tuple[int, int, str]] = []
    audit(module(CLASHING), progress=lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(1, len(told) + 1))
    assert {total for _, total, _ in told} == {len(told)}
    assert {label for _, _, label in told} == {"ClashingOp.face"}


def test_the_json_has_exactly_its_fields(module: Callable[..., Any]) -> None:
    data = as_data(overlaps(module(CLASHING + UNPROVED.removeprefix(SPEC))))
    assert json.loads(json.dumps(data)) == data
    assert set(data) == {"interfaces", "totals"}
    for each in data["interfaces"]:
        assert list(each) == [
            "op",
            "interface",
            "implementations",
            "pairs",
            "not_lifted",
            "findings",
            "assumed_domains",
            "undecided",
            "answered",
            "facts",
            "allowed",
        ]
        assert list(each["pairs"]) == ["ordered", "disjoint", "overlapping", "undecided"]
        fields = ["id", "severity", "kind", "keys", "witness", "message", "places", "subject", "edit", "facts"]
        assert all(list(f) == fields for f in each["findings"])
        assert all(list(r) == ["key", "place", "cause"] for r in each["not_lifted"])
    clashing, unproved = data["interfaces"]
    assert clashing["findings"][0]["witness"] == {"n": 64, "m": 1, "dtype": "f16"}
    totals = data["totals"]
    for state in clashing["pairs"]:
        assert totals["pairs"][state] == totals[state] == clashing["pairs"][state] + unproved["pairs"][state]
    assert (totals["findings"], totals["not_lifted"], totals["not_proved"]) == (2, 1, 3)
    assert totals["implementations"] == 7


DETERMINISM = """
import random, sys
sys.path.append(sys.argv[2])
import det_ops
from tileops_solver import audit
from tileops_solver.report.json import as_json
from tileops_solver.report.text import as_text
seed = int(sys.argv[1])
for kind in (det_ops.ClashingOp, det_ops.UnprovedOp):
    items = list(kind.kernel_types.items())
    random.Random(seed).shuffle(items)
    kind.kernel_types = dict(items)
if seed % 2:
    report = audit([det_ops.UnprovedOp, det_ops.ClashingOp])
else:
    report = audit(det_ops)
print(as_text(report) + as_json(report))
"""


def test_the_report_is_the_same_in_any_process_and_any_order(
    op_module: Callable[..., Path], fresh_python: Callable[..., Any]
) -> None:
    folder = op_module(det_ops=CLASHING + UNPROVED.removeprefix(SPEC))
    texts = set()
    for seed in range(3):
        where = folder if seed else folder.parent
        hashing = {"PYTHONHASHSEED": str(seed * 77 + 1)}
        done = fresh_python("-c", DETERMINISM, str(seed), str(folder), env=hashing, cwd=str(where))
        texts.add(done.stdout)
        assert done.stdout, done.stderr
    assert len(texts) == 1


def test_json_text_ends_in_a_line_break_and_takes_any_value() -> None:
    @dataclass(frozen=True)
    class Odd:
        x: float = 0.0
        shape: tuple[int, ...] = (1, 2)

    def refusal(call: Odd) -> str | None:
        return None if call.x == float("inf") else "finite"

    report = audit(Selector(Odd, [Candidate("a", refusal), Candidate("b", refusal)]))
    text = as_json(report)
    assert text.endswith("}\n")
    assert json.loads(text)["interfaces"][0]["findings"][0]["witness"] == {"x": "inf", "shape": [1, 2]}


def test_a_key_whose_class_implements_no_interface_is_a_finding() -> None:
    @dataclass(frozen=True)
    class Call:
        n: int = 1

    class Face:
        request = Call

    class Inside(Face):
        pass

    class Stray:
        pass

    op = type("StrayOp", (), {"kernel_types": {"inside": Inside, "stray": Stray}, "interfaces": {"stray": Face}})
    report = audit(op)
    assert [finding.kind for finding in report.findings] == ["contract"]
    assert "stray: these keys implement none of its kernel interfaces" in report.findings[0].message


def test_a_rule_that_differs_from_its_function_is_an_inconsistency() -> None:
    @dataclass(frozen=True)
    class Call:
        n: int = 1

    def identity(call: Call) -> str | None:
        return None if (call.n + 1000) is (call.n + 1000) else "two objects"

    with pytest.raises(InconsistencyError):
        audit(Selector(Call, [Candidate("identity", identity), Candidate("other", lambda call: "never")]))
