"""Predicates and calls as they are on one platform: what its device says anyway is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tileops_rules.archs import KNOWN_ARCHS
from tileops_rules.domain import DEVICE_FACTS
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import KINDS, Expr, Path, conjunction, disjunction, negation, truth, walk
from tileops_rules.printing import value_text

from tileops_solver.subject import Platform

__all__ = ["answer_at", "atoms_of", "holds_on", "replaced", "shown_on", "slots_of", "with_facts_of"]


def atoms_of(expr: Expr) -> tuple[Expr, ...]:
    """The questions about fields that *expr* is made of, each once, from left to right."""
    connectives = ("not", "and", "or", "truth")
    return tuple(node for node in walk(expr) if KINDS[node.kind].sort == "bool" and node.kind not in connectives)


def replaced(expr: Expr, answers: Mapping[Expr, Expr]) -> Expr:
    """*expr* with other questions in the place of some of its atoms."""
    made: dict[Expr, Expr] = {}
    for node in walk(expr):
        if node in answers:
            made[node] = answers[node]
        elif node.kind == "not":
            made[node] = negation(made[node.args[0]])
        elif node.kind in ("and", "or"):
            join = conjunction if node.kind == "and" else disjunction
            made[node] = join([made[a] for a in node.args])
        else:
            made[node] = node
    return made[expr]


def answer_at(atom: Expr, values: Mapping[Path, Any]) -> bool | None:
    """Whether a question holds where the slots hold *values*; None where it has no answer there."""
    try:
        return bool(evaluate(atom, values))
    except ZeroDivisionError:
        return None


def slots_of(platform: Platform) -> dict[Path, Any]:
    """The slots whose value a platform fixes."""
    return {node.data[0]: node.data[1][0] for node in walk(platform.calls) if node.kind == "among"}


def holds_on(platform: Platform, expr: Expr) -> Expr:
    """What is left of *expr* on a platform, once what it asks about the device and its arch is answered."""
    given = slots_of(platform)
    known = {
        atom: truth(any(value == given[atom.data[0]] for value in atom.data[1]))
        for atom in atoms_of(expr)
        if atom.kind == "among" and atom.data[0] in given
    }
    return replaced(expr, known)


def with_facts_of(platform: Platform, values: Mapping[Path, Any]) -> dict[Path, Any]:
    """Slot values of a call on another arch, moved to the platform; facts that were usual there are usual here."""
    earlier, now = KNOWN_ARCHS.get(values.get(("arch",), 0)), KNOWN_ARCHS.get(platform.arch or 0)
    usual: dict[Path, Any] = {
        (name,): getattr(now, name)
        for name in (DEVICE_FACTS if earlier is not None and now is not None else ())
        if hasattr(earlier, name) and values.get((name,)) == getattr(earlier, name)
    }
    return {**values, **usual, **slots_of(platform)}


def shown_on(platform: str, arch: int | None, call: Any) -> str:
    """A call without fields at their default and without what says that it is on this platform.

    Args:
        platform: Name of the platform; empty where calls do not say what they run on.
        arch: Its arch, where it is one.
        call: A call there.
    """
    usual = None if arch is None else KNOWN_ARCHS.get(arch)
    shown = []
    for field in dataclasses.fields(call):
        if field.name in ("device", "arch") and platform:
            continue
        value = getattr(call, field.name)
        expected = getattr(usual, field.name, None) if field.name in DEVICE_FACTS else field.default
        if type(value) is not type(expected) or value != expected:
            shown.append(f"{field.name}={value_text(value)}")
    return f"{type(call).__name__}({', '.join(shown)})"
