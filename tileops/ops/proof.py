"""The proof at construction: no valid call is served by two implementations of which none is preferred.

Where the proof is on file beside the op's package, it is looked up, and nothing is proved. Otherwise the solver
is imported by name, and only for an interface with a pair that needs a proof, since z3 takes longer to import
than most ops to construct. The import is late for the time it takes, not to hide a cycle: the solver knows
nothing of this package.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final, Literal

from tileops_rules import Selector
from tileops_solver.proofs.store import beside

from tileops.ops.errors import NotProvedError, UnorderedOverlapError

__all__ = ["MODES", "VARIABLE", "Mode", "mode", "prove", "warning"]

Mode = Literal["warn", "strict", "off"]

VARIABLE: Final = "TILEOPS_PROOF"
"""The environment variable that is read at every construction."""
_NOT_OPENED: Final = object()
MODES: Final[tuple[Mode, ...]] = ("warn", "strict", "off")


def mode() -> Mode:
    """What is to happen where something cannot be proved.

    Raises:
        ValueError: the variable holds something else than one of the three modes.
    """
    value = os.environ.get(VARIABLE, "warn")
    if value not in MODES:
        raise ValueError(
            f"{VARIABLE} is {value!r}: set it to warn (the default; what is not proved is a RuntimeWarning), "
            f"strict (it is an error) or off (nothing is proved)"
        )
    return value


def prove(op: str, selectors: Sequence[Selector], how: Mode, *, module: str = "") -> tuple[str, ...]:
    """Prove every unordered pair of every interface disjoint, or find it on file that they are.

    Args:
        op: Name of the op.
        selectors: Its interfaces.
        how: What is to happen where something is not proved.
        module: The module of the op; its proofs stand beside the package.

    Returns:
        What is not proved, a line each.

    Raises:
        UnorderedOverlapError: two implementations serve one call; all such pairs of the op are in it.
        NotProvedError: something is not proved, and *how* is ``strict``.
    """
    if how == "off":
        return ()
    findings: list[Any] = []
    open_points: list[str] = []
    on_file: Any = _NOT_OPENED
    for selector in selectors:
        open_points += _not_lifted(selector)
        if any(_unordered(selector)):
            if on_file is _NOT_OPENED:
                on_file = beside(module, op)
            if on_file is not None and on_file.proves_order(selector):
                continue
            try:
                proof = importlib.import_module("tileops_solver").prove_pairs(selector, proofs=on_file)
            except ImportError as error:
                open_points.append(f"{selector.interface}: the solver does not import here: {error}")
                continue
            findings += proof.findings
            for each in proof.undecided:
                known = set(each.keys) & set(selector.not_lifted)
                cause = f"see the rule of {' and '.join(sorted(known))}" if known else each.reason
                open_points.append(f"{selector.interface}: whether {' and '.join(each.keys)} overlap: {cause}")
    if findings:
        raise UnorderedOverlapError(op, tuple(findings), "\n".join(each.message for each in findings))
    if open_points and how == "strict":
        raise NotProvedError(op, tuple(open_points))
    return tuple(open_points)


def warning(op: str, open_points: Sequence[str]) -> str:
    """The text of the warning about what is not proved."""
    lines = "".join(f"\n  {line}" for line in open_points)
    return (
        f"{op}: not proved that no call is claimed twice; a call that two implementations serve will raise "
        f"when it is made:{lines}"
    )


def _not_lifted(selector: Selector) -> Iterator[str]:
    for key, error in sorted(selector.not_lifted.items()):
        yield f"{selector.interface}: the rule of {key} was not lifted: {error}"
    if selector.invalid_not_lifted is not None:
        cause = selector.invalid_not_lifted
        yield f"{selector.interface}: {selector.spec.__name__}.invalid was not lifted: {cause}"


def _unordered(selector: Selector) -> Iterator[tuple[str, str]]:
    """The pairs of non-general implementations of which none is preferred over the other."""
    keys = [each.key for each in selector.candidates if not each.general]
    for first, second in combinations(keys, 2):
        if second not in selector.wins_over[first] and first not in selector.wins_over[second]:
            yield first, second
