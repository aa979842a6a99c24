"""Rules without the code that they were lifted from: selectors made of what a snapshot holds.

Every question can be asked of a :class:`RecordedSelector`: it is a :class:`~tileops_rules.Selector` whose rules are
predicates read from text. Values that are no plain literals (a dtype, a member of an enum) stand there as
:class:`Named`, so that no torch is needed.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tileops_rules import Candidate, NotLifted, Predicate, Rule, Selector
from tileops_rules.domain import Domain
from tileops_rules.expr import TRUE, Expr, exact_key, paths_of
from tileops_rules.outcome import Raised, Returned
from tileops_rules.printing import value_text
from tileops_rules.shapes import Shape
from tileops_rules.tree import Ask, Leaf, Tree

__all__ = ["Named", "RecordedDomain", "RecordedRule", "RecordedSelector", "call_class", "recorded_value"]


@dataclasses.dataclass(frozen=True)
class Named:
    """A value that stands for another, by the text that this one prints as."""

    text: str

    def __repr__(self) -> str:
        return self.text


def recorded_value(text: str) -> Any:
    """The value that *text* stands for: a Python literal, or the name of something else."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return Named(text)
    return value if value_text(value) == text else Named(text)


def call_class(name: str, fields: Iterable[str]) -> type:
    """A frozen dataclass of that name, whose ``repr`` leaves out what a call that states nothing has.

    That is what :attr:`RecordedDomain.usual` says; other classes show every field.
    """

    def shown(self: Any) -> str:
        held = {f: getattr(self, f) for f in made.__dataclass_fields__}
        stated = (f"{f}={value!r}" for f, value in held.items() if f not in usual or exact_key(value) != usual[f])
        return f"{name}({', '.join(stated)})"

    made: Any = dataclasses.make_dataclass(name, fields, frozen=True, repr=False, namespace={"__repr__": shown})
    usual: dict[str, Any] = {}
    made.usual = usual
    kind: type = made
    return kind


class RecordedDomain(Domain):
    """What the fields of a call range over, made of shapes and not of a class's annotations.

    Args:
        name: Name of the call's class.
        fields: Field to shape.
    """

    def __init__(self, name: str, fields: Mapping[str, Shape]) -> None:
        self.spec = call_class(name, fields)
        self.fields = dict(fields)
        self.slots = {slot.path: slot for shape in fields.values() for slot in shape.slots()}
        self.links = TRUE
        device, arch = self.slots.get(("device", "type")), self.slots.get(("arch",))
        self.device_types = frozenset(() if device is None else device.values)
        self.archs = frozenset(a for a in (() if arch is None else arch.values) if type(a) is int)
        usual = self.build({})
        self.spec.usual.update({field: exact_key(getattr(usual, field)) for field in fields})  # type: ignore[attr-defined]


class _RecordedError(Exception):
    """Stands for the exception that a rule raised where it was recorded."""


def _asked(question: Expr, yes: Tree, no: Tree) -> Tree:
    if question.kind == "truth":
        return yes if question.data else no
    return Ask(question, yes, no)


@dataclasses.dataclass(frozen=True)
class RecordedRule:
    """What is known of one rule.

    Attributes:
        serves: Where it serves; None where it was not lifted.
        raises: Where it raises.
        cause: Why it was not lifted.
    """

    serves: Expr | None
    raises: Expr
    cause: str = ""

    def rule(self, domain: Domain) -> Rule:
        """The rule as the selector has it.

        Raises:
            NotLifted: it was not lifted where it was recorded.
        """
        if self.serves is None:
            raise NotLifted("snapshot", 0, self.cause)
        serves, raises = Predicate(domain, self.serves), Predicate(domain, self.raises)

        def refusal(call: Any) -> str | None:
            if serves(call):
                return None
            if raises(call):
                raise _RecordedError("it raised")
            return "refuses it"

        served, refused = Leaf(Returned(None, exact_key(None))), Leaf(Returned("refuses it", exact_key("refuses it")))
        other = _asked(self.raises, Leaf(Raised(_RecordedError, "it raised")), refused)
        return Rule(
            original=refusal,
            domain=domain,
            tree=_asked(self.serves, served, other),
            paths=2,
            touched=frozenset((*paths_of(self.serves), *paths_of(self.raises))),
            reads={},
            file="snapshot",
            line=0,
        )


class RecordedSelector(Selector):
    """A selector from recorded rules.

    Args:
        op: Name of the op.
        interface: Name of the interface.
        domain: What the fields range over.
        valid: Which calls there are.
        candidates: Key to ``general``, ``preferred_over``, ``devices`` and ``supported_archs``.
        rules: Key to what is known of its rule.
        validity_not_lifted: Which rules of validity are missing in *valid*, and why.
        unserved: Where calls are declared unserved, as a rule that serves the others; None where nothing is.
    """

    def __init__(
        self,
        op: str,
        interface: str,
        domain: RecordedDomain,
        valid: Expr,
        candidates: Mapping[str, Mapping[str, Any]],
        rules: Mapping[str, RecordedRule],
        validity_not_lifted: Mapping[str, str],
        unserved: RecordedRule | None,
    ) -> None:
        known = {key: _lifted_or_why(rules[key], domain) for key in sorted(rules)}
        super().__init__(
            domain.spec,
            [Candidate(key, _refusal(known[key]), **about) for key, about in candidates.items()],
            op=op,
            interface=interface,
        )
        self.domain = domain
        self._lifted = (
            {key: rule for key, rule in known.items() if isinstance(rule, Rule)},
            {key: rule for key, rule in known.items() if isinstance(rule, NotLifted)},
        )
        # What the selector of a class works out when first asked is recorded here.
        missing = {name: NotLifted("snapshot", 0, cause) for name, cause in validity_not_lifted.items()}
        self.__dict__["_validity"] = ({}, missing)
        self.__dict__["valid"] = Predicate(domain, valid)
        self.__dict__["_declared"] = None if unserved is None else _lifted_or_why(unserved, domain)


def _lifted_or_why(recorded: RecordedRule, domain: Domain) -> Rule | NotLifted:
    try:
        return recorded.rule(domain)
    except NotLifted as error:
        return error


def _refusal(rule: Rule | NotLifted) -> Any:
    """What is asked of a call; one whose rule was not lifted has no code here to ask."""
    if isinstance(rule, Rule):
        return rule

    def unknown(call: Any) -> None:
        raise rule

    return unknown
