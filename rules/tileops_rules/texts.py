"""Where the text that an instruction makes goes: may it be looked at, or does it only become a reason?

A field's text is a plain string on a path, with a mark for the value, so that a comparison with it would be
answered about the mark. This analysis follows the text through the bytecode of one function. It may be returned,
raised, yielded, stored, joined and put into other texts and lists; whatever else takes it is reported.
"""

from __future__ import annotations

import dis
import re
import types
from typing import Any, Final

__all__ = ["look_at_text"]

_TEXT: Final = "<text>"
_HOLDS: Final = "<holds texts>"
"""A tuple, list or dict of texts, or something taken out of one."""

_CLEAN: Final = ""
_MARK: Final = "<the text of one field>"
_CONSTANT: Final = "'"
"""Begins the label of a constant text; other labels are the names of what may be called."""

_PLAIN_PERCENT: Final = re.compile(r"'(?:[^%]|%%|%[srd])*", re.DOTALL)

_KEEPS: Final = frozenset({"join", "format", "str", "repr"})
_HOLDS_ON: Final = frozenset({"tuple", "list", "reversed", "enumerate", "zip", "iter", "next", "filter"})
_TAKES: Final = frozenset({"append", "extend", "insert", "add"})
_NO_PUSH: Final = (
    "STORE_", "POP_", "DELETE_", "RETURN_", "RAISE_", "RERAISE", "JUMP_BACKWARD", "JUMP_FORWARD", "NOP", "RESUME",
    "CACHE", "PRECALL", "KW_NAMES", "COPY_FREE_VARS", "MAKE_CELL", "LIST_APPEND", "SET_ADD", "MAP_ADD", "LIST_EXTEND",
    "SET_UPDATE", "DICT_", "END_FOR", "EXTENDED_ARG", "JUMP_IF_",
)  # fmt: skip
_HARMLESS: Final = (
    "RETURN_", "RAISE_", "YIELD_", "POP_TOP", "BUILD_STRING", "FORMAT_", "CONVERT_", "IS_OP", "LIST_APPEND",
    "LIST_EXTEND", "SET_", "MAP_ADD", "POP_JUMP_FORWARD_IF_N", "POP_JUMP_BACKWARD_IF_N", "POP_JUMP_IF_N",
    "RERAISE", "END_", "NOP", "PRECALL",
)  # fmt: skip
_MAKES_TEXT: Final = ("BUILD_STRING", "FORMAT_", "CONVERT_", "BINARY_OP", "BINARY_ADD")
_BUILDS: Final = ("BUILD_LIST", "BUILD_TUPLE", "BUILD_MAP", "BUILD_CONST_KEY_MAP")
_TAKES_OUT: Final = ("GET_ITER", "UNPACK_", "BINARY_SUBSCR", "BINARY_SLICE", "LIST_TO_TUPLE")
_TRUTH: Final = ("POP_JUMP", "JUMP_IF", "UNARY_NOT", "TO_BOOL")

_FORMATS: Final = ("FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE")
_METHODS_BY_ATTRIBUTE: Final = "LOAD_METHOD" not in dis.opmap
"""Since Python 3.12 LOAD_ATTR loads methods too, where its argument is odd."""

_known: dict[Any, str | None] = {}
_MOST_KNOWN: Final = 4096


def look_at_text(code: types.CodeType, offset: int, *, may_be_empty: bool) -> str | None:
    """What looks at the text that the instruction at *offset* makes; None where nothing does.

    Args:
        code: The function's code.
        offset: Of the instruction, in bytes.
        may_be_empty: The text may be empty, so that a truth test is a look too.
    """
    if _is_returned_at_once(code.co_code, offset):
        return None
    texts = tuple(constant for constant in code.co_consts if type(constant) is str)
    key = (code.co_code, texts, code.co_names, code.co_varnames, code.co_freevars, offset, may_be_empty)
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = _Flow(code, offset, may_be_empty).found()
    return _known[key]


def _is_returned_at_once(steps: bytes, offset: int) -> bool:
    """Whether the text only becomes a part of another one, which is returned: ``return f"n {call.n} is odd"``.

    Most reasons are such. Anything but loads, arithmetic of other values and the making of texts is for the whole
    analysis.
    """
    if dis.opname[steps[offset]] not in _FORMATS or _has_width(steps, offset):
        return False
    stack = [True]
    for at in range(offset + 2, len(steps), 2):
        name, argument = dis.opname[steps[at]], steps[at + 1]
        if name in ("CACHE", "EXTENDED_ARG"):
            continue
        if name == "RETURN_VALUE":
            return True
        if name in ("LOAD_CONST", "LOAD_FAST", "LOAD_DEREF") or (name == "LOAD_GLOBAL" and not argument & 1):
            stack.append(False)
            continue
        if name == "LOAD_FAST_LOAD_FAST":
            stack += [False, False]
            continue
        if name == "LOAD_ATTR" and not (_METHODS_BY_ATTRIBUTE and argument & 1):
            taken, made = 1, False
        elif name in _FORMATS and not _has_width(steps, at):
            taken, made = 1, True
        elif name == "BUILD_STRING":  # of a few parts: Python joins a list of more
            taken, made = argument, True
        elif name == "BINARY_OP":
            taken, made = 2, False
        else:
            return False
        if taken > len(stack) and name != "BUILD_STRING":  # which takes what stood before the text too
            return False
        texts = any(stack[-taken:])
        if texts and not made:
            return False
        del stack[-taken:]
        stack.append(texts)
    return False


def _has_width(steps: bytes, at: int) -> bool:
    return dis.opname[steps[at]] == "FORMAT_VALUE" and bool(steps[at + 1] & 4)


class _Flow:
    def __init__(self, code: types.CodeType, offset: int, may_be_empty: bool) -> None:
        self._steps = [s for s in dis.get_instructions(code) if s.opname != "CACHE"]
        self._index = {step.offset: i for i, step in enumerate(self._steps)}
        self._offset = offset
        self._may_be_empty = may_be_empty
        self._tainted: dict[str, str] = {}
        self._handlers = [
            (self._index[e.target], (_CLEAN,) * (e.depth + int(e.lasti) + 1))
            for e in dis._parse_exception_table(code)  # type: ignore[attr-defined]
            if e.target in self._index
        ]

    def found(self) -> str | None:
        """What looks at the text, or None."""
        while True:
            before = dict(self._tainted)
            found = self._pass()
            if found is not None or self._tainted == before:
                return found

    def _pass(self) -> str | None:
        waiting: list[tuple[int, tuple[str, ...]]] = [(0, ()), *self._handlers]
        seen: set[int] = set()
        while waiting:
            i, stack = waiting.pop()
            while i < len(self._steps) and i not in seen:
                seen.add(i)
                step = self._steps[i]
                after, look = self._step(step, list(stack))
                if look is not None:
                    return look
                target = (
                    self._index.get(step.argval) if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs else None
                )
                if target is not None:
                    jumped = self._jumped(step, list(stack), after)
                    if step.opname.startswith(("JUMP_FORWARD", "JUMP_BACKWARD")):
                        i, stack = target, tuple(jumped)
                        continue
                    waiting.append((target, tuple(jumped)))
                if step.opname.startswith(("RETURN_", "RAISE_", "RERAISE")):
                    break
                i, stack = i + 1, tuple(after)
        return None

    def _jumped(self, step: dis.Instruction, before: list[str], after: list[str]) -> list[str]:
        if step.opname.startswith("JUMP_IF_"):
            return before
        if step.opname.startswith("FOR_ITER"):
            ends = dis.stack_effect(step.opcode, step.arg, jump=True) < 0
            return before[:-1] if ends else [*before, _CLEAN]
        return after

    def _step(self, step: dis.Instruction, stack: list[str]) -> tuple[list[str], str | None]:
        name = step.opname
        if name == "PRECALL":
            return stack, None
        if name == "COPY":
            return [*stack, stack[-step.arg] if step.arg and len(stack) >= step.arg else _CLEAN], None
        if name == "SWAP" and step.arg and len(stack) >= step.arg:
            stack[-1], stack[-step.arg] = stack[-step.arg], stack[-1]
            return stack, None
        if name == "LOAD_FAST_LOAD_FAST":
            return [*stack, *(self._tainted.get(loaded, _CLEAN) for loaded in step.argval)], None
        if name == "STORE_FAST_LOAD_FAST":
            stored, loaded = step.argval
            self._store((stored,), stack[-1:])
            return [*stack[:-1], self._tainted.get(loaded, _CLEAN)], None
        if name.startswith("UNPACK_") and stack:  # the effect on the stack does not tell how much is taken and made
            count = step.arg or 0
            result, look = self._result(step, stack[-1:])
            made = count if name == "UNPACK_SEQUENCE" else (count & 0xFF) + 1 + (count >> 8)
            return [*stack[:-1], *([result] * made)], look
        if name == "FOR_ITER" and stack and stack[-1] == _HOLDS:
            return [*stack, _HOLDS], None
        if name == "CALL":  # what Python 3.11 counts in two instructions
            effect = -(step.arg or 0) - 1
        else:
            effect = dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        pushes = 0 if name.startswith(_NO_PUSH) else max(1, effect)
        pops = pushes - effect
        if pops < 0:
            pushes, pops = effect, 0
        popped = stack[len(stack) - pops :] if pops else []
        left = stack[: len(stack) - pops] if pops else stack
        result, look = self._result(step, popped)
        if step.offset == self._offset:
            result = _MARK if name.startswith("CONVERT_") else _TEXT
            if name == "BINARY_OP" and step.argrepr.startswith("%") and not _PLAIN_PERCENT.fullmatch(popped[0]):
                look = "% with a width or another format than %s, %r or %d"
        return [*left, *([result] * pushes)], look

    def _result(self, step: dis.Instruction, popped: list[str]) -> tuple[str, str | None]:
        name = step.opname
        if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_NAME")):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            return next((self._tainted[n] for n in names if n in self._tainted), _CLEAN), None
        if name == "LOAD_CONST" and type(step.argval) is str:
            return _CONSTANT + step.argval, None
        if name.startswith("FORMAT_") and len(popped) == 2 and popped[0] == _TEXT:
            return _TEXT, "formatting it again, with a width"
        if _MARK in popped:
            return _TEXT, None
        if _TEXT not in popped and _HOLDS not in popped:
            named = name.startswith(("LOAD_GLOBAL", "LOAD_METHOD", "LOAD_ATTR"))
            return (str(step.argval) if named and step.argval != _TEXT else _CLEAN), None
        if name.startswith(("STORE_FAST", "STORE_DEREF", "STORE_NAME")):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            self._store(names, popped)
            return _CLEAN, None
        if name.startswith("CALL"):
            return self._called(popped)
        if name.startswith("BUILD_MAP") and _TEXT in popped[::2]:
            return _CLEAN, "a dict whose key it is"
        if name.startswith(_BUILDS):
            return _HOLDS, None
        if name.startswith(_TAKES_OUT) and _TEXT not in popped:
            return _HOLDS, None
        if name.startswith((*_HARMLESS, *_MAKES_TEXT)):
            if name.startswith(_MAKES_TEXT):
                return (_TEXT if _TEXT in popped else _HOLDS), None
            return _CLEAN, None
        if name.startswith(("LOAD_METHOD", "LOAD_ATTR")) and step.argval in _KEEPS:
            return _TEXT, None
        if name.startswith(_TRUTH) and not self._may_be_empty:
            return _CLEAN, None
        return _CLEAN, name.lower()

    def _store(self, names: tuple[str, ...], values: list[str]) -> None:
        for label in (_HOLDS, _TEXT):
            if label in values:
                self._tainted.update(dict.fromkeys(names, label))

    def _called(self, popped: list[str]) -> tuple[str, str | None]:
        callee = next((p for p in popped if p not in (_TEXT, _HOLDS, _CLEAN) and not p.startswith(_CONSTANT)), _CLEAN)
        if callee in _KEEPS or (popped and popped[0] == _TEXT):
            return _TEXT, None
        if callee in _HOLDS_ON and _TEXT not in popped:
            return _HOLDS, None
        if callee in _TAKES or callee.endswith(("Error", "Exception", "Warning")):
            return _CLEAN, None
        return _CLEAN, f"a call of {callee or 'a function'}"
