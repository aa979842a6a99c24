"""The one function that answers, for a call, which candidates can run and serve it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tileops_rules.compile import LARGEST_CODE, Writer, tree_paths, tree_size
from tileops_rules.domain import Domain
from tileops_rules.errors import InvalidCall, OutsideDomain
from tileops_rules.expr import FALSE, TRUE, Path, paths_of
from tileops_rules.outcome import Raised
from tileops_rules.shapes import Outside
from tileops_rules.tree import Leaf, Tree

if TYPE_CHECKING:
    from tileops_rules.selector import Selector

__all__ = ["check_valid", "enforce_declared", "mask_function"]


def enforce_declared(domain: Domain, call: Any) -> None:
    """Raise where a declared domain is broken.

    Raises:
        OutsideDomain: it is; with the field, the value and the domain.
    """
    for field, shape in domain.fields.items():
        try:
            shape.read(getattr(call, field), {})
        except Outside as outside:
            if outside.enforced:
                raise OutsideDomain.of(outside.slot, outside.value) from None


def check_valid(spec: type, call: Any) -> None:
    """Raise where the call's own ``invalid`` gives a reason.

    Raises:
        InvalidCall: it does.
    """
    invalid = getattr(spec, "invalid", None)
    reason = None if invalid is None else invalid(call)
    if reason is not None:
        raise InvalidCall(call, reason)


def mask_function(selector: Selector) -> Callable[[Any], int]:
    """``mask(call)``: bit i set where the i-th candidate can run and serves.

    A call outside an assumed domain goes to the original methods; outside a declared one, or where ``invalid``
    gives a reason, it is refused with an error.
    """
    domain = selector.domain
    writer = Writer(domain.slots)
    plain = writer.name(selector.plain_mask)
    outside = writer.name(_outside)
    call_plain = f"return {plain}(call)"
    available = {key: selector.available(key) for key in selector.keys}
    trees: dict[str, Tree] = {
        key: rule.tree for key, rule in selector.rules.items() if tree_size(rule.tree) <= LARGEST_CODE
    }
    valid_tree = selector.invalid.tree if selector.invalid is not None else None
    needed: dict[Path, None] = {}
    for rule in (*selector.rules.values(), *(() if selector.invalid is None else (selector.invalid,))):
        needed.update(dict.fromkeys(sorted(rule.touched, key=str)))
    for predicate in available.values():
        needed.update(dict.fromkeys(paths_of(predicate.expr)))
    needed.update(dict.fromkeys(paths_of(domain.links)))
    read = frozenset(needed)
    helpers: list[tuple[str, str, Tree, str]] = []
    if valid_tree is not None:
        helpers.append(("valid", _arguments(writer, valid_tree), valid_tree, "True"))
    for i, key in enumerate(selector.keys):
        if key in trees:
            helpers.append((f"serves{i}", _arguments(writer, trees[key]), trees[key], plain))
    for name, arguments, tree, _ in helpers:
        writer.line(0, f"def {name}({arguments}):")
        writer.tree(1, tree, _verdict, "return None")
    writer.line(0, "def mask(call):")
    for field, shape in domain.fields.items():
        writer.load(1, f"call.{field}", shape, read, f"return {outside}({plain}, call, {{slot}}, {{value}})")
    if domain.links.kind != "truth":
        writer.line(1, f"if not {writer.code(domain.links)}: {call_plain}")
    if valid_tree is not None:
        writer.line(1, f"if not valid({_arguments(writer, valid_tree)}): {call_plain}")
    elif selector.invalid_not_lifted is not None:
        writer.line(1, f"{writer.name(check_valid)}({writer.name(selector.spec)}, call)")
    writer.line(1, "m = 0")
    for i, candidate in enumerate(selector.candidates):
        condition = available[candidate.key].expr
        depth = 1
        if condition is FALSE:
            continue
        if condition is not TRUE:
            writer.line(1, f"if {writer.code(condition)}:")
            depth = 2
        if candidate.key in trees:
            writer.line(depth, f"s = serves{i}({_arguments(writer, trees[candidate.key])})")
            writer.line(depth, f"if s: m |= {1 << i}")
            writer.line(depth, f"elif s is None: {call_plain}")
        else:
            asked = writer.name(selector.refused)
            writer.line(depth, f"if {asked}({writer.name(candidate)}, call) is None: m |= {1 << i}")
    writer.line(1, "return m")
    return writer.function("mask")


def _outside(plain: Callable[[Any], int], call: Any, slot: Any, value: Any) -> int:
    outside = Outside(slot, value)
    if outside.enforced:
        raise OutsideDomain.of(slot, value)
    return plain(call)


def _arguments(writer: Writer, tree: Tree) -> str:
    return ", ".join(sorted({writer.variable(path) for path in tree_paths(tree)}))


def _verdict(leaf: Leaf) -> str:
    """None hands the call to the original methods, which then raise as the rule does."""
    outcome = leaf.outcome
    if isinstance(outcome, Raised):
        return "return None"
    return f"return {outcome.serves}"
