"""What ops check of the tensors they are given, before a kernel is chosen."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Collection
from typing import Any

import torch

__all__ = [
    "InputError",
    "finite_eps",
    "integer",
    "number",
    "require_alike",
    "require_dtype",
    "require_float32",
    "require_same_device",
    "require_tensor",
    "switch",
]


class InputError(ValueError):
    """Tensors that an op cannot take.

    Attributes:
        op: Name of the op class.
        argument: The argument at fault.
        found: What it has (a shape, dtype or device).
        expected: What it should have; None where many things would do.
    """

    def __init__(self, op: object, argument: str, message: str, *, found: Any = None, expected: Any = None) -> None:
        name = type(op).__name__
        super().__init__(f"{name}: {argument} {message}")
        self.op = name
        self.argument = argument
        self.found = found
        self.expected = expected


def _shown(value: object) -> str:
    """*value* in a few words, whatever it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "too long a number"


def require_tensor(op: object, argument: str, value: object) -> torch.Tensor:
    """*value*, which is a tensor.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, torch.Tensor):
        found = "None" if value is None else f"{_shown(value)}, a {type(value).__name__}"
        raise TypeError(f"{type(op).__name__}: {argument} is {found}: pass a torch.Tensor")
    return value


def require_dtype(op: object, argument: str, tensor: torch.Tensor, accepted: Collection[torch.dtype]) -> None:
    """Check that *tensor* has one of the *accepted* dtypes.

    Raises:
        InputError: it has another.
    """
    if tensor.dtype not in accepted:
        message = f"is {tensor.dtype}: convert it to one of {', '.join(map(str, accepted))}, as with .to(torch.float32)"
        raise InputError(op, argument, message, found=tensor.dtype, expected=tuple(accepted))


def require_float32(op: object, argument: str, value: object, other: str, like: torch.Tensor) -> torch.Tensor:
    """*value*, which is a float32 tensor and lives where *like* does.

    Raises:
        TypeError: it is no tensor.
        InputError: it is of another dtype, or elsewhere.
    """
    tensor = require_tensor(op, argument, value)
    if tensor.dtype != torch.float32:
        message = f"is {tensor.dtype}: pass torch.float32"
        raise InputError(op, argument, message, found=tensor.dtype, expected=torch.float32)
    require_same_device(op, argument, tensor, other, like)
    return tensor


def require_alike(op: object, argument: str, tensor: torch.Tensor, other: str, like: torch.Tensor) -> None:
    """Check that *tensor* has the dtype of *like* and lives where it does.

    Raises:
        InputError: it does not.
    """
    if tensor.dtype != like.dtype:
        message = f"is {tensor.dtype} and {other} is {like.dtype}: convert one with .to({like.dtype})"
        raise InputError(op, argument, message, found=tensor.dtype, expected=like.dtype)
    require_same_device(op, argument, tensor, other, like)


def require_same_device(op: object, argument: str, tensor: torch.Tensor, other: str, like: torch.Tensor) -> None:
    """Check that *tensor* lives where *like* does.

    Raises:
        InputError: it does not.
    """
    if tensor.device != like.device:
        message = f"is on {tensor.device} and {other} on {like.device}: move one with .to({str(like.device)!r})"
        raise InputError(op, argument, message, found=tensor.device, expected=like.device)


def integer(op: object, parameter: str, value: object) -> int:
    """*value*, the parameter of an op, as a plain int; a bool counts as none.

    Raises:
        TypeError: it is no integer.
    """
    try:
        if not isinstance(value, bool) and getattr(value, "dtype", None) is not torch.bool:
            return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):
        pass
    raise TypeError(f"{type(op).__name__}: {parameter} is {_shown(value)}, a {type(value).__name__}: pass an int")


def switch(op: object, parameter: str, value: object, hint: str = "") -> bool:
    """*value*, the parameter of an op that is on or off.

    Args:
        op: The op.
        parameter: Its name.
        value: What was given.
        hint: What to say besides.

    Raises:
        TypeError: it is neither True nor False.
    """
    if isinstance(value, bool):
        return value
    found = f"{_shown(value)}, not True or False"
    raise TypeError(f"{type(op).__name__}: {parameter} is {found}{hint and '; '}{hint}")


def number(op: object, parameter: str, value: object) -> float:
    """*value*, the parameter of an op, as a float; a bool counts as none.

    Raises:
        TypeError: it is no number.
    """
    try:
        if not isinstance(value, bool | str | bytes | bytearray):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise TypeError(f"{type(op).__name__}: {parameter} is {_shown(value)}, a {type(value).__name__}: pass a float")


def finite_eps(op: object, eps: float) -> float:
    """*eps* as what is added to a variance or a mean square.

    Raises:
        TypeError: it is no number.
        ValueError: it is no finite number from 0 up.
    """
    found = number(op, "eps", eps)
    if not 0.0 <= found < math.inf:
        raise ValueError(f"{type(op).__name__}: eps is {eps}: pass a finite number from 0 up")
    return found
