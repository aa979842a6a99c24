"""Texts of questions as they are written and read: whole lines, the names in them, and what a slot is called."""

from __future__ import annotations

import enum
import hashlib
import types
from typing import Any

import pytest
from tileops_rules import expr as E
from tileops_rules.parsing import parse_lines
from tileops_rules.printing import _wrapped, path_text, slot_text, value_text
from tileops_rules.shapes import Slot
from tileops_rules.vocabulary import ParseError, Vocabulary
from tileops_rules.writing import LONGEST_TEXT, _depths, _name, _with_names, canonical, text_lengths, written

N, M, A, B = (E.integer((name,)) for name in "nmab")
LONG, LONGER = E.integer(("length_of_a_row",)), E.integer(("length_of_a_row_x",))


class Mode(enum.Enum):
    FAST = 1


def digits(text: str, count: int = 8) -> str:
    return "$" + hashlib.sha256(text.encode()).hexdigest()[:count]


def deep(levels: int) -> E.Expr:
    expr = N
    for _ in range(levels):
        expr = E.absolute(expr)
    return expr


def deep_text(levels: int, inner: str = "n") -> str:
    return "abs(" * levels + inner + ")" * levels


SUM = E.add(A, B)
AND = E.conjunction([E.at_most(A, 1), E.at_most(B, 2)])
TEXTS = [
    (E.constant(-3), "-3"),
    (E.integer(("shape", 0)), "shape[0]"),
    (E.integer(("tile", "rows")), "tile.rows"),
    (E.integer(("w", "<int>")), "w.<int>"),
    (SUM, "a + b"),
    (E.subtract(A, B), "a - b"),
    (E.subtract(B, A), "-a + b"),
    (E.add(E.scale(A, -2), E.constant(-5)), "-2*a - 5"),
    (E.add(E.scale(A, 3), E.add(E.scale(B, -4), E.constant(1))), "3*a - 4*b + 1"),
    (E.add(E.multiply(A, B), E.scale(E.floordiv(A, B), 2)), "2*(a // b) + (a*b)"),
    (E.multiply(A, B), "a*b"),
    (E.multiply(SUM, E.absolute(N)), "(a + b)*abs(n)"),
    (E.floordiv(SUM, E.constant(4)), "(a + b) // 4"),
    (E.mod(E.multiply(A, B), SUM), "(a*b) % (a + b)"),
    (E.absolute(SUM), "abs(a + b)"),
    (E.bit_length(SUM), "(a + b).bit_length()"),
    (E.TRUE, "True"),
    (E.at_most(SUM, 3), "a + b <= 3"),
    (E.negation(E.at_most(SUM, 3)), "a + b >= 4"),
    (E.equals(A, 3), "a == 3"),
    (E.negation(E.equals(A, 3)), "a != 3"),
    (E.among(("k",), ["x"]), "k == 'x'"),
    (E.among(("k",), ["x", 1, Mode.FAST]), "k in (<Mode.FAST: 1>, 1, 'x')"),
    (E.negation(E.among(("k",), [None])), "k != None"),
    (E.negation(E.among(("k",), ["x", "y"])), "k not in ('x', 'y')"),
    (E.float_is(("f",), "<", 0.5), "f < 0.5"),
    (E.float_is(("f",), "nan", 0.0), "isnan(f)"),
    (E.negation(E.float_is(("f",), "nan", 0.0)), "~(isnan(f))"),
    (E.str_is(("t",), "it's"), 't == "it\'s"'),
    (E.negation(E.str_is(("t",), "")), "t != ''"),
    (AND, "a <= 1 & b <= 2"),
    (E.negation(AND), "~(a <= 1 & b <= 2)"),
    (E.disjunction([AND, E.equals(A, 3)]), "(a <= 1 & b <= 2) | a == 3"),
    (E.conjunction([E.disjunction([E.equals(A, 3), E.equals(A, 5)]), E.equals(B, 1)]), "(a == 3 | a == 5) & b == 1"),
]


@pytest.mark.parametrize(("expr", "text"), TEXTS)
def test_each_kind_of_expression_reads_so(expr: E.Expr, text: str) -> None:
    assert str(expr) == text
    assert repr(expr) == f"<{text}>"


def test_only_what_is_made_of_parts_is_put_into_brackets_and_no_name_is() -> None:
    assert [_wrapped(SUM, lambda e, text=text: text) for text in ("a + b", "$5f21c09b", "$x", "$5f + 1", "$")] == [
        "(a + b)", "$5f21c09b", "$x", "($5f + 1)", "($)",
    ]  # fmt: skip
    assert [_wrapped(each, str) for each in (A, E.constant(3), E.absolute(A), E.equals(A, 1), E.negation(AND))] == [
        "a", "3", "abs(a)", "a == 1", "~(a <= 1 & b <= 2)",
    ]  # fmt: skip


def test_a_slot_is_called_as_python_writes_it_and_a_constant_by_its_repr() -> None:
    path = ("x", "<list>", 2, "y", "<float>")
    assert (slot_text(path), path_text(path)) == ("x[2].y", "x.<list>[2].y.<float>")
    made = type("dtype", (), {"__module__": "torch", "__repr__": lambda _: "r", "__str__": lambda _: "torch.f16"})()
    assert [value_text(each) for each in (made, "x", 1.0, None)] == ["torch.f16", "'x'", "1.0", "None"]


def test_a_part_that_is_used_twice_gets_a_name_and_one_that_is_used_once_does_not() -> None:
    part, once = E.floordiv(LONGER, N), E.floordiv(LONG, N)
    text = "length_of_a_row_x // n"
    clauses = (E.at_most(E.add(part, A), 3), E.equals(E.add(part, once), 5))
    assert _with_names(E.conjunction(clauses), clauses) == (
        f"{digits(text)} = {text}",
        f"a + {digits(text)} <= 3",
        f"(length_of_a_row // n) + {digits(text)} == 5",
    )


@pytest.mark.parametrize(("slot", "named"), [("length_of_a_rows", True), ("length_of_a_row", False)])
def test_a_name_stands_for_twenty_characters_or_more(slot: str, named: bool) -> None:
    part = E.mod(E.integer((slot,)), E.constant(4))
    text = f"{slot} % 4"
    assert len(text) == (20 if named else 19)
    clauses = (E.equals(part, 1), E.at_most(part, 2))
    lines = _with_names(E.conjunction(clauses), clauses)
    if named:
        assert lines == (f"{digits(text)} = {text}", f"{digits(text)} == 1", f"{digits(text)} <= 2")
    else:
        assert lines == (f"{text} == 1", f"{text} <= 2")
    once = (E.equals(part, 1),)
    assert _with_names(once[0], once) == (f"{text} == 1",)


def test_a_slot_is_never_named_however_often_and_long_it_is() -> None:
    slot = E.integer(("a_slot_with_a_very_long_name",))
    clauses = (E.equals(slot, 1), E.at_most(slot, 2))
    assert _with_names(E.conjunction(clauses), clauses) == (f"{slot} == 1", f"{slot} <= 2")


def test_what_is_nested_deeply_is_cut_into_names_every_forty_levels() -> None:
    assert written(E.equals(deep(38), 3)) == (f"{deep_text(38)} == 3",)
    whole = f"{deep_text(39)} == 3"
    assert written(E.equals(deep(39), 3)) == (f"{digits(whole)} = {whole}", digits(whole))
    first = deep_text(40)
    second = deep_text(41, digits(first))
    assert written(E.equals(deep(85), 3)) == (
        f"{digits(first)} = {first}",
        f"{digits(second)} = {second}",
        f"{deep_text(4, digits(second))} == 3",
    )


def test_forty_levels_are_written_without_names() -> None:
    for levels, named in ((37, False), (38, True)):
        part, text = deep(levels), deep_text(levels)
        lines = written(E.conjunction([E.equals(part, 1), E.equals(part, 2)]))
        name = digits(text) if named else text
        assert lines == (*([f"{name} = {text}"] if named else []), f"{name} == 1", f"{name} == 2")


def test_the_deepest_of_several_parts_counts() -> None:
    assert _depths(E.add(N, E.absolute(A))) == {N: 1, A: 1, E.absolute(A): 2, E.add(N, E.absolute(A)): 3}
    either = E.equals(E.add(deep(37), E.integer(("z",))), 3)
    assert written(either) == (f"{deep_text(37)} + z == 3",)
    one_more = E.equals(E.add(deep(38), E.integer(("z",))), 3)
    assert len(written(one_more)) == 2


def test_a_long_predicate_is_written_with_names_and_a_short_one_without() -> None:
    shared = E.equals(E.mod(LONG, LONGER), 5)

    def chosen(padding: int) -> E.Expr:
        text = E.str_is(("t",), "x" * padding)
        return E.disjunction(
            [E.conjunction([shared, text]), E.conjunction([E.negation(shared), E.equals(A, 1), E.at_most(B, 2)])]
        )

    padding = LONGEST_TEXT - text_lengths(chosen(0))[chosen(0)]
    for more, named in ((0, False), (1, True)):
        expr = chosen(padding + more)
        assert text_lengths(expr)[expr] == LONGEST_TEXT + more
        assert (len(written(expr)) > 1) is named
        slots = {(n,): Slot((n,), "int") for n in ("a", "b", "length_of_a_row", "length_of_a_row_x")}
        domain: Any = types.SimpleNamespace(slots={**slots, ("t",): Slot(("t",), "str")})
        assert parse_lines(written(expr), domain) is expr


def test_clauses_are_lines_and_what_is_always_true_has_none() -> None:
    assert written(AND) == ("a <= 1", "b <= 2")
    assert written(E.equals(A, 1)) == ("a == 1",)
    assert written(E.TRUE) == ()
    assert written(E.FALSE) == ("False",)


def test_a_text_is_as_long_as_its_parts_say() -> None:
    both = E.conjunction([E.at_most(A, 3), E.negation(E.equals(B, 44))])
    lengths = text_lengths(both)
    # Its own characters, three for each argument, and the arguments: those of a comparison for its negation.
    assert lengths[A] == 1
    assert lengths[E.at_most(A, 3)] == len(" <= 3") + 3 + 1
    assert lengths[E.negation(E.equals(B, 44))] == len(" != 44") + 3 + 1
    assert text_lengths(E.negation(E.at_most(A, 3)))[E.negation(E.at_most(A, 3))] == len(" >= 4") + 3 + 1
    assert lengths[both] == len(" & ") + 6 + 9 + 10


def test_a_name_is_as_long_as_it_must_be() -> None:
    names: dict[str, str] = {}
    assert [_name("some text", names), _name("some text", names)] == [digits("some text")] * 2
    taken = {digits("x", count): "another" for count in (8, 9, 10)}
    assert _name("x", taken) == digits("x", 11)
    assert taken[digits("x", 11)] == "x"


TYPE, LENGTH = ("w", "type"), ("shape", "len")
INT, FIRST = E.at_most(E.integer(("w", "<int>")), 3), E.at_most(E.integer(("shape", 0)), 3)
DIVIDES, BY_FOUR = E.equals(E.mod(A, M), 0), E.equals(E.mod(A, E.constant(4)), 0)
INNER, IS_INNER = E.at_most(E.integer(("tile", "w", "<int>")), 3), E.among(("tile", "w", "type"), ["int"])
IS_INT, ONE_LONG = E.among(TYPE, ["int"]), E.among(LENGTH, [1])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([E.equals(B, 1), E.equals(A, 1)], [E.equals(A, 1), E.equals(B, 1)]),
        ([DIVIDES, E.equals(B, 1), BY_FOUR], [BY_FOUR, E.equals(B, 1), DIVIDES]),
        ([INT, IS_INT, E.equals(A, 1)], [E.equals(A, 1), IS_INT, INT]),
        ([INT, E.equals(A, 1)], [E.equals(A, 1), INT]),
        ([INT, DIVIDES, IS_INT], [IS_INT, INT, DIVIDES]),
        ([DIVIDES, INT, IS_INT], [IS_INT, DIVIDES, INT]),
        (
            [INNER, E.equals(A, 1), IS_INNER, E.at_most(E.integer(("tile", "x")), 3)],
            [E.equals(A, 1), IS_INNER, E.at_most(E.integer(("tile", "x")), 3), INNER],
        ),
        ([FIRST, E.equals(A, 1), ONE_LONG], [E.equals(A, 1), ONE_LONG, FIRST]),
        ([E.negation(DIVIDES), E.equals(A, 1)], [E.equals(A, 1), E.negation(DIVIDES)]),
        ([E.equals(E.floordiv(A, M), 0), E.equals(B, 1)], [E.equals(B, 1), E.equals(E.floordiv(A, M), 0)]),
    ],
)
def test_the_canonical_order_is_that_of_the_texts_with_what_may_have_no_answer_last(
    given: list[E.Expr], expected: list[E.Expr]
) -> None:
    assert canonical(E.conjunction(given)) is E.conjunction(expected)
    assert canonical(E.disjunction(given)) is E.disjunction(expected)
    inner = canonical(E.negation(E.conjunction(given)))
    assert inner is E.negation(E.conjunction(expected))


def test_canonical_parts_are_ordered_at_every_level_and_long_ones_come_last() -> None:
    one, two = E.disjunction([E.equals(B, 1), E.equals(A, 1)]), E.disjunction([E.equals(M, 1), E.equals(A, 0)])
    expected = [E.disjunction([E.equals(A, 0), E.equals(M, 1)]), E.disjunction([E.equals(A, 1), E.equals(B, 1)])]
    assert canonical(E.conjunction([one, two])) is E.conjunction(expected)
    long = E.str_is(("a",), "x" * (LONGEST_TEXT + 1))
    assert canonical(E.conjunction([long, E.equals(N, 1)])) is E.conjunction([E.equals(N, 1), long])
    short = E.str_is(("a",), "x" * (LONGEST_TEXT - len("a == ''")))
    assert canonical(E.conjunction([E.equals(N, 1), short])) is E.conjunction([short, E.equals(N, 1)])


def test_a_node_is_walked_once_and_after_its_arguments() -> None:
    z = E.integer(("z",))
    both = E.add(E.absolute(z), z)
    assert list(E.walk(both)) == [z, E.absolute(z), both]
    square = E.multiply(both, both)
    assert list(E.walk(E.equals(square, 1))) == [z, E.absolute(z), both, square, E.equals(square, 1)]


def vocabulary(*slots: Slot) -> Vocabulary:
    domain: Any = types.SimpleNamespace(slots={slot.path: slot for slot in slots})
    return Vocabulary(domain)


SLOTS = [Slot(path, "int") for path in (("a",), ("a", "b"), ("a", "b", 1), ("a", "bc"), ("abs",), ("n",))]


@pytest.mark.parametrize(
    ("text", "at", "name"),
    [
        ("a < 1", 0, "a"), ("a.b < 1", 0, "a.b"), ("a.bc < 1", 0, "a.bc"), ("a.b[1] < 1", 0, "a.b[1]"),
        ("a.b[2] < 1", 0, "a.b"), ("a.bd < 1", 0, "a"), ("a.b.c < 1", 0, "a.b"), ("a", 0, "a"), ("a.b", 0, "a.b"),
        ("abs(n)", 0, None), ("abs < 3", 0, "abs"), ("abs(n)", 4, "n"), ("nx", 0, None), ("n1", 0, None),
        ("1 < n", 0, None), ("1 < n", 4, "n"), ("x", 0, None), ("", 0, None), ("a.b(1)", 0, "a"),
    ],
)  # fmt: skip
def test_a_slot_is_found_by_the_longest_name_that_stands_there(text: str, at: int, name: str | None) -> None:
    found = vocabulary(*SLOTS).slot(text, at)
    assert (found[0] if found else None) == name
    if found:
        assert path_text(found[1].path) == name


def test_a_value_is_found_by_the_longest_text_that_stands_there() -> None:
    slot = Slot(("k",), "finite", values=(1, 12, None, "x", "x' + 'y"))
    words = vocabulary(slot)
    for text, at, expected in (
        ("k == 12", 5, ("12", 12)),
        ("k == 1", 5, ("1", 1)),
        ("k == 13", 5, ("1", 1)),
        ("'x'", 0, ("'x'", "x")),
        ("\"x' + 'y\"", 0, ("\"x' + 'y\"", "x' + 'y")),
        ("None", 0, ("None", None)),
        ("k == 12", 0, None),
        ("", 0, None),
    ):
        assert words.value(slot, text, at) == expected
        assert words.value(slot, text, at) == expected


def test_slots_and_values_that_read_alike_are_refused() -> None:
    with pytest.raises(ParseError, match=r"two slots read a\.b: \('a', 'b'\) and \('a\.b',\)"):
        vocabulary(Slot(("a", "b"), "int"), Slot(("a.b",), "int"))

    class Same:
        def __repr__(self) -> str:
            return "same"

    slot = Slot(("k",), "finite", values=(Same(), Same()))
    with pytest.raises(ParseError, match="two values of k read alike: one of same, same") as caught:
        vocabulary(slot).value(slot, "k == same", 5)
    assert (caught.value.text, caught.value.position) == ("k == same", 5)


def test_an_error_shows_thirty_characters_on_either_side_of_its_place() -> None:
    text = "".join(chr(ord("0") + i % 75) for i in range(100))
    for position, near in ((0, text[:30]), (10, text[:40]), (50, text[20:80]), (90, text[60:])):
        error = ParseError(text, position, "a problem")
        assert str(error) == f"{near!r} cannot be read, at character {position} of 100: a problem"
        assert (error.text, error.position, error.problem) == (text, position, "a problem")
