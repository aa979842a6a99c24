"""Decision trees: how they are finished, walked and followed."""

from __future__ import annotations

from typing import Any

import pytest
from tileops_rules import expr as E
from tileops_rules.outcome import Returned
from tileops_rules.shapes import Slot
from tileops_rules.tree import (
    Ask,
    Growing,
    Leaf,
    Pick,
    Tree,
    below,
    condition,
    follow,
    follower,
    frozen,
    leaves,
    walk_tree,
)

N, M = E.integer(("n",)), E.integer(("m",))
KIND = Slot(("kind",), "finite", values=("a", "b", "c"))
LOW, SMALL = E.at_most(N, 9), E.at_most(M, 5)


def end(value: Any) -> Growing:
    return Growing(outcome=Returned(value, value))


def asks(question: E.Expr, yes: Growing | None, no: Growing | None) -> Growing:
    return Growing(question, (True, False), [yes, no])


def picks(*children: Growing) -> Growing:
    return Growing(KIND, KIND.values, list(children))


def leaf(value: Any) -> Leaf:
    return Leaf(Returned(value, value))


def shown(tree: Tree) -> Any:
    """A tree as nested rows."""
    if isinstance(tree, Leaf):
        return tree.outcome.value  # type: ignore[union-attr]
    if isinstance(tree, Ask):
        return (str(tree.question), shown(tree.yes), shown(tree.no))
    return (tree.path, [(values, shown(branch)) for values, branch in tree.branches])


# ------------------------------------------------------------------------------------------------------------ finished


def test_a_finished_tree_has_the_questions_of_the_growing_one() -> None:
    grown = asks(LOW, end(1), picks(end(2), asks(SMALL, end(3), end(4)), end(2)))
    low, small = str(LOW), str(SMALL)
    assert shown(frozen(grown)) == (low, 1, (("kind",), [(("a", "c"), 2), (("b",), (small, 3, 4))]))


def test_a_question_whose_answer_changes_nothing_is_left_out() -> None:
    assert shown(frozen(asks(LOW, end(1), end(1)))) == 1
    assert shown(frozen(picks(end(1), end(1), end(1)))) == 1
    assert shown(frozen(asks(LOW, asks(SMALL, end(1), end(2)), asks(SMALL, end(1), end(2))))) == (str(SMALL), 1, 2)
    assert shown(frozen(picks(end(1), end(1), end(2)))) == (("kind",), [(("a", "b"), 1), (("c",), 2)])


def test_branches_that_are_equal_are_one_and_those_that_differ_are_not() -> None:
    def of(one: Any, two: Any) -> Any:
        tree = frozen(asks(LOW, asks(SMALL, end(one), end(2)), picks(asks(SMALL, end(1), end(two)), end(5), end(6))))
        assert isinstance(tree, Ask)
        assert isinstance(tree.no, Pick)
        return tree.yes, tree.no.branches[0][1]

    first, second = of(1, 2)
    assert first is second
    first, second = of(1, 3)
    assert (shown(first), shown(second)) == ((str(SMALL), 1, 2), (str(SMALL), 1, 3))
    first, second = of(3, 2)
    assert (shown(first), shown(second)) == ((str(SMALL), 3, 2), (str(SMALL), 1, 2))


def test_equal_picks_are_one_too() -> None:
    def of(last: Any) -> Any:
        tree = frozen(asks(LOW, picks(end(1), end(2), end(3)), asks(SMALL, picks(end(1), end(2), end(last)), end(9))))
        assert isinstance(tree, Ask)
        assert isinstance(tree.no, Ask)
        return tree.yes, tree.no.yes

    first, second = of(3)
    assert first is second
    first, second = of(4)
    assert shown(first) != shown(second)


@pytest.mark.parametrize(
    "grown",
    [Growing(), asks(LOW, None, end(1)), asks(LOW, end(1), None), asks(LOW, end(1), Growing()), Growing(LOW, (), [])],
)
def test_a_tree_in_which_a_branch_is_missing_is_never_finished(grown: Growing) -> None:
    with pytest.raises(LookupError, match="a branch of the decision tree was not explored"):
        frozen(grown)


# ------------------------------------------------------------------------------------------------------------- walked


def test_every_node_is_walked_once_and_branches_before_what_holds_them() -> None:
    shared = Ask(SMALL, leaf(1), leaf(2))
    picked = Pick(("kind",), ((("a",), shared), (("b", "c"), leaf(3))))
    root = Ask(LOW, shared, picked)
    walked = list(walk_tree(root))
    assert walked == [shared.yes, shared.no, shared, picked.branches[1][1], picked, root]
    assert [leaf.outcome.value for leaf in leaves(root)] == [1, 2, 3]  # type: ignore[union-attr]
    assert [below(node) for node in (shared, picked, root)] == [
        [shared.yes, shared.no],
        [shared, picked.branches[1][1]],
        [shared, picked],
    ]
    assert below(shared.yes) == []
    assert list(walk_tree(shared.yes)) == [shared.yes]


# ----------------------------------------------------------------------------------------------------------- followed


def followed(tree: Tree, values: dict[Any, Any]) -> Any:
    one, many = follow(tree, values), follower(tree)(values)
    assert one is many
    return None if one is None else one.value  # type: ignore[union-attr]


def test_a_tree_is_followed_by_answers_and_by_values() -> None:
    tree = Ask(LOW, leaf(1), Pick(("kind",), ((("a", "c"), leaf(2)), (("b",), Ask(SMALL, leaf(3), leaf(4))))))
    for n, m, kind, end_of in (
        (9, 0, "a", 1),
        (10, 0, "a", 2),
        (10, 0, "c", 2),
        (10, 5, "b", 3),
        (10, 6, "b", 4),
        (10, 6, "d", None),
    ):
        assert followed(tree, {("n",): n, ("m",): m, ("kind",): kind}) == end_of
    assert followed(leaf(7), {}) == 7


@pytest.mark.parametrize("values", [(1, True, "1"), (True, 1, 2), (1, 2, True), (0, False, None), (1.0, 1, True)])
def test_values_that_are_equal_and_of_other_types_have_branches_of_their_own(values: tuple[Any, ...]) -> None:
    tree = Pick(("kind",), tuple(((value,), leaf(str(number))) for number, value in enumerate(values)))
    for number, value in enumerate(values):
        assert followed(tree, {("kind",): value}) == str(number)
    both = Pick(("kind",), ((values[:2], leaf("both")), (values[2:], leaf("last"))))
    assert [followed(both, {("kind",): value}) for value in values] == ["both", "both", "last"]


def test_one_of_two_equal_values_is_not_taken_for_the_other() -> None:
    tree = Pick(("kind",), (((1,), leaf("one")), (("x",), leaf("x"))))
    assert followed(tree, {("kind",): True}) is None
    assert followed(tree, {("kind",): 1}) == "one"


# --------------------------------------------------------------------------------------------------------- conditions

A, B = E.at_most(M, 1), E.at_most(M, 2)


@pytest.mark.parametrize(
    ("yes", "no", "expected"),
    [
        (1, 1, E.TRUE),
        (0, 0, E.FALSE),
        (1, 0, LOW),
        (0, 1, E.negation(LOW)),
        (Ask(A, leaf(1), leaf(0)), 0, E.conjunction([LOW, A])),
        (Ask(A, leaf(1), leaf(0)), 1, E.disjunction([E.negation(LOW), A])),
        (0, Ask(A, leaf(1), leaf(0)), E.conjunction([E.negation(LOW), A])),
        (1, Ask(A, leaf(1), leaf(0)), E.disjunction([LOW, A])),
        (Ask(A, leaf(1), leaf(0)), Ask(A, leaf(1), leaf(0)), A),
        (
            Ask(A, leaf(1), leaf(0)),
            Ask(B, leaf(1), leaf(0)),
            E.disjunction([E.conjunction([LOW, A]), E.conjunction([E.negation(LOW), B])]),
        ),
    ],
)
def test_the_condition_of_an_end_is_as_short_as_its_branches_allow(yes: Any, no: Any, expected: E.Expr) -> None:
    tree = Ask(LOW, *(leaf(each) if isinstance(each, int) else each for each in (yes, no)))
    assert condition(tree, lambda outcome: outcome.value == 1) is expected  # type: ignore[union-attr]


def test_values_with_the_same_condition_are_named_together() -> None:
    inner = Ask(LOW, leaf(1), leaf(0))
    tree = Pick(("kind",), ((("a",), leaf(1)), (("b",), inner), (("c",), leaf(2))))
    among = E.among(("kind",), ["b"])
    assert condition(tree, lambda outcome: outcome.value > 0) is E.disjunction(  # type: ignore[union-attr]
        [E.among(("kind",), ["a", "c"]), E.conjunction([among, LOW])]
    )
    assert condition(tree, lambda outcome: True) is E.TRUE
    assert condition(Pick(("kind",), ((("a",), inner), (("b", "c"), Ask(LOW, leaf(1), leaf(0))))), bool) is E.TRUE
