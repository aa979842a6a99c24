"""Decision trees: what exploring a rule leaves behind.

Every inner node has a branch for each answer, so the paths are disjoint and exhaustive by construction;
:func:`frozen` refuses a tree in which one is missing.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tileops_rules.closures import reader
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import Expr, Path, among, conjunction, disjunction, exact_key, negation, truth
from tileops_rules.outcome import Outcome
from tileops_rules.shapes import Slot

__all__ = [
    "Ask",
    "Growing",
    "Leaf",
    "Pick",
    "Tree",
    "below",
    "condition",
    "follow",
    "follower",
    "frozen",
    "leaves",
    "walk_tree",
]


class Leaf:
    """The end of a path."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class Ask:
    """A yes-or-no question."""

    __slots__ = ("no", "question", "yes")

    def __init__(self, question: Expr, yes: Tree, no: Tree) -> None:
        self.question = question
        self.yes = yes
        self.no = no


class Pick:
    """The value of a finite slot; values with the same branch stand together."""

    __slots__ = ("branches", "path")

    def __init__(self, path: Path, branches: tuple[tuple[tuple[Any, ...], Tree], ...]) -> None:
        self.path = path
        self.branches = branches

    def branch(self, value: Any) -> Tree | None:
        """The branch of *value*, or None where the slot cannot hold it."""
        key = exact_key(value)
        return next((tree for values, tree in self.branches if any(exact_key(v) == key for v in values)), None)


Tree = Leaf | Ask | Pick


@dataclass(slots=True)
class Growing:
    """A node of a tree that is still being explored.

    Attributes:
        question: An expression, a slot, or None at the end of a path.
        answers: What the branches answer: ``(True, False)``, or values of the slot.
        children: The branches, None where not explored yet.
        outcome: What happens at the end of a path.
    """

    question: Expr | Slot | None = None
    answers: tuple[Any, ...] = ()
    children: list[Growing | None] | None = None
    outcome: Outcome | None = None


def frozen(root: Growing) -> Tree:
    """The finished tree, equal branches merged.

    Raises:
        LookupError: a branch was never explored.
    """
    made: dict[int, Tree] = {}
    interned: dict[Any, Tree] = {}
    leaves: dict[int, Tree] = {}
    stack: list[tuple[Growing, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        outcome, children = node.outcome, node.children or []
        if outcome is not None:
            if id(outcome) not in leaves:
                leaves[id(outcome)] = interned.setdefault(("leaf", outcome), Leaf(outcome))
            made[id(node)] = leaves[id(outcome)]
        elif done:
            made[id(node)] = _joined(node, [made[id(c)] for c in children], interned)
        elif not children or any(child is None for child in children):
            raise LookupError("a branch of the decision tree was not explored")
        else:
            stack.append((node, True))
            stack.extend((c, False) for c in children if c is not None)
    return made[id(root)]


def _joined(node: Growing, children: list[Tree], interned: dict[Any, Tree]) -> Tree:
    if all(c is children[0] for c in children):
        return children[0]
    if isinstance(node.question, Expr):
        key: Any = (node.question, id(children[0]), id(children[1]))
        return interned.setdefault(key, Ask(node.question, children[0], children[1]))
    grouped: dict[int, list[Any]] = {}
    for value, child in zip(node.answers, children, strict=True):
        grouped.setdefault(id(child), []).append(value)
    trees = {id(c): c for c in children}
    path = node.question.path if isinstance(node.question, Slot) else ()
    branches = tuple((tuple(values), trees[i]) for i, values in grouped.items())
    key = (path, tuple((tuple(map(exact_key, values)), id(tree)) for values, tree in branches))
    return interned.setdefault(key, Pick(path, branches))


def below(node: Tree) -> list[Tree]:
    """The branches of a node, in the order of its answers."""
    if isinstance(node, Leaf):
        return []
    return [node.yes, node.no] if isinstance(node, Ask) else [branch for _, branch in node.branches]


def walk_tree(tree: Tree) -> Iterator[Tree]:
    """Every node once, branches before the node that holds them."""
    seen: set[int] = set()
    stack: list[tuple[Tree, bool]] = [(tree, False)]
    while stack:
        node, done = stack.pop()
        if id(node) in seen:
            continue
        if done or isinstance(node, Leaf):
            seen.add(id(node))
            yield node
        else:
            stack.append((node, True))
            stack.extend((branch, False) for branch in reversed(below(node)))


def leaves(tree: Tree) -> Iterator[Leaf]:
    """The different ends."""
    for node in walk_tree(tree):
        if isinstance(node, Leaf):
            yield node


def condition(tree: Tree, wanted: Callable[[Outcome], bool]) -> Expr:
    """When a path ends in a wanted outcome."""
    made: dict[int, Expr] = {}
    for node in walk_tree(tree):
        if isinstance(node, Leaf):
            made[id(node)] = truth(wanted(node.outcome))
        elif isinstance(node, Ask):
            yes, no = made[id(node.yes)], made[id(node.no)]
            made[id(node)] = _either(node.question, yes, no)
        else:
            made[id(node)] = _choice(node, made)
    return made[id(tree)]


def _choice(node: Pick, made: Mapping[int, Expr]) -> Expr:
    grouped: dict[Expr, list[Any]] = {}
    for values, branch in node.branches:
        grouped.setdefault(made[id(branch)], []).extend(values)
    if len(grouped) == 1:
        return next(iter(grouped))
    return disjunction(conjunction([among(node.path, values), e]) for e, values in grouped.items())


def _either(question: Expr, yes: Expr, no: Expr) -> Expr:
    if yes is no:
        return yes
    against = negation(question)
    if no.kind == "truth":
        return disjunction([against, yes]) if no.data else conjunction([question, yes])
    if yes.kind == "truth":
        return disjunction([question, no]) if yes.data else conjunction([against, no])
    return disjunction([conjunction([question, yes]), conjunction([against, no])])


def follow(tree: Tree, values: Mapping[Path, Any]) -> Outcome | None:
    """The outcome where the slots hold *values*; None where a slot holds what its path leaves out."""
    node: Tree | None = tree
    while node is not None and not isinstance(node, Leaf):
        if isinstance(node, Ask):
            node = node.yes if evaluate(node.question, values) else node.no
        else:
            node = node.branch(values[node.path])
    return None if node is None else node.outcome


def follower(tree: Tree) -> Callable[[Mapping[Path, Any]], Outcome | None]:
    """:func:`follow` for many calls: what it asks is put together once.

    Values of finite slots must be those of their domain, or equal ones of the same type.
    """
    made: dict[int, tuple[Callable[[Any], Any] | None, Any]] = {}
    for node in walk_tree(tree):
        if isinstance(node, Leaf):
            made[id(node)] = None, node.outcome
        elif isinstance(node, Ask):
            read = reader(node.question) or functools.partial(evaluate, node.question)
            made[id(node)] = read, {True: made[id(node.yes)], False: made[id(node.no)]}
        else:
            branches = {value: made[id(branch)] for values, branch in node.branches for value in values}
            alike = len({type(value) for value in branches}) == 1
            if len(branches) != sum(len(values) for values, _ in node.branches) or not alike:
                branches = {exact_key(v): made[id(branch)] for values, branch in node.branches for v in values}
                made[id(node)] = _exact_at(node.path), branches
            else:
                made[id(node)] = operator.itemgetter(node.path), branches
    root = made[id(tree)]

    def followed(values: Mapping[Path, Any]) -> Outcome | None:
        read, found = root
        while read is not None:
            step = found.get(read(values))
            if step is None:
                return None
            read, found = step
        outcome: Outcome = found
        return outcome

    return followed


def _exact_at(path: Path) -> Callable[[Mapping[Path, Any]], Any]:
    return lambda values: exact_key(values[path])
