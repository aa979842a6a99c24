"""The digest of a rule's code: it changes with whatever the rule can reach, and with nothing else."""

from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tileops_rules.code_digest import CodeDigests
from tileops_rules.fingerprint import NotSpelled

SOURCE = '''
import enum
import functools
import math
from dataclasses import dataclass

LIMIT = 64
TABLE = {"x": 1, "y": 2}
SIZES = frozenset({8, 16})
STEPS = range(4, 64, 4)


class Mode(enum.Enum):
    PLAIN = "plain"
    FUSED = "fused"

    @property
    def is_fused(self):
        return self is Mode.FUSED


@dataclass(frozen=True)
class Facts:
    smem: int

    def fits(self, need):
        return need <= self.smem


FACTS = {80: Facts(100), 90: Facts(200)}


def outer(limit):
    def inner(call):
        return call.n > limit
    return inner


beyond = outer(7)


def helper(call):
    return deeper(call.n)


def deeper(n):
    return n + 1


@functools.lru_cache(None)
def cached(n):
    return n + 2


def unused(call):
    return call.n * 99


@dataclass(frozen=True)
class Call:
    n: int = 0
    mode: Mode = Mode.PLAIN

    @property
    def region(self):
        return self.n > 5

    @staticmethod
    def twice(n):
        return 2 * n

    def __len__(self):
        return 3


class Base:
    most = 10

    @classmethod
    def refusal(cls, call):
        return "base" if call.n == 1 else None

    @classmethod
    def own_limit(cls):
        return cls.most

    def __init__(self):
        self.built = 1

    def other(self):
        return "never asked"


class Kernel(Base):
    def __init__(self):
        self.built = 2

    @classmethod
    def refusal(cls, call, extra=4):
        """Says no."""
        if call.n > LIMIT or call.n in SIZES or call.region or call.mode.is_fused:
            return f"n {call.n}"
        if helper(call) > cls.own_limit() or beyond(call) or cached(call.n) or call.twice(call.n) > extra:
            return "too many"
        if call.n in STEPS or TABLE["x"] and FACTS[80].fits(call.n) and math.inf > 3:
            return "table"
        return super().refusal(call)
'''

CHANGES = {
    "a global": ("LIMIT = 64", "LIMIT = 65"),
    "a table": ('"y": 2', '"y": 3'),
    "a range": ("range(4, 64, 4)", "range(4, 64, 8)"),
    "a set": ("frozenset({8, 16})", "frozenset({8, 32})"),
    "a member of an enum": ('FUSED = "fused"', 'FUSED = "merged"'),
    "a property of an enum": ("return self is Mode.FUSED", "return self is not Mode.FUSED"),
    "what an object in a table holds": ("Facts(200)", "Facts(201)"),
    "a method of an object in a table": ("need <= self.smem", "need < self.smem"),
    "a closure variable": ("outer(7)", "outer(8)"),
    "a function that a closure is": ("call.n > limit", "call.n >= limit"),
    "a function that is called": ("deeper(call.n)", "deeper(call.n + 1)"),
    "a function that one calls": ("return n + 1", "return n + 3"),
    "a cached function": ("return n + 2", "return n + 4"),
    "a property of the call": ("self.n > 5", "self.n > 6"),
    "a static method of the call": ("return 2 * n", "return 3 * n"),
    "a special method of the call": ("return 3\n", "return 4\n"),
    "an attribute of a base class": ("most = 10", "most = 11"),
    "a method of a base class": ("return cls.most", "return cls.most - 1"),
    "the rule of a base class": ("call.n == 1", "call.n == 2"),
    "a default": ("extra=4", "extra=5"),
    "a constant": ("math.inf > 3", "math.inf > 4"),
    "a comparison": ('"too many"', '"too much"'),
    "an attribute by another name": ("math.inf", "math.pi"),
    "the default of a field": ("n: int = 0", "n: int = 1"),
}
SAME = {
    "a comment": ("LIMIT = 64", "LIMIT = 64  # threads"),
    "where it stands": ("LIMIT = 64", "\n\n\nLIMIT = 64"),
    "a function that nobody reaches": ("call.n * 99", "call.n * 98"),
    "a method that nobody names": ('"never asked"', '"not asked"'),
    "how the class itself is built": ("self.built = 2", "self.built = 3"),
}


@pytest.fixture
def modules() -> Iterator[Any]:
    made: list[str] = []

    def load(source: str, name: str = "coded") -> types.ModuleType:
        module = types.ModuleType(name)
        sys.modules[name] = module
        made.append(name)
        exec(compile(textwrap.dedent(source), f"{name}.py", "exec", dont_inherit=True), vars(module))
        return module

    yield load
    for name in made:
        sys.modules.pop(name, None)


def digest_of(module: Any, function: Any = None) -> bytes:
    return CodeDigests(module.Call).of(module.Kernel.refusal if function is None else function)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_a_rule_can_reach_changes_its_digest(modules: Any, change: tuple[str, str]) -> None:
    before = digest_of(modules(SOURCE))
    assert SOURCE.count(change[0]) == 1
    assert digest_of(modules(SOURCE.replace(*change))) != before


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_a_rule_cannot_reach_leaves_it_as_it_is(modules: Any, change: tuple[str, str]) -> None:
    before = digest_of(modules(SOURCE))
    assert SOURCE.count(change[0]) == 1
    assert digest_of(modules(SOURCE.replace(*change))) == before


def test_a_value_that_was_changed_in_place_counts(modules: Any) -> None:
    module = modules(SOURCE)
    before = digest_of(module)
    module.TABLE["y"] = 3
    assert digest_of(module) != before
    module.TABLE["y"] = 2
    assert digest_of(module) == before
    module.Base.most = 12
    assert digest_of(module) != before


def test_two_functions_of_one_name_are_told_apart(modules: Any) -> None:
    source = (
        SOURCE
        + """
def made(limit):
    def of(call):
        return {"a": "call.n > 1", "b": "call.n < 1"}
    def named(call):
        return call.n > limit
    return named

FIRST, SECOND = made(1), made(2)

def uses(call):
    return FIRST(call) and not SECOND(call)
"""
    )
    module = modules(source)
    before = digest_of(module, module.uses)
    module.FIRST, module.SECOND = module.SECOND, module.FIRST
    assert digest_of(module, module.uses) != before


def test_a_member_of_any_name_counts_where_names_are_made_up(modules: Any) -> None:
    rule = """
class Named:
    limit_x = 1
    limit_y = 2

def uses(call):
    return getattr(Named, "limit_" + call.kind) > call.n
"""
    module = modules(SOURCE + rule)
    before = digest_of(module, module.uses)
    module.Named.limit_y = 3
    assert digest_of(module, module.uses) != before


@pytest.mark.parametrize(
    "body",
    [
        "return eval('call.n') > 3",
        "return vars(call)['n'] > 3",
        "import math\n    return math.pi > call.n",
        "return LOCK and call.n",
        "return call.__dict__['n'] > 3",
    ],
)
def test_what_cannot_be_known_has_no_digest(modules: Any, body: str) -> None:
    module = modules(f"{SOURCE}\nimport threading\nLOCK = threading.Lock()\n\ndef uses(call):\n    {body}\n")
    with pytest.raises(NotSpelled):
        digest_of(module, module.uses)


def test_bound_methods_partials_and_callable_objects_have_digests(modules: Any) -> None:
    source = (
        SOURCE
        + """
class Limit:
    def __init__(self, most):
        self.most = most

    def __call__(self, call):
        return call.n > self.most

def at_most(most, call):
    return call.n > most

FORMS = [Limit(1), Limit(2), functools.partial(at_most, 1), functools.partial(at_most, 2), Limit(1).__call__]
"""
    )
    module = modules(source)
    assert len({digest_of(module, form) for form in module.FORMS}) == len(module.FORMS)


def test_other_packages_count_by_their_version(modules: Any) -> None:
    other = modules("__version__ = '1.0'\ndef limit(n): return n > 3", name="other_package")
    module = modules(SOURCE + "\nimport other_package\ndef uses(call): return other_package.limit(call.n)\n")
    before = digest_of(module, module.uses)
    other.__version__ = "1.1"
    assert digest_of(module, module.uses) != before
    del other.__version__
    with pytest.raises(NotSpelled):
        digest_of(module, module.uses)


def test_the_digest_does_not_depend_on_the_process(fresh_python: Any, tmp_path: Path) -> None:
    (tmp_path / "coded_elsewhere.py").write_text(SOURCE)
    code = (
        "import coded_elsewhere as m\nfrom tileops_rules.code_digest import CodeDigests\n"
        "print(CodeDigests(m.Call).of(m.Kernel.refusal).hex())"
    )
    found = {fresh_python("-c", code, cwd=tmp_path, env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(found) == 1
    assert len(found.pop().strip()) == 64
