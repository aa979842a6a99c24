"""Plain Python in, rule out: the way from a refusal to its decision tree."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from tileops_rules.domain import Domain, domain_of
from tileops_rules.errors import NotLifted
from tileops_rules.exploring import PATH_BUDGET, Explorer
from tileops_rules.rule import Rule
from tileops_rules.symbolic_call import GivenUp
from tileops_rules.views import package_of
from tileops_rules.watch import collector_paused

__all__ = ["PATH_BUDGET", "lift"]


def _function_of(refusal: Any) -> tuple[types.FunctionType, Any, tuple[Any, ...], dict[str, Any]]:
    """The Python function behind a callable, what it is bound to, and arguments fixed by ``partial``."""
    bound: Any = None
    args: tuple[Any, ...] = ()
    more: dict[str, Any] = {}
    while True:
        if isinstance(refusal, functools.partial):
            args, more = (*refusal.args, *args), {**refusal.keywords, **more}
            refusal = refusal.func
        elif isinstance(refusal, types.MethodType):
            bound, refusal = refusal.__self__, refusal.__func__
        elif isinstance(refusal, functools._lru_cache_wrapper):
            refusal = refusal.__wrapped__
        elif isinstance(refusal, types.FunctionType):
            return refusal, bound, args, more
        elif not isinstance(refusal, type) and isinstance(
            inspect.getattr_static(type(refusal), "__call__", None), types.FunctionType
        ):
            bound, refusal = refusal, type(refusal).__call__
        else:
            raise NotLifted("<unknown>", 0, f"{refusal!r} is no Python function")


def lift(
    refusal: Callable[[Any], Any],
    spec: type,
    *,
    domain: Domain | None = None,
    budget: int = PATH_BUDGET,
) -> Rule:
    """Turn *refusal* into a rule, by exploring every path through it.

    Args:
        refusal: A function of one call: None where it is served, else the reason. Bound methods, lambdas and
            partials too.
        spec: The call's class, a frozen dataclass.
        domain: What its fields range over; read off *spec* where not given.
        budget: Most paths to explore.

    Returns:
        The rule; it gives what *refusal* gives on every call.

    Raises:
        NotLifted: something in it has no symbolic meaning; ``file``, ``line`` and ``cause`` say what and where.
        TypeError: *spec* is no dataclass.
    """
    domain = domain if domain is not None else domain_of(spec)
    function, bound, args, more = _function_of(refusal)
    place = (function.__code__.co_filename, function.__code__.co_firstlineno)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise NotLifted(*place, f"{function.__qualname__} is a generator or coroutine, not a function of the call")
    owners = bound.__mro__ if isinstance(bound, type) else type(bound).__mro__ if bound is not None else ()
    own = frozenset(
        package_of(module)
        for module in (
            function.__module__,
            function.__globals__.get("__name__"),
            *(owner.__module__ for owner in (*owners, *spec.__mro__)),
        )
    ) - {"builtins", "abc"}
    explorer = Explorer(domain, own, budget)
    try:
        copy = _copied(explorer, function, place)
        first = () if bound is None else (explorer.views.class_view(bound) if isinstance(bound, type) else bound,)
        with collector_paused:
            tree, paths = explorer.explore(lambda call: copy(*first, *args, call, **more), place)
        return Rule(
            original=refusal,
            domain=domain,
            tree=tree,
            paths=paths,
            touched=explorer.touched(),
            reads=dict(sorted(explorer.views.reads.items())),
            file=place[0],
            line=place[1],
        )
    finally:
        explorer.close()


def _copied(explorer: Explorer, function: types.FunctionType, place: tuple[str, int]) -> types.FunctionType:
    """The copy of a function that is run on the symbolic call.

    Raises:
        NotLifted: something that it reaches cannot be handed over.
    """
    try:
        return explorer.views.function(function)
    except GivenUp:
        raise NotLifted(*(explorer.refusal or (*place, "cannot be copied"))) from None
