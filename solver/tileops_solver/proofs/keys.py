"""The keys under which answers are on file.

A key is a SHA-256 over the question node by node, over what the fields that it reads range over, over the table of
archs, and over the versions of encoder and z3. It holds nothing that differs between two processes, machines or
versions of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tileops_rules import Selector
from tileops_rules.domain import Domain, Outside
from tileops_rules.expr import Expr
from tileops_rules.fingerprint import (
    NotSpelled,
    archs_digest,
    digest,
    expr_digest,
    field_digest,
    fields_read,
    spelled,
    type_name,
)

__all__ = ["ENCODER", "near_key", "order_key", "question_key", "versions_digest"]

ENCODER: Final = 3
"""The version of everything between a question and its answer, the order of witnesses and the replay included.

A change there that may change any answer takes the next number; a test holds the files concerned to it.
"""


def versions_digest(z3: str) -> bytes:
    """What every key has in common where *z3* is the version of z3."""
    return digest("tileops proofs", str(ENCODER), z3, archs_digest())


def question_key(versions: bytes, domain: Domain, parts: Sequence[Expr]) -> str | None:
    """The key of the smallest call for which all *parts* hold, and of there being none.

    Args:
        versions: Of :func:`versions_digest`.
        domain: What the fields range over; those that *parts* do not read take no part.
        parts: The question.

    Returns:
        The key; None where the question holds a value that has no exact spelling.
    """
    try:
        return digest(versions, "question", _ranges(domain, parts), *map(expr_digest, parts)).hex()
    except NotSpelled:
        return None


def near_key(versions: bytes, domain: Domain, parts: Sequence[Expr], call: Any) -> str | None:
    """The key of the call nearest to another one for which all *parts* hold.

    Args:
        versions: Of :func:`versions_digest`.
        domain: What the fields range over; all of them take part.
        parts: What the nearest call has to satisfy.
        call: The other one.

    Returns:
        The key; None where *call* is outside the domain, or a value has no exact spelling.
    """
    try:
        held = spelled(sorted(domain.read(call).items(), key=repr))
        ranges = (field_digest(domain, name) for name in domain.fields)
        return digest(versions, "near", type_name(domain.spec), held, *ranges, *map(expr_digest, parts)).hex()
    except (NotSpelled, Outside):
        return None


def order_key(versions: bytes, selector: Selector) -> str | None:
    """The key of there being no call that two implementations serve of which none is preferred.

    Args:
        versions: Of :func:`versions_digest`.
        selector: The implementations. The order among them is part of the key.

    Returns:
        The key; None where a rule was not lifted or holds a value that has no exact spelling.
    """
    contested = [each.key for each in selector.candidates if not each.general]
    claims: list[Expr] = []
    for key in contested:
        claim = selector.claims(key)
        if claim is None:
            return None
        claims.append(claim.expr)
    parts = [selector.valid.expr, *claims]
    order = (spelled((key, selector.wins_over[key])) for key in contested)
    try:
        return digest(versions, "order", _ranges(selector.domain, parts), *map(expr_digest, parts), *order).hex()
    except NotSpelled:
        return None


def _ranges(domain: Domain, parts: Iterable[Expr]) -> bytes:
    read = frozenset[str]().union(*map(fields_read, parts))
    return digest(type_name(domain.spec), *(field_digest(domain, name) for name in domain.fields if name in read))
