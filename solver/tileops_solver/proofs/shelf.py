"""The files of all ops of an audit: where each stands, and what is written at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tileops_solver.proofs.store import REPLAYED, ProofFile, path_for

__all__ = ["Shelf"]


class Shelf:
    """Hands out the proofs of each op, one object a file.

    Attributes:
        files: The files that were handed out, by path.
    """

    def __init__(self, *, read: bool = True, records: bool = False, folder: str | None = None) -> None:
        """A shelf.

        Args:
            read: Look up what is on file; otherwise everything is asked anew, as for a refresh.
            records: Remember what is found and not on file.
            folder: Where all files stand; beside each op's package where it is None.
        """
        self._read = read
        self._records = records
        self._folder = folder
        self.files: dict[str, ProofFile] = {}

    def file_of(self, op: Any) -> ProofFile | None:
        """The proofs of an op class or object; None where its package has no folder.

        Two ops of one name in one package share a file.
        """
        kind = op if isinstance(op, type) else type(op)
        name = kind.__name__
        path = path_for(kind.__module__, name) if self._folder is None else os.path.join(self._folder, f"{name}.json")
        if path is None:
            return None
        if path not in self.files:
            self.files[path] = ProofFile(path, name, read=self._read, records=self._records)
        return self.files[path]

    @property
    def missing(self) -> Mapping[str, tuple[str, ...]]:
        """For each file the labels of the answers that were found and are not on it, sorted.

        Replays are not counted: they are no proofs, and bytecode is another in another version of Python.
        """
        found = {
            path: tuple(sorted(label for label, answer, _, _ in file.fresh.values() if answer != REPLAYED))
            for path, file in sorted(self.files.items())
        }
        return {path: labels for path, labels in found.items() if labels}

    def write(self) -> tuple[str, ...]:
        """Write every file anew, from what was asked.

        Returns:
            The paths of the files that changed.

        Raises:
            OSError: a folder cannot be written to.
        """
        return tuple(path for path, file in sorted(self.files.items()) if file.write())
