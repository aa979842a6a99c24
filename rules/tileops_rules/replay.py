"""Concrete calls near the thresholds of a decision tree, path by path."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, paths_of, walk
from tileops_rules.facts import float_places
from tileops_rules.shapes import Slot, nearest_inside
from tileops_rules.tree import Ask, Leaf, Pick, Tree, walk_tree

__all__ = ["calls_near", "candidate_values"]

_SMALL: Final = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    100,
    127,
    128,
    129,
    255,
    256,
    257,
    1000,
    1024,
    4096,
)
_DRAWS: Final = 24


def calls_near(tree: Tree, domain: Domain, count: int, seed: int = 0) -> Iterator[tuple[Any, dict[Path, Any]]]:
    """*count* calls, spread over the paths of *tree* and near the constants its questions compare with.

    Yields:
        A call and its slot values. Calls that the class itself refuses to build are left out.
    """
    draw = random.Random(seed)
    pools = candidate_values(tree, domain)
    for _ in range(count):
        values = _values_on(_random_path(tree, draw), domain, pools, draw)
        values |= _linked_values(domain, values, draw)
        try:
            call = domain.build(values)
            yield call, domain.read(call)
        except Exception:  # noqa: BLE001 - a class may reject or change what it is built from; such a call is no witness of anything
            continue


def candidate_values(tree: Tree, domain: Domain) -> dict[Path, list[Any]]:
    """For each slot its default, the constants it is compared with and their neighbours, and a few small numbers."""
    numbers: dict[Path, set[int]] = {}
    floats: dict[Path, set[float]] = {}
    texts: dict[Path, list[str]] = {}
    for node in walk_tree(tree):
        if isinstance(node, Ask):
            _collect(node.question, numbers, floats, texts)
    pools: dict[Path, list[Any]] = {}
    for path, slot in domain.slots.items():
        if slot.sort == "finite":
            pools[path] = list(slot.values)
        elif slot.sort == "int":
            near = sorted(numbers.get(path, set()) | set(_SMALL) | {slot.lo, slot.hi})
            pools[path] = [v for v in near if slot.lo <= v <= slot.hi]
        elif slot.sort == "float":
            pools[path] = [v for v in float_places(floats.get(path, {0.0, 1.0})) if slot.holds(v)]
        else:
            pools[path] = [*dict.fromkeys(texts.get(path, [])), "", "any other"]
    return pools


def _collect(
    question: Expr,
    numbers: dict[Path, set[int]],
    floats: dict[Path, set[float]],
    texts: dict[Path, list[str]],
) -> None:
    for node in walk(question):
        if node.kind == "float_is":
            floats.setdefault(node.data[0], set()).add(node.data[2])
        elif node.kind == "str_is":
            texts.setdefault(node.data[0], []).append(node.data[1])
        elif node.kind in ("at_most", "equals"):
            for path in paths_of(node):
                numbers.setdefault(path, set()).update(_near(node))
        elif node.kind in ("mod", "floordiv") and node.args[1].kind == "const":
            step = node.args[1].data
            for path in paths_of(node):
                numbers.setdefault(path, set()).update(step * k + d for k in (1, 2, 17) for d in (-1, 0, 1))


def _near(question: Expr) -> set[int]:
    limit = question.data
    found = {limit - 1, limit, limit + 1, limit + 2}
    argument = question.args[0]
    coefficients = argument.data[1] if argument.kind == "sum" else (1,)
    for c in coefficients:
        found |= {limit // abs(c) + d for d in (-1, 0, 1)}
    if argument.kind == "product" and limit > 0:
        root = math.isqrt(limit)
        found |= {root - 1, root, root + 1, *(limit // k for k in (2, 3, 4, 8, 16, 64))}
    return found


Step = tuple[Expr | Path, Any]


def _random_path(tree: Tree, draw: random.Random) -> list[Step]:
    steps: list[Step] = []
    while not isinstance(tree, Leaf):
        if isinstance(tree, Ask):
            answer = draw.random() < 0.6 if _long(tree.yes) else draw.random() < 0.4
            steps.append((tree.question, answer))
            tree = tree.yes if answer else tree.no
        else:
            values, branch = draw.choice(tree.branches)
            steps.append((tree.path, draw.choice(values)))
            tree = branch
    return steps


def _long(tree: Tree) -> bool:
    return isinstance(tree, Ask | Pick)


def _values_on(
    steps: Sequence[Step], domain: Domain, pools: Mapping[Path, list[Any]], draw: random.Random
) -> dict[Path, Any]:
    """Slot values that satisfy as many of a path's questions as a few draws find."""
    values: dict[Path, Any] = {
        path: nearest_inside(slot) if draw.random() < 0.5 else draw.choice(pools[path])
        for path, slot in domain.slots.items()
    }
    alone: dict[Path, list[tuple[Expr, Any]]] = {}
    together: list[tuple[Expr, Any, tuple[Path, ...]]] = []
    for subject, answer in steps:
        if not isinstance(subject, Expr):
            values[subject] = answer
            continue
        paths = paths_of(subject)
        if len(paths) == 1:
            alone.setdefault(paths[0], []).append((subject, answer))
        else:
            together.append((subject, answer, paths))
    fitting: dict[Path, list[Any]] = {}
    for path, asked in alone.items():
        fits = [v for v in pools[path] if all(_answer(q, {path: v}) is a for q, a in asked)]
        if fits:
            fitting[path] = fits
            values[path] = draw.choice(fits)
    for question, answer, paths in together:
        for _ in range(_DRAWS):
            if _answer(question, values) is answer:
                break
            path = draw.choice(paths)
            values[path] = _drawn(domain.slots[path], fitting.get(path, pools[path]), draw)
    return values


def _linked_values(domain: Domain, values: Mapping[Path, Any], draw: random.Random) -> dict[Path, Any]:
    """Values for the slots that the domain's links tie together: as drawn where these agree, else others that do."""
    agreed: dict[Path, Any] = {}
    for path in paths_of(domain.links):
        others = list(domain.slots[path].values)
        draw.shuffle(others)
        fits = (v for v in (values[path], *others) if _answer(domain.links, {**agreed, path: v}) is not False)
        agreed[path] = next(fits, values[path])
    return agreed


def _drawn(slot: Slot, pool: list[Any], draw: random.Random) -> Any:
    return draw.choice(pool) if pool else nearest_inside(slot)


def _answer(question: Expr, values: Mapping[Path, Any]) -> bool | None:
    try:
        return bool(evaluate(question, values))
    except ZeroDivisionError:
        return None
