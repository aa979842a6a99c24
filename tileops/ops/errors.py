"""Errors of constructing and calling an op; each carries its facts as attributes."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadEntry",
    "DeviceNotStated",
    "ForwardMismatch",
    "ImplementationRefuses",
    "KernelContractError",
    "KeysReused",
    "KeysWithoutInterface",
    "NotAnImplementation",
    "NotProvedError",
    "StatedFacts",
    "UnhashableCall",
    "UnhashableIdentity",
    "UnknownInterface",
    "UnknownKey",
    "UnorderedOverlapError",
    "WrongCallSpec",
]


class KernelContractError(TypeError):
    """A class in ``kernel_types`` or ``interfaces`` is not what the contract asks for.

    Attributes:
        op: Name of the op class.
        key: The key it stands under, or the interface's name.
        owner: The class that the value at fault was written in, or the class itself.
    """

    def __init__(self, op: str, key: str, owner: object, message: str) -> None:
        super().__init__(f"{op}: {message}")
        self.op = op
        self.key = key
        self.owner = owner


class NotAnImplementation(KernelContractError):
    """A class inherits an interface but cannot be built as a kernel of it.

    Attributes:
        interface: The interface class.
    """

    def __init__(self, op: str, key: str, kernel: type, interface: type, advice: str) -> None:
        name = interface.__name__
        super().__init__(op, key, kernel, f"{kernel.__name__} ({key}) does not implement {name}: {advice}")
        self.kernel = kernel
        self.interface = interface


class ForwardMismatch(KernelContractError):
    """A method of an implementation does not take what the interface's method takes.

    Attributes:
        interface: The interface class.
        method: Name of the method.
    """

    def __init__(self, op: str, key: str, kernel: type, interface: type, method: str, wanted: str, found: str) -> None:
        super().__init__(
            op,
            key,
            kernel,
            f"{kernel.__name__} ({key}): {method} does not take {interface.__name__}'s arguments: the "
            f"interface has {method}{wanted}, the class {method}{found}; take what it takes, by position",
        )
        self.kernel = kernel
        self.interface = interface
        self.method = method


class KeysWithoutInterface(ValueError):
    """Keys whose classes inherit none of the op's interfaces.

    Attributes:
        op: Name of the op class.
        keys: The keys.
    """

    def __init__(self, op: str, keys: tuple[str, ...], classes: tuple[str, ...], interfaces: tuple[str, ...]) -> None:
        named = ", ".join(f"{key} ({name})" for key, name in zip(keys, classes, strict=True))
        super().__init__(
            f"{op}: these keys implement none of its kernel interfaces: {named}; "
            + (
                f"let each class inherit Kernel and one of {', '.join(interfaces)}"
                if interfaces
                else "the op declares no interfaces: declare interfaces = {name: interface class}"
            )
        )
        self.op = op
        self.keys = keys


class KeysReused(ValueError):
    """A backend registered kernels under keys that in-tree implementations have.

    Attributes:
        op: Name of the op class.
        keys: The keys.
        places: ``file:line`` of each registration.
    """

    def __init__(self, op: str, keys: tuple[str, ...], places: tuple[str, ...]) -> None:
        named = ", ".join(f"{key} ({place})" for key, place in zip(keys, places, strict=True))
        super().__init__(
            f"{op}: registered kernels reuse keys it has: {named}; register each under a key of its own, "
            f"and let it win with preferred_over"
        )
        self.op = op
        self.keys = keys
        self.places = places


class UnorderedOverlapError(ValueError):
    """Two implementations serve a call and neither is preferred over the other.

    Attributes:
        op: Name of the op class.
        findings: Every such pair, as the proofs found them.
        keys: The two keys of the first.
        witness: The smallest call that both serve, a real call spec.
        places: ``file:line`` of the two.
    """

    def __init__(self, op: str, findings: tuple[Any, ...], message: str) -> None:
        super().__init__(message)
        first = findings[0]
        self.op = op
        self.findings = findings
        self.keys: tuple[str, ...] = tuple(first.keys)
        self.witness: Any = first.witness
        self.places: tuple[str, ...] = tuple(first.places)


class NotProvedError(ValueError):
    """``TILEOPS_PROOF=strict``, and something could not be proved.

    Attributes:
        op: Name of the op class.
        open_points: A line for each thing that is not proved.
    """

    def __init__(self, op: str, open_points: tuple[str, ...]) -> None:
        lines = "".join(f"\n  {line}" for line in open_points)
        super().__init__(
            f"{op}: not proved that no call is claimed twice, and TILEOPS_PROOF is strict:{lines}\n"
            f"write the rules so that they lift, declare preferred_over, or set TILEOPS_PROOF=warn"
        )
        self.op = op
        self.open_points = open_points


class UnknownInterface(ValueError):
    """An op was asked for an interface that it does not have.

    Attributes:
        op: Name of the op class.
        interface: The name asked for.
        interfaces: The names it has.
    """

    def __init__(self, op: str, interface: object, interfaces: tuple[str, ...]) -> None:
        has = ", ".join(interfaces) or "none"
        super().__init__(f"{op} has no interface {interface!r}: pass one of its interfaces ({has})")
        self.op = op
        self.interface = interface
        self.interfaces = interfaces


class UnknownKey(ValueError):
    """An interface was asked for an implementation that it does not have.

    Attributes:
        op: Name of the op class.
        interface: The interface.
        key: The key asked for.
        keys: The keys it has.
    """

    def __init__(self, op: str, interface: str, key: object, keys: tuple[str, ...]) -> None:
        has = ", ".join(keys) or "none"
        super().__init__(f"{op}: {interface} has no implementation {key!r}: pass one of its keys ({has})")
        self.op = op
        self.interface = interface
        self.key = key
        self.keys = keys


class WrongCallSpec(TypeError):
    """A call of another type than the interface's call spec.

    Attributes:
        op: Name of the op class.
        interface: The interface.
        request: The call spec type it takes.
        call: What was passed.
    """

    def __init__(self, op: str, interface: str, request: type, call: object) -> None:
        found = type(call)
        why = ", a subclass, whose properties the rules do not see" if issubclass(found, request) else ""
        super().__init__(
            f"{op}: {interface} takes a {request.__name__} call spec, not {found.__name__}{why}: "
            f"build {request.__module__}.{request.__name__}"
        )
        self.op = op
        self.interface = interface
        self.request = request
        self.call = call


class StatedFacts(TypeError):
    """A call to be run states facts of its device.

    Attributes:
        facts: The names of the fields stated.
        call: The call.
    """

    def __init__(self, facts: tuple[str, ...], call: object) -> None:
        super().__init__(
            f"this call spec states {list(facts)}: a call that runs has the facts of its device; leave them "
            f"out, or ask with key_for or explain, which take stated facts"
        )
        self.facts = facts
        self.call = call


class DeviceNotStated(TypeError):
    """A call that does not say what it is to run on.

    Attributes:
        call: The call.
    """

    def __init__(self, call: object, why: str, advice: str) -> None:
        super().__init__(f"{call!r}: {why}: {advice}")
        self.call = call


class UnhashableCall(TypeError):
    """A call with a value that has no hash.

    Attributes:
        call: The call.
        field: Name of the field.
        value: The value.
    """

    def __init__(self, call: object, field: str, value: object) -> None:
        kind = type(value).__name__
        instead = {"list": "a tuple", "set": "a frozenset", "dict": "a tuple of pairs"}.get(kind)
        super().__init__(
            f"{type(call).__name__} cannot key a dispatch cache: {field} is {value!r}, a {kind} that has no "
            f"hash; write {instead or 'immutable values'}"
        )
        self.call = call
        self.field = field
        self.value = value


class UnhashableIdentity(TypeError):
    """An ``entry_for`` whose build identity has no hash.

    Attributes:
        key: The implementation.
        identity: What it returned.
    """

    def __init__(self, key: str, identity: object) -> None:
        super().__init__(
            f"build identity of {key} is not hashable: {identity!r}; entry_for returns (identity, builder) "
            f"with an identity of immutable values"
        )
        self.key = key
        self.identity = identity


class BadEntry(TypeError):
    """An ``entry_for`` or a builder that returned something else than the contract says.

    Attributes:
        key: The implementation.
        value: What was returned.
    """

    def __init__(self, key: str, value: object, what: str) -> None:
        super().__init__(f"{what} of {key} returned {value!r}")
        self.key = key
        self.value = value


class ImplementationRefuses(ValueError):
    """The one implementation that was asked for cannot run here, or refuses the call.

    Attributes:
        op: Name of the op class.
        interface: The interface.
        key: The implementation.
        call: The call, with the facts of its device.
        reasons: Why.
    """

    def __init__(self, op: str, interface: str, key: str, call: object, status: str, reasons: tuple[str, ...]) -> None:
        why = "; ".join(reasons)
        super().__init__(
            f"{op}.{interface}: {key} was asked for and {status}: {why}; the call is {call!r}; "
            f"leave key out to get the implementation that is chosen"
        )
        self.op = op
        self.interface = interface
        self.key = key
        self.call = call
        self.reasons = reasons
