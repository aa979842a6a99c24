"""Views one by one: what a rule is handed for what it reaches."""

from __future__ import annotations

import enum
import functools
import itertools
import math
import operator
import sys
import textwrap
import types
from typing import Any, ClassVar, NoReturn

import pytest
from tileops_rules.tables import _MUTATORS, DictView, ListView, SetView, _ordered
from tileops_rules.views import (
    ClassView,
    Views,
    _isinstance,
    _issubclass,
    _names_of,
    _only_for_attributes,
    _stores,
    _Type,
    _unviewed,
    package_of,
)

THIS = sys.modules[__name__]
SIZES = {1: "one", 2: {3, 4}}


class Refused(Exception):
    """What the explorer would give the rule up for."""


class Asks:
    """An explorer that refuses aloud."""

    def refuse(self, cause: str) -> NoReturn:
        raise Refused(cause)

    def give_up(self, file: str, line: int, cause: str) -> NoReturn:
        raise Refused(f"{file}:{line}: {cause}")

    def unwatched(self, make: Any, *args: Any) -> Any:
        return make(*args)


def views() -> Views:
    asks: Any = Asks()
    return Views(asks, frozenset({package_of(__name__)}))


def own(number: int, most: Any = 3, *, table: Any = frozenset({1})) -> bool:
    return number in SIZES or number > most or number in table


@functools.lru_cache(4)
def kept(number: int) -> int:
    return number + 1


class Meta(type):
    def of_the_metaclass(cls) -> str:
        return cls.__name__.lower()


class Base:
    MOST = 3
    HELD: ClassVar[set[int]] = {1, 2}


class Held(Base, metaclass=Meta):
    """Its doc."""

    LEAST = 1

    @classmethod
    def least(cls) -> int:
        return cls.LEAST

    @staticmethod
    def twice(number: int) -> int:
        return 2 * number

    @property
    def area(self) -> int:
        return self.LEAST + 1

    @functools.cached_property
    def longest(self) -> int:
        return self.LEAST + 2

    def method(self, more: int) -> int:
        return self.LEAST + more


def test_the_package_of_a_module_is_the_first_part_of_its_name() -> None:
    assert [package_of(name) for name in ("a.b.c", "a", "", None)] == ["a", "a", "", ""]


class TestValues:
    def test_functions_of_the_package_are_copied_once_and_others_are_not(self) -> None:
        seen = views()
        copy = seen.value(own, "own")
        assert copy is not own
        assert (copy.__name__, copy(1), copy(9), copy(3)) == ("own", True, True, False)
        assert seen.value(own, "other") is copy
        assert seen.value(textwrap.dedent, "dedent") is textwrap.dedent
        assert seen.value(len, "len") is len
        unwrapped = seen.value(kept, "kept")
        assert type(unwrapped) is types.FunctionType
        assert unwrapped(3) == 4
        assert seen.reads == {f"{__name__}.SIZES": SIZES, f"{__name__}.own.default0": 3, f"{__name__}.own.table": {1}}
        assert type(copy.__globals__["SIZES"]) is DictView
        assert type(copy.__kwdefaults__["table"]) is SetView

    def test_a_class_is_itself_unless_only_its_attributes_are_taken(self) -> None:
        seen = views()
        assert seen.value(Held, "Held") is Held
        view = seen.value(Held, "Held", as_class=True)
        assert type(view) is ClassView
        assert view is seen.class_view(Held)
        assert view is not seen.class_view(Base)
        assert seen.reads == {}

    def test_a_module_of_the_package_is_seen_through_a_view(self) -> None:
        seen = views()
        module = seen.value(THIS, "THIS")
        assert type(module.SIZES) is DictView
        assert seen.reads == {f"{__name__}.SIZES": SIZES}
        assert seen.value(math, "math") is math

    def test_what_is_no_function_is_noted_and_what_changes_by_use_is_refused(self) -> None:
        seen = views()
        assert seen.value(3, "three") == 3
        assert seen.value(operator.itemgetter(0), "getter")((5,)) == 5
        assert seen.reads == {"three": 3}
        with pytest.raises(Refused) as caught:
            seen.value(iter([1]), "it")
        assert str(caught.value) == (
            "<unknown>:0: it is an iterator, which changes as it is used: a rule is a function of the call alone"
        )

    def test_tables_are_viewed_once_and_tuples_only_where_one_is_inside(self) -> None:
        seen = views()
        for table, kind in (({1}, SetView), (frozenset({1}), SetView), ({1: 2}, DictView)):
            assert type(seen.inner(table)) is kind
            assert seen.inner(table) is seen.inner(table)
            assert isinstance(seen.inner(table), type(table))
        assert type(seen.inner(types.MappingProxyType({1: 2}))) is DictView
        plain, holds = (1, (2, 3)), (1, ({2}, 3))
        assert seen.inner(plain) is plain
        assert type(seen.inner(holds)[1][0]) is SetView
        listed = [1, {2}]
        found = seen.inner(listed)
        assert (type(found), found[0], type(found[1])) == (ListView, 1, SetView)
        assert found is seen.inner(listed)
        with pytest.raises(Refused, match=r"^the list \[1, \{2\}\] is changed, by append"):
            found.append(3)
        assert listed == [1, {2}]


class TestClasses:
    def test_what_a_class_says_of_itself_is_what_it_is(self) -> None:
        namespace: dict[str, Any] = {
            "__name__": "another", "__bases__": (), "__mro__": (), "__dict__": {}, "__qualname__": "Named",
            "__module__": __name__, "__doc__": "doc",
        }  # fmt: skip
        real = type("Named", (Base,), namespace)
        seen = views()
        view: Any = seen.class_view(real)
        assert (view.__name__, view.__qualname__, view.__bases__) == ("Named", "Named", (Base,))
        assert view.__mro__ == (real, Base, object)
        assert view.__dict__ == real.__dict__
        assert (view.__module__, view.__doc__, view.__class__) == (__name__, "doc", type)
        assert seen.reads == {}

    def test_attributes_are_views_and_those_of_the_metaclass_are_found(self) -> None:
        seen = views()
        view: Any = seen.class_view(Held)
        assert (view.LEAST, view.MOST, view.least(), view.twice(4)) == (1, 3, 1, 8)
        assert type(view.HELD) is SetView
        assert view.of_the_metaclass() == "held"
        assert view.method(Held(), 4) == 5
        assert type(view.area) is property
        assert set(seen.reads) == {f"{__name__}.{name}" for name in ("Held.LEAST", "Base.MOST", "Base.HELD")}
        with pytest.raises(AttributeError, match=r"^type object 'Held' has no attribute 'nothing'$"):
            _ = view.nothing

    def test_attributes_of_a_call_are_bound_to_it(self) -> None:
        seen = views()
        call = Held()

        def of(name: str) -> Any:
            return seen.attribute(Held.__mro__, name, call, Held)

        assert (of("LEAST"), of("area"), of("longest"), of("method")(4), of("least")(), of("twice")(3)) == (
            1, 2, 3, 5, 1, 6,
        )  # fmt: skip
        for name in ("nothing", "of_the_metaclass"):
            with pytest.raises(AttributeError, match=rf"^'Held' object has no attribute '{name}'$"):
                of(name)

    def test_a_class_is_compared_called_and_shown_as_itself_and_never_changed(self) -> None:
        seen = views()
        view: Any = seen.class_view(Held)
        other: Any = seen.class_view(Base)
        assert (view == Held, view == view, view == other, view != Held) == (True, True, False, False)
        assert hash(view) == hash(Held)
        assert repr(view) == repr(Held)
        assert type(view()) is Held
        assert isinstance(Held(), view)
        assert not isinstance(3, view)
        assert issubclass(view, other)
        assert not _issubclass(other, (view, int))
        assert _isinstance(Held(), (int, (other,)))
        assert _unviewed((view, (3, other))) == (Held, (3, Base))
        with pytest.raises(Refused, match=r"^Held\.LEAST is set: a rule is a function of the call alone$"):
            view.LEAST = 3

    def test_the_type_of_a_value_is_its_type_and_of_a_stand_in_what_it_stands_for(self) -> None:
        kind: Any = _Type
        assert (kind(3), kind("x"), kind(views().class_view(Held)), kind(SetView(views(), {1}))) == (
            int,
            str,
            Meta,
            set,
        )
        assert kind("Made", (), {}).__name__ == "Made"
        assert isinstance(int, kind)
        assert not isinstance(3, kind)


class Mode(enum.Enum):
    FAST = 1


class Wrong(ValueError):
    """An error of the package."""


def test_classes_of_the_package_are_seen_through_but_enums_and_errors() -> None:
    kinds = (Held, Base, Mode, Wrong, int, enum.Enum, ValueError, types.SimpleNamespace)
    assert [views()._is_own_class(each) for each in kinds] == [True, True, *[False] * 6]


def stores(call: Any) -> None:
    held = 1
    call.first = held

    def inner() -> None:
        nonlocal held
        global SIZES
        held = 2
        del call.second
        SIZES = {}

    inner()


def test_what_a_function_stores_to_is_told_by_line_kind_and_name() -> None:
    first = stores.__code__.co_firstlineno
    assert _stores(own.__code__) == ()
    # `held` is a variable of its own, so that storing to it inside is no store to something outside.
    assert set(_stores(stores.__code__)) == {
        (first + 2, "attribute", "first"),
        (first + 8, "attribute", "second"),
        (first + 9, "global", "SIZES"),
    }
    inner = next(each for each in stores.__code__.co_consts if isinstance(each, types.CodeType))
    assert (first + 7, "nonlocal", "held") in _stores(inner)


def closing() -> list[Any]:
    cell = Held

    def attribute(call: Any) -> Any:
        return cell.LEAST

    def itself(call: Any) -> Any:
        return cell.LEAST, cell

    def in_a_class(call: Any) -> Any:
        class Inner:
            least = cell.LEAST

        return Inner

    def itself_in_a_class(call: Any) -> Any:
        class Inner:
            kind = cell

        return Inner, cell.LEAST

    return [attribute, itself, in_a_class, itself_in_a_class]


@pytest.mark.parametrize(
    ("function", "name", "only"),
    [
        (lambda call: Held.LEAST, "Held", True),
        (lambda call: Held.least(), "Held", True),
        (lambda call: Held(), "Held", False),
        (lambda call: Held.LEAST or Held, "Held", False),
        (lambda call: isinstance(call, Held), "Held", False),
        (lambda call: [Held.LEAST for _ in (1,)], "Held", True),
        (lambda call: (lambda: Held)(), "Held", False),
        *zip(closing(), ["cell"] * 4, (True, False, True, False), strict=True),
    ],
)
def test_a_name_of_which_only_attributes_are_taken_is_told_from_others(function: Any, name: str, only: bool) -> None:
    assert (name in _only_for_attributes(function.__code__)) is only


def test_the_names_of_a_function_are_those_of_the_functions_inside_it_too() -> None:
    outer: Any = lambda call: (call.first, (lambda: THIS.second)())  # noqa: E731
    assert _names_of(outer.__code__) == ("first", "THIS", "second")


SETS = [set(), {1}, {1, 2}, {2, 3}, {1, 2, 3}]
OPERATORS = [
    operator.or_, operator.and_, operator.sub, operator.xor, operator.lt, operator.le, operator.gt, operator.ge,
    operator.eq, operator.ne,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda each: each.__name__)
def test_views_of_sets_combine_and_compare_as_the_sets(operation: Any) -> None:
    seen = views()
    for left, right in itertools.product(SETS, repeat=2):
        expected = operation(left, right)
        for one, two in ((seen.inner(left), seen.inner(right)), (seen.inner(left), right), (left, seen.inner(right))):
            found = operation(one, two)
            assert getattr(found, "_real", found) == expected, (left, right)
            assert type(getattr(found, "_real", found)) is type(expected)


def test_a_view_of_a_table_cannot_be_changed_in_any_way() -> None:
    seen = views()
    held, table = {1, 2}, {1: {2}}
    for name in ("ior", "iand", "isub", "ixor"):
        with pytest.raises(Refused, match=rf"^\{{1, 2\}} is changed, by __{name}__: a rule is a function of the call"):
            getattr(operator, name)(seen.inner(held), {1})
    for change, by in (
        (lambda: operator.setitem(seen.inner(table), 1, 2), "item assignment"),
        (lambda: operator.delitem(seen.inner(table), 1), "item deletion"),
        (lambda: seen.inner(table).pop(1), "pop"),
        (lambda: operator.ior(seen.inner(table), {3: 4}), "__ior__"),
    ):
        with pytest.raises(Refused, match=rf"^\{{1: \{{2\}}\}} is changed, by {by}: a rule is a function"):
            change()
    assert (held, table) == ({1, 2}, {1: {2}})
    assert set(_MUTATORS) == {
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"),
        *("difference_update", "intersection_update", "symmetric_difference_update", "popitem", "setdefault"),
        *("__ior__", "__iand__", "__isub__", "__ixor__", "__iadd__", "__imul__"),
    }
    listed: Any = seen.inner([2, 1])
    for name in sorted(set(dir(list)) & _MUTATORS | {"__setitem__", "__delitem__"}):
        with pytest.raises(Refused, match=rf"^the list \[2, 1\] is changed, by {name}: a rule is a function"):
            getattr(listed, name)(1)


def test_a_view_of_a_table_reads_as_the_table() -> None:
    seen = views()
    table: Any = seen.inner(SIZES)
    assert (list(table), len(table), bool(table), repr(table), 1 in table, 3 in table) == (
        [1, 2], 2, True, repr(SIZES), True, False,
    )  # fmt: skip
    assert list(reversed(table)) == [2, 1]
    assert (table == SIZES, table != SIZES, table == {}) == (True, False, False)
    assert table.items() == [(1, "one"), (2, {3, 4})]
    assert [type(each) for each in table.values()] == [str, SetView]
    assert type(table[2]) is SetView
    assert (table.get(1), table.get(5), table.get(5, "x")) == ("one", None, "x")
    assert list(table.keys()) == [1, 2]
    assert type(table.copy()) is DictView
    nothing: Any = seen.inner(frozenset())
    assert (bool(nothing), len(nothing), hash(nothing)) == (False, 0, hash(frozenset()))
    assert nothing.isdisjoint(seen.inner({1})) is True
    with pytest.raises(TypeError):
        _ = nothing < 3
    held: Any = seen.inner(type("Table", (dict,), {"most": 3})())
    assert held.most == 3


def test_elements_are_looked_through_in_an_order_of_their_own() -> None:
    assert _ordered({3, 1, 2}) == [1, 2, 3]
    assert _ordered({"b", 2, "a", 1}) == [1, 2, "a", "b"]
    assert _ordered({"b": 1, 2: 2, "a": 3}) == ["b", 2, "a"]
    assert _ordered(types.MappingProxyType({"b": 1, "a": 3})) == ["b", "a"]
