"""What a digest is made of: the text of every kind of value, what has none, and what does not count."""

from __future__ import annotations

import enum
import functools
import math
import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest
from tileops_rules.code_digest import _code_text, _packages, _Reached, _version
from tileops_rules.fingerprint import NotSpelled

HERE = __name__
TOP = HERE.split(".")[0]


@dataclass
class Box:
    held: Any = None


@dataclass(frozen=True)
class Frozen:
    held: Any = None


class Plain:
    most = 3

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def method(self) -> None: ...


class Slotted:
    __slots__ = ("held",)


class Mode(enum.Enum):
    FAST = 1


def first(call: Any) -> Any:
    return call.n


def second(call: Any) -> Any:
    return -call.n


def said(value: Any, *, own: bool = True) -> str:
    return _Reached(frozenset({TOP} if own else ()))._said(value, 0)


PLAIN = f"object of class [('{HERE}.Plain', 0), ('builtins.object', None), ('builtins.type', None), "
PLAIN += "('builtins.object', None)] "
BOX = PLAIN.replace("Plain", "Box")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NoneType None"),
        (True, "bool True"),
        (1, "int 1"),
        (0.5, "float 0.5"),
        ("x", "str 'x'"),
        (b"x", "bytes b'x'"),
        (1j, "complex 1j"),
        (..., "ellipsis Ellipsis"),
        (first, "function 0"),
        (functools.lru_cache(first), "['str \\'cache\\'', 'function 0']"),
        (functools.cached_property(first), "['str \\'cached\\'', 'function 0']"),
        (property(first, second), "['str \\'property\\'', 'function 0']"),
        (classmethod(first), "classmethod ['function 0']"),
        (staticmethod(first), "staticmethod ['function 0']"),
        (types.MethodType(first, 5), "['function 0', 'int 5']"),
        (
            functools.partial(first, 1, call=2),
            "['str \\'partial\\'', 'function 0', \"tuple ['int 1']\", 'mapping [\"str \\'call\\'\", \\'int 2\\']']",
        ),
        (len, "built-in len"),
        (str.join, "built-in str.join"),
        (int.__add__, "built-in int.__add__"),
        (dict.__dict__["fromkeys"], "descriptor dict.fromkeys"),
        (Slotted.__dict__["held"], "descriptor Slotted.held"),
        (types.FunctionType.__dict__["__code__"], "descriptor function.__code__"),
        ((1, 2), "tuple ['int 1', 'int 2']"),
        ([1, 2], "list ['int 1', 'int 2']"),
        ((first, second, first), "tuple ['function 0', 'function 1', 'function 0']"),
        ({2, 1}, "set ['int 1', 'int 2']"),
        (frozenset({2, 1}), "set ['int 1', 'int 2']"),
        ({"a": 1, 2: first}, "mapping [\"str 'a'\", 'int 1', 'int 2', 'function 0']"),
        (types.MappingProxyType({"a": 1}), "mapping [\"str 'a'\", 'int 1']"),
        (math, "module math of Python"),
        (int, "class builtins.int of Python"),
        (enum.Enum, "class enum.Enum of Python"),
        (math.sqrt, "built-in sqrt"),
        (functools.wraps, "function functools.wraps of Python"),
        (Plain, PLAIN.removeprefix("object of ").rstrip()),
        (sys.modules[__name__], f"module {HERE} 0"),
        (Plain(7), PLAIN + "mapping [\"str 'held'\", 'int 7']"),
        (Frozen(1), BOX.replace("Box", "Frozen") + "mapping [\"str 'held'\", 'int 1']"),
        (Box((1,)), BOX + "mapping [\"str 'held'\", \"tuple ['int 1']\"]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_has_its_own_text(value: Any, text: str) -> None:
    assert repr(eval(said(value)) if text[0] == "[" else said(value)) == repr(eval(text) if text[0] == "[" else text)


def test_a_member_of_an_enum_is_said_with_its_class() -> None:
    text = said(Mode.FAST)
    assert text.startswith(f"member {HERE}.Mode 'FAST' int 1 of class [('{HERE}.Mode', 0), ")


def test_what_a_dataclass_holds_besides_its_fields_counts() -> None:
    box = Box(1)
    before = said(box)
    box.more = 2  # type: ignore[attr-defined]
    assert said(box) == before.replace("'int 1']", "'int 1', \"str 'more'\", 'int 2']")


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Slotted(),
        iter(()),
        (object(),),
        {1: object()},
        {object()},
        Box(object()),
        Plain(object()),
        functools.partial(first, object()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_holds_something_unknown_has_no_text(value: Any) -> None:
    with pytest.raises(NotSpelled):
        said(value)


def test_an_object_of_another_package_has_no_text() -> None:
    with pytest.raises(NotSpelled):
        said(Plain(1), own=False)


def test_what_belongs_to_another_package_is_said_by_name_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = types.ModuleType("foreign")
    foreign.__version__ = "1.5"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foreign", foreign)
    exec("class Kind: ...\ndef function(): ...", vars(foreign))
    assert said(foreign) == "module foreign of 1.5"
    assert said(foreign.Kind) == "class foreign.Kind of 1.5"
    assert said(foreign.function) == "function foreign.function of 1.5"
    foreign.function.__module__ = None
    assert said(foreign.function) == "function 0"
    assert _version("foreign.inner") == "1.5"
    assert _version("tileops_rules.expr") == _version("os.path") == "Python"
    del foreign.__version__
    for value in (foreign, foreign.Kind):
        with pytest.raises(NotSpelled):
            said(value)


def test_containers_have_a_text_up_to_sixteen_inside_each_other() -> None:
    for scalar in (None, ..., True, 1, 0.5, 1j, "x", b"x"):
        nested: Any = scalar
        for _ in range(17):
            nested = (nested,)
        assert said(nested).count("tuple") == 17
        with pytest.raises(NotSpelled):
            said((nested,))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotSpelled):
        said(endless)


@pytest.mark.parametrize("kind", [Box, Frozen, Plain])
def test_an_object_and_what_it_holds_are_two_containers(kind: Any) -> None:
    nested = kind()
    for _ in range(7):
        nested = kind(nested)
    assert said(nested).count("object of") == 8
    with pytest.raises(NotSpelled):
        said(kind(nested))


# ------------------------------------------------------------------------------------------------------ code objects


def example(call: Any, other: int = 1, *, third: int = 2) -> Any:
    held = [call.n, other, third, 12345]
    return lambda: held


CODE = example.__code__


@pytest.mark.parametrize(
    "change",
    [
        {"co_name": "renamed"},
        {"co_code": CODE.co_code + CODE.co_code[-2:]},
        {"co_names": tuple(f"{name}_" for name in CODE.co_names)},
        {"co_varnames": tuple(f"{name}_" for name in CODE.co_varnames)},
        {"co_freevars": ("outer",)},
        {"co_cellvars": ("kept",)},
        {"co_posonlyargcount": 1},
        {"co_kwonlyargcount": 0},
        {"co_flags": CODE.co_flags ^ 0x20},
        {"co_exceptiontable": b"x"},
        {"co_argcount": 1, "co_kwonlyargcount": 2},
        {"co_consts": (*CODE.co_consts, 7)},
        {"co_consts": tuple(1.0 if each == 12345 else each for each in CODE.co_consts)},
    ],
    ids=lambda change: " ".join(change),
)
def test_whatever_decides_what_code_does_is_in_its_text(change: dict[str, Any]) -> None:
    assert _code_text(CODE.replace(**change)) != _code_text(CODE)


def test_the_number_of_arguments_counts_by_itself() -> None:
    one, two = CODE.replace(co_argcount=2), CODE.replace(co_argcount=1)
    assert _code_text(one) != _code_text(two)


def test_where_code_stands_is_not_in_its_text() -> None:
    moved = CODE.replace(co_firstlineno=999, co_filename="elsewhere.py", co_qualname="elsewhere.example")
    assert _code_text(moved) == _code_text(CODE)


def test_code_inside_code_counts() -> None:
    inner = next(each for each in CODE.co_consts if isinstance(each, types.CodeType))
    changed = tuple(inner.replace(co_name="renamed") if each is inner else each for each in CODE.co_consts)
    assert _code_text(CODE.replace(co_consts=changed)) != _code_text(CODE)


# ----------------------------------------------------------------------------------------------- whose function it is


class Base:
    @classmethod
    def refusal(cls, call: Any) -> Any: ...

    def method(self, call: Any) -> Any: ...


class Kernel(Base):
    def __call__(self, call: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "bound"),
    [
        (first, ()),
        (Kernel.refusal, (Kernel, Base, object)),
        (Kernel().method, (Kernel, Base, object)),
        (functools.partial(Kernel.refusal, 1), (Kernel, Base, object)),
        (functools.lru_cache(first), ()),
        (functools.partial(functools.lru_cache(Kernel.refusal), 1), (Kernel, Base, object)),
        (Kernel(), ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_packages_of_a_function_are_its_own_and_those_of_what_it_is_bound_to(function: Any, bound: Any) -> None:
    assert _packages(function) == (frozenset(bound), frozenset({TOP} | ({"builtins"} if bound else set())))
