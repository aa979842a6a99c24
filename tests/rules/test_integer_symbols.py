"""Stand-ins one by one: on a path that knows the call they answer as the number, float or text itself."""

from __future__ import annotations

import enum
import itertools
import math
import operator
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

import pytest
from tileops_rules import expr as E
from tileops_rules.evaluating import evaluate
from tileops_rules.integers import IntSymbol, RatioSymbol, _even_mantissa, against_constant, against_float, ordered
from tileops_rules.outcome import Fill
from tileops_rules.shapes import DeviceShape, FloatShape, NoneShape, OpaqueShape, Slot, StrShape, TupleShape
from tileops_rules.standin import StandIn, shown, type_error
from tileops_rules.symbols import DeviceSymbol, FloatSymbol, StrSymbol, symbol_of, symbols_in


class Refused(Exception):
    """What the explorer would give the rule up for."""


class Known:
    """An explorer whose call is known."""

    def __init__(self, **values: Any) -> None:
        self.values = {(name,): value for name, value in values.items()}

    def decide(self, question: E.Expr) -> bool:
        return bool(evaluate(question, self.values))

    def ask(self, make: Any, *args: Any) -> bool:
        return self.decide(make(*args))

    def combined(self, combine: Any, left: E.Expr, right: E.Expr | int, swap: bool) -> Any:
        other = E.constant(right) if isinstance(right, int) else right
        return IntSymbol(self, combine(other, left) if swap else combine(left, other))  # type: ignore[arg-type]

    def remaining(self, expr: E.Expr) -> list[int]:
        return [evaluate(expr, self.values)]

    def pick(self, slot: Slot) -> Any:
        return self.values[slot.path]

    def mark(self, fill: Fill) -> str:
        return str(fill)

    def refuse(self, cause: str) -> NoReturn:
        raise Refused(cause)

    def number(self, name: str) -> Any:
        return IntSymbol(self, E.integer((name,)))  # type: ignore[arg-type]

    def real(self, name: str) -> Any:
        return FloatSymbol(self, (name,))  # type: ignore[arg-type]

    def text(self, name: str) -> Any:
        return StrSymbol(self, (name,))  # type: ignore[arg-type]


class Level(enum.IntEnum):
    TWO = 2


def plain(value: Any, asks: Known) -> Any:
    """A result with its type, its stand-ins as the numbers that they stand for."""
    if type(value) is tuple:
        return tuple(plain(part, asks) for part in value)
    if type(value) is IntSymbol:
        return int, evaluate(value._expr, asks.values)
    return type(value), value


def said(asks: Known, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return plain(function(*args), asks)
    except (ArithmeticError, ValueError, TypeError, IndexError, AttributeError) as error:
        return type(error), str(error)


COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
ONE: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "abs": abs,
    "bool": bool,
    "bit_length": lambda x: x.bit_length(),
    "conjugate": lambda x: x.conjugate(),
    "parts": lambda x: (x.real, x.imag, x.numerator, x.denominator),
    "round": round,
    "** 3": lambda x: x**3,
    "** 0": lambda x: x**0 + 0,
    "** 8": lambda x: x**8,
    "<< 2": lambda x: x << 2,
    "<< True": lambda x: x << True,
    ">> 1": lambda x: x >> 1,
    "<< -1": lambda x: x << -1,
    ">> -3": lambda x: x >> -3,
    "& 7": lambda x: x & 7,
    "3 &": lambda x: 3 & x,
    "& 0": lambda x: x & 0,
    "indexed": lambda x: (10, 20, 30)[x],
    "nothing": lambda x: x.nothing,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "divmod": divmod,
    **{each.__name__: each for each in COMPARE},
}


@pytest.mark.parametrize("name", ONE)
def test_an_integer_alone_answers_as_the_number(name: str) -> None:
    for n in (-9, -3, -1, 0, 1, 2, 5, 8):
        asks = Known(n=n)
        assert said(asks, ONE[name], asks.number("n")) == said(asks, ONE[name], n), n


@pytest.mark.parametrize("name", TWO)
def test_an_integer_and_another_answer_as_the_numbers(name: str) -> None:
    operation = TWO[name]
    for n, m in itertools.product((-9, -3, -1, 0, 1, 2, 5), repeat=2):
        asks = Known(n=n, m=m)
        expected = said(asks, operation, n, m)
        for left, right in ((asks.number("n"), asks.number("m")), (asks.number("n"), m), (n, asks.number("m"))):
            assert said(asks, operation, left, right) == expected, (n, m)
        for other in (True, Level.TWO):
            assert said(asks, operation, asks.number("n"), other) == said(asks, operation, n, int(other)), (n, other)


@pytest.mark.parametrize("compare", COMPARE, ids=lambda each: each.__name__)
def test_an_integer_is_compared_with_what_is_none_as_the_number_is(compare: Any) -> None:
    others = [0.5, -0.5, 2.0, 2.5, -2.0, -2.5, 0.0, 1e300, math.inf, -math.inf, math.nan, None, "x", (1,), True]
    for n, other in itertools.product((-3, -2, 0, 1, 2, 3), others):
        asks = Known(n=n)
        assert said(asks, compare, asks.number("n"), other) == said(asks, compare, n, other), (n, other)
        if other is not None and not isinstance(other, str | tuple):
            assert said(asks, compare, other, asks.number("n")) == said(asks, compare, other, n), (n, other)


@pytest.mark.parametrize("compare", COMPARE, ids=lambda each: each.__name__)
def test_a_quotient_is_compared_as_the_float_is(compare: Any) -> None:
    others = [
        0, 1, 2, -1, 0.5, 0.1, 0.3, 1 / 3, 1.5, math.nextafter(0.1, 1), math.nextafter(0.3, 0), -0.75, math.inf,
        -math.inf, math.nan, 10**400, -(10**400), 2**60 + 1, True,
    ]  # fmt: skip
    for n, m, other in itertools.product((-3, 0, 1, 3), (-10, -1, 3, 10), others):
        asks = Known(n=n, m=m)
        for quotient in (asks.number("n") / asks.number("m"), asks.number("n") / m, n / asks.number("m")):
            assert type(quotient) is RatioSymbol
            assert isinstance(quotient, float)
            assert compare(quotient, other) is compare(n / m, other), (n, m, other)
            assert bool(quotient) is bool(n / m)


def test_a_quotient_of_zero_raises_and_one_is_compared_with_constants_only() -> None:
    asks = Known(n=3, m=0)
    for left, right in ((asks.number("n"), asks.number("m")), (3, asks.number("m")), (asks.number("n"), 0)):
        with pytest.raises(ZeroDivisionError, match=r"^division by zero$"):
            _ = left / right
    quotient = asks.number("n") / 2
    assert (quotient == None, quotient != "x") == (False, True)  # noqa: E711 - what is tested
    for other, text in ((None, "None"), ("x", "x"), (asks.number("n"), "n")):
        with pytest.raises(Refused) as caught:
            _ = quotient < other
        cause = f"(n) / (2) is compared with {text}: a true division compares with constants only"
        assert str(caught.value) == cause
    with pytest.raises(Refused, match=r"^\(\(n\) / \(2\)\).hex has no symbolic answer$"):
        _ = quotient.hex
    with pytest.raises(AttributeError, match=r"^'float' object has no attribute 'nothing'$"):
        _ = quotient.nothing


LIMITS = [0.0, 5e-324, 0.1, 0.3, 1.0, 1.5, 2.0**52, 2.0**53 + 2, 1e-300, 1e300, 1 / 3, math.pi]


@pytest.mark.parametrize("limit", [*LIMITS, *(-limit for limit in LIMITS)])
def test_a_quotient_is_rounded_as_python_rounds_it_one_step_beside_the_middle(limit: float) -> None:
    ratio = RatioSymbol(Known(), E.integer(("n",)), E.integer(("m",)), (E.integer(("n",)), E.integer(("m",))))  # type: ignore[arg-type]
    question = ratio._at_most(limit)
    middle = (Fraction(limit) + Fraction(math.nextafter(limit, math.inf))) / 2
    num, den = middle.numerator, middle.denominator
    for step in (-2, -1, 0, 1, 2):
        # m with n * den - m * num == step: as close to the middle as a quotient with this m can lie.
        m = (-step * pow(num, -1, den)) % den + den
        n, rest = divmod(step + m * num, den)
        assert rest == 0
        assert evaluate(question, {("n",): n, ("m",): m}) is (n / m <= limit), step


def test_the_largest_floats_and_infinities_bound_every_quotient_or_none() -> None:
    ratio = RatioSymbol(Known(), E.integer(("n",)), E.integer(("m",)), (E.TRUE, E.TRUE))  # type: ignore[arg-type]
    largest = math.nextafter(math.inf, 0)
    assert [ratio._at_most(each) for each in (math.inf, largest, -math.inf)] == [E.TRUE, E.TRUE, E.FALSE]


def test_whether_the_last_digit_of_a_float_is_even() -> None:
    draw = random.Random(0)
    drawn = [draw.uniform(-10, 10) * 10.0 ** draw.randint(-320, 300) for _ in range(200)]
    for value in [0.0, -0.0, 1.0, 5e-324, -5e-324, 1e-323, 2.0**53, *drawn]:
        mantissa, _ = math.frexp(value)
        digits = int(value / 5e-324) if abs(value) < 2.3e-308 else int(mantissa * 2**53)
        assert _even_mantissa(value) is (digits % 2 == 0), value


@pytest.mark.parametrize("compare", COMPARE[:5], ids=lambda each: each.__name__)
def test_questions_about_integers_mean_the_comparison(compare: Any) -> None:
    sign = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}[compare.__name__]
    n, m = E.integer(("n",)), E.integer(("m",))
    for a, b in itertools.product(range(-4, 5), repeat=2):
        values = {("n",): a, ("m",): b}
        assert evaluate(against_constant(n, sign, b), values) is compare(a, b)
        assert evaluate(ordered(n, sign, m), values) is compare(a, b)
    for a, limit in itertools.product(range(-4, 5), (-2.5, -2.0, -0.5, -0.0, 0.5, 1.0, math.inf, -math.inf, math.nan)):
        assert evaluate(against_float(n, sign, limit), {("n",): a}) is compare(a, limit), (a, limit)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda n: n**9, "n is raised to 9: only constant powers 0 to 8 lift"),
    (lambda n: n**-1, "n is raised to -1: only constant powers 0 to 8 lift"),
    (lambda n: pow(n, 2, 3), "n is raised to 2: only constant powers 0 to 8 lift"),
    (lambda n: n**True, "n is raised to True: only constant powers 0 to 8 lift"),
    (lambda n: n << n, "n is shifted by n: only constant shifts lift"),
    (lambda n: n >> 1.0, "n is shifted by 1.0: only constant shifts lift"),
    (lambda n: n & 6, "n & 6: only a mask of a power of two minus one lifts"),
    (lambda n: n & -1, "n & -1: only a mask of a power of two minus one lifts"),
    (lambda n: n & n, "n & n: only a mask of a power of two minus one lifts"),
    (lambda n: n + 1.5, "n is mixed with the float 1.5: floats have no symbolic arithmetic"),
    (lambda n: n / 1.5, "n is mixed with the float 1.5: floats have no symbolic arithmetic"),
    (lambda n: round(n, 1), "n is rounded to 1 digits"),
    (lambda n: n.to_bytes, "n.to_bytes has no symbolic answer"),
    (lambda n: n + n == n._asks.real("f"), "2*n is compared with f, a field of another kind"),
    (lambda n: int(n), "n is passed to int(), which has no symbolic answer"),
    (lambda n: 2**n, "n is passed to **, which has no symbolic answer"),
    (range, "n is needed as a number (by range(), math or a conversion)"),
    (
        hash,
        "n is hashed, by a set or dict that is not one of at most 64 constants reached as a literal, global, closure "
        "variable or class attribute",
    ),
]


@pytest.mark.parametrize(("operation", "cause"), REFUSED)
def test_what_no_expression_says_is_refused_with_these_words(operation: Any, cause: str) -> None:
    with pytest.raises(Refused) as caught:
        operation(Known(n=3).number("n"))
    assert str(caught.value) == cause


def test_an_index_is_refused_where_its_values_are_many_or_none() -> None:
    asks = Known(n=1)
    assert asks.number("n").is_integer() is True
    assert "abc"[asks.number("n")] == "b"
    for left, cause in (
        (None, "n is needed as a number (by range(), an index or a conversion) and may still have more than 64 values"),
        ([], "n has no value left on this path"),
        ([0, 2], "n has no value left on this path"),
    ):
        asks.remaining = lambda expr, left=left: left  # type: ignore[method-assign, misc]
        with pytest.raises(Refused) as caught:
            _ = "abc"[asks.number("n")]
        assert str(caught.value).startswith(cause)
    asks.remaining = lambda expr: [0, 1, 2]  # type: ignore[method-assign]
    assert "abc"[asks.number("n")] == "b"


@pytest.mark.parametrize("compare", COMPARE, ids=lambda each: each.__name__)
def test_a_float_is_compared_as_the_float_itself(compare: Any) -> None:
    limits = [0, 1, -1, 0.5, 0.0, -0.0, True, math.inf, -math.inf, math.nan, None, "x"]
    for value, limit in itertools.product((0.0, -0.0, 0.5, 1.0, -1.5, math.inf, -math.inf, math.nan), limits):
        asks = Known(f=value)
        held = asks.real("f")
        assert said(asks, compare, held, limit) == said(asks, compare, value, limit), (value, limit)
        assert compare(held, held) is compare(value, value)
        assert compare(held, asks.real("f")) is compare(value, value)
        assert bool(held) is bool(value)


def test_a_float_is_not_compared_with_what_no_float_equals_or_with_another_field() -> None:
    asks = Known(f=0.5, g=0.5, n=1)
    for other, cause in (
        (2**60 + 1, "f is compared with 1152921504606846977, which no float equals"),
        (10**400, f"f is compared with {10**400}, which no float equals"),
        (asks.real("g"), "f is compared with g: a float compares with constants only"),
        (asks.number("n"), "f is compared with n: a float compares with constants only"),
    ):
        with pytest.raises(Refused) as caught:
            _ = asks.real("f") < other
        assert str(caught.value) == cause
    assert (asks.real("f") < 2**60) is True
    with pytest.raises(TypeError, match=r"^'<' not supported between instances of 'float' and 'NoneType'$"):
        asks.real("f")._compare(None, "<")
    assert asks.real("f")._compare(None, "==") is NotImplemented


def test_a_text_is_compared_as_the_text_itself() -> None:
    for value, other in itertools.product(("", "x", "y"), ("", "x", "y", 3, None)):
        asks = Known(t=value)
        assert (asks.text("t") == other) is (value == other)
        assert (asks.text("t") != other) is (value != other)
        assert bool(asks.text("t")) is bool(value)
        assert (asks.text("t") == asks.text("t"), asks.text("t") != asks.text("t")) == (True, False)
    asks = Known(t="x", u="x", n=1)
    for stranger in (asks.text("u"), asks.number("n")):
        with pytest.raises(Refused, match="a string compares with constants only"):
            _ = asks.text("t") == stranger


def test_a_device_has_a_type_and_nothing_else() -> None:
    asks = Known(device="cpu")
    held: Any = DeviceSymbol(asks, DeviceShape(("device",), Slot(("device",), "finite", values=("cpu",)), None))  # type: ignore[arg-type]
    assert held.type == "cpu"
    assert (held == None) is False  # noqa: E711 - what is tested
    for look in (lambda: held.index, lambda: held == "cpu", lambda: hash(held)):
        with pytest.raises(Refused, match=r"^device(\.index is read| is compared with 'cpu'| is hashed)"):
            look()


def test_each_part_of_a_call_is_handed_out_as_its_shape_says() -> None:
    asks: Any = Known(f=0.5, t="x")
    pair = TupleShape(("p",), (FloatShape(("f",), Slot(("f",), "float")), StrShape(("t",), Slot(("t",), "str"))))
    left, right = symbol_of(asks, pair)
    assert (type(left), type(right)) == (FloatSymbol, StrSymbol)
    assert symbol_of(asks, NoneShape(("x",))) is None
    with pytest.raises(Refused, match=r"^odd is read, which is a Decimal: no question can speak of it$"):
        symbol_of(asks, OpaqueShape(("odd",), "a Decimal"))


def test_stand_ins_are_found_in_tuples_and_lists_and_shown_by_name() -> None:
    asks = Known(n=1, f=0.5)
    n, f = asks.number("n"), asks.real("f")
    for value, found in (
        (n, [n]),
        ((n, 3, f), [n, f]),
        ([n, (f, [n])], [n, f, n]),
        (3, []),
        ("n", []),
        (IntSymbol, []),
    ):
        assert [id(each) for each in symbols_in(value)] == [id(each) for each in found]
    assert [shown(each) for each in (n, f, n / 2, 3, "x")] == ["n", "f", "(n) / (2)", "3", "x"]
    assert str(type_error("<", "int", f)) == "'<' not supported between instances of 'int' and 'float'"
    assert isinstance(n, StandIn)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda asks: f"{asks.number('n')}", "{n}"),
        (lambda asks: f"{asks.number('n'):c}", "{n:c}"),
        (lambda asks: f"{asks.number('n') + 1:>5}", "{n + 1:>5}"),
        (lambda asks: f"{asks.number('n')!r}", "{n!r}"),
        (lambda asks: str(asks.real("f")), "{f!s}"),
        (lambda asks: f"{asks.real('f'):.2f}", "{f:.2f}"),
        (lambda asks: f"{asks.number('n') / -2:.2f}", "{(n) / (-2):.2f}"),
        (lambda asks: f"{asks.text('t'):>9}", "{t:>9}"),
    ],
)
def test_a_place_in_a_reason_keeps_its_format(make: Any, text: str) -> None:
    assert make(Known(n=1, f=0.5, t="x")) == text


def test_a_format_that_python_refuses_is_refused_alike() -> None:
    asks = Known(n=1, f=0.5, t="x")
    for held, value, spec in ((asks.number("n"), 1, "s"), (asks.real("f"), 0.5, "d"), (asks.text("t"), "x", "d")):
        with pytest.raises(ValueError) as expected:  # noqa: PT011 - its text is compared
            format(value, spec)
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - as above
            format(held, spec)
        assert str(caught.value) == str(expected.value)
