"""A text that is returned at once is seen to be so without following it through the whole function."""

from __future__ import annotations

import dis
from typing import Any

import pytest
from tileops_rules.texts import _Flow, _is_returned_at_once, look_at_text

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
