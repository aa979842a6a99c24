"""The rule language: plain Python functions of a call, lifted into predicates that can be proved and run.

Three steps, each usable alone::

    rule = lift(refusal, Call)                # a decision tree, by running refusal once for each path
    rule(call)                                # exactly what refusal(call) gives
    rule.serves & (fields(Call).n >= 1024)    # a Predicate: combine, print, call, hand to the solver

and a selector over several of them::

    selector = Selector(Call, [Candidate("narrow", narrow), Candidate("wide", wide, general=True)])
    selector.select(call)                     # the key that runs
    selector.explain(call)                    # what every candidate said

``refusal(call)`` is any function of one frozen dataclass instance: it returns None where it serves the call,
else the reason. What cannot be lifted raises :class:`NotLifted` with file, line and cause; nothing is guessed.

This package imports the standard library alone.
"""

from tileops_rules.asking import fields
from tileops_rules.domain import OneOf, Range
from tileops_rules.errors import (
    AmbiguousDispatch,
    InvalidCall,
    NoImplementation,
    NotLifted,
    OutsideDomain,
    RefusalError,
    RuleError,
    SelectorError,
)
from tileops_rules.lifting import lift
from tileops_rules.rule import Predicate, Rule
from tileops_rules.selector import Candidate, Explanation, Selector

__all__ = [
    "AmbiguousDispatch",
    "Candidate",
    "Explanation",
    "InvalidCall",
    "NoImplementation",
    "NotLifted",
    "OneOf",
    "OutsideDomain",
    "Predicate",
    "Range",
    "RefusalError",
    "Rule",
    "RuleError",
    "Selector",
    "SelectorError",
    "fields",
    "lift",
]
