"""What is printed is read back to the very same node, and texts of any predicate stay as small as the predicate."""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tileops_rules import NotLifted, OneOf, Range, lift
from tileops_rules import expr as E
from tileops_rules.domain import Domain, domain_of
from tileops_rules.evaluating import evaluate
from tileops_rules.parsing import ParseError, parse, parse_lines
from tileops_rules.printing import path_text, slot_text
from tileops_rules.writing import LONGEST_TEXT, canonical, text_lengths, written

from tests.rules.programs import Program, function_of, spec_of


class Mode(enum.Enum):
    FAST = 1
    SAFE = "s & (s | 'x')"


class Size(enum.IntEnum):
    S = 1
    L = 12


@dataclass(frozen=True)
class Left:
    rows: int = 1
    scale: float = 1.0


@dataclass(frozen=True)
class Right:
    rows: int = 1
    name: str = ""


@dataclass(frozen=True)
class Call:
    n: int = 1
    n2: int = 1
    abs: int = 0
    inf: int = 0
    isnan: int = 0
    mixed: Literal[1, 12, True, "1", None] = 1
    mode: Mode = Mode.SAFE
    size: Size = Size.S
    tile: Annotated[Any, OneOf((8, 16), (8, 1), 0.5, "in (1)", "a' & \"b")] = (8, 16)
    eps: float = 1e-5
    name: str = "x"
    shape: tuple[int, ...] = ()
    pair: tuple[int, float] = (1, 0.0)
    part: Left = Left()
    either: Union[int, float, str, None] = None
    side: Union[Left, Right] = Left()
    window: Optional[int] = None
    device: Optional[str] = None


DOMAIN = domain_of(Call)
INTEGERS = [E.integer(path) for path, slot in DOMAIN.slots.items() if slot.sort == "int"]


def of_sort(sort: str) -> list[Any]:
    return [slot for slot in DOMAIN.slots.values() if slot.sort == sort]


@st.composite
def numbers(draw: st.DrawFn, depth: int = 3) -> E.Expr:
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.one_of(st.sampled_from(INTEGERS), st.integers(-70, 70).map(E.constant)))
    left = draw(numbers(depth - 1))
    kind = draw(st.sampled_from(["add", "subtract", "multiply", "floordiv", "mod", "scale", "absolute", "bit_length"]))
    if kind in ("absolute", "bit_length"):
        return getattr(E, kind)(left)
    if kind == "scale":
        return E.scale(left, draw(st.integers(-5, 5)))
    right = draw(numbers(depth - 1))
    if kind in ("floordiv", "mod") and right is E.constant(0):
        right = E.constant(-3)
    return getattr(E, kind)(left, right)


@st.composite
def questions(draw: st.DrawFn, depth: int = 4) -> E.Expr:
    kind = draw(st.sampled_from(["number", "finite", "float", "str", *(["and", "or", "not"] * (2 if depth else 0))]))
    if kind == "number":
        asked = draw(st.sampled_from([E.at_most, E.equals]))
        return asked(draw(numbers()), draw(st.integers(-(2**70), 2**70) | st.integers(-9, 9)))
    if kind == "finite":
        slot = draw(st.sampled_from(of_sort("finite")))
        return E.among(slot.path, draw(st.lists(st.sampled_from(slot.values), min_size=1, max_size=4)))
    if kind == "float":
        slot, comparison = draw(st.sampled_from(of_sort("float"))), draw(st.sampled_from(["<", "<=", "==", ">=", ">"]))
        return E.float_is(slot.path, draw(st.sampled_from([comparison, "nan"])), draw(st.floats(allow_nan=False)))
    if kind == "str":
        return E.str_is(draw(st.sampled_from(of_sort("str"))).path, draw(st.text(max_size=8)))
    if kind == "not":
        return E.negation(draw(questions(depth - 1)))
    parts = draw(st.lists(questions(depth - 1), min_size=1, max_size=4))
    return E.conjunction(parts) if kind == "and" else E.disjunction(parts)


@settings(max_examples=120, deadline=None)
@given(questions())
def test_every_question_is_read_back_to_the_same_node(asked: E.Expr) -> None:
    assert parse(str(asked), DOMAIN) is asked
    assert parse_lines(written(asked), DOMAIN) is asked


@settings(max_examples=80, deadline=None)
@given(numbers())
def test_every_number_is_read_back_to_the_same_node(number: E.Expr) -> None:
    assert parse(str(number), DOMAIN) is number


AS_PRINTED = (
    "True",
    "mixed in (1, 12, '1') & ~(isnan(eps)) & eps < inf",
    "mode == <Mode.FAST: 1> | mode != <Mode.SAFE: \"s & (s | 'x')\">",
    "size not in (<Size.S: 1>, <Size.L: 12>) & tile in (0.5, 'in (1)', (8, 1))",
    "abs(n - 2*n2) % 8 == 0 & ~(abs.bit_length() <= 1025)",
    "-3 // n == 2 & -inf + 3*(n*n2) - 7*isnan <= -2",
    "(n // n2)*(n + 1) != 4 | either.type == 'int' & either.<int> >= 5",
    "either.<float> >= -inf & either.<str> != 'it\\'s' & side.<Right>.rows <= 3",
    "shape.len == 2 & shape[1] % 16 == 0 & ~(pair[1] == 1e-300) & device.type == 'cpu'",
)


def test_every_kind_of_node_is_read_as_it_is_printed() -> None:
    asked = [parse(text, DOMAIN) for text in AS_PRINTED]
    assert {node.kind for each in asked for node in E.walk(each)} == set(E.KINDS)
    for each in asked:
        assert parse(str(each), DOMAIN) is each


def lifted(seeds: range) -> list[Any]:
    rules = []
    for seed in seeds:
        program = Program(seed)
        try:
            rules.append(lift(function_of(program.source), spec_of(program.names), budget=1000))
        except NotLifted:
            continue
    return rules


def test_the_predicates_of_random_rules_are_read_back_to_the_same_node() -> None:
    rules = lifted(range(100))
    assert len(rules) > 60
    for rule in rules:
        for predicate in (rule.serves, rule.raises):
            assert parse_lines(written(predicate.expr), rule.domain) is predicate.expr
            if text_lengths(predicate.expr)[predicate.expr] <= 100_000:
                assert parse(str(predicate), rule.domain) is predicate.expr


def test_dtypes_are_read_by_their_printed_name() -> None:
    torch = pytest.importorskip("torch")
    dtypes = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str)

    domain = domain_of(
        make_dataclass("Typed", [("dtype", torch.dtype), ("accumulator", Annotated[Any, OneOf(*dtypes, None)])])
    )
    for dtype in dtypes:
        for asked in (E.among(("dtype",), [dtype]), E.among(("accumulator",), [None, dtype, torch.bool])):
            assert parse(str(asked), domain) is asked
            assert parse(str(E.negation(asked)), domain) is E.negation(asked)


def test_the_alternatives_of_a_union_read_apart_in_expressions_and_as_one_field_in_messages() -> None:
    paths = [path for path in DOMAIN.slots if path[0] == "either"]
    assert {path_text(path) for path in paths} == {"either.type", "either.<int>", "either.<float>", "either.<str>"}
    assert {slot_text(path) for path in paths} == {"either.type", "either"}
    assert path_text(("side", "<Left>", "rows")) == "side.<Left>.rows"
    assert path_text(("window",)) == "window"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1 <= n <= 64 & n2 < 3", "n >= 1 & n <= 64 & n2 <= 2"),
        ("n in (1, 2, 4)", "n == 1 | n == 2 | n == 4"),
        ("~(n not in (3,))", "n == 3"),
        ("n < n2", "n - n2 <= -1"),
        ("n*8 > 3*n2 - 1", "8*n - 3*n2 >= 0"),
        ("eps != 0.5", "~(eps == 0.5)"),
        ("( ( n<=3 ) )&eps<inf", "n <= 3 & eps < inf"),
        ("-n // 3 <= -2", "(-n) // 3 <= -2"),
    ],
)
def test_more_is_read_than_is_printed(text: str, same: str) -> None:
    assert parse(text, DOMAIN) is parse(same, DOMAIN)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "is missing"),
        ("n <= ", 5, "is missing"),
        ("n <= 3 & rows == 2", 9, "no slot is called rows"),
        ("n <= 3 n2 <= 2", 7, "an operator is missing"),
        ("(n <= 3", 0, "not closed"),
        ("n <= 3)", 6, "no parenthesis is open"),
        ("n & n2 <= 3", 2, "a question is needed here, not n"),
        ("(n <= 3) + 1 <= 2", 9, "a number is needed here, not n <= 3"),
        ("mode == FAST", 8, "no value of mode reads like this"),
        ("mode <= 3", 4, "ask ==, !="),
        ("eps <= n", 7, "compare it with a number"),
        ("name == x", 8, "a quoted text"),
        ("isnan(n)", 6, "a float slot"),
        ("n // 0 == 1", 2, "divides by 0"),
        ("n.cols <= 2", 1, "an operator is missing"),
        ("$1 <= 2", 0, "no slot is called $1"),
        ("__import__('os')", 0, "no slot is called __import__"),
    ],
)
def test_an_error_carries_the_text_and_the_place(text: str, position: int, problem: str) -> None:
    with pytest.raises(ParseError, match="cannot be read") as caught:
        parse(text, DOMAIN)
    assert (caught.value.text, caught.value.position) == (text, position)
    assert problem in caught.value.problem


def test_values_that_read_alike_are_refused_and_not_guessed() -> None:
    class Mute:
        def __repr__(self) -> str:
            return "mute"

    with pytest.raises(ParseError, match="read alike"):
        parse("kind == mute", domain_of(make_dataclass("Two", [("kind", Annotated[Any, OneOf(Mute(), Mute())])])))


def ladder(steps: int) -> E.Expr:
    """A predicate whose text doubles at each step."""
    low = high = E.at_most(E.integer(("n",)), 0)
    for i in range(1, steps):
        asked = E.at_most(E.integer(("n2",)), 3 * i)
        low, high = (
            E.disjunction([E.conjunction([asked, low]), E.conjunction([E.negation(asked), high])]),
            E.disjunction([E.conjunction([asked, high]), E.conjunction([E.negation(asked), low])]),
        )
    return E.conjunction([low, E.at_most(E.integer(("abs",)), 3)])


def test_the_lines_of_a_predicate_stay_linear_where_its_text_doubles_at_each_step() -> None:
    sizes = {}
    for steps in (50, 100, 200):
        tall = ladder(steps)
        lines = written(tall)
        sizes[steps] = sum(map(len, lines))
        assert parse_lines(lines, DOMAIN) is tall
    assert text_lengths(ladder(200))[ladder(200)] > 2**190
    assert sizes[200] - sizes[100] < 2.2 * (sizes[100] - sizes[50])


def test_a_deep_predicate_is_written_and_read_without_recursion() -> None:
    deep = E.at_most(E.integer(("n",)), 0)
    for i in range(1, 3000):
        asked = E.equals(E.integer(("n2" if i % 2 else "abs",)), i)
        deep = E.conjunction([asked, deep]) if i % 2 else E.disjunction([asked, deep])
    lines = written(deep)
    assert parse_lines(lines, DOMAIN) is deep
    assert max(map(len, lines)) < LONGEST_TEXT, "no line holds all 3,000 levels"
    nested = "(" * 3000 + "n <= 1" + ")" * 3000
    assert parse(nested, DOMAIN) is E.at_most(E.integer(("n",)), 1)


def test_a_short_predicate_is_written_a_clause_a_line() -> None:
    assert written(parse("n <= 3 & (n2 <= 1 | eps < 0.5)", DOMAIN)) == ("n <= 3", "n2 <= 1 | eps < 0.5")
    assert written(E.TRUE) == ()
    assert written(E.FALSE) == ("False",)


def test_a_name_is_defined_once_and_before_its_use() -> None:
    assert parse_lines(["$a = n + 1", "$a <= 3", "2*$a <= n2"], DOMAIN) is parse("n <= 2 & 2*n + 2 <= n2", DOMAIN)
    with pytest.raises(ParseError, match="defined twice"):
        parse_lines(["$a = n", "$a = n2", "$a <= 3"], DOMAIN)
    with pytest.raises(ParseError, match="no slot is called \\$b"):
        parse_lines(["$b <= 3", "$b = n"], DOMAIN)


def shuffled(expr: E.Expr, draw: random.Random) -> E.Expr:
    made: dict[E.Expr, E.Expr] = {}
    for node in E.walk(expr):
        parts = [made[arg] for arg in node.args]
        draw.shuffle(parts)
        if node.kind in ("and", "or"):
            made[node] = E.conjunction(parts) if node.kind == "and" else E.disjunction(parts)
        else:
            made[node] = E.negation(parts[0]) if node.kind == "not" else node
    return made[expr]


def total(expr: E.Expr) -> bool:
    """It has an answer on every call: it divides by constants and asks of no part that a call may lack."""
    divides = any(node.kind in ("floordiv", "mod") and node.args[1].kind != "const" for node in E.walk(expr))
    return not divides and not {"either", "side", "shape", "window"} & {path[0] for path in E.paths_of(expr)}


@settings(max_examples=60, deadline=None)
@given(questions(), st.integers(0, 2**32))
def test_questions_that_differ_in_order_alone_have_one_canonical_form(asked: E.Expr, seed: int) -> None:
    form = canonical(asked)
    assert canonical(form) is form
    if total(asked):
        assert canonical(shuffled(asked, random.Random(seed))) is form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("n2 != 0 & n % n2 == 1 & abs == 3", "abs == 3 & n2 != 0 & n % n2 == 1"),
        ("window.type == 'int' & window <= 3 & abs == 3", "abs == 3 & window.type == 'int' & window <= 3"),
        ("shape.len == 2 & shape[1] == 3", "shape.len == 2 & shape[1] == 3"),
        ("n2 == 0 | n % n2 == 1", "n2 == 0 | n % n2 == 1"),
        ("either.type == 'str' & either.<str> == 'a' & either.type != 'int'", None),
    ],
)
def test_a_guard_stays_before_what_it_guards(text: str, form: str | None) -> None:
    assert str(canonical(parse(text, DOMAIN))) == (
        form if form is not None else "either.type != 'int' & either.type == 'str' & either.<str> == 'a'"
    )


@dataclass(frozen=True)
class Little:
    a: Annotated[int, Range(-2, 3)] = 0
    b: Annotated[int, Range(-2, 3)] = 0


def values_of(domain: Domain) -> list[dict[Any, int]]:
    return [{("a",): a, ("b",): b} for a in range(-2, 4) for b in range(-2, 4)]


def test_the_canonical_form_holds_on_the_same_calls() -> None:
    for seed in range(150):
        draw = random.Random(seed)
        leaves = [E.at_most(E.integer((draw.choice("ab"),)), draw.randint(-3, 3)) for _ in range(6)]
        for _ in range(6):
            parts = [draw.choice([leaf, E.negation(leaf)]) for leaf in draw.sample(leaves, 3)]
            leaves.append(E.conjunction(parts) if draw.random() < 0.5 else E.disjunction(parts))
        form = canonical(leaves[-1])
        assert [evaluate(form, at) for at in values_of(domain_of(Little))] == [
            evaluate(leaves[-1], at) for at in values_of(domain_of(Little))
        ]


def test_the_canonical_form_of_a_large_predicate_is_found_without_its_text() -> None:
    tall = ladder(120)
    assert canonical(shuffled(tall, random.Random(3))) is canonical(tall)
    assert text_lengths(tall)[tall] > LONGEST_TEXT
    assert math.isfinite(sum(map(len, written(canonical(tall)))))
