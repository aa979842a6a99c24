"""The file of one op: its format, where it stands, and how an answer is looked up.

::

    {
     "format": 1,
     "op": "GQADenseFwdOp",
     "encoder": 1,
     "z3": "4.15.4.0",
     "answers": [
      ["gqa_dense overlap: decode, prefill", "none", null, "<key>"],
      ["gqa_dense gap: sm_80", "found", {"batch": 2}, "<key>"]
     ]
    }

A label is for readers; the key decides. Lines are sorted by label and key, so that a change of one rule changes
the lines of that rule.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from typing import Any, Final

from tileops_rules import Selector

from tileops_solver.proofs import keys, z3_version

__all__ = ["ANSWERS", "FORMAT", "FOUND", "NONE", "REPLAYED", "Line", "ProofFile", "beside", "path_for"]

FORMAT: Final = 1
"""The number of the file format."""

NONE: Final = "none"
"""There is no such call: proved."""
FOUND: Final = "found"
"""There is; the line holds the values of the slots that the question reads."""
REPLAYED: Final = "replayed"
"""A rule and its original agreed on every call of a replay."""
ANSWERS: Final = (NONE, FOUND, REPLAYED)

Line = tuple[str, str, dict[str, Any] | None, str]
"""Label, answer, values (of a call that was found, else None), key."""

_HEAD: Final = ("format", "op", "encoder", "z3")


def path_for(module: str, op: str) -> str | None:
    """Where the proofs of an op stand: ``proofs/<Op>.json`` in the folder of its top-level package or module.

    Args:
        module: The op's ``__module__``.
        op: Its name.

    Returns:
        The path, whether there is a file or not; None where the package has no folder.
    """
    home = sys.modules.get(module.partition(".")[0])
    folders = list(getattr(home, "__path__", ()))
    file = getattr(home, "__file__", None)
    folder = folders[0] if folders else os.path.dirname(file) if file else None
    return os.path.join(folder, "proofs", f"{op}.json") if folder is not None and op.isidentifier() else None


def beside(module: str, op: str) -> ProofFile | None:
    """The proofs of an op that stand beside its package, to look answers up.

    Args:
        module: The op's ``__module__``.
        op: Its name.

    Returns:
        The file; None where the package has no folder.
    """
    path = path_for(module, op)
    return None if path is None else ProofFile(path, op)


class ProofFile:
    """The answers of one op that are on file, and those that were found since.

    Attributes:
        path: Where it stands.
        op: The op.
        z3: The version of z3 that its answers are of: the installed one; where none is installed, the one on file.
        versions: What every key has in common.
        records: Answers that are found are remembered.
        fresh: Those that were, by key.
        other_version: What is on file is of another encoder or z3, and is not looked at.
    """

    def __init__(self, path: str, op: str, *, read: bool = True, records: bool = False) -> None:
        """Open the file of an op; one that is not there has no answers.

        Args:
            path: Where it stands.
            op: The op.
            read: Look up what is on file; otherwise everything is found anew.
            records: Remember what is found.
        """
        self.path = path
        self.op = op
        self.records = records
        self._refreshes = records and not read
        self.fresh: dict[str, Line] = {}
        head, lines = _read(path) if read else ({}, {})
        on_file = str(head.get("z3", ""))
        self.z3 = z3_version.installed(on_file) or on_file
        self.versions = keys.versions_digest(self.z3)
        current = head.get("encoder") == keys.ENCODER and on_file == self.z3
        self.other_version = bool(head) and not current
        self._lines: dict[str, Line] = lines if current else {}

    def __bool__(self) -> bool:
        """Whether there is anything to look up, or to remember."""
        return bool(self._lines) or self.records

    def recall(self, key: str | None) -> Line | None:
        """The line under *key*, or None."""
        return None if key is None else self._lines.get(key)

    def proves_order(self, selector: Selector) -> bool:
        """Whether it is on file that no call is served by two implementations of which none is preferred."""
        line = self.recall(keys.order_key(self.versions, selector)) if self._lines else None
        return line is not None and line[1] == NONE

    def keep(self, label: str, answer: str, values: dict[str, Any] | None, key: str | None) -> None:
        """Remember an answer, where answers are; of one question asked twice, the first label in order stands.

        Args:
            label: What was asked, for readers.
            answer: One of :data:`ANSWERS`.
            values: Of a call that was found.
            key: The key; nothing is remembered where it is None.
        """
        if key is None or not self.records:
            return
        line = (label, answer, values, key)
        known = self.fresh.get(key)
        if known is None or label < known[0]:
            self.fresh[key] = line

    def text(self) -> str:
        """The file's text, of the answers that were found and not looked up."""
        head = {"format": FORMAT, "op": self.op, "encoder": keys.ENCODER, "z3": self.z3}
        lines = sorted(self.fresh.values(), key=lambda line: (line[0], line[3]))
        rows = "".join(f' "{name}": {json.dumps(value)},\n' for name, value in head.items())
        shown = ",\n".join(f"  {json.dumps(line)}" for line in lines)
        return f'{{\n{rows} "answers": [\n{shown}\n ]\n}}\n'

    def write(self) -> bool:
        """Write the answers that were found; no file where there are none. All of it or nothing.

        Returns:
            Whether anything on disk changed.

        Raises:
            ValueError: answers were looked up, and so not all are here to be written.
            OSError: the folder cannot be written to.
        """
        if not self._refreshes:
            raise ValueError(f"{self.path} was opened to look answers up: write it with read=False, records=True")
        if not self.fresh:
            if not os.path.exists(self.path):
                return False
            os.remove(self.path)
            return True
        text = self.text()
        try:
            with open(self.path, encoding="utf-8") as present:
                if present.read() == text:
                    return False
        except (OSError, UnicodeDecodeError):
            pass
        folder = os.path.dirname(self.path)
        os.makedirs(folder, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=folder, prefix=f".{self.op}.", suffix=".json")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(scratch, 0o644)
            os.replace(scratch, self.path)
        except BaseException:
            os.unlink(scratch)
            raise
        return True


def _read(path: str) -> tuple[dict[str, Any], dict[str, Line]]:
    """Head and lines of a file; nothing, with a warning, where it is none of ours."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}, {}
    except (OSError, UnicodeDecodeError) as error:
        return _ignored(path, str(error))
    try:
        held = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _ignored(path, f"it is not JSON: {error}")
    if not isinstance(held, dict) or not all(name in held for name in (*_HEAD, "answers")):
        return _ignored(path, f"it has not all of {', '.join(_HEAD)} and answers")
    if held["format"] != FORMAT:
        return _ignored(path, f"it has the format {held['format']!r}, and this version reads {FORMAT}")
    lines: dict[str, Line] = {}
    for row in held["answers"] if isinstance(held["answers"], list) else [None]:
        line = _line(row)
        if line is None or line[3] in lines:
            return _ignored(path, f"this is no answer, or one that stands twice: {json.dumps(row)[:200]}")
        lines[line[3]] = line
    return {name: held[name] for name in _HEAD}, lines


def _line(row: Any) -> Line | None:
    """The line that a row of the file is, or None."""
    if not isinstance(row, list) or len(row) != 4:
        return None
    label, answer, values, key = row
    if not isinstance(label, str) or answer not in ANSWERS or not isinstance(key, str):
        return None
    right = isinstance(values, dict) if answer == FOUND else values is None
    return (label, answer, values, key) if right else None


def _ignored(path: str, why: str) -> tuple[dict[str, Any], dict[str, Line]]:
    warnings.warn(
        f"{path} holds no proofs that can be read, and everything is proved again: {why}. "
        f"Write it anew with: tileops audit --write-proofs",
        RuntimeWarning,
        stacklevel=3,
    )
    return {}, {}
