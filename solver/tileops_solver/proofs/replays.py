"""Replays on file: a rule that agreed with its original on all calls of a replay need not be replayed again."""

from __future__ import annotations

from tileops_rules import Rule
from tileops_rules.code_digest import CodeDigests
from tileops_rules.domain import Domain
from tileops_rules.fingerprint import NotSpelled, digest, field_digest, tree_digest

from tileops_solver.proofs.store import REPLAYED, ProofFile

__all__ = ["Replays"]


class Replays:
    """Which rules of one interface were replayed before.

    Args:
        file: The proofs of the op; None where there is nowhere to keep them.
        interface: Name of the interface, for labels.
        spec: The class of its calls.
    """

    def __init__(self, file: ProofFile | None, interface: str, spec: type) -> None:
        self._file = file if file else None
        self._interface = interface
        self._codes = CodeDigests(spec)
        self._ranges: dict[Domain, bytes] = {}
        self._keys: dict[tuple[int, int, int], tuple[Rule, str | None]] = {}

    def known(self, rule: Rule, count: int, seed: int) -> bool:
        """Whether a replay is on file, so that it need not be made.

        The key covers the tree, the code of the function and of all that it can reach, what every field ranges
        over, and which calls are drawn.

        Args:
            rule: The rule.
            count: Number of calls.
            seed: Chooses them.
        """
        return self._file is not None and self._file.recall(self._key(rule, count, seed)) is not None

    def keep(self, name: str, rule: Rule, count: int, seed: int) -> None:
        """Remember a replay that found no difference.

        Args:
            name: What the rule is of, for readers.
            rule: The rule.
            count: Number of calls.
            seed: Chose them.
        """
        if self._file is not None and self._file.records:
            label = f"{self._interface} replay: {name}"
            self._file.keep(label, REPLAYED, None, self._key(rule, count, seed))

    def _key(self, rule: Rule, count: int, seed: int) -> str | None:
        if self._file is None:
            return None
        asked = (id(rule), count, seed)
        if asked not in self._keys:
            self._keys[asked] = rule, self._made(self._file, rule, count, seed)
        return self._keys[asked][1]

    def _made(self, file: ProofFile, rule: Rule, count: int, seed: int) -> str | None:
        try:
            if rule.domain not in self._ranges:
                ranges = (field_digest(rule.domain, name) for name in rule.domain.fields)
                self._ranges[rule.domain] = digest(*ranges)
            tree, code = tree_digest(rule.tree), self._codes.of(rule.original)
        except (NotSpelled, RecursionError):
            return None
        return digest(file.versions, "replay", f"{count} {seed}", tree, code, self._ranges[rule.domain]).hex()
