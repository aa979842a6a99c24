"""The facts of one call that selection and building read."""

from __future__ import annotations

import dataclasses

import torch

__all__ = ["CallSpec"]

DEVICE_FACTS = ("arch", "sm_count", "smem_budget")
"""The fields that a device determines. A call to be run leaves them ``None``."""


@dataclasses.dataclass(frozen=True, repr=False)
class CallSpec:
    """What an op knows of one call before it chooses a kernel.

    A family's call spec is a frozen dataclass under this one. Its fields are immutable values: shapes,
    dtypes, parameters that change meaning. Building one checks nothing; what the op guarantees across
    fields is stated by an ``invalid(self) -> str | None`` of the family's spec.

    Attributes:
        device: Where the tensors of the call live.
        arch: Compute capability of the device as an integer (``90`` for 9.0).
        sm_count: Multiprocessors of the device.
        smem_budget: Shared memory one block may use, in bytes.

    The last three follow from ``device``: they take no part in equality and hashing, are read only where a
    call is first seen, and stay ``None`` on a call that is to run. Stating them is for asking
    (``key_for``): on any machine, about a device that is not here.
    """

    device: torch.device | None = dataclasses.field(default=None, kw_only=True)
    arch: int | None = dataclasses.field(default=None, kw_only=True, compare=False)
    sm_count: int | None = dataclasses.field(default=None, kw_only=True, compare=False)
    smem_budget: int | None = dataclasses.field(default=None, kw_only=True, compare=False)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "__repr__" not in cls.__dict__:  # else the dataclass decorator writes one that shows every field
            cls.__repr__ = CallSpec.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """The call without the fields that stand at their default; it evaluates to an equal call."""
        # Not by getattr: what is said of a rule's code takes that for a look at any member of anything it can reach.
        state: object = object.__getstate__(self)  # a dict, and one of slots where there are any
        parts = state if isinstance(state, tuple) else (state,)
        held = {name: value for part in parts if part for name, value in part.items()}
        values = ((field, held.get(field.name, field.default)) for field in dataclasses.fields(self))
        shown = [f"{field.name}={value!r}" for field, value in values if not _is_default(field, value)]
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_default(field: dataclasses.Field[object], value: object) -> bool:
    if field.default is not dataclasses.MISSING:
        default: object = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        return False
    return value is default or (type(value) is type(default) and bool(value == default))
