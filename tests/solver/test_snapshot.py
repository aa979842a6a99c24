"""A snapshot is one text for one set of rules, wherever it is taken, and reads back to rules that answer alike."""

from __future__ import annotations

import enum
import importlib
import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from click.testing import CliRunner
from tileops_rules import Candidate, OneOf, Range, Selector, fields
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr
from tileops_rules.printing import value_text
from tileops_solver import TargetError, Verdict, audit, find_call
from tileops_solver.recorded import Named
from tileops_solver.snapshot import SnapshotError, live_selectors, read_snapshot, take_snapshot
from tileops_solver.snapshot_commands import snapshot_command

from tests.solver.rule_sets import Placed, Plain, Whole, random_selector


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


@dataclass(frozen=True)
class Tile:
    rows: int = 16
    scale: float = 1.0


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: Annotated[int, Range(-8, 8)] = 4
    eps: float = 1e-5
    rate: Annotated[float, Range(0.0, None)] = 0.5
    name: str = "plain"
    mode: Mode = Mode.SAFE
    layout: Literal["nhd", "hnd", 3] = "nhd"
    table: Annotated[Any, OneOf((8, 16), (8, 1), 0.5, None)] = (8, 16)
    window: Optional[int] = None
    either: Union[int, float, None] = None
    shape: tuple[int, ...] = ()
    sizes: tuple[int, ...] = (2, 3)
    pair: tuple[int, float] = (1, 2.0)
    tile: Tile = Tile()
    anything: Any = None
    device: Optional[str] = None
    arch: Optional[int] = None
    sm_count: Optional[int] = None

    def invalid(self) -> str | None:
        return "more rows than n" if self.tile.rows > self.n else None


def first(call: Call) -> str | None:
    if call.mode is not Mode.FAST or call.layout == "hnd" or call.window == 3:
        return "not fast"
    if len(call.shape) == 2 and call.shape[1] % 16:
        return "ragged"
    return None if call.n * call.m <= 100 or call.eps < 1e-3 else "large"


def third(call: Call) -> str | None:
    if call.either is None or call.table == (8, 1) or call.pair[1] > 2.0:
        return "no"
    if isinstance(call.either, float):
        return None if call.either <= 0.25 else "float"
    return None if call.n // call.m > 2 and call.name == "x" else "rest"


def unliftable(call: Call) -> str | None:
    return None if len(range(call.n)) else "nothing"


def nobody(call: Call) -> str | None:
    return "tiles are not for cpu" if call.tile.scale == 2.0 else None


def selector(**changes: Any) -> Selector:
    made = {
        "first": Candidate("first", first, preferred_over=["third"], supported_archs=[90, 80]),
        "third": Candidate("third", third, devices={"cuda", "cpu"}),
        "odd": Candidate("odd", unliftable, preferred_over=["first", "third"], devices={"cpu"}),
        "rest": Candidate("rest", lambda call: None, general=True),
    }
    return Selector(Call, list({**made, **changes}.values()), op="Op", interface="job", unserved=nobody)


def text_of(*selectors: Selector) -> str:
    return take_snapshot({(each.op, each.interface): each for each in selectors}).text


def value(draw: random.Random, slot: Any) -> Any:
    if slot.sort == "int":
        return draw.choice([slot.lo, slot.hi, draw.randint(-8, 20), draw.randint(slot.lo, slot.hi)])
    if slot.sort == "finite":
        return draw.choice(slot.values)
    return draw.choice([0.0, 0.25, 1e-4, 2.0, float("inf"), float("nan")] if slot.sort == "float" else ["x", "", "y"])


def holds(expr: Expr, values: dict[Any, Any]) -> bool:
    try:
        return bool(evaluate(expr, values))
    except ZeroDivisionError:
        return False


def answers_alike(live: Selector, count: int) -> None:
    recorded = read_snapshot(text_of(live))[live.op, live.interface]
    assert recorded.keys == live.keys
    assert recorded.wins_over == live.wins_over
    draw = random.Random(1)
    names = {
        path: {value_text(v): v for v in slot.values} for path, slot in recorded.domain.slots.items() if slot.values
    }
    for _ in range(count):
        values = {path: value(draw, slot) for path, slot in live.domain.slots.items()}
        translated = {p: names[p][value_text(v)] if p in names else v for p, v in values.items()}
        pairs = [(live.valid, recorded.valid), *((live.available(k), recorded.available(k)) for k in live.keys)]
        pairs += [(live.rules[key].serves, recorded.rules[key].serves) for key in live.rules]
        pairs += [(live.rules[key].raises, recorded.rules[key].raises) for key in live.rules]
        if live.declared_unserved is not None and recorded.declared_unserved is not None:
            pairs.append((live.declared_unserved.serves, recorded.declared_unserved.serves))
        for one, other in pairs:
            assert holds(one.expr, values) is holds(other.expr, translated), (str(one), str(other), values)


def test_the_rules_read_back_answer_as_the_rules_do() -> None:
    answers_alike(selector(), 400)
    for seed in range(8):
        answers_alike(random_selector(seed), 100)


def test_the_text_of_what_was_read_is_the_text() -> None:
    text = text_of(selector(), random_selector(3, Plain), Selector(Placed, [], op="Op", interface="empty"))
    assert read_snapshot(text).text == text


def test_what_a_snapshot_holds_of_an_interface() -> None:
    data = json.loads(text_of(selector()))["ops"]["Op"]["job"]
    assert data["call"] == "Call"
    assert data["fields"]["m"] == {"int": [-8, 8], "default": "4", "declared": True}
    assert data["fields"]["mode"] == {
        "one of": ["<Mode.FAST: 1>", "<Mode.SAFE: 2>"],
        "first": "<Mode.SAFE: 2>",
        "declared": True,
    }
    assert data["fields"]["anything"] == {"opaque": "annotated Any"}
    assert "n - tile.rows >= 0" in data["valid"]
    assert data["implementations"]["first"]["archs"] == [80, 90]
    assert data["implementations"]["first"]["preferred over"] == ["third"]
    assert "layout in (3, 'nhd')" in data["implementations"]["first"]["serves"]
    assert data["implementations"]["rest"] == {"devices": ["cuda"], "general": True, "serves": []}
    assert data["implementations"]["odd"]["not lifted"] == selector().not_lifted["odd"].cause
    assert data["implementations"]["third"]["raises"], "n // m of an m that is 0"
    assert data["unserved"] == {"calls": ["tile.scale == 2.0"]}


def test_a_clause_a_field_and_a_number_have_a_line_each() -> None:
    text = text_of(selector())
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    data = json.loads(text)["ops"]["Op"]["job"]
    for clause in [*data["valid"], *data["implementations"]["first"]["serves"]]:
        assert lines.count(json.dumps(clause)) >= 1
    assert '"m": {"int": [-8, 8], "default": "4", "declared": true}' in lines
    assert list(data["fields"]) == sorted(data["fields"])


def test_nothing_says_where_the_code_stands() -> None:
    text = text_of(selector())
    assert not re.search(r"\.py|0x[0-9a-f]{6}|/[a-z]+/", text)


def test_the_order_of_registration_and_of_the_fields_is_no_part_of_it() -> None:
    one = random_selector(5, Placed)
    other = Selector(Placed, list(one.candidates)[::-1], op=one.op, interface=one.interface)
    assert text_of(one) == text_of(other)

    @dataclass(frozen=True)
    class Forth:
        n: int = 1
        kind: Literal["x", "y"] = "x"

    @dataclass(frozen=True)
    class Back:
        kind: Literal["y", "x"] = "x"
        n: int = 1

    for spec in (Forth, Back):
        spec.__name__ = "Call"
    rules = [
        lambda call: None if call.n <= 8 and call.kind == "x" else "no",
        lambda call: None if call.kind == "x" and call.n <= 8 else "no",
    ]
    texts = {
        text_of(Selector(spec, [Candidate("k", rule)], op="Op", interface="job"))
        for spec in (Forth, Back)
        for rule in rules
    }
    assert len(texts) == 1


MODULE = """
import enum
from dataclasses import dataclass, make_dataclass
from typing import Literal

class Mode(enum.Enum):
    FAST = 1
    SAFE = 2

NAMES = {"x", "y", "zz", "w"}

@dataclass(frozen=True)
class Call:
    n: int = 1
    name: str = ""
    mode: Mode = Mode.FAST
    layout: Literal["nhd", "hnd"] = "nhd"

class Face:
    request = Call

class Some(Face):
    @classmethod
    def refusal(cls, call):
        if call.name in NAMES or call.name in {"a", "b", "c"}:
            return "name"
        return None if call.n in {1, 64, 8, 1024} and call.mode in {Mode.SAFE} else "n"

class SomeOp:
    kernel_types = {"some": Some}
    interfaces = {"face": Face}
"""


def test_every_process_writes_the_same_text(fresh_python: Any, tmp_path: Path) -> None:
    (tmp_path / "snapped.py").write_text(MODULE)
    texts = set()
    for seed in ("1", "2"):
        done = fresh_python("-m", "tileops_solver", "snapshot", "snapped", env={"PYTHONHASHSEED": seed}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1


def test_it_answers_questions_without_the_code_and_without_torch(fresh_python: Any, tmp_path: Path) -> None:
    (tmp_path / "snapped.py").write_text(MODULE)
    done = fresh_python("-m", "tileops_solver", "snapshot", "snapped", "-o", "kept.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "snapped.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    asked = fresh_python(
        "-c",
        "import sys\n"
        "from pathlib import Path\n"
        "from tileops_rules import fields\n"
        "from tileops_solver import audit, find_call\n"
        "from tileops_solver.snapshot import read_snapshot\n"
        "rules = read_snapshot(Path('kept.json').read_text())['SomeOp', 'face']\n"
        "c = fields(rules.spec, domain=rules.domain)\n"
        "print(find_call(rules.claims('some') & (c.n > 8), within=rules.valid).call)\n"
        "print(audit(rules).totals.not_proved, 'torch' in sys.modules)\n",
        cwd=tmp_path,
    )
    assert asked.stdout.splitlines() == ["Call(mode=<Mode.SAFE: 2>, n=64)", "0 False"], asked.stderr


def test_a_selector_that_was_read_is_audited_like_another() -> None:
    for seed in range(3):
        live = random_selector(seed, Plain)
        recorded = read_snapshot(text_of(live))["Op", "job"]
        expected = Whole(live).written
        assert {(c.key, k) for c in recorded.candidates for k in c.preferred_over} == expected
        found = [{(f.kind, f.keys) for f in audit(each).findings if f.kind == "overlap"} for each in (live, recorded)]
        assert found[0] == found[1]


def test_a_value_that_has_no_literal_stands_as_its_name() -> None:
    recorded = read_snapshot(text_of(selector()))["Op", "job"]
    c = fields(recorded.spec, domain=recorded.domain)
    answer = find_call(recorded.claims("first"), within=recorded.valid & (c.shape.length == 2))
    assert answer.verdict is Verdict.FOUND
    assert answer.call.mode == Named("<Mode.FAST: 1>")
    assert "mode=<Mode.FAST: 1>" in repr(answer.call)
    assert "eps" not in repr(answer.call), "what is as usual is left out"


def test_a_rule_that_was_not_lifted_is_not_lifted_there_either() -> None:
    recorded = read_snapshot(text_of(selector()))["Op", "job"]
    assert recorded.claims("odd") is None
    assert recorded.not_lifted["odd"].cause == selector().not_lifted["odd"].cause


def test_a_value_without_a_text_of_its_own_is_refused() -> None:
    class Thing:
        pass

    class Mute:
        def __repr__(self) -> str:
            return "mute"

    for kind, problem in ((Thing, "another one in each process: give its class a __repr__"), (Mute, "read alike")):
        odd = make_dataclass("Odd", [("thing", Annotated[Any, OneOf(kind(), kind())], None)], frozen=True)
        with pytest.raises(TargetError, match=f"Op.job cannot be recorded: .*thing.*{problem}"):
            text_of(Selector(odd, [Candidate("k", lambda call: None)], op="Op", interface="job"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no snapshot of rules"),
        ("[]", "no snapshot of rules"),
        ('{"ops": {}}', "no snapshot of rules"),
        ('{"snapshot": 99, "ops": {}}', "format 99"),
        ('{"snapshot": 1, "ops": {"Op": {"job": {}}}}', "no snapshot of rules"),
        ('{"snapshot": 1, "ops": {"Op": {"job": {"call": "C", "fields": {"n": {"odd": 1}}}}}}', "no snapshot of rules"),
        (
            '{"snapshot": 1, "ops": {"Op": {"job": {"call": "C", "fields": {"n": {"int": [0, 9]}}, '
            '"valid": ["k <= 3"], "implementations": {}}}}}',
            "no slot is called k",
        ),
    ],
)
def test_a_text_that_is_no_snapshot_is_said_so(text: str, problem: str) -> None:
    with pytest.raises(SnapshotError, match=problem):
        read_snapshot(text)


def test_two_ops_of_one_name_are_refused(op_module: Callable[..., Path]) -> None:
    op_module(twin_a=MODULE, twin_b=MODULE)
    both = [importlib.import_module(name).SomeOp for name in ("twin_a", "twin_b")]
    with pytest.raises(TargetError, match="two op classes are called SomeOp, in twin_a and in twin_b"):
        live_selectors(both)
    assert list(live_selectors([both[0], both[0]])) == [("SomeOp", "face")]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(snapshot_command, list(arguments), catch_exceptions=False)


def test_the_command_writes_checks_and_says_how_to_refresh(op_module: Callable[..., Path], tmp_path: Path) -> None:
    op_module(snap_ops=MODULE)
    kept = tmp_path / "kept rules.json"
    written = run("snap_ops")
    assert written.exit_code == 0
    assert run("snap_ops", "--check", str(kept)).exit_code == 1
    assert run("snap_ops", "-o", str(kept)).exit_code == 0
    assert kept.read_text() == written.output
    current = run("snap_ops", "--check", str(kept))
    assert (current.exit_code, current.output) == (0, "")
    kept.write_text(kept.read_text().replace('"some"', '"other"'))
    stale = run("snap_ops", "--check", str(kept))
    assert stale.exit_code == 1
    assert '-          "other": {' in stale.output
    assert f"tileops snapshot snap_ops -o '{kept}'" in stale.output
    assert kept.read_text().count('"other"') == 1, "--check writes nothing"
    assert run("snap_ops", "-o", "x", "--check", "y").exit_code == 2
    assert run("no_such_module").exit_code == 2


def test_the_real_ops_have_a_snapshot_that_reads_back() -> None:
    pytest.importorskip("torch")
    import tileops.ops

    live = live_selectors([tileops.ops])
    text = take_snapshot(live).text
    snapshot = read_snapshot(text)
    assert snapshot.text == text
    assert list(snapshot) == list(live)
    assert max(map(len, text.splitlines())) < 1000
    recorded = snapshot["GQADenseFwdOp", "gqa_dense"]
    answer = find_call(recorded.claims("gqa_dense_decode_long_context"), within=recorded.valid)
    assert repr(answer.call.dtype) == "torch.float16"
