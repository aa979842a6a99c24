"""How texts of questions are read: what binds tighter, what is asked of what, and where a text is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from tileops_rules import expr as E
from tileops_rules.domain import domain_of
from tileops_rules.parsing import ParseError, parse, parse_lines


@dataclass(frozen=True)
class Call:
    n: int = 1
    m: int = 1
    k: int = 1
    kind: Literal["a", "b"] = "a"
    eps: float = 0.5
    name: str = ""


DOMAIN = domain_of(Call)
N, M, K = (E.integer((name,)) for name in "nmk")


def number(value: int) -> E.Expr:
    return E.constant(value)


def among(subject: E.Expr, *values: int) -> E.Expr:
    return E.disjunction(E.equals(subject, value) for value in values)


SUM, PRODUCT = E.add(N, M), E.multiply(N, M)
READ = {
    "n": N,
    "-n": E.scale(N, -1),
    "- - n": N,
    "n + m * k": E.add(N, E.multiply(M, K)),
    "n * m + k": E.add(PRODUCT, K),
    "(n + m) * k": E.multiply(SUM, K),
    "n - m - k": E.subtract(E.subtract(N, M), K),
    "n - (m - k)": E.subtract(N, E.subtract(M, K)),
    "n - m + k": E.add(E.subtract(N, M), K),
    "-n * m": E.multiply(E.scale(N, -1), M),
    "n // m // k": E.floordiv(E.floordiv(N, M), K),
    "n // (m // k)": E.floordiv(N, E.floordiv(M, K)),
    "n * m % k": E.mod(PRODUCT, K),
    "n % 8 * 3": E.scale(E.mod(N, number(8)), 3),
    "abs(n - m)": E.absolute(E.subtract(N, M)),
    "abs(n) + m": E.add(E.absolute(N), M),
    "n.bit_length()": E.bit_length(N),
    "m + n.bit_length()": E.add(M, E.bit_length(N)),
    "(n + m).bit_length()": E.bit_length(SUM),
    "n <= 5": E.at_most(N, 5),
    "n < 5": E.at_most(N, 4),
    "n > 5": E.negation(E.at_most(N, 5)),
    "n >= 5": E.negation(E.at_most(N, 4)),
    "n == 5": E.equals(N, 5),
    "n != 5": E.negation(E.equals(N, 5)),
    "n <= m": E.at_most(E.subtract(N, M), 0),
    "n < m": E.at_most(E.subtract(N, M), -1),
    "n > m": E.negation(E.at_most(E.subtract(N, M), 0)),
    "n >= m": E.negation(E.at_most(E.subtract(N, M), -1)),
    "n == m": E.equals(E.subtract(N, M), 0),
    "n != m": E.negation(E.equals(E.subtract(N, M), 0)),
    "5 == n": E.equals(E.subtract(number(5), N), 0),
    "1 <= n <= 8": E.conjunction([E.at_most(E.subtract(number(1), N), 0), E.at_most(N, 8)]),
    "1 <= n < m == k": E.conjunction(
        [
            E.at_most(E.subtract(number(1), N), 0),
            E.at_most(E.add(E.subtract(N, M), number(1)), 0),
            E.equals(E.subtract(M, K), 0),
        ]
    ),
    "n + 1 <= m * 2": E.at_most(E.subtract(E.add(N, number(1)), E.scale(M, 2)), 0),
    "n in (1, 2)": among(N, 1, 2),
    "n in (1,)": among(N, 1),
    "n not in (1, -2)": E.negation(among(N, 1, -2)),
    "n + m in (3, 4)": among(SUM, 3, 4),
    "n * m in (3, 4)": among(PRODUCT, 3, 4),
    "k + n * m in (3, 4)": among(E.add(K, PRODUCT), 3, 4),
    "-n in (3, 4)": among(E.scale(N, -1), 3, 4),
    "k <= 1 & n + m in (3, 4)": E.conjunction([E.at_most(K, 1), among(SUM, 3, 4)]),
    "k <= 1 | n in (3, 4)": E.disjunction([E.at_most(K, 1), among(N, 3, 4)]),
    "~n in (3, 4)": E.negation(among(N, 3, 4)),
    "~n <= 5": E.negation(E.at_most(N, 5)),
    "~~n <= 5": E.at_most(N, 5),
    "~n <= 5 & m <= 5": E.conjunction([E.negation(E.at_most(N, 5)), E.at_most(M, 5)]),
    "~(n <= 5 & m <= 5)": E.negation(E.conjunction([E.at_most(N, 5), E.at_most(M, 5)])),
    "n <= 1 | m <= 2 & k <= 3": E.disjunction([E.at_most(N, 1), E.conjunction([E.at_most(M, 2), E.at_most(K, 3)])]),
    "(n <= 1 | m <= 2) & k <= 3": E.conjunction([E.disjunction([E.at_most(N, 1), E.at_most(M, 2)]), E.at_most(K, 3)]),
    "n <= 1 & m <= 2 & k <= 3": E.conjunction([E.at_most(N, 1), E.at_most(M, 2), E.at_most(K, 3)]),
    "n <= 1 | m <= 2 | k <= 3": E.disjunction([E.at_most(N, 1), E.at_most(M, 2), E.at_most(K, 3)]),
    "True": E.TRUE,
    "False | n <= 1": E.at_most(N, 1),
    "kind == 'a'": E.among(("kind",), ["a"]),
    "kind != 'a'": E.negation(E.among(("kind",), ["a"])),
    "kind in ('a', 'b')": E.among(("kind",), ["a", "b"]),
    "kind not in ('b')": E.negation(E.among(("kind",), ["b"])),
    "eps < 0.5": E.float_is(("eps",), "<", 0.5),
    "eps != -1e-3": E.negation(E.float_is(("eps",), "==", -1e-3)),
    "eps >= -inf": E.float_is(("eps",), ">=", float("-inf")),
    "isnan(eps) | n <= 1": E.disjunction([E.float_is(("eps",), "nan", 0.0), E.at_most(N, 1)]),
    "name == 'a\\'b'": E.str_is(("name",), "a'b"),
    'name != "x"': E.negation(E.str_is(("name",), "x")),
}


@pytest.mark.parametrize("text", READ)
def test_a_text_is_read_as_python_would(text: str) -> None:
    spaced = f"  {text}\n"
    assert (parse(text, DOMAIN), parse(spaced, DOMAIN), parse(f"({text})", DOMAIN)) == (READ[text],) * 3


WRONG = {
    "": (0, "a number, a field or a question is missing"),
    "n +": (3, "a number, a field or a question is missing"),
    "n ~ m": (2, "an operator is missing"),
    "n <= 1 ~ m <= 2": (7, "an operator is missing"),
    "n (m": (2, "an operator is missing"),
    "n <= 1 (m <= 2)": (7, "an operator is missing"),
    "n m": (2, "an operator is missing"),
    "n <= 1)": (6, "no parenthesis is open"),
    "(n <= 1": (0, "this parenthesis is not closed"),
    "m + (n * (k + 1)": (4, "this parenthesis is not closed"),
    "abs(n": (0, "this parenthesis is not closed"),
    "isnan(eps": (9, "a closing parenthesis is missing"),
    "isnan(n)": (6, "isnan asks about a float slot"),
    "isnan(5)": (6, "isnan asks about a float slot"),
    "n // 0": (2, "this divides by 0"),
    "m + n % 0": (6, "this divides by 0"),
    "n & m <= 1": (2, "a question is needed here, not n"),
    "m <= 1 & n": (7, "a question is needed here, not n"),
    "n <= 1 + 2 <= m <= (k <= 1)": (2, "a number is needed here, not k <= 1"),
    "abs(n <= 1)": (0, "a number is needed here, not n <= 1"),
    "(n <= 1) in (1, 2)": (9, "a number is needed here, not n <= 1"),
    "(n <= 1).bit_length()": (8, "a number is needed here, not n <= 1"),
    "~n": (0, "a question is needed here, not n"),
    "-(n <= 1)": (0, "a number is needed here, not n <= 1"),
    "other <= 1": (0, "no slot is called other"),
    "n <= $a": (5, "no slot is called $a"),
    "eps": (0, "eps is compared with nothing"),
    "n <= 1 & name": (9, "name is compared with nothing"),
    "eps < n": (6, "eps is a float: compare it with a number"),
    "name < 'a'": (7, "name is a string: ask == or != of a quoted text"),
    "name == 5": (8, "name is a string: ask == or != of a quoted text"),
    "kind < 'a'": (4, "kind has finitely many values: ask ==, !=, in (...) or not in (...)"),
    "kind == 'c'": (8, "no value of kind reads like this: it is one of 'a', 'b'"),
    "kind in ('a', 'c')": (14, "no value of kind reads like this: it is one of 'a', 'b'"),
    "kind in ('a'": (12, "a closing parenthesis is missing"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_is_said_with_the_place(text: str) -> None:
    with pytest.raises(ParseError) as error:
        parse(text, DOMAIN)
    assert (error.value.position, error.value.problem) == WRONG[text]
    assert error.value.text == text


def test_lines_name_parts_for_the_lines_after_them() -> None:
    lines = ["$a = n + 1", "$b = $a * 2", "$b <= 10", "$a in (1, 2) | m <= 1"]
    first = E.add(N, number(1))
    assert parse_lines(lines, DOMAIN) is E.conjunction(
        [E.at_most(E.scale(first, 2), 10), E.disjunction([among(first, 1, 2), E.at_most(M, 1)])]
    )
    assert parse_lines([], DOMAIN) is E.TRUE
    for wrong, position, problem in (
        (["$a <= 1"], 0, "no slot is called $a"),
        (["$a = n", "$a = m"], 0, "$a is defined twice"),
        (["$a = n", "$a <= 1 &"], 9, "a number, a field or a question is missing"),
        (["$a = n +"], 8, "a number, a field or a question is missing"),
    ):
        with pytest.raises(ParseError) as error:
            parse_lines(wrong, DOMAIN)
        assert (error.value.position, error.value.problem, error.value.text) == (position, problem, wrong[-1])
