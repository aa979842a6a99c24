"""What a function reaches, and what of it counts: everything that it may use, and nothing else."""

from __future__ import annotations

import abc
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import pytest
from tileops_rules.code_digest import CodeDigests
from tileops_rules.fingerprint import NotSpelled


@pytest.fixture
def load() -> Iterator[Any]:
    def made(source: str, **more: Any) -> Any:
        module = types.ModuleType("coded")
        sys.modules["coded"] = module
        vars(module).update(more)
        head = "import abc, enum, functools, operator\nfrom dataclasses import dataclass\n"
        head += "@dataclass(frozen=True)\nclass Call:\n    n: int = 0\n\n"
        exec(compile(head + textwrap.dedent(source), "coded.py", "exec", dont_inherit=True), vars(module))
        return module

    yield made
    sys.modules.pop("coded", None)


def digest_of(module: Any) -> bytes:
    return CodeDigests(module.Call).of(module.uses)


@pytest.mark.parametrize(
    "name",
    [
        *("__dict__", "__import__", "attrgetter", "eval", "exec", "globals"),
        *("import_module", "locals", "methodcaller", "vars"),
    ],
)
@pytest.mark.parametrize("body", ["return {}", "return call.{}", "return (lambda: call.{})()"])
def test_code_that_may_reach_anything_has_no_digest(load: Any, name: str, body: str) -> None:
    with pytest.raises(NotSpelled):
        digest_of(load(f"def uses(call):\n    {body.format(name)}"))


CHANGES = {
    "a special method of a class that is named": (
        "class Table:\n    def __contains__(self, n):\n        return n > 3\nTABLE = Table()\n"
        "def uses(call):\n    return call.n in TABLE",
        ("n > 3", "n > 4"),
    ),
    "a member whose name is a text in the code": (
        "class Named:\n    limit_y = 2\ndef uses(call):\n    return type.__getattribute__(Named, 'limit_y') > call.n",
        ("= 2", "= 3"),
    ),
    "a member of any name, where there is getattr": (
        "class Named:\n    limit_y = 2\ndef uses(call):\n    return getattr(Named, call.name) > call.n",
        ("= 2", "= 3"),
    ),
    "a member of any name, where there is hasattr": (
        "class Named:\n    limit_y = 2\ndef uses(call):\n    return hasattr(Named, call.name) > call.n",
        ("= 2", "= 3"),
    ),
    "a member of any name, where a function inside says getattr": (
        "class Named:\n    limit_y = 2\ndef uses(call):\n    return (lambda: getattr(Named, call.name))()",
        ("= 2", "= 3"),
    ),
    "a global that a function inside names": (
        "LIMIT = 2\ndef uses(call):\n    return any(n > LIMIT for n in (call.n,))",
        ("= 2", "= 3"),
    ),
    "a closure variable": (
        "def made():\n    limit = 2\n    return lambda call: call.n > limit\nuses = made()",
        ("= 2", "= 3"),
    ),
    "a default": ("def uses(call, limit=2):\n    return call.n > limit", ("=2", "=3")),
    "a default of a keyword": ("def uses(call, *, limit=2):\n    return call.n > limit", ("=2", "=3")),
    "a member of a class that was named later": (
        "class Late:\n    limit = 2\ndef late():\n    return Late\ndef uses(call):\n    return call.n > late().limit",
        ("= 2", "= 3"),
    ),
    "a member named later of a class that was named before": (
        "class Early:\n    limit = 2\ndef of(kind):\n    return kind.limit\ndef uses(call):\n    return of(Early)",
        ("= 2", "= 3"),
    ),
    "a member of a metaclass": (
        "class Meta(type):\n    limit = 2\nclass Kind(metaclass=Meta): ...\ndef uses(call):\n    return Kind.limit",
        ("= 2", "= 3"),
    ),
    "how an object that is made on the way is built": (
        "class Made:\n    def __init__(self):\n        self.a = 2\ndef uses(call):\n    return Made().a > call.n",
        ("= 2", "= 3"),
    ),
    "a member whose name only the calls say": (
        "@dataclass(frozen=True)\nclass Call:\n    n: int = 0\n    def most(self, kind):\n        return kind.limit\n"
        "class Table:\n    limit = 2\ndef uses(call):\n    return call.most(Table)",
        ("= 2", "= 3"),
    ),
    "a member of any name, where the calls say getattr": (
        "@dataclass(frozen=True)\nclass Call:\n    n: int = 0\n    def most(self, kind):\n"
        "        return getattr(kind, self.name)\n"
        "class Table:\n    limit = 2\ndef uses(call):\n    return call.most(Table)",
        ("= 2", "= 3"),
    ),
    "the rule itself, where the calls have functions": (
        "@dataclass(frozen=True)\nclass Call:\n    n: int = 0\n    def most(self):\n        return self.n\n"
        "def uses(call):\n    return call.most() > 2",
        ("> 2", "> 3"),
    ),
    "a member of the calls that nobody names": (
        "@dataclass(frozen=True)\nclass Call:\n    n: int = 0\n    def unnamed(self):\n        return 2\n"
        "def uses(call):\n    return call.n > 5",
        ("return 2", "return 3"),
    ),
    "a property of an object": (
        "class Made:\n    @property\n    def limit(self):\n        return 2\nMADE = Made()\n"
        "def uses(call):\n    return MADE.limit > call.n",
        ("return 2", "return 3"),
    ),
    "a method of the call that a dataclass would else have written": (
        "class Wide(Call):\n    def __eq__(self, other):\n        return 2\nWIDE = Wide()\n"
        "def uses(call):\n    return call == WIDE",
        ("return 2", "return 3"),
    ),
}


@pytest.mark.parametrize(("source", "change"), CHANGES.values(), ids=CHANGES)
def test_what_is_reached_counts(load: Any, source: str, change: tuple[str, str]) -> None:
    assert source.count(change[0]) == 1
    before = digest_of(load(source))
    assert digest_of(load(source)) == before
    assert digest_of(load(source.replace(*change))) != before


ANY_NAME = "class Kind: ...\ndef uses(call):\n    return getattr(Kind, 'a' + 'b')"


@pytest.mark.parametrize(
    "name",
    [
        *("__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__"),
        *("__conditional_annotations__", "__dataclass_fields__", "__dataclass_params__", "__doc__"),
        *("__firstlineno__", "__init_subclass__", "__set_name__", "__static_attributes__", "__weakref__", "_abc_impl"),
    ],
)
def test_what_says_nothing_of_calls_does_not_count(load: Any, name: str) -> None:
    module = load(ANY_NAME)
    before = digest_of(module)
    setattr(module.Kind, name, object())
    assert digest_of(module) == before


def test_any_other_member_of_a_class_counts(load: Any) -> None:
    module = load(ANY_NAME)
    before = digest_of(module)
    module.Kind.other = 1
    assert digest_of(module) != before
    module.Kind.other = object()
    with pytest.raises(NotSpelled):
        digest_of(module)


def test_special_names_of_a_module_do_not_count(load: Any) -> None:
    source = "import sys\nSELF = sys.modules['coded']\ndef uses(call):\n    return getattr(SELF, 'a' + 'b')"
    module = load(source)
    del module.sys, module.abc, module.enum, module.functools, module.operator, module.dataclass
    del module.__builtins__, module.__spec__, module.__loader__
    before = digest_of(module)
    module.__notes__ = object()
    assert digest_of(module) == before
    module.notes = 1
    assert digest_of(module) != before


def test_what_a_dataclass_wrote_does_not_count_and_what_its_author_wrote_does(load: Any) -> None:
    source = "@dataclass\nclass Kind:\n    a: int = 1\nKIND = Kind()\ndef uses(call):\n    return KIND.a"
    before = digest_of(load(source))
    assert digest_of(load(source.replace("@dataclass\n", "@dataclass(repr=False, match_args=False)\n", 1))) != before
    text = source.replace("    a: int = 1", "    a: int = 1\n    def __repr__(self):\n        return 'x'")
    assert digest_of(load(text)) != before
    assert digest_of(load(text.replace("'x'", "'y'"))) != digest_of(load(text))


def test_an_empty_cell_is_told_from_a_full_one(load: Any) -> None:
    source = """
    def made():
        def uses(call):
            return limit
        if {}:
            limit = None
        return uses
    uses = made()
    """
    full, empty = digest_of(load(source.format(1))), digest_of(load(source.format(0)))
    assert full != empty


def test_the_classes_of_python_are_not_a_rule_s_own(load: Any) -> None:
    source = "class Kernel(abc.ABC):\n    @classmethod\n    def refusal(cls, call):\n        return THERE is None\n"
    for value, known in ((object(), False), (abc.ABC(), False), (1, True)):
        module = load(source, THERE=value)
        if known:
            assert CodeDigests(module.Call).of(module.Kernel.refusal)
        else:
            with pytest.raises(NotSpelled):
                CodeDigests(module.Call).of(module.Kernel.refusal)


@pytest.mark.parametrize("name", ["__init__", "__new__", "__call__"])
def test_how_the_class_of_a_rule_makes_its_objects_does_not_count(load: Any, name: str) -> None:
    source = "class Kernel:\n    @classmethod\n    def refusal(cls, call): ...\n    def {}(self):\n        return {}\n"
    modules = [load(source.format(name, value)) for value in (1, 2)]
    assert len({CodeDigests(module.Call).of(module.Kernel.refusal) for module in modules}) == 1
    modules = [load(source.format("__len__", value)) for value in (1, 2)]
    assert len({CodeDigests(module.Call).of(module.Kernel.refusal) for module in modules}) == 2


def test_the_package_of_the_calls_is_the_rule_s_own_too(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = types.ModuleType("specs")
    monkeypatch.setitem(sys.modules, "specs", specs)
    source = "from dataclasses import dataclass\nLIMIT = {}\nclass Call:\n    def region(self):\n        return LIMIT\n"
    found = set()
    for limit in (1, 2):
        exec(source.format(limit), vars(specs))
        found.add(CodeDigests(specs.Call).of(load("def uses(call):\n    return call.region()").uses))
    assert len(found) == 2


def test_what_functions_have_in_common_does_not_change_what_is_said_of_one(load: Any) -> None:
    source = (
        "class Kind:\n    a = 1\ndef uses(call):\n    return getattr(Kind, 'a')\ndef other(call):\n    return Kind.a"
    )
    module = load(source)
    together = CodeDigests(module.Call)
    alone = [CodeDigests(module.Call).of(function) for function in (module.uses, module.other)]
    assert [together.of(function) for function in (module.uses, module.other)] == alone
    assert [together.of(function) for function in (module.other, module.uses)] == alone[::-1]
    assert len(set(alone)) == 2


@pytest.mark.parametrize(
    ("source", "levels"),
    [
        ("THERE = {}\ndef uses(call):\n    return THERE is call", 17),
        ("class Kind:\n    there = {}\ndef uses(call):\n    return Kind.there is call", 17),
        ("def made(there):\n    return lambda call: there is call\nuses = made({})", 17),
        ("def uses(call, there={}):\n    return there is call", 16),
        ("def uses(call, *, there={}):\n    return there is call", 16),
        ("def of(there, call):\n    return there is call\nuses = functools.partial(of, {})", 15),
    ],
)
def test_a_value_is_looked_into_as_deeply_wherever_it_stands(load: Any, source: str, levels: int) -> None:
    """Defaults are in a tuple or dict of their own, and the arguments of a partial in two."""
    assert digest_of(load(source.format("(" * levels + "1" + ",)" * levels)))
    with pytest.raises(NotSpelled):
        digest_of(load(source.format("(" * (levels + 1) + "1" + ",)" * (levels + 1))))
