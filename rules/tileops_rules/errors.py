"""The errors of the rule language; each carries its facts as attributes."""

from __future__ import annotations

from typing import Any

__all__ = [
    "AmbiguousDispatch",
    "InvalidCall",
    "NoImplementation",
    "NotLifted",
    "OutsideDomain",
    "RefusalError",
    "RuleError",
    "SelectorError",
]


class RuleError(Exception):
    """Base of the errors that this package defines."""


class SelectorError(RuleError, ValueError):
    """Candidates cannot stand together in one selector.

    Attributes:
        kind: ``key``, ``general``, ``preference``, ``cycle`` or ``devices``.
        keys: The candidates at fault.
    """

    def __init__(self, kind: str, keys: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.keys = keys


class NotLifted(RuleError):
    """A function could not be turned into a rule; it still runs as ordinary Python.

    Attributes:
        file: Source file of the place that could not be lifted.
        line: Line in that file, 0 where there is none.
        cause: What could not be lifted, naming the field where there is one.
        call: The call on which function and tree differ, where that is the cause; else None.
    """

    def __init__(self, file: str, line: int, cause: str, *, call: Any = None) -> None:
        super().__init__(f"{file}:{line}: {cause}")
        self.file = file
        self.line = line
        self.cause = cause
        self.call = call

    @property
    def place(self) -> str:
        """``file:line`` of what could not be lifted."""
        return f"{self.file}:{self.line}"


class OutsideDomain(RuleError, ValueError):
    """A call has a value that its field's domain leaves out.

    Attributes:
        field: Name of the field (dotted for a nested one).
        value: The value found there.
        domain: The domain, as text.
    """

    def __init__(self, field: str, value: object, domain: str, *, declared: bool = True) -> None:
        super().__init__(
            f"{value!r} is outside the domain of {field}, "
            f"which is {'declared' if declared else 'assumed to be'} {domain}: "
            f"pass a value inside it, or {'widen the declaration' if declared else 'declare a wider one'}"
        )
        self.field = field
        self.value = value
        self.domain = domain

    @classmethod
    def of(cls, slot: Any, value: object) -> OutsideDomain:
        """The error for a value that its slot does not hold."""
        return cls(slot.name, value, str(slot), declared=slot.declared)


class InvalidCall(RuleError, ValueError):
    """A call spec's own ``invalid`` says that the call cannot be.

    Attributes:
        call: The call.
        reason: What ``invalid`` returned.
    """

    def __init__(self, call: object, reason: str) -> None:
        super().__init__(f"{call!r} is not a valid {type(call).__name__}: {reason}")
        self.call = call
        self.reason = reason


class RefusalError(RuleError, RuntimeError):
    """An implementation's ``refusal`` raised; the original exception is chained.

    Attributes:
        key: The implementation.
        call: The call it was asked about.
    """

    def __init__(self, key: str, call: object, error: BaseException) -> None:
        super().__init__(
            f"refusal of {key} raised {type(error).__name__}: {error} on {call!r}: "
            f"a refusal answers every call, with None or a reason"
        )
        self.key = key
        self.call = call


class NoImplementation(RuleError, ValueError):
    """No implementation is both available and willing.

    Attributes:
        call: The call.
        explanation: What every implementation said (:class:`~tileops_rules.Explanation`).
        declared: Why the interface says that nobody is meant to serve it, or None where it does not.
    """

    def __init__(self, call: object, explanation: Any, declared: str | None = None) -> None:
        note = "" if declared is None else f"\ndeclared unserved: {declared}"
        super().__init__(f"no implementation serves this call: {call!r}\n{explanation}{note}")
        self.call = call
        self.explanation = explanation
        self.declared = declared


class AmbiguousDispatch(RuleError, ValueError):
    """Several implementations serve a call and none is preferred; only where no proof was possible.

    Attributes:
        call: The call.
        keys: The implementations that tie.
    """

    def __init__(self, call: object, keys: tuple[str, ...]) -> None:
        first, second = keys[0], keys[1]
        super().__init__(
            f"dispatch is ambiguous: {', '.join(keys)} all serve {call!r} and none is preferred; "
            f"write preferred_over = frozenset({{{second!r}}}) in {first}, or the other way round"
        )
        self.call = call
        self.keys = keys
