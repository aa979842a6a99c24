"""Reads what expressions print back, to the very same node: ``parse(str(e), domain) is e``.

The grammar is that of :mod:`tileops_rules.printing`, which is not quite Python's: ``&`` and ``|`` bind looser than
comparisons, ``x.<float>`` names the alternative of a union, and a finite slot's values stand as they read
(``mode == <Mode.FAST: 1>``). So texts are read by the table of operators below, without recursion; nothing is ever
evaluated. Beyond what is printed, ``<``, ``>``, ``1 <= n <= 8`` and ``n in (1, 2, 4)`` are read too.

A predicate that shares its parts prints them once for each use, which can be exponential in the number of its nodes,
and one that nests deeply runs into Python's recursion limit. :func:`~tileops_rules.writing.written` gives the
lines of any expression in linear size, with shared and deep parts under names, and :func:`parse_lines` reads them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tileops_rules import expr as E
from tileops_rules.expr import KINDS, Expr
from tileops_rules.shapes import Slot
from tileops_rules.vocabulary import WORD, HasSlots, ParseError, Vocabulary

__all__ = ["HasSlots", "ParseError", "parse", "parse_lines"]


def parse(text: str, domain: HasSlots) -> Expr:
    """The expression that reads *text*.

    Args:
        text: As ``str(expr)`` gives it.
        domain: The slots that it may speak of.

    Raises:
        ParseError: it is no such text, or two slots or values that it may name read alike.
    """
    return _Reader(Vocabulary(domain), text, {}).read()


def parse_lines(lines: Iterable[str], domain: HasSlots) -> Expr:
    """The conjunction of *lines*, in order.

    Args:
        lines: As :func:`~tileops_rules.writing.written` gives them: an expression each, or ``$name = expression``, for
            the lines after it.
        domain: The slots that they may speak of.

    Raises:
        ParseError: as for :func:`parse`.
    """
    vocabulary = Vocabulary(domain)
    names: dict[str, Expr] = {}
    clauses: list[Expr] = []
    for line in lines:
        named = _DEFINITION.match(line)
        found = _Reader(vocabulary, line, names, named.end() if named else 0).read()
        if named is None:
            clauses.append(found)
        elif named[1] in names:
            raise ParseError(line, 0, f"{named[1]} is defined twice")
        else:
            names[named[1]] = found
    return E.conjunction(clauses)


_DEFINITION: Final = re.compile(r"(\$\w+) = ")
_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"\$\w+")
_NUMBER: Final = re.compile(r"\d+(?![\w.])")
_FLOAT: Final = re.compile(r"-?(?:inf|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?!\w)")
_STRING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_COMPARISON: Final = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*")
_MEMBERSHIP: Final = re.compile(r"\s*(not in|in)\s*\(\s*")
_COMMA: Final = re.compile(r"\s*,\s*")
_CLOSE: Final = re.compile(r"\s*\)")
_CALL: Final = re.compile(r"(abs|isnan)\(\s*")
_BIT_LENGTH: Final = re.compile(r"\.bit_length\(\)")
_INTEGERS: Final = re.compile(r"(not in|in)\s*\(\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*,?\s*\)")
_OPERATOR: Final = re.compile(r"//|<=|>=|==|!=|[-+*%<>&|~()]")

_BINDING: Final[Mapping[str, int]] = {
    "|": 1,
    "&": 2,
    "~": 3,
    **dict.fromkeys(("<=", ">=", "==", "!=", "<", ">"), 4),
    **dict.fromkeys("+-", 5),
    **dict.fromkeys(("*", "//", "%"), 6),
    "negative": 7,
}
"""How tightly each operator binds."""

_COMPARISONS: Final = 4


@dataclass
class _Pending:
    """An operator whose right side is still being read, or an open parenthesis."""

    sign: str
    at: int
    binding: int
    more: list[str] = field(default_factory=list)


class _Reader:
    """Reads one text: operands and the operators that wait for them, each on a stack."""

    def __init__(self, vocabulary: Vocabulary, text: str, names: Mapping[str, Expr], at: int = 0) -> None:
        self._vocabulary = vocabulary
        self._text = text
        self._names = names
        self._at = at
        self._read: list[Expr] = []
        self._pending: list[_Pending] = []

    def read(self) -> Expr:
        """The expression."""
        self._operand()
        while True:
            self._at = _end(_SPACE, self._text, self._at)
            if self._at == len(self._text):
                break
            if self._close():
                continue
            if not self._suffix():
                self._infix()
                self._operand()
        while self._pending:
            if self._pending[-1].sign.endswith("("):
                raise self._problem("this parenthesis is not closed", self._pending[-1].at)
            self._apply()
        return self._read[0]

    def _problem(self, problem: str, at: int | None = None) -> ParseError:
        return ParseError(self._text, self._at if at is None else at, problem)

    # ------------------------------------------------------------------------------------------------------ operands

    def _operand(self) -> None:
        """Read prefixes and open parentheses, then one number, slot, name or question about a slot."""
        while True:
            self._at = _end(_SPACE, self._text, self._at)
            at = self._at
            call = _CALL.match(self._text, at)
            operator = _OPERATOR.match(self._text, at)
            found = self._vocabulary.slot(self._text, at)
            if found is not None:
                self._at += len(found[0])
                self._read.append(self._asked(found[1], at))
                return
            if call is not None:
                self._at = call.end()
                if call[1] == "isnan":
                    self._read.append(self._isnan())
                    return
                self._pending.append(_Pending("abs(", at, 0))
            elif operator is not None and operator[0] in "-~(":
                self._at = operator.end()
                sign = "negative" if operator[0] == "-" else operator[0]
                self._pending.append(_Pending(sign, at, _BINDING.get(sign, 0)))
            else:
                self._read.append(self._atom())
                return

    def _atom(self) -> Expr:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            return E.constant(int(number[0]))
        word = _NAME.match(self._text, self._at) or WORD.match(self._text, self._at)
        if word is None:
            raise self._problem("a number, a field or a question is missing")
        if word[0] in ("True", "False"):
            self._at = word.end()
            return E.truth(word[0] == "True")
        if word[0] not in self._names:
            raise self._problem(f"no slot is called {word[0]}")
        self._at = word.end()
        return self._names[word[0]]

    def _asked(self, slot: Slot, at: int) -> Expr:
        """What is asked of a slot whose name was just read; the slot itself where it is an integer."""
        if slot.sort == "int":
            return E.integer(slot.path)
        if slot.sort == "finite":
            return self._finite(slot)
        comparison = _COMPARISON.match(self._text, self._at)
        if comparison is None:
            raise self._problem(f"{slot.name} is compared with nothing", at)
        self._at = comparison.end()
        return self._float(slot, comparison[1]) if slot.sort == "float" else self._string(slot, comparison[1])

    def _finite(self, slot: Slot) -> Expr:
        comparison = _COMPARISON.match(self._text, self._at)
        if comparison is not None and comparison[1] in ("==", "!="):
            self._at = comparison.end()
            asked = E.among(slot.path, [self._value(slot)])
            return asked if comparison[1] == "==" else E.negation(asked)
        membership = _MEMBERSHIP.match(self._text, self._at)
        if membership is None:
            raise self._problem(f"{slot.name} has finitely many values: ask ==, !=, in (...) or not in (...)")
        self._at = membership.end()
        values = [self._value(slot)]
        while (comma := _COMMA.match(self._text, self._at)) is not None:
            self._at = comma.end()
            values.append(self._value(slot))
        self._at = self._closed()
        asked = E.among(slot.path, values)
        return asked if membership[1] == "in" else E.negation(asked)

    def _value(self, slot: Slot) -> Any:
        found = self._vocabulary.value(slot, self._text, self._at)
        if found is None:
            raise self._problem(f"no value of {slot.name} reads like this: it is {slot}")
        self._at += len(found[0])
        return found[1]

    def _float(self, slot: Slot, comparison: str) -> Expr:
        number = _FLOAT.match(self._text, self._at)
        if number is None:
            raise self._problem(f"{slot.name} is a float: compare it with a number")
        self._at = number.end()
        if comparison == "!=":
            return E.negation(E.float_is(slot.path, "==", float(number[0])))
        return E.float_is(slot.path, comparison, float(number[0]))

    def _string(self, slot: Slot, comparison: str) -> Expr:
        literal = _STRING.match(self._text, self._at)
        if literal is None or comparison not in ("==", "!="):
            raise self._problem(f"{slot.name} is a string: ask == or != of a quoted text")
        self._at = literal.end()
        asked = E.str_is(slot.path, ast.literal_eval(literal[0]))
        return asked if comparison == "==" else E.negation(asked)

    def _isnan(self) -> Expr:
        found = self._vocabulary.slot(self._text, self._at)
        if found is None or found[1].sort != "float":
            raise self._problem("isnan asks about a float slot")
        self._at += len(found[0])
        self._at = self._closed()
        return E.float_is(found[1].path, "nan", 0.0)

    def _closed(self) -> int:
        close = _CLOSE.match(self._text, self._at)
        if close is None:
            raise self._problem("a closing parenthesis is missing")
        return close.end()

    # ----------------------------------------------------------------------------------------------------- operators

    def _close(self) -> bool:
        """Take a closing parenthesis, if there is one."""
        close = _CLOSE.match(self._text, self._at)
        if close is None:
            return False
        while self._pending and not self._pending[-1].sign.endswith("("):
            self._apply()
        if not self._pending:
            raise self._problem("no parenthesis is open")
        opened = self._pending.pop()
        self._at = close.end()
        if opened.sign == "abs(":
            self._read[-1] = E.absolute(self._of_sort("int", -1, opened.at))
        return True

    def _suffix(self) -> bool:
        """Take what follows an operand without one of its own, if it does."""
        bits = _BIT_LENGTH.match(self._text, self._at)
        if bits is not None:
            self._read[-1] = E.bit_length(self._of_sort("int", -1, self._at))
            self._at = bits.end()
            return True
        members = _INTEGERS.match(self._text, self._at)
        if members is None:
            return False
        self._down_to(_COMPARISONS + 1)
        subject = self._of_sort("int", -1, self._at)
        one_of = E.disjunction(E.equals(subject, int(value)) for value in members[2].split(","))
        self._read[-1] = one_of if members[1] == "in" else E.negation(one_of)
        self._at = members.end()
        return True

    def _infix(self) -> None:
        operator = _OPERATOR.match(self._text, self._at)
        sign = "" if operator is None else operator[0]
        if operator is None or sign in "~(":
            raise self._problem("an operator is missing")
        binding = _BINDING[sign]
        self._down_to(binding + (binding <= _COMPARISONS))
        last = self._pending[-1] if self._pending else None
        if last is not None and last.binding == binding:
            last.more.append(sign)  # only `&`, `|` and comparisons get here: they take any number of operands
        else:
            self._pending.append(_Pending(sign, self._at, binding))
        self._at = operator.end()

    def _down_to(self, binding: int) -> None:
        """Apply the waiting operators that bind at least so tightly."""
        while self._pending and self._pending[-1].binding >= binding:
            self._apply()

    def _apply(self) -> None:
        """Apply the last waiting operator to the last operands."""
        pending = self._pending.pop()
        count = 1 if pending.sign in ("negative", "~") else 2 + len(pending.more)
        sort = "bool" if pending.sign in ("&", "|", "~") else "int"
        operands = [self._of_sort(sort, index, pending.at) for index in range(-count, 0)]
        if pending.sign in ("//", "%") and operands[1] is E.constant(0):
            raise self._problem("this divides by 0", pending.at)
        del self._read[-count:]
        self._read.append(_APPLY[pending.sign](operands, [pending.sign, *pending.more]))

    def _of_sort(self, sort: str, index: int, at: int) -> Expr:
        found = self._read[index]
        if KINDS[found.kind].sort != sort:
            wanted = "a number" if sort == "int" else "a question"
            raise self._problem(f"{wanted} is needed here, not {found}", at)
        return found


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _compared(operands: list[Expr], signs: list[str]) -> Expr:
    return E.conjunction(_COMPARED[sign](*pair) for sign, pair in zip(signs, pairwise(operands), strict=True))


def _at_most(left: Expr, right: Expr) -> Expr:
    return E.at_most(left, right.data) if right.kind == "const" else E.at_most(E.subtract(left, right), 0)


def _equal(left: Expr, right: Expr) -> Expr:
    return E.equals(left, right.data) if right.kind == "const" else E.equals(E.subtract(left, right), 0)


_COMPARED: Final[Mapping[str, Callable[[Expr, Expr], Expr]]] = {
    "<=": _at_most,
    ">": lambda left, right: E.negation(_at_most(left, right)),
    ">=": lambda left, right: E.negation(_at_most(E.add(left, E.constant(1)), right)),
    "<": lambda left, right: _at_most(E.add(left, E.constant(1)), right),
    "==": _equal,
    "!=": lambda left, right: E.negation(_equal(left, right)),
}

_APPLY: Final[Mapping[str, Callable[[list[Expr], list[str]], Expr]]] = {
    "|": lambda operands, signs: E.disjunction(operands),
    "&": lambda operands, signs: E.conjunction(operands),
    "~": lambda operands, signs: E.negation(operands[0]),
    "+": lambda operands, signs: E.add(*operands),
    "-": lambda operands, signs: E.subtract(*operands),
    "*": lambda operands, signs: E.multiply(*operands),
    "//": lambda operands, signs: E.floordiv(*operands),
    "%": lambda operands, signs: E.mod(*operands),
    "negative": lambda operands, signs: E.scale(operands[0], -1),
    **dict.fromkeys(_COMPARED, _compared),
}
