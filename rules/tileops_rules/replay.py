"""Concrete calls near the thresholds of a decision tree, path by path.

A tree is gone through once: on the way down, the values that a slot is tried at are parted by each question about
it, so that every path knows its own. A path's values are then drawn all at once, those next to its thresholds as
often as all others together; questions about several slots are met by solving for one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tileops_rules.building import CallMaker, consistent
from tileops_rules.compile import fills
from tileops_rules.domain import Domain
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, paths_of
from tileops_rules.outcome import Returned
from tileops_rules.pools import Pool, Pools, split
from tileops_rules.tree import Ask, Leaf, Pick, Tree, below, walk_tree

__all__ = ["calls_near"]

_DRAWS: Final = 12
"""Tries to meet a question about several slots, for one call."""

_CALLS_A_PATH: Final = 2
"""Fewest calls on each path; a tree with more paths than that allows is walked at random."""

_CALLS_A_BASE: Final = 8
"""One set of values for the slots that a tree does not read serves this many calls, in turn with the others."""

_CALLS_A_FILLING: Final = 64
"""The same for the slots that a tree reads and a path does not ask about."""


def calls_near(tree: Tree, domain: Domain, count: int, seed: int = 0) -> Iterator[tuple[Any, Mapping[Path, Any]]]:
    """*count* calls, spread over the paths of *tree* and near the constants its questions compare with.

    Every path of a tree of at most ``count / 2`` paths is tried at least twice; of a larger one, paths are drawn.

    Yields:
        A call, and the slot values of it that the tree reads. Calls that the class itself refuses to build are
        left out.
    """
    return _Near(tree, domain, seed).calls(count)


@dataclass(frozen=True)
class _Plan:
    """A path: values to try for each slot that it asks about, and its questions about several slots."""

    pools: Mapping[Path, Pool]
    together: tuple[tuple[Expr, bool], ...]


class _Near:
    def __init__(self, tree: Tree, domain: Domain, seed: int) -> None:
        self._tree = tree
        self._domain = domain
        self._seed = seed
        self._draw = random.Random(seed)
        nodes = list(walk_tree(tree))
        self._leaves = {id(node): 1 for node in nodes if isinstance(node, Leaf)}
        for node in nodes:
            if not isinstance(node, Leaf):
                self._leaves[id(node)] = sum(self._leaves[id(branch)] for branch in below(node))
        self._paths = {node.question: paths_of(node.question) for node in nodes if isinstance(node, Ask)}
        self._pools = Pools(domain, self._paths)
        picked = [node.path for node in nodes if isinstance(node, Pick)]
        shown = [
            path
            for node in nodes
            if isinstance(node, Leaf) and isinstance(node.outcome, Returned)
            for fill in fills(node.outcome.value)
            for argument in fill.args
            for path in paths_of(argument)
        ]
        read = dict.fromkeys([*picked, *shown, *(path for paths in self._paths.values() for path in paths)])
        self._linked = paths_of(domain.links)
        if any(path in read for path in self._linked):
            read.update(dict.fromkeys(self._linked))
        self._read = tuple(read)

    def calls(self, count: int) -> Iterator[tuple[Any, Mapping[Path, Any]]]:
        """*count* calls."""
        bases = max(2, count // _CALLS_A_BASE)
        maker = CallMaker(self._domain, self._read, self._seed, bases)
        others = [self._others() for _ in range(max(2, count // _CALLS_A_FILLING))]
        turn = 0
        for plan, share in self._shares(count):
            for values in self._values(plan, share):
                turn += 1
                made = maker.call(turn % bases, {**others[turn % len(others)], **values})
                if made is not None:
                    yield made

    def _others(self) -> dict[Path, Any]:
        """Values for the slots that the tree reads, to stand where a path does not ask about them."""
        values = {path: self._draw.choice(self._pools[path].values) for path in self._read}
        if not values.keys().isdisjoint(self._linked):
            options = consistent(self._domain, self._linked, ())
            values.update(zip(self._linked, self._draw.choice(options), strict=True))
        return values

    # -------------------------------------------------------------------------------------------- which paths

    def _shares(self, count: int) -> Iterator[tuple[_Plan, int]]:
        """Paths, each with the number of calls to try on it."""
        paths = self._leaves[id(self._tree)]
        if paths * _CALLS_A_PATH > count:
            for start in range(0, count, _CALLS_A_PATH):
                yield self._random_path(), min(_CALLS_A_PATH, count - start)
            return
        share, more = divmod(count, paths)
        for number, plan in enumerate(self._every_path()):
            yield plan, share + (number < more)

    def _every_path(self) -> Iterator[_Plan]:
        stack: list[tuple[Tree, Mapping[Path, Pool], tuple[tuple[Expr, bool], ...]]] = [(self._tree, {}, ())]
        while stack:
            node, pools, together = stack.pop()
            if isinstance(node, Leaf):
                yield _Plan(pools, together)
            else:
                stack.extend(self._ways(node, pools, together))

    def _ways(
        self, node: Ask | Pick, pools: Mapping[Path, Pool], together: tuple[tuple[Expr, bool], ...]
    ) -> list[tuple[Tree, Mapping[Path, Pool], tuple[tuple[Expr, bool], ...]]]:
        """The branches of a node, each with what is tried there."""
        if isinstance(node, Pick):
            return [(branch, {**pools, node.path: Pool(values)}, together) for values, branch in node.branches]
        question = node.question
        paths = self._paths[question]
        if len(paths) > 1:
            return [(node.no, pools, (*together, (question, False))), (node.yes, pools, (*together, (question, True)))]
        (path,) = paths
        yes, no = split(path, pools.get(path) or self._pools[path], question, self._domain.slots[path])
        return [(node.no, {**pools, path: no}, together), (node.yes, {**pools, path: yes}, together)]

    def _random_path(self) -> _Plan:
        """A path: branches with many paths more often, but none hardly ever."""
        node, pools, together = self._tree, {}, ()  # type: tuple[Tree, Mapping[Path, Pool], tuple[Any, ...]]
        while not isinstance(node, Leaf):
            ways = self._ways(node, pools, together)
            paths = self._leaves[id(node)]
            weights = [self._leaves[id(branch)] / paths + 1 / len(ways) for branch, _, _ in ways]
            ((node, pools, together),) = self._draw.choices(ways, weights)
        return _Plan(pools, together)

    # --------------------------------------------------------------------------------------- values on a path

    def _values(self, plan: _Plan, count: int) -> Iterator[dict[Path, Any]]:
        """Values for the slots that a path asks about."""
        draw = self._draw
        free = dict(plan.pools)
        for question, _ in plan.together:
            for path in self._paths[question]:
                free.setdefault(path, self._pools[path])
        columns: list[Sequence[Any]] = []
        if any(path in free for path in self._linked):
            wanted = tuple((path, free.pop(path).values) for path in self._linked if path in free)
            options = consistent(self._domain, self._linked, wanted)
            columns = list(zip(*draw.choices(options, k=count), strict=True)) if options else []
        paths = (*(self._linked if columns else ()), *free)
        columns += [draw.choices(pool.weighted or self._pools[path].weighted, k=count) for path, pool in free.items()]
        if not columns:
            yield from ({} for _ in range(count))
            return
        for row in zip(*columns, strict=True):
            values = dict(zip(paths, row, strict=True))
            for question, answer in plan.together:
                self._meet(question, answer, values, plan)
            yield values

    def _meet(self, question: Expr, answer: bool, values: dict[Path, Any], plan: _Plan) -> None:
        """Change *values* until a question about several slots is answered so, or a few draws do not find how.

        Half of the time, where it is answered so already, they are moved to where the answer changes.
        """
        draw = self._draw
        met = _answer(question, values) is answer
        if met and draw.random() < 0.5:
            return
        paths = self._paths[question]
        for _ in range(_DRAWS):
            path = draw.choice(paths)
            pool = plan.pools.get(path) or self._pools[path]
            edge = self._edge(question, answer, values, path, pool)
            if edge is not None:
                values[path] = edge
                return
            if met:
                return
            values[path] = draw.choice(pool.weighted or self._pools[path].weighted)
            if _answer(question, values) is answer:
                return

    def _edge(self, question: Expr, answer: bool, values: dict[Path, Any], path: Path, pool: Pool) -> int | None:
        """A value of one slot at which the answer changes, the others as they are; None where that is not known.

        Taken for granted is that the question compares something that changes evenly with the slot, as a sum or a
        product does; what comes out is tried.
        """
        if question.kind not in ("at_most", "equals"):
            return None
        slot = self._domain.slots[path]
        kept = values[path]
        compared = question.args[0]
        try:
            start = evaluate(compared, {**values, path: 0}) - question.data
            step = evaluate(compared, {**values, path: 1}) - question.data - start
        except ZeroDivisionError:
            return None
        if not step:
            return None
        root = -start // step
        multiples = (root // width * width + further for width in pool.steps for further in (0, width))
        for near in (root, root + 1, root - 1, *multiples):
            if slot.lo <= near <= slot.hi and pool.allows(path, near):
                values[path] = near
                fits = _answer(question, values) is answer
                values[path] = kept
                if fits:
                    return int(near)
        return None


def _answer(question: Expr, values: Mapping[Path, Any]) -> bool | None:
    try:
        return bool(evaluate(question, values))
    except ZeroDivisionError:
        return None
