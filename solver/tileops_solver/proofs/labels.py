"""What was asked, in words: the label of a line on file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tileops_rules.domain import Domain
from tileops_rules.expr import TRUE, Expr, negation
from tileops_rules.fingerprint import fields_read

__all__ = ["label_of"]

_MOST_SHOWN: Final = 6
"""Parts and fields that a label lists."""


def label_of(about: str, parts: Sequence[Expr], names: Mapping[Expr, str], domain: Domain) -> str:
    """The label of a question.

    Args:
        about: Interface and check.
        parts: The question, without what makes a call valid.
        names: The expressions that have a name: claims of implementations, platforms.
        domain: What the fields range over.
    """
    said = [_said(part, names, domain) for part in parts if part is not TRUE]
    return f"{about}: {_listed(said, ' & ') or 'any call'}"


def _said(part: Expr, names: Mapping[Expr, str], domain: Domain) -> str:
    if part in names:
        return names[part]
    if negation(part) in names:
        return f"not {names[negation(part)]}"
    if part.kind in ("and", "or") and all(each in names or each.kind == "not" for each in part.args):
        joint = " & " if part.kind == "and" else " | "
        return f"({_listed([_said(each, names, domain) for each in part.args], joint)})"
    read = fields_read(part)
    return f"some {_listed([name for name in domain.fields if name in read], ', ')}"


def _listed(texts: Sequence[str], joint: str) -> str:
    more = [f"{len(texts) - _MOST_SHOWN} more"] if len(texts) > _MOST_SHOWN else []
    return joint.join([*texts[:_MOST_SHOWN], *more])
