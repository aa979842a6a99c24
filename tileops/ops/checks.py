"""The construction checks that ask nothing of a solver: is each class what the contract says?

What concerns the implementations of an interface among each other (preferences, ``general``, keys) is
checked by :class:`tileops_rules.Selector`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tileops.backend.registry import Registration
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel
from tileops.ops.errors import (
    ForwardMismatch,
    KernelContractError,
    KeysReused,
    KeysWithoutInterface,
    NotAnImplementation,
)

__all__ = ["check_classes", "merged", "written_in"]


def merged(
    op: str, in_tree: Mapping[str, type[Kernel]], registered: Collection[Registration]
) -> dict[str, type[Kernel]]:
    """The implementations of an op with those that backends added.

    Raises:
        KeysReused: a backend took a key of the tree.
    """
    taken = [each for each in registered if each.key in in_tree]
    if taken:
        raise KeysReused(op, tuple(each.key for each in taken), tuple(each.place for each in taken))
    return {**in_tree, **{each.key: each.kernel for each in registered}}


def check_classes(op: str, kernel_types: Mapping[str, Any], interfaces: Mapping[str, Any]) -> None:
    """Check every class of an op by itself.

    Raises:
        KernelContractError: a class is not what the contract asks for; its subclasses say how.
        KeysWithoutInterface: classes inherit none of the interfaces.
    """
    for name, interface in interfaces.items():
        _check_interface(op, name, interface)
    strays = []
    for key, kernel in kernel_types.items():
        if not isinstance(kernel, type):
            raise KernelContractError(op, str(key), kernel, f"{key} is {kernel!r}, which is no class")
        mine = [each for each in interfaces.values() if issubclass(kernel, each)]
        if not mine:
            strays.append((key, kernel.__name__))
        for interface in mine:
            _check_implementation(op, key, kernel, interface)
    if strays:
        keys, classes = zip(*strays, strict=True)
        raise KeysWithoutInterface(op, keys, classes, tuple(each.__name__ for each in interfaces.values()))


def written_in(kernel: type, member: str) -> type:
    """The class of *kernel*'s ancestry in which the value of *member* was written."""
    return next((each for each in kernel.__mro__ if member in each.__dict__), kernel)


def _check_interface(op: str, name: str, interface: Any) -> None:
    def fail(message: str) -> KernelContractError:
        return KernelContractError(op, name, interface, f"interface {name} is {interface!r}, {message}")

    if not isinstance(interface, type):
        raise fail("which is no class: write the interface class")
    if not callable(getattr(interface, "forward", None)):
        raise fail("which has no forward: declare it abstract, with the contract as its docstring")
    request = getattr(interface, "request", None)
    if not (isinstance(request, type) and issubclass(request, CallSpec)):
        raise fail(f"whose request is {request!r}: name its call spec type, a class under CallSpec")
    parameters = request.__dict__.get("__dataclass_params__")
    undecorated = parameters is None and "__annotations__" in request.__dict__
    if undecorated or (parameters is not None and not (parameters.frozen and parameters.eq)):
        raise fail(f"whose request {request.__name__} is no frozen dataclass: write @dataclass(frozen=True)")


def _check_implementation(op: str, key: str, kernel: type, interface: type) -> None:
    if not issubclass(kernel, Kernel):
        raise NotAnImplementation(
            op,
            key,
            kernel,
            interface,
            f"it inherits no Kernel: write class {kernel.__name__}(Kernel, {interface.__name__})",
        )
    missing: Collection[str] = getattr(kernel, "__abstractmethods__", ())
    if missing:
        raise NotAnImplementation(op, key, kernel, interface, f"define {', '.join(sorted(missing))}")
    for method in sorted({"forward", *getattr(interface, "__abstractmethods__", ())}):
        _check_method(op, key, kernel, interface, method)
    for method in ("refusal", "entry_for"):
        if not isinstance(inspect.getattr_static(kernel, method), classmethod | staticmethod):
            raise KernelContractError(
                op,
                key,
                kernel,
                f"{kernel.__name__} ({key}): {method} is no classmethod: write @classmethod above it",
            )
    _check_members(op, key, kernel)


def _check_method(op: str, key: str, kernel: type, interface: type, method: str) -> None:
    wanted, found = _signature(interface, method), _signature(kernel, method)
    if wanted is None or found is None:
        return
    kinds = inspect.Parameter
    by_position = [
        p for p in wanted.parameters.values() if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {p.name: None for p in wanted.parameters.values() if p.kind is kinds.KEYWORD_ONLY}
    needed = sum(p.default is kinds.empty for p in by_position)
    counts = range(needed, len(by_position) + 1)
    fits = all(_binds(found, count, by_name) for count in counts)
    star = any(p.kind is kinds.VAR_POSITIONAL for p in wanted.parameters.values())
    if not fits or (star and not _binds(found, len(by_position) + 64, by_name)):
        raise ForwardMismatch(op, key, kernel, interface, method, str(wanted), str(found))


def _signature(owner: type, method: str) -> inspect.Signature | None:
    """The signature without ``self``; None where Python does not know it."""
    written = inspect.getattr_static(owner, method)
    try:
        signature = inspect.signature(getattr(owner, method))
    except (TypeError, ValueError):
        return None
    if isinstance(written, classmethod | staticmethod):
        return signature
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        del parameters[0]
    return signature.replace(parameters=parameters)


def _binds(signature: inspect.Signature, count: int, by_name: Mapping[str, None]) -> bool:
    try:
        signature.bind(*(None,) * count, **by_name)
    except TypeError:
        return False
    return True


_MEMBERS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "devices": (
        lambda value: _holds(value, str) and len(value) > 0,
        'a set of device types, frozenset({"cuda"})',
    ),
    "supported_archs": (
        lambda value: value is None or _holds(value, int),
        "None, or a list of archs such as [80, 90]",
    ),
    "general": (lambda value: isinstance(value, bool), "True or False"),
    "preferred_over": (lambda value: _holds(value, str), 'a set of keys, frozenset({"other_key"})'),
}


def _holds(value: Any, kind: type) -> bool:
    if isinstance(value, str) or not isinstance(value, Collection):
        return False
    return all(isinstance(each, kind) and not isinstance(each, bool) for each in value)


def _check_members(op: str, key: str, kernel: type) -> None:
    for member, (right, what) in _MEMBERS.items():
        value = getattr(kernel, member)
        if not right(value):
            if member in ("devices", "preferred_over") and isinstance(value, str):
                what = f'{member} = frozenset({{"{value}"}}), since a plain string is read as its letters'
            owner = written_in(kernel, member)
            where = "" if owner is kernel else f" (written in {owner.__module__}.{owner.__qualname__})"
            raise KernelContractError(
                op, key, owner, f"{kernel.__name__} ({key}): {member} is {value!r}{where}: write {what}"
            )
