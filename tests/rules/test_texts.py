"""A text that is returned at once is seen to be so without following it through the whole function."""

from __future__ import annotations

import dis
import sys
from typing import Any

import pytest
from tileops_rules.texts import _CLEAN, _HOLDS, _MARK, _TEXT, _Flow, _is_returned_at_once, look_at_text

RETURNED = [
    'return f"n {call.n}"',
    'return f"{call.n}"',
    'return f"{call.n!r} and {call.m:>4} of {call.n * call.m - 1}"',
    'return f"a {call.n} b {call.m} c {table}"',
    'x = 3; return f"{call.n}{x}{call.tile.rows}"',
    'if call.n: return f"n {call.n}"\n    return f"m {call.m}"',
]
LOOKED_AT = [
    'return f"n {call.n}" == "n 3"',
    'return f"n {call.n}".upper() or "x"',
    'return len(f"n {call.n}")',
    'return table[f"{call.n}"]',
    'text = f"{call.n}"; return None if text == "3" else text',
    'return f"{call.n}" in table',
    'return f"{call.n}"[0]',
    'return "x" if f"{call.n}" else None',
    'return str(f"{call.n}" < "3")',
    'a = f"{call.n}"; return f"{a:>5}"',
]


def code_of(body: str) -> Any:
    found: dict[str, Any] = {}
    exec(f"def rule(call, table=()):\n    {body}", found)
    return found["rule"].__code__


def texts_in(code: Any) -> list[int]:
    """Offsets of the instructions that make a text of a value."""
    return [s.offset for s in dis.get_instructions(code) if s.opname.startswith(("FORMAT_", "CONVERT_"))]


@pytest.mark.parametrize("body", RETURNED)
def test_a_reason_that_is_returned_is_seen_at_once(body: str) -> None:
    code = code_of(body)
    offsets = texts_in(code)
    assert offsets
    simple = [o for o in offsets if not (dis.opname[code.co_code[o]] == "FORMAT_VALUE" and code.co_code[o + 1] & 4)]
    simple = [o for o in simple if dis.opname[code.co_code[o]] != "FORMAT_WITH_SPEC"]
    assert any(_is_returned_at_once(code.co_code, offset) for offset in simple)
    assert all(look_at_text(code, offset, may_be_empty=True) is None for offset in offsets)


@pytest.mark.parametrize("body", [*RETURNED, *LOOKED_AT])
def test_what_is_seen_at_once_is_what_following_the_text_finds(body: str) -> None:
    code = code_of(body)
    for offset in texts_in(code):
        if _is_returned_at_once(code.co_code, offset):
            assert _Flow(code, offset, True).found() is None


@pytest.mark.parametrize("body", LOOKED_AT)
def test_a_text_that_is_looked_at_is_not_taken_for_a_reason(body: str) -> None:
    code = code_of(body)
    assert any(look_at_text(code, offset, may_be_empty=True) is not None for offset in texts_in(code))


AT_ONCE = [
    'return f"n {call.n}"',
    'return f"{call.n}"',
    'return f"{call.n!s} {call.m!r} {call.k!a}"',
    'return f"{call.a} {call.b} {call.c} {call.d}"',
    'return f"a {call.n} b {call.m} c {table} d {len}"',
    'return f"{call.n - 1} {call.n * call.m - 1} {2 ** call.n}"',
    'x = 3; y = 4; return f"{call.n}{x}{y}{call.tile.rows}"',
    'if call.n: return f"n {call.n}"\n    return f"m {call.m}"',
    'return f"{call.n}{call.m}{call.n}{call.m}{call.n}{call.m}{call.n}{call.m}{call.n + call.m}"',
]
NOT_AT_ONCE = [
    'text = f"{call.n}"; return text',
    'return str(f"{call.n}")',
    'return "".join([f"{call.n}"])',
    'return f"{call.n}" + "x"',
    'return "x" + f"{call.n}"',
    'return "x" + f"{call.n} {call.m}"',
    'return f"{call.n}" * 2',
    'return f"{call.n}"[0]',
    'return f"{call.n}".upper',
    'return (f"{call.n}", 3)',
    'return f"{call.n:>5}"',
    'return f"{call.n!r:>5}"',
    'return 3 - f"{call.n}"',
    'raise ValueError(f"{call.n}")',
    'return f"{call.n}" == "x"',
    'f"{call.n}"; return None',
]


@pytest.mark.parametrize("body", AT_ONCE)
def test_every_text_of_a_plain_reason_is_seen_at_once(body: str) -> None:
    code = code_of(body)
    offsets = texts_in(code)
    assert len(offsets) >= body.count("{")
    assert {_is_returned_at_once(code.co_code, offset) for offset in offsets} == {True}


@pytest.mark.parametrize("body", NOT_AT_ONCE)
def test_what_does_anything_else_with_a_text_is_not_seen_at_once(body: str) -> None:
    code = code_of(body)
    offsets = [s.offset for s in dis.get_instructions(code) if s.opname.startswith("FORMAT_")]
    assert offsets
    assert [_is_returned_at_once(code.co_code, offset) for offset in offsets] == [False] * len(offsets)
    others = [s.offset for s in dis.get_instructions(code) if s.opname.startswith(("LOAD_", "RETURN_", "BINARY_"))]
    assert {_is_returned_at_once(code.co_code, offset) for offset in others} == {False}


def test_a_text_that_follows_one_with_a_width_is_left_to_the_whole_analysis() -> None:
    code = code_of('return f"{call.n}{call.m:>5}{call.k}"')
    offsets = [s.offset for s in dis.get_instructions(code) if s.opname.startswith("FORMAT_")]
    assert [_is_returned_at_once(code.co_code, offset) for offset in offsets] == [False, False, True]
    assert {look_at_text(code, offset, may_be_empty=True) for offset in offsets} == {None}


def test_more_parts_than_python_puts_on_its_stack_are_left_to_the_whole_analysis() -> None:
    for parts, at_once in ((2, True), (20, True), (255, False), (300, False)):
        code = code_of('return f"' + "{call}" * parts + '"')
        first = texts_in(code)[0]
        assert _is_returned_at_once(code.co_code, first) is at_once
        assert look_at_text(code, first, may_be_empty=True) is None


def flow_of(body: str = "return None") -> _Flow:
    return _Flow(code_of(body), 0, may_be_empty=True)


TEXT, HOLDS, CLEAN, MARK = _TEXT, _HOLDS, _CLEAN, _MARK
CALLED = [
    (["", "", TEXT], ("", "a call of a function")),
    (["", "len", TEXT], ("", "a call of len")),
    (["'a constant", "len", HOLDS], ("", "a call of len")),
    (["join", "join", HOLDS], (TEXT, None)),
    (["'{}", "format", TEXT], (TEXT, None)),
    (["", "str", TEXT], (TEXT, None)),
    (["", "repr", TEXT], (TEXT, None)),
    ([TEXT, TEXT], (TEXT, None)),
    ([TEXT, TEXT, HOLDS], (TEXT, None)),
    (["", TEXT], ("", "a call of a function")),
    (["", HOLDS], ("", "a call of a function")),
    (["ValueError", "ValueError", TEXT], ("", None)),
    (["", "SomeException", TEXT], ("", None)),
    (["", "UserWarning", HOLDS], ("", None)),
    (["", "Errors", HOLDS], ("", "a call of Errors")),
    *((["", name, HOLDS], (HOLDS, None)) for name in ("tuple", "list", "reversed", "enumerate", "zip", "iter", "next")),
    (["", "filter", HOLDS], (HOLDS, None)),
    (["", "sorted", HOLDS], ("", "a call of sorted")),
    *((["", name, TEXT], ("", f"a call of {name}")) for name in ("tuple", "list", "next", "set")),
    *(([HOLDS, name, TEXT], ("", None)) for name in ("append", "extend", "insert", "add")),
    ([HOLDS, "remove", TEXT], ("", "a call of remove")),
]


@pytest.mark.parametrize(("popped", "expected"), CALLED)
def test_what_a_call_makes_of_a_text_and_whether_it_looks(popped: list[str], expected: Any) -> None:
    assert flow_of()._called(popped) == expected


class Step:
    """An instruction, as much of one as is asked for."""

    def __init__(self, opname: str, argval: Any = None, arg: int | None = None) -> None:
        self.opname, self.argval, self.arg = opname, argval, arg


RESULTS: list[tuple[Any, list[str], tuple[str, str | None]]] = [
    (Step("LOAD_CONST", "x"), [], ("'x", None)),
    (Step("LOAD_CONST", 3), [], ("", None)),
    (Step("LOAD_FAST", "held"), [], (TEXT, None)),
    (Step("LOAD_FAST", "other"), [], ("", None)),
    (Step("LOAD_DEREF", "several"), [], (HOLDS, None)),
    (Step("LOAD_GLOBAL", "len"), [], ("len", None)),
    (Step("LOAD_GLOBAL", TEXT), [], ("", None)),
    (Step("LOAD_ATTR", "rows"), [""], ("rows", None)),
    (Step("LOAD_METHOD", "append"), [""], ("append", None)),
    (Step("COMPARE_OP", "=="), ["", ""], ("", None)),
    (Step("COMPARE_OP", "=="), [TEXT, ""], ("", "compare_op")),
    (Step("CONTAINS_OP", 0), ["", HOLDS], ("", "contains_op")),
    (Step("FORMAT_VALUE", None), [TEXT, ""], (TEXT, "formatting it again, with a width")),
    (Step("FORMAT_VALUE", None), ["", TEXT], (TEXT, None)),
    (Step("FORMAT_VALUE", None), [TEXT], (TEXT, None)),
    (Step("FORMAT_SIMPLE", None), [MARK], (TEXT, None)),
    (Step("BUILD_STRING"), ["'a", TEXT], (TEXT, None)),
    (Step("BUILD_STRING"), ["'a", HOLDS], (HOLDS, None)),
    (Step("BINARY_OP", "+"), [TEXT, "'a"], (TEXT, None)),
    (Step("BUILD_LIST"), [TEXT, ""], (HOLDS, None)),
    (Step("BUILD_TUPLE"), [HOLDS, ""], (HOLDS, None)),
    (Step("BUILD_SET"), [TEXT, ""], ("", "build_set")),
    (Step("BUILD_MAP"), ["'k", TEXT], (HOLDS, None)),
    (Step("BUILD_MAP"), ["'k", "", TEXT, ""], ("", "a dict whose key it is")),
    (Step("BUILD_MAP"), [TEXT, ""], ("", "a dict whose key it is")),
    (Step("BUILD_CONST_KEY_MAP"), [TEXT, "'k"], (HOLDS, None)),
    (Step("GET_ITER"), [HOLDS], (HOLDS, None)),
    (Step("GET_ITER"), [TEXT], ("", "get_iter")),
    (Step("BINARY_SUBSCR"), [HOLDS, ""], (HOLDS, None)),
    (Step("BINARY_SUBSCR"), [TEXT, ""], ("", "binary_subscr")),
    (Step("BINARY_SUBSCR"), [HOLDS, TEXT], ("", "binary_subscr")),
    (Step("UNPACK_SEQUENCE"), [HOLDS], (HOLDS, None)),
    (Step("LIST_TO_TUPLE"), [HOLDS], (HOLDS, None)),
    (Step("LOAD_ATTR", "join"), [TEXT], (TEXT, None)),
    (Step("LOAD_ATTR", "format"), [TEXT], (TEXT, None)),
    (Step("LOAD_ATTR", "upper"), [TEXT], ("", "load_attr")),
    (Step("LOAD_METHOD", "join"), [HOLDS], (TEXT, None)),
    (Step("POP_JUMP_IF_FALSE"), [TEXT], ("", "pop_jump_if_false")),
    (Step("POP_JUMP_IF_NOT_NONE"), [TEXT], ("", None)),
    (Step("POP_JUMP_FORWARD_IF_NONE"), [TEXT], ("", None)),
    (Step("RETURN_VALUE"), [TEXT], ("", None)),
    (Step("RAISE_VARARGS"), [TEXT], ("", None)),
    (Step("YIELD_VALUE"), [TEXT], ("", None)),
    (Step("POP_TOP"), [TEXT], ("", None)),
    (Step("IS_OP"), [TEXT, ""], ("", None)),
    (Step("LIST_APPEND"), [TEXT], ("", None)),
    (Step("UNARY_NOT"), [TEXT], ("", "unary_not")),
    (Step("CALL"), ["", "len", TEXT], ("", "a call of len")),
    (Step("CALL_FUNCTION_EX"), ["", "join", HOLDS], (TEXT, None)),
    (Step("STORE_ATTR", "x"), [TEXT, ""], ("", "store_attr")),
]


@pytest.mark.parametrize(("step", "popped", "expected"), RESULTS, ids=lambda each: getattr(each, "opname", ""))
def test_what_an_instruction_makes_of_texts_and_whether_it_looks(
    step: Any, popped: list[str], expected: tuple[str, str | None]
) -> None:
    flow = flow_of()
    flow._tainted = {"held": TEXT, "several": HOLDS}
    assert flow._result(step, popped) == expected
    assert flow._tainted == {"held": TEXT, "several": HOLDS}


def test_the_truth_of_a_text_that_is_never_empty_says_nothing() -> None:
    flow = _Flow(code_of("return None"), 0, may_be_empty=False)
    for name in ("POP_JUMP_IF_FALSE", "JUMP_IF_TRUE_OR_POP", "UNARY_NOT", "TO_BOOL"):
        step: Any = Step(name)
        assert flow._result(step, [TEXT]) == ("", None)
        assert flow_of()._result(step, [TEXT]) == ("", name.lower())


def test_a_variable_holds_what_was_stored_in_it_and_a_text_wins() -> None:
    for values, label in (([TEXT], TEXT), ([HOLDS], HOLDS), ([HOLDS, TEXT], TEXT), ([""], None)):
        flow = flow_of()
        flow._store(("one", "two"), values)
        assert flow._tainted == ({} if label is None else {"one": label, "two": label})
        step: Any = Step("STORE_FAST", "three")
        flow = flow_of()
        assert flow._result(step, values) == ("", None)
        assert flow._tainted == ({} if label is None else {"three": label})


BODY = """
    first, second = call
    first, *rest = call
    *most, last, end = call
    for a, b in call:
        if a:
            break
    else:
        b = 3
    held = [x for x in call if x] + [*call, 1]
    table = {'a': 1, **call}
    text = f'{a!r:>5} {b} {held[1:2]}' % (1,)
    try:
        del call.x, call[1]
    except ValueError as error:
        raise KeyError from error
    finally:
        call.y = text
    with call as c:
        a = b = c
    a, b = b, a
    a, b, c = c, a, b
    return (lambda: a) or call or {1, a} is not None and 1 < a < 3
""".strip()


def test_the_stack_is_as_high_after_an_instruction_as_python_says() -> None:
    code = code_of(BODY)
    flow = _Flow(code, 0, may_be_empty=True)
    seen = set()
    for step in flow._steps:
        if step.opname in ("CALL", "PRECALL", "CALL_KW", "KW_NAMES"):
            continue  # counted in one of two instructions
        arg = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        effect = dis.stack_effect(step.opcode, arg, jump=False)
        before = [f"{i}" for i in range(12)]
        after, _ = flow._step(step, list(before))
        assert len(after) - len(before) == effect, step.opname
        assert after[:6] == before[:6], step.opname
        seen.add(step.opname)
    assert {"UNPACK_EX", "UNPACK_SEQUENCE", "FOR_ITER", "SWAP", "COPY", "GET_ITER"} <= seen


def test_a_swap_a_copy_and_a_store_move_labels() -> None:
    flow = flow_of()
    for name, arg, before, expected in (
        ("SWAP", 2, ["a", "b", "c"], ["a", "c", "b"]),
        ("SWAP", 3, ["a", "b", "c"], ["c", "b", "a"]),
        ("COPY", 1, ["a", "b", "c"], ["a", "b", "c", "c"]),
        ("COPY", 3, ["a", "b", "c"], ["a", "b", "c", "a"]),
        ("COPY", 4, ["a", "b", "c"], ["a", "b", "c", ""]),
        ("UNPACK_SEQUENCE", 2, ["a", HOLDS], ["a", HOLDS, HOLDS]),
        ("UNPACK_EX", 1, ["a", HOLDS], ["a", HOLDS, HOLDS]),
        ("UNPACK_EX", 1 + (2 << 8), ["a", HOLDS], ["a", HOLDS, HOLDS, HOLDS, HOLDS]),
        ("FOR_ITER", 9, ["a", HOLDS], ["a", HOLDS, HOLDS]),
        ("FOR_ITER", 9, ["a", "b"], ["a", "b", ""]),
    ):
        opcode = dis.opmap[name]
        made: Any = Step(name, None, arg)
        made.opcode, made.offset = opcode, 99
        assert flow._step(made, list(before)) == (expected, None), (name, arg)
    flow._tainted = {"x": TEXT}
    for name, argval, before, expected in (
        ("LOAD_FAST_LOAD_FAST", ("x", "y"), ["a"], ["a", TEXT, ""]),
        ("STORE_FAST_LOAD_FAST", ("y", "x"), ["a", HOLDS], ["a", TEXT]),
        ("STORE_FAST_LOAD_FAST", ("z", "w"), ["a", "b", TEXT], ["a", "b", ""]),
    ):
        made = Step(name, argval)
        assert flow._step(made, list(before)) == (expected, None)
    assert flow._tainted == {"x": TEXT, "y": HOLDS, "z": TEXT}


def test_a_jump_leaves_the_stack_of_the_place_that_it_jumps_to() -> None:
    flow = flow_of()
    code = code_of("for x in call: pass\n    return None")
    (loop,) = (step for step in dis.get_instructions(code) if step.opname == "FOR_ITER")
    # Until Python 3.11 the jump takes the iterator away, later the instruction that it jumps to does.
    left = ["a"] if sys.version_info < (3, 12) else ["a", HOLDS, ""]
    assert flow._jumped(loop, ["a", HOLDS], ["a", HOLDS, "next"]) == left
    for name, expected in (("JUMP_IF_TRUE_OR_POP", ["a", TEXT]), ("POP_JUMP_IF_FALSE", ["a"])):
        step: Any = Step(name)
        assert flow._jumped(step, ["a", TEXT], ["a"]) == expected


LOOKS = [
    ('text = f"{call.n}"; return text == "3"', "compare_op"),
    ('text = f"{call.n}"; return len(text)', "a call of len"),
    ('return f"{call.n}" in table', "contains_op"),
    ('return {f"{call.n}": 1}', "a dict whose key it is"),
    ('text = f"{call.n}"; return f"{text:>5}"', "formatting it again, with a width"),
    ('return "%5s" % call.n', "% with a width or another format than %s, %r or %d"),
    ('return "%s and %d" % (call.n, call.m)', None),
    ('return call.n % "%s"', "% with a width or another format than %s, %r or %d"),
    ('text = ""\n    for n in table:\n        if text == "3": return None\n        text = f"{call.n}"', "compare_op"),
    ('texts = [f"{call.n}"]\n    for a in table:\n        for text in texts: return text', None),
    (
        'texts = [f"{call.n}"]\n    for a in texts:\n        for b in table: pass\n        if a == "3": return a',
        "compare_op",
    ),
    ('try:\n        text = f"{call.n}"\n    except ValueError:\n        text = ""\n    return text', None),
    ('try:\n        call.n\n    except ValueError:\n        return f"{call.n}" < "3"', "compare_op"),
    ('text = call.m and f"{call.n}"; return text == "3"', "compare_op"),
    ('if call.m: text = f"{call.n}"\n    else: text = ""\n    return text', None),
]


@pytest.mark.parametrize(("body", "expected"), LOOKS)
def test_what_looks_at_a_text_is_told(body: str, expected: str | None) -> None:
    code = code_of(body)
    first = next(
        s.offset
        for s in dis.get_instructions(code)
        if s.opname.startswith("FORMAT_") or (s.opname == "BINARY_OP" and s.argrepr == "%")
    )
    assert look_at_text(code, first, may_be_empty=True) == expected
    assert look_at_text(code, first, may_be_empty=True) == expected
