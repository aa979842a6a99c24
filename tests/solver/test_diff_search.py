"""Every change that a comparison of two rule sets finds, and every absence, against a search of all calls."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tileops_rules import Candidate, Selector
from tileops_rules.evaluating import evaluate
from tileops_rules.parsing import parse
from tileops_solver.diffing.choices import NOBODY, TIE
from tileops_solver.diffing.domains import common_domain

from tests.solver.rule_sets import Placed, Plain, Whole, random_rule, random_selector
from tests.solver.test_diff import compared, snapshot

MOVES = ("moved", "newly served", "newly unserved", "newly tied", "no longer tied")


def varied(selector: Selector, seed: int) -> Selector:
    """The same with one rule, edge or arch changed."""
    draw = random.Random(seed)
    chosen = draw.choice(selector.candidates)
    made = []
    for each in selector.candidates:
        about = {
            "general": each.general,
            "preferred_over": each.preferred_over,
            "devices": each.devices,
            "supported_archs": each.supported_archs,
        }
        refusal = each.refusal
        if each is chosen:
            part = draw.choice(["rule", "rule", "edges", "archs"])
            if part == "rule":
                refusal = random_rule(draw, selector.spec)
            elif part == "edges":
                about["preferred_over"] = ()
            elif selector.spec is Placed:
                about["supported_archs"] = draw.choice([[80], [80, 90], None])
        made.append(Candidate(each.key, refusal, **about))
    return Selector(selector.spec, made, op=selector.op, interface=selector.interface)


def choice(whole: Whole, calls: frozenset[Any], call: Any) -> str:
    if call not in calls:
        return NOBODY
    won = whole.chosen(call)
    return NOBODY if not won else TIE if len(won) > 1 else next(iter(won))


def raises(whole: Whole, calls: frozenset[Any]) -> frozenset[Any]:
    """The calls on which the rule of one that can run raises, as a call does then."""

    def one(key: str, call: Any) -> bool:
        candidate = whole.selector.candidate(key)
        if candidate.cannot_run(call) is not None:
            return False
        try:
            candidate.refusal(call)
        except Exception:  # noqa: BLE001 - whatever a rule raises
            return True
        return False

    return frozenset(call for call in calls if any(one(key, call) for key in whole.keys))


def holds(text: str, domain: Any, call: Any) -> bool:
    values = {path: getattr(call, str(path[0])) for path in domain.slots}
    try:
        return bool(evaluate(parse(text, domain), values))
    except ZeroDivisionError:
        return False


def check(old: Selector, new: Selector) -> set[str]:
    """Hold everything that is found against a search of every call; gives the kinds that occurred."""
    before, now = Whole(old), Whole(new)
    valid = {"old": frozenset(before.calls), "new": frozenset(now.calls)}
    every = list(dict.fromkeys([*before.everything, *now.everything]))
    (found,) = compared(old, new).interfaces
    assert found.undecided == ()
    domain, _ = common_domain(snapshot(old)["Op", "job"].domain, snapshot(new)["Op", "job"].domain)

    def agree(change: Any, calls: frozenset[Any], given: list[Any]) -> None:
        shown = {name: getattr(change.witness, name) for name in old.spec.__dataclass_fields__}
        assert old.spec(**shown) in calls, change
        differing = [call for call in given if holds(change.region, domain, call) is not (call in calls)]
        assert differing == [], (change, differing[:1])

    pairs: dict[tuple[str, str], list[Any]] = {}
    for call in every:
        pair = (choice(before, valid["old"], call), choice(now, valid["new"], call))
        if pair[0] != pair[1]:
            pairs.setdefault(pair, []).append(call)
    moves = {(each.old, each.new): each for each in found.changes if each.kind in MOVES}
    assert set(moves) == set(pairs)
    for (one, other), change in moves.items():
        given = [c for c in every if (one == NOBODY or c in valid["old"]) and (other == NOBODY or c in valid["new"])]
        agree(change, frozenset(pairs[one, other]), given)

    for kind, more, less, side in (("widened", now, before, "new"), ("narrowed", before, now, "old")):
        told = {each.new: each for each in found.changes if each.kind == kind}
        calls = {key: more.serves[key] - less.serves[key] for key in set(old.keys) & set(new.keys)}
        assert set(told) == {key for key, some in calls.items() if some}
        for key, change in told.items():
            agree(change, calls[key], list(valid[side]))

    raising = {"old": raises(before, valid["old"]), "new": raises(now, valid["new"])}
    for kind, more, less in (("newly raising", "new", "old"), ("no longer raising", "old", "new")):
        changes = [each for each in found.changes if each.kind == kind]
        calls_of = raising[more] - raising[less]
        assert len(changes) == bool(calls_of)
        for change in changes:
            agree(change, calls_of, list(valid[more]))

    were, are = ({choice(w, valid[s], c) for c in valid[s]} for w, s in ((before, "old"), (now, "new")))
    dead = {each.old for each in found.changes if each.kind == "newly dead"}
    assert dead == {key for key in set(old.keys) & set(new.keys) if key in were and key not in are}
    return {each.kind for each in found.changes}


def checked(seed: int) -> set[str]:
    spec = (Plain, Placed)[seed % 2]
    old = random_selector(seed, spec, most=4)
    return check(old, varied(old, seed) if seed % 3 else random_selector(seed + 100_000, spec, most=4))


def test_every_change_and_every_absence_agrees_with_a_search_of_all_calls() -> None:
    kinds: set[str] = set()
    for seed in range(16):
        kinds |= checked(seed)
    assert kinds >= {*MOVES, "widened", "narrowed", "newly dead", "newly raising", "no longer raising"}


@pytest.mark.nightly
def test_two_thousand_comparisons_agree_with_a_search_of_all_calls() -> None:
    for seed in range(1000, 3000):
        checked(seed)
